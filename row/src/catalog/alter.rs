//! Changes of a table that leave its rows where they are, as pure functions from one entry to the next.
//!
//! *Columns* may come, go, change places and names, and become wider; rows stay as they were written, and the present list of
//! columns becomes an earlier schema version, unless rows are the same by both. What keys are made of does not change: a column that is in an index may change its
//! name and place, and a VARCHAR may become longer.
//!
//! *Indexes* may come, once they have their entries, and go. A table may be *rebuilt*: then rows and entries are others.

use crate::def::{ColumnType, IndexKind, TableDef};
use crate::error::{Error, Result};
use crate::kv::IndexId;
use crate::rowcode::Record;
use crate::rowcode::convert::{Conversion, is_text};
use crate::rowcode::layout::Layout;
use crate::schema::{FIRST_VERSION, Initial, Schema, StoredColumn, StoredIndex, StoredPart, TableMeta};

/// Where a column of the new list comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// It is the column of this number in the present list.
    Kept(usize),
    /// It is new, and has this value in the rows that are there.
    Added(Initial),
}

impl Source {
    /// A new column of `def`, with the value that it has in `record`.
    pub fn added(def: &TableDef, column: usize, record: Record<'_>) -> Result<Source> {
        if def.columns[column].is_virtual {
            return Ok(Source::Added(Initial::Null));
        }
        let value = Layout::of(def, column)?.value(record);
        Ok(Source::Added(value.map_or(Initial::Null, |value| Initial::Value(value.to_vec()))))
    }
}

/// Schema versions before the present one that a table may have. Each costs memory in every handler, and a little in the catalog.
pub const FORMER_MAX: usize = 255;

impl TableMeta {
    /// The table with the columns of `def`, one `source` for each. Indexes of `def` are not looked at. The present list becomes an
    /// earlier version if there are rows of it.
    pub fn with_columns(&self, def: &TableDef, sources: &[Source], has_rows: bool) -> Result<TableMeta> {
        if sources.len() != def.columns.len() {
            return Err(Error::invalid(format!("{} columns with {} sources", def.columns.len(), sources.len())));
        }
        let mut next = self.clone();
        next.columns.clear();
        // The new number of each present column.
        let mut moved = vec![None; self.columns.len()];
        for (number, (source, column)) in sources.iter().zip(&def.columns).enumerate() {
            let stored = match source {
                Source::Kept(from) => {
                    let old = self.columns.get(*from).filter(|_| moved[*from].is_none());
                    let old = old.ok_or_else(|| Error::invalid(format!("column {from} cannot be kept twice")))?;
                    moved[*from] = Some(number as u32);
                    self.kept(*from, old, StoredColumn::of(old.id, column))?
                }
                Source::Added(initial) => {
                    let id = next.next_column;
                    next.next_column += 1;
                    added(StoredColumn::of(id, column), initial)?
                }
            };
            next.columns.push(stored);
        }
        for index in &mut next.indexes {
            let to = |part: &StoredPart| {
                let column = moved[part.column as usize]?;
                let (old, new) = (&self.columns[part.column as usize], &next.columns[column as usize]);
                // A part that has the whole text goes on to have it.
                let whole = old.kind == ColumnType::VarChar && part.length == old.size;
                Some(StoredPart { column, length: if whole { new.size } else { part.length }, ..part.clone() })
            };
            let parts: Vec<StoredPart> = index.parts.iter().filter_map(to).collect();
            if parts.len() < index.parts.len() {
                return Err(Error::invalid(format!("index '{}' has a column that is dropped", index.name)));
            }
            index.parts = parts;
        }
        let old_counter = self.autoinc_column.and_then(|column| moved[column as usize]);
        if def.autoinc_column.is_some() && def.autoinc_column != old_counter {
            return Err(Error::invalid("another auto-increment column needs the rows to be written anew"));
        }
        if !same_rows(&self.columns, &next.columns) {
            if has_rows && self.former.len() >= FORMER_MAX {
                return Err(Error::invalid(format!("rows of {} former definitions are there", self.former.len())));
            }
            if has_rows {
                let mut columns = self.columns.clone();
                columns.iter_mut().for_each(|column| column.initial = None);
                next.former.push(Schema { version: self.schema_version, columns });
            }
            next.schema_version += 1;
        }
        next.autoinc_column = def.autoinc_column;
        next.version = def.version;
        next.take_times(def)?;
        Ok(next)
    }

    /// The table when no row of a schema version before this one is left.
    pub fn since_version(&self, version: u32) -> TableMeta {
        let mut next = self.clone();
        next.former.retain(|schema| schema.version >= version);
        for column in &mut next.columns {
            if next.former.iter().all(|schema| schema.columns.iter().any(|old| old.id == column.id)) {
                column.initial = None;
            }
        }
        next
    }

    /// A column of the present list as it is to be.
    fn kept(&self, number: usize, old: &StoredColumn, mut new: StoredColumn) -> Result<StoredColumn> {
        let anew = |why: &str| Error::invalid(format!("column '{}' cannot be changed in place: {why}", old.name));
        let conversion = Conversion::between(old, &new).ok_or_else(|| anew("its values have another form"))?;
        let uses = |index: &&StoredIndex| index.parts.iter().any(|part| part.column as usize == number);
        let mut users = self.indexes.iter().filter(uses);
        if let Some(index) = users.next() {
            let same = conversion == Conversion::Same
                && (old.kind, old.size, old.length_bytes, old.nullable, &old.collation)
                    == (new.kind, new.size, new.length_bytes, new.nullable, &new.collation);
            // What a key has of a text does not depend on how long it might be.
            let longer = (old.kind, new.kind) == (ColumnType::VarChar, ColumnType::VarChar)
                && (old.nullable, &old.collation) == (new.nullable, &new.collation)
                && index.kind == IndexKind::ORDINARY
                && users.all(|other| other.kind == IndexKind::ORDINARY);
            if !same && !longer {
                return Err(anew(&format!("index '{}' has it", index.name)));
            }
            // The keys that are there have it.
            new.form = old.form;
        }
        new.initial = match &old.initial {
            Some(Initial::Value(value)) => {
                let value = conversion.apply(value, &new).ok_or_else(|| anew("its initial value does not fit"))?;
                Some(Initial::Value(value))
            }
            other => other.clone(),
        };
        Ok(new)
    }

