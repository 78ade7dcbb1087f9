//! The text form of a history.
//!
//! ```text
//! promise transaction ranges                plain reads: dirty, statement, transaction, locking;
//!                                           'ranges', 'first-wins' as in `Promise`
//! session 1                                 a transaction; 'session 1 alone' without BEGIN
//!   10 12 read l2=1,2 r4=3 l6=..5 m1=-      begin, end; values; '..5': the last number is 5; '-': no row
//!   13 14 lock l2=1,2                       a locking read
//!   15 16 scan 3 l2=1,2                     keys of group 3; 'lockscan' locks
//!   17 18 write l2=1,2 -> 7 group 3         number 7 replaced this; the key is in group 3 from now on
//!   19 20 write l3=? -> 8                   what it replaced is not known
//!   21 22 delete m1=4 -> 9
//!   23 24 writegroup 3 -> 10 rows 2
//!   25 26 savepoint                         'rollback-to' goes back to it
//!   27 28 failed write l2=? -> 11           undone by an error
//!   30 35 commit                            or: rollback, unknown
//! # a comment
//! ```
//!
//! The letter of a key stands for its kind: l list, r register, m mortal.

use super::{Action, History, Key, KeyKind, Outcome, PlainReads, Promise, Statement, Transaction, Value};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::fmt::Write as _;

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.kind() {
            KeyKind::List => 'l',
            KeyKind::Register => 'r',
            KeyKind::Mortal => 'm',
        };
        write!(f, "{letter}{}", self.0)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Absent => write!(f, "-"),
            Value::Last(version) => write!(f, "..{version}"),
            Value::List(versions) => {
                let words: Vec<String> = versions.iter().map(u32::to_string).collect();
                write!(f, "{}", words.join(","))
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Read { locking, group, seen } => {
                let word = match (locking, group) {
                    (false, None) => "read",
                    (true, None) => "lock",
                    (false, Some(_)) => "scan",
                    (true, Some(_)) => "lockscan",
                };
                write!(f, "{word}")?;
                if let Some(group) = group {
                    write!(f, " {group}")?;
                }
                seen.iter().try_for_each(|(key, value)| write!(f, " {key}={value}"))
            }
            Action::Write { key, seen, version, group, dead } => {
                let seen = seen.as_ref().map_or("?".to_string(), Value::to_string);
                write!(f, "{} {key}={seen} -> {version}", if *dead { "delete" } else { "write" })?;
                group.map_or(Ok(()), |group| write!(f, " group {group}"))
            }
            Action::WriteGroup { group, version, rows } => write!(f, "writegroup {group} -> {version} rows {rows}"),
            Action::Savepoint => write!(f, "savepoint"),
            Action::RollbackTo => write!(f, "rollback-to"),
        }
    }
}

/// Writes a history.
pub fn print(history: &History) -> String {
    let plain = match history.promise.plain {
        PlainReads::Dirty => "dirty",
        PlainReads::Statement => "statement",
        PlainReads::Transaction => "transaction",
        PlainReads::Locking => "locking",
    };
    let mut text = format!("promise {plain}");
    text += if history.promise.ranges { " ranges" } else { "" };
    text += if history.promise.first_wins { " first-wins\n" } else { "\n" };
    for transaction in &history.transactions {
        let alone = if transaction.alone { " alone" } else { "" };
        let _ = writeln!(text, "session {}{alone}", transaction.session);
        for Statement { begin, end, failed, action } in &transaction.statements {
            let _ = writeln!(text, "  {begin} {end} {}{action}", if *failed { "failed " } else { "" });
        }
        let outcome = match transaction.outcome {
            Outcome::Committed => "commit",
            Outcome::Aborted => "rollback",
            Outcome::Unknown => "unknown",
        };
        let _ = writeln!(text, "  {} {} {outcome}", transaction.begin, transaction.end);
    }
    text
}

