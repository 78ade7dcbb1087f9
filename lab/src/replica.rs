//! The command `replica`: a source and a replica, SIGKILL of either one under load, and the comparison afterwards.
//!
//! A round loads the source (the [`ledger`], TPC-C, and sessions that change definitions, [`definer`]), ends the replica in
//! the middle and starts it again while the load goes on; in every second round the source is ended, too. Then the replica
//! catches up by itself. Sequences, auto-increment and temporary tables ([`crate::churn`]) are part of the load.
//!
//! In every fourth round both are ended by SHUTDOWN, and tables change by DDL of every kind then, also by statements that
//! cannot be repeated. In the others the replica is killed, and the source with it.
//!  It must have the tables and the rows of the source; the GTID that it says it is at must be the
//! source's last one, in its memory and in `mysql.gtid_slave_pos`, a table of the same engine; indexes agree; what the
//! source has acknowledged is there. XA transactions that were prepared before are prepared on both sides, and ended then
//! ([`held`]).
//!
//! Rounds go through the formats of the binary log, the modes of the parallel replica, and a replica with and without a
//! log of its own (with it commits have two phases there). Every third replica does not end at a random moment: it ends
//! itself at a random step of a commit (`STRATA_CRASH_AT`).
//!
//! The comparison itself is tried at the end: a row changed on the replica, an index and a table that are missing there
//! must each be found.

use crate::churn::{Cast, Churn, Hand};
use crate::copies::differences;
use crate::crash::{check_tables, fail_if, join_all};
use crate::definer::{self, Definer};
use crate::drive::Control;
use crate::engine::Conditions;
use crate::held::{self, Held};
use crate::leaks;
use crate::ledger::{self, Writer};
use crate::options::Trial;
use crate::server::{Instance, Server};
use crate::side::{PATIENCE, Side, catch_up};
use crate::tpcc::bench::load_warehouses;
use crate::tpcc::drive::{Load, Outcome, drive};
use crate::tpcc::txn::Order;
use crate::tpcc::{Scale, check};
use anyhow::{Context, Result, ensure};
use mysql::prelude::Queryable;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sessions that change definitions.
const DEFINERS: u32 = 2;
/// XA transactions that stay prepared over the kills of a round.
const HELD: u64 = 4;
const FORMATS: [&str; 3] = ["ROW", "MIXED", "STATEMENT"];
const MODES: [&str; 4] = ["optimistic", "aggressive", "optimistic", "conservative"];
/// Where a replica's commit may end; without a log of its own some are not passed.
const STEPS: [&str; 6] =
    ["prepare-begins", "prepare-logged", "prepare-durable", "order-begins", "ordered", "commit-visible"];

/// Options of `replica`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    trial: Trial,
    /// Workers of the replica
    #[arg(long, default_value_t = 6)]
    workers: u32,
    /// Each kill comes so many seconds after a start at the latest
    #[arg(long, default_value_t = 3.0)]
    max_seconds: f64,
    /// Every round is as this one: its format, mode, log, and who is ended how
    #[arg(long)]
    like: Option<u32>,
}

struct Pair {
    args: Args,
    source: Side,
    replica: Side,
    scale: Scale,
    rng: SmallRng,
    writers: Vec<Writer>,
    definers: Vec<Definer>,
    held: Held,
    orders: Vec<Order>,
    /// Takes part in every round.
    churn: Churn,
    /// Changes tables in every way, where nobody is killed.
    tables: Churn,
}

