//! Loads and measures an engine: what the workloads have in common, and what each drives.

use super::application::{self, Application, Task};
use super::experiment::{Axis, Phase, Place, Value, Workload};
use super::plan::{FIXED, Plan, Step};
use super::progress::Runner;
use super::record::Record;
use super::rows::Data;
use super::settings::Settings;
use super::watch::{Watch, Watched};
use crate::drive::{Control, Seen};
use crate::engine::Conditions;
use crate::hypervisor::Price;
use crate::linkbench::graph::Graph;
use crate::linkbench::request::Access;
use crate::linkbench::schema::Layout;
use crate::meter::{Meter, Usage, settle};
use crate::progress::bar;
use crate::report::Run;
use crate::sbtest;
use crate::server::{Instance, PATIENCE, Server};
use crate::sysbench::{self, Call, Size};
use crate::{linkbench, pace, redmine, tpcc};
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Less memory than this no engine can do with, in MiB.
const MEMORY_LEAST: u64 = 8;
/// Seed of LinkBench's graph.
const GRAPH_SEED: u64 = 1;

/// The input of what is measured once more, and of what is measured at one rate: other than that of all windows.
const AGAIN_INPUT: u64 = 998;
const PACED_INPUT: u64 = 997;
const PACED_AGAIN_INPUT: u64 = 996;

/// Name of the scale among the settings of a run.
pub const SCALE_SETTING: &str = "scale";

/// The part of an experiment's time that may go to waiting for the machine's usual pace, and to what is measured once more.
const WAITS: f64 = 0.02;
const REPEATS: f64 = 0.05;

/// Does the steps with private servers in the lab's folder.
pub struct Bench {
    pub lab: PathBuf,
    pace: pace::Usual,
    /// What our own requests to the device cost, once it is known.
    price: Option<Price>,
    /// Seconds that may still go to measuring once more: on a bad day a run tells what was disturbed, and does not take twice as long.
    repeats: f64,
}

/// What a measurement leaves.
type Measured = (Seen, Usage, Watched);

/// A time that is measured, and the numbers of its input and of that of a second attempt, if there may be one.
struct Stretch {
    warmup: u64,
    seconds: u64,
    input: u64,
    again: Option<u64>,
}

/// What a step measures: these engines in these rounds, from one start of their servers.
struct Together<'a> {
    subjects: &'a [usize],
    rounds: &'a [u32],
    data: &'a Place,
    place: &'a Place,
    inner: &'a [Place],
    memory_mb: u64,
}

/// An engine's server in a step.
struct Side {
    subject: usize,
    conditions: Conditions,
    server: Server,
}

/// A measurement of one of them.
struct Turn<'a> {
    place: &'a Place,
    round: u32,
    /// Seconds of it that are not measured.
    warmup: u64,
}

impl Bench {
    /// Nothing is measured yet.
    pub fn new(lab: PathBuf) -> Bench {
        Bench { lab, pace: pace::Usual::default(), price: None, repeats: 0.0 }
    }

    /// Before an experiment that may take so many seconds. The first one learns what a request costs.
    pub fn begin(&mut self, seconds: f64) -> Result<()> {
        if self.price.is_none() {
            let price = Price::measure(&self.lab)?;
            if price != Price::default() {
                println!("The hypervisor takes {price}.");
            }
            self.price = Some(price);
        }
        self.pace.may_wait(Duration::from_secs_f64(seconds * WAITS));
        self.repeats = seconds * REPEATS;
        Ok(())
    }

    /// Whether so many seconds may be measured once more, which then come off what is left for that.
    fn may_repeat(&mut self, seconds: u64) -> bool {
        let may = seconds as f64 <= self.repeats;
        if may {
            self.repeats -= seconds as f64;
        }
        may
    }
}

impl Runner for Bench {
    fn has_files(&mut self, plan: &Plan, subject: usize, data: &Place) -> Result<bool> {
        Ok(plan.subjects[subject].instance(&self.lab)?.has_saved(&plan.saved(subject, data)))
    }

