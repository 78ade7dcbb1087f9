//! Entries in memory that are put in order when there are enough of them.
//!
//! ```text
//! bytes   key value | key value | key ...        as they came
//! slots   head, place, lengths                   sorted when they are asked for
//! ```
//!
//! A slot has the first bytes of its key, so that most comparisons stay within the slots. Entries with one key stand newest first,
//! as everywhere in the engine.

use crate::base::{Kind, Result, SeqNo};
use crate::iter::{VersionIter, head_of};

#[derive(Clone, Copy)]
struct Slot {
    head: u128,
    at: u32,
    key_len: u32,
    value_len: u32,
}

/// See the module.
#[derive(Default)]
pub(crate) struct SortBuffer {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// Numbers below belong to entries that came before those in the buffer.
    before: u64,
}

impl SortBuffer {
    /// Bytes and entries that a buffer can have: places in it take four bytes.
    pub const BYTES_MAX: usize = 1 << 30;

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * size_of::<Slot>()
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.slots.capacity() * size_of::<Slot>()
    }

    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_len, value_len) = (key.len() as u32, value.len() as u32);
        self.slots.push(Slot { head: head_of(key), at, key_len, value_len });
    }

    /// Forgets its entries; those that come have greater numbers.
    pub fn clear(&mut self) {
        self.before += self.bytes.len() as u64 + 1;
        self.bytes.clear();
        self.slots.clear();
    }

    /// The number of an entry that goes another way than through the buffer.
    pub fn skip(&mut self) -> SeqNo {
        debug_assert!(self.is_empty());
        self.before += 1;
        SeqNo(self.before)
    }

    /// Leaves one entry of each key, in order. For entries whose values do not matter.
    pub fn dedup(&mut self) {
        self.sort();
        let SortBuffer { bytes, slots, .. } = self;
        slots.dedup_by(|a, b| a.head == b.head && key_of(bytes, a) == key_of(bytes, b));
        let mut kept = Vec::with_capacity(bytes.capacity());
        for slot in slots.iter_mut() {
            let from = slot.at as usize;
            slot.at = kept.len() as u32;
            kept.extend_from_slice(&bytes[from..from + (slot.key_len + slot.value_len) as usize]);
        }
        *bytes = kept;
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.slots.sort_unstable_by(|a, b| {
            let keys = || key_of(bytes, a).cmp(key_of(bytes, b));
            a.head.cmp(&b.head).then_with(keys).then_with(|| b.at.cmp(&a.at))
        });
    }

    /// All entries in order.
    pub fn sorted(&mut self) -> Sorted<'_> {
        self.sort();
        Sorted { buffer: self, at: NOWHERE }
    }
}

fn key_of<'a>(bytes: &'a [u8], slot: &Slot) -> &'a [u8] {
    &bytes[slot.at as usize..(slot.at + slot.key_len) as usize]
}

/// Before the first or behind the last entry.
const NOWHERE: usize = usize::MAX;

/// The entries of a buffer in order.
pub(crate) struct Sorted<'a> {
    buffer: &'a SortBuffer,
    at: usize,
}

impl Sorted<'_> {
    fn slot(&self) -> &Slot {
        &self.buffer.slots[self.at]
    }

    fn stand(&mut self, at: usize) -> Result<()> {
        self.at = if at < self.buffer.slots.len() { at } else { NOWHERE };
        Ok(())
    }

    /// The first entry whose key is not below `key`.
    fn from(&self, key: &[u8]) -> usize {
        self.buffer.slots.partition_point(|slot| key_of(&self.buffer.bytes, slot) < key)
    }
}

impl VersionIter for Sorted<'_> {
    fn valid(&self) -> bool {
        self.at != NOWHERE
    }
    fn key(&self) -> &[u8] {
        key_of(&self.buffer.bytes, self.slot())
    }
    fn seq(&self) -> SeqNo {
        SeqNo(self.buffer.before + u64::from(self.slot().at) + 1)
    }
    fn kind(&self) -> Kind {
        Kind::Put
    }
    fn value(&self) -> &[u8] {
        let slot = self.slot();
        let from = (slot.at + slot.key_len) as usize;
        &self.buffer.bytes[from..from + slot.value_len as usize]
    }
    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        self.stand(self.from(key))
    }
    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        self.stand(self.from(key).wrapping_sub(1))
    }
    fn seek_first(&mut self) -> Result<()> {
        self.stand(0)
    }
    fn seek_last(&mut self) -> Result<()> {
        self.stand(self.buffer.slots.len().wrapping_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.stand(self.at + 1)
    }
    fn prev(&mut self) -> Result<()> {
        self.stand(self.at.wrapping_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(buffer: &mut SortBuffer) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
        let mut sorted = buffer.sorted();
        sorted.seek_first().unwrap();
        let mut all = Vec::new();
        while sorted.valid() {
            all.push((sorted.key().to_vec(), sorted.value().to_vec(), sorted.seq().0));
            sorted.next().unwrap();
        }
        all
    }

    #[test]
    fn entries_come_in_the_order_of_keys_and_the_newest_of_a_key_first() {
        let mut buffer = SortBuffer::default();
        // Keys that differ behind their heads, and one that is the beginning of others.
        let long = |end: u8| [&[9; 20][..], &[end]].concat();
        for (key, value) in [(long(2), 1), (vec![9; 20], 2), (long(1), 3), (long(2), 4), (vec![1], 5)] {
            buffer.push(&key, &[value]);
        }
        let all = taken(&mut buffer);
        let values: Vec<u8> = all.iter().map(|(_, value, _)| value[0]).collect();
        assert_eq!(values, [5, 2, 3, 4, 1]);
        assert!(all[3].2 > all[4].2, "of one key the newer one has the greater number");
        let newest = all.iter().map(|(.., seq)| *seq).max().unwrap();
        buffer.clear();
        let between = buffer.skip().0;
        buffer.push(&[1], &[]);
        assert!(newest < between && between < taken(&mut buffer)[0].2, "numbers grow whatever way entries go");
    }

    #[test]
    fn of_keys_that_come_again_one_is_left() {
        let mut buffer = SortBuffer::default();
        for round in 0..3u8 {
            (0..100u8).rev().for_each(|key| buffer.push(&[7, key % 10 + round], &[]));
        }
        let bytes = buffer.bytes();
        buffer.dedup();
        assert!(buffer.len() == 12 && buffer.bytes() < bytes / 20);
        let keys: Vec<Vec<u8>> = taken(&mut buffer).into_iter().map(|(key, ..)| key).collect();
        assert_eq!(keys, (0..12).map(|key| vec![7, key]).collect::<Vec<_>>());
        buffer.push(&[7, 3], &[]);
        assert_eq!(taken(&mut buffer).len(), 13, "and entries that come later are kept beside it");
    }
}
