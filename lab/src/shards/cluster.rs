//! Data servers, and the Spider server before them: folders, ports, options, accounts, definitions.
//!
//! A data server has no binary log: an XA transaction and the binary log are not made durable in one step by MariaDB 10.11, with any
//! engine (`docs/develop/crash-matrix.md`). Nor has the Spider server one; it would be a second participant of each transaction.

use super::transfers;
use crate::engine::{Conditions, Kind};
use crate::options::Trial;
use crate::paths;
use crate::server::{Instance, Server};
use crate::side::{PATIENCE, Side, wait_until};
use anyhow::{Context, Result};
use mysql::Conn;
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use std::path::Path;

/// The account of Spider, and of the lab's coordinator, on the data servers.
pub const USER: &str = "spider";
/// Seconds that a data server lets a row lock be waited for: what is in doubt keeps its locks until somebody decides.
const LOCK_WAIT: u32 = 1;
/// The Spider server's options. An id of a transaction must not come again while one with that id is in doubt, so it has the number of
/// the query in it; and a data server that knows nothing of a transaction must fail its commit, not be passed over.
const HEAD: [&str; 6] = [
    "plugin-load-add=ha_spider",
    "spider_internal_xa=1",
    "spider_support_xa=1",
    "spider_internal_xa_id_type=1",
    "spider_force_commit=0",
    "skip-log-bin",
];

/// Whether the server's packages with Spider are installed.
pub fn has_spider() -> bool {
    paths::server_plugins().join("ha_spider.so").is_file()
}

/// All servers.
pub struct Cluster {
    shards: Vec<Side>,
    head: Option<Side>,
    servers: Vec<Server>,
    head_server: Option<Server>,
    cache_mb: u64,
    engine: Kind,
    options: Vec<String>,
}

impl Cluster {
    /// Empty data servers, and with `spider` one before them. Nothing runs.
    pub fn new(folder: &Path, trial: &Trial, shards: u32, spider: bool, rng: &mut SmallRng) -> Result<Cluster> {
        let mut side = |number: u32, name: String, engine| Side::new(&folder.join(name), engine, number, rng);
        let cluster = Cluster {
            shards: (0..shards)
                .map(|number| side(10 + number, format!("shard{number}"), trial.engine))
                .collect::<Result<_>>()?,
            head: if spider { Some(side(1, "head".into(), Kind::Innodb)?) } else { None },
            servers: Vec::new(),
            head_server: None,
            cache_mb: trial.cache_mb,
            engine: trial.engine,
            options: trial.server_options()?,
        };
        for side in cluster.shards.iter().chain(&cluster.head) {
            side.instance.reset()?;
        }
        Ok(cluster)
    }

    /// Starts all of them, and makes accounts and the names under which the Spider server knows the others.
    pub fn start(&mut self) -> Result<()> {
        for number in 0..self.shards.len() {
            self.servers.push(self.shards[number].instance.launch(&self.shard_conditions(number))?);
        }
        for (server, side) in self.servers.iter_mut().zip(&self.shards) {
            server.wait_ready(PATIENCE)?;
            let mut conn = side.connect()?;
            conn.query_drop(format!("CREATE USER {USER}@'127.0.0.%' IDENTIFIED BY '{USER}'"))?;
            conn.query_drop(format!("GRANT ALL ON *.* TO {USER}@'127.0.0.%'"))?;
        }
        self.start_head()?;
        if let Some(head) = &self.head {
            let mut conn = head.connect()?;
            for (number, side) in self.shards.iter().enumerate() {
                conn.query_drop(format!(
                    "CREATE SERVER shard{number} FOREIGN DATA WRAPPER mysql
                     OPTIONS (HOST '{}', PORT {}, USER '{USER}', PASSWORD '{USER}')",
                    address(number),
                    side.port()
                ))?;
            }
        }
        Ok(())
    }

    /// Makes tables on each data server, and as many of Spider whose parts they are: by definitions without an engine and the column
    /// that says where a row is.
    pub fn create<'a>(
        &self,
        database: &str,
        tables: impl IntoIterator<Item = (&'a str, &'a str, &'a str)> + Clone,
    ) -> Result<()> {
        for side in &self.shards {
            let mut conn = side.instance.fresh_database(database)?;
            for (_, _, definition) in tables.clone() {
                let engine = side.instance.engine_clause();
                conn.query_drop(format!("{definition} ENGINE={engine}")).with_context(|| definition.to_string())?;
            }
        }
        let Some(head) = &self.head else { return Ok(()) };
        let mut conn = head.instance.fresh_database(database)?;
        for (name, column, definition) in tables {
            let statement = sharded(database, name, column, definition, self.shards.len());
            conn.query_drop(&statement).with_context(|| format!("this statement failed: {statement}"))?;
        }
        Ok(())
    }

    /// The tables of [`transfers`], with all accounts.
    pub fn create_bank(&self) -> Result<()> {
        self.create(transfers::DATABASE, transfers::TABLES)?;
        for (number, side) in self.shards.iter().enumerate() {
            let mine = (0..transfers::ACCOUNTS).filter(|account| *account as usize % self.shards.len() == number);
            let rows: Vec<String> = mine.map(|account| format!("({account}, 0)")).collect();
            side.connect()?.query_drop(format!(
                "INSERT INTO {}.account VALUES {}",
                transfers::DATABASE,
                rows.join(", ")
            ))?;
        }
        Ok(())
    }