    fn run(&mut self, plan: &Plan, step: &Step, before: &[Record]) -> Result<Vec<Record>> {
        match step {
            Step::Load { subject, data } => self.load(plan, *subject, data),
            Step::Measure { subjects, rounds, data, place, inner } => {
                let place: Place = data.iter().chain(place).map(|(axis, value)| (*axis, value.clone())).collect();
                let memory_mb = memory(plan, &place, before)?;
                let all = Together { subjects, rounds, data, place: &place, inner, memory_mb };
                let began = Instant::now();
                let records = self.measure(plan, &all, before)?;
                let took = began.elapsed().as_secs();
                if plan.settings.windows() > 1 && mostly_disturbed(&records) && self.may_repeat(took) {
                    println!("  once more: more than half of the windows were disturbed");
                    return self.measure(plan, &all, before);
                }
                Ok(records)
            }
            Step::Forget { data } => {
                redmine::disk::remove(&self.lab);
                for subject in 0..plan.subjects.len() {
                    plan.subjects[subject].instance(&self.lab)?.forget(&plan.saved(subject, data))?;
                }
                Ok(Vec::new())
            }
        }
    }
}

/// TPC-C's data at a place.
fn warehouses(plan: &Plan, place: &Place) -> tpcc::Scale {
    let size = place.get(&Axis::Size).and_then(Value::number).unwrap_or(1.0);
    let warehouses = (f64::from(plan.settings.warehouses) * size).round() as u32;
    if plan.settings.small { tpcc::Scale::small(warehouses) } else { tpcc::Scale::full(warehouses) }
}

/// Memory for each engine at a place, in MiB.
fn memory(plan: &Plan, place: &Place, before: &[Record]) -> Result<u64> {
    if let Some(set) = place.get(&Axis::Set) {
        let set = plan.settings.sets.get(&set.to_string()).with_context(|| format!("there is no set {set}"))?;
        return Ok(set.memory_mb);
    }
    if let Some(budget) = place.get(&Axis::Budget) {
        let grown = if *budget == Value::Text(FIXED.into()) { 1.0 } else { place[&Axis::Size].number().unwrap_or(1.0) };
        let smallest = warehouses(plan, &Place::new()).raw_bytes() as f64 / f64::from(1 << 20);
        // Rounded before it grows: a multiple of the memory that is fixed.
        let mb = (smallest * plan.settings.memory_share).round().max(MEMORY_LEAST as f64);
        return Ok((mb * grown).round() as u64);
    }
    let Some(Value::Number(share)) = place.get(&Axis::Memory) else { return Ok(plan.settings.memory_mb) };
    let baseline = plan.subjects[0].id();
    let load = before.iter().find(|record| record.phase == Phase::Load && record.subject == baseline);
    let load =
        load.with_context(|| format!("the load of {baseline} is not there, whose size the memory depends on"))?;
    let mb = share * load.run.disk.data as f64 / f64::from(1 << 20);
    ensure!(
        mb >= MEMORY_LEAST as f64,
        "{mb:.1} MB of memory are too little; {MEMORY_LEAST} are needed: a larger scale"
    );
    Ok(mb.round() as u64)
}

/// Whether a subject's data are there: not if its load ended with an error.
fn is_loaded(plan: &Plan, subject: usize, data: &Place, before: &[Record]) -> bool {
    let files = plan.subjects[subject].files();
    let has_files = |id: &str| plan.subjects.iter().any(|other| other.id() == id && other.files() == files);
    let mut loads = before.iter().filter(|record| record.phase == Phase::Load && record.place == *data);
    !loads.any(|record| has_files(&record.subject) && !record.run.errors.is_empty())
}

