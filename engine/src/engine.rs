//! The façade: a store that is open. It puts the parts together ([`crate::parts`]) and hands on what is asked of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, RwLock};

mod encryption;
mod prepared;
mod upkeep;

use crate::background::{self, Threads};
use crate::base::value::ValueOut;
use crate::base::{Error, IndexId, Result, SeqNo};
use crate::checkpoint::{Checkpoint, CheckpointSize};
use crate::compact::merge::Rule;
use crate::crash_point::CrashPoint;
use crate::event::{Event, FlushReason, Pace, Work};
use crate::inventory::{Holding, Level};
use crate::io::{BoundedDisk, MemDisk};
use crate::keyspace::{Keyspace, Keyspaces};
use crate::lock::LockTable;
use crate::manifest::{FEATURES, Feature};
use crate::metrics::{Metric, Metrics};
use crate::options::{Compression, Durability, Options};
use crate::parts::Core;
use crate::past::{self, Past};
use crate::read::{IndexStats, RangeCount, RangeEstimate};
use crate::read_point::ReadPoint;
use crate::renewal::{Moment, Renewal};
use crate::sorter::{NotedKeys, Sorter};
use crate::txn::{Cursor, Txn};
use crate::write::{Purpose, WriteOp, WriteRoom, Written};
use crate::{inventory, metrics, read, recover, write};

/// Work of the layer above that is done now and then. The handle it gets does not keep the store open.
pub type Chore = Box<dyn Fn(&Engine) + Send + Sync>;

/// An open store. Cheap to clone, and shared by any number of threads. It ends when the last of its clones, snapshots, transactions
/// and ranges drops; [`Engine::close`] tells what comes of that.
///
/// Methods that speak of indexes, sequence numbers, [`Txn`] or prepared transactions are for a [layer](crate::layer) above.
///
/// ```
/// use strata_engine::{Engine, Options};
/// # fn main() -> strata_engine::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("strata-doc-engine-{}", std::process::id()));
/// let engine = Engine::open(&dir, Options::default())?;
/// let notes = engine.keyspace("notes")?;
/// engine.put(&notes, "first", "It was a dark and stormy night.")?;
/// engine.close()?;
/// drop(engine);
///
/// let engine = Engine::open(&dir, Options::default())?;
/// let notes = engine.keyspace("notes")?;
/// assert!(engine.get(&notes, "first")?.is_some());
/// engine.delete(&notes, "first")?;
/// assert!(engine.get(&notes, "first")?.is_none());
/// # drop(engine);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
    pub(crate) keyspaces: Arc<Keyspaces>,
    past: Arc<Past>,
    chores: Arc<RwLock<Vec<Arc<Chore>>>>,
    /// `None` in the hands of the threads themselves.
    threads: Option<Arc<Threads>>,
}

impl Engine {
    /// Opens the store in `dir`, creating it if the directory holds none, and recovers what a crash left behind.
    /// Fails with `Error::InUse` if another process has it open.
    pub fn open(dir: &Path, options: Options) -> Result<Engine> {
        let mut options = options;
        options.disk = Arc::new(BoundedDisk::new(options.disk, options.open_files));
        let core = Arc::new(recover::recover(dir, options)?);
        let parts = Arc::downgrade(&core);
        core.journal.log.on_stop(Box::new(move |cause| {
            if let Some(core) = parts.upgrade() {
                core.events.stopped(cause);
            }
        }));
        core.share_memory();
        let past = Arc::new(Past::open(&core)?);
        let keyspaces = Arc::new(Keyspaces::open(&core)?);
        let chores: Arc<RwLock<Vec<Arc<Chore>>>> = Arc::default();
        let all_chores = {
            let (keyspaces, past, chores) = (keyspaces.clone(), past.clone(), chores.clone());
            let engine = Engine { core: core.clone(), keyspaces, past, chores, threads: None };
            move || {
                engine.past.keep(&engine.core);
                engine.keyspaces.try_again(&engine.core);
                // The lock is free while they work: one may add another.
                let chores = engine.chores.read().clone();
                chores.iter().for_each(|chore| chore(&engine));
            }
        };
        let threads = Arc::new(Threads::start(&core, Box::new(all_chores))?);
        core.after_commit();
        Ok(Engine { core, keyspaces, past, chores, threads: Some(threads) })
    }

