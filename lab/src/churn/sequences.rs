//! Sequences: two sessions take values of one sequence, each has others of its own that it sets, alters, renames and drops.
//!
//! No value is handed out twice: of the common sequence all values are different, of the own ones each is behind the last,
//! unless the sequence was set back. A value counts from the moment it was told.

use super::{Actor, Answer, Flow, PREFIX, Session};
use anyhow::{Context, Result, bail};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

const COMMON: &str = "common";
/// Values that are reserved at once.
const CACHE: i64 = 20;

/// A sequence of one session: the next value is above the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shadow {
    floor: i64,
}

/// What is in flight: sequences as they are afterwards. Those that differ may be as before.
type Own = BTreeMap<String, Shadow>;

/// One session.
pub struct Sequences {
    number: u32,
    engine: String,
    rng: SmallRng,
    own: Own,
    open: Option<Own>,
    common: Arc<Mutex<BTreeSet<i64>>>,
}

/// Two sessions with a sequence in common.
pub fn pair(engine: &str, seed: u64) -> [Sequences; 2] {
    let common = Arc::new(Mutex::new(BTreeSet::new()));
    [1, 2].map(|number| Sequences {
        number,
        engine: engine.into(),
        rng: SmallRng::seed_from_u64(seed.wrapping_mul(131) ^ u64::from(number)),
        own: Own::new(),
        open: None,
        common: common.clone(),
    })
}

impl Sequences {
    fn prefix(&self) -> String {
        format!("s{}_", self.number)
    }

    fn any(&mut self) -> Option<String> {
        let len = self.own.len();
        (len > 0).then(|| self.rng.random_range(0..len)).and_then(|at| self.own.keys().nth(at).cloned())
    }

    fn free(&mut self) -> String {
        let prefix = self.prefix();
        let free = (0..5).map(|n| format!("{prefix}{n}")).find(|name| !self.own.contains_key(name));
        free.unwrap_or_else(|| format!("{prefix}9"))
    }

    /// Runs a statement that changes sequences to what `after` says.
    fn change(&mut self, session: &mut Session<'_>, statement: &str, after: Own) -> Result<Flow> {
        session.change(statement, &mut self.own, &mut self.open, after)
    }

    fn take_common(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        match session.first::<i64>(&format!("SELECT NEXT VALUE FOR {COMMON}")) {
            Answer::Done(Some(value)) if self.common.lock().expect("nobody panics").insert(value) => Ok(Flow::Goes),
            Answer::Lost => Ok(Flow::Lost),
            answer => bail!("the next value of {COMMON} is {answer:?}, and was handed out before"),
        }
    }

    /// Takes a value, alone or in a transaction that is rolled back.
    fn take_own(&mut self, session: &mut Session<'_>, name: &str) -> Result<Flow> {
        let undone = self.rng.random_range(0..8) == 0;
        if undone && session.must("BEGIN")? == Flow::Lost {
            return Ok(Flow::Lost);
        }
        let floor = self.own[name].floor;
        match session.first::<i64>(&format!("SELECT NEXTVAL({name})")) {
            Answer::Done(Some(value)) if value > floor => {
                self.own.insert(name.into(), Shadow { floor: value });
            }
            Answer::Lost => return Ok(Flow::Lost),
            answer => bail!("the next value of {name} is {answer:?}, {floor} was handed out before"),
        }
        if undone { session.must("ROLLBACK") } else { Ok(Flow::Goes) }
    }
}

impl Actor for Sequences {
    fn database(&self) -> String {
        format!("{PREFIX}sequences")
    }

    fn begin(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        // The server refuses to log values of sequences as statements.
        if session.must("SET SESSION binlog_format = ROW")? == Flow::Lost {
            return Ok(Flow::Lost);
        }
        session.must(&format!("CREATE SEQUENCE IF NOT EXISTS {COMMON} CACHE {CACHE} ENGINE={}", self.engine))
    }

