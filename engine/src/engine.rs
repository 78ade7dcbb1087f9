//! The façade: a store that is open.
//!
//! `Core` is what the parts share; `Engine` is the public handle. Lock order inside the engine
//! (docs/develop/invariants.md): commit order -> state change -> queue; manifest -> state change; nothing is held
//! across I/O but the manifest mutex, which only background work and index drops take.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock};

use crate::background::Background;
use crate::base::limits::{check_key, check_value};
use crate::base::slots;
use crate::base::value::ValueOut;
use crate::base::{Error, FileNo, IndexId, Kind, Lsn, Result, SeqNo, TxnId};
use crate::budget::{Beside, cache_capacity};
use crate::commit::{Committer, Sinks};
use crate::crash_point::CrashPoint;
use crate::drops::Drops;
use crate::install::Installer;
use crate::io::{Blocking, BoundedDisk, Waiting};
use crate::lock::{LockOwner, LockTable};
use crate::manifest::{FEATURES, Feature, FileEntry, ObsoleteFiles};
use crate::metrics::{Metric, Metrics};
use crate::options::{Compression, Durability, Options};
use crate::read::{IndexStats, RangeEstimate};
use crate::read_point::{ReadPoint, ReadPoints};
use crate::spill::SstOpener;
use crate::sst::BlockCache;
use crate::sst::Sst;
use crate::state::{Mem, StateCell};
use crate::txn::{Cursor, Txn};
use crate::wal::{Log, Room};
use crate::write_buffer::{WriteBuffer, files_of};
use crate::{inventory, metrics, read, recover};

/// Smallest memtable budget in bytes: four memtables of a useful size.
const MEMTABLE_BUDGET_MIN: u64 = 2 << 20;

/// Dead rows that a seek may step over, some tenths of a millisecond, before something is done about them.
pub(crate) const DEAD_RUN: u64 = 4096;
/// Keys looked at to find out whether they lie in the memtable.
const DEAD_RUN_SAMPLE: u64 = 64;
/// Least memory for the writes of a transaction in bytes.
const TRANSACTION_BYTES_MIN: u64 = 8 << 20;

/// Smallest target of the base level in bytes.
const BASE_BYTES_MIN: u64 = 16 << 20;

/// How long the end of a prepared transaction waits for the session that holds it to go.
const DETACH_PATIENCE: Duration = Duration::from_secs(10);

/// A prepared transaction that no session holds.
pub(crate) struct Detached {
    pub id: TxnId,
    pub owner: Arc<LockOwner>,
    /// An earlier opening wrote its files: nobody has read them since.
    pub is_recovered: bool,
}

/// One operation of an autonomous write: a key, and its new value or `None` to delete it.
pub type WriteOp = (Vec<u8>, Option<Vec<u8>>);

impl SstOpener for Core {
    fn sst<'a>(&self, file: &'a FileEntry) -> Result<&'a Arc<Sst>> {
        Core::sst(self, file)
    }
}

/// Work of the layer above that is done now and then. The handle it gets does not keep the store open.
pub type Chore = Box<dyn Fn(&Engine) + Send + Sync>;

/// Room in the log and in memory for a write to come; see [`Engine::room`].
pub struct WriteRoom<'a> {
    room: Room<'a>,
    bytes: usize,
}

impl WriteRoom<'_> {
    /// The most bytes that the write may have, as [`Engine::write_bytes`] counts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A write that is ordered and visible; durable once [`Engine::sync_write`] has returned.
#[must_use]
pub struct Written {
    /// Its sequence number.
    pub seq: SeqNo,
    log_end: Lsn,
}

