//! What a statement is answered, and how the answers of two engines stand to each other.

use std::fmt::{self, Write};

/// ER_NO_REFERENCED_ROW_2
const NO_PARENT: u16 = 1452;
/// "Table definition has changed, please retry transaction".
const TABLE_CHANGED: u16 = 1412;
/// "Duplicate entry ... for key ...".
const DUPLICATE: u16 = 1062;
/// Errors of foreign keys. Their texts agree, except where the table that an ALTER fills is named in them.
const FOREIGN: [u16; 8] = [1005, 1215, 1216, 1217, 1451, 1452, 1553, 1701];
/// Pairs of numbers, InnoDB's first, that say the same of an ALTER TABLE. It would take an index from a foreign key: where a column goes,
/// and the index with it, InnoDB names the index, or, if it copies, the server the column, as with Strata; and once InnoDB has copied it
/// says that it cannot rename, also of a key whose parent has lost its index. A duplicate in a parent that is copied is to the server a row
/// that would go; an engine that writes the rows anew in place names the duplicate.
const SAME_REFUSAL: [(u16, u16); 6] =
    [(1553, 1828), (1553, 1829), (1025, 1553), (1025, 1005), (1834, 1062), (1062, 1834)];
/// Rows of an answer that are printed.
const SHOWN: usize = 20;
/// Longer values are compared by a sum.
const LONG: usize = 200;

/// What a statement was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Rows, as text; sorted if they have no order.
    Rows(Vec<String>),
    /// No rows, but a number of rows changed.
    Done(u64),
    /// An error of the server.
    Failed { code: u16, text: String },
    /// The connection broke: the server has ended.
    Lost(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Rows(rows) => {
                write!(f, "{} rows", rows.len())?;
                rows.iter().take(SHOWN).try_for_each(|row| write!(f, "\n    {row}"))
            }
            Answer::Done(affected) => write!(f, "{affected} rows affected"),
            Answer::Failed { code, text } => write!(f, "error {code}: {text}"),
            Answer::Lost(text) => write!(f, "connection lost: {text}"),
        }
    }
}

/// How two answers stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both engines say the same.
    Same,
    /// The snapshot is older than the table: Strata refuses, InnoDB gives rows.
    Refused,
    /// The snapshot is older than the table: InnoDB refuses, Strata gives rows, which must be those that the snapshot shows.
    Older,
    /// CHECK TABLE finds InnoDB's table damaged and Strata's whole: from here on InnoDB's answers are no measure.
    InnodbDamaged,
    /// One engine is wrong.
    Differs,
}

/// Compares InnoDB's answer with Strata's.
pub fn compare(innodb: &Answer, strata: &Answer) -> Verdict {
    match (innodb, strata) {
        (Answer::Failed { code: DUPLICATE, text: a }, Answer::Failed { code: DUPLICATE, text: b }) => {
            if key_of(a) == key_of(b) { Verdict::Same } else { Verdict::Differs }
        }
        (Answer::Failed { code: a, text: x }, Answer::Failed { code: b, text: y })
            if a == b && FOREIGN.contains(a) && !(x.contains("#sql") && y.contains("#sql")) =>
        {
            // InnoDB does not name the key that keeps a table from being dropped. It names its copy of the table where Strata, which
            // makes none, names the table.
            if x == y
                || (x.ends_with("constraint fails") && y.starts_with(x.as_str()))
                || (*a == NO_PARENT && is_of_copy(x, y))
            {
                Verdict::Same
            } else {
                Verdict::Differs
            }
        }
        (Answer::Failed { code: a, .. }, Answer::Failed { code: b, .. })
            if a == b || SAME_REFUSAL.contains(&(*a, *b)) =>
        {
            Verdict::Same
        }
        (Answer::Lost(_), _) | (_, Answer::Lost(_)) => Verdict::Differs,
        (Answer::Failed { code: TABLE_CHANGED, .. }, Answer::Rows(_)) => Verdict::Older,
        (Answer::Rows(_), Answer::Failed { code: TABLE_CHANGED, .. }) => Verdict::Refused,
        (a, b) if a == b => Verdict::Same,
        (Answer::Rows(a), Answer::Rows(b)) if b.iter().filter(|row| !tells_orphans(row)).eq(a) => Verdict::Same,
        (Answer::Rows(a), Answer::Rows(b))
            if is_damaged(a) && b.iter().all(|row| row.ends_with("| check | status | OK")) =>
        {
            Verdict::InnodbDamaged
        }
        _ => Verdict::Differs,
    }
}

