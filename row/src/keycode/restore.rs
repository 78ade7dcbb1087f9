//! Text out of its weights.
//!
//! # Purpose
//! The key of a text that a collation compares holds the weights of its characters, and a covering read wants the text. Stored beside
//! the weights it would be there twice, in two forms that no compression takes for one. But a weight nearly tells its character: a
//! [`Restorer`] knows which one it *usually* is, and what is stored names only the characters that are others. Of a text in small letters
//! nothing is stored at all.
//!
//! # Format
//! `docs/develop/format/keys.md`, "Unpack data", form 2. The *first* character of a weight is the smallest that weighs this and nothing
//! else; the *lower* one is the character 0x20 behind it, if it weighs the same, else the first. In most alphabets of Europe the first one is
//! the capital letter and the lower one the small letter. A text is told by the characters in which it differs from its weights' lower ones;
//! from their first ones, if otherwise more than half of its characters would be named and these take fewer bytes; or it is stored
//! whole, where that is no longer.
//!
//! # Invariants
//! - What is written restores the text: the writer compares it with what a reader will make of the same weights. So collations in which
//!   characters have several weights, or several characters one, need no care; their texts are stored whole.
//! - Which character is usual follows from the collation's weights alone, by a rule that is part of the format. A collation whose weights
//!   changed would have another order, and another number.
//!
//! # Rejected alternative
//! A bit per letter for its case: text without capitals pays for it, and accents need something else. Small letters by the tables of
//! Unicode: these change with its versions, and stored texts would with them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;

use super::groups::{Spaces, read_weights};
use crate::def::Collation;
use crate::kv::codec::{Reader, put_varint};

/// No character: U+FFFF is none.
const NONE: u16 = 0xffff;

/// The lowest bit of an item: the text follows, of so many bytes as the other bits say.
const WHOLE: u64 = 1;
/// Otherwise the next bit says of which characters it is told, ...
const FIRST: u64 = 2;
/// ... and this one that spaces at its end are counted. The others say how many characters are named.
const SPACES: u64 = 4;
const NAMED_SHIFT: u32 = 3;

/// Longest text, so that damaged bytes ask for no more.
const TEXT_MAX: usize = 0xffff;

/// The characters of a character set that its tables tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Characters {
    /// Single bytes, of one byte of weight each.
    Bytes,
    /// UTF-8 of up to three bytes, of two bytes of weight each.
    Utf8,
}

impl Characters {
    fn of(collation: &dyn Collation) -> Option<Characters> {
        let traits = collation.traits();
        if traits.bytes || traits.binary || traits.multilevel || traits.mbminlen != 1 {
            return None;
        }
        match traits.mbmaxlen {
            1 => Some(Characters::Bytes),
            // A collation's name begins with that of its character set.
            _ => collation.name().starts_with("utf8").then_some(Characters::Utf8),
        }
    }

    /// The first character of a text and its bytes; nothing if the tables know no such one.
    #[inline]
    fn next(self, text: &[u8]) -> Option<(u16, usize)> {
        let &first = text.first()?;
        if self == Characters::Bytes || first < 0x80 {
            return Some((u16::from(first), 1));
        }
        let length = match first {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            _ => return None,
        };
        let character = std::str::from_utf8(text.get(..length)?).ok()?.chars().next()?;
        let number = u16::try_from(u32::from(character)).ok()?;
        (number != NONE).then_some((number, length))
    }

    /// Bytes of the character that begins with this one.
    fn length(self, first: u8) -> usize {
        match (self, first) {
            (Characters::Utf8, 0xc0..=0xdf) => 2,
            (Characters::Utf8, 0xe0..) => 3,
            _ => 1,
        }
    }

    #[inline]
    fn put(self, number: u16, out: &mut Vec<u8>) {
        if self == Characters::Bytes || number < 0x80 {
            return out.push(number as u8);
        }
        let mut buf = [0; 4];
        // The tables hold no surrogates.
        let character = char::from_u32(u32::from(number)).unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend_from_slice(character.encode_utf8(&mut buf).as_bytes());
    }
}

