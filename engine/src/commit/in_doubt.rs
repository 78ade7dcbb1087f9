//! Transactions that are prepared and neither ordered nor rolled back, and what of the log they hold back.
//!
//! Under a mutex of its own, held for moments only: sessions that prepare do not wait for the one that orders a group.
//! Who decides about a transaction, or relocates its record, holds the order of commits meanwhile, so that the position of
//! a record does not change under it. Lock order: the order of commits, then this.
//!
//! A record that is being appended is not registered yet, as its position is not known. Until it is, a position at or before
//! it is noted (`arriving`), so that a flush does not move the start of the log past it. That position may lie before the start
//! that an earlier flush has found (`released`), the record itself does not: that flush looked for the end of the log first, and
//! then here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::relocation::PrepareRecord;
use crate::base::{Error, Lsn, Result, TxnId};

/// A prepared transaction. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub xid: Arc<[u8]>,
    pub batch: Arc<[u8]>,
    /// Its prepare record, or the newest copy of it; recovery needs the log from there.
    pub record: PrepareRecord,
}

/// See the module.
#[derive(Default)]
pub(crate) struct InDoubt {
    by_id: BTreeMap<TxnId, Prepared>,
    /// The same by the position of their records.
    records: BTreeMap<Lsn, TxnId>,
    arriving: Vec<Lsn>,
    released: Lsn,
}

impl InDoubt {
    /// A record will be appended at or behind `floor`.
    pub fn arrives(&mut self, floor: Lsn) {
        self.arriving.push(floor);
    }

    /// The record that was announced with `floor` has been appended and is registered under the same lock, or it failed.
    pub fn arrived(&mut self, floor: Lsn) {
        if let Some(at) = self.arriving.iter().position(|&noted| noted == floor) {
            self.arriving.swap_remove(at);
        }
    }

    pub fn insert(&mut self, id: TxnId, prepared: Prepared) {
        self.records.insert(prepared.record.at, id);
        self.by_id.insert(id, prepared);
    }

    /// Errors: `Invalid` if it is not here.
    pub fn get(&self, id: TxnId) -> Result<&Prepared> {
        self.by_id.get(&id).ok_or_else(|| Error::Invalid(format!("transaction {id} is not prepared")))
    }

    pub fn remove(&mut self, id: TxnId) -> Option<Prepared> {
        let prepared = self.by_id.remove(&id)?;
        self.records.remove(&prepared.record.at);
        Some(prepared)
    }

    /// Gives one of them another id.
    pub fn rename(&mut self, id: TxnId, xid: &[u8]) {
        if let Some(prepared) = self.by_id.get_mut(&id) {
            prepared.xid = xid.into();
        }
    }

    /// The lowest position that recovery needs for them.
    pub fn log_start(&self) -> Option<Lsn> {
        let arriving = self.arriving.iter().map(|&floor| floor.max(self.released));
        self.records.keys().next().copied().into_iter().chain(arriving).min()
    }

    /// Recovery needs no log before `start`, as a look at all that it needs has found.
    pub fn release(&mut self, start: Lsn) {
        self.released = self.released.max(start);
    }

    /// Those whose records begin below `floor`, by position.
    pub fn below(&self, floor: Lsn) -> impl Iterator<Item = (TxnId, PrepareRecord)> + '_ {
        self.records.range(..floor).map(|(_, id)| (*id, self.by_id[id].record))
    }

    /// Whether one of them has this id.
    pub fn has(&self, xid: &[u8]) -> bool {
        self.by_id.values().any(|prepared| *prepared.xid == *xid)
    }

    /// All, by their ids.
    pub fn by_id(&self) -> impl Iterator<Item = (TxnId, &Prepared)> {
        self.by_id.iter().map(|(id, prepared)| (*id, prepared))
    }

    /// What they write.
    pub fn batches(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.by_id.values().map(|prepared| &prepared.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(at: u64) -> Prepared {
        Prepared { xid: Arc::default(), batch: Arc::default(), record: PrepareRecord { at: Lsn(at), bytes: 1 } }
    }

    /// A record that was on its way since `from` is there.
    fn settle(in_doubt: &mut InDoubt, at: u64, from: u64) {
        in_doubt.insert(TxnId(at), prepared(at));
        in_doubt.arrived(Lsn(from));
        assert_eq!(in_doubt.log_start(), Some(Lsn(at)));
    }

    #[test]
    fn the_log_is_needed_from_the_first_record() {
        let mut in_doubt = InDoubt::default();
        assert_eq!(in_doubt.log_start(), None);
        in_doubt.arrives(Lsn(50));
        in_doubt.arrives(Lsn(50));
        in_doubt.arrives(Lsn(40));
        assert_eq!(in_doubt.log_start(), Some(Lsn(40)));
        settle(&mut in_doubt, 45, 40);
        assert_eq!(in_doubt.remove(TxnId(45)).map(|p| p.record.at), Some(Lsn(45)));
        // One of two with the same floor.
        in_doubt.arrived(Lsn(50));
        assert_eq!(in_doubt.log_start(), Some(Lsn(50)));
        in_doubt.arrived(Lsn(50));
        assert_eq!(in_doubt.log_start(), None);
        assert!(in_doubt.get(TxnId(45)).is_err() && in_doubt.remove(TxnId(45)).is_none());
    }

    /// What is noted of a record on its way may lag behind the end of the log; the start of the log does not go back for it.
    #[test]
    fn a_record_on_its_way_moves_no_start_back() {
        let mut in_doubt = InDoubt::default();
        in_doubt.release(Lsn(4096));
        in_doubt.arrives(Lsn(4000));
        assert_eq!(in_doubt.log_start(), Some(Lsn(4096)));
        settle(&mut in_doubt, 4100, 4000);
    }

    #[test]
    fn a_relocated_record_keeps_its_id() {
        let mut in_doubt = InDoubt::default();
        in_doubt.insert(TxnId(10), prepared(10));
        in_doubt.insert(TxnId(20), prepared(20));
        assert!(in_doubt.below(Lsn(20)).map(|(id, _)| id).eq([TxnId(10)]));
        assert!(in_doubt.remove(TxnId(10)).is_some());
        in_doubt.insert(TxnId(10), prepared(30));
        assert_eq!(in_doubt.log_start(), Some(Lsn(20)));
        assert!(in_doubt.below(Lsn(99)).map(|(id, _)| id).eq([TxnId(20), TxnId(10)]));
        assert_eq!(in_doubt.get(TxnId(10)).unwrap().record.at, Lsn(30));
    }
}
