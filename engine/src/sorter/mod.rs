//! An external sort: entries that come in any order go out in the order of their keys, however many there are.
//!
//! Entries are gathered in memory ([`buffer`]). A full buffer is sorted and written as a run of files ([`crate::spill`]), uncompressed
//! and without filters: it is read once. Runs are merged in between only where there are more than one merge can read
//! ([`RUNS_MAX`]). A large value goes to a file of its own at once.
//!
//! The memory is that of a transaction's write buffer, by the same terms (`budget.rs`), and is counted with these. The files are
//! those of nobody else: they are removed when the sorter drops, and at the next start after a crash.
//!
//! An entry does not replace another one with its key: both come out, the newer one first. [`noted`] has keys without values.
//!
//! Rejected: a transaction as the sorter (its buffer has an ordered index, which costs more than sorting, and of two entries with
//! one key it forgets the first).

mod buffer;
mod noted;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::buffer::SortBuffer;
pub use self::noted::NotedKeys;
use crate::base::limits::{check_key, check_value};
use crate::base::slots::LARGE;
use crate::base::{Error, Result};
use crate::budget::spills;
use crate::compact::merge::{Held, MergeEnv};
use crate::event::Work;
use crate::iter::VersionIter;
use crate::output::merge_env;
use crate::parts::Core;
use crate::spill::SpilledRuns;
use crate::sst::{Compression, SstOptions};

/// More runs are merged to fewer: each takes a buffer to read ahead.
const RUNS_MAX: usize = 64;

/// Steps in which memory is counted, in bytes.
const COUNT_STEP: usize = 64 << 10;

/// Asked again and again while there is work; its error ends it.
pub type Tick<'a> = &'a (dyn Fn() -> Result<()> + Sync);

/// See the module. Used by one thread at a time.
pub struct Sorter {
    core: Arc<Core>,
    buffer: SortBuffer,
    runs: SpilledRuns,
    entries: u64,
    /// Entries are keys without values, and come out at least once.
    keys_only: bool,
    /// What is counted in `Core::write_buffer_bytes`.
    counted: usize,
    /// Up to this size of the buffer there is nothing to count or to write to files.
    roomy: usize,
}

impl Sorter {
    pub(crate) fn new(core: &Arc<Core>) -> Sorter {
        let runs = SpilledRuns::new(core.tree.ssts.clone(), core.tree.obsolete_files.clone());
        let buffer = SortBuffer::default();
        Sorter { core: core.clone(), buffer, runs, entries: 0, keys_only: false, counted: 0, roomy: 0 }
    }

    /// A sorter of keys without values, of which those that come again may be left out.
    fn of_keys(core: &Arc<Core>) -> Sorter {
        let mut sorter = Sorter::new(core);
        sorter.keys_only = true;
        sorter
    }

    /// How many entries it has.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Takes an entry. On failure it has not come.
    #[inline]
    pub fn put(&mut self, key: &[u8], value: &[u8], tick: Tick<'_>) -> Result<()> {
        if value.len() >= LARGE {
            return self.put_parts(key, &[value], tick);
        }
        check_key(key)?;
        if self.buffer.bytes() + key.len() + value.len() >= self.roomy {
            self.grow(key.len() + value.len(), tick)?;
        }
        self.buffer.push(key, value);
        self.entries += 1;
        Ok(())
    }

    /// Takes an entry whose value is in pieces. A large one goes from where it is to a file.
    pub fn put_parts(&mut self, key: &[u8], parts: &[&[u8]], tick: Tick<'_>) -> Result<()> {
        check_key(key)?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        check_value(bytes)?;
        if bytes >= self.full().max(LARGE) {
            self.spill(tick)?;
            self.core.pass(bytes as u64, &|| tick().is_err())?;
            let number = self.buffer.skip();
            self.with_env(tick, |runs, _, env| runs.spill_value(key, number.0, parts, env))?;
            self.entries += 1;
            return self.tidy(tick);
        }
        self.grow(key.len() + bytes, tick)?;
        self.buffer.push(key, &parts.concat());
        self.entries += 1;
        Ok(())
    }

    /// Size of a buffer that is full.
    fn full(&self) -> usize {
        self.core.settings.transaction_bytes().min(SortBuffer::BYTES_MAX)
    }

