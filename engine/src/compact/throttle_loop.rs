//! Write throttling in a closed loop, without threads and time: writers that are delayed, a flush and a compactor that share a
//! disk, the real picker, the real delays. Scenarios and what comes out of them, second by second, stand in
//! testdata/throttle-*.txt; a change of policy shows there as a difference to be judged.
//!
//! ```text
//! budget=64 base=64 tables=16 writers=8     MB; sessions that write
//! 0: offer=8 disk=60                        from second 0 on: MB/s that writers want to write and that can be merged
//! 20: disk=0
//! expect: free at 30                        no delay from second 30 on
//! expect: never below 2                     MB/s admitted in any second while the disk works
//! second  admitted  delay  sublevels  debt
//! 0       8.0       0      2          0.0   averages of the second; sublevels: the most
//! ```
//!
//! Whatever the scenario: a delay above zero implies that there is work to run, and while the disk works no second
//! passes without a write.

use super::pick::{Action, CompactionJob, LAST, LEVELS, PickInput, PickOptions, Reason, Scores, Shape, pick, scores};
use super::testing::sublevels;
use super::throttle::{Admission, Loads, admission, merge_us, tree_pressure};
use crate::base::{FileNo, IndexId, SeqNo};
use crate::sst::SstMeta;

const MB: f64 = 1048576.0;
const STEPS_PER_SECOND: u32 = 100;
/// Ten steps of the simulation: a tenth of a second.
const SLICE_STEPS: u32 = 10;

#[derive(Clone, Copy)]
struct Settings {
    budget: f64,
    base: f64,
    tables: f64,
    writers: f64,
}

#[derive(Clone, Copy)]
struct Conditions {
    offer: f64,
    disk: f64,
}

/// A job on its way, with the bytes it has still to read and write.
struct Running {
    job: CompactionJob,
    left: f64,
    slice: u32,
}

struct Sim {
    settings: Settings,
    active: f64,
    sealed: Vec<f64>,
    /// Bytes being flushed, and those still to be written.
    flush: Option<(f64, f64)>,
    l0: Vec<SstMeta>,
    levels: [Vec<SstMeta>; LEVELS],
    /// The last one runs, on top of the others.
    jobs: Vec<Running>,
    next: u64,
    scores: Scores,
    /// Bytes admitted in the last second.
    written: f64,
}

fn key(at: f64) -> Vec<u8> {
    [&IndexId(1).prefix()[..], &((at * f64::from(u32::MAX)) as u32).to_be_bytes()].concat()
}

fn place(key: &[u8]) -> f64 {
    f64::from(u32::from_be_bytes(key[4..8].try_into().unwrap())) / f64::from(u32::MAX)
}

impl Sim {
    fn new(settings: Settings) -> Sim {
        let (scores, levels) = (Scores::default(), Default::default());
        let (active, written, sealed, l0, jobs) = (0.0, 0.0, vec![], vec![], vec![]);
        Sim { settings, active, sealed, flush: None, l0, levels, jobs, next: 1, scores, written }
    }

    /// Files of full size for `bytes` of data spread evenly over a range.
    fn files(&mut self, bytes: f64, from: f64, to: f64, seqs: (u64, u64)) -> Vec<SstMeta> {
        let count = (bytes / self.settings.tables).ceil().max(1.0);
        let width = (to - from) / count;
        (0..count as u64)
            .map(|n| {
                self.next += 1;
                let low = from + width * n as f64;
                let gap = if n + 1 < count as u64 { width * 1e-3 } else { 0.0 };
                SstMeta {
                    no: FileNo(self.next),
                    index: IndexId(1),
                    file_bytes: (bytes / count) as u64,
                    smallest: key(low),
                    largest: key(low + width - gap),
                    min_seq: SeqNo(seqs.0),
                    max_seq: SeqNo(seqs.1),
                    entries: 1000,
                    tombstones: 0,
                    raw_bytes: 0,
                    stamped: false,
                    superseded: crate::sst::Superseded::default(),
                    key: None,
                    shares: Default::default(),
                }
            })
            .collect()
    }

    /// Files of level 0. As in a flush they are cut when they are full, which they seldom are.
    fn add_flushed(&mut self, bytes: f64, seq: u64) {
        let files = self.files(bytes, 0.0, 1.0, (seq, seq));
        self.l0.extend(files);
    }

