//! The part of a session that other threads may touch: who it is, for reports, and the switch that ends what it does.
//!
//! The session owns a [`KillSwitch`] and shares it; the store holds all of them weakly. A kill is remembered until the session sees
//! it, and interrupts the owner of its locks, so that a wait ends at once.
//!
//! Rejected: the session itself behind a mutex. Its thread would take it for each row.

use crate::kv;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The part of a session that other threads may touch.
#[derive(Default)]
pub struct KillSwitch {
    killed: AtomicBool,
    owner: Mutex<Option<Arc<kv::LockOwner>>>,
    /// Those of running fills, which are transactions of their own.
    fills: Mutex<Vec<Weak<kv::LockOwner>>>,
    /// Number of the owner, to be compared without the mutex.
    number: AtomicU64,
    connection: AtomicU64,
    /// When the transaction began, in microseconds of the engine's clock; 0: none is open.
    began_us: AtomicU64,
    isolation: AtomicU8,
}

/// An open transaction, for reports.
pub(crate) struct OpenTransaction {
    pub owner: Arc<kv::LockOwner>,
    pub connection: u64,
    pub began_us: u64,
    pub isolation: &'static str,
}

impl KillSwitch {
    /// The open transaction.
    pub(crate) fn transaction(&self) -> Option<OpenTransaction> {
        let owner = self.owner.lock().clone()?;
        let began_us = self.began_us.load(Ordering::Relaxed);
        let names = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
        let isolation = names[usize::from(self.isolation.load(Ordering::Relaxed)) % names.len()];
        let connection = self.connection();
        (began_us > 0).then_some(OpenTransaction { owner, connection, began_us, isolation })
    }

    /// Ends a lock wait, long scans and merges of the session. Any thread.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        if let Some(owner) = &*self.owner.lock() {
            owner.interrupt();
        }
        self.fills.lock().iter().filter_map(Weak::upgrade).for_each(|owner| owner.interrupt());
    }

    /// From now on a kill ends the work of this fill too.
    pub(crate) fn watch_fill(&self, owner: &Arc<kv::LockOwner>) {
        let mut fills = self.fills.lock();
        fills.retain(|other| other.strong_count() > 0);
        fills.push(Arc::downgrade(owner));
    }

    /// Number of the owner of the session's locks at this moment. Any thread.
    pub fn owner_number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Runs `body` if the owner of that number is still the session's; its transaction does not end meanwhile. Any
    /// thread; `body` must not wait for the session.
    pub fn while_owner(&self, number: u64, body: impl FnOnce()) {
        let owner = self.owner.lock();
        if owner.as_ref().is_some_and(|owner| owner.id() == number) {
            body();
        }
    }

    pub(crate) fn set_owner(&self, owner: Option<Arc<kv::LockOwner>>) {
        self.number.store(owner.as_ref().map_or(0, |owner| owner.id()), Ordering::Relaxed);
        *self.owner.lock() = owner;
    }

    pub(crate) fn connection(&self) -> u64 {
        self.connection.load(Ordering::Relaxed)
    }

    pub(crate) fn set_connection(&self, connection: u64) {
        self.connection.store(connection, Ordering::Relaxed);
    }

    /// A transaction begins or goes on, at `isolation`; `now_us` is asked for the first time only.
    pub(crate) fn note_begin(&self, isolation: u8, now_us: impl FnOnce() -> u64) {
        if self.began_us.load(Ordering::Relaxed) == 0 {
            self.began_us.store(now_us().max(1), Ordering::Relaxed);
        }
        self.isolation.store(isolation, Ordering::Relaxed);
    }

    pub(crate) fn note_end(&self) {
        self.began_us.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// Forgets a kill; true if there was one.
    pub(crate) fn forget(&self) -> bool {
        self.killed.swap(false, Ordering::SeqCst)
    }
}
