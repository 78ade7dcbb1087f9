//! Rows with two columns of prose, one of them indexed, and the read-write transaction on them.
//!
//! Tables and statements are sysbench's, changed as the original changed them: columns `data1` and `data2`, an index on `data1`;
//! the index update also changes `data1`, the other one `data2`; `SELECT` and `UPDATE` by `data1` are added. What `data1` to ask for
//! is learnt from a row that the transaction has read, as each line of text is hardly ever used twice.
//!
//! A transaction has 10 selects by id, 4 ranges of 100 rows, a select and an update by text, an update of indexed and one of
//! unindexed columns, a delete and an insert of the same id. One that meets a deadlock is repeated.

use super::prose::Prose;
use crate::drive::{Client, Control, Seen, drive};
use crate::server::Instance;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

/// The database of the tables.
pub const DATABASE: &str = "prose";
/// Rows of an INSERT of the load.
const BATCH: u64 = 500;
/// Rows of a range.
const RANGE: u64 = 100;
/// Seed of the stock of sentences.
const SEED: u64 = 1;

/// The data.
#[derive(Clone, Debug)]
pub struct Data {
    pub tables: u32,
    pub rows: u64,
    prose: Prose,
}

impl Data {
    /// Tables with so many rows each, of whose text zstd leaves this share.
    pub fn new(tables: u32, rows: u64, leaves: f64) -> Data {
        Data { tables, rows, prose: Prose::new(leaves, SEED) }
    }

    /// Makes the tables and fills them; the bytes of all values.
    pub fn load(&self, instance: &Instance, loaders: u32, progress: &ProgressBar) -> Result<u64> {
        instance.fresh_database(DATABASE)?;
        progress.set_length(u64::from(self.tables) * self.rows);
        let next = AtomicU32::new(1);
        let bytes = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..loaders.clamp(1, self.tables))
                .map(|_| {
                    scope.spawn(|| -> Result<u64> {
                        let mut conn = instance.connect(Some(DATABASE))?;
                        conn.query_drop("SET SESSION sql_log_bin=0")?;
                        let mut bytes = 0;
                        loop {
                            let table = next.fetch_add(1, Ordering::Relaxed);
                            if table > self.tables {
                                return Ok(bytes);
                            }
                            bytes += self.fill(&mut conn, &instance.engine_clause(), table, progress)?;
                        }
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect("a loader does not panic")).sum::<Result<u64>>()
        })?;
        Ok(bytes)
    }

    fn fill(&self, conn: &mut Conn, engine: &str, table: u32, progress: &ProgressBar) -> Result<u64> {
        conn.query_drop(create(engine, table))?;
        let mut rng = SmallRng::seed_from_u64(u64::from(table));
        let (mut bytes, mut id) = (0, 0);
        while id < self.rows {
            let mut text = format!("INSERT INTO sbtest{table} (id, k, c, pad, data1, data2) VALUES ");
            let batch = BATCH.min(self.rows - id);
            for n in 0..batch {
                id += 1;
                let comma = if n == 0 { "" } else { "," };
                let values = self.values(&mut rng);
                // Two numbers of four bytes, and the text between the quotes.
                bytes += 8 + values.bytes().filter(|byte| !b"',".contains(byte)).count() as u64;
                let _ = write!(text, "{comma}({id},{values})");
            }
            conn.query_drop(&text).with_context(|| format!("rows of sbtest{table} cannot be inserted"))?;
            progress.inc(batch);
        }
        conn.query_drop(format!("ANALYZE TABLE sbtest{table}"))?;
        Ok(bytes)
    }

    /// k, c, pad, data1, data2 of a new row.
    fn values(&self, rng: &mut SmallRng) -> String {
        let k = rng.random_range(1..=self.rows);
        let (data1, data2) = (self.prose.line(rng), self.prose.line(rng));
        format!("{k},'{}','{}','{data1}','{data2}'", digits(rng, 10), digits(rng, 5))
    }

    /// Lets sessions run transactions for a time.
    pub fn drive(
        &self,
        instance: &Instance,
        sessions: u32,
        seconds: u64,
        seed: u64,
        control: &Control,
    ) -> Result<Seen> {
        let session = |n: u32| -> Result<Session> {
            let conn = instance.connect(Some(DATABASE))?;
            let rng = SmallRng::seed_from_u64(seed.wrapping_mul(100_003).wrapping_add(u64::from(n)));
            Ok(Session { data: self, conn, rng })
        };
        let sessions = (0..sessions).map(session).collect::<Result<_>>().context("the sessions cannot be opened")?;
        Ok(drive(sessions, seconds, None, control).0)
    }
}