/// The options of a subject's server at a place.
fn conditions(plan: &Plan, subject: usize, place: &Place, memory_mb: u64) -> Result<Conditions> {
    let Settings { options, .. } = &plan.settings;
    let subject = &plan.subjects[subject];
    let mut extra: Vec<String> = options.iter().map(|line| line.replace("{engine}", subject.kind.id())).collect();
    extra.extend(subject.options().iter().cloned());
    if plan.experiment.workload == Workload::Redmine {
        extra.extend(application::options(subject.kind));
    }
    match place.get(&Axis::Binlog).map(ToString::to_string).as_deref() {
        None | Some("on") => {}
        Some("off") => extra.push("skip-log-bin".into()),
        Some(other) => bail!("the binary log is on or off, not {other}"),
    }
    let most = plan.axis(Axis::Connections).iter().filter_map(Value::number).fold(0.0, f64::max) as u32;
    let sessions = most.max(2 * plan.settings.sessions).max(plan.settings.loaders);
    let isolation = plan.settings.isolation()?;
    let conditions = Conditions { budget_mb: memory_mb.max(MEMORY_LEAST), isolation, extra, strata_extra: Vec::new() };
    Ok(conditions.for_sessions(sessions))
}

impl Bench {
    fn load(&mut self, plan: &Plan, subject: usize, data: &Place) -> Result<Vec<Record>> {
        let settings = &plan.settings;
        let memory_mb = if settings.load_memory_mb > 0 { settings.load_memory_mb } else { settings.memory_mb };
        let conditions = conditions(plan, subject, data, memory_mb)?;
        let instance = plan.subjects[subject].instance(&self.lab)?;
        instance.reset()?;
        let mut server = instance.start(&conditions)?;
        let pace = self.pace.settled();
        let (watch, meter) = (Watch::begin(server.pid(), &[], &instance)?, Meter::begin(server.pid(), &instance)?);
        let mut seen = match fill(plan, &self.lab, &instance, data) {
            // Whether an engine can hold the application is part of the question; that the baseline can is not.
            Err(error) if plan.experiment.workload == Workload::Redmine && subject > 0 => {
                println!("  {error:#}");
                Seen { errors: vec![format!("{error:#}")], ..Seen::default() }
            }
            filled => filled?,
        };
        let failed = !seen.errors.is_empty();
        settle(server.pid())?;
        server.ensure_alive()?;
        let usage = meter.end()?;
        let mut watch = watch.end(0)?;
        watch.expect(&self.price.unwrap_or_default());
        watch.pace = pace.min(pace::now());
        // What was left to be done belongs to the load; its rate is that of the loaders.
        seen.further.insert("settled s".into(), usage.stolen_series.len() as f64);
        let run = finished(plan, "load", seen, usage, &server, &conditions, 1)?;
        let record = Record {
            subject: plan.subjects[subject].id().into(),
            phase: Phase::Load,
            round: 1,
            place: data.clone(),
            run,
            watch,
        };
        server.stop()?;
        // What stopping writes belongs to the size.
        let disk = instance.size_on_disk()?;
        let record = Record { run: Run { disk, ..record.run }, ..record };
        if !failed {
            instance.save(&plan.saved(subject, data))?;
        }
        Ok(vec![record])
    }

    fn measure(&mut self, plan: &Plan, all: &Together, before: &[Record]) -> Result<Vec<Record>> {
        let mut sides = Vec::new();
        for subject in all.subjects {
            if !is_loaded(plan, *subject, all.data, before) {
                println!("  {} is not measured: its load failed", plan.subjects[*subject].title());
                continue;
            }
            let side = self.begun(plan, *subject, all)?;
            sides.push(side);
        }
        let several = sides.len() > 1;
        let mut application = match (plan.experiment.workload, sides.first()) {
            (Workload::Redmine, Some(side)) => Some(Application::start(plan, &self.lab, &side.server, before)?),
            _ => None,
        };
        for side in &mut sides {
            side.server.go_on()?;
            settle(side.server.pid())?;
            if several {
                rest(side)?;
            }
        }
        let mut records = Vec::new();
        for (at, inner) in all.inner.iter().enumerate() {
            let place: Place = all.place.iter().chain(inner).map(|(axis, value)| (*axis, value.clone())).collect();
            for (turn, round) in all.rounds.iter().enumerate() {
                for next in order(sides.len(), at + turn) {
                    let side = &mut sides[next];
                    side.server.go_on()?;
                    let turn = Turn { place: &place, round: *round, warmup: plan.warmup(at, turn) };
                    self.turn(plan, side, &turn, application.as_mut(), before, &mut records)?;
                    if several {
                        rest(side)?;
                    }
                }
            }
        }
        if let Some(application) = application {
            application.stop();
        }
        sides.into_iter().try_for_each(|side| side.server.stop())?;
        Ok(records)
    }

