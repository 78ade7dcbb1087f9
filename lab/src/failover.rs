//! The command `failover`: a source with two replicas, the end of the source under load, and what the promoted replica has.
//!
//! Replication is semisynchronous, after the sync of the binary log (AFTER_SYNC), and a commit waits for one replica for as long as it
//! takes. A round loads the source (the [`ledger`] and TPC-C) and ends it by SIGKILL. Then the replica that has received more applies
//! what it has and is promoted, the other one follows it, the load goes on, and the old source comes back as a replica under that
//! load. What the source had in its binary log and nobody had received is not acknowledged, and no other server has it: the old source
//! must take it back, from its log and from the engine, which it does where it starts as a replica (`init-rpl-role=SLAVE`).
//!
//! What must hold: the promoted server has everything that was acknowledged, at once; in the end all three have the same rows, and say
//! the same about the last GTID; nothing is left prepared; indexes agree.
//!
//! Rounds take turns: the source ends at any moment; or when it waits for replicas that no longer receive, so that there certainly is
//! something to take back; or while one replica has stopped to receive, so that the other one must be promoted; or at any moment, and
//! once more while it recovers; or when it waits, and once more while it takes back what waited (Strata ends itself at a step of that;
//! the server rolls back first and cuts its log afterwards). At the end the comparison itself is tried.

use crate::copies::differences;
use crate::crash::{check_tables_of, fail_if, join_all};
use crate::drive::Control;
use crate::engine::{Conditions, Kind};
use crate::held;
use crate::leaks;
use crate::ledger::{self, Writer};
use crate::options::Trial;
use crate::server::Server;
use crate::side::{PATIENCE, Side, catch_up, wait_until};
use crate::tpcc::bench::load_warehouses;
use crate::tpcc::drive::{Load, Outcome, drive};
use crate::tpcc::txn::Order;
use crate::tpcc::{self, Scale, check};
use anyhow::{Context, Result, ensure};
use mysql::prelude::Queryable;
use mysql::{Conn, Row};
use rand::RngExt;
use rand::rngs::SmallRng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Servers: one leads, the others follow.
const SERVERS: usize = 3;
/// How long a commit waits for a replica, in milliseconds: longer than any trial, so that it never goes on without.
const NEVER_MS: u64 = 30 * 24 * 3_600_000;
/// What the server says when it has taken back the end of its binary log.
const TAKEN_BACK: &str = "Successfully truncated binlog file";
const MODES: [&str; 3] = ["optimistic", "conservative", "aggressive"];

/// Options of `failover`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    trial: Trial,
    /// Each source ends so many seconds after it began to lead at the latest, and the load goes on so long afterwards
    #[arg(long, default_value_t = 3.0)]
    max_seconds: f64,
    /// Workers of each replica
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// Every round is as this one
    #[arg(long)]
    like: Option<u32>,
}

/// How the source ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    AnyMoment,
    /// Commits wait for replicas that receive nothing more.
    Waiting,
    /// One replica has stopped to receive before.
    Behind,
    /// At any moment, and again while it recovers.
    Twice,
    /// As `Waiting`, and again while it takes back what waited.
    TakingBack,
}

/// How a server ends that recovers.
enum Again {
    After(Duration),
    /// By itself, at a step of the engine.
    At(String),
}

impl Way {
    fn of(round: u32) -> Way {
        let ways = [Way::Waiting, Way::Behind, Way::Twice, Way::TakingBack, Way::AnyMoment];
        ways[(round as usize + ways.len() - 1) % ways.len()]
    }

    fn words(self) -> &'static str {
        match self {
            Way::AnyMoment => "at any moment",
            Way::Waiting => "while commits waited for replicas",
            Way::Behind => "while one replica was behind",
            Way::Twice => "at any moment and while recovering",
            Way::TakingBack => "while commits waited for replicas and while taking them back",
        }
    }

    /// Whether no replica receives what the source commits at its end.
    fn waits(self) -> bool {
        matches!(self, Way::Waiting | Way::TakingBack)
    }
}

struct Trio {
    args: Args,
    sides: Vec<Side>,
    servers: Vec<Server>,
    /// Which of them leads.
    source: usize,
    scale: Scale,
    rng: SmallRng,
    writers: Vec<Writer>,
    orders: Vec<Order>,
    /// How often an old source took something back.
    taken_back: u32,
}

