//! A measurement with its place in an experiment.

use super::experiment::{Axis, Phase, Place, Value, place_text};
use super::watch::Watched;
use crate::report::Run;
use serde::{Deserialize, Serialize};

/// What was measured of one engine at one place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The engine with its variant, as on the command line.
    pub subject: String,
    pub phase: Phase,
    /// From 1.
    pub round: u32,
    #[serde(with = "pairs")]
    pub place: Place,
    pub run: Run,
    pub watch: Watched,
}

impl Record {
    /// Why it does not count, if it does not.
    pub fn left_out(&self) -> Option<String> {
        if self.run.errors.is_empty() { self.watch.disturbed() } else { Some(self.run.errors.join("; ")) }
    }

    /// `strata, round 2, memory 0.06`.
    pub fn text(&self) -> String {
        let what = self.phase.label();
        let place = if self.place.is_empty() { String::new() } else { format!(", {}", place_text(&self.place)) };
        format!("{}{what}, round {}{place}", self.subject, self.round)
    }

    /// Whether it stands at these values, as far as they are named.
    pub fn is_at(&self, place: &Place) -> bool {
        place.iter().all(|(axis, value)| self.place.get(axis) == Some(value))
    }
}

/// A place as a list: JSON has only text as keys.
mod pairs {
    use super::{Axis, Place, Value};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(place: &Place, to: S) -> Result<S::Ok, S::Error> {
        place.iter().collect::<Vec<_>>().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Place, D::Error> {
        Ok(Vec::<(Axis, Value)>::deserialize(from)?.into_iter().collect())
    }
}

/// Records for tests.
#[cfg(test)]
pub mod testing {
    use super::*;
    use crate::engine::Kind;
    use clap::ValueEnum;

    /// A run of 10 seconds in which so many transactions ended.
    pub fn record(subject: &str, round: u32, place: &[(Axis, Value)], transactions: u64) -> Record {
        let kind = Kind::from_str(subject.split(':').next().unwrap(), false).unwrap();
        Record {
            subject: subject.into(),
            phase: Phase::Run,
            round,
            place: place.iter().cloned().collect(),
            run: crate::report::testing::run(kind, "test", round, transactions),
            watch: Watched::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::record;
    use super::*;

    #[test]
    fn as_json_and_back() {
        let one = record("rocksdb:none", 2, &[(Axis::Memory, Value::Number(5.0 / 90.0))], 7);
        let back: Record = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
        assert_eq!((back.place, back.subject, back.run.transactions), (one.place.clone(), one.subject.clone(), 7));
        assert_eq!(one.text(), "rocksdb:none, round 2, memory 0.056");
    }

    #[test]
    fn errors_and_disturbance_leave_it_out() {
        let mut one = record("innodb", 1, &[], 7);
        assert_eq!(one.left_out(), None);
        one.watch.stolen = 0.5;
        assert!(one.left_out().unwrap().contains("hypervisor"));
        one.run.errors.push("1205".into());
        assert_eq!(one.left_out().unwrap(), "1205");
    }
}
