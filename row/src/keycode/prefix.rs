//! Where the keys end that begin alike.

use crate::kv::IndexId;

/// The smallest key above all keys that begin with `key`; `None` if there is none, all bytes being 0xff. As every key it is not
/// shorter than the id of an index, be it that of the next one.
pub fn prefix_end(key: &[u8]) -> Option<Vec<u8>> {
    let mut end = key.to_vec();
    prefix_end_in_place(&mut end).then_some(end)
}

/// Turns a key into its [`prefix_end`]; false (and an empty key) if there is none.
pub fn prefix_end_in_place(key: &mut Vec<u8>) -> bool {
    let least = key.len().min(IndexId::LEN);
    while let Some(last) = key.last_mut() {
        if *last < 0xff {
            *last += 1;
            if key.len() < least {
                key.resize(least, 0);
            }
            return true;
        }
        key.pop();
    }
    false
}