    /// A server with the files of its load; paused if others are to come.
    fn begun(&mut self, plan: &Plan, subject: usize, all: &Together) -> Result<Side> {
        let conditions = conditions(plan, subject, all.place, all.memory_mb)?;
        let instance = plan.subjects[subject].instance(&self.lab)?;
        instance.restore(&plan.saved(subject, all.data))?;
        let mut server = instance.start(&conditions)?;
        if plan.experiment.workload == Workload::Sysbench {
            sbtest::warm(&server, size(&plan.settings))?;
        }
        if all.subjects.len() > 1 {
            server.pause()?;
        }
        Ok(Side { subject, conditions, server })
    }

    /// What is measured of a server at a place in a round, into `records`.
    fn turn(
        &mut self,
        plan: &Plan,
        side: &mut Side,
        turn: &Turn,
        application: Option<&mut Application>,
        before: &[Record],
        records: &mut Vec<Record>,
    ) -> Result<()> {
        let Side { subject, conditions, server } = side;
        let instance = server.instance().clone();
        let record = |phase: Phase, place: Place, (seen, usage, watch): Measured, server: &Server| -> Result<Record> {
            let run = finished(plan, phase.name(), seen, usage, server, conditions, turn.round)?;
            let subject = plan.subjects[*subject].id().into();
            let record = Record { subject, phase, round: turn.round, place, run, watch };
            println!("  {}", told(&record));
            Ok(record)
        };
        let mut driver = Driver::new(plan, &instance, application, turn.place, turn.round)?;
        for window in 1..=plan.settings.windows() {
            let mut place = turn.place.clone();
            if plan.settings.windows > 1 {
                place.insert(Axis::Window, Value::Number(f64::from(window)));
            }
            let stretch = Stretch {
                warmup: if window == 1 { turn.warmup } else { 0 },
                seconds: plan.settings.seconds,
                input: u64::from(window),
                // Windows follow each other: none is measured twice.
                again: (plan.settings.windows() == 1).then_some(AGAIN_INPUT),
            };
            let measured = self.measured(server, &stretch, &mut driver)?;
            records.push(record(Phase::Run, place, measured, server)?);
        }
        driver.rate = paced_rate(plan, turn.place, before.iter().chain(records.iter()));
        if plan.settings.paced_seconds > 0 && driver.rate.is_none() {
            println!("  not measured at one rate: the baseline has none");
        } else if plan.settings.paced_seconds > 0 {
            let stretch = Stretch {
                warmup: plan.settings.paced_warmup(),
                seconds: plan.settings.paced_seconds,
                input: PACED_INPUT,
                again: Some(PACED_AGAIN_INPUT),
            };
            let measured = self.measured(server, &stretch, &mut driver)?;
            records.push(record(Phase::Paced, turn.place.clone(), measured, server)?);
        }
        driver.rate = None;
        if plan.settings.restarts {
            let [open, recover] = restarts(server, conditions, plan.settings.seconds, &mut driver)?;
            if let Some(Record { run, .. }) = records.last_mut() {
                println!("    starts after SHUTDOWN in {open:.0} ms, after SIGKILL in {recover:.0} ms");
                run.further.extend([("open ms".into(), open), ("recover ms".into(), recover)]);
            }
        }
        Ok(())
    }

    /// Measures; once more where something disturbed it, if that is allowed.
    fn measured(&mut self, server: &mut Server, stretch: &Stretch, driver: &mut Driver) -> Result<Measured> {
        let Stretch { warmup, seconds, input, again } = *stretch;
        let first = self.watched(server, warmup, seconds, input, driver)?;
        match (first.2.disturbed(), again) {
            (Some(why), Some(again)) if self.may_repeat(warmup + seconds) => {
                println!("  once more: {why}");
                self.watched(server, warmup, seconds, again, driver)
            }
            _ => Ok(first),
        }
    }

