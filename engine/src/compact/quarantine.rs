//! Quarantine: files that a merge could not read, and that others leave alone for a while.
//!
//! Such a merge fails as often as it runs, after the work of all blocks before the bad one, and while it runs others wait.
//! So a file that the error names is put in *quarantine*: the picker (see `pick`) leaves it out for a while, and only the jobs that
//! need it wait. It is tried again, since what cannot be read may be put right under a running server, after a pause that
//! doubles with each failure. The error is kept, and shown, until the file has gone: into a merge, or with its index.
//!
//! Rejected: all inputs of the failed merge (the sound ones may be merged elsewhere); errors that name no input, such as a
//! full disk (they concern every merge).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::base::backoff::Backoff;
use crate::base::{Error, FileNo};

/// First and longest pause.
const PAUSE_MIN_US: u64 = 10_000_000;
const PAUSE_MAX_US: u64 = 3600 * 1_000_000;

struct Failure {
    pauses: Backoff,
    error: Error,
}

/// See the module.
#[derive(Default)]
pub struct Quarantine(BTreeMap<FileNo, Failure>);

/// What a failed merge means for the merges to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeFailure {
    /// It names no input: it may concern every merge.
    General,
    /// An input is in quarantine for the first time.
    New,
    /// An input that failed before is in quarantine for longer.
    Again,
}

impl Quarantine {
    /// A merge of `inputs`, at the path that `path_of` says, failed with `error` at `now_us`.
    pub fn failed(
        &mut self,
        inputs: impl IntoIterator<Item = FileNo>,
        path_of: impl Fn(FileNo) -> PathBuf,
        error: &Error,
        now_us: u64,
    ) -> MergeFailure {
        let named = named(error).and_then(|path| inputs.into_iter().find(|&no| path_of(no) == path));
        let Some(no) = named else { return MergeFailure::General };
        let before = self.0.get(&no).map(|failure| failure.pauses);
        let mut pauses = before.unwrap_or(Backoff::new(PAUSE_MIN_US, PAUSE_MAX_US));
        pauses.failed(now_us);
        self.0.insert(no, Failure { pauses, error: error.clone() });
        if before.is_some() { MergeFailure::Again } else { MergeFailure::New }
    }

    /// True while merges are to leave this file alone.
    pub fn is_quarantined(&self, no: FileNo, now_us: u64) -> bool {
        self.0.get(&no).is_some_and(|failure| !failure.pauses.is_due(now_us))
    }

    /// How many files there are.
    pub fn files(&self) -> usize {
        self.0.len()
    }

    /// Forgets the files that are gone.
    pub fn keep(&mut self, is_there: impl Fn(FileNo) -> bool) {
        self.0.retain(|&no, _| is_there(no));
    }

    /// The error of one of the files, the oldest.
    pub fn error(&self) -> Option<&Error> {
        self.0.values().next().map(|failure| &failure.error)
    }
}

/// The file that cannot be read as it should.
fn named(error: &Error) -> Option<&Path> {
    match error {
        // It says nothing of the file.
        _ if error.lacks_descriptors() => None,
        Error::Io { path, .. }
        | Error::Corruption { path, .. }
        | Error::Incompatible { path, .. }
        | Error::Key { path, .. } => Some(path),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `fail FILE of INPUTS at SECONDS: what it means`, `gone FILE`, `at SECONDS: files in quarantine; file of the error`.
    const STORY: &str = "
        at 0: ; -
        fail 9 of 3 4 at 0: General
        at 0: ; -
        fail 4 of 3 4 at 1: New
        at 1: 4; 4
        at 10: 4; 4
        at 11: ; 4
        fail 4 of 4 5 at 11: Again
        at 30: 4; 4
        fail 3 of 3 5 at 30: New
        at 30: 3 4; 3
        at 31: 3; 3
        gone 3
        at 31: ; 4
        fail 4 of 4 at 31: Again
        at 70: 4; 4
        at 71: ; 4
        gone 4
        at 71: ; -
        fail 4 of 4 at 80: New
        at 90: ; 4";

    #[test]
    fn story() {
        let numbers =
            |text: &str| -> Vec<FileNo> { text.split_whitespace().map(|no| FileNo(no.parse().unwrap())).collect() };
        let path = |no: FileNo| PathBuf::from(format!("/{}", no.0));
        let mut quarantine = Quarantine::default();
        for line in STORY.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(gone) = line.strip_prefix("gone ") {
                let gone = numbers(gone);
                quarantine.keep(|no| !gone.contains(&no));
                continue;
            }
            let (what, expected) = line.split_once(':').unwrap();
            let (what, seconds) = what.split_once("at ").unwrap();
            let now: u64 = seconds.parse::<u64>().unwrap() * 1_000_000;
            let found = if let Some(failure) = what.strip_prefix("fail ") {
                let (file, inputs) = failure.split_once(" of ").unwrap();
                let error = Error::corruption(&path(numbers(file)[0]), 7, "bad block");
                format!("{:?}", quarantine.failed(numbers(inputs), path, &error, now))
            } else {
                let files = (0..20).map(FileNo).filter(|&no| quarantine.is_quarantined(no, now));
                let files: Vec<String> = files.map(|no| no.0.to_string()).collect();
                let error = quarantine.error().and_then(named).map_or("-".into(), |path| path.display().to_string());
                format!("{}; {}", files.join(" "), error.trim_start_matches('/'))
            };
            assert_eq!(found, expected.trim(), "{line}");
        }
    }

    #[test]
    fn pauses_end_at_an_hour() {
        let (no, path) = (FileNo(1), |_| PathBuf::from("/1"));
        let mut quarantine = Quarantine::default();
        for _ in 0..20 {
            quarantine.failed([no], path, &Error::corruption(Path::new("/1"), 0, ""), 0);
        }
        assert!(quarantine.is_quarantined(no, PAUSE_MAX_US - 1) && !quarantine.is_quarantined(no, PAUSE_MAX_US));
    }
}
