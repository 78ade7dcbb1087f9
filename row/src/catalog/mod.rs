//! Which tables there are: names, definitions and index ids, kept in the engine and mirrored in memory.
//!
//! Every change is one atomic durable write of the engine, so a crash leaves the state before or after it. Indexes that a
//! change makes obsolete are noted as pending in the same write, then dropped in the engine, then the note is removed; notes
//! found at open are worked off, so neither order of a crash loses space or drops an index that is in use. Indexes that are being
//! built are noted before they have a key, and the write that gives them to a table removes the note. Ids are given out in
//! memory and the new counter goes with the write that uses them: ids are never used twice, even by a failed change.
//!
//! Changes are put in order under one mutex, with the map in memory; there is no I/O under it, but for a table that is encrypted: that
//! its indexes are is durable before anything of the table is written. Room for the write is taken
//! before, and the wait for the disk comes after, so that changes of different tables share a sync. What others see before it
//! is durable becomes durable before anything they do, or the store stops, which lets nobody go on.
//!
//! A change is done once its write is durable: nothing that can fail comes after that. What is pending is no part of the
//! statement (`clearing`). Changes that drop something or give a name free are made on a full disk, too
//! ([`Engine::write_relief`]).
//!
//! Readers take a shared lock for a map look-up only. Names are opaque strings.
//!
//! Rejected: dropping indexes within the catalog write through an engine primitive. It would tie the engine's manifest to
//! the row layer's log records; two idempotent steps with a note need nothing new.

pub mod alter;
mod clearing;
pub mod compare;
pub(crate) mod define;
mod definition;
mod encryption;
mod entries;
mod entry;
pub mod format;
pub mod graph;
#[cfg(test)]
mod tests;

use crate::def::TableDef;
use crate::error::{Error, Result};
use crate::event::{Event, Teller};
use crate::foreign::key::is_passive;
use crate::foreign::{ForeignKey, Related, Statement};
use crate::kv::{self, CrashPoint, Engine, IndexId, SeqNo};
use crate::schema::TableMeta;
use clearing::Clearing;
use define::{Dictionary, Names, Renamed};
use entries::Entries;
use format::{CATALOG, Entry, FIRST_INDEX_ID, counter_key, statistics_key};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Before the number of a table in the name that it has once its own is given free. No path begins so.
const ASIDE: &str = "#aside/";

/// How urgent the room for a change's write is.
#[derive(Clone, Copy)]
pub(crate) enum Urgency<'a> {
    /// It helps to free space or a name: it is made on a full disk, too, and does not wait for memory.
    Relief,
    /// It waits for memory, until this says that its statement was killed. Nothing has happened then.
    Waits(&'a dyn Fn() -> bool),
}

/// What an ALTER makes: entries with the snapshots they are for, indexes that are gone, entries of other tables.
type Altered = (Vec<(Arc<TableMeta>, Option<SeqNo>)>, Vec<IndexId>, Vec<(String, Arc<TableMeta>)>);

/// What came of a change of tables: the entry of each, and the sequence number below which a snapshot cannot know it; and the number of
/// the change.
type Changed = (Vec<(Arc<TableMeta>, SeqNo)>, SeqNo);

/// A key with its new value, `None` deletes.
type Written = (Vec<u8>, Option<Vec<u8>>);
/// One atomic change.
type Change = Vec<Written>;

/// The tables of a store.
pub struct Catalog {
    engine: Engine,
    tables: RwLock<Entries>,
    /// Next index id and table id; held while a change is put in order, not while it becomes durable.
    ids: Mutex<(u32, u64)>,
    clearing: Arc<Clearing>,
    /// An `EncryptTables`. Changed while `ids` is held.
    encrypt_tables: AtomicU8,
    /// There is, or was since the start, a table whose rows expire.
    any_expires: AtomicBool,
    events: Teller,
}

