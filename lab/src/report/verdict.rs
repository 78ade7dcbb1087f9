//! What runs say, in sentences built from their figures: who is ahead, by how much, with what spread.
//!
//! An engine is ahead when it was so in every pair of neighbouring measurements; where these disagree the two are level. Of one pair
//! the sentence says that there is no spread. Of more labels than [`FEW`] one sentence sums up all.

use super::compare::{Row, engines, in_order, pairs};
use super::{METRICS, Run};
use crate::engine::Kind;
use crate::page::Figure;
use crate::stats::median;

/// So many labels have a sentence each.
const FEW: usize = 4;
/// A single pair that differs by less is called level: nothing is known of its spread.
const CLOSE: f64 = 0.03;

/// Where an engine stands beside a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Ahead,
    Level,
    Behind,
}

/// The sentences of runs of one workload.
pub(super) fn sentences(runs: &[Run]) -> Vec<String> {
    let engines = engines(runs);
    let mut said = Vec::new();
    if let [only] = engines[..] {
        said.push(format!("Only {} was measured; nothing stands beside it.", only.title()));
    }
    let labels = in_order(runs.iter().map(|run| run.label.clone()));
    for (a, b) in pairs(&engines) {
        let rates: Vec<(&String, Figure)> =
            labels.iter().filter_map(|label| Some((label, ratio("transactions/s", runs, label, a, b)?))).collect();
        if rates.len() > FEW {
            said.push(summed_up(&rates, a, b));
        } else {
            for (label, rate) in rates {
                said.push(one(runs, label, rate, a, b));
            }
        }
    }
    let failed = runs.iter().filter(|run| !run.errors.is_empty()).count();
    if failed > 0 {
        said.push(format!("{failed} of {} runs had errors, see below; they count in the figures.", runs.len()));
    }
    said
}

fn ratio(metric: &str, runs: &[Run], label: &str, a: Kind, b: Kind) -> Option<Figure> {
    let metric = METRICS.iter().find(|known| known.name == metric).expect("the name is one of METRICS");
    Row::of_metric(label, runs, label, metric).ratio(a, b)
}

fn standing(ratio: &Figure) -> Standing {
    match ratio.spread() {
        Some((low, _)) if low > 1.0 => Standing::Ahead,
        Some((_, high)) if high < 1.0 => Standing::Behind,
        Some(_) => Standing::Level,
        None if (ratio.value - 1.0).abs() <= CLOSE => Standing::Level,
        None if ratio.value > 1.0 => Standing::Ahead,
        None => Standing::Behind,
    }
}

fn one(runs: &[Run], label: &str, rate: Figure, a: Kind, b: Kind) -> String {
    let (a_title, b_title) = (a.title(), b.title());
    let spread = match rate.spread() {
        Some((low, high)) => format!("{low:.2} to {high:.2} in {} pairs of runs", rate.n),
        None => "one pair of runs, so no spread is known".into(),
    };
    let stands = match standing(&rate) {
        Standing::Ahead => format!("{a_title} is ahead of {b_title}"),
        Standing::Level => format!("{a_title} and {b_title} are level"),
        Standing::Behind => format!("{a_title} is behind {b_title}"),
    };
    let mut text = format!("{label}: {stands}, {:.2} times its transactions a second ({spread})", rate.value);
    let costs =
        [("KB written/tx", "written bytes"), ("KB read/tx", "read bytes"), ("server CPU us/tx", "processor time")];
    let costs: Vec<String> = costs
        .iter()
        .filter_map(|(metric, words)| Some(format!("{:.2} of the {words}", ratio(metric, runs, label, a, b)?.value)))
        .collect();
    if !costs.is_empty() {
        text += &format!("; a transaction takes {}", list(&costs));
    }
    text + "."
}

fn summed_up(rates: &[(&String, Figure)], a: Kind, b: Kind) -> String {
    let count = |wanted: Standing| rates.iter().filter(|(_, rate)| standing(rate) == wanted).count();
    let values: Vec<f64> = rates.iter().map(|(_, rate)| rate.value).collect();
    let by_value = |(_, x): &&(&String, Figure), (_, y): &&(&String, Figure)| x.value.total_cmp(&y.value);
    let (least, most) = (rates.iter().min_by(by_value), rates.iter().max_by(by_value));
    let end = |end: Option<&(&String, Figure)>| {
        end.map_or(String::new(), |(label, rate)| format!("{:.2} ({label})", rate.value))
    };
    format!(
        "Of {} loads {} is ahead of {} in {}, level in {} and behind in {}; its transactions a second are {} to {} times the \
         other's, in the median {:.2}.",
        rates.len(),
        a.title(),
        b.title(),
        count(Standing::Ahead),
        count(Standing::Level),
        count(Standing::Behind),
        end(least),
        end(most),
        median(&values)
    )
}

/// `a, b and c`.
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;

    fn pair(label: &str, counts: &[(u64, u64)]) -> Vec<Run> {
        let rounds = counts.iter().zip(1..);
        rounds
            .flat_map(|((a, b), round)| [run(Kind::Innodb, label, round, *b), run(Kind::Strata, label, round, *a)])
            .collect()
    }

    #[test]
    fn ahead_level_and_behind() {
        let said = |counts: &[(u64, u64)]| sentences(&pair("x", counts)).join(" ");
        assert_eq!(
            said(&[(200, 100), (210, 100), (190, 100)]),
            "x: Strata is ahead of InnoDB, 2.00 times its transactions a second (1.90 to 2.10 in 3 pairs of runs); \
             a transaction takes 1.00 of the written bytes."
        );
        assert!(said(&[(90, 100), (120, 100)]).starts_with("x: Strata and InnoDB are level, 1.05 times"));
        assert!(said(&[(90, 100), (80, 100)]).starts_with("x: Strata is behind InnoDB, 0.85 times"));
        assert!(
            said(&[(101, 100)])
                .contains("are level, 1.01 times its transactions a second (one pair of runs, so no spread")
        );
    }

    #[test]
    fn many_loads_are_summed_up() {
        let mut runs = Vec::new();
        for (label, a) in [("a", 200), ("b", 150), ("c", 100), ("d", 50), ("e", 120)] {
            runs.extend(pair(label, &[(a, 100)]));
        }
        runs[0].errors.push("x".into());
        assert_eq!(
            sentences(&runs),
            [
                "Of 5 loads Strata is ahead of InnoDB in 3, level in 1 and behind in 1; its transactions a second are \
                 0.50 (d) to 2.00 (a) times the other's, in the median 1.20.",
                "1 of 10 runs had errors, see below; they count in the figures."
            ]
        );
    }

    #[test]
    fn one_engine_has_no_rival() {
        let said = sentences(&[run(Kind::Strata, "x", 1, 5)]);
        assert_eq!(said, ["Only Strata was measured; nothing stands beside it."]);
    }
}
