//! Loads and measures an engine: what the workloads have in common, and what each drives.

use super::application::{self, Application, Task};
use super::experiment::{Axis, Phase, Place, Value, Workload};
use super::plan::{Plan, Step};
use super::progress::Runner;
use super::record::Record;
use super::rows::Data;
use super::settings::Settings;
use super::watch::{Watch, Watched};
use crate::engine::Conditions;
use crate::linkbench::graph::Graph;
use crate::linkbench::request::Access;
use crate::linkbench::schema::Layout;
use crate::meter::{Meter, settle};
use crate::report::{Run, Variables};
use crate::sbtest;
use crate::server::{Instance, Server};
use crate::stats::Latency;
use crate::sysbench::{self, Call, Size};
use crate::tpcc::bench::{bar, version};
use crate::tpcc::drive::Control;
use crate::{linkbench, redmine, tpcc};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Less memory than this no engine can do with, in MiB.
const MEMORY_LEAST: u64 = 8;
/// Connections that are not the workload's: the lab's own.
const MORE_CONNECTIONS: u32 = 20;
/// Seed of LinkBench's graph.
const GRAPH_SEED: u64 = 1;

/// Name of the scale among the settings of a run.
pub const SCALE: &str = "scale";

/// What a driver saw.
#[derive(Debug, Default)]
pub struct Driven {
    pub seconds: f64,
    pub transactions: u64,
    pub deadlocks: u64,
    pub errors: Vec<String>,
    pub series: Vec<f64>,
    pub latency: Latency,
    pub by_kind: BTreeMap<String, Latency>,
    pub further: BTreeMap<String, f64>,
    /// What the reader of a report has to know beside the numbers, by name.
    pub words: BTreeMap<String, String>,
}

/// Does the steps with private servers in the lab's folder.
pub struct Bench {
    pub lab: PathBuf,
}

impl Runner for Bench {
    fn has_files(&mut self, plan: &Plan, subject: usize, data: &Place) -> Result<bool> {
        Ok(plan.subjects[subject].instance(&self.lab)?.has_saved(&plan.saved(subject, data)))
    }