    /// A new store on a disk in memory, which is gone with its last handle. For tests.
    pub fn open_in_memory() -> Result<Engine> {
        Engine::open(Path::new("/"), Options { disk: Arc::new(MemDisk::new()), ..Options::default() })
    }

    /// The keyspace of this name. If there is none it is created: durably, when this returns.
    ///
    /// A name has 1 to 255 bytes. Threads that create the same name get the same keyspace.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is empty or too long. [`Error::Io`] if it cannot be created: nothing has happened.
    /// [`Error::Poisoned`] if the store has stopped.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.keyspaces.get_or_create(&self.core, name)
    }

    /// The keyspace of this name, if there is one.
    pub fn find_keyspace(&self, name: &str) -> Option<Keyspace> {
        self.keyspaces.find(name)
    }

    /// All keyspaces, by name.
    pub fn keyspaces(&self) -> Vec<Keyspace> {
        self.keyspaces.all()
    }

    /// Drops a keyspace with all that is in it: durably, when this returns, and in a moment, whatever its size. The space comes back
    /// in the background. The name may come again, for another keyspace.
    ///
    /// Ranges that are open go on, values that were read stay; every other use of the keyspace fails from now on. A transaction
    /// that has written to it commits without these writes, as if it had committed before. There is room for this on a full disk, too.
    ///
    /// # Errors
    /// [`Error::NoKeyspace`] if it was dropped before, [`Error::LockBusy`] if a prepared transaction has written to it, [`Error::Io`] and
    /// [`Error::Poisoned`] if it could not be recorded.
    pub fn drop_keyspace(&self, keyspace: &Keyspace) -> Result<()> {
        self.keyspaces.remove(&self.core, keyspace)
    }
}

/// For a [layer](crate::layer) above.
impl Engine {
    /// Says that the store uses a feature from now on: whoever does not know it is refused. Durable when this returns, so it
    /// comes before the first use. Nothing happens if the store uses it already. On a full disk, too, there is room for it.
    ///
    /// Errors: `Invalid` if the store was opened by somebody who does not know the feature; `Io` and `Poisoned` if the manifest
    /// could not be written, with nothing changed at `Io`.
    pub fn require(&self, feature: &Feature) -> Result<()> {
        if !FEATURES.iter().chain(self.core.options.features).any(|known| known.name() == feature.name()) {
            return Err(Error::Invalid(format!("the feature {} is not one that this opening knows", feature.name())));
        }
        let noted = self.core.tree.installer.require(feature);
        if noted.inspect_err(|error| self.core.refused(Work::Record, 0, error))? {
            self.core.crash_point(CrashPoint::FeatureNoted);
        }
        Ok(())
    }

    /// The features that the store uses, by name.
    pub fn features(&self) -> Vec<Feature> {
        self.core.tree.installer.features()
    }

