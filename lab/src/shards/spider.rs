//! Transfers through a Spider server, whose internal XA coordinates the data servers, and the places where it is stopped.
//!
//! Spider has its record in `mysql.spider_xa`: a row NOT YET before it prepares, PREPARED afterwards, COMMIT before it commits, and no
//! row at last. So a lock on that table stops every session between two of these, and the statuses in it say where; and a global read
//! lock on one data server stops sessions that prepare or commit there, when others have done so already. Both are taken and given back
//! until a session stands where it is to be found.

use super::cluster::Cluster;
use super::in_doubt::SpiderRecord;
use super::own::said;
use super::transfers::{Bank, DATABASE, End, Transfer};
use crate::server::Instance;
use crate::side::wait_until;
use anyhow::Result;
use mysql::Conn;
use mysql::prelude::Queryable;
use std::time::{Duration, Instant};

/// Where a session of Spider is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It prepares on one data server, and has prepared on others or will.
    Preparing,
    /// Prepared on all, and not recorded.
    PreparedAll,
    /// Recorded as prepared.
    Recorded,
    /// Recorded as committed, and it commits on one data server.
    Committing,
    /// Committed on all, and the record is still there.
    CommittedAll,
}

impl Step {
    pub const ALL: [Step; 5] =
        [Step::Preparing, Step::PreparedAll, Step::Committing, Step::CommittedAll, Step::Recorded];

    pub fn words(self) -> &'static str {
        match self {
            Step::Preparing => "while one server prepares",
            Step::PreparedAll => "prepared on all",
            Step::Recorded => "recorded as prepared",
            Step::Committing => "while one server commits",
            Step::CommittedAll => "committed on all",
        }
    }
}

/// A writer's session with the Spider server.
pub struct Session {
    conn: Option<Conn>,
}

impl Session {
    pub fn new(head: &Instance) -> Result<Session> {
        Ok(Session { conn: Some(head.connect(Some(DATABASE))?) })
    }

    fn send(&mut self, statement: &str) -> Result<(), String> {
        let Some(conn) = &mut self.conn else { return Err("no session".into()) };
        conn.query_drop(statement).map_err(|error| {
            if !matches!(error, mysql::Error::MySqlError(_)) {
                self.conn = None;
            }
            said(&error)
        })
    }
}

impl Bank for Session {
    fn transfer(&mut self, transfer: &Transfer) -> Option<End> {
        let begun = self.send("BEGIN").and_then(|()| {
            transfer
                .legs
                .iter()
                .flat_map(|leg| transfer.statements(*leg))
                .try_for_each(|statement| self.send(&statement))
        });
        if let Err(said) = begun {
            // It may fail, too; the session's end does the same.
            if self.conn.is_some() && self.send("ROLLBACK").is_err() {
                self.conn = None;
            }
            return Some(End::RolledBack(said));
        }
        match self.send("COMMIT") {
            Ok(()) => Some(End::Committed),
            Err(said) => Some(End::Unknown(said)),
        }
    }

    fn goes_on(&self) -> bool {
        self.conn.is_some()
    }
}

/// What keeps sessions where they are, until it is dropped, or its server ends.
pub struct Stop {
    conn: Conn,
}

impl Stop {
    /// Stops sessions so that one of them is at the step; `shard` is the data server that is looked at for it.
    pub fn at(cluster: &Cluster, step: Step, shard: usize, writers: u32) -> Result<Stop> {
        let head = cluster.head()?;
        let mut watch = head.connect(None)?;
        let mut conn = match step {
            Step::Preparing | Step::Committing => cluster.shard(shard).connect(None)?,
            _ => head.connect(None)?,
        };
        let mut look = cluster.shard(shard).connect(None)?;
        wait_until(&format!("a session is found {}", step.words()), || {
            let found = match step {
                Step::Preparing | Step::Committing => {
                    conn.query_drop("FLUSH TABLES WITH READ LOCK")?;
                    let verb = if step == Step::Preparing { "prepare" } else { "commit" };
                    let query = format!(
                        "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'xa {verb} %'
                         AND state LIKE 'Waiting for backup lock%'"
                    );
                    found(&mut || Ok(look.query_first::<u64, _>(&query)?.unwrap_or(0) > 0))?
                }
                _ => {
                    conn.query_drop("LOCK TABLES mysql.spider_xa WRITE, mysql.spider_xa_member READ")?;
                    all_wait(&mut watch, writers)?;
                    at_record(&mut conn, cluster, step)?
                }
            };
            if !found {
                conn.query_drop("UNLOCK TABLES")?;
            }
            Ok(found)
        })?;
        Ok(Stop { conn })
    }

    /// Lets the sessions go on, where the server that kept them is still there.
    pub fn lift(mut self) {
        let _ = self.conn.query_drop("UNLOCK TABLES");
    }
}

/// Whether it comes to be so in the time that a session takes to come to its next step.
fn found(so: &mut dyn FnMut() -> Result<bool>) -> Result<bool> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(50) {
        if so()? {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// All writers wait for the record's table, or for a row that such a writer has locked.
fn all_wait(watch: &mut Conn, writers: u32) -> Result<()> {
    let query = "SELECT COUNT(*) FROM information_schema.processlist
                 WHERE state LIKE 'Waiting for table metadata lock%' AND info NOT LIKE 'LOCK TABLES%'";
    let began = Instant::now();
    while watch.query_first::<u64, _>(query)?.unwrap_or(0) < u64::from(writers)
        && began.elapsed() < Duration::from_millis(100)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Whether a transaction is at the step, by its status and by what the data servers have prepared.
fn at_record(conn: &mut Conn, cluster: &Cluster, step: Step) -> Result<bool> {
    let record = SpiderRecord::read(conn)?;
    if record.status.is_empty() {
        return Ok(false);
    }
    let prepared = super::in_doubt::prepared(&cluster.shards())?;
    let members: Vec<(String, u64)> =
        conn.query("SELECT CAST(data AS CHAR), COUNT(*) FROM mysql.spider_xa_member GROUP BY data")?;
    let of =
        |id: &str| members.iter().find(|(data, _)| data.trim_end_matches(['\0', ' ']) == id).map_or(0, |row| row.1);
    Ok(record.status.iter().any(|(id, status)| {
        let (have, all) = (prepared.get(id).map_or(0, Vec::len) as u64, of(id));
        match step {
            Step::PreparedAll => status == "NOT YET" && all > 0 && have == all,
            Step::Recorded => status == "PREPARED",
            Step::CommittedAll => status == "COMMIT" && have == 0,
            Step::Preparing | Step::Committing => false,
        }
    }))
}
