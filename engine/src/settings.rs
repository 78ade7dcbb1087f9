//! What may be set while the store is open, and the sizes that follow from it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::base::IndexId;
use crate::crypt::SYSTEM_KEY;
use crate::options::{Compression, Durability, Options};

/// Smallest memtable budget in bytes: four memtables of a useful size.
const MEMTABLE_BUDGET_MIN: u64 = 2 << 20;

/// Least memory for the writes of a transaction in bytes.
const TRANSACTION_BYTES_MIN: u64 = 8 << 20;

/// Smallest target of the base level in bytes.
const BASE_BYTES_MIN: u64 = 16 << 20;

/// See the module.
pub(crate) struct Settings {
    durability: AtomicU8,
    memtable_budget: AtomicU64,
    cache_budget: AtomicU64,
    compressions: RwLock<BTreeMap<IndexId, Compression>>,
    /// Changed only after the manifest says so.
    encryptions: RwLock<BTreeMap<IndexId, u32>>,
    /// That of all others.
    default_encryption: Option<u32>,
    /// Copy of whether there are any.
    encrypts: AtomicBool,
    log_segment_bytes: u64,
    transaction_bytes: u64,
    sst_bytes: u64,
}

impl Settings {
    pub fn new(options: &Options) -> Settings {
        Settings {
            durability: AtomicU8::new(options.durability as u8),
            memtable_budget: AtomicU64::new(options.memtable_budget_bytes.max(MEMTABLE_BUDGET_MIN)),
            cache_budget: AtomicU64::new(options.block_cache_bytes),
            compressions: RwLock::new(BTreeMap::new()),
            encryptions: RwLock::new(BTreeMap::new()),
            default_encryption: options.encrypt_indexes.then_some(SYSTEM_KEY),
            encrypts: AtomicBool::new(options.encrypt_indexes),
            log_segment_bytes: options.log_segment_bytes,
            transaction_bytes: options.transaction_bytes,
            sst_bytes: options.sst_bytes,
        }
    }

    pub fn durability(&self) -> Durability {
        Durability::from_number(u32::from(self.durability.load(Ordering::Relaxed))).unwrap_or(Durability::EveryCommit)
    }

    pub fn set_durability(&self, durability: Durability) {
        self.durability.store(durability as u8, Ordering::Relaxed);
    }

    pub fn memtable_budget(&self) -> u64 {
        self.memtable_budget.load(Ordering::Relaxed)
    }

    pub fn set_memtable_budget(&self, bytes: u64) {
        self.memtable_budget.store(bytes.max(MEMTABLE_BUDGET_MIN), Ordering::Relaxed);
    }

    /// The budget of the block cache, in bytes.
    pub fn cache_budget(&self) -> u64 {
        self.cache_budget.load(Ordering::Relaxed)
    }

    pub fn set_cache_budget(&self, bytes: u64) {
        self.cache_budget.store(bytes, Ordering::Relaxed);
    }

    /// The compression of an index: its own, or the default.
    pub fn compression(&self, id: IndexId) -> Compression {
        self.compressions.read().get(&id).copied().unwrap_or(Compression::Zstd)
    }

    pub fn set_compression(&self, id: IndexId, compression: Option<Compression>) {
        let mut map = self.compressions.write();
        match compression {
            Some(compression) => map.insert(id, compression),
            None => map.remove(&id),
        };
    }

    /// The master key under which the files of an index are encrypted, if they are.
    #[inline]
    pub fn encryption(&self, id: IndexId) -> Option<u32> {
        if !self.encrypts() {
            return None;
        }
        self.encryptions.read().get(&id).copied().or(self.default_encryption)
    }

    /// Whether any index may be encrypted.
    #[inline]
    pub fn encrypts(&self) -> bool {
        self.encrypts.load(Ordering::Acquire)
    }

    /// The indexes that are encrypted, and their master keys.
    pub fn encryptions(&self) -> BTreeMap<IndexId, u32> {
        self.encryptions.read().clone()
    }

    /// Notes what the manifest says.
    pub fn set_encryptions(&self, all: BTreeMap<IndexId, u32>) {
        let encrypts = !all.is_empty() || self.default_encryption.is_some();
        *self.encryptions.write() = all;
        self.encrypts.store(encrypts, Ordering::Release);
    }

    /// Size at which the active memtable is sealed.
    #[inline]
    pub fn seal_bytes(&self) -> u64 {
        self.memtable_budget() / 4
    }

    /// Memory of a write buffer at which it is spilled.
    pub fn transaction_bytes(&self) -> usize {
        match self.transaction_bytes {
            0 => (self.memtable_budget() / 32).max(TRANSACTION_BYTES_MIN) as usize,
            bytes => bytes as usize,
        }
    }

    /// Target size of the base level: what a full set of memtables brings, so that merging level 0 into it rewrites about
    /// as much as it adds.
    pub fn base_bytes(&self) -> u64 {
        self.memtable_budget().max(BASE_BYTES_MIN)
    }

    /// Size at which tables are cut: a part of the base level, so that it moves down in pieces.
    pub fn sst_bytes(&self) -> u64 {
        self.sst_bytes.min(self.base_bytes() / 4)
    }

    /// Log that a memtable may keep before it is sealed for that reason alone. Small commits, each synced, take a page of
    /// log and a few hundred bytes of memtable; what they keep must not force small tables on everybody.
    pub fn log_bytes_max(&self) -> u64 {
        (8 * self.memtable_budget()).max(16 * self.log_segment_bytes)
    }

    /// Log that prepared transactions may hold back without anything being done about it.
    pub fn prepared_slack(&self) -> u64 {
        (2 * self.log_segment_bytes).max(self.memtable_budget() / 16)
    }
}
