//! Write throttling: how long a write is delayed while background work lags behind, and how fast merges may go.
//!
//! # Formula
//! Four loads, each a ratio of a quantity to its limit: memory held by memtables, sealed memtables waiting to be
//! flushed, L0 sublevels, and merge debt. Up to half of the limit a load is free. Above, with `x` growing from 0 at half
//! of the limit to 1 at the limit,
//!
//! - sealed memtables, sublevels and debt each cost `BASE * x^3` nanoseconds per KB and go on growing past the limit;
//! - memory costs `BASE * x^3 / (1 - x)`: it grows without bound, and at the limit writers stop.
//!
//! The delay is the sum, so it is continuous and convex in each load; one load at its limit brings a writer to
//! `1 KB / BASE` = 10 MB/s.
//! Every load here is one that a flush or a compaction works on (sublevels and debt come from the picker's own scores),
//! so a delay above zero implies that there is work to run.
//!
//! # Priority of the work
//! The same loads set the processor share of the threads that work on them ([`nice`]): in the background while there is
//! slack, equal to users by the time that writers are delayed. A backlog is thus first answered with more work and only then
//! with delays, and no writer ever waits for a thread that it outranks.
//!
//! # Rate limit of merges
//! Rank alone does not keep a merge out of the way: users' threads wait for syncs, a merge takes the processor meanwhile, and
//! a fifth of all transactions was missing in each second with a merge, also with one in the idle class. So a merge goes only
//! as fast as users make work for it ([`merge_us`]): while there is slack it takes in [`MERGED_PER_LOGGED`] bytes for each byte
//! that they write, and sleeps otherwise. Where nobody writes, or the tree is behind, there is no limit.
//!
//! # Rejected
//! Rates that are multiplied up and down at events: they depend on history, overshoot, and need a second mechanism to
//! recover.

/// Delay for one load at its limit: nanoseconds per KB (1,024 bytes).
pub const BASE_NS_PER_KB: f64 = 100_000.0;
/// Longest delay: a second per KB.
pub const MAX_NS_PER_KB: u64 = 1_000_000_000;
/// Bytes that a merge takes in for each byte that users write. More than the merges of two levels need; where several levels make
/// more work the tree falls behind a little, and merges are limited less.
pub const MERGED_PER_LOGGED: f64 = 8.0;
/// Pressure up to which the limit holds in full: that at which the merge of level 0 is due.
const FULLY_LIMITED: f64 = 0.2;
/// Pressure from which on there is none.
const UNLIMITED: f64 = 0.3;

/// A sample of the store's loads. A limit of zero means that the load is not limited, except for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loads {
    /// Bytes held by all memtables, active, sealed and being flushed.
    pub memory_bytes: u64,
    /// Bytes they may hold.
    pub memory_limit: u64,
    /// Sealed memtables not yet flushed. Fractional, since samples may be smoothed.
    pub sealed: f64,
    /// Their limit.
    pub sealed_limit: f64,
    /// Sublevels of L0 at the deepest place.
    pub sublevels: f64,
    /// Their limit: the point at which reads suffer, well above the compaction trigger.
    pub sublevels_limit: f64,
    /// Bytes that levels hold above their targets, weighted with what moving them costs.
    pub debt_bytes: f64,
    /// Its limit.
    pub debt_limit: f64,
}

/// On what terms a write is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Wait so many nanoseconds for each KB written; zero: go on at once.
    NsPerKb(u64),
    /// Memory is full: wait until a flush has freed some.
    Stop,
}

impl Admission {
    /// The wait for a write of `bytes`, in nanoseconds; `None` for a stop.
    pub fn wait_ns(self, bytes: u64) -> Option<u64> {
        match self {
            Admission::NsPerKb(ns) => {
                let wait = u128::from(ns) * u128::from(bytes) / 1024;
                Some(u64::try_from(wait).unwrap_or(u64::MAX))
            }
            Admission::Stop => None,
        }
    }
}

/// How far a load is past half of its limit, in halves of the limit.
fn excess(load: f64, limit: f64) -> f64 {
    if limit > 0.0 { (2.0 * load / limit - 1.0).max(0.0) } else { 0.0 }
}

/// The terms for writes in this state.
pub fn admission(state: &Loads) -> Admission {
    if state.memory_bytes >= state.memory_limit {
        return Admission::Stop;
    }
    let memory = excess(state.memory_bytes as f64, state.memory_limit as f64);
    let sum = memory.powi(3) / (1.0 - memory)
        + excess(state.sealed, state.sealed_limit).powi(3)
        + excess(state.sublevels, state.sublevels_limit).powi(3)
        + excess(state.debt_bytes, state.debt_limit).powi(3);
    // The conversion saturates, also for an infinite sum.
    Admission::NsPerKb(((BASE_NS_PER_KB * sum).round() as u64).min(MAX_NS_PER_KB))
}

/// How near the memtables are to their limits; 1 is at the limit. A flush brings it down.
pub fn memory_pressure(state: &Loads) -> f64 {
    ratio(state.memory_bytes as f64, state.memory_limit as f64).max(ratio(state.sealed, state.sealed_limit))
}

/// How near the tree is to its limits. Compactions bring it down.
pub fn tree_pressure(state: &Loads) -> f64 {
    ratio(state.sublevels, state.sublevels_limit).max(ratio(state.debt_bytes, state.debt_limit))
}

fn ratio(load: f64, limit: f64) -> f64 {
    if limit > 0.0 { load / limit } else { 0.0 }
}