    /// Warm-up and measurement.
    fn watched(
        &mut self,
        server: &mut Server,
        warmup: u64,
        seconds: u64,
        window: u64,
        driver: &mut Driver,
    ) -> Result<Measured> {
        let instance = server.instance().clone();
        // Between windows the load does not rest.
        let pace = if window > 1 { pace::now() } else { self.pace.settled() };
        let mut watch = Watch::begin(server.pid(), &driver.companions(), &instance)?;
        let began = Instant::now();
        let warm = if warmup > 0 { driver.drive(warmup, 0, &Control::default())? } else { Seen::default() };
        watch.measure()?;
        let before = began.elapsed().as_secs_f64().round() as usize;
        let meter = Meter::begin(server.pid(), &instance)?;
        let seen = driver.drive(seconds, window, &Control::default())?;
        server.ensure_alive()?;
        let usage = meter.end()?;
        let mut watch = watch.end(before)?;
        watch.expect(&self.price.unwrap_or_default());
        watch.pace = pace.min(pace::now());
        watch.of_usual = self.pace.share(watch.pace);
        Ok((seen.after(&warm), usage, watch))
    }
}

/// The rate for all engines at a place, in requests a second: a share of what the baseline did in the last window of its first round.
fn paced_rate<'a>(plan: &Plan, place: &Place, records: impl Iterator<Item = &'a Record>) -> Option<u32> {
    let baseline = plan.subjects[0].id();
    let of = |record: &&Record| record.subject == baseline && record.phase == Phase::Run && record.is_at(place);
    let first = records.filter(of).fold(None, |first: Option<&Record>, record| match first {
        // Windows come in their order.
        Some(first) if first.round < record.round => Some(first),
        _ => Some(record),
    })?;
    let rate = (first.run.tps() * plan.settings.paced_share).round() as u32;
    (rate > 0).then_some(rate)
}

/// Which of so many engines is measured after which in a turn. Every other turn goes the other way round, and each pair of turns begins
/// with another engine: none always comes first, or behind the same.
fn order(engines: usize, turn: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..engines).collect();
    order.rotate_left(turn / 2 % engines.max(1));
    if turn % 2 == 1 {
        order.reverse();
    }
    order
}

/// Stops a server until its next turn. What it left in the page cache is written first, not beside who comes next.
fn rest(side: &mut Side) -> Result<()> {
    side.server.pause()?;
    side.server.instance().write_back()
}

/// Whether more than half of the measurements do not count because of the machine.
fn mostly_disturbed(records: &[Record]) -> bool {
    let disturbed = records.iter().filter(|record| record.watch.disturbed().is_some()).count();
    disturbed * 2 > records.len()
}

/// Shuts the server down and starts it; puts it under load for so many seconds, kills it and starts it again. The milliseconds of both
/// starts, each until a row of every table was read.
fn restarts(server: &mut Server, conditions: &Conditions, seconds: u64, driver: &mut Driver) -> Result<[f64; 2]> {
    /// The load would end by itself then: the kill comes before.
    const LATER: u64 = 600;
    /// Another input than that of all windows.
    const INPUT: u64 = 999;
    let instance = server.instance().clone();
    let start = || -> Result<(Server, f64)> {
        let began = Instant::now();
        let mut server = instance.launch(conditions)?;
        server.wait_ready(PATIENCE)?;
        let mut conn = server.connect(Some(tpcc::DATABASE))?;
        for table in tpcc::schema::TABLES {
            conn.query_drop(format!("SELECT * FROM {table} LIMIT 1"))?;
        }
        Ok((server, began.elapsed().as_secs_f64() * 1e3))
    };
    server.shut_down()?;
    let open;
    (*server, open) = start()?;
    let control = Control::default();
    let killed = std::thread::scope(|scope| {
        let load = scope.spawn(|| driver.drive(seconds + LATER, INPUT, &control));
        std::thread::sleep(Duration::from_secs(seconds));
        let alive = server.ensure_alive();
        let killed = server.end();
        control.stop.store(true, Ordering::Relaxed);
        let seen = load.join().expect("the driver does not panic")?;
        ensure!(seen.errors.is_empty(), "before the kill: {}", seen.errors.join("; "));
        alive.and(killed)
    });
    killed?;
    let recover;
    (*server, recover) = start().context("the start after the kill")?;
    Ok([open, recover])
}

