//! What is in the tree for those who watch a server: the alerts and the dashboard name figures that there are, each alert has a test and a
//! page, and the statements of the page that finds what hangs are those that an SQL test runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PREFIX: &str = "mysql_global_status_strata_";

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The figures by the page that is made from their declarations.
fn figures() -> BTreeSet<String> {
    let page = read("docs/use/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let names: BTreeSet<String> = rows.map(|(name, _)| name.to_owned()).collect();
    assert!(names.len() > 80, "the figures are found");
    names
}

/// The figures that a text of Prometheus names.
fn named(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    text.split(PREFIX).skip(1).map(name).collect()
}

/// The words behind a key of YAML, line by line.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.trim_start().trim_start_matches("- ").strip_prefix(key))
        .map(str::trim)
        .collect()
}

#[test]
fn alerts_and_dashboard_name_figures_that_there_are() {
    let known = figures();
    for (file, least) in [("strata.rules.yml", 15), ("strata.rules.test.yml", 15), ("strata.dashboard.json", 40)] {
        let named = named(&read(&format!("docs/use/monitoring/{file}")));
        assert!(named.len() >= least, "{file} names {} figures", named.len());
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} names figures that are not there: {unknown:?}");
    }
}

/// A panel without a query, or over another, would be seen by nobody before it is needed.
#[test]
fn the_dashboard_is_one() {
    let board: serde_json::Value = serde_json::from_str(&read("docs/use/monitoring/strata.dashboard.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let mut places = BTreeSet::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty() && targets.iter().all(|target| target["expr"].as_str().is_some()), "{title}");
        let place = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        for x in place[0]..place[0] + place[2] {
            for y in place[1]..place[1] + place[3] {
                assert!(x < 24 && places.insert((x, y)), "{title} lies over another panel");
            }
        }
    }
    assert!(panels.len() > 12);
}

#[test]
fn each_alert_has_a_test_and_a_page() {
    let (rules, tests) =
        (read("docs/use/monitoring/strata.rules.yml"), read("docs/use/monitoring/strata.rules.test.yml"));
    let (alerts, page) = (values(&rules, "alert: "), read("docs/use/monitoring.md"));
    let runbooks = values(&rules, "runbook: ");
    assert!(alerts.len() > 10 && runbooks.len() == alerts.len());
    let tested = values(&tests, "alertname: ");
    for (alert, runbook) in alerts.iter().zip(&runbooks) {
        assert!(tested.contains(alert), "{alert} has no test");
        let of_alert = page.lines().find(|line| line.starts_with(&format!("| `{alert}`")));
        assert!(of_alert.is_some_and(|line| line.contains(&format!("({runbook})"))), "{alert}: {runbook}");
    }
}

#[test]
fn the_statements_of_the_page_are_those_of_the_sql_test() {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = read("docs/use/watch.md");
    let tests = ["watch", "instruments"].map(|test| read(&format!("mysql-test/suite/strata/t/{test}.test")));
    let test = plain(&tests.concat());
    let mut seen = 0;
    for block in page.split("```sql\n").skip(1) {
        let statement = plain(block.split("```").next().unwrap());
        assert!(test.contains(&statement), "no SQL test runs: {statement}");
        seen += 1;
    }
    assert!(seen > 8, "the statements are found");
}
