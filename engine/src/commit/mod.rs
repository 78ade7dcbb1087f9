//! The commit pipeline: order, log, apply, publish.
//!
//! ```text
//! prepare         encode, copy into the log, sync                           in parallel
//! order           sequence number S, commit record into the log, queue      serial, no I/O
//! apply           batch into the memtable at S                              in parallel
//! publish         visible = S once every smaller number is applied          in parallel, in order
//! ```
//!
//! Invariants
//! 1. Sequence numbers are dense, and commit records stand in the log in their order.
//! 2. A batch goes to the memtable that was active when its number was taken: a memtable holds one contiguous range of
//!    sequence numbers, and sealing it is a clean cut.
//! 3. `visible` only grows, and everything at or below it is in a memtable that readers reach.
//! 4. Row locks are released only after the batch is visible: the next holder of the lock reads it.
//!
//! A large transaction's batch names files (`crate::spill`). Its commit seals the active memtable, and the files stand
//! between that and the next one: there is nothing to apply.
//!
//! In-order publication must not let one descheduled thread hold up the rest: a batch that was ordered by somebody else
//! (two-phase commit: the binlog leader orders the whole group) waits in the queue together with its work, and whoever
//! needs it visible applies it.
//!
//! A prepared transaction keeps the identity that the position of its prepare record gave it, also when the record is
//! written again further on ([`relocation`]). Its batch waits here for the decision, and the log keeps room for the
//! record that ends it, so that a full disk cannot refuse a commit that the binlog already has.
//!
//! Rejected: inserting into the memtable at prepare with a prepared-to-committed map (RocksDB's write-prepared): every
//! reader pays for consulting the map, and a rollback has to write.

pub(crate) mod relocation;
pub(crate) mod record;
mod in_doubt;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use self::in_doubt::InDoubt;
pub(crate) use self::in_doubt::Prepared;
use self::relocation::{PrepareRecord, to_relocate};
use crate::base::{Error, IndexId, Kind, Lsn, Result, SeqNo, TxnId};
use crate::event::FlushReason;
use crate::io::{Blocking, Waiting};
use crate::manifest::{FileEntry, ObsoleteFiles};
use crate::settings::Settings;
use crate::sst::SstMeta;
use crate::state::{Mem, StateCell};
use crate::timeline::Timeline;
use crate::timeline::entry::{Entry, TIMELINE};
use crate::wal::{Body, Log, Span};
use crate::write_buffer::{BatchReader, WriteBuffer, files_of};

/// Bytes of prepare records that are relocated before they are written out.
const RELOCATE_BUFFERED_BYTES: usize = 1 << 20;

/// Longest wait for a decision between two looks whether the one who waits was interrupted.
const LOOK_MAX: Duration = Duration::from_millis(100);

/// What the order step decided.
#[derive(Clone)]
pub(crate) struct Ordered {
    pub seq: SeqNo,
    mem: Arc<Mem>,
    /// Where the commit record ends in the log: durable up to here means committed for good.
    pub log_end: Lsn,
}

enum Slot {
    /// Nobody has applied it yet; anybody may.
    Waiting {
        mem: Arc<Mem>,
        batch: Arc<[u8]>,
    },
    /// A thread is applying it.
    Busy,
    Done,
}

struct Queue {
    /// Sequence number of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    waiters: u32,
}

/// See the module.
pub(crate) struct Committer {
    /// Where commits go.
    log: Arc<Log>,
    states: Arc<StateCell>,
    settings: Arc<Settings>,
    obsolete_files: Arc<ObsoleteFiles>,
    /// Which commits get a mark of time.
    timeline: Arc<Timeline>,
    /// The last sequence number that was assigned. Held by who orders.
    order: Mutex<SeqNo>,
    in_doubt: Mutex<InDoubt>,
    /// Signalled when one of those in doubt has been decided.
    decided: Condvar,
    queue: Mutex<Queue>,
    published: Condvar,
    counts: Counts,
}

