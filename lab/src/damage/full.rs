//! The full disk: only the engine's files are on it, in a small file system in memory.

use super::bench::{BIG, Bench, OTHER, RECENT, insert};
use super::{Case, files::Files};
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

pub const ALL: [Case; 1] = [("full disk", full_disk)];

/// What stands for other people's files, to be removed when space is to be freed: less than all full memtables take.
const BALLAST: usize = 6 << 20;
const FREE: u64 = 16 << 20;
/// A full disk that was freed heals within seconds; this is no measure.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: u64 = 200;
/// What takes the last bytes of the disk.
const TOP: &str = "ballast-top";
/// "Disk got full", of a statement.
const DISK_FULL: u16 = 1021;
/// Of a commit: the message names the file and what the system said of it.
const ERROR_DURING_COMMIT: u16 = 1180;

fn full_disk(bench: &mut Bench) -> Result<String> {
    bench.kill()?;
    let used = size_of(&bench.whole().clone())?;
    let files = bench.files();
    let size = used + FREE + 2 * BALLAST as u64;
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "strata-small-disk"])
        .arg(&files.0)
        .output()
        .context("there is no 'mount'")?;
    ensure!(
        mount.status.success(),
        "no small file system can be mounted ({}); root can, or leave this case out with --no-mount",
        String::from_utf8_lossy(&mount.stderr).trim()
    );
    let outcome = on_small_disk(bench);
    bench.kill()?;
    let status = Command::new("umount").arg(&files.0).status()?;
    ensure!(status.success(), "{} cannot be unmounted", files.0.display());
    outcome
}

fn on_small_disk(bench: &mut Bench) -> Result<String> {
    let files = bench.restore()?;
    let ballast = ["ballast-1", "ballast-2"].map(|name| files.0.join(name));
    for path in &ballast {
        fs::write(path, vec![1; BALLAST])?;
    }
    bench.start_whole()?;
    let (rows, told) = fill(bench, RECENT)?;
    all_there(bench, rows)?;
    // The server's other files are not on that disk.
    let mut conn = bench.connect()?;
    conn.query_drop("CREATE OR REPLACE TABLE elsewhere (a INT) ENGINE=InnoDB")?;
    conn.query_drop("INSERT INTO elsewhere VALUES (1)")?;
    // A delete needs room in the log: it is done, or it is refused and has done nothing.
    let other = match conn.query_drop(format!("DELETE FROM other WHERE id = {OTHER}")) {
        Ok(()) => OTHER - 1,
        Err(mysql::Error::MySqlError(error)) if is_disk_full(&error) => OTHER,
        Err(error) => return Err(error.into()),
    };
    bench.intact("other", other)?;
    fs::remove_file(&ballast[0])?;
    let rows = heal(bench, rows)?;
    all_there(bench, rows)?;
    bench.intact("other", other)?;

    let (rows, _) = fill(bench, rows)?;
    bench.kill()?;
    top_up(&files)?;
    bench.start().context("a restart on the full disk is refused")?;
    all_there(bench, rows)?;
    fs::remove_file(&ballast[1])?;
    fs::remove_file(files.0.join(TOP))?;
    let rows = heal(bench, rows)?;
    all_there(bench, rows)?;
    for table in ["big", "other", "recent"] {
        let wrong = bench.check_table(table)?;
        ensure!(wrong.is_empty(), "CHECK TABLE {table}: {wrong:?}");
    }
    bench.end()?;
    Ok(format!("{told}; a restart with no byte free works"))
}

/// Takes what the disk still has: its last page, too.
fn top_up(files: &Files) -> Result<()> {
    let mut file = fs::File::create(files.0.join(TOP))?;
    loop {
        match file.write_all(&[1; 4096]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Inserts until the disk is full. How many rows are acknowledged, and the error.
fn fill(bench: &mut Bench, mut rows: u64) -> Result<(u64, String)> {
    let mut conn = bench.connect()?;
    for _ in 0..FREE / 10_000 {
        match insert(&mut conn, "recent", rows + 1, rows + STEP) {
            Ok(()) => rows += STEP,
            Err(mysql::Error::MySqlError(error)) => {
                ensure!(is_disk_full(&error), "the full disk is reported as {error}");
                return Ok((rows, format!("{} {}", error.code, error.message)));
            }
            Err(error) => return Err(error.into()),
        }
        bench.alive()?;
    }
    bail!("the disk does not get full")
}

/// Writing works again without a restart.
fn heal(bench: &mut Bench, rows: u64) -> Result<u64> {
    let mut conn = bench.connect()?;
    let began = Instant::now();
    loop {
        match insert(&mut conn, "recent", rows + 1, rows + STEP) {
            Ok(()) => return Ok(rows + STEP),
            Err(error) => ensure!(began.elapsed() < PATIENCE, "space is free, and yet: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn all_there(bench: &mut Bench, recent: u64) -> Result<()> {
    bench.alive()?;
    bench.intact("big", BIG)?;
    bench.intact("recent", recent)
}

fn is_disk_full(error: &mysql::error::MySqlError) -> bool {
    error.code == DISK_FULL || error.code == ERROR_DURING_COMMIT && error.message.contains("No space left on device")
}

fn size_of(files: &Files) -> Result<u64> {
    let mut sum = 0;
    let mut dirs: Vec<PathBuf> = vec![files.0.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() { dirs.push(entry.path()) } else { sum += entry.metadata()?.len() }
        }
    }
    Ok(sum)
}
