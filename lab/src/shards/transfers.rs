//! Transfers between accounts on several servers: writers that know what was acknowledged, and the check over all servers.
//!
//! An account is on the server that its number gives, `account % servers`, and so is each leg of a transfer with its account. A transfer
//! has two to four legs, whose amounts make zero; each leg says of how many it is. So half a transfer shows: legs are missing, or an
//! account has not what its legs make. The check reads the servers themselves, past whoever stands before them.
//!
//! A transfer whose COMMIT was answered by an error, or by nothing, may be there or not; one that was rolled back must not be.

use crate::server::Instance;
use anyhow::{Context, Result};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The database of both tables.
pub const DATABASE: &str = "bank";
/// Accounts in all.
pub const ACCOUNTS: u32 = 64;
const PER_WRITER: u64 = 1_000_000_000;

/// Definitions of the tables, without an engine, and the column that says on which server a row is.
pub const TABLES: [(&str, &str, &str); 2] = [
    ("account", "id", "CREATE TABLE account (id INT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL)"),
    (
        "leg",
        "account",
        "CREATE TABLE leg (transfer BIGINT NOT NULL, account INT NOT NULL, amount BIGINT NOT NULL, legs INT NOT NULL,
            PRIMARY KEY (account, transfer), KEY by_transfer (transfer))",
    ),
];

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    pub number: u64,
    /// Account and amount, the smaller account first: writers do not deadlock.
    pub legs: Vec<(u32, i64)>,
}

impl Transfer {
    /// Statements of a leg.
    pub fn statements(&self, (account, amount): (u32, i64)) -> [String; 2] {
        [
            format!("UPDATE account SET balance = balance + {amount} WHERE id = {account}"),
            format!("INSERT INTO leg VALUES ({}, {account}, {amount}, {})", self.number, self.legs.len()),
        ]
    }
}

/// How a transfer ended.
#[derive(Debug)]
pub enum End {
    /// Acknowledged.
    Committed,
    /// By an error before its COMMIT, so it must not be there.
    RolledBack(String),
    /// The commit was asked for, and not acknowledged.
    Unknown(String),
}

/// What executes transfers, and whether it can go on.
pub trait Bank {
    /// Executes one; none if whoever executes them is gone, before the commit was asked for.
    fn transfer(&mut self, transfer: &Transfer) -> Option<End>;

    /// Whether another one can be tried.
    fn goes_on(&self) -> bool;
}

/// A writer's knowledge, over all failures.
#[derive(Debug)]
pub struct Writer {
    number: u32,
    next: u64,
    rng: SmallRng,
    acknowledged: BTreeSet<u64>,
    unknown: BTreeSet<u64>,
    /// What servers said, with how often.
    pub errors: BTreeMap<String, u64>,
}

impl Writer {
    /// A writer that has written nothing.
    pub fn new(number: u32, seed: u64) -> Writer {
        let rng = SmallRng::seed_from_u64(seed ^ u64::from(number) << 32);
        Writer {
            number,
            next: 1,
            rng,
            acknowledged: BTreeSet::new(),
            unknown: BTreeSet::new(),
            errors: BTreeMap::new(),
        }
    }

    /// How many were acknowledged, ever, or found to be there.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// Transfers until `stop` is set or the bank is gone.
    pub fn work(&mut self, bank: &mut dyn Bank, stop: &AtomicBool, done: &AtomicU64) {
        while !stop.load(Ordering::Relaxed) && bank.goes_on() {
            let transfer = self.draw();
            match bank.transfer(&transfer) {
                Some(End::Committed) => {
                    self.acknowledged.insert(transfer.number);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Some(End::RolledBack(said)) => {
                    *self.errors.entry(said).or_default() += 1;
                    // A server that is down is asked for again and again.
                    std::thread::sleep(Duration::from_millis(5));
                }
                Some(End::Unknown(said)) => {
                    self.unknown.insert(transfer.number);
                    *self.errors.entry(format!("COMMIT: {said}")).or_default() += 1;
                }
                None => {}
            }
        }
    }

    fn draw(&mut self) -> Transfer {
        let number = u64::from(self.number) * PER_WRITER + self.next;
        self.next += 1;
        let mut accounts = BTreeSet::new();
        let count = self.rng.random_range(2..=4);
        while accounts.len() < count {
            accounts.insert(self.rng.random_range(0..ACCOUNTS));
        }
        let mut legs: Vec<(u32, i64)> =
            accounts.into_iter().map(|account| (account, self.rng.random_range(-1000..=1000))).collect();
        let sum: i64 = legs.iter().map(|leg| leg.1).sum();
        legs[0].1 -= sum;
        Transfer { number, legs }
    }
}

/// What the servers hold: the balance of each account, and all legs as transfer, account, amount, number of legs.
#[derive(Debug, Default)]
pub struct Held {
    balances: BTreeMap<u32, i64>,
    legs: Vec<(u64, u32, i64, u32)>,
}

impl Held {
    /// Of all servers.
    pub fn read(shards: &[&Instance], wrong: &mut Vec<String>) -> Result<Held> {
        let mut held = Held::default();
        for (number, shard) in shards.iter().enumerate() {
            let mut conn = shard.connect(Some(DATABASE)).with_context(|| format!("server {number} does not answer"))?;
            let accounts: Vec<(u32, i64)> = conn.query("SELECT id, balance FROM account")?;
            let legs: Vec<(u64, u32, i64, u32)> = conn.query("SELECT transfer, account, amount, legs FROM leg")?;
            let strays = accounts.iter().map(|row| row.0).chain(legs.iter().map(|leg| leg.1));
            let strays = strays.filter(|account| *account as usize % shards.len() != number).count();
            if strays > 0 {
                wrong.push(format!("server {number} has {strays} rows of accounts that are others'"));
            }
            same_by_index(&mut conn, number, wrong)?;
            held.balances.extend(accounts);
            held.legs.extend(legs);
        }
        Ok(held)
    }

