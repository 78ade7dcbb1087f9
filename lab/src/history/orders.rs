//! The order of versions of each key, as far as it follows from what was seen.
//!
//! A list shows it; a register's writes form a chain, each of which has seen what it replaced; a mortal key is deleted once.
//! What nobody knows of a transaction without an answer follows from who has seen its writes.
//!
//! Invariant: every committed write that lasts is in the order of its key, or it is told as lost.
//!
//! Rejected: orders by the times of acknowledgement (writes of one moment may have come in any order).

use super::check::{Checker, State};
use super::{Action, Key, KeyKind, Outcome, PlainReads, Value, Version};
use std::collections::{BTreeSet, HashMap, HashSet};

impl<'a> Checker<'a> {
    /// A transaction whose commit was not acknowledged did commit if others saw what it wrote.
    pub(super) fn resolve_unknown(&mut self) {
        let unknown = |t: usize| self.history.transactions[t].outcome == Outcome::Unknown;
        let mut found = HashSet::new();
        let mut last_gone: HashMap<Key, u64> = HashMap::new();
        for (t, s, key, value) in self.seen() {
            for version in self.split(t, value).0 {
                found.extend(self.writes.get(version).map(|write| write.0).filter(|&w| unknown(w)));
            }
            if *value == Value::Absent {
                let statements = &self.history.transactions[t].statements;
                // Not before what its snapshot may be as old as.
                let old = self.history.promise.plain == PlainReads::Transaction
                    && matches!(statements[s].action, Action::Read { locking: false, .. });
                let begin = statements[if old { 0 } else { s }].begin;
                let gone = last_gone.entry(key).or_default();
                *gone = begin.max(*gone);
            }
        }
        // Of a deletion others see that there is nothing, after there was something.
        let mut born: HashMap<Key, u64> = HashMap::new();
        let mut deleted = HashSet::new();
        let mut maybe = Vec::new();
        for (t, transaction) in self.history.transactions.iter().enumerate() {
            for (s, statement) in transaction.statements.iter().enumerate() {
                let Action::Write { key, seen, dead, .. } = &statement.action else { continue };
                if self.undone[t][s] != usize::MAX {
                    continue;
                }
                match (dead, self.committed[t]) {
                    (true, true) => drop(deleted.insert(*key)),
                    (true, false) if unknown(t) => maybe.push((t, *key)),
                    (false, true) if *seen == Some(Value::Absent) => drop(born.insert(*key, transaction.end)),
                    _ => {}
                }
            }
        }
        for (t, key) in maybe {
            let was_there = born.get(&key).is_some_and(|end| last_gone.get(&key).is_some_and(|gone| gone > end));
            if was_there && !deleted.contains(&key) {
                found.insert(t);
            }
        }
        for t in found {
            self.committed[t] = true;
        }
        for (t, transaction) in self.history.transactions.iter().enumerate() {
            match (transaction.outcome, self.committed[t]) {
                (Outcome::Unknown, yes) => {
                    self.report.unknown += 1;
                    self.report.unknown_committed += usize::from(yes);
                }
                (_, true) => self.report.committed += 1,
                (_, false) => self.report.aborted += 1,
            }
        }
    }

    pub(super) fn order_versions(&mut self) {
        let mut orders: HashMap<Key, &[Version]> = HashMap::new();
        let mut told = Vec::new();
        for (t, s, key, value) in self.seen() {
            let Value::List(all) = value else { continue };
            let (others, own) = self.split(t, value);
            let lasting = |v: &Version| self.committed[t] && self.undone[t][self.writes[v].1] == usize::MAX;
            let order = if own.iter().all(lasting) { &all[..] } else { others };
            let known = orders.entry(key).or_default();
            let (short, long) = if known.len() < order.len() { (*known, order) } else { (order, *known) };
            if !long.starts_with(short) {
                told.push((
                    t,
                    s,
                    format!("{key} was seen as {short:?} and as {long:?}: one is no beginning of the other"),
                ));
            }
            *known = long;
        }
        for (t, s, what) in told {
            self.find("contradicting orders", what, &[(t, Some(s))]);
        }
        let mut orders: HashMap<Key, Vec<Version>> = orders.into_iter().map(|(key, all)| (key, all.to_vec())).collect();
        self.order_registers(&mut orders);
        self.order_deletions(&mut orders);
        self.report.versions = orders.values().map(Vec::len).sum();
        for (key, versions) in orders {
            let mut states = vec![State { version: 0, writer: None, group: None }];
            for version in versions {
                let Some(&(t, s)) = self.writes.get(&version) else { continue };
                let mut group = states[states.len() - 1].group;
                if let Action::Write { group: set, dead, .. } = self.history.transactions[t].statements[s].action {
                    group = if dead { None } else { set.or(group) };
                }
                self.place.insert((key, version), states.len());
                states.push(State { version, writer: Some(t), group });
            }
            self.states.insert(key, states);
        }
    }

