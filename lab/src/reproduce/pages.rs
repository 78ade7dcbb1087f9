//! The page of an experiment: the verdict in words, then each figure as the original chose it, quotients first.
//!
//! What is drawn ([`super::drawn`]) comes from the experiment's `figures`; what the original published stands beside ours in a chart or in columns of its
//! own, with its own units. [`super::verdict`] makes the sentences.

use super::drawn::{column, ratio, section, whole};
use super::experiment::{Axis, Table as Published, place_text};
use super::growth;
use super::metric;
use super::results::Results;
use super::verdict::{sentences, verdicts};
use super::workload::SCALE_SETTING;
use crate::page::{Attachment, Cell, Condition, Figure as Shown, Page, Row, Section, Table};
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The page of these results. Points that are missing are missing in it.
pub fn page(results: &Results) -> Result<Page> {
    let experiment = &results.plan.experiment;
    let mut page = Page::new(&experiment.title);
    let verdicts = verdicts(results);
    page.verdict = sentences(&verdicts);
    page.verdict.extend(growth::sentences(results));
    let mut first = Section::new("The question");
    first.text(experiment.question.clone());
    if !experiment.origin.is_empty() {
        first.text(format!("The original: {}.", experiment.origin));
    }
    first.text(scale_words(results));
    if !experiment.claims.is_empty() {
        first.table(claims(&verdicts));
    }
    page.sections.push(first);
    for figure in &experiment.figures {
        page.sections.push(section(results, figure));
    }
    if !experiment.tables.is_empty() {
        page.sections.push(published(&experiment.tables));
    }
    page.sections.push(left_out(results));
    page.conditions = conditions(results);
    page.attachments.push(Attachment {
        name: format!("{}.json", experiment.name),
        title: "every measurement with its seconds and conditions".into(),
        content: serde_json::to_string(&results.records)?,
    });
    page.attachments.push(Attachment {
        name: format!("{}.csv", experiment.name),
        title: "the figures of every measurement".into(),
        content: csv(results),
    });
    Ok(page)
}

fn scale_words(results: &Results) -> String {
    let plan = &results.plan;
    let scaled = plan.experiment.scaled.join(", ");
    let factor = plan.scale.factor;
    if factor == 1.0 {
        return format!("Full scale, {}.", crate::page::rounds(plan.rounds));
    }
    let mut text = format!(
        "Scale \"{}\", {}: {scaled} are those of the full scale over {factor}",
        plan.scale_name,
        crate::page::rounds(plan.rounds)
    );
    if plan.experiment.sweep(Axis::Memory).is_some() {
        text += ", and so is the memory, which is a share of the data";
    }
    let other: Vec<String> =
        plan.scale.settings.iter().map(|(name, value)| format!("{name} {}", toml_text(value))).collect();
    if !other.is_empty() {
        let _ = write!(text, "; not by the factor: {}", other.join(", "));
    }
    text + "."
}

fn toml_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(true) => "yes".into(),
        toml::Value::Boolean(false) => "no".into(),
        other => format!("{other:?}"),
    }
}

/// The conclusions as a table: one row each, one column an engine.
fn claims(verdicts: &[super::verdict::Verdict]) -> Table {
    let mut engines: Vec<&str> = Vec::new();
    let mut rows: Vec<(String, &super::experiment::Claim, BTreeMap<&str, Cell>)> = Vec::new();
    for verdict in verdicts {
        if !engines.contains(&verdict.engine.as_str()) {
            engines.push(&verdict.engine);
        }
        if !rows.iter().any(|(_, claim, _)| std::ptr::eq(*claim, verdict.claim)) {
            let what = format!("{} ({})", verdict.claim.text, metric::title(&verdict.claim.metric));
            rows.push((what, verdict.claim, BTreeMap::new()));
        }
        let row = rows.iter_mut().find(|(_, claim, _)| std::ptr::eq(*claim, verdict.claim));
        if let Some((_, _, cells)) = row {
            cells.insert(&verdict.engine, ratio(verdict.ours.as_ref()));
        }
    }
    let original = |claim: &super::experiment::Claim| match claim.original {
        Some(number) => Cell::Ratio(Shown::from(number)),
        None => Cell::Text(format!("{:?} 1", claim.side_of_original()).to_lowercase().replace("equal", "about")),
    };
    Table {
        caption: "Conclusions of the original as quotients".into(),
        corner: "conclusion".into(),
        columns: engines.iter().map(|engine| column(engine)).chain([column("original")]).collect(),
        rows: rows
            .into_iter()
            .map(|(head, claim, mut cells)| Row {
                head,
                cells: engines
                    .iter()
                    .map(|engine| cells.remove(engine).unwrap_or_default())
                    .chain([original(claim)])
                    .collect(),
            })
            .collect(),
    }
}

