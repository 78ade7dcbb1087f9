//! A page as one HTML file that needs nothing else: style, charting library, figures and raw data are inside.
//!
//! Headings, words, tables, legends and downloads are plain HTML. Charts are drawn by `page.js` with Observable Plot from the
//! [`Drawing`]s, which stand in the page as JSON; each has its figures as a table below it, so that nothing is lost without scripts.
//! Raw data are links with `data:` addresses: a browser saves them under their names. A content security policy in the page keeps
//! the browser from asking any network for anything.
//!
//! Observable Plot on d3 (ISC licence, 490 KB together) draws SVG: sharp in print, coloured by the style sheet, so that a change
//! between light and dark needs no script, and its marks can be counted by a test. Rejected: ECharts (1.1 MB, draws its own
//! legends and pictures into a canvas, which print badly; Apache licence), uPlot (50 KB, but no box plots and a canvas).

use super::drawing::{Drawing, Form};
use super::figure::{number, ratio};
use super::look::{DARK, LIGHT, Look, Looks, MARKS};
use super::summary::figures;
use super::{Attachment, Cell, Chart, Condition, Page, Part, Table};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const D3: &str = include_str!("vendor/d3.min.js");
const PLOT: &str = include_str!("vendor/plot.umd.min.js");
/// A copy of the library carries its licence.
const LICENCES: [&str; 2] = [include_str!("vendor/d3.LICENSE"), include_str!("vendor/plot.LICENSE")];

/// The whole file.
pub fn to_html(page: &Page) -> String {
    let looks = Looks::of(page);
    let mut body = Body { looks: &looks, drawings: Vec::new(), out: String::new() };
    body.page(page);
    let Body { drawings, out, .. } = body;
    let charts = serde_json::to_string(&drawings).expect("drawings are plain data");
    let scripts = if drawings.is_empty() {
        String::new()
    } else {
        format!(
            "<script type=\"application/json\" id=\"drawings\">{}</script>\n\
             <script>/*\n{}*/\n{D3}</script>\n<script>/*\n{}*/\n{PLOT}</script>\n<script>{SCRIPT}</script>\n",
            in_script(&charts),
            LICENCES[0],
            LICENCES[1]
        )
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; \
         style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{}</title>\n<style>\n{}{STYLE}</style>\n</head>\n<body>\n<main>\n{out}</main>\n{scripts}</body>\n</html>\n",
        escape(&page.title),
        palette(),
    )
}

/// The colours of series as variables of the style sheet. Paper is light.
fn palette() -> String {
    let variables = |colours: &[&str; 8]| {
        let each = colours.iter().enumerate();
        each.fold(String::new(), |mut text, (n, colour)| {
            let _ = write!(text, "--s{n}:{colour};");
            text
        })
    };
    format!(
        ":root{{{}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{}}}}}\n",
        variables(&LIGHT),
        variables(&DARK)
    )
}

/// The page's body in the making.
struct Body<'a> {
    looks: &'a Looks,
    drawings: Vec<Drawing>,
    out: String,
}

impl Body<'_> {
    fn page(&mut self, page: &Page) {
        let _ = writeln!(self.out, "<h1>{}</h1>", escape(&page.title));
        if !page.verdict.is_empty() {
            self.out += "<div class=\"verdict\">\n";
            for sentence in &page.verdict {
                let _ = writeln!(self.out, "<p>{}</p>", escape(sentence));
            }
            self.out += "</div>\n";
        }
        for section in &page.sections {
            let _ = writeln!(self.out, "<section>\n<h2>{}</h2>", escape(&section.heading));
            for part in &section.parts {
                match part {
                    Part::Text(text) => {
                        let _ = writeln!(self.out, "<p>{}</p>", escape(text));
                    }
                    Part::Chart(chart) => self.chart(chart),
                    Part::Table(one) => self.out += &table(one),
                }
            }
            self.out += "</section>\n";
        }
        if !page.conditions.is_empty() {
            self.out += &conditions(&page.conditions);
        }
        if !page.attachments.is_empty() {
            self.out += "<section>\n<h2>Raw data</h2>\n<ul>\n";
            for one in &page.attachments {
                self.out += &attachment(one);
            }
            self.out += "</ul>\n</section>\n";
        }
    }

    fn chart(&mut self, chart: &Chart) {
        let drawing = Drawing::of(chart, self.looks);
        let _ = writeln!(self.out, "<figure>\n<h3>{}</h3>", escape(&chart.title));
        if drawing.is_empty() {
            self.out += "<p class=\"none\">There are no values to show.</p>\n";
        } else {
            let _ = writeln!(self.out, "<p class=\"axis\">{}</p>", escape(&chart.y.title()));
            let _ = writeln!(
                self.out,
                "<div class=\"plot\" id=\"chart-{}\" role=\"img\" aria-label=\"{}\"></div>\n\
                 <noscript><p class=\"none\">Scripts draw the chart; its figures are in the table.</p></noscript>",
                self.drawings.len(),
                escape(&chart.title)
            );
            self.out += &legend(&drawing);
        }
        self.out += "<figcaption>\n";
        if !chart.caption.is_empty() {
            let _ = writeln!(self.out, "<p>{}</p>", escape(&chart.caption));
        }
        if let Some(note) = left_out(&drawing) {
            let _ = writeln!(self.out, "<p>{note}</p>");
        }
        if !drawing.is_empty() {
            let _ = writeln!(
                self.out,
                "<details><summary>Figures of this chart</summary>\n{}</details>",
                table(&figures(chart))
            );
            self.drawings.push(drawing);
        }
        self.out += "</figcaption>\n</figure>\n";
    }
}

