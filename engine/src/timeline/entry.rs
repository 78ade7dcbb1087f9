//! The bytes of the timeline. docs/develop/format/timeline.md describes them exactly.
//!
//! It is an index of the store itself, so that a mark is durable exactly when the commits after it are, has the log's and the files'
//! checksums, and goes with checkpoints. Values start with a version byte; an unknown version is refused, never guessed.

use super::marks::Mark;
use crate::base::codec::{Reader, put_varint};
use crate::base::{IndexId, SeqNo};

/// The index that holds the timeline: the first one above those of keyspaces.
pub const TIMELINE: IndexId = IndexId(0xffff_0000);

const VERSION: u8 = 1;
const TAG_FLOOR: u8 = 0;
const TAG_MARK: u8 = 1;

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Moments up to this one are unknown, and marks with a smaller number than this are void.
    Floor(u64, SeqNo),
    Mark(Mark),
}

/// The key of a mark.
pub fn mark_key(at: u64) -> Vec<u8> {
    [&TIMELINE.prefix()[..], &[TAG_MARK], &at.to_be_bytes()].concat()
}

impl Entry {
    /// Key and value.
    pub fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let mut value = vec![VERSION];
        let key = match self {
            Entry::Floor(at, seq) => {
                put_varint(&mut value, *at);
                put_varint(&mut value, seq.0);
                [&TIMELINE.prefix()[..], &[TAG_FLOOR]].concat()
            }
            Entry::Mark(mark) => {
                put_varint(&mut value, mark.seq.0);
                mark_key(mark.at)
            }
        };
        (key, value)
    }

    /// Reads an entry; what is wrong with it otherwise, and whether that is its version.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Entry, (bool, String)> {
        match value.first() {
            Some(&VERSION) => Entry::parse(key, &value[1..]).ok_or_else(|| (false, "does not decode".to_owned())),
            Some(version) => Err((true, format!("has version {version}; known is {VERSION}"))),
            None => Err((false, "is empty".to_owned())),
        }
    }

    fn parse(key: &[u8], value: &[u8]) -> Option<Entry> {
        let (&tag, rest) = key.get(IndexId::LEN..)?.split_first()?;
        let mut reader = Reader::new(value);
        let at = match tag {
            TAG_FLOOR if rest.is_empty() => reader.varint()?,
            TAG_MARK => u64::from_be_bytes(rest.try_into().ok()?),
            _ => return None,
        };
        let seq = Some(SeqNo(reader.varint()?)).filter(|seq| *seq <= SeqNo::MAX)?;
        let entry = if tag == TAG_FLOOR { Entry::Floor(at, seq) } else { Entry::Mark(Mark { at, seq }) };
        reader.is_empty().then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::marks::NEVER;

    #[test]
    fn the_documented_example_is_what_is_written() {
        let text = include_str!("../../../docs/develop/format/timeline.md");
        let bytes = |block: &str| -> Vec<u8> {
            block.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
        };
        let documented: Vec<Vec<u8>> = text.split("```").skip(1).step_by(2).map(bytes).collect();
        let entries = [Entry::Floor(1_795_600_799, SeqNo(7)), Entry::Mark(Mark { at: 1_795_600_800, seq: SeqNo(300) })];
        let written: Vec<Vec<u8>> = entries.iter().map(Entry::encode).flat_map(|(key, value)| [key, value]).collect();
        assert_eq!(documented, written);
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let mark = Mark { at: 1_795_600_800, seq: SeqNo::MAX };
        for entry in [Entry::Floor(0, SeqNo(0)), Entry::Floor(NEVER, SeqNo::MAX), Entry::Mark(mark)] {
            let (key, value) = entry.encode();
            assert_eq!(Entry::decode(&key, &value), Ok(entry));
            for cut in 0..value.len() {
                assert!(Entry::decode(&key, &value[..cut]).is_err());
            }
            assert!(Entry::decode(&key, &[&value[..], &[0]].concat()).is_err());
            assert!(Entry::decode(&key[..key.len() - 1], &value).is_err());
            let later = [&[VERSION + 1], &value[1..]].concat();
            assert!(Entry::decode(&key, &later).is_err_and(|(is_version, _)| is_version));
        }
    }
}
