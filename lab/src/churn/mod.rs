//! Everything of a server that is no plain row, changed while the server is killed: tables by DDL of every kind
//! ([`tables`]), one table that is altered while others write to it ([`alters`]), sequences, auto-increment, temporary tables,
//! prepared XA transactions with DDL around them; and transactions over many tables that are larger than a write buffer ([`large`]).
//!
//! An [`Actor`] is one session with a database of its own and a shadow of what must be in it. It has one statement in
//! flight; when the server goes away, what was acknowledged must be there, and what was in flight is there as before it or as
//! after it. [`crate::crash`] and [`crate::replica`] start the actors and end the server.
//!
//! Where MariaDB itself does a statement in several steps, that a crash may divide ([`world::Grain`]), each step is there or
//! not; nothing else is let pass. A violation is told with what the object should be and with the last statements of the
//! actor.

mod alters;
mod counters;
mod large;
mod scratch;
mod sequences;
mod session;
mod tables;
mod world;
mod xa;

use crate::server::Instance;
use anyhow::{Context, Result};
use mysql::Conn;
use mysql::prelude::Queryable;
use session::{Answer, History, Session};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the names of all databases begin with.
pub const PREFIX: &str = "churn_";

/// Whether a session goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Goes,
    Lost,
}

/// One session with a shadow of its database.
trait Actor: Send {
    /// Its database, which also names it in messages.
    fn database(&self) -> String;

    /// How often the server itself left something in between, which no engine can help.
    fn gaps(&self) -> u64 {
        0
    }

