//! The cases: broken table files, a broken log, a broken manifest, killed statements.

use super::Case;
use super::bench::{BIG, Bench, OTHER, RECENT, insert, named};
use super::files::{Files, Layout, Unit, flip, halve, is_witnessed, layout, tear};
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const ALL: [Case; 23] = [
    ("table: flipped byte in a data block", |bench| table_byte(bench, |_| 100)),
    ("table: flipped byte in a filter", |bench| table_byte(bench, |at| at.data_end + 20)),
    ("table: flipped byte in an index partition", |bench| table_byte(bench, |at| at.top_index - 20)),
    ("table: flipped byte in the top-level index", |bench| table_byte(bench, |at| at.top_index + 4)),
    ("table: flipped byte in the properties", |bench| table_byte(bench, |at| at.properties + 2)),
    ("table: flipped byte in the footer", |bench| table_byte(bench, |at| at.footer + 20)),
    ("table: a merge meets a flipped byte", merge),
    ("table: file cut in half", |bench| refused(bench, |files| files.largest_table(), halve)),
    ("table: file missing", |bench| refused(bench, |files| files.largest_table(), remove)),
    ("log: flipped byte in the middle", |bench| refused_byte(bench, |units| units.len() / 2)),
    ("log: flipped byte in the last unit, after a clean shutdown", |bench| {
        refused_byte(bench, |units| units.len() - 1)
    }),
    ("log: segment missing in the middle", |bench| refused(bench, middle_segment, remove)),
    ("log: segment cut in half", |bench| refused(bench, middle_segment, halve)),
    ("log: last segment missing", |bench| refused(bench, last_segment, remove)),
    ("log: torn tail after SIGKILL", torn_tail),
    ("log: flipped byte in the last unit after SIGKILL", last_unit),
    ("log: flipped byte in a large last commit after a rest and SIGKILL", last_commit_after_a_rest),
    ("log: flipped byte in the unit before the last, after SIGKILL", last_unit_but_one),
    ("log: last segment missing after SIGKILL", last_segment_after_kill),
    ("manifest: flipped byte", |bench| refused(bench, |files| files.manifest(), |path| flip(path, 60))),
    ("manifest: file missing", |bench| {
        refused_over(bench, |files| files.manifest(), |files| Ok(files.current()), remove)
    }),
    ("manifest: CURRENT missing", |bench| refused(bench, |files| Ok(files.current()), remove)),
    ("killed statements", killed_statements),
];

/// How long something that happens in the background may take; no measure.
const PATIENCE: Duration = Duration::from_secs(30);

fn remove(path: &Path) -> Result<()> {
    Ok(fs::remove_file(path)?)
}

fn middle_segment(files: &Files) -> Result<PathBuf> {
    let units = files.units()?;
    Ok(units[units.len() / 2].file.clone())
}

fn last_segment(files: &Files) -> Result<PathBuf> {
    Ok(files.units()?.pop().context("the log is empty")?.file)
}

/// A byte of the file of table `big` is flipped: the server starts, whoever meets the byte gets an error that names
/// it, all other rows can be read, and nobody reads anything wrong.
fn table_byte(bench: &mut Bench, at: fn(Layout) -> u64) -> Result<String> {
    let files = bench.restore()?;
    let table = files.largest_table()?;
    flip(&table, at(layout(&table)?))?;
    bench.start()?;
    bench.intact("other", OTHER)?;
    bench.intact("recent", RECENT)?;
    let mut errors = bench.read_in_pieces()?;
    for error in &errors {
        named(error, &table).context("a client is not told")?;
    }
    if let Err(error) = bench.intact("big", BIG) {
        errors.push(format!("{error:#}"));
    }
    let checked = bench.check_table("big")?;
    ensure!(!checked.is_empty(), "CHECK TABLE found nothing; reading it gave {errors:?}");
    // Tables beside it are not concerned.
    let mut conn = bench.connect()?;
    insert(&mut conn, "other", OTHER + 1, OTHER + 10)?;
    bench.intact("other", OTHER + 10)?;
    bench.alive()?;
    let told = errors.first().map_or_else(|| checked.join("; "), String::clone);
    let text = format!("{}\n{}", errors.join("\n"), checked.join("\n"));
    let line = named(&text, &table)?;
    Ok(if line == told { line } else { format!("{told} | {line}") })
}

