//! The command `crash`: the end of a server at a random moment under load, restart, verify.
//!
//! The end is SIGKILL, and in every third round SHUTDOWN. What must hold after each restart: every acknowledged transaction
//! is there, none is halved, none is invented (the [`ledger`] knows); the binary log says the same as the tables; the TPC-C
//! conditions hold and acknowledged orders are there; tables, sequences, counters and prepared transactions are as before or
//! after the statement in flight ([`churn`]); CHECK TABLE is clean. At the end of the trial nothing is left over
//! ([`leaks`]). SIGKILL leaves the kernel's page cache: this proves recovery, not that the disk was told to flush.

use crate::binlog::Replay;
use crate::churn::{self, Cast, Churn};
use crate::definer;
use crate::drive::Control;
use crate::engine::Conditions;
use crate::held;
use crate::leaks;
use crate::ledger::{self, Writer};
use crate::options::{self, Isolation, seed_of_now};
use crate::rotation::Rotation;
use crate::sbtest;
use crate::server::{Instance, Server};
use crate::sysbench::{self, Call, Size};
use crate::tpcc::bench::{has_foreign_keys, load_warehouses};
use crate::tpcc::drive::{Load, Outcome, drive};
use crate::tpcc::txn::Order;
use crate::tpcc::{self, Scale, check};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::io::Read;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Violations that are printed of a round.
const TOLD: usize = 20;

/// The load beside the ledger, which always runs.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    /// TPC-C
    Tpcc,
    /// sysbench oltp_write_only
    Sysbench,
    /// Both at once
    Both,
    /// Neither
    None,
}

impl Workload {
    fn tpcc(self) -> bool {
        matches!(self, Workload::Tpcc | Workload::Both)
    }

    fn sysbench(self) -> bool {
        matches!(self, Workload::Sysbench | Workload::Both)
    }
}

/// Options of `crash`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    trial: options::Trial,
    /// The load beside the ledger's own
    #[arg(long, value_enum, default_value = "both")]
    workload: Workload,
    /// Warehouses
    #[arg(long, default_value_t = 1)]
    warehouses: u32,
    /// The specification's cardinalities, not a tenth of them
    #[arg(long)]
    full: bool,
    /// TPC-C with all foreign keys of the specification (RocksDB has none)
    #[arg(long)]
    foreign_keys: bool,
    /// Rows of each of two sysbench tables
    #[arg(long, default_value_t = 20_000)]
    rows: u64,
    /// The kill comes so many seconds after the load began at the latest
    #[arg(long, default_value_t = 6.0)]
    max_seconds: f64,
    /// And at the earliest
    #[arg(long, default_value_t = 0.5)]
    min_seconds: f64,
    /// Percentage of rounds in which recovery itself is killed once more
    #[arg(long, default_value_t = 25)]
    again: u32,
    /// Seconds that a restart may take
    #[arg(long, default_value_t = 120)]
    restart_seconds: u64,
    /// Without the binary log
    #[arg(long)]
    no_binlog: bool,
    /// Sessions that change definitions, beside those with sequences, counters, temporary tables and XA; 0: none of all these
    #[arg(long, default_value_t = 3)]
    churn: u32,
    /// Of these sessions only those of one table that is altered, at once and beside writers, while others write to it; after each end
    /// no file may be left that the engine does not count
    #[arg(long)]
    alters: bool,
    /// All is encrypted, keys get new versions under load and between servers, and some starts have wrong or missing keys
    #[arg(long, conflicts_with = "encrypted")]
    rotate: bool,
    /// Further options for the server, as they stand in an option file; one that weakens durability
    /// shows whether this command would notice
    #[arg(long = "server-option", value_name = "NAME=VALUE")]
    server_options: Vec<String>,
}

/// Everything that outlives a crash.
struct Trial {
    args: Args,
    instance: Instance,
    conditions: Conditions,
    scale: Scale,
    size: Size,
    rng: SmallRng,
    writers: Vec<Writer>,
    replay: Replay,
    orders: Vec<Order>,
    churn: Churn,
    rotation: Option<Rotation>,
}

