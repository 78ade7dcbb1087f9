//! Runs a program in both databases and compares the answers.

use super::answer::{Answer, Verdict, compare, text_of};
use super::shadow::Shadows;
use super::{READERS, SECOND, SESSIONS, Step};
use crate::server::Instance;
use anyhow::{Result, bail, ensure};
use mysql::prelude::Queryable;
use mysql::{Conn, Value};
use std::time::{Duration, Instant};

/// Databases of equal length, so that texts in which they stand are.
pub const DATABASES: [(&str, &str); 2] = [("differ_a", "InnoDB"), ("differ_b", "STRATA")];
/// Stands in a statement for the name of its database: the ids of XA transactions are those of the server.
pub const SIDE: &str = "@side";
/// Time for the server to let go of the XA transactions of sessions that have ended.
const LET_GO: Duration = Duration::from_secs(5);

/// Answers of one step that do not agree.
#[derive(Debug)]
pub struct Difference {
    /// The step.
    pub step: Step,
    /// InnoDB's answer.
    pub innodb: Answer,
    /// Strata's answer.
    pub strata: Answer,
    /// What a snapshot that is older than the table shows, where that is the measure.
    pub snapshot: Option<Answer>,
}

/// A program on which the engines agree.
#[derive(Debug, Default)]
pub struct Played {
    /// Steps compared.
    pub steps: u64,
    /// Of these, [`Verdict::Refused`] and [`Verdict::Older`].
    pub newer_tables: u64,
    /// The program ended early: [`Verdict::InnodbDamaged`].
    pub innodb_damaged: bool,
}

/// The sessions in both databases.
pub struct Sides {
    sides: Vec<Vec<Conn>>,
    shadows: Shadows,
}

impl Sides {
    /// Makes both databases anew, and opens the sessions.
    pub fn open(instance: &Instance) -> Result<Sides> {
        end_xa(&mut instance.connect(None)?)?;
        let mut sides = Vec::new();
        for (database, engine) in DATABASES {
            instance.fresh_database(database)?;
            let mut sessions = Vec::new();
            for _ in 0..SESSIONS {
                let mut conn = instance.connect(Some(database))?;
                conn.query_drop(format!(
                    "SET default_storage_engine={engine}, NAMES utf8mb4, timestamp=1700000000, \
                     system_versioning_alter_history=KEEP, innodb_lock_wait_timeout=0, strata_lock_wait_timeout=0"
                ))?;
                sessions.push(conn);
            }
            sides.push(sessions);
        }
        Ok(Sides { sides, shadows: Shadows::new(instance)? })
    }

    /// Runs the program up to the first difference.
    pub fn play(&mut self, program: &[Step]) -> Result<Result<Played, Difference>> {
        let mut played = Played::default();
        for (at, step) in program.iter().enumerate() {
            let [innodb, strata] = [0, 1].map(|side| {
                let sql = step.sql.replace(SIDE, DATABASES[side].0);
                answer(&mut self.sides[side][step.session], &sql, step)
            });
            if let Answer::Lost(text) = &innodb {
                bail!("InnoDB's session ended at '{}': {text}", step.sql);
            }
            if READERS.contains(&step.session) && step.sql.ends_with("WITH CONSISTENT SNAPSHOT") {
                self.shadows.begin(step.session, &program[at..])?;
            } else if matches!(step.session, 0 | SECOND) && matches!(innodb, Answer::Done(_)) {
                self.shadows.follow(&step.sql)?;
            }
            let mut snapshot = None;
            let verdict = match compare(&innodb, &strata) {
                Verdict::Older => {
                    let shown = self.shadows.rows(step)?;
                    let verdict = if shown == strata { Verdict::Older } else { Verdict::Differs };
                    snapshot = Some(shown);
                    verdict
                }
                other => other,
            };
            match verdict {
                Verdict::Same => {}
                Verdict::Refused | Verdict::Older => played.newer_tables += 1,
                Verdict::InnodbDamaged => return Ok(Ok(Played { innodb_damaged: true, ..played })),
                Verdict::Differs => return Ok(Err(Difference { step: step.clone(), innodb, strata, snapshot })),
            }
            played.steps += 1;
        }
        Ok(Ok(played))
    }
}

/// Rolls back the XA transactions that an earlier program has left prepared: they keep its tables.
fn end_xa(conn: &mut Conn) -> Result<()> {
    let began = Instant::now();
    loop {
        let left: Vec<(u64, u64, u64, String)> = conn.query("XA RECOVER")?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(began.elapsed() < LET_GO, "XA transactions of sessions that have ended do not end: {left:?}");
        for (.., xid) in left {
            // The server may not have let go of it yet.
            drop(conn.query_drop(format!("XA ROLLBACK '{xid}'")));
        }
    }
}

/// The answer to `sql`, which stands for `step`.
pub fn answer(conn: &mut Conn, sql: &str, step: &Step) -> Answer {
    match ask(conn, sql, step) {
        Ok(answer) => answer,
        Err(mysql::Error::MySqlError(error)) => Answer::Failed { code: error.code, text: as_innodb(&error.message) },
        Err(error) => Answer::Lost(error.to_string()),
    }
}

fn ask(conn: &mut Conn, sql: &str, step: &Step) -> mysql::Result<Answer> {
    let mut result = conn.query_iter(sql)?;
    let mut rows: Option<Vec<String>> = None;
    let mut affected = 0;
    while let Some(set) = result.iter() {
        affected += set.affected_rows();
        let has_columns = !set.columns().as_ref().is_empty();
        for row in set {
            let row = row?;
            let values: Vec<String> = row.unwrap().iter().map(shown).collect();
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
            Answer::Rows(rows)
        }
        None => Answer::Done(if step.counted { affected } else { 0 }),
    })
}

/// The names of database and engine stand in what CHECK TABLE and the like answer, and in errors of foreign keys. NO ACTION is the default
/// action, which InnoDB shows of keys that it has added in place, whatever was asked for.
fn as_innodb(text: &str) -> String {
    let [(innodb, engine), (strata, other)] = DATABASES;
    text.replace(strata, innodb)
        .replace(&format!("ENGINE={other}"), &format!("ENGINE={engine}"))
        .replace(" ON DELETE NO ACTION", "")
        .replace(" ON UPDATE NO ACTION", "")
}

fn shown(value: &Value) -> String {
    match value {
        // Before a long one is compared by its sum.
        Value::Bytes(bytes) => match str::from_utf8(bytes) {
            Ok(text) => text_of(as_innodb(text).as_bytes()),
            Err(_) => text_of(bytes),
        },
        other => other.as_sql(true),
    }
}