    /// Fails, naming the cause, if the store has stopped after a failure: what is in memory may then hold commits that
    /// never become durable, and lack others that the server's coordinator has decided. Not more than a load otherwise.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.core.journal.log.check()
    }

    /// A new transaction.
    pub fn begin(&self) -> Txn {
        Txn::new(self.core.clone())
    }

    /// A new cursor; see [`Cursor::open`].
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.core.clone())
    }

    /// A new sorter.
    pub fn sorter(&self) -> Sorter {
        Sorter::new(&self.core)
    }

    /// A new set of keys that threads note.
    pub fn noted_keys(&self) -> NotedKeys {
        NotedKeys::new(&self.core)
    }

    /// Newest committed sequence number that readers may use.
    pub fn visible(&self) -> SeqNo {
        self.core.tree.states.visible()
    }

    /// A snapshot of what is visible now; what it needs is kept until it drops.
    pub fn read_point(&self) -> ReadPoint {
        self.core.tree.read_point()
    }

    /// A snapshot of every transaction whose order is fixed and of no other: under the server's commit-order mutex this
    /// is exactly the state at the binlog position. Short, for that mutex's sake; before the first read at the point, and
    /// outside of the mutex, [`Engine::await_visible`] must be called.
    pub fn read_point_ordered(&self) -> ReadPoint {
        self.core.tree.read_points.register(|| self.core.journal.committer.last_assigned())
    }

    /// A snapshot of a moment of the past, in seconds since 1970: of what was committed before that second began. Outside of locks, and
    /// before the first read at the point, [`Engine::await_visible`] must be called.
    ///
    /// Errors: [`Error::Moment`] for a moment that is to come, or is not kept.
    pub fn read_point_at(&self, unix_s: u64) -> Result<ReadPoint> {
        past::read_point_at(&self.core, unix_s)
    }

    /// Returns once everything up to `seq` is visible. Not more than a load if it is.
    pub fn await_visible(&self, seq: SeqNo) {
        self.core.journal.committer.publish(seq);
    }

    /// Reads committed data only; see [`Txn::get`].
    pub fn get_at(&self, key: &[u8], read: SeqNo, out: &mut impl ValueOut) -> Result<bool> {
        read::get(&self.core.tree, key, read, out)
    }

    /// True if a commit after `read` wrote `key`, be it that it deleted it. What such commits have both brought in and taken
    /// back may be forgotten. For a key that the caller has locked the answer stays.
    pub fn changed_since(&self, key: &[u8], read: SeqNo) -> Result<bool> {
        if self.core.tree.states.visible() <= read {
            return Ok(false);
        }
        read::changed_since(&self.core.tree, key, read)
    }

    /// An atomic write of its own, outside any transaction and without locks; visible when this returns, durable if
    /// `durable`. Later commits never become durable before it. It waits for memory, and nobody can end that: a statement, which
    /// can be killed, takes [`Engine::room`] itself.
    ///
    /// Unlike a transaction, which forgets what it wrote to indexes that were dropped since, it writes what it is given: the caller
    /// sees to it that no index of it is dropped meanwhile, or the keys would stay for ever.
    pub fn write(&self, ops: &[WriteOp], durable: bool) -> Result<SeqNo> {
        write::alone(&self.core, ops, durable, Purpose::Work)
    }

    /// As [`Engine::write`], for what helps to free space: for it there is room on a full disk, too, and it does not wait
    /// for memory.
    pub fn write_relief(&self, ops: &[WriteOp], durable: bool) -> Result<SeqNo> {
        write::alone(&self.core, ops, durable, Purpose::Relief)
    }

    /// At most so many bytes do these operations take in a write.
    pub fn write_bytes(ops: &[WriteOp]) -> usize {
        write::bytes(ops)
    }

    /// The first step of a write in three, for who must order his writes under a lock and not do I/O there: room for so many
    /// bytes, with all waits and errors for want of memory and space. The wait for memory fails with `Interrupted` once
    /// `is_interrupted` says so.
    pub fn room(&self, bytes: usize, is_interrupted: &dyn Fn() -> bool) -> Result<WriteRoom<'_>> {
        write::room(&self.core, bytes, is_interrupted)
    }

    /// As [`Engine::room`], on the terms of [`Engine::write_relief`]: nothing is waited for.
    pub fn room_for_relief(&self, bytes: usize) -> Result<WriteRoom<'_>> {
        write::room_for_relief(&self.core, bytes)
    }

    /// The second step, without I/O: the write is ordered and visible when this returns. What is ordered later never becomes
    /// durable before it; if it does not become durable, the store stops.
    pub fn write_within(&self, room: WriteRoom<'_>, ops: &[WriteOp]) -> Result<Written> {
        write::within(&self.core, room, ops)
    }

    /// The third step: the write is durable when this returns.
    pub fn sync_write(&self, written: &Written) -> Result<()> {
        write::sync(&self.core, written)
    }

    /// Tells whoever watches that a change of tables has come to this crash point.
    #[inline]
    pub fn crash_point(&self, point: CrashPoint) {
        self.core.crash_point(point);
    }

    /// Has the thread that keeps house do something each second, after what it was given before.
    pub fn on_housekeeping(&self, chore: Chore) {
        self.chores.write().push(Arc::new(chore));
    }

    /// Drops whole indexes: durable when this returns. The ids must never be written again. Cursors that are open on
    /// them keep reading; the space comes back in the background.
    pub fn drop_indexes(&self, ids: &[IndexId]) -> Result<()> {
        self.core.drop_indexes(ids)
    }

    /// Whether these indexes have any file for themselves, which goes with them.
    pub fn own_files(&self, ids: &[IndexId]) -> bool {
        self.core.tree.own_files(ids)
    }

    /// The indexes that the store holds keys of, but those that are dropped and what open transactions have written.
    pub fn indexes(&self) -> Result<BTreeSet<IndexId>> {
        let mut found = inventory::indexes(&self.core.tree.states.pin())?;
        found.retain(|&id| !self.core.tree.installer.is_dropped(id));
        Ok(found)
    }

    /// What each of these indexes has on each level, in their order; `None` is the memory.
    pub fn holdings(&self, ids: &BTreeSet<IndexId>) -> BTreeMap<(IndexId, Option<u8>), Holding> {
        let mut found = inventory::holdings(&self.core.tree.states.pin(), ids);
        found.retain(|(id, _), _| ids.contains(id));
        found
    }

    /// The levels of the tree, from level 0 on.
    pub fn levels(&self) -> Vec<Level> {
        inventory::levels(&self.core.tree.states.pin())
    }

    /// Where the newest version of a key is stored, for reports of damage in it: a file, or memory, which came out of the log,
    /// whose directory this is then.
    pub fn place_of(&self, key: &[u8]) -> PathBuf {
        let tree = &self.core.tree;
        read::file_of(tree, key).unwrap_or_else(|| tree.ssts.dir.join("log"))
    }

    /// Estimates the content of a key range without reading data.
    pub fn range_estimate(&self, lower: &[u8], upper: &[u8]) -> Result<RangeEstimate> {
        read::estimate(&self.core.tree, lower, upper)
    }

    /// Microseconds of the store's clock.
    pub fn now_us(&self) -> u64 {
        self.core.options.clock.now_us()
    }

    /// Seconds since 1970 by the store's clock, which somebody may set back.
    pub fn unix_seconds(&self) -> u64 {
        self.core.options.clock.unix_us() / 1_000_000
    }

    /// The state that sizes and estimates are of: as long as it stays, so do they.
    pub fn sizes_state(&self) -> (SeqNo, u64) {
        // In this order: what changes in between is newer than the state that is told.
        let changes = self.core.tree.states.changes();
        (self.visible(), changes)
    }

    /// Has the values of an index written anew that are committed by now, by a rule that makes one that means the same of each: by
    /// all merges that begin from now on, and in the background by those that it takes. Ends when the handle drops.
    pub fn renew(&self, index: IndexId, rule: Rule) -> Arc<Renewal> {
        let committer = &self.core.journal.committer;
        let until = committer.last_assigned();
        committer.publish(until);
        committer.seal(FlushReason::Asked);
        let renewal = self.core.renewals.begin(index, until, committer.last_assigned(), rule);
        self.core.board.wake_flush();
        self.core.board.compact_wake.notify_all();
        renewal
    }

    /// Whether no old value is left, nor will be.
    pub fn is_renewed(&self, renewal: &Renewal) -> bool {
        renewal.is_done(&self.core.tree.states.load())
    }

    /// Waits for that. `tick` is called again and again, and its error ends the wait. Errors of flushes and merges end it as well;
    /// the work is tried again nevertheless.
    pub fn await_renewed(&self, renewal: &Renewal, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        background::await_renewal(&self.core, renewal, tick)
    }

    /// The moment between what is committed by now and what will be.
    pub fn moment(&self) -> Moment {
        // In this order: what is in a file with a smaller number was committed before the newest commit was asked for.
        let file = self.core.tree.installer.new_file();
        Moment { seq: self.core.journal.committer.last_assigned(), file }
    }

    /// True if it is certain that nothing is left of what was committed to an index after a moment. Looks at what is in memory only.
    pub fn is_untouched(&self, index: IndexId, since: Moment) -> Result<bool> {
        let committer = &self.core.journal.committer;
        committer.publish(committer.last_assigned());
        read::is_untouched(&self.core.tree, index, since)
    }

    /// Sizes of an index.
    pub fn index_stats(&self, id: IndexId) -> IndexStats {
        read::index_stats(&self.core.tree, id)
    }

    /// Counts the rows and the entries in `[lower, upper)`, at the newest state, from one of its ends up to `most` entries.
    pub fn count_range(&self, lower: &[u8], upper: &[u8], forward: bool, most: u64) -> Result<RangeCount> {
        read::count_range(&self.core.tree, lower, upper, forward, most)
    }

    /// Reads every block of an index's tables and verifies checksums and order.
    pub fn verify_index(&self, id: IndexId) -> Result<()> {
        self.verify_index_with(id, &|| Ok(()))
    }

    /// As `verify_index`; `tick` is called again and again, and its error ends the work.
    pub fn verify_index_with(&self, id: IndexId, tick: &dyn Fn() -> Result<()>) -> Result<()> {
        let state = self.core.tree.states.pin();
        for run in state.file_runs(&id.prefix(), &IndexId(id.0 + 1).prefix()) {
            for file in run {
                let sst = self.core.tree.ssts.reader(file)?;
                match file.meta.is_shared() {
                    true => sst.verify_part(id, tick)?,
                    false => sst.verify_with(tick)?,
                }
            }
        }
        Ok(())
    }
}

