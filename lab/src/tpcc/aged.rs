//! The command `history-cost`: what a history costs that is as old as it gets.
//!
//! Two servers of Strata run side by side on the same data. The one keeps a history, the other does not, and both get the same
//! transactions at the same modest rate until the oldest moment of the history is as old as its retention. Then they are measured in turn, as fast
//! as they go: rates, and what the settled files take. So the rows that TPC-C changes all the time have a version for each second of that time.
//!
//! Rejected: measuring from the first second, as `tpcc --history` does. It shows what a history costs that is a minute old.

use super::Scale;
use super::bench::{Bench, OLD_VERSIONS, SETTLED, history_bytes, load_warehouses, measure};
use super::drive::{Load, drive};
use crate::course::Course;
use crate::drive::Control;
use crate::engine::{Conditions, Kind};
use crate::meter::settle;
use crate::options::{Isolation, Site, turns};
use crate::report::{MIB, Report};
use crate::server::{Instance, Server};
use crate::stats::median;
use anyhow::{Context, Result, ensure};
use mysql::prelude::Queryable;

/// Options of `history-cost`.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of history that the one server keeps, and for which both are under load before anything is measured
    #[arg(long, default_value_t = 3600)]
    history: u64,
    /// Transactions a second of each server in that time
    #[arg(long, default_value_t = 150)]
    rate: u32,
    /// How often each server is measured afterwards, in turn
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Memory for each server, in MiB
    #[arg(long, default_value_t = 256)]
    cache_mb: u64,
    /// Warehouses (about 100 MB each in InnoDB)
    #[arg(long, default_value_t = 4)]
    warehouses: u32,
    /// Sessions
    #[arg(long, default_value_t = 8)]
    threads: u32,
    #[command(flatten)]
    site: Site,
}

/// One of the two.
struct Store {
    name: &'static str,
    server: Server,
    conditions: Conditions,
    rates: Vec<f64>,
}

impl Store {
    /// A server with fresh data.
    fn new(name: &'static str, history: u64, args: &Args) -> Result<Store> {
        let instance = Instance::new(&args.site.folder()?.join(name), Kind::Strata)?;
        instance.reset()?;
        let keeps = (history > 0).then(|| format!("strata_history_retention={history}"));
        let conditions = Conditions {
            budget_mb: args.cache_mb,
            isolation: Isolation::RepeatableRead,
            extra: vec![],
            strata_extra: keeps.into_iter().collect(),
        };
        let server = instance.start(&conditions)?;
        load_warehouses(&instance, Scale::full(args.warehouses), false)?;
        settle(server.pid())?;
        Ok(Store { name, server, conditions, rates: Vec::new() })
    }

    /// Files in MiB once merges have ended, and what of them only the history sees, not compressed.
    fn space(&self) -> Result<[f64; 2]> {
        settle(self.server.pid())?;
        Ok([self.server.instance().size_on_disk()?.data as f64 / MIB, history_bytes(&self.server)? / MIB])
    }
}

/// The command `history-cost`.
pub fn run(args: Args) -> Result<()> {
    let scale = Scale::full(args.warehouses);
    let mut stores = [Store::new("with-history", args.history, &args)?, Store::new("without-history", 0, &args)?];
    let loaded = [stores[0].space()?, stores[1].space()?];
    println!("both are under load for {} s, {} transactions a second each", args.history, args.rate);
    let load = Load { scale, threads: args.threads, seconds: args.history, seed: 0, rate: Some(args.rate) };
    std::thread::scope(|scope| {
        let drivers = stores.each_ref().map(|store| {
            let instance = store.server.instance();
            scope.spawn(move || drive(instance, load, &Control::default()))
        });
        drivers.into_iter().try_for_each(|driver| {
            let failures = driver.join().expect("the driver does not panic")?.seen.failures();
            ensure!(failures.is_empty(), "the load has failed: {failures:?}");
            Ok(())
        })
    })?;
    let moments = status(&stores[0].server, "Strata_history_moments")?;
    let aged = [stores[0].space()?, stores[1].space()?];
    let title = format!(
        "TPC-C, {} warehouse(s), {} threads, with and without {} s of history",
        args.warehouses, args.threads, args.history
    );
    let mut report = Report::new(&args.site.folder()?, &title)?.in_full();
    for round in 1..=args.rounds {
        for n in turns(stores.len(), round) {
            let store = &mut stores[n];
            settle(store.server.pid())?;
            let course = Course::of_seconds(5, args.seconds);
            // Each round has a seed of its own, past that of the load before.
            let bench =
                Bench { scale, foreign_keys: false, threads: args.threads, round: round + 1, rate: None, course };
            let (mut run, _) = measure(&mut store.server, &store.conditions, bench)?;
            run.label.push_str(&format!(", {}", store.name.replace('-', " ")));
            run.settings.insert("before".into(), format!("{} s, {} transactions a second", args.history, args.rate));
            if n == 0 {
                run.settings.insert("history".into(), format!("{} s", args.history));
            }
            run.further.extend([(SETTLED.to_string(), aged[n][0]), (OLD_VERSIONS.to_string(), aged[n][1])]);
            store.rates.push(run.tps());
            report.add(run)?;
        }
    }
    let [with, without] = stores.each_ref().map(|store| median(&store.rates));
    println!(
        "with {} s of history, {moments} moments of it: {with:.0} transactions/s, {:.3} of the {without:.0} without (medians of {} rounds)",
        args.history,
        with / without,
        args.rounds
    );
    println!(
        "files of {:.0} MB, {:.3} of the {:.0} MB without ({:.0} and {:.0} when loaded); {:.0} MB of old versions in them, not compressed",
        aged[0][0],
        aged[0][0] / aged[1][0],
        aged[1][0],
        loaded[0][0],
        loaded[1][0],
        aged[0][1]
    );
    stores.into_iter().try_for_each(|store| store.server.stop())?;
    report.finish()
}

fn status(server: &Server, name: &str) -> Result<u64> {
    let row: Option<(String, u64)> = server.connect(None)?.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
    Ok(row.with_context(|| format!("the server has no {name}"))?.1)
}
