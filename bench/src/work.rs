//! The workloads. One turn is one workload on one store; its settling belongs to it.
//!
//! What changes data does a fixed number of operations, so that all stores hold the same rows afterwards; what only reads
//! runs for a fixed time. The keys and values of a turn depend on workload and round, not on the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::data::{Key, Pick, Shuffle, Values, absent, inserted, loaded, stamp_of_key};
use crate::measure::{Latency, Record, Until, Usage, repeat};
use crate::store::{Result, Store, Worker, WriteLog};

/// Rows of a transaction.
pub const ROWS_PER_COMMIT: usize = 5;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// All rows in ascending order into an empty store.
    Load,
    /// New values for random rows, as many as there are.
    Overwrite,
    /// Point reads of rows that exist.
    Get,
    /// Point reads of rows that do not.
    GetAbsent,
    /// Point reads, few rows often.
    GetHot,
    /// Ten rows upwards.
    #[value(name = "scan-10")]
    #[serde(rename = "scan-10")]
    Scan10,
    /// Ten rows downwards.
    #[value(name = "scan-10-back")]
    #[serde(rename = "scan-10-back")]
    Scan10Back,
    /// A hundred rows upwards.
    #[value(name = "scan-100")]
    #[serde(rename = "scan-100")]
    Scan100,
    /// A hundred rows downwards.
    #[value(name = "scan-100-back")]
    #[serde(rename = "scan-100-back")]
    Scan100Back,
    /// Point reads beside one thread that overwrites at a fixed rate.
    GetWhileWriting,
    /// New rows among those that exist, in random order.
    Insert,
    /// Transactions of five rows, durable against a loss of power, by several threads.
    Commit,
    /// Random rows that exist.
    Delete,
}

impl Workload {
    /// All, in the order in which they run: deletions last, as they leave holes.
    pub const ALL: [Workload; 13] = [
        Workload::Load,
        Workload::Overwrite,
        Workload::Get,
        Workload::GetAbsent,
        Workload::GetHot,
        Workload::Scan10,
        Workload::Scan10Back,
        Workload::Scan100,
        Workload::Scan100Back,
        Workload::GetWhileWriting,
        Workload::Insert,
        Workload::Commit,
        Workload::Delete,
    ];

    /// As reports call it.
    pub fn title(self) -> &'static str {
        match self {
            Workload::Load => "bulk load",
            Workload::Overwrite => "overwrite, random",
            Workload::Get => "point read, present",
            Workload::GetAbsent => "point read, absent",
            Workload::GetHot => "point read, Zipf",
            Workload::Scan10 => "range of 10",
            Workload::Scan10Back => "range of 10, backward",
            Workload::Scan100 => "range of 100",
            Workload::Scan100Back => "range of 100, backward",
            Workload::GetWhileWriting => "point read while writing",
            Workload::Insert => "insert, random",
            Workload::Commit => "commit of 5 rows, synced",
            Workload::Delete => "delete, random",
        }
    }

    /// Does it leave the data as they are?
    pub fn only_reads(self) -> bool {
        use Workload::*;
        matches!(self, Get | GetAbsent | GetHot | Scan10 | Scan10Back | Scan100 | Scan100Back)
    }
}

/// Sizes of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sizes {
    /// Rows loaded.
    pub rows: u64,
    /// Memory for blocks and memtables in bytes.
    pub memory_bytes: u64,
    /// Direct I/O, data larger than memory.
    pub direct: bool,
    /// Log of single writes.
    pub log: WriteLog,
    /// Rounds.
    pub rounds: u64,
    /// Seconds of a turn that reads.
    pub seconds: f64,
    /// Threads that read.
    pub threads: u64,
    /// Threads that commit.
    pub commit_threads: u64,
    /// Writes per second beside reads.
    pub write_rate: u64,
}

/// What a turn came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Turn {
    /// Operations: rows read or written, ranges, transactions.
    pub ops: u64,
    /// Time they took.
    pub seconds: f64,
    /// Time until background work was done.
    pub settle_seconds: f64,
    /// Used in both.
    pub usage: Usage,
    /// Allocations of the threads that called the store.
    pub allocations: u64,
    /// In nanoseconds.
    pub latency: Latency,
    /// Operations of each full second.
    pub series: Vec<u64>,
    /// Writes beside the operations.
    pub beside: u64,
    /// Bytes of the store's files afterwards, the log's apart.
    pub data_bytes: u64,
    /// Bytes of the log's files afterwards.
    pub log_bytes: u64,
}

