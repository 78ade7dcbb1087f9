//! fjall 3. It reads and writes through the page cache only.

use std::path::Path;
use std::time::{Duration, Instant};

use fjall::compaction::Leveled;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::data::{INDEX, Key, stamp_of_value};
use crate::store::{Config, EverySecond, Result, Rows, Store, Worker, WriteLog};

pub struct Fjall {
    _log: Option<EverySecond>,
    db: Database,
    rows: Keyspace,
}

/// For so long nothing must have ended or begun: there is no call that waits for compactions.
const QUIET: Duration = Duration::from_millis(300);

impl Fjall {
    pub fn open(dir: &Path, config: Config) -> Result<Fjall> {
        // One worker that flushes and one that compacts, as the others have.
        let by_second = config.log == WriteLog::EverySecond;
        let db = Database::builder(dir)
            .cache_size(config.cache_bytes())
            .worker_threads(2)
            .manual_journal_persist(by_second)
            .open()?;
        let memtable = config.memtable_bytes() / 4;
        let table = (config.memtable_bytes().max(16 << 20) / 4).min(64 << 20);
        let rows = db.keyspace("rows", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable)
                .manual_journal_persist(by_second)
                .compaction_strategy(std::sync::Arc::new(Leveled::default().with_table_target_size(table)))
        })?;
        let synced = db.clone();
        let log = by_second.then(|| {
            EverySecond::start(move || synced.persist(PersistMode::SyncData).expect("the journal can be synced"))
        });
        Ok(Fjall { _log: log, db, rows })
    }
}

impl Store for Fjall {
    fn worker(&self) -> Box<dyn Worker + '_> {
        Box::new(FjallWorker { db: &self.db, rows: &self.rows })
    }

    fn load(&self, rows: &mut Rows<'_>) -> Result<()> {
        let mut ingestion = self.rows.start_ingestion()?;
        rows(&mut |key, value| Ok(ingestion.write(&key[..], value)?))?;
        ingestion.finish()?;
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }

    fn settle(&self) -> Result<()> {
        self.rows.rotate_memtable_and_wait()?;
        let (mut seen, mut since) = (self.db.compactions_completed(), Instant::now());
        while since.elapsed() < QUIET {
            std::thread::sleep(Duration::from_millis(20));
            let ended = self.db.compactions_completed();
            if self.db.active_compactions() > 0 || self.db.outstanding_flushes() > 0 || ended != seen {
                (seen, since) = (ended, Instant::now());
            }
        }
        Ok(())
    }

    fn is_log(&self, name: &str) -> bool {
        name.ends_with(".jnl")
    }
}

struct FjallWorker<'a> {
    db: &'a Database,
    rows: &'a Keyspace,
}

impl Worker for FjallWorker<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        Ok(self.rows.insert(&key[..], value)?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        Ok(self.rows.remove(&key[..])?)
    }

    fn get(&mut self, key: &Key) -> Result<Option<u64>> {
        Ok(self.rows.get(key)?.map(|value| stamp_of_value(&value)))
    }

    fn scan(&mut self, from: &Key, rows: usize, backward: bool) -> Result<(usize, u64)> {
        let (mut count, mut sum) = (0, 0u64);
        let mut see = |row: fjall::Guard| -> Result<()> {
            let (key, value) = row.into_inner()?;
            std::hint::black_box(&key);
            sum = sum.wrapping_add(stamp_of_value(&value));
            count += 1;
            Ok(())
        };
        if backward {
            let lower = INDEX.to_be_bytes();
            self.rows.range(&lower[..]..&from[..]).rev().take(rows).try_for_each(&mut see)?;
        } else {
            let upper = (INDEX + 1).to_be_bytes();
            self.rows.range(&from[..]..&upper[..]).take(rows).try_for_each(&mut see)?;
        }
        Ok((count, sum))
    }

    fn commit(&mut self, rows: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in rows {
            batch.insert(self.rows, &key[..], value.as_slice());
        }
        Ok(batch.commit()?)
    }
}
