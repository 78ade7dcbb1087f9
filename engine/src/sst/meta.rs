//! What the manifest and the readers know about an SST without reading its data.
//!
//! Small indexes share files. Of such a file the description says what it has of each index, its *shares*: sizes of an
//! index, whether a file has any of it, and how much of a file belongs to dropped indexes are known without a read. A
//! share takes some six bytes in the manifest and sixteen in memory; a file of one index has none.
//!
//! Rejected: the bounds alone (whether a file in whose range an index lies has anything of it would be a guess, and so
//! would be when a dropped index may be forgotten); sizes from the index blocks (a read for each file and index).

use std::sync::Arc;

use crate::base::codec::{Reader, put_bytes, put_varint};
use crate::base::{FileNo, IndexId, KeyVersion, Kind, SeqNo};

/// What a file has of one of its indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The index.
    pub index: IndexId,
    /// Versions of it, tombstones included; at least one.
    pub entries: u32,
    /// Tombstones.
    pub tombstones: u32,
    /// Uncompressed bytes of keys and values.
    pub raw_bytes: u32,
}

/// Versions of a file that newer ones of the same file have replaced, and that only snapshots and the history see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Superseded {
    /// Uncompressed bytes of keys and values.
    pub bytes: u64,
    /// Once no reader reads below this number, nobody sees them.
    pub until: SeqNo,
}

/// Description of one SST.
#[derive(Clone, Debug, PartialEq)]
pub struct SstMeta {
    /// Its number, which is also its name.
    pub no: FileNo,
    /// The index of its first key; of all keys, unless there are shares.
    pub index: IndexId,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// First user key.
    pub smallest: Vec<u8>,
    /// Last user key.
    pub largest: Vec<u8>,
    /// Least sequence number of its versions.
    pub min_seq: SeqNo,
    /// Greatest sequence number of its versions.
    pub max_seq: SeqNo,
    /// Versions, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Uncompressed bytes of keys and values.
    pub raw_bytes: u64,
    /// Its versions count as having the number `max_seq`, whatever the file says: it was written before the number was
    /// known. One version per key. Not part of the file, nor of this encoding.
    pub stamped: bool,
    /// The master key under which it is encrypted, if it is. Not part of this encoding.
    pub key: Option<KeyVersion>,
    /// What it had of superseded versions when it was written, as far as that was counted. Not part of this encoding.
    pub superseded: Superseded,
    /// What it has of each of its indexes, in their order, if it has several. Encoded apart.
    pub shares: Arc<[Share]>,
}

impl SstMeta {
    /// The description of the same file with all versions numbered `seq`.
    pub fn stamp(self, seq: SeqNo) -> SstMeta {
        SstMeta { min_seq: seq, max_seq: seq, stamped: true, ..self }
    }

    /// True if it has keys of several indexes.
    pub fn is_shared(&self) -> bool {
        !self.shares.is_empty()
    }

    /// The index of its last key.
    pub fn last_index(&self) -> IndexId {
        self.shares.last().map_or(self.index, |share| share.index)
    }

