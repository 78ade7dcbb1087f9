//! Runs the packaged sysbench and understands what it prints.

use crate::drive::Seen;
use crate::server::Instance;
use crate::stats::Latency;
use anyhow::{Context, Result, bail};
use mysql::prelude::Queryable;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// The database that holds sysbench's tables.
pub const DATABASE: &str = "sbtest";
/// ER_LOCK_DEADLOCK and, with snapshot isolation, ER_CHECKREAD, the only errors that a client has to expect; ER_XA_RBDEADLOCK, the
/// same at the end of an XA transaction; and ER_XAER_RMFAIL, when the transaction that was the victim is ended before it is rolled back.
const IGNORED: &str = "1213,1020,1614,1399";
/// Scripts around a packaged one, see there.
const XA_SCRIPT: &str = include_str!("xa.lua");
const EVEN_SCRIPT: &str = include_str!("even.lua");

/// Size of the data.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Tables.
    pub tables: u32,
    /// Rows in each.
    pub rows: u64,
}

/// One call of sysbench.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The script, as `oltp_read_only`.
    pub script: &'a str,
    /// Sessions.
    pub threads: u32,
    /// How long, in seconds.
    pub seconds: u64,
    /// Distribution of row numbers; sysbench's default is `special`.
    pub rand_type: &'a str,
    /// Each event is an XA transaction.
    pub xa: bool,
    /// Transactions a second, all sessions together, begun evenly; as many as go if none.
    pub rate: Option<u64>,
}

impl Call<'_> {
    /// Whether the script fills other tables than the OLTP scripts' own.
    pub fn has_own_tables(&self) -> bool {
        self.script == "bulk_insert"
    }

    fn database(&self) -> &'static str {
        if self.has_own_tables() { "sbbulk" } else { DATABASE }
    }
}

/// What a call measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Seconds of the run.
    pub seconds: f64,
    /// Transactions that ended well.
    pub transactions: u64,
    /// Deadlocks; sysbench begins such a transaction again.
    pub deadlocks: u64,
    /// Transactions in each second.
    pub series: Vec<f64>,
    /// From sysbench's histogram: 2% exact.
    pub latency: Option<[u64; 4]>,
    /// The shortest, the mean and the longest, in microseconds.
    pub min_us: u64,
    pub mean_us: u64,
    pub max_us: u64,
    /// Lines with errors.
    pub errors: Vec<String>,
}

impl Outcome {
    /// The same as of the lab's own drivers.
    pub fn seen(self) -> Seen {
        let [p50_us, p95_us, p99_us, p999_us] = self.latency.unwrap_or_default();
        Seen {
            seconds: self.seconds,
            transactions: self.transactions,
            deadlocks: self.deadlocks,
            errors: self.errors,
            series: self.series,
            latency: Latency { count: self.transactions, p50_us, p95_us, p99_us, p999_us, max_us: self.max_us },
            ..Seen::default()
        }
    }
}

/// Creates and fills the tables, a thread per table.
pub fn prepare(instance: &Instance, size: Size) -> Result<()> {
    let call = Call {
        script: "oltp_read_write",
        threads: size.tables,
        seconds: 0,
        rand_type: "uniform",
        xa: false,
        rate: None,
    };
    prepare_for(instance, size, &call)
}

/// Creates what a script needs that has tables of its own.
pub fn prepare_for(instance: &Instance, size: Size, call: &Call) -> Result<()> {
    let mut conn = instance.connect(None)?;
    conn.query_drop(format!("CREATE DATABASE IF NOT EXISTS {}", call.database()))?;
    let output = command(instance, size, call, "prepare")?.output().context("sysbench is not installed")?;
    if !output.status.success() {
        bail!(
            "sysbench could not fill the tables: {}{}",
            String::from_utf8_lossy(&output.stderr),
            error_lines(&String::from_utf8_lossy(&output.stdout)).join("; ")
        );
    }
    Ok(())
}

/// Begins a run in the background.
pub fn spawn(instance: &Instance, size: Size, call: &Call) -> Result<Child> {
    command(instance, size, call, "run")?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("sysbench is not installed; 'make setup' installs it")
}

