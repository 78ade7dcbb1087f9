//! A table in use: its run-time state, shared by everybody, and a definition with its codecs, shared by the handlers of one
//! server-side definition.
//!
//! [`TableState`] is found by name and outlives handlers; [`Table`] is made anew when a handler opens the table, because
//! offsets in the record belong to the server's share, not to the catalog.

use crate::auto_increment::{Counter, Which};
use crate::catalog::{Patience, await_prepared, compare};
use crate::changes::Changes;
use crate::def::{ColumnType, IndexKind, TableDef};
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::follow::Followed;
use crate::foreign::{Related, Relations};
use crate::history::History;
use crate::index::entries::Written;
use crate::integrity::links::Links;
use crate::keycode::{KeyCodec, REFERENCE_LENGTH, prefix_end_in_place};
use crate::kv::{Engine, IndexId, SeqNo};
use crate::row_versions::RowVersions;
use crate::rowcode::{ColumnSet, Record, RowCodec};
use crate::schema::TableMeta;
use crate::stats::Statistics;
use crate::store::Store;
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Run-time state of a table.
pub struct TableState {
    name: RwLock<String>,
    /// The catalog's entry. Its foreign keys may be out of date: see [`TableState::relations`].
    pub meta: Arc<TableMeta>,
    /// Sequence number below which a snapshot cannot know this table's present contents.
    min_snapshot: AtomicU64,
    autoinc: OnceLock<Arc<Counter>>,
    row_ids: OnceLock<Arc<Counter>>,
    counters_starting: Mutex<()>,
    /// Serialises writes of a table without rollback.
    pub(crate) autonomous: Mutex<()>,
    /// What the optimizer is told.
    pub(crate) statistics: Statistics,
    related: Arc<Related>,
    pub(crate) changes: Arc<Changes>,
    /// Of which schema versions there are rows.
    pub(crate) history: Arc<History>,
    /// Who wants to know which rows change.
    pub(crate) followed: Arc<Followed>,
    /// Snapshots older than this cannot use an index, of those that were built since the start.
    born: Arc<RwLock<Vec<(IndexId, SeqNo)>>>,
    engine: Engine,
}

impl TableState {
    /// The state of a table just found in, or put into, the catalog.
    pub(crate) fn new(
        engine: &Engine,
        name: &str,
        meta: Arc<TableMeta>,
        min_snapshot: SeqNo,
        related: Arc<Related>,
    ) -> TableState {
        TableState {
            name: RwLock::new(name.to_owned()),
            meta,
            min_snapshot: AtomicU64::new(min_snapshot.0),
            autoinc: OnceLock::new(),
            row_ids: OnceLock::new(),
            counters_starting: Mutex::new(()),
            autonomous: Mutex::new(()),
            statistics: Statistics::default(),
            related,
            changes: Arc::default(),
            history: Arc::default(),
            followed: Arc::default(),
            born: Arc::default(),
            engine: engine.clone(),
        }
    }

    /// The state of the same table after a change of its entry. It goes on with the history and the counters, but for that of an
    /// auto-increment column that is another one now.
    pub(crate) fn successor(&self, meta: Arc<TableMeta>, min_snapshot: SeqNo) -> TableState {
        let has_rows = meta.clustered_id() == self.meta.clustered_id();
        if has_rows && meta.schema_version != self.meta.schema_version {
            self.history.begin_version(&self.engine);
        }
        let next = TableState {
            changes: self.changes.clone(),
            history: if has_rows { self.history.clone() } else { Arc::default() },
            followed: self.followed.clone(),
            born: self.born.clone(),
            ..TableState::new(&self.engine, &self.name(), meta, min_snapshot, self.related.clone())
        };
        // A fill may have raised it, of which the catalog knows nothing.
        next.raise_min_snapshot(self.min_snapshot());
        let pairs = [
            (&self.autoinc, &next.autoinc, self.meta.autoinc_id() == next.meta.autoinc_id()),
            (&self.row_ids, &next.row_ids, true),
        ];
        for (from, to, is_same) in pairs {
            if let Some(counter) = from.get().filter(|_| is_same) {
                let _ = to.set(counter.clone());
            }
        }
        next
    }

    /// The foreign keys of the table and those that name it, as they are now. `None` costs a load.
    #[inline]
    pub fn relations(&self) -> Option<Arc<Relations>> {
        self.related.get()
    }