/// The command `failover`.
pub fn run(args: Args) -> Result<()> {
    let (seed, mut rng, folder) = args.trial.begin("failover", "a source that fails over to a replica")?;
    let sides = (1..=SERVERS as u32)
        .map(|number| Side::new(&folder.join(format!("server{number}")), args.trial.engine, number, &mut rng))
        .collect::<Result<Vec<_>>>()?;
    let mut trio = Trio {
        servers: Vec::new(),
        source: 0,
        scale: Scale::small(1),
        writers: (1..=args.trial.threads).map(|number| Writer::new(number, seed)).collect(),
        orders: Vec::new(),
        taken_back: 0,
        rng,
        sides,
        args,
    };
    trio.prepare()?;
    for round in 1..=trio.args.trial.rounds {
        trio.round(round, trio.args.like.unwrap_or(round)).with_context(|| {
            let logs: Vec<String> = trio.sides.iter().map(|side| side.instance.log().display().to_string()).collect();
            format!("round {round}, seed {seed}; logs of the servers are {}", logs.join(", "))
        })?;
    }
    trio.try_comparison()?;
    // The others first: they would follow what is dropped here.
    let source = trio.source;
    let order = (0..SERVERS).filter(|&n| n != source).chain([source]);
    for n in order {
        let cache_mb = trio.args.trial.cache_mb;
        trio.sides[n].connect()?.query_drop("SET GLOBAL rpl_semi_sync_master_enabled = 0")?;
        leaks::check(&mut trio.servers[n], cache_mb).with_context(|| format!("server {} at the end", n + 1))?;
        trio.servers[n].shut_down()?;
    }
    println!(
        "{}: {} fail-overs, the three servers are equal after each; {} ledger transactions and {} orders acknowledged, all of them \
         there; {} times the old source took back what nobody had received",
        trio.args.trial.engine.title(),
        trio.args.trial.rounds,
        trio.writers.iter().map(|writer| writer.acknowledged).sum::<u64>(),
        trio.orders.len(),
        trio.taken_back
    );
    Ok(())
}

impl Trio {
    fn conditions(&self, number: usize, round: u32) -> Conditions {
        let further = vec![
            "log-slave-updates=1".to_string(),
            "relay-log=relay".into(),
            "slave-net-timeout=10".into(),
            format!("slave-parallel-threads={}", self.args.workers),
            format!("slave-parallel-mode={}", MODES[round as usize % MODES.len()]),
            "rpl-semi-sync-slave-enabled=1".into(),
            "rpl-semi-sync-master-wait-point=AFTER_SYNC".into(),
            format!("rpl-semi-sync-master-timeout={NEVER_MS}"),
            "rpl-semi-sync-master-wait-no-slave=1".into(),
            // Whoever starts is nobody's source: what it had logged and nobody received is taken back.
            "init-rpl-role=SLAVE".into(),
            "read-only=1".into(),
        ];
        self.sides[number].conditions(self.args.trial.cache_mb, further)
    }

    fn others(&self) -> [usize; SERVERS - 1] {
        [(self.source + 1) % SERVERS, (self.source + 2) % SERVERS]
    }

    /// Three servers, the tables, and two replicas that follow.
    fn prepare(&mut self) -> Result<()> {
        for number in 0..SERVERS {
            self.sides[number].instance.reset()?;
            self.servers.push(self.sides[number].instance.launch(&self.conditions(number, 0))?);
        }
        for server in &mut self.servers {
            server.wait_ready(PATIENCE)?;
        }
        for side in &self.sides {
            let mut conn = side.connect()?;
            conn.query_drop("SET SESSION sql_log_bin = 0")?;
            conn.query_drop(format!("ALTER TABLE mysql.gtid_slave_pos ENGINE = {}", self.args.trial.engine.sql()))?;
            // Loading is not logged; the same seeds give the same rows.
            load_warehouses(&side.instance, self.scale, false)?;
        }
        self.sides[self.source].lead()?;
        for number in self.others() {
            self.sides[self.source].follow(&mut self.sides[number].connect()?)?;
        }
        ledger::create(&self.sides[self.source].instance)?;
        held::create(&self.sides[self.source].instance)?;
        self.lead(self.source)?;
        self.wait_for_replicas(SERVERS as u32 - 1)
    }