/// Runs it to its end; each 1-second report is also handed to `each_second`.
pub fn run(instance: &Instance, size: Size, call: &Call, mut each_second: impl FnMut(f64)) -> Result<Outcome> {
    let mut child = spawn(instance, size, call)?;
    let mut stderr = child.stderr.take().context("stderr is piped")?;
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let mut text = String::new();
    for line in BufReader::new(child.stdout.take().context("stdout is piped")?).lines() {
        let line = String::from_utf8_lossy(line?.as_bytes()).into_owned();
        if let Some(tps) = interval(&line) {
            each_second(tps);
        }
        text += &line;
        text.push('\n');
    }
    let status = child.wait()?;
    text += &errors.join().unwrap_or_default();
    let mut outcome = parse(&text);
    if !status.success() && outcome.errors.is_empty() {
        outcome.errors.push(format!("sysbench ended with {status}"));
    }
    Ok(outcome)
}

fn command(instance: &Instance, size: Size, call: &Call, verb: &str) -> Result<Command> {
    let mut command = Command::new("sysbench");
    let mut script = call.script.to_string();
    let around = match (call.xa, call.rate) {
        (false, None) => None,
        (true, None) => Some(("xa.lua", XA_SCRIPT)),
        (false, Some(_)) => Some(("even.lua", EVEN_SCRIPT)),
        (true, Some(_)) => bail!("XA transactions have no rate"),
    };
    if let Some((name, text)) = around {
        let path = instance.log().with_file_name(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        command.env("STRATA_LAB_SCRIPT", &script);
        script = path.display().to_string();
    }
    command.args([
        script,
        format!("--mysql-socket={}", instance.socket().display()),
        "--mysql-user=root".into(),
        format!("--mysql-db={}", call.database()),
        format!("--mysql-storage-engine={}", instance.engine_clause()),
        format!("--mysql-ignore-errors={IGNORED}"),
        "--db-ps-mode=auto".into(),
        format!("--threads={}", call.threads),
        format!("--time={}", call.seconds),
        "--events=0".into(),
        "--report-interval=1".into(),
        "--percentile=95".into(),
        "--histogram=on".into(),
        format!("--rand-type={}", call.rand_type),
    ]);
    if let Some(rate) = call.rate {
        command.env("STRATA_LAB_RATE", rate.to_string());
    }
    // Not an OLTP script by its options: it knows no tables.
    if !call.has_own_tables() {
        command.args([format!("--tables={}", size.tables), format!("--table-size={}", size.rows)]);
    }
    command.arg(verb);
    Ok(command)
}

/// Understands the output of a run.
pub fn parse(text: &str) -> Outcome {
    let mut outcome = Outcome { errors: error_lines(text), ..Outcome::default() };
    let mut histogram: Vec<(f64, u64)> = Vec::new();
    let mut events = 0;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(tps) = interval(line) {
            outcome.series.push(tps);
        } else if let Some(bucket) = histogram_line(trimmed) {
            histogram.push(bucket);
        } else if let Some(rest) = trimmed.strip_prefix("transactions:") {
            outcome.transactions = first_number(rest) as u64;
        } else if let Some(rest) = trimmed.strip_prefix("ignored errors:") {
            outcome.deadlocks = first_number(rest) as u64;
        } else if let Some(rest) = trimmed.strip_prefix("total time:") {
            outcome.seconds = first_number(rest.trim().trim_end_matches('s'));
        } else if let Some(rest) = trimmed.strip_prefix("total number of events:") {
            events = first_number(rest) as u64;
        } else if let Some(rest) = trimmed.strip_prefix("min:") {
            outcome.min_us = (first_number(rest) * 1e3) as u64;
        } else if let Some(rest) = trimmed.strip_prefix("avg:") {
            outcome.mean_us = (first_number(rest) * 1e3) as u64;
        } else if let Some(rest) = trimmed.strip_prefix("max:") {
            outcome.max_us = (first_number(rest) * 1e3) as u64;
        }
    }
    // bulk_insert counts rows as events, and few statements as transactions.
    if outcome.transactions < events {
        outcome.transactions = events;
    }
    if !histogram.is_empty() {
        let at = |quantile| quantile_us(&histogram, quantile);
        outcome.latency = Some([at(0.5), at(0.95), at(0.99), at(0.999)]);
    }
    outcome
}

