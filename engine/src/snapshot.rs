//! Snapshots: what was committed at one moment, for as long as somebody looks at it.
//!
//! Rejected: a snapshot that borrows the engine (it could not be kept beside it, nor sent to another thread).

use std::fmt;
use std::sync::Arc;

use crate::base::Result;
use crate::engine::Engine;
use crate::keyspace::Keyspace;
use crate::range::key::{bounds, prefix_bounds, stored};
use crate::range::{KeyRange, LendingRange, Own, Range};
use crate::read;
use crate::read_point::ReadPoint;
use crate::value::Value;

/// What was committed when it was taken, in all keyspaces: reads give the same until it drops, whatever is written meanwhile.
///
/// It holds the store open. Cheap to clone, and to be shared between threads; the clones are one snapshot. Merges keep what it can
/// see, so one that lives for hours costs space, and time for whoever reads rows that change often.
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// let users = engine.keyspace("users")?;
/// engine.put(&users, "alice", "1")?;
/// let snapshot = engine.snapshot();
/// engine.put(&users, "alice", "2")?;
/// engine.put(&users, "bob", "1")?;
/// assert_eq!(snapshot.get(&users, "alice")?.expect("there"), "1");
/// assert_eq!(snapshot.iter(&users).count(), 1);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Of all reads: [`Error::Io`](crate::Error::Io) and [`Error::Corruption`](crate::Error::Corruption) with the file that cannot be read,
/// [`Error::NoKeyspace`](crate::Error::NoKeyspace) if the keyspace was dropped, also after the snapshot was taken,
/// [`Error::Poisoned`](crate::Error::Poisoned) if the store has stopped, [`Error::Invalid`](crate::Error::Invalid) if the keyspace is
/// one of another store.
#[derive(Clone)]
pub struct Snapshot {
    engine: Engine,
    point: Arc<ReadPoint>,
}

impl Engine {
    /// A snapshot of what is committed now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { engine: self.clone(), point: Arc::new(self.read_point()) }
    }

    /// A snapshot of a moment of the past, in seconds since 1970: of what was committed before that second began.
    ///
    /// A keyspace is read as it is now, and not as it was: one that was created since is empty there.
    ///
    /// ```
    /// # use strata_engine::{Engine, Options};
    /// # fn main() -> strata_engine::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("strata-doc-past-{}", std::process::id()));
    /// let engine = Engine::open(&dir, Options { history_retention_s: 3600, ..Options::default() })?;
    /// let users = engine.keyspace("users")?;
    /// assert!(engine.snapshot_at(0).is_err());
    /// let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    /// assert!(engine.snapshot_at(now + 60).is_err());
    /// # drop((users, engine));
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Moment`](crate::Error::Moment) for a moment that is to come, is older than the retention
    /// ([`Options::history_retention_s`](crate::Options::history_retention_s)), or lies before the history began.
    pub fn snapshot_at(&self, unix_s: u64) -> Result<Snapshot> {
        let point = self.read_point_at(unix_s)?;
        self.await_visible(point.seq());
        Ok(Snapshot { engine: self.clone(), point: Arc::new(point) })
    }

    /// The newest committed value of a key. Errors: as of [`Snapshot`].
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        // A snapshot of its own for this one read, without the handle.
        let point = self.read_point();
        self.pin(keyspace, key.as_ref(), &point)
    }

    fn pin(&self, keyspace: &Keyspace, key: &[u8], point: &ReadPoint) -> Result<Option<Value>> {
        self.check()?;
        let key = stored(self.keyspaces.index_of(keyspace)?, key);
        let value = read::pin(&self.core.tree, &key, point.seq())?;
        keyspace.check()?;
        Ok(value)
    }
}

impl Snapshot {
    /// The value of a key.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.engine.pin(keyspace, key.as_ref(), &self.point)
    }

    /// The rows whose keys are in `range`: `"a".."c"`, `..="b"`, `..`.
    pub fn range(&self, keyspace: &Keyspace, range: impl KeyRange) -> Range<'static> {
        self.rows(keyspace, bounds(keyspace.index(), &range))
    }

    /// The rows whose keys begin with `prefix`.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Range<'static> {
        self.rows(keyspace, prefix_bounds(keyspace.index(), prefix.as_ref()))
    }

    /// All rows.
    pub fn iter(&self, keyspace: &Keyspace) -> Range<'static> {
        self.prefix(keyspace, "")
    }

    fn rows(&self, keyspace: &Keyspace, bounds: (Vec<u8>, Vec<u8>)) -> Range<'static> {
        let own = Own::Nothing(Box::new(self.engine.begin()));
        Range::of(LendingRange::plain(&self.engine, keyspace, own, self.point.clone(), bounds))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.point.seq())
    }
}

const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Snapshot>();
    shared::<Keyspace>();
    shared::<Value>();
    fn sent<T: Send>() {}
    sent::<Range<'static>>();
};
