//! A table that is altered, emptied and renamed while it is written to, and read at moments between.
//!
//! One session does all of it, so its steps have an order; each has bounds of seconds, as the ledger's transactions have. A moment after
//! `k` of the steps shows the rows of these, or is refused if a later step changed the table. Where bounds leave several `k` any of
//! their answers is right.

use super::{DATABASE, Kept, NOT_KEPT, now};
use crate::drive::is_lost;
use crate::server::Instance;
use anyhow::{Context, Result, bail, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a step does to the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Row(u32),
    /// Its definition or its name.
    Changed,
    Emptied,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    what: What,
    first: u64,
    last: u64,
}

/// What a moment shows: rows, or that the table is not what it was then.
type Shown = Option<BTreeSet<u32>>;

/// The session, over all ends of servers.
pub struct Shape {
    rng: SmallRng,
    /// Of tables and rows.
    next: u32,
    table: Option<Table>,
    /// The next change of the table: seconds lie between, so that moments between can be read.
    next_change: Instant,
    pub changes: u64,
    pub reads: u64,
    pub refused: u64,
}

struct Table {
    name: String,
    steps: Vec<Step>,
    /// In flight when the server went away.
    open: Option<(What, u64)>,
}

impl Table {
    /// What a moment may show.
    fn possible(&self, moment: u64) -> Vec<Shown> {
        let done = self.steps.iter().filter(|step| step.last < moment).count();
        let begun = self.steps.iter().filter(|step| step.first < moment).count();
        (done..=begun.max(done)).map(|k| self.after(k)).collect()
    }

    /// After so many steps. Before the first one there is no table.
    fn after(&self, steps: usize) -> Shown {
        if steps == 0 || self.steps[steps..].iter().any(|step| !matches!(step.what, What::Row(_))) {
            return None;
        }
        let mut rows = BTreeSet::new();
        for step in &self.steps[..steps] {
            match step.what {
                What::Row(number) => drop(rows.insert(number)),
                What::Emptied => rows.clear(),
                What::Changed => {}
            }
        }
        Some(rows)
    }
}

impl Shape {
    pub fn new(seed: u64) -> Shape {
        let rng = SmallRng::seed_from_u64(seed.wrapping_mul(53));
        Shape { rng, next: 1, table: None, next_change: Instant::now(), changes: 0, reads: 0, refused: 0 }
    }

