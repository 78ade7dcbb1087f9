//! Which tables refer to which: the foreign keys of all tables, bound to columns and indexes.
//!
//! Each table of the catalog has a cell with its relations ([`Related`]) that lives as long as the table, whatever its name
//! and definition become; open tables share it. The catalog's map calls [`Graph`] with each change, under its lock: all cells
//! that the change concerns are bound anew, so that an open parent learns of a new child at once.
//!
//! A key whose parent is missing, or lacks what the key needs, is bound as far as it goes: without `parent_index`. Nothing is
//! found through it.

use super::format::table_key;
use crate::def::{ColumnType, IndexKind};
use crate::foreign::key::{database, is_passive, same_column};
use crate::foreign::{ForeignKey, Reference, Related, Relations};
use crate::schema::{StoredColumn, StoredIndex, StoredPart, TableMeta};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The collation of text that is bytes.
const BINARY: &str = "binary";

/// What is locked in the name of a table, shared by transactions that rely on the parent of this name, exclusively by who puts
/// something else in its place.
pub fn name_lock(name: &str) -> Vec<u8> {
    table_key(name)
}

/// Where the graph finds tables.
pub(crate) trait Tables {
    /// A table's entry and its cell.
    fn table(&self, name: &str) -> Option<(&Arc<TableMeta>, &Arc<Related>)>;
}

/// Child tables and keys by name.
#[derive(Default)]
pub(crate) struct Graph {
    /// Names of child tables by that of the parent.
    children: BTreeMap<String, BTreeSet<String>>,
    /// The child of each key, by its database and the key's name in lower case.
    owners: BTreeMap<(String, String), String>,
    /// Children that were set aside, by the name of the parent, and what they were called. See [`Graph::set_aside`].
    aside: BTreeMap<String, BTreeMap<String, String>>,
}

impl Graph {
    /// The names of the tables that have keys with this parent.
    pub fn children<'a>(&'a self, parent: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.children.get(parent).into_iter().flatten().map(String::as_str)
    }

    /// The table that has a key of this name, which is in lower case, in this database.
    pub fn owner(&self, database: &str, name: &str) -> Option<&str> {
        self.owners.get(&(database.to_owned(), name.to_owned())).map(String::as_str)
    }

    /// A table has come, with these keys.
    pub fn enter(&mut self, name: &str, meta: &TableMeta) {
        if is_passive(name) {
            return;
        }
        for key in &meta.foreign {
            self.children.entry(key.parent.clone()).or_default().insert(name.to_owned());
            self.owners.insert(owner_key(name, key), name.to_owned());
        }
    }

    /// A child was given a passive name, since a copy is about to take its place. Until it is dropped, or comes back, no row goes to
    /// which one of its rows refers: between the two renames nothing else would say so.
    pub fn set_aside(&mut self, name: &str, former: &str, meta: &TableMeta) {
        for key in meta.foreign.iter().filter(|key| key.parent != former) {
            self.aside.entry(key.parent.clone()).or_default().insert(name.to_owned(), former.to_owned());
        }
    }

    /// A table goes, or is to come again with other keys.
    pub fn leave(&mut self, name: &str, meta: &TableMeta) {
        if is_passive(name) {
            self.aside.retain(|_, children| {
                children.remove(name);
                !children.is_empty()
            });
            return;
        }
        for key in &meta.foreign {
            self.owners.remove(&owner_key(name, key));
            if let Some(children) = self.children.get_mut(&key.parent) {
                children.remove(name);
                if children.is_empty() {
                    self.children.remove(&key.parent);
                }
            }
        }
    }

    /// Names of the tables whose relations change if the table does.
    pub fn concerned(&self, name: &str, meta: &TableMeta, all: &mut BTreeSet<String>) {
        all.insert(name.to_owned());
        all.extend(meta.foreign.iter().map(|key| key.parent.clone()));
        all.extend(self.children(name).map(str::to_owned));
    }

    /// Binds the keys of these tables anew.
    pub fn bind<'a>(&self, tables: &impl Tables, names: impl IntoIterator<Item = &'a String>) {
        for name in names {
            let Some((meta, related)) = tables.table(name) else { continue };
            let is_known = self.children.contains_key(name) || self.aside.contains_key(name);
            if meta.foreign.is_empty() && !related.any() && !is_known {
                continue;
            }
            let mut relations = Relations::default();
            for key in &meta.foreign {
                let parent = tables.table(&key.parent).map(|(meta, _)| &**meta);
                relations.parents.push(Arc::new(Reference::bind(key, name, meta, parent)));
            }
            for child in self.children(name) {
                let Some((child_meta, _)) = tables.table(child) else { continue };
                for key in child_meta.foreign.iter().filter(|key| key.parent == *name) {
                    relations.children.push(Arc::new(Reference::bind(key, child, child_meta, Some(&**meta))));
                }
            }
            for (child, former) in self.aside.get(name).into_iter().flatten() {
                let Some((child_meta, _)) = tables.table(child) else { continue };
                for key in child_meta.foreign.iter().filter(|key| key.parent == *name) {
                    let (on_delete, on_update) = Default::default();
                    let key = Arc::new(ForeignKey { on_delete, on_update, ..(**key).clone() });
                    let reference = Reference::bind(&key, child, child_meta, Some(&**meta));
                    relations.children.push(Arc::new(Reference { called: former.clone(), ..reference }));
                }
            }
            relations.parents.sort_by(|a, b| a.place().cmp(&b.place()));
            relations.children.sort_by(|a, b| a.place().cmp(&b.place()));
            related.set(relations);
        }
    }
}

