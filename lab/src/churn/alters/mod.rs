//! One table that is altered again and again while others write to it.
//!
//! The [`Definer`] knows the definition ([`Shape`]): every column beside the first ones has one value in all rows, the default it was
//! added with. [`Writer`]s know the rows of an interval of ids each, and name the first columns only: whatever the definition is by
//! then, their statements mean the same. So after a crash the definition is that before the statement in flight or that after it, each
//! column has its value in each row, and the rows are those that were acknowledged.
//!
//! Most changes are such as Strata does at once or beside writers, and half of these demand it (`ALGORITHM=INSTANT`, `LOCK=NONE`). So
//! that they take a while the table has [`FILLERS`], rows that nobody changes. What the two kinds of sessions may be refused is written
//! where they are; a change that is refused changes nothing.

mod shape;

use super::world::TEXT;
use super::{Actor, Answer, Flow, PREFIX, Session};
use anyhow::{Result, bail, ensure};
use mysql::prelude::Queryable;
use mysql::{Conn, Error};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use shape::{Change, Shape, Way};
use std::collections::BTreeMap;

/// Sessions that write.
const WRITERS: u32 = 3;
/// Ids that each of them has.
const IDS: i64 = 400;
/// Rows that nobody changes, and the id before the first of them.
const FILLERS: i64 = 20_000;
const FILLERS_BEHIND: i64 = 1_000_000;

/// `ALGORITHM=INSTANT` is refused: rows of too many former definitions are there.
const NOT_INSTANT: [u16; 2] = [1845, 1846];
/// A writer's transaction is to be repeated: lock wait, deadlock, a snapshot that is older than the definition.
const TRANSIENT: [u16; 3] = [1205, 1213, 1412];
/// The server knows no such database or table.
const ABSENT: [u16; 2] = [1049, 1146];

fn database() -> String {
    format!("{PREFIX}alters")
}

/// Makes the table where it is not there yet; all sessions begin so.
fn make(engine: &str) -> String {
    format!("CREATE TABLE IF NOT EXISTS t ({}) ENGINE={engine}", Shape::first().definition())
}

/// All sessions of the table.
pub fn cast(engine: &str, seed: u64) -> Vec<Box<dyn Actor>> {
    let rng = |number: u32| SmallRng::seed_from_u64(seed.wrapping_mul(233) ^ u64::from(number));
    let definer =
        Definer { engine: engine.into(), rng: rng(0), made: false, filled: false, shape: Shape::first(), open: None };
    let mut cast: Vec<Box<dyn Actor>> = vec![Box::new(definer)];
    for number in 1..=WRITERS {
        let (engine, rng) = (engine.to_string(), rng(number));
        cast.push(Box::new(Writer { number, engine, rng, rows: Rows::new(), open: None }));
    }
    cast
}

/// The session that changes the definition.
struct Definer {
    engine: String,
    rng: SmallRng,
    /// The table is known to be there.
    made: bool,
    /// So are the rows that nobody changes.
    filled: bool,
    shape: Shape,
    /// What the statement in flight makes of it.
    open: Option<Shape>,
}

impl Definer {
    fn alter(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let Change { mut statement, after, way } = self.shape.draw(&mut self.rng);
        let demands = way < Way::Copy && self.engine == "STRATA" && self.rng.random_range(0..2) == 0;
        if demands {
            statement.push_str(way.demand());
        }
        self.open = Some(after);
        match session.run(&statement) {
            Answer::Done(()) => self.shape = self.open.take().unwrap_or_else(Shape::first),
            Answer::Lost => return Ok(Flow::Lost),
            Answer::Refused(code, _) if demands && way == Way::Instant && NOT_INSTANT.contains(&code) => {
                self.open = None
            }
            Answer::Refused(code, text) => bail!("{code} {text}: {statement}"),
        }
        Ok(Flow::Goes)
    }

    /// All rows that nobody changes, or none.
    fn fill(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let flow = session.must(&format!(
            "INSERT IGNORE INTO t (id, v, b) SELECT id, id % 1000, {TEXT} FROM
             (SELECT {FILLERS_BEHIND} + seq AS id FROM seq_1_to_{FILLERS}) AS filler"
        ))?;
        self.filled |= flow == Flow::Goes;
        Ok(flow)
    }

    /// While others write: rows whose columns are not what the definition makes them.
    fn look(&self, session: &mut Session<'_>) -> Result<Flow> {
        match session.first::<u64>(&format!("SELECT COUNT(*) FROM t WHERE {}", self.shape.deviates())) {
            Answer::Done(found) => {
                let found = found.unwrap_or(0);
                ensure!(found == 0, "{found} rows have not the values of their columns' defaults");
                Ok(Flow::Goes)
            }
            Answer::Lost => Ok(Flow::Lost),
            Answer::Refused(code, text) => bail!("{code} {text}: reading all columns"),
        }
    }
}

