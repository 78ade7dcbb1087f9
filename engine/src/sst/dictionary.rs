//! Dictionaries: what the blocks of a file have in common, kept once for all of them.
//!
//! A block of 8 KiB is little for zstd: it describes its codes anew in each, and finds no repetition that is not in the same
//! block. A dictionary holds both: the codes, and some KiB of what recurs. It is trained from blocks of a file (the "fast cover"
//! algorithm of zstd's dictionary builder: segments with the most frequent groups of eight bytes), in a few milliseconds. Each file
//! that is packed by it has it behind the data, twice, since without it no such block can be read.
//!
//! In memory it takes some 30 KB, most of them tables for the codes, and goes through the block cache. So the next files of
//! an index are packed by the same one ([`Dictionaries`]), which is there once for all of them, under a hash of its bytes.
//! After [`FILES_MAX`] files another one is trained: rows change, and what was deleted must not stay in dictionaries for ever.
//!
//! # Invariants
//!
//! A file needs nothing outside of it. The same samples give the same dictionary. What is read is believed when its checksum is right
//! and zstd takes it.
//!
//! # Rejected
//!
//! A dictionary for each index, kept in the store (a file would depend on something outside of it, in backups and when it is taken
//! apart); another one for each file (files are a sixteenth of the memory, so hundreds of them are read: their tables would fill it);
//! the first block of the file as it is (two thirds of what this saves, and no block is unpacked sooner); zstd's own search
//! for the best parameters (ten times as long, for a fiftieth).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use zstd::zstd_safe::{CDict, DDict, zstd_sys};

use super::block::Shuffle;
use crate::base::{FileNo, IndexId};
use crate::cache::SECOND_FORM;

/// Length of a dictionary. Twice as much saves no more than its place, half saves half.
const BYTES: usize = 4 << 10;
/// No dictionary that is read is shorter: zstd takes what has no room for a number for mere content.
const BYTES_MIN: usize = 9;
/// Nor longer.
pub(super) const BYTES_MAX: usize = 64 << 10;
/// Fewer blocks tell nothing about others.
const SAMPLES_MIN: usize = 32;
/// What a dictionary begins with.
const MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];
/// Its number, which each frame repeats. One of up to 255 takes a byte there; which file it belongs to is known anyway.
const ID: u32 = 1;

/// So many files of an index are packed by one dictionary.
const FILES_MAX: u32 = 64;
/// Dictionaries of so many groups are remembered, of 4 KiB each.
const GROUPS_MAX: usize = 256;
/// The cache has dictionaries under this number instead of their files'.
pub(super) const OF_ALL_FILES: FileNo = FileNo(u64::MAX);

/// A dictionary as it is stored, and which blocks it is for.
#[derive(Clone)]
pub(super) struct Stored {
    pub bytes: Arc<[u8]>,
    /// How these are shuffled.
    pub shuffle: Shuffle,
}

/// Whose files share a dictionary: those of an index, and of these the encrypted ones apart. A dictionary has pieces of rows in it,
/// which must not get into a file that is not encrypted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub index: IndexId,
    pub is_encrypted: bool,
}

/// The dictionaries of the newest files, by [`Group`]: who writes the next file of one takes it up.
#[derive(Default)]
pub struct Dictionaries(Mutex<BTreeMap<Group, (Stored, u32)>>);

impl Dictionaries {
    /// The one for another file of the group.
    pub(super) fn offer(&self, group: Group) -> Option<Stored> {
        self.0.lock().get(&group).map(|(stored, _)| stored.clone())
    }

    /// A file of the group has this one; whether it was trained with it.
    pub(super) fn note(&self, group: Group, stored: Stored, is_new: bool) {
        let mut known = self.0.lock();
        if !is_new {
            if let Some((newest, files)) = known.get_mut(&group)
                && Arc::ptr_eq(&newest.bytes, &stored.bytes)
            {
                *files += 1;
                if *files >= FILES_MAX {
                    known.remove(&group);
                }
            }
            return;
        }
        if known.len() >= GROUPS_MAX && !known.contains_key(&group) {
            // Which one goes does not matter: another is trained with the next file.
            known.pop_first();
        }
        known.insert(group, (stored, 1));
    }
}

/// Under which number the cache has the dictionary.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    let digest = Sha256::digest(bytes);
    let first = digest.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    first & !SECOND_FORM
}

/// A dictionary to pack blocks by.
pub(super) struct Packing {
    pub stored: Stored,
    pub tables: CDict<'static>,
}