    /// What every new session needs, behind `USE`. Nothing here is in flight for long.
    fn begin(&mut self, session: &mut Session<'_>) -> Result<Flow>;

    /// One operation. An error is an answer of a living server that should not be.
    fn step(&mut self, session: &mut Session<'_>) -> Result<Flow>;

    /// Compares the database with the shadow, which takes over what it finds of the operation in flight.
    fn settle(&mut self, conn: &mut Conn) -> Result<Vec<String>>;

    /// What a replica that has everything must not do when it takes over: to give values again, above all.
    fn compare_copy(&self, _: &mut Conn, _source_killed: bool) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// An actor and what it has said.
pub struct Hand {
    actor: Box<dyn Actor>,
    history: History,
    binlog: bool,
}

impl Hand {
    /// Works until `stop` is set or the server goes away. `logged`: no statement that a killed server may have done without
    /// logging it.
    pub fn work(&mut self, instance: &Instance, logged: bool, stop: &AtomicBool, done: &AtomicU64) -> Result<()> {
        let Some(mut session) = Session::open(instance, logged, &mut self.history) else { return Ok(()) };
        let worked = work(self.actor.as_mut(), &mut session, self.binlog, stop, done);
        drop(session);
        let database = self.actor.database();
        worked.with_context(|| format!("{database}; its last statements:\n{}", self.history.text()))
    }

    fn settle(&mut self, conn: &mut Conn, wrong: &mut Vec<String>) -> Result<()> {
        self.history.note("-- the server was ended --");
        let database = self.actor.database();
        let found = self.actor.settle(conn).with_context(|| format!("reading {database}:\n{}", self.history.text()))?;
        if let Some(last) = found.len().checked_sub(1) {
            let history = self.history.text();
            wrong.extend(found.into_iter().enumerate().map(|(number, text)| {
                let text = format!("{database}: {text}");
                if number == last { format!("{text}\n  its last statements:\n{history}") } else { text }
            }));
        }
        Ok(())
    }
}

fn work(
    actor: &mut dyn Actor,
    session: &mut Session<'_>,
    binlog: bool,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<()> {
    let database = actor.database();
    let mut setup = vec![format!("CREATE DATABASE IF NOT EXISTS {database}"), format!("USE {database}")];
    if !binlog {
        setup.insert(0, "SET SESSION sql_log_bin = 0".into());
    }
    if session.set_up(setup)? == Flow::Lost {
        return Ok(());
    }
    if actor.begin(session)? == Flow::Lost {
        return Ok(());
    }
    while !stop.load(Ordering::Relaxed) {
        if actor.step(session)? == Flow::Lost {
            break;
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Which actors take part.
#[derive(Clone, Copy)]
pub struct Cast {
    /// Sessions with DDL of every kind.
    pub tables: u32,
    /// A table that is altered while others write to it. ALTER is nothing to repeat on a replica that was killed.
    pub alters: bool,
    /// Sequences, auto-increment, temporary tables and large transactions.
    pub others: bool,
    /// Prepared XA transactions, past the binary log: the server is not crash-safe with it
    /// (`docs/develop/crash-matrix.md`).
    pub xa: bool,
}

/// The actors of a trial.
pub struct Churn {
    hands: Vec<Hand>,
}

impl Churn {
    /// Actors that have done nothing yet.
    pub fn new(engine: &str, cast: Cast, seed: u64) -> Churn {
        let hand = |actor: Box<dyn Actor>, binlog| Hand { actor, history: History::default(), binlog };
        let mut hands: Vec<Hand> =
            (1..=cast.tables).map(|n| hand(Box::new(tables::Tables::new(n, engine, seed)), true)).collect();
        if cast.alters {
            hands.extend(alters::cast(engine, seed).into_iter().map(|actor| hand(actor, true)));
        }
        if cast.others {
            hands.extend(sequences::pair(engine, seed).into_iter().map(|actor| hand(Box::new(actor), true)));
            hands.extend(counters::pair(engine, seed).into_iter().map(|actor| hand(Box::new(actor), true)));
            hands.push(hand(Box::new(scratch::Scratch::new(engine, seed)), true));
            hands.push(hand(Box::new(large::Large::new(engine, seed)), true));
        }
        if cast.xa {
            hands.push(hand(Box::new(xa::Xa::new(engine, seed)), false));
        }
        Churn { hands }
    }

    /// No actors.
    pub fn idle() -> Churn {
        Churn { hands: Vec::new() }
    }

    /// How often the server itself left a partitioned table in between.
    pub fn gaps(&self) -> u64 {
        self.hands.iter().map(|hand| hand.actor.gaps()).sum()
    }

    /// Each works in a thread of its own.
    pub fn hands(&mut self) -> impl Iterator<Item = &mut Hand> {
        self.hands.iter_mut()
    }

    /// Compares all databases with their shadows, each index with its table, and looks for what DDL has left behind.
    pub fn verify(&mut self, instance: &Instance, wrong: &mut Vec<String>) -> Result<()> {
        let mut conn = instance.connect(None)?;
        for hand in &mut self.hands {
            hand.settle(&mut conn, wrong)?;
        }
        compare_indexes(&mut conn, wrong)?;
        leftovers(instance, &mut conn, wrong)
    }

    /// The same for a replica that equals the source.
    pub fn verify_copy(&self, instance: &Instance, source_killed: bool, wrong: &mut Vec<String>) -> Result<()> {
        let mut conn = instance.connect(None)?;
        for hand in &self.hands {
            let database = hand.actor.database();
            wrong.extend(
                hand.actor
                    .compare_copy(&mut conn, source_killed)?
                    .into_iter()
                    .map(|text| format!("{database}: {text}")),
            );
        }
        compare_indexes(&mut conn, wrong)?;
        leftovers(instance, &mut conn, wrong)
    }
}

/// Counts of each table of the actors by each of its indexes, and the sum of the ids, which every index has.
fn compare_indexes(conn: &mut Conn, wrong: &mut Vec<String>) -> Result<()> {
    let indexes: Vec<(String, String)> = conn.query(format!(
        "SELECT DISTINCT CONCAT(table_schema, '.', table_name), index_name FROM information_schema.statistics
         WHERE table_schema LIKE '{PREFIX}%' ORDER BY 1, 2"
    ))?;
    for (table, index) in indexes {
        let mut sum = |hint: String| {
            let query = format!("SELECT COUNT(*), CAST(SUM(id) AS CHAR) FROM {table} {hint}");
            conn.query_first::<(u64, Option<String>), _>(query)
        };
        // Without an index the table itself is read.
        match (sum(format!("FORCE INDEX ({index})")), sum("USE INDEX ()".into())) {
            (Ok(by_index), Ok(by_table)) if by_index == by_table => {}
            (by_index, by_table) => {
                wrong.push(format!("index {index} of {table} has {by_index:?}, the table {by_table:?}"));
            }
        }
    }
    Ok(())
}

/// The server's list of partitions of the definition that it was about to put in place: an ALTER without copying leaves it when the
/// server is killed behind the engine's part, whatever the engine, and DROP DATABASE fails as long as it is there.
pub fn is_list_of_partitions(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("#sql-alter-") && name.ends_with(".par")
}

/// Tables that only the server's own DDL has named.
fn leftovers(instance: &Instance, conn: &mut Conn, wrong: &mut Vec<String>) -> Result<()> {
    let listed: Vec<String> = conn.query(
        "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_name LIKE '#sql%'",
    )?;
    wrong.extend(listed.into_iter().map(|table| format!("{table} is left over")));
    for folder in std::fs::read_dir(instance.data())? {
        let folder = folder?.path();
        if !folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX)) {
            continue;
        }
        for file in std::fs::read_dir(&folder)? {
            let file = file?.path();
            if is_list_of_partitions(&file) {
                std::fs::remove_file(&file)?;
            } else if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("#sql")) {
                wrong.push(format!("{} is left over", file.display()));
            }
        }
    }
    Ok(())
}
