//! Filters: "this user key is certainly not in these blocks" from one cache line.
//!
//! A blocked Bloom filter. The hash of the key picks one line of 512 bits and up to seven bits in it. Compared with a
//! plain Bloom filter it costs about a fifth more false positives at ten bits per key (some 1.3% instead of 1.1%) and
//! one cache miss instead of up to seven. Rejected for now: binary fuse filters (0.4% at nine bits), whose
//! construction needs all keys of a partition at once and several times the build time.
//!
//! Both the hash and the choice of bits are part of the file format: never change them under the same version.

use crate::base::limits::BLOCK_BYTES;
use crate::base::slots::Buf;

/// Constants of the hash: the first digits of pi in base 16, made odd.
const K: [u64; 4] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1, 0x082e_fa98_ec4e_6c89];

/// Bits of a line that one key sets at most: seven groups of nine bits come out of one 64-bit word.
const PROBES_MAX: u8 = 7;
const LINE_BYTES: usize = 64;
/// Probe count (1 byte), three zero bytes, number of lines (4 bytes).
const HEADER_BYTES: usize = 8;

const _: () = assert!(BLOCK_BYTES > LINE_BYTES);

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

#[inline(always)]
fn le64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

#[inline(always)]
fn le32(bytes: &[u8]) -> u64 {
    u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The 64-bit hash of a user key that filters are made of. Compute it once and ask many SSTs with
/// [`super::Sst::get_hashed`].
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    let len = key.len() as u64;
    let mut state = K[0] ^ len.wrapping_mul(K[3]);
    let mut rest = key;
    while rest.len() > 16 {
        state = fold(le64(rest) ^ K[1], le64(&rest[8..]) ^ state);
        rest = &rest[16..];
    }
    let n = rest.len();
    let (a, b) = if n >= 8 {
        (le64(rest), le64(&rest[n - 8..]))
    } else if n >= 4 {
        (le32(rest), le32(&rest[n - 4..]))
    } else if n > 0 {
        (u64::from(rest[0]) << 16 | u64::from(rest[n / 2]) << 8 | u64::from(rest[n - 1]), 0)
    } else {
        (0, 0)
    };
    let state = fold(a ^ K[1], b ^ state);
    fold(state ^ K[2], len ^ K[3])
}

/// A decoded filter partition.
pub struct Filter {
    probes: u8,
    /// Lines, each in one line of the processor's caches.
    bits: Buf,
}

#[inline(always)]
fn line_of(hash: u64, lines: usize) -> usize {
    // Maps the top 32 bits onto 0..lines by multiplication.
    (((hash >> 32) * lines as u64) >> 32) as usize
}

#[inline(always)]
fn bits_of(hash: u64) -> u64 {
    hash.wrapping_mul(K[2])
}

impl Filter {
    /// Lays out the filter of the keys with these hashes and appends it to `out`.
    pub fn build(hashes: &[u64], bits_per_key: u8, out: &mut Vec<u8>) {
        let bits = hashes.len() as u64 * u64::from(bits_per_key);
        let lines = bits.div_ceil(LINE_BYTES as u64 * 8).clamp(1, u64::from(u32::MAX)) as usize;
        // The best number of probes is bits per key times ln 2; a little fewer pays in a blocked filter.
        let probes = ((u32::from(bits_per_key) * 6 / 10) as u8).clamp(1, PROBES_MAX);
        out.push(probes);
        out.extend_from_slice(&[0; 3]);
        out.extend_from_slice(&(lines as u32).to_le_bytes());
        let start = out.len();
        out.resize(start + lines * LINE_BYTES, 0);
        let body = &mut out[start..];
        for &hash in hashes {
            let line = &mut body[line_of(hash, lines) * LINE_BYTES..][..LINE_BYTES];
            let mut bits = bits_of(hash);
            for _ in 0..probes {
                let bit = (bits & 511) as usize;
                line[bit / 8] |= 1 << (bit % 8);
                bits >>= 9;
            }
        }
    }