    /// From now on commits of this server wait for a replica.
    fn lead(&self, number: usize) -> Result<()> {
        Ok(self.sides[number]
            .connect()?
            .query_drop("SET GLOBAL rpl_semi_sync_master_enabled = 1, GLOBAL read_only = 0")?)
    }

    fn wait_for_replicas(&self, count: u32) -> Result<()> {
        let mut conn = self.sides[self.source].connect()?;
        wait_until(&format!("{count} replicas follow"), || {
            Ok(status(&mut conn, "Rpl_semi_sync_master_clients")? >= u64::from(count))
        })
    }

    fn moment(&mut self) -> Duration {
        Duration::from_secs_f64(self.args.max_seconds * f64::from(self.rng.random_range(100..=1000u32)) / 1e3)
    }

    /// `number` is told; `round` says what is done.
    fn round(&mut self, number: u32, round: u32) -> Result<()> {
        let way = Way::of(round);
        let old = self.source;
        let after = self.moment();
        let (before, _) = self.loaded(|trio| trio.end_source(way, after))?;
        let received = self.fail_over(way)?;
        // What was acknowledged is there before anybody writes again.
        let mut wrong = Vec::new();
        ledger::verify(&self.sides[self.source].instance, &mut self.writers, &mut wrong)?;
        fail_if("on the promoted replica", &wrong)?;
        let again = self.again(way);
        let second = self.moment();
        let (afterwards, taken_back) = self.loaded(|trio| {
            let taken_back = trio.come_back(old, round, again)?;
            std::thread::sleep(second);
            Ok(taken_back)
        })?;
        self.taken_back += u32::from(taken_back);
        ensure!(
            taken_back || !way.waits(),
            "the old source took nothing back, though commits waited for replicas that received nothing"
        );
        self.verify()?;
        println!(
            "round {number}: server {} ended {} after {:.1} s; server {} promoted ({}); {} and then {} ledger transactions, {} and {} of \
             TPC-C{}: equal",
            old + 1,
            way.words(),
            after.as_secs_f64(),
            self.source + 1,
            received,
            before.0,
            afterwards.0,
            before.1,
            afterwards.1,
            if taken_back { "; the old source took the end of its log back" } else { "" }
        );
        Ok(())
    }

    fn again(&mut self, way: Way) -> Option<Again> {
        match way {
            Way::AnyMoment | Way::Waiting | Way::Behind => None,
            Way::TakingBack if self.args.trial.engine == Kind::Strata => {
                Some(Again::At(format!("rolled-back:{}", self.rng.random_range(1..=3))))
            }
            Way::TakingBack | Way::Twice => Some(Again::After(Duration::from_millis(self.rng.random_range(0..800)))),
        }
    }

    /// Does something while the source is loaded; how many transactions of ledger and TPC-C were acknowledged meanwhile. Sessions that
    /// lose their server end.
    fn loaded<T>(&mut self, work: impl FnOnce(&mut Trio) -> Result<T>) -> Result<((u64, u64), T)> {
        let instance = self.sides[self.source].instance.clone();
        let load = Load::until_stopped(self.scale, self.args.trial.threads, self.rng.random::<u32>().into());
        let (control, stop, done) = (Control::default(), AtomicBool::new(false), AtomicU64::new(0));
        let mut writers = std::mem::take(&mut self.writers);
        let (outcome, worked, mut wrong) = std::thread::scope(|scope| {
            let driver = scope.spawn(|| drive(&instance, load, &control));
            let handles: Vec<_> =
                writers.iter_mut().map(|writer| scope.spawn(|| writer.write(&instance, &stop, &done))).collect();
            let worked = work(self);
            stop.store(true, Ordering::Relaxed);
            control.stop.store(true, Ordering::Relaxed);
            if worked.is_err() {
                // A commit that waits for a replica would wait for ever.
                let _ = self.servers[self.source].end();
            }
            let mut wrong = Vec::new();
            join_all(handles, &mut wrong);
            (driver.join().expect("the driver does not panic"), worked, wrong)
        });
        self.writers = writers;
        let worked = worked?;
        // An error of the driver: the source ended before all of its sessions were there.
        let outcome = outcome.unwrap_or_else(|_| Outcome::default());
        wrong.extend(outcome.seen.errors.iter().cloned());
        fail_if("under load", &wrong)?;
        self.orders.extend(outcome.orders);
        Ok(((done.load(Ordering::Relaxed), outcome.seen.transactions), worked))
    }

