//! Load drivers and measurements that prove Strata's claims.
//!
//! Every engine under test gets a private MariaDB server of its own, started by
//! the lab under the same conditions (see [`server`] and [`engine`]); a workload
//! ([`tpcc`], [`linkbench`], [`sysbench`], [`redmine`]) loads it, [`meter`] reads what the server's process
//! spent, [`report`] turns runs into tables and files, and with [`page`] into pages with charts. [`reproduce`] does
//! published experiments again. [`crash`] uses the same
//! parts to kill a server under load and to check what it finds afterwards,
//! [`damage`] to break its files, [`matrix`] to crash it at each step of a commit,
//! [`flashback`] to read the past, [`expiring`] to let rows expire, [`replica`] to kill a source and its replica, [`differ`] to compare answers with InnoDB's, [`collations`] to compare keys of text with the server's order.
//! `docs/results/method.md` says what each number means.

mod anomalies;
mod backup;
mod backup_cost;
mod binlog;
mod bulk;
mod child;
mod churn;
mod clones;
mod collations;
mod connections;
mod copies;
mod course;
mod crash;
mod damage;
mod definer;
mod differ;
mod drive;
mod encryption;
mod engine;
mod expiring;
mod failover;
mod findings;
mod flashback;
mod held;
mod history;
mod hypervisor;
#[cfg(test)]
mod instruments;
mod isolation;
mod kernel;
mod leaks;
mod ledger;
mod linkbench;
mod many;
mod matrix;
mod memory_group;
mod meter;
mod oltp;
mod online;
mod options;
mod pace;
mod page;
mod paths;
mod progress;
mod queue;
mod redmine;
mod replica;
mod report;
mod reproduce;
mod rotation;
mod salvage;
mod sbtest;
mod server;
mod shards;
mod side;
mod snapshot;
mod stats;
mod steady;
mod sysbench;
mod tables;
mod throttle;
mod tour;
mod tpcc;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "strata-lab", version, about = "Load drivers and measurements that prove Strata's claims")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// TPC-C on each engine: throughput, latency, bytes and CPU per transaction
    Tpcc(tpcc::bench::Args),
    /// Checks the TPC-C consistency conditions of the data that a run has left
    TpccCheck(tpcc::bench::CheckArgs),
    /// LinkBench on each engine: a social graph is loaded, then asked for and changed
    Linkbench(linkbench::bench::Args),
    /// The same with the published driver itself, in Java, from a checkout of it that was built
    LinkbenchPublished(linkbench::published::Args),
    /// The packaged sysbench OLTP scripts on each engine
    Oltp(oltp::Args),
    /// Transactions of millions of rows on each engine: time, memory, what other sessions notice
    Bulk(bulk::Args),
    /// Tables of millions of rows on each engine: filled in each way, counted, scanned
    Tables(tables::Args),
    /// Thousands of small tables on each engine: created, filled, stopped, killed, looked at, dropped
    Many(many::Args),
    /// Thousands of sessions at once, each with an open transaction: the memory of a session, and whether it is given back
    Connections(connections::Args),
    /// How even writes are: near the highest rate, behind a second of a stalled disk, when the load jumps
    Steady(steady::Args),
    /// ALTER TABLE of millions of rows on each engine: what is done at once, ADD INDEX beside writers, and what they notice
    Online(online::Args),
    /// A queue: rows inserted at one end, deleted at the other, and how long the first row takes to find
    Queue(queue::Args),
    /// What a snapshot that stays open costs while rows are updated
    Snapshot(snapshot::Args),
    /// Ends a server under load again and again, by SIGKILL and SHUTDOWN, and checks what it recovers
    Crash(crash::Args),
    /// Broken files, a full disk and killed statements: what the server makes of them
    Damage(damage::Args),
    /// Crashes a server at each step of a commit and checks that tables and binary log agree
    CrashMatrix(matrix::Args),
    /// Ends a replica and its source under load and checks that both have the same afterwards
    Replica(replica::Args),
    /// Ends a source under load, promotes a replica, and checks that nothing acknowledged is lost and all servers are equal
    Failover(failover::Args),
    /// Ends servers at each step of a transaction over several of them, by Spider or by the lab's own coordinator
    Spider(shards::Args),
    /// TPC-C over several servers through Spider, with the conditions checked over all of them
    SpiderTpcc(shards::tpcc::Args),
    /// Backs a server up under load, restores, and checks that the copy follows and equals its source
    Backup(backup::Args),
    /// Reads random moments of the past of a ledger whose history is known, while its server is ended again and again
    Flashback(flashback::Args),
    /// Rows that expire, while the purge removes them and the server is ended again and again
    Ttl(expiring::Args),
    /// What a backup costs those who work meanwhile: TPC-C's rate and the longest commit before, during and after it
    BackupCost(backup_cost::Args),
    /// What a history costs that is an hour old: TPC-C on two servers in turn, one of which keeps it
    HistoryCost(tpcc::aged::Args),
    /// How long a checkpoint takes to be a second server that answers, at several sizes of the store
    Clones(clones::Args),
    /// Damages the files of a store, salvages it with strata-tool, loads what comes of it, and compares
    Salvage(salvage::Args),
    /// Plays the known phenomena of isolation step by step, at each level
    Anomalies(anomalies::Args),
    /// Random transactions of many sessions, and the check that what they saw was possible
    Isolation(isolation::Args),
    /// Keys of text beside the comparison of values, in every collation of the server
    Collations(collations::Args),
    /// The same random SQL on InnoDB and on Strata, and the comparison of all answers
    Differ(differ::Args),
    /// A short tour: Strata and InnoDB side by side in about three minutes
    Tour(tour::Args),
    /// Published experiments again, with Strata beside the engines of the original
    Reproduce(reproduce::Args),
    /// TPC-C with 1, 4 and 16 times the data, with memory that grows with them and with memory that stays
    Scale(reproduce::How),
    /// What differs between two stored runs of 'reproduce' by more than noise
    Compare(reproduce::compare::Args),
    /// Stored runs of 'reproduce' and 'scale' in short form in docs/results, and what the README shows of them
    Publish(reproduce::publish::Args),
    /// Stored runs of any command as tables, as a page of HTML with charts, as Markdown with SVG
    Report(report::Args),
    /// Stops a server that an interrupted run left behind, removes the lab's data
    Clean(options::Site),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Tpcc(args) => tpcc::bench::run(args),
        Command::TpccCheck(args) => tpcc::bench::check(args),
        Command::Linkbench(args) => linkbench::bench::run(args),
        Command::LinkbenchPublished(args) => linkbench::published::run(args),
        Command::Oltp(args) => oltp::run(args),
        Command::Bulk(args) => bulk::run(args),
        Command::Tables(args) => tables::run(args),
        Command::Many(args) => many::run(args),
        Command::Connections(args) => connections::run(args),
        Command::Steady(args) => steady::run(args),
        Command::Online(args) => online::run(args),
        Command::Queue(args) => queue::run(args),
        Command::Snapshot(args) => snapshot::run(args),
        Command::Crash(args) => crash::run(args),
        Command::Damage(args) => damage::run(args),
        Command::CrashMatrix(args) => matrix::run(args),
        Command::Replica(args) => replica::run(args),
        Command::Failover(args) => failover::run(args),
        Command::Spider(args) => shards::run(args),
        Command::SpiderTpcc(args) => shards::tpcc::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Flashback(args) => flashback::run(args),
        Command::Ttl(args) => expiring::run(args),
        Command::BackupCost(args) => backup_cost::run(args),
        Command::HistoryCost(args) => tpcc::aged::run(args),
        Command::Clones(args) => clones::run(args),
        Command::Salvage(args) => salvage::run(args),
        Command::Anomalies(args) => anomalies::run(args),
        Command::Isolation(args) => isolation::run(args),
        Command::Collations(args) => collations::run(args),
        Command::Differ(args) => differ::run(args),
        Command::Tour(args) => tour::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Scale(how) => reproduce::scale(how),
        Command::Compare(args) => reproduce::compare::run(args),
        Command::Publish(args) => reproduce::publish::run(args),
        Command::Report(args) => report::run(args),
        Command::Clean(site) => server::clean(&site),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
            eprintln!("strata-lab: {}", causes.join(": "));
            ExitCode::FAILURE
        }
    }
}
