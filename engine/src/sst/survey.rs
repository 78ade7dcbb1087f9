//! What can still be read of an SST that may be damaged.
//!
//! A reader that must answer rightly stops at the first damage. Here the file is taken apart instead: each data block is a piece that
//! is intact or lost, and what is lost has a place in the file and a range of keys.
//!
//! ```text
//! footer, top-level index, partitions   each that is intact says where blocks lie, and how many versions they have
//! elsewhere                             blocks are found by their checksums (carve)
//! between the blocks                    what is not accounted for is lost
//! ```
//!
//! The dictionary, without which blocks that were packed by it are lost, is looked for where it must be, or among all that is found.
//!
//! Without footer or top-level index the whole file is carved: the partitions of the index come to light with the blocks. They are told
//! from data by what is in them: handles of what lies before them, one behind the other.
//!
//! Invariant: every version in an intact block is delivered, in the order of the file. Every byte of the data is in a piece.
//!
//! Rejected: to repair the file (what is lost would look as if it had never been).

use std::path::Path;
use std::sync::Arc;

use super::SstMeta;
use super::block::Block;
use super::carve::carve;
use super::dictionary::{BYTES_MAX, Dictionary};
use super::filter::Filter;
use super::footer::{FOOTER_BYTES, FOOTER_BYTES_MAX, Footer};
use super::frame::{self, Handle, TRAILER_BYTES};
use crate::base::codec::Reader;
use crate::base::limits::IO_ALIGN;
use crate::base::slots::Buf;
use crate::base::{Error, FileNo, Kind, Result, SeqNo};
use crate::crypt::{Cipher, Keyring, Purpose};
use crate::io::{Disk, File, Mode};

/// Bytes of a partition's row and of one of the top-level index, at least.
const ENTRY_BYTES: usize = 20;
const LARGE_ENTRY_BYTES: usize = 32;
const TOP_ENTRY_BYTES: usize = 32;
/// Behind the data the copies of a dictionary are found within so many bytes.
const DICTIONARY_WITHIN: u64 = 3 * BYTES_MAX as u64;

/// A part of the file that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostPart {
    /// Where it begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// What is wrong.
    pub what: String,
    /// Versions in it, if the index tells. `Some(0)` for what holds none: the index itself, filters.
    pub versions: Option<u64>,
}

/// A file taken apart.
pub struct Survey {
    file: Arc<dyn File>,
    no: FileNo,
    /// Its data key, if it is encrypted.
    cipher: Option<Cipher>,
    /// Its dictionary, if it has one and a copy is intact.
    dictionary: Option<Arc<Dictionary>>,
    /// Its description, if that is intact.
    pub meta: Option<SstMeta>,
    pieces: Vec<Piece>,
    /// What is wrong with all but the data.
    pub damage: Vec<LostPart>,
}

/// A part of the data.
struct Piece {
    offset: u64,
    bytes: u64,
    versions: Option<u64>,
    /// No key in it is above, if the index tells.
    upper: Vec<u8>,
    /// What is wrong with it, if that is known by now.
    fault: Option<String>,
}

/// A partition of the index, by the top-level index.
struct Partition {
    handle: Handle,
    filter: Option<Handle>,
    before: u64,
}

/// A data block, by a partition.
struct Entry {
    handle: Handle,
    before: u64,
    upper: Vec<u8>,
}

