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
use std::collections::{BTreeSet, HashMap, HashSet};

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
struct State {
    version: Version,
    /// Who wrote it; nobody the first one.
    writer: Option<usize>,
    /// Where it is, if it is.
    group: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Ww,
    Wr,
    Rw,
    /// Acknowledged before the other one began; goes over the line of time.
    Time,
}

#[derive(Clone, Copy, Debug)]
struct Label {
    why: Why,
    key: Key,
    version: Version,
}

/// A moment at which something took place, somewhere between two times.
struct Node {
    transaction: usize,
    /// The statement that took the snapshot; none: the commit.
    snapshot: Option<usize>,
    begin: u64,
    end: u64,
}

struct Checker<'a> {
    history: &'a History,
    /// Transaction and statement of each number.
    writes: HashMap<Version, (usize, usize)>,
    /// For each statement the one that undid it, itself if it failed.
    undone: Vec<Vec<usize>>,
    committed: Vec<bool>,
    states: HashMap<Key, Vec<State>>,
    place: HashMap<(Key, Version), usize>,
    report: Report,
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
    fn seen(&self) -> impl Iterator<Item = (usize, usize, Key, &'a Value)> + use<'a> {
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
    fn split<'v>(&self, transaction: usize, value: &'v Value) -> (&'v [Version], &'v [Version]) {
        let all: &[Version] = match value {
            Value::Absent => &[],
            Value::List(versions) => versions,
            Value::Last(version) => std::slice::from_ref(version),
        };
        let own = |version: &Version| self.writes.get(version).is_some_and(|write| write.0 == transaction);
        all.split_at(all.iter().rposition(|version| !own(version)).map_or(0, |at| at + 1))
    }

    /// A transaction whose commit was not acknowledged did commit if others saw what it wrote.
    fn resolve_unknown(&mut self) {
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

    fn order_versions(&mut self) {
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
    fn lasting_writes(&self) -> impl Iterator<Item = (usize, usize, Key, &'a Option<Value>, Version, bool)> {
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

    fn order_registers(&mut self, orders: &mut HashMap<Key, Vec<Version>>) {
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

    fn order_deletions(&mut self, orders: &mut HashMap<Key, Vec<Version>>) {
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
    fn live(&self, t: usize, w: usize, s: usize) -> bool {
        w < s && self.undone[t][w] > s
    }

    /// The last own write of a key that is in force at a statement.
    fn own_write(&self, t: usize, s: usize, key: Key) -> Option<usize> {
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
    fn has_nameless_rows(&self, t: usize, s: usize) -> bool {
        let statements = &self.history.transactions[t].statements;
        (0..s).any(|w| {
            let stays = self.committed[t] && self.undone[t][w] == usize::MAX;
            matches!(statements[w].action, Action::WriteGroup { .. }) && self.live(t, w, s) && !stays
        })
    }

    fn shows_own(&self, t: usize, s: usize, last: usize, own: &[Version], value: &Value) -> bool {
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

    fn replaced_by_writer(&self, key: Key, version: Version, writer: usize) -> bool {
        let Some(&at) = self.place.get(&(key, version)) else { return false };
        self.states[&key].get(at + 1).is_some_and(|next| next.writer == Some(writer))
    }

    /// Every committed write must be somewhere.
    fn require_committed(&mut self) {
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

    fn graph(&mut self) -> (Vec<Node>, Graph<Label>) {
        let mut nodes = Vec::new();
        let mut commit_of: HashMap<usize, usize> = HashMap::new();
        for (t, transaction) in self.history.transactions.iter().enumerate().filter(|(t, _)| self.committed[*t]) {
            commit_of.insert(t, nodes.len());
            let end = if transaction.outcome == Outcome::Unknown { u64::MAX } else { transaction.end };
            nodes.push(Node { transaction: t, snapshot: None, begin: transaction.begin, end });
        }
        let mut edges = Vec::new();
        let alive = self.alive();
        for (t, transaction) in self.history.transactions.iter().enumerate() {
            let mut snapshot = None;
            let mut tried = None;
            for (s, statement) in transaction.statements.iter().enumerate() {
                let Action::Read { locking, group, seen } = &statement.action else { continue };
                let plain = match self.history.promise.plain {
                    _ if *locking => None,
                    PlainReads::Dirty => continue,
                    PlainReads::Locking if !transaction.alone => None,
                    plain => Some(plain),
                };
                if statement.failed {
                    // It may have taken the snapshot before it failed.
                    tried = tried.or(plain.map(|_| statement.begin));
                    continue;
                }
                let node = match (plain, snapshot, commit_of.get(&t)) {
                    (None, _, Some(&node)) => node,
                    (None, _, None) => continue,
                    (Some(PlainReads::Transaction), Some(node), _) => node,
                    (Some(_), ..) => {
                        let begin = match plain {
                            Some(PlainReads::Transaction) => tried.unwrap_or(statement.begin),
                            _ => statement.begin,
                        };
                        nodes.push(Node { transaction: t, snapshot: Some(s), begin, end: statement.end });
                        snapshot = Some(nodes.len() - 1);
                        nodes.len() - 1
                    }
                };
                let ranges = plain.is_some() || self.history.promise.ranges;
                self.observe(t, s, *group, seen, ranges, &nodes[node], &alive, |from, to, label| {
                    edges.push(match (from, to) {
                        (Some(writer), _) => (commit_of[&writer], node, label),
                        (None, Some(writer)) => (node, commit_of[&writer], label),
                        (None, None) => return,
                    });
                });
            }
            if self.history.promise.first_wins
                && let Some(node) = snapshot
            {
                for (s, statement) in transaction.statements.iter().enumerate() {
                    let Action::Write { key, seen, .. } = &statement.action else { continue };
                    if !self.committed[t] || self.undone[t][s] != usize::MAX {
                        continue;
                    }
                    let before = seen.as_ref().and_then(|value| self.split(t, value).0.last());
                    if let Some(&version) = before
                        && let Some(&(writer, _)) = self.writes.get(&version)
                        && let Some(&from) = commit_of.get(&writer)
                    {
                        edges.push((from, node, Label { why: Why::Wr, key: *key, version }));
                    }
                }
            }
        }
        for (&key, states) in &self.states {
            for pair in states.windows(2) {
                if let (Some(from), Some(to)) = (pair[0].writer, pair[1].writer)
                    && self.committed[from]
                    && self.committed[to]
                {
                    edges.push((
                        commit_of[&from],
                        commit_of[&to],
                        Label { why: Why::Ww, key, version: pair[1].version },
                    ));
                }
            }
        }
        self.report.snapshots = nodes.len() - commit_of.len();
        // The line of time: one point for each end.
        let mut ends: Vec<(u64, usize)> = nodes.iter().enumerate().map(|(n, node)| (node.end, n)).collect();
        ends.retain(|end| end.0 != u64::MAX);
        ends.sort_unstable();
        let mut graph = Graph::new(nodes.len() + ends.len());
        for &(from, to, label) in edges.iter().filter(|(from, to, _)| from != to) {
            graph.add(from, to, label);
            self.report.edges += 1;
        }
        let time = Label { why: Why::Time, key: Key(0), version: 0 };
        for (at, &(_, node)) in ends.iter().enumerate() {
            graph.add(node, nodes.len() + at, time);
            if at > 0 {
                graph.add(nodes.len() + at - 1, nodes.len() + at, time);
            }
        }
        for (n, node) in nodes.iter().enumerate() {
            let before = ends.partition_point(|end| end.0 < node.begin);
            if before > 0 {
                graph.add(nodes.len() + before - 1, n, time);
            }
        }
        (nodes, graph)
    }

    /// The edges of a read to and from committed writers.
    #[expect(clippy::too_many_arguments)]
    fn observe(
        &mut self,
        t: usize,
        s: usize,
        group: Option<u32>,
        seen: &[(Key, Value)],
        ranges: bool,
        node: &Node,
        alive: &Alive,
        mut edge: impl FnMut(Option<usize>, Option<usize>, Label),
    ) {
        let mut told = Vec::new();
        let mut possible = |states: &[State], key: Key, low: usize, high: usize| {
            let committed = |state: &State| state.writer.filter(|&w| self.committed[w]);
            if let Some(writer) = committed(&states[low]) {
                edge(Some(writer), None, Label { why: Why::Wr, key, version: states[low].version });
            }
            if let Some(next) = states.get(high + 1)
                && let Some(writer) = committed(next)
            {
                edge(None, Some(writer), Label { why: Why::Rw, key, version: next.version });
            }
        };
        let none = [State { version: 0, writer: None, group: None }];
        let mut missing: Vec<Key> = Vec::new();
        for (key, value) in seen {
            let (others, own) = self.split(t, value);
            if !own.is_empty() || self.own_write(t, s, *key).is_some() {
                continue;
            }
            let states = self.states.get(key).map_or(&none[..], Vec::as_slice);
            match others.last() {
                None => missing.push(*key),
                Some(last) => {
                    let Some(&at) = self.place.get(&(*key, *last)) else { continue };
                    possible(states, *key, at, at);
                    if let Some(group) = group
                        && states[at].group != Some(group)
                    {
                        told.push((*key, format!("{key}={value} was found in group {group} and is not in it")));
                    }
                }
            }
        }
        if let Some(group) = group.filter(|_| !self.has_nameless_rows(t, s)) {
            let have: HashSet<Key> = seen.iter().map(|(key, _)| *key).collect();
            missing.extend(alive.during(group, node.begin, node.end).into_iter().filter(|key| !have.contains(key)));
        }
        if !ranges {
            missing.clear();
        }
        for key in missing {
            let own = self.own_write(t, s, key);
            if let Some(own) = own {
                let set = match self.history.transactions[t].statements[own].action {
                    Action::Write { group, dead: false, .. } => group,
                    _ => None,
                };
                if group.is_some() && set == group {
                    told.push((key, format!("the own row {key} is not found in its group")));
                }
                continue;
            }
            let states = self.states.get(&key).map_or(&none[..], Vec::as_slice);
            let can_be = |n: usize| {
                let state = &states[n];
                let out = match group {
                    Some(group) => state.group != Some(group),
                    None => n == 0 || state.group.is_none(),
                };
                let times = |state: &State| state.writer.map(|w| &self.history.transactions[w]);
                let begun = times(state).is_none_or(|writer| writer.begin <= node.end);
                let over = states
                    .get(n + 1)
                    .and_then(times)
                    .is_some_and(|writer| writer.outcome != Outcome::Unknown && writer.end < node.begin);
                out && begun && !over
            };
            let mut range = (0..states.len()).filter(|&n| can_be(n));
            match range.next() {
                Some(low) => possible(states, key, low, range.next_back().unwrap_or(low)),
                None => told.push((key, format!("{key} was there all the time and was not found"))),
            }
        }
        for (key, what) in told {
            let writer = self.states.get(&key).and_then(|states| states.last()).and_then(|state| state.writer);
            let places: Vec<_> = [(t, Some(s))].into_iter().chain(writer.map(|w| (w, None))).collect();
            self.find("row missing or in excess", what, &places);
        }
    }

    fn alive(&self) -> Alive {
        let mut alive = Alive::default();
        let last = self.history.transactions.iter().map(|t| t.end).max().unwrap_or(0);
        for (&key, states) in &self.states {
            let time = |state: &State| state.writer.map(|w| &self.history.transactions[w]);
            for (n, state) in states.iter().enumerate() {
                let Some(group) = state.group else { continue };
                let begin = time(state).map_or(0, |t| t.begin);
                let next = states.get(n + 1).and_then(time);
                let end = next.map_or(last, |t| if t.outcome == Outcome::Unknown { last } else { t.end });
                alive.insert(group, key, begin, end);
            }
        }
        alive
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
    fn find(&mut self, class: &'static str, what: String, places: &[(usize, Option<usize>)]) {
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
fn undone(transaction: &Transaction) -> Vec<usize> {
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

/// Which keys may have been in a group at a time, in steps of time.
#[derive(Default)]
struct Alive {
    keys: HashMap<(u32, u64), BTreeSet<Key>>,
    last: u64,
}

impl Alive {
    const STEP: u64 = 50_000;

    fn insert(&mut self, group: u32, key: Key, begin: u64, end: u64) {
        let last = end.max(begin) / Self::STEP;
        self.last = self.last.max(last);
        for step in begin / Self::STEP..=last {
            self.keys.entry((group, step)).or_default().insert(key);
        }
    }

    fn during(&self, group: u32, begin: u64, end: u64) -> BTreeSet<Key> {
        let steps = begin / Self::STEP..=(end / Self::STEP).min(self.last);
        steps.filter_map(|step| self.keys.get(&(group, step))).flatten().copied().collect()
    }
}