    fn step(&mut self, session: &mut Session<'_>) -> Result<Flow> {
        let Some(name) = self.any() else {
            let name = self.free();
            let after = Own::from([(name.clone(), Shadow { floor: 0 })]);
            return self.change(session, &format!("CREATE SEQUENCE {name} ENGINE={}", self.engine), after);
        };
        let mut after = self.own.clone();
        let floor = self.own[&name].floor;
        match self.rng.random_range(0..40) {
            0 if self.own.len() < 4 => {
                let (fresh, start) = (self.free(), self.rng.random_range(1..1000i64));
                let cache = ["NOCACHE", "CACHE 2", "CACHE 1000"][self.rng.random_range(0..3)];
                after.insert(fresh.clone(), Shadow { floor: start - 1 });
                let statement = format!("CREATE SEQUENCE {fresh} START WITH {start} {cache} ENGINE={}", self.engine);
                self.change(session, &statement, after)
            }
            1 if self.own.len() > 2 => {
                after.remove(&name);
                self.change(session, &format!("DROP SEQUENCE {name}"), after)
            }
            // A replica may have to repeat it.
            2 => {
                let fresh = self.free();
                after.remove(&name);
                after.insert(fresh.clone(), self.own[&name]);
                self.change(session, &format!("RENAME TABLE IF EXISTS {name} TO {fresh}"), after)
            }
            // Their effect and the log are not one step. (SETVAL may take back values that are reserved.)
            3..9 if session.logged() => self.take_own(session, &name),
            3 => {
                let start = self.rng.random_range(1..5000i64);
                after.insert(name.clone(), Shadow { floor: start - 1 });
                self.change(session, &format!("ALTER SEQUENCE {name} RESTART WITH {start}"), after)
            }
            4 => {
                let by = self.rng.random_range(1..20);
                self.change(session, &format!("ALTER SEQUENCE {name} INCREMENT BY {by}"), after)
            }
            5 => {
                let cache = self.rng.random_range(0..100);
                self.change(session, &format!("ALTER SEQUENCE {name} CACHE {cache}"), after)
            }
            6..9 => {
                let to = floor + self.rng.random_range(1..500);
                after.insert(name.clone(), Shadow { floor: to });
                self.change(session, &format!("DO SETVAL({name}, {to})"), after)
            }
            9 => session.must(&format!("SELECT * FROM {name}")),
            10..25 => self.take_common(session),
            _ => self.take_own(session, &name),
        }
    }

    fn settle(&mut self, conn: &mut Conn) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let database = self.database();
        let listed: Vec<String> = conn.query(format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'
             AND table_name LIKE '{}%'",
            self.prefix().replace('_', "\\_")
        ))?;
        let found: BTreeSet<String> = listed.into_iter().collect();
        let after = self.open.take().unwrap_or_else(|| self.own.clone());
        let names = |own: &Own| own.keys().cloned().collect::<BTreeSet<_>>();
        if found == names(&after) && found != names(&self.own) {
            self.own = after;
        } else if found == names(&self.own) {
            // Set or not: the lower floor holds in both cases.
            for (name, shadow) in &mut self.own {
                shadow.floor = shadow.floor.min(after.get(name).map_or(i64::MAX, |other| other.floor));
            }
        } else {
            wrong.push(format!(
                "there are {found:?}, and there should be {:?} or {:?}",
                names(&self.own),
                names(&after)
            ));
            self.own.retain(|name, _| found.contains(name));
        }
        wrong.extend(self.going_on(conn, 0));
        Ok(wrong)
    }

    fn compare_copy(&self, conn: &mut Conn, source_killed: bool) -> Result<Vec<String>> {
        // Who reserves values logs it at the end of the statement; the other session may have been told some of them before.
        Ok(self.going_on(conn, if source_killed { CACHE } else { 0 }))
    }
}

impl Sequences {
    /// Sequences that would give a value again, or none. Of the common one so many of the last values may be unknown.
    fn going_on(&self, conn: &mut Conn, unknown: i64) -> Vec<String> {
        let common = self.common.lock().expect("nobody panics").last().map(|last| (COMMON, *last - unknown));
        let own = self.own.iter().map(|(name, shadow)| (name.as_str(), shadow.floor));
        let mut wrong = Vec::new();
        for (name, floor) in own.chain(common) {
            match next(conn, &format!("{}.{name}", self.database())) {
                Ok(next) if next > floor => {}
                answer => wrong.push(format!("{name} goes on with {answer:?}, {floor} was handed out before")),
            }
        }
        wrong
    }
}

/// The value with which a sequence goes on after a restart. It has one row.
fn next(conn: &mut Conn, name: &str) -> Result<i64> {
    let rows: Vec<i64> = conn.query(format!("SELECT next_not_cached_value FROM {name}"))?;
    anyhow::ensure!(rows.len() <= 1, "{} rows", rows.len());
    rows.first().copied().context("it has lost its row")
}
