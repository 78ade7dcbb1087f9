//! One connection's transaction: its writes and locks, its read point, the savepoint of the running statement.
//!
//! A transaction begins with its first statement. Consistent reads use one *read point*: taken at the first consistent
//! read, dropped at the end of the statement (READ COMMITTED and below) or of the transaction (REPEATABLE READ and above).
//! Locking reads and writes always work on the newest committed versions. The engine's transaction object is kept while it
//! has neither writes nor locks, so that read-only statements cost no set-up.
//!
//! `epoch` counts changes of what a consistent read may see; cursors compare it to know that they must reopen. `writes`
//! counts row writes; a cursor that seeks anew after a write reopens to see it.
//!
//! A row that the transaction writes may have changed since the read point. Its own write then lies over a row that the read
//! point does not show, and the secondary entries that the read point shows are those of yet another row: an entry moved by
//! the other transaction would be seen at its old place, and not at its new one. The first write of such a row puts all its
//! entries, and a consistent read skips every entry of it that is not the transaction's own. Nobody has to remember which
//! rows these are: the transaction holds the lock of a row it wrote, so what is committed of it stays newer than the read
//! point, or stays not newer.
//!
//! A unique entry may have passed from another row to the one that the transaction writes; what consistent reads make of that
//! is told in `scan/handed.rs`.
//!
//! Rejected: reading at the transaction's start (as "BEGIN" might suggest). MariaDB takes the snapshot at the first read.

use crate::catalog::graph::name_lock;
use crate::error::{Error, Result};
use crate::integrity::{Computing, Workspace};
use crate::isolation::{Isolation, Waiting};
use crate::kill_switch::KillSwitch;
use crate::kv::Granted;
use crate::kv::{self, Engine, LockMode, ReadPoint, SeqNo, Txn, ValueBuf, Wait};
use crate::rows::RowCounter;
use crate::scan::locking::protects_snapshot;
use crate::store::Store;
use crate::table::TableState;
use std::sync::Arc;
use std::time::Duration;

mod absent;
mod past;
mod present;
mod written;

use absent::AbsentKeys;
use past::Past;

/// Tells whether the server wants the running statement to stop.
pub type KillProbe = Box<dyn Fn() -> bool + Send>;

/// A connection's state in the engine. Used by one thread at a time.
pub struct Session {
    store: Arc<Store>,
    txn: Txn,
    /// The transaction object holds writes or locks, or is prepared: it may not be reused for the next transaction.
    used: bool,
    in_statement: bool,
    prepared: bool,
    isolation: Isolation,
    snapshot_isolation: bool,
    foreign_key_checks: bool,
    timeout: Duration,
    statement: Option<kv::Savepoint>,
    point: Option<ReadPoint>,
    /// What the transaction sees of the past, in the place of a snapshot of its own.
    past: Option<Past>,
    /// The transaction has begun: what it reads of the past is fixed.
    begun: bool,
    /// When the running statement began, in seconds since 1970: it decides which rows have expired. Asked of the clock by the first
    /// statement that needs it, unless somebody has said it.
    time: Option<u64>,
    /// Rows that have expired are seen like others.
    sees_expired: bool,
    /// The transaction wrote rows that had changed since the read point.
    overwrote: bool,
    /// The transaction wrote unique entries that had changed since the read point.
    handed_over: bool,
    /// The key that the transaction locked exclusively last, if it still holds it.
    latest_lock: Vec<u8>,
    /// Keys that it has locked though nothing is under them.
    absent: AbsentKeys,
    epoch: u64,
    transactions: u64,
    writes: u64,
    kill: Arc<KillSwitch>,
    probe: KillProbe,
    rows: RowCounter,
    /// Tables that the transaction fills before anybody else may see them.
    filled: Vec<Arc<TableState>>,
    /// Tables that the transaction has written to; some more than once.
    written: Vec<Arc<TableState>>,
    /// What the checks of foreign keys keep, from the first one on.
    workspace: Option<Box<Workspace>>,
    computing: Option<Box<dyn Computing>>,
}

