//! How much is locked, and what that takes in memory: for status and for checks that nothing stays behind.
//!
//! Each shard is counted under its mutex, one after the other: what is asked for when nothing goes on is exact.

use super::gap::SHARDS;
use super::{LockTable, LockUsage};

impl LockTable {
    /// What is locked at this moment.
    pub fn usage(&self) -> LockUsage {
        let mut usage = LockUsage::default();
        for shard in &self.shards {
            let shard = shard.0.lock();
            usage.keys += shard.live as u64;
            usage.bytes += shard.bytes() as u64;
        }
        for owner in self.bulk.owners().iter() {
            let bulk = owner.bulk.read();
            usage.keys += bulk.len() as u64;
            usage.bytes += bulk.bytes() as u64;
        }
        for number in 0..SHARDS {
            usage.intervals += self.locked_in(number) as u64;
        }
        usage
    }
}
