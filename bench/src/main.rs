//! Compares Strata's engine with RocksDB, fjall and LMDB: in one process, on the same data, with the same durability and
//! the same memory, in alternating rounds. What is held equal and what cannot be is told in `docs/results/method.md`.
//!
//! Stores alternate within a round, and begin it in turn; a round is repeated for each workload, so that whatever the
//! machine does in a minute hits all of them alike.

mod data;
mod fjall;
mod lmdb;
mod machine;
mod measure;
mod page;
mod report;
mod rocks;
mod store;
mod strata;
mod work;

use std::path::{Path, PathBuf};

use clap::Parser;

use crate::report::{Figure, Run, Turns, number};
use crate::store::{Config, Kind, Result, Store, WriteLog};
use crate::work::{Sizes, Turn, Workload, turn};

/// Which part of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Data fit into memory three times over.
    Memory,
    /// Data are ten times the memory, under direct I/O.
    Disk,
}

/// Compares Strata's engine with RocksDB, fjall and LMDB.
#[derive(Parser)]
struct Args {
    /// Parts to run.
    #[arg(long, value_delimiter = ',', default_value = "memory,disk")]
    parts: Vec<Part>,
    /// Stores; the first is compared with the others. LMDB only takes part in memory: a memory map has no budget.
    #[arg(long, value_delimiter = ',', default_value = "strata,rocksdb,fjall,lmdb")]
    only: Vec<Kind>,
    /// Workloads; a load is always done.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// Alternating rounds.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Seconds of a turn that reads or commits.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Memory per store in MiB: 1024 for the part in memory, 64 for the one on disk.
    #[arg(long)]
    memory_mb: Option<u64>,
    /// Rows loaded; else as many as the part asks for.
    #[arg(long)]
    rows: Option<u64>,
    /// Threads that read: 1 in memory, 4 on disk.
    #[arg(long)]
    threads: Option<u64>,
    /// Threads that commit.
    #[arg(long, default_value_t = 8)]
    commit_threads: u64,
    /// Writes per second beside reads: 50000 in memory, 5000 on disk.
    #[arg(long)]
    write_rate: Option<u64>,
    /// When the log of single writes leaves the process.
    #[arg(long, default_value = "every-second")]
    log: WriteLog,
    /// Where the data go; removed afterwards.
    #[arg(long, default_value = "target/bench/data")]
    dir: PathBuf,
    /// Where results go.
    #[arg(long, default_value = "target/bench/results")]
    results: PathBuf,
    /// Stored runs whose tables and pages are to be made again; nothing is measured.
    #[arg(long, num_args = 1..)]
    report: Vec<PathBuf>,
}

