//! Crashes while values of sequences are handed out.
//!
//! A sequence's row has a mark that is written, outside of all transactions, before the values below it are handed out. What
//! a client was told, or what a committed row of any engine has, is never handed out again: not after the restart, and not by
//! the second server, to which the binary log was applied.

use super::{DATABASE, Matrix, PATIENCE};
use crate::drive::is_lost;
use anyhow::{Context, Result, bail, ensure};
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::BTreeMap;

/// Statements until the server has to have ended itself.
const MOST: i64 = 40;
/// Values that are taken after the restart.
const AFTER: u64 = 7;

/// How values are taken. Each gets a number that grows.
struct Method {
    name: &'static str,
    sequence: &'static str,
    /// Gives one row with the value that was told.
    statement: fn(i64) -> String,
    /// The rows with values that were committed.
    table: Option<&'static str>,
    steps: &'static [&'static str],
}

const MARK: &[&str] = &["sequence-ordered", "sequence-durable", "sequence-ordered:3", "sequence-durable:3"];
const MARK_AND_ROW: &[&str] =
    &["sequence-ordered:2", "sequence-durable:2", "prepare-durable:5", "order-begins:5", "ordered:5"];

fn methods() -> Vec<Method> {
    let method = |name, sequence, statement, table, steps| Method { name, sequence, statement, table, steps };
    vec![
        method("NEXTVAL, CACHE 3", "few", |_| "SELECT NEXTVAL(few)".into(), None, MARK),
        method("NEXTVAL, NOCACHE", "one", |_| "SELECT NEXTVAL(one)".into(), None, MARK),
        method("SETVAL", "few", |n| format!("SELECT SETVAL(few, {})", n + 5), None, &MARK[..2]),
        method(
            "INSERT INTO InnoDB's table",
            "few",
            |_| "INSERT INTO vi VALUES (NEXTVAL(few)) RETURNING id".into(),
            Some("vi"),
            &MARK_AND_ROW[..2],
        ),
        method(
            "INSERT INTO Strata's table",
            "few",
            |_| "INSERT INTO vs VALUES (NEXTVAL(few)) RETURNING id".into(),
            Some("vs"),
            MARK_AND_ROW,
        ),
    ]
}

/// The highest value that was handed out: by the source, and of these the highest that the binary log has.
#[derive(Default)]
struct Given {
    here: Option<i64>,
    logged: Option<i64>,
}

/// The next values of a sequence are new: above what was told and what is in the table.
fn take_new(conn: &mut Conn, method: &Method, given: &mut Option<i64>) -> Result<()> {
    let stored: Option<i64> = match method.table {
        Some(table) => conn.query_first::<Option<i64>, _>(format!("SELECT MAX(id) FROM {table}"))?.flatten(),
        None => None,
    };
    *given = stored.max(*given);
    for _ in 0..AFTER {
        let value: Option<i64> = conn.query_first(format!("SELECT NEXTVAL({})", method.sequence))?;
        ensure!(value.is_some() && value > *given, "{value:?} is handed out, and {given:?} was before");
        *given = value;
    }
    Ok(())
}

impl Matrix {
    pub(super) fn sequences(&mut self, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let mut given = BTreeMap::new();
        for method in methods().iter().filter(|_| wanted("sequences")) {
            for step in method.steps {
                for binlog in [true, false] {
                    // Without the log there is one phase only.
                    if binlog || !step.starts_with("prepare") {
                        let given = given.entry(method.sequence).or_default();
                        self.sequence_case(method, step, binlog, given)
                            .with_context(|| format!("{} at {step}", method.name))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn sequence_case(&mut self, method: &Method, step: &str, binlog: bool, given: &mut Given) -> Result<()> {
        let server = self.start(Some(step))?;
        let mut conn = server.connect(Some(DATABASE))?;
        if !binlog {
            conn.query_drop("SET SESSION sql_log_bin = 0")?;
        }
        // SETVAL goes on above all that was before.
        let base = given.here.unwrap_or(0);
        let mut count = 0;
        loop {
            match conn.query_first::<Option<i64>, _>((method.statement)(base + count)) {
                Ok(value) => {
                    let value = value.flatten();
                    ensure!(value > given.here, "{value:?} was told, and {:?} before", given.here);
                    given.here = value;
                    given.logged = if binlog { value } else { given.logged };
                }
                Err(error) if is_lost(&error) => break,
                Err(error) => return Err(error.into()),
            }
            count += 1;
            if count == MOST {
                bail!("the server did not end itself");
            }
        }
        drop(conn);
        server.wait_ended(PATIENCE)?;

        let server = self.start(None)?;
        self.apply()?;
        let mut conn = server.connect(Some(DATABASE))?;
        let what = format!("sequences: {}{}", method.name, if binlog { "" } else { ", no binlog" });
        if let Err(error) = take_new(&mut conn, method, &mut given.here) {
            self.wrong.push(format!("{what} at {step}: {error}"));
        }
        let mut copied = "-";
        if binlog {
            copied = "new values";
            if let Err(error) = take_new(&mut self.replica.connect(Some(DATABASE))?, method, &mut given.logged.clone())
            {
                copied = "old values";
                self.wrong.push(format!("{what} at {step}, the copy: {error}"));
            }
        }
        println!("{what} at {step}: {count} told");
        self.rows.push([what, step.into(), "new values".into(), copied.into(), format!("{count} told")]);
        drop(conn);
        server.kill()
    }
}
