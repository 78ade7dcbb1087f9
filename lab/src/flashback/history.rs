//! What the lab knows of a ledger's past: each transaction, and the seconds in which it may have been committed.
//!
//! A transaction's second is known within bounds: it is not before its COMMIT was sent, and not after that was answered (or, of one that was in
//! flight when the server was killed, after the next server answered). What a read of a moment shows narrows them: a transaction that is seen was
//! committed before the moment, one that is not seen at or after it. Bounds that exclude each other are a violation. So the first read
//! near a second settles which of its transactions come before it, for all reads from then on: of this moment, and of those beside it.
//!
//! Which transactions a read has seen determines the whole state, to the row.

use std::collections::{BTreeMap, BTreeSet};

/// What a transaction does to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Move {
        source: u32,
        target: u32,
        amount: i64,
    },
    /// An entry is there with this version, whether it was before or not.
    Put {
        entry: u64,
        version: u32,
    },
    Remove {
        entry: u64,
    },
}

/// A transaction, and the first and the last second in which it may have been committed.
#[derive(Clone, Debug)]
struct Txn {
    changes: Vec<Change>,
    first: u64,
    last: u64,
}

/// All rows of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The balance, and how many movements made it.
    pub accounts: BTreeMap<u32, (i64, u64)>,
    /// The version of each entry.
    pub entries: BTreeMap<u64, u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct History {
    /// By number. Of two that change the same entry the one with the greater number is the later one.
    txns: BTreeMap<u64, Txn>,
    violations: Vec<String>,
}

impl History {
    /// A transaction whose COMMIT is about to be sent, `now` or later. Until it is [over](History::committed) it may have been committed in any
    /// second.
    pub fn begins(&mut self, number: u64, changes: Vec<Change>, now: u64) {
        self.txns.insert(number, Txn { changes, first: now, last: u64::MAX });
    }

    /// It was not committed before `now`: only now its COMMIT is about to be sent.
    pub fn not_before(&mut self, number: u64, now: u64) {
        self.narrow(number, now, u64::MAX, "was not committed before");
    }

    /// It was committed, `now` or before.
    pub fn committed(&mut self, number: u64, now: u64) {
        self.narrow(number, 0, now, "was committed at the latest");
    }

    /// It was rolled back: nobody may have seen it.
    pub fn rolled_back(&mut self, number: u64) {
        if let Some(txn) = self.txns.remove(&number).filter(|txn| txn.last < u64::MAX) {
            self.violations.push(format!(
                "transaction {number} was rolled back, and had been seen at the moment {}",
                txn.last + 1
            ));
        }
    }

    /// A read of a moment has shown these transactions, and no others. The rows that they make.
    pub fn seen(&mut self, moment: u64, numbers: &BTreeSet<u64>) -> State {
        for number in numbers.iter().filter(|number| !self.txns.contains_key(number)) {
            self.violations.push(format!("at the moment {moment} transaction {number} is there, and never was"));
        }
        let all: Vec<u64> = self.txns.keys().copied().collect();
        for number in all {
            match numbers.contains(&number) {
                true => self.narrow(number, 0, moment.saturating_sub(1), "is there at the moment"),
                false => self.narrow(number, moment, u64::MAX, "is missing at the moment"),
            }
        }
        self.state(numbers)
    }

    /// The rows that these transactions make.
    pub fn state(&self, numbers: &BTreeSet<u64>) -> State {
        let mut state = State::default();
        for (_, txn) in self.txns.iter().filter(|(number, _)| numbers.contains(number)) {
            for change in &txn.changes {
                match *change {
                    Change::Move { source, target, amount } => {
                        for (account, amount) in [(source, -amount), (target, amount)] {
                            let (balance, moves) = state.accounts.entry(account).or_default();
                            *balance += amount;
                            *moves += 1;
                        }
                    }
                    Change::Put { entry, version } => drop(state.entries.insert(entry, version)),
                    Change::Remove { entry } => drop(state.entries.remove(&entry)),
                }
            }
        }
        state
    }

    /// The rows that all of them make.
    pub fn now(&self) -> State {
        self.state(&self.numbers())
    }

    /// All that there are.
    pub fn numbers(&self) -> BTreeSet<u64> {
        self.txns.keys().copied().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.txns.len()
    }

    /// How many have a second that is known exactly.
    pub fn settled(&self) -> usize {
        self.txns.values().filter(|txn| txn.first == txn.last).count()
    }