fn owner_key(child: &str, key: &ForeignKey) -> (String, String) {
    (database(child).to_owned(), key.name.to_lowercase())
}

impl Reference {
    /// What orders the keys of a table, as other engines do.
    fn place(&self) -> (&str, &str) {
        (database(&self.child), &self.key.name)
    }

    /// Looks for the columns and indexes of a key.
    pub(crate) fn bind(key: &Arc<ForeignKey>, child: &str, meta: &TableMeta, parent: Option<&TableMeta>) -> Reference {
        let child_columns = columns(meta, &key.columns).unwrap_or_default();
        let mut reference = Reference {
            key: key.clone(),
            child: child.to_owned(),
            called: child.to_owned(),
            parent: key.parent.clone(),
            child_index: index_of(meta, &child_columns),
            child_columns,
            parent_columns: Vec::new(),
            parent_index: None,
        };
        let fits = |parent: &TableMeta, numbers: &Vec<usize>| {
            let pairs = reference.child_columns.iter().zip(numbers);
            reference.child_columns.len() == numbers.len()
                && pairs.into_iter().all(|(c, p)| is_comparable(&meta.columns[*c], &parent.columns[*p]))
        };
        if let Some(parent) = parent
            && let Some(numbers) = columns(parent, &key.parent_columns).filter(|numbers| fits(parent, numbers))
            && let Some(index) = index_of(parent, &numbers)
        {
            (reference.parent_columns, reference.parent_index) = (numbers, Some(index));
        }
        reference
    }
}

/// Numbers of the columns of these names; `None` if one is missing.
pub(crate) fn columns(meta: &TableMeta, names: &[String]) -> Option<Vec<usize>> {
    let number = |name: &String| meta.columns.iter().position(|column| same_column(&column.name, name));
    names.iter().map(number).collect()
}

/// The catalog's number of an index through which rows are found by these columns, best one whose values are unique. The columns of the
/// primary key that a secondary index lacks stand behind its own: see [`KeyCodec`](crate::keycode::KeyCodec).
pub(crate) fn index_of(meta: &TableMeta, columns: &[usize]) -> Option<usize> {
    let finds = |number: usize| {
        let index = &meta.indexes[number];
        index.kind == IndexKind::ORDINARY
            && !index.long_hash
            && !columns.is_empty()
            && index.parts.len() + suffix(meta, number).count() >= columns.len()
            && index.parts.iter().chain(suffix(meta, number)).zip(columns).all(|(part, number)| {
                let column = &meta.columns[*number];
                part.column as usize == *number && column.kind != ColumnType::Blob && part.length == column.size
            })
    };
    let exact = |index: &StoredIndex| index.unique && index.parts.len() == columns.len();
    let mut found = (0..meta.indexes.len()).filter(|number| finds(*number));
    let first = found.next()?;
    [first].into_iter().chain(found).find(|number| exact(&meta.indexes[*number])).or(Some(first))
}

/// The parts of the primary key whose columns are not in this index.
fn suffix(meta: &TableMeta, index: usize) -> impl Iterator<Item = &StoredPart> {
    let primary = meta.primary.map_or(&[][..], |primary| &meta.indexes[primary].parts);
    let is_own = move |part: &&StoredPart| meta.indexes[index].parts.iter().any(|own| own.column == part.column);
    primary.iter().filter(move |part| !is_own(part))
}

/// True if values of the two columns can be compared by their keys: numbers of the same kind and size, text of one collation, and bytes
/// of any two types, of which those of different lengths are never equal.
pub(crate) fn is_comparable(a: &StoredColumn, b: &StoredColumn) -> bool {
    if is_bytes(a) || is_bytes(b) {
        return is_bytes(a) && is_bytes(b);
    }
    match (&a.collation, &b.collation) {
        (Some(a), Some(b)) => a == b,
        (None, None) => a.kind == b.kind && a.size == b.size,
        _ => false,
    }
}

/// True if the column's values are compared byte by byte: BINARY, VARBINARY, DECIMAL, BIT, UUID, times with a fraction and the like.
fn is_bytes(column: &StoredColumn) -> bool {
    match &column.collation {
        Some((_, name)) => name == BINARY,
        None => column.kind == ColumnType::Bytes,
    }
}
