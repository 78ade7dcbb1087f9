//! A compaction job under way, as a value that does a slice of its work at a time.
//!
//! It owns all that it needs: the version that it was picked from, the plan of its outputs, what the filters below know. Whoever has
//! it may lay it down between two slices, and any thread may go on with it. Dropped before its end it removes what it has
//! written, and the store is as it was.

use std::sync::Arc;

use crate::base::{Error, Result};
use crate::compact::merge::{FileMerge, MergeResult, MetaRun, OutputPlan, Progress, SstSource, merge_of_files};
use crate::compact::pick::{Action, CompactionJob, LAST, Reason};
use crate::event::Event;
use crate::manifest::{FileEntry, Version, VersionEdit};
use crate::output::{self, Filters, merge_env, version_gc};
use crate::parts::Core;
use crate::renewal::Renewal;
use crate::sst::{Residence, Sst, SstMeta};
use crate::sst_files::SstFiles;

/// See the module.
pub(super) struct Running {
    core: Arc<Core>,
    version: Arc<Version>,
    job: Arc<CompactionJob>,
    /// `None` before the first slice, and for jobs that only rename.
    merge: Option<Box<FileMerge<'static, Input>>>,
    /// By whose rules it writes.
    renewals: Vec<Arc<Renewal>>,
    /// Time at work.
    worked_us: u64,
    /// Its number in events and when it began, once that was told; `None` for jobs that only rename.
    begun: Option<(u64, u64)>,
}

/// What a slice has come to.
pub(super) enum Slice {
    /// There is more to do. So many bytes were taken in.
    More(u64),
    /// The job is done, and readers see what came of it.
    Done,
}

impl Running {
    /// A job that was picked from this version, not begun.
    pub fn new(core: &Arc<Core>, version: Arc<Version>, job: Arc<CompactionJob>) -> Running {
        Running { core: core.clone(), version, job, merge: None, renewals: Vec::new(), worked_us: 0, begun: None }
    }

    pub fn reason(&self) -> Reason {
        self.job.reason
    }

    /// Counts time at work.
    pub fn worked(&mut self, us: u64) {
        self.worked_us += us;
    }

    /// Does a part of the work: about a MiB of input. To be called until it is done or fails.
    pub fn run_slice(&mut self) -> Result<Slice> {
        if self.core.board.stopping() {
            return Err(Error::Closed);
        }
        let written = match self.job.action {
            Action::Merge => {
                self.tell_begun();
                let merge = match &mut self.merge {
                    Some(merge) => merge,
                    none => {
                        self.renewals = self.core.renewals.in_force();
                        none.insert(Box::new(begin(&self.core, &self.version, &self.job, &self.renewals)?))
                    }
                };
                match merge.run_slice()? {
                    Progress::More(bytes) => return Ok(Slice::More(bytes)),
                    Progress::Done(written) => written,
                }
            }
            Action::Move | Action::Delete => MergeResult::default(),
        };
        self.install(&written)?;
        self.tell_done(&written);
        Ok(Slice::Done)
    }

    /// The topmost level that it reads.
    fn from(&self) -> u8 {
        self.job.inputs.iter().map(|(level, _)| *level).min().unwrap_or(self.job.output_level)
    }

    fn tell_begun(&mut self) {
        if self.begun.is_some() {
            return;
        }
        let job = self.core.events.new_job();
        self.begun = Some((job, self.core.options.clock.now_us()));
        let (from, input) = (self.from(), &*self.job);
        self.core.events.tell(|| Event::MergeBegun {
            job,
            reason: input.reason,
            from,
            to: input.output_level,
            files: input.files().count() as u64,
            bytes: input.bytes,
        });
    }

    fn tell_done(&mut self, written: &MergeResult) {
        let (from, input) = (self.from(), &*self.job);
        let (to, reason, bytes) = (input.output_level, input.reason, input.bytes);
        let now_us = self.core.options.clock.now_us();
        if input.action == Action::Move {
            self.core.events.tell(|| Event::FilesMoved { from, to, files: input.files().count() as u64, bytes });
        }
        let Some((job, begun_us)) = self.begun.take() else { return };
        self.core.events.tell(|| Event::MergeDone {
            job,
            reason,
            from,
            to,
            files: written.outputs.len() as u64,
            bytes_in: bytes,
            bytes_out: written.stats.bytes_written,
            us: now_us.saturating_sub(begun_us),
        });
    }

    /// Tells that it failed, or is given up, unless it has not begun or is done.
    fn tell_failed(&mut self, error: &Error) {
        let Some((job, _)) = self.begun.take() else { return };
        let (from, to) = (self.from(), self.job.output_level);
        self.core.events.tell(|| Event::MergeFailed { job, from, to, error: error.clone() });
    }

