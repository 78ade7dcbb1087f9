//! Transactions for users of keyspaces: reads and writes that lock by themselves, as the isolation level asks for.
//!
//! A [`Transaction`] puts rules on the engine's [`Txn`], which buffers writes and locks what it is told to lock:
//!
//! ```text
//! write   announce the key to range locks -> lock it -> (Snapshot) has it changed since? -> buffer
//! read    ReadCommitted   at a read point of its own
//!         Snapshot        at the transaction's read point
//!         Serializable    lock the key, or rows and intervals (range/locking.rs), then the newest state
//! ```
//!
//! A key is announced before it is locked: whoever has locked the interval around it may want to insert it itself. All writes are announced,
//! since whether a key is new is not known; where nobody scans with locks that is an entry in a list.
//!
//! Reads take `&self`, so that any number of ranges is open at once; writes take `&mut self`, so a range never meets a write that
//! came later.
//!
//! Invariant: what a `Snapshot` transaction writes has not changed since its read point. The check comes after the lock, which
//! keeps the answer true.
//!
//! Rejected: optimistic checks at commit (long transactions lose all their work; with locks they wait, and conflicts show at the
//! write). The row layer does without this: SQL has other rules of what to lock, and keys that it encodes itself
//! (docs/decisions/library.md).

mod isolation;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::isolation::Isolation;
use crate::base::limits::check_key;
use crate::base::{Error, Result, SeqNo};
use crate::engine::Engine;
use crate::keyspace::Keyspace;
use crate::lock::LockMode;
use crate::range::key::{Bounds, bounds, prefix_bounds, store_into, stored};
use crate::range::locker::Locker;
use crate::range::{KeyRange, LendingRange, Own, Range};
use crate::read_point::ReadPoint;
use crate::txn::Txn;
use crate::value::Value;
use crate::write_buffer;

/// How long a lock is waited for unless the transaction says otherwise.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A point in a transaction to which it can go back: [`Transaction::rollback_to`].
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// # let users = engine.keyspace("users")?;
/// let mut transaction = engine.transaction(strata_engine::Isolation::Snapshot);
/// transaction.put(&users, "alice", "1")?;
/// let savepoint = transaction.savepoint();
/// transaction.put(&users, "alice", "2")?;
/// transaction.rollback_to(savepoint)?;
/// transaction.commit()?;
/// assert_eq!(engine.get(&users, "alice")?.expect("there"), "1");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Savepoint {
    transaction: u64,
    number: u64,
}

/// A transaction: reads and writes in any number of keyspaces that take effect together, or not at all.
///
/// It ends with [`commit`](Transaction::commit); one that is dropped is rolled back. What it sees of others is its
/// [`Isolation`]'s matter. Whatever the level, a write locks its key until the transaction ends, and a write of a key that another
/// has locked waits. Waits end with [`Error::LockTimeout`] after ten seconds (see [`lock_timeout`](Transaction::lock_timeout)), and
/// with [`Error::Deadlock`] as soon as transactions wait for each other in a circle: for one of them, which can then only be dropped and
/// run again.
///
/// Its size is not bound by memory: large ones write files as they go. It holds the store open. It may be sent to another thread, and
/// shared for reading.
///
/// ```
/// use strata_engine::Isolation;
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// # let accounts = engine.keyspace("accounts")?;
/// # engine.put(&accounts, "alice", 100u64.to_le_bytes())?;
/// # engine.put(&accounts, "bob", 20u64.to_le_bytes())?;
/// let transfer = |from: &str, to: &str, amount: u64| -> strata_engine::Result<()> {
///     let mut transaction = engine.transaction(Isolation::Snapshot);
///     for (name, sign) in [(from, -1i64), (to, 1)] {
///         let balance = transaction.get_for_update(&accounts, name)?.expect("an account");
///         let balance = u64::from_le_bytes(balance[..].try_into().expect("eight bytes"));
///         let balance = balance.wrapping_add_signed(sign * amount as i64);
///         transaction.put(&accounts, name, balance.to_le_bytes())?;
///     }
///     transaction.commit()
/// };
/// // Another transaction may have been in the way: run it again.
/// while let Err(error) = transfer("alice", "bob", 30) {
///     assert!(error.is_retryable(), "{error}");
/// }
/// assert_eq!(engine.get(&accounts, "bob")?.expect("an account"), 50u64.to_le_bytes());
/// # Ok(()) }
/// ```
///
/// # Errors
/// Of all reads and writes, beside those of each: [`Error::Io`] and [`Error::Corruption`] with the file that cannot be read;
/// [`Error::NoKeyspace`] if the keyspace was dropped; [`Error::Invalid`] if it is one of another store; [`Error::Poisoned`] if the store has
/// stopped; [`Error::Deadlock`] after the first such error. After all others the transaction is as it was before the call, and may go on.
pub struct Transaction {
    engine: Engine,
    txn: Txn,
    locker: Locker,
    isolation: Isolation,
    /// At `Snapshot`.
    point: Option<Arc<ReadPoint>>,
    /// Those that can still be gone back to: number, and place in the write buffer. Both ascend.
    savepoints: Vec<(u64, write_buffer::Savepoint)>,
    next_savepoint: u64,
    key: Vec<u8>,
}

