//! Redmine as a workload: a data set to load, and at each place an operation by so many processes beside so much load on the disk.

use super::experiment::{Axis, Place, Value};
use super::plan::Plan;
use super::record::Record;
use crate::drive::Seen;
use crate::engine::Kind;
use crate::kernel::Turns;
use crate::redmine::app::App;
use crate::redmine::disk::{self, Level, Load};
use crate::redmine::set::{self, Around};
use crate::redmine::workers::Workers;
use crate::server::{Instance, Server};
use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::path::Path;

/// Name of the figure that the first load leaves for those that are measured: what the idle disk gives one thread.
const IDLE: &str = "idle disk operations/s";
/// Seconds that the processes work before anything is measured.
const WARM_UP: u64 = 2;

/// Options of a server on which Redmine's own migrations make tables of an engine. Rails adds ENGINE=InnoDB to what older
/// migrations ask for, whatever the server's default; the server can put another engine in its place, unless its SQL mode forbids that.
pub fn options(kind: Kind) -> [String; 2] {
    [
        format!("enforce_storage_engine={}", kind.sql()),
        "sql_mode=STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER".into(),
    ]
}

/// Redmine's processes on an engine's server.
pub struct Application {
    app: App,
    /// The server's process.
    server: u32,
    workers: Workers,
    idle: f64,
}

/// An operation at a place. The load of the disk lasts as long as it.
pub struct Task<'a> {
    server: u32,
    workers: &'a mut Workers,
    load: Load,
    operation: String,
}

/// Migrations, a data set; with the first one of a run what the idle disk gives.
pub fn fill(plan: &Plan, lab: &Path, instance: &Instance, data: &Place, bar: &ProgressBar) -> Result<Seen> {
    let settings = &plan.settings;
    ensure!(
        instance.engine_clause() == instance.kind().sql(),
        "a variant that changes each table cannot be: Redmine makes its tables"
    );
    let app = App::prepare(lab)?;
    disk::lay_out(&app, settings.disk_mb)?;
    let idle = disk::idle(&app)?;
    let name = text(data, Axis::Set)?;
    let set = settings.sets.get(&name).with_context(|| format!("there is no set {name}"))?;
    let around = Around { members: settings.members, comments: settings.comments, loaders: settings.loaders };
    let made = set::make(&app, instance, set, around, bar)?;
    let mut words = BTreeMap::from([("Redmine".to_string(), app.version().to_string())]);
    if !made.foreign_key_error.is_empty() {
        words.insert("a plug-in's foreign key".into(), made.foreign_key_error);
    }
    let further = [
        (IDLE, idle),
        ("migrate s", made.migrate_seconds),
        ("tables", made.tables as f64),
        ("projects", made.projects as f64),
        ("foreign keys", made.foreign_keys as f64),
    ];
    Ok(Seen {
        seconds: made.seconds,
        transactions: made.rows,
        deadlocks: made.repeated,
        further: further.map(|(name, value)| (name.to_string(), value)).into(),
        words,
        ..Seen::default()
    })
}

impl Application {
    /// Starts as many processes as any place needs.
    pub fn start(plan: &Plan, lab: &Path, server: &Server, before: &[Record]) -> Result<Application> {
        let app = App::prepare(lab)?;
        disk::lay_out(&app, plan.settings.disk_mb)?;
        let idle = before.iter().find_map(|record| record.run.further.get(IDLE).copied());
        let idle = idle.context("no load has measured the idle disk")?;
        let most = plan.axis(Axis::Processes).iter().filter_map(Value::number).fold(1.0, f64::max);
        let mut workers = Workers::start(&app, server.instance(), most as u32)?;
        // The first operations load code and learn the tables' columns.
        workers.run("process", most as u32, WARM_UP, 0)?;
        Ok(Application { app, server: server.pid(), workers, idle })
    }

