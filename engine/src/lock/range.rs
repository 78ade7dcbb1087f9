//! Range locks of one index: the rules, without threads.
//!
//! Three things are known of an index:
//! - *range locks*: half-open key intervals that owners have scanned. They exclude nobody but those who want to insert a new
//!   key into them; range locks of different owners overlap freely. Bytes are locked, not rows: nothing is inherited when rows
//!   come, go or move to other blocks.
//! - *insert intentions*: keys that an owner has brought into the index and that nobody else can read before it ends.
//! - *waiters*: owners whose key lies in a range lock of somebody else, in the order of their requests.
//!
//! Rules
//! - An insert intention is granted if no other owner has a range lock on its key. Intentions do not exclude each other (point
//!   locks do, where keys are unique); a waiter is granted as soon as nobody else locks its key, whatever others wait for.
//! - A range lock is granted at once up to the first intention of somebody else. The scanner waits for that owner, then goes
//!   on: it must see the key or know that it was taken back.
//! - A scan read the index at some *version*. The version grows whenever intentions go away, which is when their keys may have
//!   become visible. A range lock that is new since the scan's version is `Stale`: something may stand in it that the scan has
//!   not seen. It is registered all the same, so the second look at the same interval is the last.
//!
//! An owner that brings in more than [`KEYS_MAX`] keys has one *stretch* instead, from the least to the greatest of them.
//! Whoever scans into it waits for the owner. What the owner may insert does not depend on its stretch.
//!
//! Range locks of one owner that touch are one; a scan holds one interval however many rows it reads.
//!
//! Invariants: intervals of an owner are disjoint and do not touch; no intention of one owner lies in a range lock of another
//! unless it came first; a waiter's key is locked by somebody else.
//!
//! Rejected: an interval tree over all owners. Few owners lock ranges of one index at a time, and each needs its own set to
//! merge.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use super::queue::Id;
use crate::base::IndexId;

/// Insert intentions of one owner that are kept singly.
const KEYS_MAX: usize = 16 << 10;
/// Begins the stand-in keys: a number that no index has.
const NO_INDEX: u32 = u32::MAX;

/// What an attempt to lock a range brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RangeGrant {
    /// What the scan has read is all there is and will be.
    Clean,
    /// Locked, but the scan has to read the interval again at the newest state.
    Stale,
    /// Locked up to this key, which another owner inserts: to be waited for. The key may be a stand-in for a stretch.
    Inserting(Vec<u8>),
}

/// The rest of an interval: its upper end, and the version at which it was last widened.
#[derive(Default)]
struct Span {
    end: Vec<u8>,
    version: u64,
}

/// Disjoint intervals that do not touch, by their lower end.
#[derive(Default)]
struct Intervals(BTreeMap<Vec<u8>, Span>);

impl Intervals {
    /// The last interval that begins at or before `key`.
    fn at_or_before(&self, key: &[u8]) -> Option<(&Vec<u8>, &Span)> {
        self.0.range::<[u8], _>((Unbounded, Included(key))).next_back()
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.at_or_before(key).is_some_and(|(_, span)| key < span.end.as_slice())
    }

    /// The version of the interval that holds all of `[from, to)`.
    fn version_of(&self, from: &[u8], to: &[u8]) -> Option<u64> {
        self.at_or_before(from).filter(|(_, span)| to <= span.end.as_slice()).map(|(_, span)| span.version)
    }

    fn add(&mut self, from: &[u8], to: &[u8], version: u64) {
        if from >= to {
            return;
        }
        // A scan goes on where it was.
        if let Some((start, span)) = self.0.range_mut::<[u8], _>((Unbounded, Included(to))).next_back() {
            if start.as_slice() <= from && from <= span.end.as_slice() {
                if span.end.as_slice() < to {
                    to.clone_into(&mut span.end);
                }
                span.version = version;
                return;
            }
        }
        let mut end = to.to_vec();
        let before =
            self.at_or_before(from).filter(|(_, span)| from <= span.end.as_slice()).map(|(start, _)| start.clone());
        let start = before.unwrap_or_else(|| from.to_vec());
        loop {
            let touching = (Excluded(start.as_slice()), Included(end.as_slice()));
            let Some((next, _)) = self.0.range::<[u8], _>(touching).next() else { break };
            let next = next.clone();
            end = end.max(self.0.remove(&next).map_or_else(Vec::new, |span| span.end));
        }
        let span = self.0.entry(start).or_default();
        span.end = std::mem::take(&mut span.end).max(end);
        span.version = version;
    }
}