    /// Says what does not hold, and takes over what became of transfers whose end was not known.
    pub fn verify(&self, writers: &mut [Writer], wrong: &mut Vec<String>) {
        let mut transfers: BTreeMap<u64, (u32, i64, u32)> = BTreeMap::new();
        let mut sums: BTreeMap<u32, i64> = BTreeMap::new();
        for (transfer, account, amount, legs) in &self.legs {
            let entry = transfers.entry(*transfer).or_insert((0, 0, *legs));
            entry.0 += 1;
            entry.1 += amount;
            *sums.entry(*account).or_default() += amount;
        }
        for (transfer, (found, sum, legs)) in &transfers {
            if found != legs || *sum != 0 {
                wrong.push(format!("transfer {transfer} has {found} legs of {legs}, their sum is {sum}: half done"));
            }
        }
        if self.balances.len() != ACCOUNTS as usize {
            wrong.push(format!("there are {} accounts, not {ACCOUNTS}", self.balances.len()));
        }
        for (account, balance) in &self.balances {
            let sum = sums.get(account).copied().unwrap_or(0);
            if sum != *balance {
                wrong.push(format!("account {account} has {balance}, its legs make {sum}"));
            }
        }
        let all: i64 = self.balances.values().sum();
        if all != 0 {
            wrong.push(format!("all accounts together have {all}, not 0"));
        }
        for writer in writers {
            let range = u64::from(writer.number) * PER_WRITER..u64::from(writer.number + 1) * PER_WRITER;
            let found: BTreeSet<u64> = transfers.range(range).map(|(transfer, _)| *transfer).collect();
            for transfer in writer.acknowledged.difference(&found) {
                wrong.push(format!("transfer {transfer} was acknowledged and is lost"));
            }
            for transfer in &found {
                if !writer.acknowledged.contains(transfer) && !writer.unknown.contains(transfer) {
                    wrong.push(format!("transfer {transfer} is there, and was rolled back or never made"));
                }
            }
            writer.acknowledged.extend(found);
            writer.unknown.clear();
        }
    }
}

/// The index holds the rows of the table.
fn same_by_index(conn: &mut Conn, number: usize, wrong: &mut Vec<String>) -> Result<()> {
    let mut sum = |index: &str| {
        conn.query_first::<(u64, Option<String>), _>(format!(
            "SELECT COUNT(*), CAST(SUM(CRC32(CONCAT_WS(',', transfer, account))) AS CHAR) FROM leg FORCE INDEX ({index})"
        ))
    };
    let (by_index, by_table) = (sum("by_transfer")?, sum("PRIMARY")?);
    if by_index != by_table {
        wrong.push(format!("server {number}: index by_transfer has {by_index:?}, the table {by_table:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(legs: &[(u64, u32, i64, u32)]) -> Held {
        let mut balances: BTreeMap<u32, i64> = (0..ACCOUNTS).map(|account| (account, 0)).collect();
        for (_, account, amount, _) in legs {
            *balances.get_mut(account).unwrap() += amount;
        }
        Held { balances, legs: legs.to_vec() }
    }

    fn wrong(held: &Held, acknowledged: &[u64], unknown: &[u64]) -> usize {
        let mut writer = Writer::new(1, 1);
        writer.acknowledged.extend(acknowledged);
        writer.unknown.extend(unknown);
        let mut wrong = Vec::new();
        held.verify(&mut [writer], &mut wrong);
        wrong.len()
    }

    const T: u64 = PER_WRITER + 1;

    #[test]
    fn a_transfer_is_there_in_full_or_not_at_all() {
        let full = held(&[(T, 3, 5, 2), (T, 4, -5, 2)]);
        assert_eq!(wrong(&full, &[T], &[]), 0);
        assert_eq!(wrong(&full, &[], &[T]), 0);
        assert_eq!(wrong(&full, &[], &[]), 1);
        assert_eq!(wrong(&held(&[]), &[], &[T]), 0);
        assert_eq!(wrong(&held(&[]), &[T], &[]), 1);
        // Half done; and the sum of all accounts is not zero.
        assert_eq!(wrong(&held(&[(T, 3, 5, 2)]), &[T], &[]), 2);
        assert_eq!(wrong(&held(&[(T, 3, 5, 3), (T, 4, -5, 3)]), &[T], &[]), 1);
    }

    #[test]
    fn an_account_has_what_its_legs_make() {
        let mut moved = held(&[(T, 3, 5, 2), (T, 4, -5, 2)]);
        *moved.balances.get_mut(&3).unwrap() -= 1;
        *moved.balances.get_mut(&9).unwrap() += 1;
        assert_eq!(wrong(&moved, &[T], &[]), 2);
        moved.balances.remove(&10);
        assert_eq!(wrong(&moved, &[T], &[]), 3);
    }

    #[test]
    fn transfers_make_zero_and_lock_in_one_order() {
        let mut writer = Writer::new(2, 7);
        for _ in 0..1000 {
            let transfer = writer.draw();
            assert_eq!(transfer.legs.iter().map(|leg| leg.1).sum::<i64>(), 0);
            assert!(transfer.legs.is_sorted_by_key(|leg| leg.0) && (2..=4).contains(&transfer.legs.len()));
        }
    }
}
