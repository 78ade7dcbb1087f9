//! Self-delimiting groups for values of variable length.
//!
//! # Purpose
//! A key part of variable length must end in a way that keeps the order of the whole key: a shorter value must sort
//! before or, with PAD SPACE, compare *as if followed by spaces without end*.
//!
//! # Format
//! Both forms cut the value into groups of fixed size and put a marker byte after each.
//!
//! *Counted* (binary values, NO PAD, multi-level weights): groups of 8 bytes, the last filled with 0x00. Marker: number
//! of bytes used, 0 to 8, if the value ends with this group; 9 if it goes on. The empty value is one group.
//!
//! *Padded* (PAD SPACE): let `S` be the weight of a space, reduced to its shortest period. Trailing `S` are cut off; the
//! group size is the multiple of `|S|` that is next to 8; the last group is filled with `S`. Marker: 2 if the value
//! ends with this group; else the rest of the value against spaces without end: 1 less, 3 greater. Groups are equal up
//! to some point, then either bytes differ or one marker says how the longer value goes on relative to the padding of
//! the shorter.
//!
//! # Invariants
//! Weights of a collation are a multiple of `|S|` long (a value that is not gets 0x00 up to there, so equal values
//! still encode equally). Therefore "spaces without end" begins with a whole `S` at every group boundary, and one
//! marker, computed from one value alone, is valid against every other value.
//!
//! # Rejected alternative
//! Escaping (0x00 as 0x00 0xff, end 0x00 0x00): shorter for short byte strings, but two-byte weights of Latin text are
//! half zeros and would double, and the padding comparison has no place in it.

/// Payload bytes of a counted group.
pub(crate) const COUNTED: usize = 8;
/// Marker of a counted group that is not the last.
const MORE: u8 = COUNTED as u8 + 1;
const LESS: u8 = 1;
const ENDS: u8 = 2;
const GREATER: u8 = 3;

/// Encoded length of at most `bytes` payload bytes in groups of `group`.
pub(crate) fn encoded_len(bytes: usize, group: usize) -> usize {
    bytes.div_ceil(group).max(1) * (group + 1)
}

/// Groups `out[start..]` in the counted form, in place.
pub(crate) fn finish_counted(out: &mut Vec<u8>, start: usize) {
    let bytes = out.len() - start;
    let groups = bytes.div_ceil(COUNTED).max(1);
    out.resize(start + groups * (COUNTED + 1), 0);
    let area = &mut out[start..];
    // The last group's bytes beyond the payload are still zero, its source begins where no group has been moved to.
    let mut marker = (bytes - (groups - 1) * COUNTED) as u8;
    for i in (0..groups).rev() {
        let mut payload = [0; COUNTED];
        let used = if i == groups - 1 { marker as usize } else { COUNTED };
        payload[..used].copy_from_slice(&area[i * COUNTED..i * COUNTED + used]);
        let at = i * (COUNTED + 1);
        area[at..at + COUNTED].copy_from_slice(&payload);
        area[at + COUNTED] = marker;
        marker = MORE;
    }
}

/// The end of padded values: the weight of a space, as a whole group of them.
#[derive(Clone, Debug)]
pub(crate) struct Spaces {
    group: Box<[u8]>,
    unit: usize,
}

impl Spaces {
    /// From the weight of one space; `None` if a space has no weight.
    pub(crate) fn new(weight: &[u8]) -> Option<Spaces> {
        let unit = (1..=weight.len())
            .find(|&unit| weight.len() % unit == 0 && weight.chunks(unit).all(|chunk| *chunk == weight[..unit]))?;
        let group = weight[..unit].repeat(8usize.div_ceil(unit)).into_boxed_slice();
        Some(Spaces { group, unit })
    }

    /// Payload bytes of a group.
    pub(crate) fn group_len(&self) -> usize {
        self.group.len()
    }

    /// The weight of a space, without repetitions.
    pub(crate) fn unit(&self) -> &[u8] {
        &self.group[..self.unit]
    }

    /// Spaces, and what weighs as they do, at the end of the value whose groups are these: they fill the last one.
    pub(crate) fn filling(&self, groups: &[u8], mask: u8) -> usize {
        let size = self.group.len();
        let Some(last) = groups.len().checked_sub(size + 1) else { return 0 };
        let units = groups[last..last + size].rchunks_exact(self.unit);
        let is_space = |unit: &&[u8]| unit.iter().zip(self.unit()).all(|(byte, space)| byte ^ mask == *space);
        units.take_while(is_space).count()
    }

    /// Bytes of weights without those of spaces at the end.
    pub(crate) fn trimmed(&self, weights: &[u8]) -> usize {
        let unit = self.unit();
        let mut length = weights.len();
        while length >= self.unit && weights[length - self.unit..length] == *unit {
            length -= self.unit;
        }
        length
    }