/// A closed interval of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stretch {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Stretch {
    pub fn at(key: &[u8]) -> Stretch {
        Stretch { from: key.to_vec(), to: key.to_vec() }
    }

    pub fn widen(&mut self, key: &[u8]) {
        if key < self.from.as_slice() {
            key.clone_into(&mut self.from);
        } else if key > self.to.as_slice() {
            key.clone_into(&mut self.to);
        }
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && key <= self.to.as_slice()
    }

    fn meets(&self, from: &[u8], to: &[u8]) -> bool {
        self.from.as_slice() < to && from <= self.to.as_slice()
    }
}

/// The key whose lock whoever meets a stretch of `id` in `index` waits for. The owner before the index: between two
/// stand-ins of an owner there are none of others.
fn stand_in(index: IndexId, id: Id) -> Vec<u8> {
    [&NO_INDEX.to_be_bytes()[..], &id.to_be_bytes(), &index.prefix()].concat()
}

/// The index that a stand-in key is about; `None` of an ordinary key.
pub(super) fn stands_for(key: &[u8]) -> Option<IndexId> {
    let about = key.strip_prefix(&NO_INDEX.to_be_bytes()[..])?;
    Some(IndexId::of(about.get(size_of::<Id>()..).filter(|index| index.len() == IndexId::LEN)?))
}

/// The first intention in `[from, to)` of another than `id`: its key, or where a stretch begins, and whose that is.
fn first_of_others<'a>(
    inserting: &'a BTreeMap<Arc<[u8]>, Vec<Id>>,
    stretches: &'a BTreeMap<Id, Stretch>,
    id: Id,
    from: &'a [u8],
    to: &[u8],
) -> Option<(&'a [u8], Option<Id>)> {
    let foreign = inserting
        .range::<[u8], _>((Included(from), Excluded(to)))
        .find(|(_, ids)| ids.iter().any(|&other| other != id));
    let key = foreign.map(|(key, _)| &**key);
    let stretches = stretches.iter().filter(|&(&other, stretch)| other != id && stretch.meets(from, to));
    if let Some((&other, stretch)) = stretches.min_by(|a, b| a.1.from.cmp(&b.1.from)) {
        let begin = from.max(&stretch.from);
        if key.is_none_or(|key| begin <= key) {
            return Some((begin, Some(other)));
        }
    }
    key.map(|key| (key, None))
}

struct Waiter<T> {
    id: Id,
    key: Vec<u8>,
    token: T,
}

struct Inserter<T> {
    token: T,
    keys: Vec<Arc<[u8]>>,
}

/// What is known of one index. `T` is what the caller needs to wake a waiter.
pub(super) struct IndexRanges<T> {
    index: IndexId,
    version: u64,
    scanners: BTreeMap<Id, Intervals>,
    inserting: BTreeMap<Arc<[u8]>, Vec<Id>>,
    /// Owners of inserting keys or stretches.
    inserters: BTreeMap<Id, Inserter<T>>,
    stretches: BTreeMap<Id, Stretch>,
    waiting: Vec<Waiter<T>>,
}