/// The part of a key that holds a text's weights, without the marker of NULL.
pub(super) struct Part<'a> {
    pub(super) groups: &'a [u8],
    /// Every byte is stored xor this.
    pub(super) mask: u8,
    /// Of padded groups.
    pub(super) spaces: Option<&'a Spaces>,
}

impl Part<'_> {
    /// Makes `out` its weights; none if it ends within one.
    fn weights(&self, wide: bool, out: &mut Vec<u16>) {
        read_weights(self.groups, self.spaces, self.mask, wide, out);
        let Some(spaces) = self.spaces else { return };
        let filling = spaces.filling(self.groups, self.mask) * spaces.unit().len();
        out.truncate(out.len() - (filling / if wide { 2 } else { 1 }).min(out.len()));
    }
}

/// What texts and weights are made in.
#[derive(Default)]
pub(super) struct Scratch {
    /// What was weighed last, and by which collation: what is stored beside a key is made after the key.
    weighed: Vec<u8>,
    by: Option<(u32, u8)>,
    /// The weights of that.
    pub(super) bytes: Vec<u8>,
    /// Weights as numbers.
    weights: Vec<u16>,
    pub(super) text: Vec<u8>,
}

impl Scratch {
    /// Makes `bytes` the weights of a text.
    pub(super) fn weigh(&mut self, collation: &dyn Collation, text: &[u8]) {
        let by = Some((collation.id(), collation.form()));
        if self.by == by && self.weighed == text {
            return;
        }
        // Kept in mind only when it is done.
        self.by = None;
        self.weighed.clear();
        self.weighed.extend_from_slice(text);
        self.bytes.clear();
        collation.weights(text, usize::MAX, &mut self.bytes);
        self.by = by;
    }
}

/// Restores texts of one collation.
pub(super) struct Restorer {
    characters: Characters,
    /// By weight.
    first: Box<[u16]>,
    lower: Box<[u16]>,
}

/// By the collation's number and the form of its weights. Its tables take some milliseconds to make, and 256 KiB in UTF-8.
type Known = Mutex<BTreeMap<(u32, u8), Arc<Restorer>>>;
static KNOWN: LazyLock<Known> = LazyLock::new(Known::default);

impl Restorer {
    /// True if texts of this collation may be told by their weights. Follows from its name and traits, and is part of the format.
    pub(super) fn is_for(collation: &dyn Collation) -> bool {
        Characters::of(collation).is_some()
    }

    /// That of a collation.
    pub(super) fn of(collation: &dyn Collation) -> Option<Arc<Restorer>> {
        let characters = Characters::of(collation)?;
        let mut known = KNOWN.lock();
        let made = known.entry((collation.id(), collation.form()));
        Some(made.or_insert_with(|| Arc::new(Restorer::new(characters, collation))).clone())
    }

    fn new(characters: Characters, collation: &dyn Collation) -> Restorer {
        let (width, numbers) = match characters {
            Characters::Bytes => (1, 0..=0xff),
            Characters::Utf8 => (2, 0..=NONE - 1),
        };
        let weights = 1 << (8 * width);
        let (mut first, mut lower) = (vec![NONE; weights], vec![NONE; weights]);
        let (mut text, mut weight) = (Vec::new(), Vec::new());
        for number in numbers.filter(|number| !(0xd800..=0xdfff).contains(number)) {
            text.clear();
            weight.clear();
            characters.put(number, &mut text);
            collation.weights(&text, usize::MAX, &mut weight);
            if weight.len() != width {
                continue;
            }
            let weight = weight.iter().fold(0, |number, &byte| number << 8 | usize::from(byte));
            match first[weight] {
                NONE => (first[weight], lower[weight]) = (number, number),
                smallest if number == smallest + 0x20 => lower[weight] = number,
                _ => {}
            }
        }
        Restorer { characters, first: first.into(), lower: lower.into() }
    }