impl Survey {
    /// Takes the file at `path` apart, whatever is in it; `described` is what others say of it. With `filters` these are looked at, too:
    /// reading the data needs none.
    ///
    /// Errors: `Io` if it cannot be opened; `Incompatible` for a version that this program does not know; `Key` if it is encrypted and the
    /// key is missing. Without its footer an encrypted file is lost, since the salt of its data key is there.
    pub fn of(
        disk: &Arc<dyn Disk>,
        path: &Path,
        no: FileNo,
        described: Option<&SstMeta>,
        keys: &Keyring,
        filters: bool,
    ) -> Result<Survey> {
        let had = described.map_or(0, |meta| meta.file_bytes);
        let file = disk.open(path, Mode::Read, false)?;
        let len = file.len()?;
        let mut survey = Survey::new(file, no);
        let footer = match survey.read_footer(path, len) {
            Err(error @ Error::Incompatible { .. }) => return Err(error),
            other => other.map_err(|error| {
                let offset = len.saturating_sub(FOOTER_BYTES as u64);
                survey.lose(offset, len - offset, format!("footer: {}", told(error)), Some(0));
            }),
        };
        let Ok(footer) = footer else {
            survey.carve_all(len, None, had);
            return Ok(survey);
        };
        survey.cipher = footer.key.map(|key| keys.open(&key, Purpose::Sst, path)).transpose()?;
        survey.meta = survey.read_properties(&footer, len);
        if footer.by_dictionary {
            survey.find_dictionary(footer.data_end, len);
        }
        let top = survey.block(footer.top);
        match top {
            Ok(top) => {
                let partitions = partitions_of(&top);
                survey.walk_index(&partitions, footer.data_end, filters);
            }
            Err(error) => {
                let Handle { offset, len: bytes } = footer.top;
                survey.lose(offset, u64::from(bytes), format!("top-level index: {}", told(error)), Some(0));
                survey.carve_all(len, Some(footer.data_end), had);
            }
        }
        Ok(survey)
    }

    /// What the file says of itself; `None` if that is damaged.
    pub fn describe(disk: &Arc<dyn Disk>, path: &Path, no: FileNo, keys: &Keyring) -> Option<SstMeta> {
        let file = disk.open(path, Mode::Read, false).ok()?;
        let len = file.len().ok()?;
        let mut survey = Survey::new(file, no);
        let footer = survey.read_footer(path, len).ok()?;
        survey.cipher = footer.key.map(|key| keys.open(&key, Purpose::Sst, path)).transpose().ok()?;
        survey.read_properties(&footer, len)
    }

    fn new(file: Arc<dyn File>, no: FileNo) -> Survey {
        Survey { file, no, cipher: None, dictionary: None, meta: None, pieces: Vec::new(), damage: Vec::new() }
    }

    /// Looks for the two copies of the dictionary, which lie behind the data.
    fn find_dictionary(&mut self, data_end: u64, len: u64) {
        let end = len.min(data_end + DICTIONARY_WITHIN);
        let found = match self.read(data_end, end - data_end) {
            Ok(bytes) => carve(&bytes, data_end, self.no, self.cipher.as_ref()),
            Err(_) => self.carve_by_pages(data_end, end),
        };
        let copies = self.dictionaries_of(&found);
        let lost = match copies.as_slice() {
            [] => Some((data_end, 0, "dictionary: both copies are damaged")),
            [Handle { offset, .. }] if *offset > data_end => {
                Some((data_end, offset - data_end, "dictionary: the first copy is damaged"))
            }
            [one] => Some((one.end(), one.len.into(), "dictionary: the second copy is damaged")),
            _ => None,
        };
        if let Some((offset, bytes, what)) = lost {
            self.lose(offset, bytes, what.into(), Some(0));
        }
    }

    /// Which of these frames are dictionaries; blocks are unpacked by the first from now on.
    fn dictionaries_of(&mut self, frames: &[Handle]) -> Vec<Handle> {
        let mut copies = Vec::new();
        for &handle in frames {
            let Some(dictionary) = self.unpacked(handle).ok().and_then(|bytes| Dictionary::parse(&bytes).ok()) else {
                continue;
            };
            self.dictionary.get_or_insert_with(|| Arc::new(dictionary));
            copies.push(handle);
        }
        copies
    }

