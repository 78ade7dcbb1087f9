//! What a run has measured, by engine and place: medians over rounds, quotients of neighbours.
//!
//! A measurement with an error, or one in which the hypervisor or other processes had more of the processors than
//! [`super::watch`] allows, is left out. Where nothing else is there it stands nevertheless, marked.

use super::experiment::{At, Axis, End, Phase, Place, Value};
use super::metric;
use super::plan::Plan;
use super::record::Record;
use super::subject::Subject;
use crate::page::Figure;
use std::collections::BTreeMap;

/// Records of a plan.
pub struct Results {
    pub plan: Plan,
    pub records: Vec<Record>,
}

/// A figure with what it is made of.
#[derive(Clone, Debug)]
pub struct Measured {
    pub figure: Figure,
    /// By round.
    pub rounds: BTreeMap<u32, f64>,
    /// Whether it is made of measurements that do not count.
    pub disturbed: bool,
}

impl Measured {
    fn of(rounds: BTreeMap<u32, f64>, disturbed: bool) -> Option<Measured> {
        let values: Vec<f64> = rounds.values().copied().collect();
        Some(Measured { figure: Figure::median_of(&values)?, rounds, disturbed })
    }

    /// A figure of which nothing but itself is known.
    pub fn one(value: f64, disturbed: bool) -> Measured {
        Measured { figure: Figure::from(value), rounds: BTreeMap::from([(1, value)]), disturbed }
    }

    /// Each round's figure changed in this way.
    pub fn map(&self, change: impl Fn(f64) -> f64) -> Option<Measured> {
        Measured::of(self.rounds.iter().map(|(round, value)| (*round, change(*value))).collect(), self.disturbed)
    }
}

impl Results {
    /// The engines of a phase: only loads are there of all.
    pub fn subjects(&self, phase: Phase) -> &[Subject] {
        if phase == Phase::Load { &self.plan.subjects } else { &self.plan.subjects[..self.plan.compared] }
    }

    /// What all are compared with.
    pub fn baseline(&self) -> &Subject {
        &self.plan.subjects[0]
    }

    /// The engines that these names stand for; `others` is all but the baseline. All if there are no names.
    pub fn chosen(&self, names: &[String], phase: Phase) -> Vec<&Subject> {
        let all = self.subjects(phase);
        let others = |subject: &Subject| subject.id() != self.baseline().id();
        let chosen = |subject: &&Subject| {
            names.is_empty() || names.iter().any(|name| name == subject.id() || name == "others" && others(subject))
        };
        all.iter().filter(chosen).collect()
    }

    /// The values that are meant.
    pub fn place(&self, at: &BTreeMap<Axis, At>) -> Place {
        let value = |axis: Axis, at: &At| match at {
            At::Value(value) => Some(value.clone()),
            At::End(End::First) => self.plan.axis(axis).first().cloned(),
            At::End(End::Last) => self.plan.axis(axis).last().cloned(),
        };
        at.iter().filter_map(|(axis, at)| Some((*axis, value(*axis, at)?))).collect()
    }

    /// Where an engine was measured, each once.
    pub fn places(&self, subject: &Subject, phase: Phase) -> Vec<&Place> {
        let mut places: Vec<&Place> = Vec::new();
        for record in self.records.iter().filter(|r| r.subject == subject.id() && r.phase == phase) {
            if !places.contains(&&record.place) {
                places.push(&record.place);
            }
        }
        places
    }

    /// Records of an engine at a place: those that count, or all if none does.
    pub fn at(&self, subject: &Subject, phase: Phase, place: &Place) -> (Vec<&Record>, bool) {
        let place = &self.plan.measured_as(place);
        // A load is shared by all that have the same files.
        let has = |record: &&Record| {
            record.phase == phase
                && record.is_at(place)
                && (record.subject == subject.id() || phase == Phase::Load && self.has_files_of(subject, record))
        };
        let all: Vec<&Record> = self.records.iter().filter(has).collect();
        let good: Vec<&Record> = all.iter().copied().filter(|record| record.left_out().is_none()).collect();
        let disturbed = good.is_empty() && !all.is_empty();
        (if disturbed { all } else { good }, disturbed)
    }

    fn has_files_of(&self, subject: &Subject, record: &Record) -> bool {
        let of = self.plan.subjects.iter().find(|other| other.id() == record.subject);
        of.is_some_and(|other| other.files() == subject.files())
    }

    /// A metric of an engine at a place: the median over rounds. Of several records of a round (a place that leaves an axis open)
    /// it is the median of these.
    pub fn metric(&self, name: &str, subject: &Subject, phase: Phase, place: &Place) -> Option<Measured> {
        let (records, disturbed) = self.at(subject, phase, place);
        let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for record in records {
            if let Some(value) = metric::of(record, name) {
                rounds.entry(record.round).or_default().push(value);
            }
        }
        Measured::of(rounds.iter().map(|(round, values)| (*round, crate::stats::median(values))).collect(), disturbed)
    }

