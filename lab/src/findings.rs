//! What a check of tables finds: numbered conditions, how often each is violated, and the first violations in words.
//!
//! The checks of a workload read everything and compare it here rather than in SQL: the same scans for every engine, no plan that
//! may differ, and each violation can be named. Nothing else may write meanwhile.

use anyhow::{Context, Result, ensure};
use mysql::Conn;
use mysql::prelude::{FromRow, Queryable};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Violations of a condition that are told in full.
pub const TOLD: usize = 5;
/// Conditions are numbered from 1 to less than this.
const CONDITIONS: usize = 16;

/// What a check found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// How often each condition was found violated.
    counts: [usize; CONDITIONS],
    /// The first violations of each.
    pub told: Vec<String>,
    /// Rows read.
    pub rows: u64,
}

impl Findings {
    /// Nothing so far, of so many rows.
    pub fn of_rows(rows: u64) -> Findings {
        Findings { rows, ..Findings::default() }
    }

    /// Conditions that are violated.
    pub fn violated(&self) -> Vec<usize> {
        (1..CONDITIONS).filter(|&condition| self.counts[condition] > 0).collect()
    }

    /// Notes that a condition does not hold, and why.
    pub fn expect(&mut self, condition: usize, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.counts[condition] += 1;
            if self.counts[condition] <= TOLD {
                self.told.push(format!("condition {condition}: {}", what()));
            }
        }
    }

    /// Adds what was found elsewhere.
    pub fn merge(&mut self, other: Findings) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.told.extend(other.told);
        self.rows += other.rows;
    }

    /// Rows that were read; fails with the violations. `of` is what the conditions are those of.
    pub fn into_result(self, of: &str) -> Result<u64> {
        ensure!(
            self.violated().is_empty(),
            "{of} conditions are violated ({} times in all):\n  {}",
            self.counts.iter().sum::<usize>(),
            self.told.join("\n  ")
        );
        Ok(self.rows)
    }
}

/// Checks so many parts of the data with several sessions, which `open` makes: the sum of what `check` finds in each part, from 0.
pub fn in_parts(
    parts: u64,
    threads: u32,
    open: impl Fn() -> Result<Conn> + Sync,
    check: impl Fn(&mut Conn, u64) -> Result<Findings> + Sync,
) -> Result<Findings> {
    let findings = Mutex::new(Findings::default());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..u64::from(threads).min(parts))
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut conn = open()?;
                    loop {
                        let part = next.fetch_add(1, Ordering::Relaxed);
                        if part >= parts {
                            return Ok(());
                        }
                        let found = check(&mut conn, part)?;
                        findings.lock().expect("nobody panicked").merge(found);
                    }
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a checker does not panic"))
    })?;
    Ok(findings.into_inner().expect("nobody panicked"))
}

/// Rows of a query, one at a time; returns how many there were.
pub fn each<R: FromRow>(conn: &mut Conn, query: String, mut visit: impl FnMut(R)) -> Result<u64> {
    let mut rows = 0;
    for row in conn.query_iter(&query).with_context(|| format!("this query failed: {query}"))? {
        visit(R::from_row_opt(row?).context("a row has another form")?);
        rows += 1;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_are_told_and_all_are_counted() {
        let mut found = Findings::of_rows(3);
        found.expect(1, true, || unreachable!("it holds"));
        assert_eq!(found.violated(), [0; 0]);
        for n in 0..9 {
            found.expect(2, false, || format!("violation {n}"));
        }
        let mut other = Findings::of_rows(4);
        other.expect(15, false, || "another".into());
        found.merge(other);
        assert_eq!((found.violated(), found.told.len(), found.rows), (vec![2, 15], TOLD + 1, 7));
        let error = found.into_result("All").unwrap_err().to_string();
        assert!(error.starts_with("All conditions are violated (10 times in all)"), "{error}");
        assert_eq!(Findings::of_rows(5).into_result("All").unwrap(), 5);
    }
}
