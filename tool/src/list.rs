//! `list`: what is in a store.

use crate::catalog::Catalog;
use crate::open::{Offline, Place};
use anyhow::Result;
use std::collections::BTreeMap;
use strata_engine::internals::manifest::{Findings, survey};
use strata_engine::internals::wal::format::segment_number;
use strata_row::catalog::format::FEATURES;

/// See the module.
pub fn run(place: &Place) -> Result<()> {
    let store = Offline::open(place)?;
    match survey(&store.disk, &store.dir, FEATURES, &store.keyring())? {
        Findings::Parts { error, .. } => println!("manifest: {error}"),
        Findings::Whole(stored, error) => {
            if let Some(error) = error {
                println!("manifest: {error}; it is the only one");
            }
            let marks = &stored.state.marks;
            println!("manifest {}: format {}", stored.path.display(), marks.format());
            for feature in marks.features.iter() {
                println!("  feature {}", feature.name());
            }
            println!("  commits up to {} are in table files", marks.flushed_seq);
            println!("  the log is needed from {} on, and durable up to {}", marks.log_start, marks.log_durable);
            for index in &marks.dropped {
                println!("  index {index} is dropped");
            }
            let mut levels: BTreeMap<u8, (u64, u64, u64)> = BTreeMap::new();
            for (level, meta) in stored.state.files.values() {
                let (files, bytes, versions) = levels.entry(*level).or_default();
                (*files, *bytes, *versions) = (*files + 1, *bytes + meta.file_bytes, *versions + meta.entries);
            }
            for (level, (files, bytes, versions)) in levels {
                println!("level {level}: {files} files, {bytes} bytes, {versions} versions");
            }
            for (no, (level, meta)) in &stored.state.files {
                println!(
                    "  {:012}.sst level {level}: {} bytes, {} versions ({} tombstones), index {} to {}, numbers {} to {}",
                    no.0,
                    meta.file_bytes,
                    meta.entries,
                    meta.tombstones,
                    meta.index,
                    meta.last_index(),
                    meta.min_seq,
                    meta.max_seq
                );
            }
        }
    }
    let log_dir = store.dir.join("log");
    for name in store.disk.list(&log_dir).unwrap_or_default() {
        if segment_number(&name).is_some() {
            let bytes = std::fs::metadata(log_dir.join(&name)).map_or(0, |meta| meta.len());
            println!("log/{}: {bytes} bytes", name.display());
        }
    }
    let mut salvage = store.salvage()?;
    let catalog = Catalog::read(&mut salvage);
    for (name, meta) in &catalog.tables {
        println!("table {name}: id {}, schema version {}", meta.table_id, meta.schema_version);
        if let Some(id) = meta.hidden {
            println!("  index {id}: rows by a hidden number");
        }
        for index in &meta.indexes {
            println!("  index {}: {} ({})", index.id, index.name, index.kind);
        }
    }
    for broken in &catalog.broken {
        println!("catalog: {broken}");
    }
    Ok(())
}
