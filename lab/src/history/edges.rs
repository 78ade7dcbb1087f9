//! The graph of a history: which moments come before which.
//!
//! A committed transaction is a node, and each snapshot is one of its own. ww: to who wrote the next version; wr: to who read
//! it; rw: from who read a version to who wrote the next one; and who was acknowledged before another one began comes first.
//! Where a read leaves several versions possible, those that the times rule out are dropped, and the edges are those that hold
//! for all that are left.
//!
//! Invariant: an edge holds in every order of the moments that explains what was seen.
//!
//! Rejected: one node per transaction (a plain read at REPEATABLE READ is of another moment than the writes).

use super::check::{Checker, Label, Node, State, Why};
use super::graph::Graph;
use super::{Action, Key, Outcome, PlainReads, Value};
use std::collections::{BTreeSet, HashMap, HashSet};

impl Checker<'_> {
    pub(super) fn graph(&mut self) -> (Vec<Node>, Graph<Label>) {
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
