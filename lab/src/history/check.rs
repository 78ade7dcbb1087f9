//! What is wrong with a history.
//!
//! **The order of versions** of each key follows from what was seen: a list shows
//! it, a register's writes form a chain. On the way come to light: values that
//! nobody wrote, values of aborted or undone writes (G1a), values that their
//! writer replaced (G1b), contradicting orders, committed writes that are in no
//! order (lost), own writes that are not seen.
//!
//! **Nodes.** Whoever reads a snapshot reads the state of one moment, and a
//! transaction that holds its locks to the end does all else at its commit. So a
//! committed transaction is a node, and each snapshot (of a statement or of a
//! transaction, also of one that aborts) is a node of its own: read committed
//! and repeatable read as these engines do it promise an order of all these
//! moments, and serializable promises the same with no snapshots at all.
//!
//! **Edges.** ww: to who wrote the next version; wr: to who read it; rw: from who
//! read a version to who wrote the next one; and who was acknowledged before
//! another one began comes first. Where a read leaves several versions possible
//! (no row: not yet inserted, or deleted already), those that the times rule out
//! are dropped, and the edges are those that hold for all that are left.
//!
//! **Verdict.** A cycle contradicts the promise. It gets the name of the weakest
//! edges that make one: G0 (ww), G1c (and wr), G-single and G2 (one rw, several),
//! or real time.
//!
//! Rejected: one node per transaction with the textbook's list of cycles per
//! level. It calls the lost update of a plain read at REPEATABLE READ an anomaly,
//! which the engines permit, and finds nothing in reads of a transaction that
//! does not commit.

use super::graph::{Edge, Graph};
use super::{Action, History, Key, KeyKind, Outcome, PlainReads, Transaction, Value, Version, text};
use std::collections::{HashMap, HashSet};

/// One thing that is wrong.
#[derive(Debug)]
pub struct Finding {
    /// G0, G1a, lost write, ...
    pub class: &'static str,
    /// In words, with the transactions that take part.
    pub told: String,
}

/// What a check has found and looked at.
#[derive(Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    pub committed: usize,
    pub aborted: usize,
    /// Of those whose outcome the session never learned: found committed.
    pub unknown_committed: usize,
    pub unknown: usize,
    pub versions: usize,
    pub snapshots: usize,
    pub edges: usize,
}

/// Checks a history against its promise.
pub fn check(history: &History) -> Report {
    let mut checker = Checker::new(history);
    checker.resolve_unknown();
    checker.order_versions();
    checker.judge_values();
    checker.require_committed();
    let (nodes, graph) = checker.graph();
    checker.tell_cycles(&nodes, &graph);
    checker.report
}

/// A state of a key; the first one of each key is "not inserted yet".
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) version: Version,
    /// Who wrote it; nobody the first one.
    pub(super) writer: Option<usize>,
    /// Where it is, if it is.
    pub(super) group: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    Ww,
    Wr,
    Rw,
    /// Acknowledged before the other one began; goes over the line of time.
    Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) why: Why,
    pub(super) key: Key,
    pub(super) version: Version,
}

/// A moment at which something took place, somewhere between two times.
pub(super) struct Node {
    pub(super) transaction: usize,
    /// The statement that took the snapshot; none: the commit.
    pub(super) snapshot: Option<usize>,
    pub(super) begin: u64,
    pub(super) end: u64,
}

pub(super) struct Checker<'a> {
    pub(super) history: &'a History,
    /// Transaction and statement of each number.
    pub(super) writes: HashMap<Version, (usize, usize)>,
    /// For each statement the one that undid it, itself if it failed.
    pub(super) undone: Vec<Vec<usize>>,
    pub(super) committed: Vec<bool>,
    pub(super) states: HashMap<Key, Vec<State>>,
    pub(super) place: HashMap<(Key, Version), usize>,
    pub(super) report: Report,
}

