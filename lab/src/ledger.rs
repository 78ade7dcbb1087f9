//! A ledger: writers that know exactly what the server has acknowledged, and the
//! check that finds a lost, halved or invented transaction after a crash.
//!
//! Each writer is one session with one transaction at a time, so after a crash
//! the table must hold the writer's acknowledged transactions, and of the one
//! that was in flight all or nothing. A transaction adds a document of one or
//! several lines and moves an amount between two accounts, or removes a document
//! of its own. Lines carry their number, so a halved transaction shows; the
//! movements of an account must add up to its balance.

use crate::drive::{DEADLOCK, is_lost};
use crate::server::Instance;
use anyhow::{Context, Result};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The database of the ledger.
pub const DATABASE: &str = "ledger";
const ACCOUNTS: u32 = 50;

/// Number of a document: the writer's number times [`PER_WRITER`] and a count.
pub type Document = u64;
const PER_WRITER: u64 = 1_000_000_000;

/// Which documents there are, with how many lines.
pub type Documents = BTreeMap<Document, u32>;

/// Makes the tables.
pub fn create(instance: &Instance) -> Result<()> {
    let mut conn = instance.fresh_database(DATABASE)?;
    let engine = instance.kind().sql();
    for statement in [
        format!(
            "CREATE TABLE line (
                document BIGINT NOT NULL, number INT NOT NULL, of_lines INT NOT NULL, writer INT NOT NULL,
                code VARCHAR(40) NOT NULL, text VARCHAR(400) NOT NULL,
                PRIMARY KEY (document, number), UNIQUE KEY by_code (code), KEY by_writer (writer)) ENGINE={engine}"
        ),
        format!("CREATE TABLE account (id INT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL) ENGINE={engine}"),
        format!(
            "CREATE TABLE movement (
                document BIGINT NOT NULL PRIMARY KEY, source INT NOT NULL, target INT NOT NULL, amount BIGINT NOT NULL,
                KEY by_source (source), KEY by_target (target)) ENGINE={engine}"
        ),
    ] {
        conn.query_drop(&statement).with_context(|| format!("this statement failed: {statement}"))?;
    }
    let accounts: Vec<String> = (1..=ACCOUNTS).map(|id| format!("({id}, 0)")).collect();
    conn.query_drop(format!("INSERT INTO account VALUES {}", accounts.join(", ")))?;
    Ok(())
}

/// What a writer has changed in one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add { document: Document, lines: u32, moves: bool },
    Remove { document: Document },
}

/// A writer's knowledge, over all crashes.
#[derive(Debug)]
pub struct Writer {
    number: u32,
    next: u64,
    rng: SmallRng,
    /// Acknowledged, or found to be there after a crash.
    documents: Documents,
    /// Documents that have a movement; movements are never removed.
    moves: BTreeSet<Document>,
    /// In flight when the server went away.
    open: Option<Change>,
    /// How many transactions were acknowledged, ever.
    pub acknowledged: u64,
}

impl Writer {
    /// A writer that has written nothing.
    pub fn new(number: u32, seed: u64) -> Writer {
        Writer {
            number,
            next: 1,
            rng: SmallRng::seed_from_u64(seed ^ u64::from(number)),
            documents: Documents::new(),
            moves: BTreeSet::new(),
            open: None,
            acknowledged: 0,
        }
    }