/// Whether the texts are the same but for a table's name, and what is made of it, that are a copy's in the first.
fn is_of_copy(copy: &str, own: &str) -> bool {
    let Some((before, _)) = copy.split_once("#sql") else { return false };
    let name = own.strip_prefix(before).and_then(|rest| rest.split('`').next());
    name.is_some_and(|name| !name.is_empty() && copy.replace("#sql", name) == own)
}

/// The key that the text of a duplicate names.
fn key_of(text: &str) -> &str {
    text.rsplit_once(" for key ").map_or(text, |(_, key)| key)
}

/// CHECK TABLE of Strata looks for the parents of rows, and warns of those that have none; InnoDB's does not.
fn tells_orphans(row: &str) -> bool {
    row.contains("| check | warning | foreign key ")
}

/// InnoDB loses entries of indexes that hold the beginnings of virtual columns, and says so.
fn is_damaged(rows: &[String]) -> bool {
    rows.iter().any(|row| row.contains("| check | Warning | InnoDB: "))
        && rows.iter().any(|row| row.ends_with("| Corrupt"))
}

/// A value's bytes, so that different ones are different texts: a byte that belongs to no UTF-8 stands as `\xff`, which no
/// escaped text holds.
pub fn text_of(bytes: &[u8]) -> String {
    if bytes.len() > LONG {
        return format!("{} bytes, sum {}", bytes.len(), sum(bytes));
    }
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        let _ = write!(text, "{}", chunk.valid().escape_debug());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, &byte| sum.wrapping_mul(1_000_003).wrapping_add(u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::{Answer, Verdict, compare, text_of};

    fn failed(code: u16, text: &str) -> Answer {
        Answer::Failed { code, text: text.into() }
    }

    #[test]
    fn errors_agree_by_number_and_a_lost_server_never() {
        let rows = |rows: &[&str]| Answer::Rows(rows.iter().map(|row| (*row).to_owned()).collect());
        let lost = || Answer::Lost("gone".into());
        assert_eq!(compare(&failed(1048, "a"), &failed(1048, "b")), Verdict::Same);
        assert_eq!(compare(&failed(1062, "a"), &failed(1022, "a")), Verdict::Differs);
        assert_eq!(compare(&failed(1553, "a"), &failed(1828, "b")), Verdict::Same);
        assert_eq!(compare(&failed(1828, "a"), &failed(1553, "b")), Verdict::Differs);
        for (innodb, strata) in [(1025, 1005), (1834, 1062), (1062, 1834)] {
            assert_eq!(compare(&failed(innodb, "a"), &failed(strata, "b")), Verdict::Same);
        }
        assert_eq!(compare(&failed(1005, "a"), &failed(1025, "b")), Verdict::Differs);
        assert_eq!(compare(&rows(&["1"]), &rows(&["1"])), Verdict::Same);
        assert_eq!(compare(&rows(&["1"]), &rows(&["2"])), Verdict::Differs);
        assert_eq!(compare(&rows(&[]), &failed(1412, "changed")), Verdict::Refused);
        assert_eq!(compare(&failed(1412, "changed"), &rows(&[])), Verdict::Older);
        assert_eq!(compare(&Answer::Done(1), &failed(1412, "changed")), Verdict::Differs);
        assert_eq!(compare(&Answer::Done(1), &Answer::Done(0)), Verdict::Differs);
        assert_eq!(compare(&lost(), &lost()), Verdict::Differs);
        let damaged = rows(&[
            "d.t | check | Warning | InnoDB: Index k has 2 entries, should be 3.",
            "d.t | check | error | Corrupt",
        ]);
        let whole = rows(&["d.t | check | status | OK"]);
        assert_eq!(compare(&damaged, &whole), Verdict::InnodbDamaged);
        assert_eq!(compare(&whole, &damaged), Verdict::Differs);
        assert_eq!(compare(&damaged, &rows(&["d.t | check | error | Corrupt"])), Verdict::Differs);
    }

    #[test]
    fn duplicates_agree_by_key() {
        let duplicate = |entry: &str, key: &str| failed(1062, &format!("Duplicate entry '{entry}' for key '{key}'"));
        assert_eq!(compare(&duplicate("1", "k1"), &duplicate("1", "k1")), Verdict::Same);
        assert_eq!(compare(&duplicate("1", "k1"), &duplicate("1", "PRIMARY")), Verdict::Differs);
        assert_eq!(compare(&duplicate("for key 'k1'", "k2"), &duplicate("for key 'k1'", "k1")), Verdict::Differs);
    }

    #[test]
    fn errors_of_foreign_keys_agree_by_text() {
        assert_eq!(compare(&failed(1451, "fk1"), &failed(1451, "fk1")), Verdict::Same);
        assert_eq!(compare(&failed(1451, "fk1"), &failed(1451, "fk2")), Verdict::Differs);
        let short = failed(1451, "a foreign key constraint fails");
        let long = failed(1451, "a foreign key constraint fails (fk1)");
        assert_eq!(compare(&short, &long), Verdict::Same);
        assert_eq!(compare(&long, &short), Verdict::Differs);
        assert_eq!(compare(&failed(1005, "#sql-1"), &failed(1005, "#sql-2")), Verdict::Same);
        assert_eq!(compare(&failed(1005, "#sql-1"), &failed(1005, "t")), Verdict::Differs);
        let no_parent =
            |table: &str, key: &str| failed(1452, &format!("fails (`db`.`{table}`, CONSTRAINT `{key}` FOREIGN KEY"));
        assert_eq!(compare(&no_parent("#sql", "k"), &no_parent("t", "k")), Verdict::Same);
        assert_eq!(compare(&no_parent("#sql", "#sql_ibfk_1"), &no_parent("t", "t_ibfk_1")), Verdict::Same);
        assert_eq!(compare(&no_parent("#sql", "k"), &no_parent("t", "l")), Verdict::Differs);
        assert_eq!(compare(&no_parent("t", "k"), &no_parent("#sql", "k")), Verdict::Differs);
        assert_eq!(compare(&no_parent("#sql", "k"), &failed(1452, "fails (`db`.")), Verdict::Differs);
    }

    #[test]
    fn rows_without_parents_are_told_by_strata_only() {
        let rows = |rows: &[&str]| Answer::Rows(rows.iter().map(|&row| row.to_owned()).collect());
        let ok = rows(&["d.t | check | status | OK"]);
        let told = rows(&[
            "d.t | check | warning | foreign key `f`: 1 row has no row in `d`.`p`",
            "d.t | check | status | OK",
        ]);
        assert_eq!(compare(&ok, &told), Verdict::Same);
        assert_eq!(compare(&told, &ok), Verdict::Differs);
        let other =
            rows(&["d.t | check | error | index 'k' has 2 entries, the table has 3", "d.t | check | error | Corrupt"]);
        assert_eq!(compare(&ok, &other), Verdict::Differs);
    }

    #[test]
    fn values_are_compared_by_their_bytes() {
        assert_eq!(text_of("a\\é".as_bytes()), "a\\\\é");
        assert_eq!(text_of(b"a\xff\xfe"), "a\\xff\\xfe");
        assert_ne!(text_of(b"\xff"), text_of(b"\xfe"));
        assert_ne!(text_of(b"\xff"), text_of("\u{fffd}".as_bytes()));
        assert_ne!(text_of(b"\xff"), text_of(b"\\xff"));
        assert_ne!(text_of(&[0xff; 300]), text_of(&[0xfe; 300]));
    }
}