    /// Works until `stop` is set or the server goes away.
    pub fn work(&mut self, instance: &Instance, kept: Kept, stop: &AtomicBool) -> Result<()> {
        let Ok(mut conn) = instance.connect(Some(DATABASE)) else { return Ok(()) };
        while !stop.load(Ordering::Relaxed) {
            if !self.step(&mut conn, kept, instance.kind().sql())? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// False if the server has gone.
    fn step(&mut self, conn: &mut Conn, kept: Kept, engine: &str) -> Result<bool> {
        let number = self.next;
        self.next += 1;
        let Some(table) = &mut self.table else {
            let name = format!("shape_{number}");
            let create = format!("CREATE TABLE {name} (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE={engine}");
            self.table = Some(Table { name, steps: Vec::new(), open: None });
            return self.run(conn, &create, What::Changed);
        };
        let name = table.name.clone();
        if self.next_change <= Instant::now() {
            self.next_change = Instant::now() + Duration::from_millis(self.rng.random_range(500..6000));
            return self.change(conn);
        }
        match self.rng.random_range(0..40) {
            0..24 => {
                let insert = format!("INSERT INTO {name} (id, a) VALUES ({number}, {number})");
                self.run(conn, &insert, What::Row(number))
            }
            // Rows in files, and then what is about to be read.
            24 => self.run_unseen(conn, &format!("OPTIMIZE TABLE {name}")),
            _ => self.look(conn, kept),
        }
    }

    fn change(&mut self, conn: &mut Conn) -> Result<bool> {
        let Some(table) = &mut self.table else { return Ok(true) };
        let (name, number) = (table.name.clone(), self.next);
        self.next += 1;
        let (statement, what) = match self.rng.random_range(0..6) {
            0 => (format!("ALTER TABLE {name} ADD COLUMN c{number} INT DEFAULT 7, ALGORITHM=INSTANT"), What::Changed),
            1 => (format!("ALTER TABLE {name} ADD INDEX i{number} (a), ALGORITHM=NOCOPY, LOCK=NONE"), What::Changed),
            2 => (format!("ALTER TABLE {name} FORCE"), What::Changed),
            3 => (format!("ALTER TABLE {name} FORCE, ALGORITHM=COPY"), What::Changed),
            4 => (format!("TRUNCATE TABLE {name}"), What::Emptied),
            _ => {
                table.name = format!("shape_{number}");
                (format!("RENAME TABLE {name} TO {}", table.name), What::Changed)
            }
        };
        self.changes += 1;
        self.run(conn, &statement, what)
    }

    fn run(&mut self, conn: &mut Conn, statement: &str, what: What) -> Result<bool> {
        let Some(table) = &mut self.table else { return Ok(true) };
        let first = now();
        table.open = Some((what, first));
        match conn.query_drop(statement) {
            Ok(()) => {
                table.open = None;
                table.steps.push(Step { what, first, last: now() });
                Ok(true)
            }
            Err(error) if is_lost(&error) => Ok(false),
            Err(error) => bail!("{error}: {statement}"),
        }
    }

    fn run_unseen(&mut self, conn: &mut Conn, statement: &str) -> Result<bool> {
        match conn.query_drop(statement) {
            Ok(()) => Ok(true),
            Err(error) if is_lost(&error) => Ok(false),
            Err(error) => bail!("{error}: {statement}"),
        }
    }

    /// Reads a moment at which the table may have been.
    fn look(&mut self, conn: &mut Conn, kept: Kept) -> Result<bool> {
        let Some(table) = &self.table else { return Ok(true) };
        let begin = now();
        let oldest = kept.oldest(begin).min(begin);
        let at = match self.rng.random_range(0..3) {
            0 => begin.saturating_sub(1).max(oldest),
            _ => self.rng.random_range(oldest..=begin),
        };
        let query = format!("SELECT id FROM {}", table.name);
        let read = |conn: &mut Conn| -> mysql::Result<Vec<u32>> {
            conn.query_drop(format!("SET strata_read_timestamp = FROM_UNIXTIME({at})"))?;
            let rows = conn.query(&query);
            conn.query_drop("SET strata_read_timestamp = DEFAULT")?;
            rows
        };
        let shown = match read(conn) {
            Ok(rows) => Some(rows.into_iter().collect()),
            Err(error) if is_lost(&error) => return Ok(false),
            Err(mysql::Error::MySqlError(error)) if error.code == NOT_KEPT => {
                if error.message.contains("is not kept") && kept.may_be_forgotten(at, now()) {
                    return Ok(true);
                }
                ensure!(error.message.contains(&table.name), "refused without the table's name: {}", error.message);
                None
            }
            Err(error) => bail!("{error}: {query} at the moment {at}"),
        };
        let possible = table.possible(at);
        ensure!(
            possible.contains(&shown),
            "at the moment {at}, read at {begin}, {query} shows {shown:?}, and should show one of {possible:?}; the steps: {:?}",
            table.steps
        );
        self.reads += 1;
        self.refused += u64::from(shown.is_none());
        Ok(true)
    }

    /// After a restart: a row that was in flight is there or not. A table whose change was in flight is left behind.
    pub fn resolve(&mut self, conn: &mut Conn) -> Result<()> {
        let Some(table) = &mut self.table else { return Ok(()) };
        match table.open.take() {
            None => {}
            Some((What::Row(number), first)) => {
                let query = format!("SELECT id FROM {} WHERE id = {number}", table.name);
                if conn.query_first::<u32, _>(&query).context(query)?.is_some() {
                    table.steps.push(Step { what: What::Row(number), first, last: now() });
                }
            }
            Some(_) => self.table = None,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_shows_the_rows_of_then_unless_the_table_was_changed_since() {
        let step = |what, first, last| Step { what, first, last };
        let steps = vec![
            step(What::Changed, 100, 100),
            step(What::Row(1), 101, 101),
            step(What::Emptied, 103, 104),
            step(What::Row(2), 106, 106),
            step(What::Row(3), 107, 109),
        ];
        let table = Table { name: "t".into(), steps, open: None };
        let rows = |numbers: &[u32]| Some(numbers.iter().copied().collect::<BTreeSet<_>>());
        for moment in [90, 101, 102, 103] {
            assert_eq!(table.possible(moment).iter().flatten().count(), 0, "{moment}");
        }
        assert_eq!(table.possible(104), [None, rows(&[])]);
        assert_eq!(table.possible(106), [rows(&[])]);
        assert_eq!(table.possible(107), [rows(&[2])]);
        assert_eq!(table.possible(108), [rows(&[2]), rows(&[2, 3])]);
        assert_eq!(table.possible(110), [rows(&[2, 3])]);
    }
}
