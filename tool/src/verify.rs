//! `verify`: reads everything of a store and names each damage, with file and offset.
//!
//! The manifest, the log and the catalog are read as a salvage reads them; each table file block by block with its filters, and one in
//! which nothing is damaged once more as `CHECK TABLE` does: order, counts, separators, what filters say.

use crate::catalog::Catalog;
use crate::open::{Offline, Place};
use crate::salvage::{Names, describe};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use strata_engine::Error;
use strata_engine::internals::base::FileNo;
use strata_engine::internals::sst::{BlockCache, Sst, Survey};

/// See the module. Tells all that is wrong.
pub fn run(place: &Place) -> Result<()> {
    let store = Offline::open(place)?;
    let mut salvage = store.salvage()?;
    let catalog = Catalog::read(&mut salvage);
    let Ok(()) = salvage.walk(&[0; 4], &[0xff; 4], &mut |_| Ok::<(), Infallible>(()));
    let mut found: BTreeSet<(PathBuf, u64, String)> = BTreeSet::new();
    let names = Names::new(&catalog);
    for loss in &salvage.losses {
        found.insert((loss.path.clone(), loss.offset, describe(loss, &names)));
    }
    let keys = store.keyring();
    let files = salvage.files();
    for path in &files {
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()).map(FileNo);
        let Some(no) = number else { continue };
        let survey = match Survey::of(&store.disk, path, no, None, &keys, true) {
            Ok(survey) => survey,
            Err(error) => {
                found.insert((path.clone(), 0, error.to_string()));
                continue;
            }
        };
        for part in &survey.damage {
            let line = format!("{} at offset {}, {} bytes: {}", path.display(), part.offset, part.bytes, part.what);
            if !found.iter().any(|(of, at, _)| of == path && *at == part.offset) {
                found.insert((path.clone(), part.offset, line));
            }
        }
        if found.iter().any(|(of, ..)| of == path) {
            continue;
        }
        let whole = Sst::open(&store.disk, path, no, BlockCache::new(1 << 20), &keys).and_then(|sst| sst.verify());
        if let Err(error) = whole {
            let offset = if let Error::Corruption { offset, .. } = &error { *offset } else { 0 };
            found.insert((path.clone(), offset, error.to_string()));
        }
    }
    for broken in &catalog.broken {
        println!("{broken}");
    }
    for (.., line) in &found {
        println!("{line}");
    }
    let wrong = found.len() + catalog.broken.len();
    ensure!(wrong == 0, "{wrong} damages in {}", store.dir.display());
    println!("{}: {} table files, {} tables, no damage", store.dir.display(), files.len(), catalog.tables.len());
    Ok(())
}
