//! Fills the tables: several loaders take chunks of links and their counts, one inserts the nodes in the order of their ids.
//!
//! Rows go in INSERTs of many rows, each a transaction; those of links have ON DUPLICATE KEY UPDATE, counts REPLACE, as in the published
//! driver. Nodes get their ids from AUTO_INCREMENT, which is why one session inserts them all.

use super::graph::{Count, Graph};
use super::schema::{LINK_COLUMNS, Layout, NODE_TYPE, TABLES, push_bytes, push_link, statements};
use super::{DATABASE, graph};
use crate::drive::{DEADLOCK, LOCK_WAIT, SNAPSHOT_CONFLICT, Seen};
use crate::server::Instance;
use crate::stats::{Latencies, Seconds};
use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Rows of an INSERT.
const BATCH: usize = 1024;
/// What a series may hold, in seconds.
const SECONDS_MAX: u64 = 7 * 86_400;
/// A deadlock; a lock that was waited for too long; a row that has changed since the snapshot.
pub const AGAIN: [u16; 3] = [DEADLOCK, LOCK_WAIT, SNAPSHOT_CONFLICT];

/// How the tables are filled.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Of the tables.
    pub layout: Layout,
    /// Loaders of links.
    pub threads: u32,
    /// Whether the rows are in the binary log.
    pub logged: bool,
}

/// What was loaded.
#[derive(Debug, Default)]
pub struct Loaded {
    /// What the loaders saw: a row counts as a transaction, latencies are those of the statements, all and by table.
    pub seen: Seen,
    /// Links among the rows.
    pub links: u64,
}

/// What one loader saw.
#[derive(Debug, Default)]
struct Part {
    rows: u64,
    links: u64,
    deadlocks: u64,
    latency: Latencies,
    by_table: BTreeMap<&'static str, Latencies>,
}

