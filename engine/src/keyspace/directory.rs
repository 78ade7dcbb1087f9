//! The bytes of the directory of keyspaces. docs/develop/format/keyspaces.md describes them exactly.
//!
//! The directory is an index of the store itself, so that a change of it is an ordinary atomic write. Values start with a version
//! byte; an unknown version is refused, never guessed.
//!
//! Rejected: edits of the manifest for this (each would be a change of its format, and a sync of its own; the log has both already).

use crate::base::codec::{Reader, put_varint};
use crate::base::limits::KEY_BYTES_MAX;
use crate::base::{Error, IndexId, Result};
use crate::read;
use crate::tree::Tree;
use crate::write::WriteOp;

/// The index that holds the directory.
pub(super) const DIRECTORY: IndexId = IndexId::KEYSPACES;
/// The first id of a keyspace, and the first that none has. What is left above is for indexes of the engine's own.
pub(super) const FIRST: u32 = DIRECTORY.0 + 1;
pub(super) const END: u32 = 0xffff_0000;
/// Longest name in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

const _: () = assert!(NAME_BYTES_MAX + IndexId::LEN < KEY_BYTES_MAX);

const VERSION: u8 = 1;
const TAG_NEXT: u8 = 0;
const TAG_NAME: u8 = 1;
const TAG_DROPPED: u8 = 2;

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// The id that the next keyspace gets.
    Next(u32),
    /// There is a keyspace.
    Name(String, IndexId),
    /// There was one, of which something may be left.
    Dropped(IndexId),
}

fn key(tag: u8, rest: &[u8]) -> Vec<u8> {
    [&DIRECTORY.prefix()[..], &[tag], rest].concat()
}

fn value(id: Option<u32>) -> Vec<u8> {
    let mut value = vec![VERSION];
    if let Some(id) = id {
        put_varint(&mut value, u64::from(id));
    }
    value
}

impl Entry {
    fn key(&self) -> Vec<u8> {
        match self {
            Entry::Next(_) => key(TAG_NEXT, &[]),
            Entry::Name(name, _) => key(TAG_NAME, name.as_bytes()),
            Entry::Dropped(id) => key(TAG_DROPPED, &id.prefix()),
        }
    }

    /// The operation that writes the entry.
    pub fn put(&self) -> WriteOp {
        let value = match self {
            Entry::Next(id) => value(Some(*id)),
            Entry::Name(_, id) => value(Some(id.0)),
            Entry::Dropped(_) => value(None),
        };
        (self.key(), Some(value))
    }

    /// The operation that removes the entry.
    pub fn remove(&self) -> WriteOp {
        (self.key(), None)
    }

    /// Reads an entry. Errors: `Corruption`, `Incompatible`, with the file that it was read from.
    pub fn read(tree: &Tree, key: &[u8], value: &[u8]) -> Result<Entry> {
        let entry = match value.first() {
            Some(&VERSION) => Entry::decode(key, value).ok_or_else(|| "does not decode".to_owned()),
            Some(version) => Err(format!("has version {version}; known is {VERSION}")),
            None => Err("is empty".to_owned()),
        };
        entry.map_err(|what| {
            let path = read::file_of(tree, key).unwrap_or_else(|| tree.ssts.dir.join("log"));
            let what = format!("the entry {} of the directory of keyspaces {what}", key.escape_ascii());
            match value.first() {
                Some(&version) if version != VERSION => Error::Incompatible { path, what },
                _ => Error::corruption(&path, 0, what),
            }
        })
    }

    fn decode(key: &[u8], value: &[u8]) -> Option<Entry> {
        let (&tag, rest) = key.get(IndexId::LEN..)?.split_first()?;
        let mut value = Reader::new(value.get(1..)?);
        let mut id = || u32::try_from(value.varint()?).ok();
        let is_id = |id: &u32| (FIRST..END).contains(id);
        let entry = match tag {
            TAG_NEXT if rest.is_empty() => Entry::Next(id().filter(|id| (FIRST..=END).contains(id))?),
            TAG_NAME if (1..=NAME_BYTES_MAX).contains(&rest.len()) => {
                let name = std::str::from_utf8(rest).ok()?.to_owned();
                Entry::Name(name, IndexId(id().filter(is_id)?))
            }
            TAG_DROPPED => {
                let id = u32::from_be_bytes(rest.try_into().ok()?);
                Entry::Dropped(IndexId(Some(id).filter(is_id)?))
            }
            _ => return None,
        };
        value.is_empty().then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the fenced blocks of the description.
    fn documented() -> Vec<Vec<u8>> {
        let text = include_str!("../../../docs/develop/format/keyspaces.md");
        let blocks = text.split("```").skip(1).step_by(2);
        let bytes = |block: &str| block.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        blocks.map(bytes).collect()
    }

    fn entries() -> [Entry; 3] {
        [Entry::Next(FIRST + 1), Entry::Name("users".into(), IndexId(FIRST)), Entry::Dropped(IndexId(FIRST))]
    }

    #[test]
    fn the_documented_example_is_what_is_written() {
        let written: Vec<Vec<u8>> =
            entries().iter().map(Entry::put).flat_map(|(key, value)| [key, value.unwrap()]).collect();
        assert_eq!(documented(), written);
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for entry in entries() {
            let (key, value) = entry.put();
            let value = value.unwrap();
            assert_eq!(Entry::decode(&key, &value), Some(entry.clone()));
            for cut in 0..value.len() {
                assert_eq!(Entry::decode(&key, &value[..cut]), None, "{entry:?} cut to {cut}");
            }
            assert_eq!(Entry::decode(&key, &[&value[..], &[0]].concat()), None, "{entry:?} with more behind");
            assert_eq!(Entry::decode(&key[..IndexId::LEN], &value), None);
        }
        let id_of_another = |id: u32| Entry::decode(&key(TAG_NAME, b"x"), &value(Some(id)));
        assert!(id_of_another(FIRST).is_some() && id_of_another(END - 1).is_some());
        assert!(id_of_another(DIRECTORY.0).is_none() && id_of_another(16).is_none() && id_of_another(END).is_none());
        assert_eq!(Entry::decode(&key(TAG_NAME, &[0xff]), &value(Some(FIRST))), None, "no UTF-8");
        assert_eq!(Entry::decode(&key(TAG_NAME, &[]), &value(Some(FIRST))), None, "no name");
        assert_eq!(Entry::decode(&key(9, &[]), &value(None)), None, "unknown tag");
    }
}
