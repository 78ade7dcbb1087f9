//! Reading rows: one cursor per handler, over any index, in both directions, with or without locks.
//!
//! A row cursor moves an engine cursor over the keys of one index. For each entry it (1) checks that the entry is still in the
//! range asked for, (2) lets the server's condition on the index columns reject it, (3) locks the row if the read locks,
//! (4) fills the record from the entry alone (covering read) or from the row. A look-up of a whole unique key bypasses the
//! engine cursor.
//!
//! What a read sees: a consistent read uses the session's read point, a locking read the newest committed state, both with
//! the session's own writes on top. A new search after own writes sees these; a running scan does not meet rows that its own
//! statement adds.
//!
//! Memory: BLOB pointers in the record point into `row_value` of the cursor, which lives unchanged until the next row is
//! read, or the statement has ended. It is a copy, or of a row with a large value the block that the row lies in.
//! Nothing is allocated per row once buffers have grown.
//!
//! - `seek`: where a search starts and which way it goes on
//! - `next`: stepping, end conditions, reopening after the read point changed
//! - `fetch`: what happens with one entry (condition, lock, row)
//! - `locking`: which locks a read takes and keeps
//! - `range_lock`: locking the intervals that were read
//! - `handed`: entries that the transaction's own lie over
//! - `position`: row references

mod range_lock;
mod handed;
pub mod locking;
mod position;
mod seek;
mod fetch;
mod next;
pub mod write;

pub use seek::Seek;

use self::position::RowIds;
use crate::def::Index;
use crate::error::Result;
use crate::index::WriteBuffers;
use crate::index::bulk::Bulk;
use crate::isolation::Waiting;
use crate::keycode::{KeyCodec, prefix_end_in_place};
use crate::kv::ValueBuf;
use crate::kv::{self, IndexId, LockMode, ReadPoint, SeqNo};
use crate::rowcode::ColumnSet;
use crate::table::Table;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Fetched of the server's condition on an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check {
    /// Not this row.
    Reject,
    /// This row may qualify.
    Accept,
    /// Neither this row nor any after it.
    OutOfRange,
    /// The statement was killed.
    Aborted,
    /// The server met an error, which it has noted.
    Failed,
}

/// A condition on index columns, evaluated on the record that the running call fills.
pub type Condition = Box<dyn FnMut(&mut [u8]) -> Check + Send>;

/// Where the scan stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ScanPosition {
    /// Not on a row: not started, or past a bound.
    Nowhere,
    /// Behind all rows that have the prefix that was searched for, be there any or not.
    AfterPrefix,
    /// Before the first row of the index: the way back begins with it.
    BeforeFirst,
    /// Behind the last row of the index, likewise.
    AfterLast,
    /// On the entry that the engine cursor stands on.
    Engine,
    /// At the key in `entry_key`, whether or not an entry has it.
    Key,
}

/// A scan of one index, from `begin` to `end`.
struct Scan {
    codec: Arc<KeyCodec>,
    clustered: bool,
    long_hash: bool,
    /// Bytes of a key image without the period that must not overlap others.
    neighbourhood: Option<usize>,
    index_id: IndexId,
    /// Fill only what the entry holds.
    covering: bool,
    /// The index of this number tells of each entry when its row expires.
    tells_expiry: Option<usize>,
    lower: [u8; 4],
    upper: [u8; 4],
    /// Exclusive end of forward scans, if they have one.
    bound: Vec<u8>,
    is_bounded: bool,
    /// Key of the last search.
    prefix: Vec<u8>,
    /// The last search was for one whole unique key.
    single: bool,
    position: ScanPosition,
    open: bool,
    opened_upper: Vec<u8>,
    /// The engine cursor ends where forward scans do: its rows need not be compared with `bound` again.
    ends_at_bound: bool,
    /// What the engine cursor sees, and the session's counters when it was opened.
    seq: SeqNo,
    epoch: u64,
    transaction: u64,
    writes: u64,
    /// Keeps the newest state of a locking scan readable.
    point: Option<ReadPoint>,
    /// Up to where a scan that locks intervals has locked them: the lower end of what is to be read, or the upper one when it
    /// goes backward. And the index's version when it began to read from there.
    frontier: Vec<u8>,
    version: u64,
    /// `entry_key` holds the key of the entry that the engine cursor stands on.
    entry_saved: bool,
    target: Vec<u8>,
    stand: handed::EntryKind,
}