    /// Writes until `stop` is set or the server goes away; an error is one that
    /// a living server has returned.
    pub fn write(&mut self, instance: &Instance, stop: &AtomicBool, done: &AtomicU64) -> Result<()> {
        let Ok(mut conn) = instance.connect(Some(DATABASE)) else {
            return Ok(());
        };
        while !stop.load(Ordering::Relaxed) {
            let change = self.draw();
            loop {
                self.open = Some(change);
                match self.apply(&mut conn, change) {
                    Ok(()) => {
                        self.settle(true);
                        self.acknowledged += 1;
                        done.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    Err(mysql::Error::MySqlError(error)) if error.code == DEADLOCK => {
                        self.open = None;
                        if conn.query_drop("ROLLBACK").is_err() {
                            return Ok(());
                        }
                    }
                    // The session broke: what was in flight may have happened or not.
                    Err(error) if is_lost(&error) => return Ok(()),
                    Err(error) => {
                        self.open = None;
                        anyhow::bail!("writer {}: {error}", self.number);
                    }
                }
            }
        }
        Ok(())
    }

    fn draw(&mut self) -> Change {
        if self.documents.len() > 20 && self.rng.random_range(0..5) == 0 {
            let at = self.rng.random_range(0..self.documents.len());
            if let Some((&document, _)) = self.documents.iter().nth(at) {
                return Change::Remove { document };
            }
        }
        let document = u64::from(self.number) * PER_WRITER + self.next;
        self.next += 1;
        // A line alone is a statement in autocommit, without a movement.
        let lines = self.rng.random_range(1..=5);
        Change::Add { document, lines, moves: lines > 1 }
    }

    fn apply(&mut self, conn: &mut Conn, change: Change) -> mysql::Result<()> {
        match change {
            Change::Add { document, lines, moves } => {
                let insert = "INSERT INTO line VALUES (?, ?, ?, ?, ?, ?)";
                if moves {
                    conn.query_drop("BEGIN")?;
                }
                for number in 1..=lines {
                    let text = "x".repeat(self.rng.random_range(1..=400));
                    let code = format!("{document}-{number}");
                    conn.exec_drop(insert, (document, number, lines, self.number, code, text))?;
                }
                if moves {
                    // Always the smaller one first: no deadlock among writers.
                    let source = self.rng.random_range(1..ACCOUNTS);
                    let target = self.rng.random_range(source + 1..=ACCOUNTS);
                    let amount = self.rng.random_range(-1000i64..=1000);
                    conn.exec_drop("INSERT INTO movement VALUES (?, ?, ?, ?)", (document, source, target, amount))?;
                    let update = "UPDATE account SET balance = balance + ? WHERE id = ?";
                    conn.exec_drop(update, (-amount, source))?;
                    conn.exec_drop(update, (amount, target))?;
                    conn.query_drop("COMMIT")?;
                }
                Ok(())
            }
            Change::Remove { document } => conn.exec_drop("DELETE FROM line WHERE document = ?", (document,)),
        }
    }

    /// Ends the open change: it happened, or it did not.
    fn settle(&mut self, happened: bool) {
        match self.open.take().filter(|_| happened) {
            Some(Change::Add { document, lines, moves }) => {
                self.documents.insert(document, lines);
                if moves {
                    self.moves.insert(document);
                }
            }
            Some(Change::Remove { document }) => {
                self.documents.remove(&document);
            }
            None => {}
        }
    }

    /// Compares with what the table holds of this writer, and takes over which
    /// way the transaction in flight went.
    fn verify(&mut self, found: &Documents, moves: &BTreeSet<Document>, wrong: &mut Vec<String>) {
        if let Some(open) = self.open {
            let happened = match open {
                Change::Add { document, .. } => found.contains_key(&document),
                Change::Remove { document } => !found.contains_key(&document),
            };
            self.settle(happened);
        }
        for (document, lines) in &self.documents {
            match found.get(document) {
                None => wrong.push(format!("document {document} was acknowledged and is lost")),
                Some(have) if have != lines => {
                    wrong.push(format!("document {document} has {have} lines of {lines}"));
                }
                Some(_) => {}
            }
        }
        for document in found.keys().filter(|document| !self.documents.contains_key(document)) {
            wrong.push(format!("document {document} is there, and was removed or never written"));
        }
        for document in moves.symmetric_difference(&self.moves) {
            let there = moves.contains(document);
            wrong.push(format!("the movement of document {document} is there: {there}, and should not be so"));
        }
    }
}

/// Everything the tables hold, compared with what the writers know. Returns the
/// documents for the comparison with the binary log; violations go to `wrong`.
pub fn verify(instance: &Instance, writers: &mut [Writer], wrong: &mut Vec<String>) -> Result<Documents> {
    let mut conn = instance.connect(Some(DATABASE))?;
    let lines: Vec<(Document, u32, u32, String)> = conn
        .query("SELECT document, number, of_lines, code FROM line FORCE INDEX (PRIMARY)")
        .context("the ledger cannot be read")?;
    let mut documents = Documents::new();
    for (document, number, of, code) in &lines {
        *documents.entry(*document).or_default() += 1;
        if *code != format!("{document}-{number}") || number > of {
            wrong.push(format!("line {number} of document {document} is not what was written"));
        }
    }
    for (document, _, of, _) in &lines {
        if documents[document] != *of {
            wrong.push(format!("document {document} has {} lines of {of}: half a transaction", documents[document]));
        }
    }
    for index in ["by_code", "by_writer"] {
        let mut sum = |index: &str| {
            conn.query_first::<(u64, Option<String>), _>(format!(
                "SELECT COUNT(*), CAST(SUM(CRC32(CONCAT_WS(',', document, number))) AS CHAR) FROM line FORCE INDEX ({index})"
            ))
        };
        let (by_index, by_table) = (sum(index)?, sum("PRIMARY")?);
        if by_index != by_table {
            wrong.push(format!("index {index} has {by_index:?}, the table {by_table:?}"));
        }
    }
    let movements: Vec<(Document, u32, u32, i64)> =
        conn.query("SELECT document, source, target, amount FROM movement")?;
    let mut balances: HashMap<u32, i64> = HashMap::new();
    for (_, source, target, amount) in &movements {
        *balances.entry(*source).or_default() -= amount;
        *balances.entry(*target).or_default() += amount;
    }
    let accounts: Vec<(u32, i64)> = conn.query("SELECT id, balance FROM account")?;
    if accounts.len() != ACCOUNTS as usize {
        wrong.push(format!("there are {} accounts, not {ACCOUNTS}", accounts.len()));
    }
    for (id, balance) in accounts {
        let sum = balances.get(&id).copied().unwrap_or(0);
        if sum != balance {
            wrong.push(format!("account {id} has {balance}, its movements make {sum}"));
        }
    }
    for writer in writers {
        let range = u64::from(writer.number) * PER_WRITER..u64::from(writer.number + 1) * PER_WRITER;
        let mine: Documents = documents.range(range.clone()).map(|(d, n)| (*d, *n)).collect();
        let moves = movements.iter().map(|movement| movement.0).filter(|d| range.contains(d)).collect();
        writer.verify(&mine, &moves, wrong);
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        let mut writer = Writer::new(1, 1);
        for (document, lines) in [(10, 1), (11, 3)] {
            writer.open = Some(Change::Add { document, lines, moves: lines > 1 });
            writer.settle(true);
        }
        writer
    }

    fn wrong(mut writer: Writer, found: &[(u64, u32)], moves: &[u64]) -> usize {
        let mut wrong = Vec::new();
        writer.verify(&found.iter().copied().collect(), &moves.iter().copied().collect(), &mut wrong);
        wrong.len()
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        assert_eq!(wrong(writer(), &[(10, 1), (11, 3)], &[11]), 0);
        assert_eq!(wrong(writer(), &[(11, 3)], &[11]), 1);
        assert_eq!(wrong(writer(), &[(10, 1), (11, 2)], &[11]), 1);
        assert_eq!(wrong(writer(), &[(10, 1), (11, 3), (12, 1)], &[11]), 1);
        assert_eq!(wrong(writer(), &[(10, 1), (11, 3)], &[]), 1);
    }

    #[test]
    fn what_was_in_flight_may_be_there() {
        let open = |change| Writer { open: Some(change), ..writer() };
        let add = Change::Add { document: 12, lines: 2, moves: true };
        assert_eq!(wrong(open(add), &[(10, 1), (11, 3)], &[11]), 0);
        assert_eq!(wrong(open(add), &[(10, 1), (11, 3), (12, 2)], &[11, 12]), 0);
        assert_eq!(wrong(open(add), &[(10, 1), (11, 3), (12, 2)], &[11]), 1);
        assert_eq!(wrong(open(add), &[(10, 1), (11, 3), (12, 1)], &[11, 12]), 1);
        let remove = Change::Remove { document: 10 };
        assert_eq!(wrong(open(remove), &[(11, 3)], &[11]), 0);
        assert_eq!(wrong(open(remove), &[(10, 1), (11, 3)], &[11]), 0);
    }

    #[test]
    fn documents_of_writers_do_not_mix() {
        let (mut one, mut two) = (Writer::new(1, 1), Writer::new(2, 1));
        let (Change::Add { document: a, .. }, Change::Add { document: b, .. }) = (one.draw(), two.draw()) else {
            panic!()
        };
        assert_eq!((a, b), (1_000_000_001, 2_000_000_001));
    }
}