    /// True if weights have two bytes.
    pub(super) fn is_wide(&self) -> bool {
        self.characters == Characters::Utf8
    }

    /// Makes `numbers` the weights that these bytes are; none if they end within one.
    pub(super) fn numbers(&self, bytes: &[u8], numbers: &mut Vec<u16>) {
        numbers.clear();
        match (self.is_wide(), bytes.as_chunks()) {
            (false, _) => numbers.extend(bytes.iter().map(|&byte| u16::from(byte))),
            (true, (pairs, [])) => numbers.extend(pairs.iter().map(|&pair| u16::from_be_bytes(pair))),
            (true, _) => {}
        }
    }

    /// Appends what restores `original` from the first `length` bytes of the weights in `scratch`. These are of `text`, behind which
    /// `original` has so many spaces more, or which has spaces that nobody misses. False if it is nothing, which need not be stored at
    /// the end.
    pub(super) fn put(
        &self,
        original: &[u8],
        text: &[u8],
        spaces: usize,
        length: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> bool {
        let Scratch { bytes, weights, text: named, .. } = scratch;
        self.numbers(&bytes[..length.min(bytes.len())], weights);
        let (mut bit, mut count) = (0, self.named(&self.lower, text, weights, named));
        // Capitals, or another alphabet.
        if count.is_some_and(|count| count > weights.len() / 2) {
            let bytes = named.len();
            let by_first = self.named(&self.first, text, weights, named);
            (bit, count) = if named.len() < bytes {
                (FIRST, by_first)
            } else {
                (0, self.named(&self.lower, text, weights, named))
            };
        }
        if let Some(count) = count {
            let counted = if spaces > 0 { SPACES } else { 0 };
            let header = (count as u64) << NAMED_SHIFT | counted | bit;
            let start = out.len();
            put_varint(out, header);
            if spaces > 0 {
                put_varint(out, spaces as u64);
            }
            if out.len() - start + named.len() <= original.len().max(1) {
                out.extend_from_slice(named);
                return header != 0;
            }
            out.truncate(start);
        }
        put_varint(out, (original.len() as u64) << 1 | WHOLE);
        out.extend_from_slice(original);
        true
    }

    /// Makes `out` the characters in which a text differs from the usual ones of its weights, each with what says where it is; how many.
    /// Nothing if each of its characters has not one weight.
    fn named(&self, usual: &[u16], text: &[u8], weights: &[u16], out: &mut Vec<u8>) -> Option<usize> {
        out.clear();
        let mut count = 0;
        let mut since = 0;
        if self.characters == Characters::Bytes || text.is_ascii() {
            if text.len() != weights.len() {
                return None;
            }
            for (at, (byte, &weight)) in text.iter().zip(weights).enumerate() {
                if usual[usize::from(weight)] != u16::from(*byte) {
                    put_varint(out, (at - since) as u64);
                    out.push(*byte);
                    (count, since) = (count + 1, at + 1);
                }
            }
            return Some(count);
        }
        let mut rest = text;
        for (at, &weight) in weights.iter().enumerate() {
            let (character, length) = self.characters.next(rest)?;
            if usual[usize::from(weight)] != character {
                put_varint(out, (at - since) as u64);
                out.extend_from_slice(&rest[..length]);
                (count, since) = (count + 1, at + 1);
            }
            rest = &rest[length..];
        }
        rest.is_empty().then_some(count)
    }

    /// Makes the text what [`Restorer::put`] was given; `pad` is a space of the column's. Nothing if the bytes are malformed.
    pub(super) fn take(
        &self,
        part: &Part<'_>,
        pad: &[u8],
        unpack: &mut Reader<'_>,
        scratch: &mut Scratch,
    ) -> Option<()> {
        let Scratch { weights, text, .. } = scratch;
        text.clear();
        let header = header(unpack)?;
        if header & WHOLE != 0 {
            text.extend_from_slice(unpack.take(usize::try_from(header >> 1).ok()?)?);
            return Some(());
        }
        let spaces = spaces(header, unpack)?;
        let usual = if header & FIRST != 0 { &self.first } else { &self.lower };
        let named = header >> NAMED_SHIFT;
        if self.put_single_bytes(usual, part, text) {
            let mut at = 0;
            for _ in 0..named {
                at = usize::try_from(unpack.varint()?).ok()?.checked_add(at).filter(|&at| at < text.len())?;
                match self.character(unpack)? {
                    &[byte] => (text[at], at) = (byte, at + 1),
                    bytes => {
                        text.splice(at..=at, bytes.iter().copied());
                        at += bytes.len();
                    }
                }
            }
        } else {
            text.clear();
            part.weights(self.is_wide(), weights);
            let mut rest = &weights[..];
            for _ in 0..named {
                let (before, behind) = rest.split_at_checked(usize::try_from(unpack.varint()?).ok()?)?;
                self.put_usual(usual, before, text)?;
                (_, rest) = behind.split_first()?;
                text.extend_from_slice(self.character(unpack)?);
            }
            self.put_usual(usual, rest, text)?;
        }
        for _ in 0..spaces {
            text.extend_from_slice(pad);
        }
        Some(())
    }

    /// Makes `text` the usual characters of a part, if all of them are single bytes: most texts are so, and quickly read. False otherwise,
    /// and then `text` is anything.
    fn put_single_bytes(&self, usual: &[u16], part: &Part<'_>, text: &mut Vec<u8>) -> bool {
        let &Part { groups, mask, spaces: Some(spaces), .. } = part else { return false };
        let unit = if self.is_wide() { 2 } else { 1 };
        if spaces.group_len() != 8 || spaces.unit().len() != unit {
            return false;
        }
        let mask = u64::from_ne_bytes([mask; 8]);
        let eights = groups.as_chunks::<9>().0.iter().filter_map(|group| group.first_chunk());
        let mut all = 0;
        if let (true, Ok(usual)) = (self.is_wide(), <&[u16; 1 << 16]>::try_from(usual)) {
            text.resize(groups.len() / 9 * 4, 0);
            for (&eight, four) in eights.zip(text.as_chunks_mut::<4>().0) {
                let weights = u64::from_be_bytes(eight) ^ mask;
                let numbers = [48, 32, 16, 0].map(|shift| usual[usize::from((weights >> shift) as u16)]);
                all |= numbers[0] | numbers[1] | numbers[2] | numbers[3];
                *four = numbers.map(|number| number as u8);
            }
        } else if let (false, Ok(usual)) = (self.is_wide(), <&[u16; 1 << 8]>::try_from(usual)) {
            for &eight in eights {
                let numbers = eight.map(|byte| usual[usize::from(byte ^ mask as u8)]);
                all |= numbers.iter().fold(0, |all, number| all | number);
                text.extend_from_slice(&numbers.map(|number| number as u8));
            }
        } else {
            return false;
        }
        text.truncate(text.len() - spaces.filling(groups, mask as u8).min(text.len()));
        all <= if self.is_wide() { 0x7f } else { 0xff }
    }

    /// Appends the usual characters of weights; nothing if one has none.
    fn put_usual(&self, usual: &[u16], weights: &[u16], text: &mut Vec<u8>) -> Option<()> {
        for &weight in weights {
            match *usual.get(usize::from(weight))? {
                NONE => return None,
                number => self.characters.put(number, text),
            }
        }
        Some(())
    }

    /// Passes over what [`Restorer::put`] has written.
    pub(super) fn skip(&self, unpack: &mut Reader<'_>) -> Option<()> {
        let header = header(unpack)?;
        if header & WHOLE != 0 {
            unpack.take(usize::try_from(header >> 1).ok()?)?;
            return Some(());
        }
        spaces(header, unpack)?;
        for _ in 0..header >> NAMED_SHIFT {
            unpack.varint()?;
            self.character(unpack)?;
        }
        Some(())
    }

    fn character<'a>(&self, unpack: &mut Reader<'a>) -> Option<&'a [u8]> {
        let length = self.characters.length(*unpack.rest().first()?);
        unpack.take(length)
    }
}