/// OPTIMIZE and merges in the background meet a flipped byte: both report it, neither drops the file, and the server
/// neither dies nor spins.
fn merge(bench: &mut Bench) -> Result<String> {
    let files = bench.restore()?;
    let table = files.largest_table()?;
    flip(&table, 100)?;
    bench.start()?;
    let mut conn = bench.connect()?;
    conn.query_drop(format!("INSERT INTO big VALUES (0, ''), ({BIG} + 1, '')"))?;
    let rows: Vec<(String, String, String, String)> = conn.query("OPTIMIZE TABLE big")?;
    ensure!(rows.iter().any(|row| row.2 == "error" || row.2 == "Error"), "OPTIMIZE TABLE says {rows:?}");
    // Level 0 fills with files that span the damaged one, and with enough bytes to be worth a merge with it. The damage is
    // at its other end.
    let began = Instant::now();
    let mut step = 1;
    while !bench.said().contains("compaction failed") {
        ensure!(began.elapsed() < PATIENCE, "no merge met the damage:\n{}", bench.said());
        step += 1;
        conn.query_drop(format!("INSERT INTO big VALUES (-{step}, ''), ({BIG} + {step}, '')"))?;
        conn.query_drop(format!("DELETE FROM big WHERE id BETWEEN {BIG} / 2 + 1 AND {BIG}"))?;
        insert(&mut conn, "big", BIG / 2 + 1, BIG)?;
        conn.query_drop("OPTIMIZE TABLE other")?;
    }
    let before = bench.cpu()?;
    std::thread::sleep(Duration::from_secs(2));
    let spent = bench.cpu()? - before;
    ensure!(spent < 1.0, "the idle server spends {spent} of 2 seconds");
    let reports = bench.said().matches("compaction failed").count();
    ensure!(reports < 4, "the failure was reported {reports} times");
    ensure!(table.is_file(), "the damaged file is gone");
    bench.alive()?;
    bench.intact("other", OTHER)?;
    bench.intact("recent", RECENT)?;
    let line = named(&bench.said(), &table)?;
    // Put right, all of it is there.
    bench.kill()?;
    flip(&table, 100)?;
    bench.start()?;
    let found: Option<u64> =
        bench.connect()?.query_first(format!("SELECT COUNT(*) FROM big WHERE id BETWEEN 1 AND {BIG}"))?;
    ensure!(found == Some(BIG) && bench.read_in_pieces()?.is_empty(), "{found:?} rows of {BIG}");
    Ok(line)
}

/// The damage must be noticed at the start; undone, everything is there.
fn refused(bench: &mut Bench, which: fn(&Files) -> Result<PathBuf>, how: fn(&Path) -> Result<()>) -> Result<String> {
    refused_over(bench, which, which, how)
}

/// The same, where the error names another file than the damaged one.
fn refused_over(
    bench: &mut Bench,
    which: fn(&Files) -> Result<PathBuf>,
    names: fn(&Files) -> Result<PathBuf>,
    how: fn(&Path) -> Result<()>,
) -> Result<String> {
    let files = bench.restore()?;
    let (path, blamed) = (which(&files)?, names(&files)?);
    let sound = fs::read(&path)?;
    how(&path)?;
    let line = bench.start_refused(&blamed)?;
    // A second attempt must not be content with what the first has left.
    bench.start_refused(&blamed).context("at the second start")?;
    fs::write(&path, sound)?;
    bench.start_whole().context("after the damage was undone")?;
    Ok(line)
}

