//! The graph: which links each node has when it is loaded.
//!
//! Nodes have the ids from 1 on. A permutation gives each id its rank by degree; the ends of a node's links of one type are the ids
//! from its own on, so that anybody can tell whether a link was loaded.
//!
//! Loaders take chunks of ids, each with a source of its own: the rows do not depend on who loads which chunk.

use super::degrees::{Degrees, LINK_TYPES, of_type};
use super::payload::{Kind, Payload};
use super::permutation::Permutation;
use super::schema::Link;
use super::seed_for;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::ops::Range;

/// Ids of a chunk.
pub const CHUNK: u64 = 2048;
/// The first type of links; the others follow.
pub const FIRST_TYPE: u64 = 123_456_789;
/// When the graph was made, in milliseconds since 1970: the first moment of 2026. Links are up to 50 days older.
pub const MADE: u64 = 1_767_225_600_000;

/// Nodes of the sample from which sizes are reckoned.
const SAMPLE: u64 = 1_000_000;
/// Bytes of the columns of fixed length of a row, and of its length bytes.
const NODE_BYTES: f64 = 24.0 + 3.0;
const LINK_BYTES: f64 = 37.0 + 1.0;
const COUNT_BYTES: f64 = 36.0;

/// What the seeds of the graph are for.
const DEGREES: u64 = 0;
const NEW_LINKS: u64 = 1;
const CHANGED_LINKS: u64 = 2;
const NEW_NODES: u64 = 3;
const CHANGED_NODES: u64 = 4;
const NODE_DATA: u64 = 5;
const CHUNKS: u64 = 1 << 32;

/// A graph as it is loaded.
#[derive(Clone, Debug)]
pub struct Graph {
    nodes: u64,
    seed: u64,
    degrees: Degrees,
    by_degree: Permutation,
    /// Data of links that are added, of links that are changed, and the same of nodes.
    pub new_links: Payload,
    pub changed_links: Payload,
    pub new_nodes: Payload,
    pub changed_nodes: Payload,
}

/// The visible links of one type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The node.
    pub id: u64,
    /// The type.
    pub link_type: u64,
    /// How many.
    pub count: u64,
    /// The youngest link's.
    pub time: u64,
}

impl Graph {
    /// The graph of so many nodes with this seed.
    pub fn new(nodes: u64, seed: u64) -> Graph {
        let payload = |kind, purpose| Payload::new(kind, seed_for(seed, purpose));
        Graph {
            nodes,
            seed,
            degrees: Degrees::new(nodes),
            by_degree: Permutation::new(nodes, seed_for(seed, DEGREES)),
            new_links: payload(Kind::Link, NEW_LINKS),
            changed_links: payload(Kind::Link, CHANGED_LINKS),
            new_nodes: payload(Kind::Node, NEW_NODES),
            changed_nodes: payload(Kind::Node, CHANGED_NODES),
        }
    }

    /// How many nodes are loaded.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The seed of everything.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The id of the node with this rank by degree; that of rank 0 has most links.
    pub fn by_degree(&self, rank: u64) -> u64 {
        1 + self.by_degree.forward(rank)
    }

    /// How many links of a type were loaded for a node.
    pub fn links(&self, id: u64, link_type: u64) -> u64 {
        let degree = self.degrees.degree(self.by_degree.back(id - 1));
        of_type(degree, link_type - FIRST_TYPE)
    }

    /// Bytes of the rows alone, without indexes: what "the data" is when a cache is sized in proportion to it. Of a graph of more than a
    /// million nodes it is reckoned from one of a million.
    pub fn raw_bytes(&self) -> u64 {
        let sample = self.nodes.min(SAMPLE);
        let degrees = Degrees::new(sample);
        let (mut links, mut counts) = (0, 0);
        for rank in 0..sample {
            for number in 0..LINK_TYPES {
                let of_type = of_type(degrees.degree(rank), number);
                links += of_type;
                counts += u64::from(of_type > 0);
            }
        }
        let per_node = |rows: u64| rows as f64 / sample as f64;
        let bytes = NODE_BYTES
            + Kind::Node.mean()
            + per_node(links) * (LINK_BYTES + Kind::Link.mean())
            + per_node(counts) * COUNT_BYTES;
        (bytes * self.nodes as f64) as u64
    }

