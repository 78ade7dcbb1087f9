//! Sessions that change definitions while servers are killed: tables that come, get columns and indexes, are renamed,
//! emptied and dropped, and rows that go in between.
//!
//! A session has tables of its own and looks up which there are, so a killed server leaves it nothing to remember. What
//! the replica must have afterwards is what the source has; [`crate::replica`] compares definitions and rows.
//!
//! The server notes a replica's position after a DDL statement, not with it, so a replica that is killed in between runs
//! the statement again. It helps itself with CREATE and DROP (`slave_ddl_exec_mode=IDEMPOTENT`), with the rest it stops,
//! whatever the engine. Hence each statement here may be run twice; no two tables swap names. With a log of its own it cannot
//! repeat anything: what it finishes or repeats after a crash is logged a second time, and a strict replica stops. Its
//! source runs no DDL while it is killed then. TRUNCATE is not logged together with its effect: with the source killed in
//! between, the replica keeps the rows. CREATE ... SELECT is undone by a source that is killed when it has logged it as rows,
//! and the replica has the table. Both are left out where that may happen.

use crate::drive::{DEADLOCK, is_lost};
use crate::server::Instance;
use anyhow::{Context, Result, bail};
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The database of these tables.
pub const DATABASE: &str = "defined";
const MOST: usize = 5;

/// Makes the database, empty.
pub fn create(instance: &Instance) -> Result<()> {
    instance.fresh_database(DATABASE)?;
    Ok(())
}

/// One session, over all crashes.
pub struct Definer {
    number: u32,
    /// For names and for keys.
    next: u64,
    rng: SmallRng,
}

impl Definer {
    pub fn new(number: u32, seed: u64) -> Definer {
        Definer { number, next: 1, rng: SmallRng::seed_from_u64(seed.wrapping_mul(31) ^ u64::from(number)) }
    }

    /// Works until `stop` is set or the server goes away; an error is one that a living server has returned. `lives`: nobody
    /// kills the server.
    pub fn work(&mut self, instance: &Instance, lives: bool, stop: &AtomicBool, done: &AtomicU64) -> Result<()> {
        let Ok(mut conn) = instance.connect(Some(DATABASE)) else {
            return Ok(());
        };
        let mine = format!(
            "SELECT table_name FROM information_schema.tables
             WHERE table_schema = '{DATABASE}' AND table_name LIKE 's{}\\_%' ORDER BY 1",
            self.number
        );
        while !stop.load(Ordering::Relaxed) {
            let tables: Vec<String> = match conn.query(&mine) {
                Err(error) if is_lost(&error) => return Ok(()),
                tables => tables.context("the list of tables")?,
            };
            let statement = self.draw(&tables, instance.kind().sql(), lives);
            match conn.query_drop(&statement) {
                Ok(()) => {
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Err(mysql::Error::MySqlError(error)) if error.code == DEADLOCK => {}
                Err(error) if is_lost(&error) => return Ok(()),
                Err(error) => bail!("{error}: {statement}"),
            }
        }
        Ok(())
    }

    fn draw(&mut self, tables: &[String], engine: &str, lives: bool) -> String {
        let number = self.next;
        self.next += 1;
        let fresh = format!("s{}_{number}", self.number);
        let new = format!("CREATE TABLE {fresh} (id BIGINT PRIMARY KEY, a INT, KEY (a)) ENGINE={engine}");
        if tables.is_empty() {
            return new;
        }
        let table = &tables[self.rng.random_range(0..tables.len())];
        let which = self.rng.random_range(1..=3);
        let insert = format!(
            "INSERT INTO {table} (id, a) VALUES ({number}0, {which}), ({number}1, 5), ({number}2, {number}), \
             ({number}3, NULL)"
        );
        match self.rng.random_range(0..20) {
            0 if tables.len() < MOST => new,
            1 if tables.len() < MOST => format!("CREATE TABLE {fresh} LIKE {table}"),
            2 if lives && tables.len() < MOST => {
                format!("CREATE TABLE {fresh} ENGINE={engine} AS SELECT id, a FROM {table}")
            }
            3 if tables.len() > 2 => format!("DROP TABLE IF EXISTS {table}"),
            4 => format!("RENAME TABLE IF EXISTS {table} TO {fresh}"),
            5 if lives => format!("TRUNCATE TABLE {table}"),
            6 => format!("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS c{which} VARCHAR(20) DEFAULT 'new {which}'"),
            7 => format!("ALTER TABLE {table} DROP COLUMN IF EXISTS c{which}"),
            8 => format!("ALTER TABLE {table} ADD INDEX IF NOT EXISTS i{which} (a, id)"),
            9 => format!("ALTER TABLE {table} DROP INDEX IF EXISTS i{which}"),
            10 => format!("ALTER TABLE {table} MODIFY a BIGINT"),
            11 => format!("ALTER TABLE {table} FORCE"),
            12 | 13 => format!("UPDATE {table} SET a = a + {which} WHERE id % 7 = {which}"),
            14 => format!("DELETE FROM {table} WHERE id % 11 = {which}"),
            _ => insert,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_may_be_run_twice() {
        let mut definer = Definer::new(1, 1);
        let tables: Vec<String> = (1..=3).map(|n| format!("s1_{n}")).collect();
        let mut kinds = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let statement = definer.draw(&tables, "STRATA", false);
            let words: Vec<&str> = statement.split(' ').collect();
            match words[0] {
                // The server repeats these as CREATE OR REPLACE; rows are not repeated at all.
                "CREATE" | "UPDATE" | "DELETE" | "INSERT" => {}
                "ALTER" if matches!(words[3], "MODIFY" | "FORCE") => {}
                _ => assert!(statement.contains(" IF "), "{statement}"),
            }
            kinds.insert(words[0].to_string());
        }
        assert_eq!(kinds.len(), 7, "{kinds:?}");
        let mut draws = |lives, what: &str| (0..2000).any(|_| definer.draw(&tables, "STRATA", lives).contains(what));
        assert!(draws(true, "TRUNCATE") && draws(true, "AS SELECT"));
        assert!(!draws(false, "TRUNCATE") && !draws(false, "AS SELECT"));
    }

    #[test]
    fn without_tables_one_is_made() {
        assert!(Definer::new(2, 1).draw(&[], "STRATA", true).starts_with("CREATE TABLE s2_1 "));
    }
}