/// Runs `make`'s operations on so many threads until all are done; what a thread needs is made on it before the clock
/// starts.
fn run<'a, Op: FnMut() -> Result<()> + 'a>(
    threads: u64,
    until: Until,
    every: u64,
    make: impl Fn(u64) -> Op + Sync,
) -> Result<(Record, f64)> {
    let ready = std::sync::Barrier::new(threads as usize);
    let work = |thread| {
        let mut op = make(thread);
        let until = match until {
            Until::Ops(ops) => Until::Ops(ops * (thread + 1) / threads - ops * thread / threads),
            time => time,
        };
        ready.wait();
        let start = Instant::now();
        let record = repeat(start, until, every, &mut op)?;
        Ok((record, start.elapsed().as_secs_f64()))
    };
    let records = std::thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Result<(Record, f64)>>| {
            handle.join().unwrap_or_else(|_| Err("a thread of the workload panicked".into()))
        };
        handles.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let (mut all, mut longest) = (Record::new(), 0.0f64);
    for (record, seconds) in &records {
        all.merge(record);
        longest = longest.max(*seconds);
    }
    Ok((all, longest))
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<()> {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?} instead of {expected:?}").into()) }
}

/// One turn: the work, then the settling.
pub fn turn(workload: Workload, store: &dyn Store, sizes: &Sizes, round: u64) -> Result<Turn> {
    if workload.only_reads() {
        // Fills the cache with what this workload reads.
        let seconds = if sizes.direct { 1.0 } else { 0.5 };
        work(workload, store, &Sizes { seconds, ..sizes.clone() }, round ^ 0xfade)?;
    }
    if workload == Workload::Commit {
        store.sync_commits(true)?;
    }
    let before = Usage::now()?;
    let (record, seconds, beside) = work(workload, store, sizes, round)?;
    let settling = Instant::now();
    if !workload.only_reads() {
        store.settle()?;
    }
    let settle_seconds = settling.elapsed().as_secs_f64();
    let usage = Usage::now()?.since(&before);
    if workload == Workload::Commit {
        store.sync_commits(false)?;
    }
    Ok(Turn {
        ops: record.ops,
        seconds,
        settle_seconds,
        usage,
        allocations: record.allocations,
        latency: record.latency(),
        series: record.seconds(seconds),
        beside,
        ..Turn::default()
    })
}

