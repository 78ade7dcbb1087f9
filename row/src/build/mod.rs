//! New indexes of a table that others go on to change: some, or all with the rows, which is a rebuild.
//!
//! # Algorithm
//! ```text
//! begin       nobody has the table     numbers for the indexes, noted as such that are to be dropped; changes are noted from
//!                                      now on; snapshot 0 is taken
//! scan        writers                  rows of snapshot 0 -> entries -> sorted -> files of the last level
//! pass n      writers                  rows noted by snapshot n: entries that they had at n - 1 and have no more go, new ones come
//! last pass   nobody has the table     the same, after which the indexes are those of the newest state
//! commit      nobody has the table     one write of the catalog: the table has the indexes
//! ```
//! "Nobody has the table" is the server's exclusive metadata lock, for which it waits until all transactions that have touched the
//! table have ended. A transaction that is prepared and has no session holds no such lock: the caller waits for its end
//! ([`Table::await_prepared`]), at the beginning and before the last pass; a table that it has written to is refused.
//!
//! A pass takes its snapshot first and then the noted keys. So a change that the snapshot shows has been noted before, and its key is
//! among those taken now or earlier. A key whose row is locked, or was changed after the snapshot, is noted again for the next pass:
//! the change that it was noted for may not be in this one.
//!
//! Entries that a pass removes go before those that it adds, so rows that exchange unique values do not meet. What is met then is a
//! duplicate of the snapshot. The scan meets duplicates while it merges what it has sorted.
//!
//! A *rebuild* makes all indexes of the new definition, the one of the rows among them, of records that the server converts
//! ([`Rows`]). The table is the old one until the commit. What a row becomes must depend on the row alone: it is found out again when
//! the row changes.
//!
//! # Invariants
//! After pass n an index has exactly the entries of the rows of snapshot n. No table has an index before the last pass. A crash leaves
//! a note for each number, by which the next start drops it (`crate::catalog`).
//!
//! # Rejected
//! Writers that put the entries themselves while the index is built: each would look up unique values among entries that are not all
//! there yet, a key that comes back would need a mark that it had gone, and a rollback would have to know. A log of the changes, as
//! others have it: it grows with each change of a row that changes often, and has to be undone where a transaction is.

mod entries;
mod pass;
mod scan;

use crate::catalog::{compare, refuse_prepared};
use crate::def::TableDef;
use crate::error::{Error, Result};
use crate::gate::KeptAway;
use crate::index::entries::Written;
use crate::index::limits;
use crate::keycode::KeyCodec;
use crate::kv::{self, CrashPoint, IndexId, NotedKeys, ReadPoint, SameKey, ValueBuf};
use crate::progress::{Progress, Step};
use crate::rowcode::{ColumnSet, Record, RowCodec};
use crate::store::{Alteration, AlteredTable};
use crate::table::Table;
use entries::BuiltRows;
use std::sync::Arc;

/// How rows of the table become records of the new definition.
pub trait Rows {
    /// Memory for a record of the table as it is.
    fn room(&mut self) -> &mut [u8];
    /// The record of the new definition that the row in the room makes, which is the next row of the table, or one that was made before
    /// and is to be as it was. `None`: the new table has no such row.
    fn made(&mut self, again: bool) -> Result<Option<Record<'_>>>;
    /// Memory for a record of the new definition: where `made` puts it.
    fn made_room(&mut self) -> &mut [u8];
}

/// Whoever asks for the work.
pub struct Worker<'a> {
    /// Makes records.
    pub rows: &'a mut dyn Rows,
    /// True once the statement is to end.
    pub is_killed: &'a (dyn Fn() -> bool + Sync),
    /// Is told from time to time how far the work has come.
    pub told: &'a mut dyn FnMut(&Progress),
}

/// A build of new indexes of one table. When it drops without being committed they are dropped.
pub struct Build {
    table: Arc<Table>,
    def: TableDef,
    /// All that are built.
    ids: Vec<IndexId>,
    built: Vec<(IndexId, Written)>,
    rows: Option<BuiltRows>,
    /// Columns that entries are made of; `None`: all.
    wanted: Option<ColumnSet>,
    /// What a record that was made of it points to.
    twice: Vec<u8>,
    /// The entries are those of rows at this point.
    point: ReadPoint,
    keys: Arc<NotedKeys>,
    progress: Arc<Progress>,
    is_committed: bool,
    /// Others of the table are kept from it by the server; the purge by this.
    _kept_away: KeptAway,
}

