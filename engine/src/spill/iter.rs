//! Cursors over the files of a run.
//!
//! In a private run the number of a version is that of the operation that wrote it. A rollback to a savepoint lowers the
//! file's *limit*: versions above it do not exist any more. [`Versions`] shows what is left, for merges; [`Newest`] shows
//! one version per key, tombstones included, under the read point of the cursor it is merged into, where it comes before
//! the committed version of that number.

use std::sync::Arc;

use super::SpillFile;
use crate::base::value::{DeferredValue, LargeValue};
use crate::base::{Kind, Result, SeqNo};
use crate::iter::{Picked, SortedRun, VersionIter, hand_on};
use crate::sst::{ReadHints, SstIter};
use crate::sst_files::SstFiles;

/// Files of a run, to be read as `I` reads them.
pub(crate) struct Files<I> {
    pub files: Vec<SpillFile>,
    pub ssts: Arc<SstFiles>,
    pub open: fn(SstIter, SeqNo, SeqNo) -> I,
    pub hints: ReadHints,
    /// The number that `Newest` shows.
    pub shown: SeqNo,
}

impl<I: VersionIter> SortedRun for Files<I> {
    type Iter = I;
    fn len(&self) -> usize {
        self.files.len()
    }
    fn smallest(&self, i: usize) -> &[u8] {
        &self.files[i].meta().smallest
    }
    fn largest(&self, i: usize) -> &[u8] {
        &self.files[i].meta().largest
    }
    fn open(&mut self, i: usize, _: Option<I>) -> Result<I> {
        let file = &self.files[i];
        Ok((self.open)(self.ssts.reader(&file.entry)?.iter(self.hints), file.limit, self.shown))
    }
}

/// All versions up to the limit, with their own numbers.
pub(crate) struct Versions {
    inner: SstIter,
    limit: SeqNo,
}

impl Versions {
    pub fn new(inner: SstIter, limit: SeqNo, _shown: SeqNo) -> Versions {
        Versions { inner, limit }
    }

    fn forward(&mut self) -> Result<()> {
        while self.inner.valid() && self.inner.seq() > self.limit {
            self.inner.next()?;
        }
        Ok(())
    }

    fn backward(&mut self) -> Result<()> {
        while self.inner.valid() && self.inner.seq() > self.limit {
            self.inner.prev()?;
        }
        Ok(())
    }
}

impl VersionIter for Versions {
    hand_on!(inner: valid key seq kind value settled_seeks);

    fn next(&mut self) -> Result<()> {
        self.inner.next()?;
        self.forward()
    }
    fn prev(&mut self) -> Result<()> {
        self.inner.prev()?;
        self.backward()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Nowhere,
    /// On the version that `inner` stands on.
    Inner,
    /// On the version in the buffers; `inner` stands before all versions of its key.
    Buffers,
}

/// The newest version of each key, under the number of a read point.
pub(crate) struct Newest {
    inner: SstIter,
    limit: SeqNo,
    shown: SeqNo,
    position: Position,
    key: Vec<u8>,
    picked: Picked,
    kind: Kind,
}

impl Newest {
    pub fn new(inner: SstIter, limit: SeqNo, shown: SeqNo) -> Newest {
        Newest {
            inner,
            limit,
            shown,
            position: Position::Nowhere,
            key: Vec::new(),
            picked: Picked::default(),
            kind: Kind::Put,
        }
    }

    fn save_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.inner.key());
    }

    /// From the newest version of a key onwards.
    fn forward(&mut self) -> Result<()> {
        self.position = Position::Nowhere;
        self.picked.release_large();
        while self.inner.valid() {
            if self.inner.seq() <= self.limit {
                self.position = Position::Inner;
                break;
            }
            self.inner.next()?;
        }
        Ok(())
    }

    /// From the oldest version of a key backwards.
    fn backward(&mut self) -> Result<()> {
        self.position = Position::Nowhere;
        self.picked.release_large();
        while self.inner.valid() {
            if self.inner.seq() <= self.limit {
                self.save_key();
                while self.inner.valid() && self.inner.key() == self.key {
                    if self.inner.seq() <= self.limit {
                        self.picked.pick(&self.inner);
                        self.kind = self.inner.kind();
                    }
                    self.inner.prev()?;
                }
                self.position = Position::Buffers;
                break;
            }
            self.inner.prev()?;
        }
        Ok(())
    }
}

impl VersionIter for Newest {
    fn valid(&self) -> bool {
        self.position != Position::Nowhere
    }
    fn key(&self) -> &[u8] {
        if self.position == Position::Inner { self.inner.key() } else { &self.key }
    }
    fn seq(&self) -> SeqNo {
        self.shown
    }
    fn kind(&self) -> Kind {
        if self.position == Position::Inner { self.inner.kind() } else { self.kind }
    }
    fn value(&self) -> &[u8] {
        if self.position == Position::Inner { self.inner.value() } else { self.picked.value() }
    }
    fn large_value(&self) -> Option<LargeValue> {
        if self.position == Position::Inner { self.inner.large_value() } else { self.picked.large_value() }
    }
    fn is_deferred(&self) -> bool {
        if self.position == Position::Inner { self.inner.is_deferred() } else { self.picked.deferred().is_some() }
    }
    fn load(&mut self) -> Result<()> {
        if self.position == Position::Inner { self.inner.load() } else { self.picked.load() }
    }
    fn deferred(&self) -> Option<DeferredValue> {
        if self.position == Position::Inner { self.inner.deferred() } else { self.picked.deferred().cloned() }
    }
    fn value_len(&self) -> usize {
        if self.position == Position::Inner { self.inner.value_len() } else { self.picked.value_len() }
    }
    hand_on!(inner: settled_seeks);
    fn next(&mut self) -> Result<()> {
        match self.position {
            Position::Nowhere => return Ok(()),
            Position::Inner => self.save_key(),
            Position::Buffers => self.inner.seek_ge(&self.key)?,
        }
        while self.inner.valid() && self.inner.key() == self.key {
            self.inner.next()?;
        }
        self.forward()
    }
    fn next_key(&mut self) -> Result<()> {
        // It shows one version of a key.
        self.next()
    }
    fn prev(&mut self) -> Result<()> {
        if self.position == Position::Inner {
            self.save_key();
            self.inner.seek_lt(&self.key)?;
        }
        self.backward()
    }
}
