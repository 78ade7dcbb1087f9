//! The original's conclusions beside ours, in words.
//!
//! A conclusion is a quotient of two measurements. It is "about 1" within what the conclusion calls equal, and also where its
//! rounds lie on both sides of 1. Ours agrees with the original if both are on the same side; by how much they differ is said beside,
//! as a machine of another size gives another number. What was measured while others disturbed it is shown and not judged.

use super::experiment::{Claim, Phase, Side};
use super::results::{Measured, Results};
use super::subject::Subject;
use crate::page::{Figure, number};

/// Effects that differ by less than this factor are of the same size.
const ALIKE: f64 = 1.5;

/// What came of a conclusion for one engine.
#[derive(Clone, Debug)]
pub struct Verdict<'a> {
    pub claim: &'a Claim,
    /// As in tables.
    pub engine: String,
    /// None if it was not measured.
    pub ours: Option<Measured>,
    /// None if it was not measured, or disturbed.
    pub agrees: Option<bool>,
}

/// The side on which a figure with its spread lies; from one over `equal` to `equal` it is no difference.
fn side(figure: &Figure, equal: f64) -> Side {
    let (low, high) = (figure.low.unwrap_or(figure.value), figure.high.unwrap_or(figure.value));
    if (1.0 / equal..=equal).contains(&figure.value) || low < 1.0 && high > 1.0 {
        Side::Equal
    } else if figure.value > 1.0 {
        Side::Above
    } else {
        Side::Below
    }
}

impl Claim {
    /// The side on which the original's quotient was.
    pub fn side_of_original(&self) -> Side {
        match (self.side, self.original) {
            (Some(side), _) => side,
            (None, Some(number)) => side(&Figure::from(number), self.equal),
            (None, None) => Side::Equal,
        }
    }
}

/// All conclusions, for each engine that they concern and that took part.
pub fn verdicts(results: &Results) -> Vec<Verdict<'_>> {
    let mut all = Vec::new();
    for claim in &results.plan.experiment.claims {
        for subject in results.chosen(&claim.of, claim.phase) {
            // Who was only loaded is not compared but where it is named.
            let named = claim.of.iter().any(|name| name == subject.id());
            if claim.phase == Phase::Load
                && !named
                && !results.subjects(Phase::Run).iter().any(|s| s.id() == subject.id())
            {
                continue;
            }
            let ours = quotient(results, claim, subject);
            let judged = ours.as_ref().filter(|ours| !ours.disturbed);
            let agrees = judged.map(|ours| side(&ours.figure, claim.equal) == claim.side_of_original());
            all.push(Verdict { claim, engine: subject.title().to_string(), ours, agrees });
        }
    }
    all
}

fn quotient(results: &Results, claim: &Claim, subject: &Subject) -> Option<Measured> {
    let over = match &claim.over {
        Some(id) => results.plan.subjects.iter().find(|other| other.id() == id)?,
        None => subject,
    };
    let (at, over_at) = (&claim.at, claim.over_at.as_ref().unwrap_or(&claim.at));
    let a = results.metric(&claim.metric, subject, claim.phase, &results.place(at))?;
    let b = results.metric(&claim.metric, over, claim.phase, &results.place(over_at))?;
    Results::quotient(&a, &b)
}

impl Verdict<'_> {
    /// `Strata: 3.10 (2.90 to 3.30, n=3), the original 4.95: the same direction, less of it.`
    pub fn words(&self) -> String {
        let original = match self.claim.original {
            Some(original) => format!("the original {}", number(original)),
            None => format!("the original {}", side_words(self.claim.side_of_original())),
        };
        let Some(ours) = &self.ours else { return format!("{}: not measured, {original}", self.engine) };
        let figure = &ours.figure;
        let spread = match (figure.low, figure.high, figure.n) {
            (Some(low), Some(high), n) if n > 1 => format!(" ({} to {}, n={n})", number(low), number(high)),
            _ => " (n=1)".to_string(),
        };
        let judgement = if ours.disturbed { "disturbed, not judged".into() } else { self.judgement(figure) };
        format!("{}: {}{spread}, {original}: {judgement}", self.engine, number(figure.value))
    }

    fn judgement(&self, figure: &Figure) -> String {
        let (ours, theirs) = (side(figure, self.claim.equal), self.claim.side_of_original());
        if ours != theirs {
            return format!("not seen here; ours is {}", side_words(ours));
        }
        let Some(original) = self.claim.original.filter(|_| ours != Side::Equal) else { return "seen here".into() };
        // The size of an effect, to whichever side it goes.
        let size = |quotient: f64| if quotient < 1.0 { 1.0 / quotient } else { quotient };
        let (a, b) = (size(figure.value), size(original));
        match a / b {
            more if more > ALIKE => "seen here, and more of it".into(),
            less if less < 1.0 / ALIKE => "seen here, and less of it".into(),
            _ => "seen here, of the same size".into(),
        }
    }
}

fn side_words(side: Side) -> &'static str {
    match side {
        Side::Below => "below 1",
        Side::Equal => "about 1",
        Side::Above => "above 1",
    }
}