impl Catalog {
    /// Reads the catalog and finishes interrupted drops.
    pub(crate) fn open(engine: &Engine, events: Teller) -> Result<Catalog> {
        let mut tables = Vec::new();
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
                        tables.push((name.to_owned(), Arc::new(meta)));
                    }
                    Entry::Pending(id) => drop(pending.insert(id)),
                    // Read when it is asked for.
                    Entry::Decisions => {}
                }
                Ok(())
            };
            take().map_err(|error| error.read_at(engine, cursor.key()))?;
            cursor.next(&txn)?;
        }
        cursor.close();
        for (_, meta) in &tables {
            hint_compression(engine, meta);
        }
        let any_expires = tables.iter().any(|(_, meta)| meta.ttl.is_some());
        let catalog = Catalog {
            engine: engine.clone(),
            tables: RwLock::new(Entries::new(tables)),
            ids: Mutex::new(ids),
            clearing: Arc::new(Clearing::new(pending, events.clone())),
            encrypt_tables: AtomicU8::new(0),
            any_expires: AtomicBool::new(any_expires),
            events: events.clone(),
        };
        catalog.clear_strays(&events)?;
        catalog.clearing.clear(engine);
        let clearing = catalog.clearing.clone();
        engine.on_housekeeping(Box::new(move |engine| clearing.try_again(engine)));
        Ok(catalog)
    }

    /// The table of this name.
    pub fn get(&self, name: &str) -> Result<Arc<TableMeta>> {
        self.entry(name).map(|e| e.0)
    }

    /// The sequence number below which a snapshot cannot know the table.
    pub fn min_snapshot(&self, name: &str) -> Result<SeqNo> {
        self.entry(name).map(|e| e.1)
    }

    /// The cell with the relations of the table of this name.
    pub fn related(&self, name: &str) -> Result<Arc<Related>> {
        let tables = self.tables.read();
        tables.get(name).map(|entry| entry.related.clone()).ok_or_else(|| Error::NoTable(name.to_owned()))
    }

    fn entry(&self, name: &str) -> Result<(Arc<TableMeta>, SeqNo)> {
        self.tables
            .read()
            .get(name)
            .map(|e| (e.meta.clone(), e.min_snapshot))
            .ok_or_else(|| Error::NoTable(name.to_owned()))
    }

    /// Whether there was a table of this name for readers at `seq`.
    pub(crate) fn was_there(&self, name: &str, seq: SeqNo) -> Result<bool> {
        Ok(self.engine.get_at(&format::table_key(name), seq, &mut kv::ValueBuf::default())?)
    }

    /// What has happened to a table since it was read at `seq`, if it is not what it was then for these readers: its entry is written anew
    /// by whatever changes, empties or renames it.
    pub(crate) fn became_after(&self, name: &str, seq: SeqNo) -> Result<Option<&'static str>> {
        if !self.was_there(name, seq)? {
            return Ok(Some("created, or got its name,"));
        }
        let is_changed = self.engine.changed_since(&format::table_key(name), seq)?;
        Ok(is_changed.then_some("altered, emptied or replaced"))
    }

    /// The version of a table's definition in the server; of a partitioned table, of which only the partitions are known here, that of
    /// one of them: they change together.
    pub fn version(&self, name: &str) -> Result<[u8; 16]> {
        let found = self.get(name).or_else(|error| {
            let partition = self.names(&format!("{name}#P#")).into_iter().next();
            partition.map_or(Err(error), |partition| self.get(&partition))
        });
        found.map(|meta| meta.version)
    }

    /// Names of all tables that start with `prefix`.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        self.tables.read().from(prefix).map(|(name, _)| name).take_while(|n| n.starts_with(prefix)).cloned().collect()
    }

    /// True if tables other than itself have foreign keys with the parent of this name.
    pub fn is_parent(&self, name: &str) -> bool {
        self.tables.read().children_of(name).any(|child| child != name)
    }

    /// Names and numbers of the tables whose rows expire, but for those that only one session sees, and that go with it.
    pub(crate) fn expiring(&self) -> Vec<(String, u64)> {
        if !self.any_expires.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let is_one = |name: &str, meta: &TableMeta| {
            meta.ttl.is_some() && !meta.temporary && !name.starts_with(ASIDE) && !is_passive(name)
        };
        let tables = self.tables.read();
        let expiring = tables.from("").filter(|(name, entry)| is_one(name, &entry.meta));
        expiring.map(|(name, entry)| (name.clone(), entry.meta.table_id)).collect()
    }

    /// Tells whoever listens to the database.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        self.events.tell(event);
    }

    /// Names of temporary tables, and of those that were set aside.
    pub fn temporary(&self) -> Vec<String> {
        let goes = |name: &str, entry: &TableMeta| entry.temporary || name.starts_with(ASIDE);
        self.tables.read().from("").filter(|(name, e)| goes(name, &e.meta)).map(|(name, _)| name.clone()).collect()
    }

    /// Adds a table with foreign keys; those without a name get one. `extra` is written with it. Returns its entry and the sequence
    /// number of the change. While memory is full this waits until `is_killed` says that it need not: nothing has happened then.
    pub(crate) fn create(
        &self,
        name: &str,
        def: &TableDef,
        (keys, statement, names): (&[ForeignKey], &Statement, &dyn Names),
        extra: impl Fn(&TableMeta) -> Change,
        is_killed: &dyn Fn() -> bool,
    ) -> Result<(Arc<TableMeta>, SeqNo)> {
        let plan = |ids: &mut (u32, u64)| {
            if self.tables.read().get(name).is_some() {
                return Err(Error::TableExists(name.to_owned()));
            }
            let table_id = ids.1;
            ids.1 += 1;
            let mut meta = TableMeta::new(def, table_id, now(), &mut || next_id(ids))?;
            {
                let tables = self.tables.read();
                self.check_encryption(&meta)?;
                meta.foreign = define::keys_to_come(&*tables, names, statement, name, &meta, keys)?;
                define::check_children(&*tables, names, statement, name, &meta)?;
                define::check_ttl(&*tables, names, statement.stands_for(name), &meta)?;
            }
            let meta = Arc::new(meta);
            let mut change = extra(&meta);
            change.push((format::ids_key(), Some(format::encode_ids(ids.0, ids.1))));
            change.push((format::table_key(name), Some(meta.encode())));
            Ok((change, meta))
        };
        let ready = |meta: &Arc<TableMeta>| self.encrypt([&**meta]);
        self.change(Urgency::Waits(is_killed), plan, &ready, |tables, seq, meta| {
            hint_compression(&self.engine, meta);
            tables.put(name, meta.clone(), seq);
        })
    }

    /// Removes tables, all or none; names that are absent are an error, and foreign keys of tables that stay.
    pub(crate) fn drop_tables(&self, names: &[String], statement: &Statement) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let plan = |_: &mut (u32, u64)| {
            let mut change = Change::new();
            let mut gone = Vec::new();
            if let Some(reference) = define::obstacle(&*self.tables.read(), statement, names) {
                return Err(Error::RowIsReferenced(reference));
            }
            for name in names {
                let meta = self.get(name)?;
                refuse_prepared(&self.engine, &meta)?;
                change.push((format::table_key(name), None));
                change.extend([0, 1].map(|which| (counter_key(meta.table_id, which), None)));
                change.push((statistics_key(meta.table_id), None));
                gone.extend(meta.ids());
            }
            note_pending(&mut change, &gone);
            Ok((change, gone))
        };
        let (gone, _) = self.change(Urgency::Relief, plan, &|_| Ok(()), |tables, _, _| {
            for name in names {
                tables.remove(name);
            }
        })?;
        self.clearing.settle(&self.engine, gone);
        Ok(())
    }

    /// Gives a table another name. Replaces nothing. Foreign keys go with the names.
    pub(crate) fn rename(&self, from: &str, to: &str, statement: &Statement, names: &dyn Names) -> Result<()> {
        self.move_entry(from, |meta| {
            refuse_prepared(&self.engine, meta)?;
            let tables = self.tables.read();
            if tables.get(to).is_some() {
                return Err(Error::TableExists(to.to_owned()));
            }
            Ok((to.to_owned(), define::rename(&*tables, names, statement, [from, to], meta)?))
        })
    }

    /// Gives the name of a temporary table or of a partition free that cannot be dropped yet, since a prepared transaction has
    /// written to it. Names of temporary tables come again after a restart. It is dropped with those left over by the next start.
    pub fn set_aside(&self, name: &str) -> Result<()> {
        match name == aside(&*self.get(name)?) {
            true => Ok(()),
            false => self.move_entry(name, |meta| {
                Ok((
                    aside(meta),
                    Renamed { meta: TableMeta { foreign: Vec::new(), ..meta.clone() }, children: Vec::new() },
                ))
            }),
        }
    }

    fn move_entry(&self, from: &str, to: impl Fn(&TableMeta) -> Result<(String, Renamed)>) -> Result<()> {
        let plan = |_: &mut (u32, u64)| {
            let meta = self.get(from)?;
            let (to, renamed) = to(&meta)?;
            let mut change =
                vec![(format::table_key(from), None), (format::table_key(&to), Some(renamed.meta.encode()))];
            change.extend(renamed.children.iter().map(|(name, meta)| (format::table_key(name), Some(meta.encode()))));
            let children = renamed.children.into_iter().map(|(name, meta)| (name, Arc::new(meta)));
            Ok((change, (to, Arc::new(renamed.meta), children.collect::<Vec<_>>())))
        };
        self.change(Urgency::Relief, plan, &|_| Ok(()), |tables, _, (to, meta, children)| {
            tables.rename(from, to, meta.clone(), children.clone());
        })?;
        Ok(())
    }

    /// Gives a table new empty indexes and forgets its counters, its statistics and its earlier schema versions.
    pub fn truncate(&self, name: &str) -> Result<(Arc<TableMeta>, SeqNo)> {
        let plan = |ids: &mut (u32, u64)| {
            let old = self.get(name)?;
            refuse_prepared(&self.engine, &old)?;
            let mut meta = TableMeta::clone(&old);
            meta.forget_former();
            meta.hidden = meta.hidden.map(|_| next_id(ids));
            for index in &mut meta.indexes {
                index.id = next_id(ids);
            }
            let gone = old.ids();
            let mut change = vec![
                (format::ids_key(), Some(format::encode_ids(ids.0, ids.1))),
                (format::table_key(name), Some(meta.encode())),
                (statistics_key(meta.table_id), None),
            ];
            change.extend([0, 1].map(|which| (counter_key(meta.table_id, which), None)));
            note_pending(&mut change, &gone);
            Ok((change, (Arc::new(meta), gone)))
        };
        let ready = |(meta, _): &(Arc<TableMeta>, Vec<IndexId>)| self.encrypt([&**meta]);
        let ((meta, gone), seq) = self.change(Urgency::Relief, plan, &ready, |tables, seq, (meta, _)| {
            hint_compression(&self.engine, meta);
            tables.put(name, meta.clone(), seq);
        })?;
        self.clearing.settle(&self.engine, gone);
        Ok((meta, seq))
    }

    /// Numbers for indexes that are to be built. Until an alteration gives them to a table they are noted, durably, as such that
    /// are to be dropped. `is_killed`: as of `create`.
    pub(crate) fn reserve(&self, count: usize, is_killed: &dyn Fn() -> bool) -> Result<Vec<IndexId>> {
        let plan = |ids: &mut (u32, u64)| {
            let new: Vec<IndexId> = (0..count).map(|_| next_id(ids)).collect();
            let mut change = vec![(format::ids_key(), Some(format::encode_ids(ids.0, ids.1)))];
            note_pending(&mut change, &new);
            Ok((change, new))
        };
        self.change(Urgency::Waits(is_killed), plan, &|_| Ok(()), |_, _, _| {}).map(|(new, _)| new)
    }

    /// Drops indexes whose numbers were reserved, and that no table has got.
    pub(crate) fn release(&self, ids: Vec<IndexId>) {
        if !ids.is_empty() {
            self.clearing.settle(&self.engine, ids);
        }
    }

    /// Puts another entry in the place of that of each of some tables, all or none: what `plan` makes of it, with the ids of the
    /// indexes that it has no more. Names stay; the foreign keys that `plan` leaves follow the names of columns, and those of `added`
    /// come. Indexes that a table has got are noted no more as such that are to be dropped. `beside` is what else is written for a
    /// table, by its id. Returns, in the order of the names, the entry and the sequence number below which a snapshot cannot know
    /// the table, and that of the change.
    pub(crate) fn alter(
        &self,
        names: &[String],
        urgency: Urgency<'_>,
        plan: impl Fn(&str, &TableMeta) -> Result<(TableMeta, Vec<IndexId>)>,
        added: (&[ForeignKey], &Statement, &dyn Names),
        beside: impl Fn(u64) -> Option<Written>,
    ) -> Result<Changed> {
        let plan = |ids: &mut (u32, u64)| {
            let (mut change, mut next, mut all_gone) = (Change::new(), Vec::new(), Vec::new());
            let mut referring = Vec::new();
            for name in names {
                let (old, min_snapshot) = self.entry(name)?;
                refuse_prepared(&self.engine, &old)?;
                let (mut meta, gone) = plan(name, &old)?;
                referring.extend(self.give_keys(name, &old, &mut meta, added)?);
                change.push((format::table_key(name), Some(meta.encode())));
                change.extend(beside(meta.table_id));
                // Of indexes that may be others now.
                change.push((statistics_key(meta.table_id), None));
                let had = old.ids();
                change.extend(
                    meta.ids().iter().filter(|id| !had.contains(id)).map(|id| (format::pending_key(*id), None)),
                );
                // Rows that were written anew are in no older snapshot.
                let has_rows = meta.clustered_id() == old.clustered_id();
                next.push((Arc::new(meta), has_rows.then_some(min_snapshot)));
                all_gone.extend(gone);
            }
            change.push((format::ids_key(), Some(format::encode_ids(ids.0, ids.1))));
            note_pending(&mut change, &all_gone);
            change.extend(referring.iter().map(|(name, meta)| (format::table_key(name), Some(meta.encode()))));
            Ok((change, (next, all_gone, referring)))
        };
        let ready = |(next, _, _): &Altered| self.encrypt(next.iter().map(|(meta, _)| &**meta));
        let ((next, gone, _), seq) = self.change(urgency, plan, &ready, |tables, seq, (next, _, referring)| {
            for (name, (meta, min_snapshot)) in names.iter().zip(next) {
                hint_compression(&self.engine, meta);
                tables.put(name, meta.clone(), min_snapshot.unwrap_or(seq));
            }
            referring.iter().for_each(|(name, meta)| tables.redefine(name, meta.clone()));
        })?;
        self.clearing.settle(&self.engine, gone);
        Ok((next.into_iter().map(|(meta, min_snapshot)| (meta, min_snapshot.unwrap_or(seq))).collect(), seq))
    }

    /// Makes the foreign keys of an altered table's entry, which has those that stay: they follow the names of columns, and new ones come.
    /// Returns the entries of the tables that refer to it, as they are to be.
    pub(crate) fn give_keys(
        &self,
        name: &str,
        old: &TableMeta,
        meta: &mut TableMeta,
        (added, statement, names): (&[ForeignKey], &Statement, &dyn Names),
    ) -> Result<Vec<(String, Arc<TableMeta>)>> {
        let tables = self.tables.read();
        let referring = define::rename_columns(&*tables, name, old, meta);
        let made = define::keys_to_come(&*tables, names, statement, name, meta, added)?;
        meta.foreign.extend(made);
        define::check_ttl(&*tables, names, name, meta)?;
        Ok(referring)
    }

    /// An error if a table that is to change from `before` to `meta` lacks an index that a foreign key needs, be it its own or another
    /// table's, and the statement checks that.
    pub(crate) fn check_indexes(
        &self,
        names: &dyn Names,
        statement: &Statement,
        name: &str,
        [before, meta]: [&TableMeta; 2],
    ) -> Result<()> {
        define::check_indexes(&*self.tables.read(), names, statement, name, [before, meta])
    }

    /// Makes a change: `plan` gives the next ids and tells what is to be written, `enter` brings it into the map. Durable on
    /// return. `plan` is also asked how much it is to be, before there is room for it, and then gives no ids. `ready` is called with what
    /// is about to be written.
    fn change<T>(
        &self,
        urgency: Urgency<'_>,
        plan: impl Fn(&mut (u32, u64)) -> Result<(Change, T)>,
        ready: &dyn Fn(&T) -> Result<()>,
        enter: impl FnOnce(&mut Entries, SeqNo, &T),
    ) -> Result<(T, SeqNo)> {
        let mut trial_ids = *self.ids.lock();
        let trial = plan(&mut trial_ids)?.0;
        if trial_ids.0 > LAST_INDEX_ID {
            return Err(Error::invalid("all numbers of indexes are used up"));
        }
        let mut bytes = Engine::write_bytes(&trial) + TRIAL_SLACK;
        let mut features = format::features_of(&trial);
        loop {
            // Whoever does not know them must not come upon the entry.
            for feature in &features {
                self.engine.require(feature)?;
            }
            let room = match urgency {
                Urgency::Relief => self.engine.room_for_relief(bytes)?,
                Urgency::Waits(is_killed) => self.engine.room(bytes, is_killed)?,
            };
            let mut ids = self.ids.lock();
            let (change, made) = plan(&mut ids)?;
            let needed = Engine::write_bytes(&change);
            if needed > room.bytes() || format::features_of(&change) != features {
                bytes = needed + TRIAL_SLACK;
                features = format::features_of(&change);
                continue;
            }
            ready(&made)?;
            if features.contains(&&format::ROWS_EXPIRE) {
                self.any_expires.store(true, Ordering::Relaxed);
            }
            // What is put in order first becomes durable first: no id is durable before the counter that is above it.
            let written = self.engine.write_within(room, &change)?;
            enter(&mut self.tables.write(), written.seq, &made);
            drop(ids);
            self.engine.crash_point(CrashPoint::ChangeOrdered);
            self.engine.sync_write(&written)?;
            self.engine.crash_point(CrashPoint::ChangeDurable);
            return Ok((made, written.seq));
        }
    }

    /// Indexes that were dropped and whose space is not free yet, for want of space or since the disk fails.
    pub fn uncleared(&self) -> usize {
        self.clearing.left()
    }

    /// Gives back what is left of indexes that were dropped. What fails is repeated at the next start.
    pub fn clear(&self) {
        self.clearing.clear(&self.engine);
    }

    /// Drops whatever index has keys and belongs to no table. Nothing else can own it: what a change makes is in the catalog
    /// before it is written to, and the engine's keyspaces have ids of their own.
    fn clear_strays(&self, events: &Teller) -> Result<()> {
        let owned: BTreeSet<IndexId> = self.tables.read().from("").flat_map(|(_, entry)| entry.meta.ids()).collect();
        let mut strays: Vec<IndexId> = self.engine.indexes()?.into_iter().collect();
        let may_own = |id: &IndexId| id.0 >= FIRST_INDEX_ID && *id < IndexId::KEYSPACES;
        strays.retain(|id| may_own(id) && !owned.contains(id) && !self.clearing.has(*id));
        let Some(last) = strays.last() else { return Ok(()) };
        {
            let mut ids = self.ids.lock();
            ids.0 = ids.0.max(last.0.saturating_add(1));
        }
        let kept = self.engine.drop_indexes(&strays).err();
        if kept.is_some() {
            self.clearing.add(strays.iter().copied());
        }
        events.tell(&Event::Orphans { indexes: strays.len(), first: strays[0], last: *last, kept: kept.as_ref() });
        Ok(())
    }
}