impl<T: Clone> IndexRanges<T> {
    pub const fn new(index: IndexId) -> IndexRanges<T> {
        IndexRanges {
            index,
            version: 0,
            scanners: BTreeMap::new(),
            inserting: BTreeMap::new(),
            inserters: BTreeMap::new(),
            stretches: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    /// Nobody scans, waits or brings anything in.
    pub fn is_free(&self) -> bool {
        self.scanners.is_empty() && self.inserters.is_empty() && self.waiting.is_empty()
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// `id` begins to scan. True unless it did already.
    pub fn join(&mut self, id: Id) -> bool {
        match self.scanners.entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(new) => {
                new.insert(Intervals::default());
                true
            }
        }
    }

    /// Locks `[from, to)` for `id`, whose scan read the index at version `read`.
    pub fn lock_range(&mut self, id: Id, from: &[u8], to: &[u8], read: u64) -> RangeGrant {
        let mine = self.scanners.entry(id).or_default();
        if from >= to || mine.version_of(from, to).is_some_and(|version| version <= read) {
            return RangeGrant::Clean;
        }
        if let Some((begin, stretch)) = first_of_others(&self.inserting, &self.stretches, id, from, to) {
            mine.add(from, begin, self.version);
            return RangeGrant::Inserting(stretch.map_or_else(|| begin.to_vec(), |other| stand_in(self.index, other)));
        }
        mine.add(from, to, self.version);
        if read == self.version { RangeGrant::Clean } else { RangeGrant::Stale }
    }

    /// The first key in `[from, to)` that others are bringing in, or a stand-in for it. Nothing is locked.
    pub fn inserting(&self, id: Id, from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
        let (begin, stretch) = first_of_others(&self.inserting, &self.stretches, id, from, to)?;
        Some(stretch.map_or_else(|| begin.to_vec(), |other| stand_in(self.index, other)))
    }

    /// The others who are bringing `key` in.
    pub fn inserters_of(&self, id: Id, key: &[u8]) -> impl Iterator<Item = &T> {
        let ids = self.inserting.get(key).map_or(&[] as &[Id], Vec::as_slice);
        let standing = self.stretches.keys().find(|&&other| stand_in(self.index, other) == key);
        let others = ids.iter().chain(standing).filter(move |&&other| other != id);
        others.filter_map(|other| self.inserters.get(other)).map(|b| &b.token)
    }

    fn is_locked_by_another(&self, id: Id, key: &[u8]) -> bool {
        self.scanners.iter().any(|(&other, intervals)| other != id && intervals.contains(key))
    }

    /// `id` inserts `key`, if it may.
    pub fn intend_insert(&mut self, id: Id, key: &[u8], token: &T) -> bool {
        let may = !self.is_locked_by_another(id, key);
        if may {
            self.note(id, key, token);
        }
        may
    }

    /// `id` has brought `key` in.
    pub fn note(&mut self, id: Id, key: &[u8], token: &T) {
        let known = self.inserting.get(key).is_some_and(|ids| ids.contains(&id));
        if known || self.stretches.get(&id).is_some_and(|stretch| stretch.contains(key)) {
            return;
        }
        let key: Arc<[u8]> = key.into();
        self.inserting.entry(key.clone()).or_default().push(id);
        let inserter = self.inserters.entry(id).or_insert_with(|| Inserter { token: token.clone(), keys: Vec::new() });
        inserter.keys.push(key);
        if inserter.keys.len() > KEYS_MAX {
            let keys = std::mem::take(&mut inserter.keys);
            for key in &keys {
                self.stretches.entry(id).or_insert_with(|| Stretch::at(key)).widen(key);
            }
            self.forget(id, keys);
        }
    }

    /// `id` has brought keys in somewhere in `added`.
    pub fn note_stretch(&mut self, id: Id, added: &Stretch, token: &T) {
        self.inserters.entry(id).or_insert_with(|| Inserter { token: token.clone(), keys: Vec::new() });
        let stretch = self.stretches.entry(id).or_insert_with(|| added.clone());
        stretch.widen(&added.from);
        stretch.widen(&added.to);
    }

    /// `keys` of `id` are intentions no more.
    fn forget(&mut self, id: Id, keys: Vec<Arc<[u8]>>) {
        for key in keys {
            if let Some(ids) = self.inserting.get_mut(&key) {
                ids.retain(|&other| other != id);
                if ids.is_empty() {
                    self.inserting.remove(&key);
                }
            }
        }
    }

    /// Queues a request that `intend_insert` refused.
    pub fn enqueue(&mut self, id: Id, key: &[u8], token: T) -> usize {
        debug_assert!(self.waiting.iter().all(|w| w.id != id), "an owner waits once");
        self.waiting.push(Waiter { id, key: key.to_vec(), token });
        self.waiting.len()
    }

    /// Ends the wait of `id` without a grant. False if it was not waiting.
    pub fn cancel(&mut self, id: Id) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|w| w.id != id);
        self.waiting.len() < before
    }

    /// `id` has ended: its range locks and intentions go. `granted` is told of those whose wait ends; their intentions are
    /// granted. True if it was a scanner.
    pub fn release(&mut self, id: Id, granted: impl FnMut(&T)) -> bool {
        if let Some(inserter) = self.inserters.remove(&id) {
            self.version += 1;
            self.forget(id, inserter.keys);
            self.stretches.remove(&id);
        }
        self.leave(id, granted)
    }

