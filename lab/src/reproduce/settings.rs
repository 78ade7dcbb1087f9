//! The settings of an experiment at a scale.

use super::experiment::{Experiment, Scale};
use crate::options::Isolation;
use crate::redmine::Set;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::Deserialize;

/// What a workload is told. What an experiment does not set is 0 or empty, and what its workload needs is checked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// TPC-C.
    pub warehouses: u32,
    /// The same with a tenth of the specification's customers, items and orders each.
    pub small: bool,
    /// LinkBench.
    pub nodes: u64,
    /// Tables, and rows of each.
    pub tables: u32,
    pub rows: u64,
    /// Sessions, unless they are varied.
    pub sessions: u32,
    /// Sessions that load.
    pub loaders: u32,
    /// Seconds of the same load before those that are measured.
    pub warmup: u64,
    pub seconds: u64,
    /// How often the seconds are measured, one after the other.
    pub windows: u32,
    /// Seconds behind them in which all engines get requests at one rate (0: none): this share of what the baseline did in its last
    /// window. A sixth as many come before, unmeasured.
    pub paced_seconds: u64,
    pub paced_share: f64,
    /// Memory for each engine in MiB, unless it is varied.
    pub memory_mb: u64,
    /// The same as a share of the rows of the smallest data, where sizes are varied.
    pub memory_share: f64,
    /// Whether each measurement ends with a shutdown, a start, a kill under load, and a start.
    pub restarts: bool,
    /// Memory for the load in MiB; that of the measurement if 0.
    pub load_memory_mb: u64,
    /// As the lab's option `--isolation` has it.
    pub isolation: String,
    /// Options for every server; `{engine}` stands for the engine's name in its own options.
    pub options: Vec<String>,
    /// Distribution of row numbers, as sysbench has it.
    pub distribution: String,
    /// Redmine: data sets by name, members of a project, comments of an issue, and the file of the disk's load in MiB.
    pub sets: std::collections::BTreeMap<String, Set>,
    pub members: u64,
    pub comments: u64,
    pub disk_mb: u64,
    /// Statements that count of a transaction, by case.
    pub counted: std::collections::BTreeMap<String, f64>,
}

impl Settings {
    /// Those of a scale: what is to be scaled is divided by the factor, and at least 1. Of a table or list it is every number in it.
    pub fn of(experiment: &Experiment, scale: &Scale) -> Result<Settings> {
        let mut table = experiment.settings.clone();
        for name in &experiment.scaled {
            let Some(value) = table.get_mut(name) else { bail!("{name} is no setting") };
            divide(value, scale.factor).with_context(|| name.clone())?;
        }
        table.extend(scale.settings.clone());
        let settings: Settings = table.try_into().context("the settings")?;
        settings.isolation()?;
        ensure!(settings.seconds > 0, "no second is measured");
        let has_share = settings.paced_share > 0.0 && settings.paced_share < 1.0;
        ensure!(settings.paced_seconds == 0 || has_share, "paced_share is no share of a rate");
        Ok(settings)
    }

    /// The isolation level of all sessions.
    pub fn isolation(&self) -> Result<Isolation> {
        Isolation::from_str(&self.isolation, false)
            .map_err(|_| anyhow::anyhow!("there is no isolation level {:?}", self.isolation))
    }

    /// Seconds before those at one rate.
    pub fn paced_warmup(&self) -> u64 {
        self.paced_seconds.div_ceil(6)
    }

    /// Stretches that are measured.
    pub fn windows(&self) -> u32 {
        self.windows.max(1)
    }
}

fn divide(value: &mut toml::Value, factor: f64) -> Result<()> {
    match value {
        // Times and sizes are whole, and nothing becomes nothing.
        toml::Value::Integer(number) => *number = (*number as f64 / factor).round().max(1.0) as i64,
        toml::Value::Array(all) => all.iter_mut().try_for_each(|value| divide(value, factor))?,
        toml::Value::Table(all) => all.iter_mut().try_for_each(|(_, value)| divide(value, factor))?,
        other => bail!("a {} is no whole number", other.type_str()),
    }
    Ok(())
}
