//! Collations by their names alone.
//!
//! Rows and keys are taken apart without comparing texts: what has to be known of a collation is how the server pads with it and in
//! which form its keys are written (docs/develop/format/keys.md). Both follow from its name.
//!
//! Rejected: the server's tables of weights (a tool of its own needs no server).

use std::sync::Arc;
use strata_row::def::{Collation, CollationTraits};

/// A collation of this number and name.
pub fn named(id: u32, name: &str) -> Arc<dyn Collation> {
    Arc::new(Named { id, name: name.to_owned(), traits: traits(name) })
}

/// The character set that the name of a collation begins with.
pub fn character_set(collation: &str) -> &str {
    collation.split('_').next().unwrap_or(collation)
}

/// Shortest and longest character of a character set, in bytes.
fn widths(set: &str) -> (u8, u8) {
    match set {
        "utf8" | "utf8mb3" | "ujis" | "eucjpms" => (1, 3),
        "utf8mb4" => (1, 4),
        "ucs2" => (2, 2),
        "utf16" | "utf16le" => (2, 4),
        "utf32" => (4, 4),
        "big5" | "gb2312" | "gbk" | "sjis" | "cp932" | "euckr" => (1, 2),
        _ => (1, 1),
    }
}

fn traits(name: &str) -> CollationTraits {
    let set = character_set(name);
    let (mbminlen, mbmaxlen) = widths(set);
    if name == "binary" {
        return CollationTraits { pad: false, bytes: true, binary: true, multilevel: false, mbminlen: 1, mbmaxlen: 1 };
    }
    let pad = !name.contains("nopad");
    let bytes = name.ends_with("_bin") && (mbmaxlen == 1 || set.starts_with("utf8"));
    // Of these the order has several levels: accents or case count after all letters.
    let is_uca_1400 = name.contains("uca1400");
    let levels = is_uca_1400 && (name.contains("_as_") || name.ends_with("_cs"))
        || name.ends_with("_w2")
        || matches!(name, "latin2_czech_cs" | "cp1250_czech_cs");
    CollationTraits { pad, bytes, binary: false, multilevel: levels && !bytes, mbminlen, mbmaxlen }
}

struct Named {
    id: u32,
    name: String,
    traits: CollationTraits,
}

impl Collation for Named {
    fn id(&self) -> u32 {
        self.id
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn traits(&self) -> CollationTraits {
        self.traits
    }
    /// As many bytes as the weights of the texts have; keys that are read are not compared with them.
    fn weights(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        let set = character_set(&self.name);
        let bytes = match set {
            "utf16" | "utf16le" | "utf32" if self.name.ends_with("_bin") => 3,
            "utf8" | "utf8mb3" | "utf8mb4" | "ucs2" | "utf16" | "utf16le" | "utf32" => 2,
            _ => 1,
        };
        let chars = (text.len() / usize::from(self.traits.mbminlen)).min(max_chars);
        for _ in 0..chars {
            out.extend_from_slice(&[0, 0, b' '][3 - bytes..]);
        }
    }
    fn weights_padded(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        self.weights(text, max_chars, out);
    }
    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        text.len().min(chars * usize::from(self.traits.mbmaxlen))
    }
}

/// Names of collations that are met where only their numbers are kept.
pub fn well_known(id: u32) -> Option<&'static str> {
    Some(match id {
        5 => "latin1_german1_ci",
        8 => "latin1_swedish_ci",
        9 => "latin2_general_ci",
        11 => "ascii_general_ci",
        31 => "latin1_german2_ci",
        33 => "utf8mb3_general_ci",
        35 => "ucs2_general_ci",
        45 => "utf8mb4_general_ci",
        46 => "utf8mb4_bin",
        47 => "latin1_bin",
        48 => "latin1_general_ci",
        54 => "utf16_general_ci",
        60 => "utf32_general_ci",
        63 => "binary",
        65 => "ascii_bin",
        83 => "utf8mb3_bin",
        192 => "utf8mb3_unicode_ci",
        224 => "utf8mb4_unicode_ci",
        246 => "utf8mb4_unicode_520_ci",
        1069 => "utf8mb4_general_nopad_ci",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, and what of it matters: P pads, B orders by bytes, L has levels, and the width of a character.
    const NAMES: &str = "
        binary                     B  1
        latin1_swedish_ci          P  1
        latin1_bin                 PB 1
        latin1_swedish_nopad_ci    -  1
        utf8mb3_general_ci         P  3
        utf8mb4_bin                PB 4
        utf8mb4_nopad_bin          B  4
        utf8mb4_uca1400_ai_ci      P  4
        utf8mb4_uca1400_as_cs      PL 4
        utf8mb4_uca1400_nopad_as_ci L 4
        utf16_bin                  P  4
        latin2_czech_cs            PL 1
        utf8mb4_thai_520_w2        PL 4
        sjis_bin                   P  2";

    #[test]
    fn a_name_says_what_must_be_known() {
        for line in NAMES.lines().filter(|line| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let found = traits(words[0]);
            let has = |c| words[1].contains(c);
            assert_eq!((found.pad, found.bytes, found.multilevel), (has('P'), has('B'), has('L')), "{line}");
            assert_eq!(found.mbmaxlen.to_string(), words[2], "{line}");
        }
    }
}
