//! A directed graph with labelled edges, and short cycles in it.
//!
//! Tarjan's algorithm (with a stack of its own: chains are long) finds the
//! strongly connected components; in each one that has a cycle, searches in
//! breadth from some of its nodes find a short one. A minimal cycle is what a
//! person can follow; all cycles would be exponentially many.

/// Starting points that are tried per component.
const STARTS: usize = 200;

/// Nodes are numbers from 0.
pub struct Graph<L> {
    edges: Vec<Vec<(usize, L)>>,
}

/// An edge of a cycle: from, label, to.
pub type Edge<L> = (usize, L, usize);

impl<L: Copy> Graph<L> {
    /// A graph without edges.
    pub fn new(nodes: usize) -> Graph<L> {
        Graph { edges: vec![Vec::new(); nodes] }
    }

    /// Adds an edge.
    pub fn add(&mut self, from: usize, to: usize, label: L) {
        self.edges[from].push((to, label));
    }

    /// One short cycle, over edges that `admit` admits, of each component that has one.
    pub fn cycles(&self, admit: impl Fn(L) -> bool) -> Vec<Vec<Edge<L>>> {
        let component = self.components(&admit);
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.edges.len()];
        for (node, &c) in component.iter().enumerate() {
            members[c].push(node);
        }
        let mut cycles = Vec::new();
        for nodes in members {
            let inside = |from: usize, to: usize, label: L| component[from] == component[to] && admit(label);
            let best =
                nodes.iter().take(STARTS).filter_map(|&start| self.shortest(start, &inside)).min_by_key(Vec::len);
            cycles.extend(best);
        }
        cycles
    }

    /// The component of each node.
    fn components(&self, admit: &impl Fn(L) -> bool) -> Vec<usize> {
        const NONE: usize = usize::MAX;
        let n = self.edges.len();
        let (mut index, mut low, mut component) = (vec![NONE; n], vec![0; n], vec![NONE; n]);
        let (mut stack, mut walk) = (Vec::new(), Vec::new());
        let (mut count, mut found) = (0, 0);
        for root in 0..n {
            if index[root] != NONE {
                continue;
            }
            walk.push((root, 0));
            while let Some((node, next)) = walk.pop() {
                if next == 0 {
                    index[node] = count;
                    low[node] = count;
                    count += 1;
                    stack.push(node);
                }
                if next > 0 {
                    // The edge before was walked to its end.
                    let (to, label) = self.edges[node][next - 1];
                    if admit(label) && component[to] == NONE {
                        low[node] = low[node].min(low[to]);
                    }
                }
                if let Some(&(to, label)) = self.edges[node].get(next) {
                    walk.push((node, next + 1));
                    if admit(label) && index[to] == NONE {
                        walk.push((to, 0));
                    }
                } else if low[node] == index[node] {
                    while let Some(top) = stack.pop() {
                        component[top] = found;
                        if top == node {
                            break;
                        }
                    }
                    found += 1;
                }
            }
        }
        component
    }

    fn shortest(&self, start: usize, inside: &impl Fn(usize, usize, L) -> bool) -> Option<Vec<Edge<L>>> {
        let mut came: std::collections::HashMap<usize, (usize, L)> = std::collections::HashMap::new();
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for &(to, label) in self.edges[node].iter().filter(|&&(to, label)| inside(node, to, label)) {
                if to == start {
                    let mut cycle = vec![(node, label, to)];
                    let mut at = node;
                    while at != start {
                        let (from, label) = came[&at];
                        cycle.push((from, label, at));
                        at = from;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if let std::collections::hash_map::Entry::Vacant(entry) = came.entry(to) {
                    entry.insert((node, label));
                    queue.push_back(to);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Graph<()> {
        let mut graph = Graph::new(nodes);
        edges.iter().for_each(|&(from, to)| graph.add(from, to, ()));
        graph
    }

    #[test]
    fn the_shortest_cycle_of_each_component_is_found() {
        let cycles = graph(8, &[(0, 1), (1, 2), (2, 3), (3, 0), (2, 1), (4, 5), (5, 6), (6, 4), (3, 4), (7, 0)]);
        let mut lengths: Vec<usize> = cycles.cycles(|_| true).iter().map(Vec::len).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, [2, 3]);
        assert!(cycles.cycles(|_| false).is_empty());
        assert_eq!(graph(1, &[(0, 0)]).cycles(|_| true).len(), 1);
    }

    #[test]
    fn a_long_chain_does_not_exhaust_the_stack() {
        let edges: Vec<_> = (0..200_000).map(|n| (n, n + 1)).collect();
        assert!(graph(200_001, &edges).cycles(|_| true).is_empty());
    }

    /// Against the definition: a cycle exists if and only if some node reaches itself.
    #[test]
    fn random_graphs() {
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..2000 {
            let n = rng.random_range(1..8usize);
            let edges: Vec<(usize, usize)> =
                (0..rng.random_range(0..12)).map(|_| (rng.random_range(0..n), rng.random_range(0..n))).collect();
            let mut reach = vec![vec![false; n]; n];
            edges.iter().for_each(|&(a, b)| reach[a][b] = true);
            for k in 0..n {
                for a in 0..n {
                    for b in 0..n {
                        reach[a][b] |= reach[a][k] && reach[k][b];
                    }
                }
            }
            let cyclic = (0..n).any(|a| reach[a][a]);
            let cycles = graph(n, &edges).cycles(|_| true);
            assert_eq!(!cycles.is_empty(), cyclic, "{edges:?}");
            for cycle in cycles {
                assert!(cycle.iter().zip(cycle.iter().cycle().skip(1)).all(|(a, b)| a.2 == b.0));
            }
        }
    }
}
