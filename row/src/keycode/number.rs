//! Numbers in keys: bytes whose order is that of the values.
//!
//! Integers are big-endian with the sign bit turned over; of floating point numbers the negative ones are turned over as a whole.

/// Appends a little-endian float as big-endian bytes in value order: the sign bit of positive numbers is set, negative ones are turned
/// over, and the two zeros are one.
macro_rules! put_float {
    ($float:ty, $data:expr, $out:expr) => {{
        let mut bytes = [0; size_of::<$float>()];
        bytes.copy_from_slice($data);
        let value = <$float>::from_le_bytes(bytes);
        let bits = if value == 0.0 { 0 } else { value.to_bits() };
        let sign = 1 << (8 * bytes.len() - 1);
        let bits = if bits & sign == 0 { bits | sign } else { !bits };
        $out.extend_from_slice(&bits.to_be_bytes());
    }};
}

/// A FLOAT, as above.
pub(super) fn put_single(data: &[u8], out: &mut Vec<u8>) {
    put_float!(f32, data, out);
}

/// A DOUBLE, as above.
pub(super) fn put_double(data: &[u8], out: &mut Vec<u8>) {
    put_float!(f64, data, out);
}

/// The reverse of the two above, for a part stored xor `mask`.
#[inline]
pub(super) fn take_float(stored: &[u8], mask: u8, slot: &mut [u8]) {
    for (to, from) in slot.iter_mut().rev().zip(stored) {
        *to = from ^ mask;
    }
    let Some(top) = slot.last_mut() else { return };
    if *top & 0x80 != 0 {
        *top ^= 0x80;
    } else {
        slot.iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Appends a little-endian integer as big-endian bytes in value order.
#[inline]
pub(super) fn put_int(data: &[u8], unsigned: bool, out: &mut Vec<u8>) {
    let sign = u8::from(!unsigned) << 7;
    match *data {
        [a] => out.push(a ^ sign),
        [a, b] => out.extend_from_slice(&[b ^ sign, a]),
        [a, b, c] => out.extend_from_slice(&[c ^ sign, b, a]),
        [a, b, c, d] => out.extend_from_slice(&[d ^ sign, c, b, a]),
        [a, b, c, d, e, f, g, h] => out.extend_from_slice(&[h ^ sign, g, f, e, d, c, b, a]),
        _ => {
            let start = out.len();
            out.extend(data.iter().rev());
            out[start] ^= sign;
        }
    }
}

/// The reverse of [`put_int`], for a part stored xor `mask`.
#[inline]
pub(super) fn take_int(stored: &[u8], unsigned: bool, m: u8, slot: &mut [u8]) {
    let sign = m ^ (u8::from(!unsigned) << 7);
    match (stored, slot) {
        (&[a], [p]) => *p = a ^ sign,
        (&[a, b], [p, q]) => (*p, *q) = (b ^ m, a ^ sign),
        (&[a, b, c], [p, q, r]) => (*p, *q, *r) = (c ^ m, b ^ m, a ^ sign),
        (&[a, b, c, d], [p, q, r, s]) => (*p, *q, *r, *s) = (d ^ m, c ^ m, b ^ m, a ^ sign),
        (stored, slot) => {
            for (to, from) in slot.iter_mut().rev().zip(stored) {
                *to = from ^ m;
            }
            if let (false, Some(top)) = (unsigned, slot.last_mut()) {
                *top ^= 0x80;
            }
        }
    }
}
