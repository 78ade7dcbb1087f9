//! The command `compare`: what differs between two stored runs of an experiment, and what is noise.
//!
//! For each engine and place with at least [`ROUNDS`] rounds on both sides, [`mann_whitney`] tells whether the rounds of one lie apart
//! from those of the other. For each engine over all places, at least [`PLACES`], [`signed_rank`] tells whether the medians went one
//! way. Less than [`CHANCE`] is a difference; all else is not spoken of. Measurements that are left out take no part.
//!
//! Each is asked twice: of the figure, and of the figure over the baseline's in the same run. A machine that was faster or slower
//! between the two runs changes the first and hardly the second.

use super::experiment::{Phase, Place, place_text};
use super::metric;
use super::rank::{mann_whitney, signed_rank};
use super::results::{Measured, Results};
use super::store::Store;
use super::subject::Subject;
use crate::page::number;
use anyhow::{Result, ensure};
use std::fmt::Write as _;
use std::path::PathBuf;

/// A difference that chance alone shows less often than this is one.
const CHANCE: f64 = 0.01;
/// With fewer rounds even the clearest difference is more likely than that.
const ROUNDS: usize = 5;
/// The same of places.
const PLACES: usize = 8;
/// What is compared.
const METRICS: [&str; 7] = ["tps", "p95_ms", "p99_ms", "written_kb_tx", "read_kb_tx", "cpu_us_tx", "size_mb"];

/// Options of `compare`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of a stored run, as 'reproduce' names it
    a: PathBuf,
    /// Folder of another run of the same experiment
    b: PathBuf,
}

/// The command `compare`.
pub fn run(args: Args) -> Result<()> {
    let read = |folder: &PathBuf| -> Result<Results> {
        let store = Store::read(folder)?;
        Ok(Results { plan: store.plan()?, records: store.records()? })
    };
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    print!("{}", text(&a, &b)?);
    Ok(())
}

/// A difference that is one.
struct Difference {
    what: String,
    metric: &'static str,
    /// Medians, or the median quotient of places.
    a: Option<f64>,
    b: Option<f64>,
    quotient: f64,
    chance: f64,
}

fn text(a: &Results, b: &Results) -> Result<String> {
    let (x, y) = (&a.plan, &b.plan);
    ensure!(
        x.experiment.name == y.experiment.name,
        "{} and {} cannot be compared",
        x.experiment.name,
        y.experiment.name
    );
    ensure!(
        x.scale_name == y.scale_name && x.scale.factor == y.scale.factor,
        "the runs have other scales: {} and {}",
        x.scale_name,
        y.scale_name
    );
    let mut compared = Compared { a, b, differences: Vec::new(), tested: 0, untested: 0 };
    let both = x.subjects.iter().filter(|subject| y.subjects.iter().any(|other| other.id() == subject.id()));
    let one_baseline = a.baseline().id() == b.baseline().id();
    for subject in both {
        for phase in Phase::ALL {
            for metric in METRICS {
                compared.add(subject, phase, metric, Against::Itself);
                if one_baseline && subject.id() != a.baseline().id() {
                    compared.add(subject, phase, metric, Against::Baseline);
                }
            }
        }
    }
    Ok(compared.written())
}

/// What a figure is set against before two runs are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Against {
    /// Nothing: a machine that has become slower is a difference.
    Itself,
    /// The baseline's figure of the same run, at the same place.
    Baseline,
}

/// What was compared, and what differs.
struct Compared<'r> {
    a: &'r Results,
    b: &'r Results,
    differences: Vec<Difference>,
    tested: usize,
    /// Places with too few rounds.
    untested: usize,
}

impl Compared<'_> {
    /// A metric of an engine, place by place and over all places.
    fn add(&mut self, subject: &Subject, phase: Phase, metric: &'static str, against: Against) {
        let (a, b) = (self.a, self.b);
        let over = match against {
            Against::Itself => String::new(),
            Against::Baseline => format!(" over {}", a.baseline().title()),
        };
        let mut quotients = Vec::new();
        for place in places(a, subject, phase) {
            let of = |results: &Results| {
                let measured = match against {
                    Against::Itself => results.metric(metric, subject, phase, &place),
                    Against::Baseline => results.ratio(metric, subject, phase, &place),
                };
                measured.filter(|measured| !measured.disturbed)
            };
            let (Some(one), Some(other)) = (of(a), of(b)) else { continue };
            let quotient = other.figure.value / one.figure.value;
            if !quotient.is_finite() || quotient <= 0.0 {
                continue;
            }
            quotients.push(quotient);
            let Some(chance) = chance(&one, &other) else {
                self.untested += 1;
                continue;
            };
            let place = if place.is_empty() { String::new() } else { format!(", {}", place_text(&place)) };
            let what = format!("{}{over}{}{place}", subject.title(), phase.label());
            let (a, b) = (Some(one.figure.value), Some(other.figure.value));
            self.test(Difference { what, metric, a, b, quotient, chance });
        }
        if quotients.len() >= PLACES {
            let chance = signed_rank(&quotients.iter().map(|q| q.ln()).collect::<Vec<_>>());
            let what = format!("{}{over}{}, all {} places", subject.title(), phase.label(), quotients.len());
            let quotient = crate::stats::median(&quotients);
            self.test(Difference { what, metric, a: None, b: None, quotient, chance });
        }
    }

    fn test(&mut self, difference: Difference) {
        self.tested += 1;
        if difference.chance < CHANCE {
            self.differences.push(difference);
        }
    }

    fn written(&self) -> String {
        let Compared { differences, tested, untested, .. } = self;
        let mut text = String::new();
        for Difference { what, metric, a, b, quotient, chance } in differences {
            let values = match (a, b) {
                (Some(a), Some(b)) => format!("{} to {}, ", number(*a), number(*b)),
                _ => String::new(),
            };
            let _ = writeln!(text, "{what}: {}: {values}times {quotient:.3} (p = {chance:.4})", metric::title(metric));
        }
        if differences.is_empty() {
            text += "No difference is larger than the noise.\n";
        }
        let by_chance = *tested as f64 * CHANCE;
        let _ = writeln!(
            text,
            "{tested} comparisons were tested, {} differ; by chance alone {by_chance:.1} would. {untested} had too few rounds: \
             {ROUNDS} are needed on both sides.",
            differences.len(),
        );
        if differences.len() as f64 <= by_chance {
            text += "That is no more than chance.\n";
        }
        text
    }
}