impl Actor for Definer {
    fn database(&self) -> String {
        database()
    }

    fn begin(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let flow = session.must(&make(&self.engine))?;
        self.made |= flow == Flow::Goes;
        if flow == Flow::Goes && !self.filled { self.fill(session) } else { Ok(flow) }
    }

    fn step(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        if self.rng.random_range(0..8) == 0 { self.look(session) } else { self.alter(session) }
    }

    fn settle(&mut self, conn: &mut Conn) -> Result<Vec<String>> {
        let open = self.open.take();
        let Some(found) = Shape::observe(conn, &database(), "t")? else {
            return Ok(if self.made { vec!["t is not there".into()] } else { Vec::new() });
        };
        self.made = true;
        if found != self.shape.lines() {
            match open {
                Some(after) if found == after.lines() => self.shape = after,
                open => {
                    let after = open.map_or("none".into(), |after| after.lines().join(", "));
                    let before = self.shape.lines().join(", ");
                    let found = found.join(", ");
                    return Ok(vec![format!("t is ({found}); it was ({before}), in flight was ({after})")]);
                }
            }
        }
        let count = |conn: &mut Conn, which: &str| -> Result<u64> {
            Ok(conn.query_first(format!("SELECT COUNT(*) FROM {}.t WHERE {which}", database()))?.unwrap_or(0))
        };
        let mut wrong = Vec::new();
        let deviating = count(conn, &self.shape.deviates())?;
        if deviating > 0 {
            wrong.push(format!("{deviating} rows of t have not the values of their columns' defaults"));
        }
        let fillers = count(conn, &format!("id > {FILLERS_BEHIND}"))?;
        let whole = count(conn, &format!("id > {FILLERS_BEHIND} AND v = id % 1000 AND b = {TEXT}"))?;
        if fillers != whole || !(fillers == FILLERS as u64 || fillers == 0 && !self.filled) {
            wrong.push(format!(
                "{fillers} of {FILLERS} rows that nobody changes are there, {whole} of them as they were"
            ));
        }
        self.filled |= fillers > 0;
        Ok(wrong)
    }
}

/// Ids with the column `v`.
type Rows = BTreeMap<i64, i64>;

/// A session that writes rows with the ids of its interval.
struct Writer {
    number: u32,
    engine: String,
    rng: SmallRng,
    rows: Rows,
    /// What the statement in flight makes of them.
    open: Option<Rows>,
}

impl Writer {
    fn first_id(&self) -> i64 {
        i64::from(self.number) * 1000
    }

    /// One statement, and what it makes of the rows.
    fn draw(&mut self, rows: &mut Rows) -> String {
        let from = self.first_id() + self.rng.random_range(0..IDS);
        let to = (from + self.rng.random_range(1..40)).min(self.first_id() + IDS);
        let by = self.rng.random_range(1..9);
        let ids = format!("id >= {from} AND id < {to}");
        match self.rng.random_range(0..6) {
            0 => {
                rows.retain(|id, _| *id < from || *id >= to);
                format!("DELETE FROM t WHERE {ids}")
            }
            1 | 2 => {
                rows.range_mut(from..to).for_each(|(_, v)| *v += by);
                format!("UPDATE t SET v = v + {by} WHERE {ids}")
            }
            _ => {
                let new: Vec<i64> = (from..to).filter(|id| !rows.contains_key(id)).collect();
                if new.is_empty() {
                    return format!("UPDATE t SET v = v WHERE {ids}");
                }
                rows.extend(new.iter().map(|id| (*id, by)));
                let values: Vec<String> =
                    new.iter().map(|id| format!("({id},{by},{})", TEXT.replace("id", &id.to_string()))).collect();
                format!("INSERT INTO t (id, v, b) VALUES {}", values.join(","))
            }
        }
    }

    fn write(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let mut after = self.rows.clone();
        let mut statements = vec![self.draw(&mut after)];
        if self.rng.random_range(0..3) > 0 {
            for _ in 0..self.rng.random_range(0..3) {
                statements.push(self.draw(&mut after));
            }
            statements.insert(0, "BEGIN".into());
            let undoes = self.rng.random_range(0..4) == 0;
            if undoes {
                after = self.rows.clone();
            }
            statements.push(if undoes { "ROLLBACK" } else { "COMMIT" }.into());
        }
        let last = statements.len() - 1;
        for (number, statement) in statements.iter().enumerate() {
            if number == last {
                self.open = Some(std::mem::take(&mut after));
            }
            match session.run(statement) {
                Answer::Done(()) => {}
                Answer::Lost => return Ok(Flow::Lost),
                Answer::Refused(code, _) if TRANSIENT.contains(&code) => {
                    self.open = None;
                    return session.must("ROLLBACK");
                }
                Answer::Refused(code, text) => bail!("{code} {text}: {statement}"),
            }
        }
        self.rows = self.open.take().unwrap_or_default();
        Ok(Flow::Goes)
    }