/// What a change may grow by between the look at its size and its order: the ids have a byte more.
const TRIAL_SLACK: usize = 1 << 10;

/// The highest id of an index, with some left for changes that come at one moment: those above are of the engine's keyspaces.
const LAST_INDEX_ID: u32 = IndexId::KEYSPACES.0 - (1 << 20);

fn next_id(ids: &mut (u32, u64)) -> IndexId {
    ids.0 += 1;
    IndexId(ids.0 - 1)
}

/// The name of a temporary table that has lost its own.
fn aside(meta: &TableMeta) -> String {
    format!("{ASIDE}{}", meta.table_id)
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

/// How long to wait for others, and for whom nobody does.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// At most this.
    pub timeout: Duration,
    /// True once the one who waits is to give up.
    pub is_killed: &'a dyn Fn() -> bool,
}

/// Waits for the end of the prepared transactions that have written to a table, which no session may change meanwhile.
pub(crate) fn await_prepared(engine: &Engine, meta: &TableMeta, patience: Patience<'_>) -> Result<()> {
    Ok(engine.await_prepared(&meta.ids(), patience.timeout, patience.is_killed)?)
}

/// Tells the engine how a table's files are to be compressed.
fn hint_compression(engine: &Engine, meta: &TableMeta) {
    if meta.compression.is_some() {
        for id in meta.ids() {
            engine.set_index_compression(id, meta.compression);
        }
    }
}

/// Seconds since 1970 by the system's clock.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