    /// How many chunks of ids there are.
    pub fn chunks(&self) -> u64 {
        self.nodes.div_ceil(CHUNK)
    }

    /// Makes the links of a chunk and then their counts, node by node.
    pub fn chunk<E>(
        &self,
        chunk: u64,
        mut link: impl FnMut(&Link) -> Result<(), E>,
        mut count: impl FnMut(&Count) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rng = SmallRng::seed_from_u64(seed_for(self.seed, CHUNKS + chunk));
        for id in self.ids(chunk) {
            for link_type in FIRST_TYPE..FIRST_TYPE + LINK_TYPES {
                let links = self.links(id, link_type);
                let mut youngest = 0;
                for n in 0..links {
                    let data = self.new_links.draw(&mut rng);
                    let time = MADE - 1 - u64::from(rng.random::<u32>());
                    youngest = youngest.max(time);
                    link(&Link { id1: id, id2: id + n, link_type, time, data })?;
                }
                if links > 0 {
                    count(&Count { id, link_type, count: links, time: youngest })?;
                }
            }
        }
        Ok(())
    }

    fn ids(&self, chunk: u64) -> Range<u64> {
        1 + chunk * CHUNK..1 + ((chunk + 1) * CHUNK).min(self.nodes)
    }

    /// The source of the data of all nodes, in the order of their ids.
    pub fn node_source(&self) -> SmallRng {
        SmallRng::seed_from_u64(seed_for(self.seed, NODE_DATA))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::convert::Infallible;

    fn all(graph: &Graph) -> (Vec<Link>, Vec<Count>) {
        let (mut links, mut counts) = (vec![], vec![]);
        for chunk in 0..graph.chunks() {
            let done: Result<(), Infallible> = graph.chunk(
                chunk,
                |link| {
                    links.push(link.clone());
                    Ok(())
                },
                |count| {
                    counts.push(*count);
                    Ok(())
                },
            );
            done.unwrap();
        }
        (links, counts)
    }

    #[test]
    fn counts_are_those_of_the_links() {
        let graph = Graph::new(5000, 3);
        let (links, counts) = all(&graph);
        let mut found: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
        let mut keys = BTreeSet::new();
        for link in &links {
            assert!((1..=5000).contains(&link.id1) && (MADE - (1 << 32)..MADE).contains(&link.time));
            assert!(keys.insert((link.id1, link.id2, link.link_type)), "{link:?} twice");
            let (count, youngest) = found.entry((link.id1, link.link_type)).or_default();
            *count += 1;
            *youngest = link.time.max(*youngest);
        }
        let told: BTreeMap<_, _> = counts.iter().map(|c| ((c.id, c.link_type), (c.count, c.time))).collect();
        assert_eq!(told.len(), counts.len());
        assert_eq!(told, found);
        for ((id, link_type), (count, _)) in found {
            assert_eq!(graph.links(id, link_type), count);
        }
        let mean = links.len() as f64 / 5000.0;
        assert!((mean / 4.37 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn the_seed_decides() {
        let (one, same, other) = (Graph::new(3000, 1), Graph::new(3000, 1), Graph::new(3000, 2));
        assert_eq!(all(&one), all(&same));
        assert_ne!(all(&one).0, all(&other).0);
        let data = |graph: &Graph| graph.new_nodes.draw(&mut graph.node_source());
        assert_eq!(data(&one), data(&same));
    }

    #[test]
    fn ranks_by_degree_fall() {
        let graph = Graph::new(4000, 1);
        let degree = |rank| {
            let id = graph.by_degree(rank);
            graph.links(id, FIRST_TYPE) + graph.links(id, FIRST_TYPE + 1)
        };
        assert!(degree(0) > 1000 && degree(0) > 2 * degree(10) && degree(10) > degree(1000), "{}", degree(0));
    }

    #[test]
    fn raw_size() {
        let bytes = Graph::new(100_000, 1).raw_bytes() / 100_000;
        // A node of 238 bytes, 4.37 links of 51, 0.77 counts of 36.
        assert!((480..500).contains(&bytes), "{bytes}");
    }
}
