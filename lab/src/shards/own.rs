//! A coordinator of the lab's own: two-phase commit by XA over the data servers, with a log of decisions.
//!
//! It does by the book what [`super::spider`] leaves to Spider, so that a failure tells whose it is. A transfer begins a branch on each
//! server that it needs, prepares all of them, writes its id to the log, syncs the log, and then commits the branches; what cannot be
//! committed then waits for recovery, and is acknowledged all the same, since it is decided. A record of the log:
//!
//! ```text
//! <id> <sum of its bytes, in decimal>\n
//! ```
//!
//! A record that is cut off is no decision. Without a record a transaction is rolled back.
//!
//! The coordinator can be stopped at a [`Step`]: the writer that comes there n-th waits until whoever asked for it has ended a server,
//! and goes on, or finds that the coordinator itself is gone: then all writers drop what they do, as a process that is killed does.

use super::in_doubt::Id;
use super::transfers::{Bank, DATABASE, End, Transfer};
use crate::server::Instance;
use crate::side::wait_until;
use anyhow::{Context, Result};
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Where a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All branches have their rows, none is prepared.
    Worked,
    /// The first branch is prepared.
    PreparedOne,
    /// All are.
    PreparedAll,
    /// The decision is in the log, and synced.
    Decided,
    /// The first branch is committed.
    CommittedOne,
    /// All are, and the client has not been told.
    CommittedAll,
}

impl Step {
    pub const ALL: [Step; 6] =
        [Step::PreparedOne, Step::PreparedAll, Step::Decided, Step::CommittedOne, Step::CommittedAll, Step::Worked];

    pub fn words(self) -> &'static str {
        match self {
            Step::Worked => "before any is prepared",
            Step::PreparedOne => "prepared on one",
            Step::PreparedAll => "prepared on all",
            Step::Decided => "decided",
            Step::CommittedOne => "committed on one",
            Step::CommittedAll => "committed on all",
        }
    }
}

/// The decisions, on disk.
pub struct DecisionLog {
    path: PathBuf,
    file: Mutex<File>,
}

impl DecisionLog {
    /// Opens it, and makes it if there is none. What was cut off at its end is taken away.
    pub fn open(path: &Path) -> Result<DecisionLog> {
        let text = std::fs::read(path).unwrap_or_default();
        let (_, good) = records(&text);
        let file = File::options().create(true).append(true).open(path)?;
        file.set_len(good as u64)?;
        file.sync_all()?;
        Ok(DecisionLog { path: path.to_path_buf(), file: Mutex::new(file) })
    }

    fn record(&self, id: &str) -> Result<()> {
        let mut file = self.file.lock().expect("nobody panics");
        file.write_all(record(id).as_bytes())?;
        Ok(file.sync_data()?)
    }

    /// All decisions, as the file has them.
    pub fn decided(&self) -> Result<BTreeSet<Id>> {
        Ok(records(&std::fs::read(&self.path)?).0)
    }
}

fn record(id: &str) -> String {
    format!("{id} {}\n", id.bytes().map(u64::from).sum::<u64>())
}

/// Decisions, and how many bytes of good records the text begins with.
fn records(text: &[u8]) -> (BTreeSet<Id>, usize) {
    let (mut ids, mut good) = (BTreeSet::new(), 0);
    for line in text.split_inclusive(|&b| b == b'\n') {
        let id = String::from_utf8_lossy(line).split(' ').next().unwrap_or_default().to_string();
        if record(&id).as_bytes() != line {
            break;
        }
        good += line.len();
        ids.insert(id);
    }
    (ids, good)
}

/// The coordinator that all writers share.
pub struct Coordinator<'a> {
    shards: Vec<&'a Instance>,
    log: &'a DecisionLog,
    /// Where a writer is to wait, and how many may pass before.
    stop_at: Option<(Step, AtomicU64)>,
    waits: AtomicBool,
    goes_on: AtomicBool,
    gone: AtomicBool,
}

impl<'a> Coordinator<'a> {
    pub fn new(shards: Vec<&'a Instance>, log: &'a DecisionLog, stop_at: Option<(Step, u64)>) -> Coordinator<'a> {
        Coordinator {
            shards,
            log,
            stop_at: stop_at.map(|(step, pass)| (step, AtomicU64::new(pass))),
            waits: AtomicBool::new(false),
            goes_on: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    /// Waits until a writer is where it was to be stopped.
    pub fn wait_stopped(&self) -> Result<()> {
        wait_until("a transfer comes to the step", || Ok(self.waits.load(Ordering::SeqCst)))
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.goes_on.store(true, Ordering::SeqCst);
    }

    /// Ends the coordinator: nothing more is sent by any of its sessions.
    pub fn end(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.go_on();
    }

    /// A writer is at a step. Whether it goes on from there.
    fn at(&self, step: Step) -> bool {
        if let Some((stop, pass)) = &self.stop_at
            && *stop == step
            && pass.fetch_sub(1, Ordering::SeqCst) == 1
        {
            self.waits.store(true, Ordering::SeqCst);
            // Whoever waits for this ends it in any case; if not, the sessions end with the trial.
            let _ = wait_until("the coordinator is let go on", || Ok(self.goes_on.load(Ordering::SeqCst)));
        }
        !self.gone.load(Ordering::SeqCst)
    }
}

/// A writer's sessions.
pub struct Sessions<'a> {
    coordinator: &'a Coordinator<'a>,
    conns: BTreeMap<usize, Conn>,
}

