//! The command `publish`: stored runs in their short form in the tree, and what the README shows of them.
//!
//! | file | holds |
//! |---|---|
//! | `docs/results/EXPERIMENT/report.json` | medians and spread of every figure, and where they are from: [`Short`] |
//! | `report.md` beside it | the run's page, without charts of every second |
//! | `*.svg` beside it | the charts of both, and of the README |
//! | `README.md`, `docs/results/README.md` | between two marks, a table of each headline and a line for each page |
//! | `docs/SUMMARY.md` | the page |
//!
//! What stands between the marks is made from the files `report.json` alone, of all runs that are there, so that a test can tell
//! whether it is what they say. A run that is published again takes the place of the earlier one.

use super::experiment::{OWN, SCALE};
use super::pages;
use super::results::Results;
use super::short::{REPORT, Short};
use super::store::Store;
use crate::page::{Chart, Page, Part, Plot, to_markdown};
use crate::paths;
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A chart of more values than this is left out of the tree.
const VALUES_MOST: usize = 200;
const BEGIN: &str = "<!-- Made by 'strata-lab publish' from docs/results/*/report.json. -->";
const END: &str = "<!-- The end of what it makes. -->";
/// The line of the summary below which the pages stand.
const ABOVE: &str = "  - [How it is measured](results/method.md)\n";
const HEADLINE: &str = "headline.svg";

/// Options of `publish`.
#[derive(clap::Args)]
pub struct Args {
    /// Folders of stored runs, as 'reproduce' and 'scale' name them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The checkout whose docs and README are written [default: this one]
    #[arg(long, value_name = "DIR")]
    top: Option<PathBuf>,
}

/// The command `publish`.
pub fn run(args: Args) -> Result<()> {
    let tree = Tree { top: args.top.map_or_else(paths::checkout, Ok)? };
    for folder in &args.runs {
        let store = Store::read(folder)?;
        let results = Results { plan: store.plan()?, records: store.records()? };
        let left_out = results.left_out().len();
        let written = tree.add(&results, store.manifest.begun)?;
        println!("{}: {} measurements, {left_out} of them left out", written.display(), results.records.len());
    }
    tree.write_marked()
}

/// A checkout.
struct Tree {
    top: PathBuf,
}

impl Tree {
    fn results(&self) -> PathBuf {
        self.top.join("docs/results")
    }

    /// Writes the files of a run; its page.
    fn add(&self, results: &Results, begun: u64) -> Result<PathBuf> {
        let mut page = pages::page(results)?;
        let short = Short::of(results, &page, begun)?;
        let folder = self.results().join(&short.experiment);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let picture = results.plan.experiment.headline.as_ref().and_then(|headline| headline.picture.as_deref());
        if let Some(chart) = picture.and_then(|id| chart_of(&page, id)) {
            let mut alone = Page::new(&page.title);
            alone.sections.push(crate::page::Section { parts: vec![Part::Chart(chart.clone())], ..Default::default() });
            for (_, drawing) in to_markdown(&alone).1 {
                write(&folder.join(HEADLINE), &drawing)?;
            }
        }
        page.attachments.clear();
        for section in &mut page.sections {
            for part in &mut section.parts {
                if let Part::Chart(chart) = part
                    && values(chart) > VALUES_MOST
                {
                    let words =
                        format!("{}: a chart of {} values, which only the full page has.", chart.title, values(chart));
                    *part = Part::Text(words);
                }
            }
        }
        let (text, drawings) = to_markdown(&page);
        let path = folder.join("report.md");
        write(&path, &text)?;
        for (name, drawing) in drawings {
            write(&folder.join(name), &drawing)?;
        }
        write(&folder.join(REPORT), &short.json()?)?;
        Ok(path)
    }

