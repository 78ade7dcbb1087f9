//! Runs a program in both databases and compares the answers.

use super::{SESSIONS, Step};
use crate::server::Instance;
use anyhow::{Result, bail};
use mysql::prelude::Queryable;
use mysql::{Conn, Value};
use std::fmt;

/// Databases of equal length, so that texts in which they stand are.
const DATABASES: [(&str, &str); 2] = [("differ_a", "InnoDB"), ("differ_b", "STRATA")];
/// "Table definition has changed, please retry transaction".
const TABLE_CHANGED: u16 = 1412;
/// Rows of an answer that are printed.
const SHOWN: usize = 20;

/// What a statement was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Rows, as text; sorted if they have no order.
    Rows(Vec<String>),
    /// No rows, but a number of rows changed.
    Done(u64),
    /// An error of the server.
    Failed { code: u16, text: String },
    /// The connection broke: the server has ended.
    Lost(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Rows(rows) => {
                write!(f, "{} rows", rows.len())?;
                rows.iter().take(SHOWN).try_for_each(|row| write!(f, "\n    {row}"))
            }
            Answer::Done(affected) => write!(f, "{affected} rows affected"),
            Answer::Failed { code, text } => write!(f, "error {code}: {text}"),
            Answer::Lost(text) => write!(f, "connection lost: {text}"),
        }
    }
}

/// How two answers stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both engines say the same.
    Same,
    /// The snapshot is older than the table: one engine gives the rows, the other error 1412.
    NewerTable,
    /// CHECK TABLE finds InnoDB's table damaged and Strata's whole: from here on InnoDB's answers are no measure.
    InnodbDamaged,
    /// One engine is wrong.
    Differs,
}

/// Compares InnoDB's answer with Strata's.
pub fn compare(innodb: &Answer, strata: &Answer) -> Verdict {
    match (innodb, strata) {
        (Answer::Failed { code: a, .. }, Answer::Failed { code: b, .. }) if a == b => Verdict::Same,
        (Answer::Lost(_), _) | (_, Answer::Lost(_)) => Verdict::Differs,
        (Answer::Failed { code: TABLE_CHANGED, .. }, Answer::Rows(_))
        | (Answer::Rows(_), Answer::Failed { code: TABLE_CHANGED, .. }) => Verdict::NewerTable,
        (a, b) if a == b => Verdict::Same,
        (Answer::Rows(a), Answer::Rows(b))
            if is_damaged(a) && b.iter().all(|row| row.ends_with("| check | status | OK")) =>
        {
            Verdict::InnodbDamaged
        }
        _ => Verdict::Differs,
    }
}

/// InnoDB loses entries of indexes that hold the beginnings of virtual columns, and says so.
fn is_damaged(rows: &[String]) -> bool {
    rows.iter().any(|row| row.contains("| check | Warning | InnoDB: "))
        && rows.iter().any(|row| row.ends_with("| Corrupt"))
}

/// Answers of one step that do not agree.
#[derive(Debug)]
pub struct Difference {
    /// The step.
    pub step: Step,
    /// InnoDB's answer.
    pub innodb: Answer,
    /// Strata's answer.
    pub strata: Answer,
}

/// A program on which the engines agree.
#[derive(Debug, Default)]
pub struct Played {
    /// Steps compared.
    pub steps: u64,
    /// Of these, [`Verdict::NewerTable`].
    pub newer_tables: u64,
    /// The program ended early: [`Verdict::InnodbDamaged`].
    pub innodb_damaged: bool,
}

/// The sessions in both databases.
pub struct Sides {
    sides: Vec<Vec<Conn>>,
}

impl Sides {
    /// Makes both databases anew, and opens the sessions.
    pub fn open(instance: &Instance) -> Result<Sides> {
        let mut sides = Vec::new();
        for (database, engine) in DATABASES {
            instance.fresh_database(database)?;
            let mut sessions = Vec::new();
            for _ in 0..SESSIONS {
                let mut conn = instance.connect(Some(database))?;
                conn.query_drop(format!("SET default_storage_engine={engine}, NAMES utf8mb4, timestamp=1700000000"))?;
                sessions.push(conn);
            }
            sides.push(sessions);
        }
        Ok(Sides { sides })
    }