impl<'a> Sessions<'a> {
    pub fn new(coordinator: &'a Coordinator<'a>) -> Sessions<'a> {
        Sessions { coordinator, conns: BTreeMap::new() }
    }

    /// A session with a data server, opened if need be.
    fn conn(&mut self, shard: usize) -> mysql::Result<&mut Conn> {
        if !self.conns.contains_key(&shard) {
            let options: OptsBuilder = self.coordinator.shards[shard].client_options(Some(DATABASE));
            self.conns.insert(shard, Conn::new(options)?);
        }
        Ok(self.conns.get_mut(&shard).expect("it was just put there"))
    }

    /// A statement to a branch. A session that fails is given up: its server ends what it had not prepared.
    fn send(&mut self, shard: usize, statement: &str) -> std::result::Result<(), String> {
        if !self.goes_on() {
            return Err("the coordinator is gone".into());
        }
        let sent = self.conn(shard).and_then(|conn| conn.query_drop(statement));
        sent.map_err(|error| {
            self.conns.remove(&shard);
            said(&error)
        })
    }

    fn work(&mut self, transfer: &Transfer, id: &str) -> std::result::Result<(), String> {
        let mut begun = BTreeSet::new();
        for leg in &transfer.legs {
            let shard = leg.0 as usize % self.coordinator.shards.len();
            if begun.insert(shard) {
                self.send(shard, &format!("XA START '{id}'"))?;
            }
            for statement in transfer.statements(*leg) {
                self.send(shard, &statement)?;
            }
        }
        begun.into_iter().try_for_each(|shard| self.send(shard, &format!("XA END '{id}'")))
    }

    /// Ends the branches that this writer still has a session for; others are ended by recovery.
    fn roll_back(&mut self, id: &str) {
        let shards: Vec<usize> = self.conns.keys().copied().collect();
        for shard in shards {
            // A branch that has not come to XA END yet is given up with its session, and so is one that says no.
            if self.send(shard, &format!("XA ROLLBACK '{id}'")).is_err() {
                self.conns.remove(&shard);
            }
        }
    }
}

/// An error as it is counted: by its number, or that the session broke.
pub fn said(error: &mysql::Error) -> String {
    match error {
        mysql::Error::MySqlError(error) => error.code.to_string(),
        _ => "no answer".to_string(),
    }
}

impl Bank for Sessions<'_> {
    fn transfer(&mut self, transfer: &Transfer) -> Option<End> {
        let coordinator = self.coordinator;
        let id = format!("transfer{}", transfer.number);
        if let Err(said) = self.work(transfer, &id) {
            self.roll_back(&id);
            return Some(End::RolledBack(said));
        }
        let count = coordinator.shards.len();
        let shards: BTreeSet<usize> = transfer.legs.iter().map(|leg| leg.0 as usize % count).collect();
        if !coordinator.at(Step::Worked) {
            return None;
        }
        for (n, &shard) in shards.iter().enumerate() {
            if let Err(said) = self.send(shard, &format!("XA PREPARE '{id}'")) {
                self.roll_back(&id);
                return Some(End::RolledBack(said));
            }
            if n == 0 && !coordinator.at(Step::PreparedOne) {
                return None;
            }
        }
        if !coordinator.at(Step::PreparedAll) {
            return None;
        }
        if let Err(error) = coordinator.log.record(&id).context("the decision log") {
            return Some(End::Unknown(format!("{error:#}")));
        }
        if !coordinator.at(Step::Decided) {
            return Some(End::Unknown("the coordinator is gone".into()));
        }
        for (n, &shard) in shards.iter().enumerate() {
            // If this fails the branch is committed by recovery.
            let _ = self.send(shard, &format!("XA COMMIT '{id}'"));
            if n == 0 && !coordinator.at(Step::CommittedOne) {
                return Some(End::Unknown("the coordinator is gone".into()));
            }
        }
        if coordinator.at(Step::CommittedAll) {
            Some(End::Committed)
        } else {
            Some(End::Unknown("the coordinator is gone".into()))
        }
    }

    fn goes_on(&self) -> bool {
        !self.coordinator.gone.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_cut_off_is_no_decision() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("decisions");
        let log = DecisionLog::open(&path).unwrap();
        log.record("one").unwrap();
        log.record("two").unwrap();
        let both = BTreeSet::from(["one".to_string(), "two".to_string()]);
        assert_eq!(log.decided().unwrap(), both);
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            let (ids, good) = records(&bytes[..cut]);
            assert_eq!(ids.len(), usize::from(cut >= record("one").len()), "{cut}");
            assert!(good <= cut);
        }
        std::fs::write(&path, &bytes[..bytes.len() - 2]).unwrap();
        let log = DecisionLog::open(&path).unwrap();
        log.record("three").unwrap();
        assert_eq!(log.decided().unwrap(), BTreeSet::from(["one".to_string(), "three".to_string()]));
    }
}
