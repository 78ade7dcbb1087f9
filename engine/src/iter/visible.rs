//! User-visible rows at a read point.
//!
//! # Algorithm
//! Forward, the inner cursor stands on the visible version itself: key and value are its slices, nothing is copied. A step
//! passes all versions of the row's key, which each source does by itself. A version with sequence number zero has no older
//! ones: such steps (nearly all steps in the last level) do not even compare. Only at the read point zero, of a store
//! without commits, a transaction's own runs may each have a version with that number.
//!
//! Backward, the versions of a key come oldest first, so the newest visible one is known only when a version too new or
//! another key is met: the best one so far is copied into a buffer that is reused, and the inner cursor ends on the
//! previous key. Walking back once more onto the row instead would turn the merge round twice per row.
//!
//! Turning round is a seek. It happens once per change of direction, and is independent of what has been inserted into
//! a memtable in the meantime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Picked, VersionIter, head_of};
use crate::base::interrupt::interruptible;
use crate::base::value::LargeValue;
use crate::base::{Error, Kind, Result, SeqNo, tally};

/// How many versions may be skipped between two polls of the interrupt check.
const SKIPS_PER_POLL: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// On no row.
    Nowhere,
    /// The row is the inner cursor's version.
    Forward,
    /// The row is in the buffers; the inner cursor is before all versions of its key.
    Backward,
}

/// A bound, in memory that stays.
#[derive(Default)]
struct Bound {
    is_set: bool,
    key: Vec<u8>,
    head: u128,
}

impl Bound {
    fn set(&mut self, key: Option<&[u8]>) {
        self.is_set = key.is_some();
        self.key.clear();
        self.key.extend_from_slice(key.unwrap_or_default());
        self.head = head_of(&self.key);
    }

    fn get(&self) -> Option<&[u8]> {
        self.is_set.then_some(self.key.as_slice())
    }
}

/// Rows visible at a read point, within bounds.
///
/// `key`, `value` and `seq` may be called only while `valid()`; slices live until the next movement. After an `Err` the
/// position is undefined until the next seek.
pub struct VisibleIter<I> {
    inner: I,
    read: SeqNo,
    lower: Bound,
    upper: Bound,
    state: State,
    /// Backward: the key of the row.
    key: Vec<u8>,
    /// Backward: value and number of the row.
    picked: Picked,
    seq: SeqNo,
    /// For the bound of `seek_gt` and `seek_le`.
    scratch: Vec<u8>,
    skipped: u64,
    poll_at: u64,
    skips_max: u64,
    interrupt: Option<Arc<AtomicBool>>,
}

impl<I: VersionIter> VisibleIter<I> {
    /// Rows of `inner` with keys in `[lower, upper)` as a reader at `read` sees them; not positioned.
    pub fn new(inner: I, read: SeqNo, lower: Option<&[u8]>, upper: Option<&[u8]>) -> VisibleIter<I> {
        let mut iter = VisibleIter {
            inner,
            read,
            lower: Bound::default(),
            upper: Bound::default(),
            state: State::Nowhere,
            key: Vec::new(),
            picked: Picked::default(),
            seq: SeqNo::ZERO,
            scratch: Vec::new(),
            skipped: 0,
            poll_at: SKIPS_PER_POLL,
            skips_max: u64::MAX,
            interrupt: None,
        };
        iter.reopen(read, lower, upper);
        iter
    }

    /// As if made anew, in the memory it has; the caller may change the source that is returned.
    pub fn reopen(&mut self, read: SeqNo, lower: Option<&[u8]>, upper: Option<&[u8]>) -> &mut I {
        self.lower.set(lower);
        self.upper.set(upper);
        self.skipped = 0;
        self.poll_at = SKIPS_PER_POLL;
        self.skips_max = u64::MAX;
        self.read_anew(read)
    }

    /// To another read point, with the same bounds; not positioned. The caller may change the source that is returned.
    pub fn read_anew(&mut self, read: SeqNo) -> &mut I {
        self.read = read;
        self.state = State::Nowhere;
        self.picked.release();
        &mut self.inner
    }

    /// The lower bound, inclusive.
    pub fn lower(&self) -> Option<&[u8]> {
        self.lower.get()
    }

