//! The command `steady`: how even an engine's writes are, at nearly its highest rate, when the disk stalls and when load jumps.
//!
//! For each sysbench script and engine, on fresh data and one server:
//!
//! 1. *at most*: as many transactions as go. Their mean is the highest rate: what a second with a merge lacks no other makes up for.
//! 2. *at 95%* of that rate, for minutes: the slowest second over the median one, p99.9 over p50.
//! 3. *a slow second*: the same rate; for one second in the middle the device does [`STALLED`] requests a second. The five
//!    seconds behind it are shown.
//! 4. *four times the load*: a quarter of the rate, for a while three more quarters. The slowest second is shown.
//!
//! Transactions with a rate begin evenly, and what an engine does not get done in a second is done in the next ones; a latency
//! begins with its transaction, not when it was due (`even.lua`).

use crate::leaks;
use crate::meter::settle;
use crate::oltp::{Stage, measure};
use crate::report::{DISTURBED, Report, Run, STEADY};
use crate::sbtest::{TableArgs, Tables};
use crate::server::{Instance, Server};
use crate::stats::{evenness, longest_zero, median, minimum, whole};
use crate::sysbench::{self, Call, Outcome};
use crate::throttle::Throttle;
use anyhow::{Context, Result};
use std::thread::sleep;
use std::time::Duration;

/// Requests a second of a stalled device.
const STALLED: u32 = 5;
/// Seconds before the device stalls or the load jumps, and after.
const CALM: u64 = 20;
/// Seconds shown behind the slow one.
const AFTER: usize = 5;
/// Seconds of the higher load.
const HIGH: u64 = 20;

/// Options of `steady`.
#[derive(clap::Args)]
pub struct Args {
    /// Scripts of sysbench that write (oltp_delete soon finds nothing to delete)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "oltp_update_index,oltp_update_non_index,oltp_insert,oltp_write_only,oltp_read_write"
    )]
    scripts: Vec<String>,
    /// Sessions
    #[arg(long, default_value_t = 8)]
    threads: u32,
    #[command(flatten)]
    tables: TableArgs<512>,
    /// Seconds at 95%
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Seconds in which the highest rate is found
    #[arg(long, default_value_t = 30)]
    most_seconds: u64,
    /// Leaves out the slow second, for which root is needed
    #[arg(long)]
    no_stall: bool,
}

/// The command `steady`.
pub fn run(args: Args) -> Result<()> {
    let Stage { scripts, lab, tables } = Stage::set(&args.scripts, &args.tables, args.threads)?;
    let size = tables.size;
    let title = format!("Steady writes, {} sessions, {} x {} rows", args.threads, size.tables, size.rows);
    let mut report = Report::new(&lab, &title)?.with(STEADY);
    for round in 1..=args.tables.given.comparison.rounds {
        for script in &scripts {
            for instance in &tables.instances {
                let mut server = tables.server(instance)?;
                let call = Call {
                    script,
                    threads: args.threads,
                    seconds: args.most_seconds,
                    rand_type: "special",
                    xa: false,
                    rate: None,
                };
                Bench { args: &args, tables: &tables, round }.run(&mut server, &call, &mut report)?;
                leaks::end(server, args.tables.given.cache_mb)?;
            }
        }
    }
    tables.end()?;
    report.finish()
}

struct Bench<'a> {
    args: &'a Args,
    tables: &'a Tables,
    round: u32,
}