/// Makes the database and fills it.
pub fn load(instance: &Instance, graph: &Graph, load: Load, progress: &ProgressBar) -> Result<Loaded> {
    let mut conn = instance.fresh_database(DATABASE)?;
    for statement in statements(&instance.engine_clause(), load.layout) {
        conn.query_drop(&statement).with_context(|| format!("this statement failed: {statement}"))?;
    }
    progress.set_length(graph.nodes());
    let began = Instant::now();
    let shared = Shared {
        seconds: Seconds::new(began, SECONDS_MAX),
        next: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        logged: load.logged,
        instance,
        graph,
        progress,
    };
    let mut sum = Part::default();
    std::thread::scope(|scope| -> Result<()> {
        let mut loaders = vec![scope.spawn(|| shared.watched(Shared::nodes))];
        loaders.extend((0..load.threads).map(|_| scope.spawn(|| shared.watched(Shared::links))));
        let parts: Vec<_> = loaders.into_iter().map(|loader| loader.join().expect("a loader does not panic")).collect();
        for part in parts {
            sum.add(part?);
        }
        Ok(())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let mut series = shared.seconds.series();
    series.truncate(seconds.ceil() as usize);
    let seen = Seen {
        seconds,
        transactions: sum.rows,
        deadlocks: sum.deadlocks,
        series,
        latency: sum.latency.summary(),
        by_kind: sum.by_table.iter().map(|(table, latency)| ((*table).to_string(), latency.summary())).collect(),
        ..Seen::default()
    };
    let ids: Option<(u64, u64)> = conn.query_first("SELECT MIN(id), MAX(id) FROM nodetable")?;
    ensure!(ids == Some((1, graph.nodes())), "the ids of {} nodes are {ids:?}", graph.nodes());
    for table in TABLES {
        conn.query_drop(format!("ANALYZE TABLE {table}"))?;
    }
    Ok(Loaded { seen, links: sum.links })
}

impl Part {
    fn add(&mut self, part: Part) {
        self.rows += part.rows;
        self.links += part.links;
        self.deadlocks += part.deadlocks;
        self.latency.merge(&part.latency);
        for (table, latency) in part.by_table {
            self.by_table.entry(table).or_default().merge(&latency);
        }
    }
}

/// What the loaders share.
struct Shared<'a> {
    seconds: Seconds,
    /// The next chunk of links.
    next: AtomicU64,
    /// Set when one has failed: the others need not go on.
    failed: AtomicBool,
    logged: bool,
    instance: &'a Instance,
    graph: &'a Graph,
    progress: &'a ProgressBar,
}

impl Shared<'_> {
    fn watched(&self, work: impl Fn(&Self, &mut Part) -> Result<()>) -> Result<Part> {
        let mut loaded = Part::default();
        let done = work(self, &mut loaded);
        if done.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        done.map(|()| loaded)
    }

    fn session(&self) -> Result<Conn> {
        let mut conn = self.instance.connect(Some(DATABASE))?;
        if !self.logged {
            conn.query_drop("SET SESSION sql_log_bin = 0")?;
        }
        Ok(conn)
    }

    fn nodes(&self, loaded: &mut Part) -> Result<()> {
        let mut conn = self.session()?;
        let mut rows =
            Rows::new("nodetable", "INSERT INTO nodetable (type, version, time, data) VALUES ".into(), String::new());
        let mut rng = self.graph.node_source();
        for _ in 0..self.graph.nodes() {
            let data = self.graph.new_nodes.draw(&mut rng);
            rows.add(|text| {
                let _ = write!(text, "({NODE_TYPE},1,{},", graph::MADE / 1000);
                push_bytes(text, &data);
                text.push(')');
            });
            if rows.full() {
                rows.send(&mut conn, self, loaded)?;
            }
            if self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        rows.send(&mut conn, self, loaded)
    }

    fn links(&self, loaded: &mut Part) -> Result<()> {
        let mut conn = self.session()?;
        let mut links = Rows::new(
            "linktable",
            format!("INSERT INTO linktable ({LINK_COLUMNS}) VALUES "),
            " ON DUPLICATE KEY UPDATE visibility = VALUES(visibility)".into(),
        );
        let mut counts = Rows::new(
            "counttable",
            "REPLACE INTO counttable (id, link_type, count, time, version) VALUES ".into(),
            String::new(),
        );
        while !self.failed.load(Ordering::Relaxed) {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.graph.chunks() {
                break;
            }
            let mut batches: Vec<Count> = Vec::new();
            let mut of_links = Part::default();
            self.graph.chunk(
                chunk,
                |link| -> Result<()> {
                    links.add(|text| push_link(text, link));
                    of_links.links += 1;
                    if links.full() { links.send(&mut conn, self, &mut of_links) } else { Ok(()) }
                },
                |count| {
                    batches.push(*count);
                    Ok(())
                },
            )?;
            loaded.add(of_links);
            for Count { id, link_type, count, time } in batches {
                counts.add(|text| {
                    let _ = write!(text, "({id},{link_type},{count},{time},0)");
                });
                if counts.full() {
                    counts.send(&mut conn, self, loaded)?;
                }
            }
        }
        links.send(&mut conn, self, loaded)?;
        counts.send(&mut conn, self, loaded)
    }
}

/// Rows of a table that go in one statement.
struct Rows {
    table: &'static str,
    head: String,
    tail: String,
    text: String,
    rows: usize,
}

impl Rows {
    fn new(table: &'static str, head: String, tail: String) -> Rows {
        Rows { table, head, tail, text: String::new(), rows: 0 }
    }

    fn add(&mut self, row: impl FnOnce(&mut String)) {
        self.text.push_str(if self.rows == 0 { &self.head } else { "," });
        row(&mut self.text);
        self.rows += 1;
    }

    fn full(&self) -> bool {
        self.rows == BATCH
    }

    /// Inserts the rows, if there are any; again after a deadlock.
    fn send(&mut self, conn: &mut Conn, shared: &Shared, loaded: &mut Part) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        self.text.push_str(&self.tail);
        let began = Instant::now();
        loop {
            match conn.query_drop(&self.text) {
                Err(mysql::Error::MySqlError(error)) if AGAIN.contains(&error.code) => loaded.deadlocks += 1,
                other => break other.with_context(|| format!("rows of {} cannot be inserted", self.table))?,
            }
        }
        let took = began.elapsed();
        loaded.latency.record(took);
        loaded.by_table.entry(self.table).or_default().record(took);
        loaded.rows += self.rows as u64;
        shared.seconds.add(self.rows as u64);
        if self.table == "nodetable" {
            shared.progress.inc(self.rows as u64);
        }
        self.rows = 0;
        self.text.clear();
        Ok(())
    }
}
