//! What every store under test can do. One file per store implements it, by its best documented means.
//!
//! Durability is part of the contract, so that it is the same for all: of single writes, what [`WriteLog`] says;
//! `commit`, while it is synced, survives a loss of power.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::data::Key;
use crate::{fjall, lmdb, rocks, strata};

/// What may go wrong, in words.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// When single writes leave the process. The log is always on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum WriteLog {
    /// The log is written and synced once a second.
    EverySecond,
    /// The log is handed to the operating system before a write returns.
    EachWrite,
}

/// What all stores are opened with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Memory for cached blocks and memtables together; a quarter is the memtables'.
    pub memory_bytes: u64,
    /// Tables are read and written past the page cache, where the store can.
    pub direct: bool,
    /// Log of single writes.
    pub log: WriteLog,
}

impl Config {
    /// The memtables' part.
    pub fn memtable_bytes(&self) -> u64 {
        self.memory_bytes / 4
    }

    /// The block cache's part.
    pub fn cache_bytes(&self) -> u64 {
        self.memory_bytes - self.memtable_bytes()
    }
}

/// A thread that does something once a second, for stores that have none of their own to sync the log.
pub struct EverySecond {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EverySecond {
    /// Begins with it.
    pub fn start(mut act: impl FnMut() + Send + 'static) -> EverySecond {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                act();
            }
        });
        EverySecond { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for EverySecond {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A failed sync panicked there; the store will say so itself.
            drop(thread.join());
        }
    }
}

/// Takes a row.
pub type Put<'a> = dyn FnMut(&Key, &[u8]) -> Result<()> + 'a;

/// Hands rows over, one by one.
pub type Rows<'a> = dyn FnMut(&mut Put<'_>) -> Result<()> + 'a;

/// An open store.
pub trait Store: Send + Sync {
    /// What one thread works with.
    fn worker(&self) -> Box<dyn Worker + '_>;

    /// Loads rows that come in ascending order into an empty store. Durable when this returns.
    fn load(&self, rows: &mut Rows<'_>) -> Result<()>;

    /// Chooses whether the calls of `Worker::commit` that follow are durable against a loss of power.
    fn sync_commits(&self, _on: bool) -> Result<()> {
        Ok(())
    }

    /// Empties memtables and waits until background work has nothing left to do.
    fn settle(&self) -> Result<()>;

    /// Tells a file of the log from one of data, by its name.
    fn is_log(&self, name: &str) -> bool;
}

/// A thread's access to a store. Buffers that can be kept from one call to the next are kept.
pub trait Worker {
    /// Writes one row, atomically.
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()>;

    /// Deletes one row.
    fn delete(&mut self, key: &Key) -> Result<()>;

    /// Reads the newest version of a row: the stamp of its value (see `data`), if there is one.
    fn get(&mut self, key: &Key) -> Result<Option<u64>>;

    /// Reads up to `rows` rows in a fresh snapshot, key and value: from the first at or behind `from` upwards, or from
    /// the last before it downwards. Returns how many there were and the sum of their stamps.
    fn scan(&mut self, from: &Key, rows: usize, backward: bool) -> Result<(usize, u64)>;

    /// Commits rows as one transaction.
    fn commit(&mut self, rows: &[(Key, Vec<u8>)]) -> Result<()>;
}

/// The stores by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// Strata's engine.
    Strata,
    /// RocksDB, through the crate `rocksdb`.
    Rocksdb,
    /// fjall.
    Fjall,
    /// LMDB, through the crate `heed`.
    Lmdb,
}

impl Kind {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Strata => "strata",
            Kind::Rocksdb => "rocksdb",
            Kind::Fjall => "fjall",
            Kind::Lmdb => "lmdb",
        }
    }

    /// Can it do without the page cache? What cannot has more memory than its budget when data outgrow that.
    pub fn knows_direct(self) -> bool {
        matches!(self, Kind::Strata | Kind::Rocksdb)
    }

    /// Opens a store in an empty folder.
    pub fn open(self, dir: &Path, config: Config) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(dir)?;
        Ok(match self {
            Kind::Strata => Box::new(strata::Strata::open(dir, config)?),
            Kind::Rocksdb => Box::new(rocks::Rocks::open(dir, config)?),
            Kind::Fjall => Box::new(fjall::Fjall::open(dir, config)?),
            Kind::Lmdb => Box::new(lmdb::Lmdb::open(dir, config)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Values, absent, loaded, stamp_of_key};

    const ROWS: u64 = 2000;

    /// Every store must do the same work, or the figures mean nothing.
    #[test]
    fn all_stores_keep_the_same_contract() {
        for kind in [Kind::Strata, Kind::Rocksdb, Kind::Fjall, Kind::Lmdb] {
            for (direct, log) in [(false, WriteLog::EachWrite), (true, WriteLog::EverySecond)] {
                let dir = tempfile::tempdir().expect("a folder");
                let config = Config { memory_bytes: 8 << 20, direct, log };
                let store = kind.open(dir.path(), config).expect("an empty folder opens");
                check(&*store).unwrap_or_else(|e| panic!("{}: {e}", kind.name()));
            }
        }
    }

    fn check(store: &dyn Store) -> Result<()> {
        let mut values = Values::new(1);
        store.load(&mut |put| (0..ROWS).try_for_each(|n| put(&loaded(n), values.next(&loaded(n)))))?;
        store.settle()?;
        let mut worker = store.worker();
        let stamp = |n| stamp_of_key(&loaded(n));
        for n in [0, 1, 777, ROWS - 1] {
            assert_eq!(worker.get(&loaded(n))?, Some(stamp(n)));
            assert_eq!(worker.get(&absent(n))?, None);
        }
        let sum = |rows: std::ops::Range<u64>| (rows.end as usize - rows.start as usize, rows.map(stamp).sum());
        assert_eq!(worker.scan(&loaded(100), 10, false)?, sum(100..110));
        assert_eq!(worker.scan(&absent(99), 10, false)?, sum(100..110));
        assert_eq!(worker.scan(&loaded(100), 10, true)?, sum(90..100));
        assert_eq!(worker.scan(&absent(99), 10, true)?, sum(90..100));
        assert_eq!(worker.scan(&loaded(ROWS - 3), 10, false)?, sum(ROWS - 3..ROWS));
        assert_eq!(worker.scan(&loaded(3), 10, true)?, sum(0..3));

        worker.put(&absent(5), values.next(&absent(5)))?;
        assert_eq!(worker.get(&absent(5))?, Some(stamp(5) + 1));
        worker.delete(&absent(5))?;
        worker.delete(&loaded(7))?;
        assert_eq!(worker.get(&absent(5))?, None);
        assert_eq!(worker.get(&loaded(7))?, None);
        assert_eq!(worker.scan(&loaded(6), 2, false)?, (2, stamp(6) + stamp(8)));

        store.sync_commits(true)?;
        let rows: Vec<_> = (10..15).map(|n| (absent(n), values.next(&absent(n)).to_vec())).collect();
        worker.commit(&rows)?;
        store.sync_commits(false)?;
        drop(worker);
        store.settle()?;
        let mut worker = store.worker();
        assert_eq!(worker.get(&absent(14))?, Some(stamp(14) + 1));
        assert_eq!(worker.get(&loaded(7))?, None);
        Ok(())
    }
}