    fn lose(&mut self, offset: u64, bytes: u64, what: String, versions: Option<u64>) {
        self.damage.push(LostPart { offset, bytes, what, versions });
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<Buf> {
        let mut buf = Buf::new(bytes as usize);
        self.file.read_exact_at(&mut buf, offset)?;
        Ok(buf)
    }

    fn unpacked(&self, handle: Handle) -> Result<Buf> {
        let framed = self.read(handle.offset, u64::from(handle.len))?;
        let path = self.file.path();
        frame::unpack_by(path, self.no, handle.offset, &framed, self.cipher.as_ref(), &|| {
            let dictionary = self.dictionary.clone();
            dictionary.ok_or_else(|| Error::corruption(path, handle.offset, "packed by a dictionary, which is lost"))
        })
    }

    fn block(&self, handle: Handle) -> Result<Block> {
        Block::parse(self.unpacked(handle)?).map_err(|what| Error::corruption(self.file.path(), handle.offset, what))
    }

    fn read_footer(&self, path: &Path, len: u64) -> Result<Footer> {
        if len < IO_ALIGN as u64 {
            return Err(Error::corruption(path, len, "table file of an impossible length"));
        }
        let bytes = self.read(len - FOOTER_BYTES_MAX as u64, FOOTER_BYTES_MAX as u64)?;
        let bytes = bytes.first_chunk().ok_or_else(|| Error::corruption(path, len, "short footer"))?;
        let footer = Footer::decode(bytes, path, len)?;
        match footer.no == self.no {
            true => Ok(footer),
            false => Err(Error::corruption(path, len, format!("of file {}", footer.no))),
        }
    }

    fn read_properties(&mut self, footer: &Footer, len: u64) -> Option<SstMeta> {
        let Handle { offset, len: bytes } = footer.properties;
        let properties = match self.unpacked(footer.properties) {
            Ok(properties) => properties,
            Err(error) => {
                self.lose(offset, u64::from(bytes), format!("properties: {}", told(error)), Some(0));
                return None;
            }
        };
        let mut reader = Reader::new(&properties);
        let meta = SstMeta::decode(&mut reader);
        let meta = if footer.shared { meta.and_then(|meta| meta.decode_shares(&mut reader)) } else { meta };
        let meta = meta.filter(|meta| meta.no == self.no && meta.smallest <= meta.largest);
        if meta.is_none() {
            self.lose(offset, u64::from(bytes), "properties make no sense".into(), Some(0));
        }
        meta.map(|meta| SstMeta { file_bytes: len, ..meta })
    }

    /// Makes pieces of what the partitions say, and of what lies between.
    fn walk_index(&mut self, partitions: &[Partition], data_end: u64, filters: bool) {
        let mut read = Vec::new();
        for partition in partitions {
            let Handle { offset, len } = partition.handle;
            read.push(match self.block(partition.handle) {
                Ok(block) => Some(entries_of(&block)),
                Err(error) => {
                    self.lose(offset, u64::from(len), format!("index partition: {}", told(error)), Some(0));
                    None
                }
            });
            if let Some(handle) = partition.filter.filter(|_| filters) {
                let what = match self.unpacked(handle) {
                    Ok(bytes) => Filter::parse(&bytes).err().map(str::to_owned),
                    Err(error) => Some(told(error)),
                };
                if let Some(what) = what {
                    self.lose(handle.offset, u64::from(handle.len), format!("filter: {what}"), Some(0));
                }
            }
        }
        let all = self.meta.as_ref().map(|meta| meta.entries);
        let mut at = 0;
        for (number, entries) in read.iter().enumerate() {
            let behind = partitions.get(number + 1).map(|next| next.before).or(all);
            let Some(entries) = entries else { continue };
            let Some(first) = entries.first() else { continue };
            self.fill(at, first.handle.offset, counted(&read, partitions, number));
            for (i, entry) in entries.iter().enumerate() {
                let next = entries.get(i + 1).map(|next| next.before).or(behind);
                self.pieces.push(Piece {
                    offset: entry.handle.offset,
                    bytes: u64::from(entry.handle.len),
                    versions: next.and_then(|next| next.checked_sub(entry.before)),
                    upper: entry.upper.clone(),
                    fault: None,
                });
                at = entry.handle.end();
            }
        }
        let last = read.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let before = partitions.get(last).map(|lost| lost.before);
        self.fill(at, data_end, before.and_then(|before| all?.checked_sub(before)));
    }

    /// Carves what no partition tells of.
    fn fill(&mut self, from: u64, to: u64, versions: Option<u64>) {
        if to <= from {
            return;
        }
        let found = match self.read(from, to - from) {
            Ok(bytes) => carve(&bytes, from, self.no, self.cipher.as_ref()),
            Err(_) => self.carve_by_pages(from, to),
        };
        let mut at = from;
        let mut known = 0;
        let first_new = self.pieces.len();
        for handle in found {
            let Ok(block) = self.block(handle) else { continue };
            if content_of(&block, handle) != Content::Data {
                continue;
            }
            self.gap(at, handle.offset);
            known += block.rows() as u64;
            let versions = Some(block.rows() as u64);
            let (offset, bytes) = (handle.offset, u64::from(handle.len));
            self.pieces.push(Piece { offset, bytes, versions, upper: Vec::new(), fault: None });
            at = handle.end();
        }
        self.gap(at, to);
        let mut gaps = self.pieces[first_new..].iter_mut().filter(|piece| piece.fault.is_some());
        if let (Some(gap), None) = (gaps.next(), gaps.next()) {
            gap.versions = versions.and_then(|versions| versions.checked_sub(known));
        }
    }

    /// What a device refuses to read is left out.
    fn carve_by_pages(&self, from: u64, to: u64) -> Vec<Handle> {
        let mut found = Vec::new();
        let (mut run, mut begin, mut at) = (Vec::new(), from, from);
        while at < to {
            let end = to.min((at / IO_ALIGN as u64 + 1) * IO_ALIGN as u64);
            match self.read(at, end - at) {
                Ok(page) => run.extend_from_slice(&page),
                Err(_) => {
                    found.extend(carve(&run, begin, self.no, self.cipher.as_ref()));
                    run.clear();
                    begin = end;
                }
            }
            at = end;
        }
        found.extend(carve(&run, begin, self.no, self.cipher.as_ref()));
        found
    }

    fn gap(&mut self, from: u64, to: u64) {
        if from < to {
            let fault = Some("no intact block, and the index that would tell is damaged".to_owned());
            self.pieces.push(Piece { offset: from, bytes: to - from, versions: None, upper: Vec::new(), fault });
        }
    }

    /// Takes a file apart of which nothing says where anything is, but perhaps where its data end. It once had `had` bytes.
    fn carve_all(&mut self, len: u64, footer_says: Option<u64>, had: u64) {
        let found = match self.read(0, len) {
            Ok(bytes) => carve(&bytes, 0, self.no, self.cipher.as_ref()),
            Err(_) => self.carve_by_pages(0, len),
        };
        self.dictionaries_of(&found);
        let mut index: Vec<Entry> = Vec::new();
        let mut data_end = 0;
        let mut top = None;
        for &handle in &found {
            let Ok(block) = self.block(handle) else { continue };
            match content_of(&block, handle) {
                Content::Data => data_end = data_end.max(handle.end()),
                Content::Top => top = Some(partitions_of(&block)),
                Content::Partition => index.extend(entries_of(&block)),
            }
        }
        if let Some(top) = top {
            let first = top.iter().flat_map(|partition| partition.filter.iter().chain([&partition.handle]));
            let data_end = footer_says.or(first.map(|handle| handle.offset).min()).unwrap_or(data_end);
            return self.walk_index(&top, data_end, false);
        }
        index.sort_by_key(|entry| entry.handle.offset);
        let mut at = 0;
        for entry in &index {
            self.fill(at, entry.handle.offset, None);
            if entry.handle.offset >= at {
                let (offset, bytes) = (entry.handle.offset, u64::from(entry.handle.len));
                self.pieces.push(Piece { offset, bytes, versions: None, upper: entry.upper.clone(), fault: None });
                at = entry.handle.end();
            }
        }
        let end = footer_says.unwrap_or(data_end).max(at);
        self.fill(at, end, None);
        // Behind the last block there may be the index, or more blocks: nothing tells where the data end.
        let file_end = len.max(had);
        if end < file_end && footer_says.is_none() {
            let what = "behind the last intact block; index or rows, which cannot be told".to_owned();
            self.pieces.push(Piece {
                offset: end,
                bytes: file_end - end,
                versions: None,
                upper: Vec::new(),
                fault: Some(what),
            });
        }
    }

    /// A cursor over its versions in order, from the first one. `described` is what others say of the file, for what it does not say
    /// itself any more. All versions have the number `stamp`, if one is given.
    pub fn cursor(self: Arc<Survey>, described: Option<&SstMeta>, stamp: Option<SeqNo>) -> SurveyCursor {
        let meta = self.meta.as_ref().or(described);
        let bounds = meta.map(|meta| (meta.smallest.clone(), meta.largest.clone()));
        let (lower, upper) = bounds.map_or((Vec::new(), None), |(lower, upper)| (lower, Some(upper)));
        let mut cursor = SurveyCursor {
            survey: self,
            stamp,
            piece: 0,
            block: None,
            row: 0,
            key: Vec::new(),
            passed: lower,
            end: upper,
            lost: Vec::new(),
        };
        cursor.load();
        cursor
    }
}

/// How many versions are in the partitions before `number` that cannot be read, up to the last that can.
fn counted(read: &[Option<Vec<Entry>>], partitions: &[Partition], number: usize) -> Option<u64> {
    let first = read[..number].iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    partitions[number].before.checked_sub(partitions.get(first)?.before)
}

/// What a block is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Data,
    Partition,
    Top,
}

