//! A scenario: one phenomenon, and for each isolation level and engine the steps
//! that would show it, with what each step must answer.
//!
//! ```text
//! phenomenon: P4 lost update
//! about: What happens, in words.
//! setup: ALTER TABLE t ADD KEY (value)          any number; t has (1,10) and (2,20)
//!
//! at RC RR: occurs                              or: prevented; levels RU RC RR SER
//! at RU on strata: prevented                    for one engine only
//! because: ...                                  must be there if the engines differ
//! A,B BEGIN                                     sessions, then a statement
//! A  SELECT * FROM t -> 1,10 2,20               rows; or 'none'
//! B  UPDATE t SET ... -> waits                  for a lock that another session holds
//! A  COMMIT
//! B  ... -> 1 changed                           the statement that waited ends; or 'error 1213'
//! ```
//!
//! A step without an arrow must succeed. Each level has its steps for each engine
//! exactly once; where both engines share them they are the same by construction,
//! and where they do not, Strata's section gives the argument. A statement for a
//! session that waits, or a session that still waits at the end, is an error in
//! the text, found before anything runs.

use crate::engine::Kind;
use crate::options::Isolation;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fmt;

/// The levels with their names in scenarios, weakest first.
pub const LEVELS: [(&str, Isolation); 4] = [
    ("RU", Isolation::ReadUncommitted),
    ("RC", Isolation::ReadCommitted),
    ("RR", Isolation::RepeatableRead),
    ("SER", Isolation::Serializable),
];
/// The engines that scenarios speak of.
pub const ENGINES: [Kind; 2] = [Kind::Innodb, Kind::Strata];

/// A parsed file.
#[derive(Debug)]
pub struct Scenario {
    pub phenomenon: String,
    pub setup: Vec<String>,
    pub sections: Vec<Section>,
}

/// The steps for some levels and engines.
#[derive(Debug)]
pub struct Section {
    pub levels: Vec<Isolation>,
    pub engines: Vec<Kind>,
    pub verdict: Verdict,
    pub because: Option<String>,
    pub steps: Vec<Step>,
}

/// Whether the phenomenon shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Occurs,
    Prevented,
}

/// One session does one thing.
#[derive(Debug)]
pub struct Step {
    /// In the file, from 1.
    pub line: usize,
    pub session: char,
    /// `None`: the statement that waits ends.
    pub statement: Option<String>,
    pub answer: Answer,
}

/// What a statement answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Anything but an error; stands in scenarios only.
    Success,
    /// So many rows were changed.
    Changed(u64),
    /// These rows, each with its columns joined by a comma; in any order.
    Rows(BTreeSet<String>),
    /// An error of this number.
    Error(u16),
    /// Nothing yet: it waits for a lock.
    Waits,
}

impl Answer {
    /// Whether `given` is what is asked for here.
    pub fn admits(&self, given: &Answer) -> bool {
        match self {
            Answer::Success => !matches!(given, Answer::Error(_) | Answer::Waits),
            _ => self == given,
        }
    }

    fn parse(text: &str) -> Result<Answer> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words[..] {
            ["waits"] => Answer::Waits,
            ["none"] => Answer::Rows(BTreeSet::new()),
            ["error", number] => Answer::Error(number.parse().context("an error has a number")?),
            [count, "changed"] => Answer::Changed(count.parse().context("a number of rows")?),
            [] => bail!("there is nothing behind the arrow"),
            _ => Answer::Rows(words.iter().map(|word| word.to_string()).collect()),
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Success => write!(f, "success"),
            Answer::Changed(count) => write!(f, "{count} changed"),
            Answer::Rows(rows) if rows.is_empty() => write!(f, "no rows"),
            Answer::Rows(rows) => write!(f, "{}", rows.iter().cloned().collect::<Vec<_>>().join(" ")),
            Answer::Error(number) => write!(f, "error {number}"),
            Answer::Waits => write!(f, "waits"),
        }
    }
}

impl Scenario {
    /// Parses a file's text and checks that it is complete.
    pub fn parse(text: &str) -> Result<Scenario> {
        let mut scenario = Scenario { phenomenon: String::new(), setup: vec![], sections: vec![] };
        let mut about = false;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_end();
            let at = || format!("line {}: '{line}'", index + 1);
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line.strip_prefix("phenomenon: ") {
                scenario.phenomenon = name.to_string();
            } else if line.starts_with("about: ") {
                about = true;
            } else if let Some(statement) = line.strip_prefix("setup: ") {
                scenario.setup.push(statement.to_string());
            } else if let Some(header) = line.strip_prefix("at ") {
                scenario.sections.push(section(header).with_context(at)?);
            } else {
                let section = scenario.sections.last_mut().context("a step before 'at'").with_context(at)?;
                match line.strip_prefix("because: ") {
                    Some(because) => section.because = Some(because.to_string()),
                    None => steps(index + 1, line, &mut section.steps).with_context(at)?,
                }
            }
        }
        ensure!(!scenario.phenomenon.is_empty(), "there is no 'phenomenon:'");
        ensure!(about, "there is no 'about:'");
        scenario.check()?;
        Ok(scenario)
    }

    /// The steps for a level and an engine.
    pub fn section(&self, level: Isolation, engine: Kind) -> Option<&Section> {
        self.sections.iter().find(|s| s.levels.contains(&level) && s.engines.contains(&engine))
    }

    /// Why Strata differs from InnoDB at a level, if it does.
    pub fn because(&self, level: Isolation) -> Option<&str> {
        self.section(level, Kind::Strata)?.because.as_deref()
    }

    fn check(&self) -> Result<()> {
        for (name, level) in LEVELS {
            for engine in ENGINES {
                let count =
                    self.sections.iter().filter(|s| s.levels.contains(&level) && s.engines.contains(&engine)).count();
                ensure!(count == 1, "{name} on {} has {count} sections, not one", engine.id());
            }
        }
        for section in &self.sections {
            let differs = section.engines == [Kind::Strata];
            ensure!(
                differs == section.because.is_some(),
                "'because:' stands in a section of Strata alone, and in each of these"
            );
            let mut waiting = BTreeSet::new();
            for step in &section.steps {
                let resumed = step.statement.is_none();
                ensure!(
                    waiting.remove(&step.session) == resumed,
                    "line {}: session {} {}",
                    step.line,
                    step.session,
                    if resumed { "does not wait" } else { "waits, and cannot do that" }
                );
                if step.answer == Answer::Waits {
                    waiting.insert(step.session);
                }
            }
            ensure!(waiting.is_empty(), "sessions {waiting:?} wait at the end");
        }
        Ok(())
    }
}

