//! The write buffer of a transaction: its operations in log format, and an ordered index over the newest one per key.
//! In a large transaction it holds the newest operations only; older ones are in [`crate::spill`].
//!
//! Operations are appended to one byte vector in the very encoding that the log stores (see
//! docs/develop/format/batch.md), so that commit copies it once. A savepoint is a count of operations; going back to it
//! pops operations from the end and restores the index, since each operation remembers its predecessor on the same key.
//!
//! The index is a sorted vector of operation numbers while the transaction is small, and an [`Order`] above [`SMALL_MAX`]
//! entries, where moving a vector's tail on each insert would begin to cost more than it saves.
//!
//! Invariant: the index names the newest operation of each key, and nothing else.
//!
//! Rejected: a memtable per transaction (a chunk of memory and a tower per key for what is mostly one to ten rows).

mod batch;
mod order;

pub(crate) use self::batch::{BatchReader, encode_files, files_of};
use self::order::Order;
use crate::base::codec::{put_bytes, put_varint};
use crate::base::{IndexId, Kind, Result, SeqNo};
use crate::iter::VersionIter;

const SMALL_MAX: usize = 128;
const NONE: u32 = u32::MAX;
/// Memory for operations that an idle transaction keeps at most.
const KEPT_BYTES: usize = 8 << 10;

/// A point in the life of a transaction: the number of operations before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Savepoint(pub u64);

struct Op {
    start: usize,
    key: (usize, u32),
    value: (usize, u32),
    kind: Kind,
    /// The operation on the same key before this one.
    previous: u32,
}

/// The operations.
struct Operations {
    bytes: Vec<u8>,
    ops: Vec<Op>,
}

impl Operations {
    fn key(&self, number: u32) -> &[u8] {
        let (at, len) = self.ops[number as usize].key;
        &self.bytes[at..at + len as usize]
    }
}

enum Index {
    Small(Vec<u32>),
    Large(Order),
}

/// See the module.
pub(crate) struct WriteBuffer {
    operations: Operations,
    /// Operations of the transaction before the first one here.
    before: u64,
    index: Index,
    /// Operations that a later one on the same key replaced.
    superseded: usize,
    /// Changes with every modification; cursors compare it to know whether their place is still right.
    generation: u64,
}

fn small_position(operations: &Operations, small: &[u32], key: &[u8]) -> std::result::Result<usize, usize> {
    // Bulk statements write in key order: look at the end first.
    if let Some(&last) = small.last() {
        if operations.key(last) < key {
            return Err(small.len());
        }
    }
    small.binary_search_by(|&n| operations.key(n).cmp(key))
}

/// One entry of the index, by operation number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpNo(u32);

impl WriteBuffer {
    pub fn new() -> WriteBuffer {
        WriteBuffer {
            operations: Operations { bytes: Vec::new(), ops: Vec::new() },
            before: 0,
            index: Index::Small(Vec::new()),
            superseded: 0,
            generation: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.operations.ops.is_empty()
    }

    /// Bytes of memory that grow with the transaction.
    pub fn bytes(&self) -> usize {
        self.operations.bytes.len() + self.operations.ops.len() * size_of::<Op>()
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        let index = match &self.index {
            Index::Small(_) => 0,
            Index::Large(order) => order.memory(),
        };
        self.bytes() + index
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Where its first operation stands.
    pub fn begin(&self) -> Savepoint {
        Savepoint(self.before)
    }

    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.before + self.operations.ops.len() as u64)
    }

    pub fn key(&self, op: OpNo) -> &[u8] {
        self.operations.key(op.0)
    }

    pub fn value(&self, op: OpNo) -> &[u8] {
        let (at, len) = self.operations.ops[op.0 as usize].value;
        &self.operations.bytes[at..at + len as usize]
    }

    pub fn kind(&self, op: OpNo) -> Kind {
        self.operations.ops[op.0 as usize].kind
    }

    /// Kind and key of each operation.
    pub fn writes(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        (0..self.operations.ops.len() as u32).map(OpNo).map(|op| (self.kind(op), self.key(op)))
    }

    /// True if the key was put by an operation before `savepoint` (and not deleted by the last such operation).
    pub fn present_before(&self, op: OpNo, savepoint: Savepoint) -> Option<bool> {
        let mut at = op.0;
        while at != NONE {
            if self.before + u64::from(at) < savepoint.0 {
                return Some(self.operations.ops[at as usize].kind == Kind::Put);
            }
            at = self.operations.ops[at as usize].previous;
        }
        None
    }

    /// Records an operation.
    #[inline]
    pub fn push(&mut self, kind: Kind, key: &[u8], value: &[u8]) {
        self.push_parts(kind, key, value.len(), |bytes| bytes.extend_from_slice(value));
    }

