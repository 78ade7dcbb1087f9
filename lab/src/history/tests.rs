//! Histories that are known to be good or bad, one for each thing that can be wrong.

use super::{check::check, text};
use std::collections::BTreeSet;
use std::fs;

fn histories() -> Vec<(String, String)> {
    let dir = crate::paths::checkout().unwrap().join("lab/testdata/histories");
    let mut all: Vec<(String, String)> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), fs::read_to_string(path).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn each_history_is_judged_as_it_says() {
    let all = histories();
    assert!(all.len() >= 35);
    for (name, text) in all {
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# expect: ")).unwrap();
        let history = text::parse(&text).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        let report = check(&history);
        let classes: BTreeSet<&str> = report.findings.iter().map(|finding| finding.class).collect();
        let told: Vec<&str> = report.findings.iter().map(|finding| finding.told.as_str()).collect();
        match expected {
            "nothing" => assert!(classes.is_empty(), "{name}: {classes:?}\n{}", told.join("\n")),
            _ => assert!(classes.contains(expected), "{name}: {classes:?}\n{}", told.join("\n")),
        }
    }
}

#[test]
fn the_text_form_keeps_everything() {
    for (name, text) in histories() {
        let history = text::parse(&text).unwrap();
        assert_eq!(text::parse(&text::print(&history)).unwrap(), history, "{name}");
    }
}

#[test]
fn a_cycle_is_told_in_words() {
    let (_, text) = histories().into_iter().find(|(name, _)| name == "real-time").unwrap();
    let told = check(&text::parse(&text).unwrap()).findings.remove(0).told;
    assert!(told.contains("T1 had ended at 8 us"), "{told}");
    assert!(told.contains("the snapshot of T2 (taken by its statement 1) saw l2 without 2"), "{told}");
    assert!(told.contains("9 10 read l2=1"), "{told}");
}
