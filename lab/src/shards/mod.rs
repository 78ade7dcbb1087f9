//! The command `spider`: transactions over several data servers, and the end of any server at each step of their commit.
//!
//! The coordinator is Spider ([`spider`]), a server whose tables are partitions on others, or the lab's own ([`own`]), which does two-phase
//! commit by the book: what fails with the one and not with the other is not the data servers'. Accounts are spread over the data
//! servers ([`transfers`]); their sum holds over all of them.
//!
//! A round loads, ends a data server, the coordinator, or both, at a step of a commit or at any moment, and starts again what was ended;
//! with a data server the load goes on meanwhile. Data servers of Strata also end themselves at a step of a prepare or a commit of theirs
//! (`STRATA_CRASH_AT`). Then what is in doubt is ended as the coordinator's record says ([`in_doubt`]), and looked at: no transfer is
//! half done, all that was acknowledged is there, what was rolled back is not, nothing is left prepared, CHECK TABLE is clean.

mod cluster;
mod in_doubt;
mod own;
mod spider;
pub mod tpcc;
mod transfers;

use crate::crash::{check_tables_of, fail_if};
use crate::engine::Kind;
use crate::held;
use crate::leaks;
use crate::matrix::ONE_PHASE;
use crate::options::Trial;
use crate::side::wait_until;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use cluster::{Cluster, wait_alone};
use in_doubt::{Ended, SpiderRecord, end_all};
use mysql::prelude::Queryable;
use own::{Coordinator, DecisionLog, Sessions};
use rand::RngExt;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use transfers::{Held, Writer};

/// Errors that are no wonder while a server is down or a row is in doubt: of locks, of connections, of XA branches that are gone.
const EXPECTED: [&str; 19] = [
    "no answer",
    "no session",
    "the coordinator is gone",
    "1158",
    "1159",
    "1160",
    "1161",
    "1205",
    "1213",
    "1296",
    "1397",
    "1399",
    "1402",
    "1429",
    "2002",
    "2003",
    "2006",
    "2013",
    "12701",
];

const ANY_MOMENT: &str = "at any moment";

/// Who coordinates.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// A Spider server
    Spider,
    /// The lab
    Own,
}

/// Options of `spider`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    trial: Trial,
    /// Data servers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=16))]
    shards: u32,
    /// Who coordinates
    #[arg(long, value_enum, default_value = "spider")]
    coordinator: Who,
    /// A server ends so many seconds after the load began at the latest, and the load goes on so long when it is back
    #[arg(long, default_value_t = 2.0)]
    max_seconds: f64,
    /// Every round is as this one
    #[arg(long)]
    like: Option<u32>,
}

/// Who is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Shard,
    Coordinator,
    Both,
}

impl Victim {
    const ALL: [Victim; 3] = [Victim::Coordinator, Victim::Shard, Victim::Both];

    fn words(self) -> &'static str {
        match self {
            Victim::Shard => "a data server",
            Victim::Coordinator => "the coordinator",
            Victim::Both => "coordinator and data server",
        }
    }

    fn shard(self) -> bool {
        self != Victim::Coordinator
    }

    fn coordinator(self) -> bool {
        self != Victim::Shard
    }
}

/// What a round does: the number of the step, of so many, or none for any moment; and who ends. Every sixth is at any moment.
fn plan(round: u32, steps: usize) -> (Option<usize>, Victim) {
    let (round, sixth) = (round as usize, round as usize / 6);
    if round % 6 == 0 {
        return (None, Victim::ALL[sixth % 3]);
    }
    let at_step = round - sixth - 1;
    (Some(at_step % steps), Victim::ALL[(at_step % steps + at_step / steps) % 3])
}

struct Shards {
    args: Args,
    cluster: Cluster,
    folder: PathBuf,
    rng: SmallRng,
    writers: Vec<Writer>,
    ended: Ended,
}