/// Tells blocks apart of which nothing else says what they are.
fn content_of(block: &Block, at: Handle) -> Content {
    let rows = block.rows();
    let follow = |mut handles: Box<dyn Iterator<Item = (Handle, u64)> + '_>| {
        let mut last: Option<(Handle, u64)> = None;
        handles.all(|(handle, before)| {
            let fits = handle.len as usize > TRAILER_BYTES
                && handle.end() <= at.offset
                && last.is_none_or(|(last, count)| handle.offset == last.end() && before > count);
            last = Some((handle, before));
            fits
        })
    };
    let is_index = block.newest() == SeqNo::ZERO && !block.has_tombstones();
    if !is_index {
        return Content::Data;
    }
    // First what is less often what it looks like: the entry of a large row is as long as one of the top-level index.
    let partitions = partitions_of(block);
    let is_top = (0..rows).all(|row| block.value(row as u32).len() == TOP_ENTRY_BYTES)
        && partitions.len() == rows
        && partitions.first().is_some_and(|first| first.before == 0)
        && follow(Box::new(partitions.iter().map(|partition| (partition.handle, partition.before))));
    if is_top {
        return Content::Top;
    }
    let entries = entries_of(block);
    let is_partition = (0..rows).all(|row| matches!(block.value(row as u32).len(), ENTRY_BYTES | LARGE_ENTRY_BYTES))
        && entries.len() == rows
        && follow(Box::new(entries.iter().map(|entry| (entry.handle, entry.before))));
    if is_partition { Content::Partition } else { Content::Data }
}

