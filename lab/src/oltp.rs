//! The command `oltp`: the packaged sysbench OLTP scripts on each engine.

use crate::engine::Conditions;
use crate::leaks;
use crate::meter::{Meter, Usage};
use crate::paths;
use crate::progress::bar;
use crate::report::{Report, Run};
use crate::sbtest::{TableArgs, Tables};
use crate::server::{Instance, Server};
use crate::sysbench::{self, Call, Outcome, Size};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The nine that `all` stands for.
pub const SCRIPTS: [&str; 9] = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_read_write",
    "oltp_write_only",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_insert",
    "oltp_delete",
    "select_random_ranges",
];
/// Packaged as well; by name only.
const MORE: [&str; 2] = ["select_random_points", "bulk_insert"];
/// Scripts that add or remove rows: each of their runs gets fresh data.
const CHANGE_SIZE: [&str; 3] = ["oltp_insert", "oltp_delete", "bulk_insert"];

/// Options of `oltp`.
#[derive(clap::Args)]
pub struct Args {
    /// Scripts, or 'all' for the nine OLTP scripts
    #[arg(long, value_delimiter = ',', default_value = "all")]
    scripts: Vec<String>,
    /// Numbers of sessions
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    threads: Vec<u32>,
    #[command(flatten)]
    tables: TableArgs<512>,
    /// Seconds measured
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Measure so often in turn while all servers run, one under load; 1: one server at a time
    #[arg(long, default_value_t = 1)]
    slices: u32,
    /// Seconds of the same load before each measurement, for scripts that keep the number of rows
    #[arg(long, default_value_t = 3)]
    warmup: u64,
    /// Distribution of row numbers: special (sysbench's default), uniform, gaussian, pareto
    #[arg(long, default_value = "special")]
    rand_type: String,
    /// Run each script a second time, its transactions as XA transactions: start, end, prepare, commit
    #[arg(long)]
    xa: bool,
}

/// What runs of sysbench begin with.
pub struct Stage {
    pub scripts: Vec<&'static str>,
    pub lab: PathBuf,
    pub tables: Tables,
}

impl Stage {
    /// Loads the tables for scripts of these names and so many sessions.
    pub fn set(scripts: &[String], tables: &TableArgs<512>, sessions: u32) -> Result<Stage> {
        paths::need_program("sysbench")?;
        let scripts = chosen(scripts)?;
        let lab = tables.given.comparison.site.folder()?;
        Ok(Stage { scripts, tables: tables.load(&lab, sessions)?, lab })
    }
}

/// The command `oltp`.
pub fn run(args: Args) -> Result<()> {
    let most = args.threads.iter().copied().max().unwrap_or(1);
    let Stage { scripts, lab, tables } = Stage::set(&args.scripts, &args.tables, most)?;
    // Scripts that have tables of their own have no use for XA.
    let ways = |script: &str| if args.xa && !MORE.contains(&script) { vec![false, true] } else { vec![false] };
    let title = format!("sysbench, {} x {} rows, {} s", tables.size.tables, tables.size.rows, args.seconds);
    let mut report = Report::new(&lab, &title)?;
    for round in 1..=args.tables.given.comparison.rounds {
        for script in &scripts {
            let calls: Vec<Call> = ways(script)
                .into_iter()
                .flat_map(|xa| args.threads.iter().map(move |&threads| (xa, threads)))
                .map(|(xa, threads)| Call {
                    script,
                    threads,
                    seconds: args.seconds,
                    rand_type: &args.rand_type,
                    xa,
                    rate: None,
                })
                .collect();
            let bench = Bench { tables: &tables, warmup: args.warmup, round };
            // Each round begins with another engine.
            let mut order: Vec<&Instance> = tables.instances.iter().collect();
            order.rotate_left((round as usize - 1) % tables.instances.len());
            let together = if args.slices > 1 { order.len() } else { 1 };
            for group in order.chunks(together) {
                bench.run(group, &calls, args.slices, &mut report)?;
            }
        }
    }
    tables.end()?;
    report.finish()
}

/// What all measurements of a round have in common.
struct Bench<'a> {
    tables: &'a Tables,
    warmup: u64,
    round: u32,
}