/// The command `replica`.
pub fn run(args: Args) -> Result<()> {
    let (seed, mut rng, folder) = args.trial.begin("replica", "a replica that is killed")?;
    let mut side = |number: u32, name: &str| Side::new(&folder.join(name), args.trial.engine, number, &mut rng);
    let (source, replica) = (side(1, "source")?, side(2, "replica")?);
    let mut pair = Pair {
        source,
        replica,
        scale: Scale::small(1),
        writers: (1..=args.trial.threads).map(|number| Writer::new(number, seed)).collect(),
        definers: (1..=DEFINERS).map(|number| Definer::new(number, seed)).collect(),
        held: Held::default(),
        orders: Vec::new(),
        churn: Churn::new(args.trial.engine.sql(), Cast { tables: 0, alters: false, others: true, xa: false }, seed),
        tables: Churn::new(args.trial.engine.sql(), Cast { tables: 2, alters: false, others: false, xa: false }, seed),
        rng,
        args,
    };
    let mut servers = pair.prepare()?;
    for round in 1..=pair.args.trial.rounds {
        servers = pair.round(servers, round, pair.args.like.unwrap_or(round)).with_context(|| {
            format!(
                "round {round}, seed {seed}; logs of the servers are {} and {}",
                pair.source.instance.log().display(),
                pair.replica.instance.log().display()
            )
        })?;
    }
    pair.try_comparison()?;
    let (mut source, mut replica) = servers;
    for (server, what) in [(&mut source, "source"), (&mut replica, "replica")] {
        leaks::check(server, pair.args.trial.cache_mb)
            .with_context(|| format!("the {what} after the last round, seed {seed}"))?;
    }
    replica.stop()?;
    source.stop()?;
    println!(
        "{}: {} rounds, the replica equals its source; {} ledger transactions, {} orders and {} XA transactions \
         acknowledged",
        pair.args.trial.engine.title(),
        pair.args.trial.rounds,
        pair.writers.iter().map(|writer| writer.acknowledged).sum::<u64>(),
        pair.orders.len(),
        pair.held.ended
    );
    Ok(())
}

impl Pair {
    fn source_conditions(&self, round: u32) -> Conditions {
        let format = FORMATS[round as usize % FORMATS.len()];
        self.source.conditions(self.args.trial.cache_mb, vec![format!("binlog-format={format}")])
    }

    fn replica_conditions(&self, round: u32) -> Conditions {
        let further = vec![
            "relay-log=relay".to_string(),
            // Kept as evidence; each start of the replica begins anew.
            "relay-log-purge=0".into(),
            "slave-net-timeout=10".into(),
            format!("log-slave-updates={}", u32::from(own_log(round))),
            format!("slave-parallel-threads={}", self.args.workers),
            format!("slave-parallel-mode={}", MODES[round as usize % MODES.len()]),
        ];
        self.replica.conditions(self.args.trial.cache_mb, further)
    }

    /// Both servers, the tables, and a replica that follows.
    fn prepare(&mut self) -> Result<(Server, Server)> {
        self.source.instance.reset()?;
        self.replica.instance.reset()?;
        let mut source = self.source.instance.launch(&self.source_conditions(0))?;
        let mut replica = self.replica.instance.launch(&self.replica_conditions(0))?;
        source.wait_ready(PATIENCE)?;
        replica.wait_ready(PATIENCE)?;
        self.source.lead()?;
        let mut conn = self.replica.connect()?;
        conn.query_drop("SET SESSION sql_log_bin = 0")?;
        conn.query_drop(format!("ALTER TABLE mysql.gtid_slave_pos ENGINE = {}", self.args.trial.engine.sql()))?;
        self.source.follow(&mut conn)?;
        // Loading is not logged; the same seeds give the same rows.
        load_warehouses(&self.source.instance, self.scale, false)?;
        load_warehouses(&self.replica.instance, self.scale, false)?;
        ledger::create(&self.source.instance)?;
        definer::create(&self.source.instance)?;
        held::create(&self.source.instance)?;
        Ok((source, replica))
    }

    fn moment(&mut self) -> Duration {
        Duration::from_secs_f64(self.args.max_seconds * f64::from(self.rng.random_range(50..=1000u32)) / 1e3)
    }

