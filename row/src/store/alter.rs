//! ALTER TABLE as far as the catalog and the tables in use are concerned: columns change in place, indexes come and go.

use super::Store;
use crate::auto_increment::{Counter, Which};
use crate::catalog::alter::Source;
use crate::catalog::define::Names;
use crate::catalog::format::FIRST_INDEX_ID;
use crate::catalog::{Urgency, compare};
use crate::def::{Index, KeyPart, TableDef};
use crate::error::{Error, Result};
use crate::foreign::{ForeignKey, KeyChange, Statement};
use crate::index::limits;
use crate::keycode::KeyCodec;
use crate::kv::IndexId;
use crate::rowcode::RowCodec;
use crate::schema::{StoredIndex, StoredPart, TableMeta};
use crate::table::Table;
use std::sync::Arc;

/// What a statement makes of the tables that it alters. It is the same for all partitions of a table.
#[derive(Clone)]
pub struct Alteration {
    /// The new definition.
    pub def: TableDef,
    /// Where each column comes from.
    pub sources: Vec<Source>,
    /// The number that each index has in the definition of before; `None`: it is new.
    pub kept: Vec<Option<usize>>,
    /// What the statement says of foreign keys.
    pub statement: Statement,
    /// Foreign keys that go and come.
    pub keys: KeyChange,
    /// The rows are written anew, and all indexes are new ones.
    pub rebuilds: bool,
    /// Records of the new definition are not those of the old one.
    pub converts: bool,
    /// The AUTO_INCREMENT column is new: the records bring its values, and its counter goes on here.
    pub counter: Option<u64>,
}

impl Alteration {
    /// Numbers of the new indexes.
    pub fn new_indexes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.kept.len()).filter(|number| self.rebuilds || self.kept[*number].is_none())
    }

    /// How many numbers of indexes it takes: of a rebuilt table without primary key one for the rows.
    pub fn ids(&self) -> usize {
        self.new_indexes().count() + usize::from(self.rebuilds && self.def.primary.is_none())
    }

    /// One of the tables, with nothing built.
    pub fn of(&self, table: &Table) -> AlteredTable {
        let kept = self.kept.iter().filter_map(|kept| table.places.get((*kept)?).copied()).collect();
        AlteredTable { name: table.state.name(), kept, built: Vec::new() }
    }
}

/// A table that is altered.
pub struct AlteredTable {
    /// Its name in the catalog.
    pub name: String,
    /// The catalog's numbers of the indexes that are kept.
    pub kept: Vec<usize>,
    /// Ids of the new indexes, which have their entries; of a rebuilt table all, and that of the rows.
    pub built: Vec<IndexId>,
}

impl Store {
    /// Gives tables, all or none, what an alteration says: columns, which come from where its sources say, while the rows stay as they
    /// are; and indexes. Handlers that have the tables open must open them again with the new definition. While memory is full this waits until `is_killed` says that it need not: nothing has
    /// happened then.
    ///
    /// Errors: `IndexOfForeign` if a foreign key needs an index that goes; `NoForeignKey`, `CannotAddForeign`, `ForeignNameTaken`.
    pub fn alter_tables(
        &self,
        tables: &[AlteredTable],
        alteration: &Alteration,
        is_killed: &dyn Fn() -> bool,
    ) -> Result<()> {
        let names: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
        self.await_renewal(&names, is_killed)?;
        let _change = self.gate.change();
        let plan = |name: &str, old: &TableMeta| {
            let table = tables.iter().find(|table| table.name == name);
            self.altered(old, alteration, table.ok_or_else(|| Error::NoTable(name.to_owned()))?)
        };
        let added = (&alteration.keys.added[..], &alteration.statement, self as &dyn Names);
        // The mark of a counter that there was before is not that of the new one.
        let counter = |table| alteration.counter.map(|next| Counter::initial(table, Which::AutoIncrement, next));
        let changed = self.catalog.alter(&names, Urgency::Waits(is_killed), plan, added, counter);
        let (altered, seq) = self.noting(names.first().map_or("", String::as_str), changed)?;
        let mut states = self.tables.lock();
        for (AlteredTable { name, built, .. }, (meta, min_snapshot)) in tables.iter().zip(altered) {
            if let Some(state) = states.get(name).filter(|state| !Arc::ptr_eq(&state.meta, &meta)) {
                let state = Arc::new(state.successor(meta, min_snapshot));
                state.bear(built, seq);
                states.insert(name.clone(), state);
            }
        }
        drop(states);
        names.iter().for_each(|name| self.begin_renewal(name, &alteration.def));
        Ok(())
    }

    /// An error where [`Store::alter_tables`] would have one for what is asked of it. If rows of very many schema versions are there
    /// it waits here until they are rewritten, and `Interrupted` once `is_killed` says so: other statements go on meanwhile.
    pub fn check_alteration(
        &self,
        table: AlteredTable,
        alteration: &Alteration,
        is_killed: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.await_renewal(std::slice::from_ref(&table.name), is_killed)?;
        self.keys_to_come(table, alteration).map(drop)
    }

