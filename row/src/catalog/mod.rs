//! Which tables there are: names, definitions and index ids, kept in the engine and mirrored in memory.
//!
//! Every change is one atomic durable write of the engine, so a crash leaves the state before or after it. Indexes that a
//! change makes obsolete are noted as pending in the same write, then dropped in the engine, then the note is removed; notes
//! found at open are worked off, so neither order of a crash loses space or drops a live index. Ids are given out in
//! memory and the new counter goes with the write that uses them: ids are never used twice, even by a failed change.
//!
//! A change is done once its write is durable: nothing that can fail comes between that and the map in memory. What is
//! pending is no part of the statement. If the engine cannot drop an index now, its note stays, the reason is reported, and
//! the next change and the next start try again. Changes that drop something or give a name free are made on a full disk,
//! too ([`Engine::write_relief`]).
//!
//! Changes are serialised by one mutex; readers take a shared lock for a map look-up only. Names are opaque strings.
//!
//! Rejected: dropping indexes within the catalog write through an engine primitive. It would tie the engine's manifest to
//! the row layer's log records; two idempotent steps with a note need nothing new.

pub mod compare;
pub mod format;

use crate::def::{Compression, TableDef};
use crate::error::{Error, Result};
use crate::kv::{self, Engine, IndexId, SeqNo};
use format::{CATALOG, Entry, FIRST_INDEX_ID, TableMeta, counter_key, statistics_key};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Before the number of a temporary table in the name that it has once its own is given free. No path begins so.
const ASIDE: &str = "#aside/";

/// One atomic change: keys with new values, `None` deletes.
type Change = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The tables of a store.
pub struct Catalog {
    engine: Engine,
    /// Entries, and the sequence number of the change that made the table's present indexes (zero if before start).
    tables: RwLock<BTreeMap<String, (Arc<TableMeta>, SeqNo)>>,
    /// Next index id and table id; held during every change.
    ids: Mutex<(u32, u64)>,
    /// Indexes that no table has any more and that the engine still has to drop.
    pending: Mutex<BTreeSet<IndexId>>,
    /// Held by who drops them; the last failure that was reported.
    clearing: Mutex<Option<String>>,
}

impl Catalog {
    /// Reads the catalog and finishes interrupted drops.
    pub fn open(engine: &Engine) -> Result<Catalog> {
        let mut tables = BTreeMap::new();
        let mut ids = (FIRST_INDEX_ID, 1);
        let mut pending = BTreeSet::new();
        let txn = engine.begin();
        let mut cursor = engine.cursor();
        let point = engine.read_point();
        cursor.open(&txn, point.seq(), &CATALOG.prefix(), &IndexId(CATALOG.0 + 1).prefix())?;
        cursor.seek_ge(&txn, &CATALOG.prefix())?;
        while cursor.valid() {
            let mut take = || -> Result<()> {
                match format::parse_key(cursor.key())? {
                    Entry::Ids => ids = format::decode_ids(cursor.value())?,
                    Entry::Table(name) => {
                        let meta = TableMeta::decode(name, cursor.value())?;
                        tables.insert(name.to_owned(), (Arc::new(meta), SeqNo::ZERO));
                    }
                    Entry::Pending(id) => drop(pending.insert(id)),
                }
                Ok(())
            };
            take().map_err(|error| match error {
                Error::Corruption(what) => {
                    Error::Corruption(format!("{what}; it was read from {}", engine.place_of(cursor.key())))
                }
                other => other,
            })?;
            cursor.next(&txn)?;
        }
        cursor.close();
        for (meta, _) in tables.values() {
            hint_compression(engine, meta);
        }
        let catalog = Catalog {
            engine: engine.clone(),
            tables: RwLock::new(tables),
            ids: Mutex::new(ids),
            pending: Mutex::new(pending),
            clearing: Mutex::default(),
        };
        catalog.clear_pending();
        catalog.clear_strays()?;
        Ok(catalog)
    }

    /// The table of this name.
    pub fn get(&self, name: &str) -> Result<Arc<TableMeta>> {
        self.entry(name).map(|e| e.0)
    }

    /// The sequence number below which a snapshot cannot know the table.
    pub fn born(&self, name: &str) -> Result<SeqNo> {
        self.entry(name).map(|e| e.1)
    }