impl Packing {
    /// Trained from `samples`, blocks shuffled in this way, which lie one behind the other and have these lengths; `None` where they
    /// are too few, or have nothing in common.
    pub fn train(samples: &[u8], lengths: &[usize], shuffle: Shuffle, level: i32) -> Option<Packing> {
        let count = u32::try_from(lengths.len()).ok()?;
        if lengths.len() < SAMPLES_MIN || lengths.iter().sum::<usize>() != samples.len() {
            return None;
        }
        let mut bytes = vec![0; BYTES];
        let parameters = zstd_sys::ZDICT_fastCover_params_t {
            k: 200,
            d: 8,
            f: 16,
            steps: 0,
            nbThreads: 0,
            splitPoint: 0.0,
            accel: 4,
            shrinkDict: 0,
            shrinkDictMaxRegression: 0,
            zParams: zstd_sys::ZDICT_params_t { compressionLevel: level, notificationLevel: 0, dictID: ID },
        };
        // SAFETY: the buffers are as long as stated; `lengths` has `count` entries, which add up to the length of `samples`.
        let len = unsafe {
            zstd_sys::ZDICT_trainFromBuffer_fastCover(
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                samples.as_ptr().cast(),
                lengths.as_ptr(),
                count,
                parameters,
            )
        };
        // An error is a number beyond all lengths.
        if len > bytes.len() {
            return None;
        }
        bytes.truncate(len);
        Packing::by(Stored { bytes: bytes.into(), shuffle }, level)
    }

    /// By one that was trained before.
    pub fn by(stored: Stored, level: i32) -> Option<Packing> {
        let tables = CDict::try_create(&stored.bytes, level)?;
        Dictionary::is_one(&stored.bytes).then_some(Packing { stored, tables })
    }
}

/// A dictionary to unpack blocks by.
pub struct Dictionary {
    tables: DDict<'static>,
}

impl Dictionary {
    /// From its stored form.
    pub(super) fn parse(bytes: &[u8]) -> Result<Dictionary, &'static str> {
        if !Dictionary::is_one(bytes) {
            return Err("no dictionary where one was expected");
        }
        let tables = DDict::try_create(bytes).ok_or("a dictionary that zstd refuses")?;
        Ok(Dictionary { tables })
    }

    /// Whether these bytes, which are intact, are those of a dictionary.
    pub(super) fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC) && (BYTES_MIN..=BYTES_MAX).contains(&bytes.len())
    }

    pub(super) fn tables(&self) -> &DDict<'static> {
        &self.tables
    }

    /// Bytes of memory.
    pub(super) fn charge(&self) -> usize {
        size_of::<Dictionary>() + self.tables.sizeof()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_and_noise_give_none() {
        let text: Vec<u8> = b"a warehouse, a district, a customer, ".iter().copied().cycle().take(32 << 10).collect();
        let lengths = |count: usize| vec![1 << 10; count];
        let train = |samples: &[u8], lengths: &[usize]| Packing::train(samples, lengths, Shuffle::Rows, 1);
        assert!(train(&text[..31 << 10], &lengths(31)).is_none());
        assert!(train(&text, &lengths(31)).is_none());
        assert!(train(&[], &[]).is_none());
    }

    /// What the rows of deleted files had must not stay for ever, and memory is bounded.
    #[test]
    fn a_dictionary_is_for_so_many_files_and_so_many_indexes_have_one() {
        let dictionaries = Dictionaries::default();
        let stored = |byte: u8| Stored { bytes: Arc::from([byte; 9]), shuffle: Shuffle::Columns };
        let of = |index| Group { index: IndexId(index), is_encrypted: false };
        let (first, second) = (stored(1), stored(2));
        dictionaries.note(of(3), first.clone(), true);
        dictionaries.note(of(3), second.clone(), true);
        // Files that were begun before there was another one, and those that were offered it and do without, do not count.
        dictionaries.note(of(3), first, false);
        let mut files = 1;
        while let Some(offered) = dictionaries.offer(of(3)) {
            assert!(Arc::ptr_eq(&offered.bytes, &second.bytes) && dictionaries.offer(of(3)).is_some());
            dictionaries.note(of(3), offered, false);
            files += 1;
        }
        assert_eq!(files, FILES_MAX);
        for index in 0..2 * GROUPS_MAX as u32 {
            dictionaries.note(of(index), stored(3), true);
            assert!(dictionaries.offer(of(index)).is_some());
        }
        assert_eq!(dictionaries.0.lock().len(), GROUPS_MAX);
    }

    #[test]
    fn what_is_no_dictionary_is_refused() {
        for bytes in [&b""[..], b"abcd", &MAGIC, &[&MAGIC[..], &[0xff; 100]].concat()] {
            assert!(Dictionary::parse(bytes).is_err());
        }
    }
}
