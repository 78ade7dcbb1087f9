//! The command `compare`: what differs between two runs of an experiment, and what is noise.
//!
//! A run is a stored one, or the short form that the tree has of it. With one run alone the other is the tree's, which so is the
//! baseline of whoever changes something.
//!
//! For each engine and place with at least [`ROUNDS`] rounds on both sides, [`mann_whitney`] tells whether the rounds of one lie apart
//! from those of the other. For each engine over all places, at least [`PLACES`], [`signed_rank`] tells whether the medians went one
//! way. Less than [`CHANCE`] is a difference; all else is not spoken of. Measurements that are left out take no part.
//!
//! Each is asked twice: of the figure, and of the figure over the baseline's in the same run. A machine that was faster or slower
//! between the two runs changes the first and hardly the second.

use super::experiment::Phase;
use super::figures::{Figures, Row};
use super::metric;
use super::rank::{mann_whitney, signed_rank};
use super::results::Measured;
use crate::page::number;
use crate::paths;
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
    /// Folder of a stored run, as 'reproduce' names it, or of a short form in docs/results
    a: PathBuf,
    /// Another one of the same experiment, set beside the first [default: A itself, set beside what docs/results has]
    b: Option<PathBuf>,
    /// The checkout whose docs/results A alone is set beside [default: this one]
    #[arg(long, value_name = "DIR", conflicts_with = "b")]
    top: Option<PathBuf>,
}

/// The command `compare`.
pub fn run(args: Args) -> Result<()> {
    let first = Figures::read(&args.a, &METRICS)?;
    let (a, b) = match &args.b {
        Some(b) => (first, Figures::read(b, &METRICS)?),
        None => {
            let top = args.top.map_or_else(paths::checkout, Ok)?;
            (Figures::read(&top.join("docs/results").join(&first.experiment), &METRICS)?, first)
        }
    };
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

fn text(a: &Figures, b: &Figures) -> Result<String> {
    ensure!(a.experiment == b.experiment, "{} and {} cannot be compared", a.experiment, b.experiment);
    ensure!(a.scale == b.scale, "the runs have other scales: {} and {}", a.scale, b.scale);
    let mut compared = Compared { a, b, differences: Vec::new(), tested: 0, untested: 0 };
    let mut groups: Vec<(&str, Phase)> = Vec::new();
    for row in &a.rows {
        if !groups.contains(&(&row.engine, row.phase)) {
            groups.push((&row.engine, row.phase));
        }
    }
    for (engine, phase) in groups {
        let rows: Vec<&Row> = a.rows.iter().filter(|row| row.engine == engine && row.phase == phase).collect();
        for metric in METRICS {
            compared.add(&rows, metric, Against::Itself);
            if a.baseline == b.baseline && engine != a.baseline {
                compared.add(&rows, metric, Against::Baseline);
            }
        }
    }
    Ok(format!("From {} to {}.\n{}", a.commit, b.commit, compared.written()))
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
    a: &'r Figures,
    b: &'r Figures,
    differences: Vec<Difference>,
    tested: usize,
    /// Places with too few rounds.
    untested: usize,
}

impl Compared<'_> {
    /// A metric of an engine in a phase, place by place and over all places.
    fn add(&mut self, rows: &[&Row], metric: &'static str, against: Against) {
        let Some(first) = rows.first() else { return };
        let over = match (against, self.a.rows.iter().find(|row| row.engine == self.a.baseline)) {
            (Against::Baseline, Some(baseline)) => format!(" over {}", baseline.title),
            _ => String::new(),
        };
        let who = format!("{}{over}{}", first.title, first.phase.label());
        let mut quotients = Vec::new();
        for row in rows {
            let of = |run: &Figures| {
                let measured = match against {
                    Against::Itself => run.metric(metric, row),
                    Against::Baseline => run.ratio(metric, row),
                };
                measured.filter(|measured| !measured.disturbed)
            };
            let (Some(one), Some(other)) = (of(self.a), of(self.b)) else { continue };
            let quotient = other.figure.value / one.figure.value;
            if !quotient.is_finite() || quotient <= 0.0 {
                continue;
            }
            quotients.push(quotient);
            let Some(chance) = chance(&one, &other) else {
                self.untested += 1;
                continue;
            };
            let place = row.place_text();
            let what = if place.is_empty() { who.clone() } else { format!("{who}, {place}") };
            let (a, b) = (Some(one.figure.value), Some(other.figure.value));
            self.test(Difference { what, metric, a, b, quotient, chance });
        }
        if quotients.len() >= PLACES {
            let chance = signed_rank(&quotients.iter().map(|q| q.ln()).collect::<Vec<_>>());
            let what = format!("{who}, all {} places", quotients.len());
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

#[cfg(test)]
mod tests {
    use super::super::experiment::{Axis, Value};
    use super::super::record::Record;
    use super::super::record::testing::record;
    use super::super::results::Results;
    use super::super::results::testing::results;
    use super::super::short::Short;
    use super::*;
    use crate::page::Page;

    fn text(a: &Results, b: &Results) -> Result<String> {
        super::text(&Figures::of(a, &METRICS), &Figures::of(b, &METRICS))
    }

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
    fn a_short_form_is_compared_by_its_medians() {
        let folder = tempfile::tempdir().unwrap();
        let short = |run: &Results| {
            let short = Short::of(run, &Page::new(""), 0).unwrap();
            std::fs::write(folder.path().join("report.json"), short.json().unwrap()).unwrap();
            Figures::read(folder.path(), &METRICS).unwrap()
        };
        let tree = short(&run(1, 9, |_, at| 1000 * u64::from(at)));
        let slower = Figures::of(&run(5, 9, |_, at| 800 * u64::from(at)), &METRICS);
        let told = super::text(&tree, &slower).unwrap();
        assert!(told.contains("InnoDB, all 9 places: transactions/s: times 0.800"), "{told}");
        let mut disturbed = run(1, 9, |_, at| 1000 * u64::from(at));
        disturbed.records.iter_mut().for_each(|record| record.watch.stolen = 0.5);
        assert!(super::text(&short(&disturbed), &slower).unwrap().contains("No difference"));
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
