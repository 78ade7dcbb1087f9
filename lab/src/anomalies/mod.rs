//! The command `anomalies`: the known phenomena of isolation, interleaved step by
//! step on private servers of both engines, at each level.
//!
//! The scenarios are texts in `lab/scenarios` (the form is told in [`scenario`]):
//! what each engine must answer at each level, and why where Strata's answer is
//! not InnoDB's. The command fails on any other answer. The list of phenomena is
//! Adya's, as completed by the Hermitage project; the texts are our own.

mod play;
mod scenario;

use crate::engine::{Conditions, Kind};
use crate::leaks;
use crate::options::{Isolation, Site};
use crate::paths;
use crate::server::Instance;
use anyhow::{Context, Result, bail};
use mysql::prelude::Queryable;
use scenario::{LEVELS, Scenario, Verdict};
use std::fs;

/// Options of `anomalies`.
#[derive(clap::Args)]
pub struct Args {
    /// Engines
    #[arg(long, value_delimiter = ',', default_value = "innodb,strata")]
    engines: Vec<Kind>,
    /// Isolation levels
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "read-uncommitted,read-committed,repeatable-read,serializable"
    )]
    levels: Vec<Isolation>,
    /// Only scenarios (file names without .txt) that contain this
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    site: Site,
}

/// The command `anomalies`.
pub fn run(args: Args) -> Result<()> {
    let scenarios = load(&args.only)?;
    let lab = args.site.folder()?;
    let mut wrong = Vec::new();
    // Answers as they stand in the table: scenario, engine, level.
    let mut table: Vec<Vec<Vec<&str>>> = vec![vec![vec![]; args.engines.len()]; scenarios.len()];
    for (column, &engine) in args.engines.iter().enumerate() {
        if !scenario::ENGINES.contains(&engine) {
            bail!("there are no scenarios for {}", engine.title());
        }
        let instance = Instance::new(&lab, engine)?;
        instance.reset()?;
        // The scenarios are of both series; 11.8 turns this on by itself.
        let extra = vec!["loose-innodb-snapshot-isolation=OFF".to_string()];
        let strata_extra = vec!["strata-snapshot-isolation=OFF".to_string()];
        let conditions = Conditions { budget_mb: 64, isolation: Isolation::RepeatableRead, extra, strata_extra };
        let mut server = instance.start(&conditions)?;
        server.connect(None)?.query_drop(format!("CREATE DATABASE {}", play::DATABASE))?;
        for (row, (name, scenario)) in scenarios.iter().enumerate() {
            for &level in &args.levels {
                let section = scenario.section(level, engine).context("checked when parsed")?;
                let cell = match (play::play(&instance, scenario, section, level), section.verdict) {
                    (Ok(()), Verdict::Occurs) => "occurs",
                    (Ok(()), Verdict::Prevented) => "-",
                    (Err(error), _) => {
                        server.ensure_alive()?;
                        wrong.push(format!("{name}.txt, {}, {}: {error:#}", engine.title(), level.name()));
                        "WRONG"
                    }
                };
                table[row][column].push(cell);
            }
        }
        leaks::end(server, conditions.budget_mb)?;
    }
    print(&args, &scenarios, &table);
    if !wrong.is_empty() {
        bail!("{} answers are not as they must be:\n  {}", wrong.len(), wrong.join("\n  "));
    }
    println!("\n{} scenarios: every answer as it must be", scenarios.len());
    Ok(())
}

fn load(only: &str) -> Result<Vec<(String, Scenario)>> {
    let dir = paths::checkout()?.join("lab/scenarios");
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("{} cannot be read", dir.display()))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_some_and(|ext| ext == "txt") && name.contains(only) {
            let scenario = Scenario::parse(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())?;
            scenarios.push((name, scenario));
        }
    }
    if scenarios.is_empty() {
        bail!("no scenario's name contains '{only}'");
    }
    scenarios.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(scenarios)
}

/// One line per scenario, one column per engine and level; then the differences.
fn print(args: &Args, scenarios: &[(String, Scenario)], table: &[Vec<Vec<&str>>]) {
    let short = |level: Isolation| LEVELS.iter().find(|(_, l)| *l == level).map_or("", |(short, _)| short);
    let mut heads = [String::new(), format!("{:<42}", "'-' means that it does not occur")];
    for engine in &args.engines {
        heads[0] += &format!("{:<width$}", engine.title(), width = 8 * args.levels.len());
        args.levels.iter().for_each(|&level| heads[1] += &format!("{:<8}", short(level)));
    }
    println!("{:<42}{}\n{}", "", heads[0].trim_end(), heads[1].trim_end());
    for ((_, scenario), cells) in scenarios.iter().zip(table) {
        let cells: String = cells.iter().flatten().map(|cell| format!("{cell:<8}")).collect();
        println!("{:<42}{}", scenario.phenomenon, cells.trim_end());
    }
    println!("\nWhere Strata's answers are not InnoDB's:");
    for (name, scenario) in scenarios {
        for &level in &args.levels {
            if let Some(because) = scenario.because(level) {
                println!("  {name} {}: {because}", short(level));
            }
        }
    }
}