    /// What is wrong so far.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn narrow(&mut self, number: u64, first: u64, last: u64, what: &str) {
        let Some(txn) = self.txns.get_mut(&number) else { return };
        let was_possible = txn.first <= txn.last;
        let (from, to) = (txn.first, txn.last);
        (txn.first, txn.last) = (from.max(first), to.min(last));
        if was_possible && txn.first > txn.last {
            let second = if first > 0 { first } else { last };
            let to = if to == u64::MAX { "any later second".to_owned() } else { to.to_string() };
            self.violations.push(format!(
                "transaction {number}, committed in {from} to {to}, {what} {second} (bounds of seconds)"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[u64]) -> BTreeSet<u64> {
        numbers.iter().copied().collect()
    }

    fn history() -> History {
        let mut history = History::default();
        let put = |entry, version| vec![Change::Put { entry, version }];
        history.begins(1, put(7, 1), 100);
        history.committed(1, 100);
        history.begins(2, put(7, 2), 100);
        history.committed(2, 102);
        history.begins(3, vec![Change::Move { source: 1, target: 2, amount: 5 }, Change::Remove { entry: 7 }], 103);
        history
    }

    #[test]
    fn what_is_seen_makes_the_state() {
        let history = history();
        assert_eq!(history.state(&set(&[])), State::default());
        assert_eq!(history.state(&set(&[1])).entries, BTreeMap::from([(7, 1)]));
        assert_eq!(history.state(&set(&[1, 2])).entries, BTreeMap::from([(7, 2)]));
        let all = history.state(&history.numbers());
        assert_eq!(all.entries, BTreeMap::new());
        assert_eq!(all.accounts, BTreeMap::from([(1, (-5, 1)), (2, (5, 1))]));
    }

    /// How many violations reads of these moments are.
    fn wrong(reads: &[(u64, &[u64])]) -> usize {
        let mut history = history();
        for (moment, numbers) in reads {
            history.seen(*moment, &set(numbers));
        }
        history.take_violations().len()
    }

    #[test]
    fn what_was_acknowledged_before_a_moment_is_seen_and_what_began_after_it_is_not() {
        assert_eq!(wrong(&[(101, &[1]), (103, &[1, 2])]), 0);
        assert_eq!(wrong(&[(101, &[])]), 1);
        assert_eq!(wrong(&[(100, &[1])]), 1);
        assert_eq!(wrong(&[(103, &[1])]), 1);
        assert_eq!(wrong(&[(103, &[1, 2, 3])]), 1);
        assert_eq!(wrong(&[(102, &[1, 9])]), 1);
    }

    #[test]
    fn the_first_read_settles_what_is_open() {
        assert_eq!(wrong(&[(101, &[1, 2]), (102, &[1, 2])]), 0);
        assert_eq!(wrong(&[(101, &[1, 2]), (102, &[1])]), 1);
        assert_eq!(wrong(&[(102, &[1]), (101, &[1, 2])]), 1);
        assert_eq!(wrong(&[(102, &[1]), (102, &[1, 2])]), 1);
        // Told once.
        assert_eq!(wrong(&[(102, &[1]), (102, &[1, 2]), (102, &[1])]), 1);
        let mut settled = history();
        settled.seen(101, &set(&[1]));
        settled.seen(102, &set(&[1, 2]));
        assert_eq!(settled.settled(), 2);
    }

    #[test]
    fn what_is_prepared_is_not_seen() {
        let mut history = history();
        history.seen(105, &set(&[1, 2]));
        history.not_before(3, 107);
        assert_eq!(history.take_violations().len(), 0);
        history.committed(3, 108);
        history.seen(109, &set(&[1, 2, 3]));
        assert_eq!(history.take_violations().len(), 0);
        history.seen(107, &set(&[1, 2, 3]));
        assert_eq!(history.take_violations().len(), 1);
        let mut early = self::history();
        early.seen(105, &set(&[1, 2, 3]));
        early.not_before(3, 107);
        assert_eq!(early.take_violations().len(), 1);
    }

    #[test]
    fn what_was_rolled_back_was_never_seen() {
        let mut history = history();
        history.seen(105, &set(&[1, 2]));
        history.rolled_back(3);
        assert_eq!(history.take_violations().len(), 0);
        let mut seen = self::history();
        seen.seen(105, &set(&[1, 2, 3]));
        seen.rolled_back(3);
        assert_eq!(seen.take_violations().len(), 1);
    }
}