    /// The upper bound, exclusive.
    pub fn upper(&self) -> Option<&[u8]> {
        self.upper.get()
    }

    /// Looks at `interrupt` each 1,000 skipped versions; movements end with [`Error::Interrupted`] once it is set.
    pub fn set_interrupt(&mut self, interrupt: &Arc<AtomicBool>) {
        if self.interrupt.as_ref().is_none_or(|known| !Arc::ptr_eq(known, interrupt)) {
            self.interrupt = Some(interrupt.clone());
        }
    }

    /// Movements end with [`Error::Interrupted`] once so many versions have been skipped since the opening.
    pub fn set_skips_max(&mut self, most: u64) {
        self.skips_max = most;
        self.poll_at = self.poll_at.min(most);
    }

    /// Tombstones and too new versions, going backward also superseded ones, that were stepped over since creation.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The read point.
    pub fn read_point(&self) -> SeqNo {
        self.read
    }

    /// The source of versions.
    pub fn inner(&self) -> &I {
        &self.inner
    }

    /// True while on a row.
    #[inline]
    pub fn valid(&self) -> bool {
        self.state != State::Nowhere
    }
    /// User key of the row.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.state == State::Forward { self.inner.key() } else { &self.key }
    }
    /// Value of the row.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.state == State::Forward { self.inner.value() } else { self.picked.value() }
    }
    /// Value of the row by itself, if it is a large one which can be kept.
    #[inline]
    pub fn large_value(&self) -> Option<LargeValue> {
        if self.state == State::Forward { self.inner.large_value() } else { self.picked.large_value() }
    }
    /// Sequence number of the row's version.
    #[inline]
    pub fn seq(&self) -> SeqNo {
        if self.state == State::Forward { self.inner.seq() } else { self.seq }
    }

    /// To the first row.
    pub fn seek_first(&mut self) -> Result<()> {
        self.state = State::Nowhere;
        match self.lower.get() {
            Some(lower) => self.inner.seek_ge(lower)?,
            None => self.inner.seek_first()?,
        }
        self.find_forward()
    }

    /// To the last row.
    pub fn seek_last(&mut self) -> Result<()> {
        self.state = State::Nowhere;
        match self.upper.get() {
            Some(upper) => self.inner.seek_lt(upper)?,
            None => self.inner.seek_last()?,
        }
        self.find_backward()
    }

    /// To the first row with a key `>= key`.
    pub fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        if self.lower.get().is_some_and(|lower| key < lower) {
            return self.seek_first();
        }
        self.state = State::Nowhere;
        if self.upper.get().is_some_and(|upper| key >= upper) {
            return Ok(());
        }
        self.inner.seek_ge(key)?;
        self.find_forward()
    }

    /// To the first row with a key `> key`.
    pub fn seek_gt(&mut self, key: &[u8]) -> Result<()> {
        let successor = self.successor(key);
        let result = self.seek_ge(&successor);
        self.scratch = successor;
        result
    }

    /// To the last row with a key `< key`.
    pub fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        if self.upper.get().is_some_and(|upper| key > upper) {
            return self.seek_last();
        }
        self.state = State::Nowhere;
        if self.lower.get().is_some_and(|lower| key <= lower) {
            return Ok(());
        }
        self.inner.seek_lt(key)?;
        self.find_backward()
    }

    /// To the last row with a key `<= key`.
    pub fn seek_le(&mut self, key: &[u8]) -> Result<()> {
        let successor = self.successor(key);
        let result = self.seek_lt(&successor);
        self.scratch = successor;
        result
    }

    /// To the next row; past the last one `valid()` turns false. Requires `valid()`.
    #[allow(clippy::should_implement_trait)] // A cursor that fails and lends its rows is no `Iterator`.
    pub fn next(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Nowhere) {
            State::Nowhere => Ok(()),
            State::Forward => {
                // A version of number zero has no older ones.
                if self.inner.seq() == SeqNo::ZERO && self.read != SeqNo::ZERO {
                    self.inner.next()?;
                } else {
                    self.inner.next_key()?;
                }
                self.find_forward()
            }
            State::Backward => {
                self.inner.seek_ge(&self.key)?;
                if self.inner.valid() && self.inner.key() == self.key {
                    self.inner.next_key()?;
                }
                self.find_forward()
            }
        }
    }

    /// To the previous row; before the first one `valid()` turns false. Requires `valid()`.
    pub fn prev(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Nowhere) {
            State::Nowhere => Ok(()),
            State::Forward => {
                self.save_key();
                self.inner.seek_lt(&self.key)?;
                self.find_backward()
            }
            State::Backward => self.find_backward(),
        }
    }

    /// The least key above `key`, in the scratch buffer, which the caller puts back.
    fn successor(&mut self, key: &[u8]) -> Vec<u8> {
        let mut successor = std::mem::take(&mut self.scratch);
        successor.clear();
        successor.extend_from_slice(key);
        successor.push(0);
        successor
    }

    fn save_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.inner.key());
    }

    #[inline]
    fn skip(&mut self) -> Result<()> {
        self.skipped += 1;
        tally::note_passed();
        if self.skipped < self.poll_at {
            return Ok(());
        }
        self.poll_at = (self.skipped + SKIPS_PER_POLL).min(self.skips_max);
        match &self.interrupt {
            _ if self.skipped >= self.skips_max => Err(Error::Interrupted),
            Some(interrupt) if interrupt.load(Ordering::Relaxed) => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }

    /// Reads the value of the row, which is deferred.
    #[cold]
    fn load(&mut self, state: State) -> Result<()> {
        let (inner, picked) = (&mut self.inner, &mut self.picked);
        if state == State::Forward {
            picked.release_large();
        }
        let mut load = || if state == State::Forward { inner.load() } else { picked.load() };
        match &self.interrupt {
            Some(interrupt) => interruptible(interrupt, load),
            None => load(),
        }
    }

    /// From the inner cursor's position to the next visible row.
    fn find_forward(&mut self) -> Result<()> {
        while let Some(order) = self.inner.order_head() {
            if order.head >= self.upper.head && self.upper.get().is_some_and(|upper| self.inner.key() >= upper) {
                return Ok(());
            }
            if order.seq > self.read {
                self.skip()?;
                self.inner.next()?;
                continue;
            }
            if self.inner.kind() == Kind::Put {
                if self.inner.is_deferred() {
                    self.load(State::Forward)?;
                }
                self.state = State::Forward;
                return Ok(());
            }
            self.skip()?;
            self.inner.next_key()?;
        }
        Ok(())
    }

    /// From the inner cursor's position (the oldest version of a key, or nowhere) to the visible row of that key or of
    /// the nearest one before it.
    fn find_backward(&mut self) -> Result<()> {
        self.picked.release_large();
        while self.inner.valid() {
            if self.lower.get().is_some_and(|lower| self.inner.key() < lower) {
                return Ok(());
            }
            self.save_key();
            let mut found = false;
            loop {
                if self.inner.seq() > self.read {
                    self.skip()?;
                } else {
                    if found {
                        // The one taken so far is superseded.
                        self.skip()?;
                    }
                    found = self.inner.kind() == Kind::Put;
                    if found {
                        self.seq = self.inner.seq();
                        self.picked.pick(&self.inner);
                    } else {
                        self.skip()?;
                    }
                }
                self.inner.prev()?;
                if !self.inner.valid() || self.inner.key() != self.key {
                    break;
                }
            }
            if found {
                if self.picked.deferred().is_some() {
                    self.load(State::Backward)?;
                }
                self.state = State::Backward;
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::testing::{Entry, VecIter};
    use super::super::{MergeIter, VisibleIter};
    use super::*;
    use proptest::prelude::*;

    fn entry(key: &[u8], seq: u64, value: &str) -> Entry {
        let kind = if value.is_empty() { Kind::Delete } else { Kind::Put };
        (key.to_vec(), SeqNo(seq), kind, value.as_bytes().to_vec())
    }

    #[test]
    fn newest_visible_version_both_ways_and_skips_are_counted() {
        let data = vec![
            entry(b"a", 9, "a9"),
            entry(b"a", 5, "a5"),
            entry(b"a", 2, "a2"),
            entry(b"b", 4, ""),
            entry(b"b", 1, "b1"),
            entry(b"c", 7, "c7"),
            entry(b"d", 0, "d0"),
        ];
        let mut iter = VisibleIter::new(VecIter::new(data), SeqNo(6), None, None);
        iter.seek_first().unwrap();
        assert_eq!((iter.key(), iter.value(), iter.seq()), (&b"a"[..], &b"a5"[..], SeqNo(5)));
        assert_eq!(iter.skipped(), 1);
        iter.next().unwrap();
        // The tombstone of b and the version of c that is too new; a2 and b1 are passed with their keys.
        assert_eq!((iter.key(), iter.skipped()), (&b"d"[..], 3));
        iter.next().unwrap();
        assert!(!iter.valid());
        iter.seek_last().unwrap();
        assert_eq!(iter.value(), b"d0");
        iter.prev().unwrap();
        assert_eq!((iter.value(), iter.seq()), (&b"a5"[..], SeqNo(5)));
        iter.prev().unwrap();
        assert!(!iter.valid());
    }

    #[test]
    fn interrupt_is_polled_each_thousand_skips() {
        for backward in [false, true] {
            let data = (0..2500u32).map(|i| entry(&i.to_be_bytes(), 1, "")).collect();
            let mut iter = VisibleIter::new(VecIter::new(data), SeqNo(6), None, None);
            iter.set_interrupt(&Arc::new(AtomicBool::new(true)));
            let result = if backward { iter.seek_last() } else { iter.seek_first() };
            assert!(matches!(result, Err(Error::Interrupted)));
            assert_eq!(iter.skipped(), 1000);
            assert!(!iter.valid());
        }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0u8..3, 0..3)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(800))]
        #[test]
        fn walks_like_the_model(
            count in 1usize..6,
            data in prop::collection::vec((key(), any::<bool>(), any::<prop::sample::Index>()), 0..60),
            read in 0u64..70,
            lower in prop::option::of(key()),
            upper in prop::option::of(key()),
            ops in prop::collection::vec((0u8..16, key()), 1..80),
        ) {
            let mut parts: Vec<Vec<Entry>> = vec![Vec::new(); count];
            let mut model: BTreeMap<Vec<u8>, Option<u64>> = BTreeMap::new();
            for (seq, (key, put, place)) in data.into_iter().enumerate() {
                let seq = seq as u64;
                parts[place.index(count)].push(entry(&key, seq, &if put { seq.to_string() } else { String::new() }));
                if seq <= read {
                    model.insert(key, put.then_some(seq));
                }
            }
            let rows: Vec<(Vec<u8>, u64)> = model
                .into_iter()
                .filter_map(|(key, seq)| Some((key, seq?)))
                .filter(|(key, _)| lower.as_ref().is_none_or(|l| key >= l) && upper.as_ref().is_none_or(|u| key < u))
                .collect();
            let merged = MergeIter::new(parts.into_iter().map(VecIter::new).collect());
            let mut iter = VisibleIter::new(merged, SeqNo(read), lower.as_deref(), upper.as_deref());
            let mut at: Option<usize> = None;
            for (op, key) in ops {
                let ge = rows.partition_point(|r| r.0 < key);
                let gt = rows.partition_point(|r| r.0 <= key);
                let (result, to) = match op {
                    0 => (iter.seek_first(), 0),
                    1 => (iter.seek_last(), rows.len().wrapping_sub(1)),
                    2 => (iter.seek_ge(&key), ge),
                    3 => (iter.seek_gt(&key), gt),
                    4 => (iter.seek_le(&key), gt.wrapping_sub(1)),
                    5 => (iter.seek_lt(&key), ge.wrapping_sub(1)),
                    6..=10 if at.is_some() => (iter.next(), at.unwrap() + 1),
                    11.. if at.is_some() => (iter.prev(), at.unwrap().wrapping_sub(1)),
                    _ => continue,
                };
                result.unwrap();
                at = (to < rows.len()).then_some(to);
                prop_assert_eq!(iter.valid(), at.is_some());
                if let Some(at) = at {
                    let (key, seq) = &rows[at];
                    prop_assert_eq!(iter.key(), key.as_slice());
                    prop_assert_eq!(iter.seq(), SeqNo(*seq));
                    let value = seq.to_string();
                    prop_assert_eq!(iter.value(), value.as_bytes());
                }
            }
        }
    }
}