impl Engine {
    /// A new transaction.
    pub fn transaction(&self, isolation: Isolation) -> Transaction {
        let txn = self.begin();
        let point = (isolation == Isolation::Snapshot).then(|| Arc::new(self.read_point()));
        let locker = Locker::new(&self.core, txn.owner(), LOCK_TIMEOUT);
        Transaction {
            engine: self.clone(),
            txn,
            locker,
            isolation,
            point,
            savepoints: Vec::new(),
            next_savepoint: 0,
            key: Vec::new(),
        }
    }

    /// Puts one key, in a transaction of its own. Durable as [`Options::durability`](crate::Options) says.
    ///
    /// Errors: as of [`Transaction::put`] and [`Transaction::commit`].
    pub fn put(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let mut transaction = self.transaction(Isolation::ReadCommitted);
        transaction.put(keyspace, key, value)?;
        transaction.commit()
    }

    /// Deletes one key, in a transaction of its own; see [`Engine::put`].
    pub fn delete(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        let mut transaction = self.transaction(Isolation::ReadCommitted);
        transaction.delete(keyspace, key)?;
        transaction.commit()
    }
}

impl Transaction {
    /// How long a lock is waited for, instead of ten seconds. Zero waits for none: [`Error::LockBusy`].
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Transaction {
        self.locker.set_timeout(timeout);
        self
    }