    fn install(&self, written: &MergeResult) -> Result<()> {
        let job = &*self.job;
        let removed = job.inputs.iter().flat_map(|(level, files)| files.iter().map(|&no| (*level, no)));
        let mut edit = VersionEdit { removed: removed.collect(), ..VersionEdit::default() };
        let new: Vec<SstMeta> = match job.action {
            Action::Merge => written.outputs.clone(),
            Action::Move => inputs(&self.version, job).map(|file| file.meta.clone()).collect(),
            Action::Delete => Vec::new(),
        };
        edit.added = new.into_iter().map(|meta| (job.output_level, meta)).collect();
        self.renewals.iter().for_each(|renewal| renewal.note(&written.outputs));
        // If an input went with its dropped index, the outputs are of no use and nothing is counted.
        output::install(
            &self.core,
            written,
            || Ok(()),
            edit,
            0,
            |counters| match job.action {
                Action::Merge => {
                    counters.compactions += 1;
                    counters.compact_bytes_read += job.bytes;
                    counters.compact_bytes_written += written.stats.bytes_written;
                    let level = &mut counters.levels[usize::from(job.output_level)];
                    level.compactions += 1;
                    level.bytes_read += job.bytes;
                    level.bytes_written += written.stats.bytes_written;
                }
                Action::Move => counters.moves += job.files().count() as u64,
                Action::Delete => {}
            },
        )?;
        Ok(())
    }

    /// Lets go of its files, and removes what it has written if it is not done: then `outcome` says why.
    pub fn finish(mut self, outcome: &Result<()>) -> Arc<CompactionJob> {
        // What it has written is gone before that is told.
        self.merge = None;
        if let Err(error) = outcome {
            self.tell_failed(error);
        }
        if self.job.action == Action::Merge {
            self.core.board.counters.lock().levels[usize::from(self.job.output_level)].us += self.worked_us;
        }
        self.job
    }
}

fn inputs<'a>(version: &'a Version, job: &'a CompactionJob) -> impl Iterator<Item = &'a Arc<FileEntry>> {
    let files = job.inputs.iter().flat_map(|(level, files)| files.iter().map(|&no| (*level, no)));
    files.filter_map(|(level, no)| version.file(level, no))
}

fn begin(
    core: &Arc<Core>,
    version: &Arc<Version>,
    job: &CompactionJob,
    renewals: &[Arc<Renewal>],
) -> Result<FileMerge<'static, Input>> {
    let target = core.settings.sst_bytes();
    let plan = match job.output_level {
        0 => OutputPlan::for_l0(target, &[], None).in_place(),
        level => {
            let below = (level + 1..=LAST).map(|level| MetaRun::Held(version.level_run(level)));
            OutputPlan::for_level(target, below.collect())
        }
    };
    let plan = plan.within(job.ranges.clone());
    let files: Vec<Arc<FileEntry>> = inputs(version, job).cloned().collect();
    let sources = files.iter().map(|file| Input { ssts: core.tree.ssts.clone(), file: file.clone() }).collect();
    let filters = Filters::new(core, version, job.output_level);
    let residence = move |key: &[u8]| residence_before(&files, key);
    let mut env = merge_env(core, move |key| filters.exclude(key), || Ok(()), residence)?;
    if !renewals.is_empty() {
        let renewals = renewals.to_vec();
        env.rule_of = Arc::new(move |index| {
            let of_index = renewals.iter().find(|renewal| renewal.index() == index);
            of_index.map(|renewal| renewal.rule().clone())
        });
    }
    Ok(merge_of_files(sources, version_gc(core), &plan, &env))
}

/// An input of a merge.
struct Input {
    ssts: Arc<SstFiles>,
    file: Arc<FileEntry>,
}

impl SstSource for Input {
    fn meta(&self) -> &SstMeta {
        &self.file.meta
    }
    fn sst(&self) -> Result<Arc<Sst>> {
        self.ssts.reader(&self.file).cloned()
    }
}

/// How the cache holds what a merge of `inputs`, upper levels first, replaces at `key`. The lowest of the files there decides:
/// it has most of the rows.
fn residence_before(inputs: &[Arc<FileEntry>], key: &[u8]) -> Option<Residence> {
    let spans = |file: &&Arc<FileEntry>| file.meta.smallest.as_slice() <= key && key <= file.meta.largest.as_slice();
    inputs.iter().rev().find(spans)?.sst.get()?.residence_of(key)
}
