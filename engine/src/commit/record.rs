//! Records of the log.
//!
//! Bytes and meaning: docs/develop/format/batch.md.

use crate::base::codec::{Reader, put_bytes};
use crate::base::{SeqNo, TxnId};

const COMMIT: u8 = 1;
const PREPARE: u8 = 2;
const ORDERED: u8 = 3;
const UNDONE: u8 = 4;
const CARRIED: u8 = 5;

/// A decoded record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Commit { seq: SeqNo, batch: &'a [u8] },
    Prepare { xid: &'a [u8], batch: &'a [u8] },
    Ordered { id: TxnId, seq: SeqNo },
    Undone { id: TxnId },
    Carried { id: TxnId, xid: &'a [u8], batch: &'a [u8] },
}

pub(crate) fn commit_batch_header(seq: SeqNo) -> [u8; 9] {
    let mut header = [COMMIT; 9];
    header[1..].copy_from_slice(&seq.0.to_le_bytes());
    header
}

pub(crate) fn prepare_header(xid: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(xid.len() + 3);
    header.push(PREPARE);
    put_bytes(&mut header, xid);
    header
}

pub(crate) fn commit_prepared(id: TxnId, seq: SeqNo) -> [u8; 17] {
    let mut record = [ORDERED; 17];
    record[1..9].copy_from_slice(&id.0.to_le_bytes());
    record[9..].copy_from_slice(&seq.0.to_le_bytes());
    record
}

pub(crate) fn rollback_prepared(id: TxnId) -> [u8; 9] {
    let mut record = [UNDONE; 9];
    record[1..].copy_from_slice(&id.0.to_le_bytes());
    record
}

pub(crate) fn relocated_header(id: TxnId, xid: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(xid.len() + 11);
    header.push(CARRIED);
    header.extend_from_slice(&id.0.to_le_bytes());
    put_bytes(&mut header, xid);
    header
}

/// Decodes a record; `None` if its bytes make no sense.
pub(crate) fn decode(bytes: &[u8]) -> Option<Record<'_>> {
    let mut reader = Reader::new(bytes);
    let record = match reader.u8()? {
        COMMIT => Record::Commit { seq: SeqNo(reader.u64()?), batch: reader.rest() },
        PREPARE => {
            let xid = reader.bytes()?;
            Record::Prepare { xid, batch: reader.rest() }
        }
        ORDERED => Record::Ordered { id: TxnId(reader.u64()?), seq: SeqNo(reader.u64()?) },
        UNDONE => Record::Undone { id: TxnId(reader.u64()?) },
        CARRIED => {
            let id = TxnId(reader.u64()?);
            let xid = reader.bytes()?;
            Record::Carried { id, xid, batch: reader.rest() }
        }
        _ => return None,
    };
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let mut bytes = commit_batch_header(SeqNo(7)).to_vec();
        bytes.extend_from_slice(b"batch");
        assert_eq!(decode(&bytes), Some(Record::Commit { seq: SeqNo(7), batch: b"batch" }));
        let mut bytes = prepare_header(b"xid");
        bytes.extend_from_slice(b"b");
        assert_eq!(decode(&bytes), Some(Record::Prepare { xid: b"xid", batch: b"b" }));
        let ordered = commit_prepared(TxnId(3), SeqNo(9));
        assert_eq!(decode(&ordered), Some(Record::Ordered { id: TxnId(3), seq: SeqNo(9) }));
        assert_eq!(decode(&rollback_prepared(TxnId(3))), Some(Record::Undone { id: TxnId(3) }));
        let mut bytes = relocated_header(TxnId(3), b"xid");
        bytes.extend_from_slice(b"b");
        assert_eq!(decode(&bytes), Some(Record::Carried { id: TxnId(3), xid: b"xid", batch: b"b" }));
    }

    /// docs/develop/format/batch.md shows what is written.
    #[test]
    fn the_documented_bytes_are_the_written_ones() {
        use crate::base::{FileNo, IndexId, KeyVersion, Kind};
        use crate::sst::{Share, SstMeta};
        use crate::write_buffer::{WriteBuffer, encode_files, files_of};

        let file = SstMeta {
            no: FileNo(5),
            index: IndexId(16),
            file_bytes: 8192,
            smallest: b"\0\0\0\x10a".to_vec(),
            largest: b"\0\0\0\x10b".to_vec(),
            min_seq: SeqNo(1),
            max_seq: SeqNo(2),
            entries: 2,
            tombstones: 1,
            raw_bytes: 14,
            stamped: false,
            superseded: crate::sst::Superseded::default(),
            key: None,
            shares: Default::default(),
        };
        assert_eq!(files_of(&encode_files(&[file.clone(), file.clone()])), Some(vec![file.clone(), file.clone()]));
        assert_eq!(files_of(&encode_files(std::slice::from_ref(&file))[..20]), None);
        let share = |index, entries, raw_bytes| Share { index: IndexId(index), entries, tombstones: 0, raw_bytes };
        let shared = SstMeta {
            no: FileNo(6),
            largest: b"\0\0\0\x12c".to_vec(),
            max_seq: SeqNo(3),
            entries: 3,
            raw_bytes: 20,
            shares: [Share { tombstones: 1, ..share(16, 2, 14) }, share(18, 1, 6)].into(),
            ..file.clone()
        };
        let keyed = SstMeta { key: Some(KeyVersion { id: 3, version: 2 }), ..file.clone() };
        let shared_and_keyed = SstMeta { key: keyed.key, ..shared.clone() };
        let both = [shared.clone(), file.clone(), keyed.clone(), shared_and_keyed];
        assert_eq!(files_of(&encode_files(&both)), Some(both.to_vec()));
        let bytes = encode_files(std::slice::from_ref(&shared));
        assert!((1..bytes.len()).all(|cut| files_of(&bytes[..cut]).is_none()));
        let mut buffer = WriteBuffer::new();
        buffer.push(Kind::Put, b"\0\0\0\x10a", b"v1");
        buffer.push(Kind::Delete, b"\0\0\0\x10b", b"");
        let batch = buffer.encode().to_vec();
        assert_eq!(files_of(&batch), Some(Vec::new()));
        let written = [
            [&commit_batch_header(SeqNo(7))[..], &batch].concat(),
            [&prepare_header(b"x1")[..], &batch].concat(),
            commit_prepared(TxnId(4096), SeqNo(8)).to_vec(),
            [&relocated_header(TxnId(4096), b"x1")[..], &batch].concat(),
            [&commit_batch_header(SeqNo(9))[..], &encode_files(&[file])].concat(),
            [&commit_batch_header(SeqNo(10))[..], &encode_files(&[shared])].concat(),
            [&commit_batch_header(SeqNo(11))[..], &encode_files(&[keyed])].concat(),
        ];
        let document = include_str!("../../../docs/develop/format/batch.md");
        let example = document.split("## Example").nth(1).unwrap();
        let shown: Vec<String> =
            example.lines().filter(|line| line.starts_with("    ")).map(|line| line.replace(' ', "")).collect();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(shown, written.each_ref().map(|bytes| hex(bytes)));
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [&[][..], &[0], &[9, 1], &[COMMIT, 1, 2], &[ORDERED; 16], &[PREPARE, 200], &[CARRIED; 9]] {
            assert_eq!(decode(bytes), None);
        }
    }
}
