//! Too few file descriptors: more table files and connections than the server may have open, and none left at all.

use super::Case;
use super::bench::{Bench, DATABASE};
use anyhow::{Context, Result, bail, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

pub const ALL: [Case; 2] = [
    ("descriptors: fewer than table files and connections", few),
    ("descriptors: none left under a running server", none_left),
];

/// Tables, each large enough for a file of its own.
const TABLES: u64 = 100;
const ROWS: u64 = 200;
const TEXT: &str = "CONCAT(SHA2(seq, 512), SHA2(-seq, 512), SHA2(seq + 0.1, 512), SHA2(seq + 0.2, 512), SHA2(seq + 0.3, 512), \
                    SHA2(seq + 0.4, 512), SHA2(seq + 0.5, 512), SHA2(seq + 0.6, 512), SHA2(seq + 0.7, 512))";
/// Descriptors of the server. It lets in 400 connections, so table files may hold the fewest.
const LIMIT: u64 = 240;
/// With table files, these and the server's own all fit.
const CONNECTIONS: usize = 150;
/// What table files may hold: the fewest that the plugin asks for.
const TABLE_FILES: usize = 16;
/// Healing follows the next opening; this is no measure.
const PATIENCE: Duration = Duration::from_secs(30);

/// More table files than the bound, and as many connections as fit beside it.
fn few(bench: &mut Bench) -> Result<String> {
    let files = fill(bench)?;
    for round in 0..2 {
        let mut conns = (0..CONNECTIONS)
            .map(|n| bench.connect().with_context(|| format!("connection {n} of {CONNECTIONS}")))
            .collect::<Result<Vec<Conn>>>()?;
        std::thread::scope(|scope| {
            let readers: Vec<_> = conns
                .iter_mut()
                .enumerate()
                .map(|(n, conn)| scope.spawn(move || (0..TABLES).try_for_each(|t| read(conn, (t + n as u64) % TABLES))))
                .collect();
            readers.into_iter().try_for_each(|reader| reader.join().expect("a reader does not panic"))
        })?;
        let open = table_files(bench)?;
        ensure!(open <= TABLE_FILES, "{open} table files are open");
        conns[0].query_drop("INSERT INTO t0 VALUES (0, 'x')")?;
        conns[0].query_drop("DELETE FROM t0 WHERE id = 0")?;
        conns[0].query_drop("OPTIMIZE TABLE t0, t1, t2")?;
        drop(conns);
        if round == 0 {
            bench.stop()?;
            bench.start_limited(LIMIT)?;
        }
    }
    bench.alive()?;
    let said = bench.said();
    ensure!(!said.contains("Too many open files"), "the server's log tells of it:\n{said}");
    clear(bench)?;
    Ok(format!("{files} table files and {CONNECTIONS} connections with {LIMIT} descriptors; also after a restart"))
}

/// Every opening is refused: statements fail one by one, with the cause, and nothing is lost or stops for good.
fn none_left(bench: &mut Bench) -> Result<String> {
    fill(bench)?;
    bench.stop()?;
    bench.start_limited(LIMIT)?;
    let mut conn = bench.connect()?;
    // The definitions are open from now on, and most blocks are not in memory.
    for t in 0..TABLES {
        conn.query_drop(format!("SELECT * FROM t{t} LIMIT 0"))?;
    }
    conn.query_drop("SET GLOBAL strata_block_cache_size = 1048576")?;
    let insert = |conn: &mut Conn, t| conn.query_drop(format!("INSERT INTO t{t} VALUES ({ROWS} + 1, 'new')"));
    insert(&mut conn, 0)?;
    limit(bench, 3)?;
    let mut errors = Vec::new();
    let mut note = |what: &str, result: mysql::Result<()>| match result {
        Ok(()) => Ok(true),
        Err(mysql::Error::MySqlError(error)) if is_descriptors(&error.message) => {
            errors.push(format!("{what}: {} {}", error.code, error.message));
            Ok(false)
        }
        Err(error) => bail!("{what}: {error}"),
    };
    let mut right = 0;
    for t in 1..TABLES {
        let row: mysql::Result<Option<(u64, u64)>> = conn.query_first(sums(t));
        if let Ok(found) = &row {
            ensure!(*found == Some((ROWS, ROWS * (ROWS + 1) / 2)), "t{t} reads as {found:?}");
            right += 1;
        }
        note("SELECT", row.map(drop))?;
    }
    // These need the log, which is open.
    let mut inserted = vec![0];
    for t in 1..TABLES {
        if note("INSERT", insert(&mut conn, t))? {
            inserted.push(t);
        }
    }
    // A flush and a merge, told as the rows of the statement.
    let told: Vec<(String, String, String, String)> = conn.query("OPTIMIZE TABLE t0, t1")?;
    ensure!(told.iter().any(|row| is_descriptors(&row.3)), "OPTIMIZE TABLE says {told:?}");
    ensure!(errors.iter().any(|error| error.contains(".sst")), "no read failed without descriptors: {errors:?}");
    bench.alive()?;

    limit(bench, LIMIT)?;
    let began = Instant::now();
    while let Err(error) = (0..TABLES).try_for_each(|t| conn.query_drop(format!("OPTIMIZE TABLE t{t}"))) {
        ensure!(began.elapsed() < PATIENCE, "descriptors are there again, and yet: {error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let whole = |conn: &mut Conn| -> Result<()> {
        for t in 0..TABLES {
            let rows = ROWS + u64::from(inserted.contains(&t));
            let found: Option<(u64, u64)> = conn.query_first(sums(t))?;
            ensure!(found == Some((rows, rows * (rows + 1) / 2)), "t{t} has {found:?}, and should have {rows} rows");
        }
        Ok(())
    };
    whole(&mut conn)?;
    ensure!(!bench.said().contains("has stopped"), "the store has stopped:\n{}", bench.said());
    bench.kill()?;
    bench.start_limited(LIMIT)?;
    let mut conn = bench.connect()?;
    whole(&mut conn).context("after SIGKILL and a restart")?;
    for t in 0..TABLES {
        let wrong = bench.check_table(&format!("t{t}"))?;
        ensure!(wrong.is_empty(), "CHECK TABLE t{t}: {wrong:?}");
    }
    clear(bench)?;
    let (refused, first) = (errors.len(), errors.swap_remove(0));
    let kept = inserted.len();
    Ok(format!("{refused} statements refused ({first}), {right} reads and {kept} inserts done; all there afterwards"))
}

/// A server with few descriptors, and the tables.
fn fill(bench: &mut Bench) -> Result<usize> {
    bench.restore()?;
    bench.start_limited(LIMIT)?;
    let mut conn = bench.connect()?;
    for t in 0..TABLES {
        conn.query_drop(format!("CREATE TABLE t{t} (id INT PRIMARY KEY, text VARCHAR(2000) NOT NULL) ENGINE=STRATA"))?;
        conn.query_drop(format!("INSERT INTO t{t} SELECT seq, {TEXT} FROM seq_1_to_{ROWS}"))?;
        conn.query_drop(format!("OPTIMIZE TABLE t{t}"))?;
    }
    let files = fs::read_dir(&bench.files().0)?
        .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some_and(|e| e == "sst")))
        .count();
    ensure!(files as u64 >= TABLES, "there are only {files} table files");
    Ok(files)
}