/// What the parts of an open store share.
pub(crate) struct Core {
    pub dir: PathBuf,
    pub options: Options,
    pub log: Log,
    pub committer: Committer,
    pub states: StateCell,
    pub locks: LockTable,
    pub read_points: ReadPoints,
    pub installer: Installer,
    pub prepared: Mutex<BTreeMap<Vec<u8>, Detached>>,
    /// Signalled when one more is there.
    pub detached: Condvar,
    pub cache: Arc<BlockCache>,
    pub obsolete_files: Arc<ObsoleteFiles>,
    pub next_file: AtomicU64,
    pub background: Background,
    /// Bytes of the write buffers of open transactions, in steps; see [`crate::txn`].
    pub write_buffer_bytes: AtomicU64,
    pub drops: Mutex<Drops>,
    pub compressions: RwLock<BTreeMap<IndexId, Compression>>,
    durability: AtomicU8,
    memtable_budget: AtomicU64,
    cache_budget: AtomicU64,
    /// See [`Engine::on_housekeeping`].
    pub chore: OnceLock<Chore>,
    /// Held while the store is open.
    _dir_lock: Box<dyn Send + Sync>,
}

impl Core {
    pub fn read_point(&self) -> ReadPoint {
        self.read_points.register(|| self.committer.visible())
    }