fn entries_of(block: &Block) -> Vec<Entry> {
    let entry = |row: u32| {
        let mut reader = Reader::new(block.value(row).get(..ENTRY_BYTES)?);
        let handle = Handle { offset: reader.u64()?, len: reader.u32()? };
        let mut upper = Vec::new();
        block.append_key(row, &mut upper);
        handle.offset.checked_add(handle.len.into())?;
        Some(Entry { handle, before: reader.u64()?, upper })
    };
    (0..block.rows() as u32).filter_map(entry).collect()
}

fn partitions_of(block: &Block) -> Vec<Partition> {
    let partition = |row: u32| {
        let mut reader = Reader::new(block.value(row));
        let handle = Handle { offset: reader.u64()?, len: reader.u32()? };
        let filter = Handle { offset: reader.u64()?, len: reader.u32()? };
        handle.offset.checked_add(handle.len.into())?;
        filter.offset.checked_add(filter.len.into())?;
        Some(Partition { handle, filter: (filter.len > 0).then_some(filter), before: reader.u64()? })
    };
    (0..block.rows() as u32).filter_map(partition).collect()
}

/// What an error says beside file and offset.
fn told(error: Error) -> String {
    match error {
        Error::Corruption { what, .. } => what,
        other => other.to_string(),
    }
}

