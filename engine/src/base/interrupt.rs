//! Interrupting the transfer of one large value.
//!
//! A statement is asked between rows whether it is to stop. One value of a gigabyte takes seconds to compress, check and copy,
//! so whoever moves it asks after each piece as well: [`check`] looks at the flag that the calling thread has named with
//! [`interruptible`]. Without one nobody is interrupted, which is right for flushes, merges of the background and commits: the
//! flag is named around reads of a transaction and around its own files before it commits, and nowhere behind the point where
//! its commit is ordered.
//!
//! Rejected: handing the flag through every reader and writer of tables, of which one in a million meets a large value.

use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Error, Result};

thread_local! {
    static FLAG: Cell<*const AtomicBool> = const { Cell::new(null()) };
}

/// Sets the flag back, also when a panic passes by.
struct Restore(*const AtomicBool);

impl Drop for Restore {
    fn drop(&mut self) {
        FLAG.set(self.0);
    }
}

/// Does `work`, which [`check`] ends on this thread once `flag` is set.
#[inline]
pub fn interruptible<R>(flag: &AtomicBool, work: impl FnOnce() -> R) -> R {
    let _restore = Restore(FLAG.replace(flag));
    work()
}

/// [`Error::Interrupted`] once the flag of the enclosing [`interruptible`] is set.
pub fn check() -> Result<()> {
    let flag = FLAG.get();
    // SAFETY: a flag that is named is borrowed until `interruptible` returns, and it takes the name back before.
    match !flag.is_null() && unsafe { &*flag }.load(Ordering::Relaxed) {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_flag_counts_and_none_afterwards() {
        let (set, clear) = (AtomicBool::new(true), AtomicBool::new(false));
        assert!(check().is_ok());
        interruptible(&set, || {
            assert!(matches!(check(), Err(Error::Interrupted)));
            interruptible(&clear, || assert!(check().is_ok()));
            assert!(check().is_err());
            // Other threads are not concerned.
            std::thread::scope(|scope| scope.spawn(|| assert!(check().is_ok())).join()).unwrap();
            let panics = std::panic::catch_unwind(|| interruptible(&AtomicBool::new(false), || panic!("as tested")));
            assert!(panics.is_err() && check().is_err());
        });
        assert!(check().is_ok());
    }
}