    /// One figure over another, round by round; of the medians where they have no round in common.
    pub fn quotient(a: &Measured, b: &Measured) -> Option<Measured> {
        let over = |a: f64, b: f64| (b > 0.0).then(|| a / b);
        let pairs = a.rounds.iter().filter_map(|(round, a)| Some((*round, over(*a, *b.rounds.get(round)?)?)));
        let mut rounds: BTreeMap<u32, f64> = pairs.collect();
        if rounds.is_empty() {
            rounds.insert(1, over(a.figure.value, b.figure.value)?);
        }
        Measured::of(rounds, a.disturbed || b.disturbed)
    }

    /// A metric over the baseline's.
    pub fn ratio(&self, name: &str, subject: &Subject, phase: Phase, place: &Place) -> Option<Measured> {
        let of = |subject| self.metric(name, subject, phase, place);
        Results::quotient(&of(subject)?, &of(self.baseline())?)
    }

    /// The seconds of all records that count.
    pub fn seconds(&self, subject: &Subject, place: &Place) -> Vec<f64> {
        self.at(subject, Phase::Run, place).0.iter().flat_map(|record| record.seconds()).collect()
    }

    /// What is left out, and why.
    pub fn left_out(&self) -> Vec<String> {
        self.records.iter().filter_map(|record| Some(format!("{}: {}", record.text(), record.left_out()?))).collect()
    }

    /// A value of an axis with all others open.
    pub fn with(place: &Place, axis: Axis, value: &Value) -> Place {
        let mut place = place.clone();
        place.insert(axis, value.clone());
        place
    }
}

/// Results for tests.
#[cfg(test)]
pub mod testing {
    use super::super::experiment::{Experiment, OWN};
    use super::*;

    /// Of one of the lab's experiments in its short form, with these records.
    pub fn results(name: &str, engines: &[&str], records: Vec<Record>) -> Results {
        let text = OWN.iter().find(|(known, _)| *known == name).unwrap().1;
        let engines: Vec<String> = engines.iter().map(|name| (*name).to_string()).collect();
        Results { plan: Plan::new(Experiment::parse(text).unwrap(), "short", &engines, None).unwrap(), records }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::testing::record;
    use super::testing::results;
    use super::*;

    #[test]
    fn medians_and_quotients_over_rounds() {
        let mut records = Vec::new();
        // The machine gets faster from round to round; the ratio stays.
        for (round, base) in [(1, 1000), (2, 2000), (3, 4000)] {
            records.push(record("innodb", round, &[], base));
            records.push(record("strata", round, &[], 3 * base));
        }
        let results = results("tpcc-memory", &["innodb", "strata"], records);
        let strata = &results.plan.subjects[1];
        let tps = results.metric("tps", strata, Phase::Run, &Place::new()).unwrap();
        assert_eq!(
            (tps.figure.value, tps.figure.low, tps.figure.high, tps.figure.n),
            (600.0, Some(300.0), Some(1200.0), 3)
        );
        let ratio = results.ratio("tps", strata, Phase::Run, &Place::new()).unwrap();
        assert_eq!((ratio.figure.value, ratio.figure.low, ratio.figure.high), (3.0, Some(3.0), Some(3.0)));
    }

    #[test]
    fn what_is_disturbed_is_left_out_unless_it_is_all() {
        let mut records: Vec<Record> = (1..=3).map(|round| record("innodb", round, &[], 1000)).collect();
        records[0].run.transactions = 10;
        records[0].watch.stolen = 0.5;
        let mut results = results("tpcc-memory", &["innodb"], records);
        let of = |results: &Results| results.metric("tps", results.baseline(), Phase::Run, &Place::new()).unwrap();
        assert_eq!((of(&results).figure.low, of(&results).figure.n, of(&results).disturbed), (Some(100.0), 2, false));
        assert_eq!(results.left_out().len(), 1);
        results.records.iter_mut().for_each(|record| record.watch.others = 0.9);
        assert_eq!((of(&results).figure.n, of(&results).disturbed), (3, true));
    }

    #[test]
    fn ends_of_an_axis() {
        let results = results("tpcc-memory", &["innodb"], Vec::new());
        let at = |end| results.place(&BTreeMap::from([(Axis::Memory, At::End(end))]));
        assert_eq!(at(End::First)[&Axis::Memory], Value::Number(0.0556));
        assert_eq!(at(End::Last)[&Axis::Memory], Value::Number(1.1111));
    }

    #[test]
    fn a_load_is_shared_by_variants_with_the_same_files() {
        let mut load = record("innodb", 1, &[], 1000);
        load.phase = Phase::Load;
        let results = results("compressible", &["innodb", "innodb:nodoublewrite", "innodb:compressed"], vec![load]);
        let has = |n: usize| results.metric("tps", &results.plan.subjects[n], Phase::Load, &Place::new()).is_some();
        assert_eq!([has(0), has(1), has(2)], [true, true, false]);
    }
}