    /// The foreign keys that an alteration brings, with the names that they get. Errors: as of [`Store::alter_tables`].
    pub fn keys_to_come(&self, mut table: AlteredTable, alteration: &Alteration) -> Result<Vec<Arc<ForeignKey>>> {
        table.built = vec![IndexId(FIRST_INDEX_ID); alteration.ids()];
        let old = self.catalog.get(&table.name)?;
        let coming = self.altered(&old, alteration, &table).and_then(|(mut next, _)| {
            let kept = next.foreign.len();
            let added = (&alteration.keys.added[..], &alteration.statement, self as &dyn Names);
            self.catalog.give_keys(&table.name, &old, &mut next, added)?;
            Ok(next.foreign.split_off(kept))
        });
        self.noting(&table.name, coming)
    }

    /// The entry `old` of a table as an alteration makes it, and the ids of the indexes that go.
    fn altered(
        &self,
        old: &TableMeta,
        alteration: &Alteration,
        table: &AlteredTable,
    ) -> Result<(TableMeta, Vec<IndexId>)> {
        let name = table.name.as_str();
        let state = self.tables.lock().get(name).filter(|state| state.meta.has_rows_of(old)).cloned();
        let (known, has_rows) = match state {
            Some(state) => state.history.known(&self.engine, old)?,
            None => (old.clone(), true),
        };
        let (next, gone) = match alteration.rebuilds {
            true => known.rebuilt(&alteration.def, &alteration.sources, &table.built, alteration.counter.is_some())?,
            false => {
                let (bare, gone) = known.without_indexes(&table.kept)?;
                (altered(&bare, alteration, &table.built, has_rows)?, gone)
            }
        };
        let mut next = checked(name, next, &alteration.def)?;
        if old.ttl.is_some() || next.ttl.is_some() {
            refuse_beside_expired(old, alteration)?;
        }
        next.foreign = alteration.keys.kept(&old.foreign).map_err(Error::NoForeignKey)?;
        if !gone.is_empty() {
            self.catalog.check_indexes(self, &alteration.statement, name, [old, &next])?;
        }
        Ok((next, gone))
    }

    fn await_renewal(&self, names: &[String], is_killed: &dyn Fn() -> bool) -> Result<()> {
        for name in names {
            let meta = self.catalog.get(name)?;
            let state = self.tables.lock().get(name).cloned();
            if let Some(state) = state {
                state.history.await_room(&self.engine, &meta, is_killed)?;
            }
        }
        Ok(())
    }

    fn begin_renewal(&self, name: &str, def: &TableDef) {
        let state = self.tables.lock().get(name).cloned();
        if let Some(state) = state {
            // Without it the versions stay, no more.
            drop(state.history.renew_if_many(&self.engine, &state.meta, def));
        }
    }
}

/// Rows that have expired may still be there: they count for nothing, but what is made of all rows would meet them. A copy by the server
/// leaves them out.
fn refuse_beside_expired(old: &TableMeta, alteration: &Alteration) -> Result<()> {
    let from = |column: u32| alteration.sources.get(column as usize);
    // A rebuild makes all indexes anew, those that were there before among them: their values are unique, expired rows included.
    let was_there = |index: &Index| {
        let same = |(part, old): (&KeyPart, &StoredPart)| {
            from(part.column) == Some(&Source::Kept(old.column as usize)) && part.length == old.length
        };
        let is_it =
            |old: &&StoredIndex| old.parts.len() == index.parts.len() && index.parts.iter().zip(&old.parts).all(same);
        old.indexes.iter().filter(|old| old.unique).any(|old| is_it(&old))
    };
    let mut pairs = alteration.def.indexes.iter().zip(&alteration.kept);
    if pairs.any(|(index, kept)| index.unique && kept.is_none() && !was_there(index)) {
        return Err(Error::invalid(
            "a unique key of a table whose rows expire (TTL) needs a copy, which leaves expired rows out",
        ));
    }
    if !alteration.keys.added.is_empty() && alteration.statement.checks {
        return Err(Error::invalid(
            "a foreign key of a table whose rows expire (TTL) needs a copy, which leaves expired rows out",
        ));
    }
    Ok(())
}

/// The entry `old`, which has the indexes that stay, with the columns of the new definition and its new indexes.
fn altered(old: &TableMeta, alteration: &Alteration, ids: &[IndexId], has_rows: bool) -> Result<TableMeta> {
    let mut next = old.with_columns(&alteration.def, &alteration.sources, has_rows)?;
    for (number, id) in alteration.new_indexes().zip(ids) {
        next = next.with_index(&alteration.def, number, *id)?;
    }
    Ok(next)
}

/// The entry with the names of the definition, if a table of that can be opened with it.
fn checked(name: &str, mut next: TableMeta, def: &TableDef) -> Result<TableMeta> {
    limits::check(def)?;
    let places = compare::check(name, &next, def)?;
    for (index, place) in def.indexes.iter().zip(places) {
        next.indexes[place].name.clone_from(&index.name);
    }
    // What could not be read afterwards is not to happen.
    let clustered = KeyCodec::new(def, def.primary, next.clustered_id(), next.clustered_id())?;
    RowCodec::versioned(&next, def, &Arc::new(clustered))?;
    Ok(next)
}
