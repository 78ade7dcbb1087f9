//! What the sessions of a program do with transactions: those that write, those that read in snapshots, and meetings of two.

use super::play::SIDE;
use super::statement::Author;
use super::{READERS, SECOND};
use rand::RngExt;

/// A transaction of a session that writes.
#[derive(Default)]
pub struct Transaction {
    savepoints: u32,
    /// The id of an XA transaction.
    xa: Option<String>,
}

impl Author<'_> {
    /// Beginnings, savepoints and ends of the transactions of the session that writes.
    pub(super) fn transaction(&mut self) {
        if self.open[self.me].is_none() {
            let mut begun = Transaction::default();
            if self.chance(4) {
                let xid = format!("{SIDE}{}", self.name("x"));
                self.write(format!("XA START '{xid}'"));
                begun.xa = Some(xid);
            } else {
                let snapshot = if self.chance(4) { " WITH CONSISTENT SNAPSHOT" } else { "" };
                self.write(format!("START TRANSACTION{snapshot}"));
            }
            self.open[self.me] = Some(begun);
            return;
        }
        let choice = self.rng.random_range(0..6);
        let Some(transaction) = &mut self.open[self.me] else { return };
        match choice {
            0 | 1 => {
                transaction.savepoints += 1;
                let number = transaction.savepoints;
                self.write(format!("SAVEPOINT s{number}"));
            }
            2 if transaction.savepoints > 0 => {
                let number = self.rng.random_range(1..=transaction.savepoints);
                self.write(format!("ROLLBACK TO SAVEPOINT s{number}"));
            }
            3 => self.end(self.me, "ROLLBACK"),
            _ => self.end(self.me, "COMMIT"),
        }
    }

    /// Ends the transaction of a session that writes, with COMMIT or ROLLBACK.
    pub(super) fn end(&mut self, session: usize, how: &str) {
        match self.open[session].take().and_then(|transaction| transaction.xa) {
            None => self.say(session, how),
            Some(xid) => {
                self.say(session, format!("XA END '{xid}'"));
                match self.rng.random_range(0..3) {
                    0 if how == "COMMIT" => self.say(session, format!("XA COMMIT '{xid}' ONE PHASE")),
                    _ => {
                        self.say(session, format!("XA PREPARE '{xid}'"));
                        self.say(session, format!("XA {how} '{xid}'"));
                    }
                }
            }
        }
    }

    /// A session that reads some table, mostly in a snapshot.
    pub(super) fn reader(&mut self) {
        self.reads(|author, session| {
            let t = author.rng.random_range(0..author.tables.len());
            let name = author.tables[t].name.clone();
            if let Some(touched) = &mut author.snapshots[session] {
                touched.push(name);
            }
            author.select(session, t);
        });
    }

    /// A session that takes a snapshot, ends it, or does what `read` says.
    pub(super) fn reads(&mut self, read: impl FnOnce(&mut Self, usize)) {
        let session = self.rng.random_range(READERS);
        match self.snapshots[session].is_some() {
            false if self.chance(2) => {
                self.snapshots[session] = Some(Vec::new());
                self.say(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT");
            }
            true if self.chance(6) => self.end_snapshot(session),
            _ => read(self, session),
        }
    }

    pub(super) fn end_snapshot(&mut self, session: usize) {
        self.snapshots[session] = None;
        self.say(session, "COMMIT");
    }

    /// Lets go of the locks on a table that DDL would wait for.
    pub(super) fn free(&mut self, name: &str) {
        for writer in [0, SECOND] {
            if self.open[writer].is_some() {
                self.end(writer, "COMMIT");
            }
        }
        for session in READERS {
            if self.snapshots[session].as_ref().is_some_and(|touched| touched.iter().any(|t| t == name)) {
                self.end_snapshot(session);
            }
        }
    }

    /// Two sessions want the same rows of a small table, by a unique key; nobody waits. All rows that are named by a lock are
    /// there: of one that is not, InnoDB locks the gap, which keeps nobody from another lock of it, and Strata the key.
    pub(super) fn clash(&mut self) {
        for writer in [0, SECOND] {
            if self.open[writer].is_some() {
                self.end(writer, "COMMIT");
            }
        }
        let name = self.name("m");
        // InnoDB clusters by either. Where the key is a secondary one it locks gaps beside the rows, too.
        let key = ["PRIMARY KEY (id)", "UNIQUE KEY (id)"][self.rng.random_range(0..2)];
        let rows = "SELECT 1 id, 1 c UNION SELECT 2, 1 UNION SELECT 3, 2 UNION SELECT 10, 5";
        self.say(0, format!("CREATE TABLE {name} (id INT NOT NULL, c INT, {key}) AS {rows}"));
        self.say(0, "START TRANSACTION");
        let held = self.rng.random_range(1..4);
        let hold = match self.rng.random_range(0..4) {
            0 => format!("SELECT * FROM {name} WHERE id = {held} FOR UPDATE"),
            1 => format!("SELECT * FROM {name} WHERE id = {held} LOCK IN SHARE MODE"),
            2 => format!("UPDATE {name} SET c = c + 10 WHERE id = {held}"),
            _ => format!("DELETE FROM {name} WHERE id = {held}"),
        };
        let gone = hold.starts_with("DELETE");
        // A row that an INSERT finds there InnoDB locks shared, Strata exclusively.
        let shared = hold.ends_with("SHARE MODE");
        self.say(0, hold);
        let mut there = vec![1, 2, 3];
        for _ in 0..self.rng.random_range(2..6) {
            let id = there[self.rng.random_range(0..there.len())];
            let sql = match self.rng.random_range(0..9) {
                0 => format!("UPDATE {name} SET c = c + 1 WHERE id = {id}"),
                1 if id != held => {
                    there.retain(|&other| other != id);
                    format!("DELETE FROM {name} WHERE id = {id}")
                }
                1 => format!("DELETE FROM {name} WHERE id = {id}"),
                2 => format!("SELECT * FROM {name} WHERE id = {id} FOR UPDATE"),
                3 => format!("SELECT * FROM {name} WHERE id = {id} LOCK IN SHARE MODE"),
                4 => format!("SELECT * FROM {name} WHERE id = {id} FOR UPDATE SKIP LOCKED"),
                5 if !shared || id != held => format!("INSERT INTO {name} VALUES ({id}, 3)"),
                6 => format!("REPLACE INTO {name} VALUES ({id}, 4)"),
                7 => format!("INSERT INTO {name} VALUES ({id}, 6) ON DUPLICATE KEY UPDATE c = c + 100"),
                _ => format!("SELECT * FROM {name} WHERE id = {id}"),
            };
            self.say(SECOND, sql);
            if gone && self.chance(3) {
                self.say(SECOND, format!("INSERT IGNORE INTO {name} VALUES ({held}, 7)"));
            }
        }
        let how = ["COMMIT", "ROLLBACK"][self.rng.random_range(0..2)];
        self.end(0, how);
        self.say(SECOND, format!("SELECT * FROM {name}"));
        self.say(0, format!("DROP TABLE {name}"));
    }
}