    /// Its isolation level.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    fn check(&self) -> Result<()> {
        self.engine.check()?;
        self.locker.check()
    }

    /// The value of a key: the transaction's own, or what the isolation level shows.
    ///
    /// # Errors
    /// At [`Isolation::Serializable`] also [`Error::LockTimeout`], [`Error::LockBusy`] and [`Error::Deadlock`].
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.check()?;
        let key = stored(self.engine.keyspaces.index_of(keyspace)?, key.as_ref());
        if self.isolation == Isolation::Serializable {
            self.locker.lock(&key, LockMode::Shared)?;
        }
        self.read(keyspace, &key)
    }

    /// Reads what the level shows. What has to be locked is.
    fn read(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Value>> {
        let value = self.txn.pin(key, self.point.as_ref().map_or(SeqNo::MAX, |point| point.seq()))?;
        keyspace.check()?;
        Ok(value)
    }

    /// The value of a key that is going to be written: locks the key, be it there or not, so that nobody else writes it before the
    /// transaction ends, and reads it then.
    ///
    /// # Errors
    /// [`Error::LockTimeout`], [`Error::LockBusy`] and [`Error::Deadlock`]. At [`Isolation::Snapshot`] [`Error::Conflict`] if the key has
    /// changed since the transaction began.
    pub fn get_for_update(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.check()?;
        let key = stored(self.engine.keyspaces.index_of(keyspace)?, key.as_ref());
        self.lock_to_write(&key)?;
        self.read(keyspace, &key)
    }

    fn lock_to_write(&self, key: &[u8]) -> Result<()> {
        self.locker.lock(key, LockMode::Exclusive)?;
        match &self.point {
            Some(point) if self.engine.changed_since(key, point.seq())? => Err(Error::Conflict),
            _ => Ok(()),
        }
    }

    /// The rows whose keys are in `range`: `"a".."c"`, `..="b"`, `..`.
    ///
    /// At [`Isolation::Serializable`] its items may be [`Error::LockTimeout`], [`Error::LockBusy`] and [`Error::Deadlock`]; of the range only
    /// what was read is locked.
    pub fn range(&self, keyspace: &Keyspace, range: impl KeyRange) -> Range<'_> {
        self.rows(keyspace, bounds(keyspace.index(), &range))
    }

    /// The rows whose keys begin with `prefix`; see [`Transaction::range`].
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Range<'_> {
        self.rows(keyspace, prefix_bounds(keyspace.index(), prefix.as_ref()))
    }

    /// All rows; see [`Transaction::range`].
    pub fn iter(&self, keyspace: &Keyspace) -> Range<'_> {
        self.prefix(keyspace, "")
    }

    fn rows(&self, keyspace: &Keyspace, bounds: Bounds) -> Range<'_> {
        let (engine, txn) = (&self.engine, &self.txn);
        let plain = |point| LendingRange::plain(engine, keyspace, Own::Writes(txn), point, bounds.clone());
        Range::of(match (self.isolation, &self.point) {
            (Isolation::Serializable, _) => LendingRange::locking(engine, keyspace, txn, &self.locker, bounds),
            (_, Some(point)) => plain(point.clone()),
            (_, None) => plain(Arc::new(engine.read_point())),
        })
    }

    /// Puts a value under a key, whether it is there or not.
    ///
    /// # Errors
    /// [`Error::LockTimeout`], [`Error::LockBusy`] and [`Error::Deadlock`]. At [`Isolation::Snapshot`] [`Error::Conflict`] if the key has
    /// changed since the transaction began. [`Error::Invalid`] for a key of more than 32,764 bytes or a value of more than 1,088 MiB.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, key.as_ref(), Some(value.as_ref()))
    }

    /// Deletes a key, whether it is there or not. Errors: as of [`Transaction::put`].
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, key.as_ref(), None)
    }

    fn write(&mut self, keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.check()?;
        let index = self.engine.keyspaces.index_of(keyspace)?;
        let mut stored = std::mem::take(&mut self.key);
        store_into(index, key, &mut stored);
        let written = self.write_stored(&stored, value);
        self.key = stored;
        written
    }

    fn write_stored(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_key(key)?;
        if value.is_some() {
            self.locker.intend_insert(key, || self.txn.wrote(key))?;
        }
        self.lock_to_write(key)?;
        match value {
            Some(value) => self.txn.put(key, value),
            None => self.txn.delete(key),
        }
    }

    /// A point to which the transaction can go back.
    pub fn savepoint(&mut self) -> Savepoint {
        let number = self.next_savepoint;
        self.next_savepoint += 1;
        self.savepoints.push((number, self.txn.savepoint()));
        Savepoint { transaction: self.txn.owner().id(), number }
    }

    /// Takes back all writes since `savepoint`, and the savepoints made since; it may be gone back to again. Locks stay.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a savepoint of another transaction, or one that was taken back itself.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.check()?;
        let is_own = savepoint.transaction == self.txn.owner().id();
        let at = self.savepoints.binary_search_by_key(&savepoint.number, |(number, _)| *number);
        let Some(at) = at.ok().filter(|_| is_own) else {
            return Err(Error::Invalid("the savepoint is not one of this transaction, or was taken back".into()));
        };
        self.txn.rollback_to(self.savepoints[at].1);
        self.savepoints.truncate(at + 1);
        Ok(())
    }

    /// Commits: when this returns, all writes are visible to others at once, and durable as
    /// [`Options::durability`](crate::Options) says.
    ///
    /// # Errors
    /// After an error nothing of the transaction has happened, with one exception: at [`Error::Poisoned`] the store has stopped while it
    /// made the commit durable, and whether it has happened is known when the store is opened again. [`Error::Io`] if there is no
    /// room for the writes, [`Error::Deadlock`] if the transaction was the victim of one.
    pub fn commit(mut self) -> Result<()> {
        self.check()?;
        self.txn.commit()
    }

    /// Takes everything back. The same as to drop it, and says what could not be tidied up.
    pub fn rollback(mut self) -> Result<()> {
        self.txn.rollback()
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.txn.has_writes() {
            // Files that stay are found without a name by the next opening.
            drop(self.txn.rollback());
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction({:?}, {})", self.isolation, self.txn.owner().id())
    }
}

const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Transaction>();
};