    /// All runs that are there: the published experiments in their order, then the others by name.
    fn shorts(&self) -> Result<Vec<Short>> {
        let mut shorts = Vec::new();
        let folder = self.results();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            shorts.extend(Short::read(&entry?.path())?);
        }
        let place = |short: &Short| OWN.iter().chain([&SCALE]).position(|(name, _)| *name == short.experiment);
        shorts.sort_by_key(|short| (place(short).unwrap_or(usize::MAX), short.experiment.clone()));
        Ok(shorts)
    }

    /// The files that show the runs, and what they should hold; none where no run is there.
    fn marked(&self) -> Result<Vec<(PathBuf, String)>> {
        let shorts = self.shorts()?;
        if shorts.is_empty() {
            return Ok(Vec::new());
        }
        let mut files = Vec::new();
        for (file, block) in [("README.md", tables(&shorts)), ("docs/results/README.md", list(&shorts))] {
            // Runs without a headline leave the README what it is.
            if block.is_empty() {
                continue;
            }
            let path = self.top.join(file);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let new = between(&text, &block).with_context(|| path.display().to_string())?;
            files.push((path, new));
        }
        let path = self.top.join("docs/SUMMARY.md");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        ensure!(text.contains(ABOVE), "{} has no line {ABOVE:?}", path.display());
        let mut lines = String::new();
        for short in &shorts {
            let line = format!("  - [{}](results/{})\n", short.title, short.page());
            if !text.contains(&line) {
                lines += &line;
            }
        }
        files.push((path, text.replacen(ABOVE, &format!("{ABOVE}{lines}"), 1)));
        Ok(files)
    }

    fn write_marked(&self) -> Result<()> {
        for (path, text) in self.marked()? {
            write(&path, &text)?;
            println!("{}", path.display());
        }
        Ok(())
    }

    /// The files that do not show what the runs say.
    #[cfg(test)]
    fn stale(&self) -> Result<Vec<PathBuf>> {
        let is_stale = |path: &Path, text: &str| fs::read_to_string(path).is_ok_and(|have| have != text);
        Ok(self.marked()?.into_iter().filter(|(path, text)| is_stale(path, text)).map(|(path, _)| path).collect())
    }
}

/// A table of each headline, with its picture.
fn tables(shorts: &[Short]) -> String {
    let mut out = String::new();
    for (short, headline) in shorts.iter().filter_map(|short| Some((short, short.headline.as_ref()?))) {
        let Short { machine, day, rounds, scale, .. } = short;
        let of =
            if *rounds == 1 { crate::page::rounds(1) } else { format!("medians of {}", crate::page::rounds(*rounds)) };
        let _ = writeln!(
            out,
            "{}, {machine}, {day}, {of}, scale \"{scale}\"\n([all of it](docs/results/{})):\n",
            headline.text,
            short.page()
        );
        let _ = writeln!(out, "| | {} |", headline.engines.join(" | "));
        let _ = writeln!(out, "|---|{}", "---:|".repeat(headline.engines.len()));
        for row in &headline.rows {
            let cell = |median: &Option<f64>| median.map_or("–".to_string(), crate::page::number);
            let cells: Vec<String> = row.medians.iter().map(cell).collect();
            let _ = writeln!(out, "| {} | {} |", row.metric, cells.join(" | "));
        }
        out.push('\n');
        if let Some(picture) = &headline.picture {
            let _ = writeln!(out, "![{picture}](docs/results/{}/{HEADLINE})\n", short.experiment);
        }
    }
    out
}

/// A line for each run.
fn list(shorts: &[Short]) -> String {
    let mut out = String::from("| page | scale | machine | day | commit |\n|---|---|---|---|---|\n");
    for short in shorts {
        let Short { title, scale, machine, day, commit, .. } = short;
        let _ = writeln!(out, "| [{title}]({}) | {scale} | {machine} | {day} | {commit} |", short.page());
    }
    out + "\n"
}

/// The text with this between the marks.
fn between(text: &str, block: &str) -> Result<String> {
    let Some((head, rest)) = text.split_once(BEGIN) else { bail!("there is no line {BEGIN}") };
    let Some((_, tail)) = rest.split_once(END) else { bail!("there is no line {END}") };
    Ok(format!("{head}{BEGIN}\n\n{block}{END}{tail}"))
}

/// The chart of a figure of the experiment.
fn chart_of<'a>(page: &'a Page, id: &str) -> Option<&'a Chart> {
    let section = page.sections.iter().find(|section| section.heading.starts_with(&format!("{id}:")))?;
    section.parts.iter().find_map(|part| if let Part::Chart(chart) = part { Some(chart) } else { None })
}

