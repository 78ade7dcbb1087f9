//! A server that replicates, or is replicated: what the commands `replica`, `backup`, `failover` and `spider` have in common.

use crate::engine::{Conditions, Kind};
use crate::options::Isolation;
use crate::server::Instance;
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;
use mysql::{Conn, Row};
use rand::RngExt;
use rand::rngs::SmallRng;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a server may take to be ready, and a replica to catch up.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// One server of several.
pub struct Side {
    pub instance: Instance,
    port: u16,
    number: u32,
}

impl Side {
    /// Servers of several sides differ in their numbers.
    pub fn new(folder: &Path, engine: Kind, number: u32, rng: &mut SmallRng) -> Result<Side> {
        Ok(Side { instance: Instance::new(folder, engine)?, port: free_port(rng)?, number })
    }

    /// With `further` options of the server.
    pub fn conditions(&self, budget_mb: u64, further: Vec<String>) -> Conditions {
        let mut extra = at_port(self.port).to_vec();
        extra.extend([format!("server-id={}", self.number), "gtid-strict-mode=1".into()]);
        extra.extend(further);
        Conditions { budget_mb, isolation: Isolation::RepeatableRead, extra, strata_extra: vec![] }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn connect(&self) -> Result<Conn> {
        Ok(self.instance.connect(None)?)
    }

    /// From now on others may [`follow`](Side::follow).
    pub fn lead(&self) -> Result<()> {
        let mut conn = self.connect()?;
        conn.query_drop("CREATE USER replica@'127.0.0.1' IDENTIFIED BY 'replica'")?;
        Ok(conn.query_drop("GRANT REPLICATION SLAVE ON *.* TO replica@'127.0.0.1'")?)
    }

    /// Makes the server that `conn` leads to a replica of this one, and starts it.
    pub fn follow(&self, conn: &mut Conn) -> Result<()> {
        conn.query_drop(format!(
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = {}, master_user = 'replica',
             master_password = 'replica', master_connect_retry = 1, master_use_gtid = slave_pos",
            self.port
        ))?;
        Ok(conn.query_drop("START SLAVE")?)
    }
}

/// Options of a server that others reach at a port of this machine.
pub fn at_port(port: u16) -> [String; 3] {
    ["skip-networking=0".into(), "bind-address=127.0.0.1".into(), format!("port={port}")]
}

/// A port below those that the kernel gives to clients: nobody takes it while the server is down.
pub fn free_port(rng: &mut SmallRng) -> Result<u16> {
    (0..100)
        .map(|_| rng.random_range(20_000..30_000u16))
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .context("no port is free")
}

/// Asks until it is so.
pub fn wait_until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !so()? {
        ensure!(began.elapsed() < PATIENCE, "not after {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Waits until the replica has everything of the source. Meanwhile `look` is shown each column of `SHOW SLAVE STATUS` by its name.
pub fn catch_up(
    source: &mut Conn,
    replica: &mut Conn,
    mut look: impl FnMut(&mut Conn, &dyn Fn(&str) -> String) -> Result<()>,
) -> Result<()> {
    let last: String = source.query_first("SELECT @@GLOBAL.gtid_binlog_pos")?.context("no position")?;
    let began = Instant::now();
    loop {
        let reached: Option<i64> = replica.exec_first("SELECT MASTER_GTID_WAIT(?, 1)", (&last,))?;
        if reached == Some(0) {
            return Ok(());
        }
        let status: Row = replica.query_first("SHOW SLAVE STATUS")?.context("it is no replica")?;
        let text = |name: &str| status.get::<String, _>(name).unwrap_or_default();
        look(replica, &text)?;
        if began.elapsed() > PATIENCE {
            let threads: Vec<(String, Option<String>)> = replica.query(
                "SELECT COALESCE(state, ''), info FROM information_schema.processlist WHERE command LIKE 'Slave%'",
            )?;
            bail!("the replica is not at {last}, but at {}; {threads:?}", text("Gtid_Slave_Pos"));
        }
    }
}
