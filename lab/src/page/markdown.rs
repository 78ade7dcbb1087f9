//! A page as Markdown with a file of SVG for each chart.
//!
//! Tables are those of GitHub's dialect, which mdBook reads too. What a reader of HTML unfolds (the figures of a chart) is in a
//! `details` element here as well. Text is escaped so that it stands there as it is, whatever signs it has.

use super::drawing::Drawing;
use super::figure::ratio;
use super::html::left_out;
use super::look::Looks;
use super::summary::figures;
use super::svg::to_svg;
use super::{Cell, Chart, Condition, Figure, Page, Part, Table};
use std::fmt::Write as _;

/// The text, and the files it shows: each a name, to be stored beside the text, and its content.
pub fn to_markdown(page: &Page) -> (String, Vec<(String, String)>) {
    let looks = Looks::of(page);
    let mut files = Vec::new();
    let mut out = format!("# {}\n\n", escape(&page.title));
    for sentence in &page.verdict {
        let _ = writeln!(out, "**{}**\n", escape(sentence));
    }
    for section in &page.sections {
        let _ = writeln!(out, "## {}\n", escape(&section.heading));
        for part in &section.parts {
            match part {
                Part::Text(text) => {
                    let _ = writeln!(out, "{}\n", escape(text));
                }
                Part::Chart(one) => out += &chart(one, &looks, &mut files),
                Part::Table(one) => out += &table(one),
            }
        }
    }
    if !page.conditions.is_empty() {
        out += &conditions(&page.conditions);
    }
    (out.trim_end().to_string() + "\n", files)
}

fn chart(chart: &Chart, looks: &Looks, files: &mut Vec<(String, String)>) -> String {
    let drawing = Drawing::of(chart, looks);
    let mut out = format!("### {}\n\n", escape(&chart.title));
    if drawing.is_empty() {
        out += "There are no values to show.\n\n";
    } else {
        let name = format!("{:02}-{}.svg", files.len() + 1, file_name(&chart.title));
        let _ = writeln!(out, "![{}]({name})\n", escape(&chart.title));
        files.push((name, to_svg(&drawing)));
    }
    for words in [Some(chart.caption.clone()), left_out(&drawing)].into_iter().flatten() {
        if !words.is_empty() {
            let _ = writeln!(out, "{}\n", escape(&words));
        }
    }
    if !drawing.is_empty() {
        let _ = writeln!(
            out,
            "<details><summary>Figures of this chart</summary>\n\n{}</details>\n",
            table(&figures(chart))
        );
    }
    out
}

/// Letters and digits of a title, not too many.
fn file_name(title: &str) -> String {
    let words: Vec<String> = title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    let mut name = words.join("-");
    name.truncate(40);
    name.trim_end_matches('-').to_string()
}

fn table(table: &Table) -> String {
    let mut out = String::new();
    if !table.caption.is_empty() {
        let _ = writeln!(out, "{}:\n", escape(&table.caption));
    }
    let mut head = vec![escape(&table.corner)];
    head.extend(table.columns.iter().map(|column| match column.unit.as_str() {
        "" => escape(&column.head),
        unit => escape(&format!("{}, {unit}", column.head)),
    }));
    let _ = writeln!(out, "| {} |", head.join(" | "));
    let _ = writeln!(out, "|---|{}", "---:|".repeat(table.columns.len()));
    for row in &table.rows {
        let mut cells = vec![escape(&row.head)];
        cells.extend(row.cells.iter().map(cell));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out + "\n"
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Empty => "–".into(),
        Cell::Text(text) => escape(text),
        Cell::Figure(figure) => figure.to_string(),
        Cell::Ratio(Figure { value, n, .. }) => match cell_spread(cell) {
            Some((low, high)) => format!("**{}** ({} to {}, n {n})", ratio(*value), ratio(low), ratio(high)),
            None => format!("**{}**", ratio(*value)),
        },
    }
}

fn cell_spread(cell: &Cell) -> Option<(f64, f64)> {
    match cell {
        Cell::Figure(figure) | Cell::Ratio(figure) => figure.spread(),
        Cell::Empty | Cell::Text(_) => None,
    }
}

fn conditions(conditions: &[Condition]) -> String {
    let originals = conditions.iter().any(|condition| condition.original.is_some());
    let mut out = String::from("## Conditions\n\n");
    out += if originals { "| | here | original |\n|---|---|---|\n" } else { "| | here |\n|---|---|\n" };
    for condition in conditions {
        let _ = write!(out, "| {} | {} |", escape(&condition.name), escape(&condition.value));
        if originals {
            let mark = if condition.differs() { "≠ " } else { "" };
            let _ = write!(out, " {mark}{} |", escape(condition.original.as_deref().unwrap_or("")));
        }
        out.push('\n');
    }
    out + "\n"
}

/// Text as it stands: no sign of it means anything in Markdown, in a table or in HTML. Lines are joined.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
