//! Keyspaces: named maps of keys to values, each an index of the store.
//!
//! Which there are is written down in the store itself ([`directory`]) and mirrored in memory.
//!
//! ```text
//! create   one durable write: name -> id, next id
//! drop     one durable write: the name goes, a note comes that something of the id may be left
//!          then the engine drops the index, which is durable in the manifest, and the note goes
//! open     reads the directory; works off the notes that a crash has left; drops what belongs to no keyspace
//! ```
//!
//! So a crash at any step leaves a keyspace or none, never a half. Ids are never given twice: the counter is part of the write that
//! makes use of it, and ids of a creation that failed are passed over. A keyspace of the same name gets another id, under which
//! nothing of the former can be.
//!
//! A drop is done once its write is durable: what comes after gives space back, and if it fails it is repeated with the next drop,
//! by housekeeping, after pauses that double, and by the next opening. Before the engine drops the index, its keyspace counts as
//! dropped. Whoever reads asks for that *after* the read: a read that could have met the drop is refused.
//!
//! Changes take place one at a time, under a mutex that is held across their I/O: there are few. Look-ups of a name do not wait
//! for it.
//!
//! Invariant: the map in memory has what is durable in the directory. An id in use has an entry there before anything is written
//! under it.
//!
//! Rejected: asking for the name at each operation (a look-up for what a handle knows); dropping within one write (the engine's
//! manifest would depend on the log's records; two idempotent steps with a note need nothing new).

mod directory;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use self::directory::{DIRECTORY, END, Entry, FIRST, NAME_BYTES_MAX};
use crate::base::backoff::Backoff;
use crate::base::{Error, IndexId, Result};
use crate::inventory;
use crate::manifest::KEYSPACES;
use crate::parts::Core;
use crate::txn::{Cursor, Txn};
use crate::write::{self, Purpose, WriteOp};

/// First and longest pause after a failure to give space back.
const PAUSE_MIN_US: u64 = 1_000_000;
const PAUSE_MAX_US: u64 = 32_000_000;

/// A named map of keys to values, in the order of the keys. Got from [`Engine::keyspace`](crate::Engine::keyspace); cheap to clone.
///
/// Keyspaces are what RocksDB calls column families and redb tables: each has its own keys, and a transaction may write to any number
/// of them. One costs some hundred bytes; there may be many thousands.
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// let users = engine.keyspace("users")?;
/// let mails = engine.keyspace("mails")?;
/// engine.put(&users, "alice", "Alice")?;
/// assert!(engine.get(&mails, "alice")?.is_none());
///
/// let names: Vec<String> = engine.keyspaces().iter().map(|keyspace| keyspace.name().to_owned()).collect();
/// assert_eq!(names, ["mails", "users"]);
///
/// engine.drop_keyspace(&users)?;
/// assert!(engine.get(&users, "alice").is_err(), "it is gone");
/// assert!(engine.get(&engine.keyspace("users")?, "alice")?.is_none(), "a new one, with nothing in it");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Keyspace(Arc<Inner>);

struct Inner {
    /// Tells openings of stores from each other.
    store: u64,
    id: IndexId,
    name: String,
    /// Set before the engine drops the index.
    dropped: AtomicBool,
}

impl Keyspace {
    /// Its number in the store: never that of another keyspace, be it of the same name.
    pub fn id(&self) -> u32 {
        self.0.id.0
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The index that holds its keys.
    pub(crate) fn index(&self) -> IndexId {
        self.0.id
    }

    /// Fails if it was dropped. To be asked after a read: the drop is known before anything of the keyspace goes.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.dropped.load(Ordering::Acquire) {
            true => Err(Error::NoKeyspace(self.0.name.clone())),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyspace({:?}, {})", self.0.name, self.0.id)
    }
}

/// The same keyspace of the same opening of a store.
impl PartialEq for Keyspace {
    fn eq(&self, other: &Keyspace) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Keyspace {}

/// The keyspaces of an open store. See the module.
pub(crate) struct Keyspaces {
    store: u64,
    known: RwLock<BTreeMap<String, Keyspace>>,
    changes: Mutex<Changes>,
}

struct Changes {
    /// The id that the next keyspace gets.
    next: u32,
    /// Indexes of dropped keyspaces that are still to be dropped.
    pending: BTreeSet<IndexId>,
    /// In which housekeeping leaves them.
    pauses: Backoff,
}

impl Keyspaces {
    /// Those that the store has. Works off what a crash has left of drops.
    pub fn open(core: &Arc<Core>) -> Result<Keyspaces> {
        static OPENINGS: AtomicU64 = AtomicU64::new(0);
        let pauses = Backoff::new(PAUSE_MIN_US, PAUSE_MAX_US);
        let keyspaces = Keyspaces {
            store: OPENINGS.fetch_add(1, Ordering::Relaxed),
            known: RwLock::default(),
            changes: Mutex::new(Changes { next: FIRST, pending: BTreeSet::new(), pauses }),
        };
        // A store without has no directory: nothing is read.
        if core.tree.installer.features().iter().any(|feature| feature.name() == KEYSPACES.name()) {
            keyspaces.load(core)?;
        }
        Ok(keyspaces)
    }

