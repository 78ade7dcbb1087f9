//! What the manifest keeps, as a value: it changes by edits, and has an encoding as a whole.
//!
//! The format number that is written is the lowest that can say which features the store uses: 3, which implies some, or 4,
//! which lists them. So a program that knows format 3 opens a store for as long as that has nothing such a program would misread.

use std::collections::BTreeSet;

use super::VersionEdit;
use super::change::check;
use super::feature::{Feature, Features};
use crate::base::codec::{Reader, put_varint};
use crate::base::{FileNo, IndexId, Lsn, SeqNo};
use crate::sst::SstMeta;

/// The lowest format that is written; it implies its features.
const FORMAT_IMPLYING: u32 = 3;
/// The format that lists the store's features.
const FORMAT_LISTING: u32 = 4;
/// The formats that this code reads, oldest first.
pub const FORMATS: &[u32] = &[1, 2, FORMAT_IMPLYING, FORMAT_LISTING];

/// Why a snapshot is not read.
#[derive(PartialEq, Eq, Debug)]
pub enum Unread {
    /// Its bytes make no sense.
    Damaged(String),
    /// It needs a program that knows more, as the sentence says.
    Unknown(String),
}

/// The whole state that the manifest keeps.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// What a program must know to use the store.
    pub features: Features,
    /// Size of the log's segments, chosen when the store was created.
    pub log_segment_bytes: u64,
    /// SSTs with their levels, by number.
    pub files: Vec<(u8, SstMeta)>,
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
}

impl State {
    /// The state of a new store.
    pub fn new(log_segment_bytes: u64) -> State {
        State {
            features: Features::implied(FORMAT_IMPLYING),
            log_segment_bytes,
            files: Vec::new(),
            log_start: Lsn(0),
            flushed_seq: SeqNo::ZERO,
            next_file: FileNo(1),
            dropped: BTreeSet::new(),
            log_durable: Lsn(0),
            log_segments: 0,
        }
    }

    fn find(&self, no: FileNo) -> Option<(u8, &SstMeta)> {
        let at = self.files.binary_search_by_key(&no, |(_, meta)| meta.no).ok()?;
        Some((self.files[at].0, &self.files[at].1))
    }

    /// Changes the state, or says why the edit does not fit; then the state is as before.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<(), String> {
        if edit.log_start.is_some_and(|v| v < self.log_start)
            || edit.flushed_seq.is_some_and(|v| v < self.flushed_seq)
            || edit.next_file.is_some_and(|v| v < self.next_file)
            || edit.log_durable.is_some_and(|v| v < self.log_durable)
        {
            return Err("a mark goes back".to_owned());
        }
        check(edit, |no| self.find(no))?;
        let removed: BTreeSet<FileNo> = edit.removed.iter().map(|&(_, no)| no).collect();
        self.files.retain(|(_, meta)| !removed.contains(&meta.no));
        self.files.extend(edit.added.iter().cloned());
        self.files.sort_by_key(|(_, meta)| meta.no);
        self.log_start = edit.log_start.unwrap_or(self.log_start);
        self.flushed_seq = edit.flushed_seq.unwrap_or(self.flushed_seq);
        self.next_file = edit.next_file.unwrap_or(self.next_file);
        self.log_durable = edit.log_durable.unwrap_or(self.log_durable);
        self.log_segments = edit.log_segments.unwrap_or(self.log_segments);
        self.dropped.extend(&edit.dropped);
        for index in &edit.undropped {
            self.dropped.remove(index);
        }
        Ok(())
    }

    /// The format number that says what the store uses.
    pub fn format(&self) -> u32 {
        match self.features.are_within(&Features::implied(FORMAT_IMPLYING)) {
            true => FORMAT_IMPLYING,
            false => FORMAT_LISTING,
        }
    }

    /// Appends it as the content of a snapshot.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.format()));
        put_varint(out, self.log_segment_bytes);
        if self.format() == FORMAT_LISTING {
            self.features.encode(out);
        }
        let edit = VersionEdit {
            added: self.files.clone(),
            log_start: Some(self.log_start),
            flushed_seq: Some(self.flushed_seq),
            next_file: Some(self.next_file),
            dropped: self.dropped.iter().copied().collect(),
            log_durable: Some(self.log_durable).filter(|&lsn| lsn > Lsn(0)),
            log_segments: Some(self.log_segments).filter(|&number| number > 0),
            ..VersionEdit::default()
        };
        edit.encode(out);
    }

    /// Reads what `encode` wrote, for a program that knows the engine's features and `known`.
    pub fn decode(reader: &mut Reader<'_>, known: &[Feature]) -> Result<State, Unread> {
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
            listed.iter().for_each(|feature| state.features.add(feature));
        }
        let edit = VersionEdit::decode(reader).ok_or_else(malformed)?;
        state.apply(&edit).map_err(Unread::Damaged)?;
        Ok(state)
    }
}
