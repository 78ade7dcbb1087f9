//! `backup`: mariadb-backup and a checkpoint of the engine, both of the same moment.

use crate::files::{Identity, Pace, Throttle, walk};
use crate::manifest::{Manifest, SERVER, STRATA};
use crate::server::{Login, Server};
use crate::sink::Sink;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Level of zstd: what fits a device that is not the fastest.
const LEVEL: i32 = 3;

/// The lowest priority.
const LOWEST: i32 = 19;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The backup's directory; made, or empty. With --stream it takes the server's files for the while
    #[arg(long)]
    pub target_dir: PathBuf,
    /// An earlier backup: table files of the engine that it has are left out, and mariadb-backup leaves out pages
    #[arg(long, value_name = "DIR")]
    pub incremental_base: Option<PathBuf>,
    /// Write the backup to the standard output, as a tar archive compressed with zstd
    #[arg(long)]
    pub stream: bool,
    /// Most MiB per second that are read of the engine's files; 0 is no limit. Without it the tool rests as long as it reads and writes, so
    /// that the server has the disk for half of the time
    #[arg(long, value_name = "MIB")]
    pub throttle: Option<u32>,
    #[command(flatten)]
    pub login: Login,
    /// Further arguments for mariadb-backup
    #[arg(last = true)]
    pub more: Vec<String>,
}

/// See the module.
pub fn run(args: &Args) -> Result<()> {
    fs::create_dir_all(&args.target_dir).with_context(|| args.target_dir.display().to_string())?;
    let target = args.target_dir.canonicalize()?;
    ensure!(fs::read_dir(&target)?.next().is_none(), "{} is not empty", target.display());
    let base = args.incremental_base.as_ref().map(|dir| Ok::<_, anyhow::Error>((dir, Manifest::load(dir)?)));
    let base = base.transpose()?;

    let mut server = Server::connect(&args.login)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut manifest = Manifest::new(format!("{since}-{}", std::process::id()), server.version()?);
    manifest.base = base.as_ref().map(|(_, base)| base.id.clone());
    let staged = server.await_backup()?;
    let its_base = base.as_ref().map(|(dir, _)| dir.join(SERVER));
    server.run_backup(&target.join(SERVER), its_base.as_deref(), &args.more)?;
    server.complete()?;
    let text = fs::read_to_string(staged.dir.join("CHECKPOINT"))?;
    manifest.set_position(&text)?;
    check_same_moment(&manifest, &target.join(SERVER))?;

    // From here on nobody waits for this program: the server goes first. While mariadb-backup kept commits waiting it did not.
    give_way();
    let mut throttle = Throttle::new(args.throttle.map_or(Pace::Half, Pace::of));
    let mut sink = if args.stream { Sink::stream(LEVEL)? } else { Sink::Dir(target.clone()) };
    // Among the last is CURRENT, which makes a store of them.
    for path in strata_files(&staged.dir)? {
        let (from, name) = (staged.dir.join(&path), in_backup(STRATA, &path)?);
        let identity = path.extension().is_some_and(|e| e == "sst").then(|| Identity::of(&from)).transpose()?;
        let there = base.as_ref().and_then(|(_, base)| base.files.get(&name));
        let entry = match there.filter(|there| identity.is_some() && there.identity == identity) {
            Some(there) => crate::manifest::Entry { in_base: true, ..there.clone() },
            None => crate::manifest::Entry { identity, ..sink.add(&name, &from, &mut throttle)? },
        };
        manifest.files.insert(name, entry);
    }
    drop(staged);
    for path in walk(&target.join(SERVER))? {
        let name = in_backup(SERVER, &path)?;
        let entry = sink.add(&name, &target.join(&name), &mut throttle)?;
        manifest.files.insert(name, entry);
    }
    sink.finish(&manifest)?;
    if args.stream {
        fs::remove_dir_all(target.join(SERVER))?;
    }
    let (here, bytes) =
        (manifest.files.values().filter(|e| !e.in_base), |sum, e: &crate::manifest::Entry| sum + e.bytes);
    eprintln!("strata-backup: backup {} is complete: {} bytes", manifest.id, here.fold(0, bytes));
    Ok(())
}

/// Takes the lowest priority of the processor. Failure costs speed only.
fn give_way() {
    let _ = rustix::process::nice(LOWEST);
}

/// A file's path in the backup.
fn in_backup(part: &str, path: &Path) -> Result<String> {
    let path = path.to_str().with_context(|| format!("the name of {} is not UTF-8", path.display()))?;
    Ok(format!("{part}/{path}"))
}

/// The files of a checkpoint, `CURRENT` last.
pub fn strata_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = walk(dir)?;
    files.sort_by_key(|path| path.as_os_str() == "CURRENT");
    Ok(files)
}

/// mariadb-backup notes where the binary log ended; so does the engine. It must be the same place.
fn check_same_moment(manifest: &Manifest, server: &Path) -> Result<()> {
    let names = ["mariadb_backup_binlog_info", "xtrabackup_binlog_info"];
    let Some(text) = names.iter().find_map(|name| fs::read_to_string(server.join(name)).ok()) else { return Ok(()) };
    let mut fields = text.split_whitespace();
    let theirs = (fields.next(), fields.next());
    let ours = (manifest.place("binlog_file"), manifest.place("binlog_position"));
    ensure!(theirs == ours, "mariadb-backup is at {theirs:?} of the binary log, the engine's checkpoint at {ours:?}");
    Ok(())
}
