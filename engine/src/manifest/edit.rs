//! A change of the store's state, and its encoding. Normative text: docs/develop/format/manifest.md.
//!
//! What it says of encrypted files, whose bounds are keys of rows, is sealed under the system's key. All else is in the clear, so
//! that a manifest that names no such file is read without a key.

use std::path::Path;

use crate::base::codec::{Reader, put_bytes, put_varint};
use crate::base::{FileNo, IndexId, KeyVersion, Lsn, Result, SeqNo};
use crate::crypt::{Keyring, Purpose, SYSTEM_KEY};
use crate::sst::{SstMeta, Superseded};

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
    /// Master keys under which the files of indexes are encrypted from now on; `None`: under none.
    pub encryption: Vec<(IndexId, Option<u32>)>,
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
const ENCRYPTION: u8 = 13;
const SEALED: u8 = 14;
/// Of a file that is encrypted; only within sealed fields.
const ADDED_ENCRYPTED: u8 = 15;

/// Superseded versions of a file that the edit adds.
const SUPERSEDED: u8 = 16;

/// Flags of an encrypted file.
const STAMPED: u8 = 1;
const SHARED: u8 = 2;

/// Why an edit is not read.
#[derive(Debug)]
pub enum Undecoded {
    /// The bytes are something else.
    Malformed,
    /// A key is missing.
    Key(crate::base::Error),
}

impl VersionEdit {
    /// Whether files come or go; otherwise only marks move.
    pub fn changes_files(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty()
    }

    /// Appends it as fields, each a tag byte and its values. `path` is where they go.
    ///
    /// Errors: `Key` if the system's key is needed and missing.
    pub fn encode(&self, keys: &Keyring, path: &Path, out: &mut Vec<u8>) -> Result<()> {
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
        let mut secret = Vec::new();
        for (level, meta) in &self.added {
            match meta.key {
                Some(key) => encode_encrypted(*level, meta, key, &mut secret),
                None => encode_added(*level, meta, out),
            }
        }
        if !secret.is_empty() {
            out.push(SEALED);
            put_bytes(out, &keys.seal(SYSTEM_KEY, Purpose::Manifest, path, &secret)?);
        }
        for (_, meta) in self.added.iter().filter(|(_, meta)| meta.superseded != Superseded::default()) {
            out.push(SUPERSEDED);
            [meta.no.0, meta.superseded.bytes, meta.superseded.until.0].iter().for_each(|&n| put_varint(out, n));
        }
        for (tag, indexes) in [(DROPPED, &self.dropped), (UNDROPPED, &self.undropped)] {
            for index in indexes {
                out.push(tag);
                put_varint(out, u64::from(index.0));
            }
        }
        for (index, key) in &self.encryption {
            out.push(ENCRYPTION);
            put_varint(out, u64::from(index.0));
            put_varint(out, u64::from(key.unwrap_or(0)));
        }
        Ok(())
    }

    /// Reads what `encode` wrote at `path`, up to the end.
    pub fn decode(reader: &mut Reader<'_>, keys: &Keyring, path: &Path) -> std::result::Result<VersionEdit, Undecoded> {
        let mut edit = VersionEdit::default();
        while !reader.is_empty() {
            if reader.rest()[0] != SEALED {
                edit.field(reader).ok_or(Undecoded::Malformed)?;
                continue;
            }
            let sealed = reader.u8().and_then(|_| reader.bytes()).ok_or(Undecoded::Malformed)?;
            let opened = keys.unseal(Purpose::Manifest, path, sealed).map_err(Undecoded::Key)?;
            let opened = opened.ok_or(Undecoded::Malformed)?;
            let mut fields = Reader::new(&opened);
            while !fields.is_empty() {
                let added = decode_encrypted(&mut fields).ok_or(Undecoded::Malformed)?;
                edit.added.push(added);
            }
        }
        Ok(edit)
    }

