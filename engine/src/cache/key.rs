//! The key of a block, its file and its offset, and the hash that it brings along.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Marks the offset under which a second form of a block is kept; no file is that long.
pub const SECOND_FORM: u64 = 1 << 63;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub file: u64,
    pub offset: u64,
}

impl Key {
    pub fn is_second(self) -> bool {
        self.offset & SECOND_FORM != 0
    }

    pub fn hash64(self) -> u64 {
        // Offsets are dense and file numbers small: one wide multiplication spreads both over all bits.
        let a = self.offset ^ 0x9e37_79b9_7f4a_7c15;
        let b = self.file.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ 0xa076_1d64_78bd_642f;
        let wide = u128::from(a) * u128::from(b);
        let folded = (wide as u64) ^ ((wide >> 64) as u64);
        folded ^ (folded >> 29)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash64());
    }
}

/// Passes on the hash that [`Key`] computed itself.
#[derive(Default)]
pub(super) struct Through(u64);

impl Hasher for Through {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

pub(super) type Map<K, T> = HashMap<K, T, BuildHasherDefault<Through>>;
