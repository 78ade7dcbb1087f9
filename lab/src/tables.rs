//! The command `tables`: tables of millions of rows, filled in each way that a user has, then counted and scanned.
//!
//! Filled by LOAD DATA, INSERT of many rows, CREATE TABLE ... SELECT and ALTER TABLE by copy; each time the rows are counted and
//! summed. Then the loaded table is read: COUNT(*), all rows, an index, ranges of ten thousand rows.
//!
//! All servers run, one works at a time, step by step in turn; before each step all have finished what they put off. What a step
//! puts off itself is measured with it as bytes and processor time, and its rate is that of the statement, as a user sees it.
//! Statements are in the binary log. RocksDB fills with its bulk load (`rocksdb_bulk_load`), as its documentation advises:
//! a transaction of that many rows is more than it has row locks for.

use crate::engine::{Conditions, Kind};
use crate::leaks;
use crate::meter::{Meter, settle};
use crate::options::Rows;
use crate::report::{ROWS, Report, Run};
use crate::server::{Instance, Server};
use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

const DATABASE: &str = "tables";
const COLUMNS: &str = "id INT NOT NULL, k INT NOT NULL, c VARCHAR(100) NOT NULL, PRIMARY KEY (id), KEY k (k)";
/// Rows of one INSERT.
const BATCH: u64 = 1000;
/// Rows of one range.
const RANGE: u64 = 10_000;
/// Ranges of one measurement.
const RANGES: u64 = 20;

/// Options of `tables`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    table: Rows<4096>,
    /// How often each scan is repeated, engines in turn
    #[arg(long, default_value_t = 5)]
    scans: u32,
    /// Fills by LOAD DATA only, and scans
    #[arg(long)]
    scans_only: bool,
}

/// What is done with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Load,
    Insert,
    Select,
    Alter,
    Count,
    Rows,
    Index,
    Ranges,
}

const FILLS: [Step; 4] = [Step::Load, Step::Insert, Step::Select, Step::Alter];
const SCANS: [Step; 4] = [Step::Count, Step::Rows, Step::Index, Step::Ranges];

impl Step {
    fn title(self) -> &'static str {
        match self {
            Step::Load => "LOAD DATA",
            Step::Insert => "INSERT of 1000 rows each",
            Step::Select => "CREATE TABLE ... SELECT",
            Step::Alter => "ALTER TABLE by copy",
            Step::Count => "COUNT(*)",
            Step::Rows => "scan of the rows",
            Step::Index => "scan of an index",
            Step::Ranges => "ranges of 10000 rows",
        }
    }

    /// The table that it fills or reads.
    fn table(self) -> &'static str {
        match self {
            Step::Insert => "inserted",
            Step::Select | Step::Alter => "copied",
            _ => "loaded",
        }
    }
}

/// The rows: everything follows from the number of the row.
#[derive(Clone, Copy)]
struct Row(u64);

impl Row {
    fn k(self) -> u64 {
        self.0 * 7919 % 1_000_003
    }

    /// Digits as sysbench has them, 59 to 95 characters: half of what is stored can be squeezed out.
    fn c(self, text: &mut String) {
        let mut state = self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for part in 0..5 + self.0 % 4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let _ = write!(text, "{}{:011}", if part == 0 { "" } else { "-" }, (state >> 20) % 100_000_000_000);
        }
    }
}

/// Number of rows, sum of `id`, sum of `k`.
fn expected(rows: u64) -> (u64, u64, u64) {
    (rows, rows * (rows + 1) / 2, (1..=rows).map(|id| Row(id).k()).sum())
}

/// The command `tables`.
pub fn run(args: Args) -> Result<()> {
    let lab = args.table.given.comparison.site.folder()?;
    let conditions = args.table.given.conditions();
    let file = rows_file(&lab, args.table.rows)?;
    let bench = Bench { conditions, rows: args.table.rows, file, sums: expected(args.table.rows) };
    let title = format!("Tables of {} rows; a row counts as a transaction", args.table.rows);
    let mut report = Report::new(&lab, &title)?.with(ROWS);
    let outcome =
        (1..=args.table.given.comparison.rounds).try_for_each(|round| bench.round(&args, &lab, round, &mut report));
    std::fs::remove_file(&bench.file)?;
    outcome?;
    report.finish()
}

struct Bench {
    conditions: Conditions,
    rows: u64,
    file: PathBuf,
    sums: (u64, u64, u64),
}

impl Bench {
    fn round(&self, args: &Args, lab: &Path, round: u32, report: &mut Report) -> Result<()> {
        let mut servers = Vec::new();
        for &kind in &args.table.given.comparison.engines {
            let instance = Instance::new(lab, kind)?;
            instance.reset()?;
            let server = instance.start(&self.conditions)?;
            server.connect(None)?.query_drop(format!("CREATE DATABASE {DATABASE}"))?;
            servers.push(server);
        }
        let first = servers.len();
        servers.rotate_left((round as usize - 1) % first);
        let fills = if args.scans_only { &FILLS[..1] } else { &FILLS[..] };
        for &step in fills {
            for server in &servers {
                report.add(self.measure(server, step, round, 1)?)?;
                let mut conn = server.connect(Some(DATABASE))?;
                self.check(&mut conn, step.table())?;
                if [Step::Insert, Step::Alter].contains(&step) {
                    conn.query_drop(format!("DROP TABLE {}", step.table()))?;
                }
                conn.query_drop("RESET MASTER")?;
                settle(server.pid())?;
            }
        }
        for slice in 1..=args.scans {
            for &step in &SCANS {
                for server in &servers {
                    report.add(self.measure(server, step, round, slice)?)?;
                }
            }
        }
        servers.into_iter().try_for_each(|server| leaks::end(server, self.conditions.budget_mb))
    }