    /// Ends the source as this round does it.
    fn end_source(&mut self, way: Way, after: Duration) -> Result<()> {
        let mut conn = self.sides[self.source].connect()?;
        std::thread::sleep(after);
        let stopped = match way {
            Way::AnyMoment | Way::Twice => 0,
            Way::Behind => 1,
            Way::Waiting | Way::TakingBack => 2,
        };
        for number in self.others().into_iter().take(stopped) {
            self.sides[number].connect()?.query_drop("STOP SLAVE IO_THREAD")?;
        }
        match way {
            Way::Waiting | Way::TakingBack => wait_until("a commit waits for a replica", || {
                Ok(status(&mut conn, "Rpl_semi_sync_master_wait_sessions")? > 0)
            })?,
            // The other one goes ahead.
            Way::Behind => {
                let began = status(&mut conn, "Rpl_semi_sync_master_yes_tx")?;
                wait_until("commits go on with the other replica", || {
                    Ok(status(&mut conn, "Rpl_semi_sync_master_yes_tx")? >= began + 20)
                })?;
            }
            _ => {}
        }
        // Whether it ever went on without a replica: then nothing would be proved.
        let alone = status(&mut conn, "Rpl_semi_sync_master_no_tx")?;
        ensure!(alone == 0, "{alone} commits did not wait for a replica");
        let server = &mut self.servers[self.source];
        server.ensure_alive()?;
        server.end()
    }

    /// Promotes the replica that has received more, and has the other one follow it. Tells what each had received.
    fn fail_over(&mut self, way: Way) -> Result<String> {
        let others = self.others();
        let mut received = Vec::new();
        for number in others {
            let mut conn = self.sides[number].connect()?;
            conn.query_drop("STOP SLAVE IO_THREAD")?;
            let row: Row = conn.query_first("SHOW SLAVE STATUS")?.context("it is no replica")?;
            let position: String = row.get("Gtid_IO_Pos").context("no position")?;
            let reached: Option<i64> =
                conn.exec_first("SELECT MASTER_GTID_WAIT(?, ?)", (&position, PATIENCE.as_secs()))?;
            ensure!(reached == Some(0), "server {} does not apply what it has received, {position}", number + 1);
            received.push((sequence(&position)?, number));
        }
        let promoted = received.iter().max().context("there are replicas")?.1;
        if way == Way::Behind {
            ensure!(promoted == others[1], "the replica that had stopped to receive is not behind: {received:?}");
        }
        for number in others {
            let mut conn = self.sides[number].connect()?;
            conn.query_drop("STOP SLAVE")?;
            if number == promoted {
                conn.query_drop("RESET SLAVE ALL")?;
            } else {
                self.sides[promoted].follow(&mut conn)?;
            }
        }
        self.source = promoted;
        self.lead(promoted)?;
        self.wait_for_replicas(1)?;
        let told: Vec<String> =
            received.iter().map(|(sequence, number)| format!("server {} had {sequence}", number + 1)).collect();
        Ok(told.join(", "))
    }

    /// Starts the old source as a replica; whether it took something back.
    fn come_back(&mut self, old: usize, round: u32, again: Option<Again>) -> Result<bool> {
        let instance = self.sides[old].instance.clone();
        let conditions = self.conditions(old, round);
        let told = said(&instance.log());
        match again {
            None => {}
            Some(Again::After(moment)) => {
                let recovering = instance.launch(&conditions)?;
                std::thread::sleep(moment);
                recovering.kill()?;
            }
            Some(Again::At(step)) => {
                let mut recovering = instance.launch_to_crash(&conditions, Some(&step))?;
                // It may not come to that step so often.
                if recovering.wait_ready(PATIENCE).is_ok() {
                    recovering.kill()?;
                }
            }
        }
        self.servers[old] = instance.launch(&conditions)?;
        self.servers[old].wait_ready(PATIENCE).context("the old source's restart")?;
        let mut conn = self.sides[old].connect()?;
        let prepared = held::recovered(&mut conn)?;
        ensure!(prepared.is_empty(), "the old source has prepared {prepared:?}");
        // It has followed nobody since, so its own log says where it is.
        conn.query_drop("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos")?;
        self.sides[self.source].follow(&mut conn)?;
        Ok(said(&instance.log()) > told)
    }