    /// `id` scans no more: its range locks go, its intentions stay. `granted` and the answer as those of `release`.
    pub fn leave(&mut self, id: Id, mut granted: impl FnMut(&T)) -> bool {
        let scanned = self.scanners.remove(&id).is_some();
        let mut at = 0;
        while at < self.waiting.len() {
            if self.is_locked_by_another(self.waiting[at].id, &self.waiting[at].key) {
                at += 1;
                continue;
            }
            let waiter = self.waiting.remove(at);
            self.note(waiter.id, &waiter.key, &waiter.token);
            granted(&waiter.token);
        }
        scanned
    }

    /// Intended keys may have become visible without having been noted here.
    pub fn touch(&mut self) {
        self.version += 1;
    }

    /// Those who keep the waiting `id` from its key; empty if it does not wait.
    pub fn blockers(&self, id: Id) -> Vec<Id> {
        let Some(waiter) = self.waiting.iter().find(|w| w.id == id) else {
            return Vec::new();
        };
        let locks = |(other, intervals): &(&Id, &Intervals)| **other != id && intervals.contains(&waiter.key);
        self.scanners.iter().filter(locks).map(|(&other, _)| other).collect()
    }

    /// All range locks: owner, from, to.
    pub fn locked(&self) -> impl Iterator<Item = (Id, &[u8], &[u8])> {
        self.scanners.iter().flat_map(|(&id, intervals)| {
            intervals.0.iter().map(move |(from, span)| (id, from.as_slice(), span.end.as_slice()))
        })
    }

    /// Memory of the insert intentions, about.
    #[cfg(test)]
    pub fn intended_bytes(&self) -> usize {
        self.inserting.keys().map(|key| key.len() + 80).sum()
    }