impl Session {
    /// A session without a transaction.
    pub fn new(store: &Arc<Store>, probe: KillProbe) -> Session {
        let txn = store.engine().begin();
        let kill = Arc::new(KillSwitch::default());
        kill.set_owner(Some(txn.owner().clone()));
        store.add_session(&kill);
        Session {
            store: store.clone(),
            txn,
            used: false,
            in_statement: false,
            prepared: false,
            isolation: Isolation::RepeatableRead,
            snapshot_isolation: false,
            foreign_key_checks: true,
            timeout: Duration::from_secs(50),
            statement: None,
            point: None,
            past: None,
            begun: false,
            time: None,
            sees_expired: false,
            overwrote: false,
            handed_over: false,
            latest_lock: Vec::new(),
            absent: AbsentKeys::default(),
            epoch: 0,
            transactions: 0,
            writes: 0,
            kill,
            probe,
            rows: store.row_totals().counter(),
            filled: Vec::new(),
            written: Vec::new(),
            workspace: None,
            computing: None,
        }
    }

    /// The number of the connection, for reports.
    pub fn set_connection(&mut self, connection: u64) {
        self.kill.set_connection(connection);
        self.txn.owner().set_tag(connection);
    }

    fn note_begin(&self) {
        self.kill.note_begin(self.isolation as u8, || self.engine().now_us());
    }

    /// The switch for other threads.
    pub fn kill_switch(&self) -> Arc<KillSwitch> {
        self.kill.clone()
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        self.store.engine()
    }

    /// The database.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Where the rows are counted that it reads and changes.
    #[inline]
    pub(crate) fn rows(&self) -> &RowCounter {
        &self.rows
    }

    /// The transaction's writes, for reading.
    pub fn txn(&self) -> &Txn {
        &self.txn
    }

    /// The transaction, for writing.
    pub(crate) fn txn_mut(&mut self) -> &mut Txn {
        self.used = true;
        self.writes += 1;
        &mut self.txn
    }

    /// Counts changes of the consistent read point.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Counts transactions.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Counts row writes.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// The isolation level of the running statement.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Whether locking a row that has changed since the transaction's snapshot is an error, at REPEATABLE READ and above.
    pub fn set_snapshot_isolation(&mut self, on: bool) {
        self.snapshot_isolation = on;
    }

    /// Whether foreign keys are checked, and cascade.
    pub fn set_foreign_key_checks(&mut self, on: bool) {
        self.foreign_key_checks = on;
    }

    /// Whether they are.
    pub fn foreign_key_checks(&self) -> bool {
        self.foreign_key_checks
    }

    /// The snapshot that consistent reads use, if there is one.
    #[inline]
    pub(crate) fn snapshot(&self) -> Option<SeqNo> {
        self.point.as_ref().map(ReadPoint::seq)
    }

    /// The snapshot that locking reads are held to.
    pub(crate) fn protected_snapshot(&self) -> Option<SeqNo> {
        let point = self.point.as_ref().filter(|_| self.snapshot_isolation && protects_snapshot(self.isolation))?;
        Some(point.seq())
    }

    /// With snapshot isolation, an error if the row at `key`, just locked, is not what the transaction's snapshot shows.
    pub(crate) fn check_snapshot(&self, key: &[u8], newest: SeqNo) -> Result<()> {
        let Some(snapshot) = self.protected_snapshot().filter(|&s| s != newest) else {
            return Ok(());
        };
        if self.txn.wrote(key)? {
            return Ok(());
        }
        let (mut then, mut now) = (ValueBuf::default(), ValueBuf::default());
        let was = self.txn.get(key, snapshot, &mut then)?;
        let is = self.txn.get(key, newest, &mut now)?;
        if was == is && (!is || *then == *now) {
            return Ok(());
        }
        // A merge may have written the row anew between the two reads, see `crate::history`.
        let was = self.txn.get(key, snapshot, &mut then)?;
        match was == is && (!is || *then == *now) {
            true => Ok(()),
            false => Err(kv::Error::Conflict.into()),
        }
    }

    /// Who does the server's part where child rows change by cascades.
    pub fn set_computing(&mut self, computing: Option<Box<dyn Computing>>) {
        self.computing = computing;
    }

    /// The same, for a child of this name.
    pub(crate) fn computing(&self, name: &str) -> Result<&dyn Computing> {
        self.computing.as_deref().ok_or_else(|| {
            Error::invalid(format!("nobody computes the virtual columns of table '{name}', which indexes have"))
        })
    }

