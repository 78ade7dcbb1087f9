//! The command `linkbench-published`: the published driver itself, in Java, on each engine.
//!
//! It comes from a checkout of facebookarchive/linkbench, which its own Maven file builds (docs/results/method.md tells how), and is run
//! as it is: configuration, distributions, statements and random numbers are its own, over TCP, as it knows nothing else. The lab starts
//! servers, makes its own tables, and measures what the servers spend. So it is what the lab's driver is held against; for comparisons
//! of engines that one is the better instrument: it asks every engine the same, sees each second, and knows afterwards what must be in
//! the tables.
//!
//! Warm-up and measurement are processes of their own, of which the second alone is metered. A rate is that of the requests that the
//! driver counted, over the time that it was told; latencies are the upper bounds of its classes (0.1 ms wide below 1 ms, 1 ms below
//! 100 ms).
//!
//! Rejected: its classes for this server's engines alone, compiled without its build (what is built would be the lab's selection of it).

use super::DATABASE;
use super::check::check;
use super::drive::Nodes;
use super::graph::Graph;
use super::schema::{Layout, statements};
use super::scope::Scope;
use crate::child;
use crate::course::Course;
use crate::drive::Seen;
use crate::engine::Conditions;
use crate::meter::{Meter, settle};
use crate::options::{Comparison, turns};
use crate::paths;
use crate::report::{Report, Run, commit};
use crate::server::Instance;
use crate::side::{at_port, free_port};
use crate::stats::Latency;
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What its build leaves, and the connector that goes before the one in there: that one does not get over the collations of MariaDB
/// 10.10 and later, of which some have no number.
const JARS: [&str; 2] = ["target/mysql-connector-java-5.1.49.jar", "target/FacebookLinkBench.jar"];
const MAIN: &str = "com.facebook.LinkBench.LinkBenchDriver";
/// What it reads its settings from; those that it is given come before them.
const CONFIG: &str = "config/LinkConfigMysql.properties";
/// Its user, and the password of that.
const USER: &str = "linkbench";
/// Errors of its log that are told.
const TOLD: usize = 3;

/// Options of `linkbench-published`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    comparison: Comparison,
    /// The driver's checkout, in which it was built
    #[arg(long, value_name = "FOLDER")]
    source: PathBuf,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    course: Course,
}

/// Where its logs and figures lie.
pub fn folder(lab: &Path) -> PathBuf {
    lab.join("linkbench-published")
}

/// The driver, and the server that it works on.
struct Driver {
    source: PathBuf,
    /// Of its logs and figures.
    folder: PathBuf,
    port: u16,
}

/// The command `linkbench-published`.
pub fn run(args: Args) -> Result<()> {
    paths::need_program("java")?;
    let source = args.source.canonicalize().with_context(|| format!("{} is not there", args.source.display()))?;
    for part in JARS.iter().chain([&CONFIG]) {
        ensure!(
            source.join(part).is_file(),
            "{} has no {part}; docs/results/method.md tells how it is built",
            source.display()
        );
    }
    let lab = args.comparison.site.folder()?;
    let folder = folder(&lab);
    fs::create_dir_all(&folder)?;
    let driver = Driver { source, folder, port: free_port(&mut SmallRng::seed_from_u64(std::process::id().into()))? };
    let raw_mb = Graph::new(args.scope.nodes, 1).raw_bytes().div_ceil(1 << 20);
    let mut conditions = args.comparison.conditions(args.course.budget_mb(raw_mb));
    conditions.extra.extend(at_port(driver.port));
    let conditions = conditions.for_sessions(args.scope.sessions());
    let title =
        format!("LinkBench's published driver, {} nodes, {} requesters", args.scope.nodes, args.scope.requesters);
    let mut report = Report::new(&lab, &title)?.in_full();
    let engines: Vec<(Instance, Conditions)> = args
        .comparison
        .instances(&lab)?
        .into_iter()
        .map(|instance| {
            let conditions = args.scope.durability.apply(instance.kind(), &conditions);
            (instance, conditions)
        })
        .collect();
    let bench = Bench { args, driver };
    for (instance, conditions) in &engines {
        bench.prepare(instance, conditions, &mut report)?;
    }
    for round in 1..=bench.args.comparison.rounds {
        for n in turns(engines.len(), round) {
            let (instance, conditions) = &engines[n];
            bench.round(instance, conditions, round, &mut report)?;
        }
    }
    if !bench.args.course.reuse {
        engines.iter().try_for_each(|(instance, _)| instance.forget(&bench.saved()))?;
    }
    report.finish()
}