    fn entry(&self, name: &str) -> Result<(Arc<TableMeta>, SeqNo)> {
        self.tables.read().get(name).cloned().ok_or_else(|| Error::NoTable(name.to_owned()))
    }

    /// Names of all tables that start with `prefix`.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let tables = self.tables.read();
        tables.range(prefix.to_owned()..).map(|e| e.0).take_while(|n| n.starts_with(prefix)).cloned().collect()
    }

    /// Names of temporary tables.
    pub fn temporary(&self) -> Vec<String> {
        self.tables.read().iter().filter(|(_, e)| e.0.temporary).map(|(n, _)| n.clone()).collect()
    }

    /// Adds a table. `extra` is written with it. Returns its entry and the sequence number of the change.
    pub fn create(
        &self,
        name: &str,
        def: &TableDef,
        extra: impl FnOnce(&TableMeta) -> Change,
    ) -> Result<(Arc<TableMeta>, SeqNo)> {
        let mut ids = self.ids.lock();
        if self.tables.read().contains_key(name) {
            return Err(Error::TableExists(name.to_owned()));
        }
        let table_id = ids.1;
        ids.1 += 1;
        let mut next_id = || {
            ids.0 += 1;
            IndexId(ids.0 - 1)
        };
        let meta = Arc::new(TableMeta::new(def, table_id, now(), &mut next_id));
        let mut change = extra(&meta);
        change.push((format::ids_key(), Some(format::encode_ids(ids.0, ids.1))));
        change.push((format::table_key(name), Some(meta.encode())));
        hint_compression(&self.engine, &meta);
        let seq = self.engine.write(&change, true)?;
        self.tables.write().insert(name.to_owned(), (meta.clone(), seq));
        drop(ids);
        self.clear_pending();
        Ok((meta, seq))
    }

    /// Removes tables, all or none; names that are absent are an error.
    pub fn drop_tables(&self, names: &[String]) -> Result<()> {
        let ids = self.ids.lock();
        let mut change = Change::new();
        let mut gone = Vec::new();
        for name in names {
            let meta = self.get(name)?;
            refuse_prepared(&self.engine, &meta)?;
            change.push((format::table_key(name), None));
            change.extend([0, 1].map(|which| (counter_key(meta.table_id, which), None)));
            change.push((statistics_key(meta.table_id), None));
            gone.extend(meta.ids());
        }
        note_pending(&mut change, &gone);
        self.engine.write_relief(&change, true)?;
        {
            let mut tables = self.tables.write();
            for name in names {
                tables.remove(name);
            }
        }
        self.pending.lock().extend(gone);
        drop(ids);
        self.clear_pending();
        Ok(())
    }

    /// Gives a table another name. Replaces nothing.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let ids = self.ids.lock();
        let (meta, born) = self.entry(from)?;
        refuse_prepared(&self.engine, &meta)?;
        if self.tables.read().contains_key(to) {
            return Err(Error::TableExists(to.to_owned()));
        }
        self.move_entry(from, to, meta, born)?;
        drop(ids);
        self.clear_pending();
        Ok(())
    }

    /// Gives the name of a temporary table free that cannot be dropped yet, since a prepared transaction has written to it.
    /// Names of temporary tables come again after a restart. It is dropped with those left over by the next start.
    pub fn set_aside(&self, name: &str) -> Result<()> {
        let _ids = self.ids.lock();
        let (meta, born) = self.entry(name)?;
        let aside = format!("{ASIDE}{}", meta.table_id);
        if name == aside {
            return Ok(());
        }
        self.move_entry(name, &aside, meta, born)
    }

    fn move_entry(&self, from: &str, to: &str, meta: Arc<TableMeta>, born: SeqNo) -> Result<()> {
        let change = vec![(format::table_key(from), None), (format::table_key(to), Some(meta.encode()))];
        self.engine.write_relief(&change, true)?;
        let mut tables = self.tables.write();
        tables.remove(from);
        tables.insert(to.to_owned(), (meta, born));
        Ok(())
    }

    /// Gives a table new empty indexes and forgets its counters and statistics.
    pub fn truncate(&self, name: &str) -> Result<(Arc<TableMeta>, SeqNo)> {
        let mut ids = self.ids.lock();
        let old = self.get(name)?;
        refuse_prepared(&self.engine, &old)?;
        let mut meta = TableMeta::clone(&old);
        let mut next_id = || {
            ids.0 += 1;
            IndexId(ids.0 - 1)
        };
        meta.hidden = meta.hidden.map(|_| next_id());
        for index in &mut meta.indexes {
            index.id = next_id();
        }
        let gone = old.ids();
        let meta = Arc::new(meta);
        let mut change = vec![
            (format::ids_key(), Some(format::encode_ids(ids.0, ids.1))),
            (format::table_key(name), Some(meta.encode())),
            (statistics_key(meta.table_id), None),
        ];
        change.extend([0, 1].map(|which| (counter_key(meta.table_id, which), None)));
        note_pending(&mut change, &gone);
        hint_compression(&self.engine, &meta);
        let seq = self.engine.write_relief(&change, true)?;
        self.tables.write().insert(name.to_owned(), (meta.clone(), seq));
        self.pending.lock().extend(gone);
        drop(ids);
        self.clear_pending();
        Ok((meta, seq))
    }

    /// Drops pending indexes in the engine and removes their notes. What fails stays pending.
    fn clear_pending(&self) {
        if self.pending.lock().is_empty() {
            return;
        }
        let mut reported = self.clearing.lock();
        let ids: Vec<IndexId> = self.pending.lock().iter().copied().collect();
        if ids.is_empty() {
            return;
        }
        let notes: Change = ids.iter().map(|id| (format::pending_key(*id), None)).collect();
        // A note that outlives a crash is worked off again, which does nothing.
        let cleared = self.engine.drop_indexes(&ids).and_then(|()| self.engine.write_relief(&notes, false));
        match cleared {
            Ok(_) => {
                self.pending.lock().retain(|id| ids.binary_search(id).is_err());
                *reported = None;
            }
            Err(error) => {
                let what = format!("the space of {} dropped indexes is not free yet: {error}", ids.len());
                if reported.as_ref() != Some(&what) {
                    self.engine.report(&what);
                }
                *reported = Some(what);
            }
        }
    }

    /// Drops whatever index has keys and belongs to no table. Nothing else can own it: what a change makes is in the catalog
    /// before it is written to.
    fn clear_strays(&self) -> Result<()> {
        let owned: BTreeSet<IndexId> = self.tables.read().values().flat_map(|(meta, _)| meta.ids()).collect();
        let mut strays: Vec<IndexId> = self.engine.indexes()?.into_iter().collect();
        strays.retain(|id| id.0 >= FIRST_INDEX_ID && !owned.contains(id) && !self.pending.lock().contains(id));
        let Some(last) = strays.last() else { return Ok(()) };
        {
            let mut ids = self.ids.lock();
            ids.0 = ids.0.max(last.0.saturating_add(1));
        }
        let (count, first) = (strays.len(), strays[0]);
        let outcome = match self.engine.drop_indexes(&strays) {
            Ok(()) => "their space is given back".to_owned(),
            Err(error) => format!("their space is not free yet: {error}"),
        };
        self.engine.report(&format!("{count} indexes belong to no table (first {first}, last {last}): {outcome}"));
        Ok(())
    }
}

fn note_pending(change: &mut Change, ids: &[IndexId]) {
    change.extend(ids.iter().map(|id| (format::pending_key(*id), Some(format::encode_pending()))));
}

/// A table to which a prepared transaction has written stays as it is until the transaction ends: its commit was promised.
/// While its session lives, the server's metadata lock sees to it; after that nobody but the engine knows. A rename is
/// refused, too, since that is how the server puts an altered copy in the place of a table.
pub(crate) fn refuse_prepared(engine: &Engine, meta: &TableMeta) -> Result<()> {
    match engine.prepared_writes(&meta.ids()) {
        true => Err(kv::Error::LockTimeout.into()),
        false => Ok(()),
    }
}

/// Tells the engine how a table's files are to be compressed.
fn hint_compression(engine: &Engine, meta: &TableMeta) {
    let hint = match meta.compression {
        None => return,
        Some(Compression::None) => kv::Compression::None,
        Some(Compression::Lz4) => kv::Compression::Lz4,
        Some(Compression::Zstd) => kv::Compression::Zstd,
    };
    for id in meta.ids() {
        engine.set_index_compression(id, Some(hint));
    }
}

/// Seconds since 1970 by the system's clock.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