    /// Records an operation whose value, of `value_bytes` bytes, `append` puts behind the others.
    #[inline]
    pub fn push_parts(&mut self, kind: Kind, key: &[u8], value_bytes: usize, append: impl FnOnce(&mut Vec<u8>)) {
        let start = self.operations.bytes.len();
        let number = self.operations.ops.len() as u32;
        assert!(number != NONE, "more than 4 billion operations in a transaction");
        self.operations.bytes.push(kind as u8);
        put_bytes(&mut self.operations.bytes, key);
        let key_at = self.operations.bytes.len() - key.len();
        let mut value_at = self.operations.bytes.len();
        if kind == Kind::Put {
            put_varint(&mut self.operations.bytes, value_bytes as u64);
            append(&mut self.operations.bytes);
            value_at = self.operations.bytes.len() - value_bytes;
        }
        self.operations.ops.push(Op {
            start,
            key: (key_at, key.len() as u32),
            value: (value_at, if kind == Kind::Put { value_bytes as u32 } else { 0 }),
            kind,
            previous: NONE,
        });
        let previous = self.index_set(number);
        self.operations.ops[number as usize].previous = previous;
        if previous != NONE {
            self.superseded += 1;
        }
        self.generation += 1;
    }

    /// Forgets its operations, which are in a run now. The next one has the number after the last of them.
    pub fn spilled(&mut self) {
        self.before += self.operations.ops.len() as u64;
        self.clear();
    }

    /// Counts an operation that is in a run. For a buffer that is empty.
    pub fn skip(&mut self) {
        debug_assert!(self.is_empty());
        self.before += 1;
        self.generation += 1;
    }

    /// Gives back its memory. For one that is empty.
    pub fn shrink(&mut self) {
        debug_assert!(self.is_empty());
        self.operations = Operations { bytes: Vec::new(), ops: Vec::new() };
    }

    /// For the next transaction: as new, but in the memory of the last one unless that was a large one.
    pub fn renew(&mut self) {
        self.clear();
        self.before = 0;
        let operations = &mut self.operations;
        if operations.bytes.capacity() > KEPT_BYTES || operations.ops.capacity() > SMALL_MAX {
            operations.bytes = Vec::new();
            operations.ops = Vec::new();
        }
    }

    fn clear(&mut self) {
        self.operations.bytes.clear();
        self.operations.ops.clear();
        match &mut self.index {
            Index::Small(small) => small.clear(),
            Index::Large(_) => self.index = Index::Small(Vec::new()),
        }
        self.superseded = 0;
        self.generation += 1;
    }