    fn load(&self, core: &Arc<Core>) -> Result<()> {
        let mut changes = self.changes.lock();
        let (txn, mut cursor) = (Txn::new(core.clone()), Cursor::new(core.clone()));
        let point = core.tree.read_point();
        cursor.open(&txn, point.seq(), &DIRECTORY.prefix(), &IndexId(FIRST).prefix())?;
        cursor.seek_ge(&txn, &DIRECTORY.prefix())?;
        let mut owned = BTreeSet::from([DIRECTORY]);
        while cursor.valid() {
            match Entry::read(&core.tree, cursor.key(), cursor.value())? {
                Entry::Next(id) => changes.next = id,
                Entry::Name(name, id) => {
                    owned.insert(id);
                    self.known.write().insert(name.clone(), self.handle(id, name));
                }
                Entry::Dropped(id) => drop(changes.pending.insert(id)),
            }
            cursor.next(&txn)?;
        }
        cursor.close();
        // What a transaction has written that committed while its keyspace was dropped.
        let strays = inventory::indexes(&core.tree.states.pin())?.into_iter();
        let may_own = |id: &IndexId| (DIRECTORY.0..END).contains(&id.0);
        let is_stray = |id: &IndexId| may_own(id) && !owned.contains(id) && !core.tree.installer.is_dropped(*id);
        changes.pending.extend(strays.filter(is_stray));
        let highest = owned.last().max(changes.pending.last()).map_or(DIRECTORY.0, |id| id.0);
        changes.next = changes.next.max(highest.saturating_add(1));
        changes.clear(core);
        Ok(())
    }

    fn handle(&self, id: IndexId, name: String) -> Keyspace {
        Keyspace(Arc::new(Inner { store: self.store, id, name, dropped: AtomicBool::new(false) }))
    }

    /// The index of a keyspace of this store. Whether it was dropped meanwhile is to be asked when it was read:
    /// [`Keyspace::check`].
    ///
    /// Errors: `Invalid` for one of another store, or of another opening of this one; `NoKeyspace` if it was dropped.
    #[inline]
    pub fn index_of(&self, keyspace: &Keyspace) -> Result<IndexId> {
        if keyspace.0.store != self.store {
            let what = format!("keyspace {:?} is not one of this opening of the store", keyspace.0.name);
            return Err(Error::Invalid(what));
        }
        keyspace.check()?;
        Ok(keyspace.0.id)
    }

    pub fn find(&self, name: &str) -> Option<Keyspace> {
        self.known.read().get(name).cloned()
    }

    pub fn all(&self) -> Vec<Keyspace> {
        self.known.read().values().cloned().collect()
    }

    /// See `Engine::keyspace`.
    pub fn get_or_create(&self, core: &Core, name: &str) -> Result<Keyspace> {
        if let Some(known) = self.find(name) {
            return Ok(known);
        }
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            let what = format!("a keyspace's name of {} bytes; allowed are 1 to {NAME_BYTES_MAX}", name.len());
            return Err(Error::Invalid(what));
        }
        let mut changes = self.changes.lock();
        if let Some(known) = self.find(name) {
            return Ok(known);
        }
        if changes.next >= END {
            return Err(Error::Invalid("all numbers of keyspaces are used up".into()));
        }
        // Whoever does not know keyspaces must not come upon one.
        core.tree.installer.require(&KEYSPACES)?;
        let id = IndexId(changes.next);
        // Passed over if this fails: nobody can say whether the write will be found.
        changes.next += 1;
        let ops = [Entry::Next(changes.next).put(), Entry::Name(name.to_owned(), id).put()];
        write::alone(core, &ops, true, Purpose::Work)?;
        let keyspace = self.handle(id, name.to_owned());
        self.known.write().insert(name.to_owned(), keyspace.clone());
        Ok(keyspace)
    }

    /// See `Engine::drop_keyspace`.
    pub fn remove(&self, core: &Core, keyspace: &Keyspace) -> Result<()> {
        let mut changes = self.changes.lock();
        let id = self.index_of(keyspace)?;
        if core.journal.committer.prepared_writes(&[id]) {
            return Err(Error::LockBusy);
        }
        let name = keyspace.name().to_owned();
        let ops = [Entry::Name(name, id).remove(), Entry::Dropped(id).put()];
        write::alone(core, &ops, true, Purpose::Relief)?;
        self.known.write().remove(keyspace.name());
        keyspace.0.dropped.store(true, Ordering::Release);
        changes.pending.insert(id);
        changes.clear(core);
        Ok(())
    }

    /// Repeats what has failed, unless that was a short while ago or somebody is at it. For housekeeping.
    pub fn try_again(&self, core: &Core) {
        if let Some(mut changes) = self.changes.try_lock() {
            // A store that has stopped writes nothing.
            let is_due = !changes.pending.is_empty() && changes.pauses.is_due(core.options.clock.now_us());
            if is_due && core.journal.log.check().is_ok() {
                changes.clear(core);
            }
        }
    }
}

impl Changes {
    /// Drops in the engine what is pending, and removes its notes. What fails stays pending.
    fn clear(&mut self, core: &Core) {
        if self.pending.is_empty() {
            return;
        }
        let ids: Vec<IndexId> = self.pending.iter().copied().collect();
        let notes: Vec<WriteOp> = ids.iter().map(|&id| Entry::Dropped(id).remove()).collect();
        // A note that outlives a crash is worked off again, which does nothing.
        let cleared = core.drop_indexes(&ids).and_then(|()| write::alone(core, &notes, false, Purpose::Relief));
        match cleared {
            Ok(_) => {
                self.pending.clear();
                self.pauses.succeeded();
            }
            Err(_) => self.pauses.failed(core.options.clock.now_us()),
        }
    }
}