    /// The time that the running statement gives to rows of the past.
    pub(crate) fn time_of_statement(&self) -> Result<Vec<u8>> {
        match &self.computing {
            Some(server) => server.time(),
            None => Err(Error::invalid("nobody tells the time of the statement")),
        }
    }

    pub(crate) fn take_workspace(&mut self) -> Box<Workspace> {
        self.workspace.take().unwrap_or_default()
    }

    pub(crate) fn give_workspace(&mut self, workspace: Box<Workspace>) {
        self.workspace = Some(workspace);
    }

    /// Begins a transaction unless one is open, and a statement unless one is running.
    ///
    /// Errors: `Poisoned` if the store has stopped. Reads are refused like writes: what is in memory then may hold commits
    /// that failed to become durable, and lack others that the server has decided.
    pub fn statement_begin(&mut self, isolation: Isolation, timeout: Duration) -> Result<()> {
        if self.prepared {
            return Err(Error::invalid("the transaction is prepared: it can only be committed or rolled back"));
        }
        self.engine().check()?;
        self.timeout = timeout;
        if self.in_statement {
            return Ok(());
        }
        self.in_statement = true;
        self.begun = true;
        self.isolation = isolation;
        self.note_begin();
        self.statement = Some(self.txn.savepoint());
        self.forget_old_kill();
        Ok(())
    }

    /// A kill of an earlier statement does not touch this one; the server knows about a kill of this one.
    fn forget_old_kill(&mut self) {
        if self.kill.forget() {
            self.txn.owner().clear_interrupt();
            if (self.probe)() {
                self.kill.kill();
            }
        }
    }

    /// The statement succeeded.
    pub fn statement_end(&mut self) {
        self.in_statement = false;
        self.time = None;
        self.statement = None;
        if self.isolation <= Isolation::ReadCommitted {
            self.drop_read_point();
        }
    }

    /// Undoes the statement's writes; its locks stay.
    pub fn statement_rollback(&mut self) {
        if let Some(savepoint) = self.statement.take() {
            self.txn.rollback_to(savepoint);
            self.writes += 1;
        }
        self.statement_end();
    }

    /// The sequence number that consistent reads use, taking a read point if there is none.
    pub fn consistent(&mut self) -> SeqNo {
        if let Some(past) = &self.past {
            return past.point.seq();
        }
        if let Some(point) = &self.point {
            // Taken under the server's commit order, it may be ahead of what is visible.
            self.store.engine().await_visible(point.seq());
            return point.seq();
        }
        let point = self.store.engine().read_point();
        let seq = point.seq();
        self.point = Some(point);
        self.epoch += 1;
        seq
    }

    /// START TRANSACTION WITH CONSISTENT SNAPSHOT: the read point is taken now, after all transactions whose order is fixed.
    /// The server calls this under its commit order mutex: nothing is waited for here.
    pub fn consistent_snapshot(&mut self, isolation: Isolation) {
        self.isolation = isolation;
        self.begun = true;
        self.note_begin();
        if isolation >= Isolation::RepeatableRead {
            self.point = Some(self.store.engine().read_point_ordered());
            self.epoch += 1;
        }
    }

    fn patience(&self, waiting: Waiting) -> Wait {
        match waiting {
            Waiting::Wait if self.timeout.is_zero() => Wait::No,
            Waiting::Wait => Wait::TimeoutUs(self.timeout.as_micros() as u64),
            Waiting::NoWait | Waiting::SkipLocked => Wait::No,
        }
    }

    /// Locks a key for the transaction.
    pub(crate) fn lock(&mut self, key: &[u8], mode: LockMode, waiting: Waiting) -> Result<Granted> {
        let wait = self.patience(waiting);
        self.used = true;
        match self.txn.lock(key, mode, wait) {
            Ok(granted) => {
                if mode == LockMode::Exclusive {
                    key.clone_into(&mut self.latest_lock);
                }
                Ok(granted)
            }
            Err(kv::Error::LockBusy) if waiting == Waiting::Wait => Err(kv::Error::LockTimeout.into()),
            Err(e) => Err(e.into()),
        }
    }