impl Bench<'_> {
    fn run(&self, server: &mut Server, call: &Call, report: &mut Report) -> Result<()> {
        let most = self.measure(server, call, "at most")?;
        let highest = most.tps();
        report.add(most)?;
        let rate = |part: f64| Some(((highest * part) as u64).max(1));
        settle(server.pid())?;
        let even = Call { rate: rate(0.95), ..call.clone() };
        report.add(self.measure(server, &Call { seconds: self.args.seconds, ..even.clone() }, "at 95%")?)?;
        if !self.args.no_stall {
            settle(server.pid())?;
            let even = Call { seconds: 2 * CALM + AFTER as u64 + 1, ..even };
            let run = self.beside(server, &even, "a slow second", stall)?;
            println!("  {}", after_stall(&run.series));
            report.add(run)?;
        }
        settle(server.pid())?;
        let low = Call { seconds: 2 * CALM + HIGH, rate: rate(0.25), ..call.clone() };
        let high = Call { seconds: HIGH, rate: rate(0.75), ..call.clone() };
        let size = self.tables.size;
        let mut more = Outcome::default();
        let mut run = self.beside(server, &low, "four times the load", |instance, _| {
            more = sysbench::run(instance, size, &high, |_| ())?;
            Ok(())
        })?;
        for (sum, more) in run.series.iter_mut().skip(CALM as usize).zip(more.series) {
            *sum += more;
        }
        run.transactions += more.transactions;
        run.errors.extend(more.errors);
        let jump = &whole(&run.series)[CALM as usize - 1..];
        println!("  around the jump, tps: {}; {} s at zero", shown(jump), longest_zero(jump));
        report.add(run)
    }

    fn measure(&self, server: &mut Server, call: &Call, what: &str) -> Result<Run> {
        let run = measure(server, &self.tables.conditions, self.tables.size, call, 0, self.round)?;
        let series = whole(&run.series).to_vec();
        let run = Run { label: format!("{}, {what}", run.label), series, workload: "steady".into(), ..run };
        println!(
            "  {what}: slowest second {:.2} of the median one, {:.2} where less than {:.0}% of the processors were stolen; \
             p99.9 {:.1} of p50",
            evenness(&run.series),
            evenness(&run.undisturbed()),
            DISTURBED * 100.0,
            run.latency.p999_us as f64 / run.latency.p50_us.max(1) as f64
        );
        Ok(run)
    }

    /// Measures, and does something else when [`CALM`] seconds are over.
    fn beside(
        &self,
        server: &mut Server,
        call: &Call,
        what: &str,
        act: impl FnOnce(&Instance, u32) -> Result<()> + Send,
    ) -> Result<Run> {
        let (instance, pid) = (server.instance().clone(), server.pid());
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                sleep(Duration::from_secs(CALM));
                act(&instance, pid)
            });
            let run = self.measure(server, call, what);
            other.join().expect("the other thread does not panic")?;
            run
        })
    }
}

/// A second in which the device hardly moves.
fn stall(instance: &Instance, pid: u32) -> Result<()> {
    let slow = Throttle::begin(pid, &instance.data(), STALLED).context("the device cannot be slowed down")?;
    sleep(Duration::from_secs(1));
    drop(slow);
    Ok(())
}

/// The slow second and those behind it, over the median of those before.
fn after_stall(series: &[f64]) -> String {
    let calm = CALM as usize;
    let usual = median(&series[..calm.min(series.len())]).max(1.0);
    // The stall begins a little behind the start of its second, so it reaches into the next.
    let Some(seconds) = series.get(calm..) else { return "the run ended before the slow second".into() };
    let (slow, rest) = seconds.split_at(2.min(seconds.len()));
    let rest = &rest[..AFTER.min(rest.len())];
    format!(
        "slow second {:.2} of the median; the five behind it: {}, at least {:.2}",
        minimum(slow) / usual,
        shown(rest),
        minimum(rest) / usual
    )
}

fn shown(series: &[f64]) -> String {
    series.iter().map(|tps| format!("{tps:.0}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_behind_a_stall() {
        let mut series = vec![100.0; 30];
        series[20] = 10.0;
        series[21] = 150.0;
        series[24] = 80.0;
        let text = after_stall(&series);
        assert!(text.starts_with("slow second 0.10"), "{text}");
        assert!(text.ends_with("100 100 80 100 100, at least 0.80"), "{text}");
        assert_eq!(after_stall(&series[..10]), "the run ended before the slow second");
    }
}