    fn run(&mut self, plan: &Plan, step: &Step, before: &[Record]) -> Result<Vec<Record>> {
        match step {
            Step::Load { subject, data } => self.load(plan, *subject, data),
            Step::Measure { subject, round, data, place, inner } => {
                let place: Place = data.iter().chain(place).map(|(axis, value)| (*axis, value.clone())).collect();
                let memory_mb = memory(plan, &place, before)?;
                self.measure(plan, *subject, *round, data, &place, inner, memory_mb, before)
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

/// Memory for each engine at a place, in MiB.
fn memory(plan: &Plan, place: &Place, before: &[Record]) -> Result<u64> {
    if let Some(set) = place.get(&Axis::Set) {
        return Ok(plan
            .settings
            .sets
            .get(&set.to_string())
            .with_context(|| format!("there is no set {set}"))?
            .memory_mb);
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
    let connections = most.max(2 * plan.settings.sessions).max(plan.settings.loaders) + MORE_CONNECTIONS;
    extra.push(format!("max_connections={}", connections.max(400)));
    let isolation = plan.settings.isolation()?;
    Ok(Conditions { budget_mb: memory_mb.max(MEMORY_LEAST), isolation, extra, strata_extra: Vec::new() })
}

impl Bench {
    fn load(&self, plan: &Plan, subject: usize, data: &Place) -> Result<Vec<Record>> {
        let settings = &plan.settings;
        let memory_mb = if settings.load_memory_mb > 0 { settings.load_memory_mb } else { settings.memory_mb };
        let conditions = conditions(plan, subject, data, memory_mb)?;
        let instance = plan.subjects[subject].instance(&self.lab)?;
        instance.reset()?;
        let mut server = instance.start(&conditions)?;
        let (watch, meter) = (Watch::begin(server.pid(), &[], &instance)?, Meter::begin(server.pid(), &instance)?);
        let mut driven = match fill(plan, &self.lab, &instance, data) {
            // Whether an engine can hold the application is part of the question; that the baseline can is not.
            Err(error) if plan.experiment.workload == Workload::Redmine && subject > 0 => {
                println!("  {error:#}");
                Driven { errors: vec![format!("{error:#}")], ..Driven::default() }
            }
            filled => filled?,
        };
        let failed = !driven.errors.is_empty();
        settle(server.pid())?;
        server.ensure_alive()?;
        let usage = meter.end()?;
        let watch = watch.end(0)?;
        // What was left to be done belongs to the load; its rate is that of the loaders.
        driven.further.insert("settled s".into(), usage.stolen_series.len() as f64);
        let run = Run { usage, ..finished(plan, "load", driven, &server, &conditions, 1)? };
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

    #[allow(clippy::too_many_arguments)]
    fn measure(
        &self,
        plan: &Plan,
        subject: usize,
        round: u32,
        data: &Place,
        place: &Place,
        inner: &[Place],
        memory_mb: u64,
        before: &[Record],
    ) -> Result<Vec<Record>> {
        if !is_loaded(plan, subject, data, before) {
            println!("  not measured: its load failed");
            return Ok(Vec::new());
        }
        let conditions = conditions(plan, subject, place, memory_mb)?;
        let instance = plan.subjects[subject].instance(&self.lab)?;
        instance.restore(&plan.saved(subject, data))?;
        let mut server = instance.start(&conditions)?;
        if plan.experiment.workload == Workload::Sysbench {
            sbtest::warm(&server, size(&plan.settings))?;
        }
        let mut application = match plan.experiment.workload {
            Workload::Redmine => Some(Application::start(plan, &self.lab, &instance, before)?),
            _ => None,
        };
        settle(server.pid())?;
        let mut records = Vec::new();
        for inner in inner {
            let place: Place = place.iter().chain(inner).map(|(axis, value)| (*axis, value.clone())).collect();
            let mut driver = Driver::new(plan, &instance, application.as_mut(), &place, round)?;
            for window in 1..=plan.settings.windows() {
                let mut place = place.clone();
                if plan.settings.windows > 1 {
                    place.insert(Axis::Window, Value::Number(f64::from(window)));
                }
                let warmup = if window == 1 { plan.settings.warmup } else { 0 };
                let (driven, usage, watch) =
                    watched(&mut server, warmup, plan.settings.seconds, u64::from(window), &mut driver)?;
                let run = Run { usage, ..finished(plan, "run", driven, &server, &conditions, round)? };
                let subject = plan.subjects[subject].id().to_string();
                records.push(Record { subject, phase: Phase::Run, round, place, run, watch });
                println!("  {}", told(&records[records.len() - 1]));
            }
        }
        if let Some(application) = application {
            application.stop();
        }
        server.stop()?;
        Ok(records)
    }
}

/// Warm-up and measurement.
fn watched(
    server: &mut Server,
    warmup: u64,
    seconds: u64,
    window: u64,
    driver: &mut Driver,
) -> Result<(Driven, crate::meter::Usage, Watched)> {
    let instance = server.instance().clone();
    let mut watch = Watch::begin(server.pid(), &driver.companions(), &instance)?;
    let began = Instant::now();
    let warm = if warmup > 0 { driver.drive(warmup, 0)? } else { Driven::default() };
    watch.measure()?;
    let before = began.elapsed().as_secs_f64().round() as usize;
    let meter = Meter::begin(server.pid(), &instance)?;
    let mut driven = driver.drive(seconds, window)?;
    server.ensure_alive()?;
    let usage = meter.end()?;
    let watch = watch.end(before)?;
    driven.errors.extend(warm.errors);
    Ok((driven, usage, watch))
}

/// A run with what was driven.
fn finished(
    plan: &Plan,
    label: &str,
    driven: Driven,
    server: &Server,
    conditions: &Conditions,
    round: u32,
) -> Result<Run> {
    let instance = server.instance();
    Ok(Run {
        version: version(server)?,
        variables: Variables::read(server)?,
        settings: driven.words.into_iter().chain([(SCALE.to_string(), plan.scale_name.clone())]).collect(),
        seconds: driven.seconds,
        transactions: driven.transactions,
        deadlocks: driven.deadlocks,
        errors: driven.errors,
        series: driven.series,
        latency: driven.latency,
        by_kind: driven.by_kind,
        further: driven.further,
        disk: instance.size_on_disk()?,
        ..Run::new(&plan.experiment.name, label.into(), instance, conditions, round)
    })
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
fn fill(plan: &Plan, lab: &Path, instance: &Instance, data: &Place) -> Result<Driven> {
    let settings = &plan.settings;
    let bar = bar(format!("{}: loading", instance.kind().title()));
    let began = Instant::now();
    let mut driven = Driven::default();
    match plan.experiment.workload {
        Workload::Tpcc => {
            let scale = tpcc::Scale::full(settings.warehouses);
            tpcc::load::load(instance, scale, settings.loaders, &bar)?;
            driven.further.insert("logical MB".into(), scale.raw_bytes() as f64 / f64::from(1 << 20));
        }
        Workload::Linkbench => {
            let graph = Graph::new(settings.nodes, GRAPH_SEED);
            let how = linkbench::load::Load {
                layout: Layout { partitioned: false, binary: false },
                threads: settings.loaders,
                logged: true,
            };
            let loaded = linkbench::load::load(instance, &graph, how, &bar)?;
            driven.transactions = loaded.rows;
            driven.seconds = loaded.seconds;
            driven.deadlocks = loaded.deadlocks;
            driven.latency = loaded.latency.summary();
            driven.series = loaded.series;
            driven.further.insert("logical MB".into(), graph.raw_bytes() as f64 / f64::from(1 << 20));
        }
        Workload::Sysbench => {
            sbtest::fill(instance, size(settings))?;
            driven.transactions = u64::from(settings.tables) * settings.rows;
        }
        Workload::Compressible => {
            let bytes = prose(plan, data)?.load(instance, settings.loaders, &bar)?;
            driven.transactions = u64::from(settings.tables) * settings.rows;
            driven.further.insert("logical MB".into(), bytes as f64 / f64::from(1 << 20));
        }
        Workload::Redmine => driven = application::fill(plan, lab, instance, data, &bar)?,
    }
    bar.finish_and_clear();
    if driven.seconds == 0.0 {
        driven.seconds = began.elapsed().as_secs_f64();
    }
    Ok(driven)
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
    work: Work<'a>,
}

enum Work<'a> {
    Tpcc,
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
            Workload::Tpcc => Work::Tpcc,
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
        Ok(Driver { settings, instance, sessions, round, work })
    }

    /// Processes that are part of what is measured.
    fn companions(&self) -> Vec<u32> {
        if let Work::Redmine(task) = &self.work { task.pids() } else { Vec::new() }
    }

    /// Drives for a time; each number of a window draws other input.
    fn drive(&mut self, seconds: u64, window: u64) -> Result<Driven> {
        let (instance, sessions, seed) = (self.instance, self.sessions, u64::from(self.round) * 1000 + window);
        match &mut self.work {
            Work::Tpcc => {
                let scale = tpcc::Scale::full(self.settings.warehouses);
                let load = tpcc::drive::Load { scale, threads: sessions, seconds, seed, rate: None };
                let outcome = tpcc::drive::drive(instance, load, &Control::default())?;
                Ok(Driven {
                    seconds: outcome.seconds,
                    transactions: outcome.transactions,
                    deadlocks: outcome.deadlocks,
                    errors: with_lost(outcome.errors, outcome.lost),
                    series: outcome.series,
                    latency: outcome.latency.summary(),
                    by_kind: outcome.by_kind.iter().map(|(kind, l)| ((*kind).to_string(), l.summary())).collect(),
                    ..Driven::default()
                })
            }
            Work::Linkbench(work) => {
                let (graph, access) = &**work;
                let load = linkbench::drive::Load { graph, access, requesters: sessions, seconds, run: seed };
                let outcome = linkbench::drive::drive(instance, load, &Control::default())?;
                Ok(Driven {
                    seconds: outcome.seconds,
                    transactions: outcome.transactions,
                    deadlocks: outcome.deadlocks,
                    errors: with_lost(outcome.errors, outcome.lost),
                    series: outcome.series,
                    latency: outcome.latency.summary(),
                    by_kind: outcome.by_kind.iter().map(|(kind, l)| ((*kind).to_string(), l.summary())).collect(),
                    ..Driven::default()
                })
            }
            Work::Sysbench { script, xa, counted } => {
                let rand_type = self.settings.distribution.as_str();
                let call = Call { script, threads: sessions, seconds, rand_type, xa: *xa, rate: None };
                let outcome = sysbench::run(instance, size(self.settings), &call, |_| ())?;
                let ms = |us: u64| us as f64 / 1e3;
                Ok(Driven {
                    latency: outcome.latency(),
                    further: BTreeMap::from([
                        ("statements".into(), *counted),
                        ("min ms".into(), ms(outcome.min_us)),
                        ("mean ms".into(), ms(outcome.mean_us)),
                    ]),
                    seconds: outcome.seconds,
                    transactions: outcome.transactions,
                    deadlocks: outcome.deadlocks,
                    errors: outcome.errors,
                    series: outcome.series,
                    ..Driven::default()
                })
            }
            Work::Compressible(data) => data.drive(instance, sessions, seconds, seed),
            Work::Redmine(task) => task.drive(sessions, seconds, seed),
        }
    }
}

fn with_lost(mut errors: Vec<String>, lost: u32) -> Vec<String> {
    if lost > 0 {
        errors.push(format!("{lost} sessions broke"));
    }
    errors
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
        assert_eq!((at("small").unwrap(), at("giant").unwrap()), (3, 179));
        assert!(at("huge").is_err());
        // An engine gets no less than it needs.
        let place = Place::from([(Axis::Set, Value::Text("small".into()))]);
        assert_eq!(conditions(&plan, 0, &place, 3).unwrap().budget_mb, MEMORY_LEAST);
    }
}
