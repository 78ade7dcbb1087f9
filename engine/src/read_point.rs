//! Registry of live read points: which sequence numbers readers still look at.
//!
//! A reader registers before it reads and drops the guard afterwards; merges ask for all live points and keep, for
//! each, the newest version at or below it. Registering is one compare-and-swap in a slot that the thread most likely
//! has for itself, and leaving is one store; there is no common mutex. When all slots a thread tries are taken, an
//! overflow list under a mutex takes over.
//!
//! # Why no read point is missed
//!
//! A merge first loads the visible number `v` and then scans the slots ([`ReadPoints::live`]).
//! It keeps every version newer than `v`, the newest one at or below `v`, and what the points it saw need. So a reader
//! at `s` that it did *not* see is safe if `s >= v`. Readers ensure that:
//!
//! 1. load `s` from the visible number, 2. store `s` in the slot, 3. sequentially consistent fence, 4. load the visible
//!    number again; if it is no longer `s`, take the new one and go on at 2.
//!
//! The merge: A. load `v`, B. sequentially consistent fence, C. load the slot. Let `s` be the number that passed step 4.
//! If C does not see the store of step 2, the fence B precedes the fence 3 in the single order of such fences; then the
//! load of step 4 cannot return a value older than the one A returned, so `s >= v`. If C sees an earlier turn's number
//! from the same slot, it has not seen the last store either and the same holds; the extra number only keeps more.
//!
//! If C does see `s`, all is well, whatever `v` is. When C sees a slot that was left, the reader is done: leaving stores
//! with release and C loads with acquire, so the reader's accesses happen before what the merge does with its finding.
//!
//! In the overflow list both sides hold the mutex: a reader that locks after the merge loads a number `>= v`.
//!
//! The repeated load costs a turn only if a commit was published within a few nanoseconds. Rejected: announcing a
//! "pending" slot first and filling in the number later, which saves the repetition but makes merges wait for a reader
//! that lost its processor in between; a mutex or a shared reference count (a cache line fought over by each statement).
//!
//! Ages come from a coarse clock that the engine's background thread moves (`tick`): reading a real clock would double
//! the cost of a statement's start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use parking_lot::Mutex;

use crate::base::SeqNo;

const SHARDS: usize = 64;
const SLOTS: usize = 16;
/// Shards a thread tries before it uses the overflow list.
const SHARDS_TRIED: usize = SHARDS;
/// No sequence number: these have 56 bits.
const FREE: u64 = u64::MAX;

/// One cache line per slot: neighbours belong to other threads as soon as threads share a shard.
#[repr(align(64))]
struct Slot {
    seq: AtomicU64,
    since_us: AtomicU64,
}

/// A group of slots with a reference count of its own, so that guards need not touch a common one.
#[repr(align(128))]
struct Shard {
    slots: [Slot; SLOTS],
}

#[derive(Default)]
struct Overflow {
    points: Mutex<OverflowPoints>,
}

#[derive(Default)]
struct OverflowPoints {
    next: u64,
    /// Sequence number and begin by ticket.
    live: BTreeMap<u64, (u64, u64)>,
}

/// The registry. See the module's description.
pub struct ReadPoints {
    shards: Vec<Arc<Shard>>,
    overflow: Arc<Overflow>,
    now_us: AtomicU64,
}

enum Home {
    Slot(Arc<Shard>, usize),
    Overflow(Arc<Overflow>, u64),
}

/// A registered read point: as long as it lives, merges keep what it sees.
pub struct ReadPoint {
    seq: SeqNo,
    home: Home,
}

impl ReadPoint {
    /// The sequence number to read at.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        self.seq
    }
}

impl Drop for ReadPoint {
    #[inline]
    fn drop(&mut self) {
        match &self.home {
            Home::Slot(shard, slot) => shard.slots[*slot].seq.store(FREE, Ordering::Release),
            Home::Overflow(overflow, ticket) => {
                overflow.points.lock().live.remove(ticket);
            }
        }
    }
}

/// The shard a thread tries first.
fn home_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HOME: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    HOME.with(|home| *home)
}

