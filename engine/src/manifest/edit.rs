//! A change of the store's state, and its encoding. Normative text: docs/develop/format/manifest.md.

use crate::base::codec::{Reader, put_varint};
use crate::base::{FileNo, IndexId, Lsn, SeqNo};
use crate::sst::SstMeta;

/// A change of the state: files that come and go, marks that advance. Removals take place before additions, so a file
/// removed at one level and added at another has moved.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct VersionEdit {
    /// New files and their level.
    pub added: Vec<(u8, SstMeta)>,
    /// Files that leave their level.
    pub removed: Vec<(u8, FileNo)>,
    /// Recovery starts reading the log here from now on.
    pub log_start: Option<Lsn>,
    /// All commits up to this one are in SSTs.
    pub flushed_seq: Option<SeqNo>,
    /// Indexes whose keys are void from now on.
    pub dropped: Vec<IndexId>,
    /// Dropped indexes of which nothing is left.
    pub undropped: Vec<IndexId>,
    /// Numbers from this one on are unused.
    pub next_file: Option<FileNo>,
    /// The log was durable up to here when the edit was written: if less of it is found, something was lost.
    pub log_durable: Option<Lsn>,
    /// Files of the log were made for the segments below this number. Unlike the marks it may go back.
    pub log_segments: Option<u64>,
}

const LOG_START: u8 = 1;
const FLUSHED_SEQ: u8 = 2;
const NEXT_FILE: u8 = 3;
const REMOVED: u8 = 4;
const ADDED: u8 = 5;
const DROPPED: u8 = 6;
const UNDROPPED: u8 = 7;
const LOG_DURABLE: u8 = 8;
const LOG_SEGMENTS: u8 = 9;
const ADDED_STAMPED: u8 = 10;
const ADDED_SHARED: u8 = 11;
const ADDED_STAMPED_SHARED: u8 = 12;

impl VersionEdit {
    /// Whether files come or go; otherwise only marks move.
    pub fn changes_files(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty()
    }

    /// Appends it as fields, each a tag byte and its values.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut mark = |tag: u8, value: Option<u64>| {
            if let Some(value) = value {
                out.push(tag);
                put_varint(out, value);
            }
        };
        mark(LOG_START, self.log_start.map(|v| v.0));
        mark(FLUSHED_SEQ, self.flushed_seq.map(|v| v.0));
        mark(NEXT_FILE, self.next_file.map(|v| v.0));
        mark(LOG_DURABLE, self.log_durable.map(|v| v.0));
        mark(LOG_SEGMENTS, self.log_segments);
        for (level, no) in &self.removed {
            out.extend([REMOVED, *level]);
            put_varint(out, no.0);
        }
        for (level, meta) in &self.added {
            let tag = match (meta.stamped, meta.is_shared()) {
                (true, false) => ADDED_STAMPED,
                (true, true) => ADDED_STAMPED_SHARED,
                (false, true) => ADDED_SHARED,
                (false, false) => ADDED,
            };
            out.extend([tag, *level]);
            meta.encode(out);
            if meta.is_shared() {
                meta.encode_shares(out);
            }
        }
        for (tag, indexes) in [(DROPPED, &self.dropped), (UNDROPPED, &self.undropped)] {
            for index in indexes {
                out.push(tag);
                put_varint(out, u64::from(index.0));
            }
        }
    }

    /// Reads what `encode` wrote, up to the end; `None` if the bytes are something else.
    pub fn decode(reader: &mut Reader<'_>) -> Option<VersionEdit> {
        let mut edit = VersionEdit::default();
        while !reader.is_empty() {
            match reader.u8()? {
                LOG_START => edit.log_start = Some(Lsn(reader.varint()?)),
                FLUSHED_SEQ => edit.flushed_seq = Some(SeqNo(reader.varint()?)),
                NEXT_FILE => edit.next_file = Some(FileNo(reader.varint()?)),
                LOG_DURABLE => edit.log_durable = Some(Lsn(reader.varint()?)),
                LOG_SEGMENTS => edit.log_segments = Some(reader.varint()?),
                REMOVED => edit.removed.push((reader.u8()?, FileNo(reader.varint()?))),
                ADDED => edit.added.push((reader.u8()?, SstMeta::decode(reader)?)),
                ADDED_STAMPED => {
                    let level = reader.u8()?;
                    let meta = SstMeta::decode(reader)?;
                    edit.added.push((level, SstMeta { stamped: true, ..meta }));
                }
                tag @ (ADDED_SHARED | ADDED_STAMPED_SHARED) => {
                    let level = reader.u8()?;
                    let meta = SstMeta::decode(reader)?.decode_shares(reader)?;
                    edit.added.push((level, SstMeta { stamped: tag == ADDED_STAMPED_SHARED, ..meta }));
                }
                DROPPED => edit.dropped.push(IndexId(u32::try_from(reader.varint()?).ok()?)),
                UNDROPPED => edit.undropped.push(IndexId(u32::try_from(reader.varint()?).ok()?)),
                _ => return None,
            }
        }
        Some(edit)
    }
}
