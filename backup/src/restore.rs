//! `restore`: a prepared backup becomes the data directory of a server.
//!
//! The engine's files come first, without `CURRENT`; the server's next; `CURRENT` last. So a restore that was killed leaves a directory
//! in which the engine refuses to start.

use crate::files::{Pace, Throttle, copy, sync_names};
use crate::manifest::{Manifest, SERVER, STRATA};
use crate::server;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The prepared backup
    #[arg(long)]
    pub target_dir: PathBuf,
    /// The data directory; made, or empty
    #[arg(long)]
    pub datadir: PathBuf,
    /// Further arguments for mariadb-backup, such as --defaults-file=FILE with the server's other directories
    #[arg(last = true)]
    pub more: Vec<String>,
}

/// See the module.
pub fn run(args: &Args) -> Result<()> {
    let (backup, data) = (&args.target_dir, &args.datadir);
    let manifest = Manifest::load(backup)?;
    ensure!(manifest.prepared, "{} is not prepared: run 'strata-backup prepare' first", backup.display());
    fs::create_dir_all(data).with_context(|| data.display().to_string())?;
    ensure!(fs::read_dir(data)?.next().is_none(), "{} is not empty", data.display());
    let engine = data.join("#strata");
    let current = format!("{STRATA}/CURRENT");
    let mut files: Vec<_> = manifest.files.iter().filter(|(path, _)| path.starts_with("strata/")).collect();
    // The marker that refuses an unfinished copy is the first file, and what makes it a store the last.
    files.sort_by_key(|(path, _)| (!path.ends_with("/CHECKPOINT"), **path == current));
    for (path, entry) in files {
        if *path == current {
            let mut command = Command::new("mariadb-backup");
            command.args(args.more.iter().filter(|word| word.starts_with("--defaults")));
            command.arg("--copy-back").arg("--force-non-empty-directories");
            command.arg(format!("--target-dir={}", backup.join(SERVER).display()));
            command.arg(format!("--datadir={}", data.display()));
            server::run(command.args(args.more.iter().filter(|word| !word.starts_with("--defaults"))))?;
            sync_names(data)?;
        }
        let to = engine.join(&path[STRATA.len() + 1..]);
        let (bytes, sha256) = copy(&backup.join(path), &to, &mut Throttle::new(Pace::Full))?;
        ensure!((bytes, &sha256) == (entry.bytes, &entry.sha256), "{}/{path} is damaged", backup.display());
    }
    sync_names(&engine)?;
    eprintln!(
        "strata-backup: {} is restored; give it to the server's user (chown -R) before the start",
        data.display()
    );
    for name in ["gtid_binlog_pos", "gtid_current_pos", "binlog_file", "binlog_position"] {
        if let Some(value) = manifest.place(name) {
            eprintln!("strata-backup: {name} {value}");
        }
    }
    Ok(())
}
