//! The tables of sysbench's scripts: loaded once for each engine and saved, so that each measurement begins with the same data.

use crate::engine::Conditions;
use crate::meter::settle;
use crate::options::Budgeted;
use crate::server::{Instance, Server};
use crate::sysbench::{self, Size};
use anyhow::Result;
use mysql::prelude::Queryable;
use std::path::Path;

/// Options for the tables.
#[derive(clap::Args, Clone, Debug)]
pub struct TableArgs<const MB: u64> {
    #[command(flatten)]
    pub given: Budgeted<MB>,
    /// Tables
    #[arg(long, default_value_t = 2)]
    tables: u32,
    /// Rows in each table
    #[arg(long, default_value_t = 500_000)]
    rows: u64,
    /// Use tables that an earlier call with the same size left, and leave them again
    #[arg(long)]
    reuse: bool,
}

/// Tables that are loaded, for all engines of a comparison.
pub struct Tables {
    /// A folder for each engine's server.
    pub instances: Vec<Instance>,
    /// Under which the servers run.
    pub conditions: Conditions,
    /// Of the tables.
    pub size: Size,
    /// Name of the saved data.
    saved: String,
    reuse: bool,
}

impl<const MB: u64> TableArgs<MB> {
    /// Loads the tables for each engine and saves them; what an earlier call saved may do. The servers have room for so many
    /// sessions at once.
    pub fn load(&self, lab: &Path, sessions: u32) -> Result<Tables> {
        let tables = Tables {
            instances: self.given.comparison.instances(lab)?,
            conditions: self.given.conditions().for_sessions(sessions),
            size: Size { tables: self.tables, rows: self.rows },
            saved: format!(
                "sbtest-{}-{}{}",
                self.tables,
                self.rows,
                if self.given.comparison.encrypted { "-encrypted" } else { "" }
            ),
            reuse: self.reuse,
        };
        let for_load = tables.conditions.for_load();
        for instance in &tables.instances {
            if self.reuse && instance.has_saved(&tables.saved) {
                println!("{}: using the tables of an earlier call", instance.kind().title());
                continue;
            }
            instance.reset()?;
            let server = instance.start(&for_load)?;
            fill(instance, tables.size)?;
            settle(server.pid())?;
            server.stop()?;
            instance.save(&tables.saved)?;
        }
        Ok(tables)
    }
}

impl Tables {
    /// A server with the saved data, read once.
    pub fn server(&self, instance: &Instance) -> Result<Server> {
        instance.restore(&self.saved)?;
        let server = instance.start(&self.conditions)?;
        warm(&server, self.size)?;
        settle(server.pid())?;
        Ok(server)
    }

    /// Forgets the saved data, unless the next call is to use them.
    pub fn end(self) -> Result<()> {
        if self.reuse { Ok(()) } else { self.instances.iter().try_for_each(|instance| instance.forget(&self.saved)) }
    }
}

/// Creates and fills the tables, and says how long it took.
pub fn fill(instance: &Instance, size: Size) -> Result<()> {
    let began = std::time::Instant::now();
    let mut conn = instance.connect(None)?;
    conn.query_drop(format!("DROP DATABASE IF EXISTS {}", sysbench::DATABASE))?;
    sysbench::prepare(instance, size)?;
    conn.query_drop(format!("USE {}", sysbench::DATABASE))?;
    for table in 1..=size.tables {
        conn.query_drop(format!("ANALYZE TABLE sbtest{table}"))?;
    }
    println!(
        "{}: {} x {} rows loaded in {:.1} s",
        instance.kind().title(),
        size.tables,
        size.rows,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Reads all tables and their indexes once.
pub fn warm(server: &Server, size: Size) -> Result<()> {
    let mut conn = server.connect(Some(sysbench::DATABASE))?;
    for table in 1..=size.tables {
        conn.query_drop(format!("SELECT SUM(LENGTH(c)) FROM sbtest{table} FORCE INDEX (PRIMARY)"))?;
        conn.query_drop(format!("SELECT SUM(k) FROM sbtest{table} FORCE INDEX (k_{table})"))?;
    }
    Ok(())
}
