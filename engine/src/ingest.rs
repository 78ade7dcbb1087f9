//! Sorted entries that become files of the last level as they are: all of an index that has none yet.
//!
//! ```text
//! sorter -> files of the index, synced -> (ingest-written) -> one edit of the manifest -> (ingested)
//! ```
//!
//! There is no log and no memtable: the files are what a large transaction leaves of a fresh index, and their place is chosen as for
//! those (`output::reserve`). All entries have one sequence number, which is visible: nobody reads the index before its layer says
//! so, and whoever does then reads at a later one.
//!
//! A failure, or a crash before the edit, leaves nothing but files that no manifest names. After the edit the index is there as a
//! whole; whether somebody owns it is the business of the layer, which can drop it.
//!
//! Rejected: the commit of a transaction with files (the memtable is sealed for it, the log names the files, and the next flush
//! has to take them over).

use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::{Error, Result, SeqNo};
use crate::compact::gc::VersionGc;
use crate::compact::merge::{OutputPlan, merge};
use crate::crash_point::CrashPoint;
use crate::event::Work;
use crate::iter::{VersionIter, hand_on};
use crate::manifest::VersionEdit;
use crate::output::{discard, install, merge_env, reserve};
use crate::parts::Core;
use crate::sorter::{Sorter, Tick};

/// An entry whose key another one has as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SameKey {
    /// The key.
    pub key: Vec<u8>,
    /// The value of either.
    pub value: Vec<u8>,
}

impl Sorter {
    /// Makes the entries those of indexes that hold nothing yet. They are there, durably, when this returns, and the number `seq`,
    /// which is visible, reads them. If two have one key nothing has happened, and the entry is returned.
    pub fn ingest(self, seq: SeqNo, tick: Tick<'_>) -> Result<Option<SameKey>> {
        if self.entries() == 0 {
            return Ok(None);
        }
        self.drain(tick, |core, input| ingest(core, input, seq, tick))
    }
}

fn ingest(core: &Arc<Core>, input: &mut dyn VersionIter, seq: SeqNo, tick: Tick<'_>) -> Result<Option<SameKey>> {
    let found = Arc::new(Mutex::new(None));
    let mut input = Distinct { inner: input, last: Vec::new(), seq, found: found.clone() };
    // Each in files of its own: those go to the last level.
    let target = core.settings.sst_bytes();
    let plan = OutputPlan {
        share_below: 0,
        below: None,
        numbers_stay: true,
        is_new: true,
        ..OutputPlan::for_level(target, Vec::new())
    };
    // Nothing is above these numbers, and all versions stay.
    let keep = VersionGc::new(&[], SeqNo::ZERO);
    let written = merge_env(core, |_| false, tick, |_| None).and_then(|env| merge(&mut input, keep, &plan, &env));
    let same = found.lock().take();
    if same.is_some() {
        return Ok(same);
    }
    let written = written.inspect_err(|error| core.refused(Work::Spill, 0, error))?;
    core.crash_point(CrashPoint::IngestWritten);
    if let Err(error) = tick() {
        discard(core, &written.outputs);
        return Err(error);
    }
    let reserved = reserve(core, written.outputs.iter(), &[]);
    let edit = VersionEdit { added: reserved.files().collect(), ..VersionEdit::default() };
    // As for flushes (invariant 8): no file has a number that the log does not know.
    let ready = || core.journal.log.sync(core.journal.log.end());
    let bytes = written.stats.bytes_written;
    let installed = install(core, &written, ready, edit, 0, |counters| counters.spill_bytes += bytes);
    installed.inspect_err(|error| core.refused(Work::Record, 0, error))?;
    drop(reserved);
    core.board.compact_wake.notify_all();
    core.crash_point(CrashPoint::Ingested);
    Ok(None)
}

/// Gives all versions one number, and fails on the way forward at a key that comes again.
struct Distinct<'a> {
    inner: &'a mut dyn VersionIter,
    last: Vec<u8>,
    seq: SeqNo,
    found: Arc<Mutex<Option<SameKey>>>,
}

impl VersionIter for Distinct<'_> {
    hand_on!(inner: valid key kind value seeks prev);

    fn seq(&self) -> SeqNo {
        self.seq
    }
    fn next(&mut self) -> Result<()> {
        self.last.clear();
        self.last.extend_from_slice(self.inner.key());
        self.inner.next()?;
        if !self.inner.valid() || self.inner.key() != self.last {
            return Ok(());
        }
        if self.inner.is_deferred() {
            self.inner.load()?;
        }
        *self.found.lock() = Some(SameKey { key: self.last.clone(), value: self.inner.value().to_vec() });
        Err(Error::Internal("two entries have one key".into()))
    }
}