/// The command `spider`.
pub fn run(args: Args) -> Result<()> {
    let spider = args.coordinator == Who::Spider;
    if spider && !cluster::has_spider() {
        println!("NOT RUN: the server has no Spider; 'scripts/setup.sh spider' installs it");
        return Ok(());
    }
    let what = format!(
        "transactions over {} servers by {}, of which some end",
        args.shards,
        if spider { "Spider" } else { "the lab's coordinator" }
    );
    let (seed, mut rng, folder) = args.trial.begin("shards", &what)?;
    std::fs::create_dir_all(&folder)?;
    let cluster = Cluster::new(&folder, &args.trial, args.shards, spider, &mut rng)?;
    let mut shards = Shards {
        writers: (1..=args.trial.threads).map(|number| Writer::new(number, seed)).collect(),
        ended: Ended::default(),
        cluster,
        folder,
        rng,
        args,
    };
    shards.prepare()?;
    for round in 1..=shards.args.trial.rounds {
        shards.round(round, shards.args.like.unwrap_or(round)).with_context(|| {
            format!("round {round}, seed {seed}; logs of the servers are {}", shards.cluster.logs())
        })?;
    }
    shards.try_check()?;
    let cache_mb = shards.args.trial.cache_mb;
    shards.cluster.stop(|server| leaks::check(server, cache_mb))?;
    println!(
        "{}: {} ends survived, nothing half done on {} servers; {} transfers acknowledged, all of them there; of those in doubt {} were \
         committed and {} rolled back",
        shards.args.trial.engine.title(),
        shards.args.trial.rounds,
        shards.args.shards,
        shards.writers.iter().map(Writer::acknowledged).sum::<usize>(),
        shards.ended.committed,
        shards.ended.rolled_back
    );
    Ok(())
}

impl Shards {
    fn prepare(&mut self) -> Result<()> {
        self.cluster.start()?;
        self.cluster.create_bank()?;
        let _ = std::fs::remove_file(self.log_path());
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("decisions")
    }

    fn moment(&mut self) -> Duration {
        Duration::from_secs_f64(self.args.max_seconds * f64::from(self.rng.random_range(100..=1000u32)) / 1e3)
    }

    /// `number` is told; `round` says what is done.
    fn round(&mut self, number: u32, round: u32) -> Result<()> {
        let steps = match self.args.coordinator {
            Who::Spider => spider::Step::ALL.len(),
            Who::Own => own::Step::ALL.len(),
        };
        let (at, victim) = plan(round, steps);
        let shard = self.rng.random_range(0..self.cluster.count());
        let ends_itself = at.is_none() && victim == Victim::Shard && self.args.trial.engine == Kind::Strata;
        let step = ends_itself.then(|| {
            let step = ONE_PHASE[self.rng.random_range(0..ONE_PHASE.len())];
            format!("{step}:{}", self.rng.random_range(1..100))
        });
        if let Some(step) = &step {
            self.cluster.server(shard).shut_down()?;
            self.cluster.start_shard(shard, Some(step))?;
        }
        let told = match self.args.coordinator {
            Who::Spider => self.load_spider(at.map(|at| spider::Step::ALL[at]), victim, shard, step.is_some())?,
            Who::Own => self.load_own(at.map(|at| own::Step::ALL[at]), victim, shard, step.is_some())?,
        };
        self.cluster.server(shard).ensure_alive()?;
        let ended = self.recover(!victim.coordinator())?;
        let mut wrong = told.wonders.clone();
        self.verify(&mut wrong)?;
        fail_if("over all servers", &wrong)?;
        self.ended.committed += ended.committed;
        self.ended.rolled_back += ended.rolled_back;
        println!(
            "round {number}: {} ended {}; {} transfers; of those in doubt {} committed, {} rolled back: nothing half done{}",
            victim.words(),
            match &step {
                Some(step) => format!("itself at {step}"),
                None => told.when.clone(),
            },
            told.done,
            ended.committed,
            ended.rolled_back,
            if told.errors.is_empty() {
                String::new()
            } else {
                format!("; errors meanwhile: {}", told.errors.join(", "))
            }
        );
        Ok(())
    }

