//! Which waits of writers are one stall.
//!
//! Of a full memory: from the first writer that waits to the last, whoever comes and goes in between. Of a backlog, where each
//! write sleeps for a moment: from the first look at which writers together slept for a tenth of a second since the look
//! before, a second ago, to the first at which none has slept. Looks that come earlier do not count. Pure decisions; times
//! are microseconds of any one clock.

/// Sleep of all writers between two looks from which on a backlog is told.
const SLEPT_MIN_US: u64 = 100_000;

/// From one look to the next.
const LOOK_US: u64 = 1_000_000;

/// Stalls of one cause.
#[derive(Default)]
struct Stall {
    /// How many there were, the present one included.
    count: u64,
    since_us: Option<u64>,
}

impl Stall {
    fn begin(&mut self, now_us: u64) -> u64 {
        self.count += 1;
        self.since_us = Some(now_us);
        self.count
    }

    fn end(&mut self, now_us: u64) -> Option<Ended> {
        let since_us = self.since_us.take()?;
        Some(Ended { stall: self.count, us: now_us.saturating_sub(since_us) })
    }
}

/// A stall that is over.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Ended {
    pub stall: u64,
    pub us: u64,
}

/// What a look at the backlog has found.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Change {
    Begun(u64),
    Ended(Ended),
}

/// See the module.
#[derive(Default)]
pub(super) struct Stalls {
    waiting: u32,
    memtables: Stall,
    backlog: Stall,
    /// Sleep of all writers at the last look.
    slept_us: u64,
    next_look_us: u64,
}

impl Stalls {
    /// A writer begins to wait for memory. The number of the stall that begins with it, if one does.
    pub fn enter(&mut self, now_us: u64) -> Option<u64> {
        self.waiting += 1;
        (self.waiting == 1).then(|| self.memtables.begin(now_us))
    }

    /// A writer that has entered waits no more.
    pub fn leave(&mut self, now_us: u64) -> Option<Ended> {
        self.waiting -= 1;
        if self.waiting == 0 { self.memtables.end(now_us) } else { None }
    }

    /// The look at the backlog: writers have slept so long since the store was opened.
    pub fn look(&mut self, slept_us: u64, now_us: u64) -> Option<Change> {
        if now_us < self.next_look_us {
            return None;
        }
        self.next_look_us = now_us + LOOK_US;
        let slept = slept_us.saturating_sub(std::mem::replace(&mut self.slept_us, slept_us));
        match self.backlog.since_us {
            None if slept >= SLEPT_MIN_US => Some(Change::Begun(self.backlog.begin(now_us))),
            Some(_) if slept == 0 => self.backlog.end(now_us).map(Change::Ended),
            _ => None,
        }
    }
}