/// For figures.
struct Counts {
    /// The last sequence number before the store was opened.
    before: SeqNo,
    /// Commits of the store itself.
    internal: AtomicU64,
    rollbacks: AtomicU64,
}

/// Inserts every operation of `batch` at `seq`.
pub(crate) fn apply(mem: &Mem, batch: &[u8], seq: SeqNo) -> bool {
    let mut reader = BatchReader::new(batch);
    for (kind, key, value) in reader.by_ref() {
        mem.table.insert(key, seq, kind, value);
    }
    reader.is_done()
}

impl Committer {
    /// A pipeline into `log` and `states`, whose last committed number is the newest that `states` shows, and which knows the
    /// transactions left prepared by recovery.
    pub fn new(
        log: Arc<Log>,
        states: Arc<StateCell>,
        settings: Arc<Settings>,
        obsolete_files: Arc<ObsoleteFiles>,
        timeline: Arc<Timeline>,
        prepared: impl IntoIterator<Item = (TxnId, Prepared)>,
    ) -> Committer {
        let mut in_doubt = InDoubt::default();
        for (id, prepared) in prepared {
            log.pledge_end();
            in_doubt.insert(id, prepared);
        }
        let last = states.visible();
        Committer {
            log,
            states,
            settings,
            obsolete_files,
            timeline,
            order: Mutex::new(last),
            in_doubt: Mutex::new(in_doubt),
            decided: Condvar::new(),
            queue: Mutex::new(Queue { first: last.0 + 1, slots: VecDeque::new(), waiters: 0 }),
            published: Condvar::new(),
            counts: Counts { before: last, internal: AtomicU64::new(0), rollbacks: AtomicU64::new(0) },
        }
    }

    /// Newest sequence number that readers may use.
    pub fn visible(&self) -> SeqNo {
        self.states.visible()
    }

    /// Commits since the store was opened. Sequence numbers are dense, so none is counted on its way.
    pub fn commits(&self) -> u64 {
        self.visible().0 - self.counts.before.0
    }

    /// Those of them that were no transactions.
    pub fn internal_commits(&self) -> u64 {
        self.counts.internal.load(Ordering::Relaxed)
    }

    /// Counts a commit that is no transaction.
    pub fn count_internal(&self) {
        self.counts.internal.fetch_add(1, Ordering::Relaxed);
    }

    /// Transactions with writes that were rolled back.
    pub fn rollbacks(&self) -> u64 {
        self.counts.rollbacks.load(Ordering::Relaxed)
    }

