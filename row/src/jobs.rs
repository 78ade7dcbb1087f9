//! Flushes and merges that run, and the last ones that have ended, for reports. The engine tells of them as events.

use crate::kv::Event;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// So many that have ended are remembered.
const REMEMBERED: usize = 64;

/// A flush or a merge.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its number.
    pub number: u64,
    /// `None` for a flush: the levels that it reads from and writes to.
    pub levels: Option<(u8, u8)>,
    /// Why it runs.
    pub reason: String,
    /// When it began.
    pub begun: Instant,
    /// Bytes that it reads: of files, or of memory.
    pub bytes_in: u64,
    /// What came of it; `None` while it runs.
    pub end: Option<End>,
}

/// What came of a job.
#[derive(Clone, Debug)]
pub struct End {
    /// Files that it wrote.
    pub files: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// How long it took, pauses included, in microseconds.
    pub us: u64,
    /// Why it failed, if it did: it has changed nothing then.
    pub error: Option<String>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<State>);

#[derive(Default)]
struct State {
    running: BTreeMap<u64, Job>,
    ended: VecDeque<Job>,
}

impl Jobs {
    /// Takes note of an event, if it is one of a job.
    pub fn note(&self, event: &Event) {
        match event {
            Event::FlushBegun { job, bytes, reason, .. } => self.begun(*job, None, reason.to_string(), *bytes),
            Event::FlushDone { job, files, bytes_out, us, .. } => {
                self.ended(*job, End { files: *files, bytes_out: *bytes_out, us: *us, error: None });
            }
            Event::MergeBegun { job, reason, from, to, bytes, .. } => {
                self.begun(*job, Some((*from, *to)), reason.to_string(), *bytes);
            }
            Event::MergeDone { job, files, bytes_out, us, .. } => {
                self.ended(*job, End { files: *files, bytes_out: *bytes_out, us: *us, error: None });
            }
            Event::FlushFailed { job, error } | Event::MergeFailed { job, error, .. } => self.failed(*job, error),
            _ => {}
        }
    }

    /// Those that run, the oldest first, then those that have ended, the last one first.
    pub fn all(&self) -> Vec<Job> {
        let state = self.0.lock();
        state.running.values().chain(state.ended.iter().rev()).cloned().collect()
    }

    fn begun(&self, number: u64, levels: Option<(u8, u8)>, reason: String, bytes_in: u64) {
        let job = Job { number, levels, reason, begun: Instant::now(), bytes_in, end: None };
        self.0.lock().running.insert(number, job);
    }

    fn failed(&self, number: u64, error: &crate::kv::Error) {
        let us = match self.0.lock().running.get(&number) {
            Some(job) => job.begun.elapsed().as_micros() as u64,
            None => return,
        };
        self.ended(number, End { files: 0, bytes_out: 0, us, error: Some(error.to_string()) });
    }

    fn ended(&self, number: u64, end: End) {
        let mut state = self.0.lock();
        let Some(job) = state.running.remove(&number) else { return };
        if state.ended.len() == REMEMBERED {
            state.ended.pop_front();
        }
        state.ended.push_back(Job { end: Some(end), ..job });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{FlushReason, MergeReason};

    fn merge(job: u64) -> Event {
        Event::MergeBegun { job, reason: MergeReason::Size, from: 1, to: 2, files: 3, bytes: 100 }
    }

    #[test]
    fn jobs_run_until_their_end_is_told_and_the_last_are_remembered() {
        let jobs = Jobs::default();
        for job in 0..100 {
            jobs.note(&Event::FlushBegun { job, memtables: 1, bytes: job, reason: FlushReason::Full });
        }
        jobs.note(&merge(100));
        assert_eq!(jobs.all().len(), 101);
        assert!(jobs.all().iter().all(|job| job.end.is_none()));
        for job in 0..100 {
            let reason = FlushReason::Full;
            jobs.note(&Event::FlushDone { job, memtables: 1, files: 2, bytes_in: job, bytes_out: 7, reason, us: 9 });
        }
        let all = jobs.all();
        assert_eq!(all.len(), 1 + REMEMBERED);
        assert_eq!((all[0].number, all[0].levels, all[0].bytes_in), (100, Some((1, 2)), 100));
        let numbers: Vec<u64> = all[1..].iter().map(|job| job.number).collect();
        assert_eq!(numbers, (36..100).rev().collect::<Vec<_>>());
        assert_eq!(all[1].end.as_ref().unwrap().bytes_out, 7);
    }

    #[test]
    fn a_failure_ends_a_job_and_says_why() {
        let jobs = Jobs::default();
        let error = crate::kv::Error::Closed;
        jobs.note(&Event::MergeFailed { job: 5, from: 1, to: 2, error: error.clone() });
        assert!(jobs.all().is_empty(), "one whose beginning nobody has heard");
        jobs.note(&merge(6));
        jobs.note(&Event::MergeFailed { job: 6, from: 1, to: 2, error: error.clone() });
        assert_eq!(jobs.all()[0].end.as_ref().unwrap().error, Some(error.to_string()));
    }
}