/// The command `crash`.
pub fn run(args: Args) -> Result<()> {
    anyhow::ensure!(args.max_seconds > args.min_seconds, "--max-seconds must be more than --min-seconds");
    if args.foreign_keys {
        has_foreign_keys(args.trial.engine)?;
    }
    let seed = args.trial.seed.unwrap_or_else(seed_of_now);
    let instance = Instance::new(&args.trial.site.folder()?, args.trial.engine)?;
    let mut extra = [args.trial.server_options()?, args.server_options.clone()].concat();
    if args.no_binlog {
        extra.push("skip-log-bin".into());
    }
    let conditions = Conditions {
        budget_mb: args.trial.cache_mb,
        isolation: Isolation::RepeatableRead,
        extra,
        strata_extra: vec![],
    };
    println!(
        "{}: {} rounds of a server that is ended under load{}, seed {seed}",
        args.trial.engine.title(),
        args.trial.rounds,
        if args.no_binlog { ", no binary log" } else { "" }
    );
    let mut trial = Trial {
        scale: if args.full { Scale::full(args.warehouses) } else { Scale::small(args.warehouses) },
        size: Size { tables: 2, rows: args.rows },
        rng: SmallRng::seed_from_u64(seed),
        writers: (1..=args.trial.threads).map(|number| Writer::new(number, seed)).collect(),
        replay: Replay::default(),
        orders: Vec::new(),
        churn: match (args.churn, args.alters) {
            (_, true) => {
                Churn::new(args.trial.engine.sql(), Cast { tables: 0, alters: true, others: false, xa: false }, seed)
            }
            (0, _) => Churn::idle(),
            (tables, _) => {
                Churn::new(args.trial.engine.sql(), Cast { tables, alters: true, others: true, xa: true }, seed)
            }
        },
        rotation: args.rotate.then(|| Rotation::new(seed)),
        instance,
        conditions,
        args,
    };
    let mut server = Some(trial.prepare()?);
    for round in 1..=trial.args.trial.rounds {
        let running = server.take().context("each round leaves a server")?;
        match trial.round(running, round) {
            Ok(next) => server = Some(next),
            Err(error) => {
                println!("round {round}: VIOLATION");
                bail!("{error:#}\nseed {seed}; {}", trial.instance.whereabouts());
            }
        }
    }
    if let Some(mut server) = server {
        if let Some(rotation) = &trial.rotation {
            rotation.settle(&trial.instance, true)?;
            println!(
                "the key has version {}; {} starts with other keys were refused",
                rotation.version(),
                rotation.refused
            );
        }
        leaks::check(&mut server, trial.args.trial.cache_mb)
            .with_context(|| format!("after the last round, seed {seed}"))?;
        server.stop()?;
    }
    println!(
        "{}: {} ends survived, {} times the server left a partitioned table in between; {} ledger transactions and {} \
         orders acknowledged, all of them there",
        trial.args.trial.engine.title(),
        trial.args.trial.rounds,
        trial.churn.gaps(),
        trial.writers.iter().map(|writer| writer.acknowledged).sum::<u64>(),
        trial.orders.len()
    );
    Ok(())
}

impl Trial {
    /// Those of the next server.
    fn conditions(&self) -> Conditions {
        self.rotation.as_ref().map_or_else(|| self.conditions.clone(), |rotation| rotation.conditions(&self.conditions))
    }

    fn prepare(&mut self) -> Result<Server> {
        self.instance.reset()?;
        let server = self.instance.start(&self.conditions())?;
        if self.args.workload.tpcc() {
            load_warehouses(&self.instance, self.scale, self.args.foreign_keys)?;
        }
        if self.args.workload.sysbench() {
            sbtest::fill(&self.instance, self.size)?;
        }
        ledger::create(&self.instance)?;
        Ok(server)
    }