/// What all measurements have in common.
struct Bench {
    args: Args,
    driver: Driver,
}

impl Bench {
    /// Name of the saved graph.
    fn saved(&self) -> String {
        format!("linkbench-published-{}", self.args.scope.nodes)
    }

    /// Makes the tables and lets the driver load them; what an earlier call saved may do.
    fn prepare(&self, instance: &Instance, conditions: &Conditions, report: &mut Report) -> Result<()> {
        let title = instance.kind().title();
        if self.args.course.reuse && instance.has_saved(&self.saved()) {
            println!("{title}: using the graph of an earlier call");
            return Ok(());
        }
        instance.reset()?;
        let mut server = instance.start(conditions)?;
        let mut conn = instance.fresh_database(DATABASE)?;
        for statement in statements(&instance.engine_clause(), Layout { partitioned: false, binary: false }) {
            conn.query_drop(statement)?;
        }
        conn.query_drop(format!("CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{USER}'"))?;
        conn.query_drop(format!("GRANT ALL ON {DATABASE}.* TO {USER}@'127.0.0.1'"))?;
        let meter = Meter::begin(server.pid(), instance)?;
        let seen = self.driver.load(&self.args.scope)?;
        // What the load has left to be done belongs to it.
        settle(server.pid())?;
        server.ensure_alive()?;
        let run = Run::of("linkbench-published-load", LOAD.into(), &server, conditions, 1)?.with(seen, meter.end()?);
        println!(
            "{title}: {} nodes and links loaded in {:.1} s, {:.0} a second",
            run.transactions,
            run.seconds,
            run.tps()
        );
        report.add(Run { settings: self.settings(), ..run })?;
        self.check(instance, &Nodes::default())?;
        server.stop()?;
        instance.save(&self.saved())
    }

    fn round(&self, instance: &Instance, conditions: &Conditions, round: u32, report: &mut Report) -> Result<()> {
        instance.restore(&self.saved())?;
        let mut server = instance.start(conditions)?;
        settle(server.pid())?;
        let (seen, [(), ()], usage) = self.args.course.run(&mut server, "LinkBench", |seconds, part, _| {
            Ok((self.driver.requests(&self.args.scope, seconds, u64::from(round) * 2 + part)?, ()))
        })?;
        let run = Run::of("linkbench-published", "requests".into(), &server, conditions, round)?.with(seen, usage);
        println!(
            "{}, round {round}: {:.0} operations/s, {} deadlocks, {} errors",
            instance.kind().title(),
            run.tps(),
            run.deadlocks,
            run.errors.len()
        );
        report.add(Run { settings: self.settings(), ..run })?;
        // Which nodes came and went the driver does not tell.
        let nodes = Nodes {
            perhaps_added: u64::MAX,
            perhaps_deleted: (1..=self.args.scope.nodes).collect(),
            ..Nodes::default()
        };
        self.check(instance, &nodes)?;
        server.stop()
    }

    fn check(&self, instance: &Instance, nodes: &Nodes) -> Result<()> {
        let findings = check(instance, self.args.scope.nodes, nodes)?;
        let title = instance.kind().title();
        let rows = findings.into_result("LinkBench").with_context(|| format!("{title} fails the check"))?;
        println!("{title}: counts, links and their index agree ({rows} rows read)");
        Ok(())
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = self.args.course.settings();
        settings.extend(self.args.scope.settings());
        let commit = commit(&self.driver.source).unwrap_or_else(|| "not known".into());
        settings.insert("driver".into(), format!("facebookarchive/linkbench, commit {commit}"));
        settings
    }
}