    /// `number` is told; `round` says what is done.
    fn round(&mut self, servers: (Server, Server), number: u32, round: u32) -> Result<(Server, Server)> {
        let (mut source, replica) = servers;
        // For new sessions, where the source has not been started again.
        self.source.connect()?.query_drop(format!("SET GLOBAL binlog_format = {}", FORMATS[round as usize % 3]))?;
        let (first, second) = (self.moment(), self.moment());
        let again = self.rng.random_range(0..4) == 0;
        let again = again.then(|| Duration::from_millis(self.rng.random_range(0..800)));
        let step = (round % 3 == 0).then(|| {
            let step = STEPS[self.rng.random_range(0..STEPS.len())];
            format!("{step}:{}", self.rng.random_range(1..400))
        });
        let load = Load::until_stopped(self.scale, self.args.trial.threads, self.rng.random::<u32>().into());
        self.held.prepare(&self.source.instance, HELD)?;
        self.catch_up()?;
        let (control, stop, done) = (Control::default(), AtomicBool::new(false), AtomicU64::new(0));
        let defined = AtomicU64::new(0);
        let conditions = self.replica_conditions(round);
        let (copy, origin) = (&self.replica.instance, &self.source.instance);
        let clean = round % 4 == 0;
        // One of both ways is in every second round.
        let end_source = round % 2 == 1 || clean;
        let kill_source = end_source && !clean;
        let (writers, held) = (&mut self.writers, &mut self.held);
        let (churn, tables) = (&mut self.churn, &mut self.tables);
        let others = AtomicU64::new(0);
        let mut definers: Vec<&mut Definer> = self.definers.iter_mut().collect();
        let (outcome, replica, mut wrong) = std::thread::scope(|scope| {
            let driver = scope.spawn(|| drive(origin, load, &control));
            let mut handles: Vec<_> =
                writers.iter_mut().map(|writer| scope.spawn(|| writer.write(origin, &stop, &done))).collect();
            let mut define = |handles: &mut Vec<_>| {
                for definer in definers.drain(..) {
                    handles.push(scope.spawn(|| definer.work(origin, !kill_source, &stop, &defined)));
                }
            };
            let mut acting: Vec<&mut Hand> = tables.hands().filter(|_| clean).chain(churn.hands()).collect();
            let mut act = |handles: &mut Vec<_>| {
                handles.extend(
                    acting.drain(..).map(|hand| scope.spawn(|| hand.work(origin, kill_source, &stop, &others))),
                );
            };
            // The server logs DDL, and writes the replica's position, apart from the change itself. A replica that logs for
            // itself and is killed in between executes it once more and refuses to log it again, with any engine.
            let may_define = clean || !own_log(round);
            if may_define {
                act(&mut handles);
            }
            if !own_log(round) {
                define(&mut handles);
            }
            let ending = if clean { Ending::Shutdown } else { Ending::Kill { step: step.as_deref(), again } };
            let replica = restart_under_load(copy, replica, &conditions, first, ending);
            define(&mut handles);
            act(&mut handles);
            if !end_source {
                handles.push(scope.spawn(|| held.stream(origin, &stop)));
            }
            std::thread::sleep(second);
            let mut wrong = Vec::new();
            let ended = match (kill_source, end_source) {
                (true, _) => source.end(),
                (false, true) => source.shut_down(),
                _ => source.ensure_alive(),
            };
            if let Err(error) = ended {
                wrong.push(format!("{error:#}"));
            }
            stop.store(true, Ordering::Relaxed);
            control.stop.store(true, Ordering::Relaxed);
            join_all(handles, &mut wrong);
            (driver.join().expect("the driver does not panic"), replica, wrong)
        });
        let outcome = match outcome {
            Ok(outcome) => outcome,
            // Ended before all sessions were there.
            Err(_) if end_source => Outcome::default(),
            Err(error) => return Err(error),
        };
        wrong.extend(outcome.seen.errors.iter().cloned());
        fail_if("under load", &wrong)?;
        self.orders.extend(outcome.orders);
        let mut replica = replica.context("the replica's restart under load")?;
        if end_source {
            source = self.source.instance.launch(&self.source_conditions(round))?;
            source.wait_ready(PATIENCE).context("the source's restart")?;
        }
        let began = Instant::now();
        let retried = self.catch_up()?;
        let caught_up = began.elapsed().as_secs_f64();
        self.end_held()?;
        self.verify(round, kill_source)?;
        replica.ensure_alive()?;
        source.ensure_alive()?;
        println!(
            "round {number}: {}, {}{}; replica ended {}{}{}; {} ledger and {} TPC-C transactions, {} statements \
             on side tables, {} operations of others, {retried} tried again, caught up in {caught_up:.1} s: equal",
            FORMATS[round as usize % FORMATS.len()],
            MODES[round as usize % MODES.len()],
            if own_log(round) { ", own log" } else { "" },
            match &step {
                Some(step) if !clean => format!("at {step}"),
                _ => format!("after {:.1} s{}", first.as_secs_f64(), if clean { " by SHUTDOWN" } else { "" }),
            },
            again.filter(|_| !clean).map_or("", |_| " and while recovering"),
            if end_source { format!(", source {:.1} s later", second.as_secs_f64()) } else { String::new() },
            done.load(Ordering::Relaxed),
            outcome.seen.transactions,
            defined.load(Ordering::Relaxed),
            others.load(Ordering::Relaxed),
        );
        Ok((source, replica))
    }