    /// Load, kill, restart, verify. Returns the restarted server.
    fn round(&mut self, server: Server, round: u32) -> Result<Server> {
        let span = self.args.max_seconds - self.args.min_seconds;
        let load_for =
            Duration::from_secs_f64(self.args.min_seconds + span * f64::from(self.rng.random_range(0..=1000u32)) / 1e3);
        let clean = round % 3 == 0;
        let load = self.load_and_end(server, load_for, round, clean)?;
        let twice = self.rng.random_range(0..100) < self.args.again;
        if twice {
            let recovering = self.instance.launch(&self.conditions())?;
            std::thread::sleep(Duration::from_millis(self.rng.random_range(0..800)));
            recovering.kill()?;
        }
        if let Some(rotation) = &mut self.rotation {
            rotation.between(&self.instance, &self.conditions).context("between two servers")?;
        }
        let began = Instant::now();
        let mut server = self.instance.launch(&self.conditions())?;
        server.wait_ready(Duration::from_secs(self.args.restart_seconds)).context("the restart failed")?;
        let restart = began.elapsed();
        let began = Instant::now();
        let documents = self.verify().and_then(|documents| {
            server.ensure_alive()?;
            Ok(documents)
        })?;
        if let Some(rotation) = self.rotation.as_ref().filter(|_| round % 4 == 0) {
            rotation.settle(&self.instance, false)?;
        }
        if self.args.alters {
            leaks::at_rest(&mut server, self.args.trial.cache_mb)?;
        }
        println!(
            "round {round}: {} after {:.1} s{}, {} ledger and {} TPC-C transactions, {} operations of others \
             acknowledged{}; restart {:.1} s; {documents} documents, {} orders verified in {:.1} s: ok",
            if clean { "shut down" } else { "killed" },
            load_for.as_secs_f64(),
            if twice { " and again while recovering" } else { "" },
            load.ledger,
            load.tpcc,
            load.others,
            if self.args.workload.sysbench() { ", sysbench beside" } else { "" },
            restart.as_secs_f64(),
            self.orders.len(),
            began.elapsed().as_secs_f64()
        );
        Ok(server)
    }

    fn load_and_end(
        &mut self,
        mut server: Server,
        load_for: Duration,
        round: u32,
        clean: bool,
    ) -> Result<Acknowledged> {
        let control = Control::default();
        let stop = AtomicBool::new(false);
        let (done, others) = (AtomicU64::new(0), AtomicU64::new(0));
        let load = Load {
            scale: self.scale,
            threads: self.args.trial.threads,
            seconds: self.args.max_seconds.ceil() as u64 + 60,
            seed: u64::from(self.rng.random::<u32>()),
            rate: None,
        };
        let instance = &self.instance;
        let workload = self.args.workload;
        let mut background = None;
        if workload.sysbench() {
            let script = if round % 3 == 0 { "oltp_update_index" } else { "oltp_write_only" };
            let call = Call {
                script,
                threads: self.args.trial.threads,
                seconds: load.seconds,
                rand_type: "special",
                xa: false,
                rate: None,
            };
            background = Some(Background(sysbench::spawn(instance, self.size, &call)?));
        }
        let (writers, churn, rotation) = (&mut self.writers, &mut self.churn, &mut self.rotation);
        let (outcome, mut wrong) = std::thread::scope(|scope| {
            let driver = workload.tpcc().then(|| scope.spawn(|| drive(instance, load, &control)));
            let mut handles: Vec<_> =
                writers.iter_mut().map(|writer| scope.spawn(|| writer.write(instance, &stop, &done))).collect();
            handles.extend(churn.hands().map(|hand| scope.spawn(|| hand.work(instance, false, &stop, &others))));
            if let Some(rotation) = rotation {
                handles.push(scope.spawn(|| rotation.rotate(instance, &stop)));
            }
            std::thread::sleep(load_for);
            let mut wrong = Vec::new();
            // What goes wrong before the end is a failure of its own.
            if let Err(error) = server.ensure_alive() {
                wrong.push(format!("{error:#}"));
            }
            if let Some(background) = &mut background
                && let Some(said) = background.ended()
            {
                wrong.push(format!("sysbench ended before the server: {said}"));
            }
            if let Err(error) = if clean { server.stop() } else { server.kill() } {
                wrong.push(format!("{error:#}"));
            }
            stop.store(true, Ordering::Relaxed);
            control.stop.store(true, Ordering::Relaxed);
            join_all(handles, &mut wrong);
            let outcome = driver.map(|driver| driver.join().expect("the driver does not panic"));
            (outcome, wrong)
        });
        drop(background);
        let outcome = match outcome {
            Some(Ok(outcome)) => outcome,
            // Killed before all sessions were there.
            Some(Err(_)) | None => Outcome::default(),
        };
        wrong.extend(outcome.seen.errors.iter().cloned());
        fail_if("before the end", &wrong)?;
        let acknowledged = Acknowledged {
            ledger: done.load(Ordering::Relaxed),
            tpcc: outcome.seen.transactions,
            others: others.load(Ordering::Relaxed),
        };
        self.orders.extend(outcome.orders);
        Ok(acknowledged)
    }