/// A run with what was seen of it.
fn finished(
    plan: &Plan,
    label: &str,
    seen: Seen,
    usage: Usage,
    server: &Server,
    conditions: &Conditions,
    round: u32,
) -> Result<Run> {
    let run = Run::of(&plan.experiment.name, label.into(), server, conditions, round)?;
    let mut run = run.with(seen, usage);
    run.settings.insert(SCALE_SETTING.into(), plan.scale_name.clone());
    Ok(run)
}

fn told(record: &Record) -> String {
    let run = &record.run;
    let left_out = record.left_out().map_or(String::new(), |why| format!("; LEFT OUT: {why}"));
    let p95 = run.latency.p95_us as f64 / 1e3;
    format!("{}: {:.0} transactions/s, p95 {p95:.1} ms{left_out}", record.text(), run.tps())
}

fn size(settings: &Settings) -> Size {
    Size { tables: settings.tables, rows: settings.rows }
}

/// Fills the tables; a transaction is a row where rows are counted.
fn fill(plan: &Plan, lab: &Path, instance: &Instance, data: &Place) -> Result<Seen> {
    let settings = &plan.settings;
    let bar = bar(format!("{}: loading", instance.kind().title()));
    let began = Instant::now();
    let all_rows = u64::from(settings.tables) * settings.rows;
    let (mut seen, logical) = match plan.experiment.workload {
        Workload::Tpcc => {
            let scale = warehouses(plan, data);
            tpcc::load::load(instance, scale, false, settings.loaders, &bar)?;
            (Seen::default(), Some(scale.raw_bytes()))
        }
        Workload::Linkbench => {
            let graph = Graph::new(settings.nodes, GRAPH_SEED);
            let how = linkbench::load::Load {
                layout: Layout { partitioned: false, binary: false },
                threads: settings.loaders,
                logged: true,
            };
            (linkbench::load::load(instance, &graph, how, &bar)?.seen, Some(graph.raw_bytes()))
        }
        Workload::Sysbench => {
            sbtest::fill(instance, size(settings))?;
            (Seen { transactions: all_rows, ..Seen::default() }, None)
        }
        Workload::Compressible => {
            let bytes = prose(plan, data)?.load(instance, settings.loaders, &bar)?;
            (Seen { transactions: all_rows, ..Seen::default() }, Some(bytes))
        }
        Workload::Redmine => (application::fill(plan, lab, instance, data, &bar)?, None),
    };
    bar.finish_and_clear();
    if let Some(bytes) = logical {
        seen.further.insert("logical MB".into(), bytes as f64 / f64::from(1 << 20));
    }
    if seen.seconds == 0.0 {
        seen.seconds = began.elapsed().as_secs_f64();
    }
    Ok(seen)
}

fn prose(plan: &Plan, place: &Place) -> Result<Data> {
    let leaves = place.get(&Axis::Compressibility).and_then(Value::number).context("no compressibility is given")?;
    Ok(Data::new(plan.settings.tables, plan.settings.rows, leaves))
}

/// What drives the server at a place.
struct Driver<'a> {
    settings: &'a Settings,
    instance: &'a Instance,
    sessions: u32,
    round: u32,
    /// Requests a second; as fast as they go if none.
    rate: Option<u32>,
    work: Work<'a>,
}

enum Work<'a> {
    Tpcc(tpcc::Scale),
    Linkbench(Box<(Graph, Access)>),
    Sysbench { script: String, xa: bool, counted: f64 },
    Compressible(Data),
    Redmine(Task<'a>),
}

