//! Merging of several sources into one.
//!
//! # Algorithm
//! The source standing on the emitted version ("the current one") is kept apart; the other valid sources form a binary
//! heap ordered by their versions. A step moves the current source and compares it with the top of the heap: while the
//! current source stays in front, a step costs one comparison, however many sources there are. That is the common case
//! in a tree whose last level holds 90 % of the rows. A loser tree was rejected: it costs log2(n) comparisons on every
//! step, also within such runs. The first 16 bytes of each source's key are cached as an integer, so most comparisons
//! touch no key.
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

use super::VersionIter;
use crate::base::{Kind, Result, SeqNo};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// No current source.
const NONE: usize = usize::MAX;

/// Merges sources, newest first in the list, into one stream in internal order.
pub struct MergeIter<I> {
    sources: Vec<I>,
    /// Key head of each source; right for the current one, and for the valid ones while the heap is not empty.
    heads: Vec<u128>,
    /// The valid sources but the current one; the front one (in the direction) is at index 0.
    heap: Vec<usize>,
    current: usize,
    direction: Direction,
}

impl<I: VersionIter> MergeIter<I> {
    /// A merge of `sources`, the newest first; not positioned.
    pub fn new(sources: Vec<I>) -> MergeIter<I> {
        MergeIter {
            heads: vec![0; sources.len()],
            heap: Vec::with_capacity(sources.len()),
            sources,
            current: NONE,
            direction: Direction::Forward,
        }
    }

    /// The sources, in the order given.
    pub fn sources(&self) -> &[I] {
        &self.sources
    }

    /// Lets go of all sources and keeps the memory for others.
    pub fn clear(&mut self) {
        self.current = NONE;
        self.direction = Direction::Forward;
        self.heap.clear();
        self.heads.clear();
        self.sources.clear();
    }

    /// Takes other sources: those that `fill` puts into the empty list. Not positioned; without sources if `fill` fails.
    pub fn refill(&mut self, fill: impl FnOnce(&mut Vec<I>) -> Result<()>) -> Result<()> {
        self.clear();
        let filled = fill(&mut self.sources);
        match filled {
            Ok(()) => self.heads.resize(self.sources.len(), 0),
            Err(_) => self.sources.clear(),
        }
        filled
    }

    /// Order of the versions two valid sources stand on, without the tie-break.
    #[inline]
    fn order(&self, a: usize, b: usize) -> Ordering {
        self.heads[a].cmp(&self.heads[b]).then_with(|| {
            let (a, b) = (&self.sources[a], &self.sources[b]);
            a.key().cmp(b.key()).then_with(|| b.seq().cmp(&a.seq()))
        })
    }

    /// True if source `a` is emitted before source `b` in the current direction.
    #[inline]
    fn before(&self, a: usize, b: usize) -> bool {
        let order = match self.direction {
            Direction::Forward => self.order(a, b),
            Direction::Backward => self.order(b, a),
        };
        order.then(a.cmp(&b)) == Ordering::Less
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.before(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    /// Removes the top of the heap and returns it.
    fn pop(&mut self) -> usize {
        let top = self.heap.swap_remove(0);
        self.sift_down(0);
        top
    }

    fn load_head(&mut self, source: usize) {
        self.heads[source] = self.sources[source].head();
    }

    /// Builds the heap from all valid sources but `current` and takes the front one as the current one if there is none.
    fn rebuild(&mut self) {
        self.heap.clear();
        for i in 0..self.sources.len() {
            if self.sources[i].valid() {
                self.load_head(i);
                if i != self.current {
                    self.heap.push(i);
                }
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        if self.current == NONE && !self.heap.is_empty() {
            self.current = self.pop();
        }
    }

    fn position(&mut self, direction: Direction, mut seek: impl FnMut(&mut I) -> Result<()>) -> Result<()> {
        self.current = NONE;
        self.heap.clear();
        self.direction = direction;
        for source in &mut self.sources {
            seek(source)?;
        }
        self.rebuild();
        Ok(())
    }

    fn move_source(&mut self, source: usize) -> Result<()> {
        let moved = match self.direction {
            Direction::Forward => self.sources[source].next(),
            Direction::Backward => self.sources[source].prev(),
        };
        if moved.is_err() {
            self.current = NONE;
        }
        moved
    }

    /// Moves the current source where no other one has a say.
    #[inline]
    fn move_alone(&mut self) -> Result<()> {
        let current = self.current;
        self.move_source(current)?;
        if self.sources[current].valid() {
            self.load_head(current);
        }
        Ok(())
    }

    /// Moves every other source across the current version, for steps in `direction` from now on.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        self.direction = direction;
        let current = self.current;
        for i in 0..self.sources.len() {
            if i == current {
                continue;
            }
            if !self.sources[i].valid() {
                // Exhausted the other way: its versions all lie in the direction we now take.
                let turned = match direction {
                    Direction::Forward => self.sources[i].seek_first(),
                    Direction::Backward => self.sources[i].seek_last(),
                };
                if let Err(e) = turned {
                    self.current = NONE;
                    return Err(e);
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
        if self.sources.len() == 1 {
            self.direction = direction;
            return self.move_alone();
        }
        if self.direction != direction {
            self.turn(direction)?;
        } else if self.heap.is_empty() {
            // The only valid source: nothing to compare with until the next turn or seek.
            return self.move_alone();
        } else {
            self.skip_copies()?;
        }
        let current = self.current;
        self.move_source(current)?;
        if !self.sources[current].valid() {
            if !self.heap.is_empty() {
                self.current = self.pop();
            }
            return Ok(());
        }
        self.load_head(current);
        let Some(&top) = self.heap.first() else { return Ok(()) };
        if self.before(top, current) {
            self.heap[0] = current;
            self.current = top;
            self.sift_down(0);
        }
        Ok(())
    }

    /// Moves sources that stand on a copy of the current version past it.
    #[inline]
    fn skip_copies(&mut self) -> Result<()> {
        while let Some(&top) = self.heap.first() {
            if self.heads[top] != self.heads[self.current] || self.order(top, self.current) != Ordering::Equal {
                return Ok(());
            }
            self.move_source(top)?;
            if self.sources[top].valid() {
                self.load_head(top);
                self.sift_down(0);
            } else {
                self.pop();
            }
        }
        Ok(())
    }
}

impl<I: VersionIter> VersionIter for MergeIter<I> {
    #[inline]
    fn valid(&self) -> bool {
        self.current != NONE && self.sources[self.current].valid()
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.sources[self.current].key()
    }
    #[inline]
    fn head(&self) -> u128 {
        self.heads[self.current]
    }
    #[inline]
    fn seq(&self) -> SeqNo {
        self.sources[self.current].seq()
    }
    #[inline]
    fn kind(&self) -> Kind {
        self.sources[self.current].kind()
    }
    #[inline]
    fn value(&self) -> &[u8] {
        self.sources[self.current].value()
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
                    Op::Next | Op::Prev => {}
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
