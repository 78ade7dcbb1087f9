//! What a failure leaves in doubt: transactions that a data server has prepared, and nobody is left to end them.
//!
//! The coordinator has a record of what it had decided to commit; whatever is prepared and not in that record is rolled back (presumed
//! abort), since no data server commits before the decision is recorded. Spider's record are the rows of `mysql.spider_xa` with the
//! status COMMIT; the lab's coordinator has its decision log.

use super::cluster::{wait_alone, wait_idle};
use crate::held;
use crate::server::Instance;
use crate::side::wait_until;
use anyhow::Result;
use mysql::Conn;
use mysql::prelude::Queryable;
use std::collections::{BTreeMap, BTreeSet};

const UNKNOWN_ID: u16 = 1397;

/// The text of a transaction's id, both of its parts behind each other, as XA RECOVER and Spider have it.
pub type Id = String;

/// How many transactions were ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub committed: usize,
    pub rolled_back: usize,
}

/// Ends what is prepared on the data servers: commits what is `decided`, rolls back the rest. The coordinator's sessions with them are
/// gone, or go; those of one that `lives` have nothing open, and stay.
pub fn end_all(shards: &[&Instance], decided: &BTreeSet<Id>, lives: bool) -> Result<Ended> {
    let mut ended: BTreeMap<Id, bool> = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        let mut conn = shard.connect(None)?;
        // A statement whose client is gone may still be preparing.
        let wait = if lives { wait_idle } else { wait_alone };
        wait(&mut conn, &format!("data server {number}"))?;
        let prepared: Vec<(i64, usize, usize, String)> = conn.query("XA RECOVER")?;
        for (format, gtrid, _, id) in prepared {
            let commit = decided.contains(&id);
            let statement = statement(commit, &id, gtrid, format);
            // A session that goes may still hold it.
            wait_until(&format!("{statement} on data server {number}"), || match conn.query_drop(&statement) {
                Err(mysql::Error::MySqlError(error)) if error.code == UNKNOWN_ID => Ok(false),
                result => Ok(result.map(|()| true)?),
            })?;
            ended.insert(id, commit);
        }
    }
    let committed = ended.values().filter(|commit| **commit).count();
    Ok(Ended { committed, rolled_back: ended.len() - committed })
}

fn statement(commit: bool, id: &str, gtrid: usize, format: i64) -> String {
    let (gtrid, bqual) = id.split_at(gtrid);
    format!("XA {} '{gtrid}', '{bqual}', {format}", if commit { "COMMIT" } else { "ROLLBACK" })
}

/// What is prepared on any data server, by id, with the servers.
pub fn prepared(shards: &[&Instance]) -> Result<BTreeMap<Id, Vec<usize>>> {
    let mut all: BTreeMap<Id, Vec<usize>> = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        for id in held::recovered(&mut shard.connect(None)?)? {
            all.entry(id).or_default().push(number);
        }
    }
    Ok(all)
}

/// Spider's record of its transactions.
#[derive(Debug, Default)]
pub struct SpiderRecord {
    /// Status by id: NOT YET, PREPARED, COMMIT or ROLLBACK.
    pub status: BTreeMap<Id, String>,
}

impl SpiderRecord {
    /// Reads it.
    pub fn read(head: &mut Conn) -> Result<SpiderRecord> {
        let rows: Vec<(String, String)> = head.query("SELECT CAST(data AS CHAR), TRIM(status) FROM mysql.spider_xa")?;
        let id = |data: String| data.trim_end_matches(['\0', ' ']).to_string();
        Ok(SpiderRecord { status: rows.into_iter().map(|(data, status)| (id(data), status)).collect() })
    }

    /// What is to be committed.
    pub fn decided(&self) -> BTreeSet<Id> {
        self.status.iter().filter(|(_, status)| *status == "COMMIT").map(|(id, _)| id.clone()).collect()
    }

    /// Removes it, once no data server has anything in doubt.
    pub fn forget(head: &mut Conn) -> Result<()> {
        for table in ["spider_xa_member", "spider_xa", "spider_xa_failed_log"] {
            head.query_drop(format!("DELETE FROM mysql.{table}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_two_parts() {
        assert_eq!(statement(true, "12ab0000000000000f1", 18, 1), "XA COMMIT '12ab0000000000000f', '1', 1");
        assert_eq!(statement(false, "x", 1, 7), "XA ROLLBACK 'x', '', 7");
    }

    #[test]
    fn only_what_is_recorded_as_decided_is_committed() {
        let status = [("a", "NOT YET"), ("b", "PREPARED"), ("c", "COMMIT"), ("d", "ROLLBACK")];
        let record =
            SpiderRecord { status: status.iter().map(|(id, status)| (id.to_string(), status.to_string())).collect() };
        assert_eq!(record.decided(), BTreeSet::from(["c".to_string()]));
    }
}