fn neighbourhood(index: &Index) -> Option<usize> {
    let before = index.parts.len().checked_sub(2).filter(|_| index.without_overlaps)?;
    Some(index.parts[..before].iter().map(|p| p.store_length as usize).sum())
}

/// A handler's reads and writes of one table.
pub struct RowCursor {
    table: Arc<Table>,
    lock: Option<LockMode>,
    waiting: Waiting,
    columns: Option<ColumnSet>,
    condition: Option<Condition>,
    scan: Option<Scan>,
    /// The scan before, for its memory.
    former: Option<Scan>,
    cursor: kv::Cursor,
    /// While the scan may have to show covered entries.
    committed: Option<Box<handed::Committed>>,
    entry_key: Vec<u8>,
    entry_value: ValueBuf,
    /// Clustered key of the row read last.
    current: Vec<u8>,
    row_ids: RowIds,
    row_value: ValueBuf,
    /// `row_value` is the row at `current`, read last: whoever writes it compares with these bytes.
    has_row: bool,
    /// The table has BLOBs.
    has_blobs: bool,
    /// Rows of the table expire.
    expires: bool,
    /// Memory for the column that says when.
    expiry_room: Vec<u8>,
    /// The last read acquired the lock on `current`.
    fresh_lock: bool,
    /// See [`RowCursor::set_semi_consistent`].
    semi_consistent: bool,
    /// The last read gave out a row that somebody else has locked.
    unlocked: bool,
    /// This read waits for locks, whatever `semi_consistent` says.
    patient: bool,
    pub(crate) buffers: WriteBuffers,
    pub(crate) bulk: Option<Bulk>,
    /// See `set_fills`.
    fills: bool,
    /// Something is to be done before the next write of a row.
    unready: bool,
}