/// `[ 3s ] thds: 8 tps: 123.45 qps: ...` has 123.45.
fn interval(line: &str) -> Option<f64> {
    let rest = line.trim_start().strip_prefix('[')?;
    let (_, rest) = rest.split_once("tps:")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// `  0.042 |******   17` has (0.042, 17).
fn histogram_line(line: &str) -> Option<(f64, u64)> {
    let (value, rest) = line.split_once('|')?;
    let value = value.trim().parse().ok()?;
    let count = rest.trim_start_matches('*').trim().parse().ok()?;
    Some((value, count))
}

/// The value in milliseconds below which this part of all events lies, in microseconds.
fn quantile_us(histogram: &[(f64, u64)], quantile: f64) -> u64 {
    let total: u64 = histogram.iter().map(|(_, count)| count).sum();
    let wanted = (total as f64 * quantile).ceil() as u64;
    let mut sum = 0;
    for (value, count) in histogram {
        sum += count;
        if sum >= wanted {
            return (value * 1e3) as u64;
        }
    }
    0
}

fn first_number(text: &str) -> f64 {
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Different lines that speak of an error, at most ten.
fn error_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        let bad = line.starts_with("FATAL:") || line.starts_with("ALERT:") || line.starts_with("Error");
        if bad && lines.len() < 10 && !lines.iter().any(|have| have == line) {
            lines.push(line.to_string());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Threads started!

[ 1s ] thds: 8 tps: 493.03 qps: 9977.33 (r/w/o: 6996.35/1984.92/996.05) lat (ms,95%): 21.11 err/s: 1.99 reconn/s: 0.00
[ 2s ] thds: 8 tps: 512.00 qps: 10240.09 (r/w/o: 7168.06/2048.02/1024.01) lat (ms,95%): 20.74 err/s: 0.00 reconn/s: 0.00
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
      10.090 |****                                     50
      15.550 |**************************************** 45
      30.260 |                                         4
      60.000 |                                         1

SQL statistics:
    queries performed:
        read:                            14168
        total:                           20240
    transactions:                        1010   (504.66 per sec.)
    queries:                             20224  (10104.83 per sec.)
    ignored errors:                      2      (1.00 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          2.0013s
    total number of events:              1010

Latency (ms):
         min:                                    9.50
         avg:                                   15.83
         max:                                   62.25
         95th percentile:                       20.74
         sum:                                15990.10
";

    #[test]
    fn a_good_run() {
        let outcome = parse(OUTPUT);
        assert_eq!(outcome.transactions, 1010);
        assert_eq!(outcome.deadlocks, 2);
        assert_eq!(outcome.seconds, 2.0013);
        assert_eq!(outcome.series, [493.03, 512.0]);
        assert_eq!(outcome.latency, Some([10090, 15550, 30260, 60000]));
        assert_eq!((outcome.min_us, outcome.mean_us, outcome.max_us), (9500, 15830, 62250));
        assert!(outcome.errors.is_empty());
    }

    #[test]
    fn a_run_with_errors() {
        let text = "FATAL: mysql_stmt_execute() returned error 1205 (Lock wait timeout exceeded) for query 'COMMIT'\n\
                    FATAL: `thread_run' function failed: /usr/share/sysbench/oltp_common.lua:487: SQL error\n\
                    FATAL: mysql_stmt_execute() returned error 1205 (Lock wait timeout exceeded) for query 'COMMIT'\n";
        assert_eq!(parse(text).errors.len(), 2);
    }

    #[test]
    fn rows_of_bulk_insert() {
        let text = "    transactions:   20 (2.0 per sec.)\n    total number of events:              500000\n";
        assert_eq!(parse(text).transactions, 500_000);
    }

    /// Runs `even.lua` around a script of `testdata` for a second; its output and whether it ended well.
    fn even(script: &str, rate: u32) -> (Outcome, bool) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");
        let output = Command::new("sysbench")
            .args([
                concat!(env!("CARGO_MANIFEST_DIR"), "/src/even.lua"),
                "--threads=3",
                "--time=1",
                "--events=0",
                "run",
            ])
            .env("STRATA_LAB_SCRIPT", script)
            .env("STRATA_LAB_RATE", rate.to_string())
            .current_dir(folder)
            .output()
            .expect("'make setup' installs sysbench");
        let text = [output.stdout, output.stderr].concat();
        (parse(&String::from_utf8_lossy(&text)), output.status.success())
    }

    #[test]
    fn events_begin_at_the_rate_and_again_after_a_deadlock() {
        let (outcome, ended_well) = even("calm", 300);
        assert!(ended_well && outcome.errors.is_empty(), "{outcome:?}");
        // On a busy machine it may end a little late.
        let expected = 300.0 * outcome.seconds;
        let events = outcome.transactions as f64;
        assert!((expected * 0.9..expected * 1.1).contains(&events), "{outcome:?}");
    }

    #[test]
    fn an_event_that_fails_ends_the_run() {
        let (outcome, ended_well) = even("broken", 300);
        assert!(!ended_well && outcome.errors[0].contains("broken"), "{outcome:?}");
    }
}
