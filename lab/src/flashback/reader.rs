//! Sessions that read moments of the past and compare them, row by row, with what the [`History`] says; and what a moment that is not kept must
//! be answered with.

use super::history::{History, State};
use super::writer::{Book, code};
use super::{ACCOUNTS, DATABASE, Kept, NOT_KEPT, now};
use crate::drive::is_lost;
use crate::server::Instance;
use anyhow::{Result, bail};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::RngExt;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Time zones of sessions: a moment is named in that of its session.
const ZONES: [&str; 4] = ["+00:00", "+05:30", "-08:00", "+13:00"];

/// The rows of a moment.
struct Rows {
    numbers: BTreeSet<u64>,
    state: State,
    /// Rows that contradict themselves, or an index that contradicts its table.
    wrong: Vec<String>,
}

/// Reads random moments until `stop` is set or the server goes away.
pub fn read(
    instance: &Instance,
    book: &Book,
    kept: Kept,
    rng: &mut SmallRng,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<()> {
    let Ok(mut conn) = instance.connect(Some(DATABASE)) else { return Ok(()) };
    while !stop.load(Ordering::Relaxed) {
        match moment(&mut conn, book, kept, rng) {
            Ok(Read::Done) => drop(done.fetch_add(1, Ordering::Relaxed)),
            Ok(Read::Lost) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How a read ended.
#[derive(PartialEq, Eq)]
pub enum Read {
    Done,
    Lost,
}

/// Reads one moment that is drawn, and compares. An error is a violation.
pub fn moment(conn: &mut Conn, book: &Book, kept: Kept, rng: &mut SmallRng) -> Result<Read> {
    let at = draw(kept, rng);
    let before = now();
    let answer = rows_at(conn, at, rng);
    let after = now();
    match answer {
        Ok(rows) => {
            if !kept.may_be_read(at, before, after) {
                bail!("the moment {at} could be read from {before} to {after}; {kept:?}");
            }
            compare(&mut book.history(), at, rows)?;
        }
        Err(mysql::Error::MySqlError(error)) if error.code == NOT_KEPT => {
            let said = |words: &str| error.message.contains(words);
            let is_right = match () {
                () if said("is in the future") => at > before,
                () if said("is not kept") => kept.may_be_forgotten(at, after),
                // The tables were made at the beginning of the history.
                () => said("created") && at <= kept.began.1,
            };
            if !is_right {
                bail!("the moment {at} is refused from {before} to {after}: {}; {kept:?}", error.message);
            }
            // The transaction has not begun; the moment is still chosen.
            conn.query_drop("ROLLBACK")?;
        }
        Err(error) if is_lost(&error) => return Ok(Read::Lost),
        Err(error) => bail!("the moment {at}: {error}"),
    }
    match conn.query_drop("SET strata_read_timestamp = DEFAULT") {
        Err(error) if is_lost(&error) => Ok(Read::Lost),
        ended => Ok(ended.map(|()| Read::Done)?),
    }
}

/// Most moments are kept; some are older, some are to come, some have just begun.
fn draw(kept: Kept, rng: &mut SmallRng) -> u64 {
    let now = now();
    let oldest = kept.oldest(now).min(now);
    match rng.random_range(0..20) {
        0 => now + rng.random_range(1..100_000),
        1 => oldest.saturating_sub(rng.random_range(0..20)),
        2..5 => now,
        5..8 => now.saturating_sub(rng.random_range(1..3)).max(oldest),
        _ => rng.random_range(oldest..=now),
    }
}

fn rows_at(conn: &mut Conn, at: u64, rng: &mut SmallRng) -> mysql::Result<Rows> {
    conn.query_drop(format!("SET time_zone = '{}'", ZONES[rng.random_range(0..ZONES.len())]))?;
    conn.query_drop(format!("SET strata_read_timestamp = FROM_UNIXTIME({at})"))?;
    // In one transaction, or each statement in its own: they see the same.
    let in_one = rng.random_range(0..3) > 0;
    if in_one {
        conn.query_drop("BEGIN")?;
    }
    let rows = rows(conn, rng)?;
    if in_one {
        conn.query_drop("COMMIT")?;
    }
    Ok(rows)
}

/// All rows, by several indexes and in several orders.
fn rows(conn: &mut Conn, rng: &mut SmallRng) -> mysql::Result<Rows> {
    let mut wrong = Vec::new();
    let index = ["PRIMARY", "by_writer"][rng.random_range(0..2)];
    let numbers = conn.query::<u64, _>(format!("SELECT number FROM journal FORCE INDEX ({index})"))?;
    if rng.random_range(0..10) == 0 {
        // Flushes and merges come between.
        sleep(Duration::from_millis(rng.random_range(100..1500)));
    }
    let order = ["", "ORDER BY id DESC"][rng.random_range(0..2)];
    let found: Vec<(u32, i64, u64, bool)> = conn.query(format!(
        "SELECT id, balance, moves, moves = 0 OR pad = REPEAT(CHAR(97 + moves % 26), LENGTH(pad)) FROM account {order}"
    ))?;
    let mut accounts: BTreeMap<u32, (i64, u64)> = BTreeMap::new();
    for (id, balance, moves, is_right) in found {
        if !is_right {
            wrong.push(format!("account {id} with {moves} movements has the pad of another version"));
        }
        if id > ACCOUNTS || id == 0 {
            wrong.push(format!("there is an account {id}"));
        }
        if moves > 0 {
            accounts.insert(id, (balance, moves));
        }
    }
    let sums = |hint: &str| format!("SELECT COUNT(*), CAST(SUM(balance) AS CHAR) FROM account {hint}");
    let by_balance: Option<(u64, Option<String>)> = conn.query_first(sums("FORCE INDEX (by_balance)"))?;
    let total: i64 = accounts.values().map(|(balance, _)| balance).sum();
    // Before they were made there are none.
    let is_right = |count: u64, sum: &Option<String>| {
        count == 0 || count == u64::from(ACCOUNTS) && sum.as_ref() == Some(&total.to_string())
    };
    if !by_balance.as_ref().is_some_and(|(count, sum)| is_right(*count, sum)) {
        wrong.push(format!("by their balances the accounts have {by_balance:?}, in all {total}"));
    }
    let found: Vec<(u64, u32, bool)> = conn.query(format!(
        "SELECT id, version, note = REPEAT(CHAR(97 + (id + version) % 26), 100 + (id * 7 + version * 131) % 1000) \
         FROM entry {order}"
    ))?;
    let mut entries = BTreeMap::new();
    for (id, version, is_right) in found {
        if !is_right {
            wrong.push(format!("entry {id} has the version {version} and the note of another one"));
        }
        entries.insert(id, version);
    }
    let codes: Vec<(String, u64)> = conn.query("SELECT code, id FROM entry FORCE INDEX (by_code)")?;
    let by_code: BTreeMap<u64, String> = codes.into_iter().map(|(code, id)| (id, code)).collect();
    let by_table: BTreeMap<u64, String> = entries.iter().map(|(&id, &version)| (id, code(id, version))).collect();
    if by_code != by_table {
        let differs: Vec<u64> =
            by_code.keys().chain(by_table.keys()).filter(|id| by_code.get(id) != by_table.get(id)).copied().collect();
        wrong.push(format!("the index by_code has others than the table: {:?}", &differs[..differs.len().min(5)]));
    }
    // Points, of rows that are there.
    for (&id, &version) in entries.iter().skip(rng.random_range(0..=entries.len())).take(2) {
        let by_id: Option<u32> = conn.exec_first("SELECT version FROM entry WHERE id = ?", (id,))?;
        let by_code: Option<u64> = conn.exec_first("SELECT id FROM entry WHERE code = ?", (code(id, version),))?;
        if by_id != Some(version) || by_code != Some(id) {
            wrong.push(format!("entry {id} version {version} is found as {by_id:?} and {by_code:?}"));
        }
    }
    Ok(Rows { numbers: numbers.into_iter().collect(), state: State { accounts, entries }, wrong })
}

/// An error unless a moment's rows are those of the history.
fn compare(history: &mut History, at: u64, rows: Rows) -> Result<()> {
    let should = history.seen(at, &rows.numbers);
    let mut wrong = history.take_violations();
    wrong.extend(rows.wrong);
    wrong.extend(unlike("account", &rows.state.accounts, &should.accounts));
    wrong.extend(unlike("entry", &rows.state.entries, &should.entries));
    crate::crash::fail_if(&format!("at the moment {at}, read at {}", now()), &wrong)
}

fn unlike<K: Ord + Copy + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    table: &str,
    is: &BTreeMap<K, V>,
    should: &BTreeMap<K, V>,
) -> Vec<String> {
    let keys: BTreeSet<K> = is.keys().chain(should.keys()).copied().collect();
    keys.into_iter()
        .filter(|key| is.get(key) != should.get(key))
        .map(|key| format!("{table} {key:?} is {:?}, and should be {:?}", is.get(&key), should.get(&key)))
        .collect()
}

/// What there is now must be all of the history. Returns how many entries there are.
pub fn compare_now(conn: &mut Conn, book: &Book, rng: &mut SmallRng) -> Result<usize> {
    conn.query_drop("BEGIN")?;
    let rows = rows(conn, rng)?;
    conn.query_drop("COMMIT")?;
    let mut wrong = rows.wrong;
    let history = book.history();
    let all = history.numbers();
    let lost: Vec<&u64> = all.difference(&rows.numbers).collect();
    let invented: Vec<&u64> = rows.numbers.difference(&all).collect();
    if !lost.is_empty() || !invented.is_empty() {
        wrong.push(format!("transactions {lost:?} are lost, {invented:?} are invented"));
    }
    let should = history.state(&all);
    wrong.extend(unlike("account", &rows.state.accounts, &should.accounts));
    wrong.extend(unlike("entry", &rows.state.entries, &should.entries));
    crate::crash::fail_if("now", &wrong)?;
    Ok(should.entries.len())
}