/// What a load is called in reports.
const LOAD: &str = "load (a node or link counts as a transaction)";

impl Driver {
    /// Loads so many nodes with their links.
    fn load(&self, scope: &Scope) -> Result<Seen> {
        let (log, csv) = self.perform("load", "-l", scope, &[("load_random_seed", 1)])?;
        let (rows, seconds) = loaded(&log)?;
        Ok(Seen { seconds, transactions: rows, by_kind: latencies(&csv)?, ..complaints(&log) })
    }

    /// Asks for so many seconds.
    fn requests(&self, scope: &Scope, seconds: u64, seed: u64) -> Result<Seen> {
        // Of each requester; the time ends before them.
        const ENOUGH: u64 = 1_000_000_000;
        let settings = [("requests", ENOUGH), ("maxtime", seconds), ("request_random_seed", seed)];
        let (log, csv) = self.perform("requests", "-r", scope, &settings)?;
        ensure!(log.contains("REQUEST PHASE COMPLETED"), "the driver did not complete: see {}", self.folder.display());
        let by_kind = latencies(&csv)?;
        let transactions = by_kind.values().map(|latency| latency.count).sum();
        Ok(Seen { seconds: seconds as f64, transactions, by_kind, ..complaints(&log) })
    }

    /// Runs a phase to its end: its log and its figures.
    fn perform(&self, name: &str, phase: &str, scope: &Scope, settings: &[(&str, u64)]) -> Result<(String, String)> {
        let [log, csv, errors] = ["log", "csv", "errors"].map(|kind| self.folder.join(format!("{name}.{kind}")));
        for old in [&log, &csv, &errors] {
            let _ = fs::remove_file(old);
        }
        let mut command = Command::new("java");
        command.arg("-Xmx1000m").arg("-cp").arg(JARS.join(":")).arg(MAIN).args(["-c", CONFIG, phase]);
        command.arg("-L").arg(&log).arg("-csvstats").arg(&csv);
        let mut set = |name: &str, value: &dyn std::fmt::Display| {
            command.arg("-D").arg(format!("{name}={value}"));
        };
        set("host", &"127.0.0.1");
        set("port", &self.port);
        set("user", &USER);
        set("password", &USER);
        set("dbid", &DATABASE);
        // The first id that is not loaded.
        set("maxid1", &(scope.nodes + 1));
        set("loaders", &scope.load_threads);
        set("requesters", &scope.requesters);
        for (name, value) in settings {
            set(name, value);
        }
        // Numbers as every locale but some has them; files by names that it finds from its own folder.
        command.env("LC_ALL", "C").env("LINKBENCH_HOME", &self.source).current_dir(&self.source);
        let mut child = child::start(&command, &errors)?;
        drop(child.0.stdin.take());
        // Nothing is expected there; a full pipe would hold it up.
        let said = child.0.stdout.take().map(std::io::read_to_string).transpose()?.unwrap_or_default();
        let status = child.0.wait()?;
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        if !status.success() {
            let all = [said, read(&errors)].concat();
            let lines: Vec<&str> = all.lines().take(TOLD).collect();
            bail!("the published driver ended with {status}: {}; see {}", lines.join("; "), self.folder.display());
        }
        Ok((read(&log), read(&csv)))
    }
}

/// Nodes and links that a load's log tells of, and its seconds.
fn loaded(log: &str) -> Result<(u64, f64)> {
    let line = log.lines().find(|line| line.contains("LOAD PHASE COMPLETED")).context("the load did not complete")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    // Each number stands behind what is done with it.
    let behind = |what: &str| -> Vec<f64> {
        let pairs = words.windows(2).filter(|pair| pair[0] == what);
        pairs.filter_map(|pair| pair[1].parse().ok()).collect()
    };
    match (behind("Loaded").as_slice(), behind("Took").as_slice()) {
        ([nodes, links], [seconds]) => Ok(((nodes + links) as u64, *seconds)),
        _ => bail!("this is no end of a load: {line}"),
    }
}