fn refused_byte(bench: &mut Bench, which: fn(&[Unit]) -> usize) -> Result<String> {
    let files = bench.restore()?;
    let units = files.units()?;
    ensure!(units.len() > 10, "the log has {} units only", units.len());
    let unit = &units[which(&units)];
    refused_unit(bench, unit, RECENT)
}

/// A flipped byte in the payload of `unit` is damage, and the error names where it begins.
fn refused_unit(bench: &mut Bench, unit: &Unit, recent: u64) -> Result<String> {
    let byte = unit.offset + unit.bytes - 1;
    flip(&unit.file, byte)?;
    let line = bench.start_refused(&unit.file)?;
    ensure!(line.contains(&format!("at offset {}", unit.offset)), "offset {} is not named: {line}", unit.offset);
    flip(&unit.file, byte)?;
    bench.start().context("after the damage was undone")?;
    bench.intact("big", BIG)?;
    bench.intact("recent", recent)?;
    Ok(line)
}

/// Rows are inserted one by one, then the server is killed. The units that the log ends with, and how many rows of
/// `recent` are acknowledged.
fn killed(bench: &mut Bench) -> Result<(Vec<Unit>, u64)> {
    const MORE: u64 = 20;
    bench.restore()?;
    bench.start()?;
    let mut conn = bench.connect()?;
    for id in RECENT + 1..=RECENT + MORE {
        insert(&mut conn, "recent", id, id)?;
    }
    bench.kill()?;
    let units = bench.files().units()?;
    ensure!(units.len() as u64 >= MORE, "{} units in the log after {MORE} commits", units.len());
    Ok((units, RECENT + MORE))
}

fn torn_tail(bench: &mut Bench) -> Result<String> {
    let (units, rows) = killed(bench)?;
    let last = units.last().context("the log is empty")?;
    let at = tear(last)?;
    bench.start()?;
    bench.intact("big", BIG)?;
    bench.intact("recent", rows)?;
    told(bench, &last.file, at)?;
    Ok(format!("half a unit at {at} cut, all {rows} acknowledged rows there"))
}

/// If no later unit witnesses that the last one was synced, it counts as torn: it alone is lost, and that is told.
fn last_unit(bench: &mut Bench) -> Result<String> {
    let (units, rows) = killed(bench)?;
    let last = units.last().context("the log is empty")?;
    if is_witnessed(last)? {
        return refused_unit(bench, last, rows);
    }
    flip(&last.file, last.offset + last.bytes - 1)?;
    bench.start()?;
    bench.intact("big", BIG)?;
    bench.intact("recent", rows - 1)?;
    told(bench, &last.file, last.offset)?;
    Ok("the one row in it is cut, and that is told".into())
}

/// Two seconds without a write: a unit that says what is durable stands behind the last commit.
fn last_commit_after_a_rest(bench: &mut Bench) -> Result<String> {
    bench.restore()?;
    bench.start()?;
    let mut conn = bench.connect()?;
    let rows = RECENT + 3000;
    insert(&mut conn, "recent", RECENT + 1, rows)?;
    std::thread::sleep(Duration::from_millis(2100));
    bench.kill()?;
    let units = bench.files().units()?;
    // With a binary log the record of the commit stands in a unit of its own behind it, and is the witness.
    let commit = units.iter().max_by_key(|unit| unit.bytes).context("the log is empty")?;
    ensure!(commit.bytes > 1 << 14, "the commit has {} bytes only", commit.bytes);
    refused_unit(bench, commit, rows)
}

fn last_unit_but_one(bench: &mut Bench) -> Result<String> {
    let (units, rows) = killed(bench)?;
    refused_unit(bench, &units[units.len() - 2], rows)
}