    /// Locks the name of a table for the transaction, before something else comes to be under it: waits for transactions that
    /// rely on the parent of that name, and keeps others away.
    pub fn lock_name(&mut self, name: &str) -> Result<()> {
        self.lock(&name_lock(name), LockMode::Exclusive, Waiting::Wait).map(drop)
    }

    /// Announces a new key of an index, unless somebody else has locked its place: then false. A key that the transaction
    /// has written before is its own to bring back: it holds the row, or was the first to bring the key in.
    pub(crate) fn try_intend_insert(&mut self, key: &[u8]) -> Result<bool> {
        self.used = true;
        match self.txn.intend_insert(key, Wait::No) {
            Ok(_) => Ok(true),
            Err(kv::Error::LockBusy) => Ok(self.txn.wrote(key)?),
            Err(e) => Err(e.into()),
        }
    }

    /// Announces a new key of an index, when its place is free.
    pub(crate) fn intend_insert(&mut self, key: &[u8]) -> Result<()> {
        if self.try_intend_insert(key)? {
            return Ok(());
        }
        let wait = self.patience(Waiting::Wait);
        match self.txn.intend_insert(key, wait) {
            Ok(_) => Ok(()),
            Err(kv::Error::LockBusy) => Err(kv::Error::LockTimeout.into()),
            Err(e) => Err(e.into()),
        }
    }

    /// Announces a scan that locks intervals of an index.
    pub(crate) fn range_version(&mut self, index: kv::IndexId) -> u64 {
        self.used = true;
        self.txn.range_version(index)
    }

    /// Locks an interval that was read after `range_version` returned `read`.
    pub(crate) fn lock_range(&mut self, from: &[u8], to: &[u8], read: u64) -> kv::RangeGrant {
        self.used = true;
        self.txn.lock_range(from, to, read)
    }

    /// The first key in `[from, to)` of an index that another transaction is bringing in, see [`Txn::inserting`].
    pub(crate) fn inserting(&mut self, from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
        self.used = true;
        self.txn.inserting(from, to)
    }