/// Latencies by operation, under the names that the lab's driver has for them.
fn latencies(csv: &str) -> Result<BTreeMap<String, Latency>> {
    let mut lines = csv.lines();
    let heads: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let field = |name: &str| {
                let at = heads.iter().position(|head| *head == name);
                at.and_then(|at| fields.get(at)).with_context(|| format!("no {name} in: {line}"))
            };
            let us = |name: &str| -> Result<u64> { Ok((field(name)?.parse::<f64>()? * 1e3).round() as u64) };
            let latency = Latency {
                count: field("count")?.parse()?,
                p50_us: us("p50_high")?,
                p95_us: us("p95_high")?,
                p99_us: us("p99_high")?,
                p999_us: 0,
                max_us: us("max")?,
            };
            let name = match *field("op")? {
                "MULTIGET_LINK" => "get_link".into(),
                "GET_LINKS_LIST" => "get_link_list".into(),
                other => other.to_ascii_lowercase(),
            };
            Ok((name, latency))
        })
        .collect()
}

/// Deadlocks, which it repeats, and errors, which it counts and passes over.
fn complaints(log: &str) -> Seen {
    let deadlocks = log.lines().filter(|line| line.contains("Error is probably transient")).count() as u64;
    let errors: Vec<&str> = log.lines().filter(|line| line.starts_with("ERROR")).collect();
    let mut told: Vec<String> = errors.iter().take(TOLD).map(ToString::to_string).collect();
    if errors.len() > TOLD {
        told.push(format!("{} more", errors.len() - TOLD));
    }
    Seen { deadlocks, errors: told, ..Seen::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_load_says() {
        let log = "INFO 2026-11-28 12:00:00,000 [main]: Starting loaders 4\n\
                   INFO 2026-11-28 12:00:09,000 [main]: LOAD PHASE COMPLETED.  Loaded 1000 nodes (Expected 1000). \
                   Loaded 4466 links (4.47 links per node).  Took 1.5 seconds.  Links/second = 2977\n";
        assert_eq!(loaded(log).unwrap(), (5466, 1.5));
        assert!(loaded("INFO [main]: Starting loaders 4").is_err(), "it did not complete");
        assert!(loaded("LOAD PHASE COMPLETED. Loaded many nodes").is_err());
    }

    #[test]
    fn latencies_are_upper_bounds_by_the_lab_s_names() {
        let csv = "op,count,p25_low,p25_high,p50_low,p50_high,p75_low,p75_high,p95_low,p95_high,p99_low,p99_high,max,mean\n\
                   GET_LINKS_LIST,500,0.1,0.2,0.2,0.3,0.4,0.5,1,2,5,6,17.25,0.41\n\
                   ADD_NODE,25,0.1,0.2,0.2,0.3,0.4,0.5,1,2,5,6,7,0.41\n";
        let latencies = latencies(csv).unwrap();
        assert_eq!(latencies.keys().collect::<Vec<_>>(), ["add_node", "get_link_list"]);
        let lists = latencies["get_link_list"];
        assert_eq!(
            (lists.count, lists.p50_us, lists.p95_us, lists.p99_us, lists.max_us),
            (500, 300, 2000, 6000, 17_250)
        );
        assert!(super::latencies("op,count\nADD_NODE,x\n").is_err());
        assert!(super::latencies("").unwrap().is_empty());
    }

    #[test]
    fn errors_are_failures_and_deadlocks_are_counted() {
        let seen = complaints(
            "WARN x: SQLException ... Error is probably transient, retrying operation.\n\
             ERROR 1\nINFO all is well\nERROR 2\nERROR 3\nERROR 4\nERROR 5\n",
        );
        assert_eq!((seen.deadlocks, seen.errors.len()), (1, 4));
        assert_eq!(seen.errors[3], "2 more");
        assert!(complaints("INFO well\n").errors.is_empty());
    }
}