    /// Groups `out[start..]` in the padded form, in place.
    pub(crate) fn finish(&self, out: &mut Vec<u8>, start: usize) {
        while (out.len() - start) % self.unit != 0 {
            out.push(0);
        }
        let kept = self.trimmed(&out[start..]);
        out.truncate(start + kept);
        let size = self.group.len();
        let bytes = out.len() - start;
        let groups = bytes.div_ceil(size).max(1);
        let short = groups * size - bytes;
        out.extend_from_slice(&self.group[size - short..]);
        out.resize(start + groups * (size + 1), 0);
        let area = &mut out[start..];
        let mut marker = ENDS;
        for i in (0..groups).rev() {
            let (from, to) = (i * size, i * (size + 1));
            let order = if let (Ok(payload), Ok(spaces)) =
                (<[u8; 8]>::try_from(&area[from..from + size]), <[u8; 8]>::try_from(&self.group[..]))
            {
                area[to..to + 8].copy_from_slice(&payload);
                u64::from_be_bytes(payload).cmp(&u64::from_be_bytes(spaces))
            } else {
                let order = area[from..from + size].cmp(&self.group[..]);
                area.copy_within(from..from + size, to);
                order
            };
            area[to + size] = marker;
            // What the group before has to say about its rest: this group, and only if that is all spaces, what follows.
            marker = match order {
                std::cmp::Ordering::Less => LESS,
                std::cmp::Ordering::Greater => GREATER,
                std::cmp::Ordering::Equal => marker,
            };
        }
    }

    /// End of the padded value that begins at `bytes[at]`; every byte is stored xor `mask`.
    pub(crate) fn skip(&self, bytes: &[u8], mut at: usize, mask: u8) -> Option<usize> {
        loop {
            let marker = bytes.get(at + self.group.len())? ^ mask;
            at += self.group.len() + 1;
            match marker {
                ENDS => return Some(at),
                LESS | GREATER => {}
                _ => return None,
            }
        }
    }

    /// Copies the payload into `slot` and returns the value's length without trailing spaces, and where the encoded
    /// value ends. `None` if the bytes are malformed or the value does not fit.
    pub(crate) fn read(&self, bytes: &[u8], mut at: usize, mask: u8, slot: &mut [u8]) -> Option<(usize, usize)> {
        let size = self.group.len();
        let mut length = 0;
        loop {
            let group = bytes.get(at..at + size + 1)?;
            let room = (slot.len() - length).min(size);
            for (to, from) in slot[length..length + room].iter_mut().zip(group) {
                *to = from ^ mask;
            }
            if group[room..size].iter().zip(&self.group[room..]).any(|(byte, space)| byte ^ mask != *space) {
                return None;
            }
            length += room;
            at += size + 1;
            match group[size] ^ mask {
                ENDS => break,
                LESS | GREATER => {}
                _ => return None,
            }
        }
        Some((self.trimmed(&slot[..length]), at))
    }
}

/// Makes `out` the weights, of one byte each or of two, of a value whose groups are `part`, with those that fill its last group if the groups
/// are padded ones. None if a group ends within a weight.
pub(crate) fn read_weights(part: &[u8], spaces: Option<&Spaces>, mask: u8, wide: bool, out: &mut Vec<u16>) {
    out.clear();
    let size = spaces.map_or(COUNTED, Spaces::group_len);
    for group in part.chunks_exact(size + 1) {
        let used = match spaces {
            None if group[size] ^ mask != MORE => usize::from(group[size] ^ mask).min(size),
            _ => size,
        };
        let payload = &group[..used];
        if !wide {
            out.extend(payload.iter().map(|byte| u16::from(byte ^ mask)));
        } else if let Ok(eight) = <[u8; 8]>::try_from(payload) {
            let four = u64::from_be_bytes(eight) ^ u64::from_ne_bytes([mask; 8]);
            out.extend_from_slice(&[(four >> 48) as u16, (four >> 32) as u16, (four >> 16) as u16, four as u16]);
        } else if let (pairs, []) = payload.as_chunks() {
            out.extend(pairs.iter().map(|&pair| u16::from_be_bytes(pair) ^ u16::from_ne_bytes([mask; 2])));
        } else {
            return out.clear();
        }
    }
}

/// End of the counted value that begins at `bytes[at]`; every byte is stored xor `mask`.
pub(crate) fn skip_counted(bytes: &[u8], mut at: usize, mask: u8) -> Option<usize> {
    loop {
        let marker = bytes.get(at + COUNTED)? ^ mask;
        at += COUNTED + 1;
        match marker {
            MORE => {}
            marker if marker as usize <= COUNTED => return Some(at),
            _ => return None,
        }
    }
}

