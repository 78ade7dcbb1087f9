//! What must hold of the tables after any number of operations, each whole or not done.
//!
//! | condition | what must hold |
//! |---|---|
//! | 1 | the count of a node and type is the number of its visible links; without a row it is zero |
//! | 2 | the index of links has the rows of the table, column by column |
//! | 3 | links and counts belong to nodes that were loaded, and have a known type; links are visible or hidden |
//! | 4 | a node that was loaded is there unless it was deleted; one whose deletion was acknowledged is not |
//! | 5 | a node with a later id is one that was added; each whose addition was acknowledged is there |
//!
//! After a kill what was not acknowledged may have happened or not: conditions 4 and 5 leave that open for the operations
//! under way then, each of one node.

use super::DATABASE;
use super::degrees::LINK_TYPES;
use super::drive::Nodes;
use super::graph::{CHUNK, FIRST_TYPE};
use super::schema::{HIDDEN, LINK_COLUMNS, NODE_TYPE, VISIBLE};
use crate::findings::{Findings, TOLD, each, in_parts};
use crate::server::Instance;
use anyhow::Result;
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;

/// Sessions that read everything.
const SESSIONS: u32 = 2;
/// Chunks of ids that are read at once.
const CHUNKS: u64 = 8;

/// A link as it is read: both nodes, type, visibility, payload, time, version.
type LinkRow = (u64, u64, u64, u8, Vec<u8>, u64, u32);

/// Checks the tables of a graph of so many nodes, of which these came and went.
pub fn check(instance: &Instance, loaded: u64, nodes: &Nodes) -> Result<Findings> {
    let mut findings = beyond(&mut session(instance)?, loaded, nodes)?;
    let (size, gone) = (CHUNK * CHUNKS, Gone::new(nodes));
    findings.merge(in_parts(
        loaded.div_ceil(size),
        SESSIONS,
        || session(instance),
        |conn, part| {
            let first = 1 + part * size;
            Ok(Chunk::read(conn, first..=loaded.min(first + size - 1))?.check(&gone))
        },
    )?);
    Ok(findings)
}

fn session(instance: &Instance) -> Result<Conn> {
    let mut conn = instance.connect(Some(DATABASE))?;
    conn.query_drop("SET character_set_results = NULL")?;
    Ok(conn)
}

/// What has ids that were not loaded.
fn beyond(conn: &mut Conn, loaded: u64, nodes: &Nodes) -> Result<Findings> {
    let mut found = Findings::default();
    for (table, index, id) in
        [("linktable", "PRIMARY", "id1"), ("linktable", "id1_type", "id1"), ("counttable", "PRIMARY", "id")]
    {
        let query = format!("SELECT COUNT(*) FROM {table} FORCE INDEX ({index}) WHERE {id} < 1 OR {id} > {loaded}");
        let rows: Option<u64> = conn.query_first(query)?;
        found.expect(3, rows == Some(0), || {
            format!("{table} has {rows:?} rows of nodes that were not loaded ({index})")
        });
    }
    let mut there = BTreeSet::new();
    found.rows += each(conn, format!("SELECT id FROM nodetable WHERE id < 1 OR id > {loaded}"), |(id,): (u64,)| {
        there.insert(id);
    })?;
    found.merge(added(&there, nodes));
    Ok(found)
}

/// Condition 5.
fn added(there: &BTreeSet<u64>, nodes: &Nodes) -> Findings {
    let mut found = Findings::default();
    let acknowledged: BTreeSet<u64> = nodes.added.iter().copied().collect();
    found.expect(5, acknowledged.len() == nodes.added.len(), || "an id was given to two nodes".into());
    for id in &acknowledged {
        found.expect(5, there.contains(id), || format!("the acknowledged node {id} is not there"));
    }
    let others: Vec<u64> = there.difference(&acknowledged).copied().collect();
    found.expect(5, others.len() as u64 <= nodes.perhaps_added, || {
        let first = &others[..others.len().min(TOLD)];
        format!("{} nodes that nobody added, {} may have been: {first:?}...", others.len(), nodes.perhaps_added)
    });
    found
}

/// Nodes of the graph that went, and those of which nobody knows.
struct Gone {
    surely: BTreeSet<u64>,
    perhaps: BTreeSet<u64>,
}