impl Bench<'_> {
    /// Makes the calls on servers that run side by side, in turn: whatever changes on the machine in minutes meets all.
    fn run(&self, group: &[&Instance], calls: &[Call], slices: u32, report: &mut Report) -> Result<()> {
        let Tables { conditions, size, .. } = self.tables;
        let mut servers: Vec<Option<Server>> = group.iter().map(|_| None).collect();
        for call in calls {
            let consuming = CHANGE_SIZE.contains(&call.script);
            for (instance, server) in group.iter().zip(&mut servers) {
                if server.is_none() || consuming {
                    server.take().map_or(Ok(()), |server| leaks::end(server, conditions.budget_mb))?;
                    *server = Some(self.tables.server(instance)?);
                }
            }
            let warmup = if consuming { 0 } else { self.warmup };
            for slice in 1..=slices {
                for n in 0..group.len() {
                    let at = (n + slice as usize - 1) % group.len();
                    // After an error it is gone; the other runs are worth having.
                    let Some(mut server) = servers[at].take() else { continue };
                    let run = match measure(&mut server, conditions, *size, call, warmup, self.round) {
                        Ok(run) => {
                            servers[at] = Some(server);
                            run
                        }
                        Err(error) => {
                            println!("{error:#}");
                            failed(&server, conditions, call, self.round, format!("{error:#}"))
                        }
                    };
                    report.add(Run { slice, ..run })?;
                }
            }
        }
        servers.into_iter().flatten().try_for_each(|server| leaks::end(server, conditions.budget_mb))
    }
}

/// Runs one script and measures it.
pub fn measure(
    server: &mut Server,
    conditions: &Conditions,
    size: Size,
    call: &Call,
    warmup: u64,
    round: u32,
) -> Result<Run> {
    let instance = server.instance().clone();
    if call.has_own_tables() {
        sysbench::prepare_for(&instance, size, call)?;
    }
    let warmed = match warmup {
        0 => Outcome::default(),
        seconds => sysbench::run(&instance, size, &Call { seconds, ..call.clone() }, |_| ())?,
    };
    let (outcome, usage) = put_under_load(server, size, call, &label(call))?;
    let seen = outcome.seen().after(&warmed.seen());
    let run = Run::of("oltp", label(call), server, conditions, round)?.with(seen, usage);
    let run = Run { settings: settings(size, call, warmup), ..run };
    println!(
        "{}: {:.0} transactions/s, p95 {:.2} ms, {} deadlocks{}",
        run.name(),
        run.tps(),
        run.latency.p95_us as f64 / 1e3,
        run.deadlocks,
        if run.errors.is_empty() { String::new() } else { format!(", ERRORS: {}", run.errors.join("; ")) }
    );
    Ok(run)
}

/// Runs a script behind a progress bar; what sysbench saw, and what the server spent.
pub fn put_under_load(server: &mut Server, size: Size, call: &Call, title: &str) -> Result<(Outcome, Usage)> {
    let instance = server.instance().clone();
    let bar = bar(format!("{}: {title}", instance.kind().title()));
    bar.set_length(call.seconds);
    let meter = Meter::begin(server.pid(), &instance)?;
    let outcome = sysbench::run(&instance, size, call, |tps| {
        bar.inc(1);
        bar.set_message(format!("{tps:.0} tps"));
    })?;
    server.ensure_alive()?;
    let usage = meter.end()?;
    bar.finish_and_clear();
    Ok((outcome, usage))
}

fn failed(server: &Server, conditions: &Conditions, call: &Call, round: u32, error: String) -> Run {
    Run { errors: vec![error], ..Run::new("oltp", label(call), server.instance(), conditions, round) }
}

fn label(call: &Call) -> String {
    format!("{}{}, {} threads", call.script, if call.xa { ", XA" } else { "" }, call.threads)
}

fn settings(size: Size, call: &Call, warmup: u64) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("tables".into(), size.tables.to_string()),
        ("rows a table".into(), size.rows.to_string()),
        ("seconds".into(), call.seconds.to_string()),
        ("distribution".into(), call.rand_type.to_string()),
        ("warm-up".into(), format!("a scan and {warmup} s")),
    ])
}

/// Scripts by their names, with or without `oltp_`.
fn chosen(names: &[String]) -> Result<Vec<&'static str>> {
    let mut chosen = Vec::new();
    for name in names {
        if name == "all" {
            chosen.extend(SCRIPTS);
            continue;
        }
        let known =
            SCRIPTS.iter().chain(&MORE).find(|script| *script == name || script.strip_prefix("oltp_") == Some(name));
        let Some(known) = known else {
            anyhow::bail!("there is no script {name}; there are {} and {}", SCRIPTS.join(", "), MORE.join(", "))
        };
        chosen.push(*known);
    }
    ensure!(!chosen.is_empty(), "no script is chosen");
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_by_name() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_string()).collect::<Vec<_>>();
        assert_eq!(chosen(&names(&["all"])).unwrap(), SCRIPTS);
        assert_eq!(chosen(&names(&["insert", "oltp_delete"])).unwrap(), ["oltp_insert", "oltp_delete"]);
        assert_eq!(chosen(&names(&["bulk_insert"])).unwrap(), ["bulk_insert"]);
        assert!(chosen(&names(&["oltp_nothing"])).is_err());
    }
}