    pub fn count(&self) -> usize {
        self.shards.len()
    }

    /// The folder of a data server.
    pub fn shard(&self, number: usize) -> &Instance {
        &self.shards[number].instance
    }

    pub fn shards(&self) -> Vec<&Instance> {
        self.shards.iter().map(|side| &side.instance).collect()
    }

    /// A data server that runs.
    pub fn server(&mut self, number: usize) -> &mut Server {
        &mut self.servers[number]
    }

    /// The folder of the Spider server.
    pub fn head(&self) -> Result<&Instance> {
        Ok(&self.head.as_ref().context("there is no Spider server")?.instance)
    }

    /// The Spider server.
    pub fn head_server(&mut self) -> Result<&mut Server> {
        self.head_server.as_mut().context("no Spider server runs")
    }

    /// Starts the Spider server, if there is to be one.
    pub fn start_head(&mut self) -> Result<()> {
        if let Some(head) = &self.head {
            let options = HEAD.iter().map(|option| option.to_string()).collect();
            let mut server = head.instance.launch(&head.conditions(self.cache_mb.max(64), options))?;
            server.wait_ready(PATIENCE).context("the Spider server")?;
            self.head_server = Some(server);
        }
        Ok(())
    }

    /// Starts a data server again, one that ends itself at a step if one is named.
    pub fn start_shard(&mut self, number: usize, crash_at: Option<&str>) -> Result<()> {
        let conditions = self.shard_conditions(number);
        self.servers[number] = self.shards[number].instance.launch_to_crash(&conditions, crash_at)?;
        self.servers[number].wait_ready(PATIENCE).with_context(|| format!("data server {number}"))
    }

    /// Stops everything in an orderly way.
    pub fn stop(mut self, check: impl Fn(&mut Server) -> Result<()>) -> Result<()> {
        if let Some(mut head) = self.head_server.take() {
            head.shut_down()?;
        }
        for server in &mut self.servers {
            check(server)?;
            server.shut_down()?;
        }
        Ok(())
    }

    /// Where the logs of the servers are.
    pub fn logs(&self) -> String {
        let logs = self.shards.iter().chain(&self.head).map(|side| side.instance.log().display().to_string());
        logs.collect::<Vec<_>>().join(", ")
    }

    fn shard_conditions(&self, number: usize) -> Conditions {
        let lock_wait = match self.engine {
            Kind::Innodb => "innodb_lock_wait_timeout",
            Kind::Strata => "strata_lock_wait_timeout",
            Kind::Rocksdb => "rocksdb_lock_wait_timeout",
        };
        let mut options = vec![
            "skip-log-bin".to_string(),
            format!("{lock_wait}={LOCK_WAIT}"),
            format!("bind-address={}", address(number)),
        ];
        options.extend(self.options.clone());
        self.shards[number].conditions(self.cache_mb, options)
    }
}

/// Where a data server listens. Spider's record of a transaction tells its servers apart by their hosts, not by their ports.
fn address(shard: usize) -> String {
    format!("127.0.0.{}", 10 + shard)
}

/// Waits until no session but this one is left: what a session that ends leaves behind is there then.
pub fn wait_alone(conn: &mut Conn, what: &str) -> Result<()> {
    wait_without(conn, what, "TRUE")
}

/// Waits until no other session executes a statement.
pub fn wait_idle(conn: &mut Conn, what: &str) -> Result<()> {
    wait_without(conn, what, "command <> 'Sleep'")
}

fn wait_without(conn: &mut Conn, what: &str, other: &str) -> Result<()> {
    let query = format!(
        "SELECT COUNT(*) FROM information_schema.processlist
         WHERE id <> CONNECTION_ID() AND command <> 'Daemon' AND user NOT IN ('system user', '') AND {other}"
    );
    wait_until(&format!("{what} has no other sessions"), || Ok(conn.query_first(&query)? == Some(0u64)))
}

/// A table of Spider whose rows are on `shards` servers, by a column of whole numbers.
pub fn sharded(database: &str, name: &str, column: &str, definition: &str, shards: usize) -> String {
    let parts: Vec<String> =
        (0..shards).map(|number| format!("PARTITION p{number} COMMENT = 'srv \"shard{number}\"'")).collect();
    format!(
        "{definition} ENGINE=SPIDER COMMENT='wrapper \"mysql\", database \"{database}\", table \"{name}\"'
         PARTITION BY HASH ({column}) ({})",
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sharded_table_names_its_servers() {
        assert_eq!(
            sharded("bank", "account", "id", "CREATE TABLE account (id INT PRIMARY KEY)", 2),
            "CREATE TABLE account (id INT PRIMARY KEY) ENGINE=SPIDER \
             COMMENT='wrapper \"mysql\", database \"bank\", table \"account\"'
         PARTITION BY HASH (id) (PARTITION p0 COMMENT = 'srv \"shard0\"', PARTITION p1 COMMENT = 'srv \"shard1\"')"
        );
    }
}