    /// The reader of an SST, opened on first use.
    pub fn sst<'a>(&self, file: &'a FileEntry) -> Result<&'a Arc<Sst>> {
        if let Some(sst) = file.sst.get() {
            return Ok(sst);
        }
        let path = sst_path(&self.dir, file.meta.no);
        let stamp = file.meta.stamped.then_some(file.meta.max_seq);
        let sst = {
            let (no, life) = (file.meta.no, file.life().clone());
            Sst::open_kept(&self.options.disk, &path, no, self.cache.clone(), stamp, Some(life))?
        };
        Ok(file.sst.get_or_init(|| sst))
    }

    pub fn new_file(&self) -> FileNo {
        FileNo(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    pub fn memtable_budget(&self) -> u64 {
        self.memtable_budget.load(Ordering::Relaxed)
    }

    /// The budget of the block cache, in bytes.
    pub fn cache_budget(&self) -> u64 {
        self.cache_budget.load(Ordering::Relaxed)
    }

    /// Leaves the block cache what its budget has for it.
    pub fn share_memory(&self) {
        let beside = Beside {
            tables: self.states.load().version.sst_bytes(),
            log: self.log.buffer_bytes(),
            buffers: self.write_buffer_bytes.load(Ordering::Relaxed),
            pinned: self.states.pinned_bytes(),
            large: slots::large_bytes() as u64 + self.cache.bypass_bytes(),
            compactors: self.background.compactors() as u64,
        };
        self.cache.set_capacity(cache_capacity(self.cache_budget(), beside) as usize);
    }

    /// Where commits go. The active memtable is sealed at a quarter of the budget.
    pub fn sinks(&self) -> Sinks<'_> {
        Sinks {
            log: &self.log,
            states: &self.states,
            seal_bytes: self.memtable_budget() / 4,
            obsolete_files: &self.obsolete_files,
        }
    }

    /// Memory of a write buffer at which it is spilled.
    pub fn transaction_bytes(&self) -> usize {
        match self.options.transaction_bytes {
            0 => (self.memtable_budget() / 32).max(TRANSACTION_BYTES_MIN) as usize,
            bytes => bytes as usize,
        }
    }

    /// Deletes the files of a large transaction that was rolled back for good. Nobody reads them.
    pub fn give_up_files(&self, batch: &[u8]) {
        let files = files_of(batch).unwrap_or_default();
        files.iter().for_each(|meta| self.obsolete_files.add(meta.no));
        if !files.is_empty() {
            self.background.wake_cleaner();
        }
    }

    /// Target size of the base level: what a full set of memtables brings, so that merging level 0 into it rewrites about
    /// as much as it adds.
    pub fn base_bytes(&self) -> u64 {
        self.memtable_budget().max(BASE_BYTES_MIN)
    }

    /// Size at which tables are cut: a part of the base level, so that it moves down in pieces.
    pub fn sst_bytes(&self) -> u64 {
        self.options.sst_bytes.min(self.base_bytes() / 4)
    }

    pub fn durability(&self) -> Durability {
        Durability::from_number(u32::from(self.durability.load(Ordering::Relaxed))).unwrap_or(Durability::EveryCommit)
    }

    /// Makes the log up to `end` as durable as the store promises.
    pub fn make_durable(&self, end: Lsn) -> Result<()> {
        match self.durability() {
            Durability::EveryCommit => self.log.sync(end),
            Durability::OsEveryCommit => self.log.write(end),
            // Nothing is promised of this commit, but after a failure nothing is acknowledged.
            Durability::EverySecond => self.log.check(),
        }
    }

    /// Lets a writer of `bytes` pass, slowed by what background work lags behind, and gives it room in the log. Called
    /// before any order is taken: a full disk refuses the write while nothing has happened.
    pub fn admit(&self, bytes: usize, is_interrupted: &dyn Fn() -> bool) -> Result<Room<'_>> {
        self.background.admit(self, bytes as u64, is_interrupted)?;
        self.log.reserve(bytes)
    }

    /// Stops all writing, as a failed write of the log does: nothing is acknowledged any more until the store has been
    /// opened again.
    pub fn stop_writing(&self, cause: &Error) {
        self.log.stop(cause.clone());
    }

    /// Tells whoever watches that a transaction has come to this crash point.
    #[inline]
    pub fn crash_point(&self, point: CrashPoint) {
        if let Some(hook) = &self.options.on_crash_point {
            hook(point);
        }
    }

    /// Logs that a prepared transaction is rolled back; where the log must be durable to for that to be certain, and
    /// what the transaction had written.
    pub fn rollback_prepared(&self, id: TxnId) -> Result<(Lsn, Arc<[u8]>)> {
        self.crash_point(CrashPoint::RollbackBegins);
        let undone = self.committer.rollback_prepared(&self.log, id)?;
        self.crash_point(CrashPoint::RollbackLogged);
        Ok(undone)
    }

    /// Log that a memtable may keep before it is sealed for that reason alone. Small commits, each synced, take a page of
    /// log and a few hundred bytes of memtable; what they keep must not force small tables on everybody.
    pub fn log_bytes_max(&self) -> u64 {
        (8 * self.memtable_budget()).max(16 * self.options.log_segment_bytes)
    }

    /// Log that prepared transactions may hold back without anything being done about it.
    pub fn prepared_slack(&self) -> u64 {
        (2 * self.options.log_segment_bytes).max(self.memtable_budget() / 16)
    }

    /// Cheap; wakes the flusher if there is something to flush.
    pub fn after_commit(&self) {
        let state = self.states.load();
        let mut wake = !state.sealed.is_empty();
        if state.active.table.bytes() as u64 > self.memtable_budget() / 2 {
            // Nobody may come to seal it, and it has twice what it should: a long value at the end.
            self.committer.seal_full(self.sinks(), &state.active);
            wake = true;
        }
        if wake {
            self.background.wake_flush();
        }
    }

    /// A seek found `DEAD_RUN` dead rows or more in `[from, to)`. If they lie in the active memtable, as at the head of a
    /// table that is used as a queue, it is sealed early: its flush drops rows that came and went in it. Others are
    /// the business of compaction, which counts tombstones as garbage.
    #[cold]
    pub fn passed_dead_run(&self, from: &[u8], to: &[u8]) {
        let state = self.states.load();
        // While a flush is under way, the run may lie in what it is about to drop.
        if state.sealed.is_empty() && state.active.table.estimate_keys(from, to, DEAD_RUN_SAMPLE) >= DEAD_RUN / 2 {
            self.committer.seal(self.sinks(), self.log_bytes_max());
            self.background.wake_flush();
        }
    }

    /// The compression of an index: its own, or the default.
    pub fn compression(&self, id: IndexId) -> Compression {
        self.compressions.read().get(&id).copied().unwrap_or(Compression::Zstd)
    }
}

pub(crate) fn sst_path(dir: &Path, no: FileNo) -> PathBuf {
    dir.join(format!("{:012}.sst", no.0))
}

fn check_ops(ops: &[WriteOp]) -> Result<()> {
    ops.iter().try_for_each(|(key, value)| {
        check_key(key)?;
        check_value(value.as_ref().map_or(0, Vec::len))
    })
}

