//! Random tables: columns of every type and many collations, generated columns, keys, partitions.
//!
//! Each table has a column `id` whose values are unique, so that any set of rows has one order. The values of a column are few,
//! so that keys meet.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, seq::SliceRandom};
use std::fmt::Write;

/// Greatest value of `id` that statements name.
pub const IDS: u32 = 60;

/// Character set and collation, and whether any text fits into the set.
const COLLATIONS: &[(&str, &str)] = &[
    ("utf8mb4", "utf8mb4_general_ci"),
    ("utf8mb4", "utf8mb4_bin"),
    ("utf8mb4", "utf8mb4_nopad_bin"),
    ("utf8mb4", "utf8mb4_unicode_ci"),
    ("utf8mb4", "utf8mb4_unicode_nopad_ci"),
    ("utf8mb4", "utf8mb4_unicode_520_ci"),
    ("utf8mb4", "utf8mb4_german2_ci"),
    ("utf8mb4", "utf8mb4_czech_ci"),
    ("utf8mb4", "utf8mb4_uca1400_ai_ci"),
    ("utf8mb4", "utf8mb4_uca1400_as_cs"),
    ("utf8mb4", "utf8mb4_uca1400_nopad_ai_cs"),
    ("utf8mb4", "utf8mb4_uca1400_swedish_nopad_as_ci"),
    ("utf8mb3", "utf8mb3_general_ci"),
    ("utf8mb3", "utf8mb3_unicode_ci"),
    ("latin1", "latin1_swedish_ci"),
    ("latin1", "latin1_german2_ci"),
    ("latin1", "latin1_bin"),
    ("latin1", "latin1_nopad_bin"),
    ("latin2", "latin2_czech_cs"),
    ("cp1250", "cp1250_czech_cs"),
    ("sjis", "sjis_japanese_ci"),
    ("big5", "big5_chinese_ci"),
    ("gbk", "gbk_chinese_ci"),
    ("eucjpms", "eucjpms_japanese_ci"),
    ("ucs2", "ucs2_general_ci"),
    ("utf16", "utf16_unicode_ci"),
    ("utf32", "utf32_bin"),
    ("ascii", "ascii_general_ci"),
    ("tis620", "tis620_thai_ci"),
];

const WORDS: &[&str] = &[
    "",
    "a",
    "A",
    "b",
    "b ",
    "B",
    "ab",
    "aB",
    "abc",
    "ABCD",
    "ss",
    "z",
    " ",
    "a\\0",
    "b\\t",
    "Zz top",
    "aaaaaaaaa",
    "aaaaaaaab",
];
const FOREIGN: &[&str] = &["á", "é", "ß", "ßßßß", "ch", "č", "日本", "あ", "ア", "😀", "Ä", "æ"];

/// What values a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domain {
    Int {
        unsigned: bool,
    },
    Decimal,
    Float,
    Bit,
    Date,
    /// A date with a time; `fraction`: of seconds. One that the column cannot hold makes the answer depend on the plan.
    Moment {
        fraction: bool,
    },
    /// As above.
    Time {
        fraction: bool,
    },
    Year,
    /// Text of a set of characters; `foreign`: which may hold others than ASCII; `nul`: values may end in a NUL. A CHAR of a
    /// collation without padding may not: the server takes its key for another value than the column, with either engine.
    Text {
        foreign: bool,
        nul: bool,
    },
    Bytes,
    Enum,
    Set,
    Inet,
    Uuid,
}