    /// Committed writes of single keys that were not undone.
    pub(super) fn lasting_writes(&self) -> impl Iterator<Item = (usize, usize, Key, &'a Option<Value>, Version, bool)> {
        self.history.transactions.iter().enumerate().filter(|(t, _)| self.committed[*t]).flat_map(
            move |(t, transaction)| {
                let lasting =
                    transaction.statements.iter().enumerate().filter(move |(s, _)| self.undone[t][*s] == usize::MAX);
                lasting.filter_map(move |(s, statement)| match &statement.action {
                    Action::Write { key, seen, version, dead, .. } => Some((t, s, *key, seen, *version, *dead)),
                    _ => None,
                })
            },
        )
    }

    pub(super) fn order_registers(&mut self, orders: &mut HashMap<Key, Vec<Version>>) {
        let mut next: HashMap<(Key, Version), (Version, usize, usize)> = HashMap::new();
        let mut keys = BTreeSet::new();
        let mut told = Vec::new();
        for (t, s, key, seen, version, _) in self.lasting_writes() {
            if key.kind() != KeyKind::Register {
                continue;
            }
            keys.insert(key);
            let before = match seen {
                Some(Value::Last(before)) => *before,
                Some(Value::Absent) => 0,
                _ => continue,
            };
            if let Some((other, u, v)) = next.insert((key, before), (version, t, s)) {
                let what = format!("{version} and {other} both replaced {before} of {key}: one of them is lost");
                told.push((what, [(t, Some(s)), (u, Some(v))]));
            }
        }
        for (what, places) in told {
            self.find("lost write", what, &places);
        }
        for key in keys {
            let mut order: Vec<Version> = Vec::new();
            while let Some(&(version, ..)) = next.get(&(key, order.last().copied().unwrap_or(0))) {
                // A circle of writes would never end.
                if order.len() > self.writes.len() {
                    break;
                }
                order.push(version);
            }
            orders.insert(key, order);
        }
    }

    pub(super) fn order_deletions(&mut self, orders: &mut HashMap<Key, Vec<Version>>) {
        let mut dead: HashMap<Key, (usize, usize)> = HashMap::new();
        let mut told = Vec::new();
        for (t, s, key, _, version, _) in self.lasting_writes().filter(|write| write.5) {
            if let Some(other) = dead.insert(key, (t, s)) {
                told.push((format!("{key} was deleted twice"), [(t, Some(s)), (other.0, Some(other.1))]));
            } else {
                orders.entry(key).or_default().push(version);
            }
        }
        for (what, places) in told {
            self.find("lost write", what, &places);
        }
    }

    /// Every committed write must be somewhere.
    pub(super) fn require_committed(&mut self) {
        let mut told = Vec::new();
        for (t, s, key, _, version, _) in self.lasting_writes() {
            if !self.place.contains_key(&(key, version)) {
                told.push((t, s, format!("{version} of {key} was committed and is nowhere")));
            }
        }
        let mut count: HashMap<Version, u64> = HashMap::new();
        for (_, version) in self.place.keys() {
            *count.entry(*version).or_default() += 1;
        }
        for (t, transaction) in self.history.transactions.iter().enumerate().filter(|(t, _)| self.committed[*t]) {
            for (s, statement) in transaction.statements.iter().enumerate() {
                let Action::WriteGroup { version, rows, .. } = statement.action else { continue };
                let have = count.get(&version).copied().unwrap_or(0);
                if self.undone[t][s] == usize::MAX && have != rows {
                    told.push((t, s, format!("{version} was written to {rows} keys and is in {have}")));
                }
            }
        }
        for (t, s, what) in told {
            self.find("lost write", what, &[(t, Some(s))]);
        }
    }
}