/// Copies.
impl Engine {
    /// A copy of the store as it is at one moment of this call, in `dir`, which must not exist, while its parent does. (In the
    /// store's own directory its name begins with `checkpoint`.) SSTs get a
    /// second name there, on another file system they are copied; of the log what is needed is copied. Everything committed
    /// before the call is in it, and prepared transactions are. It opens as a store of its own. On return it is complete and
    /// durable; what an error or a crash leaves there is refused by [`Engine::open`].
    ///
    /// ```
    /// use strata_engine::{Engine, Options};
    /// # fn main() -> strata_engine::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("strata-doc-checkpoint-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// let engine = Engine::open(&dir.join("store"), Options::default())?;
    /// let notes = engine.keyspace("notes")?;
    /// engine.put(&notes, "first", "It was a dark and stormy night.")?;
    /// engine.checkpoint(&dir.join("copy"))?;
    /// engine.delete(&notes, "first")?;
    ///
    /// let copy = Engine::open(&dir.join("copy"), Options::default())?;
    /// let notes = copy.keyspace("notes")?;
    /// assert!(copy.get(&notes, "first")?.is_some());
    /// # drop((engine, copy));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if `dir` exists, or lies within the store under another name. [`Error::Io`] if something cannot be written: nothing is left.
    /// [`Error::Poisoned`] if the store has stopped.
    pub fn checkpoint(&self, dir: &Path) -> Result<CheckpointSize> {
        let tick = || Ok(());
        let mut checkpoint = self.begin_checkpoint(dir, &tick)?;
        checkpoint.fix()?;
        checkpoint.finish(b"", &tick)
    }