    fn with_input<R>(&self, ahead_of: Option<Reason>, look: impl FnOnce(&PickInput<'_>, &PickOptions) -> R) -> R {
        let sublevels = sublevels(&self.l0);
        let shape = Shape { sublevels, levels: std::array::from_fn(|level| self.levels[level].iter().collect()) };
        let running: Vec<&CompactionJob> = self.jobs.iter().map(|running| &running.job).collect();
        let input = PickInput {
            shape: &shape,
            running: &running,
            oldest_read: SeqNo::MAX,
            is_dropped: &|_| false,
            void_bytes: &|_| 0,
            is_quarantined: &|_| false,
            ahead_of,
        };
        let options = PickOptions {
            base_bytes: self.settings.base as u64,
            target_file_bytes: self.settings.tables as u64,
            max_job_bytes: self.settings.tables as u64 * 32,
            ..PickOptions::default()
        };
        look(&input, &options)
    }

    fn loads(&self) -> Loads {
        let sealed: f64 = self.sealed.iter().sum();
        Loads {
            memory_bytes: (self.active + sealed + self.flush.map_or(0.0, |(bytes, _)| bytes)) as u64,
            memory_limit: self.settings.budget as u64,
            sealed: self.sealed.len() as f64,
            sealed_limit: 8.0,
            sublevels: self.scores.sublevels as f64,
            sublevels_limit: 20.0,
            debt_bytes: self.scores.debt_bytes,
            debt_limit: self.settings.budget * 64.0,
        }
    }

    fn take_job(&mut self, ahead_of: Option<Reason>) -> bool {
        let job = self.with_input(ahead_of, pick);
        let found = job.is_some();
        self.jobs.extend(job.map(|job| {
            let left = if job.action == Action::Merge { job.bytes as f64 } else { 0.0 };
            Running { job, left, slice: 0 }
        }));
        found
    }

    fn finish(&mut self, job: &CompactionJob) {
        let mut taken = Vec::new();
        for run in std::iter::once(&mut self.l0).chain(&mut self.levels) {
            let (mine, rest) = run.drain(..).partition(|meta: &SstMeta| job.files().any(|no| no == meta.no));
            let mut mine: Vec<SstMeta> = mine;
            taken.append(&mut mine);
            *run = rest;
        }
        if job.action == Action::Merge {
            let bytes = taken.iter().map(|meta| meta.file_bytes).sum::<u64>() as f64;
            let from = taken.iter().map(|meta| place(&meta.smallest)).fold(1.0, f64::min);
            let to = taken.iter().map(|meta| place(&meta.largest)).fold(0.0, f64::max);
            let seqs = (
                taken.iter().map(|meta| meta.min_seq.0).min().unwrap(),
                taken.iter().map(|meta| meta.max_seq.0).max().unwrap(),
            );
            taken = self.files(bytes, from, to, seqs);
        }
        if job.output_level == 0 {
            self.l0.append(&mut taken);
        } else {
            let run = &mut self.levels[usize::from(job.output_level)];
            run.append(&mut taken);
            run.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        }
    }

    fn look(&mut self) {
        self.scores = self.with_input(None, scores);
    }

    /// A hundredth of a second. Returns the bytes admitted and the delay per KB.
    fn step(&mut self, now: Conditions) -> (f64, u64) {
        let part = 1.0 / f64::from(STEPS_PER_SECOND);
        let admission = admission(&self.loads());
        let offered = now.offer * MB * part;
        let (admitted, ns) = match admission {
            Admission::Stop => (0.0, u64::MAX),
            Admission::NsPerKb(0) => (offered, 0),
            Admission::NsPerKb(ns) => (offered.min(self.settings.writers * 1024.0 * 1e9 / ns as f64 * part), ns),
        };
        if ns > 0 {
            let runnable = self.flush.is_some()
                || !self.sealed.is_empty()
                || !self.jobs.is_empty()
                || self.with_input(None, pick).is_some()
                || self.active > 0.0 && self.loads().sublevels == 0.0 && self.scores.debt_bytes == 0.0;
            assert!(runnable, "a delay of {ns} and nothing to do");
        }
        self.active += admitted;
        if self.active >= self.settings.budget / 4.0 {
            self.sealed.push(std::mem::take(&mut self.active));
        }
        if self.flush.is_none() && !self.sealed.is_empty() {
            let bytes = self.sealed.drain(..).sum();
            self.flush = Some((bytes, bytes));
        }
        // A job that has run for a slice lets more urgent ones go first.
        match self.jobs.last().map(|running| (running.slice, running.job.reason)) {
            None => drop(self.take_job(None)),
            Some((SLICE_STEPS.., reason)) => {
                if let Some(running) = self.jobs.last_mut() {
                    running.slice = 0;
                }
                self.take_job(Some(reason));
            }
            Some(_) => {}
        }
        // Half of the disk for each of the two, all of it for one.
        let bytes = now.disk * MB * part;
        let share = if self.flush.is_some() && !self.jobs.is_empty() { bytes / 2.0 } else { bytes };
        if let Some((whole, left)) = &mut self.flush {
            *left -= share;
            if *left <= 0.0 {
                let whole = *whole;
                self.flush = None;
                self.next += 1;
                self.add_flushed(whole, self.next);
                self.look();
            }
        }
        // A merge sleeps as long as it is ahead of the writers.
        let may_take = merge_us(share as u64, self.written as u64, tree_pressure(&self.loads()));
        if let Some(running) = self.jobs.last_mut() {
            running.left -= share * (1e6 * part / may_take as f64).min(1.0);
            running.slice += 1;
            if running.left <= 0.0 && now.disk > 0.0 {
                let done = self.jobs.pop().unwrap();
                self.finish(&done.job);
                self.look();
            }
        }
        (admitted, ns)
    }
}

fn numbers<'t>(line: &'t str, known: &mut dyn FnMut(&'t str, f64)) {
    for word in line.split_whitespace() {
        let (name, value) = word.split_once('=').expect(line);
        known(name, value.parse().expect(line));
    }
}

/// Runs a scenario; returns its table as found.
fn run(text: &str) -> String {
    let mut settings = Settings { budget: 0.0, base: 0.0, tables: 0.0, writers: 0.0 };
    let mut changes: Vec<(u32, &str)> = Vec::new();
    let (mut free_at, mut least, mut until) = (None, 0.0, 0);
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if let Some(expected) = line.strip_prefix("expect:") {
            let words: Vec<&str> = expected.split_whitespace().collect();
            match words.as_slice() {
                ["free", "at", second] => free_at = Some(second.parse::<u32>().expect(line)),
                ["never", "below", rate] => least = rate.parse().expect(line),
                _ => panic!("{line}"),
            }
        } else if let Some((second, change)) = line.split_once(": ") {
            changes.push((second.parse().expect(line), change));
        } else if line.starts_with("budget=") {
            numbers(line, &mut |name, value| match name {
                "budget" => settings.budget = value * MB,
                "base" => settings.base = value * MB,
                "tables" => settings.tables = value * MB,
                "writers" => settings.writers = value,
                _ => panic!("{line}"),
            });
        } else if !line.starts_with("second") {
            until += 1;
        }
    }
    let mut sim = Sim::new(settings);
    let mut now = Conditions { offer: 0.0, disk: 0.0 };
    let mut table = String::new();
    for second in 0..until {
        for (_, change) in changes.iter().filter(|(at, _)| *at == second) {
            numbers(change, &mut |name, value| match name {
                "offer" => now.offer = value,
                "disk" => now.disk = value,
                _ => panic!("{change}"),
            });
        }
        let (mut admitted, mut paid, mut sublevels) = (0.0, 0.0, 0);
        for _ in 0..STEPS_PER_SECOND {
            let (bytes, ns) = sim.step(now);
            admitted += bytes / MB;
            paid += ns.min(1_000_000_000) as f64 / f64::from(STEPS_PER_SECOND);
            sublevels = sublevels.max(sim.scores.sublevels);
        }
        sim.written = admitted * MB;
        let debt = sim.scores.debt_bytes / MB;
        table += &format!("{second:<7} {admitted:<9.1} {paid:<9.0} {sublevels:<10} {debt:.0}\n");
        assert!(free_at.is_none_or(|at| second < at) || paid == 0.0, "second {second} costs {paid}\n{table}");
        if now.disk > 0.0 && now.offer > 0.0 {
            assert!(admitted > 0.0 && admitted >= least, "{admitted:.1} MB in second {second}\n{table}");
        }
    }
    let bottom: u64 = sim.levels[usize::from(LAST)].iter().map(|meta| meta.file_bytes).sum();
    assert!(sim.levels.iter().flatten().map(|meta| meta.file_bytes).sum::<u64>() >= bottom);
    table
}

fn check(text: &str) {
    let found = run(text);
    let expected: String = text
        .split_inclusive('\n')
        .skip_while(|line| !line.starts_with("second"))
        .skip(1)
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(found, expected, "found:\n{found}");
}

/// A test for each course of a load in testdata.
macro_rules! courses {
    ($($name:ident: $file:literal,)*) => { $(
        #[test]
        fn $name() {
            check(include_str!(concat!("../../testdata/throttle-", $file, ".txt")));
        }
    )* };
}

courses! {
    a_load_that_fits_costs_nothing: "steady",
    merges_of_a_light_load_take_their_time: "light",
    a_step_in_load: "step",
    a_disk_that_stands_still: "slow-disk",
    a_load_beyond_what_the_disk_can_merge: "overload",
}
