//! The steps of an experiment, in their order.
//!
//! For each set of data (the values of sweeps that need other data): each engine is loaded, then in each round each place is
//! measured with one engine after the other. What is compared was so measured within minutes of each other, and each place begins
//! with another engine. Sweeps within a server's life are measured at each stop of these. Where a scale has its engines side by side, a
//! place is one step: all servers are started, and all rounds are turns of theirs.

use super::experiment::{Axis, Experiment, How, Place, Scale, Value, Workload, place_text};
use super::settings::Settings;
use super::subject::Subject;
use anyhow::{Result, ensure};

/// The budget that does not grow with the data.
pub const FIXED: &str = "fixed";

/// A step; the keys of a plan are different, and fit for file names.
#[derive(Clone, Debug)]
pub enum Step {
    /// Loads an engine and keeps its files.
    Load { subject: usize, data: Place },
    /// Measures engines from the files of their loads, at each of the inner places one after the other: one engine in one round, or
    /// all of them, side by side, in all rounds.
    Measure { subjects: Vec<usize>, rounds: Vec<u32>, data: Place, place: Place, inner: Vec<Place> },
    /// The files of these data are not needed any more.
    Forget { data: Place },
}

/// An experiment at a scale, with its engines.
pub struct Plan {
    pub experiment: Experiment,
    pub scale_name: String,
    pub scale: Scale,
    pub settings: Settings,
    pub rounds: u32,
    /// Those that are compared first, then those that are only loaded.
    pub subjects: Vec<Subject>,
    pub compared: usize,
    pub steps: Vec<Step>,
}

impl Plan {
    /// Makes the plan. The first of the engines is what all others are compared with.
    pub fn new(experiment: Experiment, scale_name: &str, engines: &[String], rounds: Option<u32>) -> Result<Plan> {
        let Some(scale) = experiment.scales.get(scale_name).cloned() else {
            let names: Vec<&str> = experiment.scales.keys().map(String::as_str).collect();
            anyhow::bail!("there is no scale {scale_name}; there are {}", names.join(", "))
        };
        let settings = Settings::of(&experiment, &scale)?;
        let named = if engines.is_empty() { &experiment.engines } else { engines };
        let mut subjects = named.iter().map(|text| text.parse()).collect::<Result<Vec<Subject>>>()?;
        let compared = subjects.len();
        for text in &experiment.load_only {
            let subject: Subject = text.parse()?;
            // Who has chosen engines does not want others.
            let wanted = subjects[..compared].iter().any(|compared| compared.kind == subject.kind);
            if wanted && !subjects.iter().any(|have| have.id() == subject.id()) {
                subjects.push(subject);
            }
        }
        for (n, subject) in subjects.iter().enumerate() {
            ensure!(!subjects[..n].iter().any(|have| have.id() == subject.id()), "{} is named twice", subject.id());
        }
        let rounds = rounds.unwrap_or(scale.rounds);
        ensure!(rounds > 0, "there must be a round");
        let mut plan = Plan {
            experiment,
            scale_name: scale_name.to_string(),
            scale,
            settings,
            rounds,
            subjects,
            compared,
            steps: Vec::new(),
        };
        plan.steps = plan.in_order();
        Ok(plan)
    }

    fn in_order(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for data in self.places(How::Data) {
            let mut loaded: Vec<String> = Vec::new();
            for (n, subject) in self.subjects.iter().enumerate() {
                if !loaded.contains(&subject.files()) {
                    loaded.push(subject.files());
                    steps.push(Step::Load { subject: n, data: data.clone() });
                }
            }
            let rounds: Vec<u32> = (1..=self.rounds).collect();
            let together = if self.is_side_by_side() { rounds.len() } else { 1 };
            for rounds in rounds.chunks(together) {
                let places = self.places(How::Start).into_iter();
                for (at, place) in places.filter(|place| self.is_own(&data, place)).enumerate() {
                    let mut subjects: Vec<usize> = (0..self.compared).collect();
                    subjects.rotate_left((at + rounds[0] as usize - 1) % self.compared);
                    let together = if self.is_side_by_side() { self.compared } else { 1 };
                    steps.extend(subjects.chunks(together).map(|subjects| Step::Measure {
                        subjects: subjects.to_vec(),
                        rounds: rounds.to_vec(),
                        data: data.clone(),
                        place: place.clone(),
                        inner: self.places(How::Within),
                    }));
                }
            }
            steps.push(Step::Forget { data });
        }
        steps
    }

