//! Text-driven tests: a file of cases, each {input lines, `----`, expected lines}, separated by blank lines. Lines with
//! `#` in front are comments. `STRATA_REWRITE=1` rewrites the expectations; read the diff before you commit it.

use std::path::{Path, PathBuf};

/// A file below the engine's folder.
pub(crate) fn engine_path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

pub(crate) fn rewriting() -> bool {
    std::env::var_os("STRATA_REWRITE").is_some()
}

/// Runs every case of `testdata/<name>` and compares what `run` makes of its input.
pub(crate) fn run_cases(name: &str, run: impl Fn(&str) -> String) {
    let path = engine_path("testdata").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut actual_text = String::new();
    let mut failures = String::new();
    let mut cases = 0;
    for case in text.trim_end().split("\n\n") {
        let Some((input, expected)) = case.split_once("\n----\n") else {
            actual_text += &format!("{case}\n\n");
            assert!(case.lines().all(|l| l.starts_with('#')), "case without ---- in {name}:\n{case}");
            continue;
        };
        cases += 1;
        let code: Vec<&str> = input.lines().filter(|l| !l.starts_with('#')).collect();
        let actual = run(&code.join("\n"));
        let actual = actual.trim_end();
        if actual != expected.trim_end() {
            failures += &format!("{input}\n---- expected\n{expected}\n---- actual\n{actual}\n\n");
        }
        actual_text += &format!("{input}\n----\n{actual}\n\n");
    }
    assert!(cases > 0);
    if rewriting() {
        std::fs::write(&path, format!("{}\n", actual_text.trim_end())).unwrap();
    } else {
        assert!(failures.is_empty(), "{name}:\n{failures}");
    }
}

/// Compares `bytes` with the stored file `fixtures/<name>`.
pub(crate) fn check_fixture(name: &str, bytes: &[u8]) {
    let path = engine_path("fixtures").join(name);
    if rewriting() {
        std::fs::write(&path, bytes).unwrap();
    }
    let stored = std::fs::read(&path).unwrap();
    assert!(stored == bytes, "today's code writes other bytes than fixture {name}");
}

/// Compares `bytes` with the first block fenced as `hex` after the line `heading` of docs/develop/format/`name`: lines
/// of an offset, a colon, bytes, two spaces, text.
pub(crate) fn check_doc_example(name: &str, heading: &str, bytes: &[u8]) {
    let path = engine_path("../docs/develop/format").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let start = text.find(&format!("{heading}\n")).unwrap();
    let start = start + text[start..].find("```hex\n").unwrap() + "```hex\n".len();
    let end = start + text[start..].find("```").unwrap();
    let mut dump = String::new();
    for (i, row) in bytes.chunks(16).enumerate() {
        let digits: Vec<String> = row.iter().map(|b| format!("{b:02x}")).collect();
        let shown: String = row.iter().map(|&b| if (32..127).contains(&b) { b as char } else { '.' }).collect();
        dump += &format!("{:02x}: {:47}  {shown}\n", i * 16, digits.join(" "));
    }
    if rewriting() {
        std::fs::write(&path, format!("{}{dump}{}", &text[..start], &text[end..])).unwrap();
    } else {
        assert_eq!(&text[start..end], dump, "{name}, {heading}");
    }
}