/// Beyond the end of the unpack data everything is 0.
fn header(unpack: &mut Reader<'_>) -> Option<u64> {
    if unpack.is_empty() { Some(0) } else { unpack.varint() }
}

fn spaces(header: u64, unpack: &mut Reader<'_>) -> Option<usize> {
    if header & SPACES == 0 {
        return Some(0);
    }
    usize::try_from(unpack.varint()?).ok().filter(|&spaces| spaces <= TEXT_MAX)
}

#[cfg(test)]
mod tests {
    use super::super::collations::{Latin1, Utf8};
    use super::super::groups::finish_counted;
    use super::*;
    use proptest::prelude::*;

    /// UTF-8 in which the small letters a to z, and é and É, weigh as capital letters do, and some characters are awkward: ß is two
    /// letters, `ch` is one.
    struct Awkward;

    impl Collation for Awkward {
        fn id(&self) -> u32 {
            3000
        }
        fn name(&self) -> &str {
            "utf8mb4_awkward"
        }
        fn traits(&self) -> crate::def::CollationTraits {
            Utf8 { weight: 2, pad: true }.traits()
        }
        fn weights(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
            let text = std::str::from_utf8(text).unwrap().replace('ß', "ss").replace("ch", "\u{f000}");
            let text: String = text.chars().map(|c| if "éÉ".contains(c) { 'E' } else { c }).collect();
            Utf8 { weight: 2, pad: true }.weights(text.as_bytes(), max_chars, out);
        }
        fn weights_padded(&self, _: &[u8], _: usize, _: &mut Vec<u8>) {}
        fn prefix_bytes(&self, text: &[u8], _: usize) -> usize {
            text.len()
        }
    }

