//! The three tables, and rows as text.

use std::fmt::Write as _;

/// Partitions of the table of links, where it has some.
pub const PARTITIONS: u32 = 16;
/// The type of all nodes.
pub const NODE_TYPE: u32 = 2048;
/// Visibility of a link that is there, and of one that was deleted.
pub const VISIBLE: u8 = 1;
pub const HIDDEN: u8 = 0;
/// Columns of a link, in the order of [`push_link`].
pub const LINK_COLUMNS: &str = "id1, id2, link_type, visibility, data, time, version";

/// A visible link of version 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// From this node,
    pub id1: u64,
    /// to this one.
    pub id2: u64,
    /// Its type.
    pub link_type: u64,
    /// Milliseconds since 1970.
    pub time: u64,
    /// Its payload.
    pub data: Vec<u8>,
}

/// How the tables are made.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Divide the links by key partitions on the first node.
    pub partitioned: bool,
    /// Compare payloads by bytes, not by the rules of Swedish.
    pub binary: bool,
}

/// The statements that make the tables.
pub fn statements(engine: &str, layout: Layout) -> [String; 3] {
    let collation = if layout.binary { " COLLATE=latin1_bin" } else { "" };
    let options = format!("ENGINE={engine} DEFAULT CHARSET=latin1{collation}");
    let partitions =
        if layout.partitioned { format!(" PARTITION BY KEY (id1) PARTITIONS {PARTITIONS}") } else { String::new() };
    [
        format!(
            "CREATE TABLE linktable (
               id1 BIGINT UNSIGNED NOT NULL DEFAULT 0,
               id2 BIGINT UNSIGNED NOT NULL DEFAULT 0,
               link_type BIGINT UNSIGNED NOT NULL DEFAULT 0,
               visibility TINYINT NOT NULL DEFAULT 0,
               data VARCHAR(255) NOT NULL DEFAULT '',
               time BIGINT UNSIGNED NOT NULL DEFAULT 0,
               version INT UNSIGNED NOT NULL DEFAULT 0,
               PRIMARY KEY (id1, id2, link_type),
               KEY id1_type (id1, link_type, visibility, time, id2, version, data)
             ) {options}{partitions}"
        ),
        format!(
            "CREATE TABLE counttable (
               id BIGINT UNSIGNED NOT NULL DEFAULT 0,
               link_type BIGINT UNSIGNED NOT NULL DEFAULT 0,
               count INT UNSIGNED NOT NULL DEFAULT 0,
               time BIGINT UNSIGNED NOT NULL DEFAULT 0,
               version BIGINT UNSIGNED NOT NULL DEFAULT 0,
               PRIMARY KEY (id, link_type)
             ) {options}"
        ),
        format!(
            "CREATE TABLE nodetable (
               id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
               type INT UNSIGNED NOT NULL,
               version BIGINT UNSIGNED NOT NULL,
               time INT UNSIGNED NOT NULL,
               data MEDIUMTEXT NOT NULL,
               PRIMARY KEY (id)
             ) {options}"
        ),
    ]
}

/// All tables.
pub const TABLES: [&str; 3] = ["linktable", "counttable", "nodetable"];

/// Appends a link as a row of VALUES.
pub fn push_link(text: &mut String, link: &Link) {
    let Link { id1, id2, link_type, time, data } = link;
    let _ = write!(text, "({id1},{id2},{link_type},{VISIBLE},");
    push_bytes(text, data);
    let _ = write!(text, ",{time},0)");
}

/// Appends bytes as a literal in hexadecimal, which no character set changes.
pub fn push_bytes(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.push_str("x'");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_as_text() {
        let mut text = String::new();
        push_link(&mut text, &Link { id1: 1, id2: 2, link_type: 3, time: 4, data: vec![0x00, 0xff, 0x27] });
        assert_eq!(text, "(1,2,3,1,x'00ff27',4,0)");
        let mut text = String::new();
        push_bytes(&mut text, &[]);
        assert_eq!(text, "x''");
    }

    #[test]
    fn layouts() {
        let [links, counts, nodes] = statements("STRATA", Layout { partitioned: true, binary: true });
        assert!(
            links.ends_with(
                "ENGINE=STRATA DEFAULT CHARSET=latin1 COLLATE=latin1_bin PARTITION BY KEY (id1) PARTITIONS 16"
            )
        );
        assert!([counts, nodes].iter().all(|text| text.ends_with("latin1_bin")));
        let plain = statements("InnoDB", Layout { partitioned: false, binary: false });
        assert!(plain.iter().all(|text| text.ends_with("ENGINE=InnoDB DEFAULT CHARSET=latin1")));
    }
}