    /// Where it is told, not 0, that there are any: a relaxed load is enough. Lives as long as the state.
    pub fn related_flag(&self) -> *const u8 {
        self.related.flag()
    }

    /// True if there are any. A load.
    #[inline]
    pub(crate) fn is_related(&self) -> bool {
        self.related.any()
    }

    /// The table's name, for messages.
    pub fn name(&self) -> String {
        self.name.read().clone()
    }

    /// Renames.
    pub fn set_name(&self, name: &str) {
        *self.name.write() = name.to_owned();
    }

    /// Snapshots older than this cannot read the table.
    pub fn min_snapshot(&self) -> SeqNo {
        SeqNo(self.min_snapshot.load(Ordering::Relaxed))
    }

    /// The table has got these indexes, whose entries are those of rows at `seq` and later.
    pub(crate) fn bear(&self, ids: &[IndexId], seq: SeqNo) {
        let has = |id: &IndexId| self.meta.indexes.iter().any(|index| index.id == *id);
        let mut born = self.born.write();
        born.retain(|(id, _)| has(id));
        born.extend(ids.iter().filter(|id| has(id)).map(|id| (*id, seq)));
    }

    /// Unix seconds of the last commit since the start that wrote to the table.
    pub fn update_time(&self) -> Option<u64> {
        self.changes.time()
    }

    /// A number that is another one after each change of what the table holds: snapshots from it on have all of them. `None` while
    /// a commit is on its way.
    pub fn newest_change(&self) -> Option<SeqNo> {
        Some(self.changes.newest()?.max(self.min_snapshot()))
    }

    /// The table got contents in a way that older snapshots would see in part.
    pub fn raise_min_snapshot(&self, seq: SeqNo) {
        self.min_snapshot.fetch_max(seq.0, Ordering::Relaxed);
    }

    /// The auto-increment counter, if the table has such a column.
    pub fn autoinc(&self) -> Option<&Counter> {
        self.autoinc.get().map(|counter| &**counter)
    }

    /// A new hidden row id.
    pub fn next_row_id(&self, is_killed: &dyn Fn() -> bool) -> Result<u64> {
        match self.row_ids.get() {
            Some(counter) => counter.take(is_killed),
            None => Err(Error::invalid("the table has a clustered index, not row ids")),
        }
    }

    /// Starts the counters on the first open of the table since start.
    pub fn start_counters(&self, table: &Table) -> Result<()> {
        let _starting = self.counters_starting.lock();
        let id = self.meta.table_id;
        if self.meta.hidden.is_some() && self.row_ids.get().is_none() {
            let floor = table.last_row_id()?.map_or(1, |last| last.saturating_add(1));
            let _ = self.row_ids.set(Arc::new(Counter::open(&self.engine, id, Which::RowId, floor)?));
        }
        if self.meta.autoinc_column.is_some() && self.autoinc.get().is_none() {
            let floor = table.last_autoinc()?.map_or(1, |last| last.saturating_add(1));
            let _ = self.autoinc.set(Arc::new(Counter::open(&self.engine, id, Which::AutoIncrement, floor)?));
        }
        Ok(())
    }

    /// Stores the exact counters, on a clean close.
    pub fn save_counters(&self) -> Result<()> {
        self.autoinc.get().into_iter().chain(self.row_ids.get()).try_for_each(|counter| counter.save())
    }
}

/// Up to here each whole number is a FLOAT.
const FLOAT_EXACT: u64 = 1 << f32::MANTISSA_DIGITS;
/// Up to here each is a DOUBLE.
const DOUBLE_EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