/// Copies a counted value into `slot`; returns its length and where the encoded value ends. `None` if the bytes are
/// malformed or the value does not fit.
pub(crate) fn read_counted(bytes: &[u8], mut at: usize, mask: u8, slot: &mut [u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    loop {
        let group = bytes.get(at..at + COUNTED + 1)?;
        let marker = group[COUNTED] ^ mask;
        let used = match marker {
            MORE => COUNTED,
            marker if marker as usize <= COUNTED => marker as usize,
            _ => return None,
        };
        let target = slot.get_mut(length..length + used)?;
        for (to, from) in target.iter_mut().zip(group) {
            *to = from ^ mask;
        }
        length += used;
        at += COUNTED + 1;
        if marker != MORE {
            return Some((length, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    fn counted(value: &[u8]) -> Vec<u8> {
        let mut out = b"x".to_vec();
        out.extend_from_slice(value);
        finish_counted(&mut out, 1);
        out.split_off(1)
    }

    fn padded(spaces: &Spaces, value: &[u8]) -> Vec<u8> {
        let mut out = b"x".to_vec();
        out.extend_from_slice(value);
        spaces.finish(&mut out, 1);
        out.split_off(1)
    }

    /// Compares as if both were followed by the weight of spaces without end.
    fn with_spaces(a: &[u8], b: &[u8], weight: &[u8]) -> Ordering {
        let length = a.len().max(b.len()) + weight.len();
        let long = |value: &[u8]| -> Vec<u8> {
            value.iter().copied().chain(weight.iter().copied().cycle()).take(length).collect()
        };
        long(a).cmp(&long(b))
    }

    #[test]
    fn a_weight_is_reduced_to_its_period() {
        assert!(Spaces::new(b"").is_none());
        assert_eq!(Spaces::new(b"    ").map(|s| (s.unit, s.group_len())), Some((1, 8)));
        assert_eq!(Spaces::new(b"\0 \0 ").map(|s| (s.unit, s.group_len())), Some((2, 8)));
        assert_eq!(Spaces::new(b"\0\0 ").map(|s| (s.unit, s.group_len())), Some((3, 9)));
    }

    #[test]
    fn malformed_groups_are_refused() {
        let spaces = Spaces::new(b" ").unwrap();
        for marker in [0, 4, 255] {
            assert_eq!(spaces.skip(&[b' ', b' ', b' ', b' ', b' ', b' ', b' ', b' ', marker], 0, 0), None);
        }
        assert_eq!(spaces.skip(b"abcdefgh", 0, 0), None);
        assert_eq!(spaces.skip(b"abcdefgh\x01", 0, 0), None);
        assert_eq!(skip_counted(b"abcdefgh\x0a", 0, 0), None);
        assert_eq!(skip_counted(b"abcdefgh\x09", 0, 0), None);
        let mut slot = [0; 4];
        assert_eq!(read_counted(&counted(b"abcde"), 0, 0, &mut slot), None, "does not fit");
        assert_eq!(spaces.read(&padded(&spaces, b"abcde"), 0, 0, &mut slot), None, "does not fit");
        assert_eq!(spaces.read(&padded(&spaces, b"abcd  "), 0, 0, &mut slot), Some((4, 9)));
    }

    #[test]
    fn weights_of_odd_length_are_brought_to_whole_units() {
        let spaces = Spaces::new(b"\0 ").unwrap();
        assert_eq!(padded(&spaces, b"\0ab"), b"\0ab\0\0 \0 \x02");
        assert_eq!(padded(&spaces, b"\0ab"), padded(&spaces, b"\0ab\0\0 "));
        assert_eq!(spaces.skip(&padded(&spaces, b"\0a\0b\0c\0d\0"), 0, 0), Some(18));
    }

    /// Few different bytes, so that long common beginnings and runs of spaces are frequent.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 9, 32, 32, 32, 97, 255]), 0..40)
    }

    proptest! {
        #[test]
        fn counted_keeps_order_and_returns_the_value(a in value(), b in value(), mask in prop::bool::ANY) {
            let (ea, eb) = (counted(&a), counted(&b));
            prop_assert_eq!(ea.cmp(&eb), a.cmp(&b));
            prop_assert_eq!(ea.len(), encoded_len(a.len(), COUNTED));
            let mask = if mask { 0xff } else { 0 };
            let stored: Vec<u8> = ea.iter().chain(b"tail").map(|byte| byte ^ mask).collect();
            prop_assert_eq!(skip_counted(&stored, 0, mask), Some(ea.len()));
            let mut slot = [0; 64];
            prop_assert_eq!(read_counted(&stored, 0, mask, &mut slot), Some((a.len(), ea.len())));
            prop_assert_eq!(&slot[..a.len()], &a[..]);
        }

        #[test]
        fn padded_keeps_the_order_of_endless_values(a in value(), b in value(), unit in 1usize..=4) {
            let weight = &b"\0\0\0 "[4 - unit..];
            let spaces = Spaces::new(weight).unwrap();
            let whole = |v: &[u8]| v[..v.len() / unit * unit].to_vec();
            let (a, b) = (whole(&a), whole(&b));
            let (ea, eb) = (padded(&spaces, &a), padded(&spaces, &b));
            prop_assert_eq!(ea.cmp(&eb), with_spaces(&a, &b, weight), "{:?} {:?}", ea, eb);
            prop_assert_eq!(spaces.skip(&ea, 0, 0), Some(ea.len()));
            let mut slot = [0; 64];
            let (length, end) = spaces.read(&ea, 0, 0, &mut slot).unwrap();
            prop_assert_eq!(end, ea.len());
            prop_assert_eq!(with_spaces(&slot[..length], &a, weight), Ordering::Equal);
            prop_assert!(length <= a.len() && (length < unit || slot[length - unit..length] != *weight));
        }
    }
}