struct Session<'a> {
    data: &'a Data,
    conn: Conn,
    rng: SmallRng,
}

impl Client for Session<'_> {
    /// Its input is drawn as it goes.
    type Work = ();
    type Done = ();

    fn draw(&mut self) -> (&'static str, ()) {
        ("read-write", ())
    }

    fn attempt(&mut self, (): &()) -> mysql::Result<()> {
        self.transaction()
    }

    fn roll_back(&mut self) -> mysql::Result<()> {
        self.conn.query_drop("ROLLBACK")
    }

    fn note(&mut self, (): &(), (): ()) {}
}

impl Session<'_> {
    fn transaction(&mut self) -> mysql::Result<()> {
        let Session { data, conn, rng } = self;
        let table = format!("sbtest{}", rng.random_range(1..=data.tables));
        conn.query_drop("BEGIN")?;
        for _ in 0..9 {
            let id = rng.random_range(1..=data.rows);
            conn.query_drop(format!("SELECT c FROM {table} WHERE id={id}"))?;
        }
        let id = rng.random_range(1..=data.rows);
        let known: Option<String> = conn.query_first(format!("SELECT data1 FROM {table} WHERE id={id}"))?;
        for (what, order) in [("c", ""), ("SUM(k)", ""), ("c", " ORDER BY c"), ("DISTINCT c", " ORDER BY c")] {
            let from = rng.random_range(1..=data.rows);
            let to = from + RANGE - 1;
            conn.query_drop(format!("SELECT {what} FROM {table} WHERE id BETWEEN {from} AND {to}{order}"))?;
        }
        if let Some(known) = known {
            conn.query_drop(format!("SELECT id, data2 FROM {table} WHERE data1='{known}'"))?;
            let line = data.prose.line(rng);
            conn.query_drop(format!("UPDATE {table} SET data2='{line}' WHERE data1='{known}'"))?;
        }
        let (id, line) = (rng.random_range(1..=data.rows), data.prose.line(rng));
        conn.query_drop(format!("UPDATE {table} SET k=k+1, data1='{line}' WHERE id={id}"))?;
        let (id, line) = (rng.random_range(1..=data.rows), data.prose.line(rng));
        let c = digits(rng, 10);
        conn.query_drop(format!("UPDATE {table} SET c='{c}', data2='{line}' WHERE id={id}"))?;
        let (id, values) = (rng.random_range(1..=data.rows), data.values(rng));
        conn.query_drop(format!("DELETE FROM {table} WHERE id={id}"))?;
        conn.query_drop(format!("INSERT INTO {table} (id, k, c, pad, data1, data2) VALUES ({id},{values})"))?;
        conn.query_drop("COMMIT")
    }
}

fn create(engine: &str, table: u32) -> String {
    format!(
        "CREATE TABLE sbtest{table} (
           id INT NOT NULL AUTO_INCREMENT,
           k INT NOT NULL DEFAULT 0,
           c CHAR(120) NOT NULL DEFAULT '',
           pad CHAR(60) NOT NULL DEFAULT '',
           data1 VARCHAR(255) DEFAULT NULL,
           data2 VARCHAR(255) DEFAULT NULL,
           PRIMARY KEY (id),
           KEY k_{table} (k),
           KEY idx_data1 (data1)
         ) ENGINE={engine} DEFAULT CHARSET=utf8mb4"
    )
}

/// Groups of eleven digits, as sysbench has them: ten for `c`, five for `pad`.
fn digits(rng: &mut SmallRng, groups: u32) -> String {
    let mut text = String::new();
    for n in 0..groups {
        let dash = if n == 0 { "" } else { "-" };
        let _ = write!(text, "{dash}{:011}", rng.random_range(0..100_000_000_000u64));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_their_columns() {
        let data = Data::new(1, 1000, 0.5);
        let mut rng = SmallRng::seed_from_u64(3);
        let values = data.values(&mut rng);
        let texts: Vec<&str> = values.split('\'').skip(1).step_by(2).collect();
        assert_eq!(texts.len(), 4);
        assert_eq!((texts[0].len(), texts[1].len()), (119, 59));
        assert!(texts[2..].iter().all(|line| (60..=76).contains(&line.len())));
        assert!(create("InnoDB PAGE_COMPRESSED=1", 7).contains("KEY k_7 (k)"));
    }
}
