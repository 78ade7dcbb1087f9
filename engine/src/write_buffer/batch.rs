//! Batches as the log stores them: operations, or the files of a large transaction. docs/develop/format/batch.md has the bytes.
//!
//! Invariant: malformed bytes are told, never guessed about.
//!
//! Rejected: a batch of both kinds (a large transaction writes its last operations to files, too).

use crate::base::codec::{Reader, put_varint};
use crate::base::{KeyVersion, Kind};
use crate::sst::SstMeta;

/// First byte of a batch that names files, where another has the kind of its first operation.
const FILE: u8 = 2;
/// The same of a file with keys of several indexes.
const SHARED_FILE: u8 = 3;
/// Added to these if the file is encrypted: behind its description stands its master key.
const ENCRYPTED: u8 = 4;
const ENCRYPTED_FILE: u8 = FILE + ENCRYPTED;
const ENCRYPTED_SHARED_FILE: u8 = SHARED_FILE + ENCRYPTED;

/// Encodes a batch that names the files of a large transaction.
pub(crate) fn encode_files(files: &[SstMeta]) -> Vec<u8> {
    let mut batch = Vec::new();
    for meta in files {
        let kind = if meta.is_shared() { SHARED_FILE } else { FILE };
        batch.push(kind + if meta.key.is_some() { ENCRYPTED } else { 0 });
        meta.encode(&mut batch);
        if meta.is_shared() {
            meta.encode_shares(&mut batch);
        }
        if let Some(key) = meta.key {
            put_varint(&mut batch, u64::from(key.id));
            put_varint(&mut batch, u64::from(key.version));
        }
    }
    batch
}

/// The files that a batch names: empty if it consists of operations, `None` if its bytes make no sense.
pub(crate) fn files_of(batch: &[u8]) -> Option<Vec<SstMeta>> {
    let mut files = Vec::new();
    if matches!(batch.first(), Some(&(FILE | SHARED_FILE | ENCRYPTED_FILE | ENCRYPTED_SHARED_FILE))) {
        let mut reader = Reader::new(batch);
        while !reader.is_empty() {
            let kind = reader.u8()?;
            let mut meta = SstMeta::decode(&mut reader)?;
            match kind {
                FILE | ENCRYPTED_FILE => {}
                SHARED_FILE | ENCRYPTED_SHARED_FILE => meta = meta.decode_shares(&mut reader)?,
                _ => return None,
            }
            if kind >= ENCRYPTED {
                let mut number = || u32::try_from(reader.varint()?).ok();
                meta.key = Some(KeyVersion { id: number()?, version: number()? });
            }
            files.push(meta);
        }
    }
    Some(files)
}

/// Walks the operations of an encoded batch; stops with `None` in the middle of malformed bytes.
pub(crate) struct BatchReader<'a>(Reader<'a>);

impl<'a> BatchReader<'a> {
    pub fn new(batch: &'a [u8]) -> BatchReader<'a> {
        BatchReader(Reader::new(batch))
    }

    /// True once every byte has been understood.
    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for BatchReader<'a> {
    type Item = (Kind, &'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut reader = self.0;
        let kind = Kind::from_byte(reader.u8()?)?;
        let key = reader.bytes()?;
        if key.len() < crate::base::IndexId::LEN {
            return None;
        }
        let value = if kind == Kind::Put { reader.bytes()? } else { &[] };
        self.0 = reader;
        Some((kind, key, value))
    }
}
