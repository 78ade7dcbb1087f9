//! What a server must not keep once nobody works any more: the check at the end of trials.
//!
//! Everything is asked for again and again until it is so or patience ends: merges, flushes and sessions that go away take
//! their time. Looked at are read points, locks, memory of transactions and cursors, prepared transactions; the memory
//! in all beside its budget; the files of the engine beside those that it counts, and its process's descriptors of them.
//! At last the databases of the trial are dropped: what the tables took on disk must go.

use crate::engine::Kind;
use crate::server::{Instance, Server};
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// What is held by transactions, cursors and sessions. All of it must be zero.
const HELD: [&str; 10] = [
    "read_points",
    "locked_keys",
    "locked_intervals",
    "memory_write_buffer_bytes",
    "memory_prepared_bytes",
    "memory_memtable_pinned_bytes",
    "memory_large_block_bytes",
    "memory_value_buffer_bytes",
    "memory_read_ahead_bytes",
    "prepared_detached",
];
/// What memory may take beyond the budget: log buffers, buffers of merges, indexes of open tables.
const BESIDE_MB: u64 = 32;
/// What the engine's own tables and a merge that is put off may keep on disk.
const EMPTY_MB: u64 = 4;
/// The server's own databases.
const SERVERS: [&str; 4] = ["mysql", "information_schema", "performance_schema", "sys"];

/// Ends prepared transactions, drops what the trial has made, and tells what is left. `budget_mb` is that of the engine.
pub fn check(server: &mut Server, budget_mb: u64) -> Result<()> {
    if server.instance().kind() != Kind::Strata {
        return Ok(());
    }
    at_rest(server, budget_mb)?;
    let (instance, pid) = (server.instance().clone(), server.pid());
    let mut conn = server.connect(None)?;
    conn.query_drop("SET SESSION sql_log_bin = 0")?;
    let databases: Vec<String> = conn.query("SHOW DATABASES")?;
    for database in databases.iter().filter(|name| !SERVERS.contains(&name.as_str())) {
        conn.query_drop(format!("DROP DATABASE `{database}`"))?;
    }
    settle("is left when all tables are dropped", &mut conn, |conn| {
        let mut wrong = found(conn, &instance, pid, budget_mb)?;
        let bytes = status(conn)?.get("table_bytes").copied().unwrap_or(0);
        if bytes > EMPTY_MB << 20 {
            wrong.push(format!("{bytes} bytes of table files"));
        }
        Ok(wrong)
    })?;
    server.ensure_alive()
}

/// As `check`, of a server whose tables are to stay.
pub fn at_rest(server: &mut Server, budget_mb: u64) -> Result<()> {
    if server.instance().kind() != Kind::Strata {
        return Ok(());
    }
    let mut conn = server.connect(None)?;
    conn.query_drop("SET SESSION sql_log_bin = 0")?;
    for row in conn.query::<(i64, i64, i64, String), _>("XA RECOVER")? {
        conn.query_drop(format!("XA ROLLBACK '{}'", row.3))?;
    }
    let (instance, pid) = (server.instance().clone(), server.pid());
    settle("is left when nobody works", &mut conn, |conn| found(conn, &instance, pid, budget_mb))?;
    server.ensure_alive()
}

/// The end of a trial: the check, and the server is stopped.
pub fn end(mut server: Server, budget_mb: u64) -> Result<()> {
    check(&mut server, budget_mb).context("at the end of the trial")?;
    server.stop()
}

/// Asks until nothing is told.
fn settle(what: &str, conn: &mut Conn, mut ask: impl FnMut(&mut Conn) -> Result<Vec<String>>) -> Result<()> {
    let began = Instant::now();
    loop {
        let wrong = ask(conn)?;
        if wrong.is_empty() {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "this {what}:\n  {}", wrong.join("\n  "));
        sleep(Duration::from_millis(100));
    }
}