/// What a chart does not show, in words.
pub(super) fn left_out(drawing: &Drawing) -> Option<String> {
    match drawing.left_out {
        0 => None,
        1 => Some("One value is not shown: it is no number, or not above zero on a logarithmic axis.".into()),
        n => Some(format!("{n} values are not shown: they are no numbers, or not above zero on a logarithmic axis.")),
    }
}

fn legend(drawing: &Drawing) -> String {
    let mut out = String::from("<ul class=\"legend\">\n");
    for series in &drawing.series {
        let _ = writeln!(out, "<li>{}{}</li>", swatch(series.look, drawing.form), escape(&series.title));
    }
    out + "</ul>\n"
}

/// The mark of a series, on a piece of its line where there are lines.
fn swatch(look: Look, form: Form) -> String {
    let colour = format!("var(--s{})", look.slot);
    let dash: Vec<String> = look.dash().iter().map(u32::to_string).collect();
    let line = if form == Form::Lines {
        format!("<path d=\"M1 8H31\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>", dash.join(" "))
    } else {
        String::new()
    };
    format!(
        "<svg class=\"swatch\" width=\"32\" height=\"16\" aria-hidden=\"true\">{line}\
         <g class=\"mark\" data-mark=\"{}\" transform=\"translate(16,8)\" fill=\"{}\" stroke=\"{colour}\"></g></svg>",
        MARKS[look.slot],
        if look.original { "none" } else { &colour }
    )
}

fn table(table: &Table) -> String {
    let mut out = String::from("<div class=\"scroll\" tabindex=\"0\"><table>\n");
    if !table.caption.is_empty() {
        let _ = writeln!(out, "<caption>{}</caption>", escape(&table.caption));
    }
    let _ = write!(out, "<thead><tr><th scope=\"col\">{}</th>", escape(&table.corner));
    for (n, column) in table.columns.iter().enumerate() {
        let mut cells = table.rows.iter().filter_map(|row| row.cells.get(n));
        let words = if cells.any(|cell| matches!(cell, Cell::Text(_))) { " class=\"words\"" } else { "" };
        let unit =
            if column.unit.is_empty() { String::new() } else { format!(" <small>{}</small>", escape(&column.unit)) };
        let _ = write!(out, "<th scope=\"col\"{words}>{}{unit}</th>", escape(&column.head));
    }
    out += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&row.head));
        for cell in &row.cells {
            out += &match cell {
                Cell::Empty => "<td class=\"empty\">–</td>".into(),
                Cell::Text(text) => format!("<td class=\"words\">{}</td>", escape(text)),
                Cell::Figure(figure) => format!("<td>{}{}</td>", number(figure.value), spread(figure, number)),
                Cell::Ratio(figure) => {
                    format!("<td class=\"ratio\">{}{}</td>", ratio(figure.value), spread(figure, ratio))
                }
            };
        }
        out += "</tr>\n";
    }
    out + "</tbody>\n</table></div>\n"
}

fn spread(figure: &super::Figure, shown: fn(f64) -> String) -> String {
    match figure.spread() {
        Some((low, high)) => format!(" <small>{} to {}, n {}</small>", shown(low), shown(high), figure.n),
        None => String::new(),
    }
}

fn conditions(conditions: &[Condition]) -> String {
    let originals = conditions.iter().any(|condition| condition.original.is_some());
    let mut out = String::from(
        "<section>\n<h2>Conditions</h2>\n<div class=\"scroll\" tabindex=\"0\"><table class=\"conditions\">\n<thead><tr><th scope=\"col\"></th><th scope=\"col\">here</th>",
    );
    if originals {
        out += "<th scope=\"col\">original</th>";
    }
    out += "</tr></thead>\n<tbody>\n";
    for condition in conditions {
        let differs = condition.differs();
        let _ = write!(
            out,
            "<tr{}><th scope=\"row\">{}</th><td class=\"words\">{}</td>",
            if differs { " class=\"differs\"" } else { "" },
            escape(&condition.name),
            escape(&condition.value)
        );
        if originals {
            let mark = if differs { "<span class=\"mark\" title=\"differs\">≠ </span>" } else { "" };
            let original = condition.original.as_deref().unwrap_or("");
            let _ = write!(out, "<td class=\"words\">{mark}{}</td>", escape(original));
        }
        out += "</tr>\n";
    }
    out + "</tbody>\n</table></div>\n</section>\n"
}

fn attachment(one: &Attachment) -> String {
    format!(
        "<li><a download=\"{}\" href=\"data:{};base64,{}\">{}</a>: {} ({} KB)</li>\n",
        escape(&one.name),
        one.media_type(),
        BASE64_STANDARD.encode(&one.content),
        escape(&one.name),
        escape(&one.title),
        one.content.len().div_ceil(1024)
    )
}

/// Text between tags and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

/// JSON inside a script element, which nothing but its end tag or a comment could end: both begin with `<`, which JSON has in
/// strings only.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}