fn published(tables: &BTreeMap<String, Published>) -> Section {
    let mut section = Section::new("The original's figures");
    tables.values().for_each(|table| section.table(whole(table)));
    section
}

fn left_out(results: &Results) -> Section {
    use super::watch::{OTHERS_MOST, STOLEN_MOST};
    use crate::pace;
    let mut section = Section::new("What is left out");
    let expected = results.records.iter().map(|record| record.watch.expected).fold(0.0, f64::max);
    section.text(format!(
        "A measurement with an error is left out, and one in which the hypervisor took {:.0} % of the processors beyond what it needs \
         to serve the measurement's own requests to the device (as measured before the run: up to {:.0} % here), other processes had \
         {:.0} %, or the machine did a known piece of work at less than {:.2} of its usual pace before or after. Where nothing else was \
         measured, the figure stands in parentheses.",
        STOLEN_MOST * 100.0,
        expected * 100.0,
        OTHERS_MOST * 100.0,
        pace::LEAST
    ));
    let left_out = results.left_out();
    section.text(format!("{} of {} measurements are left out.", left_out.len(), results.records.len()));
    left_out.into_iter().for_each(|text| section.text(text));
    section
}

fn conditions(results: &Results) -> Vec<Condition> {
    let plan = &results.plan;
    let mut conditions = Vec::new();
    let mut add = |name: &str, value: String| {
        conditions.push(Condition { name: name.into(), value, original: None });
    };
    if let Some(record) = results.records.first() {
        add("machine", record.run.machine.clone());
        add("server", format!("MariaDB {}", record.run.version));
        let place = &record.run.place;
        for (name, value) in [
            ("processor", &place.processor),
            ("disk", &place.disk),
            ("file system", &place.file_system),
            ("kernel", &place.kernel),
            ("commit", &place.commit),
            ("command", &place.command),
        ] {
            add(name, if value.is_empty() { "unknown".into() } else { value.clone() });
        }
    }
    for subject in &plan.subjects {
        let record = results.records.iter().find(|r| r.subject == subject.id());
        let options = record.map_or(String::new(), |r| r.run.conditions.extra.join(", "));
        let isolation = record.map_or(String::new(), |r| r.run.isolation.clone());
        let words = record.map(|r| &r.run.settings).into_iter().flatten().filter(|(name, _)| *name != SCALE_SETTING);
        let words = words.map(|(name, value)| format!("{name}: {value}"));
        let parts = [subject.about(), isolation, options].into_iter().chain(words);
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        add(subject.title(), parts.join("; "));
    }
    add("scale", format!("{}, factor {}", plan.scale_name, plan.scale.factor));
    let turns = "; all servers run, one under load at a time while the processes of the others are stopped";
    add("rounds", format!("{}{}", plan.rounds, if plan.is_side_by_side() { turns } else { "" }));
    let settings = &plan.settings;
    let paced = match settings.paced_seconds {
        0 => String::new(),
        seconds => format!(
            "; {} s and {seconds} s with requests at one rate, {} of the baseline's in its last window",
            settings.paced_warmup(),
            settings.paced_share
        ),
    };
    let once = if plan.warmup(1, 0) == 0 { " after a start" } else { "" };
    add(
        "warm-up and measurement",
        format!("{} s{once}, then {} x {} s{paced}", settings.warmup, settings.windows(), settings.seconds),
    );
    for condition in &plan.experiment.conditions {
        conditions.push(Condition {
            name: condition.what.clone(),
            value: condition.ours.clone().unwrap_or_else(|| condition.original.clone()),
            original: Some(condition.original.clone()),
        });
    }
    conditions
}

/// A line for each measurement.
fn csv(results: &Results) -> String {
    let names = metric::names();
    let mut text = String::from("engine,phase,round,place,left out");
    names.iter().for_each(|name| {
        let _ = write!(text, ",{name}");
    });
    text.push('\n');
    for record in &results.records {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "'").replace('\n', " "));
        let place = quoted(&place_text(&record.place));
        let why = quoted(&record.left_out().unwrap_or_default());
        let phase = record.phase.name();
        let _ = write!(text, "{},{phase},{},{place},{why}", quoted(&record.subject), record.round);
        for name in &names {
            let _ = match metric::of(record, name) {
                Some(value) => write!(text, ",{value}"),
                None => write!(text, ","),
            };
        }
        text.push('\n');
    }
    text
}