    /// True if the key is known to be locked exclusively: mostly that of a row that was read to be written. False says nothing.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        self.latest_lock == key
    }

    /// Releases a lock early.
    pub(crate) fn unlock(&mut self, key: &[u8]) {
        if self.holds(key) {
            self.latest_lock.clear();
        }
        self.txn.unlock(key);
    }

    /// As `check_killed`, for work that the engine does in the statement's name.
    pub(crate) fn check_interrupted(&self) -> kv::Result<()> {
        if self.is_killed() { Err(kv::Error::Interrupted) } else { Ok(()) }
    }

    fn is_killed(&self) -> bool {
        self.kill.is_killed() || (self.probe)()
    }

    /// An error once the running statement must stop: it was killed, or the store has stopped.
    pub fn check_killed(&self) -> Result<()> {
        // What the statement reads may never become durable.
        self.engine().check()?;
        if self.is_killed() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Makes the writes durable (as the store's setting says) under a transaction id. If the id is a user's and not the
    /// server's, the server does not know after a crash what became of it. A user's transaction that has written to temporary tables
    /// only is not kept: it is rolled back if the session ends first.
    pub fn prepare(&mut self, xid: &[u8], is_users: bool) -> Result<()> {
        self.forget_old_kill();
        self.used = true;
        if is_users && !self.written.is_empty() && self.written.iter().all(|table| table.meta.temporary) {
            // The tables go with the connection: there is nothing to be found after it.
            self.drop_read_point();
            self.prepared = true;
            self.give_up_gaps();
            return Ok(());
        }
        if is_users {
            self.txn.decide_here();
        }
        let result = self.txn.prepare(xid);
        // It reads no more, and may stay prepared for days.
        self.drop_read_point();
        // Even if the last sync failed, the record may have reached the disk.
        self.prepared = self.txn.is_prepared();
        if is_users && result.is_ok() {
            self.give_up_gaps();
        }
        Ok(result?)
    }

    /// Fixes the place of a prepared transaction in the order of commits.
    pub fn commit_ordered(&mut self) {
        self.txn.commit_ordered();
    }

    /// Commits, in one phase or after `prepare`. An error of a one-phase commit leaves nothing of the transaction.
    pub fn commit(&mut self) -> Result<()> {
        self.forget_old_kill();
        self.written.iter().for_each(|table| table.changes.commit_begins());
        let result = if self.used { self.txn.commit() } else { Ok(()) };
        self.note_changes();
        // Even after an error its rows may be visible.
        for table in self.filled.drain(..) {
            table.raise_min_snapshot(self.store.engine().visible());
        }
        self.finish();
        Ok(result?)
    }

    /// Undoes the transaction and releases its locks.
    pub fn rollback(&mut self) -> Result<()> {
        let result = if self.used { self.txn.rollback() } else { Ok(()) };
        self.finish();
        Ok(result?)
    }

    /// A mark to go back to.
    pub fn savepoint(&self) -> kv::Savepoint {
        self.txn.savepoint()
    }

    /// Undoes the writes since the mark. A mark within the running statement (a trigger's) leaves what the statement has to
    /// undo if it fails.
    pub fn rollback_to(&mut self, savepoint: kv::Savepoint) {
        self.txn.rollback_to(savepoint);
        self.writes += 1;
        if let Some(statement) = &mut self.statement {
            *statement = savepoint.min(*statement);
        }
    }

    /// True if the transaction wrote rows.
    pub fn has_writes(&self) -> bool {
        self.txn.has_writes()
    }

    /// True between `prepare` and the end of the transaction.
    pub fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Ends the session: a prepared transaction stays with the engine under its id, another is rolled back.
    pub fn close(mut self) -> Result<()> {
        self.kill.set_owner(None);
        if self.txn.is_prepared() {
            self.txn.detach();
            return Ok(());
        }
        self.rollback()
    }

    /// To be called before a locked row is written or deleted. True if it has changed since the read point and this is its
    /// first write: then all entries of the new row must be put.
    pub(crate) fn overwrites(&mut self, key: &[u8]) -> Result<bool> {
        let first = self.changed_since_read_point(key)? && !self.txn.wrote(key)?;
        self.overwrote |= first;
        Ok(first)
    }

    /// Of a row that the transaction has locked.
    fn changed_since_read_point(&self, key: &[u8]) -> Result<bool> {
        let Some(point) = &self.point else { return Ok(false) };
        Ok(self.store.engine().changed_since(key, point.seq())?)
    }

    /// True if `overwritten_entry` may say yes.
    pub(crate) fn has_overwritten(&self) -> bool {
        self.overwrote
    }

    /// True if a consistent read must skip this entry of the row at `key`: the own row is another one.
    pub(crate) fn overwritten_entry(&self, key: &[u8], entry: &[u8]) -> Result<bool> {
        Ok(self.overwrote && self.txn.wrote(key)? && !self.txn.wrote(entry)? && self.changed_since_read_point(key)?)
    }

    /// To be called before an entry of a unique index, whose key is its value alone, is written or deleted: once the row has
    /// been locked, and for another value the key too.
    pub(crate) fn writes_unique(&mut self, key: &[u8]) -> Result<()> {
        if !self.handed_over && self.changed_since_read_point(key)? {
            self.handed_over = true;
            // Scans that are open need a second cursor from now on.
            self.epoch += 1;
        }
        Ok(())
    }

    /// True if the transaction's unique entries may lie over those of rows that it has not written.
    pub(crate) fn has_handed_over(&self) -> bool {
        self.handed_over
    }

    fn drop_read_point(&mut self) {
        self.overwrote = false;
        self.handed_over = false;
        if self.point.take().is_some() {
            self.epoch += 1;
        }
    }

    fn finish(&mut self) {
        self.in_statement = false;
        self.begun = false;
        self.time = None;
        if self.past.take().is_some() {
            self.epoch += 1;
        }
        self.transactions += 1;
        self.prepared = false;
        self.statement = None;
        self.latest_lock.clear();
        self.absent.clear();
        self.filled.clear();
        self.written.clear();
        self.drop_read_point();
        self.kill.note_end();
        if self.used {
            self.txn.owner().set_tag(self.kill.connection());
            self.kill.set_owner(Some(self.txn.owner().clone()));
            self.used = false;
        }
    }
}
