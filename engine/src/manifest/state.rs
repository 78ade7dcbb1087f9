//! What the manifest says, as values: the marks of a store, and the marks with the files, as a manifest file is read. Both change by
//! edits, and together they have an encoding, the snapshot.
//!
//! Of a store that is open the marks are here and the files in its [`Version`](super::Version), once: a [`State`] is what a manifest
//! file amounts to while it is read, from which the version is made.
//!
//! The format number that is written is the lowest that can say which features the store uses: 3, which implies some, or 4,
//! which lists them. So a program that knows format 3 opens a store for as long as that has nothing such a program would misread.

use std::collections::{BTreeMap, BTreeSet};

use std::path::Path;

use super::VersionEdit;
use super::change::check;
use super::edit::Undecoded;
use super::feature::{Feature, Features};
use crate::base::codec::{Reader, put_varint};
use crate::base::{Error, FileNo, IndexId, Lsn, SeqNo};
use crate::crypt::Keyring;
use crate::sst::SstMeta;

/// The lowest format that is written; it implies its features.
const FORMAT_IMPLYING: u32 = 3;
/// The format that lists the store's features.
const FORMAT_LISTING: u32 = 4;
/// The formats that this code reads, oldest first.
pub const FORMATS: &[u32] = &[1, 2, FORMAT_IMPLYING, FORMAT_LISTING];

/// Why a snapshot is not read.
#[derive(Debug)]
pub enum Unread {
    /// Its bytes make no sense.
    Damaged(String),
    /// It needs a program that knows more, as the sentence says.
    Unknown(String),
    /// It needs a key that is missing.
    Key(Error),
}

/// What a store states beside its files.
#[derive(Clone, PartialEq, Debug)]
pub struct Marks {
    /// What a program must know to use the store.
    pub features: Features,
    /// Size of the log's segments, chosen when the store was created.
    pub log_segment_bytes: u64,
    /// Recovery reads the log from here.
    pub log_start: Lsn,
    /// All commits up to this one are in SSTs.
    pub flushed_seq: SeqNo,
    /// Numbers from this one on are unused.
    pub next_file: FileNo,
    /// Indexes whose keys are void, though there may still be some.
    pub dropped: BTreeSet<IndexId>,
    /// The log was durable at least up to here.
    pub log_durable: Lsn,
    /// Files of the log were made for the segments below this number: from the log's end on none may be missing.
    pub log_segments: u64,
    /// Master keys under which the files of indexes are encrypted.
    pub encryption: BTreeMap<IndexId, u32>,
}

impl Marks {
    /// The marks of a new store.
    pub fn new(log_segment_bytes: u64) -> Marks {
        Marks {
            features: Features::implied(FORMAT_IMPLYING),
            log_segment_bytes,
            log_start: Lsn(0),
            flushed_seq: SeqNo::ZERO,
            next_file: FileNo(1),
            dropped: BTreeSet::new(),
            log_durable: Lsn(0),
            log_segments: 0,
            encryption: BTreeMap::new(),
        }
    }

    /// Says why the edit does not fit, if it does not.
    pub fn check(&self, edit: &VersionEdit) -> Result<(), String> {
        if edit.log_start.is_some_and(|v| v < self.log_start)
            || edit.flushed_seq.is_some_and(|v| v < self.flushed_seq)
            || edit.next_file.is_some_and(|v| v < self.next_file)
            || edit.log_durable.is_some_and(|v| v < self.log_durable)
        {
            return Err("a mark goes back".to_owned());
        }
        Ok(())
    }

    /// Moves the marks as an edit says that fits.
    pub fn advance(&mut self, edit: &VersionEdit) {
        self.log_start = edit.log_start.unwrap_or(self.log_start);
        self.flushed_seq = edit.flushed_seq.unwrap_or(self.flushed_seq);
        self.next_file = edit.next_file.unwrap_or(self.next_file);
        self.log_durable = edit.log_durable.unwrap_or(self.log_durable);
        self.log_segments = edit.log_segments.unwrap_or(self.log_segments);
        self.dropped.extend(&edit.dropped);
        for index in &edit.undropped {
            self.dropped.remove(index);
            self.encryption.remove(index);
        }
        for &(index, key) in &edit.encryption {
            match key {
                Some(key) => self.encryption.insert(index, key),
                None => self.encryption.remove(&index),
            };
        }
    }

