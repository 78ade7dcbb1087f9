//! The command `spider-tpcc`: TPC-C over several data servers, through Spider.
//!
//! Tables are partitions by warehouse, each on the data server of its warehouse; items, which nobody changes, are on the Spider
//! server. One in nine transactions needs a second warehouse, often another server's. Spider ends each that writes by XA, those of
//! one server too. The consistency conditions are checked through Spider, so over all servers, and the tables on each server by
//! CHECK TABLE.

use super::cluster::{Cluster, has_spider};
use crate::crash::{check_tables_of, fail_if};
use crate::drive::Control;
use crate::leaks;
use crate::options::Trial;
use crate::progress::{bar, watched};
use crate::tpcc::drive::{Load, drive};
use crate::tpcc::{self, Scale, check, load, schema};
use anyhow::{Context, Result, ensure};
use mysql::prelude::Queryable;
use std::time::Instant;

/// Options of `spider-tpcc`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    trial: Trial,
    /// Data servers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    shards: u32,
    /// Warehouses in all
    #[arg(long, default_value_t = 4)]
    warehouses: u32,
    /// A tenth of the specification's customers, items and orders a warehouse
    #[arg(long)]
    small: bool,
    /// Seconds of each round
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// The command `spider-tpcc`.
pub fn run(args: Args) -> Result<()> {
    if !has_spider() {
        println!("NOT RUN: the server has no Spider; 'scripts/setup.sh spider' installs it");
        return Ok(());
    }
    let title = format!("TPC-C, {} warehouses on {} servers through Spider", args.warehouses, args.shards);
    let (seed, mut rng, folder) = args.trial.begin("shards-tpcc", &title)?;
    let scale = if args.small { Scale::small(args.warehouses) } else { Scale::full(args.warehouses) };
    let mut cluster = Cluster::new(&folder, &args.trial, args.shards, true, &mut rng)?;
    cluster.start()?;
    fill(&cluster, scale).with_context(|| format!("logs of the servers are {}", cluster.logs()))?;
    let head = cluster.head()?.clone();
    let mut orders = Vec::new();
    for round in 1..=args.trial.rounds {
        let load = Load {
            scale,
            threads: args.trial.threads,
            seconds: args.seconds,
            seed: seed + u64::from(round),
            rate: None,
        };
        let before = prepares(&cluster)?;
        let control = Control::default();
        let outcome = watched(title.clone(), args.seconds, &control, || drive(&head, load, &control))?;
        let failures = outcome.seen.failures();
        ensure!(failures.is_empty(), "under load: {}", failures.join("; "));
        orders.extend(&outcome.orders);
        let seen = &outcome.seen;
        println!(
            "{}, {} servers, round {round}: {:.0} transactions/s ({:.0} New-Orders/min), p95 {:.1} ms, {} deadlocks; {} branches \
             of {} transactions prepared",
            args.trial.engine.title(),
            args.shards,
            seen.transactions as f64 / seen.seconds,
            outcome.orders.len() as f64 / seen.seconds * 60.0,
            seen.latency.p95_us as f64 / 1e3,
            seen.deadlocks,
            prepares(&cluster)? - before,
            seen.transactions,
        );
        let began = Instant::now();
        let rows = check::check(&head, scale, false, &orders, 2)?.into_result("TPC-C")?;
        let mut wrong = Vec::new();
        for shard in cluster.shards() {
            check_tables_of(shard, &[tpcc::DATABASE], &mut wrong)?;
        }
        fail_if("on the data servers", &wrong)?;
        println!(
            "all TPC-C conditions hold over all servers, {} acknowledged orders are there ({rows} rows read in {:.1} s)",
            orders.len(),
            began.elapsed().as_secs_f64()
        );
    }
    let cache_mb = args.trial.cache_mb;
    cluster.stop(|server| leaks::check(server, cache_mb))
}

/// Makes the tables and fills them through Spider.
fn fill(cluster: &Cluster, scale: Scale) -> Result<()> {
    let began = Instant::now();
    cluster.create(tpcc::DATABASE, schema::of_warehouses())?;
    let item = schema::definition("item").context("there is a table of items")?;
    cluster.head()?.connect(Some(tpcc::DATABASE))?.query_drop(format!("{item} ENGINE=InnoDB"))?;
    let bar = bar("loading through Spider".into());
    load::fill(cluster.head()?, scale, 2, &bar)?;
    bar.finish_and_clear();
    println!("{} warehouses loaded in {:.1} s", scale.warehouses, began.elapsed().as_secs_f64());
    Ok(())
}

/// How many branches were prepared on the data servers since these started.
fn prepares(cluster: &Cluster) -> Result<u64> {
    let mut sum = 0;
    for shard in cluster.shards() {
        let row: Option<(String, u64)> =
            shard.connect(None)?.query_first("SHOW GLOBAL STATUS LIKE 'Com_xa_prepare'")?;
        sum += row.map_or(0, |(_, count)| count);
    }
    Ok(sum)
}
