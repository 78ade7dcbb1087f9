//! Goes through a plan, leaves out what is done, and tells how much time is left.

use super::experiment::Place;
use super::plan::{Plan, Step};
use super::record::Record;
use super::store::Store;
use anyhow::{Context, Result};
use std::time::Instant;

/// Does the steps of a plan.
pub trait Runner {
    /// Whether the files of a load are there.
    fn has_files(&mut self, plan: &Plan, subject: usize, data: &Place) -> Result<bool>;
    /// Does a step.
    fn run(&mut self, plan: &Plan, step: &Step, before: &[Record]) -> Result<Vec<Record>>;
}

/// Does what is not done yet, each step's records stored as it ends. An error ends it; the next call goes on there.
pub fn go_on(plan: &Plan, store: &mut Store, runner: &mut dyn Runner) -> Result<()> {
    let is_done = |store: &Store, step: &Step| plan.key(step).is_some_and(|key| store.has(&key));
    let already = plan.steps.iter().filter(|step| is_done(store, step)).count();
    let all = plan.steps.iter().filter(|step| plan.key(step).is_some()).count();
    if already > 0 {
        println!("{already} of {all} steps are done; going on.");
    }
    let mut number = 0;
    for (at, step) in plan.steps.iter().enumerate() {
        let key = plan.key(step);
        number += usize::from(key.is_some());
        if key.as_ref().is_some_and(|key| store.has(key)) && !needs_files(plan, store, runner, at)? {
            continue;
        }
        if key.is_some() {
            println!("[{number}/{all}] {}; about {} left", plan.text(step), minutes(left(plan, store)));
        }
        let began = Instant::now();
        let before = store.records()?;
        let records = runner.run(plan, step, &before).with_context(|| plan.text(step))?;
        if let Some(key) = key {
            store.add(&key, began.elapsed().as_secs_f64(), &records)?;
        }
    }
    Ok(())
}

/// Whether a load that is done must be done again: its files are gone and a measurement wants them.
fn needs_files(plan: &Plan, store: &Store, runner: &mut dyn Runner, at: usize) -> Result<bool> {
    let Step::Load { subject: loaded, data: of } = &plan.steps[at] else { return Ok(false) };
    let files = plan.subjects[*loaded].files();
    let wanted = plan.steps.iter().any(|step| match step {
        Step::Measure { subjects, data, .. } => {
            let uses = subjects.iter().any(|subject| plan.subjects[*subject].files() == files);
            data == of && uses && !plan.key(step).is_some_and(|key| store.has(&key))
        }
        _ => false,
    });
    Ok(wanted && !runner.has_files(plan, *loaded, of)?)
}

/// Seconds that are left, by the experiment's own times, corrected by how long the steps took that are done.
pub fn left(plan: &Plan, store: &Store) -> f64 {
    let (mut took, mut expected, mut open) = (0.0, 0.0, 0.0);
    for step in &plan.steps {
        let Some(key) = plan.key(step) else { continue };
        match store.manifest.done.iter().find(|done| done.key == key) {
            Some(done) => {
                took += done.seconds;
                expected += plan.estimate(step);
            }
            None => open += plan.estimate(step),
        }
    }
    if expected > 0.0 { open * took / expected } else { open }
}

