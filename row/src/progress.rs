//! How far long work on a table is: a build, for who looks at it from another thread, and what a statement does itself.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the work is at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It reads rows.
    Reading,
    /// It sorts what it has read, and writes files.
    Sorting,
    /// It follows rows that others have changed meanwhile.
    Following,
    /// It follows the last of these, and others wait.
    Ending,
    /// CHECK: it reads blocks and compares checksums.
    CheckingBlocks,
    /// CHECK: it decodes rows, then compares them with the entries of each index.
    CheckingRows,
}

/// Is told what a statement is at, how much of that it has done, and of how much, more or less.
pub type Told<'a> = &'a mut dyn FnMut(Step, u64, u64);

impl Step {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Step::Reading => "reading rows",
            Step::Sorting => "sorting",
            Step::Following => "following changes",
            Step::Ending => "ending",
            Step::CheckingBlocks => "checking blocks",
            Step::CheckingRows => "checking rows",
        }
    }
}

/// See the module.
pub struct Progress {
    table: String,
    begun_us: u64,
    state: Mutex<(Step, u64)>,
    done: AtomicU64,
}

impl Progress {
    pub(crate) fn new(table: &str, begun_us: u64) -> Progress {
        Progress { table: table.to_owned(), begun_us, state: Mutex::new((Step::Reading, 0)), done: AtomicU64::new(0) }
    }

    /// The table, by its name in the catalog.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// When it began, by the engine's clock.
    pub fn begun_us(&self) -> u64 {
        self.begun_us
    }

    /// What it is at, how many rows it has done of that, and how many there are, more or less.
    pub fn now(&self) -> (Step, u64, u64) {
        let (step, of) = *self.state.lock();
        let done = self.done.load(Ordering::Relaxed);
        (step, done, of.max(done))
    }

    pub(crate) fn begin_scan(&self, rows: u64) {
        *self.state.lock() = (Step::Reading, rows);
    }

    pub(crate) fn begin_pass(&self, rows: u64) {
        let mut state = self.state.lock();
        let step = if state.0 == Step::Ending { Step::Ending } else { Step::Following };
        *state = (step, rows);
        self.done.store(0, Ordering::Relaxed);
    }

    pub(crate) fn enter(&self, step: Step) {
        self.state.lock().0 = step;
    }

    pub(crate) fn add_rows(&self, rows: u64) {
        self.done.fetch_add(rows, Ordering::Relaxed);
    }
}
