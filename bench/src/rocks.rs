//! RocksDB, set up as its own pages "Setup Options and Basic Tuning" and "Tuning Guide" advise: dynamic level sizes, LZ4
//! and zstd at the bottom, 16 KB blocks, bloom filters of 10 bits a key in memory-efficient layout, filters and indexes
//! in the cache with those of level 0 pinned, `bytes_per_sync`; level 1 as large as level 0 gets. When data exceed the
//! cache, filters and indexes are partitioned with their top level pinned, and all table I/O is direct.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, IngestExternalFileOptions, LogLevel, Options,
    ReadOptions, SstFileWriter, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use crate::data::{INDEX, Key, stamp_of_value};
use crate::store::{Config, EverySecond, Result, Rows, Store, Worker, WriteLog};

pub struct Rocks {
    _log: Option<EverySecond>,
    db: Arc<DB>,
    options: Options,
    dir: PathBuf,
    file_bytes: u64,
}

impl Rocks {
    pub fn open(dir: &Path, config: Config) -> Result<Rocks> {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&Cache::new_hyper_clock_cache(config.cache_bytes() as usize, 0));
        tables.set_block_size(16 << 10);
        tables.set_bloom_filter(10.0, false);
        tables.set_optimize_filters_for_memory(true);
        tables.set_cache_index_and_filter_blocks(true);
        tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
        if config.direct {
            tables.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
            tables.set_partition_filters(true);
            tables.set_pin_top_level_index_and_filter(true);
        }
        let level_1 = config.memtable_bytes().max(16 << 20);
        let file_bytes = (level_1 / 4).min(64 << 20);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&tables);
        options.set_write_buffer_size(config.memtable_bytes() as usize / 4);
        options.set_max_write_buffer_number(4);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_max_bytes_for_level_base(level_1);
        options.set_target_file_size_base(file_bytes);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_bottommost_compression_type(DBCompressionType::Zstd);
        options.set_bytes_per_sync(1 << 20);
        // One thread that flushes and one that compacts, as Strata has.
        options.set_max_background_jobs(2);
        options.set_max_open_files(-1);
        options.set_log_level(LogLevel::Warn);
        options.set_use_direct_reads(config.direct);
        options.set_use_direct_io_for_flush_and_compaction(config.direct);
        options.set_manual_wal_flush(config.log == WriteLog::EverySecond);
        let db = Arc::new(DB::open(&options, dir)?);
        let synced = db.clone();
        let log = (config.log == WriteLog::EverySecond)
            .then(|| EverySecond::start(move || synced.flush_wal(true).expect("the log can be synced")));
        Ok(Rocks { _log: log, db, options, dir: dir.to_owned(), file_bytes })
    }
}

impl Store for Rocks {
    fn worker(&self) -> Box<dyn Worker + '_> {
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Box::new(RocksWorker { db: &self.db, plain: WriteOptions::default(), synced })
    }

    /// Table files, written beside and taken over.
    fn load(&self, rows: &mut Rows<'_>) -> Result<()> {
        let mut files: Vec<PathBuf> = Vec::new();
        let mut writer: Option<SstFileWriter> = None;
        let mut bytes = 0;
        rows(&mut |key, value| {
            if writer.is_none() {
                files.push(self.dir.join(format!("load-{}.ingest", files.len())));
                let fresh = SstFileWriter::create(&self.options);
                fresh.open(files.last().expect("one was pushed"))?;
                (writer, bytes) = (Some(fresh), 0);
            }
            let open = writer.as_mut().expect("just made");
            open.put(key, value)?;
            bytes += key.len() + value.len();
            // Asked rarely: the size is known after each block only.
            if bytes as u64 >= self.file_bytes / 2 && open.file_size() >= self.file_bytes {
                open.finish()?;
                writer = None;
            }
            Ok(())
        })?;
        if let Some(mut last) = writer {
            last.finish()?;
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        Ok(self.db.ingest_external_file_opts(&options, files)?)
    }

    fn settle(&self) -> Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        Ok(self.db.wait_for_compact(&options)?)
    }

    fn is_log(&self, name: &str) -> bool {
        !name.ends_with(".sst")
    }
}

struct RocksWorker<'a> {
    db: &'a DB,
    plain: WriteOptions,
    synced: WriteOptions,
}

impl Worker for RocksWorker<'_> {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.plain)?)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        Ok(self.db.delete_opt(key, &self.plain)?)
    }

    fn get(&mut self, key: &Key) -> Result<Option<u64>> {
        Ok(self.db.get_pinned(key)?.map(|value| stamp_of_value(&value)))
    }

    fn scan(&mut self, from: &Key, rows: usize, backward: bool) -> Result<(usize, u64)> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(INDEX.to_be_bytes());
        options.set_iterate_upper_bound((INDEX + 1).to_be_bytes());
        let mut iter = self.db.raw_iterator_opt(options);
        if backward {
            iter.seek_for_prev(from);
            // It stands at or before the key; a row at the key itself is not asked for.
            if iter.key() == Some(&from[..]) {
                iter.prev();
            }
        } else {
            iter.seek(from);
        }
        let (mut count, mut sum) = (0, 0u64);
        while let Some((key, value)) = iter.item() {
            std::hint::black_box(key);
            sum = sum.wrapping_add(stamp_of_value(value));
            count += 1;
            if count == rows {
                break;
            }
            if backward {
                iter.prev();
            } else {
                iter.next();
            }
        }
        iter.status()?;
        Ok((count, sum))
    }

    /// A write batch, atomic and durable, without the row locks of its `TransactionDB`, which would only add work.
    fn commit(&mut self, rows: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in rows {
            batch.put(key, value);
        }
        Ok(self.db.write_opt(batch, &self.synced)?)
    }
}
