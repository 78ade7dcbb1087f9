//! What tables and indexes take, level by level, and the work that moves it: for people and monitors.

use super::{Cell, Row, text};
use crate::catalog::define::Names;
use crate::kv::{Holding, IndexId};
use crate::schema::TableMeta;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The tables of the catalog, by name, with what their indexes hold.
struct Contents {
    tables: Vec<(String, Arc<TableMeta>)>,
    holdings: BTreeMap<(IndexId, Option<u8>), Holding>,
}

impl Contents {
    fn of(store: &Store) -> Contents {
        let names = store.catalog().names("").into_iter();
        // Without those that were dropped since they were listed.
        let tables: Vec<_> =
            names.filter_map(|name| store.catalog().get(&name).ok().map(|meta| (name, meta))).collect();
        let ids: BTreeSet<IndexId> = tables.iter().flat_map(|(_, meta)| meta.ids()).collect();
        let holdings = store.engine().holdings(&ids);
        Contents { tables, holdings }
    }

    /// What an index holds, level by level; the memory comes first.
    fn levels(&self, id: IndexId) -> impl Iterator<Item = (Option<u8>, Holding)> + '_ {
        self.holdings.range((id, None)..=(id, Some(u8::MAX))).map(|((_, level), holding)| (*level, *holding))
    }

    fn sum(&self, ids: impl IntoIterator<Item = IndexId>) -> Holding {
        ids.into_iter().flat_map(|id| self.levels(id)).fold(Holding::default(), |sum, (_, holding)| Holding {
            files: sum.files + holding.files,
            entries: sum.entries + holding.entries,
            tombstones: sum.tombstones + holding.tombstones,
            raw_bytes: sum.raw_bytes + holding.raw_bytes,
            bytes: sum.bytes + holding.bytes,
        })
    }
}

fn names(store: &Store, name: &str) -> [Cell; 2] {
    let (table, partition) = Names::with_partition(store, name);
    [text(table), text(partition)]
}

fn level_name(level: Option<u8>) -> Cell {
    text(level.map_or("memory".to_owned(), |level| level.to_string()))
}

fn numbers(holding: Holding) -> [Cell; 5] {
    [holding.files, holding.entries, holding.tombstones, holding.raw_bytes, holding.bytes].map(Cell::Number)
}

/// Each table and partition: their names, rows, bytes of the rows (not compressed; on disk), bytes of the secondary indexes (the same two),
/// tombstones of all, versions of the definition in which there may be rows, the key that encrypts it (0: none).
pub fn tables(store: &Store) -> Vec<Row> {
    let contents = Contents::of(store);
    let row = |(name, meta): &(String, Arc<TableMeta>)| {
        let clustered = meta.clustered_id();
        let rows = contents.sum([clustered]);
        let indexes = contents.sum(meta.ids().into_iter().filter(|id| *id != clustered));
        let numbers = [
            // A tombstone is an entry and hides another one.
            rows.entries.saturating_sub(2 * rows.tombstones),
            rows.raw_bytes,
            rows.bytes,
            indexes.raw_bytes,
            indexes.bytes,
            rows.tombstones + indexes.tombstones,
            1 + meta.former.len() as u64,
            store.engine().index_encryption(clustered).unwrap_or(0).into(),
        ];
        names(store, name).into_iter().chain(numbers.map(Cell::Number)).collect()
    };
    contents.tables.iter().map(row).collect()
}

/// Each index on each level where it has something: table, partition, index, level, files, versions, tombstones, bytes not compressed and on disk.
pub fn indexes(store: &Store) -> Vec<Row> {
    let contents = Contents::of(store);
    let mut rows = Vec::new();
    for (name, meta) in &contents.tables {
        let hidden = meta.hidden.map(|id| (id, "(row number)"));
        let named = meta.indexes.iter().map(|index| (index.id, index.name.as_str()));
        for (id, index) in hidden.into_iter().chain(named) {
            for (level, holding) in contents.levels(id) {
                let names = names(store, name).into_iter().chain([text(index), level_name(level)]);
                rows.push(names.chain(numbers(holding)).collect());
            }
        }
    }
    rows
}

/// Each level: its number, sorted runs, files, versions, tombstones, bytes not compressed and on disk.
pub fn levels(store: &Store) -> Vec<Row> {
    let levels = store.engine().levels().into_iter().enumerate();
    let row = |(number, level): (usize, crate::kv::Level)| {
        let first = [number as u64, level.sorted_runs].map(Cell::Number);
        first.into_iter().chain(numbers(level.holds)).collect()
    };
    levels.map(row).collect()
}

/// Flushes and merges that run, and the last ones that have ended: number, kind, state, levels from and to, why, seconds since it
/// began, milliseconds that it took (0 while it runs), bytes that it reads, files and bytes that it wrote, why it failed.
pub fn compactions(store: &Store) -> Vec<Row> {
    let row = |job: crate::jobs::Job| {
        let (from, to) = job.levels.unzip();
        let end = job.end.as_ref();
        let state = match end {
            None => "RUNNING",
            Some(end) if end.error.is_some() => "FAILED",
            Some(_) => "DONE",
        };
        vec![
            Cell::Number(job.number),
            text(if job.levels.is_some() { "MERGE" } else { "FLUSH" }),
            text(state),
            level_name(from),
            text(to.unwrap_or(0).to_string()),
            text(job.reason),
            Cell::Number(job.begun.elapsed().as_secs()),
            Cell::Number(end.map_or(0, |end| end.us / 1000)),
            Cell::Number(job.bytes_in),
            Cell::Number(end.map_or(0, |end| end.files)),
            Cell::Number(end.map_or(0, |end| end.bytes_out)),
            text(end.and_then(|end| end.error.clone()).unwrap_or_default()),
        ]
    };
    store.jobs().into_iter().map(row).collect()
}