    /// Returns how many documents the ledger has.
    fn verify(&mut self) -> Result<usize> {
        let mut wrong = Vec::new();
        let documents = ledger::verify(&self.instance, &mut self.writers, &mut wrong)?;
        if !self.args.no_binlog {
            self.replay.advance(&self.instance.binlogs())?;
            self.replay.compare(&documents, &mut wrong);
        }
        self.churn.verify(&self.instance, &mut wrong)?;
        if self.args.workload.tpcc() {
            let findings = check::check(&self.instance, self.scale, self.args.foreign_keys, &self.orders, 2)?;
            wrong.extend(findings.told);
        }
        if self.args.workload.sysbench() {
            self.check_sysbench(&mut wrong)?;
        }
        check_tables(&self.instance, &mut wrong)?;
        fail_if("after the restart", &wrong)?;
        Ok(documents.len())
    }

    /// The scripts used keep the number of rows.
    fn check_sysbench(&self, wrong: &mut Vec<String>) -> Result<()> {
        let mut conn = self.instance.connect(Some(sysbench::DATABASE))?;
        for table in 1..=self.size.tables {
            for index in ["PRIMARY".to_string(), format!("k_{table}")] {
                let query = format!("SELECT COUNT(*) FROM sbtest{table} FORCE INDEX ({index}) WHERE k > -1 AND id > 0");
                let rows: u64 = conn.query_first(&query)?.unwrap_or(0);
                if rows != self.size.rows {
                    wrong.push(format!("sbtest{table} has {rows} rows by {index}, not {}", self.size.rows));
                }
            }
        }
        Ok(())
    }
}

/// CHECK TABLE of all tables of the loads.
pub fn check_tables(instance: &Instance, wrong: &mut Vec<String>) -> Result<()> {
    let databases = [ledger::DATABASE, tpcc::DATABASE, sysbench::DATABASE, definer::DATABASE, held::DATABASE];
    check_tables_of(instance, &databases, wrong)
}

/// CHECK TABLE of the tables in these databases, and in those of sessions that change definitions.
pub fn check_tables_of(instance: &Instance, databases: &[&str], wrong: &mut Vec<String>) -> Result<()> {
    let mut conn = instance.connect(None)?;
    let tables: Vec<String> = conn.query(format!(
        "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables
         WHERE table_schema IN ('{}') OR table_schema LIKE '{}%' AND table_type <> 'SEQUENCE'",
        databases.join("', '"),
        churn::PREFIX
    ))?;
    if tables.len() < 3 {
        wrong.push(format!("there are only {} tables", tables.len()));
    }
    for table in tables {
        let rows: Vec<(String, String, String, String)> = conn.query(format!("CHECK TABLE {table} EXTENDED"))?;
        if !rows.iter().all(|row| row.2 == "status" && row.3 == "OK") || rows.is_empty() {
            wrong.push(format!("CHECK TABLE {table}: {rows:?}"));
        }
    }
    Ok(())
}

/// How many transactions of a round were acknowledged.
struct Acknowledged {
    ledger: u64,
    tpcc: u64,
    others: u64,
}

/// sysbench in the background; ended with the round.
struct Background(Child);

impl Background {
    /// What it said, when it has ended.
    fn ended(&mut self) -> Option<String> {
        self.0.try_wait().ok().flatten()?;
        let mut text = String::new();
        if let Some(mut stdout) = self.0.stdout.take() {
            let _ = stdout.read_to_string(&mut text);
        }
        if let Some(mut stderr) = self.0.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        Some(sysbench::parse(&text).errors.join("; "))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the sessions of a load, and notes what went wrong in them.
pub fn join_all(sessions: Vec<ScopedJoinHandle<'_, Result<()>>>, wrong: &mut Vec<String>) {
    for session in sessions {
        if let Err(error) = session.join().expect("a session does not panic") {
            wrong.push(format!("{error:#}"));
        }
    }
}

/// An error that tells the first violations, if there are any.
pub fn fail_if(when: &str, wrong: &[String]) -> Result<()> {
    if wrong.is_empty() {
        return Ok(());
    }
    let told: Vec<&str> = wrong.iter().take(TOLD).map(String::as_str).collect();
    bail!("{} violations {when}:\n  {}", wrong.len(), told.join("\n  "))
}