    /// Its indexes, in order.
    pub fn indexes(&self) -> impl Iterator<Item = IndexId> + '_ {
        let only = if self.is_shared() { None } else { Some(self.index) };
        only.into_iter().chain(self.shares.iter().map(|share| share.index))
    }

    /// What it has of an index: versions, tombstones, uncompressed bytes. `None` if it has nothing.
    pub fn part_of(&self, index: IndexId) -> Option<Part> {
        if !self.is_shared() {
            let all = Part { entries: self.entries, tombstones: self.tombstones, raw_bytes: self.raw_bytes };
            return (self.index == index).then_some(all);
        }
        let at = self.shares.binary_search_by_key(&index, |share| share.index).ok()?;
        let Share { entries, tombstones, raw_bytes, .. } = self.shares[at];
        Some(Part { entries: entries.into(), tombstones: tombstones.into(), raw_bytes: raw_bytes.into() })
    }

    /// Whether it has keys of an index.
    pub fn holds(&self, index: IndexId) -> bool {
        self.part_of(index).is_some()
    }

    /// Whether it has keys of any index from `first` to `last`.
    pub fn holds_any(&self, first: IndexId, last: IndexId) -> bool {
        if !self.is_shared() {
            return first <= self.index && self.index <= last;
        }
        let at = self.shares.partition_point(|share| share.index < first);
        self.shares.get(at).is_some_and(|share| share.index <= last)
    }

    /// Bytes of the file that belong to `raw_bytes` of what is in it, by their share.
    pub fn bytes_of(&self, raw_bytes: u64) -> u64 {
        (u128::from(self.file_bytes) * u128::from(raw_bytes) / u128::from(self.raw_bytes.max(1))) as u64
    }

    /// Appends the encoding of the shares: their number; per share the distance of its index from the one before (of the
    /// first: from the file's first index), versions, tombstones, bytes; all varints.
    pub fn encode_shares(&self, out: &mut Vec<u8>) {
        put_varint(out, self.shares.len() as u64);
        let mut last = self.index;
        for share in self.shares.iter() {
            put_varint(out, u64::from(share.index.0 - last.0));
            last = share.index;
            for number in [share.entries, share.tombstones, share.raw_bytes] {
                put_varint(out, u64::from(number));
            }
        }
    }

    /// The description with the shares that [`SstMeta::encode_shares`] wrote; `None` if the bytes are none such, or say
    /// something else than the description does.
    pub fn decode_shares(self, reader: &mut Reader<'_>) -> Option<SstMeta> {
        let count = reader.varint()?;
        let mut shares = Vec::new();
        let (mut last, mut sum) = (self.index, Part::default());
        for at in 0..count {
            let distance = u32::try_from(reader.varint()?).ok()?;
            if (distance == 0) != (at == 0) {
                return None;
            }
            last = IndexId(last.0.checked_add(distance)?);
            let mut number = || u32::try_from(reader.varint()?).ok();
            let share = Share { index: last, entries: number()?, tombstones: number()?, raw_bytes: number()? };
            sum.entries += u64::from(share.entries);
            sum.tombstones += u64::from(share.tombstones);
            sum.raw_bytes += u64::from(share.raw_bytes);
            shares.push(share);
        }
        let all = Part { entries: self.entries, tombstones: self.tombstones, raw_bytes: self.raw_bytes };
        (count > 1 && sum == all).then(|| SstMeta { shares: shares.into(), ..self })
    }

    /// Appends the encoding: varints in the order of the fields, the keys as length and bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.no.0);
        put_varint(out, u64::from(self.index.0));
        put_varint(out, self.file_bytes);
        put_bytes(out, &self.smallest);
        put_bytes(out, &self.largest);
        put_varint(out, self.min_seq.0);
        put_varint(out, self.max_seq.0);
        put_varint(out, self.entries);
        put_varint(out, self.tombstones);
        put_varint(out, self.raw_bytes);
    }

    /// Reads what [`SstMeta::encode`] wrote; `None` if the bytes are none such.
    pub fn decode(reader: &mut Reader<'_>) -> Option<SstMeta> {
        Some(SstMeta {
            no: FileNo(reader.varint()?),
            index: IndexId(u32::try_from(reader.varint()?).ok()?),
            file_bytes: reader.varint()?,
            smallest: reader.bytes()?.to_vec(),
            largest: reader.bytes()?.to_vec(),
            min_seq: SeqNo(reader.varint()?),
            max_seq: SeqNo(reader.varint()?),
            entries: reader.varint()?,
            tombstones: reader.varint()?,
            raw_bytes: reader.varint()?,
            stamped: false,
            key: None,
            superseded: Superseded::default(),
            shares: Arc::default(),
        })
    }
}

/// Counts the shares of a file, version by version in the order of keys.
#[derive(Default)]
pub(super) struct Shares {
    /// Those of the indexes that are complete.
    done: Vec<(IndexId, Part)>,
    last: Option<(IndexId, Part)>,
}

impl Shares {
    /// Another version.
    #[inline]
    pub fn count(&mut self, key: &[u8], kind: Kind, value_bytes: usize) {
        let index = IndexId::of(key);
        let part = match &mut self.last {
            Some((last, part)) if *last == index => part,
            last => {
                self.done.extend(last.take());
                &mut last.insert((index, Part::default())).1
            }
        };
        part.entries += 1;
        part.tombstones += u64::from(kind == Kind::Delete);
        part.raw_bytes += (key.len() + value_bytes) as u64;
    }