fn values(chart: &Chart) -> usize {
    match &chart.plot {
        Plot::Lines(series) | Plot::Scatter(series) => series.iter().map(|series| series.points.len()).sum(),
        Plot::Jitter { samples, .. } | Plot::Boxes { samples, .. } => {
            samples.iter().flat_map(|samples| &samples.values).map(Vec::len).sum()
        }
        Plot::Bars { bars, .. } => bars.iter().map(|bars| bars.values.len()).sum(),
        Plot::StackedBars { layers, .. } | Plot::StackedAreas { layers, .. } => {
            layers.iter().map(|layer| layer.values.len()).sum()
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;
    use tempfile::TempDir;

    /// A checkout with nothing but what the command writes to, and no run named in the summary.
    fn scratch() -> (TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree { top: folder.path().to_path_buf() };
        fs::create_dir_all(tree.results()).unwrap();
        for file in ["README.md", "docs/results/README.md", "docs/SUMMARY.md"] {
            let text = fs::read_to_string(paths::checkout().unwrap().join(file)).unwrap();
            let kept = text.split_inclusive('\n').filter(|line| !line.ends_with("/report.md)\n"));
            fs::write(tree.top.join(file), kept.collect::<String>()).unwrap();
        }
        (folder, tree)
    }

    #[test]
    fn the_tree_shows_its_stored_results() {
        let tree = Tree { top: paths::checkout().unwrap() };
        let stale = tree.stale().unwrap();
        assert!(stale.is_empty(), "{stale:?} do not show what docs/results has; 'strata-lab publish' writes them");
    }

    #[test]
    fn runs_are_published_in_short_form() {
        let (_folder, tree) = scratch();
        assert!(tree.marked().unwrap().is_empty(), "without a run nothing is changed");
        for (name, _) in OWN.iter().chain([&SCALE]).rev() {
            let mut results = results(name);
            results.records.iter_mut().for_each(|record| record.run.series = vec![100.0; 60]);
            tree.add(&results, 1_764_000_000).unwrap();
            let folder = tree.results().join(name);
            let sizes = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
            let bytes: u64 = sizes.sum();
            assert!(bytes < 700 << 10, "{name} takes {bytes} bytes");
        }
        assert_eq!(tree.stale().unwrap().len(), 3);
        tree.write_marked().unwrap();
        assert!(tree.stale().unwrap().is_empty());
        let readme = fs::read_to_string(tree.top.join("README.md")).unwrap();
        assert!(readme.contains("| transactions/s | 100 | 200 | 300 |"), "{readme}");
        assert!(readme.contains("](docs/results/tpcc-memory/headline.svg)") && readme.contains("2025-11-24"));
        assert!(tree.results().join("tpcc-memory/headline.svg").is_file());
        let summary = fs::read_to_string(tree.top.join("docs/SUMMARY.md")).unwrap();
        for (name, _) in OWN.iter().chain([&SCALE]) {
            assert_eq!(summary.matches(&format!("(results/{name}/report.md)")).count(), 1);
        }
        let report = fs::read_to_string(tree.results().join("tpcc-memory/report.md")).unwrap();
        assert!(report.contains("which only the full page has") && report.contains("## Conditions"));
        // Pictures that a page shows are there.
        for link in report.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(tree.results().join("tpcc-memory").join(link).is_file(), "{link}");
        }
    }

    #[test]
    fn a_readme_that_says_something_else_is_told() {
        let (_folder, tree) = scratch();
        tree.add(&results("tpcc-memory"), 0).unwrap();
        tree.write_marked().unwrap();
        // A better number in the README.
        let path = tree.top.join("README.md");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("| 100 | 200 | 300 |", "| 100 | 200 | 900 |")).unwrap();
        assert_eq!(tree.stale().unwrap(), std::slice::from_ref(&path));
        fs::write(&path, text).unwrap();
        // A new run in the tree, and the README still the old one's.
        let mut other = results("tpcc-memory");
        other.records.iter_mut().for_each(|record| record.run.transactions *= 2);
        tree.add(&other, 0).unwrap();
        assert!(tree.stale().unwrap().contains(&path));
        let without = "no marks".to_string();
        fs::write(&path, without).unwrap();
        assert!(tree.marked().is_err());
    }

    #[test]
    fn runs_without_a_headline_leave_the_readme() {
        let (_folder, tree) = scratch();
        let before = fs::read_to_string(tree.top.join("README.md")).unwrap();
        tree.add(&results("scale"), 0).unwrap();
        tree.write_marked().unwrap();
        assert_eq!(fs::read_to_string(tree.top.join("README.md")).unwrap(), before);
        assert!(fs::read_to_string(tree.results().join("README.md")).unwrap().contains("](scale/report.md)"));
    }
}