/// An open table.
pub struct Table {
    store: Arc<Store>,
    /// Run-time state.
    pub state: Arc<TableState>,
    /// The server's definition.
    pub def: TableDef,
    /// Codec of the index that holds the rows.
    pub clustered: Arc<KeyCodec>,
    /// Codec of the rows.
    pub row: RowCodec,
    /// Codecs by index number; the clustered index's is `clustered`.
    pub indexes: Vec<Arc<KeyCodec>>,
    /// Numbers of the secondary indexes.
    pub secondary: Vec<usize>,
    /// The same, as rows are written to them.
    pub(crate) written: Vec<Written>,
    /// The catalog's number of each index: the server may have them in another order.
    pub(crate) places: Vec<usize>,
    born: Vec<(IndexId, SeqNo)>,
    /// When its rows expire, if they do.
    pub(crate) expiry: Option<Expiry>,
    /// Which of its rows are of the past, if it is one WITH SYSTEM VERSIONING.
    pub(crate) versions: Option<RowVersions>,
    /// Records hold pointers to column data.
    pub has_blobs: bool,
    /// Greatest value that the auto-increment counter takes note of.
    autoinc_most: u64,
    /// Its foreign keys, as they were when they were used last.
    pub(crate) links: Mutex<Option<Arc<Links>>>,
}

impl Table {
    /// Builds the codecs. The definition agrees with the catalog, where its indexes have the numbers `places`.
    pub fn new(store: &Arc<Store>, state: Arc<TableState>, def: TableDef, places: Vec<usize>) -> Result<Table> {
        let meta = &state.meta;
        let id = meta.clustered_id();
        let clustered = Arc::new(KeyCodec::new(&def, def.primary, id, id)?);
        let row = RowCodec::versioned(meta, &def, &clustered)?;
        let mut indexes = Vec::with_capacity(def.indexes.len());
        for (i, place) in places.iter().enumerate() {
            indexes.push(match def.primary == Some(i) {
                true => clustered.clone(),
                false => Arc::new(KeyCodec::new(&def, Some(i), meta.indexes[*place].id, id)?),
            });
        }
        let secondary: Vec<usize> = (0..indexes.len()).filter(|i| def.primary != Some(*i)).collect();
        let terms = |place: usize| store.terms(&meta.indexes[place]);
        let mut written = Vec::new();
        for &i in &secondary {
            written.push(Written::new(&def, i, places[i], &indexes[i], terms(places[i]))?);
        }
        let born = state.born.read().clone();
        let expiry = Expiry::of(meta, &def)?;
        let versions = RowVersions::of(meta, &def)?;
        let has_blobs = def.columns.iter().any(|c| c.kind == ColumnType::Blob && !c.is_virtual);
        let autoinc_most = match def.autoinc_column.map(|column| def.columns[column as usize].kind) {
            Some(ColumnType::Float) => FLOAT_EXACT,
            Some(ColumnType::Double) => DOUBLE_EXACT,
            _ => u64::MAX,
        };
        Ok(Table {
            store: store.clone(),
            state,
            def,
            clustered,
            row,
            indexes,
            secondary,
            written,
            places,
            born,
            expiry,
            versions,
            has_blobs,
            autoinc_most,
            links: Mutex::default(),
        })
    }

