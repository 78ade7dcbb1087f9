//! The order of very many operations: their numbers, sorted by key.
//!
//! Each index of the store has a list of chunks. A chunk is sorted and holds up to [`CHUNK`] entries: the number of an
//! operation and the head of its key, by which most comparisons end without a look at the operation. Writing in key order
//! appends to the list of the index: one comparison for a key, and chunks that are full.
//!
//! Invariants: no chunk is empty; the keys of a chunk lie below those of the next.
//!
//! Rejected: a B-tree with keys of its own (an allocation and a search from the root for every key, thrice the memory).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::Operations;
use crate::base::IndexId;
use crate::iter::head_of;

/// Entries of a chunk.
const CHUNK: usize = 128;
/// Entries that the first chunk of an index has room for at first: most of thousands stay small.
const CHUNK_MIN: usize = 4;

struct Chunk {
    heads: Vec<u128>,
    numbers: Vec<u32>,
}

impl Chunk {
    fn new(room: usize) -> Chunk {
        Chunk { heads: Vec::with_capacity(room), numbers: Vec::with_capacity(room) }
    }

    fn memory(&self) -> usize {
        self.heads.capacity() * size_of::<u128>() + self.numbers.capacity() * size_of::<u32>()
    }

    fn order(&self, at: usize, operations: &Operations, head: u128, key: &[u8]) -> Ordering {
        self.heads[at].cmp(&head).then_with(|| operations.key(self.numbers[at]).cmp(key))
    }

    /// Returns by how much its memory has grown.
    fn insert(&mut self, at: usize, head: u128, number: u32) -> usize {
        let mut grown = 0;
        if self.numbers.len() == self.numbers.capacity() {
            grown = self.grow();
        }
        self.heads.insert(at, head);
        self.numbers.insert(at, number);
        grown
    }

    #[cold]
    fn grow(&mut self) -> usize {
        let before = self.memory();
        let more = self.numbers.len().clamp(CHUNK_MIN, CHUNK);
        self.heads.reserve_exact(more);
        self.numbers.reserve_exact(more);
        self.memory() - before
    }

    /// The entries from `at` on, which leave this chunk.
    fn split(&mut self, at: usize) -> Chunk {
        let mut rest = Chunk::new(CHUNK);
        rest.heads.extend(self.heads.drain(at..));
        rest.numbers.extend(self.numbers.drain(at..));
        rest
    }
}

/// The index of a key with this head. Of one too short to have an index: the least whose keys lie above it.
fn index_of(head: u128) -> IndexId {
    IndexId((head >> (u128::BITS - u32::BITS)) as u32)
}

/// Where an entry is in a list, or belongs.
#[derive(Clone, Copy)]
struct Position {
    chunk: usize,
    at: usize,
    found: bool,
}

#[derive(Default)]
struct List {
    chunks: Vec<Chunk>,
}

