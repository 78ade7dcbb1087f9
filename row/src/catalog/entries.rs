//! The catalog's map in memory: tables by name, and the graph of their foreign keys, which changes with it.

use super::define::Dictionary;
use super::graph::{Graph, Tables};
use crate::foreign::Related;
use crate::foreign::key::is_passive;
use crate::kv::SeqNo;
use crate::schema::TableMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// A table in the map.
pub(super) struct Entry {
    pub meta: Arc<TableMeta>,
    /// The sequence number of the change that made the present indexes; zero if before start.
    pub min_snapshot: SeqNo,
    /// Its foreign keys, and those that name it. The same from the table's creation to its end.
    pub related: Arc<Related>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Entries {
    tables: BTreeMap<String, Entry>,
    graph: Graph,
}

impl Tables for BTreeMap<String, Entry> {
    fn table(&self, name: &str) -> Option<(&Arc<TableMeta>, &Arc<Related>)> {
        self.get(name).map(|entry| (&entry.meta, &entry.related))
    }
}

impl Dictionary for Entries {
    fn meta(&self, name: &str) -> Option<&Arc<TableMeta>> {
        self.tables.get(name).map(|entry| &entry.meta)
    }

    fn children_of<'a>(&'a self, parent: &str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        Box::new(self.graph.children(parent))
    }

    fn owner(&self, database: &str, name: &str) -> Option<&str> {
        self.graph.owner(database, name)
    }
}

impl Entries {
    /// The tables of a store that is being opened.
    pub fn new(tables: Vec<(String, Arc<TableMeta>)>) -> Entries {
        let mut graph = Graph::default();
        let entry = |(name, meta): (String, Arc<TableMeta>)| {
            graph.enter(&name, &meta);
            (name, Entry { meta, min_snapshot: SeqNo::ZERO, related: Arc::default() })
        };
        let tables: BTreeMap<String, Entry> = tables.into_iter().map(entry).collect();
        graph.bind(&tables, tables.keys());
        Entries { tables, graph }
    }

    /// The table of this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.tables.get(name)
    }

    /// All tables whose names are `first` or come after it.
    pub fn from(&self, first: &str) -> impl Iterator<Item = (&String, &Entry)> {
        self.tables.range::<str, _>((Bound::Included(first), Bound::Unbounded))
    }

    /// A table has come, or has another definition.
    pub fn put(&mut self, name: &str, meta: Arc<TableMeta>, min_snapshot: SeqNo) {
        self.change(|entries, concerned| {
            let related = entries.take(name, concerned).map(|entry| entry.related).unwrap_or_default();
            entries.place(name, Entry { meta, min_snapshot, related }, concerned);
        });
    }

    /// A table has another name, and others have other definitions.
    pub fn rename(&mut self, from: &str, to: &str, meta: Arc<TableMeta>, others: Vec<(String, Arc<TableMeta>)>) {
        self.change(|entries, concerned| {
            if let Some(entry) = entries.take(from, concerned) {
                if is_passive(to) && !is_passive(from) {
                    entries.graph.set_aside(to, from, &meta);
                }
                entries.place(to, Entry { meta, ..entry }, concerned);
            }
            for (name, meta) in others {
                if let Some(entry) = entries.take(&name, concerned) {
                    entries.place(&name, Entry { meta, ..entry }, concerned);
                }
            }
        });
    }

    /// A table has another definition of the same rows.
    pub fn redefine(&mut self, name: &str, meta: Arc<TableMeta>) {
        self.rename(name, name, meta, Vec::new());
    }

    /// A table is no more.
    pub fn remove(&mut self, name: &str) {
        self.change(|entries, concerned| drop(entries.take(name, concerned)));
    }

    fn change(&mut self, change: impl FnOnce(&mut Entries, &mut BTreeSet<String>)) {
        let mut concerned = BTreeSet::new();
        change(self, &mut concerned);
        self.graph.bind(&self.tables, &concerned);
    }

    fn take(&mut self, name: &str, concerned: &mut BTreeSet<String>) -> Option<Entry> {
        let entry = self.tables.remove(name)?;
        self.graph.concerned(name, &entry.meta, concerned);
        self.graph.leave(name, &entry.meta);
        Some(entry)
    }

    fn place(&mut self, name: &str, entry: Entry, concerned: &mut BTreeSet<String>) {
        self.graph.enter(name, &entry.meta);
        self.graph.concerned(name, &entry.meta, concerned);
        self.tables.insert(name.to_owned(), entry);
    }
}
