//! Threads of the engine's own, told to whoever keeps a list of the process's threads.
//!
//! A server shows its threads to people and monitors by name, and lets code that a plugin has given it (a logger, keys of
//! encryption) rely on something that each thread sets up. So each thread of a store says when it begins and when it ends.
//!
//! The hook is one per process, as that list is; it counts for stores that are opened later.
//!
//! Rejected: threads that the server makes for the store (the engine is a library that has none).

use std::sync::OnceLock;

/// Called on the thread: `begins` with its name before its work, `ends` after it.
#[derive(Clone, Copy)]
pub struct ThreadHook {
    /// The thread of this name begins.
    pub begins: fn(&str),
    /// It ends.
    pub ends: fn(),
}

static HOOK: OnceLock<ThreadHook> = OnceLock::new();

/// Sets who is told of threads, for the life of the process. The first call counts.
pub fn set_thread_hook(hook: ThreadHook) {
    // A second store of the process has the same list.
    let _ = HOOK.set(hook);
}

/// The calling thread is one of the engine's, or of a layer above it, until this drops.
pub struct Known(());

impl Known {
    /// From now on, by this name.
    pub fn begin(name: &str) -> Known {
        if let Some(hook) = HOOK.get() {
            (hook.begins)(name);
        }
        Known(())
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        if let Some(hook) = HOOK.get() {
            (hook.ends)();
        }
    }
}