    /// The directory of the store, as it was opened.
    pub fn dir(&self) -> &Path {
        &self.core.tree.ssts.dir
    }

    /// The first step of a [`Checkpoint`], which has the other two. `tick` is called again and again, and its error ends the work.
    pub fn begin_checkpoint(&self, dir: &Path, tick: &dyn Fn() -> Result<()>) -> Result<Checkpoint> {
        Checkpoint::begin(&self.core, dir, tick)
    }
}

/// For a [layer](crate::layer) above.
impl Engine {
    /// Everything committed so far is as durable as the store's setting says when this returns.
    pub fn make_durable(&self) -> Result<()> {
        self.core.journal.make_durable(self.core.journal.log.end())
    }
}

/// What may change while the store is open.
impl Engine {
    /// Chooses when commits are durable, from now on.
    pub fn set_durability(&self, durability: Durability) {
        self.core.settings.set_durability(durability);
    }

    /// Resizes the budget of the block cache.
    pub fn set_block_cache_bytes(&self, bytes: u64) {
        self.core.settings.set_cache_budget(bytes);
        self.core.share_memory();
    }

    /// Keeps the past for so many seconds from now on: what it was before this call stays for as long as the shorter of both says. 0 ends
    /// the history. Durable when this returns.
    ///
    /// Errors: those of a write; the retention is as before, or the history has ended.
    pub fn set_history_retention(&self, seconds: u64) -> Result<()> {
        self.past.set_retention(&self.core, seconds)
    }

