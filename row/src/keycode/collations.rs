//! A few collations that need no server: for tests, examples and tools.
//!
//! They have the properties that matter to the codecs (one or several weight bytes, padded or not, in levels or not),
//! not the tables of the collations they resemble. [`Binary`] is exactly the server's `binary`.

use crate::def::{Collation, CollationTraits};

const PLAIN: CollationTraits =
    CollationTraits { pad: true, bytes: false, binary: false, multilevel: false, mbminlen: 1, mbmaxlen: 1 };

/// The binary pseudo character set.
#[derive(Clone, Copy, Default, Debug)]
pub struct Binary;

impl Collation for Binary {
    fn id(&self) -> u32 {
        63
    }
    fn name(&self) -> &str {
        "binary"
    }
    fn traits(&self) -> CollationTraits {
        CollationTraits { pad: false, bytes: true, binary: true, ..PLAIN }
    }
    fn weights(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&text[..text.len().min(max_chars)]);
    }
    fn weights_padded(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        self.weights(text, max_chars, out);
    }
    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        text.len().min(chars)
    }
}

/// One byte per character; ordered by bytes, or without regard to the case of ASCII letters.
#[derive(Clone, Copy, Debug)]
pub struct Latin1 {
    /// Ignore case.
    pub ci: bool,
    /// PAD SPACE.
    pub pad: bool,
}

impl Collation for Latin1 {
    fn id(&self) -> u32 {
        match (self.ci, self.pad) {
            (false, true) => 47,
            (false, false) => 1071,
            (true, true) => 8,
            (true, false) => 1032,
        }
    }
    fn name(&self) -> &str {
        match (self.ci, self.pad) {
            (false, true) => "latin1_bin",
            (false, false) => "latin1_nopad_bin",
            (true, true) => "latin1_swedish_ci",
            (true, false) => "latin1_swedish_nopad_ci",
        }
    }
    fn traits(&self) -> CollationTraits {
        CollationTraits { pad: self.pad, bytes: !self.ci, ..PLAIN }
    }
    fn weights(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        let text = &text[..text.len().min(max_chars)];
        if self.ci {
            out.extend(text.iter().map(u8::to_ascii_uppercase));
        } else {
            out.extend_from_slice(text);
        }
    }
    fn weights_padded(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        let start = out.len();
        self.weights(text, max_chars, out);
        out.resize(start + max_chars, b' ');
    }
    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        text.len().min(chars)
    }
}

/// UTF-8 (up to four bytes per character), in one level of fixed-size weights or by bytes. The soft hyphen (U+00AD) has
/// no weight unless order is by bytes; lower and upper case of ASCII letters weigh the same.
#[derive(Clone, Copy, Debug)]
pub struct Utf8 {
    /// Bytes per weight, 2 or 3; 0 for order by bytes.
    pub weight: usize,
    /// PAD SPACE.
    pub pad: bool,
}

/// Splits off the first character; a byte that begins none stands for itself.
fn next_char(text: &[u8]) -> Option<(u32, usize)> {
    let first = *text.first()?;
    let length = match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    let decoded = text.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok()).and_then(|s| s.chars().next());
    Some(decoded.map_or((u32::from(first), 1), |c| (u32::from(c), length)))
}

fn utf8_prefix(text: &[u8], chars: usize) -> usize {
    let mut at = 0;
    for _ in 0..chars {
        match next_char(&text[at..]) {
            Some((_, length)) => at += length,
            None => break,
        }
    }
    at
}

impl Collation for Utf8 {
    fn id(&self) -> u32 {
        2000 + self.weight as u32 * 2 + u32::from(self.pad)
    }
    fn name(&self) -> &str {
        match (self.weight, self.pad) {
            (0, true) => "utf8mb4_bytes",
            (0, false) => "utf8mb4_nopad_bytes",
            (2, true) => "utf8mb4_two",
            (2, false) => "utf8mb4_nopad_two",
            (_, true) => "utf8mb4_three",
            (_, false) => "utf8mb4_nopad_three",
        }
    }
    fn traits(&self) -> CollationTraits {
        CollationTraits { pad: self.pad, bytes: self.weight == 0, mbmaxlen: 4, ..PLAIN }
    }
    fn weights(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        let text = &text[..utf8_prefix(text, max_chars)];
        if self.weight == 0 {
            out.extend_from_slice(text);
            return;
        }
        let mut at = 0;
        while let Some((c, length)) = next_char(&text[at..]) {
            at += length;
            let weight = match char::from_u32(c) {
                Some('\u{ad}') => continue,
                Some(c) if self.weight == 2 && c > '\u{ffff}' => 0xfffd,
                Some(c) => u32::from(c.to_ascii_uppercase()),
                None => c,
            };
            out.extend_from_slice(&weight.to_be_bytes()[4 - self.weight..]);
        }
    }
    fn weights_padded(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        self.weights(text, max_chars, out);
    }
    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        utf8_prefix(text, chars)
    }
}

/// One byte per character, two levels: first letters without case, then, over the whole text, their case. PAD SPACE.
#[derive(Clone, Copy, Default, Debug)]
pub struct TwoLevel;

impl Collation for TwoLevel {
    fn id(&self) -> u32 {
        2100
    }
    fn name(&self) -> &str {
        "latin1_two_level"
    }
    fn traits(&self) -> CollationTraits {
        CollationTraits { multilevel: true, ..PLAIN }
    }
    fn weights(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        let text = &text[..text.len().min(max_chars)];
        out.extend(text.iter().map(u8::to_ascii_uppercase));
        out.push(0);
        out.extend(text.iter().map(|c| 1 + u8::from(c.is_ascii_lowercase())));
    }
    fn weights_padded(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        let mut padded = text[..text.len().min(max_chars)].to_vec();
        padded.resize(max_chars, b' ');
        self.weights(&padded, max_chars, out);
    }
    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        text.len().min(chars)
    }
}
