//! The command `linkbench`.

use super::check::check;
use super::drive::{Load as Requests, Nodes, drive};
use super::graph::Graph;
use super::load::{Load, Loaded, load};
use super::request::Access;
use super::schema::Layout;
use super::scope::{Durability, Scope};
use crate::course::Course;
use crate::drive::Control;
use crate::engine::Conditions;
use crate::leaks;
use crate::meter::{Meter, Usage, resident_without_data, settle};
use crate::options::{Comparison, turns};
use crate::progress::bar;
use crate::report::{Report, Run};
use crate::server::{Instance, Server};
use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Operations after which a server is killed.
const UNTIL_KILL: RangeInclusive<u64> = 500..=5000;
/// How long these may take.
const KILL_PATIENCE: Duration = Duration::from_secs(120);
/// The load that a kill ends would end by itself then.
const KILL_SECONDS: u64 = 600;
/// Runs of a round, each with requests of its own: the warm-up, the measurement, and those that kills end.
const RUNS: u64 = 1000;

/// Options of `linkbench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    comparison: Comparison,
    #[command(flatten)]
    scope: Scope,
    /// So many operations a second, all requesters together [default: as many as go]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(flatten)]
    course: Course,
    /// Divide the table of links into 16 key partitions
    #[arg(long)]
    partitions: bool,
    /// Compare payloads by bytes (latin1_bin) instead of by the published schema's rules (latin1_swedish_ci)
    #[arg(long)]
    binary: bool,
    /// Leave the load out of the binary log
    #[arg(long)]
    load_without_binlog: bool,
    /// Do not check the tables after the load and after each round
    #[arg(long)]
    no_check: bool,
    /// After each round kill the server so often under the same load, and check the tables each time
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..900))]
    kill: u32,
    /// Seed of graph and requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The command `linkbench`.
pub fn run(args: Args) -> Result<()> {
    ensure!(
        args.kill == 0 || args.scope.durability == Durability::Commit,
        "--kill asks for everything that was acknowledged; with --durability second the last of it may go"
    );
    let lab = args.comparison.site.folder()?;
    let graph = Graph::new(args.scope.nodes, args.seed);
    let raw_mb = graph.raw_bytes().div_ceil(1 << 20);
    let conditions = args.comparison.conditions(args.course.budget_mb(raw_mb));
    let conditions = conditions.for_sessions(args.scope.sessions());
    let bench = Bench { access: Access::new(&graph), graph, raw_mb, args };
    let Scope { nodes, requesters, durability, .. } = bench.args.scope;
    let title = format!("LinkBench, {nodes} nodes, {requesters} requesters");
    let mut report = Report::new(&lab, &title)?.in_full();
    let mut engines = Vec::new();
    for instance in bench.args.comparison.instances(&lab)? {
        let conditions = durability.apply(instance.kind(), &conditions);
        let sessions = 2 * requesters;
        engines.push(Engine {
            base: resident_without_data(&instance, &conditions, sessions, 0)?,
            instance,
            conditions,
        });
    }
    for engine in &engines {
        bench.prepare(engine, &mut report)?;
    }
    for round in 1..=bench.args.comparison.rounds {
        for n in turns(engines.len(), round) {
            bench.round(&engines[n], round, &mut report)?;
        }
    }
    if !bench.args.course.reuse {
        engines.iter().try_for_each(|engine| engine.instance.forget(&bench.saved()))?;
    }
    report.finish()
}

/// An engine of the comparison.
struct Engine {
    instance: Instance,
    conditions: Conditions,
    /// Memory of the server without data.
    base: u64,
}

impl Engine {
    fn title(&self) -> &'static str {
        self.instance.kind().title()
    }
}

/// What all measurements have in common.
struct Bench {
    args: Args,
    graph: Graph,
    access: Access,
    /// Size of the rows alone.
    raw_mb: u64,
}