/// An open store. Cheap to clone; the last clone to drop closes it.
#[derive(Clone)]
pub struct Engine {
    core: Arc<Core>,
    /// `None` in the hands of the threads themselves.
    _threads: Option<Arc<Threads>>,
}

/// Ends the background threads when the last handle goes.
struct Threads(Arc<Core>);

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.background.stop(&self.0);
    }
}

pub(crate) struct Parts {
    pub options: Options,
    pub dir: PathBuf,
    pub log: Log,
    pub committer: Committer,
    pub states: StateCell,
    pub locks: LockTable,
    pub installer: Installer,
    pub prepared: BTreeMap<Vec<u8>, Detached>,
    pub cache: Arc<BlockCache>,
    pub next_file: FileNo,
    pub obsolete_files: Arc<ObsoleteFiles>,
    pub dir_lock: Box<dyn Send + Sync>,
}

impl Engine {
    /// Opens the store in `dir`, creating it if the directory holds none, and recovers what a crash left behind.
    /// Fails with `Error::InUse` if another process has it open.
    pub fn open(dir: &Path, options: Options) -> Result<Engine> {
        let mut options = options;
        options.disk = Arc::new(BoundedDisk::new(options.disk, options.open_files));
        options.memtable_budget_bytes = options.memtable_budget_bytes.max(MEMTABLE_BUDGET_MIN);
        let parts = recover::recover(dir, options)?;
        let core = Arc::new(Core {
            durability: AtomicU8::new(parts.options.durability as u8),
            memtable_budget: AtomicU64::new(parts.options.memtable_budget_bytes),
            cache_budget: AtomicU64::new(parts.options.block_cache_bytes),
            read_points: ReadPoints::new(),
            background: Background::new(parts.options.compaction_threads.max(1)),
            write_buffer_bytes: AtomicU64::new(0),
            drops: Mutex::default(),
            compressions: RwLock::new(BTreeMap::new()),
            dir: parts.dir,
            options: parts.options,
            log: parts.log,
            committer: parts.committer,
            states: parts.states,
            locks: parts.locks,
            installer: parts.installer,
            prepared: Mutex::new(parts.prepared),
            detached: Condvar::new(),
            cache: parts.cache,
            obsolete_files: parts.obsolete_files,
            next_file: AtomicU64::new(parts.next_file.0),
            chore: OnceLock::new(),
            _dir_lock: parts.dir_lock,
        });
        let options = &core.options;
        if let Some(tell) = options.on_stop.clone() {
            core.log.on_stop(Box::new(move |error| tell(&error.to_string())));
        } else if let Some(report) = options.on_report.clone() {
            core.log.on_stop(Box::new(move |error| report(&format!("the store has stopped: {error}"))));
        }
        core.share_memory();
        Background::start(&core)?;
        core.after_commit();
        Ok(Engine { _threads: Some(Arc::new(Threads(core.clone()))), core })
    }

    /// Says that the store uses a feature from now on: whoever does not know it is refused. Durable when this returns, so it
    /// comes before the first use. Nothing happens if the store uses it already. On a full disk, too, there is room for it.
    ///
    /// Errors: `Invalid` if the store was opened by somebody who does not know the feature; `Io` and `Poisoned` if the manifest
    /// could not be written, with nothing changed at `Io`.
    pub fn require(&self, feature: &Feature) -> Result<()> {
        if !FEATURES.iter().chain(self.core.options.features).any(|known| known.name() == feature.name()) {
            return Err(Error::Invalid(format!("the feature {} is not one that this opening knows", feature.name())));
        }
        self.core.installer.require(&self.core, feature)
    }

    /// The features that the store uses, by name.
    pub fn features(&self) -> Vec<Feature> {
        self.core.installer.features()
    }

