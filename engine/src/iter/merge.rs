//! Merging of several sources into one.
//!
//! # Algorithm
//! The source standing on the emitted version ("the current one") is kept apart; the other valid sources form a binary
//! heap ordered by their versions. A step moves the current source and compares it with the top of the heap: while the
//! current source stays in front, a step costs one comparison, however many sources there are. That is the common case
//! in a tree whose last level holds 90 % of the rows. A loser tree was rejected: it costs log2(n) comparisons on every
//! step, also within such runs. Where each source stands (the first 16 bytes of its key as an integer, the key's length, the
//! sequence number) is kept beside it, so most comparisons touch no source.
//!
//! # Direction
//! Forward, every other source stands on its first version not before the current one; backward, on its last version
//! not after it. Turning round moves each other source across the current version. The turn does not assume that a
//! neighbouring version is still the neighbour: a memtable may receive versions while it is being read.
//!
//! # Duplicates
//! The same (key, sequence number) may be found in two sources only as an identical copy. It is emitted once, from the
//! source that comes first in the list.

use std::cmp::Ordering;

use super::{OrderHead, VersionIter};
use crate::base::value::{DeferredValue, LargeValue};
use crate::base::{Kind, Result, SeqNo};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A source and where it stands.
#[derive(Clone, Copy)]
struct Runner {
    head: OrderHead,
    source: usize,
}

/// No current source.
const NOBODY: Runner = Runner { head: OrderHead { head: 0, key_len: 0, seq: SeqNo::ZERO }, source: usize::MAX };

/// Merges sources, newest first in the list, into one stream in internal order.
pub struct MergeIter<I> {
    sources: Vec<I>,
    /// The valid sources but the current one; the front one (in the direction) is at index 0.
    heap: Vec<Runner>,
    current: Runner,
    direction: Direction,
}

impl<I: VersionIter> MergeIter<I> {
    /// A merge of `sources`, the newest first; not positioned.
    pub fn new(sources: Vec<I>) -> MergeIter<I> {
        MergeIter { heap: Vec::with_capacity(sources.len()), sources, current: NOBODY, direction: Direction::Forward }
    }

    /// The sources, in the order given.
    pub fn sources(&self) -> &[I] {
        &self.sources
    }