    /// Waits until the replica has everything of the source. Returns how many transactions it has tried again.
    fn catch_up(&self) -> Result<u64> {
        let mut source = self.source.connect()?;
        let mut replica = self.replica.connect()?;
        catch_up(&mut source, &mut replica, |replica, text| {
            ensure!(text("Slave_SQL_Running") != "No", "the replica has stopped: {}", text("Last_SQL_Error"));
            if text("Slave_IO_Running") == "No" {
                // Connected while the source was repairing the end of its log, which it then reported as broken.
                replica.query_drop("START SLAVE IO_THREAD")?;
            }
            Ok(())
        })?;
        let retried: Option<(String, u64)> =
            replica.query_first("SHOW GLOBAL STATUS LIKE 'Slave_retried_transactions'")?;
        Ok(retried.map_or(0, |row| row.1))
    }

    /// What was prepared before the kills is prepared on both sides; it is ended on the source, and then on both.
    fn end_held(&mut self) -> Result<()> {
        let mut wrong = Vec::new();
        self.compare_prepared(&mut wrong)?;
        self.held.end(&self.source.instance)?;
        self.catch_up()?;
        self.compare_prepared(&mut wrong)?;
        fail_if("among prepared transactions", &wrong)
    }

    fn compare_prepared(&self, wrong: &mut Vec<String>) -> Result<()> {
        // A worker tells the position before it forgets an id. Stopping waits for it.
        let mut replica = self.replica.connect()?;
        replica.query_drop("STOP SLAVE SQL_THREAD")?;
        for (what, mut conn) in [("the source", self.source.connect()?), ("the replica", self.replica.connect()?)] {
            let found = held::recovered(&mut conn)?;
            if found != self.held.ids() {
                wrong.push(format!("{what} has prepared {found:?}, not {:?}", self.held.ids()));
            }
        }
        replica.query_drop("START SLAVE SQL_THREAD")?;
        Ok(())
    }

    /// Makes the replica differ, and looks whether the comparison tells.
    fn try_comparison(&self) -> Result<()> {
        let (mut source, mut replica) = (self.source.connect()?, self.replica.connect()?);
        let sabotage = [
            ("row", format!("UPDATE {}.account SET balance = balance + 1 WHERE id = 7", ledger::DATABASE)),
            ("index", format!("ALTER TABLE {}.line DROP INDEX by_writer", ledger::DATABASE)),
            ("table", format!("DROP TABLE {}.pot", held::DATABASE)),
        ];
        replica.query_drop("STOP SLAVE")?;
        replica.query_drop("SET SESSION sql_log_bin = 0")?;
        for (told, (what, statement)) in sabotage.iter().enumerate() {
            let before = differences(&mut source, &mut replica)?;
            ensure!(before.len() == told, "{what}: {told} differences were made, these are told: {before:?}");
            replica.query_drop(statement)?;
        }
        let all = differences(&mut source, &mut replica)?;
        ensure!(all.len() == sabotage.len(), "the comparison does not see what was changed, only: {all:?}");
        Ok(())
    }