impl<'a> Driver<'a> {
    fn new(
        plan: &'a Plan,
        instance: &'a Instance,
        application: Option<&'a mut Application>,
        place: &Place,
        round: u32,
    ) -> Result<Driver<'a>> {
        let settings = &plan.settings;
        let work = match plan.experiment.workload {
            Workload::Tpcc => Work::Tpcc(warehouses(plan, place)),
            Workload::Linkbench => {
                let graph = Graph::new(settings.nodes, GRAPH_SEED);
                let access = Access::new(&graph);
                Work::Linkbench(Box::new((graph, access)))
            }
            Workload::Sysbench => {
                let case = place.get(&Axis::Case).map(ToString::to_string).context("no case is given")?;
                let xa = place.get(&Axis::Commit).is_some_and(|commit| *commit == Value::Text("xa".into()));
                let counted = settings.counted.get(&case).copied().with_context(|| format!("{case} is not counted"))?;
                Work::Sysbench { script: format!("oltp_{case}"), xa, counted }
            }
            Workload::Compressible => Work::Compressible(prose(plan, place)?),
            Workload::Redmine => Work::Redmine(application.context("Redmine does not run")?.at(place)?),
        };
        let varied = place.get(&Axis::Connections).or_else(|| place.get(&Axis::Processes)).and_then(Value::number);
        let sessions = varied.map_or(settings.sessions, |n| n as u32);
        ensure!(sessions > 0, "the experiment has no sessions");
        Ok(Driver { settings, instance, sessions, round, rate: None, work })
    }

    /// Processes that are part of what is measured.
    fn companions(&self) -> Vec<u32> {
        if let Work::Redmine(task) = &self.work { task.pids() } else { Vec::new() }
    }

    /// Drives for a time; each number of a window draws other input. sysbench and Redmine do not look at `control`.
    fn drive(&mut self, seconds: u64, window: u64, control: &Control) -> Result<Seen> {
        let (instance, sessions, seed) = (self.instance, self.sessions, u64::from(self.round) * 1000 + window);
        let rate = self.rate;
        match &mut self.work {
            Work::Tpcc(scale) => {
                let load = tpcc::drive::Load { scale: *scale, threads: sessions, seconds, seed, rate };
                Ok(tpcc::drive::drive(instance, load, control)?.seen)
            }
            Work::Linkbench(work) => {
                let (graph, access) = &**work;
                let load = linkbench::drive::Load { graph, access, requesters: sessions, rate, seconds, run: seed };
                Ok(linkbench::drive::drive(instance, load, control)?.seen)
            }
            Work::Sysbench { script, xa, counted } => {
                let rand_type = self.settings.distribution.as_str();
                let call = Call { script, threads: sessions, seconds, rand_type, xa: *xa, rate: rate.map(u64::from) };
                let outcome = sysbench::run(instance, size(self.settings), &call, |_| ())?;
                let ms = |us: u64| us as f64 / 1e3;
                let further = BTreeMap::from([
                    ("statements".into(), *counted),
                    ("min ms".into(), ms(outcome.min_us)),
                    ("mean ms".into(), ms(outcome.mean_us)),
                ]);
                Ok(Seen { further, ..outcome.seen() })
            }
            Work::Compressible(_) | Work::Redmine(_) if rate.is_some() => bail!("this workload knows no rate"),
            Work::Compressible(data) => data.drive(instance, sessions, seconds, seed, control),
            Work::Redmine(task) => task.drive(sessions, seconds, seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Experiment, OWN};
    use super::super::record::testing::record;
    use super::*;

    fn plan(name: &str, engines: &[&str]) -> Plan {
        let text = OWN.iter().find(|(known, _)| *known == name).unwrap().1;
        let engines: Vec<String> = engines.iter().map(|name| (*name).to_string()).collect();
        Plan::new(Experiment::parse(text).unwrap(), "short", &engines, None).unwrap()
    }

    #[test]
    fn one_rate_is_a_share_of_the_baseline_s_last_window() {
        let plan = plan("linkbench", &["innodb", "strata"]);
        let window = |subject, round, window: u32, transactions| {
            record(subject, round, &[(Axis::Window, Value::Number(f64::from(window)))], transactions)
        };
        let mut load = record("innodb", 1, &[], 90_000);
        load.phase = Phase::Load;
        let records = [
            load,
            window("innodb", 1, 1, 30_000),
            window("innodb", 1, 2, 20_000),
            window("strata", 1, 2, 70_000),
            window("innodb", 2, 2, 40_000),
        ];
        // 10 seconds; in all rounds the same.
        let of = |records: &[Record]| paced_rate(&plan, &Place::new(), records.iter());
        assert_eq!(of(&records), Some((2000.0 * plan.settings.paced_share) as u32));
        assert_eq!(of(&records[3..4]), None);
        assert_eq!(of(&[window("innodb", 1, 1, 0)]), None);
    }

    #[test]
    fn windows_are_measured_again_when_most_were_disturbed() {
        let windows = |stolen: &[f64]| -> Vec<Record> {
            let one = |stolen: &f64| {
                let mut record = record("strata", 1, &[], 100);
                record.watch.stolen = *stolen;
                record
            };
            stolen.iter().map(one).collect()
        };
        assert!(mostly_disturbed(&windows(&[0.5, 0.0, 0.5])));
        assert!(!mostly_disturbed(&windows(&[0.5, 0.0, 0.5, 0.0])));
        assert!(!mostly_disturbed(&[]));
    }

    #[test]
    fn no_engine_always_follows_the_same() {
        let orders: Vec<Vec<usize>> = (0..6).map(|turn| order(3, turn)).collect();
        assert_eq!(orders[..3], [vec![0, 1, 2], vec![2, 1, 0], vec![1, 2, 0]]);
        assert_eq!([0, 1, 2, 3].map(|turn| order(2, turn)[0]), [0, 1, 1, 0], "of two, each comes first as often");
        for engine in 0..3 {
            let all: Vec<usize> = orders.concat();
            let before = |other: usize| all.windows(2).filter(|pair| **pair == [other, engine]).count();
            let others: Vec<usize> = (0..3).filter(|other| *other != engine).map(before).collect();
            assert!(others.iter().all(|count| *count >= 2), "{engine} comes behind {others:?}");
        }
        assert_eq!((order(1, 5), order(0, 1)), (vec![0], vec![]));
    }

    #[test]
    fn a_bad_day_does_not_double_the_time() {
        let mut bench = Bench { price: Some(Price::default()), ..Bench::new(PathBuf::new()) };
        bench.begin(1000.0).unwrap();
        assert_eq!((0..10).filter(|_| bench.may_repeat(20)).count(), 2, "50 seconds are left for it");
        assert!(bench.may_repeat(10) && !bench.may_repeat(1), "a shorter one still fits");
        bench.begin(1000.0).unwrap();
        assert!(bench.may_repeat(50), "each experiment has its own");
    }

    #[test]
    fn what_could_not_be_loaded_is_not_measured() {
        let plan = plan("redmine", &["innodb", "rocksdb", "rocksdb:rocksdb_large_prefix=1"]);
        let set = |name: &str| Place::from([(Axis::Set, Value::Text(name.into()))]);
        let mut load = record("rocksdb", 1, &[(Axis::Set, Value::Text("small".into()))], 0);
        load.phase = Phase::Load;
        load.run.errors.push("Specified key was too long".into());
        let before = [load];
        assert!(!is_loaded(&plan, 1, &set("small"), &before));
        assert!(is_loaded(&plan, 1, &set("large"), &before), "another set");
        assert!(is_loaded(&plan, 0, &set("small"), &before), "another engine");
        assert!(is_loaded(&plan, 2, &set("small"), &before), "the same engine with other options");
    }

    #[test]
    fn the_memory_of_a_set() {
        let plan = plan("redmine", &["innodb"]);
        let at = |set: &str| memory(&plan, &Place::from([(Axis::Set, Value::Text(set.into()))]), &[]);
        assert_eq!((at("small").unwrap(), at("giant").unwrap()), (1, 72));
        assert!(at("huge").is_err());
        // An engine gets no less than it needs.
        let place = Place::from([(Axis::Set, Value::Text("small".into()))]);
        assert_eq!(conditions(&plan, 0, &place, 3).unwrap().budget_mb, MEMORY_LEAST);
    }
}