    /// Gives away all sources and keeps the memory for others.
    pub fn drain(&mut self) -> impl Iterator<Item = I> + '_ {
        self.current = NOBODY;
        self.direction = Direction::Forward;
        self.heap.clear();
        self.sources.drain(..)
    }

    /// Takes other sources: those that `fill` puts into the empty list. Not positioned; without sources if `fill` fails.
    pub fn refill(&mut self, fill: impl FnOnce(&mut Vec<I>) -> Result<()>) -> Result<()> {
        drop(self.drain());
        let filled = fill(&mut self.sources);
        if filled.is_err() {
            self.sources.clear();
        }
        filled
    }

    fn order_of_keys(&self, a: &Runner, b: &Runner) -> Ordering {
        let order = a.head.order_of_keys(&b.head);
        order.unwrap_or_else(|| self.sources[a.source].key().cmp(self.sources[b.source].key()))
    }

    /// Order of the versions two valid sources stand on, without the tie-break.
    fn order(&self, a: &Runner, b: &Runner) -> Ordering {
        self.order_of_keys(a, b).then_with(|| b.head.seq.cmp(&a.head.seq))
    }

    /// True if source `a` is emitted before source `b` in the current direction.
    #[inline(always)]
    fn before(&self, a: &Runner, b: &Runner) -> bool {
        match a.head.head == b.head.head {
            true => self.before_behind_head(a, b),
            false => (a.head.head < b.head.head) == (self.direction == Direction::Forward),
        }
    }

    fn before_behind_head(&self, a: &Runner, b: &Runner) -> bool {
        let order = match self.direction {
            Direction::Forward => self.order(a, b),
            Direction::Backward => self.order(b, a),
        };
        order.then(a.source.cmp(&b.source)) == Ordering::Less
    }

    /// Moves `runner` down from the place `at` in the heap, whose content is of no account.
    #[inline]
    fn sift_down(&mut self, mut at: usize, runner: Runner) {
        loop {
            let mut child = 2 * at + 1;
            let Some(left) = self.heap.get(child) else { break };
            let mut next = left;
            if let Some(right) = self.heap.get(child + 1).filter(|right| self.before(right, left)) {
                (child, next) = (child + 1, right);
            }
            if !self.before(next, &runner) {
                break;
            }
            self.heap[at] = *next;
            at = child;
        }
        if let Some(place) = self.heap.get_mut(at) {
            *place = runner;
        }
    }

    /// Removes the top of the heap and returns it, or nobody.
    fn pop(&mut self) -> Runner {
        let Some(last) = self.heap.pop() else { return NOBODY };
        let Some(&top) = self.heap.first() else { return last };
        self.sift_down(0, last);
        top
    }

    /// Builds the heap from all valid sources but `current` and takes the front one as the current one if there is none.
    fn rebuild(&mut self) {
        self.heap.clear();
        for source in 0..self.sources.len() {
            if source == self.current.source {
                continue;
            }
            if let Some(head) = self.sources[source].order_head() {
                self.heap.push(Runner { head, source });
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at, self.heap[at]);
        }
        if self.current.source == NOBODY.source {
            self.current = self.pop();
        }
    }

    fn position(&mut self, direction: Direction, mut seek: impl FnMut(&mut I) -> Result<()>) -> Result<()> {
        self.current = NOBODY;
        self.heap.clear();
        self.direction = direction;
        for source in &mut self.sources {
            seek(source)?;
        }
        self.rebuild();
        Ok(())
    }

    /// Moves a source. After an error the merge stands nowhere.
    #[inline]
    fn moving(&mut self, source: usize, movement: impl FnOnce(&mut I) -> Result<()>) -> Result<()> {
        let moved = movement(&mut self.sources[source]);
        if moved.is_err() {
            self.current = NOBODY;
        }
        moved
    }

    #[inline]
    fn move_source(&mut self, source: usize) -> Result<()> {
        match self.direction {
            Direction::Forward => self.moving(source, I::next),
            Direction::Backward => self.moving(source, I::prev),
        }
    }

    /// Moves every other source across the current version, for steps in `direction` from now on.
    #[cold]
    fn turn(&mut self, direction: Direction) -> Result<()> {
        self.direction = direction;
        let current = self.current.source;
        for i in 0..self.sources.len() {
            if i == current {
                continue;
            }
            if !self.sources[i].valid() {
                // Exhausted the other way: its versions all lie in the direction we now take.
                match direction {
                    Direction::Forward => self.moving(i, I::seek_first)?,
                    Direction::Backward => self.moving(i, I::seek_last)?,
                }
            }
            while self.sources[i].valid() {
                let (a, b) = (&self.sources[i], &self.sources[current]);
                let order = a.key().cmp(b.key()).then_with(|| b.seq().cmp(&a.seq()));
                let ahead = match direction {
                    Direction::Forward => order == Ordering::Greater,
                    Direction::Backward => order == Ordering::Less,
                };
                if ahead {
                    break;
                }
                self.move_source(i)?;
            }
        }
        self.rebuild();
        Ok(())
    }

    #[inline]
    fn step(&mut self, direction: Direction) -> Result<()> {
        if self.direction != direction {
            self.turn(direction)?;
        } else {
            self.skip_copies()?;
        }
        self.move_source(self.current.source)?;
        self.settle();
        Ok(())
    }

    /// The current source has moved: is it still the front one?
    #[inline]
    fn settle(&mut self) {
        let Some(head) = self.sources[self.current.source].order_head() else {
            self.current = self.pop();
            return;
        };
        self.current.head = head;
        let Some(top) = self.heap.first() else { return };
        if self.before(top, &self.current) {
            let moved = std::mem::replace(&mut self.current, *top);
            self.sift_down(0, moved);
        }
    }

    /// The source at the top of the heap has moved.
    #[inline]
    fn settle_top(&mut self, source: usize) {
        match self.sources[source].order_head() {
            Some(head) => self.sift_down(0, Runner { head, source }),
            None => {
                self.pop();
            }
        }
    }

    /// Moves sources that stand on a copy of the current version past it.
    #[inline]
    fn skip_copies(&mut self) -> Result<()> {
        while let Some(&top) = self.heap.first() {
            if top.head != self.current.head || self.order(&top, &self.current) != Ordering::Equal {
                return Ok(());
            }
            self.move_source(top.source)?;
            self.settle_top(top.source);
        }
        Ok(())
    }
}

