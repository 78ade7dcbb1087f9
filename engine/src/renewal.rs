//! Values of an index that are to be written anew: a layer's rule makes new ones of them while files are merged.
//!
//! # Purpose
//! A layer has values in several forms and wants to be told when none of the old ones is left, so that it may forget how they are
//! read. It writes only new ones by then.
//!
//! # Algorithm
//! A [`Renewal`] has a rule and a number, that of the newest commit when it began; what is committed later needs nothing. Every merge
//! that begins from then on applies the rule, whatever it was begun for, and the files that it writes are noted. A file is *old*
//! if it has keys of the index and versions up to the number and is not noted: flushes write such files, and merges that had begun
//! before. Old ones are written anew in their places (`compact::renew`) while nothing more urgent is due. The renewal is done
//! when no memtable has versions up to the number and no file is old; so it remains.
//!
//! # Invariants
//! Keys, numbers and what snapshots see stay. A version may be in its old form in one file and in its new one in another, so the
//! layer must take them for the same until the renewal is done. Nothing of it is on the disk: with the last handle, or the store's
//! end, it is forgotten, and what was written anew by then stays.
//!
//! # Rejected
//! A mark in the description of each file, the lowest of its values' forms (a new state on disk, which every flush pays for);
//! writing the rows by transactions of the layer (locks, log and versions for rows that stay what they are).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::base::{FileNo, IndexId, SeqNo};
use crate::compact::merge::Rule;
use crate::sst::SstMeta;
use crate::state::ReadState;

/// A renewal in force. See the module.
pub struct Renewal {
    index: IndexId,
    /// Versions up to here are renewed.
    until: SeqNo,
    /// A memtable that was sealed up to here may have some of them.
    sealed_until: SeqNo,
    rule: Rule,
    /// Files that were written by the rule.
    renewed: Mutex<HashSet<FileNo>>,
    done: AtomicBool,
}

impl Renewal {
    /// The index.
    pub(crate) fn index(&self) -> IndexId {
        self.index
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Files were written by the rule. To be called before anybody finds them.
    pub(crate) fn note(&self, files: &[SstMeta]) {
        self.renewed.lock().extend(files.iter().filter(|meta| meta.holds(self.index)).map(|meta| meta.no));
    }

    /// Whether a file may have old values.
    pub(crate) fn is_old(&self, meta: &SstMeta) -> bool {
        meta.min_seq <= self.until && meta.holds(self.index) && !self.renewed.lock().contains(&meta.no)
    }

    /// Whether there is an old value no more, as this state and every later one shows.
    pub(crate) fn is_done(&self, state: &ReadState) -> bool {
        if self.done.load(Ordering::Acquire) {
            return true;
        }
        let is_old = |meta: &SstMeta| self.is_old(meta);
        let done = state.sealed.iter().all(|sealed| sealed.mem.last_seq() > self.sealed_until)
            && !state.version.holding(self.index).any(|(_, file)| is_old(&file.meta));
        if done {
            self.done.store(true, Ordering::Release);
            *self.renewed.lock() = HashSet::new();
        }
        done
    }
}

/// Those in force.
#[derive(Default)]
pub(crate) struct Renewals {
    all: Mutex<Vec<Weak<Renewal>>>,
}

impl Renewals {
    /// Begins one, for all versions up to `until`, which are in files or in memtables that were sealed up to `sealed_until`.
    pub fn begin(&self, index: IndexId, until: SeqNo, sealed_until: SeqNo, rule: Rule) -> Arc<Renewal> {
        let (renewed, done) = (Mutex::default(), AtomicBool::new(false));
        let renewal = Arc::new(Renewal { index, until, sealed_until, rule, renewed, done });
        self.all.lock().push(Arc::downgrade(&renewal));
        renewal
    }

    /// Those that are not done and that somebody still waits for.
    pub fn in_force(&self) -> Vec<Arc<Renewal>> {
        let mut all = self.all.lock();
        all.retain(|renewal| renewal.upgrade().is_some_and(|renewal| !renewal.done.load(Ordering::Acquire)));
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

/// A moment in the history of commits, for [`Engine::is_untouched`](crate::Engine::is_untouched).
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The newest commit.
    pub(crate) seq: SeqNo,
    /// Files with smaller numbers have nothing newer, but for those of large transactions, whose numbers come first.
    pub(crate) file: FileNo,
}
