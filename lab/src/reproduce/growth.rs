//! How figures grow with the data: the factor for each doubling, beside what an LSM tree promises.
//!
//! The depth of a tree is the logarithm of its data over its memory: `log2(1 + rows / memory)`, the one added so that data within the
//! memory have some depth, too. By its [`Law`] a figure may grow as the depth, as one over it, as the data, or as the memory. With
//! memory that grows with the data the depth stays, and costs should stay with it; with fixed memory both grow, by less and less.
//!
//! Growth is taken between the smallest and the largest data: the quotient of both figures, of which the root is drawn that one
//! doubling makes. It is more than promised if all rounds are, by more than [`TOLERANCE`].
//!
//! Rejected: a line fitted through all sizes (with three of them the middle one decides about nothing but its own place).

use super::drawn::{column, ratio};
use super::experiment::{Axis, Figure, Form, Law, Phase, Place, Value};
use super::metric;
use super::results::{Measured, Results};
use super::subject::Subject;
use crate::page::{Cell, Figure as Shown, Row, Table, number};

/// Growth within this factor a doubling is as promised.
const TOLERANCE: f64 = 1.05;

/// The growth of a metric between the smallest and the largest data at a place.
pub struct Growth<'a> {
    results: &'a Results,
    place: Place,
    ends: [Value; 2],
    doublings: f64,
}

