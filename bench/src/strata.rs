//! Strata's engine. Its tables are always read and written with direct I/O.

use std::path::Path;

use strata_engine::layer::{Cursor, IndexId, LockMode, SeqNo, Txn, Wait};
use strata_engine::{Durability, Engine, Options};

use crate::data::{INDEX, Key, stamp_of_value};
use crate::store::{Config, Result, Rows, Store, Worker, WriteLog};

pub struct Strata {
    engine: Engine,
    log: Durability,
}

impl Strata {
    pub fn open(dir: &Path, config: Config) -> Result<Strata> {
        let log = match config.log {
            WriteLog::EverySecond => Durability::EverySecond,
            WriteLog::EachWrite => Durability::OsEveryCommit,
        };
        let options = Options {
            block_cache_bytes: config.cache_bytes(),
            memtable_budget_bytes: config.memtable_bytes(),
            durability: log,
            ..Options::default()
        };
        Ok(Strata { engine: Engine::open(dir, options)?, log })
    }
}

impl Store for Strata {
    fn worker(&self) -> Box<dyn Worker + '_> {
        let engine = self.engine.clone();
        let (txn, cursor) = (engine.begin(), engine.cursor());
        Box::new(StrataWorker { engine, txn, cursor, value: Vec::new() })
    }

    /// One transaction: its size makes it write table files as it goes.
    fn load(&self, rows: &mut Rows<'_>) -> Result<()> {
        let mut txn = self.engine.begin();
        rows(&mut |key, value| Ok(txn.put(key, value)?))?;
        txn.commit()?;
        Ok(self.engine.sync()?)
    }

    fn sync_commits(&self, on: bool) -> Result<()> {
        self.engine.set_durability(if on { Durability::EveryCommit } else { self.log });
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.engine.flush()?;
        Ok(self.engine.wait_idle()?)
    }

    fn is_log(&self, name: &str) -> bool {
        !name.ends_with(".sst")
    }
}

struct StrataWorker {
    engine: Engine,
    txn: Txn,
    cursor: Cursor,
    value: Vec<u8>,
}

impl Worker for StrataWorker {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.txn.put(key, value)?;
        Ok(self.txn.commit()?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        self.txn.delete(key)?;
        Ok(self.txn.commit()?)
    }

    fn get(&mut self, key: &Key) -> Result<Option<u64>> {
        let found = self.engine.get_at(key, SeqNo::MAX, &mut self.value)?;
        Ok(found.then(|| stamp_of_value(&self.value)))
    }

    fn scan(&mut self, from: &Key, rows: usize, backward: bool) -> Result<(usize, u64)> {
        let StrataWorker { engine, txn, cursor, .. } = self;
        let snapshot = engine.read_point();
        let (lower, upper) = (IndexId(INDEX).prefix(), IndexId(INDEX + 1).prefix());
        cursor.open(txn, snapshot.seq(), &lower, &upper)?;
        if backward {
            cursor.seek_lt(txn, from)?;
        } else {
            cursor.seek_ge(txn, from)?;
        }
        let (mut count, mut sum) = (0, 0u64);
        while cursor.valid() {
            std::hint::black_box(cursor.key());
            sum = sum.wrapping_add(stamp_of_value(cursor.value()));
            count += 1;
            if count == rows {
                break;
            }
            if backward {
                cursor.prev(txn)?;
            } else {
                cursor.next(txn)?;
            }
        }
        cursor.close();
        Ok((count, sum))
    }

    /// With row locks: it is what makes it a transaction among others.
    fn commit(&mut self, rows: &[(Key, Vec<u8>)]) -> Result<()> {
        for (key, value) in rows {
            self.txn.lock(key, LockMode::Exclusive, Wait::TimeoutUs(10_000_000))?;
            self.txn.put(key, value)?;
        }
        Ok(self.txn.commit()?)
    }
}
