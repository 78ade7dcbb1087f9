//! The command `reproduce`: published experiments again, with Strata beside the engines of the original.
//!
//! | file | holds |
//! |---|---|
//! | [`experiment`], [`settings`] | an experiment as a file, and its settings at a scale |
//! | [`subject`] | engines with changed settings |
//! | [`plan`], [`store`], [`progress`] | the steps, what of them is done, and going on |
//! | [`workload`], [`rows`], [`prose`], [`application`] | loads and drivers |
//! | [`watch`], [`record`](mod@record), [`metric`] | what is measured, and figures by name |
//! | [`results`], [`rank`], [`verdict`], [`growth`], [`pages`], [`drawn`], [`grid`] | medians, tests, sentences, the page and its figures |
//! | [`compare`], [`figures`] | the command `compare`, and runs as it sees them |
//! | [`publish`], [`short`] | the command `publish`, and the short form of a run in the tree |

mod application;
pub mod compare;
mod drawn;
mod experiment;
mod figures;
mod grid;
mod growth;
mod metric;
mod pages;
mod plan;
mod progress;
mod prose;
pub mod publish;
mod rank;
mod record;
mod results;
mod rows;
mod settings;
mod short;
mod store;
mod subject;
mod verdict;
mod watch;
mod workload;

use self::experiment::{Experiment, OWN, SCALE, Workload};
use self::plan::Plan;
use self::progress::{go_on, left, minutes};
use self::results::Results;
use self::store::Store;
use self::workload::Bench;
use crate::options::Site;
use crate::page::{to_html, to_markdown};
use crate::{paths, redmine};
use anyhow::{Context, Result};
use std::fs;

/// Options of `reproduce`.
#[derive(clap::Args)]
pub struct Args {
    /// tpcc-memory, redmine, linkbench, xa, compressible, scale, or the path of an experiment's file; several run one after the other
    #[arg(required = true)]
    experiments: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// Options of `scale`, and of every experiment.
#[derive(clap::Args)]
pub struct How {
    /// How large: 'short' is minutes on two cores, 'full' the original's size; a file may have others
    #[arg(long, default_value = "short")]
    scale: String,
    /// Engines, the one all others are compared with first [default: the experiment's]. ENGINE:VARIANT changes settings: strata:none,
    /// rocksdb:none, innodb:compressed, innodb:nodoublewrite, or any option, as innodb:innodb_flush_method=fsync
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// How often everything is repeated [default: the scale's]
    #[arg(long)]
    rounds: Option<u32>,
    /// Set an earlier run of the same command aside and begin anew, instead of going on with it
    #[arg(long)]
    fresh: bool,
    /// Of redmine: first install Redmine with its gems and fio from Debian's packages (as root), if they are not there
    #[arg(long)]
    set_up: bool,
    /// Only tell the steps and how long they may take
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    site: Site,
}

/// The command `reproduce`.
pub fn run(args: Args) -> Result<()> {
    let texts = args.experiments.iter().map(|name| text_of(name)).collect::<Result<Vec<String>>>()?;
    perform(&texts, &args.how)
}

/// The command `scale`.
pub fn scale(how: How) -> Result<()> {
    perform(&[SCALE.1.to_string()], &how)
}

fn perform(texts: &[String], args: &How) -> Result<()> {
    let plan = |text: &String| Plan::new(Experiment::parse(text)?, &args.scale, &args.engines, args.rounds);
    let plans = texts.iter().map(plan).collect::<Result<Vec<Plan>>>()?;
    if args.plan {
        let steps = plans.iter().flat_map(|plan| plan.steps.iter().map(move |step| (plan, step)));
        for (plan, step) in steps.filter(|(plan, step)| plan.key(step).is_some()) {
            println!("{:>8}  {}", minutes(plan.estimate(step)), plan.text(step));
        }
        println!("{:>8}  in all, on two cores", minutes(plans.iter().map(Plan::seconds).sum()));
        return Ok(());
    }
    // What is missing is told before hours have gone into others.
    for plan in &plans {
        match plan.experiment.workload {
            Workload::Sysbench => paths::need_program("sysbench")?,
            Workload::Redmine => redmine_is_there(args.set_up)?,
            _ => {}
        }
    }
    let lab = args.site.folder()?;
    let mut bench = Bench::new(lab);
    for (plan, text) in plans.into_iter().zip(texts) {
        let store = one(&plan, text, args.fresh, &mut bench)?;
        report(&store, plan)?;
    }
    Ok(())
}

/// Goes on with an experiment to its end.
fn one(plan: &Plan, text: &str, fresh: bool, bench: &mut Bench) -> Result<Store> {
    let mut builds = store::builds(&plan.subjects)?;
    if plan.experiment.workload == Workload::Redmine {
        builds.insert("redmine".into(), redmine::app::build()?);
    }
    let mut store = Store::open(&bench.lab, plan, text, builds, fresh)?;
    let left = left(plan, &store);
    println!("{}, about {}. Stored in {}.", plan.experiment.title, minutes(left), store.folder().display());
    if left > 0.0 {
        bench.begin(left)?;
    }
    go_on(plan, &mut store, bench)?;
    Ok(store)
}

/// Redmine is installed, or installed now where that is asked for.
fn redmine_is_there(set_up: bool) -> Result<()> {
    if set_up {
        let script = paths::checkout()?.join("scripts/setup.sh");
        let status = std::process::Command::new(&script).arg("redmine").status();
        let status = status.with_context(|| format!("{} does not run", script.display()))?;
        anyhow::ensure!(status.success(), "{} redmine failed", script.display());
    }
    redmine::app::App::need()
}

/// Writes the page of a run, and prints its verdict.
fn report(store: &Store, plan: Plan) -> Result<()> {
    let results = Results { plan, records: store.records()? };
    let page = pages::page(&results)?;
    for sentence in &page.verdict {
        println!("{sentence}");
    }
    let html = store.write("report.html", &to_html(&page))?;
    let (markdown, drawings) = to_markdown(&page);
    store.write("report.md", &markdown)?;
    for (name, drawing) in &drawings {
        store.write(name, drawing)?;
    }
    for attachment in &page.attachments {
        store.write(&attachment.name, &attachment.content)?;
    }
    println!("The report is {}; report.md, its drawings and the raw data are beside it.", html.display());
    let failed: Vec<String> = results
        .records
        .iter()
        .filter(|record| !record.run.errors.is_empty())
        .map(|record| format!("{}: {}", record.text(), record.run.errors.join("; ")))
        .collect();
    anyhow::ensure!(failed.is_empty(), "{} measurements had errors:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}

/// The text of an experiment: one of the lab's, or a file.
fn text_of(name: &str) -> Result<String> {
    let known = || OWN.iter().chain([&SCALE]);
    if let Some((_, text)) = known().find(|(known, _)| *known == name) {
        return Ok((*text).to_string());
    }
    let names: Vec<&str> = known().map(|(name, _)| *name).collect();
    fs::read_to_string(name).with_context(|| format!("{name} is neither {} nor a file", names.join(", ")))
}

#[cfg(test)]
mod tests;