    /// All operations, by key and the newest first, numbered from 1 on over the whole transaction.
    pub fn versions(&self) -> Versions<'_> {
        let mut order = Vec::with_capacity(self.operations.ops.len());
        let mut chain = |newest: u32| {
            let mut at = newest;
            while at != NONE {
                order.push(at);
                at = self.operations.ops[at as usize].previous;
            }
        };
        match &self.index {
            Index::Small(small) => small.iter().copied().for_each(&mut chain),
            Index::Large(order) => order.iter().for_each(&mut chain),
        }
        Versions { buffer: self, order, at: NOWHERE }
    }

    /// Undoes every operation after `savepoint`, those of this buffer.
    pub fn rollback_to(&mut self, savepoint: Savepoint) {
        if savepoint.0 < self.before {
            self.clear();
            self.before = savepoint.0;
        }
        while self.savepoint() > savepoint {
            let number = (self.operations.ops.len() - 1) as u32;
            let previous = self.operations.ops[number as usize].previous;
            self.index_restore(number, previous);
            if previous != NONE {
                self.superseded -= 1;
            }
            if let Some(op) = self.operations.ops.pop() {
                self.operations.bytes.truncate(op.start);
            }
            self.generation += 1;
        }
    }

    fn op_key(&self, number: u32) -> &[u8] {
        self.operations.key(number)
    }

    /// Makes `number` the newest operation on its key; returns the one before.
    fn index_set(&mut self, number: u32) -> u32 {
        let operations = &self.operations;
        match &mut self.index {
            Index::Small(small) => match small_position(operations, small, operations.key(number)) {
                Ok(at) => std::mem::replace(&mut small[at], number),
                Err(at) => {
                    small.insert(at, number);
                    if small.len() > SMALL_MAX {
                        let mut order = Order::default();
                        for &number in &*small {
                            order.set(operations, number);
                        }
                        self.index = Index::Large(order);
                    }
                    NONE
                }
            },
            Index::Large(order) => order.set(operations, number).unwrap_or(NONE),
        }
    }

    fn index_restore(&mut self, number: u32, previous: u32) {
        let operations = &self.operations;
        match &mut self.index {
            Index::Small(small) => {
                if let Ok(at) = small_position(operations, small, operations.key(number)) {
                    if previous == NONE {
                        small.remove(at);
                    } else {
                        small[at] = previous;
                    }
                }
            }
            Index::Large(order) if previous == NONE => order.remove(operations, operations.key(number)),
            Index::Large(order) => {
                order.set(operations, previous);
            }
        }
    }

    /// The newest operation on `key`.
    pub fn get(&self, key: &[u8]) -> Option<OpNo> {
        match &self.index {
            Index::Small(small) => small_position(&self.operations, small, key).ok().map(|at| OpNo(small[at])),
            Index::Large(order) => order.get(&self.operations, key).map(OpNo),
        }
    }

    /// The entry of the smallest key `>= key` (`> key` if `after`).
    pub fn first_from(&self, key: &[u8], after: bool) -> Option<OpNo> {
        match &self.index {
            Index::Small(small) => {
                let at = match small_position(&self.operations, small, key) {
                    Ok(at) => at + usize::from(after),
                    Err(at) => at,
                };
                small.get(at).map(|&n| OpNo(n))
            }
            Index::Large(order) => order.first_from(&self.operations, key, after).map(OpNo),
        }
    }

    /// The entry of the largest key `< key`.
    pub fn last_before(&self, key: &[u8]) -> Option<OpNo> {
        match &self.index {
            Index::Small(small) => {
                let (Ok(at) | Err(at)) = small_position(&self.operations, small, key);
                at.checked_sub(1).map(|at| OpNo(small[at]))
            }
            Index::Large(order) => order.last_before(&self.operations, key).map(OpNo),
        }
    }

    /// Takes out the operations on indexes that `void` tells. They are numbered anew: savepoints of before mean nothing.
    pub fn forget(&mut self, void: impl Fn(IndexId) -> bool) {
        if !self.writes().any(|(_, key)| void(IndexId::of(key))) {
            return;
        }
        let mut kept = WriteBuffer { before: self.before, generation: self.generation + 1, ..WriteBuffer::new() };
        for op in (0..self.operations.ops.len() as u32).map(OpNo).filter(|&op| !void(IndexId::of(self.key(op)))) {
            kept.push(self.kind(op), self.key(op), self.value(op));
        }
        *self = kept;
    }

    /// The batch in log format: one operation per key. Rebuilt in key order if some operations were superseded.
    pub fn encode(&mut self) -> &[u8] {
        if self.superseded > 0 {
            let mut compact = WriteBuffer::new();
            compact.operations.bytes.reserve(self.operations.bytes.len());
            let mut live: Vec<u32> = match &self.index {
                Index::Small(small) => small.clone(),
                Index::Large(order) => order.iter().collect(),
            };
            live.sort_unstable();
            for number in live {
                let op = OpNo(number);
                compact.push(self.kind(op), self.key(op), self.value(op));
            }
            *self = compact;
        }
        &self.operations.bytes
    }
}

/// Before the first or behind the last operation.
const NOWHERE: usize = usize::MAX;

/// The operations of a write buffer as a source of versions.
pub(crate) struct Versions<'a> {
    buffer: &'a WriteBuffer,
    order: Vec<u32>,
    at: usize,
}

impl Versions<'_> {
    fn op(&self) -> OpNo {
        OpNo(self.order[self.at])
    }

    fn stand(&mut self, at: usize) {
        self.at = if at < self.order.len() { at } else { NOWHERE };
    }
}

