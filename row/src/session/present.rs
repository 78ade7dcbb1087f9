//! What a statement takes for the present, and so which rows have expired for it.

use super::Session;

impl Session {
    /// What the running statement takes for the present, in seconds since 1970: it decides which rows have expired.
    pub fn set_time(&mut self, seconds: u64) {
        self.time = Some(seconds);
    }

    /// Whether the statement sees rows that have expired like others: it repeats what was done to rows elsewhere, and at another time.
    pub fn set_sees_expired(&mut self, on: bool) {
        self.sees_expired = on;
    }

    /// The present of the running statement, or the moment of the past that its transaction reads.
    fn present(&mut self) -> u64 {
        if let Some(past) = &self.past {
            return past.moment;
        }
        let store = &self.store;
        *self.time.get_or_insert_with(|| store.engine().unix_seconds())
    }

    /// Rows that expire at this moment or before are not seen by the running statement, in seconds since 1970; `None`: all are.
    pub(crate) fn horizon(&mut self) -> Option<u64> {
        if self.sees_expired { None } else { Some(self.present()) }
    }

    /// Rows that expire at this moment or before give way to others with the same unique values. For a statement that repeats what was
    /// done elsewhere the clock counts, too: where it was done first they may have been purged by then.
    pub(crate) fn gives_way_at(&mut self) -> u64 {
        let present = self.present();
        if self.sees_expired { present.max(self.engine().unix_seconds()) } else { present }
    }
}