    /// What is done at a place.
    pub fn at(&mut self, place: &Place) -> Result<Task<'_>> {
        let level = Level::of(&text(place, Axis::Disk)?)?;
        let operation = text(place, Axis::Case)?;
        let load = Load::begin(&self.app, level, self.idle)?;
        Ok(Task { server: self.server, workers: &mut self.workers, load, operation })
    }

    /// Ends the processes.
    pub fn stop(self) {
        self.workers.stop();
    }
}

impl Task<'_> {
    /// Processes beside the server that belong to it.
    pub fn pids(&self) -> Vec<u32> {
        self.workers.pids().into_iter().chain(self.load.pid()).collect()
    }

    /// Of the server, and of Redmine's processes together.
    fn turns(&self) -> Result<[Turns; 2]> {
        let workers = self.workers.pids().into_iter().map(Turns::of);
        let workers = workers.collect::<Result<Vec<_>>>()?.into_iter().fold(Turns::default(), Turns::and);
        Ok([Turns::of(self.server)?, workers])
    }

    /// Lets so many processes do the operation for a time.
    pub fn drive(&mut self, processes: u32, seconds: u64, seed: u64) -> Result<Seen> {
        let before = self.load.operations()?;
        let turns_before = self.turns()?;
        let done = self.workers.run(&self.operation, processes, seconds, seed)?;
        let [server, workers] = self.turns()?;
        let turns = [server.since(turns_before[0]), workers.since(turns_before[1])];
        let took = done.seconds();
        let load = (self.load.operations()? - before) as f64 / if took > 0.0 { took } else { seconds as f64 };
        let latency = done.latencies().summary();
        let mut further = BTreeMap::from([("load operations/s".to_string(), load)]);
        further.extend(done.mean().map(|mean| ("op s".to_string(), mean)));
        further.extend(parts(turns, done.sum(), done.ops.len()).map(|(name, ms)| (name.to_string(), ms)));
        Ok(Seen {
            seconds: took,
            transactions: done.ops.len() as u64,
            deadlocks: done.repeated,
            series: done.series(seconds),
            latency,
            by_kind: BTreeMap::from([(self.operation.clone(), latency)]),
            further,
            errors: done.errors,
            ..Seen::default()
        })
    }
}

/// What the time of an operation went to, in milliseconds, of so many that took `seconds` together. What neither side ran nor waited
/// for a processor is left for all else, of which the disk is the most.
fn parts([server, workers]: [Turns; 2], seconds: f64, operations: usize) -> [(&'static str, f64); 4] {
    let each = |ms: f64| ms / operations.max(1) as f64;
    let [application, served] = [workers, server].map(|turns| each(turns.ran_ns as f64 / 1e6));
    let queue = each(server.and(workers).waited_ns as f64 / 1e6);
    let rest = (each(seconds * 1e3) - application - served - queue).max(0.0);
    [("application ms", application), ("server ms", served), ("queue ms", queue), ("rest ms", rest)]
}

fn text(place: &Place, axis: Axis) -> Result<String> {
    place.get(&axis).map(ToString::to_string).with_context(|| format!("no {} is given", axis.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_operation_are_its_time() {
        let turns =
            |ran_ms: u64, waited_ms: u64| Turns { ran_ns: ran_ms * 1_000_000, waited_ns: waited_ms * 1_000_000 };
        let parts = parts([turns(100, 50), turns(400, 150)], 1.0, 10);
        assert_eq!(parts.map(|(_, ms)| ms), [40.0, 10.0, 20.0, 30.0]);
        assert_eq!(super::parts([Turns::default(); 2], 0.0, 0).map(|(_, ms)| ms), [0.0; 4], "no operation");
    }

    #[test]
    fn who_computes_runs_and_who_shares_a_processor_waits() {
        let before = Turns::of(std::process::id()).unwrap();
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 50 {}
        let turns = Turns::of(std::process::id()).unwrap().since(before);
        assert!(turns.ran_ns + turns.waited_ns >= 40_000_000, "{turns:?}");
    }
}