/// What is left of 1 on the way from one pressure to a higher one.
fn slack(pressure: f64, from: f64, to: f64) -> f64 {
    ((to - pressure) / (to - from)).clamp(0.0, 1.0)
}

/// How far a thread that works against `pressure` stands behind the threads of users: `most` up to a quarter of the
/// limit, 0 from one half on, where writes begin to be delayed.
pub fn nice(pressure: f64, most: i32) -> i32 {
    (f64::from(most) * slack(pressure, 0.25, 0.5)).round() as i32
}

/// How long a merge of `bytes` may take, in microseconds, where users write `logged` bytes a second and the tree is under
/// `pressure`. A merge that is done sooner sleeps.
pub fn merge_us(bytes: u64, logged: u64, pressure: f64) -> u64 {
    if logged == 0 {
        return 0;
    }
    (slack(pressure, FULLY_LIMITED, UNLIMITED) * bytes as f64 * 1e6 / (MERGED_PER_LOGGED * logged as f64)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lines `memory=3/10 sealed=1/4 sublevels=8/16 debt=0/100 -> 12500`; see testdata/throttle.txt.
    #[test]
    fn table() {
        let text = include_str!("../../testdata/throttle.txt");
        let mut cases = 0;
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let (loads, expected) = line.split_once("->").expect(line);
            let mut state = Loads { memory_limit: 1000, ..Loads::default() };
            for word in loads.split_whitespace() {
                let (name, ratio) = word.split_once('=').expect(line);
                let (load, limit) = ratio.split_once('/').expect(line);
                let (load, limit): (f64, f64) = (load.parse().expect(line), limit.parse().expect(line));
                match name {
                    "memory" => (state.memory_bytes, state.memory_limit) = (load as u64, limit as u64),
                    "sealed" => (state.sealed, state.sealed_limit) = (load, limit),
                    "sublevels" => (state.sublevels, state.sublevels_limit) = (load, limit),
                    "debt" => (state.debt_bytes, state.debt_limit) = (load, limit),
                    _ => panic!("{line}"),
                }
            }
            let found = match admission(&state) {
                Admission::Stop => "stop".to_owned(),
                Admission::NsPerKb(ns) => ns.to_string(),
            };
            assert_eq!(found, expected.trim(), "{line}");
            cases += 1;
        }
        assert!(cases > 10);
    }

    #[test]
    fn waits_scale_with_bytes() {
        assert_eq!(Admission::NsPerKb(1000).wait_ns(4096), Some(4000));
        assert_eq!(Admission::NsPerKb(1000).wait_ns(256), Some(250));
        assert_eq!(Admission::Stop.wait_ns(1), None);
        assert_eq!(Admission::NsPerKb(MAX_NS_PER_KB).wait_ns(u64::MAX), Some(u64::MAX));
    }

    #[test]
    fn work_is_on_a_par_with_users_before_they_are_delayed() {
        let nice_at = |sublevels: f64| {
            let state = Loads { memory_limit: 1000, sublevels, sublevels_limit: 20.0, ..Loads::default() };
            (nice(tree_pressure(&state), 10), ns(admission(&state)))
        };
        assert_eq!(nice_at(0.0), (10, 0.0));
        assert_eq!(nice_at(5.0), (10, 0.0));
        assert_eq!(nice_at(7.5), (5, 0.0));
        assert_eq!(nice_at(10.0), (0, 0.0));
        assert!(nice_at(11.0).0 == 0 && nice_at(11.0).1 > 0.0);
        // Memory is the flush's business, not the compactor's.
        let full = Loads { memory_bytes: 900, memory_limit: 1000, ..Loads::default() };
        assert_eq!((nice(memory_pressure(&full), 10), nice(tree_pressure(&full), 10)), (0, 10));
    }

    #[test]
    fn merges_go_as_fast_as_users_make_work() {
        let mib = 1 << 20;
        let work = MERGED_PER_LOGGED as u64 * mib;
        assert_eq!(merge_us(work, mib, 0.0), 1_000_000);
        assert_eq!(merge_us(work, mib, FULLY_LIMITED), 1_000_000);
        assert_eq!(merge_us(work, 4 * mib, 0.0), 250_000);
        assert!(merge_us(work, mib, 0.25).abs_diff(500_000) <= 1);
        assert_eq!((merge_us(work, mib, UNLIMITED), merge_us(work, mib, 5.0)), (0, 0));
        assert_eq!(merge_us(work, 0, 0.0), 0);
    }

    fn ns(admission: Admission) -> f64 {
        match admission {
            Admission::NsPerKb(ns) => ns as f64,
            Admission::Stop => f64::INFINITY,
        }
    }

    proptest! {
        #[test]
        fn continuous_convex_and_never_falling(which in 0usize..4, others in 0.0f64..0.95) {
            let at = |x: f64| {
                let load = |i: usize| if i == which { x } else { others };
                ns(admission(&Loads {
                    memory_bytes: (load(0) * 1e9) as u64,
                    memory_limit: 1_000_000_000,
                    sealed: load(1) * 4.0,
                    sealed_limit: 4.0,
                    sublevels: load(2) * 20.0,
                    sublevels_limit: 20.0,
                    debt_bytes: load(3) * 1e11,
                    debt_limit: 1e11,
                }))
            };
            let (step, mut last, mut slope) = (0.01, at(0.0), 0.0);
            for i in 1..95 {
                let now = at(f64::from(i) * step);
                prop_assert!(now - last >= slope - 2.0, "convex at {i}");
                slope = now - last;
                last = now;
            }
            prop_assert!(slope > 0.0);
        }
    }
}