    /// The database.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        self.store.engine()
    }

    /// The codec of an index; `None` is the table scan order.
    pub fn codec(&self, index: Option<usize>) -> Result<&Arc<KeyCodec>> {
        match index {
            None => Ok(&self.clustered),
            Some(i) => self.indexes.get(i).ok_or_else(|| Error::invalid(format!("the table has no index {i}"))),
        }
    }

    /// The engine's id of an index; `None` is the table scan order.
    pub fn index_id(&self, index: Option<usize>) -> IndexId {
        match index {
            Some(i) => self.state.meta.indexes[self.places[i]].id,
            None => self.state.meta.clustered_id(),
        }
    }

    /// Snapshots older than this cannot use this index.
    pub(crate) fn born(&self, index: IndexId) -> SeqNo {
        self.born.iter().find(|(id, _)| *id == index).map_or(SeqNo::ZERO, |(_, seq)| *seq)
    }

    /// Rows, more or less, as far as memory tells.
    pub(crate) fn estimated_rows(&self) -> u64 {
        let stats = self.engine().index_stats(self.state.meta.clustered_id());
        stats.entries.saturating_sub(stats.tombstones)
    }

    /// Waits until no prepared transaction without a session has written to the table: before that it is not to be altered, nor to be
    /// locked as a whole. What such transactions have written is visible afterwards.
    ///
    /// Errors: `LockTimeout`; `Interrupted`.
    pub fn await_prepared(&self, patience: Patience<'_>) -> Result<()> {
        await_prepared(self.engine(), &self.state.meta, patience)
    }

    /// The error of a row that nobody has named, and that would be a duplicate in the index of this number.
    #[cold]
    pub(crate) fn foreign_duplicate(&self, index: usize) -> Error {
        let index = self.def.indexes.get(index).map_or_else(String::new, |index| index.name.clone());
        Error::ForeignDuplicate { child: self.state.name(), index }
    }

    /// True for a row of the past, of whose record all columns are filled.
    #[inline]
    pub(crate) fn is_past(&self, record: Record<'_>) -> bool {
        self.versions.as_ref().is_some_and(|versions| versions.is_past(record))
    }

    /// An error if a handler with another definition could not open the table: it is not to change places with one of that.
    pub fn refuse_other(&self, def: &TableDef) -> Result<()> {
        compare::check(&self.state.name(), &self.state.meta, def).map(drop)
    }

    /// Reads go to the newest state, whatever the snapshot: only one session can see the table, or its rows are not part
    /// of transactions.
    pub fn reads_newest(&self) -> bool {
        self.state.meta.temporary || self.state.meta.no_rollback
    }

    /// Some index has a virtual column: keys cannot be made from stored rows alone.
    pub fn has_virtual_keys(&self) -> bool {
        self.def.indexes.iter().flat_map(|i| &i.parts).any(|p| self.def.columns[p.column as usize].is_virtual)
    }

    /// Bytes of a row reference: a two-byte length and the clustered key without its index id.
    pub fn ref_length(&self) -> usize {
        match self.def.primary {
            Some(_) => REFERENCE_LENGTH + self.clustered.max_key_bytes() - IndexId::LEN,
            None => REFERENCE_LENGTH + 8,
        }
    }

    /// The first or last entry of an index, read at the newest state.
    pub(crate) fn edge(
        &self,
        index: Option<usize>,
        last: bool,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        let id = self.index_id(index);
        let upper = IndexId(id.0 + 1).prefix();
        let none = self.engine().begin();
        let point = self.engine().read_point();
        let mut cursor = self.engine().cursor();
        cursor.open(&none, point.seq(), &id.prefix(), &upper)?;
        match last {
            true => cursor.seek_lt(&none, &upper)?,
            false => cursor.seek_ge(&none, &id.prefix())?,
        }
        if cursor.valid() {
            key.extend_from_slice(cursor.key());
            value.extend_from_slice(cursor.value());
        }
        Ok(cursor.valid())
    }

    /// An auto-increment value was stored that the counter has not given: it goes on above it. Greater values than the column's numbers
    /// are exact to are not counted. `is_killed`: as of [`Counter::raise`].
    pub fn raise_autoinc(&self, used: u64, is_killed: &dyn Fn() -> bool) -> Result<()> {
        match self.state.autoinc() {
            Some(counter) if used <= self.autoinc_most => counter.raise(used, is_killed),
            Some(_) => Ok(()),
            None => Err(Error::invalid("the table has no auto-increment column")),
        }
    }

    /// ALTER TABLE ... AUTO_INCREMENT = `next`: the counter restarts there, or above the greatest stored value.
    /// `Interrupted` once `is_killed` says so while memory is full.
    pub fn restart_autoinc(&self, next: u64, is_killed: &dyn Fn() -> bool) -> Result<()> {
        let floor = self.last_autoinc()?.map_or(1, |last| last.saturating_add(1));
        match self.state.autoinc() {
            Some(counter) => counter.restart(next.max(floor), is_killed),
            None => Err(Error::invalid("the table has no auto-increment column")),
        }
    }

    fn last_row_id(&self) -> Result<Option<u64>> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        match self.edge(None, true, &mut key, &mut value)? {
            true => Ok(Some(self.clustered.row_id(&key)?)),
            false => Ok(None),
        }
    }

    /// The greatest stored auto-increment value, if an index tells it.
    pub(crate) fn last_autoinc(&self) -> Result<Option<u64>> {
        let Some(column) = self.def.autoinc_column else {
            return Ok(None);
        };
        let leads = |i: &usize| {
            let index = &self.def.indexes[*i];
            index.kind == IndexKind::ORDINARY && index.parts.first().is_some_and(|p| p.column == column)
        };
        let Some(i) = (0..self.def.indexes.len()).find(leads) else {
            return Ok(None);
        };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        if !self.edge(Some(i), !self.def.indexes[i].parts[0].descending, &mut key, &mut value)? {
            return Ok(None);
        }
        let mut record = vec![0; self.def.record_bytes as usize];
        let mut wanted = ColumnSet::new(self.def.columns.len());
        wanted.insert(column as usize);
        match self.def.primary == Some(i) {
            true => self.row.decode(&key, &value, &mut record, Some(&wanted))?,
            false => self.indexes[i].decode_into(&key, &value, &mut record, Some(&wanted))?,
        }
        Ok(Some(self.counter_value(column as usize, &record)).filter(|value| *value <= self.autoinc_most))
    }

    /// The value of a numeric column as a counter sees it: negative values are 0.
    fn counter_value(&self, column: usize, record: &[u8]) -> u64 {
        let column = &self.def.columns[column];
        let at = column.offset as usize;
        let bytes = &record[at..at + column.size as usize];
        match column.kind {
            ColumnType::Int { unsigned } => {
                let mut wide = [0; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                let negative = !unsigned && bytes.last().is_some_and(|b| b & 0x80 != 0);
                if negative { 0 } else { u64::from_le_bytes(wide) }
            }
            ColumnType::Float => bytes.try_into().map_or(0, |b| f32::from_le_bytes(b) as u64),
            ColumnType::Double => bytes.try_into().map_or(0, |b| f64::from_le_bytes(b) as u64),
            _ => 0,
        }
    }
}