impl Args {
    fn sizes(&self, part: Part) -> Sizes {
        let disk = part == Part::Disk;
        let memory_bytes = self.memory_mb.unwrap_or(if disk { 64 } else { 1024 }) << 20;
        let data_bytes = if disk { memory_bytes * 10 } else { memory_bytes / 3 };
        Sizes {
            rows: self.rows.unwrap_or(data_bytes / data::ROW_BYTES),
            memory_bytes,
            direct: disk,
            log: self.log,
            rounds: self.rounds,
            seconds: self.seconds,
            threads: self.threads.unwrap_or(if disk { 4 } else { 1 }),
            commit_threads: self.commit_threads,
            write_rate: self.write_rate.unwrap_or(if disk { 5_000 } else { 50_000 }),
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    for path in &args.report {
        let run: Run = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        std::fs::write(path.with_extension("html"), page::page(&run))?;
        println!("{}", run.markdown());
    }
    if !args.report.is_empty() {
        return Ok(());
    }
    for &part in &args.parts {
        let run = measure_part(&args, part)?;
        std::fs::create_dir_all(&args.results)?;
        let name = format!("{}-{}", run.began.replace([' ', ':'], "-"), format!("{part:?}").to_lowercase());
        let json = args.results.join(name).with_extension("json");
        std::fs::write(&json, serde_json::to_string_pretty(&run)?)?;
        std::fs::write(json.with_extension("html"), page::page(&run))?;
        println!("\n{}\nkept: {} and .html", run.markdown(), json.display());
    }
    Ok(())
}

/// A store under test and its folder.
struct Bed {
    kind: Kind,
    dir: PathBuf,
    store: Box<dyn Store>,
}

fn measure_part(args: &Args, part: Part) -> Result<Run> {
    let sizes = args.sizes(part);
    let mut kinds = args.only.clone();
    kinds.retain(|kind| part == Part::Memory || *kind != Kind::Lmdb);
    let wanted = |workload: &Workload| args.workloads.is_empty() || args.workloads.contains(workload);
    let mut run = Run {
        began: machine::utc(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        commit: machine::commit(),
        machine: machine::describe(),
        load: [machine::load(), 0.0],
        versions: machine::versions(),
        sizes: sizes.clone(),
        turns: Vec::new(),
    };
    let dir = args.dir.join(std::process::id().to_string());
    let mut beds = load(&kinds, &dir, &sizes, &mut run)?;
    for workload in Workload::ALL.into_iter().filter(|workload| *workload != Workload::Load && wanted(workload)) {
        let mut turns: Vec<Turns> = kinds.iter().map(|kind| empty(workload, *kind)).collect();
        for round in 0..sizes.rounds {
            for at in order(beds.len(), round) {
                let bed = &mut beds[at];
                if sizes.direct && !bed.kind.knows_direct() {
                    machine::drop_page_cache(&bed.dir)?;
                }
                let done = turn(workload, &*bed.store, &sizes, round)
                    .map_err(|e| format!("{} on {}: {e}", workload.title(), bed.kind.name()))?;
                let done = with_space(done, workload, &bed.dir, &*bed.store)?;
                say(workload, bed.kind, round, &done);
                turns[at].rounds.push(done);
            }
        }
        run.turns.extend(turns);
    }
    drop(beds);
    std::fs::remove_dir_all(&dir)?;
    run.load[1] = machine::load();
    Ok(run)
}

/// Loads each store as often as there are rounds, and keeps the last.
fn load(kinds: &[Kind], dir: &Path, sizes: &Sizes, run: &mut Run) -> Result<Vec<Bed>> {
    let config = Config { memory_bytes: sizes.memory_bytes, direct: sizes.direct, log: sizes.log };
    let mut turns: Vec<Turns> = kinds.iter().map(|kind| empty(Workload::Load, *kind)).collect();
    let mut beds: Vec<Option<Bed>> = kinds.iter().map(|_| None).collect();
    for round in 0..sizes.rounds {
        for at in order(kinds.len(), round) {
            if let Some(old) = beds[at].take() {
                drop(old.store);
                std::fs::remove_dir_all(&old.dir)?;
            }
            let kind = kinds[at];
            let dir = dir.join(format!("{}-{round}", kind.name()));
            let store = kind.open(&dir, config).map_err(|e| format!("{}: {e}", kind.name()))?;
            let done =
                turn(Workload::Load, &*store, sizes, round).map_err(|e| format!("load of {}: {e}", kind.name()))?;
            let done = with_space(done, Workload::Load, &dir, &*store)?;
            say(Workload::Load, kind, round, &done);
            turns[at].rounds.push(done);
            beds[at] = Some(Bed { kind, dir, store });
        }
    }
    run.turns.extend(turns);
    Ok(beds.into_iter().flatten().collect())
}

fn empty(workload: Workload, kind: Kind) -> Turns {
    Turns { workload, store: kind.name().into(), rounds: Vec::new() }
}

/// The stores' order in a round: each begins in turn.
fn order(stores: usize, round: u64) -> impl Iterator<Item = usize> {
    (0..stores).map(move |at| (at + round as usize) % stores)
}

fn with_space(mut turn: Turn, workload: Workload, dir: &Path, store: &dyn Store) -> Result<Turn> {
    // Nothing goes away by reading.
    let space = if workload.only_reads() { machine::space } else { machine::settled_space };
    (turn.data_bytes, turn.log_bytes) = space(dir, &|name| store.is_log(name))?;
    Ok(turn)
}

fn say(workload: Workload, kind: Kind, round: u64, done: &Turn) {
    let one = Turns { workload, store: String::new(), rounds: vec![done.clone()] };
    println!(
        "{:<26} {:<8} round {}: {:>11} ops/s, {:>7} us CPU/op, settled after {:.1} s",
        workload.title(),
        kind.name(),
        round + 1,
        number(Figure::Rate.of(&one)),
        number(Figure::Cpu.of(&one)),
        done.settle_seconds
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_store_begins_a_round_in_turn() {
        let orders: Vec<Vec<usize>> = (0..3).map(|round| order(3, round).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
    }

    /// The whole way on data too small to mean anything.
    #[test]
    fn a_tiny_comparison_runs_through() {
        let dir = tempfile::tempdir().expect("a folder");
        let args = Args::parse_from([
            "strata-bench",
            "--rows=4000",
            "--memory-mb=8",
            "--rounds=2",
            "--seconds=0.05",
            "--commit-threads=2",
            &format!("--dir={}", dir.path().display()),
        ]);
        for (part, stores) in [(Part::Memory, 4), (Part::Disk, 3)] {
            let run = measure_part(&args, part).expect("a good disk");
            assert_eq!(run.workloads(), Workload::ALL);
            assert_eq!(run.turns.len(), Workload::ALL.len() * stores);
            for turns in &run.turns {
                assert_eq!(turns.rounds.len(), 2);
                assert!(turns.rounds.iter().all(|turn| turn.ops > 0 && turn.data_bytes > 0), "{turns:?}");
            }
            assert!(page::page(&run).contains("lmdb") == (part == Part::Memory));
        }
    }
}