impl<'a> Checker<'a> {
    fn new(history: &'a History) -> Checker<'a> {
        let mut writes = HashMap::new();
        let mut report = Report::default();
        for (t, transaction) in history.transactions.iter().enumerate() {
            for (s, statement) in transaction.statements.iter().enumerate() {
                if let Action::Write { version, .. } | Action::WriteGroup { version, .. } = statement.action
                    && writes.insert(version, (t, s)).is_some()
                {
                    let told = format!("the number {version} stands at two writes: this is no history");
                    report.findings.push(Finding { class: "unusable history", told });
                }
            }
        }
        Checker {
            undone: history.transactions.iter().map(undone).collect(),
            committed: history.transactions.iter().map(|t| t.outcome == Outcome::Committed).collect(),
            history,
            writes,
            states: HashMap::new(),
            place: HashMap::new(),
            report,
        }
    }

    /// All values that were seen and mean something: transaction, statement, key, value.
    pub(super) fn seen(&self) -> impl Iterator<Item = (usize, usize, Key, &'a Value)> + use<'a> {
        let dirty = self.history.promise.plain == PlainReads::Dirty;
        self.history.transactions.iter().enumerate().flat_map(move |(t, transaction)| {
            transaction.statements.iter().enumerate().flat_map(move |(s, statement)| {
                let seen: Vec<(Key, &Value)> = match &statement.action {
                    Action::Read { locking: false, .. } if dirty => vec![],
                    Action::Read { seen, .. } => seen.iter().map(|(key, value)| (*key, value)).collect(),
                    Action::Write { key, seen: Some(value), .. } => vec![(*key, value)],
                    _ => vec![],
                };
                seen.into_iter().map(move |(key, value)| (t, s, key, value))
            })
        })
    }

    /// What a value shows of others, and how many own writes it ends with.
    pub(super) fn split<'v>(&self, transaction: usize, value: &'v Value) -> (&'v [Version], &'v [Version]) {
        let all: &[Version] = match value {
            Value::Absent => &[],
            Value::List(versions) => versions,
            Value::Last(version) => std::slice::from_ref(version),
        };
        let own = |version: &Version| self.writes.get(version).is_some_and(|write| write.0 == transaction);
        all.split_at(all.iter().rposition(|version| !own(version)).map_or(0, |at| at + 1))
    }

    /// Each value by itself: who wrote it, and whether the reader may have seen it.
    fn judge_values(&mut self) {
        let mut told = Vec::new();
        for (t, s, key, value) in self.seen() {
            let (others, own) = self.split(t, value);
            let at = (t, Some(s));
            for (n, version) in others.iter().enumerate() {
                let Some(&(w, ws)) = self.writes.get(version) else {
                    told.push((
                        "invented value",
                        format!("nobody wrote the number {version} that {key} shows"),
                        at,
                        at,
                    ));
                    continue;
                };
                let write = (w, Some(ws));
                let on_key = match &self.history.transactions[w].statements[ws].action {
                    Action::Write { key: on, dead, .. } => *on == key && !dead,
                    _ => key.kind() != KeyKind::Register,
                };
                if w == t {
                    told.push(("G0", format!("{key} shows another's write over the own {version}"), at, write));
                } else if !on_key {
                    told.push(("invented value", format!("{key} shows {version}, which is of another key"), at, write));
                } else if self.undone[w][ws] != usize::MAX {
                    told.push(("G1a", format!("{key} shows {version}, which was undone"), at, write));
                } else if !self.committed[w] {
                    told.push(("G1a", format!("{key} shows {version}, which was rolled back"), at, write));
                } else if n + 1 == others.len() && self.replaced_by_writer(key, *version, w) {
                    told.push(("G1b", format!("{key} shows {version}, which its writer replaced"), at, write));
                } else if !self.place.contains_key(&(key, *version)) {
                    told.push(("lost write", format!("{key} shows {version}, which is not in its order"), at, write));
                }
            }
            let dirty = self.history.promise.plain == PlainReads::Dirty;
            if let Some(last) = self.own_write(t, s, key)
                && !dirty
                && !self.shows_own(t, s, last, own, value)
            {
                told.push(("own write not seen", format!("{key} is {value}"), at, (t, Some(last))));
            }
            if let Some(version) = own.iter().find(|v| !self.live(t, self.writes[*v].1, s)) {
                told.push(("G1a", format!("{key} shows the own {version}, which was undone before"), at, at));
            }
        }
        for (class, what, at, other) in told {
            let places = [at, other];
            self.find(class, what, &places[..if at == other { 1 } else { 2 }]);
        }
    }

    /// Whether write `w` of a transaction is in force at its statement `s`.
    pub(super) fn live(&self, t: usize, w: usize, s: usize) -> bool {
        w < s && self.undone[t][w] > s
    }

    /// The last own write of a key that is in force at a statement.
    pub(super) fn own_write(&self, t: usize, s: usize, key: Key) -> Option<usize> {
        let statements = &self.history.transactions[t].statements;
        (0..s).rev().find(|&w| {
            self.live(t, w, s)
                && match statements[w].action {
                    Action::Write { key: on, .. } => on == key,
                    // Known only if it committed.
                    Action::WriteGroup { version, .. } => self.place.contains_key(&(key, version)),
                    _ => false,
                }
        })
    }

    /// Whether a write of a group is in force whose rows nobody can name afterwards, as it was undone in the end: any row
    /// that is elsewhere in the read point may have become an own one.
    pub(super) fn has_nameless_rows(&self, t: usize, s: usize) -> bool {
        let statements = &self.history.transactions[t].statements;
        (0..s).any(|w| {
            let stays = self.committed[t] && self.undone[t][w] == usize::MAX;
            matches!(statements[w].action, Action::WriteGroup { .. }) && self.live(t, w, s) && !stays
        })
    }

    pub(super) fn shows_own(&self, t: usize, s: usize, last: usize, own: &[Version], value: &Value) -> bool {
        let statements = &self.history.transactions[t].statements;
        // Which keys a write of a group hit is not always known: any later one may be the last.
        let later_group = own.last().is_some_and(|version| {
            let w = self.writes[version].1;
            w >= last && self.live(t, w, s)
        });
        match statements[last].action {
            Action::Write { dead: true, .. } => *value == Value::Absent,
            _ => later_group,
        }
    }

    pub(super) fn replaced_by_writer(&self, key: Key, version: Version, writer: usize) -> bool {
        let Some(&at) = self.place.get(&(key, version)) else { return false };
        self.states[&key].get(at + 1).is_some_and(|next| next.writer == Some(writer))
    }

    fn tell_cycles(&mut self, nodes: &[Node], graph: &Graph<Label>) {
        let weakest: [fn(Why) -> bool; 4] =
            [|w| w == Why::Ww, |w| matches!(w, Why::Ww | Why::Wr), |w| w != Why::Time, |_| true];
        for admit in weakest {
            let cycles = graph.cycles(|label| admit(label.why));
            for cycle in &cycles {
                self.tell_cycle(nodes, cycle);
            }
            if !cycles.is_empty() {
                return;
            }
        }
    }

    fn tell_cycle(&mut self, nodes: &[Node], cycle: &[Edge<Label>]) {
        let count = |why: Why| cycle.iter().filter(|edge| edge.1.why == why).count();
        let class = match (count(Why::Time), count(Why::Rw), count(Why::Wr)) {
            (0, 0, 0) => "G0",
            (0, 0, _) => "G1c",
            (0, 1, _) => "G-single",
            (0, ..) => "G2",
            _ => "real time",
        };
        let name = |n: usize| {
            let node = &nodes[n];
            match node.snapshot {
                None => format!("T{}", node.transaction),
                Some(s) => format!("the snapshot of T{} (taken by its statement {})", node.transaction, s + 1),
            }
        };
        // Begins at a node that is no point in time; runs over the line of time are one step.
        let first = cycle.iter().position(|edge| edge.0 < nodes.len()).unwrap_or(0);
        let mut told = String::from("this is a cycle, where each must come before the next:\n");
        let mut places = Vec::new();
        for &(from, label, to) in cycle[first..].iter().chain(&cycle[..first]) {
            let Label { why, key, version } = label;
            if from < nodes.len() {
                let node = &nodes[from];
                places.push((node.transaction, node.snapshot));
                let what = match why {
                    Why::Ww => format!("wrote {key} before {version} replaced it"),
                    Why::Wr => format!("wrote {version} of {key}, which the next one had seen"),
                    Why::Rw => format!("saw {key} without {version}, which the next one wrote"),
                    Why::Time => format!("had ended at {} us, before the next one began", node.end),
                };
                told += &format!("    {} {what}\n", name(from));
            }
            if to < nodes.len() && why == Why::Time {
                told += &format!("        ({} began at {} us)\n", name(to), nodes[to].begin);
            }
        }
        self.find(class, told.trim_end().to_string(), &places);
    }

    /// Notes a finding with the transactions that take part in it.
    pub(super) fn find(&mut self, class: &'static str, what: String, places: &[(usize, Option<usize>)]) {
        let mut told = what;
        let mut shown = HashSet::new();
        for &(t, _) in places {
            if shown.insert(t) {
                let one =
                    History { promise: self.history.promise, transactions: vec![self.history.transactions[t].clone()] };
                told += &format!("\n  T{t}:");
                for line in text::print(&one).lines().skip(1) {
                    told += &format!("\n    {line}");
                }
            }
        }
        self.report.findings.push(Finding { class, told });
    }
}

/// For each statement the one that undoes it.
pub(super) fn undone(transaction: &Transaction) -> Vec<usize> {
    let mut undone = vec![usize::MAX; transaction.statements.len()];
    let mut mark = 0;
    for (s, statement) in transaction.statements.iter().enumerate() {
        match statement.action {
            _ if statement.failed => undone[s] = s,
            Action::Savepoint => mark = s,
            Action::RollbackTo => undone[mark + 1..s].iter_mut().for_each(|u| *u = s.min(*u)),
            _ => {}
        }
    }
    undone
}
