//! A run as a page for people: one file, no scripts, nothing from elsewhere.

use std::fmt::Write;

use crate::report::{Figure, Run, Turns, number, series};

/// A colour per store, in the order of stores; distinct also in grey.
const COLOURS: [&str; 4] = ["#0b6e99", "#d9730d", "#5a8f29", "#7a4b94"];

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 120.0;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:.6em 0}td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child{text-align:left}.good{background:#e3f3e3}.bad{background:#fbe3e0}h2{margin-top:1.6em}\
li{color:#555}svg{background:#fafafa;border:1px solid #ddd}.key{font-weight:600;margin-right:1em}\
.side{display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The page.
pub fn page(run: &Run) -> String {
    let mut html = String::new();
    html += "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">";
    html += &format!(
        "<title>Strata's engine and others</title><style>{STYLE}</style><h1>Strata's engine and others</h1><ul>"
    );
    for line in run.conditions() {
        html += &format!("<li>{}</li>", escape(&line));
    }
    html += "</ul><p>";
    let stores: Vec<&str> = run
        .workloads()
        .first()
        .map_or(Vec::new(), |&first| run.of(first).into_iter().map(|turns| turns.store.as_str()).collect());
    for (store, colour) in stores.iter().zip(COLOURS) {
        html += &format!("<span class=key style=\"color:{colour}\">{}</span>", escape(store));
    }
    html += "</p><h2>Operations per second</h2>";
    html += &summary(run, &stores);
    for workload in run.workloads() {
        let turns = run.of(workload);
        let slug = escape(workload.title());
        html += &format!("<h2>{slug}</h2><div class=side>");
        html += &figures(&turns);
        html += &format!(
            "<div>{}<br>operations in each second, rounds one after the other</div></div>",
            plot(&turns, &stores)
        );
    }
    html + "</html>\n"
}

fn summary(run: &Run, stores: &[&str]) -> String {
    let mut html = String::from("<table><tr><th></th>");
    stores.iter().for_each(|store| html += &format!("<th>{}</th>", escape(store)));
    stores.iter().skip(1).for_each(|other| html += &format!("<th>{}/{}</th>", escape(stores[0]), escape(other)));
    html += "</tr>";
    for workload in run.workloads() {
        let turns = run.of(workload);
        html += &format!("<tr><td>{}</td>", escape(workload.title()));
        for store in stores {
            let found = turns.iter().find(|turns| turns.store == *store);
            html += &format!("<td>{}</td>", number(found.and_then(|turns| Figure::Rate.of(turns))));
        }
        for other in stores.iter().skip(1) {
            let ratio = run.ratio(workload, Figure::Rate, other);
            let class = ratio.map_or("", |ratio| if ratio >= 1.0 { "good" } else { "bad" });
            html += &format!("<td class=\"{class}\">{}</td>", number(ratio));
        }
        html += "</tr>";
    }
    html + "</table>"
}

fn figures(turns: &[&Turns]) -> String {
    let mut html = String::from("<table><tr><th></th>");
    turns.iter().for_each(|turns| html += &format!("<th>{}</th>", escape(&turns.store)));
    html += "</tr>";
    for figure in Figure::ALL {
        let values: Vec<Option<f64>> = turns.iter().map(|turns| figure.of(turns)).collect();
        if values.iter().any(Option::is_some) {
            html += &format!("<tr><td>{}</td>", figure.title());
            values.iter().for_each(|value| html += &format!("<td>{}</td>", number(*value)));
            html += "</tr>";
        }
    }
    html + "</table>"
}

/// A line per store over the seconds of all rounds. A turn that does a fixed number of operations is shorter on a faster
/// store, and so is its line.
fn plot(turns: &[&Turns], stores: &[&str]) -> String {
    let lines: Vec<Vec<u64>> = turns.iter().map(|turns| series(turns)).collect();
    let most = lines.iter().flatten().copied().max().unwrap_or(0).max(1) as f64;
    let longest = lines.iter().map(Vec::len).max().unwrap_or(0).max(2) as f64;
    let mut svg = format!(
        "<svg width={WIDTH} height={HEIGHT} viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img>\
         <text x=4 y=14 font-size=11 fill=#777>{}</text>",
        number(Some(most))
    );
    for (turns, line) in turns.iter().zip(&lines) {
        let colour =
            stores.iter().position(|store| *store == turns.store).map_or("#000", |at| COLOURS[at % COLOURS.len()]);
        let mut points = String::new();
        for (second, ops) in line.iter().enumerate() {
            let x = second as f64 / (longest - 1.0) * (WIDTH - 8.0) + 4.0;
            let y = HEIGHT - 4.0 - *ops as f64 / most * (HEIGHT - 24.0);
            write!(points, "{x:.1},{y:.1} ").expect("writing to a String cannot fail");
        }
        svg += &format!("<polyline points=\"{points}\" fill=none stroke=\"{colour}\" stroke-width=1.6 />");
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_store_and_workload() {
        let html = page(&crate::report::tests::run());
        for part in
            ["strata", "rocksdb", "strata/rocksdb", "point read, present", "overwrite, random", "class=\"bad\">0.50"]
        {
            assert!(html.contains(part), "{part} is missing");
        }
        assert_eq!(html.matches("<polyline").count(), 4);
        assert!(!html.contains("<script"));
    }

    #[test]
    fn text_cannot_break_the_page() {
        let mut run = crate::report::tests::run();
        run.machine = "<b>&".into();
        assert!(page(&run).contains("&lt;b&gt;&amp;"));
    }
}