impl Gone {
    fn new(nodes: &Nodes) -> Gone {
        Gone {
            surely: nodes.deleted.iter().copied().collect(),
            perhaps: nodes.perhaps_deleted.iter().copied().collect(),
        }
    }
}

/// Links of a node and type in one index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Links {
    visible: u64,
    all: u64,
    /// The sum of the hashes of all rows.
    sum: u64,
}

impl Links {
    fn add(&mut self, row: &LinkRow) {
        let mut hasher = DefaultHasher::new();
        row.hash(&mut hasher);
        self.visible += u64::from(row.3 == VISIBLE);
        self.all += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

type ByType = BTreeMap<(u64, u64), Links>;

/// All that there is of some nodes.
#[derive(Default)]
struct Chunk {
    ids: Option<RangeInclusive<u64>>,
    by_table: ByType,
    by_index: ByType,
    counts: BTreeMap<(u64, u64), u64>,
    /// Ids and types.
    nodes: BTreeMap<u64, u32>,
    /// Links with a strange visibility.
    strange: Vec<String>,
    rows: u64,
}

impl Chunk {
    fn read(conn: &mut Conn, ids: RangeInclusive<u64>) -> Result<Chunk> {
        let mut this = Chunk { ids: Some(ids.clone()), ..Chunk::default() };
        let within = |id: &str| format!("{id} BETWEEN {} AND {}", ids.start(), ids.end());
        for (index, links) in [("PRIMARY", &mut this.by_table), ("id1_type", &mut this.by_index)] {
            let query = format!("SELECT {LINK_COLUMNS} FROM linktable FORCE INDEX ({index}) WHERE {}", within("id1"));
            this.rows += each(conn, query, |row: LinkRow| {
                if row.3 != VISIBLE && row.3 != HIDDEN {
                    this.strange
                        .push(format!("the link {}-{} of type {} has visibility {}", row.0, row.1, row.2, row.3));
                }
                links.entry((row.0, row.2)).or_default().add(&row);
            })?;
        }
        let query = format!("SELECT id, link_type, count FROM counttable WHERE {}", within("id"));
        this.rows += each(conn, query, |(id, link_type, count): (u64, u64, u64)| {
            this.counts.insert((id, link_type), count);
        })?;
        let query = format!("SELECT id, type FROM nodetable WHERE {}", within("id"));
        this.rows += each(conn, query, |(id, node_type): (u64, u32)| {
            this.nodes.insert(id, node_type);
        })?;
        Ok(this)
    }

    fn check(&self, gone: &Gone) -> Findings {
        let mut found = Findings::of_rows(self.rows);
        let keys: BTreeSet<(u64, u64)> =
            self.by_table.keys().chain(self.by_index.keys()).chain(self.counts.keys()).copied().collect();
        for key in keys {
            let (id, link_type) = key;
            let (table, index) = (self.by_table.get(&key), self.by_index.get(&key));
            let visible = table.map_or(0, |links| links.visible);
            let count = self.counts.get(&key).copied().unwrap_or(0);
            found.expect(1, count == visible, || {
                format!("node {id}, type {link_type}: the count is {count}, {visible} links are visible")
            });
            found.expect(2, table == index, || {
                format!("node {id}, type {link_type}: the table has {table:?}, the index {index:?}")
            });
            let known = (FIRST_TYPE..FIRST_TYPE + LINK_TYPES).contains(&link_type);
            found.expect(3, known, || format!("node {id} has links of type {link_type}"));
        }
        for link in &self.strange {
            found.expect(3, false, || link.clone());
        }
        for id in self.ids.clone().into_iter().flatten() {
            let there = self.nodes.get(&id);
            if gone.surely.contains(&id) {
                found.expect(4, there.is_none(), || format!("node {id} is there, its deletion was acknowledged"));
            } else if !gone.perhaps.contains(&id) {
                found.expect(4, there.is_some(), || format!("node {id} is not there, and nobody deleted it"));
            }
            found.expect(4, there.is_none_or(|node_type| *node_type == NODE_TYPE), || {
                format!("node {id} has type {there:?}")
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = FIRST_TYPE;
    const B: u64 = FIRST_TYPE + 1;

    /// Nodes 1 to 3; node 1 has two links of the first type, one of them hidden, and one of the second.
    fn chunk() -> Chunk {
        let mut chunk = Chunk { ids: Some(1..=3), ..Chunk::default() };
        let rows: [LinkRow; 3] =
            [(1, 1, A, 1, vec![7], 5, 0), (1, 2, A, 0, vec![], 6, 0), (1, 1, B, 1, vec![8, 9], 7, 0)];
        for row in rows {
            chunk.by_table.entry((row.0, row.2)).or_default().add(&row);
            chunk.by_index.entry((row.0, row.2)).or_default().add(&row);
        }
        chunk.counts = BTreeMap::from([((1, A), 1), ((1, B), 1), ((2, A), 0)]);
        chunk.nodes = (1..=3).map(|id| (id, NODE_TYPE)).collect();
        chunk
    }

    /// Conditions that are violated.
    fn violated(chunk: &Chunk, nodes: &Nodes) -> Vec<usize> {
        chunk.check(&Gone::new(nodes)).violated()
    }

    #[test]
    fn a_right_chunk_is_passed() {
        assert_eq!(violated(&chunk(), &Nodes::default()), [0; 0]);
    }

    #[test]
    fn each_violation_is_seen() {
        type Change = fn(&mut Chunk);
        let cases: [(usize, Change); 9] = [
            (1, |c| c.counts.extend([((1, A), 2)])),
            (1, |c| c.counts.retain(|key, _| *key != (1, B))),
            (1, |c| c.counts.extend([((3, A), 1)])),
            (2, |c| c.by_index.retain(|key, _| *key != (1, B))),
            (2, |c| c.by_index.values_mut().for_each(|links| links.sum += 1)),
            (3, |c| c.counts.extend([((3, 5), 0)])),
            (3, |c| c.strange.push("a link".into())),
            (4, |c| c.nodes.retain(|id, _| *id != 2)),
            (4, |c| c.nodes.extend([(2, 1)])),
        ];
        for (n, (condition, change)) in cases.into_iter().enumerate() {
            let mut chunk = chunk();
            change(&mut chunk);
            assert_eq!(violated(&chunk, &Nodes::default()), [condition], "case {n}");
        }
    }

    #[test]
    fn every_column_counts() {
        let row: LinkRow = (1, 2, A, 1, vec![7], 5, 0);
        let links = |row: &LinkRow| {
            let mut links = Links::default();
            links.add(row);
            links
        };
        let changed: [LinkRow; 5] = [
            (1, 3, A, 1, vec![7], 5, 0),
            (1, 2, A, 0, vec![7], 5, 0),
            (1, 2, A, 1, vec![8], 5, 0),
            (1, 2, A, 1, vec![7], 6, 0),
            (1, 2, A, 1, vec![7], 5, 1),
        ];
        assert!(changed.iter().all(|other| links(other) != links(&row)));
    }

    #[test]
    fn deleted_nodes_must_be_gone() {
        let deleted = Nodes { deleted: vec![2], ..Nodes::default() };
        assert_eq!(violated(&chunk(), &deleted), [4]);
        let mut without = chunk();
        without.nodes.remove(&2);
        assert_eq!(violated(&without, &deleted), [0; 0]);
        let perhaps = Nodes { perhaps_deleted: vec![2], ..Nodes::default() };
        assert_eq!(violated(&chunk(), &perhaps), [0; 0]);
        assert_eq!(violated(&without, &perhaps), [0; 0]);
    }

    #[test]
    fn added_nodes_must_be_there() {
        let there = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<u64>>();
        let nodes = |added: &[u64], perhaps_added| Nodes { added: added.into(), perhaps_added, ..Nodes::default() };
        let clean = |ids: &[u64], nodes: &Nodes| added(&there(ids), nodes) == Findings::default();
        assert!(clean(&[10, 12], &nodes(&[12, 10], 0)));
        assert!(!clean(&[10], &nodes(&[12, 10], 0)), "one is lost");
        assert!(!clean(&[10, 12, 13], &nodes(&[12, 10], 0)), "one is invented");
        assert!(clean(&[10, 12, 13], &nodes(&[12, 10], 1)));
        assert!(!clean(&[10, 12, 13, 14], &nodes(&[12, 10], 1)));
        assert!(!clean(&[10], &nodes(&[10, 10], 0)), "an id was given twice");
    }
}