/// Reads a history.
pub fn parse(text: &str) -> Result<History> {
    let mut promise = None;
    let mut transactions = Vec::new();
    let mut open: Option<Transaction> = None;
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        let mut parse_line = || -> Result<()> {
            match words[..] {
                [] => {}
                ["promise", plain, ref more @ ..] => {
                    let plain = match plain {
                        "dirty" => PlainReads::Dirty,
                        "statement" => PlainReads::Statement,
                        "transaction" => PlainReads::Transaction,
                        "locking" => PlainReads::Locking,
                        _ => bail!("no such promise"),
                    };
                    let has = |word| more.contains(&word);
                    promise = Some(Promise { plain, ranges: has("ranges"), first_wins: has("first-wins") });
                }
                ["session", session, ref more @ ..] => {
                    ensure!(open.is_none(), "the transaction before has no end");
                    open = Some(Transaction {
                        session: session.parse()?,
                        alone: more == ["alone"],
                        statements: vec![],
                        outcome: Outcome::Unknown,
                        begin: 0,
                        end: 0,
                    });
                }
                [begin, end, ref rest @ ..] => {
                    let (begin, end) = (begin.parse()?, end.parse()?);
                    let mut transaction = open.take().context("no transaction has begun")?;
                    transaction.outcome = match rest {
                        ["commit"] => Outcome::Committed,
                        ["rollback"] => Outcome::Aborted,
                        ["unknown"] => Outcome::Unknown,
                        _ => {
                            let failed = rest.first() == Some(&"failed");
                            let action = action(&rest[usize::from(failed)..])?;
                            transaction.statements.push(Statement { begin, end, failed, action });
                            open = Some(transaction);
                            return Ok(());
                        }
                    };
                    (transaction.begin, transaction.end) = (begin, end);
                    transactions.push(transaction);
                }
                _ => bail!("two times and an action"),
            }
            Ok(())
        };
        parse_line().with_context(|| format!("line {}: {line}", number + 1))?;
    }
    ensure!(open.is_none(), "the last transaction has no end");
    Ok(History { promise: promise.context("there is no 'promise'")?, transactions })
}

fn action(words: &[&str]) -> Result<Action> {
    Ok(match words {
        ["read", seen @ ..] => Action::Read { locking: false, group: None, seen: values(seen)? },
        ["lock", seen @ ..] => Action::Read { locking: true, group: None, seen: values(seen)? },
        ["scan", group, seen @ ..] => Action::Read { locking: false, group: Some(group.parse()?), seen: values(seen)? },
        ["lockscan", group, seen @ ..] => {
            Action::Read { locking: true, group: Some(group.parse()?), seen: values(seen)? }
        }
        [word @ ("write" | "delete"), what, "->", version, more @ ..] => {
            let (key, value) = what.split_once('=').context("KEY=VALUE")?;
            let seen = if value == "?" { None } else { Some(self::value(value)?) };
            let group = match more {
                [] => None,
                ["group", group] => Some(group.parse()?),
                _ => bail!("'group N' may follow"),
            };
            Action::Write { key: self::key(key)?, seen, version: version.parse()?, group, dead: *word == "delete" }
        }
        ["writegroup", group, "->", version, "rows", rows] => {
            Action::WriteGroup { group: group.parse()?, version: version.parse()?, rows: rows.parse()? }
        }
        ["savepoint"] => Action::Savepoint,
        ["rollback-to"] => Action::RollbackTo,
        _ => bail!("no such action"),
    })
}

fn values(words: &[&str]) -> Result<Vec<(Key, Value)>> {
    let one = |word: &&str| {
        let (key, value) = word.split_once('=').context("KEY=VALUE")?;
        Ok((self::key(key)?, self::value(value)?))
    };
    words.iter().map(one).collect()
}

fn value(text: &str) -> Result<Value> {
    Ok(match text.strip_prefix("..") {
        Some(last) => Value::Last(last.parse()?),
        None if text == "-" => Value::Absent,
        None => Value::List(text.split(',').map(str::parse).collect::<Result<_, _>>()?),
    })
}

fn key(text: &str) -> Result<Key> {
    let key = Key(text.get(1..).context("a letter and a number")?.parse()?);
    ensure!(key.to_string() == text, "{text} should be {key}: the number tells the kind");
    Ok(key)
}