impl<'a> Growth<'a> {
    /// At a place without a size; none if there are not two sizes.
    pub fn new(results: &'a Results, place: &Place) -> Option<Growth<'a>> {
        let sizes = results.plan.axis(Axis::Size);
        let ends = [sizes.first()?.clone(), sizes.last()?.clone()];
        let doublings = (ends[1].number()? / ends[0].number()?).log2();
        (doublings > 0.0).then(|| Growth { results, place: place.clone(), ends, doublings })
    }

    fn at(&self, end: usize) -> Place {
        Results::with(&self.place, Axis::Size, &self.ends[end])
    }

    /// The factor that an engine's figure grows by when the data double.
    pub fn of(&self, name: &str, subject: &Subject) -> Option<Measured> {
        let [small, large] = [0, 1].map(|end| self.results.metric(name, subject, Phase::Run, &self.at(end)));
        Results::quotient(&large?, &small?)?.map(|quotient| self.root(quotient))
    }

    /// The same as a law has it.
    pub fn promised(&self, law: Law) -> Option<f64> {
        let baseline = self.results.baseline();
        let both = |name: &str, phase: Phase| {
            let of = |end| Some(self.results.metric(name, baseline, phase, &self.at(end))?.figure.value);
            Some([of(0)?, of(1)?])
        };
        let memory = both("memory_mb", Phase::Run)?;
        let data = || -> Option<[f64; 2]> {
            let of = |end: usize| {
                let size = Place::from([(Axis::Size, self.ends[end].clone())]);
                Some(self.results.metric("logical_mb", baseline, Phase::Load, &size)?.figure.value)
            };
            Some([of(0)?, of(1)?])
        };
        let [small, large] = match law {
            Law::Memory => memory,
            Law::Data => data()?,
            Law::Depth | Law::Rate => {
                let data = data()?;
                [0, 1].map(|end| (1.0 + data[end] / memory[end]).log2())
            }
        };
        let quotient = if law == Law::Rate { small / large } else { large / small };
        Some(self.root(quotient))
    }

    fn root(&self, quotient: f64) -> f64 {
        quotient.powf(1.0 / self.doublings)
    }
}

/// Whether a figure grows worse than it may, in all rounds.
fn is_worse(figure: &Shown, law: Law, promised: f64) -> bool {
    let (low, high) = figure.spread().unwrap_or((figure.value, figure.value));
    match law {
        Law::Rate => high * TOLERANCE < promised,
        Law::Depth | Law::Data | Law::Memory => low > promised * TOLERANCE,
    }
}

/// A row for each metric: the factor of each engine, and the promised one.
pub fn table(results: &Results, figure: &Figure, subjects: &[&Subject]) -> Table {
    let place = results.place(&figure.at);
    let growth = Growth::new(results, &place);
    let mut columns: Vec<_> = subjects.iter().map(|subject| column(subject.title())).collect();
    columns.push(column("promised"));
    let rows = figure.y.iter().map(|name| {
        let of = |subject: &&Subject| ratio(growth.as_ref().and_then(|growth| growth.of(name, subject)).as_ref());
        let promised = growth.as_ref().and_then(|growth| growth.promised(figure.laws[name]));
        let cells = subjects.iter().map(of).chain([Cell::ratio(promised.map(Shown::from))]);
        Row { head: metric::title(name), cells: cells.collect() }
    });
    let rows = rows.collect();
    Table { caption: "Factor when the data double".into(), corner: "figure".into(), columns, rows }
}

/// A sentence for each engine and each figure of growth: what grows faster than promised.
pub fn sentences(results: &Results) -> Vec<String> {
    let mut sentences = Vec::new();
    for figure in results.plan.experiment.figures.iter().filter(|figure| figure.form == Form::Growth) {
        let place = results.place(&figure.at);
        let Some(growth) = Growth::new(results, &place) else { continue };
        let memory = place.get(&Axis::Budget).map(|budget| format!(", {budget} memory")).unwrap_or_default();
        for subject in results.chosen(&figure.engines, Phase::Run) {
            sentences.push(format!("{}{memory}: {}.", subject.title(), words(&growth, figure, subject)));
        }
    }
    sentences
}

fn words(growth: &Growth, figure: &Figure, subject: &Subject) -> String {
    let (mut judged, mut disturbed, mut worse) = (0, 0, Vec::new());
    for name in &figure.y {
        let law = figure.laws[name];
        let Some((measured, promised)) = growth.of(name, subject).zip(growth.promised(law)) else { continue };
        if measured.disturbed {
            disturbed += 1;
            continue;
        }
        judged += 1;
        if is_worse(&measured.figure, law, promised) {
            let factor = |value: f64| number((value * 100.0).round() / 100.0);
            let (ours, promised) = (factor(measured.figure.value), factor(promised));
            worse.push(format!("{} (times {ours} for each doubling, {promised} promised)", metric::title(name)));
        }
    }
    let not_judged = match disturbed {
        0 => String::new(),
        n => format!("; {n} were disturbed and are not judged"),
    };
    match (judged, worse.len()) {
        (0, _) => format!("nothing can be judged{not_judged}"),
        (all, 0) => format!("all {all} figures that were judged grow as promised or less{not_judged}"),
        (all, n) => {
            format!("{} of {all} figures grow as promised or less; more do {}{not_judged}", all - n, worse.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Experiment, SCALE};
    use super::super::plan::Plan;
    use super::super::record::testing::record;
    use super::*;

    /// Data of 1 and of 16 times 70 MB; `tps` and bytes written by size, in each of two rounds.
    fn results(budget: &str, figures: [(f64, u64, u64); 2]) -> Results {
        let plan = Plan::new(Experiment::parse(SCALE.1).unwrap(), "short", &["strata".into()], Some(2)).unwrap();
        let mut records = Vec::new();
        for (size, transactions, kb) in figures {
            let size_value = Value::Number(size);
            let mut load = record("strata", 1, &[(Axis::Size, size_value.clone())], 1);
            load.phase = Phase::Load;
            load.run.further.insert("logical MB".into(), 70.0 * size);
            records.push(load);
            for round in 1..=2 {
                let place = [(Axis::Size, size_value.clone()), (Axis::Budget, Value::Text(budget.into()))];
                let mut run = record("strata", round, &place, transactions);
                run.run.conditions.budget_mb = if budget == "growing" { 10 * size as u64 } else { 10 };
                run.run.usage.write_bytes = kb * 1024 * transactions;
                records.push(run);
            }
        }
        Results { plan, records }
    }

    fn growth(results: &Results, budget: &str, name: &str, law: Law) -> (f64, f64) {
        let place = Place::from([(Axis::Budget, Value::Text(budget.into()))]);
        let growth = Growth::new(results, &place).unwrap();
        (growth.of(name, results.baseline()).unwrap().figure.value, growth.promised(law).unwrap())
    }

    #[test]
    fn a_factor_for_each_doubling() {
        let results = results("fixed", [(1.0, 1600, 10), (16.0, 100, 160)]);
        // log2(8) = 3 levels become log2(113).
        let depth = (113f64.log2() / 3.0).powf(0.25);
        let (ours, promised) = growth(&results, "fixed", "written_kb_tx", Law::Depth);
        assert!((ours - 2.0).abs() < 1e-9 && (promised - depth).abs() < 1e-9, "{ours} {promised}");
        let (ours, promised) = growth(&results, "fixed", "tps", Law::Rate);
        assert!((ours - 0.5).abs() < 1e-9 && (promised - 1.0 / depth).abs() < 1e-9, "{ours} {promised}");
        assert_eq!(growth(&results, "fixed", "tps", Law::Data).1, 2.0);
        assert_eq!(growth(&results, "fixed", "tps", Law::Memory).1, 1.0);
        let told = sentences(&results);
        let fixed = told.iter().find(|text| text.starts_with("Strata, fixed memory: ")).unwrap();
        assert!(fixed.contains("KB written/tx (times 2.00 for each doubling, 1.23 promised)"), "{fixed}");
        assert!(fixed.contains("transactions/s (times 0.50 for each doubling, 0.81 promised)"), "{fixed}");
    }

    #[test]
    fn with_growing_memory_costs_stay() {
        // The smallest data are measured once, for both budgets.
        let mut all = results("fixed", [(1.0, 1600, 10), (16.0, 1000, 13)]);
        all.records.extend(results("growing", [(1.0, 1, 1), (16.0, 1590, 10)]).records.split_off(3));
        let (ours, promised) = growth(&all, "growing", "written_kb_tx", Law::Depth);
        assert!((ours - 1.0).abs() < 1e-9 && (promised - 1.0).abs() < 1e-9, "{ours} {promised}");
        assert_eq!(growth(&all, "growing", "tps", Law::Memory).1, 2.0);
        let told = sentences(&all);
        let growing = told.iter().find(|text| text.starts_with("Strata, growing memory: ")).unwrap();
        assert!(growing.contains("grow as promised or less"), "{growing}");
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let mut all = results("fixed", [(1.0, 1600, 10), (16.0, 100, 160)]);
        all.records.iter_mut().for_each(|record| record.watch.others = 0.9);
        let told = sentences(&all);
        assert!(told[0].contains("nothing can be judged") && told[0].contains("disturbed"), "{told:?}");
        all.records.clear();
        assert!(sentences(&all).iter().all(|text| text.contains("nothing can be judged")));
    }
}