    /// All three have the same.
    fn verify(&mut self) -> Result<()> {
        let mut source = self.sides[self.source].connect()?;
        let mut wrong = Vec::new();
        let last: Option<String> = source.query_first("SELECT @@GLOBAL.gtid_binlog_pos")?;
        for number in self.others() {
            let side = &self.sides[number];
            let mut replica = side.connect()?;
            catch_up(&mut source, &mut replica, |replica, text| {
                ensure!(text("Slave_SQL_Running") != "No", "server {}: {}", number + 1, text("Last_SQL_Error"));
                ensure!(text("Last_IO_Errno") == "0", "server {}: {}", number + 1, text("Last_IO_Error"));
                if text("Slave_IO_Running") == "No" {
                    replica.query_drop("START SLAVE IO_THREAD")?;
                }
                Ok(())
            })?;
            for variable in ["gtid_slave_pos", "gtid_binlog_pos"] {
                let at: Option<String> = replica.query_first(format!("SELECT @@GLOBAL.{variable}"))?;
                if at != last {
                    wrong.push(format!("{variable} of server {} is {at:?}, the source is at {last:?}", number + 1));
                }
            }
            let told = differences(&mut source, &mut replica)?;
            wrong.extend(told.into_iter().map(|told| format!("server {}: {told}", number + 1)));
            ledger::verify(&side.instance, &mut [], &mut wrong)?;
        }
        ledger::verify(&self.sides[self.source].instance, &mut self.writers, &mut wrong)?;
        let findings = check::check(&self.sides[self.source].instance, self.scale, false, &self.orders, 2)?;
        wrong.extend(findings.told);
        for (side, server) in self.sides.iter().zip(&mut self.servers) {
            let mut conn = side.connect()?;
            let prepared = held::recovered(&mut conn)?;
            if !prepared.is_empty() {
                wrong.push(format!("{prepared:?} are left prepared"));
            }
            check_tables_of(&side.instance, &[ledger::DATABASE, tpcc::DATABASE, held::DATABASE], &mut wrong)?;
            server.ensure_alive()?;
        }
        fail_if("after the fail-over", &wrong)
    }

    /// Makes a replica differ, and looks whether the comparison tells.
    fn try_comparison(&self) -> Result<()> {
        let mut source = self.sides[self.source].connect()?;
        for number in self.others() {
            let mut replica = self.sides[number].connect()?;
            replica.query_drop("STOP SLAVE")?;
            replica.query_drop("SET SESSION sql_log_bin = 0")?;
            replica
                .query_drop(format!("UPDATE {}.account SET balance = balance + 1 WHERE id = 7", ledger::DATABASE))?;
            let told = differences(&mut source, &mut replica)?;
            ensure!(told.len() == 1, "one row was changed; told is {told:?}");
        }
        Ok(())
    }
}

/// How often the log says that the end of a binary log was taken back.
fn said(log: &std::path::Path) -> usize {
    String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).matches(TAKEN_BACK).count()
}

/// The number of a GTID's transaction. There is one domain.
fn sequence(position: &str) -> Result<u64> {
    if position.is_empty() {
        return Ok(0);
    }
    let last = position.rsplit('-').next().filter(|_| !position.contains(','));
    last.and_then(|text| text.parse().ok()).with_context(|| format!("{position} is no GTID of one domain"))
}

fn status(conn: &mut Conn, name: &str) -> Result<u64> {
    let row: Option<(String, u64)> = conn.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
    Ok(row.with_context(|| format!("there is no status {name}"))?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_compared_by_the_number_of_the_last_transaction() {
        assert_eq!(sequence("").unwrap(), 0);
        assert_eq!(sequence("0-3-1207").unwrap(), 1207);
        assert!(sequence("0-3-1207,1-3-4").is_err());
        assert!(sequence("0-3-x").is_err());
    }

    #[test]
    fn five_rounds_go_all_ways() {
        let ways: Vec<Way> = (1..=5).map(Way::of).collect();
        assert_eq!(ways, [Way::Waiting, Way::Behind, Way::Twice, Way::TakingBack, Way::AnyMoment]);
        assert_eq!(Way::of(6), Way::Waiting);
    }
}
