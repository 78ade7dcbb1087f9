//! A source over a vector, and a strategy for test data.

use super::VersionIter;
use crate::base::{Kind, Result, SeqNo};

/// One version: user key, sequence number, kind, value.
pub type Entry = (Vec<u8>, SeqNo, Kind, Vec<u8>);

/// Sorts into internal order.
pub fn sort_internal(entries: &mut [Entry]) {
    entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
}

/// A cursor over a sorted vector.
pub struct VecIter {
    entries: Vec<Entry>,
    at: Option<usize>,
}

impl VecIter {
    /// Sorts `entries` and stands before them.
    pub fn new(mut entries: Vec<Entry>) -> VecIter {
        sort_internal(&mut entries);
        VecIter { entries, at: None }
    }
    fn current(&self) -> &Entry {
        &self.entries[self.at.expect("not positioned")]
    }
    fn go(&mut self, at: usize) -> Result<()> {
        self.at = (at < self.entries.len()).then_some(at);
        Ok(())
    }
}

impl VersionIter for VecIter {
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        &self.current().0
    }
    fn seq(&self) -> SeqNo {
        self.current().1
    }
    fn kind(&self) -> Kind {
        self.current().2
    }
    fn value(&self) -> &[u8] {
        &self.current().3
    }
    fn seek_ge(&mut self, key: &[u8]) -> Result<()> {
        self.go(self.entries.partition_point(|e| e.0.as_slice() < key))
    }
    fn seek_lt(&mut self, key: &[u8]) -> Result<()> {
        let at = self.entries.partition_point(|e| e.0.as_slice() < key);
        self.go(at.wrapping_sub(1))
    }
    fn seek_first(&mut self) -> Result<()> {
        self.go(0)
    }
    fn seek_last(&mut self) -> Result<()> {
        self.go(self.entries.len().wrapping_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        let at = self.at.expect("next without position");
        self.go(at + 1)
    }
    fn prev(&mut self) -> Result<()> {
        let at = self.at.expect("prev without position");
        self.go(at.wrapping_sub(1))
    }
}
