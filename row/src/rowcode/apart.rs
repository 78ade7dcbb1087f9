//! Long BLOBs left where they are.
//!
//! The row of a record with a value of a gigabyte is not put together in memory: its bytes are encoded without the long values,
//! which stay in the server's memory, and whoever writes the row takes all the pieces in turn.

use std::ptr;

/// BLOBs from this length on stay apart, in bytes.
pub const APART_FROM: usize = 64 << 10;

/// The values that are not among the bytes of a row, each with the number of bytes before it.
#[derive(Default)]
pub struct Apart<'r>(Vec<(usize, &'r [u8])>);

impl<'r> Apart<'r> {
    pub(super) fn push(&mut self, at: usize, value: &'r [u8]) {
        self.0.push((at, value));
    }

    /// True if the bytes are the row.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Length of the values.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, value)| value.len()).sum()
    }

    /// The row in pieces, given its bytes.
    pub fn parts<'a>(&self, bytes: &'a [u8]) -> Vec<&'a [u8]>
    where
        'r: 'a,
    {
        let mut parts = Vec::with_capacity(2 * self.0.len() + 1);
        let mut from = 0;
        for &(at, value) in &self.0 {
            parts.extend([&bytes[from..at], value]);
            from = at;
        }
        parts.push(&bytes[from..]);
        parts
    }

    /// True if the row with these bytes is `whole`.
    #[inline]
    pub fn equals(&self, bytes: &[u8], whole: &[u8]) -> bool {
        if self.is_empty() { bytes == whole } else { self.pieces_equal(bytes, whole) }
    }

    fn pieces_equal(&self, bytes: &[u8], whole: &[u8]) -> bool {
        // A value that did not change is often the very same memory.
        let same = |a: &[u8], b: &[u8]| ptr::eq(a, b) || a == b;
        let mut rest = whole;
        let starts = self.parts(bytes).into_iter().all(|part| match rest.split_at_checked(part.len()) {
            Some((front, after)) if same(front, part) => {
                rest = after;
                true
            }
            _ => false,
        });
        starts && rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_row() {
        let row = |values: &[(usize, &'static str)]| -> Apart<'static> {
            let mut apart = Apart::default();
            values.iter().for_each(|&(at, value)| apart.push(at, value.as_bytes()));
            apart
        };
        let none = Apart::default();
        assert!(none.equals(b"abc", b"abc") && !none.equals(b"abc", b"abcd") && none.parts(b"abc") == [b"abc"]);
        let two = row(&[(1, "XX"), (3, "YYY")]);
        assert_eq!(two.parts(b"abc").concat(), b"aXXbcYYY");
        assert_eq!(two.len(), 5);
        for (whole, expected) in
            [("aXXbcYYY", true), ("aXXbcYY", false), ("aXXbcYYYY", false), ("aXZbcYYY", false), ("", false)]
        {
            assert_eq!(two.equals(b"abc", whole.as_bytes()), expected, "{whole}");
        }
    }
}
