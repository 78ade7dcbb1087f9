//! Redmine as a workload: a data set to load, and at each place an operation by so many processes beside so much load on the disk.

use super::experiment::{Axis, Place, Value};
use super::plan::Plan;
use super::record::Record;
use crate::drive::Seen;
use crate::engine::Kind;
use crate::redmine::app::App;
use crate::redmine::disk::{self, Level, Load};
use crate::redmine::set::{self, Around};
use crate::redmine::workers::Workers;
use crate::server::Instance;
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
    workers: Workers,
    idle: f64,
}

/// An operation at a place. The load of the disk lasts as long as it.
pub struct Task<'a> {
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
    pub fn start(plan: &Plan, lab: &Path, instance: &Instance, before: &[Record]) -> Result<Application> {
        let app = App::prepare(lab)?;
        disk::lay_out(&app, plan.settings.disk_mb)?;
        let idle = before.iter().find_map(|record| record.run.further.get(IDLE).copied());
        let idle = idle.context("no load has measured the idle disk")?;
        let most = plan.axis(Axis::Processes).iter().filter_map(Value::number).fold(1.0, f64::max);
        let mut workers = Workers::start(&app, instance, most as u32)?;
        // The first operations load code and learn the tables' columns.
        workers.run("process", most as u32, WARM_UP, 0)?;
        Ok(Application { app, workers, idle })
    }

    /// What is done at a place.
    pub fn at(&mut self, place: &Place) -> Result<Task<'_>> {
        let level = Level::of(&text(place, Axis::Disk)?)?;
        let operation = text(place, Axis::Case)?;
        Ok(Task { workers: &mut self.workers, load: Load::begin(&self.app, level, self.idle)?, operation })
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

    /// Lets so many processes do the operation for a time.
    pub fn drive(&mut self, processes: u32, seconds: u64, seed: u64) -> Result<Seen> {
        let before = self.load.operations()?;
        let done = self.workers.run(&self.operation, processes, seconds, seed)?;
        let took = done.seconds();
        let load = (self.load.operations()? - before) as f64 / if took > 0.0 { took } else { seconds as f64 };
        let latency = done.latencies().summary();
        let mut further = BTreeMap::from([("load operations/s".to_string(), load)]);
        further.extend(done.mean().map(|mean| ("op s".to_string(), mean)));
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

fn text(place: &Place, axis: Axis) -> Result<String> {
    place.get(&axis).map(ToString::to_string).with_context(|| format!("no {} is given", axis.name()))
}
