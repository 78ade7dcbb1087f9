//! What all cases share: the store to start from, the server's life, and the questions asked of it.

use super::files::Files;
use crate::engine::Conditions;
use crate::kernel;
use crate::leaks;
use crate::memory_group::MemoryGroup;
use crate::options::Isolation;
use crate::server::{Instance, PATIENCE, Server};
use anyhow::{Context, Result, bail, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::fs;
use std::path::{Path, PathBuf};

pub const DATABASE: &str = "damage";
/// Rows of the table `big`, all in one table file.
pub const BIG: u64 = 20_000;
/// Rows of the table `other`, in another.
pub const OTHER: u64 = 500;
/// Rows of the table `recent`, in the log only: several segments of it.
pub const RECENT: u64 = 4_000;
const STEP: u64 = 100;
/// What every row holds, made from its number: the row checks itself.
const TEXT: &str = "CONCAT(SHA2(id, 512), SHA2(-id, 512), SHA2(id + 0.5, 512))";

/// A server and the stores to put under it.
pub struct Bench {
    instance: Instance,
    conditions: Conditions,
    server: Option<Server>,
    /// The store after a clean shutdown, not touched by any case.
    whole: Files,
    /// Length of the server's log when the server was started last.
    told: u64,
}

impl Bench {
    /// Makes the store that all cases start from.
    pub fn new(instance: Instance) -> Result<Bench> {
        let conditions = Conditions {
            budget_mb: 64,
            isolation: Isolation::RepeatableRead,
            extra: vec!["innodb_flush_log_at_trx_commit=0".into(), "sync_binlog=0".into()],
            strata_extra: vec!["strata_log_segment_size=262144".into()],
        };
        instance.reset()?;
        let whole = Files(instance.data().with_file_name("whole"));
        let mut bench = Bench { instance, conditions, server: None, whole, told: 0 };
        bench.start()?;
        let mut conn = bench.instance.connect(None)?;
        conn.query_drop(format!("CREATE DATABASE {DATABASE}"))?;
        conn.query_drop(format!("USE {DATABASE}"))?;
        for (table, rows) in [("big", BIG), ("other", OTHER)] {
            conn.query_drop(format!(
                "CREATE TABLE {table} (id INT PRIMARY KEY, text VARCHAR(400) NOT NULL) ENGINE=STRATA"
            ))?;
            insert(&mut conn, table, 1, rows)?;
            conn.query_drop(format!("OPTIMIZE TABLE {table}"))?;
        }
        conn.query_drop("CREATE TABLE recent LIKE other")?;
        for from in (1..=RECENT).step_by(STEP as usize) {
            insert(&mut conn, "recent", from, from + STEP - 1)?;
        }
        drop(conn);
        bench.stop()?;
        bench.whole.replace_by(&bench.files())?;
        Ok(bench)
    }

    /// The files under the server.
    pub fn files(&self) -> Files {
        Files(self.instance.data().join("#strata"))
    }

    /// The files that all cases start from.
    pub fn whole(&self) -> &Files {
        &self.whole
    }

    /// The server's log.
    pub fn log(&self) -> PathBuf {
        self.instance.log()
    }

    /// Ends the server, if there is one, and puts the whole store under it again.
    pub fn restore(&mut self) -> Result<Files> {
        self.kill()?;
        self.files().replace_by(&self.whole)?;
        Ok(self.files())
    }

    /// Starts the server.
    pub fn start(&mut self) -> Result<()> {
        self.told = self.log().metadata().map_or(0, |meta| meta.len());
        let mut server = self.instance.launch(&self.conditions)?;
        server.wait_ready(PATIENCE)?;
        self.server = Some(server);
        Ok(())
    }

    /// As `start`; the process may have so many files open.
    pub fn start_limited(&mut self, open_files: u64) -> Result<()> {
        self.told = self.log().metadata().map_or(0, |meta| meta.len());
        let mut server = self.instance.launch_limited(&self.conditions, open_files)?;
        server.wait_ready(PATIENCE)?;
        self.server = Some(server);
        Ok(())
    }

    /// As `start`; the process is a member of the control group, and has these options as well.
    pub fn start_in(&mut self, group: &MemoryGroup, options: &[&str]) -> Result<()> {
        self.told = self.log().metadata().map_or(0, |meta| meta.len());
        let mut conditions = self.conditions.clone();
        conditions.strata_extra.extend(options.iter().map(|option| option.to_string()));
        let mut server = self.instance.launch_in(&conditions, group)?;
        server.wait_ready(PATIENCE)?;
        self.server = Some(server);
        Ok(())
    }

    /// The server's process.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.server.as_ref().context("no server is started")?.pid())
    }

    /// Starts the server, which must refuse; what its log says of it, which must name `file`.
    pub fn start_refused(&mut self, file: &Path) -> Result<String> {
        ensure!(self.start().is_err(), "the server started as if nothing were wrong");
        let said = self.said();
        ensure!(!said.contains("got signal"), "the server crashed:\n{said}");
        named(&said, file)
    }

    /// The server must start, and every row of the whole store must be there.
    pub fn start_whole(&mut self) -> Result<()> {
        self.start()?;
        self.intact("big", BIG)?;
        self.intact("other", OTHER)?;
        self.intact("recent", RECENT)
    }

    /// Stops the server in an orderly way.
    pub fn stop(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::stop)
    }

    /// As `stop`, after a look at what the server has left; the tables are dropped for that.
    pub fn end(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), |server| leaks::end(server, self.conditions.budget_mb))
    }

    /// A server that runs must hold nothing for anybody.
    pub fn at_rest(&mut self) -> Result<()> {
        self.server.as_mut().map_or(Ok(()), |server| leaks::at_rest(server, self.conditions.budget_mb))
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.server.take().map_or(Ok(()), Server::kill)
    }

    /// Fails when the server has ended by itself.
    pub fn alive(&mut self) -> Result<()> {
        self.server.as_mut().context("no server is started")?.ensure_alive()
    }

    /// Seconds of processor time that the server has spent.
    pub fn cpu(&self) -> Result<f64> {
        let spent = kernel::spent(self.pid()?)?;
        Ok((spent.user_us + spent.system_us) as f64 / 1e6)
    }

    /// A session.
    pub fn connect(&self) -> Result<Conn> {
        Ok(self.instance.connect(Some(DATABASE))?)
    }

    /// What the server's log says since the server was started.
    pub fn said(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(log.get(self.told as usize..).unwrap_or(&[])).into_owned()
    }

    /// The table must have the rows 1 to `rows` and no others, each as it was written.
    pub fn intact(&self, table: &str, rows: u64) -> Result<()> {
        let mut conn = self.connect()?;
        let found = check_rows(&mut conn, table, "TRUE").with_context(|| format!("table {table} cannot be read"))?;
        let found = found.unwrap_or_default();
        ensure!(
            found == (rows, rows, Some(1), Some(rows)),
            "{table} has (rows, sound ones, first, last) {found:?} of {rows} acknowledged rows"
        );
        Ok(())
    }

    /// CHECK TABLE: the messages that are not "OK".
    pub fn check_table(&self, table: &str) -> Result<Vec<String>> {
        let rows: Vec<(String, String, String, String)> =
            self.connect()?.query(format!("CHECK TABLE {table} EXTENDED"))?;
        ensure!(!rows.is_empty(), "CHECK TABLE {table} says nothing");
        Ok(rows.into_iter().map(|row| row.3).filter(|text| text != "OK").collect())
    }

    /// Reads `big` in pieces: each must be right or an error. The errors, with the warnings that came along.
    pub fn read_in_pieces(&self) -> Result<Vec<String>> {
        let mut conn = self.connect()?;
        let mut errors = Vec::new();
        for from in (1..=BIG).step_by(STEP as usize) {
            let upto = from + STEP - 1;
            match check_rows(&mut conn, "big", &format!("id BETWEEN {from} AND {upto}")) {
                Ok(found) if found == Some((STEP, STEP, Some(from), Some(upto))) => {}
                Ok(found) => bail!("rows {from} to {upto} read as {found:?} without an error"),
                Err(mysql::Error::MySqlError(error)) => {
                    let more: Vec<(String, u16, String)> = conn.query("SHOW WARNINGS")?;
                    let more: Vec<String> =
                        more.into_iter().map(|row| row.2).filter(|text| *text != error.message).collect();
                    errors.push(format!("{} {} {}", error.code, error.message, more.join("; ")));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(errors)
    }
}

/// Rows, sound rows, smallest and largest number.
type Found = (u64, u64, Option<u64>, Option<u64>);

fn check_rows(conn: &mut Conn, table: &str, condition: &str) -> mysql::Result<Option<Found>> {
    conn.query_first(format!(
        "SELECT COUNT(*), CAST(IFNULL(SUM(text = {TEXT}), 0) AS UNSIGNED), MIN(id), MAX(id) FROM {table} WHERE {condition}"
    ))
}

/// Inserts the rows with the numbers `from` to `upto`.
pub fn insert(conn: &mut Conn, table: &str, from: u64, upto: u64) -> mysql::Result<()> {
    conn.query_drop(format!("INSERT INTO {table} SELECT seq, {} FROM seq_{from}_to_{upto}", TEXT.replace("id", "seq")))
}

/// The line of `said` that names `file`, shortened; an error when there is none, or when it gives no offset.
pub fn named(said: &str, file: &Path) -> Result<String> {
    let name = file.file_name().and_then(|name| name.to_str()).context("the file has no name")?;
    let line = said.lines().find(|line| line.contains(name) && line.contains(" at offset "));
    let line = line.with_context(|| format!("no error names {name} and an offset:\n{said}"))?;
    let dir = file.parent().unwrap_or(file).display().to_string();
    Ok(line.replace(&format!("{dir}/"), "").trim().to_string())
}