    /// Whether all servers run at once. Variants of one engine have one folder, and so one server.
    pub fn is_side_by_side(&self) -> bool {
        let compared = &self.subjects[..self.compared];
        let alone = |n: usize| compared[..n].iter().all(|before| before.kind != compared[n].kind);
        self.scale.side_by_side && compared.len() > 1 && (0..compared.len()).all(alone)
    }

    /// Whether a place is none that is measured as another one: with the smallest data the memory has not grown yet.
    fn is_own(&self, data: &Place, place: &Place) -> bool {
        let whole: Place = data.iter().chain(place).map(|(axis, value)| (*axis, value.clone())).collect();
        self.measured_as(&whole) == whole
    }

    /// Where what is asked for at a place was measured.
    pub fn measured_as(&self, place: &Place) -> Place {
        let mut place = place.clone();
        let smallest = place.get(&Axis::Size).is_some_and(|size| self.axis(Axis::Size).first() == Some(size));
        if smallest && place.contains_key(&Axis::Budget) {
            place.insert(Axis::Budget, Value::Text(FIXED.into()));
        }
        place
    }

    /// All combinations of the values of these sweeps, the last one changing fastest.
    fn places(&self, how: How) -> Vec<Place> {
        let mut places = vec![Place::new()];
        for sweep in self.experiment.sweeps.iter().filter(|sweep| sweep.how == how) {
            let values = self.experiment.values(sweep.axis, &self.scale);
            places = places
                .iter()
                .flat_map(|place| {
                    values.iter().map(|value| {
                        let mut place = place.clone();
                        place.insert(sweep.axis, value.clone());
                        place
                    })
                })
                .collect();
        }
        places
    }