/// Passes after which the rest is left to the last one, however much it is.
const PASSES_MAX: u32 = 100;
/// So few keys are looked at while others wait.
const REST_MAX: u64 = 1000;

impl Build {
    /// Begins to build the new indexes of an alteration. Nobody may have the table meanwhile, nor have an open transaction that has
    /// written to it.
    pub fn begin(table: &Arc<Table>, alteration: &Alteration, is_killed: &dyn Fn() -> bool) -> Result<Build> {
        let (store, engine, meta) = (table.store(), table.engine(), &table.state.meta);
        engine.check()?;
        refuse_prepared(engine, meta)?;
        if meta.no_rollback || meta.temporary {
            return Err(Error::invalid("indexes of such a table are not built beside writers"));
        }
        let mut def = alteration.def.clone();
        if !alteration.rebuilds {
            compare::keep_forms(&table.state.name(), meta, &mut def)?;
        }
        limits::check(&def)?;
        for index in alteration.new_indexes().map(|number| &def.indexes[number]) {
            store.check_kind(&index.name, index.kind, &index.options)?;
        }
        let kept_away = store.gate().keep_away(meta.table_id);
        let ids = store.catalog().reserve(alteration.ids(), is_killed)?;
        // From here on the numbers are given back when it fails.
        let mut build = Build {
            table: table.clone(),
            wanted: None,
            ids,
            built: Vec::new(),
            rows: None,
            twice: Vec::new(),
            def,
            point: engine.read_point(),
            keys: Arc::new(engine.noted_keys()),
            progress: Arc::new(Progress::new(&table.state.name(), engine.now_us())),
            is_committed: false,
            _kept_away: kept_away,
        };
        store.catalog().encrypt_new(meta, &build.ids)?;
        build.make_codecs(alteration)?;
        if !table.state.followed.begin(&build.keys) {
            return Err(Error::invalid("the table is being altered already"));
        }
        // After that: what is committed from now on has been noted.
        build.point = engine.read_point();
        store.enter_build(&build.progress);
        engine.crash_point(CrashPoint::BuildBegun);
        Ok(build)
    }

    fn make_codecs(&mut self, alteration: &Alteration) -> Result<()> {
        let Build { table, def, ids, .. } = self;
        let (store, engine) = (table.store(), table.engine());
        let mut clustered = table.state.meta.clustered_id();
        if alteration.rebuilds {
            clustered = ids[def.primary.unwrap_or(def.indexes.len())];
            let codec = Arc::new(KeyCodec::new(def, def.primary, clustered, clustered)?);
            let row = RowCodec::new(def, &codec)?;
            self.rows = Some(BuiltRows { id: clustered, number: def.primary, codec, row });
        }
        ids.iter().for_each(|id| engine.set_index_compression(*id, def.compression));
        let mut wanted = ColumnSet::new(table.def.columns.len());
        let parts = |index: usize| def.indexes[index].parts.iter().map(|part| part.column as usize);
        for (number, id) in alteration.new_indexes().zip(ids.iter()).filter(|(_, id)| **id != clustered) {
            let codec = Arc::new(KeyCodec::new(def, Some(number), *id, clustered)?);
            let terms = store.terms_of(def.indexes[number].kind, &def.indexes[number].options);
            self.built.push((*id, Written::new(def, number, number, &codec, terms)?));
            if !alteration.converts && !alteration.rebuilds {
                parts(number).chain(def.primary.into_iter().flat_map(parts)).for_each(|column| wanted.insert(column));
            }
        }
        self.wanted = (!alteration.converts && !alteration.rebuilds).then_some(wanted);
        Ok(())
    }