impl Default for ReadPoints {
    fn default() -> Self {
        ReadPoints::new()
    }
}

impl ReadPoints {
    /// An empty registry.
    pub fn new() -> ReadPoints {
        let slot = || Slot { seq: AtomicU64::new(FREE), since_us: AtomicU64::new(0) };
        let shard = || Arc::new(Shard { slots: std::array::from_fn(|_| slot()) });
        ReadPoints {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            overflow: Arc::new(Overflow::default()),
            now_us: AtomicU64::new(0),
        }
    }

    /// Moves the coarse clock by which ages are measured, in microseconds of any fixed origin.
    pub fn tick(&self, now_us: u64) {
        self.now_us.store(now_us, Ordering::Relaxed);
    }

    /// Registers the number that `visible` returns as a read point. `visible` must load the engine's visible sequence
    /// number (with acquire, and never going back), or a number at or above it; it may be called several times and must
    /// be short.
    #[inline]
    pub fn register(&self, visible: impl Fn() -> SeqNo) -> ReadPoint {
        let mut seq = visible();
        let home = home_shard();
        for n in 0..SHARDS_TRIED {
            let shard = &self.shards[(home + n) % SHARDS];
            for (number, slot) in shard.slots.iter().enumerate() {
                // Looking first keeps taken slots' lines shared.
                if slot.seq.load(Ordering::Relaxed) != FREE
                    || slot.seq.compare_exchange(FREE, seq.0, Ordering::Relaxed, Ordering::Relaxed).is_err()
                {
                    continue;
                }
                slot.since_us.store(self.now_us.load(Ordering::Relaxed), Ordering::Relaxed);
                loop {
                    fence(Ordering::SeqCst);
                    let again = visible();
                    if again == seq {
                        return ReadPoint { seq, home: Home::Slot(shard.clone(), number) };
                    }
                    seq = again;
                    slot.seq.store(seq.0, Ordering::Relaxed);
                }
            }
        }
        self.register_overflow(visible)
    }

    #[cold]
    fn register_overflow(&self, visible: impl Fn() -> SeqNo) -> ReadPoint {
        let mut points = self.overflow.points.lock();
        let seq = visible();
        let ticket = points.next;
        points.next += 1;
        points.live.insert(ticket, (seq.0, self.now_us.load(Ordering::Relaxed)));
        ReadPoint { seq, home: Home::Overflow(self.overflow.clone(), ticket) }
    }

    /// The visible number and all live read points, as a merge needs them: whatever is registered and not in the list
    /// is at or above the number returned. The list is ascending and without duplicates.
    #[cfg(test)]
    pub fn survey(&self, visible: impl FnOnce() -> SeqNo) -> (SeqNo, Vec<SeqNo>) {
        let visible = visible();
        (visible, self.live())
    }

    /// All live read points, ascending, without duplicates. A caller that drops versions must have loaded the visible
    /// number *before* this call.
    pub fn live(&self) -> Vec<SeqNo> {
        let mut live: Vec<SeqNo> = self.scan().into_iter().map(|(seq, _)| SeqNo(seq)).collect();
        live.sort_unstable();
        live.dedup();
        live
    }

    /// The lowest live read point, and for how many microseconds of the coarse clock it has lived (of several with the
    /// same number, the longest).
    pub fn oldest(&self) -> Option<(SeqNo, u64)> {
        let now = self.now_us.load(Ordering::Relaxed);
        let (seq, since) = self.scan().into_iter().min()?;
        Some((SeqNo(seq), now.saturating_sub(since)))
    }