    /// Name of a step; none for those that leave nothing.
    pub fn key(&self, step: &Step) -> Option<String> {
        let text = match step {
            Step::Load { subject, data } => format!("load {} {}", self.subjects[*subject].files(), place_key(data)),
            Step::Measure { subjects, rounds, data, place, .. } => {
                let place = format!("{} {}", place_key(data), place_key(place));
                match (subjects.as_slice(), rounds.as_slice()) {
                    ([subject], [round]) => format!("r{round} {} {place}", self.subjects[*subject].id()),
                    _ => format!("side by side {place}"),
                }
            }
            Step::Forget { .. } => return None,
        };
        let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').collect();
        Some(words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-"))
    }

    /// Name of the kept files of a load.
    pub fn saved(&self, subject: usize, data: &Place) -> String {
        let data = place_key(data).replace(' ', "-");
        let dash = if data.is_empty() { "" } else { "-" };
        format!("{}-{}-{}{dash}{data}", self.experiment.name, self.scale_name, self.subjects[subject].files())
    }

    /// What a step is called while it runs.
    pub fn text(&self, step: &Step) -> String {
        match step {
            Step::Load { subject, data } => format!("{}, load{}", self.subjects[*subject].title(), behind(data)),
            Step::Measure { subjects, rounds, data, place, .. } => {
                let whole: Place = data.iter().chain(place).map(|(axis, value)| (*axis, value.clone())).collect();
                match (subjects.as_slice(), rounds.as_slice()) {
                    ([subject], [round]) => {
                        format!("{}, round {round}{}", self.subjects[*subject].title(), behind(&whole))
                    }
                    _ => format!("all engines side by side{}", behind(&whole)),
                }
            }
            Step::Forget { .. } => "removing kept data".into(),
        }
    }

    /// Seconds of the same load before a measurement: the `turn`th, from 0, at the `at`th inner place. What was in memory at an
    /// earlier turn still is; sysbench's tables are all read when their server has started, and its sessions take seconds to begin.
    pub fn warmup(&self, at: usize, turn: usize) -> u64 {
        let again = turn > 0 || at > 0 && self.experiment.workload == Workload::Sysbench;
        if again { 0 } else { self.settings.warmup }
    }

    /// How long a step takes by what the experiment says, in seconds.
    pub fn estimate(&self, step: &Step) -> f64 {
        let Settings { seconds, paced_seconds, .. } = self.settings;
        match step {
            Step::Load { data, .. } => self.scale.times.load * size(data),
            Step::Measure { subjects, rounds, inner, data, .. } => {
                let paced = paced_seconds + self.settings.paced_warmup();
                let each = paced as f64 + seconds as f64 * f64::from(self.settings.windows());
                // The load before the kill, and both starts.
                let (more, starts) = if self.settings.restarts { (seconds as f64, 3.0) } else { (0.0, 1.0) };
                let warmups: u64 = (0..inner.len()).map(|at| self.warmup(at, 0)).sum();
                let measured = (each + more) * (rounds.len() * inner.len()) as f64;
                let alone = self.scale.times.start * starts * size(data).sqrt() + warmups as f64 + measured;
                alone * subjects.len() as f64
            }
            Step::Forget { .. } => 0.0,
        }
    }

    /// The same of the whole experiment.
    pub fn seconds(&self) -> f64 {
        self.steps.iter().map(|step| self.estimate(step)).sum()
    }

    /// The values of an axis, in their order.
    pub fn axis(&self, axis: Axis) -> Vec<Value> {
        if axis == Axis::Window {
            let windows = 1..=self.settings.windows();
            return windows.map(|n| Value::Number(f64::from(n))).collect();
        }
        self.experiment.values(axis, &self.scale)
    }
}

/// The data in multiples of the smallest.
fn size(data: &Place) -> f64 {
    data.get(&Axis::Size).and_then(Value::number).unwrap_or(1.0)
}

fn behind(place: &Place) -> String {
    if place.is_empty() { String::new() } else { format!(": {}", place_text(place)) }
}

fn place_key(place: &Place) -> String {
    let parts: Vec<String> = place.iter().map(|(axis, value)| format!("{} {value}", axis.name())).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::experiment::OWN;
    use super::*;

    fn plan(name: &str, engines: &[&str]) -> Plan {
        let text = OWN.iter().find(|(known, _)| *known == name).unwrap().1;
        let engines: Vec<String> = engines.iter().map(|name| (*name).to_string()).collect();
        Plan::new(Experiment::parse(text).unwrap(), "short", &engines, Some(2)).unwrap()
    }

    /// Engines and rounds of what is measured, in order.
    fn measured(plan: &Plan) -> Vec<(Vec<usize>, Vec<u32>)> {
        let of = |step: &Step| match step {
            Step::Measure { subjects, rounds, .. } => Some((subjects.clone(), rounds.clone())),
            _ => None,
        };
        plan.steps.iter().filter_map(of).collect()
    }

    #[test]
    fn engines_take_turns_at_each_place() {
        let mut plan = plan("tpcc-memory", &["innodb", "strata"]);
        plan.scale.side_by_side = false;
        plan.steps = plan.in_order();
        let measured = measured(&plan);
        assert!(measured.iter().all(|(subjects, rounds)| (subjects.len(), rounds.len()) == (1, 1)));
        let order: Vec<usize> = measured.iter().map(|(subjects, _)| subjects[0]).collect();
        assert_eq!(order.len(), 2 * 11 * 2, "rounds, sizes, engines");
        for pair in order.chunks(2) {
            assert_ne!(pair[0], pair[1], "each place has each engine");
        }
        assert_ne!(order[0], order[2], "the next place begins with the other one");
        assert_ne!(order[0], order[22], "the next round, too");
    }

    #[test]
    fn side_by_side_a_place_is_one_step() {
        let plan = plan("tpcc-memory", &["innodb", "strata"]);
        let measured = measured(&plan);
        assert_eq!(measured.len(), 11, "sizes");
        assert_eq!(measured[0], (vec![0, 1], vec![1, 2]));
        assert_eq!(measured[1], (vec![1, 0], vec![1, 2]), "the next place begins with the other one");
        // As much is measured as one after the other; the servers are started and warmed once for all rounds.
        let mut alone =
            Plan::new(plan.experiment.clone(), "short", &["innodb".into(), "strata".into()], Some(2)).unwrap();
        alone.scale.side_by_side = false;
        alone.steps = alone.in_order();
        let starts = plan.scale.times.start * f64::from(2 * 11);
        let warmups = plan.settings.warmup as f64 * f64::from(2 * 11);
        assert!((alone.seconds() - plan.seconds() - starts - warmups).abs() < 1e-6);
    }

    #[test]
    fn a_server_is_warmed_before_what_it_has_not_seen() {
        let (tpcc, xa) = (plan("tpcc-memory", &["innodb", "strata"]), plan("xa", &["innodb", "strata"]));
        assert!(tpcc.settings.warmup > 0 && xa.settings.warmup > 0);
        let warm = |plan: &Plan| [(0, 0), (0, 1), (1, 0)].map(|(at, turn)| plan.warmup(at, turn) > 0);
        assert_eq!((warm(&tpcc), warm(&xa)), ([true, false, true], [true, false, false]));
    }

    #[test]
    fn variants_of_an_engine_are_measured_alone() {
        let plan = plan("tpcc-memory", &["innodb", "innodb:nodoublewrite"]);
        assert!(!plan.is_side_by_side() && measured(&plan).iter().all(|(subjects, _)| subjects.len() == 1));
    }

    #[test]
    fn keys_are_different_and_loads_are_shared() {
        for (name, _) in OWN {
            let plan = plan(name, &[]);
            let keys: Vec<String> = plan.steps.iter().filter_map(|step| plan.key(step)).collect();
            let mut different = keys.clone();
            different.sort();
            different.dedup();
            assert_eq!(different.len(), keys.len(), "{name}");
            assert!(keys.iter().all(|key| key.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))));
        }
        let plan = plan("compressible", &["innodb", "innodb:nodoublewrite", "strata"]);
        let loads = plan.steps.iter().filter(|step| matches!(step, Step::Load { .. })).count();
        let data = plan.axis(Axis::Compressibility).len();
        // Strata's tables without compression are loaded for their size.
        let only = plan.subjects.len() - plan.compared;
        assert_eq!(loads, data * (2 + only));
        assert_eq!(plan.saved(0, &Place::new()), plan.saved(1, &Place::new()));
    }

    #[test]
    fn engines_that_were_not_chosen_are_not_loaded() {
        let plan = plan("tpcc-memory", &["innodb", "strata"]);
        assert!(plan.subjects.iter().all(|subject| subject.id() != "rocksdb:none"));
        let text = OWN[0].1;
        let twice = ["innodb".to_string(), "innodb".to_string()];
        assert!(Plan::new(Experiment::parse(text).unwrap(), "short", &twice, None).is_err());
        assert!(Plan::new(Experiment::parse(text).unwrap(), "medium", &[], None).is_err());
    }

    #[test]
    fn the_short_forms_leave_a_fifth_of_the_hour() {
        // 'make lab' on a clean clone also installs, builds, and measures once more what was disturbed.
        let seconds = |text: &str| Plan::new(Experiment::parse(text).unwrap(), "short", &[], None).unwrap().seconds();
        let all: f64 = OWN.iter().map(|(_, text)| seconds(text)).sum();
        assert!(all < 0.8 * 3600.0, "{} minutes", all / 60.0);
    }

    #[test]
    fn redmine_s_runs_are_in_order() {
        let text = OWN.iter().find(|(name, _)| *name == "redmine").unwrap().1;
        let engines = ["innodb".to_string(), "strata".to_string()];
        let plan = Plan::new(Experiment::parse(text).unwrap(), "short", &engines, Some(2)).unwrap();
        let steps: Vec<String> = plan.steps.iter().map(|step| plan.key(step).unwrap_or("forget".into())).collect();
        let of = |set: &str| {
            let places = [(1, "innodb"), (1, "strata"), (2, "strata"), (2, "innodb")];
            let loads = ["innodb", "strata"].map(|engine| format!("load-{engine}-set-{set}"));
            let runs = places.map(|(round, engine)| format!("r{round}-{engine}-set-{set}"));
            loads.into_iter().chain(runs).chain(["forget".to_string()]).collect::<Vec<_>>()
        };
        assert_eq!(steps, [of("small"), of("large"), of("giant")].concat(), "a set at a time, engines in turns");
        // On one server: processes, then the disk's load, then the operation, which changes fastest.
        let Some(Step::Measure { inner, .. }) = plan.steps.iter().find(|step| matches!(step, Step::Measure { .. }))
        else {
            panic!("nothing is measured")
        };
        assert_eq!(inner.len(), 2 * 3 * 2);
        assert_eq!(place_text(&inner[0]), "case create, processes 1, disk none");
        assert_eq!(place_text(&inner[1]), "case process, processes 1, disk none");
        assert_eq!(place_text(&inner[2]), "case create, processes 1, disk light");
        assert_eq!(place_text(&inner[11]), "case process, processes 4, disk 4 threads");
        // The sets keep their proportions, and no set loses anything.
        let sets = &plan.settings.sets;
        assert_eq!([&sets["small"], &sets["large"], &sets["giant"]].map(|set| set.issues), [10, 100, 1000]);
        assert_eq!((sets["small"].users, sets["small"].projects.as_slice()), (1, &[1, 1][..]));
        assert_eq!((sets["giant"].projects.as_slice(), sets["giant"].memory_mb), (&[1, 10, 1][..], 72));
        assert_eq!((plan.settings.members, plan.settings.comments), (10, 10));
    }
}
