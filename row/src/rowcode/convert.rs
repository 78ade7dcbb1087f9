//! Values of a column as an earlier schema version had it, for the column as it is now.
//!
//! Only widenings are conversions here: each value has exactly one image, and order and equality stay. Everything else is a change
//! for which the rows must be written anew.

use super::layout::Layout;
use crate::def::ColumnType;
use crate::schema::StoredColumn;

/// How a stored value becomes one of another type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conversion {
    /// The bytes stay.
    Same,
    /// An integer of more bytes; a negative one is filled with ones.
    Integer {
        /// The value may be negative.
        signed: bool,
    },
    /// A double from a float.
    Double,
}

/// True if values of the type have a length of their own in a row.
pub(crate) fn is_text(kind: ColumnType) -> bool {
    matches!(kind, ColumnType::Char | ColumnType::VarChar | ColumnType::Blob)
}

/// True if a text of the one column has the same bytes in the other: both are of one character set, or of the smaller and the larger
/// form of UTF-8. A collation's name begins with that of its character set.
fn same_bytes(from: &StoredColumn, to: &StoredColumn) -> bool {
    let (Some((_, from_name)), Some((_, to_name))) = (&from.collation, &to.collation) else {
        return from.collation == to.collation;
    };
    let set = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
    match (set(from_name).as_str(), set(to_name).as_str()) {
        (from_set, to_set) if from_set == to_set => from_set != "binary" || from.collation == to.collation,
        (from_set, to_set) => matches!(from_set, "utf8" | "utf8mb3") && to_set == "utf8mb4",
    }
}

impl Conversion {
    /// The conversion from one column to another; `None` if the rows would have to be written anew.
    pub(crate) fn between(from: &StoredColumn, to: &StoredColumn) -> Option<Conversion> {
        use ColumnType::{Blob, Bytes, Char, Double, Float, Int, VarChar};
        if from.nullable && !to.nullable || from.is_virtual != to.is_virtual || !same_bytes(from, to) {
            return None;
        }
        // The row has not the zeros at the end of a BINARY, which the same value as VARBINARY has.
        let padded = || from.collation.as_ref().is_some_and(|(_, name)| name != "binary");
        match (from.kind, to.kind) {
            (a, b) if a == b && from.size == to.size && from.length_bytes == to.length_bytes => Some(Conversion::Same),
            (Int { unsigned: from_unsigned }, Int { unsigned }) => {
                let fits = from_unsigned == unsigned || from_unsigned;
                (fits && from.size < to.size).then_some(Conversion::Integer { signed: !from_unsigned })
            }
            (Float, Double) => Some(Conversion::Double),
            (Bytes, Bytes) => None,
            (Char, Char) | (VarChar, VarChar) => (from.size <= to.size).then_some(Conversion::Same),
            (Char, VarChar) => (from.size <= to.size && padded()).then_some(Conversion::Same),
            (Char, Blob) => (to.size_max() >= u64::from(from.size) && padded()).then_some(Conversion::Same),
            (VarChar, Blob) => (to.size_max() >= u64::from(from.size)).then_some(Conversion::Same),
            (Blob, Blob) => (from.length_bytes <= to.length_bytes).then_some(Conversion::Same),
            _ => None,
        }
    }

    /// Puts a value that is not NULL into a record; false if it does not fit. The pointer of a BLOB leads to `value`.
    pub(crate) fn put(self, value: &[u8], layout: &Layout, record: &mut [u8]) -> bool {
        match layout.kind {
            ColumnType::Char | ColumnType::VarChar => return layout.set_text(record, value),
            ColumnType::Blob => return layout.set_blob(record, value),
            _ => {}
        }
        self.fill(value, layout.fixed_mut(record))
    }

    /// The value as a row of the new column has it, without a length.
    pub(crate) fn apply(self, value: &[u8], to: &StoredColumn) -> Option<Vec<u8>> {
        if is_text(to.kind) {
            return Some(value.to_vec());
        }
        let mut out = vec![0; to.size as usize];
        self.fill(value, &mut out).then_some(out)
    }

    fn fill(self, value: &[u8], slot: &mut [u8]) -> bool {
        match self {
            Conversion::Same if slot.len() == value.len() => slot.copy_from_slice(value),
            Conversion::Integer { signed } if slot.len() >= value.len() => {
                let negative = signed && value.last().is_some_and(|top| top & 0x80 != 0);
                let (low, high) = slot.split_at_mut(value.len());
                low.copy_from_slice(value);
                high.fill(if negative { 0xff } else { 0 });
            }
            Conversion::Double => {
                let (Ok(value), Some(slot)) = (<[u8; 4]>::try_from(value), slot.first_chunk_mut()) else {
                    return false;
                };
                *slot = f64::from(f32::from_le_bytes(value)).to_le_bytes();
            }
            _ => return false,
        }
        true
    }
}