    /// Decodes a partition; the error says what is wrong.
    pub fn parse(data: &[u8]) -> Result<Filter, &'static str> {
        let Some((header, body)) = data.split_first_chunk::<HEADER_BYTES>() else {
            return Err("filter shorter than its header");
        };
        let probes = header[0];
        let lines = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        if !(1..=PROBES_MAX).contains(&probes) || header[1..4] != [0; 3] || lines == 0 {
            return Err("bad filter header");
        }
        if body.len() != lines * LINE_BYTES {
            return Err("filter of a wrong length");
        }
        Ok(Filter { probes, bits: Buf::from(body) })
    }

    /// The memory that it lies in.
    pub fn data(&self) -> &Buf {
        &self.bits
    }

    /// The same in other memory.
    pub fn copied(&self) -> Filter {
        Filter { probes: self.probes, bits: Buf::from(&self.bits[..]) }
    }

    /// False if no key with this hash was added.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let at = line_of(hash, self.bits.len() / LINE_BYTES) * LINE_BYTES;
        let line = &self.bits[at..at + LINE_BYTES];
        let mut bits = bits_of(hash);
        let mut all = true;
        for _ in 0..self.probes {
            all &= le64(&line[(bits >> 3 & 56) as usize..]) >> (bits & 63) & 1 != 0;
            bits >>= 9;
        }
        all
    }

    /// Memory the filter occupies, in bytes.
    pub fn charge(&self) -> usize {
        size_of::<Filter>() + 2 * size_of::<usize>() + self.bits.charge()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(from: u64, count: u64) -> Vec<u64> {
        (from..from + count).map(|i| key_hash(&[&[0, 0, 0, 1], &i.to_be_bytes()[..]].concat())).collect()
    }

    #[test]
    fn the_hash_is_frozen() {
        let digest = |key: &[u8]| format!("{:016x}", key_hash(key));
        let long: Vec<u8> = (0..=255).collect();
        let all: Vec<String> = [&b""[..], b"a", b"abc", b"abcd", b"abcdefgh", b"0123456789abcdef", &long[..17], &long]
            .iter()
            .map(|key| digest(key))
            .collect();
        assert_eq!(all.join(" "), FROZEN);
    }
    const FROZEN: &str = "b3bfc73dbda2207a a15979d1a3eea8bf 912d8567bdc38f2a be0dc13f4047e30c \
        74ad7812a134c5c2 6e57f7f69d3656e1 0de5828f8351934d 479b5849bad444fe";

    #[test]
    fn the_hash_spreads_every_bit_and_length() {
        // Flipping any input bit must flip about half of the output bits, whatever the length.
        for len in [1usize, 3, 4, 7, 8, 12, 16, 17, 40] {
            let key: Vec<u8> = (0..len as u8).map(|i| i.wrapping_mul(37)).collect();
            let base = key_hash(&key);
            for bit in 0..len * 8 {
                let mut other = key.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let flipped = (key_hash(&other) ^ base).count_ones();
                assert!((12..=52).contains(&flipped), "length {len}, bit {bit}: {flipped} bits");
            }
        }
        let zeros = [0u8; 64];
        let mut all: Vec<u64> = (0..64).map(|len| key_hash(&zeros[..len])).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 64);
    }

    #[test]
    fn members_are_found_and_few_others() {
        // (bits per key, tolerated false positives in percent)
        for (bits, percent) in [(4, 20.0), (8, 3.5), (10, 1.6), (12, 0.9), (16, 0.6)] {
            for count in [1, 50, 10_000] {
                let members = hashes(0, count);
                let mut bytes = Vec::new();
                Filter::build(&members, bits, &mut bytes);
                let filter = Filter::parse(&bytes).unwrap();
                assert_eq!(filter.bits.as_ptr() as usize % LINE_BYTES, 0);
                assert!(members.iter().all(|&h| filter.may_contain(h)));
                let others = hashes(1 << 40, 100_000);
                let wrong = others.iter().filter(|&&h| filter.may_contain(h)).count();
                let rate = wrong as f64 / 1000.0;
                assert!(rate < percent, "{bits} bits, {count} keys: {rate}%");
            }
        }
    }

    #[test]
    fn broken_filters_are_refused() {
        let mut bytes = Vec::new();
        Filter::build(&hashes(0, 100), 10, &mut bytes);
        for cut in 0..bytes.len() {
            assert!(Filter::parse(&bytes[..cut]).is_err());
        }
        for (at, value) in [(0, 0), (0, 8), (1, 1), (4, 0), (4, 200), (7, 255)] {
            let mut broken = bytes.clone();
            broken[at] = value;
            assert!(Filter::parse(&broken).is_err());
        }
    }
}