impl Domain {
    /// A literal of the domain.
    pub fn literal(self, rng: &mut SmallRng) -> String {
        let one = |rng: &mut SmallRng, list: &[&str]| (*list.choose(rng).expect("lists are not empty")).to_owned();
        let quoted = |rng: &mut SmallRng, list: &[&str]| format!("'{}'", one(rng, list));
        match self {
            Domain::Int { unsigned: true } => one(rng, &["0", "1", "2", "3", "5", "10", "100", "127", "200"]),
            Domain::Int { unsigned: false } => {
                one(rng, &["0", "1", "2", "3", "5", "10", "100", "127", "-1", "-5", "-128"])
            }
            Domain::Decimal => one(rng, &["0", "1.5", "-1.5", "12345.678", "0.001", "-0.001", "99999.999"]),
            Domain::Float => one(rng, &["0", "-0.5", "0.25", "3", "-7.75", "1048576", "-0.0"]),
            Domain::Bit => one(rng, &["0", "1", "5", "255", "256", "511"]),
            Domain::Date => quoted(rng, &["2000-01-01", "1999-12-31", "2024-02-29", "1000-01-01", "9999-12-31"]),
            Domain::Moment { fraction } => {
                let seconds =
                    ["2000-01-01 00:00:00", "2024-02-29 23:59:59", "1999-12-31 12:00:00", "2037-01-01 01:02:03"];
                let finer = ["2000-01-01 00:00:00.1", "2024-02-29 23:59:59.9", "1999-12-31 12:00:00.5"];
                if fraction && rng.random_range(0..2) == 0 { quoted(rng, &finer) } else { quoted(rng, &seconds) }
            }
            Domain::Time { fraction } => {
                let seconds = ["00:00:00", "-01:00:00", "12:34:56", "838:59:59", "-838:59:59"];
                let finer = ["-00:00:00.1", "-01:00:00.5", "12:34:56.7"];
                if fraction && rng.random_range(0..2) == 0 { quoted(rng, &finer) } else { quoted(rng, &seconds) }
            }
            Domain::Year => one(rng, &["1901", "2000", "2024", "2155"]),
            Domain::Text { foreign, nul } => match rng.random_range(0..20) {
                0 => format!("REPEAT('{}', {})", one(rng, &["k", "K", "m"]), one(rng, &["9", "30", "300"])),
                1..=5 if foreign => quoted(rng, FOREIGN),
                _ => match quoted(rng, WORDS) {
                    word if !nul && word.ends_with("\\0'") => "'a'".into(),
                    word => word,
                },
            },
            Domain::Bytes => match rng.random_range(0..12) {
                0 => format!("REPEAT(X'{}', {})", one(rng, &["00", "ff", "61"]), one(rng, &["9", "300"])),
                _ => one(rng, &["X''", "X'00'", "X'0000'", "X'ff00'", "'abc'", "'ab'", "X'616200'", "X'20'", "'ab '"]),
            },
            Domain::Enum => quoted(rng, &["x", "y", "z", "w"]),
            Domain::Set => quoted(rng, &["", "p", "q", "p,q", "r", "p,q,r"]),
            Domain::Inet => quoted(rng, &["::", "::1", "ffff::", "::ffff:10.0.0.1"]),
            Domain::Uuid => quoted(
                rng,
                &[
                    "00000000-0000-0000-0000-000000000000",
                    "6ccd780c-baba-1026-9564-5b8c656024db",
                    "ffffffff-ffff-4fff-bfff-ffffffffffff",
                ],
            ),
        }
    }

    /// Sums, least and greatest values do not depend on the order of rows, nor on which of equal values is met.
    pub fn is_exact(self) -> bool {
        matches!(
            self,
            Domain::Int { .. }
                | Domain::Decimal
                | Domain::Date
                | Domain::Moment { .. }
                | Domain::Time { .. }
                | Domain::Year
        )
    }