    /// What is stored of a text with spaces behind it, which comes back, from groups of either kind and inverted ones; and whether it is
    /// needed.
    fn item(collation: &dyn Collation, text: &[u8], spaces: usize) -> (Vec<u8>, bool) {
        let (restorer, mut scratch, mut out) = (Restorer::of(collation).unwrap(), Scratch::default(), Vec::new());
        scratch.weigh(collation, text);
        let original = [text, &b" ".repeat(spaces)].concat();
        let is_needed = restorer.put(&original, text, spaces, usize::MAX, &mut scratch, &mut out);
        let space = Spaces::new(if restorer.is_wide() { b"\0 " } else { b" " }).unwrap();
        for (padding, mask) in [(None, 0), (None, 0xff), (Some(&space), 0), (Some(&space), 0xff)] {
            let mut groups = scratch.bytes.clone();
            match padding {
                Some(spaces) => spaces.finish(&mut groups, 0),
                None => finish_counted(&mut groups, 0),
            }
            groups.iter_mut().for_each(|byte| *byte ^= mask);
            let part = Part { groups: &groups, mask, spaces: padding };
            let mut reader = Reader::new(if is_needed { &out } else { &[] });
            let mut found = Scratch { text: b"before".to_vec(), weights: vec![1], ..Scratch::default() };
            restorer.take(&part, b" ", &mut reader, &mut found).unwrap();
            assert_eq!(found.text, original);
            assert!(reader.is_empty());
        }
        let mut reader = Reader::new(&out);
        restorer.skip(&mut reader).unwrap();
        assert!(reader.is_empty());
        (out, is_needed)
    }