fn work(workload: Workload, store: &dyn Store, sizes: &Sizes, round: u64) -> Result<(Record, f64, u64)> {
    let rows = sizes.rows;
    let seed = |thread: u64| (workload as u64) << 32 | round << 16 | thread;
    let time = Until::Time(Duration::from_secs_f64(sizes.seconds));
    // In memory an operation takes some hundred nanoseconds, and the clock some tens.
    let every = if sizes.direct { 1 } else { 8 };
    let get = |zipf: bool| {
        move |thread| {
            let mut worker = store.worker();
            let mut pick = if zipf { Pick::zipf(seed(thread), rows) } else { Pick::uniform(seed(thread), rows) };
            move || {
                let key = loaded(pick.next());
                expect("point read", worker.get(&key)?, Some(stamp_of_key(&key)))
            }
        }
    };
    let scan = |length: usize, backward: bool| {
        move |thread| {
            let mut worker = store.worker();
            let mut pick = Pick::uniform(seed(thread), rows - length as u64);
            // The stamps of neighbours are four apart.
            let between = (length * (length - 1) / 2 * 4) as u64;
            move || {
                let n = pick.next();
                let (first, from) = if backward { (n, n + length as u64) } else { (n, n) };
                let sum = length as u64 * stamp_of_key(&loaded(first)) + between;
                expect("range", worker.scan(&loaded(from), length, backward)?, (length, sum))
            }
        }
    };
    let (record, seconds) = match workload {
        Workload::Load => load(store, rows)?,
        Workload::Overwrite => run(1, Until::Ops(rows), 1, |thread| {
            let mut worker = store.worker();
            let (mut pick, mut values) = (Pick::uniform(seed(thread), rows), Values::new(seed(thread)));
            move || {
                let key = loaded(pick.next());
                worker.put(&key, values.next(&key))
            }
        })?,
        Workload::Get => run(sizes.threads, time, every, get(false))?,
        Workload::GetHot => run(sizes.threads, time, every, get(true))?,
        Workload::GetAbsent => run(sizes.threads, time, every, |thread| {
            let mut worker = store.worker();
            let mut pick = Pick::uniform(seed(thread), rows);
            move || expect("point read", worker.get(&absent(pick.next()))?, None)
        })?,
        Workload::Scan10 => run(sizes.threads, time, every, scan(10, false))?,
        Workload::Scan10Back => run(sizes.threads, time, every, scan(10, true))?,
        Workload::Scan100 => run(sizes.threads, time, every, scan(100, false))?,
        Workload::Scan100Back => run(sizes.threads, time, every, scan(100, true))?,
        Workload::GetWhileWriting => {
            let done = AtomicBool::new(false);
            return std::thread::scope(|scope| {
                let writer = scope.spawn(|| write_paced(&mut *store.worker(), sizes, seed(1 << 15), &done));
                let read = run(sizes.threads, time, every, get(false));
                done.store(true, Ordering::Relaxed);
                let written = writer.join().unwrap_or_else(|_| Err("the writer panicked".into()))?;
                let (record, seconds) = read?;
                Ok((record, seconds, written))
            });
        }
        Workload::Insert => {
            let (order, count) = (Shuffle::new(rows), rows / 4);
            run(1, Until::Ops(count), 1, |thread| {
                let mut worker = store.worker();
                let mut values = Values::new(seed(thread));
                let mut at = round * count;
                move || {
                    let key = inserted(order.at(at));
                    at += 1;
                    worker.put(&key, values.next(&key))
                }
            })?
        }
        Workload::Commit => run(sizes.commit_threads, time, 1, |thread| {
            let mut worker = store.worker();
            let (mut pick, mut values) = (Pick::uniform(seed(thread), rows), Values::new(seed(thread)));
            let mut rows: Vec<(Key, Vec<u8>)> = vec![Default::default(); ROWS_PER_COMMIT];
            move || {
                rows.iter_mut().for_each(|row| row.0 = loaded(pick.next()));
                // In one order, or those who lock would meet deadlocks.
                rows.sort_unstable_by_key(|row| row.0);
                for (key, value) in &mut rows {
                    value.clear();
                    value.extend_from_slice(values.next(key));
                }
                worker.commit(&rows)
            }
        })?,
        Workload::Delete => {
            let (order, count) = (Shuffle::new(rows), rows / 4);
            run(1, Until::Ops(count), 1, |_| {
                let mut worker = store.worker();
                let mut at = round * count;
                move || {
                    let key = loaded(order.at(at));
                    at += 1;
                    worker.delete(&key)
                }
            })?
        }
    };
    Ok((record, seconds, 0))
}

/// Latencies of single rows mean nothing in a load and are not taken.
fn load(store: &dyn Store, rows: u64) -> Result<(Record, f64)> {
    let mut values = Values::new(1);
    let mut record = Record::new();
    let before = crate::measure::allocations();
    let start = Instant::now();
    store.load(&mut |put| {
        for n in 0..rows {
            let key = loaded(n);
            put(&key, values.next(&key))?;
            if n % 256 == 255 {
                record.add(256, start.elapsed(), Duration::ZERO);
            }
        }
        Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    record.ops = rows;
    record.allocations = crate::measure::allocations() - before;
    Ok((record, seconds))
}

/// Overwrites rows at a fixed rate, so that readers of all stores have the same beside them. Catches up when it was held up.
fn write_paced(worker: &mut dyn Worker, sizes: &Sizes, seed: u64, done: &AtomicBool) -> Result<u64> {
    let (mut pick, mut values) = (Pick::uniform(seed, sizes.rows), Values::new(seed));
    let start = Instant::now();
    let mut written = 0;
    while !done.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * sizes.write_rate as f64) as u64;
        let batch = due.saturating_sub(written).min(1000);
        for _ in 0..batch {
            let key = loaded(pick.next());
            worker.put(&key, values.next(&key))?;
        }
        written += batch;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(written)
}
