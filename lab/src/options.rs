//! Command line options that several commands share.

use crate::encryption;
use crate::engine::{Conditions, Kind};
use crate::paths;
use crate::server::Instance;
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The order in which so many engines are measured in a round, of which the first is 1: each round begins with another one.
pub fn turns(engines: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..engines).map(move |n| (n + round as usize - 1) % engines)
}

/// Where the lab works.
#[derive(Args, Clone, Debug, Default)]
pub struct Site {
    /// Folder for the private servers and results [default: run/lab in the checkout]
    #[arg(long, env = "STRATA_LAB_DIR")]
    pub dir: Option<PathBuf>,
}

impl Site {
    /// The lab's folder, made if need be.
    pub fn folder(&self) -> Result<PathBuf> {
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            None => paths::checkout()?.join("run/lab"),
        };
        std::fs::create_dir_all(&dir)?;
        Ok(dir.canonicalize()?)
    }
}

/// A seed for who names none.
pub fn seed_of_now() -> u64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64 % 1_000_000)
}

/// Isolation level of all sessions.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// The server's default; RocksDB gets READ COMMITTED all the same, see docs/results/method.md
    RepeatableRead,
    /// The same for all engines
    ReadCommitted,
    /// The weakest; Strata treats it as READ COMMITTED
    ReadUncommitted,
    /// The strongest: reads lock
    Serializable,
}

impl Isolation {
    /// As `transaction_isolation` has it.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::RepeatableRead => "REPEATABLE-READ",
            Isolation::ReadCommitted => "READ-COMMITTED",
            Isolation::ReadUncommitted => "READ-UNCOMMITTED",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }
}

/// What is compared, and under which conditions.
#[derive(Args, Clone, Debug)]
pub struct Comparison {
    /// Engines, in the order of the report
    #[arg(long, value_delimiter = ',', default_value = "innodb,rocksdb,strata")]
    pub engines: Vec<Kind>,
    /// How often everything is repeated; engines alternate, medians are reported
    #[arg(long, default_value_t = 1)]
    pub rounds: u32,
    /// Isolation level
    #[arg(long, value_enum, default_value = "repeatable-read")]
    pub isolation: Isolation,
    /// Further options for every server, as they stand in a server's option file
    #[arg(long = "server-option", value_name = "NAME=VALUE")]
    pub server_options: Vec<String>,
    /// Further options for Strata's server only
    #[arg(long = "strata-option", value_name = "NAME=VALUE")]
    pub strata_options: Vec<String>,
    /// Each engine encrypts its tables and its log (RocksDB cannot)
    #[arg(long)]
    pub encrypted: bool,
    #[command(flatten)]
    pub site: Site,
}

impl Comparison {
    /// The conditions for all, each engine with this memory.
    pub fn conditions(&self, budget_mb: u64) -> Conditions {
        let conditions = Conditions {
            budget_mb,
            isolation: self.isolation,
            extra: self.server_options.clone(),
            strata_extra: self.strata_options.clone(),
        };
        if self.encrypted { encryption::switched_on(&conditions) } else { conditions }
    }

    /// A server's folder for each engine.
    pub fn instances(&self, lab: &Path) -> Result<Vec<Instance>> {
        if self.encrypted {
            self.engines.iter().try_for_each(|&kind| encryption::options(kind).map(drop))?;
        }
        self.engines.iter().map(|&kind| Instance::new(lab, kind)).collect()
    }
}

/// A default as text. Not `default_value_t`: what that makes is one static for all values of a generic parameter, so that the command
/// which is declared first would set the default of all.
fn default_text(number: u64) -> &'static str {
    // A few bytes for each command, once.
    number.to_string().leak()
}

/// What is compared, each engine with so many MiB of memory unless told otherwise.
#[derive(Args, Clone, Debug)]
pub struct Budgeted<const MB: u64> {
    #[command(flatten)]
    pub comparison: Comparison,
    /// Memory for each engine, in MiB
    #[arg(long, default_value = default_text(MB))]
    pub cache_mb: u64,
}

impl<const MB: u64> Budgeted<MB> {
    /// The conditions for all.
    pub fn conditions(&self) -> Conditions {
        self.comparison.conditions(self.cache_mb)
    }
}

/// The same of commands that fill a table with millions of rows.
#[derive(Args, Clone, Debug)]
pub struct Rows<const MB: u64> {
    #[command(flatten)]
    pub given: Budgeted<MB>,
    /// Rows of a table, or that go through it
    #[arg(long, default_value_t = 10_000_000)]
    pub rows: u64,
}

/// Options of trials that end servers under load.
#[derive(Args, Clone, Debug)]
pub struct Trial {
    /// How often to end the server
    #[arg(long, default_value_t = 2)]
    pub rounds: u32,
    /// The engine
    #[arg(long, default_value = "strata")]
    pub engine: Kind,
    /// Sessions of each load
    #[arg(long, default_value_t = 4)]
    pub threads: u32,
    /// Memory for the engine, in MiB; little, so that flushes and merges are under way
    #[arg(long, default_value_t = 32)]
    pub cache_mb: u64,
    /// Seed of moments and inputs [default: from the clock]
    #[arg(long)]
    pub seed: Option<u64>,
    /// All of the engine is encrypted: tables and log
    #[arg(long)]
    pub encrypted: bool,
    #[command(flatten)]
    pub site: Site,
}

impl Trial {
    /// Options of its servers.
    pub fn server_options(&self) -> Result<Vec<String>> {
        if self.encrypted { encryption::options(self.engine) } else { Ok(Vec::new()) }
    }

    /// Begins it with a line that says so: its seed, a generator of that, and the folder of this name.
    pub fn begin(&self, name: &str, what: &str) -> Result<(u64, SmallRng, PathBuf)> {
        let seed = self.seed.unwrap_or_else(seed_of_now);
        println!("{}: {} rounds of {what}, seed {seed}", self.engine.title(), self.rounds);
        Ok((seed, SmallRng::seed_from_u64(seed), self.site.folder()?.join(name)))
    }
}

/// Options of trials of a tool.
#[derive(Args, Clone, Debug)]
pub struct ToolTrial {
    #[command(flatten)]
    pub trial: Trial,
    /// The tool [default: the one beside this program]
    #[arg(long)]
    tool: Option<PathBuf>,
}

impl ToolTrial {
    /// The tool: the program that was given, else that of this name.
    pub fn tool(&self, name: &str) -> Result<PathBuf> {
        let path = match &self.tool {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name(name),
        };
        ensure!(path.is_file(), "there is no {}; 'cargo build --release -p {name}' makes it", path.display());
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Of<const MB: u64> {
        #[command(flatten)]
        given: Budgeted<MB>,
    }

    #[test]
    fn each_round_begins_with_another_engine() {
        let order = |round| turns(3, round).collect::<Vec<_>>();
        assert_eq!([order(1), order(2), order(3)], [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
        assert_eq!(order(4), order(1));
    }

    #[test]
    fn each_command_has_the_memory_of_its_own_declaration() {
        assert_eq!(Of::<512>::parse_from(["first"]).given.cache_mb, 512);
        assert_eq!(Of::<128>::parse_from(["second"]).given.cache_mb, 128);
        assert_eq!(Of::<128>::parse_from(["second", "--cache-mb", "7"]).given.cache_mb, 7);
    }
}