    /// The table without the indexes that are not among `kept`, and the ids of their entries. The one of the rows stays.
    pub fn without_indexes(&self, kept: &[usize]) -> Result<(TableMeta, Vec<IndexId>)> {
        let mut next = self.clone();
        let mut gone = Vec::new();
        for number in (0..self.indexes.len()).rev().filter(|number| !kept.contains(number)) {
            if self.primary == Some(number) {
                return Err(Error::invalid(format!("index '{}' holds the rows", self.indexes[number].name)));
            }
            gone.push(next.indexes.remove(number).id);
            next.primary = next.primary.map(|primary| primary - usize::from(primary > number));
        }
        Ok((next, gone))
    }

    /// The table with the columns and indexes of `def`, whose rows and entries were written anew: under `ids`, one for each index
    /// and then one for the rows of a table without primary key. And the ids that it had. Columns that are kept keep their numbers. Where
    /// the rows were `numbered` the auto-increment column may be a new one.
    pub fn rebuilt(
        &self,
        def: &TableDef,
        sources: &[Source],
        ids: &[IndexId],
        numbered: bool,
    ) -> Result<(TableMeta, Vec<IndexId>)> {
        let count = def.indexes.len() + usize::from(def.primary.is_none());
        if sources.len() != def.columns.len() || ids.len() != count {
            return Err(Error::invalid(format!("{} sources and {} ids for a table", sources.len(), ids.len())));
        }
        if self.no_rollback || def.primary.is_none() && self.primary.is_some() {
            return Err(Error::invalid("rows cannot be given numbers in the place of a primary key"));
        }
        let mut next = self.clone();
        next.columns.clear();
        next.former.clear();
        next.schema_version = FIRST_VERSION;
        let mut counter = None;
        for (number, (source, column)) in (0..).zip(sources.iter().zip(&def.columns)) {
            let id = match source {
                Source::Kept(from) => {
                    let old =
                        self.columns.get(*from).filter(|old| next.columns.iter().all(|column| column.id != old.id));
                    if self.autoinc_column == u32::try_from(*from).ok() {
                        counter = Some(number);
                    }
                    old.ok_or_else(|| Error::invalid(format!("column {from} cannot be kept twice")))?.id
                }
                Source::Added(_) => {
                    next.next_column += 1;
                    next.next_column - 1
                }
            };
            next.columns.push(StoredColumn::of(id, column));
        }
        let is_new = |column: u32| numbered && matches!(sources[column as usize], Source::Added(_));
        if def.autoinc_column.is_some_and(|column| counter != Some(column) && !is_new(column)) {
            return Err(Error::invalid("another auto-increment column needs the rows to be numbered"));
        }
        next.indexes = (0..def.indexes.len()).zip(ids).map(|(number, id)| StoredIndex::of(*id, def, number)).collect();
        next.primary = def.primary;
        next.hidden = ids.get(def.indexes.len()).copied();
        next.autoinc_column = def.autoinc_column;
        next.compression = def.compression;
        next.version = def.version;
        next.take_times(def)?;
        Ok((next, self.ids()))
    }

    /// The table with an index more, whose entries are there: one of a definition that has the table's columns.
    pub fn with_index(&self, def: &TableDef, number: usize, id: IndexId) -> Result<TableMeta> {
        let index = &def.indexes[number];
        if index.parts.iter().any(|part| part.column as usize >= self.columns.len()) {
            return Err(Error::invalid(format!("index '{}' has a part without column", index.name)));
        }
        if self.no_rollback {
            return Err(Error::invalid("a table without rollback cannot have secondary indexes"));
        }
        let mut next = self.clone();
        next.indexes.push(StoredIndex::of(id, def, number));
        Ok(next)
    }
}

/// True if a row of the one list is, byte by byte, a row of the other: another name, a longer text, a virtual column.
fn same_rows(old: &[StoredColumn], new: &[StoredColumn]) -> bool {
    let form = |column: &StoredColumn| {
        let fixed = (!is_text(column.kind)).then_some((column.kind, column.size));
        (column.id, column.nullable, fixed)
    };
    let forms = |columns: &[StoredColumn]| columns.iter().filter(|c| !c.is_virtual).map(form).collect::<Vec<_>>();
    forms(old) == forms(new)
}

/// A new column.
fn added(mut new: StoredColumn, initial: &Initial) -> Result<StoredColumn> {
    let fits = match initial {
        Initial::Null => new.nullable || new.is_virtual,
        Initial::Value(value) if is_text(new.kind) => value.len() as u64 <= new.size_max(),
        Initial::Value(value) => value.len() == new.size as usize,
    };
    if !fits {
        return Err(Error::invalid(format!("the initial value of column '{}' does not fit", new.name)));
    }
    if !new.is_virtual {
        new.initial = Some(initial.clone());
    }
    Ok(new)
}