/// `45 s`, `12 min`, `3.5 h`.
pub fn minutes(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Experiment, OWN};
    use super::super::record::testing::record;
    use super::*;
    use std::cell::RefCell;

    /// Stops with an error after so many steps; loaded files stay as long as nobody forgets them.
    struct Fake {
        left: usize,
        ran: Vec<String>,
        files: Vec<String>,
    }

    impl Runner for Fake {
        fn has_files(&mut self, _: &Plan, subject: usize, data: &Place) -> Result<bool> {
            Ok(self.files.contains(&format!("{subject} {data:?}")))
        }

        fn run(&mut self, plan: &Plan, step: &Step, _: &[Record]) -> Result<Vec<Record>> {
            let Some(key) = plan.key(step) else {
                self.files.clear();
                return Ok(Vec::new());
            };
            anyhow::ensure!(self.left > 0, "ended");
            self.left -= 1;
            self.ran.push(key);
            match step {
                Step::Load { subject, data } => {
                    self.files.push(format!("{subject} {data:?}"));
                    Ok(vec![record(plan.subjects[*subject].id(), 1, &[], 1)])
                }
                Step::Measure { subjects, rounds, .. } => {
                    Ok(vec![record(plan.subjects[subjects[0]].id(), rounds[0], &[], 2)])
                }
                Step::Forget { .. } => unreachable!("it has no key"),
            }
        }
    }

    fn plan() -> Plan {
        Plan::new(Experiment::parse(OWN[0].1).unwrap(), "short", &["innodb".into()], Some(1)).unwrap()
    }

    /// Tests have no server; a store needs none once it is there.
    fn store(folder: &std::path::Path, plan: &Plan) -> Store {
        let manifest = super::super::store::Manifest {
            experiment: plan.experiment.name.clone(),
            scale: plan.scale_name.clone(),
            rounds: plan.rounds,
            engines: vec!["innodb".into()],
            builds: Default::default(),
            begun: 0,
            done: Vec::new(),
        };
        std::fs::create_dir_all(folder.join("points")).unwrap();
        std::fs::write(folder.join("manifest.json"), serde_json::to_string(&manifest).unwrap()).unwrap();
        Store::read(folder).unwrap()
    }

    #[test]
    fn a_run_that_is_ended_goes_on() {
        let scratch = tempfile::tempdir().unwrap();
        let plan = plan();
        let all = plan.steps.iter().filter_map(|step| plan.key(step)).collect::<Vec<_>>();
        let ran = RefCell::new(Vec::new());
        let mut files = Vec::new();
        let mut first = store(scratch.path(), &plan);
        for n in [3, 1, 0, 100] {
            let mut runner = Fake { left: n, ran: Vec::new(), files };
            let ended = go_on(&plan, &mut first, &mut runner);
            assert_eq!(ended.is_ok(), n == 100, "{ended:?}");
            ran.borrow_mut().extend(runner.ran);
            files = runner.files;
            // As the next process sees it.
            first = Store::read(scratch.path()).unwrap();
        }
        assert_eq!(*ran.borrow(), all, "each step once, in order");
        assert_eq!(first.records().unwrap().len(), all.len());
        let mut idle = Fake { left: 0, ran: Vec::new(), files };
        go_on(&plan, &mut first, &mut idle).expect("nothing is left to do");
    }

    #[test]
    fn a_load_whose_files_are_gone_is_done_again() {
        let scratch = tempfile::tempdir().unwrap();
        let plan = plan();
        let mut store = store(scratch.path(), &plan);
        assert!(go_on(&plan, &mut store, &mut Fake { left: 2, ran: vec![], files: vec![] }).is_err());
        let mut second = Fake { left: 100, ran: Vec::new(), files: Vec::new() };
        go_on(&plan, &mut store, &mut second).unwrap();
        let keys: Vec<String> = plan.steps.iter().filter_map(|step| plan.key(step)).collect();
        assert_eq!(second.ran[0], keys[0], "the load");
        assert_eq!(second.ran[1], keys[2], "not the measurement that is done");
        assert_eq!(store.manifest.done.iter().filter(|done| done.key == keys[0]).count(), 1);
    }

    #[test]
    fn a_step_whose_file_is_lost_is_not_done() {
        let scratch = tempfile::tempdir().unwrap();
        let plan = plan();
        let mut store = store(scratch.path(), &plan);
        store.add("a", 1.0, &[]).unwrap();
        assert!(store.has("a"));
        std::fs::remove_file(scratch.path().join("points/a.json")).unwrap();
        assert!(!store.has("a"));
    }

    #[test]
    fn time_left() {
        let scratch = tempfile::tempdir().unwrap();
        let plan = plan();
        let mut store = store(scratch.path(), &plan);
        let whole = left(&plan, &store);
        assert_eq!(whole, plan.seconds());
        // Twice as slow as expected.
        let first = &plan.steps[0];
        store.add(&plan.key(first).unwrap(), 2.0 * plan.estimate(first), &[]).unwrap();
        let expected = 2.0 * (whole - plan.estimate(first));
        assert!((left(&plan, &store) - expected).abs() < 1e-6);
        assert_eq!((minutes(45.0), minutes(720.0), minutes(12600.0)), ("45 s".into(), "12 min".into(), "3.5 h".into()));
    }
}
