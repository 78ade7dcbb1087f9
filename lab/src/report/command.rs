//! The command `report`: what stored runs say, as text, as a page of HTML, as Markdown.

use super::Run;
use super::compare::in_order;
use super::page::of_runs;
use super::text::render;
use crate::page::{to_html, to_markdown};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// Options of `report`.
#[derive(clap::Args)]
pub struct Args {
    /// Result files (JSON) of runs, or folders of them
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Write one HTML page with charts, tables, conditions and the runs themselves; it needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the same as Markdown (README.md) with SVG charts
    #[arg(long, value_name = "DIR")]
    markdown: Option<PathBuf>,
    /// The page's heading [default: the commands of the runs]
    #[arg(long)]
    title: Option<String>,
}

/// The command `report`.
pub fn run(args: Args) -> Result<()> {
    let runs = stored(&args.runs)?;
    let workloads = in_order(runs.iter().map(|run| run.workload.clone()));
    if args.html.is_none() && args.markdown.is_none() {
        for workload in &workloads {
            let of_workload: Vec<Run> = runs.iter().filter(|run| run.workload == *workload).cloned().collect();
            println!("{}", render(args.title.as_deref().unwrap_or(workload), &of_workload, &[], true));
        }
        return Ok(());
    }
    let page = of_runs(args.title.as_deref().unwrap_or(&workloads.join(", ")), &runs)?;
    if let Some(file) = &args.html {
        fs::write(file, to_html(&page)).with_context(|| format!("{} cannot be written", file.display()))?;
        println!("{}", file.display());
    }
    if let Some(dir) = &args.markdown {
        let (text, charts) = to_markdown(&page);
        fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
        for (name, content) in [("README.md".to_string(), text)].into_iter().chain(charts) {
            let file = dir.join(name);
            fs::write(&file, content).with_context(|| format!("{} cannot be written", file.display()))?;
        }
        println!("{}", dir.join("README.md").display());
    }
    page.verdict.iter().for_each(|sentence| println!("{sentence}"));
    Ok(())
}

/// The runs of these files and folders, in the order of their file names, which is that of when they were made. In a folder every
/// JSON file is a run.
pub(super) fn stored(paths: &[PathBuf]) -> Result<Vec<Run>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let found = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let before = files.len();
        files.extend(found.into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "json")));
        ensure!(files.len() > before, "{} has no result files", path.display());
    }
    files.sort_by(|a, b| (a.file_name(), a).cmp(&(b.file_name(), b)));
    files.dedup();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Result<Run> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no result file", file.display()))
}