    fn measure(&self, server: &Server, step: Step, round: u32, slice: u32) -> Result<Run> {
        let instance = server.instance();
        let mut conn = server.connect(Some(DATABASE))?;
        if instance.kind() == Kind::Rocksdb && FILLS.contains(&step) && step != Step::Insert {
            conn.query_drop("SET SESSION rocksdb_bulk_load_allow_sk = 1, rocksdb_bulk_load = 1")?;
        }
        let meter = Meter::begin(server.pid(), instance)?;
        let began = Instant::now();
        self.work(&mut conn, step).with_context(|| format!("{}: {}", instance.kind().title(), step.title()))?;
        // RocksDB's bulk load ends with the session, or before the next statement on the table.
        if instance.kind() == Kind::Rocksdb && FILLS.contains(&step) {
            conn.query_drop("SET SESSION rocksdb_bulk_load = 0")?;
        }
        let seconds = began.elapsed().as_secs_f64();
        if FILLS.contains(&step) {
            settle(server.pid())?;
        }
        let run = Run {
            seconds,
            transactions: if step == Step::Ranges { RANGES * RANGE.min(self.rows) } else { self.rows },
            usage: meter.end()?,
            slice,
            ..Run::of("tables", step.title().into(), server, &self.conditions, round)?
        };
        println!(
            "{}: {seconds:.2} s, {:.0} rows/s, {:.1} s of the processor, {} MB written",
            run.name(),
            run.tps(),
            run.usage.cpu_us as f64 / 1e6,
            run.usage.write_bytes >> 20,
        );
        Ok(run)
    }

    fn work(&self, conn: &mut Conn, step: Step) -> Result<()> {
        let (table, rows) = (step.table(), self.rows);
        match step {
            Step::Load => {
                conn.query_drop(format!("CREATE TABLE {table} ({COLUMNS})"))?;
                conn.query_drop(format!("LOAD DATA INFILE '{}' INTO TABLE {table}", self.file.display()))?;
            }
            Step::Insert => {
                conn.query_drop(format!("CREATE TABLE {table} ({COLUMNS})"))?;
                for from in (1..=rows).step_by(BATCH as usize) {
                    conn.query_drop(insert(table, from, rows.min(from + BATCH - 1)))?;
                }
            }
            Step::Select => conn.query_drop(format!("CREATE TABLE {table} ({COLUMNS}) SELECT * FROM loaded"))?,
            Step::Alter => {
                conn.query_drop(format!("ALTER TABLE {table} ADD COLUMN x INT NOT NULL DEFAULT 1, ALGORITHM=COPY"))?;
            }
            Step::Count => one(conn, &format!("SELECT COUNT(*) FROM {table}"), rows)?,
            Step::Rows => {
                let sum = format!("SELECT COUNT(LENGTH(c)) FROM {table} FORCE INDEX (PRIMARY)");
                one(conn, &sum, rows)?;
            }
            Step::Index => one(conn, &format!("SELECT SUM(k) FROM {table} FORCE INDEX (k)"), self.sums.2)?,
            Step::Ranges => {
                for range in 0..RANGES {
                    let from = 1 + range * (rows / RANGES);
                    let sum = format!(
                        "SELECT COUNT(LENGTH(c)) FROM {table} WHERE id BETWEEN {from} AND {}",
                        from + RANGE.min(rows) - 1
                    );
                    let in_table = RANGE.min(rows - from + 1);
                    one(conn, &sum, in_table)?;
                }
            }
        }
        Ok(())
    }

    fn check(&self, conn: &mut Conn, table: &str) -> Result<()> {
        let found: Option<(u64, u64, u64)> =
            conn.query_first(format!("SELECT COUNT(*), SUM(id), SUM(k) FROM {table}"))?;
        ensure!(found == Some(self.sums), "{table}: rows, sum of id, sum of k are {found:?}, not {:?}", self.sums);
        Ok(())
    }
}

/// A statement with one number for an answer.
fn one(conn: &mut Conn, statement: &str, wanted: u64) -> Result<()> {
    let found: Option<u64> = conn.query_first(statement)?;
    ensure!(found == Some(wanted), "{statement}: {found:?}, not {wanted}");
    Ok(())
}

fn insert(table: &str, from: u64, to: u64) -> String {
    let mut text = format!("INSERT INTO {table} VALUES ");
    for id in from..=to {
        let _ = write!(text, "{}({id},{},'", if id == from { "" } else { "," }, Row(id).k());
        Row(id).c(&mut text);
        text.push_str("')");
    }
    text
}

/// The rows as LOAD DATA reads them: a line a row, tabs between columns.
fn rows_file(lab: &Path, rows: u64) -> Result<PathBuf> {
    let path = lab.join("rows.txt");
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).with_context(|| path.display().to_string())?);
    let mut line = String::new();
    for id in 1..=rows {
        line.clear();
        let _ = write!(line, "{id}\t{}\t", Row(id).k());
        Row(id).c(&mut line);
        line.push('\n');
        file.write_all(line.as_bytes())?;
    }
    file.into_inner()?.sync_all()?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_statement() {
        let text = insert("t", 2, 3);
        assert_eq!(text.matches('(').count(), 2);
        assert!(text.starts_with("INSERT INTO t VALUES (2,15838,'"), "{text}");
        assert!(text.ends_with("')"));
        let mut c = String::new();
        Row(3).c(&mut c);
        assert!(text.contains(&c));
    }

    #[test]
    fn text_fits_its_column() {
        for id in 0..1000 {
            let mut c = String::new();
            Row(id).c(&mut c);
            assert!((59..=100).contains(&c.len()), "{c}");
        }
    }
}