    fn load_spider(&mut self, step: Option<spider::Step>, victim: Victim, shard: usize, itself: bool) -> Result<Told> {
        let (first, second) = (self.moment(), self.moment());
        let writers = self.args.trial.threads;
        let mut told = Told::new(&mut self.writers, step.map_or(ANY_MOMENT, spider::Step::words));
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let head = self.cluster.head()?.clone();
        let sessions = self.writers.iter().map(|_| spider::Session::new(&head)).collect::<Result<Vec<_>>>()?;
        std::thread::scope(|scope| -> Result<()> {
            for (writer, mut session) in self.writers.iter_mut().zip(sessions) {
                let (stop, done) = (&stop, &done);
                scope.spawn(move || writer.work(&mut session, stop, done));
            }
            let worked = (|| -> Result<()> {
                std::thread::sleep(first);
                let kept = step.map(|step| spider::Stop::at(&self.cluster, step, shard, writers)).transpose()?;
                if victim.shard() {
                    end_shard(&mut self.cluster, shard, itself)?;
                }
                if victim.coordinator() {
                    let head = self.cluster.head_server()?;
                    head.ensure_alive()?;
                    head.end()?;
                }
                if let Some(kept) = kept {
                    kept.lift();
                }
                if victim.shard() {
                    self.cluster.start_shard(shard, None)?;
                }
                if !victim.coordinator() {
                    std::thread::sleep(second);
                    self.cluster.head_server()?.ensure_alive()?;
                }
                Ok(())
            })();
            stop.store(true, Ordering::Relaxed);
            worked
        })?;
        if victim.coordinator() {
            self.cluster.start_head()?;
        }
        told.end(&self.writers, done.load(Ordering::Relaxed));
        Ok(told)
    }

    fn load_own(&mut self, step: Option<own::Step>, victim: Victim, shard: usize, itself: bool) -> Result<Told> {
        let (first, second) = (self.moment(), self.moment());
        let mut told = Told::new(&mut self.writers, step.map_or(ANY_MOMENT, own::Step::words));
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let log = DecisionLog::open(&self.log_path())?;
        let instances: Vec<_> = self.cluster.shards().into_iter().cloned().collect();
        let pass = u64::from(self.rng.random_range(1..200u32));
        let coordinator = Coordinator::new(instances.iter().collect(), &log, step.map(|step| (step, pass)));
        std::thread::scope(|scope| -> Result<()> {
            for writer in &mut self.writers {
                let (stop, done, coordinator) = (&stop, &done, &coordinator);
                scope.spawn(move || writer.work(&mut Sessions::new(coordinator), stop, done));
            }
            let worked = (|| -> Result<()> {
                if step.is_some() {
                    coordinator.wait_stopped()?;
                } else {
                    std::thread::sleep(first);
                }
                if victim.shard() {
                    end_shard(&mut self.cluster, shard, itself)?;
                }
                if victim.coordinator() {
                    coordinator.end();
                }
                coordinator.go_on();
                if victim.shard() {
                    self.cluster.start_shard(shard, None)?;
                }
                if !victim.coordinator() {
                    std::thread::sleep(second);
                }
                Ok(())
            })();
            coordinator.go_on();
            stop.store(true, Ordering::Relaxed);
            worked
        })?;
        told.end(&self.writers, done.load(Ordering::Relaxed));
        Ok(told)
    }

    /// Ends what is in doubt, as the coordinator's record says.
    fn recover(&mut self, lives: bool) -> Result<Ended> {
        match self.args.coordinator {
            Who::Own => {
                let log = DecisionLog::open(&self.log_path())?;
                end_all(&self.cluster.shards(), &log.decided()?, false)
            }
            Who::Spider => {
                let mut head = self.cluster.head()?.connect(None)?;
                // Spider's sessions with the data servers end with those of its clients.
                wait_alone(&mut head, "the Spider server")?;
                let record = SpiderRecord::read(&mut head)?;
                let ended = end_all(&self.cluster.shards(), &record.decided(), lives)?;
                SpiderRecord::forget(&mut head)?;
                drop(head);
                if !lives {
                    // It keeps the ids that it found in its record when it started, and would refuse a transaction that gets one of them.
                    self.cluster.head_server()?.shut_down()?;
                    self.cluster.start_head()?;
                }
                Ok(ended)
            }
        }
    }