impl Bench {
    /// Name of the saved graph.
    fn saved(&self) -> String {
        let Args { scope: Scope { nodes, .. }, seed, partitions, binary, .. } = self.args;
        let mark = |set, mark| if set { mark } else { "" };
        format!("linkbench-{nodes}-{seed}{}{}", mark(partitions, "-partitions"), mark(binary, "-binary"))
    }

    /// Loads the graph under the conditions of the run, measures that, and saves it; what an earlier call saved may do.
    fn prepare(&self, engine: &Engine, report: &mut Report) -> Result<()> {
        let instance = &engine.instance;
        if self.args.course.reuse && instance.has_saved(&self.saved()) {
            println!("{}: using the graph of an earlier call", engine.title());
            return Ok(());
        }
        instance.reset()?;
        let mut server = instance.start(&engine.conditions)?;
        let meter = Meter::begin(server.pid(), instance)?;
        let how = Load {
            layout: Layout { partitioned: self.args.partitions, binary: self.args.binary },
            threads: self.args.scope.load_threads,
            logged: !self.args.load_without_binlog,
        };
        let bar = bar(format!("{}: loading", engine.title()));
        let loaded = load(instance, &self.graph, how, &bar)?;
        bar.finish_and_clear();
        // What the load has left to be done belongs to it.
        settle(server.pid())?;
        server.ensure_alive()?;
        let mut run = self.loaded(engine, &server, loaded, meter.end()?)?;
        run.usage.rss_base = engine.base;
        report.add(run)?;
        self.check(engine, &Nodes::default())?;
        leaks::at_rest(&mut server, engine.conditions.budget_mb)?;
        server.stop()?;
        instance.save(&self.saved())
    }

    fn loaded(&self, engine: &Engine, server: &Server, loaded: Loaded, usage: Usage) -> Result<Run> {
        let links = loaded.links as f64;
        let run = Run::of("linkbench-load", LOAD.into(), server, &engine.conditions, 1)?.with(loaded.seen, usage);
        println!(
            "{}: {} nodes, {links} links, {} rows in all loaded in {:.1} s, {:.0} a second, {} deadlocks",
            engine.title(),
            self.graph.nodes(),
            run.transactions,
            run.seconds,
            run.tps(),
            run.deadlocks
        );
        Ok(Run {
            settings: self.settings(),
            further: BTreeMap::from([
                ("links loaded".into(), links),
                ("links a node".into(), links / self.graph.nodes() as f64),
            ]),
            ..run
        })
    }

    /// Warm-up, measurement, check, and the kills.
    fn round(&self, engine: &Engine, round: u32, report: &mut Report) -> Result<()> {
        let Engine { instance, conditions, .. } = engine;
        instance.restore(&self.saved())?;
        let mut server = instance.start(conditions)?;
        settle(server.pid())?;
        let (mut run, mut nodes) = self.measure(engine, &mut server, round)?;
        run.usage.rss_base = engine.base;
        report.add(run)?;
        self.check(engine, &nodes)?;
        let mut rng = SmallRng::seed_from_u64(self.args.seed.wrapping_add(u64::from(round)));
        for kill in 1..=self.args.kill {
            server = self.kill(
                engine,
                server,
                self.requests(round, 1 + u64::from(kill), KILL_SECONDS),
                &mut rng,
                &mut nodes,
            )?;
            self.check(engine, &nodes).with_context(|| format!("after kill {kill}"))?;
        }
        leaks::at_rest(&mut server, conditions.budget_mb)?;
        server.stop()
    }