    /// The format number that says what the store uses.
    pub fn format(&self) -> u32 {
        match self.features.are_within(&Features::implied(FORMAT_IMPLYING)) {
            true => FORMAT_IMPLYING,
            false => FORMAT_LISTING,
        }
    }

    /// Appends the marks and the files, in any order, as the content of a snapshot at `path`.
    pub fn encode<'a>(
        &self,
        files: impl Iterator<Item = (u8, &'a SstMeta)>,
        keys: &Keyring,
        path: &Path,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        put_varint(out, u64::from(self.format()));
        put_varint(out, self.log_segment_bytes);
        if self.format() == FORMAT_LISTING {
            self.features.encode(out);
        }
        let mut added: Vec<(u8, SstMeta)> = files.map(|(level, meta)| (level, meta.clone())).collect();
        added.sort_by_key(|(_, meta)| meta.no);
        let edit = VersionEdit {
            added,
            log_start: Some(self.log_start),
            flushed_seq: Some(self.flushed_seq),
            next_file: Some(self.next_file),
            dropped: self.dropped.iter().copied().collect(),
            log_durable: Some(self.log_durable).filter(|&lsn| lsn > Lsn(0)),
            log_segments: Some(self.log_segments).filter(|&number| number > 0),
            encryption: self.encryption.iter().map(|(&index, &key)| (index, Some(key))).collect(),
            ..VersionEdit::default()
        };
        edit.encode(keys, path, out)
    }
}

/// What a manifest file amounts to. Levels are filled in here without a look at which files overlap, which
/// [`Version::new`](super::Version::new) checks when all edits are read.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// All but the files.
    pub marks: Marks,
    /// SSTs with their levels.
    pub files: BTreeMap<FileNo, (u8, SstMeta)>,
}

impl State {
    /// The state of a new store.
    pub fn new(log_segment_bytes: u64) -> State {
        State { marks: Marks::new(log_segment_bytes), files: BTreeMap::new() }
    }

    /// Changes the state, or says why the edit does not fit; then the state is as before.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<(), String> {
        check(edit, |no| self.files.get(&no).map(|(level, meta)| (*level, meta)))?;
        self.marks.check(edit)?;
        self.marks.advance(edit);
        for (_, no) in &edit.removed {
            self.files.remove(no);
        }
        self.files.extend(edit.added.iter().map(|(level, meta)| (meta.no, (*level, meta.clone()))));
        Ok(())
    }

    /// Reads what [`Marks::encode`] wrote, for a program that knows the engine's features and `known`.
    pub fn decode(reader: &mut Reader<'_>, known: &[Feature], keys: &Keyring, path: &Path) -> Result<State, Unread> {
        let malformed = || Unread::Damaged("snapshot malformed".to_owned());
        let format = reader.varint().and_then(|format| u32::try_from(format).ok()).ok_or_else(malformed)?;
        if !FORMATS.contains(&format) {
            return Err(Unread::Unknown(format!("store format {format}; known are {FORMATS:?}")));
        }
        let mut state = State::new(reader.varint().ok_or_else(malformed)?);
        if format == FORMAT_LISTING {
            let listed = Features::decode(reader).ok_or_else(malformed)?;
            // Only they say how to read what follows.
            if let Some(refusal) = listed.refusal(known) {
                return Err(Unread::Unknown(refusal));
            }
            // What is written from now on has those that a new store has.
            listed.iter().for_each(|feature| state.marks.features.add(feature));
        }
        let edit = VersionEdit::decode(reader, keys, path).map_err(|undecoded| match undecoded {
            Undecoded::Malformed => malformed(),
            Undecoded::Key(error) => Unread::Key(error),
        })?;
        state.apply(&edit).map_err(Unread::Damaged)?;
        Ok(state)
    }
}