    /// Runs the program up to the first difference.
    pub fn play(&mut self, program: &[Step]) -> Result<Result<Played, Difference>> {
        let mut played = Played::default();
        for step in program {
            let [innodb, strata] = [0, 1].map(|side| answer(&mut self.sides[side][step.session], step));
            if let Answer::Lost(text) = &innodb {
                bail!("InnoDB's session ended at '{}': {text}", step.sql);
            }
            match compare(&innodb, &strata) {
                Verdict::Same => {}
                Verdict::NewerTable => played.newer_tables += 1,
                Verdict::InnodbDamaged => return Ok(Ok(Played { innodb_damaged: true, ..played })),
                Verdict::Differs => return Ok(Err(Difference { step: step.clone(), innodb, strata })),
            }
            played.steps += 1;
        }
        Ok(Ok(played))
    }
}

fn answer(conn: &mut Conn, step: &Step) -> Answer {
    match ask(conn, step) {
        Ok(answer) => answer,
        Err(mysql::Error::MySqlError(error)) => Answer::Failed { code: error.code, text: error.message },
        Err(error) => Answer::Lost(error.to_string()),
    }
}

fn ask(conn: &mut Conn, step: &Step) -> mysql::Result<Answer> {
    let mut result = conn.query_iter(&step.sql)?;
    let mut rows: Option<Vec<String>> = None;
    let mut affected = 0;
    while let Some(set) = result.iter() {
        affected += set.affected_rows();
        let has_columns = !set.columns().as_ref().is_empty();
        for row in set {
            let row = row?;
            let values: Vec<String> = row.unwrap().iter().map(text_of).collect();
            rows.get_or_insert_default().push(values.join(" | "));
        }
        if has_columns {
            rows.get_or_insert_default();
        }
    }
    Ok(match rows {
        Some(mut rows) => {
            if !step.ordered {
                rows.sort();
            }
            // The databases' names stand in what CHECK TABLE and the like answer.
            Answer::Rows(rows.into_iter().map(|row| row.replace(DATABASES[1].0, DATABASES[0].0)).collect())
        }
        None => Answer::Done(if step.counted { affected } else { 0 }),
    })
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) if bytes.len() > 200 => format!("{} bytes, sum {}", bytes.len(), sum(bytes)),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).escape_debug().to_string(),
        other => other.as_sql(true),
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, &byte| sum.wrapping_mul(1_000_003).wrapping_add(u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::{Answer, Verdict, compare};

    fn failed(code: u16, text: &str) -> Answer {
        Answer::Failed { code, text: text.into() }
    }

    #[test]
    fn errors_agree_by_number_and_a_lost_server_never() {
        let rows = |rows: &[&str]| Answer::Rows(rows.iter().map(|row| (*row).to_owned()).collect());
        let lost = || Answer::Lost("gone".into());
        assert_eq!(compare(&failed(1062, "a"), &failed(1062, "b")), Verdict::Same);
        assert_eq!(compare(&failed(1062, "a"), &failed(1022, "a")), Verdict::Differs);
        assert_eq!(compare(&rows(&["1"]), &rows(&["1"])), Verdict::Same);
        assert_eq!(compare(&rows(&["1"]), &rows(&["2"])), Verdict::Differs);
        assert_eq!(compare(&rows(&[]), &failed(1412, "changed")), Verdict::NewerTable);
        assert_eq!(compare(&Answer::Done(1), &failed(1412, "changed")), Verdict::Differs);
        assert_eq!(compare(&Answer::Done(1), &Answer::Done(0)), Verdict::Differs);
        assert_eq!(compare(&lost(), &lost()), Verdict::Differs);
        let damaged = rows(&[
            "d.t | check | Warning | InnoDB: Index k has 2 entries, should be 3.",
            "d.t | check | error | Corrupt",
        ]);
        let whole = rows(&["d.t | check | status | OK"]);
        assert_eq!(compare(&damaged, &whole), Verdict::InnodbDamaged);
        assert_eq!(compare(&whole, &damaged), Verdict::Differs);
        assert_eq!(compare(&damaged, &rows(&["d.t | check | error | Corrupt"])), Verdict::Differs);
    }
}