    #[test]
    fn little_is_stored_of_what_the_weights_tell() {
        let latin = Latin1 { ci: true, pad: true };
        assert_eq!(item(&latin, b"", 0), (vec![0], false));
        assert_eq!(item(&latin, b"small letters, 2 of 3", 0), (vec![0], false));
        assert_eq!(item(&latin, b"CAPITALS", 0), (vec![FIRST as u8], true));
        assert_eq!(item(&latin, b"A Title", 0), (b"\x10\x00A\x01T".to_vec(), true));
        assert_eq!(item(&latin, b"CAPITALs", 2), (b"\x0e\x02\x07s".to_vec(), true));
        assert_eq!(item(&latin, b"aBcDeF", 0), (b"\x0daBcDeF".to_vec(), true), "whole, where it is no longer");
        let utf8 = Utf8 { weight: 2, pad: true };
        assert_eq!(item(&utf8, "voilà, déjà vu".as_bytes(), 0), (vec![0], false));
        assert_eq!(item(&utf8, "😀".as_bytes(), 0).0, "\u{9}😀".as_bytes());
        assert_eq!(item(&Awkward, "déjà vu, mon ami".as_bytes(), 0).0, "\x08\x01é".as_bytes());
    }

    /// Characters of several weights, and weights of several characters, are where whole texts are stored.
    #[test]
    fn a_text_that_its_weights_do_not_tell_is_stored_whole() {
        for text in ["straße", "chalk", "ß", "x ch"] {
            let (out, is_needed) = item(&Awkward, text.as_bytes(), 1);
            assert!(is_needed && out.ends_with(b" ") && out.len() == text.len() + 2, "{text}: {out:?}");
        }
    }

    #[test]
    fn which_collations_it_is_for_follows_from_what_they_are() {
        assert!(Restorer::is_for(&Latin1 { ci: true, pad: false }) && Restorer::is_for(&Utf8 { weight: 3, pad: true }));
        assert!(
            !Restorer::is_for(&Latin1 { ci: false, pad: true }) && !Restorer::is_for(&Utf8 { weight: 0, pad: true })
        );
        assert!(!Restorer::is_for(&super::super::collations::TwoLevel));
    }

    proptest! {
        #[test]
        fn every_text_comes_back(
            text in prop_oneof!["[a-zA-Z ]{0,40}", "\\PC{0,20}", "[aAéß€😀 ]{0,30}", "[ch]{0,8}"],
            spaces in prop_oneof![Just(0usize), 0usize..300],
        ) {
            let text = text.trim_end_matches(' ');
            for collation in [&Utf8 { weight: 2, pad: true } as &dyn Collation, &Awkward] {
                let (out, _) = item(collation, text.as_bytes(), spaces);
                let length = text.len() + spaces;
                let header = if length < 64 { 1 } else { 2 };
                prop_assert!(out.len() <= length + header);
            }
            item(&Latin1 { ci: true, pad: true }, text.as_bytes(), spaces);
        }

        #[test]
        fn damaged_bytes_are_refused_or_read_as_something(
            unpack in prop::collection::vec(any::<u8>(), 0..12),
            groups in prop::collection::vec(any::<[u8; 9]>(), 0..3),
            mask: u8,
        ) {
            let groups = groups.concat();
            let utf8 = &Utf8 { weight: 2, pad: true } as &dyn Collation;
            for (collation, space) in [(utf8, &b"\0 "[..]), (&Latin1 { ci: true, pad: true }, b" ")] {
                let restorer = Restorer::of(collation).unwrap();
                let space = Spaces::new(space).unwrap();
                for spaces in [None, Some(&space)] {
                    let part = Part { groups: &groups, mask, spaces };
                    let _ = restorer.take(&part, b" ", &mut Reader::new(&unpack), &mut Scratch::default());
                }
                let _ = restorer.skip(&mut Reader::new(&unpack));
            }
        }
    }
}
