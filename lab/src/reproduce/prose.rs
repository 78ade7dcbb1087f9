//! Text that looks like lines of a book, and compresses as far as it is told to.
//!
//! The words of a line follow each other as in a stock of sentences of common English words, which is made once from a seed;
//! now and then, as often as the wanted compressibility asks for, a word of letters and digits drawn evenly stands in between, of which
//! nothing can be saved but the unused bits of a byte. What zstd (level 3) leaves of pieces of 16 KiB, the size of a page, is then near
//! to what was asked for; a test measures it. Only ASCII letters, digits, spaces, commas and full stops occur: no quoting is needed.
//!
//! Rejected: lines of a real book (one compressibility only, and a text to be shipped); a fixed number of lines (with many rows
//! a line would stand in thousands of them, and the index on it find all).

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Sentences of the stock.
const SENTENCES: usize = 3000;
/// Bytes of a line.
const LINE: std::ops::RangeInclusive<usize> = 60..=76;
/// The share of new words for what zstd leaves, in rising order; between these it is interpolated.
const MEASURED: [(f64, f64); 11] = [
    (0.363, 0.0),
    (0.416, 0.05),
    (0.455, 0.1),
    (0.517, 0.2),
    (0.567, 0.3),
    (0.610, 0.4),
    (0.644, 0.5),
    (0.671, 0.6),
    (0.693, 0.7),
    (0.710, 0.8),
    (0.724, 1.0),
];
const CHARACTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const WORDS: &str = "the of and to in a that he was it his is with as had for at not on but be by him they she from all this \
    were which her or so we one an there are when have no their would been who what if out up said them my more could then me \
    some into now time upon its very like only man any about other little our over long down must made great before after \
    such two way where see know well never much again day house hand old good himself through here come came still went \
    young first own most while night head many without another found might eyes thought last being back every place life \
    face world moment water door seemed nothing people room heart light voice side under looked morning white away till \
    small along stood words half turned always mind however between because against friend asked father mother river street \
    evening letter window silence garden winter summer country captain brother sister together perhaps almost enough \
    whether toward behind something anything question answer reason strange quite certain least sight feeling open above \
    leave present whole matter power hour round given order second number nature course indeed fire stone wind ground horse \
    table paper chair church village mountain forest shore island harbour";

/// A source of lines.
#[derive(Clone, Debug)]
pub struct Prose {
    stock: Vec<&'static str>,
    /// The share of words that are new.
    new_words: f64,
}

impl Prose {
    /// Lines of which zstd leaves this share.
    pub fn new(leaves: f64, seed: u64) -> Prose {
        let words: Vec<&str> = WORDS.split_whitespace().collect();
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut stock = Vec::new();
        for _ in 0..SENTENCES {
            for _ in 0..rng.random_range(5..18) {
                // Frequent words first: the rank of a word is about as often as one over it.
                let rank = (words.len() as f64).powf(rng.random::<f64>()) as usize - 1;
                stock.push(words[rank.min(words.len() - 1)]);
            }
        }
        Prose { stock, new_words: new_words(leaves) }
    }

    /// Draws a line.
    pub fn line(&self, rng: &mut SmallRng) -> String {
        let length = rng.random_range(LINE);
        let mut line = String::with_capacity(length + 12);
        let mut at = rng.random_range(0..self.stock.len());
        while line.len() < length {
            if !line.is_empty() {
                line.push_str(if rng.random_range(0..12) == 0 { ", " } else { " " });
            }
            if rng.random::<f64>() < self.new_words {
                let letters = rng.random_range(3..10);
                line.extend((0..letters).map(|_| char::from(CHARACTERS[rng.random_range(0..CHARACTERS.len())])));
            } else {
                line.push_str(self.stock[at % self.stock.len()]);
                at += 1;
            }
        }
        line.truncate(length);
        line
    }
}

/// The share of new words of which zstd leaves so much; the nearest end where it cannot.
fn new_words(leaves: f64) -> f64 {
    let [first, .., last] = MEASURED;
    if leaves <= first.0 {
        return first.1;
    }
    for pair in MEASURED.windows(2) {
        let [(from, low), (to, high)] = [pair[0], pair[1]];
        if leaves <= to {
            return low + (high - low) * (leaves - from) / (to - from);
        }
    }
    last.1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What zstd leaves of pages of lines.
    fn left(prose: &Prose) -> f64 {
        let mut rng = SmallRng::seed_from_u64(7);
        let (mut bytes, mut compressed) = (0, 0);
        for _ in 0..40 {
            let mut page = Vec::new();
            while page.len() < 16 << 10 {
                page.extend(prose.line(&mut rng).into_bytes());
            }
            bytes += page.len();
            compressed += zstd::bulk::compress(&page, 3).unwrap().len();
        }
        compressed as f64 / bytes as f64
    }

    #[test]
    fn compresses_as_asked() {
        let mut before = 0.0;
        for wanted in [0.38, 0.40, 0.45, 0.50, 0.55, 0.60, 0.65, 0.70] {
            let have = left(&Prose::new(wanted, 1));
            assert!((have - wanted).abs() < 0.015, "zstd leaves {have} of what should leave {wanted}");
            assert!(have > before);
            before = have;
        }
    }

    #[test]
    fn the_seed_decides() {
        let lines = |seed, draw| {
            let prose = Prose::new(0.5, seed);
            let mut rng = SmallRng::seed_from_u64(draw);
            (0..20).map(|_| prose.line(&mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(lines(1, 2), lines(1, 2));
        assert_ne!(lines(1, 2), lines(1, 3));
        assert_ne!(lines(1, 2), lines(2, 2));
    }

    #[test]
    fn lines_need_no_quoting_and_are_different() {
        let prose = Prose::new(0.5, 1);
        let mut rng = SmallRng::seed_from_u64(1);
        let mut lines: Vec<String> = (0..5000).map(|_| prose.line(&mut rng)).collect();
        for line in &lines {
            assert!(LINE.contains(&line.len()), "{line}");
            assert!(line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" ,.".contains(&byte)), "{line}");
        }
        lines.sort();
        lines.dedup();
        assert!(lines.len() > 4990, "{} of 5000", lines.len());
    }
}
