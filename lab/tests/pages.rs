//! The pages under `docs/` and the README: each link leads to a file, each page is in the summary, and each page that
//! the sources name is there. What `mdbook build` does not look at.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn files(folder: &Path, endings: &[&str], out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_none_or(|n| n != "target" && n != "run") {
                files(&path, endings, out);
            }
        } else if path.extension().is_some_and(|e| endings.iter().any(|&ending| e == ending)) {
            out.push(path);
        }
    }
}

/// `a/../b` without the way there and back.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

/// Targets of `[text](target)`, without code blocks.
fn links(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut out = Vec::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if fenced || line.starts_with("    ") {
            continue;
        }
        for rest in line.split("](").skip(1) {
            out.extend(rest.split(')').next().map(str::to_owned));
        }
    }
    out
}

/// What a heading is called in a link.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.to_lowercase().replace(' ', "-");
            kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let mut pages = vec![top().join("README.md"), top().join("CONTRIBUTING.md")];
    files(&top().join("docs"), &["md"], &mut pages);
    assert!(pages.len() > 30, "the pages are found");
    let mut wrong = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        for link in links(&text) {
            if link.starts_with("http") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { plain(&page.parent().unwrap().join(file)) };
            let there = target.exists()
                && (anchor.is_empty() || anchors(&fs::read_to_string(&target).unwrap()).contains(anchor));
            if !there {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn the_summary_names_every_page_once() {
    let docs = top().join("docs");
    let named: Vec<_> =
        links(&fs::read_to_string(docs.join("SUMMARY.md")).unwrap()).iter().map(|link| docs.join(link)).collect();
    let mut pages = Vec::new();
    files(&docs, &["md"], &mut pages);
    pages.retain(|page| !page.ends_with("SUMMARY.md"));
    assert_eq!(named.iter().collect::<BTreeSet<_>>(), pages.iter().collect::<BTreeSet<_>>());
    assert_eq!(named.len(), pages.len(), "a page is named twice");
}

#[test]
fn pages_that_the_sources_name_are_there() {
    let mut sources = Vec::new();
    for folder in ["engine", "row", "mariadb", "lab", "bench", "scripts", "docs"] {
        files(&top().join(folder), &["rs", "cc", "h", "sh", "md", "toml"], &mut sources);
    }
    let mut wrong = Vec::new();
    for source in &sources {
        for rest in fs::read_to_string(source).unwrap_or_default().split("docs/").skip(1) {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || "/-_.".contains(*c)).collect();
            // A name that goes on in code, or of another project, is none of ours.
            if name.ends_with(".md") && !top().join("docs").join(&name).exists() {
                wrong.push(format!("{}: docs/{name}", source.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "pages that are not there:\n{}", wrong.join("\n"));
}

/// Status variables, variables and tables of the information schema that pages for users name are there.
#[test]
fn names_that_pages_for_users_show_are_there() {
    let read = |folders: &[&str], endings: &[&str]| -> String {
        let mut sources = Vec::new();
        folders.iter().for_each(|folder| files(&top().join(folder), endings, &mut sources));
        sources.iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
    };
    let figures = read(&["engine/src/metrics", "row/src", "mariadb/src", "mariadb/cc"], &["rs", "cc"]);
    let glue = read(&["mariadb/cc"], &["cc", "h"]);
    let is_figure =
        |name: &str| figures.contains(&format!("\"{name}\"")) || figures.contains(&format!("\"Strata_{name}\""));
    let is_variable = |name: &str| {
        let mut declared =
            glue.split("VAR_").filter_map(|rest| rest.split_once('(')).map(|(_, rest)| rest.trim_start());
        declared.any(|rest| rest.starts_with(&format!("{name},")))
    };
    let mut pages = Vec::new();
    files(&top().join("docs/use"), &["md"], &mut pages);
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let known = match (word.strip_prefix("Strata_"), word.strip_prefix("strata_"), word.strip_prefix("STRATA_"))
            {
                (Some(name), ..) if !name.is_empty() => is_figure(name) || figures.contains(&format!("\"{name}")),
                (_, Some(name), _) if !name.is_empty() => is_variable(name),
                // Variables of the environment, of a tool and of scripts.
                (.., Some("BACKUP_PASSWORD" | "REPLACE_SERVER" | "ENGINE")) => true,
                (.., Some(name)) if !name.is_empty() => glue.contains(&format!("\"STRATA_{name}\"")),
                _ => continue,
            };
            seen += 1;
            if !known {
                wrong.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert!(seen > 50, "the names are found");
    assert!(wrong.is_empty(), "names that are not there:\n{}", wrong.join("\n"));
}