    fn is_text(self) -> bool {
        matches!(self, Domain::Text { .. })
    }
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub domain: Domain,
    /// Type and attributes, as after the name in CREATE TABLE.
    pub definition: String,
    /// Has an expression: no statement sets it.
    pub generated: bool,
    /// A key needs a prefix of it (BLOB, TEXT), or may have one.
    prefix: Prefix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefix {
    Never,
    May,
    Must,
}

/// A key other than the primary one.
#[derive(Clone, Debug)]
pub struct Key {
    pub name: String,
    /// As in CREATE TABLE, the name included.
    pub definition: String,
    /// Columns.
    pub columns: Vec<usize>,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    pub keys: Vec<Key>,
    primary: Option<String>,
    pub partitions: Option<Partitions>,
    /// It was made with partitions. An ALTER that takes them away may have failed.
    was_partitioned: bool,
    /// WITH SYSTEM VERSIONING.
    pub versioned: bool,
    /// May have a unique key over values of any length. Not where somebody writes at READ COMMITTED: InnoDB then has the
    /// server look for duplicates behind the write, so that another key is named, and UPDATE IGNORE is refused.
    long_keys: bool,
    next_name: u32,
}

impl Table {
    /// A random table.
    pub fn random(rng: &mut SmallRng, name: &str, long_keys: bool) -> Table {
        let partitions = Partitions::random(rng);
        let mut table = Table {
            name: name.to_owned(),
            columns: vec![Column {
                name: "id".into(),
                domain: Domain::Int { unsigned: false },
                definition: "INT NOT NULL".into(),
                generated: false,
                prefix: Prefix::Never,
            }],
            keys: Vec::new(),
            primary: None,
            was_partitioned: partitions.is_some(),
            partitions,
            versioned: rng.random_range(0..8) == 0,
            long_keys,
            next_name: 0,
        };
        for _ in 0..rng.random_range(2..8) {
            let column = table.random_column(rng);
            table.columns.push(column);
        }
        let unique_id = match rng.random_range(0..10) {
            0..=5 => {
                table.primary = Some("PRIMARY KEY (id)".into());
                false
            }
            6..=8 => {
                let parts = table.parts(rng, 1, true);
                table.primary = (!parts.0.is_empty()).then(|| format!("PRIMARY KEY ({}, id)", parts.0));
                true
            }
            _ => true,
        };
        if unique_id {
            table.keys.push(Key { name: "uid".into(), definition: "UNIQUE KEY uid (id)".into(), columns: vec![0] });
        }
        for _ in 0..rng.random_range(1..5) {
            let key = table.random_key(rng);
            table.keys.extend(key);
        }
        table
    }

    /// CREATE TABLE.
    pub fn create(&self) -> String {
        let mut sql = format!("CREATE TABLE {} (", self.name);
        let columns = self.columns.iter().map(|c| format!("{} {}", c.name, c.definition));
        let keys = self.primary.iter().cloned().chain(self.keys.iter().map(|k| k.definition.clone()));
        let parts: Vec<String> = columns.chain(keys).collect();
        let versioned = if self.versioned { " WITH SYSTEM VERSIONING" } else { "" };
        let partitions = self.partitions.as_ref().map(Partitions::definition).unwrap_or_default();
        let _ = write!(sql, "{}){versioned}{partitions}", parts.join(", "));
        sql
    }

    /// A key of `id` alone, in which no two rows are equal, unless old versions are in it.
    pub fn key_of_id(&self) -> Option<&'static str> {
        match (self.primary.as_deref(), self.keys.iter().any(|key| key.name == "uid")) {
            (Some("PRIMARY KEY (id)"), _) => Some("`PRIMARY`"),
            (_, true) => Some("uid"),
            _ => None,
        }
    }

    /// No key and no other column has to do with a column.
    pub fn is_free(&self, n: usize) -> bool {
        let column = &self.columns[n];
        let names = |text: &str| text.contains(&column.name);
        !column.generated
            && !self.primary.as_deref().is_some_and(names)
            && !self.keys.iter().any(|key| key.columns.contains(&n))
            && !self.columns.iter().any(|other| other.generated && names(&other.definition))
    }

    /// Takes out a column that is free.
    pub fn drop_column(&mut self, n: usize) -> Column {
        for key in &mut self.keys {
            key.columns.iter_mut().filter(|column| **column > n).for_each(|column| *column -= 1);
        }
        self.columns.remove(n)
    }