    /// Counts what is going to be in the buffer, or moves what is there to files.
    #[cold]
    fn grow(&mut self, bytes: usize, tick: Tick<'_>) -> Result<()> {
        let (full, budget) = (self.full(), self.core.settings.memtable_budget());
        let all = self.count((self.buffer.memory().max(self.buffer.bytes() + bytes)).next_multiple_of(COUNT_STEP));
        if !self.buffer.is_empty() && spills((self.buffer.bytes() + bytes) as u64, full as u64, all, budget) {
            self.shed(tick)?;
        }
        self.roomy = (self.buffer.bytes() + bytes).next_multiple_of(COUNT_STEP).min(full.max(bytes + 1));
        Ok(())
    }

    /// Counts so many bytes for the buffer; what all write buffers have together now.
    fn count(&mut self, bytes: usize) -> u64 {
        let before = std::mem::replace(&mut self.counted, bytes) as u64;
        // Wraps where it becomes less.
        let change = (bytes as u64).wrapping_sub(before);
        self.core.write_buffer_bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    /// Makes room in the buffer.
    fn shed(&mut self, tick: Tick<'_>) -> Result<()> {
        if self.keys_only {
            let before = self.buffer.len();
            self.buffer.dedup();
            self.entries -= (before - self.buffer.len()) as u64;
            if self.buffer.len() <= before / 2 {
                return Ok(());
            }
        }
        self.spill(tick)
    }

    /// Moves what is in the buffer to files. On failure nothing has changed.
    fn spill(&mut self, tick: Tick<'_>) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        tick()?;
        let core = self.core.clone();
        core.pass(self.buffer.bytes() as u64, &|| tick().is_err())?;
        self.with_env(tick, |runs, buffer, env| runs.spill(buffer.sorted(), core.settings.sst_bytes(), env))?;
        self.buffer.clear();
        self.tidy(tick)
    }

    fn tidy(&mut self, tick: Tick<'_>) -> Result<()> {
        let core = self.core.clone();
        match self.runs.count() < RUNS_MAX {
            true => Ok(()),
            false => self.with_env(tick, |runs, _, env| runs.tidy(core.settings.sst_bytes(), env)),
        }
    }

    /// Does work on the runs, whose files are for nobody else.
    fn with_env<R>(
        &mut self,
        tick: Tick<'_>,
        work: impl FnOnce(&mut SpilledRuns, &mut SortBuffer, &MergeEnv<'_>) -> Result<R>,
    ) -> Result<R> {
        let env = merge_env(&self.core, |_| false, tick, |_| None)?;
        let as_set = env.sst_options.clone();
        let plain = move |index| SstOptions { compression: Compression::None, filter_bits_per_key: 0, ..as_set(index) };
        let env = MergeEnv { sst_options: Arc::new(plain), ..env };
        let done = work(&mut self.runs, &mut self.buffer, &env);
        let done = done.inspect_err(|error| self.core.refused(Work::Spill, self.counted, error))?;
        self.core.board.count_spill(self.runs.take_written_bytes());
        Ok(done)
    }

    /// Hands all entries to `work`, in order.
    pub(crate) fn drain<R, E: From<Error>>(
        mut self,
        tick: Tick<'_>,
        work: impl FnOnce(&Arc<Core>, &mut dyn VersionIter) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        if self.runs.is_empty() {
            let core = self.core.clone();
            return work(&core, &mut self.buffer.sorted());
        }
        self.spill(tick)?;
        self.buffer = SortBuffer::default();
        self.count(0);
        let bytes = crate::compact::merge::ahead_bytes(self.core.settings.cache_budget());
        let _held = Held::new(&self.core.board.buffer_bytes, bytes);
        work(&self.core, &mut self.runs.versions(bytes))
    }

    /// Calls `each` with key and value of all entries, in the order of the keys, and of one key the newest first.
    pub fn each<E: From<Error>>(
        self,
        tick: Tick<'_>,
        mut each: impl FnMut(&[u8], &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.drain(tick, |_, input| {
            input.seek_first()?;
            while input.valid() {
                if input.is_deferred() {
                    input.load()?;
                }
                each(input.key(), input.value())?;
                input.next()?;
            }
            Ok(())
        })
    }
}

impl Drop for Sorter {
    fn drop(&mut self) {
        self.count(0);
        if !self.runs.is_empty() {
            self.runs.discard();
            self.core.board.wake_cleaner();
        }
    }
}
