//! A control group that gives the server less memory than the machine has: budgets follow it, and the server lives within it.

use super::Case;
use super::bench::Bench;
use crate::memory_group::MemoryGroup;
use anyhow::{Context, Result, ensure};
use mysql::prelude::Queryable;

pub const ALL: [Case; 1] = [("memory: a control group's limit", limited)];

/// What the group may have, in MiB: a fraction of any machine's memory.
const LIMIT_MB: u64 = 400;
/// Rows of some 4 KB that do not compress, in all some 200 MB.
const ROWS: u64 = 48_000;
/// What a budget may differ by, in bytes: groups round to pages.
const ROUNDED: u64 = 64 << 10;

fn limited(bench: &mut Bench) -> Result<String> {
    bench.restore()?;
    let group = MemoryGroup::new(&format!("strata-lab-{}", std::process::id()), LIMIT_MB << 20)?;
    let outcome = within(bench, &group);
    bench.kill()?;
    outcome
}

fn within(bench: &mut Bench, group: &MemoryGroup) -> Result<String> {
    bench.start_in(group, &["strata_block_cache_size=0", "strata_memtable_budget=0"])?;
    let mut conn = bench.connect()?;
    let mut figure = |name: &str| -> Result<u64> {
        let row: Option<(String, u64)> = conn.query_first(format!("SHOW GLOBAL STATUS LIKE 'Strata_{name}'"))?;
        row.map(|(_, value)| value).with_context(|| format!("there is no status Strata_{name}"))
    };
    let (cache, memtables) = (figure("budget_block_cache_bytes")?, figure("budget_memtable_bytes")?);
    for (what, bytes, expected) in [("block cache", cache, LIMIT_MB / 4), ("memtables", memtables, LIMIT_MB / 16)] {
        ensure!(bytes.abs_diff(expected << 20) <= ROUNDED, "{what}: {bytes} bytes of a group of {LIMIT_MB} MiB");
    }
    let said = bench.said();
    let file = group.limit().display().to_string();
    ensure!(said.contains(&file), "the start does not name {file}:\n{said}");

    // More data than memory, in one transaction, in an index, in scans.
    let mut conn = bench.connect()?;
    conn.query_drop("CREATE TABLE g (id INT PRIMARY KEY, k INT NOT NULL, v VARBINARY(5000) NOT NULL) ENGINE=STRATA")?;
    conn.query_drop(format!(
        "INSERT INTO g SELECT seq, seq * 7919 % 1000003, CONCAT(RANDOM_BYTES(1024), RANDOM_BYTES(1024), \
         RANDOM_BYTES(1024), RANDOM_BYTES(1024)) FROM seq_1_to_{ROWS}"
    ))?;
    conn.query_drop("ALTER TABLE g ADD INDEX (k, v(20))")?;
    conn.query_drop("UPDATE g SET k = k + 1")?;
    conn.query_drop("OPTIMIZE TABLE g")?;
    for _ in 0..2 {
        let found: Option<(u64, u64)> = conn.query_first("SELECT COUNT(*), SUM(LENGTH(v)) FROM g")?;
        ensure!(found == Some((ROWS, ROWS * 4096)), "the table reads as {found:?}");
    }
    bench.alive().context("the server did not live within its group")?;
    let memory: Option<(String, u64)> = conn.query_first("SHOW GLOBAL STATUS LIKE 'Strata_memory_bytes'")?;
    let memory = memory.context("there is no status Strata_memory_bytes")?.1;
    conn.query_drop("DROP TABLE g")?;
    Ok(format!(
        "{LIMIT_MB} MiB: block cache {} MiB, memtables {} MiB; {} MiB in use after 200 MB of data",
        cache >> 20,
        memtables >> 20,
        memory >> 20
    ))
}
