//! What the server's column compression (`VARCHAR(n) COMPRESSED`, `TEXT COMPRESSED`) made of a value.
//!
//! ```text
//! no bytes          the empty value
//! 0x00, value       as it is: too short, or compression was of no use
//! 0x8F, length, z   zlib; F: bit 3 set without zlib's own header, bits 0 to 2 the bytes of the length, big-endian, of the value
//! ```
//!
//! The server compresses above the engine, so the engine stores these bytes, and knows the column as one of bytes.
//!
//! Invariant: whatever the bytes, what is wrong is an error and no panic, and no more memory is taken than the length promises and the
//! bytes make.

use anyhow::{Context, Result, ensure};
use flate2::{Decompress, FlushDecompress, Status};
use std::borrow::Cow;

const ZLIB: u8 = 8;
const RAW: u8 = 8;
const LENGTH_BYTES: u8 = 7;
/// Deflate makes no more than this of one byte.
const EXPANSION_MAX: usize = 1040;

/// The value that `stored` stands for.
pub fn uncompressed(stored: &[u8]) -> Result<Cow<'_, [u8]>> {
    let Some((&head, rest)) = stored.split_first() else { return Ok(Cow::Borrowed(stored)) };
    let (method, flags) = (head >> 4, head & 0xf);
    if method == 0 {
        return Ok(Cow::Borrowed(rest));
    }
    ensure!(method == ZLIB, "compressed by an unknown method, {method}");
    let (len, body) = rest.split_at_checked(usize::from(flags & LENGTH_BYTES)).context("it ends within its length")?;
    let len = len.iter().fold(0u64, |len, &byte| len << 8 | u64::from(byte));
    let len = usize::try_from(len).ok().filter(|&len| len <= body.len().saturating_mul(EXPANSION_MAX));
    let len = len.context("it has no room for so long a value")?;
    let mut value = Vec::with_capacity(len);
    let done = Decompress::new(flags & RAW == 0).decompress_vec(body, &mut value, FlushDecompress::Finish)?;
    ensure!(done == Status::StreamEnd && value.len() == len, "it ends after {} of {len} bytes", value.len());
    Ok(Cow::Owned(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    /// What a server stored (but for the damaged ones), and the value.
    const VALUES: &str = "
        -                         -
        00                        -
        00616263                  abc
        8964734c4a4e494d4b4fa41203 ERROR
        8963                      ERROR
        89                        ERROR
        896400                    ERROR
        8f64734c                  ERROR
        10616263                  ERROR
        90616263                  ERROR";

    #[test]
    fn what_the_server_wrote_is_the_value_or_an_error() {
        for line in VALUES.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches('-')).collect();
            let stored = bytes(words[0]);
            match uncompressed(&stored) {
                Ok(value) => assert_eq!(String::from_utf8_lossy(&value), words[1], "{line}"),
                Err(_) => assert_eq!(words[1], "ERROR", "{line}"),
            }
        }
    }

    fn compressed(value: &[u8], raw: bool) -> Vec<u8> {
        let mut z = Vec::with_capacity(value.len() + 100);
        let mut deflate = flate2::Compress::new(flate2::Compression::default(), !raw);
        deflate.compress_vec(value, &mut z, flate2::FlushCompress::Finish).unwrap();
        let len = (value.len() as u32).to_be_bytes();
        let skip = len.iter().take_while(|&&byte| byte == 0).count();
        [&[ZLIB << 4 | if raw { RAW } else { 0 } | (4 - skip) as u8][..], &len[skip..], &z].concat()
    }

    #[test]
    fn both_forms_of_zlib_are_read_and_what_is_cut_is_an_error() {
        for value in [b"a".repeat(300), (0..100_000u32).flat_map(u32::to_le_bytes).collect(), vec![0; 1 << 20]] {
            for raw in [false, true] {
                let stored = compressed(&value, raw);
                assert!(*uncompressed(&stored).unwrap() == value[..]);
                for len in [1, 2, 3, stored.len() / 2, stored.len() - 1] {
                    uncompressed(&stored[..len]).unwrap_err();
                }
            }
        }
    }
}
