//! The locks of one transaction, as its reads and writes take them.
//!
//! A transaction's reads may come from several threads, its locks are asked for by one at a time: a mutex sees to that.
//!
//! Invariant: who has been told that it is the victim of a deadlock gets no lock any more.
//!
//! Rejected: locks through `&mut` alone (one range at a time, and no read while it is open).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::{Error, IndexId, Result};
use crate::lock::{GrantKind, Granted, LockMode, LockOwner, RangeGrant, Wait};
use crate::parts::Core;

/// See the module.
pub(crate) struct Locker {
    core: Arc<Core>,
    owner: Arc<LockOwner>,
    wait: Wait,
    asking: Mutex<()>,
    /// It was the victim of a deadlock.
    doomed: AtomicBool,
}

impl Locker {
    pub fn new(core: &Arc<Core>, owner: &Arc<LockOwner>, timeout: Duration) -> Locker {
        let (core, owner) = (core.clone(), owner.clone());
        let mut locker = Locker { core, owner, wait: Wait::No, asking: Mutex::new(()), doomed: AtomicBool::new(false) };
        locker.set_timeout(timeout);
        locker
    }

    /// How long a lock is waited for; not at all if this is zero.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.wait = match timeout.is_zero() {
            true => Wait::No,
            false => Wait::TimeoutUs(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX).max(1)),
        };
    }

    /// Fails if the transaction can only be dropped.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.doomed.load(Ordering::Relaxed) { Err(Error::Deadlock) } else { Ok(()) }
    }

    fn ask<R>(&self, ask: impl FnOnce() -> Result<R>) -> Result<R> {
        let _one = self.asking.lock();
        self.check()?;
        let answer = ask();
        if matches!(answer, Err(Error::Deadlock)) {
            self.doomed.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Locks a key until the transaction ends.
    pub fn lock(&self, key: &[u8], mode: LockMode) -> Result<Granted> {
        self.ask(|| self.core.locks.lock(&self.owner, key, mode, self.wait))
    }

    /// Waits until whoever brings a key in has ended; see [`RangeGrant::Inserting`]. False if nothing was waited for, since the
    /// transaction has locked the key itself: then the other waits for it, and brings nothing in before it ends.
    pub fn pass(&self, key: &[u8]) -> Result<bool> {
        self.ask(|| {
            let granted = self.core.locks.lock(&self.owner, key, LockMode::Shared, self.wait)?;
            if granted.kind == GrantKind::New {
                self.core.locks.unlock(&self.owner, key);
            }
            Ok(granted.kind == GrantKind::New)
        })
    }

    /// Announces a key that may be new in its index, once nobody else has locked its place. One that the transaction has written,
    /// as `wrote` says, is its own to bring back.
    pub fn intend_insert(&self, key: &[u8], wrote: impl FnOnce() -> Result<bool>) -> Result<()> {
        self.ask(|| match self.core.locks.intend_insert(&self.owner, key, Wait::No) {
            Err(Error::LockBusy) if wrote()? => Ok(()),
            Err(Error::LockBusy) if self.wait != Wait::No => {
                self.core.locks.intend_insert(&self.owner, key, self.wait).map(|_| ())
            }
            other => other.map(|_| ()),
        })
    }

    /// Announces a scan of an index that locks what it reads; what is read after this call is as new as the version that it returns.
    pub fn range_version(&self, index: IndexId) -> Result<u64> {
        self.ask(|| Ok(self.core.locks.range_version(&self.owner, index)))
    }

    /// Locks `[from, to)`, which was read after `range_version` returned `read`.
    pub fn lock_range(&self, from: &[u8], to: &[u8], read: u64) -> Result<RangeGrant> {
        self.ask(|| Ok(self.core.locks.lock_range(&self.owner, from, to, read)))
    }
}
