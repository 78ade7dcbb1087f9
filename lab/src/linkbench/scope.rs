//! What the lab's driver and the published one are both told.

use crate::engine::{Conditions, Kind};
use clap::ValueEnum;
use std::collections::BTreeMap;

/// Sizes of a run.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Scope {
    /// Nodes of the graph, each with 4.4 links on average (InnoDB: about 1 GB a million)
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..=4_000_000_000))]
    pub nodes: u64,
    /// Requesters, each with a session that reads and one that writes
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=150))]
    pub requesters: u32,
    /// Loaders of links and counts; one more inserts the nodes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub load_threads: u32,
    /// When a commit is on the disk
    #[arg(long, value_enum, default_value = "commit")]
    pub durability: Durability,
}

/// When a commit is on the disk.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before it is acknowledged: engine's log and binary log are synced
    Commit,
    /// Within a second or so: both are written, the engine's log is synced each second, as in the published comparison
    Second,
}

impl Durability {
    /// The same conditions with this durability.
    pub fn apply(self, kind: Kind, conditions: &Conditions) -> Conditions {
        let mut conditions = conditions.clone();
        if self == Durability::Second {
            conditions.extra.push("sync_binlog=0".into());
            conditions.extra.push(format!("{}_flush_log_at_trx_commit=2", kind.id()));
        }
        conditions
    }
}

impl Scope {
    /// Most sessions at once.
    pub fn sessions(&self) -> u32 {
        (2 * self.requesters).max(self.load_threads + 1)
    }

    /// As a run's settings have it.
    pub fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("nodes".into(), self.nodes.to_string()),
            ("requesters".into(), self.requesters.to_string()),
            ("loaders".into(), format!("{} and one of nodes", self.load_threads)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Isolation;

    #[test]
    fn durability_is_that_of_the_engine() {
        let conditions = Conditions {
            budget_mb: 64,
            isolation: Isolation::ReadCommitted,
            extra: vec!["a=1".into()],
            strata_extra: vec![],
        };
        assert_eq!(Durability::Commit.apply(Kind::Strata, &conditions).extra, ["a=1"]);
        for kind in [Kind::Innodb, Kind::Rocksdb, Kind::Strata] {
            let extra = Durability::Second.apply(kind, &conditions).extra;
            // The names are those that the lab reads back from the server, which it leaves out when they are set here.
            for option in &extra[1..] {
                let name = option.split('=').next().unwrap_or_default();
                assert!(kind.must_have(&conditions).iter().any(|(known, _)| known == name), "{name}");
            }
        }
    }
}