impl List {
    fn find(&self, operations: &Operations, head: u128, key: &[u8]) -> Position {
        let Some(last) = self.chunks.last() else { return Position { chunk: 0, at: 0, found: false } };
        let (chunk, at) = (self.chunks.len() - 1, last.numbers.len() - 1);
        match last.order(at, operations, head, key) {
            Ordering::Less => return Position { chunk, at: at + 1, found: false },
            Ordering::Equal => return Position { chunk, at, found: true },
            Ordering::Greater => {}
        }
        let above = self.chunks.partition_point(|chunk| chunk.order(0, operations, head, key) != Ordering::Greater);
        let (chunk, mut from) = (above.saturating_sub(1), 0);
        let entries = &self.chunks[chunk];
        let mut to = entries.numbers.len();
        while from < to {
            let middle = from.midpoint(to);
            match entries.order(middle, operations, head, key) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Position { chunk, at: middle, found: true },
            }
        }
        Position { chunk, at: from, found: false }
    }

    /// Returns by how much its memory has grown.
    fn insert(&mut self, place: Position, head: u128, number: u32) -> usize {
        let Position { mut chunk, mut at, .. } = place;
        let mut grown = 0;
        match self.chunks.get_mut(chunk) {
            Some(full) if full.numbers.len() == CHUNK => {
                // Behind all others the next ones will follow.
                let kept = if at == CHUNK { CHUNK } else { CHUNK / 2 };
                let rest = full.split(kept);
                grown = rest.memory();
                self.chunks.insert(chunk + 1, rest);
                if at >= kept {
                    (chunk, at) = (chunk + 1, at - kept);
                }
            }
            Some(_) => {}
            None => {
                let first = Chunk::new(CHUNK_MIN);
                grown = first.memory();
                self.chunks.push(first);
            }
        }
        grown + self.chunks[chunk].insert(at, head, number)
    }

    /// Returns how much memory it gives back.
    fn remove(&mut self, Position { chunk, at, .. }: Position) -> usize {
        let entries = &mut self.chunks[chunk];
        entries.heads.remove(at);
        entries.numbers.remove(at);
        match entries.numbers.is_empty() {
            true => self.chunks.remove(chunk).memory(),
            false => 0,
        }
    }

    /// The entry at a place, or the next one.
    fn at_or_after(&self, Position { chunk, at, .. }: Position) -> Option<u32> {
        let in_chunk = self.chunks.get(chunk).and_then(|entries| entries.numbers.get(at));
        in_chunk.or_else(|| self.chunks.get(chunk + 1)?.numbers.first()).copied()
    }

    /// The entry before a place.
    fn before(&self, Position { chunk, at, .. }: Position) -> Option<u32> {
        match at.checked_sub(1) {
            Some(at) => self.chunks[chunk].numbers.get(at).copied(),
            None => self.chunks.get(chunk.checked_sub(1)?)?.numbers.last().copied(),
        }
    }
}

/// See the module. An operation is in it at most once, and at most one of a key.
#[derive(Default)]
pub(super) struct Order {
    lists: BTreeMap<IndexId, List>,
    /// Of all chunks. Asked for with every operation.
    memory: usize,
}

impl Order {
    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// All numbers, by key.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.lists.values().flat_map(|list| &list.chunks).flat_map(|chunk| chunk.numbers.iter().copied())
    }

    pub fn get(&self, operations: &Operations, key: &[u8]) -> Option<u32> {
        let head = head_of(key);
        let list = self.lists.get(&index_of(head))?;
        let place = list.find(operations, head, key);
        place.found.then(|| list.chunks[place.chunk].numbers[place.at])
    }

    /// Makes `number` that of its key; returns the one before.
    pub fn set(&mut self, operations: &Operations, number: u32) -> Option<u32> {
        let key = operations.key(number);
        let head = head_of(key);
        let list = self.lists.entry(index_of(head)).or_default();
        let place = list.find(operations, head, key);
        if place.found {
            return Some(std::mem::replace(&mut list.chunks[place.chunk].numbers[place.at], number));
        }
        self.memory += list.insert(place, head, number);
        None
    }

    pub fn remove(&mut self, operations: &Operations, key: &[u8]) {
        let head = head_of(key);
        if let Some(list) = self.lists.get_mut(&index_of(head)) {
            let place = list.find(operations, head, key);
            if place.found {
                self.memory -= list.remove(place);
            }
        }
    }

    /// The number of the least key `>= key` (`> key` if `after`).
    pub fn first_from(&self, operations: &Operations, key: &[u8], after: bool) -> Option<u32> {
        let head = head_of(key);
        let index = index_of(head);
        let in_list = self.lists.get(&index).and_then(|list| {
            let mut place = list.find(operations, head, key);
            place.at += usize::from(place.found && after);
            list.at_or_after(place)
        });
        in_list.or_else(|| {
            self.lists
                .range((Excluded(index), Unbounded))
                .find_map(|(_, list)| list.chunks.first()?.numbers.first().copied())
        })
    }

    /// The number of the greatest key `< key`.
    pub fn last_before(&self, operations: &Operations, key: &[u8]) -> Option<u32> {
        let head = head_of(key);
        let index = index_of(head);
        let in_list = self.lists.get(&index).and_then(|list| list.before(list.find(operations, head, key)));
        in_list.or_else(|| {
            self.lists.range(..index).rev().find_map(|(_, list)| list.chunks.last()?.numbers.last().copied())
        })
    }
}