    /// Reads a field that is in the clear.
    fn field(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let index = |reader: &mut Reader<'_>| Some(IndexId(u32::try_from(reader.varint()?).ok()?));
        match reader.u8()? {
            LOG_START => self.log_start = Some(Lsn(reader.varint()?)),
            FLUSHED_SEQ => self.flushed_seq = Some(SeqNo(reader.varint()?)),
            NEXT_FILE => self.next_file = Some(FileNo(reader.varint()?)),
            LOG_DURABLE => self.log_durable = Some(Lsn(reader.varint()?)),
            LOG_SEGMENTS => self.log_segments = Some(reader.varint()?),
            REMOVED => self.removed.push((reader.u8()?, FileNo(reader.varint()?))),
            ADDED => self.added.push((reader.u8()?, SstMeta::decode(reader)?)),
            ADDED_STAMPED => {
                let level = reader.u8()?;
                let meta = SstMeta::decode(reader)?;
                self.added.push((level, SstMeta { stamped: true, ..meta }));
            }
            tag @ (ADDED_SHARED | ADDED_STAMPED_SHARED) => {
                let level = reader.u8()?;
                let meta = SstMeta::decode(reader)?.decode_shares(reader)?;
                self.added.push((level, SstMeta { stamped: tag == ADDED_STAMPED_SHARED, ..meta }));
            }
            DROPPED => self.dropped.push(index(reader)?),
            UNDROPPED => self.undropped.push(index(reader)?),
            ENCRYPTION => {
                let index = index(reader)?;
                let key = u32::try_from(reader.varint()?).ok()?;
                self.encryption.push((index, (key > 0).then_some(key)));
            }
            SUPERSEDED => {
                let no = FileNo(reader.varint()?);
                let superseded = Superseded { bytes: reader.varint()?, until: SeqNo(reader.varint()?) };
                self.added.iter_mut().rfind(|(_, meta)| meta.no == no)?.1.superseded = superseded;
            }
            _ => return None,
        }
        Some(())
    }
}

fn encode_added(level: u8, meta: &SstMeta, out: &mut Vec<u8>) {
    let tag = match (meta.stamped, meta.is_shared()) {
        (true, false) => ADDED_STAMPED,
        (true, true) => ADDED_STAMPED_SHARED,
        (false, true) => ADDED_SHARED,
        (false, false) => ADDED,
    };
    out.extend([tag, level]);
    meta.encode(out);
    if meta.is_shared() {
        meta.encode_shares(out);
    }
}

fn encode_encrypted(level: u8, meta: &SstMeta, key: KeyVersion, out: &mut Vec<u8>) {
    let flags = if meta.stamped { STAMPED } else { 0 } | if meta.is_shared() { SHARED } else { 0 };
    out.extend([ADDED_ENCRYPTED, level, flags]);
    meta.encode(out);
    if meta.is_shared() {
        meta.encode_shares(out);
    }
    put_varint(out, u64::from(key.id));
    put_varint(out, u64::from(key.version));
}

fn decode_encrypted(reader: &mut Reader<'_>) -> Option<(u8, SstMeta)> {
    if reader.u8()? != ADDED_ENCRYPTED {
        return None;
    }
    let (level, flags) = (reader.u8()?, reader.u8()?);
    if flags & !(STAMPED | SHARED) != 0 {
        return None;
    }
    let mut meta = SstMeta::decode(reader)?;
    if flags & SHARED != 0 {
        meta = meta.decode_shares(reader)?;
    }
    let mut number = || u32::try_from(reader.varint()?).ok();
    let key = Some(KeyVersion { id: number()?, version: number()? });
    Some((level, SstMeta { stamped: flags & STAMPED != 0, key, ..meta }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is superseded in a file goes with the edit that adds it, and with no other file.
    #[test]
    fn superseded_bytes_round_trip_and_belong_to_a_file_of_the_edit() {
        let meta = |no: u64, bytes: u64| SstMeta {
            no: FileNo(no),
            index: IndexId(16),
            file_bytes: 4096,
            smallest: b"\0\0\0\x10a".to_vec(),
            largest: b"\0\0\0\x10b".to_vec(),
            min_seq: SeqNo(1),
            max_seq: SeqNo(9),
            entries: 5,
            tombstones: 0,
            raw_bytes: 500,
            stamped: false,
            key: None,
            superseded: Superseded { bytes, until: SeqNo(bytes / 40) },
            shares: Default::default(),
        };
        let edit = VersionEdit { added: vec![(6, meta(3, 280)), (6, meta(4, 0))], ..VersionEdit::default() };
        let (keys, path) = (Keyring::new(None), Path::new("/MANIFEST"));
        let mut bytes = Vec::new();
        edit.encode(&keys, path, &mut bytes).unwrap();
        assert_eq!(bytes[bytes.len() - 5..], [SUPERSEDED, 3, 0x98, 2, 7]);
        assert_eq!(VersionEdit::decode(&mut Reader::new(&bytes), &keys, path).unwrap(), edit);
        let stray = [SUPERSEDED, 3, 0x98, 2, 7];
        assert!(VersionEdit::decode(&mut Reader::new(&stray), &keys, path).is_err());
    }
}
