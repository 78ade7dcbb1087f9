//! Rows that expire, as the lab knows them, and what may be found of them.

use std::collections::BTreeMap;

/// Seconds from a row's moment to the one from which on it has expired: the interval of the tables' option.
pub const LIFE: u64 = 1;

/// A row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The value of its unique key.
    pub code: u64,
    /// One more with each change.
    pub version: u32,
    /// Its moment, in seconds since 1970; without one it does not expire.
    pub moment: Option<u64>,
}

impl Row {
    /// From this second on it has expired.
    pub fn end(self) -> u64 {
        self.moment.map_or(u64::MAX, |moment| moment + LIFE)
    }
}

/// Rows by their ids.
pub type Rows = BTreeMap<u64, Row>;

/// What a transaction does to a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Put(u64, Row),
    /// It was deleted, or another one took its place.
    Gone(u64),
}

/// Applies what a transaction has done.
pub fn apply(rows: &mut Rows, changes: &[Change]) {
    for change in changes {
        match *change {
            Change::Put(id, row) => drop(rows.insert(id, row)),
            Change::Gone(id) => drop(rows.remove(&id)),
        }
    }
}

/// Whether a statement may have found a row that expires at `end`, or not found it, which was sent in the second `asked` and answered in
/// `answered`. Its own second lies between them.
pub fn may_be(end: u64, asked: u64, answered: u64, found: bool) -> bool {
    if found { end > asked } else { end <= answered }
}

/// What is wrong: of all rows that were written and not deleted since, `seen` must be those that live in the second `at`, and `stored`,
/// what is there with the clock set back, some more as they were.
pub fn compare(known: &Rows, seen: &Rows, stored: &Rows, at: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, row) in known.iter().filter(|(_, row)| row.end() > at) {
        match seen.get(id) {
            Some(found) if found == row => {}
            found => wrong.push(format!("{id} lives at {at}: it should be {row:?}, and is {found:?}")),
        }
        if !stored.contains_key(id) {
            wrong.push(format!("{id} lives at {at}, and is not stored: {row:?}"));
        }
    }
    for (id, row) in seen.iter().filter(|(_, row)| row.end() <= at) {
        wrong.push(format!("{id} has expired at {at}, and is seen: {row:?}"));
    }
    for (id, row) in seen.iter().chain(stored) {
        match known.get(id) {
            Some(known) if known == row => {}
            known => wrong.push(format!("{id} is {row:?}, known is {known:?}")),
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(version: u32, moment: Option<u64>) -> Row {
        Row { code: 7, version, moment }
    }

    fn rows(of: &[(u64, Row)]) -> Rows {
        of.iter().copied().collect()
    }

    #[test]
    fn what_lives_must_be_seen_and_what_has_expired_may_be_stored() {
        let (lives, expired, forever) = ((1, row(1, Some(100))), (2, row(1, Some(99))), (3, row(4, None)));
        let known = rows(&[lives, expired, forever]);
        let good = rows(&[lives, forever]);
        assert_eq!(compare(&known, &good, &good, 100), Vec::<String>::new());
        assert_eq!(compare(&known, &good, &known, 100), Vec::<String>::new());
        // Seen though it has expired; lost; lost from the disk; as it was before a change; deleted and back.
        assert_eq!(compare(&known, &known, &known, 100).len(), 1);
        assert_eq!(compare(&known, &rows(&[lives]), &known, 100).len(), 1);
        assert_eq!(compare(&known, &good, &rows(&[lives]), 100).len(), 1);
        assert_eq!(compare(&known, &good, &rows(&[lives, forever, (2, row(0, Some(99)))]), 100).len(), 1);
        assert_eq!(compare(&good, &good, &known, 100).len(), 1);
    }

    #[test]
    fn answers_fit_the_second_in_which_they_were_given() {
        // Found in the seconds 5 to 6: it expires in 6 or later.
        assert!(!may_be(5, 5, 6, true) && may_be(6, 5, 6, true) && may_be(7, 5, 6, true));
        assert!(may_be(5, 5, 6, false) && may_be(6, 5, 6, false) && !may_be(7, 5, 6, false));
        assert!(!may_be(row(1, None).end(), 5, 6, false));
    }
}