    /// The last version has a value that is longer by this.
    pub fn add_bytes(&mut self, bytes: u64) {
        if let Some((_, part)) = &mut self.last {
            part.raw_bytes += bytes;
        }
    }

    /// The shares, none if there is one index only; `None` if one of several is too large to be a share.
    pub fn finish(mut self) -> Option<Arc<[Share]>> {
        if self.done.is_empty() {
            return Some(Arc::default());
        }
        self.done.extend(self.last);
        let number = |number: u64| u32::try_from(number).ok();
        let share = |(index, part): (IndexId, Part)| {
            let (entries, tombstones) = (number(part.entries)?, number(part.tombstones)?);
            Some(Share { index, entries, tombstones, raw_bytes: number(part.raw_bytes)? })
        };
        self.done.into_iter().map(share).collect()
    }
}

/// Sizes of a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Part {
    /// Versions.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Uncompressed bytes of keys and values.
    pub raw_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_every_cut() {
        let meta = SstMeta {
            no: FileNo(300),
            index: IndexId(u32::MAX),
            file_bytes: 1 << 40,
            smallest: b"\0\0\0\x01a".to_vec(),
            largest: vec![0xff; 200],
            min_seq: SeqNo(3),
            max_seq: SeqNo::MAX,
            entries: 1000,
            tombstones: 1,
            raw_bytes: 12345,
            stamped: false,
            superseded: Superseded::default(),
            key: None,
            shares: Arc::default(),
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(SstMeta::decode(&mut reader), Some(meta));
        assert!(reader.is_empty());
        for cut in 0..bytes.len() {
            assert_eq!(SstMeta::decode(&mut Reader::new(&bytes[..cut])), None);
        }
    }

    #[test]
    fn shares_round_trip_and_must_fit_the_whole() {
        let share =
            |index, entries, tombstones, raw_bytes| Share { index: IndexId(index), entries, tombstones, raw_bytes };
        let meta = SstMeta {
            no: FileNo(3),
            index: IndexId(7),
            file_bytes: 4096,
            smallest: b"\0\0\0\x07a".to_vec(),
            largest: b"\0\0\x01\0z".to_vec(),
            min_seq: SeqNo(3),
            max_seq: SeqNo(4),
            entries: 60,
            tombstones: 3,
            raw_bytes: 1100,
            stamped: false,
            superseded: Superseded::default(),
            key: None,
            shares: [share(7, 10, 1, 100), share(9, 20, 0, 300), share(256, 30, 2, 700)].into(),
        };
        let mut bytes = Vec::new();
        meta.encode_shares(&mut bytes);
        let bare = || SstMeta { shares: Arc::default(), ..meta.clone() };
        assert_eq!(bare().decode_shares(&mut Reader::new(&bytes)), Some(meta.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(bare().decode_shares(&mut Reader::new(&bytes[..cut])), None);
        }
        assert_eq!(SstMeta { entries: 61, ..bare() }.decode_shares(&mut Reader::new(&bytes)), None);
        assert_eq!(bare().decode_shares(&mut Reader::new(&[1, 0, 60, 3, 0xcc, 8])), None, "one share is none");

        assert_eq!(meta.indexes().collect::<Vec<_>>(), [IndexId(7), IndexId(9), IndexId(256)]);
        assert_eq!(meta.part_of(IndexId(9)), Some(Part { entries: 20, tombstones: 0, raw_bytes: 300 }));
        assert!(
            !meta.holds(IndexId(8))
                && meta.holds_any(IndexId(8), IndexId(9))
                && !meta.holds_any(IndexId(10), IndexId(255))
        );
        assert_eq!((meta.last_index(), meta.bytes_of(300)), (IndexId(256), 4096 * 300 / 1100));
        let single = bare();
        assert_eq!(single.part_of(IndexId(7)).unwrap().entries, 60);
        assert!(!single.holds(IndexId(9)) && single.last_index() == IndexId(7));
    }
}