/// Versions that were lost on the way of a cursor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostRange {
    /// Where, and what.
    pub part: LostPart,
    /// Their keys are not below this one.
    pub lower: Vec<u8>,
    /// Nor above this one, if that is known.
    pub upper: Option<Vec<u8>>,
}

/// A cursor over what is intact.
pub struct SurveyCursor {
    survey: Arc<Survey>,
    stamp: Option<SeqNo>,
    /// The piece after the one it is in.
    piece: usize,
    block: Option<Arc<Block>>,
    row: u32,
    key: Vec<u8>,
    /// The last key of the block before.
    passed: Vec<u8>,
    end: Option<Vec<u8>>,
    lost: Vec<LostRange>,
}

impl SurveyCursor {
    /// True if it stands on a version.
    pub fn valid(&self) -> bool {
        self.block.is_some()
    }

    /// The greatest number of the file's versions, if it says that.
    pub fn newest(&self) -> Option<SeqNo> {
        self.stamp.or(self.survey.meta.as_ref().map(|meta| meta.max_seq))
    }

    /// The version's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The version's number.
    pub fn seq(&self) -> SeqNo {
        let stored = self.block.as_ref().map_or(SeqNo::ZERO, |block| block.seq(self.row));
        self.stamp.unwrap_or(stored)
    }

    /// A value or a tombstone.
    pub fn kind(&self) -> Kind {
        self.block.as_ref().map_or(Kind::Delete, |block| block.kind(self.row))
    }

    /// The version's value.
    pub fn value(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| block.value(self.row))
    }

    /// What was lost on the way to where it stands and was not asked for yet.
    pub fn take_lost(&mut self) -> Vec<LostRange> {
        std::mem::take(&mut self.lost)
    }

    /// To the next version.
    pub fn next(&mut self) {
        let Some(block) = &self.block else { return };
        if (self.row as usize) + 1 < block.rows() {
            self.row += 1;
            self.stand();
        } else {
            self.passed = std::mem::take(&mut self.key);
            self.load();
        }
    }

    /// To the first version whose key is at or above `key`, forward only.
    pub fn seek(&mut self, key: &[u8]) {
        while self.valid() && self.key.as_slice() < key {
            let skips = |piece: &Piece| !piece.upper.is_empty() && piece.upper.as_slice() < key;
            // Blocks that the index says are below need not be read.
            if self.survey.pieces.get(self.piece).is_some_and(skips) {
                while self.survey.pieces.get(self.piece).is_some_and(skips) {
                    self.passed.clone_from(&self.survey.pieces[self.piece].upper);
                    self.piece += 1;
                }
                self.load();
            } else {
                self.next();
            }
        }
    }

    fn stand(&mut self) {
        self.key.clear();
        if let Some(block) = &self.block {
            block.append_key(self.row, &mut self.key);
        }
    }

    /// Stands on the first version of the next intact piece; what is lost before it is noted.
    fn load(&mut self) {
        self.block = None;
        let survey = self.survey.clone();
        let mut lost: Vec<LostRange> = Vec::new();
        while let Some(piece) = survey.pieces.get(self.piece) {
            self.piece += 1;
            let read = match &piece.fault {
                Some(what) => Err(what.clone()),
                None => survey.block(Handle { offset: piece.offset, len: piece.bytes as u32 }).map_err(told),
            };
            match read {
                Ok(block) => {
                    self.block = Some(Arc::new(block));
                    self.row = 0;
                    break;
                }
                Err(what) => {
                    let Piece { offset, bytes, versions, .. } = *piece;
                    let part = LostPart { offset, bytes, what, versions };
                    let upper = Some(piece.upper.clone()).filter(|upper| !upper.is_empty());
                    lost.push(LostRange { part, lower: self.passed.clone(), upper: upper.clone() });
                    if let Some(upper) = upper {
                        self.passed = upper;
                    }
                }
            }
        }
        self.stand();
        let behind = if self.valid() { Some(self.key.clone()) } else { self.end.clone() };
        self.lost.extend(lost.into_iter().map(|range| match range.upper {
            Some(_) => range,
            None => LostRange { upper: behind.clone(), ..range },
        }));
    }
}
