//! The variables of a server that a run keeps: those that differ from their defaults, and those that decide when a commit is on the disk.
//!
//! The server itself says them (`information_schema.SYSTEM_VARIABLES`, the values of `SHOW GLOBAL VARIABLES` with their defaults), so that
//! a report states what was in force and not what an option file asked for.

use crate::engine::Kind;
use crate::server::Server;
use anyhow::{Context, Result};
use mysql::prelude::Queryable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Variables by name, each with its global value and its default; the default is empty where the server knows none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variables(BTreeMap<String, (String, String)>);

impl Variables {
    /// Asks a running server.
    pub fn read(server: &Server) -> Result<Variables> {
        let always: Vec<String> =
            server.instance().kind().durability_variables().iter().map(|name| format!("'{name}'")).collect();
        let rows: Vec<(String, String, Option<String>)> = server
            .connect(None)?
            .query(format!(
                "SELECT LOWER(VARIABLE_NAME), GLOBAL_VALUE, DEFAULT_VALUE FROM information_schema.SYSTEM_VARIABLES \
                 WHERE GLOBAL_VALUE IS NOT NULL \
                 AND (NOT GLOBAL_VALUE <=> DEFAULT_VALUE OR LOWER(VARIABLE_NAME) IN ({}))",
                always.join(",")
            ))
            .context("the server does not say its variables")?;
        Ok(Variables(
            rows.into_iter().map(|(name, value, default)| (name, (value, default.unwrap_or_default()))).collect(),
        ))
    }

    /// Whether nothing was kept: so it is in files stored before variables were.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A variable's value, if it was kept.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|(value, _)| value.as_str())
    }

    /// Names with values and defaults of those that differ.
    pub fn differing(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let all = self.0.iter().map(|(name, (value, default))| (name.as_str(), value.as_str(), default.as_str()));
        all.filter(|(_, value, default)| value != default)
    }

    /// When a commit is on the disk, in the server's words: `sync_binlog 1, ...`; none if that was not kept.
    pub fn durability(&self, kind: Kind) -> Option<String> {
        let words = kind.durability_variables().iter().filter_map(|name| Some(format!("{name} {}", self.value(name)?)));
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// For tests.
    #[cfg(test)]
    pub fn of(all: &[(&str, &str, &str)]) -> Variables {
        let owned = |&(name, value, default): &(&str, &str, &str)| (name.into(), (value.into(), default.into()));
        Variables(all.iter().map(owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_in_the_words_of_the_server() {
        let variables =
            Variables::of(&[("sync_binlog", "0", "0"), ("strata_flush_log_at_trx_commit", "2", "1"), ("a", "1", "2")]);
        assert_eq!(variables.durability(Kind::Strata).unwrap(), "sync_binlog 0, strata_flush_log_at_trx_commit 2");
        assert_eq!(
            variables.differing().map(|(name, ..)| name).collect::<Vec<_>>(),
            ["a", "strata_flush_log_at_trx_commit"]
        );
        assert_eq!(Variables::default().durability(Kind::Strata), None);
    }

    #[test]
    fn they_survive_the_file() {
        let variables = Variables::of(&[("a", "1", "2")]);
        let text = serde_json::to_string(&variables).unwrap();
        assert_eq!(text, r#"{"a":["1","2"]}"#);
        assert_eq!(serde_json::from_str::<Variables>(&text).unwrap(), variables);
    }
}