    /// Number and begin of each live point.
    fn scan(&self) -> Vec<(u64, u64)> {
        fence(Ordering::SeqCst);
        let mut found = Vec::new();
        for slot in self.shards.iter().flat_map(|shard| &shard.slots) {
            let seq = slot.seq.load(Ordering::Acquire);
            if seq != FREE {
                found.push((seq, slot.since_us.load(Ordering::Relaxed)));
            }
        }
        found.extend(self.overflow.points.lock().live.values());
        found
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn points_live_as_long_as_their_guards() {
        let points = ReadPoints::new();
        assert_eq!(points.oldest(), None);
        points.tick(100);
        let a = points.register(|| SeqNo(7));
        points.tick(150);
        let b = points.register(|| SeqNo(5));
        let c = points.register(|| SeqNo(7));
        points.tick(400);
        assert_eq!((a.seq(), b.seq(), c.seq()), (SeqNo(7), SeqNo(5), SeqNo(7)));
        assert_eq!(points.live(), [SeqNo(5), SeqNo(7)]);
        assert_eq!(points.oldest(), Some((SeqNo(5), 250)));
        drop(b);
        assert_eq!(points.oldest(), Some((SeqNo(7), 300)));
        drop(a);
        assert_eq!(points.live(), [SeqNo(7)]);
        drop(c);
        assert_eq!(points.live(), []);
    }

    #[test]
    fn more_points_than_slots_overflow_and_return() {
        let points = ReadPoints::new();
        for _ in 0..2 {
            let mut guards: Vec<_> = (0..1500).map(|n| points.register(|| SeqNo(n))).collect();
            assert_eq!(points.live(), (0..1500).map(SeqNo).collect::<Vec<_>>());
            assert_eq!(points.overflow.points.lock().live.len(), 1500 - SHARDS * SLOTS);
            guards.drain(..1400);
            assert_eq!(points.live(), (1400..1500).map(SeqNo).collect::<Vec<_>>());
        }
        assert_eq!(points.live(), []);
    }

    #[test]
    fn a_number_that_moves_during_registration_is_read_again_while_announced() {
        let points = ReadPoints::new();
        let calls = Cell::new(0);
        // A merge that begins right after the reader's first load sees number 9; the reader must not end up at 3.
        let guard = points.register(|| {
            calls.set(calls.get() + 1);
            if calls.get() == 1 {
                return SeqNo(3);
            }
            let announced = points.live();
            assert_eq!(announced, [if calls.get() == 2 { SeqNo(3) } else { SeqNo(9) }]);
            SeqNo(9)
        });
        assert_eq!(calls.get(), 3);
        assert_eq!(guard.seq(), SeqNo(9));
        assert_eq!(points.live(), [SeqNo(9)]);
    }

    /// A store of one key: bit `n % 64` of `kept` says whether version `n` is kept. Readers check that the version
    /// they are entitled to is there; the collector drops all others.
    #[test]
    fn a_collector_never_drops_what_a_reader_sees() {
        const COMMITS: u64 = 60_000;
        const RING: usize = 1 << 17;
        let points = ReadPoints::new();
        let visible = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        let dropped: Vec<AtomicBool> = (0..RING).map(|_| AtomicBool::new(false)).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=COMMITS {
                    visible.store(n, Ordering::Release);
                    if n % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
                done.store(true, Ordering::Release);
            });
            scope.spawn(|| {
                let mut from = 0;
                // Once more after the last commit: there is always something to drop.
                let mut more = true;
                while more {
                    more = !done.load(Ordering::Acquire);
                    let (now, live) = points.survey(|| SeqNo(visible.load(Ordering::Acquire)));
                    for n in from..now.0 {
                        if live.binary_search(&SeqNo(n)).is_err() {
                            dropped[n as usize].store(true, Ordering::Release);
                        }
                    }
                    // Versions passed over for a live point are merely kept for good.
                    from = now.0;
                }
            });
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut held = Vec::new();
                    while !done.load(Ordering::Acquire) {
                        let point = points.register(|| SeqNo(visible.load(Ordering::Acquire)));
                        assert!(!dropped[point.seq().0 as usize].load(Ordering::Acquire));
                        held.push(point);
                        if held.len() == 7 {
                            std::thread::yield_now();
                            for point in held.drain(..) {
                                assert!(!dropped[point.seq().0 as usize].load(Ordering::Acquire));
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(points.live(), []);
        assert!(dropped.iter().filter(|d| d.load(Ordering::Relaxed)).count() > 0);
    }
}