fn last_segment_after_kill(bench: &mut Bench) -> Result<String> {
    let (units, rows) = killed(bench)?;
    let file = &units.last().context("the log is empty")?.file;
    let sound = fs::read(file)?;
    fs::remove_file(file)?;
    let line = bench.start_refused(file)?;
    bench.start_refused(file).context("at the second start")?;
    fs::write(file, sound)?;
    bench.start().context("after the file was put back")?;
    bench.intact("recent", rows)?;
    Ok(line)
}

/// The server's log tells of a cut, with file and offset, and of no error.
fn told(bench: &Bench, file: &Path, offset: u64) -> Result<()> {
    let line = named(&bench.said(), file)?;
    ensure!(line.contains(&format!("at offset {offset}")) && line.contains("left out"), "not about the cut: {line}");
    quiet(bench)
}

/// The server's log has no error of the engine.
fn quiet(bench: &Bench) -> Result<()> {
    let said = bench.said();
    match said.lines().find(|line| line.contains("[ERROR]")) {
        Some(line) => bail!("the cut makes a fuss: {line}"),
        None => Ok(()),
    }
}

/// KILL QUERY in a scan, in a wait for a lock, and in a large insert.
fn killed_statements(bench: &mut Bench) -> Result<String> {
    bench.restore()?;
    bench.start_whole()?;
    let mut conn = bench.connect()?;
    conn.query_drop("CREATE TABLE target LIKE big")?;
    let mut holder = bench.connect()?;
    holder.query_drop("BEGIN")?;
    holder.query_drop("UPDATE other SET text = '' WHERE id = 1")?;
    let mut told = Vec::new();
    for (what, statement) in [
        ("scan", "SELECT SUM(CRC32(a.text)) FROM big a JOIN big b WHERE a.id <> b.id"),
        ("lock wait", "UPDATE other SET text = 'x' WHERE id <= 10 ORDER BY id DESC"),
        ("insert", "INSERT INTO target SELECT seq, SHA2(seq, 512) FROM seq_1_to_100000000"),
    ] {
        conn.query_drop("BEGIN")?;
        conn.query_drop("INSERT INTO target VALUES (-1, 'mine')")?;
        let id = conn.connection_id();
        let error = std::thread::scope(|scope| -> Result<mysql::Error> {
            let victim = scope.spawn(|| conn.query::<mysql::Row, _>(statement));
            let mut killer = bench.connect()?;
            let began = Instant::now();
            loop {
                // Not before the statement has done something for half a second.
                let running: Option<u64> = killer.query_first(format!(
                    "SELECT 1 FROM information_schema.processlist WHERE id = {id} AND info IS NOT NULL AND time_ms > 500"
                ))?;
                if running.is_some() {
                    killer.query_drop(format!("KILL QUERY {id}"))?;
                    break;
                }
                ensure!(!victim.is_finished() && began.elapsed() < PATIENCE, "{what}: ended before the kill");
                std::thread::sleep(Duration::from_millis(20));
            }
            let outcome = victim.join().ok().context("the session panicked")?;
            outcome.err().with_context(|| format!("{what}: not ended by the kill"))
        })?;
        let mysql::Error::MySqlError(error) = error else { bail!("{what}: the session broke: {error}") };
        ensure!(error.code == 1317, "{what}: {error}");
        told.push(format!("{what}: {} {}", error.code, error.message));
        // The statement is undone, the transaction goes on.
        let rows: Vec<i64> = conn.query("SELECT id FROM target")?;
        ensure!(rows == [-1], "{what}: the transaction now has {} rows in the target", rows.len());
        conn.query_drop("DELETE FROM target")?;
        conn.query_drop("COMMIT")?;
    }
    holder.query_drop("ROLLBACK")?;
    for (table, rows) in [("big", BIG), ("other", OTHER), ("recent", RECENT)] {
        bench.intact(table, rows)?;
        ensure!(bench.check_table(table)?.is_empty(), "CHECK TABLE {table}");
    }
    bench.alive()?;
    Ok(told.join("; "))
}