    /// All waiters: owner and key.
    pub fn waiters(&self) -> impl Iterator<Item = (Id, &[u8])> {
        self.waiting.iter().map(|w| (w.id, w.key.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(ranges: &mut IndexRanges<Id>, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        let id: Id = words.get(1).map_or(0, |w| w.parse().expect("owner number"));
        let key = |n: usize| words[n].as_bytes();
        match words[0] {
            "lock" => match ranges.lock_range(id, key(2), key(3), words[4].parse().expect("version")) {
                RangeGrant::Clean => "clean".to_owned(),
                RangeGrant::Stale => "stale".to_owned(),
                RangeGrant::Inserting(key) => format!("inserting {}", String::from_utf8_lossy(&key)),
            },
            "inserting" => match ranges.inserting(id, key(2), key(3)) {
                Some(key) => String::from_utf8_lossy(&key).into_owned(),
                None => "nothing".to_owned(),
            },
            "insert" => {
                if ranges.intend_insert(id, key(2), &id) {
                    return "ok".to_owned();
                }
                ranges.enqueue(id, key(2), id);
                format!("waits for {:?}", ranges.blockers(id))
            }
            "cancel" => if ranges.cancel(id) { "ok" } else { "not waiting" }.to_owned(),
            "release" => {
                let mut answer = "ok".to_owned();
                ranges.release(id, |woken| answer += &format!(", wakes {woken}"));
                answer
            }
            "leave" => {
                let mut answer = "ok".to_owned();
                ranges.leave(id, |woken| answer += &format!(", wakes {woken}"));
                answer
            }
            "version" => ranges.version().to_string(),
            "show" => {
                if ranges.is_free() {
                    return "free".to_owned();
                }
                let show = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
                let locked: Vec<_> = ranges.locked().map(|(i, a, b)| format!("{i}[{},{})", show(a), show(b))).collect();
                let inserting: Vec<_> = ranges.inserting.iter().map(|(k, ids)| format!("{}{ids:?}", show(k))).collect();
                format!("locked {}; inserting {}", locked.join(" "), inserting.join(" ")).trim_end().to_owned()
            }
            other => panic!("unknown command {other}"),
        }
    }

    #[test]
    fn scenarios() {
        let text = include_str!("../../testdata/lock_range.txt");
        let mut ranges = IndexRanges::new(IndexId(16));
        let mut checked = 0;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with('#') || line.is_empty() {
                ranges = IndexRanges::new(IndexId(16));
                continue;
            }
            let (command, want) = line.split_once("->").expect("command -> answer");
            assert_eq!(apply(&mut ranges, command), want.trim(), "line {}: {command}", number + 1);
            checked += 1;
        }
        assert!(checked > 40);
    }

    /// One byte per key, everything in plain lists.
    #[derive(Default)]
    struct Naive {
        locked: Vec<(Id, u8)>,
        inserting: Vec<(Id, u8)>,
        waiting: Vec<(Id, u8)>,
    }

    impl Naive {
        fn blocked(&self, id: Id, key: u8) -> bool {
            self.locked.iter().any(|&(other, k)| other != id && k == key)
        }
    }

    proptest! {
        #[test]
        fn agrees_with_plain_lists(steps in proptest::collection::vec((0u8..7, 1u64..5, 0u8..24, 1u8..10), 1..120)) {
            let mut ranges: IndexRanges<Id> = IndexRanges::new(IndexId(16));
            let mut naive = Naive::default();
            for (action, id, key, length) in steps {
                let waits = naive.waiting.iter().any(|w| w.0 == id);
                match action {
                    0 | 1 if !waits => {
                        let read = ranges.version();
                        let end = key + length;
                        let first = (key..end).find(|k| naive.inserting.iter().any(|&(o, e)| o != id && e == *k));
                        let fresh = (key..end).any(|k| !naive.locked.contains(&(id, k)));
                        prop_assert_eq!(ranges.inserting(id, &[key], &[end]), first.map(|first| vec![first]));
                        let got = ranges.lock_range(id, &[key], &[end], read);
                        let want = match first {
                            Some(first) if fresh => RangeGrant::Inserting(vec![first]),
                            _ => RangeGrant::Clean,
                        };
                        prop_assert_eq!(&got, &want);
                        naive.locked.extend((key..first.unwrap_or(end)).map(|k| (id, k)));
                        prop_assert_eq!(ranges.lock_range(id, &[key], &[key], 0), RangeGrant::Clean);
                    }
                    2 | 3 if !waits => {
                        let blocked = naive.blocked(id, key);
                        prop_assert_eq!(ranges.intend_insert(id, &[key], &id), !blocked);
                        if blocked {
                            ranges.enqueue(id, &[key], id);
                            naive.waiting.push((id, key));
                        } else {
                            naive.inserting.push((id, key));
                        }
                    }
                    4 => {
                        prop_assert_eq!(ranges.cancel(id), waits);
                        naive.waiting.retain(|w| w.0 != id);
                    }
                    5 | 6 if !waits => {
                        let mut woken = Vec::new();
                        if action == 5 {
                            ranges.release(id, |&w| woken.push(w));
                            naive.inserting.retain(|e| e.0 != id);
                        } else {
                            ranges.leave(id, |&w| woken.push(w));
                        }
                        naive.locked.retain(|c| c.0 != id);
                        let all = std::mem::take(&mut naive.waiting);
                        let (stay, go): (Vec<_>, Vec<_>) = all.into_iter().partition(|&(w, k)| naive.blocked(w, k));
                        prop_assert_eq!(woken, go.iter().map(|w| w.0).collect::<Vec<_>>());
                        naive.waiting = stay;
                        naive.inserting.extend(go);
                    }
                    _ => {}
                }
                for owner in 1..5u64 {
                    let mut blockers: Vec<Id> = Vec::new();
                    if let Some(&(_, key)) = naive.waiting.iter().find(|w| w.0 == owner) {
                        blockers = naive.locked.iter().filter(|c| c.0 != owner && c.1 == key).map(|c| c.0).collect();
                    }
                    blockers.sort_unstable();
                    blockers.dedup();
                    prop_assert_eq!(ranges.blockers(owner), blockers);
                    let mine: Vec<_> = ranges.locked().filter(|c| c.0 == owner).collect();
                    for pair in mine.windows(2) {
                        prop_assert!(pair[0].2 < pair[1].1, "intervals that touch");
                    }
                }
            }
            for id in 1..5 {
                ranges.release(id, |_| ());
                ranges.cancel(id);
            }
            for id in 1..5 {
                ranges.release(id, |_| ());
            }
            prop_assert!(ranges.is_free());
            prop_assert!(ranges.inserting.is_empty() && ranges.stretches.is_empty());
        }
    }
}
