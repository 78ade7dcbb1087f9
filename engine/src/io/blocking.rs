//! Waits of a thread, told to whoever runs the threads.
//!
//! A pool of few threads starts another one when a thread of its is about to wait for something that only another user of
//! the pool can give: a row lock, room in memory, a sync that somebody else carries out. Without being told, it takes the
//! thread for busy, and the one who holds the lock finds no thread to run its COMMIT.
//!
//! The hook is one per process, as a pool is. Where nothing is waited for, nothing is called or looked at.
//!
//! Rejected: a hook per store (log, lock table and background work would each have to carry it).

use std::sync::OnceLock;

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocking {
    /// A row lock, a place in an index, or a prepared transaction that its session still has.
    Lock,
    /// The log: room in its buffer, a write or a sync, by this thread or another; an earlier commit that another thread makes
    /// visible.
    Log,
    /// Background work: a flush, a merge, a share of the disk for others.
    Background,
}

/// Called on the waiting thread, `begins` before a wait and `ends` after it. Both are short, and take no lock of the
/// engine's.
#[derive(Clone, Copy)]
pub struct BlockingHook {
    /// Before a wait.
    pub begins: fn(Blocking),
    /// After it.
    pub ends: fn(),
}

static HOOK: OnceLock<BlockingHook> = OnceLock::new();

/// Sets who is told of waits, for the life of the process. The first call counts.
pub fn set_blocking_hook(hook: BlockingHook) {
    // A second store of the process has the same pool.
    let _ = HOOK.set(hook);
}

/// A wait that goes on until this drops.
pub(crate) struct Waiting(());

impl Waiting {
    /// The calling thread is about to wait.
    #[cold]
    pub(crate) fn begin(what: Blocking) -> Waiting {
        if let Some(hook) = HOOK.get() {
            (hook.begins)(what);
        }
        Waiting(())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(hook) = HOOK.get() {
            (hook.ends)();
        }
    }
}
