//! Options of a store. Few on purpose: what can be derived is derived.

use std::sync::Arc;

use crate::crash_point::CrashHook;
use crate::crypt::KeyProvider;
use crate::event::EventListener;
use crate::io::{Clock, Disk, PosixDisk, Scheduler, SystemClock, SystemScheduler};
use crate::manifest::Feature;
pub use crate::sst::Compression;

/// When a commit is durable. The numbers are those of `innodb_flush_log_at_trx_commit`.
///
/// ```
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// # let users = engine.keyspace("users")?;
/// // Many commits, of which the last second's may be lost in a crash; then all of them at once.
/// engine.set_durability(strata_engine::Durability::EverySecond);
/// for n in 0..1000u32 {
///     engine.put(&users, n.to_be_bytes(), "imported")?;
/// }
/// engine.sync()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Durability {
    /// 0: the log is written and synced once per second.
    EverySecond = 0,
    /// 1: the log is synced before a commit (or prepare) returns.
    EveryCommit = 1,
    /// 2: the log reaches the operating system before a commit returns and is synced once per second.
    OsEveryCommit = 2,
}

impl Durability {
    /// From the number of the server variable.
    pub fn from_number(number: u32) -> Option<Durability> {
        match number {
            0 => Some(Durability::EverySecond),
            1 => Some(Durability::EveryCommit),
            2 => Some(Durability::OsEveryCommit),
            _ => None,
        }
    }
}

/// How a store is opened. `Options::default()` suits tests and embedded use.
///
/// ```
/// use strata_engine::{Durability, Engine, Options};
/// # fn main() -> strata_engine::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("strata-doc-options-{}", std::process::id()));
/// let options = Options {
///     block_cache_bytes: 256 << 20,
///     durability: Durability::EverySecond,
///     ..Options::default()
/// };
/// let engine = Engine::open(&dir, options)?;
/// # drop(engine);
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Options {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// What ranks background threads behind the threads of users.
    pub scheduler: Arc<dyn Scheduler>,
    /// Bytes of uncompressed blocks kept in memory.
    pub block_cache_bytes: u64,
    /// Bytes of all memtables, active and sealed. The active one is sealed at a quarter of this.
    pub memtable_budget_bytes: u64,
    /// Size of a log segment file.
    pub log_segment_bytes: u64,
    /// Threads that compact; one more flushes memtables.
    pub compaction_threads: usize,
    /// When commits are durable.
    pub durability: Durability,
    /// Largest size at which an SST is cut; less while memtables are small.
    pub sst_bytes: u64,
    /// Bytes of memory for a transaction's writes, above which it spills them to files; 0: an eighth of a memtable, but no
    /// less than 8 MiB.
    pub transaction_bytes: u64,
    /// Descriptors that SSTs may hold at once, 8 or more; those of the log and the manifest, a handful, and those of
    /// files that are being written come on top.
    pub open_files: usize,
    /// Keeps the keys of what is encrypted. Without one nothing is, and a store in which something is does not open.
    pub keys: Option<Arc<dyn KeyProvider>>,
    /// Whether the log is encrypted, under key [`crate::crypt::SYSTEM_KEY`].
    pub encrypt_log: bool,
    /// Whether keyspaces, and indexes of which nothing was said by [`Engine::set_index_encryption`](crate::Engine::set_index_encryption),
    /// are encrypted, under the same key.
    pub encrypt_indexes: bool,
    /// Seconds for which every moment of the past can be read ([`Engine::snapshot_at`](crate::Engine::snapshot_at)). 0: none can, and
    /// nothing is kept for it; opening a store so ends its history.
    pub history_retention_s: u64,
    /// What the caller's own data may need beside the engine's features: a store that uses another one is refused.
    pub features: &'static [Feature],
    /// Told of what the store does by itself and of what fails in it; see [`crate::event`] for when and on which thread.
    pub listener: Option<Arc<dyn EventListener>>,
    /// Told of each step of each transaction on its way to its end, on the transaction's thread. For crash tests.
    pub on_crash_point: Option<CrashHook>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            disk: Arc::new(PosixDisk::default()),
            clock: Arc::new(SystemClock::default()),
            scheduler: Arc::new(SystemScheduler),
            block_cache_bytes: 64 << 20,
            memtable_budget_bytes: 64 << 20,
            log_segment_bytes: 16 << 20,
            compaction_threads: 1,
            durability: Durability::EveryCommit,
            sst_bytes: 64 << 20,
            transaction_bytes: 0,
            open_files: 512,
            keys: None,
            encrypt_log: false,
            encrypt_indexes: false,
            history_retention_s: 0,
            features: &[],
            listener: None,
            on_crash_point: None,
        }
    }
}