    /// Whether it may be partitioned.
    pub fn is_partitioned(&self) -> bool {
        self.was_partitioned
    }

    /// Then InnoDB loses index entries when the table is renamed.
    pub fn has_virtual(&self) -> bool {
        self.columns.iter().any(|column| column.definition.ends_with("VIRTUAL"))
    }

    /// A column that statements may set, other than `id`.
    pub fn settable(&self, rng: &mut SmallRng) -> Option<&Column> {
        let columns: Vec<&Column> = self.columns[1..].iter().filter(|c| !c.generated).collect();
        columns.choose(rng).copied()
    }

    /// Any column.
    pub fn column(&self, rng: &mut SmallRng) -> &Column {
        self.columns.choose(rng).expect("a table has columns")
    }

    /// A new column.
    pub fn random_column(&mut self, rng: &mut SmallRng) -> Column {
        self.next_name += 1;
        let name = format!("c{}", self.next_name);
        if rng.random_range(0..5) == 0
            && let Some(column) = self.generated_column(rng, &name)
        {
            return column;
        }
        let (kind, domain, prefix) = random_type(rng);
        let mut definition = kind;
        if rng.random_range(0..4) == 0 {
            definition += " NOT NULL";
        }
        if prefix != Prefix::Must && rng.random_range(0..3) == 0 {
            let _ = write!(definition, " DEFAULT {}", default_literal(domain, rng));
        }
        Column { name, domain, definition, generated: false, prefix }
    }

    fn generated_column(&self, rng: &mut SmallRng, name: &str) -> Option<Column> {
        let sources: Vec<&Column> = self.columns.iter().filter(|c| !c.generated).collect();
        let from = sources.choose(rng)?;
        // InnoDB gives rows of other columns where a partitioned table has virtual ones, and loses entries of indexes on them.
        let stored = self.is_partitioned() || rng.random_range(0..4) == 0;
        let stored = if stored { "PERSISTENT" } else { "VIRTUAL" };
        let c = &from.name;
        let (kind, expression, domain, prefix) = match from.domain {
            Domain::Int { .. } => match rng.random_range(0..2) {
                0 => ("BIGINT", format!("{c} * 2"), Domain::Int { unsigned: false }, Prefix::Never),
                _ => ("INT", format!("{c} % 3"), Domain::Int { unsigned: false }, Prefix::Never),
            },
            Domain::Text { foreign, nul } => match rng.random_range(0..3) {
                0 => ("VARCHAR(400)", format!("UPPER({c})"), Domain::Text { foreign, nul }, Prefix::May),
                1 => ("VARCHAR(40)", format!("LEFT({c}, 3)"), Domain::Text { foreign, nul }, Prefix::May),
                _ => ("INT", format!("CHAR_LENGTH({c})"), Domain::Int { unsigned: true }, Prefix::Never),
            },
            Domain::Date | Domain::Moment { .. } => {
                ("INT", format!("YEAR({c})"), Domain::Int { unsigned: true }, Prefix::Never)
            }
            _ => ("INT", format!("LENGTH({c})"), Domain::Int { unsigned: true }, Prefix::Never),
        };
        let kind = match prefix {
            Prefix::May => format!("{kind} CHARACTER SET utf8mb4"),
            _ => kind.to_owned(),
        };
        let definition = format!("{kind} AS ({expression}) {stored}");
        Some(Column { name: name.to_owned(), domain, definition, generated: true, prefix })
    }