    /// `killed`: the source was.
    fn verify(&mut self, round: u32, killed: bool) -> Result<()> {
        let mut wrong = Vec::new();
        let mut source = self.source.connect()?;
        let mut replica = self.replica.connect()?;
        let last: Option<String> = source.query_first("SELECT @@GLOBAL.gtid_binlog_pos")?;
        let mut position = |what: &str, query: &str| -> Result<()> {
            let at: Option<String> = replica.query_first(query)?;
            if at != last {
                wrong.push(format!("{what} says {at:?}, the source {last:?}"));
            }
            Ok(())
        };
        position("gtid_slave_pos", "SELECT @@GLOBAL.gtid_slave_pos")?;
        position(
            "the table gtid_slave_pos",
            "SELECT CONCAT_WS('-', domain_id, server_id, seq_no) FROM mysql.gtid_slave_pos ORDER BY sub_id DESC LIMIT 1",
        )?;
        if own_log(round) {
            position("the replica's log", "SELECT @@GLOBAL.gtid_binlog_pos")?;
        }
        wrong.extend(differences(&mut source, &mut replica)?);
        self.churn.verify(&self.source.instance, &mut wrong)?;
        self.tables.verify(&self.source.instance, &mut wrong)?;
        self.churn.verify_copy(&self.replica.instance, killed, &mut wrong)?;
        self.tables.verify_copy(&self.replica.instance, killed, &mut wrong)?;
        self.held.verify(&mut source, &mut wrong)?;
        self.held.verify(&mut replica, &mut wrong)?;
        ledger::verify(&self.source.instance, &mut self.writers, &mut wrong)?;
        ledger::verify(&self.replica.instance, &mut [], &mut wrong)?;
        wrong.extend(check::check(&self.replica.instance, self.scale, false, &self.orders, 2)?.told);
        check_tables(&self.replica.instance, &mut wrong)?;
        fail_if("on the replica", &wrong)
    }
}

/// Whether the replica logs what it applies.
fn own_log(round: u32) -> bool {
    round % 4 < 2
}

/// How a replica ends.
enum Ending<'a> {
    Shutdown,
    /// At a step of a commit or at any moment, and perhaps once more while it recovers.
    Kill {
        step: Option<&'a str>,
        again: Option<Duration>,
    },
}

/// Ends the replica after a while, or lets it end itself at a step, and starts it again; it goes on by itself.
fn restart_under_load(
    instance: &Instance,
    replica: Server,
    conditions: &Conditions,
    after: Duration,
    ending: Ending<'_>,
) -> Result<Server> {
    let mut replica = replica;
    let Ending::Kill { step, again } = ending else {
        std::thread::sleep(after);
        replica.stop()?;
        return instance.start(conditions);
    };
    if step.is_some() {
        replica.end()?;
        replica = instance.launch_to_crash(conditions, step)?;
        // It may have ended itself before it answers; a step that never comes is a kill at a random moment.
        let _ = replica.wait_ready(PATIENCE);
    } else {
        replica.ensure_alive()?;
    }
    std::thread::sleep(after);
    replica.kill()?;
    if let Some(moment) = again {
        let recovering = instance.launch(conditions)?;
        std::thread::sleep(moment);
        recovering.kill()?;
    }
    let mut replica = instance.launch(conditions)?;
    replica.wait_ready(PATIENCE)?;
    Ok(replica)
}