fn clear(bench: &mut Bench) -> Result<()> {
    let mut conn = bench.connect()?;
    (0..TABLES).try_for_each(|t| conn.query_drop(format!("DROP TABLE {DATABASE}.t{t}")))?;
    Ok(())
}

fn sums(table: u64) -> String {
    // By the rows, and not by what an index could tell.
    format!("SELECT COUNT(text), CAST(IFNULL(SUM(id), 0) AS UNSIGNED) FROM t{table}")
}

fn read(conn: &mut Conn, table: u64) -> Result<()> {
    let found: Option<(u64, u64)> = conn.query_first(sums(table)).with_context(|| format!("reading t{table}"))?;
    ensure!(found == Some((ROWS, ROWS * (ROWS + 1) / 2)), "t{table} reads as {found:?}");
    Ok(())
}

/// Table files that the server has open.
fn table_files(bench: &Bench) -> Result<usize> {
    let folder = format!("/proc/{}/fd", bench.pid()?);
    let names = fs::read_dir(Path::new(&folder))?.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(names.filter(|name| name.extension().is_some_and(|e| e == "sst")).count())
}

/// The soft limit, which holds for what is opened from now on.
fn limit(bench: &Bench, most: u64) -> Result<()> {
    let words = [format!("--pid={}", bench.pid()?), format!("--nofile={most}:")];
    let output = Command::new("prlimit").args(words).output().context("there is no 'prlimit'")?;
    ensure!(output.status.success(), "prlimit: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn is_descriptors(text: &str) -> bool {
    text.contains("Too many open files")
}