    /// A new key, unless no column can be in one.
    pub fn random_key(&mut self, rng: &mut SmallRng) -> Option<Key> {
        if self.long_keys
            && rng.random_range(0..8) == 0
            && let Some(key) = self.long_key(rng)
        {
            return Some(key);
        }
        let several = rng.random_range(1..4);
        let (mut parts, mut columns) = self.parts(rng, several, false);
        if parts.is_empty() {
            return None;
        }
        self.next_name += 1;
        let name = format!("k{}", self.next_name);
        let unique = if rng.random_range(0..4) == 0 { "UNIQUE " } else { "" };
        if !unique.is_empty() && self.is_partitioned() && !columns.contains(&0) {
            parts += ", id";
            columns.push(0);
        }
        Some(Key { definition: format!("{unique}KEY {name} ({parts})"), name, columns })
    }

    /// A unique key over whole values that are too long for an index: the server keeps an index of their hashes.
    fn long_key(&mut self, rng: &mut SmallRng) -> Option<Key> {
        let is_long = |c: &Column| c.prefix == Prefix::Must && !c.generated;
        let long: Vec<usize> = (0..self.columns.len()).filter(|&n| is_long(&self.columns[n])).collect();
        let &n = long.choose(rng).filter(|_| !self.is_partitioned())?;
        self.next_name += 1;
        let (name, column) = (format!("k{}", self.next_name), &self.columns[n].name);
        let second = if rng.random_range(0..3) == 0 { ", id" } else { "" };
        Some(Key { definition: format!("UNIQUE KEY {name} ({column}{second})"), name, columns: vec![n] })
    }

    /// Some columns as parts of a key. `primary`: only those that may be in a primary key.
    fn parts(&self, rng: &mut SmallRng, several: usize, primary: bool) -> (String, Vec<usize>) {
        let mut numbers: Vec<usize> = (usize::from(primary)..self.columns.len()).collect();
        numbers.shuffle(rng);
        let is_virtual = |n: &usize| self.columns[*n].definition.ends_with("VIRTUAL");
        // InnoDB does not find all rows of a table with versions by virtual columns in a snapshot.
        let is_lost = |n: &usize| self.versioned && is_virtual(n);
        let fits = |n: &usize| !is_lost(n) && (!primary || !self.columns[*n].generated);
        let mut numbers: Vec<usize> = numbers.into_iter().filter(fits).take(several).collect();
        if numbers.iter().any(is_virtual) {
            // InnoDB gives NULL for a virtual column of a key in which the beginning of a BLOB is, too, once the rows are sorted.
            numbers.retain(|&n| self.columns[n].prefix != Prefix::Must);
        }
        let parts = numbers.iter().map(|&n| {
            let column = &self.columns[n];
            let mut part = column.name.clone();
            let length = match column.prefix {
                Prefix::Must => true,
                // InnoDB does not find all rows by the beginnings of virtual columns in a snapshot, and loses entries.
                Prefix::May if is_virtual(&n) => false,
                Prefix::May => rng.random_range(0..2) == 0,
                Prefix::Never => false,
            };
            if length {
                let _ = write!(part, "({})", rng.random_range(1..8));
            }
            if rng.random_range(0..4) == 0 {
                part += " DESC";
            }
            part
        });
        (parts.collect::<Vec<_>>().join(", "), numbers)
    }
}

/// How a table is partitioned, by `id`.
#[derive(Clone, Debug)]
pub enum Partitions {
    Hash(u32),
    Key(u32),
    /// Below 10, below 30, above; in partitions `p0` to `p2`.
    Range,
}

impl Partitions {
    fn random(rng: &mut SmallRng) -> Option<Partitions> {
        Some(match rng.random_range(0..8) {
            0 => Partitions::Hash(rng.random_range(1..5)),
            1 => Partitions::Key(rng.random_range(1..5)),
            2 => Partitions::Range,
            _ => return None,
        })
    }

    fn definition(&self) -> String {
        match self {
            Partitions::Hash(n) => format!(" PARTITION BY HASH (id) PARTITIONS {n}"),
            Partitions::Key(n) => format!(" PARTITION BY KEY (id) PARTITIONS {n}"),
            Partitions::Range => " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), \
                                  PARTITION p1 VALUES LESS THAN (30), PARTITION p2 VALUES LESS THAN MAXVALUE)"
                .into(),
        }
    }

