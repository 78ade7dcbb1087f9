//! Gaps that a transaction has locked, and what becomes of them when a user prepares it.
//!
//! A prepared transaction reads no more, and may stay for days. The server has logged its statements by then: who inserts into what they have
//! read comes after them there, too. So intervals are given up, and with them the locks of keys that are not there. Not at SERIALIZABLE, where
//! what a transaction has read stays what it is until its end.

use super::Session;
use crate::isolation::Isolation;
use crate::kv::Unread;

/// Keys of more bytes together than this are not noted: their locks stay until the transaction ends.
const BYTES_MAX: usize = 1 << 20;

/// Keys, one behind the other.
#[derive(Default)]
pub(super) struct AbsentKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl AbsentKeys {
    fn note(&mut self, key: &[u8]) {
        if self.bytes.len() + key.len() <= BYTES_MAX {
            self.bytes.extend_from_slice(key);
            self.ends.push(self.bytes.len());
        }
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.bytes[begin..end])
    }
}

impl Session {
    /// The transaction keeps the lock of a key that it has looked for, and under which it has found nothing.
    pub(crate) fn note_absent(&mut self, key: &[u8]) {
        self.absent.note(key);
    }

    /// The transaction has been prepared by a user.
    pub(super) fn give_up_gaps(&mut self) {
        if self.isolation == Isolation::Serializable {
            return;
        }
        self.txn.unlock_ranges();
        let absent = std::mem::take(&mut self.absent);
        for key in absent.iter() {
            // What it has brought in meanwhile, or taken away, is its own. A lock too many where the answer cannot be had.
            let is_there = || self.txn.get(key, self.engine().visible(), &mut Unread);
            if matches!(self.txn.wrote(key), Ok(false)) && matches!(is_there(), Ok(false)) {
                self.unlock(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_noted_one_by_one_up_to_a_bound() {
        let mut keys = AbsentKeys::default();
        assert_eq!(keys.iter().count(), 0);
        keys.note(b"one");
        keys.note(b"");
        keys.note(b"three");
        assert_eq!(keys.iter().collect::<Vec<_>>(), [b"one".as_slice(), b"", b"three"]);
        (0..2000).for_each(|_| keys.note(&[0; 1000]));
        assert!(keys.bytes.len() <= BYTES_MAX && keys.iter().count() > 1000);
        keys.clear();
        assert_eq!(keys.iter().count(), 0);
    }
}