fn chance(a: &Measured, b: &Measured) -> Option<f64> {
    let values = |measured: &Measured| measured.rounds.values().copied().collect::<Vec<_>>();
    let (a, b) = (values(a), values(b));
    (a.len() >= ROUNDS && b.len() >= ROUNDS).then(|| mann_whitney(&a, &b))
}

/// Where an engine was measured, each once.
fn places(results: &Results, subject: &Subject, phase: Phase) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for record in results.records.iter().filter(|r| r.subject == subject.id() && r.phase == phase) {
        if !places.contains(&record.place) {
            places.push(record.place.clone());
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Axis, Value};
    use super::super::record::Record;
    use super::super::record::testing::record;
    use super::super::results::testing::results;
    use super::*;

    fn run(rounds: u32, places: u32, transactions: impl Fn(u32, u32) -> u64) -> Results {
        let mut records: Vec<Record> = Vec::new();
        for round in 1..=rounds {
            for at in 1..=places {
                let place = [(Axis::Memory, Value::Number(f64::from(at)))];
                records.push(record("innodb", round, &place, transactions(round, at)));
            }
        }
        results("tpcc-memory", &["innodb"], records)
    }

    #[test]
    fn a_difference_beyond_the_rounds_is_told() {
        let (a, b) = (run(5, 1, |round, _| 1000 + u64::from(round)), run(5, 1, |round, _| 1200 + u64::from(round)));
        let text = text(&a, &b).unwrap();
        assert!(text.contains("InnoDB, memory 1: transactions/s: 100 to 120, times 1.199"), "{text}");
    }

    #[test]
    fn noise_is_not() {
        // The medians differ by a fifth, the rounds by more.
        let noise = |round: u32, shift: u64| 1000 + shift + 500 * u64::from(round % 3);
        let same = text(&run(6, 1, |r, _| noise(r, 0)), &run(6, 1, |r, _| noise(r + 1, 200))).unwrap();
        assert!(same.contains("No difference is larger than the noise"), "{same}");
    }

    #[test]
    fn few_rounds_say_nothing_by_themselves_and_all_places_together_do() {
        let (a, b) = (run(1, 3, |_, _| 1000), run(1, 3, |_, _| 2000));
        let few = text(&a, &b).unwrap();
        assert!(few.contains("No difference") && few.contains("had too few rounds"), "{few}");
        let many = text(&run(1, 9, |_, at| 1000 * u64::from(at)), &run(1, 9, |_, at| 1100 * u64::from(at))).unwrap();
        assert!(many.contains("InnoDB, all 9 places: transactions/s: times 1.100"), "{many}");
    }

    #[test]
    fn another_pace_of_the_machine_is_no_difference_to_the_baseline() {
        // All engines at so many percent, Strata moreover by itself.
        let run = |pace: u64, strata: u64| {
            let places = (1..=9u64).flat_map(|at| {
                let place = [(Axis::Memory, Value::Number(at as f64))];
                let of = |engine, percent| record(engine, 1, &place, 100 * at * pace * percent / 100);
                [of("innodb", 100), of("strata", strata)]
            });
            results("tpcc-memory", &["innodb", "strata"], places.collect())
        };
        let slower = text(&run(100, 100), &run(80, 100)).unwrap();
        assert!(slower.contains("InnoDB, all 9 places: transactions/s: times 0.800"), "{slower}");
        assert!(slower.contains("Strata, all 9 places: transactions/s: times 0.800"), "{slower}");
        assert!(!slower.contains("over InnoDB"), "{slower}");
        let both = text(&run(100, 100), &run(80, 120)).unwrap();
        assert!(both.contains("Strata over InnoDB, all 9 places: transactions/s: times 1.200"), "{both}");
    }

    #[test]
    fn other_experiments_and_disturbed_rounds_take_no_part() {
        let (a, mut b) = (run(5, 1, |_, _| 1000), run(5, 1, |_, _| 2000));
        b.records.iter_mut().for_each(|record| record.watch.stolen = 0.5);
        assert!(text(&a, &b).unwrap().contains("No difference"));
        let other = results("linkbench", &["innodb"], Vec::new());
        assert!(text(&a, &other).is_err());
    }
}