/// The sentences of a page: first how many conclusions each engine shows, then each conclusion.
pub fn sentences(verdicts: &[Verdict]) -> Vec<String> {
    let mut engines: Vec<&str> = Vec::new();
    for verdict in verdicts {
        if !engines.contains(&verdict.engine.as_str()) {
            engines.push(&verdict.engine);
        }
    }
    let mut sentences: Vec<String> = engines
        .iter()
        .map(|engine| {
            let of_engine = || verdicts.iter().filter(|verdict| verdict.engine == *engine);
            let judged: Vec<bool> = of_engine().filter_map(|verdict| verdict.agrees).collect();
            let seen = judged.iter().filter(|agrees| **agrees).count();
            let not_judged = match of_engine().count() - judged.len() {
                0 => String::new(),
                n => format!("; {n} could not be judged"),
            };
            format!("{engine} shows {seen} of the original's {} conclusions{not_judged}.", of_engine().count())
        })
        .collect();
    let mut at = 0;
    while at < verdicts.len() {
        let claim = verdicts[at].claim;
        let same = verdicts[at..].iter().take_while(|verdict| std::ptr::eq(verdict.claim, claim)).count();
        let words: Vec<String> = verdicts[at..at + same].iter().map(Verdict::words).collect();
        sentences.push(format!("{}. {}.", claim.text, words.join("; ")));
        at += same;
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Axis, Value};
    use super::super::record::testing::record;
    use super::super::results::testing::results;
    use super::*;

    fn figure(values: &[f64]) -> Figure {
        Figure::median_of(values).unwrap()
    }

    #[test]
    fn sides() {
        assert_eq!(side(&figure(&[1.04]), 1.05), Side::Equal);
        assert_eq!(side(&figure(&[1.15]), 1.2), Side::Equal);
        assert_eq!(side(&figure(&[0.84]), 1.2), Side::Equal);
        assert_eq!(side(&figure(&[1.2]), 1.05), Side::Above);
        assert_eq!(side(&figure(&[0.9, 1.2, 1.3]), 1.05), Side::Equal, "one round says the opposite");
        assert_eq!(side(&figure(&[0.5, 0.6, 0.9]), 1.05), Side::Below);
    }

    /// Four rounds at the least memory and at the most; transactions by engine and end.
    fn synthetic(numbers: [(&str, [u64; 2]); 2]) -> Results {
        let mut records = Vec::new();
        for round in 1..=4 {
            for (engine, ends) in numbers {
                for (share, transactions) in [(0.0556, ends[0]), (1.1111, ends[1])] {
                    let place = [(Axis::Memory, Value::Number(share))];
                    records.push(record(engine, round, &place, transactions + u64::from(round)));
                }
            }
        }
        results("tpcc-memory", &["innodb", "strata"], records)
    }

    /// The first conclusion on a metric.
    fn of_metric<'a>(verdicts: &'a [Verdict<'a>], metric: &str) -> &'a Verdict<'a> {
        verdicts.iter().find(|verdict| verdict.claim.metric == metric).unwrap()
    }

    #[test]
    fn what_the_original_found_is_seen() {
        let results = synthetic([("innodb", [1000, 7000]), ("strata", [5000, 5400])]);
        let verdicts = verdicts(&results);
        let first = of_metric(&verdicts, "tps");
        assert_eq!(first.agrees, Some(true));
        let words = first.words();
        assert!(words.starts_with("Strata: 5.0") || words.starts_with("Strata: 4.99"), "{words}");
        assert!(words.contains("n=4") && words.contains("original 4.95") && words.contains("same size"), "{words}");
        let sentences = sentences(&verdicts);
        assert!(
            sentences[0].starts_with("Strata shows ") && sentences[0].contains(" could not be judged"),
            "{sentences:?}"
        );
        assert!(sentences.iter().any(|text| text.starts_with("With the least memory MyRocks is almost 5 times")));
    }

    #[test]
    fn another_effect_is_said_to_be_another_one() {
        for (strata, agrees, words) in [
            (1000, false, "not seen here; ours is below 1"),
            (1500, true, "seen here, and less of it"),
            (9000, true, "seen here, and more of it"),
        ] {
            // InnoDB's are a thousand, or five times as many for what is below them.
            let innodb = if agrees { 1000 } else { 5000 };
            let results = synthetic([("innodb", [innodb, 7000]), ("strata", [strata, 5400])]);
            let verdicts = verdicts(&results);
            let first = of_metric(&verdicts, "tps");
            assert!(first.agrees == Some(agrees) && first.words().ends_with(words), "{}", first.words());
        }
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let results = synthetic([("innodb", [1000, 7000]), ("strata", [1500, 5400])]);
        let verdicts = verdicts(&results);
        let size = of_metric(&verdicts, "size_mb");
        assert!(size.ours.is_none() && size.words().contains("not measured"));
    }

    #[test]
    fn what_is_disturbed_is_not_judged() {
        let mut results = synthetic([("innodb", [1000, 7000]), ("strata", [5000, 5400])]);
        results.records.iter_mut().for_each(|record| record.watch.others = 0.5);
        let verdicts = verdicts(&results);
        assert!(verdicts.iter().all(|verdict| verdict.agrees.is_none()));
        assert!(verdicts[0].words().ends_with("disturbed, not judged"), "{}", verdicts[0].words());
        let first = &sentences(&verdicts)[0];
        assert!(first.starts_with("Strata shows 0 of") && first.contains("could not be judged"), "{first}");
    }
}