/// The engine's status figures.
fn status(conn: &mut Conn) -> Result<BTreeMap<String, u64>> {
    let rows: Vec<(String, String)> = conn.query("SHOW GLOBAL STATUS LIKE 'Strata%'")?;
    Ok(rows
        .into_iter()
        .filter_map(|(name, value)| {
            Some((name.to_lowercase().strip_prefix("strata_")?.to_string(), value.parse().ok()?))
        })
        .collect())
}

fn found(conn: &mut Conn, instance: &Instance, pid: u32, budget_mb: u64) -> Result<Vec<String>> {
    let status = status(conn)?;
    let figure = |name: &str| status.get(name).copied().with_context(|| format!("there is no status Strata_{name}"));
    let mut wrong = Vec::new();
    for name in HELD {
        let value = figure(name)?;
        if value > 0 {
            wrong.push(format!("Strata_{name} is {value}"));
        }
    }
    let memory = figure("memory_bytes")?;
    if memory > (budget_mb + BESIDE_MB) << 20 {
        wrong.push(format!("Strata_memory_bytes is {memory}, with a budget of {budget_mb} MiB"));
    }
    for table in ["STRATA_LOCKS", "STRATA_LOCK_WAITS"] {
        let rows: Option<u64> = conn.query_first(format!("SELECT COUNT(*) FROM information_schema.{table}"))?;
        if rows != Some(0) {
            wrong.push(format!("{table} has {rows:?} rows"));
        }
    }
    let folder = instance.data().join("#strata");
    wrong.extend(files(&folder, figure("table_files")?)?);
    wrong.extend(descriptors(pid, &folder, figure("table_files")?)?);
    Ok(wrong)
}

/// Files that nobody counts.
fn files(folder: &Path, counted: u64) -> Result<Vec<String>> {
    let (mut tables, mut manifests) = (0, 0);
    let mut wrong = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        match name.as_str() {
            name if name.ends_with(".sst") => tables += 1,
            name if name.starts_with("MANIFEST-") => manifests += 1,
            // Kept ready for the next manifest, so that a full disk does not refuse it.
            "CURRENT.tmp" => {}
            name if name.ends_with(".tmp") => wrong.push(format!("the file {name}")),
            _ => {}
        }
    }
    if tables != counted {
        wrong.push(format!("{tables} table files, of which {counted} are counted"));
    }
    if manifests > 2 {
        wrong.push(format!("{manifests} manifests"));
    }
    Ok(wrong)
}

/// Open files of a process in the engine's folder: none that was deleted, none twice as often as there are.
fn descriptors(pid: u32, folder: &Path, counted: u64) -> Result<Vec<String>> {
    let folder = folder.canonicalize()?;
    let (mut tables, mut deleted) = (0, Vec::new());
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // One that was closed meanwhile.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        if !target.starts_with(&folder) {
            continue;
        }
        let name = target.to_string_lossy().into_owned();
        if name.ends_with("(deleted)") {
            deleted.push(name);
        } else if name.ends_with(".sst") {
            tables += 1;
        }
    }
    let mut wrong: Vec<String> = deleted.into_iter().map(|name| format!("a descriptor of {name}")).collect();
    if tables > counted {
        wrong.push(format!("{tables} descriptors of {counted} table files"));
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nobody_counts_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for name in ["CURRENT", "MANIFEST-000001", "000007.sst"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        assert_eq!(files(folder, 1).unwrap(), Vec::<String>::new());
        assert_eq!(files(folder, 0).unwrap().len(), 1);
        fs::write(folder.join("000009.tmp"), "x").unwrap();
        assert_eq!(files(folder, 1).unwrap().len(), 1);
        let open = fs::File::open(folder.join("000007.sst")).unwrap();
        let pid = std::process::id();
        assert_eq!(descriptors(pid, folder, 1).unwrap(), Vec::<String>::new());
        assert_eq!(descriptors(pid, folder, 0).unwrap().len(), 1);
        fs::remove_file(folder.join("000007.sst")).unwrap();
        assert_eq!(descriptors(pid, folder, 1).unwrap().len(), 1);
        drop(open);
    }
}