impl VersionIter for Versions<'_> {
    fn valid(&self) -> bool {
        self.at != NOWHERE
    }
    fn key(&self) -> &[u8] {
        self.buffer.key(self.op())
    }
    fn seq(&self) -> SeqNo {
        SeqNo(self.buffer.before + u64::from(self.op().0) + 1)
    }
    fn kind(&self) -> Kind {
        self.buffer.kind(self.op())
    }
    fn value(&self) -> &[u8] {
        self.buffer.value(self.op())
    }
    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        self.stand(self.order.partition_point(|&n| self.buffer.op_key(n) < key));
        Ok(())
    }
    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        self.stand(self.order.partition_point(|&n| self.buffer.op_key(n) < key).wrapping_sub(1));
        Ok(())
    }
    fn seek_first(&mut self) -> Result<()> {
        self.stand(0);
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        self.stand(self.order.len().wrapping_sub(1));
        Ok(())
    }
    fn next(&mut self) -> Result<()> {
        self.stand(self.at + 1);
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        self.stand(self.at.wrapping_sub(1));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u16, u8),
        Ascending(u16, u8),
        Delete(u16),
        Mark,
        Back,
    }

    const KEYS: u16 = 900;

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            40 => (0..KEYS, any::<u8>()).prop_map(|(k, v)| Step::Put(k, v)),
            2 => (0..KEYS, any::<u8>()).prop_map(|(k, v)| Step::Ascending(k, v)),
            20 => (0..KEYS).prop_map(Step::Delete),
            1 => Just(Step::Mark),
            1 => Just(Step::Back),
        ]
    }

    /// Of two indexes, and of a few heads each.
    fn key(k: u16) -> Vec<u8> {
        let index = if k < KEYS / 2 { 9 } else { 12 };
        [&[0, 0, 0, index, (k / 50) as u8][..], &[7; 12], &k.to_be_bytes()].concat()
    }

    proptest! {
        /// The index, savepoints and the encoded batch agree with a map, below and above the small size.
        #[test]
        fn agrees_with_a_map(steps in proptest::collection::vec(step(), 0..1200)) {
            let mut buffer = WriteBuffer::new();
            let mut model: BTreeMap<Vec<u8>, Option<u8>> = BTreeMap::new();
            let mut marks = Vec::new();
            for step in steps {
                match step {
                    Step::Put(k, v) => { buffer.push(Kind::Put, &key(k), &[v]); model.insert(key(k), Some(v)); }
                    Step::Ascending(from, v) => for k in from..(from + 200).min(KEYS) {
                        buffer.push(Kind::Put, &key(k), &[v]);
                        model.insert(key(k), Some(v));
                    },
                    Step::Delete(k) => { buffer.push(Kind::Delete, &key(k), &[]); model.insert(key(k), None); }
                    Step::Mark => marks.push((buffer.savepoint(), model.clone())),
                    Step::Back => if let Some((at, old)) = marks.pop() { buffer.rollback_to(at); model = old; },
                }
            }
            let bounds = [vec![], vec![0, 0, 0], vec![0, 0, 0, 10], vec![0, 0, 0, 12], vec![1]];
            for key in (0..KEYS).map(key).chain(bounds) {
                let own = buffer.get(&key).map(|op| match buffer.kind(op) {
                    Kind::Put => Some(buffer.value(op)[0]),
                    Kind::Delete => None,
                });
                prop_assert_eq!(own, model.get(&key).copied());
                let from = buffer.first_from(&key, false).map(|op| buffer.key(op).to_vec());
                prop_assert_eq!(from, model.range(key.clone()..).next().map(|e| e.0.clone()));
                let above = buffer.first_from(&key, true).map(|op| buffer.key(op).to_vec());
                prop_assert_eq!(above, model.range((Bound::Excluded(key.clone()), Bound::Unbounded)).next().map(|e| e.0.clone()));
                let below = buffer.last_before(&key).map(|op| buffer.key(op).to_vec());
                prop_assert_eq!(below, model.range(..key).next_back().map(|e| e.0.clone()));
            }
            let mut versions = buffer.versions();
            versions.seek_first().unwrap();
            for (key, value) in &model {
                prop_assert_eq!((versions.key(), versions.kind() == Kind::Put), (key.as_slice(), value.is_some()));
                while versions.valid() && versions.key() == key {
                    versions.next().unwrap();
                }
            }
            prop_assert!(!versions.valid());
            let batch = buffer.encode().to_vec();
            let mut reader = BatchReader::new(&batch);
            let decoded: BTreeMap<Vec<u8>, Option<u8>> =
                reader.by_ref().map(|(kind, k, v)| (k.to_vec(), (kind == Kind::Put).then(|| v[0]))).collect();
            prop_assert!(reader.is_done());
            prop_assert_eq!(decoded, model);
        }
    }

    #[test]
    fn a_renewed_buffer_is_as_new() {
        let mut buffer = WriteBuffer::new();
        for ops in [3u8, 200, 1] {
            for k in 0..ops {
                buffer.push(Kind::Put, &key(u16::from(k)), &[k; 100]);
            }
            if ops == 200 {
                buffer.spilled();
                buffer.push(Kind::Put, &key(1), b"later");
            }
            let stood = buffer.generation();
            buffer.renew();
            assert!(buffer.is_empty() && buffer.get(&key(0)).is_none() && buffer.get(&key(1)).is_none());
            assert_eq!((buffer.savepoint(), buffer.begin(), buffer.encode().len()), (Savepoint(0), Savepoint(0), 0));
            assert_ne!(buffer.generation(), stood, "a cursor must not take its place for still right");
            assert!(buffer.operations.bytes.capacity() <= KEPT_BYTES && buffer.operations.ops.capacity() <= SMALL_MAX);
        }
    }
}