    /// Resizes the memtable budget.
    pub fn set_memtable_budget_bytes(&self, bytes: u64) {
        self.core.settings.set_memtable_budget(bytes);
        self.core.share_memory();
    }
}

/// For a [layer](crate::layer) above.
impl Engine {
    /// Chooses the compression of an index's future tables.
    pub fn set_index_compression(&self, id: IndexId, compression: Option<Compression>) {
        self.core.settings.set_compression(id, compression);
    }

    /// The lock table, for reports.
    pub fn locks(&self) -> &LockTable {
        &self.core.locks
    }
}

/// What there is to be seen; the end.
impl Engine {
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

    /// Flushes what the next opening would be long to replay, stops background work, ends the log with a unit that witnesses
    /// everything before it, and writes down in the manifest how far the log reaches, so that the next opening notices any loss.
    /// The last call on a store.
    ///
    /// Errors: those after which the end of the log is not durable, or not written down. What keeps only the next opening from
    /// being quick, as a full disk does, is told as an event.
    pub fn close(&self) -> Result<()> {
        if self.is_long_to_replay() {
            // The log has what a flush that failed leaves in memory, and the flush has told of its failure.
            drop(self.flush_for(FlushReason::Closing, &self.tell_closing()));
        }
        if let Some(threads) = &self.threads {
            threads.stop();
        }
        let installer = &self.core.tree.installer;
        if let Err(error) = self.core.journal.log.close(&|segments| installer.note_log(segments))? {
            // The next start is slower for it, no more.
            self.core.events.failed(Work::Log, 0, &error, self.now_us());
        }
        Ok(())
    }

    /// Looks how far the flush is with which the store is closed, and tells it now and then.
    fn tell_closing(&self) -> impl Fn() -> Result<()> {
        let unflushed = || {
            let state = self.core.tree.states.load();
            let bytes: u64 = state.sealed.iter().map(|sealed| sealed.mem.table.bytes() as u64).sum();
            bytes.saturating_sub(self.core.board.flush_taken.load(Ordering::Relaxed))
        };
        let all = self.core.tree.states.load().memtable_bytes();
        let pace = Mutex::new(Pace::begin(self.now_us()));
        move || {
            let reached = pace.lock().look(self.now_us(), all.saturating_sub(unflushed()), all);
            if let Some(reached) = reached {
                self.core.events.tell(|| Event::Closing(reached));
            }
            Ok(())
        }
    }
}