    /// How far it is, for reports.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Fills the indexes and follows what changes meanwhile, until there is little left. Others go on to change the table.
    ///
    /// Errors: `Duplicate` with the number that the index has in the new definition; the record that was made last is of one of the
    /// rows. `Interrupted`.
    pub fn run(&mut self, worker: &mut Worker<'_>) -> Result<()> {
        self.scan(worker)?;
        let mut left = u64::MAX;
        for _ in 0..PASSES_MAX {
            Build::interrupted(worker.is_killed)?;
            let now = self.keys.count();
            if now <= REST_MAX {
                break;
            }
            if now >= left {
                // A transaction that stays open has changed these rows.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            left = now;
            self.pass(worker)?;
        }
        Ok(())
    }

    /// Follows the last changes. Nobody may have the table until the commit. Errors: as of [`Build::run`].
    pub fn end(&mut self, worker: &mut Worker<'_>) -> Result<()> {
        self.progress.enter(Step::Ending);
        self.pass(worker)
    }

    /// Gives the tables of some builds, all or none, the definition of the alteration, with the indexes that were built.
    ///
    /// Errors: as of [`alter_tables`](crate::store::Store::alter_tables).
    pub fn commit(mut builds: Vec<Build>, alteration: &Alteration, is_killed: &dyn Fn() -> bool) -> Result<()> {
        let Some(store) = builds.first().map(|build| build.table.store().clone()) else { return Ok(()) };
        if is_killed() {
            return Err(Error::Interrupted);
        }
        let altered = |build: &Build| AlteredTable { built: build.ids.clone(), ..alteration.of(&build.table) };
        store.alter_tables(&builds.iter().map(altered).collect::<Vec<_>>(), alteration, is_killed)?;
        builds.iter_mut().for_each(|build| build.is_committed = true);
        Ok(())
    }

    /// An error once the statement is to end.
    fn interrupted(is_killed: &(dyn Fn() -> bool + Sync)) -> kv::Result<()> {
        if is_killed() { Err(kv::Error::Interrupted) } else { Ok(()) }
    }

    /// The record of the new definition that was made of the row at `key` as it was at `read`; `None` if there was none.
    fn record_at<'r>(
        &self,
        key: &[u8],
        read: kv::SeqNo,
        found: &mut ValueBuf,
        rows: &'r mut dyn Rows,
    ) -> Result<Option<Record<'r>>> {
        match self.table.engine().get_at(key, read, found)? {
            true => self.record_of(key, found, rows, true),
            false => Ok(None),
        }
    }

    fn record_of<'r>(&self, key: &[u8], row: &[u8], rows: &'r mut dyn Rows, again: bool) -> Result<Option<Record<'r>>> {
        let decoded = self.table.row.decode(key, row, rows.room(), self.wanted.as_ref());
        decoded.map_err(|error| Error::from(error).read_at(self.table.engine(), key))?;
        rows.made(again)
    }

    fn row_id(&self, key: &[u8]) -> Result<u64> {
        match self.table.def.primary {
            Some(_) => Ok(0),
            None => Ok(self.table.clustered.row_id(key)?),
        }
    }

    /// The error of two rows with one unique value at `read`. Makes the record of one of them.
    #[cold]
    fn duplicate(&mut self, same: SameKey, read: kv::SeqNo, rows: &mut dyn Rows) -> Error {
        let id = IndexId::of(&same.key);
        if let Some((number, built)) =
            self.rows.as_ref().filter(|rows| rows.id == id).and_then(|rows| Some((rows.number?, rows)))
        {
            self.twice = same.value;
            let decoded = built.row.decode(&same.key, &self.twice, rows.made_room(), None);
            return decoded.map_or_else(Error::from, |()| Error::Duplicate(number));
        }
        let Some(built) = self.index(id) else {
            return Error::corruption("an entry of an index that is not being built");
        };
        // The row by its key in the table as it is: a rebuilt one has it among the new rows.
        let mut key = Vec::new();
        let owner = built.codec.clustered_key_from(&same.key, &same.value, &mut key).map_err(Error::from);
        let mut found = ValueBuf::default();
        let made = owner.and_then(|()| match &self.rows {
            None => self.record_at(&key, read, &mut found, rows).map(|record| record.is_some()),
            // Its entry is not in the store yet: what the index itself holds of the row is enough to name its values.
            Some(_) => Ok(built.codec.decode_into(&same.key, &same.value, rows.made_room(), None).map(|()| true)?),
        });
        match made {
            Ok(_) => Error::Duplicate(built.number),
            Err(error) => error,
        }
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        self.table.state.followed.end(&self.keys);
        self.table.store().leave_build(&self.progress);
        if !self.is_committed {
            self.table.store().catalog().release(std::mem::take(&mut self.ids));
        }
    }
}
