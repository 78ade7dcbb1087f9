//! `prepare`: makes a backup ready to be restored.
//!
//! mariadb-backup applies its log. The engine's files need nothing: recovery reads them as they are. An incremental backup names all
//! table files that belong to its state, and has those that its base lacks; so the base takes these over, and gives up the others.

use crate::files::{Pace, Throttle, checksum, sync_names, walk};
use crate::manifest::{Manifest, SERVER, STRATA};
use crate::server;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The full backup
    #[arg(long)]
    pub target_dir: PathBuf,
    /// Incremental backups to add to it, each taken on top of the one before
    #[arg(long = "incremental-dir", value_name = "DIR")]
    pub incremental_dirs: Vec<PathBuf>,
    /// Further arguments for mariadb-backup
    #[arg(last = true)]
    pub more: Vec<String>,
}

/// See the module.
pub fn run(args: &Args) -> Result<()> {
    let target = &args.target_dir;
    let mut manifest = Manifest::load(target)?;
    ensure!(manifest.base.is_none(), "{} is incremental: prepare its base, and name it", target.display());
    ensure!(!manifest.prepared || args.incremental_dirs.is_empty(), "{} is prepared already", target.display());
    let mut ids = vec![manifest.id.clone()];
    for dir in &args.incremental_dirs {
        let more = Manifest::load(dir)?;
        ensure!(
            more.base.as_ref() == ids.last(),
            "{} is based on the backup {}, not on {}",
            dir.display(),
            more.base.unwrap_or("(it is a full one)".into()),
            ids[ids.len() - 1]
        );
        ids.push(more.id);
    }
    if manifest.prepared {
        eprintln!("strata-backup: {} is prepared", target.display());
        return Ok(());
    }
    // From here on the backup is in between: what is killed now must not be taken for one.
    fs::rename(target.join(crate::manifest::NAME), target.join("backup.json.unprepared"))?;
    apply(target, None, &args.more)?;
    for dir in &args.incremental_dirs {
        apply(target, Some(dir), &args.more)?;
        let more = Manifest::load(dir)?;
        take_over(target, dir, &manifest, &more)?;
        manifest = Manifest { base: None, ..more };
    }
    manifest.prepared = true;
    let mut files: BTreeMap<_, _> = std::mem::take(&mut manifest.files);
    files.retain(|path, _| path.starts_with(STRATA));
    files.values_mut().for_each(|entry| entry.in_base = false);
    for path in walk(&target.join(SERVER))? {
        let (bytes, sha256) = checksum(&target.join(SERVER).join(&path), &mut Throttle::new(Pace::Full))?;
        let name = format!("{SERVER}/{}", path.to_str().context("a name is not UTF-8")?);
        files.insert(name, crate::manifest::Entry { bytes, sha256, identity: None, in_base: false });
    }
    manifest.files = files;
    sync_names(target)?;
    manifest.store(target)?;
    fs::remove_file(target.join("backup.json.unprepared"))?;
    eprintln!("strata-backup: {} is prepared", target.display());
    Ok(())
}

fn apply(target: &Path, incremental: Option<&Path>, more: &[String]) -> Result<()> {
    let mut command = Command::new("mariadb-backup");
    command.arg("--prepare").arg(format!("--target-dir={}", target.join(SERVER).display()));
    if let Some(dir) = incremental {
        command.arg(format!("--incremental-dir={}", dir.join(SERVER).display()));
    }
    server::run(command.args(more))
}

/// Makes the engine's files in `target` those of the incremental backup in `dir`.
fn take_over(target: &Path, dir: &Path, before: &Manifest, after: &Manifest) -> Result<()> {
    let new = |path: &&String| path.starts_with(STRATA);
    for path in before.files.keys().filter(new) {
        let stays = after.files.get(path).is_some_and(|entry| entry.in_base);
        if !stays {
            fs::remove_file(target.join(path)).with_context(|| path.clone())?;
        }
    }
    for (path, entry) in after.files.iter().filter(|(path, _)| path.starts_with(STRATA)) {
        if entry.in_base {
            ensure!(target.join(path).exists(), "{} names {path}, which its base does not have", dir.display());
            continue;
        }
        let (bytes, sha256) = crate::files::copy(&dir.join(path), &target.join(path), &mut Throttle::new(Pace::Full))?;
        ensure!((bytes, &sha256) == (entry.bytes, &entry.sha256), "{}/{path} is damaged", dir.display());
    }
    Ok(())
}