    fn verify(&mut self, wrong: &mut Vec<String>) -> Result<()> {
        let prepared = in_doubt::prepared(&self.cluster.shards())?;
        if !prepared.is_empty() {
            wrong.push(format!("these are left prepared: {prepared:?}"));
        }
        Held::read(&self.cluster.shards(), wrong)?.verify(&mut self.writers, wrong);
        if self.args.coordinator == Who::Spider {
            let kept = held::recovered(&mut self.cluster.head()?.connect(None)?)?;
            if !kept.is_empty() {
                wrong.push(format!("the Spider server keeps these ids: {kept:?}"));
            }
            let query = "SELECT COUNT(*), CAST(SUM(balance) AS SIGNED) FROM account";
            let sum: Option<(u32, i64)> =
                self.cluster.head()?.connect(Some(transfers::DATABASE))?.query_first(query)?;
            if sum != Some((transfers::ACCOUNTS, 0)) {
                wrong.push(format!("accounts and their sum through Spider are {sum:?}"));
            }
        }
        for shard in self.cluster.shards() {
            check_two(shard, wrong)?;
        }
        Ok(())
    }

    /// Makes half a transfer, and looks whether the check tells.
    fn try_check(&mut self) -> Result<()> {
        let mut wrong = Vec::new();
        self.verify(&mut wrong)?;
        fail_if("at the end", &wrong)?;
        let mut conn = self.cluster.shard(0).connect(Some(transfers::DATABASE))?;
        conn.query_drop("UPDATE account SET balance = balance + 1 LIMIT 1")?;
        conn.query_drop("DELETE FROM leg LIMIT 1")?;
        self.verify(&mut wrong)?;
        let told = |text: &str| wrong.iter().any(|wrong| wrong.contains(text));
        ensure!(
            told("half done") && told("its legs make") && told("all accounts together"),
            "the check does not see half a transfer, only: {wrong:?}"
        );
        Ok(())
    }
}

/// CHECK TABLE of both tables of a data server.
fn check_two(shard: &crate::server::Instance, wrong: &mut Vec<String>) -> Result<()> {
    let mut found = Vec::new();
    check_tables_of(shard, &[transfers::DATABASE], &mut found)?;
    // There are but two.
    wrong.extend(found.into_iter().filter(|told| told != "there are only 2 tables"));
    Ok(())
}

/// Ends a data server, or waits until it has ended itself.
fn end_shard(cluster: &mut Cluster, shard: usize, itself: bool) -> Result<()> {
    let server = cluster.server(shard);
    if itself {
        return wait_until("the data server ends itself", || Ok(server.ensure_alive().is_err()));
    }
    server.ensure_alive()?;
    server.end()
}

/// What is told of a round's load.
struct Told {
    when: String,
    done: u64,
    errors: Vec<String>,
    /// Errors that no failed server explains.
    wonders: Vec<String>,
}

impl Told {
    fn new(writers: &mut [Writer], when: &str) -> Told {
        writers.iter_mut().for_each(|writer| writer.errors.clear());
        Told { when: when.to_string(), done: 0, errors: Vec::new(), wonders: Vec::new() }
    }

    fn end(&mut self, writers: &[Writer], done: u64) {
        let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
        for (said, count) in writers.iter().flat_map(|writer| &writer.errors) {
            *errors.entry(said).or_default() += count;
        }
        self.done = done;
        self.errors = errors.iter().map(|(said, count)| format!("{count} x {said}")).collect();
        let expected = |said: &&&str| EXPECTED.contains(&said.trim_start_matches("COMMIT: "));
        let wonders = errors.keys().filter(|said| !expected(said));
        self.wonders =
            wonders.map(|said| format!("a session was told {said}, which no failed server explains")).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_ended_at_each_step() {
        for (steps, rounds) in [(5usize, 18u32), (6, 22)] {
            let plans: Vec<_> = (1..=rounds).map(|round| plan(round, steps)).collect();
            for step in (0..steps).map(Some).chain([None]) {
                for victim in Victim::ALL {
                    assert!(plans.contains(&(step, victim)), "{step:?} of {steps}, {}", victim.words());
                }
            }
        }
    }
}
