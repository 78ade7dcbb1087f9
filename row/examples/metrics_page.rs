//! Prints the reference page of the figures, made from their declarations:
//! `cargo run -q -p strata-row --example metrics_page > docs/use/metrics.md`.

use std::fmt::Write;
use strata_row::kv::{Subsystem, Unit};
use strata_row::metrics::metrics;

const HEAD: &str = "# Figures

This page is made from the declarations of the figures (`cargo run -q -p strata-row --example metrics_page > docs/use/metrics.md`). A figure
`NAME` is the status variable `Strata_NAME`, the row `NAME` of `information_schema.STRATA_METRICS`, and a line of `SHOW ENGINE STRATA STATUS`.

A *counter* counts from the start of the plugin and never goes down; watch the difference of two looks. A *gauge* tells the state of the moment.
Figures that are *0 at rest* are 0 when every connection has ended its transaction and nothing runs; anything else was left behind.
";

/// The page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for subsystem in Subsystem::ALL {
        let name = subsystem.name();
        let mut shown = metrics().into_iter().filter(|metric| metric.subsystem == subsystem).peekable();
        if shown.peek().is_none() {
            continue;
        }
        let _ = write!(page, "\n## {}{}\n\n", name[..1].to_uppercase(), &name[1..]);
        page += "| figure | kind | unit | meaning |\n|---|---|---|---|\n";
        for metric in shown {
            let kind = match metric.zero_at_rest {
                true => format!("{}, 0 at rest", metric.kind.name()),
                false => metric.kind.name().to_owned(),
            };
            let unit = if metric.unit == Unit::Count { "" } else { metric.unit.name() };
            let _ = writeln!(page, "| `{}` | {kind} | {unit} | {} |", metric.name, metric.help);
        }
    }
    page
}

#[allow(dead_code)]
fn main() {
    print!("{}", page());
}
