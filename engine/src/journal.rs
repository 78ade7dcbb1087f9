//! The journal: the log, the pipeline that commits go through, and the prepared transactions that no session holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::base::{Lsn, Result, TxnId};
use crate::commit::Committer;
use crate::io::{Blocking, Waiting};
use crate::lock::LockOwner;
use crate::options::Durability;
use crate::settings::Settings;
use crate::wal::Log;

/// How long the end of a prepared transaction waits for the session that holds it to go.
const DETACH_PATIENCE: Duration = Duration::from_secs(10);

/// How durable something logged is when it is said to be done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durable {
    /// Something else sees to that: a prepare record before, or a sync after.
    Elsewhere,
    /// As the store's setting says.
    AsSet,
    /// Synced, whatever the setting.
    Synced,
}

/// A prepared transaction that no session holds.
pub(crate) struct Detached {
    pub id: TxnId,
    pub owner: Arc<LockOwner>,
    /// An earlier opening wrote its files: nobody has read them since.
    pub is_recovered: bool,
}

/// See the module.
pub(crate) struct Journal {
    pub log: Arc<Log>,
    pub committer: Committer,
    settings: Arc<Settings>,
    /// By their ids.
    prepared: Mutex<BTreeMap<Vec<u8>, Detached>>,
    /// Signalled when one more is there.
    one_more: Condvar,
    /// Those that recovery has found and that have not ended.
    recovered: AtomicUsize,
}

impl Journal {
    /// `prepared` are the transactions that recovery has found.
    pub fn new(
        log: Arc<Log>,
        committer: Committer,
        settings: Arc<Settings>,
        prepared: BTreeMap<Vec<u8>, Detached>,
    ) -> Journal {
        let recovered = AtomicUsize::new(prepared.len());
        Journal { log, committer, settings, prepared: Mutex::new(prepared), one_more: Condvar::new(), recovered }
    }

    /// Makes the log up to `end` as durable as the store promises.
    pub fn make_durable(&self, end: Lsn) -> Result<()> {
        match self.settings.durability() {
            Durability::EveryCommit => self.log.sync(end),
            Durability::OsEveryCommit => self.log.write(end),
            // Nothing is promised of this commit, but after a failure nothing is acknowledged.
            Durability::EverySecond => self.log.check(),
        }
    }

    /// Makes the log up to `end` so durable.
    #[inline]
    pub fn sync_as(&self, end: Lsn, durable: Durable) -> Result<()> {
        match durable {
            Durable::Elsewhere => Ok(()),
            Durable::AsSet => self.make_durable(end),
            Durable::Synced => self.log.sync(end),
        }
    }

    /// Keeps a prepared transaction whose session lets go of it.
    pub fn detach(&self, xid: Vec<u8>, transaction: Detached) {
        self.prepared.lock().insert(xid, transaction);
        self.one_more.notify_all();
    }

    /// Takes one back that could not be ended: it is still prepared, in the log as in memory.
    pub fn put_back(&self, xid: &[u8], transaction: Detached) {
        self.prepared.lock().insert(xid.to_vec(), transaction);
    }

    /// A transaction taken before has ended: what it wrote can be seen, or is undone.
    pub fn ended(&self, transaction: &Detached) {
        if transaction.is_recovered {
            self.recovered.fetch_sub(1, Ordering::Release);
        }
    }

    /// True if a transaction that recovery has found has not ended.
    pub fn has_recovered(&self) -> bool {
        self.recovered.load(Ordering::Acquire) > 0
    }

    /// Ids of prepared transactions that no session holds.
    pub fn detached(&self) -> Vec<Vec<u8>> {
        self.prepared.lock().keys().cloned().collect()
    }

    /// The same, with who holds their locks.
    pub fn detached_owners(&self) -> Vec<(Vec<u8>, Arc<LockOwner>)> {
        self.prepared.lock().iter().map(|(xid, transaction)| (xid.clone(), transaction.owner.clone())).collect()
    }

    /// How many there are.
    pub fn detached_count(&self) -> usize {
        self.prepared.lock().len()
    }

    /// The prepared transaction of this id that no session holds, for its end. The server lets others end a transaction a
    /// moment before the session that prepared it lets go of it, and takes no "there is none" for an answer: it would tell
    /// the client that it is done. So that moment is waited for.
    pub fn take(&self, xid: &[u8]) -> Option<Detached> {
        let mut prepared = self.prepared.lock();
        let found = prepared.remove(xid);
        if found.is_some() || !self.committer.is_prepared(xid) {
            return found;
        }
        // A pool of threads may need another one to run the session that lets go.
        drop(prepared);
        let _waiting = Waiting::begin(Blocking::Lock);
        let mut prepared = self.prepared.lock();
        let until = Instant::now() + DETACH_PATIENCE;
        loop {
            if let Some(found) = prepared.remove(xid) {
                return Some(found);
            }
            if !self.committer.is_prepared(xid) || self.one_more.wait_until(&mut prepared, until).timed_out() {
                return prepared.remove(xid);
            }
        }
    }
}
