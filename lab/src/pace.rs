//! The machine's pace: how fast it does a known piece of work while nothing of ours runs.
//!
//! On a virtual machine all times may grow by half for minutes though the hypervisor takes no processor away: the clock, the caches
//! and the other half of a core belong to neighbours, too. No counter of the kernel tells that. So the same work is timed before and
//! after whatever is measured: steps that depend on each other, through memory of a megabyte, on all processors at once.
//!
//! Work is cut into pieces of a fraction of a millisecond, and the quarter that went best counts: who else runs takes whole pieces, and
//! slows only these.
//!
//! Rejected: figures divided by the pace (what waits for a device does not follow it); processor cycles, as `perf` counts them (a
//! virtual machine mostly has no counters).

use crate::stats::median;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// A measurement at less than this part of the usual pace does not count.
pub const LEAST: f64 = 0.85;

/// Places of the memory that the work goes through: a megabyte.
const PLACES: u32 = 1 << 18;
/// Steps of a piece.
const STEPS: u32 = 20_000;
/// Pieces on each processor.
const PIECES: usize = 100;

/// Pieces a second on a processor, the mean of all processors. Takes some hundredths of a second.
pub fn now() -> f64 {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let paces: Vec<f64> = thread::scope(|scope| {
        let working: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        working.into_iter().map(|thread| thread.join().expect("the work does not panic")).collect()
    });
    paces.iter().sum::<f64>() / processors as f64
}

/// Waits for the usual pace, which it learns.
#[derive(Default)]
pub struct Usual {
    seen: Vec<f64>,
    /// How long it may still wait in all.
    patience: Duration,
}

impl Usual {
    /// So many paces make a usual one.
    const ENOUGH: usize = 3;
    /// How long it waits at most before a measurement: a slow hour is measured, and marked.
    const WAIT: Duration = Duration::from_secs(15);

    /// From now on it may wait for so long, all times together.
    pub fn may_wait(&mut self, in_all: Duration) {
        self.patience = in_all;
    }

    /// The pace, once it is the usual one or was waited for long enough.
    pub fn settled(&mut self) -> f64 {
        let mut pace = now();
        let began = Instant::now();
        while !self.is_usual(pace) && began.elapsed() < Usual::WAIT.min(self.patience) {
            thread::sleep(Duration::from_millis(500));
            pace = now();
        }
        self.patience = self.patience.saturating_sub(began.elapsed());
        self.seen.push(pace);
        pace
    }

    /// A pace over the usual one, once that is known.
    pub fn share(&self, pace: f64) -> Option<f64> {
        (self.seen.len() >= Usual::ENOUGH).then(|| pace / median(&self.seen))
    }

    fn is_usual(&self, pace: f64) -> bool {
        self.share(pace).is_none_or(|share| share >= LEAST)
    }
}

/// Pieces a second in a thread.
fn work() -> f64 {
    // A full cycle through all places: an odd increment and a factor of 4n + 1.
    let next: Vec<u32> =
        (0..PLACES).map(|at| at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % PLACES).collect();
    let mut at = 0;
    let mut seconds: Vec<f64> = (0..PIECES)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..STEPS {
                at = next[at as usize];
            }
            black_box(at);
            began.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    1.0 / seconds[PIECES / 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However busy the machine is with tests, a pace is a pace: known within a factor, not zero.
    #[test]
    fn the_pace_is_much_the_same_twice() {
        let (first, second) = (now(), now());
        assert!(first > 0.0 && second > 0.0);
        assert!((0.1..10.0).contains(&(first / second)), "{first} and {second} pieces a second");
    }

    #[test]
    fn the_usual_pace_is_the_median_of_those_seen() {
        let usual = |seen: &[f64]| Usual { seen: seen.to_vec(), patience: Duration::ZERO };
        assert!(usual(&[100.0, 100.0]).is_usual(1.0), "two paces are too few to tell");
        let three = usual(&[50.0, 100.0, 110.0]);
        assert!(three.is_usual(85.0) && three.is_usual(200.0));
        assert!(!three.is_usual(84.9));
    }

    #[test]
    fn it_waits_as_long_as_it_may() {
        // A pace that no machine comes back to.
        let mut usual = Usual { seen: vec![f64::MAX; 3], patience: Duration::ZERO };
        usual.may_wait(Duration::from_millis(100));
        usual.settled();
        assert_eq!(usual.patience, Duration::ZERO, "it waited, and may not wait again");
        let began = Instant::now();
        usual.seen.truncate(2);
        usual.may_wait(Duration::from_secs(3600));
        usual.settled();
        assert!(began.elapsed() < Usual::WAIT && usual.patience > Duration::from_secs(3590), "nothing is usual yet");
    }

    #[test]
    fn the_work_goes_through_all_places() {
        let mut at = 0u32;
        let steps = 1
            + (0..PLACES)
                .take_while(|_| {
                    at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % PLACES;
                    at != 0
                })
                .count();
        assert_eq!(steps, PLACES as usize);
    }
}