impl<I: VersionIter> VersionIter for MergeIter<I> {
    #[inline]
    fn valid(&self) -> bool {
        self.current.source != NOBODY.source
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.sources[self.current.source].key()
    }
    #[inline]
    fn order_head(&self) -> Option<OrderHead> {
        self.valid().then_some(self.current.head)
    }
    #[inline]
    fn seq(&self) -> SeqNo {
        self.current.head.seq
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.sources[self.current.source].kind()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.sources[self.current.source].value()
    }
    #[inline]
    fn large_value(&self) -> Option<LargeValue> {
        self.sources[self.current.source].large_value()
    }
    #[inline]
    fn is_deferred(&self) -> bool {
        self.sources[self.current.source].is_deferred()
    }
    #[cold]
    fn load(&mut self) -> Result<()> {
        self.moving(self.current.source, I::load)
    }
    fn deferred(&self) -> Option<DeferredValue> {
        self.sources[self.current.source].deferred()
    }
    #[inline]
    fn value_len(&self) -> usize {
        self.sources[self.current.source].value_len()
    }
    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        self.position(Direction::Forward, |source| source.seek_ge(key))
    }
    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        self.position(Direction::Backward, |source| source.seek_lt(key))
    }
    fn seek_first(&mut self) -> Result<()> {
        self.position(Direction::Forward, |source| source.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        self.position(Direction::Backward, |source| source.seek_last())
    }
    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward)
    }
    #[inline]
    fn next_key(&mut self) -> Result<()> {
        if self.direction != Direction::Forward {
            self.turn(Direction::Forward)?;
        }
        // Where the same rows are written again and again, most keys have versions in several sources.
        while let Some(&top) = self.heap.first() {
            if top.head.head != self.current.head.head || self.order_of_keys(&top, &self.current) != Ordering::Equal {
                break;
            }
            self.moving(top.source, I::next_key)?;
            self.settle_top(top.source);
        }
        self.moving(self.current.source, I::next_key)?;
        self.settle();
        Ok(())
    }
    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward)
    }
}

#[cfg(test)]
mod tests {
    use super::super::head_of;
    use super::super::testing::{Entry, VecIter, sort_internal};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn heads_order_like_keys() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefghijklmnop", b"abcdefghijklmnopq"];
        for pair in keys.windows(2) {
            assert!(head_of(pair[0]) <= head_of(pair[1]));
        }
        assert!(head_of(b"a") < head_of(b"b") && head_of(b"ab") < head_of(b"b"));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Next,
        NextKey,
        Prev,
        SeekGe(Vec<u8>),
        SeekLt(Vec<u8>),
        First,
        Last,
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        // Few letters and some long common prefixes, so that heads tie.
        prop_oneof![
            prop::collection::vec(0u8..3, 0..3),
            prop::collection::vec(0u8..2, 0..3).prop_map(|tail| [b"0123456789abcdef".as_slice(), &tail].concat()),
        ]
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => Just(Op::Next),
            4 => Just(Op::NextKey),
            6 => Just(Op::Prev),
            1 => key().prop_map(Op::SeekGe),
            1 => key().prop_map(Op::SeekLt),
            1 => Just(Op::First),
            1 => Just(Op::Last),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn walks_like_one_sorted_vector(
            count in 1usize..6,
            data in prop::collection::vec((key(), prop::collection::vec(any::<prop::sample::Index>(), 1..3)), 0..40),
            ops in prop::collection::vec(op(), 1..80),
        ) {
            let mut all: Vec<Entry> = Vec::new();
            let mut parts: Vec<Vec<Entry>> = vec![Vec::new(); count];
            for (i, (key, places)) in data.into_iter().enumerate() {
                let entry = (key, SeqNo(i as u64), Kind::Put, vec![i as u8]);
                for place in places {
                    let part = &mut parts[place.index(count)];
                    if part.last() != Some(&entry) {
                        part.push(entry.clone());
                    }
                }
                all.push(entry);
            }
            sort_internal(&mut all);
            let mut iter = MergeIter::new(parts.into_iter().map(VecIter::new).collect());
            let mut model = VecIter::new(all);
            prop_assert!(!iter.valid());
            for op in ops {
                match op {
                    Op::Next if model.valid() => { iter.next().unwrap(); model.next().unwrap(); }
                    Op::Prev if model.valid() => { iter.prev().unwrap(); model.prev().unwrap(); }
                    Op::NextKey if model.valid() => { iter.next_key().unwrap(); model.next_key().unwrap(); }
                    Op::Next | Op::NextKey | Op::Prev => {}
                    Op::SeekGe(k) => { iter.seek_ge(&k).unwrap(); model.seek_ge(&k).unwrap(); }
                    Op::SeekLt(k) => { iter.seek_lt(&k).unwrap(); model.seek_lt(&k).unwrap(); }
                    Op::First => { iter.seek_first().unwrap(); model.seek_first().unwrap(); }
                    Op::Last => { iter.seek_last().unwrap(); model.seek_last().unwrap(); }
                }
                prop_assert_eq!(iter.valid(), model.valid());
                if model.valid() {
                    prop_assert_eq!(iter.key(), model.key());
                    prop_assert_eq!(iter.seq(), model.seq());
                    prop_assert_eq!(iter.value(), model.value());
                }
            }
        }
    }
}