    fn requests(&self, round: u32, run: u64, seconds: u64) -> Requests<'_> {
        Requests {
            graph: &self.graph,
            access: &self.access,
            requesters: self.args.scope.requesters,
            rate: self.args.rate,
            seconds,
            run: u64::from(round) * RUNS + run,
        }
    }

    fn measure(&self, engine: &Engine, server: &mut Server, round: u32) -> Result<(Run, Nodes)> {
        let Engine { instance, conditions, .. } = engine;
        let (seen, [before, measured], usage) =
            self.args.course.run(server, "LinkBench", |seconds, part, control| {
                let outcome = drive(instance, self.requests(round, part, seconds), control)?;
                Ok((outcome.seen, (outcome.nodes, outcome.listed)))
            })?;
        let run = Run::of("linkbench", "requests".into(), server, conditions, round)?.with(seen, usage);
        let lists = run.by_kind.get("get_link_list").map_or(0, |latency| latency.count);
        let a_list = measured.1 as f64 / lists.max(1) as f64;
        let further = BTreeMap::from([("links a list".into(), a_list)]);
        let run = Run { settings: self.settings(), further, ..run };
        println!(
            "{}, round {round}: {:.0} operations/s, p99 {:.1} ms, {a_list:.1} links a list, {} deadlocks, {} errors",
            engine.title(),
            run.tps(),
            run.latency.p99_us as f64 / 1e3,
            run.deadlocks,
            run.errors.len()
        );
        let mut nodes = before.0;
        nodes.merge(measured.0);
        Ok((run, nodes))
    }

    /// Kills the server under load and starts it again.
    fn kill(
        &self,
        engine: &Engine,
        mut server: Server,
        requests: Requests,
        rng: &mut SmallRng,
        nodes: &mut Nodes,
    ) -> Result<Server> {
        let Engine { instance, conditions, .. } = engine;
        let control = Control::default();
        let until = rng.random_range(UNTIL_KILL);
        let outcome = std::thread::scope(|scope| {
            let driver = scope.spawn(|| drive(instance, requests, &control));
            let began = Instant::now();
            let done = || control.transactions.load(Ordering::Relaxed);
            while done() < until && !driver.is_finished() && began.elapsed() < KILL_PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            let enough = done() >= until;
            let killed = server.end();
            control.stop.store(true, Ordering::Relaxed);
            let outcome = driver.join().expect("the driver does not panic")?;
            killed?;
            ensure!(enough, "{} of {until} operations were done before the kill: {:?}", done(), outcome.seen.errors);
            Ok(outcome)
        })?;
        ensure!(outcome.seen.errors.is_empty(), "before the kill: {}", outcome.seen.errors.join("; "));
        nodes.merge(outcome.nodes);
        let began = Instant::now();
        let server = instance.start(conditions).context("the restart failed")?;
        println!(
            "{}: killed after {} operations, started again in {:.1} s",
            engine.title(),
            outcome.seen.transactions,
            began.elapsed().as_secs_f64()
        );
        Ok(server)
    }

    /// Checks the tables and says so; fails when a condition is violated.
    fn check(&self, engine: &Engine, nodes: &Nodes) -> Result<()> {
        if self.args.no_check {
            return Ok(());
        }
        let began = Instant::now();
        let findings = check(&engine.instance, self.graph.nodes(), nodes)?;
        let rows = findings.into_result("LinkBench").with_context(|| format!("{} fails the check", engine.title()))?;
        println!(
            "{}: all LinkBench conditions hold, {} added nodes are there, {} deleted ones are not ({rows} rows read in {:.1} s)",
            engine.title(),
            nodes.added.len(),
            nodes.deleted.len(),
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let args = &self.args;
        let or_not = |set: bool, yes: &str, no: &str| if set { yes.to_string() } else { no.to_string() };
        let mut settings = args.course.settings();
        settings.extend(args.scope.settings());
        settings.extend([
            ("seed".into(), args.seed.to_string()),
            ("rate".into(), args.rate.map_or("as it goes".into(), |rate| format!("{rate} a second"))),
            ("load".into(), or_not(args.load_without_binlog, "not in the binary log", "in the binary log")),
            ("link table".into(), or_not(args.partitions, "in 16 partitions", "in one piece")),
            ("collation".into(), or_not(args.binary, "latin1_bin", "latin1_swedish_ci")),
            ("raw data".into(), format!("{} MB", self.raw_mb)),
        ]);
        settings
    }
}

/// What a load is called in reports.
const LOAD: &str = "load (a row counts as a transaction)";