impl StoredColumn {
    /// Greatest length of a value in bytes.
    pub(crate) fn size_max(&self) -> u64 {
        match self.kind {
            ColumnType::Blob => (1 << (8 * u32::from(self.length_bytes.min(4)))) - 1,
            _ => u64::from(self.size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(text: &str) -> StoredColumn {
        let (kind, rest) = text.split_at(text.find(|c: char| c.is_ascii_digit()).unwrap());
        let (size, nullable) = (rest.trim_end_matches('?'), rest.ends_with('?'));
        let size: u32 = size.parse().unwrap();
        let (kind, collation) = match kind {
            "int" => (ColumnType::Int { unsigned: false }, None),
            "uint" => (ColumnType::Int { unsigned: true }, None),
            "float" => (ColumnType::Float, None),
            "double" => (ColumnType::Double, None),
            "bytes" => (ColumnType::Bytes, None),
            "char" => (ColumnType::Char, Some("latin1")),
            "binary" => (ColumnType::Char, Some("binary")),
            "varchar" => (ColumnType::VarChar, Some("latin1")),
            "varbinary" => (ColumnType::VarChar, Some("binary")),
            "text" => (ColumnType::Blob, Some("latin1")),
            "uchar" => (ColumnType::Char, Some("utf8mb3_general_ci")),
            "wchar" => (ColumnType::Char, Some("utf8mb4_general_ci")),
            "uvarchar" => (ColumnType::VarChar, Some("utf8mb3_general_ci")),
            "ubinvarchar" => (ColumnType::VarChar, Some("utf8mb3_bin")),
            other => panic!("{other}"),
        };
        let blob = kind == ColumnType::Blob;
        StoredColumn {
            id: 0,
            name: "c".into(),
            kind,
            is_virtual: false,
            nullable,
            length_bytes: if blob {
                size as u8
            } else {
                u8::from(kind == ColumnType::VarChar) * (1 + u8::from(size > 255))
            },
            size: if blob { 0 } else { size },
            collation: collation.map(|name| (1, name.to_owned())),
            form: 1,
            initial: None,
        }
    }

    /// From, to, a value and what becomes of it; `-` where rows must be written anew.
    const CONVERSIONS: &str = "
        int2       int4       feff   feffffff
        int2       int4?      0201   02010000
        int4       int2       -
        int2?      int2       -
        int1       int8       80     80ffffffffffffff
        uint1      uint8      80     8000000000000000
        uint1      int2       80     8000
        uint2      int2       -
        int2       uint4      -
        int4       int4       01020304 01020304
        float4     double8    0000c03f 000000000000f83f
        double8    float4     -
        bytes5     bytes5     0102030405 0102030405
        bytes5     bytes6     -
        int4       bytes4     -
        char4      char8      61     61
        char4      uchar4     -
        uchar3     wchar4     61     61
        wchar4     uchar4     -
        uvarchar6  wchar8     -
        uvarchar6  ubinvarchar6 61   61
        ubinvarchar6 uvarchar6 61    61
        varchar4   ubinvarchar6 -
        char8      char4      -
        char4      varchar4   6162   6162
        char4      varchar3   -
        binary4    binary8    6100   6100
        binary4    varbinary8 -
        varchar4   varchar300 6120   6120
        varchar300 varchar4   -
        varchar4   char8      -
        varchar4   varbinary4 -
        varchar300 text2      61     61
        varchar300 text1      -
        char4      text1      61     61
        text1      text3      61     61
        text3      text1      -
        varchar4   int4       -";

    #[test]
    fn only_widenings_are_conversions() {
        for line in CONVERSIONS.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (from, to) = (column(words[0]), column(words[1]));
            let conversion = Conversion::between(&from, &to);
            if words[2] == "-" {
                assert_eq!(conversion, None, "{line}");
                continue;
            }
            let bytes = |hex: &str| -> Vec<u8> {
                (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
            };
            let value = conversion.unwrap_or_else(|| panic!("{line}")).apply(&bytes(words[2]), &to);
            assert_eq!(value.unwrap(), bytes(words[3]), "{line}");
        }
    }
}