impl RowCursor {
    /// A cursor that does nothing yet.
    pub fn new(table: &Arc<Table>) -> RowCursor {
        RowCursor {
            table: table.clone(),
            lock: None,
            waiting: Waiting::Wait,
            columns: None,
            condition: None,
            scan: None,
            former: None,
            cursor: table.engine().cursor(),
            committed: None,
            entry_key: Vec::new(),
            entry_value: ValueBuf::default(),
            current: Vec::new(),
            row_ids: RowIds::default(),
            row_value: ValueBuf::default(),
            has_row: false,
            has_blobs: table.has_blobs,
            expires: table.expires(),
            expiry_room: Vec::new(),
            fresh_lock: false,
            semi_consistent: false,
            unlocked: false,
            patient: false,
            buffers: WriteBuffers::default(),
            bulk: None,
            fills: false,
            unready: true,
        }
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The hidden id of the row read, inserted, changed or deleted last, or of the entry under test in a condition; see [`Table::position`].
    pub fn position_id(&self) -> Arc<AtomicU64> {
        self.row_ids.position.clone()
    }

    /// How rows are read from now on: without locks (`None`), or locking each row returned. Rows of a table without rollback
    /// are not locked: who writes them does not wait for the end of transactions, and holds a mutex of the server's that no
    /// search for deadlocks knows of.
    pub fn set_mode(&mut self, lock: Option<LockMode>, waiting: Waiting) {
        self.lock = lock.filter(|_| !self.table.state.meta.no_rollback);
        self.waiting = waiting;
        self.unready = true;
    }

    /// From now on a scan, where the isolation level allows it, does not wait for a row that somebody else has locked but gives
    /// out its newest committed version, unlocked: it may not be wanted. If it is, the next read in the same direction gives
    /// it again, locked; after [`RowCursor::unlock_row`] the read goes on.
    pub fn set_semi_consistent(&mut self, on: bool) {
        self.semi_consistent = on;
        self.unlocked = false;
    }

    /// True if the row read last is not locked.
    pub fn is_unlocked(&self) -> bool {
        self.unlocked
    }

    /// From now on rows are inserted into a table that nobody else may see before the transaction ends: the copy that ALTER
    /// TABLE makes, the table of CREATE ... SELECT.
    pub fn set_fills(&mut self, on: bool) {
        self.fills = on;
        self.unready = true;
    }

    /// Columns to fill; `None` = all stored ones.
    pub fn set_columns(&mut self, columns: Option<ColumnSet>) {
        self.columns = columns;
    }

    /// Condition on the columns of the scanned index.
    pub fn set_condition(&mut self, condition: Option<Condition>) {
        self.condition = condition;
    }

    /// Begins scanning an index; `None` = rows in the order they are stored.
    pub fn begin(&mut self, index: Option<usize>, covering: bool) -> Result<()> {
        self.end();
        let codec = self.table.codec(index)?;
        let id = self.table.index_id(index);
        let clustered = codec.is_clustered();
        let (codec, bound, prefix, target, opened_upper) = match self.former.take() {
            Some(f) if f.lower == id.prefix() => (f.codec, f.bound, f.prefix, f.target, f.opened_upper),
            Some(f) => (codec.clone(), f.bound, f.prefix, f.target, f.opened_upper),
            None => (codec.clone(), Vec::new(), Vec::new(), Vec::new(), Vec::new()),
        };
        self.scan = Some(Scan {
            clustered,
            long_hash: index.is_some_and(|i| self.table.def.indexes[i].long_hash),
            neighbourhood: index.and_then(|i| neighbourhood(&self.table.def.indexes[i])),
            index_id: id,
            covering: covering && !clustered,
            tells_expiry: index.filter(|i| !clustered && self.table.expiry.as_ref().is_some_and(|e| e.is_told_by(*i))),
            lower: id.prefix(),
            upper: IndexId(id.0 + 1).prefix(),
            bound,
            is_bounded: false,
            prefix,
            single: false,
            position: ScanPosition::Nowhere,
            open: false,
            opened_upper,
            ends_at_bound: false,
            seq: SeqNo::ZERO,
            epoch: 0,
            transaction: 0,
            writes: 0,
            point: None,
            frontier: Vec::new(),
            version: 0,
            entry_saved: false,
            target,
            stand: handed::EntryKind::Plain,
            codec,
        });
        Ok(())
    }

    fn forget_row(&mut self) {
        self.has_row = false;
        self.row_ids.read(0);
    }

    /// `current` was just found: tells its hidden id.
    fn note_row(&mut self) -> Result<()> {
        if self.table.def.primary.is_none() {
            self.row_ids.read(self.table.clustered.row_id(&self.current)?);
        }
        Ok(())
    }

    /// Ends the scan and lets go of the engine's memory and files.
    pub fn end(&mut self) {
        self.forget_committed();
        if let Some(mut scan) = self.scan.take() {
            if scan.open {
                self.cursor.close();
            }
            scan.point = None;
            self.former = Some(scan);
        }
    }

    /// Lets go of the engine's memory and files but keeps the place: the next step finds it again by its key. For scans that
    /// stay open between statements.
    pub fn suspend(&mut self) {
        self.save_place();
        self.forget_committed();
        if let Some(scan) = &mut self.scan {
            if scan.open {
                self.cursor.close();
                scan.open = false;
                scan.point = None;
            }
        }
    }

    /// The statement has ended: the record is not used any more, and long values need not be kept. Scans go on.
    pub fn forget_values(&mut self) {
        self.has_row = false;
        self.row_value.release();
        self.entry_value.release();
        self.buffers.release();
    }

    /// End of forward scans, by key image; `None` removes it.
    pub fn set_bound(&mut self, image: Option<&[u8]>, inclusive: bool) -> Result<()> {
        let Some(scan) = &mut self.scan else {
            return Ok(());
        };
        scan.is_bounded = false;
        scan.ends_at_bound = false;
        if let Some(image) = image.filter(|i| !i.is_empty()) {
            scan.codec.encode_image(image, &mut scan.bound)?;
            scan.is_bounded = !inclusive || prefix_end_in_place(&mut scan.bound);
        }
        Ok(())
    }
}