impl Table {
    /// True if rows of the table expire.
    #[inline]
    pub fn expires(&self) -> bool {
        self.expiry.is_some()
    }

    /// True if a row that is to be written has expired for a statement with this horizon ([`Session::horizon`](crate::session::Session)).
    pub(crate) fn has_expired_already(&self, record: Record<'_>, horizon: Option<u64>) -> bool {
        let moment = self.expiry.as_ref().and_then(|expiry| expiry.moment(record.bytes()));
        moment.zip(horizon).is_some_and(|(moment, now)| moment <= now)
    }

    /// When the row under `key` expires. `room` is memory for a record.
    pub(crate) fn moment_of(&self, key: &[u8], row: &[u8], room: &mut Vec<u8>) -> Result<Option<u64>> {
        let Some(expiry) = &self.expiry else { return Ok(None) };
        room.resize(self.def.record_bytes as usize, 0);
        let decoded = self.row.decode(key, row, room, Some(&expiry.columns));
        decoded.map_err(|error| Error::from(error).read_at(self.engine(), key))?;
        Ok(expiry.moment(room))
    }

    /// When the row of an entry expires, which an index tells that knows it.
    pub(crate) fn moment_of_entry(
        &self,
        index: usize,
        key: &[u8],
        value: &[u8],
        room: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        let Some(expiry) = &self.expiry else { return Ok(None) };
        room.resize(self.def.record_bytes as usize, 0);
        let decoded = self.indexes[index].decode_into(key, value, room, Some(&expiry.columns));
        decoded.map_err(|error| Error::from(error).read_at(self.engine(), key))?;
        Ok(expiry.moment(room))
    }

    /// True if the row under `key` has expired at `now`.
    pub(crate) fn has_expired(&self, key: &[u8], row: &[u8], now: u64, room: &mut Vec<u8>) -> Result<bool> {
        Ok(self.moment_of(key, row, room)?.is_some_and(|moment| moment <= now))
    }

    /// An index that is in the order in which rows expire, and the key from which on its rows expire at all.
    pub(crate) fn expiry_order(&self) -> Result<Option<(usize, Vec<u8>)>> {
        let Some(expiry) = &self.expiry else { return Ok(None) };
        let leads = |index: &usize| {
            let first = self.def.indexes[*index].parts.first();
            first.is_some_and(|part| part.column as usize == expiry.number && !part.descending)
                && self.written.iter().any(|written| written.number == *index && written.terms.is_none())
        };
        let Some(index) = self.secondary.iter().copied().find(leads) else { return Ok(None) };
        // The image of 0, which is not NULL, and what comes after all rows with it.
        let image = vec![0; self.def.indexes[index].parts[0].store_length as usize];
        let mut from = Vec::new();
        self.indexes[index].encode_image(&image, &mut from)?;
        match prefix_end_in_place(&mut from) && from.len() >= IndexId::LEN {
            true => Ok(Some((index, from))),
            false => Ok(None),
        }
    }
}