    fn read(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        if session.must("START TRANSACTION WITH CONSISTENT SNAPSHOT")? == Flow::Lost {
            return Ok(Flow::Lost);
        }
        // Time for a change of the definition.
        let pause = self.rng.random_range(0..3);
        if session.must(&format!("DO SLEEP({})", f64::from(pause) / 1e3))? == Flow::Lost {
            return Ok(Flow::Lost);
        }
        match session.rows::<Seen>(&self.query("t")) {
            Answer::Done(found) => {
                let told = self.compare(found, &self.rows);
                ensure!(told.is_none(), "a snapshot differs: {}", told.unwrap_or_default());
            }
            Answer::Lost => return Ok(Flow::Lost),
            Answer::Refused(code, _) if TRANSIENT.contains(&code) => {}
            Answer::Refused(code, text) => bail!("{code} {text}: reading a snapshot"),
        }
        session.must("COMMIT")
    }

    fn query(&self, table: &str) -> String {
        let from = self.first_id();
        format!("SELECT id, v, b = {TEXT} FROM {table} WHERE id >= {from} AND id < {}", from + IDS)
    }

    fn compare(&self, found: Vec<Seen>, wanted: &Rows) -> Option<String> {
        let torn = found.iter().filter(|row| !row.2).count();
        let number = found.len();
        let found: Rows = found.into_iter().map(|row| (row.0, row.1)).collect();
        if torn == 0 && number == found.len() && found == *wanted {
            return None;
        }
        let ids = found.keys().chain(wanted.keys()).filter(|id| found.get(id) != wanted.get(id));
        let other: Vec<String> =
            ids.take(5).map(|id| format!("{id}: {:?}, found {:?}", wanted.get(id), found.get(id))).collect();
        Some(format!(
            "writer {} has {} rows, {number} were found, {torn} of these with another text; {}",
            self.number,
            wanted.len(),
            other.join("; ")
        ))
    }
}

/// An id, its `v`, and whether its text is what was written.
type Seen = (i64, i64, bool);

impl Actor for Writer {
    fn database(&self) -> String {
        database()
    }

    fn begin(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        session.must(&make(&self.engine))
    }

    fn step(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        if self.rng.random_range(0..6) == 0 { self.read(session) } else { self.write(session) }
    }

    fn settle(&mut self, conn: &mut Conn) -> Result<Vec<String>> {
        let found: Vec<Seen> = match conn.query(self.query(&format!("{}.t", database()))) {
            Ok(found) => found,
            // Ended before anybody could make it.
            Err(Error::MySqlError(error)) if ABSENT.contains(&error.code) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        if let Some(open) = self.open.take()
            && self.compare(found.clone(), &open).is_none()
        {
            self.rows = open;
            return Ok(Vec::new());
        }
        Ok(self.compare(found, &self.rows).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        let rng = SmallRng::seed_from_u64(3);
        Writer { number: 1, engine: "STRATA".into(), rng, rows: Rows::new(), open: None }
    }

    #[test]
    fn a_writer_stays_in_its_interval_and_does_everything() {
        let mut writer = writer();
        let mut rows = Rows::new();
        let statements: Vec<String> = (0..300).map(|_| writer.draw(&mut rows)).collect();
        assert!(rows.keys().all(|id| (1000..1000 + IDS).contains(id)));
        for kind in ["INSERT", "UPDATE", "DELETE"] {
            assert!(statements.iter().any(|statement| statement.starts_with(kind)), "{kind}");
        }
    }

    #[test]
    fn lost_torn_and_doubled_rows_are_told() {
        let writer = writer();
        let rows = Rows::from([(1001, 5), (1002, 6)]);
        let told = |found: &[Seen]| writer.compare(found.to_vec(), &rows).is_some();
        assert!(!told(&[(1001, 5, true), (1002, 6, true)]));
        assert!(told(&[(1001, 5, true)]));
        assert!(told(&[(1001, 5, true), (1002, 7, true)]));
        assert!(told(&[(1001, 5, true), (1002, 6, false)]));
        assert!(told(&[(1001, 5, true), (1002, 6, true), (1002, 6, true)]));
    }
}
