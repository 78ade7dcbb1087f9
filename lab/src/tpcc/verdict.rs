//! What `--check` demands of a run beside correct data: bounded memory, no standstill.

use crate::report::Run;
use crate::stats::longest_zero;

/// What data and load may add to the server's memory, over the budget of the engine's caches and memtables.
pub const MEMORY_MAX: f64 = 1.25;
/// Smallest budget whose memory is judged, in MB: below, what the server itself needs for its connections outweighs it.
pub const JUDGED_MB_MIN: u64 = 64;
/// Seconds in a row in which no transaction ends that are a standstill.
pub const STANDSTILL_SECONDS: usize = 5;

/// What the run violates, in words.
pub fn violations(run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let judged = run.conditions.budget_mb >= JUDGED_MB_MIN;
    if let Some(share) = run.memory_over_budget().filter(|&share| judged && share > MEMORY_MAX) {
        found.push(format!(
            "memory grew by {share:.2} of the budget of {} MB; {MEMORY_MAX} is allowed",
            run.conditions.budget_mb
        ));
    }
    let still = longest_zero(&run.series);
    if still >= STANDSTILL_SECONDS {
        found.push(format!("no transaction ended for {still} s; less than {STANDSTILL_SECONDS} are allowed"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Kind;
    use crate::report::testing::run;

    #[test]
    fn limits() {
        const MIB: u64 = 1 << 20;
        let cases: [(u64, u64, usize, &[&str]); 6] = [
            // base, most, seconds at zero; a budget of 100 MB
            (90, 215, 4, &[]),
            (90, 216, 0, &["memory"]),
            (0, 900, 0, &[]),
            (90, 80, 0, &[]),
            (90, 100, 5, &["no transaction"]),
            (90, 300, 9, &["memory", "no transaction"]),
        ];
        for (base, most, still, expected) in cases {
            let mut run = run(Kind::Strata, "a", 1, 10);
            run.usage.rss_base = base * MIB;
            run.usage.rss_peak = most * MIB;
            run.series = [vec![3.0], vec![0.0; still], vec![2.0]].concat();
            let found = violations(&run);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(text, begin)| text.starts_with(begin)), "{found:?}");
            run.conditions.budget_mb = JUDGED_MB_MIN - 1;
            assert!(!violations(&run).iter().any(|text| text.starts_with("memory")));
        }
    }
}