fn section(header: &str) -> Result<Section> {
    let (place, verdict) = header.split_once(": ").context("'at LEVELS: VERDICT'")?;
    let (levels, engines) = place.split_once(" on ").unwrap_or((place, ""));
    let levels = levels.split_whitespace().map(level).collect::<Result<Vec<_>>>()?;
    let engines = match engines {
        "" => ENGINES.to_vec(),
        name => vec![*ENGINES.iter().find(|e| e.id() == name).with_context(|| format!("no engine {name}"))?],
    };
    let verdict = match verdict {
        "occurs" => Verdict::Occurs,
        "prevented" => Verdict::Prevented,
        _ => bail!("a verdict is 'occurs' or 'prevented'"),
    };
    Ok(Section { levels, engines, verdict, because: None, steps: vec![] })
}

/// The level of a short name.
fn level(name: &str) -> Result<Isolation> {
    let found = LEVELS.iter().find(|(short, _)| *short == name);
    Ok(found.with_context(|| format!("no level {name}"))?.1)
}

fn steps(line: usize, text: &str, to: &mut Vec<Step>) -> Result<()> {
    let (sessions, rest) = text.split_once(' ').context("a session and a statement")?;
    let (statement, answer) = match rest.rsplit_once("->") {
        Some((statement, answer)) => (statement.trim(), Answer::parse(answer)?),
        None => (rest.trim(), Answer::Success),
    };
    for session in sessions.split(',') {
        let [session @ b'A'..=b'Z'] = session.as_bytes() else { bail!("sessions are A, B, C") };
        let statement = (statement != "...").then(|| statement.to_string());
        to.push(Step { line, session: char::from(*session), statement, answer: answer.clone() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn all() -> Vec<(String, Scenario)> {
        let dir = crate::paths::checkout().unwrap().join("lab/scenarios");
        let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let parse = |file: &std::path::PathBuf| {
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            let scenario = Scenario::parse(&fs::read_to_string(file).unwrap());
            (name.clone(), scenario.unwrap_or_else(|error| panic!("{name}: {error:#}")))
        };
        files.iter().map(parse).collect()
    }

    #[test]
    fn every_scenario_is_complete() {
        assert!(all().len() >= 20);
    }

    #[test]
    fn every_difference_is_argued_in_the_documentation() {
        let text = fs::read_to_string(crate::paths::checkout().unwrap().join("docs/develop/isolation.md")).unwrap();
        for (name, scenario) in all() {
            for (short, level) in LEVELS {
                if scenario.because(level).is_some() {
                    assert!(
                        text.contains(&format!("`{name}` {short}")),
                        "docs/develop/isolation.md has no `{name}` {short}"
                    );
                }
            }
        }
    }

    fn wrong(steps: &str) -> String {
        let text = format!("phenomenon: x\nabout: x\nat RU RC RR SER: occurs\n{steps}");
        format!("{:#}", Scenario::parse(&text).unwrap_err())
    }

    #[test]
    fn impossible_texts_are_refused() {
        assert!(wrong("A SELECT 1 -> waits").contains("wait at the end"));
        assert!(wrong("A SELECT 1 -> waits\nA COMMIT").contains("cannot do that"));
        assert!(wrong("A ... -> 1 changed").contains("does not wait"));
        assert!(wrong("A SELECT 1 ->").contains("nothing behind"));
        assert!(wrong("because: x").contains("Strata alone"));
        assert!(wrong("at RC: occurs").contains("2 sections"));
        assert!(wrong("at RX: occurs").contains("no level RX"));
    }

    #[test]
    fn answers_are_compared() {
        let answer = |text| Answer::parse(text).unwrap();
        assert!(answer("1,10 2,20").admits(&answer("2,20 1,10")));
        assert!(!answer("1,10").admits(&answer("1,10 2,20")));
        assert!(Answer::Success.admits(&answer("none")));
        assert!(!Answer::Success.admits(&answer("error 1205")));
        assert!(!Answer::Success.admits(&Answer::Waits));
    }
}