    /// The name of one of them; there may be none of that name any more.
    pub fn one(&self, rng: &mut SmallRng) -> String {
        match self {
            Partitions::Hash(n) | Partitions::Key(n) => format!("p{}", rng.random_range(0..*n)),
            Partitions::Range => format!("p{}", rng.random_range(0..3)),
        }
    }
}

fn random_type(rng: &mut SmallRng) -> (String, Domain, Prefix) {
    let text = |rng: &mut SmallRng, kind: &str| {
        let (set, collation) = COLLATIONS.choose(rng).expect("the list is not empty");
        let foreign = set.starts_with("utf") || *set == "ucs2";
        let nul = !(kind.starts_with("CHAR") && collation.contains("nopad"));
        (format!("{kind} CHARACTER SET {set} COLLATE {collation}"), Domain::Text { foreign, nul })
    };
    let signed = rng.random_range(0..3) > 0;
    let number = if signed { "" } else { " UNSIGNED" };
    let int = Domain::Int { unsigned: !signed };
    let never = |(kind, domain)| (kind, domain, Prefix::Never);
    match rng.random_range(0..24) {
        0 => never((format!("TINYINT{number}"), int)),
        1 => never((format!("SMALLINT{number}"), int)),
        2 => never((format!("MEDIUMINT{number}"), int)),
        3 | 4 => never((format!("INT{number}"), int)),
        5 => never((format!("BIGINT{number}"), int)),
        6 => never(("DECIMAL(8,3)".into(), Domain::Decimal)),
        7 => never((["FLOAT", "DOUBLE"][rng.random_range(0..2)].into(), Domain::Float)),
        8 => never(("BIT(9)".into(), Domain::Bit)),
        9 => never(("DATE".into(), Domain::Date)),
        10 | 11 => {
            let kinds = ["DATETIME", "TIMESTAMP NULL", "DATETIME(3)", "DATETIME(6)", "TIMESTAMP(2) NULL"];
            let n = rng.random_range(0..kinds.len());
            never((kinds[n].into(), Domain::Moment { fraction: n > 1 }))
        }
        12 => {
            let n = rng.random_range(0..2);
            never((["TIME", "TIME(1)"][n].into(), Domain::Time { fraction: n == 1 }))
        }
        13 => never(("YEAR".into(), Domain::Year)),
        14 => never(("ENUM('x','y','z','w')".into(), Domain::Enum)),
        15 => never(("SET('p','q','r')".into(), Domain::Set)),
        16 => never(("INET6".into(), Domain::Inet)),
        17 => never(("UUID".into(), Domain::Uuid)),
        18 => (["BINARY(5)", "VARBINARY(400)"][rng.random_range(0..2)].into(), Domain::Bytes, Prefix::May),
        19 => (["TINYBLOB", "BLOB", "LONGBLOB"][rng.random_range(0..3)].into(), Domain::Bytes, Prefix::Must),
        20 => {
            let (kind, domain) = text(rng, "CHAR(8)");
            (kind, domain, Prefix::May)
        }
        21 | 22 => {
            let length = [4, 20, 300][rng.random_range(0..3)];
            let (kind, domain) = text(rng, &format!("VARCHAR({length})"));
            (kind, domain, Prefix::May)
        }
        _ => {
            let (kind, domain) = text(rng, "TEXT");
            (kind, domain, Prefix::Must)
        }
    }
}

/// A literal that may stand behind DEFAULT.
fn default_literal(domain: Domain, rng: &mut SmallRng) -> String {
    loop {
        let literal = domain.literal(rng);
        let short = !literal.contains('(') && literal.len() < 8 && literal.is_ascii();
        if short || !(domain.is_text() || domain == Domain::Bytes) {
            return literal;
        }
    }
}
