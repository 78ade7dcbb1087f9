//! What the manifest and the readers know about a table file without reading its data.

use crate::base::codec::{Reader, put_bytes, put_varint};
use crate::base::{FileNo, IndexId, SeqNo};

/// Description of one table file.
#[derive(Clone, Debug, PartialEq)]
pub struct TableMeta {
    /// Its number, which is also its name.
    pub no: FileNo,
    /// The index all its keys belong to.
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
}

impl TableMeta {
    /// The description of the same file with all versions numbered `seq`.
    pub fn stamp(self, seq: SeqNo) -> TableMeta {
        TableMeta { min_seq: seq, max_seq: seq, stamped: true, ..self }
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

    /// Reads what [`TableMeta::encode`] wrote; `None` if the bytes are none such.
    pub fn decode(reader: &mut Reader<'_>) -> Option<TableMeta> {
        Some(TableMeta {
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
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_every_cut() {
        let meta = TableMeta {
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
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(TableMeta::decode(&mut reader), Some(meta));
        assert!(reader.is_empty());
        for cut in 0..bytes.len() {
            assert_eq!(TableMeta::decode(&mut Reader::new(&bytes[..cut])), None);
        }
    }
}
