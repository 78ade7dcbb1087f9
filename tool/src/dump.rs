//! `dump`: a part of a store as lines of text.

use crate::catalog::Catalog;
use crate::open::{Offline, Place};
use anyhow::{Context, Result};
use std::sync::Arc;
use strata_engine::internals::base::{FileNo, Kind, Lsn};
use strata_engine::internals::manifest::{Findings, survey};
use strata_engine::internals::salvage::{Operation, operations};
use strata_engine::internals::sst::Survey;
use strata_engine::internals::wal;
use strata_row::catalog::format::FEATURES;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub what: What,
}

/// What is to be shown.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
pub struct What {
    /// The records of the log, from the first segment that is there
    #[arg(long)]
    pub log: bool,
    /// The versions in the table file of this number
    #[arg(long, value_name = "NUMBER")]
    pub file: Option<u64>,
    /// The files of the manifest
    #[arg(long)]
    pub manifest: bool,
    /// The tables of the catalog
    #[arg(long)]
    pub catalog: bool,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// See the module.
pub fn run(args: &Args) -> Result<()> {
    let store = Offline::open(&args.place)?;
    match &args.what {
        What { log: true, .. } => dump_log(&store),
        What { file: Some(no), .. } => dump_file(&store, FileNo(*no)),
        What { manifest: true, .. } => dump_manifest(&store),
        _ => dump_catalog(&store),
    }
}

fn dump_log(store: &Offline) -> Result<()> {
    let dir = store.dir.join("log");
    let (size, durable) = match survey(&store.disk, &store.dir, FEATURES, &store.keyring())? {
        Findings::Whole(stored, _) => (stored.state.marks.log_segment_bytes, stored.state.marks.log_durable),
        Findings::Parts { .. } => {
            (wal::segment_size(&store.disk, &dir)?.context("no segment of the log can be read")?, Lsn(0))
        }
    };
    let first = store.disk.list(&dir)?.iter().filter_map(|name| wal::format::segment_number(name)).min();
    let from = Lsn(first.unwrap_or(0) * size);
    let keys = store.keyring();
    let place = wal::LogPlace { disk: &store.disk, dir: &dir, segment_bytes: size, keys: &keys };
    let (end, is_cut) = wal::survey(&place, from, durable, &mut |found| match found {
        Err(hole) => println!(
            "{} lost up to {}: {} at offset {}: {}",
            hole.from,
            hole.to,
            hole.path.display(),
            hole.offset,
            hole.what
        ),
        Ok((at, bytes)) => {
            let (title, operations) = operations(bytes);
            println!("{at} {title}");
            for operation in operations {
                match operation {
                    Operation::Put(key, value) => println!("  put {} {}", hex(&key), hex(&value)),
                    Operation::Delete(key) => println!("  delete {}", hex(&key)),
                    Operation::File(no) => println!("  file {:012}.sst", no.0),
                }
            }
        }
    })?;
    println!("{end} end{}", if is_cut { ", torn: there are units behind it" } else { "" });
    Ok(())
}

fn dump_file(store: &Offline, no: FileNo) -> Result<()> {
    let path = store.dir.join(format!("{:012}.sst", no.0));
    let survey = Survey::of(&store.disk, &path, no, None, &store.keyring(), true)?;
    for part in &survey.damage {
        println!("lost at offset {}, {} bytes: {}", part.offset, part.bytes, part.what);
    }
    let mut cursor = Arc::new(survey).cursor(None, None);
    loop {
        for lost in cursor.take_lost() {
            println!(
                "lost at offset {}, {} bytes, keys {} to {}: {}",
                lost.part.offset,
                lost.part.bytes,
                hex(&lost.lower),
                hex(&lost.upper.unwrap_or_default()),
                lost.part.what
            );
        }
        if !cursor.valid() {
            return Ok(());
        }
        match cursor.kind() {
            Kind::Put => println!("{} @{} put {}", hex(cursor.key()), cursor.seq(), hex(cursor.value())),
            Kind::Delete => println!("{} @{} delete", hex(cursor.key()), cursor.seq()),
        }
        cursor.next();
    }
}

fn dump_manifest(store: &Offline) -> Result<()> {
    match survey(&store.disk, &store.dir, FEATURES, &store.keyring())? {
        Findings::Whole(stored, _) => {
            println!("{:#?}", stored.state.marks);
            for (level, meta) in stored.state.files.values() {
                println!("level {level} {meta:?}");
            }
        }
        Findings::Parts { error, parts } => {
            println!("{error}");
            println!("{:#?}", parts.marks);
            for meta in parts.files.values() {
                println!("{meta:?}");
            }
        }
    }
    Ok(())
}

fn dump_catalog(store: &Offline) -> Result<()> {
    let mut salvage = store.salvage()?;
    let catalog = Catalog::read(&mut salvage);
    for (name, meta) in &catalog.tables {
        println!("{name} {meta:#?}");
    }
    for (table, next) in &catalog.counters {
        println!("table {table}: values below {next} are used");
    }
    for broken in &catalog.broken {
        println!("{broken}");
    }
    Ok(())
}
