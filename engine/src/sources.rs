//! What a read looks into, newest first. The order is that of invariant 5; a point read has it written out (`crate::read`).
//!
//! ```text
//! active memtable
//! for each sealed one, newest first: the files of the large transaction whose commit sealed it, then the memtable
//! the sorted runs of the version: sublevels of level 0, newest first, then the levels
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::base::Result;
use crate::manifest::{FileEntry, find_in, within};
use crate::state::{Mem, ReadState};

/// Where a version of a key may be.
pub(crate) enum Layer<'a> {
    Active(&'a Arc<Mem>),
    Sealed(&'a Arc<Mem>),
    File(&'a Arc<FileEntry>),
}

/// A sorted run of files, by number: a reader that holds the state need not copy the list.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// Behind a sealed memtable.
    Sealed(usize),
    Version(usize),
}

impl Run {
    pub fn files(self, state: &ReadState) -> &[Arc<FileEntry>] {
        match self {
            Run::Sealed(number) => &state.sealed[number].files,
            Run::Version(run) => state.version.run(run),
        }
    }
}

/// What may have keys of a range.
pub(crate) enum Source<'a> {
    Mem(&'a Arc<Mem>),
    /// Some files of a run.
    Files(Run, Range<usize>),
}

impl ReadState {
    /// Shows `look` each place that may have a version of `key`, newest first, until it has an answer.
    pub fn look_up<R>(&self, key: &[u8], mut look: impl FnMut(Layer<'_>) -> Result<Option<R>>) -> Result<Option<R>> {
        let mut answer = look(Layer::Active(&self.active))?;
        if answer.is_some() {
            return Ok(answer);
        }
        for sealed in &self.sealed {
            if let Some(file) = find_in(&sealed.files, key) {
                answer = look(Layer::File(file))?;
            }
            if answer.is_none() {
                answer = look(Layer::Sealed(&sealed.mem))?;
            }
            if answer.is_some() {
                return Ok(answer);
            }
        }
        self.version.visit(key, |file| {
            answer = look(Layer::File(file))?;
            Ok(answer.is_some())
        })?;
        Ok(answer)
    }

    /// What may have keys in `[keys.start, keys.end)`, newest first.
    pub fn sources<'a>(&'a self, keys: Range<&'a [u8]>) -> impl Iterator<Item = Source<'a>> + 'a {
        let sealed = self.sealed.iter().enumerate().flat_map(move |(number, sealed)| {
            let files = within(&sealed.files, keys.start, keys.end);
            [Source::Files(Run::Sealed(number), files), Source::Mem(&sealed.mem)]
        });
        let runs = self.version.run_numbers(keys.start, keys.end);
        let runs = runs.map(|(run, files)| Source::Files(Run::Version(run), files));
        let sources = std::iter::once(Source::Mem(&self.active)).chain(sealed).chain(runs);
        sources.filter(|source| !matches!(source, Source::Files(_, files) if files.is_empty()))
    }

    /// Of these the files, run by run.
    pub fn file_runs<'a>(
        &'a self,
        lower: &'a [u8],
        upper: &'a [u8],
    ) -> impl Iterator<Item = &'a [Arc<FileEntry>]> + 'a {
        self.sources(lower..upper).filter_map(|source| match source {
            Source::Files(run, files) => Some(&run.files(self)[files]),
            Source::Mem(_) => None,
        })
    }
}
