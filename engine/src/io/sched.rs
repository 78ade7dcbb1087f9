//! The processor's share of background threads.
//!
//! Nice values rather than a scheduling class: each step is worth a quarter, so a share can follow a load smoothly. At
//! [`NICE_MAX`] a thread weighs a ninth of a user's thread that wants the same processor, and gets a whole processor
//! when nobody does. Lower shares (nice 19, the idle class) save users little more and let work that has begun, with
//! its buffers and its files, lie around for long.
//!
//! A process without privileges may make a thread nicer but not take it back. Such a thread stays at one value for good,
//! [`NICE_FIXED`], which neither starves it nor lets it push users aside.

use std::cell::Cell;

use rustix::process::{getpriority_process, setpriority_process};

/// The nicest value that is asked for.
pub const NICE_MAX: i32 = 10;
/// Where nice values cannot be taken back: a third of a user's weight.
const NICE_FIXED: i32 = 5;

/// How the calling thread stands to the other threads of the process.
pub trait Scheduler: Send + Sync + 'static {
    /// Makes the calling thread `nice`: 0 is like the threads of users, up to [`NICE_MAX`] behind them. A wish; never
    /// fails.
    fn set_nice(&self, nice: i32);
}

/// The machine's scheduler.
#[derive(Default)]
pub struct SystemScheduler;

#[derive(Clone, Copy)]
enum Thread {
    New,
    /// The values that stand for 0 and for now, both absolute.
    Free {
        base: i32,
        now: i32,
    },
    Fixed,
}

thread_local! {
    static THREAD: Cell<Thread> = const { Cell::new(Thread::New) };
}

impl Scheduler for SystemScheduler {
    fn set_nice(&self, nice: i32) {
        // On Linux these calls, without a process, mean the calling thread.
        let set = |nice: i32| setpriority_process(None, nice).is_ok();
        let (base, now) = match THREAD.get() {
            Thread::Fixed => return,
            Thread::Free { base, now } => (base, now),
            Thread::New => {
                let Ok(base) = getpriority_process(None) else { return THREAD.set(Thread::Fixed) };
                // Tried out once: down and up again.
                if !(set(base + 1) && set(base)) {
                    set(base + NICE_FIXED);
                    return THREAD.set(Thread::Fixed);
                }
                (base, base)
            }
        };
        let wanted = base + nice.clamp(0, NICE_MAX);
        let now = if wanted == now || !set(wanted) { now } else { wanted };
        THREAD.set(Thread::Free { base, now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_move_alone_and_come_back_where_that_is_allowed() {
        let nice_of_thread = || getpriority_process(None).unwrap();
        let ours = nice_of_thread();
        let background = std::thread::spawn(move || {
            SystemScheduler.set_nice(NICE_MAX + 5);
            let low = nice_of_thread();
            SystemScheduler.set_nice(0);
            (low, nice_of_thread())
        });
        let (low, back) = background.join().unwrap();
        // The kernel's nicest value is 19.
        let allowed = (ours + NICE_MAX).min(19);
        assert!((low, back) == (allowed, ours) || (low == back && low == (ours + NICE_FIXED).min(19)), "{low} {back}");
        assert_eq!(nice_of_thread(), ours, "other threads stay as they are");
    }
}