    /// Counts one that was not prepared.
    pub fn count_rollback(&self) {
        self.counts.rollbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// Newest sequence number that was assigned.
    pub fn last_assigned(&self) -> SeqNo {
        *self.order.lock()
    }

    /// The same, with nothing ordered while `look` looks at it.
    pub fn at_last_assigned<R>(&self, look: impl FnOnce(SeqNo) -> R) -> R {
        look(*self.order.lock())
    }

    /// Puts a mark of time in front of the first commit of a second, while the store keeps a history. Whoever has room for a commit, or
    /// for the end of a prepared one, has it for this too. `batch` is that of a commit which may be the timeline's own.
    #[inline]
    fn mark_time(&self, last: &mut SeqNo, batch: &[u8]) -> Result<()> {
        if !self.timeline.is_on()
            || BatchReader::new(batch).next().is_some_and(|(_, key, _)| key.starts_with(&TIMELINE.prefix()))
        {
            return Ok(());
        }
        match self.timeline.tick(*last) {
            None => Ok(()),
            Some(mark) => self.order_mark(last, &Entry::Mark(mark)),
        }
    }

    /// The second of a prepare gets its mark in front of it: a crash may take the commit's record with the mark in front of that one, and
    /// leave the prepared transaction, which is then committed.
    fn mark_prepare(&self) -> Result<()> {
        if self.timeline.is_due() {
            let marked = {
                let mut last = self.order.lock();
                self.mark_time(&mut last, &[])?;
                *last
            };
            self.publish(marked);
        }
        Ok(())
    }

    #[cold]
    fn order_mark(&self, last: &mut SeqNo, mark: &Entry) -> Result<()> {
        let (key, value) = mark.encode();
        let mut buffer = WriteBuffer::new();
        buffer.push(Kind::Put, &key, &value);
        let batch: Arc<[u8]> = buffer.encode().into();
        let header = record::commit_batch_header(last.next());
        let waiting = batch.clone();
        self.take_number(last, &header, &Body::Plain(&batch), Vec::new(), |mem| Slot::Waiting {
            mem: mem.clone(),
            batch: waiting,
        })?;
        self.count_internal();
        Ok(())
    }

    fn take_number(
        &self,
        last: &mut SeqNo,
        header: &[u8],
        body: &Body<'_>,
        files: Vec<SstMeta>,
        slot: impl FnOnce(&Arc<Mem>) -> Slot,
    ) -> Result<Ordered> {
        let seq = last.next();
        let Span { start, end: log_end } = self.log.append_parts(header, body)?;
        let mut mem = self.states.load().active.clone();
        if mem.table.bytes() as u64 >= self.settings.seal_bytes() {
            let seal_bytes = self.settings.seal_bytes();
            self.states.rotate(*last, start, seal_bytes, Arc::default(), FlushReason::Full);
            mem = self.states.load().active.clone();
        }
        *last = seq;
        let slot = slot(&mem);
        let by_name = !files.is_empty();
        if by_name {
            let stamp = |meta: SstMeta| Arc::new(FileEntry::new(meta.stamp(seq), self.obsolete_files.clone()));
            let files = files.into_iter().map(stamp).collect();
            self.states.rotate(seq, log_end, self.settings.seal_bytes(), files, FlushReason::LargeTransaction);
        }
        let mut queue = self.queue.lock();
        debug_assert_eq!(queue.first + queue.slots.len() as u64, seq.0);
        queue.slots.push_back(slot);
        if by_name {
            self.mark_done(&mut queue, seq);
        }
        Ok(Ordered { seq, mem, log_end })
    }

    /// Orders a whole batch in one phase. The caller goes on with `apply_own` without delay.
    pub fn order_batch(&self, batch: &[u8]) -> Result<Ordered> {
        let body = Body::compress(batch);
        let mut last = self.order.lock();
        self.mark_time(&mut last, batch)?;
        let header = record::commit_batch_header(last.next());
        self.take_number(&mut last, &header, &body, Vec::new(), |_| Slot::Busy)
    }

    /// Orders a large transaction in one phase. `batch` names its files, which belong to the store from now on unless
    /// this fails. There is nothing to apply: see [`Committer::publish`].
    pub fn order_files(&self, batch: &[u8], files: Vec<SstMeta>) -> Result<Ordered> {
        let mut last = self.order.lock();
        self.mark_time(&mut last, &[])?;
        let header = record::commit_batch_header(last.next());
        self.take_number(&mut last, &header, &Body::Plain(batch), files, |_| Slot::Busy)
    }

    /// Applies and publishes a batch that `order_batch` ordered; returns once it is visible.
    pub fn apply_own(&self, ordered: &Ordered, batch: &[u8]) {
        apply(&ordered.mem, batch, ordered.seq);
        let mut queue = self.queue.lock();
        self.mark_done(&mut queue, ordered.seq);
        self.wait_visible(queue, ordered.seq);
    }

    /// Logs a prepare record. The transaction holds back the log until it is ordered or rolled back.
    pub fn prepare(&self, xid: &[u8], batch: Arc<[u8]>) -> Result<(TxnId, Lsn)> {
        self.mark_prepare()?;
        let header = record::prepare_header(xid);
        let body = Body::compress(&batch);
        let floor = {
            let mut in_doubt = self.in_doubt.lock();
            let floor = self.log.end_at_least();
            in_doubt.arrives(floor);
            floor
        };
        let appended = self.log.append_parts(&header, &body);
        let xid = xid.into();
        let mut in_doubt = self.in_doubt.lock();
        in_doubt.arrived(floor);
        let span = appended?;
        self.log.pledge_end();
        let id = TxnId(span.start.0);
        in_doubt.insert(id, Prepared { xid, batch, record: PrepareRecord::of(span) });
        Ok((id, span.end))
    }

    /// Orders a prepared batch; it becomes visible as soon as anybody needs it to be.
    pub fn order_prepared(&self, id: TxnId) -> Result<Ordered> {
        let mut last = self.order.lock();
        let Prepared { batch, record: prepare, .. } = self.in_doubt.lock().get(id)?.clone();
        self.mark_time(&mut last, &[])?;
        let files = files_of(&batch).unwrap_or_default();
        let record = record::commit_prepared(id, last.next());
        let ordered = self.take_number(&mut last, &record, &Body::Plain(&[]), files, |mem| {
            mem.needs_log_from(prepare.at);
            Slot::Waiting { mem: mem.clone(), batch }
        })?;
        let decided = self.in_doubt.lock().remove(id);
        drop(last);
        drop(decided);
        self.decided.notify_all();
        self.log.redeem_end();
        Ok(ordered)
    }

    /// Whether a transaction of this id is prepared and has no decision, whoever holds it.
    pub fn is_prepared(&self, xid: &[u8]) -> bool {
        self.in_doubt.lock().has(xid)
    }

    /// The writes of a prepared transaction without a decision.
    pub fn prepared_batch(&self, id: TxnId) -> Result<Arc<[u8]>> {
        Ok(self.in_doubt.lock().get(id)?.batch.clone())
    }

    /// How many prepared transactions have no decision.
    pub fn prepared(&self) -> usize {
        self.in_doubt.lock().batches().count()
    }

    /// Bytes of the writes of prepared transactions without a decision.
    pub fn prepared_bytes(&self) -> u64 {
        self.in_doubt.lock().batches().map(|batch| batch.len() as u64).sum()
    }

    /// Whether a prepared transaction without a decision writes to one of these indexes.
    pub fn prepared_writes(&self, indexes: &[IndexId]) -> bool {
        self.prepared_writer(indexes).is_some()
    }

    /// One that does.
    fn prepared_writer(&self, indexes: &[IndexId]) -> Option<TxnId> {
        // The mutex is not held while batches are read, which may be long.
        let all: Vec<(TxnId, Arc<[u8]>)> =
            self.in_doubt.lock().by_id().map(|(id, prepared)| (id, prepared.batch.clone())).collect();
        let writes = |(_, batch): &(TxnId, Arc<[u8]>)| {
            let files = files_of(batch).unwrap_or_default();
            let mut keys = BatchReader::new(batch).map(|(_, key, _)| IndexId::of(key));
            files.iter().any(|file| indexes.iter().any(|&index| file.holds(index)))
                || keys.any(|index| indexes.contains(&index))
        };
        all.into_iter().find(writes).map(|(id, _)| id)
    }

    /// Waits until no prepared transaction without a decision writes to these indexes, and what those that ended meanwhile have
    /// written is visible. Nobody may prepare another one that does.
    ///
    /// Errors: `LockTimeout` after `timeout`; `Interrupted` once `is_interrupted` says so.
    pub fn await_prepared(
        &self,
        indexes: &[IndexId],
        timeout: Duration,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let Some(mut writer) = self.prepared_writer(indexes) else { return Ok(()) };
        // A timeout beyond the clock's range never comes.
        let until = Instant::now().checked_add(timeout);
        let _waiting = Waiting::begin(Blocking::Lock);
        loop {
            let mut in_doubt = self.in_doubt.lock();
            while in_doubt.get(writer).is_ok() {
                let now = Instant::now();
                if until.is_some_and(|until| now >= until) {
                    return Err(Error::LockTimeout);
                }
                let look = now + LOOK_MAX;
                self.decided.wait_until(&mut in_doubt, until.map_or(look, |until| look.min(until)));
                // It asks the server, whose locks come before this one.
                let interrupted = MutexGuard::unlocked(&mut in_doubt, is_interrupted);
                if interrupted {
                    return Err(Error::Interrupted);
                }
            }
            drop(in_doubt);
            match self.prepared_writer(indexes) {
                Some(next) => writer = next,
                None => break,
            }
        }
        self.publish(self.last_assigned());
        Ok(())
    }

    /// Logs that a prepared transaction is rolled back; the end of that record, and the batch.
    pub fn rollback_prepared(&self, id: TxnId) -> Result<(Lsn, Arc<[u8]>)> {
        let _order = self.order.lock();
        let batch = self.in_doubt.lock().get(id)?.batch.clone();
        let span = self.log.append(&record::rollback_prepared(id))?;
        self.in_doubt.lock().remove(id);
        self.decided.notify_all();
        self.log.redeem_end();
        self.count_rollback();
        Ok((span.end, batch))
    }

    /// Logs the prepare record again, with another xid; where the new record ends. The old one is needed, and holds back the
    /// log, until both are relocated: nobody waits here for the new one to become durable.
    pub fn rename_prepared(&self, id: TxnId, xid: &[u8]) -> Result<Lsn> {
        let batch = self.in_doubt.lock().get(id)?.batch.clone();
        // A start needs it, also of a full disk.
        let room = self.log.reserve_relief(xid.len() + batch.len())?;
        let header = record::relocated_header(id, xid);
        let body = Body::compress(&batch);
        let _order = self.order.lock();
        let span = self.log.append_parts(&header, &body)?;
        drop(room);
        self.in_doubt.lock().rename(id, xid);
        Ok(span.end)
    }

    /// Writes prepare records again that would hold back the log too far behind `floor`; see [`relocation`].
    /// They are durable at the latest when everything logged so far is; only then may the start of the log move.
    pub fn relocate(&self, floor: Lsn) -> Result<()> {
        let slack = self.settings.prepared_slack();
        let (ids, records): (Vec<TxnId>, Vec<PrepareRecord>) = {
            let in_doubt = self.in_doubt.lock();
            match in_doubt.log_start() {
                Some(oldest) if oldest.0 + slack < floor.0 => in_doubt.below(floor).unzip(),
                _ => return Ok(()),
            }
        };
        let mut buffered = 0;
        for &id in &ids[..to_relocate(&records, floor, slack)] {
            let Ok(Prepared { xid, batch, .. }) = self.in_doubt.lock().get(id).cloned() else { continue };
            let room = self.log.reserve(xid.len() + batch.len())?;
            let header = record::relocated_header(id, &xid);
            let body = Body::compress(&batch);
            // The append below, under the lock, must not find the log's buffer full.
            buffered += batch.len();
            if buffered > RELOCATE_BUFFERED_BYTES {
                self.log.write(self.log.end())?;
                buffered = batch.len();
            }
            let order = self.order.lock();
            // Decided meanwhile: a copy behind the decision would bring it back to life. Renamed: one would undo that.
            // In a statement of its own, which ends the look: the list is locked again below.
            let in_doubt = self.in_doubt.lock().get(id).cloned();
            if let Some(prepared) = in_doubt.ok().filter(|prepared| prepared.xid == xid) {
                let record = self.log.append_parts(&header, &body).map_or(prepared.record, PrepareRecord::of);
                let mut in_doubt = self.in_doubt.lock();
                in_doubt.remove(id);
                in_doubt.insert(id, Prepared { record, ..prepared });
            }
            drop(order);
            drop(room);
        }
        Ok(())
    }

    /// Returns once everything up to `seq` is visible, applying what nobody has applied yet.
    pub fn publish(&self, seq: SeqNo) {
        if self.visible() < seq {
            self.wait_visible(self.queue.lock(), seq);
        }
    }

    fn mark_done(&self, queue: &mut Queue, seq: SeqNo) {
        let at = (seq.0 - queue.first) as usize;
        queue.slots[at] = Slot::Done;
        if at == 0 {
            self.advance(queue);
        }
    }

    fn advance(&self, queue: &mut Queue) {
        let before = queue.first;
        while let Some(Slot::Done) = queue.slots.front() {
            queue.slots.pop_front();
            queue.first += 1;
        }
        if queue.first != before {
            self.states.show(SeqNo(queue.first - 1));
            if queue.waiters > 0 {
                self.published.notify_all();
            }
        }
    }

    fn wait_visible(&self, queue: MutexGuard<'_, Queue>, seq: SeqNo) {
        // Begins and ends without the lock: who is told may take a while.
        let mut waiting = None;
        let mut queue = queue;
        while queue.first <= seq.0 {
            let limit = ((seq.0 - queue.first) as usize + 1).min(queue.slots.len());
            let work = (0..limit).find(|&at| matches!(queue.slots[at], Slot::Waiting { .. }));
            if let Some(at) = work {
                let number = SeqNo(queue.first + at as u64);
                if let Slot::Waiting { mem, batch } = std::mem::replace(&mut queue.slots[at], Slot::Busy) {
                    // The batch, too, is freed without the lock.
                    MutexGuard::unlocked(&mut queue, move || apply(&mem, &batch, number));
                    self.mark_done(&mut queue, number);
                }
            } else if waiting.is_none() {
                MutexGuard::unlocked(&mut queue, || waiting = Some(Waiting::begin(Blocking::Log)));
            } else {
                queue.waiters += 1;
                self.published.wait(&mut queue);
                queue.waiters -= 1;
            }
        }
    }

    /// Seals a memtable unless somebody else has.
    #[cold]
    pub fn seal_full(&self, full: &Arc<Mem>) {
        let last = self.order.lock();
        if Arc::ptr_eq(&self.states.load().active, full) {
            let (end, seal_bytes) = (self.log.end(), self.settings.seal_bytes());
            self.states.rotate(*last, end, seal_bytes, Arc::default(), FlushReason::Full);
        }
    }

    /// Seals the active memtable if it holds anything, or if too much log is kept for it: transactions that are rolled back fill
    /// the log and no memtable.
    pub fn seal(&self, reason: FlushReason) {
        let log_bytes = self.settings.log_bytes_max();
        let last = self.order.lock();
        let active = self.states.load().active.clone();
        let end = self.log.end();
        // One that was made for a larger budget may be too large before anything is in it.
        let is_large = active.table.bytes() as u64 > self.settings.seal_bytes();
        if !active.table.is_empty() || is_large || active.min_lsn().0 + log_bytes < end.0 {
            self.states.rotate(*last, end, self.settings.seal_bytes(), Arc::default(), reason);
        }
    }

    /// From which position recovery needs the log once the `flushed` oldest sealed memtables are in SSTs.
    pub fn log_start_after(&self, flushed: usize) -> Lsn {
        // In this order: what arrives after the second look begins behind the end that was seen before it, and what was
        // decided before it is needed by a memtable that is seen after it.
        let end = self.log.end();
        let prepared = self.in_doubt.lock().log_start();
        let _order = self.order.lock();
        let state = self.states.load();
        let kept = state.sealed.len() - flushed;
        let kept = state.sealed[..kept].iter().map(|sealed| &sealed.mem);
        let mems = std::iter::once(&state.active).chain(kept).map(|mem| mem.min_lsn());
        let start = mems.chain(prepared).fold(end, Lsn::min);
        self.in_doubt.lock().release(start);
        start
    }
}