    /// Fails, naming the cause, if the store has stopped after a failure: what is in memory may then hold commits that
    /// never become durable, and lack others that the server's coordinator has decided. Not more than a load otherwise.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.core.log.check()
    }

    /// A new transaction.
    pub fn begin(&self) -> Txn {
        Txn::new(self.core.clone())
    }

    /// A new cursor; see [`Cursor::open`].
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.core.clone())
    }

    /// Newest committed sequence number that readers may use.
    pub fn visible(&self) -> SeqNo {
        self.core.committer.visible()
    }

    /// A snapshot of what is visible now; what it needs is kept until it drops.
    pub fn read_point(&self) -> ReadPoint {
        self.core.read_point()
    }

    /// A snapshot of every transaction whose order is fixed and of no other: under the server's commit-order mutex this
    /// is exactly the state at the binlog position. Short, for that mutex's sake; before the first read at the point, and
    /// outside of the mutex, [`Engine::await_visible`] must be called.
    pub fn read_point_ordered(&self) -> ReadPoint {
        self.core.read_points.register(|| self.core.committer.last_assigned())
    }

    /// Returns once everything up to `seq` is visible. Not more than a load if it is.
    pub fn await_visible(&self, seq: SeqNo) {
        self.core.committer.publish(seq);
    }

    /// Reads committed data only; see [`Txn::get`].
    pub fn get_at(&self, key: &[u8], read: SeqNo, out: &mut impl ValueOut) -> Result<bool> {
        read::get(&self.core, key, read, out)
    }

    /// True if a commit after `read` wrote `key`, be it that it deleted it. What such commits have both brought in and taken
    /// back may be forgotten. For a key that the caller has locked the answer stays.
    pub fn changed_since(&self, key: &[u8], read: SeqNo) -> Result<bool> {
        if self.core.committer.visible() <= read {
            return Ok(false);
        }
        read::changed_since(&self.core, key, read)
    }

    /// An atomic write of its own, outside any transaction and without locks; visible when this returns, durable if
    /// `durable`. Later commits never become durable before it. It waits for memory, and nobody can end that: a statement, which
    /// can be killed, takes [`Engine::room`] itself.
    pub fn write(&self, ops: &[WriteOp], durable: bool) -> Result<SeqNo> {
        self.write_alone(ops, durable, false)
    }

    /// As [`Engine::write`], for what helps to free space: for it there is room on a full disk, too, and it does not wait
    /// for memory.
    pub fn write_relief(&self, ops: &[WriteOp], durable: bool) -> Result<SeqNo> {
        self.write_alone(ops, durable, true)
    }

    fn write_alone(&self, ops: &[WriteOp], durable: bool, relief: bool) -> Result<SeqNo> {
        if ops.is_empty() {
            return Ok(self.visible());
        }
        check_ops(ops)?;
        let bytes = Engine::write_bytes(ops);
        let room = if relief { self.room_for_relief(bytes)? } else { self.room(bytes, &|| false)? };
        let written = self.write_within(room, ops)?;
        if durable {
            self.sync_write(&written)?;
        }
        Ok(written.seq)
    }

    /// At most so many bytes do these operations take in a write.
    pub fn write_bytes(ops: &[WriteOp]) -> usize {
        // Each has a kind, two lengths, and a place in the index of the batch.
        ops.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len) + 64).sum()
    }

    /// The first step of a write in three, for who must order his writes under a lock and not do I/O there: room for so many
    /// bytes, with all waits and errors for want of memory and space. The wait for memory fails with `Interrupted` once
    /// `is_interrupted` says so.
    pub fn room(&self, bytes: usize, is_interrupted: &dyn Fn() -> bool) -> Result<WriteRoom<'_>> {
        Ok(WriteRoom { room: self.core.admit(bytes, is_interrupted)?, bytes })
    }

    /// As [`Engine::room`], on the terms of [`Engine::write_relief`]: nothing is waited for.
    pub fn room_for_relief(&self, bytes: usize) -> Result<WriteRoom<'_>> {
        Ok(WriteRoom { room: self.core.log.reserve_relief(bytes)?, bytes })
    }

    /// The second step, without I/O: the write is ordered and visible when this returns. What is ordered later never becomes
    /// durable before it; if it does not become durable, the store stops.
    pub fn write_within(&self, room: WriteRoom<'_>, ops: &[WriteOp]) -> Result<Written> {
        check_ops(ops)?;
        let mut buffer = WriteBuffer::new();
        for (key, value) in ops {
            match value {
                Some(value) => buffer.push(Kind::Put, key, value),
                None => buffer.push(Kind::Delete, key, &[]),
            }
        }
        if buffer.is_empty() || buffer.bytes() > room.bytes {
            let (bytes, most) = (buffer.bytes(), room.bytes);
            return Err(Error::Invalid(format!("a write of {bytes} bytes, where there is room for 1 to {most}")));
        }
        let core = &self.core;
        let batch = buffer.encode();
        let ordered = core.committer.order_batch(core.sinks(), batch)?;
        drop(room.room);
        core.committer.apply_own(&ordered, batch);
        core.committer.count_internal();
        core.after_commit();
        Ok(Written { seq: ordered.seq, log_end: ordered.log_end })
    }

    /// The third step: the write is durable when this returns.
    pub fn sync_write(&self, written: &Written) -> Result<()> {
        self.core.log.sync(written.log_end)
    }

    /// Tells whoever watches that a change of tables has come to this crash point.
    #[inline]
    pub fn crash_point(&self, point: CrashPoint) {
        self.core.crash_point(point);
    }

    /// Has the thread that keeps house do something each second. The first call counts.
    pub fn on_housekeeping(&self, chore: Chore) {
        drop(self.core.chore.set(chore));
    }

    /// Does what is to be done each second.
    pub(crate) fn do_chore(core: &Arc<Core>) {
        if let Some(chore) = core.chore.get() {
            chore(&Engine { core: core.clone(), _threads: None });
        }
    }

    /// Drops whole indexes: durable when this returns. The ids must never be written again. Cursors that are open on
    /// them keep reading; the space comes back in the background.
    pub fn drop_indexes(&self, ids: &[IndexId]) -> Result<()> {
        self.core.installer.drop_indexes(&self.core, ids)
    }

    /// Whether these indexes have any file for themselves, which goes with them.
    pub fn own_files(&self, ids: &[IndexId]) -> bool {
        let state = self.core.states.pin();
        let mut files = ids.iter().flat_map(|&id| state.version.holding(id));
        files.any(|(_, file)| file.meta.indexes().all(|id| ids.contains(&id)))
    }

    /// The indexes that the store holds keys of, but those that are dropped and what open transactions have written.
    pub fn indexes(&self) -> Result<BTreeSet<IndexId>> {
        let mut found = inventory::indexes(&self.core.states.pin())?;
        found.retain(|&id| !self.core.installer.is_dropped(id));
        Ok(found)
    }

    /// Where the newest version of a key is stored, for reports of damage in it: a file, or memory, which came out of the log.
    pub fn place_of(&self, key: &[u8]) -> String {
        let state = self.core.states.pin();
        let lookup = |mem: &Arc<Mem>| mem.table.get(key, SeqNo::MAX).is_some();
        let mut place = format!("the log in {}", self.core.dir.join("log").display());
        if !state.memtables().any(lookup) {
            let holds = |file: &Arc<FileEntry>| {
                let found = self.core.sst(file)?.get(key, SeqNo::MAX)?.is_some();
                if found {
                    place = sst_path(&self.core.dir, file.meta.no).display().to_string();
                }
                Ok(found)
            };
            // A file that cannot be read is not to blame.
            drop(state.version.visit(key, holds));
        }
        place
    }

    /// Estimates the content of a key range without reading data.
    pub fn range_estimate(&self, lower: &[u8], upper: &[u8]) -> Result<RangeEstimate> {
        read::estimate(&self.core, lower, upper)
    }

    /// Microseconds of the store's clock.
    pub fn now_us(&self) -> u64 {
        self.core.options.clock.now_us()
    }

    /// The state that sizes and estimates are of: as long as it stays, so do they.
    pub fn sizes_state(&self) -> (SeqNo, u64) {
        // In this order: what changes in between is newer than the state that is told.
        let changes = self.core.states.changes();
        (self.visible(), changes)
    }

    /// Sizes of an index.
    pub fn index_stats(&self, id: IndexId) -> IndexStats {
        read::index_stats(&self.core, id)
    }

    /// Reads every block of an index's tables and verifies checksums and order.
    pub fn verify_index(&self, id: IndexId) -> Result<()> {
        self.verify_index_with(id, &|| Ok(()))
    }

    /// As `verify_index`; `tick` is called again and again, and its error ends the work.
    pub fn verify_index_with(&self, id: IndexId, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        let state = self.core.states.pin();
        for run in state.file_runs(&id.prefix(), &IndexId(id.0 + 1).prefix()) {
            for file in run {
                let sst = self.core.sst(file)?;
                match file.meta.is_shared() {
                    true => sst.verify_part(id, tick)?,
                    false => sst.verify_with(tick)?,
                }
            }
        }
        Ok(())
    }

    /// Seals the active memtable and waits until everything is in SSTs.
    pub fn flush(&self) -> Result<()> {
        self.flush_with(&|| Ok(()))
    }

    fn flush_with(&self, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        self.core.committer.seal(self.core.sinks(), self.core.log_bytes_max());
        self.core.background.flush_and_wait(&self.core, tick)
    }

    /// Flushes, then merges everything in `[lower, upper)` down to the last level.
    pub fn compact_range(&self, lower: &[u8], upper: &[u8]) -> Result<()> {
        self.compact_range_with(lower, upper, &|| Ok(()))
    }

    /// As `compact_range`; `tick` is called again and again, and its error ends the work. What was merged by then stays.
    pub fn compact_range_with(&self, lower: &[u8], upper: &[u8], tick: &dyn Fn() -> Result<()>) -> Result<()> {
        self.flush_with(tick)?;
        self.core.background.compact_range(&self.core, lower, upper, tick)
    }

    /// Waits until no compaction is running or due (tests, benchmarks).
    pub fn wait_idle(&self) -> Result<()> {
        self.core.background.wait_idle(&self.core)
    }

    /// Everything committed so far is durable when this returns.
    pub fn sync(&self) -> Result<()> {
        self.core.log.sync(self.core.log.records_end())
    }

    /// Everything committed so far is as durable as the store's setting says when this returns.
    pub fn make_durable(&self) -> Result<()> {
        self.core.make_durable(self.core.log.end())
    }

    /// Ids of prepared transactions that no session holds.
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        self.core.prepared.lock().keys().cloned().collect()
    }

    /// Whether a prepared transaction, with or without a session, writes to one of these indexes.
    pub fn prepared_writes(&self, indexes: &[IndexId]) -> bool {
        self.core.committer.prepared_writes(indexes)
    }

    /// Commits a transaction listed by `prepared`; durable when this returns. False if there is none of this id.
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<bool> {
        let Some(prepared) = self.take_detached(xid) else { return Ok(false) };
        let core = &self.core;
        let sound = if prepared.is_recovered { recover::check_spilled(core, prepared.id) } else { Ok(()) };
        core.crash_point(CrashPoint::OrderBegins);
        let ordered = match sound.and_then(|()| core.committer.order_prepared(core.sinks(), prepared.id)) {
            Ok(ordered) => ordered,
            Err(error) => {
                // Still prepared, in the log as in memory.
                core.prepared.lock().insert(xid.to_vec(), prepared);
                return Err(error);
            }
        };
        core.crash_point(CrashPoint::Ordered);
        core.committer.publish(ordered.seq);
        core.locks.release_all(&prepared.owner);
        core.after_commit();
        core.crash_point(CrashPoint::CommitVisible);
        core.log.sync(ordered.log_end)?;
        core.crash_point(CrashPoint::CommitDurable);
        Ok(true)
    }

    /// The prepared transaction of this id that no session holds, for its end. The server lets others end a transaction a
    /// moment before the session that prepared it lets go of it, and takes no "there is none" for an answer: it would tell
    /// the client that it is done. So that moment is waited for.
    fn take_detached(&self, xid: &[u8]) -> Option<Detached> {
        let core = &self.core;
        let mut prepared = core.prepared.lock();
        let found = prepared.remove(xid);
        if found.is_some() || !core.committer.is_prepared(xid) {
            return found;
        }
        // A pool of threads may need another one to run the session that lets go.
        drop(prepared);
        let _waiting = Waiting::begin(Blocking::Lock);
        let mut prepared = core.prepared.lock();
        let until = Instant::now() + DETACH_PATIENCE;
        loop {
            if let Some(found) = prepared.remove(xid) {
                return Some(found);
            }
            if !core.committer.is_prepared(xid) || core.detached.wait_until(&mut prepared, until).timed_out() {
                return prepared.remove(xid);
            }
        }
    }

    /// Rolls back a transaction listed by `prepared`; durable when this returns. False if there is none of this id.
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<bool> {
        let Some(prepared) = self.take_detached(xid) else { return Ok(false) };
        let core = &self.core;
        match core.rollback_prepared(prepared.id) {
            Ok((end, batch)) => {
                core.locks.release_all(&prepared.owner);
                // The files may go only when nothing durable asks for them any more.
                core.log.sync(end)?;
                core.give_up_files(&batch);
                core.crash_point(CrashPoint::RolledBack);
                Ok(true)
            }
            Err(error) => {
                core.prepared.lock().insert(xid.to_vec(), prepared);
                Err(error)
            }
        }
    }

    /// Gives a transaction listed by `prepared` another id; durable when this returns. False if there is none of this id. It
    /// is an error if another one has the new id.
    pub fn rename_prepared(&self, xid: &[u8], to: &[u8]) -> Result<bool> {
        let core = &self.core;
        if core.committer.is_prepared(to) {
            return Err(Error::Invalid("a prepared transaction has the new id already".into()));
        }
        let Some(prepared) = self.take_detached(xid) else { return Ok(false) };
        let renamed = core.committer.rename_prepared(&core.log, prepared.id, to);
        let now = if renamed.is_ok() { to } else { xid };
        core.prepared.lock().insert(now.to_vec(), prepared);
        core.log.sync(renamed?)?;
        Ok(true)
    }

    /// Chooses when commits are durable, from now on.
    pub fn set_durability(&self, durability: Durability) {
        self.core.durability.store(durability as u8, Ordering::Relaxed);
    }

    /// Resizes the budget of the block cache.
    pub fn set_block_cache_bytes(&self, bytes: u64) {
        self.core.cache_budget.store(bytes, Ordering::Relaxed);
        self.core.share_memory();
    }

    /// Resizes the memtable budget.
    pub fn set_memtable_budget_bytes(&self, bytes: u64) {
        self.core.memtable_budget.store(bytes.max(MEMTABLE_BUDGET_MIN), Ordering::Relaxed);
    }

    /// Chooses the compression of an index's future tables.
    pub fn set_index_compression(&self, id: IndexId, compression: Option<Compression>) {
        let mut map = self.core.compressions.write();
        match compression {
            Some(compression) => map.insert(id, compression),
            None => map.remove(&id),
        };
    }

    /// The lock table, for reports.
    pub fn locks(&self) -> &LockTable {
        &self.core.locks
    }

    /// Hands a line to whoever is told about failures ([`Options::on_report`]).
    pub fn report(&self, text: &str) {
        self.core.options.report(text);
    }

    /// Numbers about the store.
    pub fn metrics(&self) -> Metrics {
        Metrics::collect(&self.core)
    }

    /// A report for people: the figures of the store, and failures.
    pub fn status_text(&self) -> String {
        self.status_text_with(&[])
    }

    /// The same, with figures of the layer above.
    pub fn status_text_with(&self, more: &[(&'static Metric, u64)]) -> String {
        metrics::status_text(&self.core, more)
    }

    /// Stops background work, ends the log with a unit that witnesses everything before it, and writes down in the
    /// manifest how far the log reaches, so that the next opening notices any loss. Memtables are not flushed: the log
    /// has what they hold.
    pub fn close(&self) -> Result<()> {
        self.core.background.stop(&self.core);
        self.core.log.seal()?;
        self.core.installer.note_log(&self.core)
    }
}
