//! The list of figures: with values, with a page that says the same, and without doubles.

#[path = "../../examples/metrics_page.rs"]
mod metrics_page;

use std::collections::BTreeSet;
use std::path::Path;
use strata_row::kv::Options;
use strata_row::metrics::{metrics, rows, status_text, values};
use strata_row::report::Cell;
use strata_row::store::Store;

/// The page of the figures says what their declarations say.
#[test]
fn the_page_is_made_from_the_declarations() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/use/metrics.md");
    let stored = std::fs::read_to_string(path).unwrap();
    assert!(
        stored == metrics_page::page(),
        "docs/use/metrics.md differs: cargo run -q -p strata-row --example metrics_page > docs/use/metrics.md"
    );
}

/// Each declared figure has a value in each place, under the same name and in the same order.
#[test]
fn every_figure_is_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let declared: Vec<&str> = metrics().iter().map(|metric| metric.name).collect();
    assert_eq!(declared.iter().collect::<BTreeSet<_>>().len(), declared.len(), "a name is there twice");
    let valued: Vec<&str> = values(&store).iter().map(|(metric, _)| metric.name).collect();
    assert_eq!(valued, declared);
    let shown: Vec<String> = rows(&store)
        .into_iter()
        .map(|row| match &row[..] {
            [Cell::Text(name), Cell::Text(_), Cell::Number(_), Cell::Text(_), Cell::Text(_), Cell::Text(_)] => {
                name.clone()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(shown, declared);
    let text = status_text(&store);
    for name in declared {
        let in_table = name.starts_with("level").then(|| name.split_once('_')).flatten();
        assert!(text.contains(in_table.map_or(name, |(_, what)| what)), "{name} is missing in\n{text}");
    }
    store.close().unwrap();
}
