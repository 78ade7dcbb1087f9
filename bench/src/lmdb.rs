//! LMDB, through heed: a B+tree in a memory map. The page cache is its cache; the budget of the others means nothing to it.
//!
//! It has no log: a commit writes its pages to the operating system (`MDB_NOSYNC`), which is more than is asked of a
//! single write; to survive a loss of power it syncs the file. Nothing syncs it every second: its single writers, who must
//! not run beside each other, would wait for that.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, PutFlags, WithTls};

use crate::data::{Key, stamp_of_value};
use crate::store::{Config, Result, Rows, Store, Worker};

type Table = Database<'static, Bytes, Bytes>;

pub struct Lmdb {
    env: Env<WithTls>,
    rows: Table,
}

/// Address space of the map: more than any run here fills.
const MAP_BYTES: usize = 64 << 30;

impl Lmdb {
    pub fn open(dir: &Path, _config: Config) -> Result<Lmdb> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(512);
        // SAFETY: no other process opens the folder, and a crash during a benchmark may lose the data.
        let env = unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_READ_AHEAD).open(dir)? };
        let txn = env.write_txn()?;
        let rows = env
            .create_databases_and_commit(txn, |opener, txn| -> heed::Result<_> {
                Ok(CommitOrAbort::<_, ()>::Commit(opener.create_database::<Bytes, Bytes>(txn, None)?))
            })?
            .unwrap_commit();
        Ok(Lmdb { env, rows })
    }
}

impl Store for Lmdb {
    fn worker(&self) -> Box<dyn Worker + '_> {
        Box::new(LmdbWorker { env: &self.env, rows: self.rows })
    }

    fn load(&self, rows: &mut Rows<'_>) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        rows(&mut |key, value| Ok(self.rows.put_with_flags(&mut txn, PutFlags::APPEND, key, value)?))?;
        txn.commit()?;
        Ok(self.env.force_sync()?)
    }

    fn sync_commits(&self, on: bool) -> Result<()> {
        let mode = if on { FlagSetMode::Disable } else { FlagSetMode::Enable };
        // SAFETY: called between workloads, when no transaction is open.
        unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode)? };
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn is_log(&self, _name: &str) -> bool {
        false
    }
}

struct LmdbWorker<'a> {
    env: &'a Env<WithTls>,
    rows: Table,
}

impl Worker for LmdbWorker<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        self.rows.put(&mut txn, key, value)?;
        Ok(txn.commit()?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        self.rows.delete(&mut txn, key)?;
        Ok(txn.commit()?)
    }

    fn get(&mut self, key: &Key) -> Result<Option<u64>> {
        let txn = self.env.read_txn()?;
        Ok(self.rows.get(&txn, key)?.map(stamp_of_value))
    }

    fn scan(&mut self, from: &Key, rows: usize, backward: bool) -> Result<(usize, u64)> {
        let txn = self.env.read_txn()?;
        let (mut count, mut sum) = (0, 0u64);
        let mut see = |row: heed::Result<(&[u8], &[u8])>| -> Result<()> {
            let (key, value) = row?;
            std::hint::black_box(key);
            sum = sum.wrapping_add(stamp_of_value(value));
            count += 1;
            Ok(())
        };
        if backward {
            let range = (Bound::Unbounded, Bound::Excluded(&from[..]));
            self.rows.rev_range(&txn, &range)?.take(rows).try_for_each(&mut see)?;
        } else {
            let range = (Bound::Included(&from[..]), Bound::Unbounded);
            self.rows.range(&txn, &range)?.take(rows).try_for_each(&mut see)?;
        }
        Ok((count, sum))
    }

    fn commit(&mut self, rows: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for (key, value) in rows {
            self.rows.put(&mut txn, key, value)?;
        }
        Ok(txn.commit()?)
    }
}
