//! The engines under test: what each is called, how it is set up under the same
//! conditions, and which files are its own.

use crate::encryption;
use crate::options::Isolation;
use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// An engine under test.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The server's own engine
    Innodb,
    /// MyRocks, from its package
    Rocksdb,
    /// This project's plugin
    Strata,
}

/// What must be equal for all engines of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// Memory for caches and memtables together, in MiB.
    pub budget_mb: u64,
    /// Asked for; see [`Kind::isolation`] for what an engine gets.
    pub isolation: Isolation,
    /// Options as they stand in an option file, for every server.
    pub extra: Vec<String>,
    /// The same for Strata's server only.
    pub strata_extra: Vec<String>,
}

/// Connections that every server lets in.
pub const CONNECTIONS_MIN: u32 = 400;
/// Connections beside those of a load: the lab's own.
const MORE_CONNECTIONS: u32 = 20;

/// The least memory for a load that is not measured, in MiB.
const LOAD_MB: u64 = 64;

impl Conditions {
    /// For a load that is not measured: enough memory that it does not take too long, and no more, so that the files of a server with
    /// little memory lie as they do where the data have outgrown it.
    pub fn for_load(&self) -> Conditions {
        Conditions { budget_mb: self.budget_mb.max(LOAD_MB), ..self.clone() }
    }

    /// For servers that so many sessions connect to at once. An option that was asked for stays.
    pub fn for_sessions(mut self, sessions: u32) -> Conditions {
        let most = sessions + MORE_CONNECTIONS;
        if most > CONNECTIONS_MIN {
            self.extra.insert(0, format!("max_connections={most}"));
        }
        self
    }

    /// The part of the budget that an LSM engine gets for memtables, in MiB.
    ///
    /// A quarter, at most 512: what RocksDB's documentation recommends for
    /// `db_write_buffer_size`. InnoDB keeps changed pages in its pool.
    pub fn memtable_mb(&self) -> u64 {
        (self.budget_mb / 4).clamp(4, 512)
    }

    /// What an LSM engine has for its block cache, in MiB.
    pub fn block_cache_mb(&self) -> u64 {
        self.budget_mb.saturating_sub(self.memtable_mb()).max(4)
    }
}

impl Kind {
    /// As in file names and options.
    pub fn id(self) -> &'static str {
        match self {
            Kind::Innodb => "innodb",
            Kind::Rocksdb => "rocksdb",
            Kind::Strata => "strata",
        }
    }

    /// As in `ENGINE=`.
    pub fn sql(self) -> &'static str {
        match self {
            Kind::Innodb => "InnoDB",
            Kind::Rocksdb => "ROCKSDB",
            Kind::Strata => "STRATA",
        }
    }

    /// As in reports.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Innodb => "InnoDB",
            Kind::Rocksdb => "RocksDB",
            Kind::Strata => "Strata",
        }
    }

    /// The plugin's file name, for engines that are plugins.
    pub fn plugin(self) -> Option<&'static str> {
        match self {
            Kind::Innodb => None,
            Kind::Rocksdb => Some("ha_rocksdb.so"),
            Kind::Strata => Some("ha_strata.so"),
        }
    }

    /// Status variables of the engine: bytes of its log's records, without padding, and how often it synced files.
    pub fn log_counters(self) -> [&'static str; 2] {
        match self {
            // All files: the log is what is synced at every commit, pages are rarely.
            Kind::Innodb => ["Innodb_os_log_written", "Innodb_data_fsyncs"],
            Kind::Rocksdb => ["Rocksdb_wal_bytes", "Rocksdb_wal_synced"],
            Kind::Strata => ["Strata_log_payload_bytes", "Strata_log_syncs"],
        }
    }

    /// Variables that decide when a commit is on the disk, and whether tables go past the system's cache.
    pub fn durability_variables(self) -> &'static [&'static str] {
        match self {
            Kind::Innodb => {
                &["log_bin", "binlog_format", "sync_binlog", "innodb_flush_log_at_trx_commit", "innodb_flush_method"]
            }
            Kind::Rocksdb => &[
                "log_bin",
                "binlog_format",
                "sync_binlog",
                "rocksdb_flush_log_at_trx_commit",
                "rocksdb_use_direct_reads",
                "rocksdb_use_direct_io_for_flush_and_compaction",
            ],
            Kind::Strata => &["log_bin", "binlog_format", "sync_binlog", "strata_flush_log_at_trx_commit"],
        }
    }

    /// The level an engine runs at when `asked` is asked for. MyRocks answers a
    /// write to a row that changed after the transaction's snapshot with a
    /// deadlock error under REPEATABLE READ, where the others wait and go on, so
    /// it gets READ COMMITTED.
    pub fn isolation(self, asked: Isolation) -> Isolation {
        match self {
            Kind::Rocksdb => Isolation::ReadCommitted,
            _ => asked,
        }
    }

    /// The engine's part of the option file.
    pub fn option_lines(self, conditions: &Conditions) -> Vec<String> {
        const MIB: u64 = 1 << 20;
        let mut lines = Vec::new();
        if self == Kind::Innodb {
            lines.extend([
                format!("innodb_buffer_pool_size={}M", conditions.budget_mb),
                "innodb_buffer_pool_chunk_size=1M".into(),
                "innodb_log_file_size=1G".into(),
                "innodb_io_capacity=2000".into(),
                "innodb_io_capacity_max=4000".into(),
            ]);
        } else {
            // InnoDB holds a few of the server's own tables; no more than these.
            lines.extend(["innodb_buffer_pool_size=16M".into(), "innodb_log_file_size=16M".into()]);
        }
        lines.extend([
            "innodb_flush_log_at_trx_commit=1".into(),
            "innodb_flush_method=O_DIRECT".into(),
            "innodb_buffer_pool_dump_at_shutdown=0".into(),
            "innodb_buffer_pool_load_at_startup=0".into(),
        ]);
        match self {
            Kind::Innodb => {}
            Kind::Rocksdb => {
                let memtable = conditions.memtable_mb() * MIB;
                lines.extend([
                    format!("rocksdb_block_cache_size={}", conditions.block_cache_mb() * MIB),
                    format!("rocksdb_db_write_buffer_size={memtable}"),
                    "rocksdb_flush_log_at_trx_commit=1".into(),
                    "rocksdb_use_direct_reads=1".into(),
                    "rocksdb_use_direct_io_for_flush_and_compaction=1".into(),
                    "rocksdb_max_background_jobs=4".into(),
                    "rocksdb_block_size=16384".into(),
                    "rocksdb_bytes_per_sync=4194304".into(),
                    "rocksdb_wal_bytes_per_sync=4194304".into(),
                    "rocksdb_max_total_wal_size=1G".into(),
                    "rocksdb_compaction_sequential_deletes=199999".into(),
                    "rocksdb_compaction_sequential_deletes_window=200000".into(),
                    "rocksdb_compaction_sequential_deletes_count_sd=1".into(),
                    "rocksdb_lock_wait_timeout=50".into(),
                    "rocksdb_deadlock_detect=1".into(),
                    "rocksdb_strict_collation_check=0".into(),
                    "rocksdb_error_on_suboptimal_collation=0".into(),
                    format!(
                        "rocksdb_default_cf_options=write_buffer_size={};max_write_buffer_number=4;\
                         target_file_size_base=32m;max_bytes_for_level_base={};\
                         level0_file_num_compaction_trigger=4;level0_slowdown_writes_trigger=20;\
                         level0_stop_writes_trigger=30;level_compaction_dynamic_level_bytes=true;\
                         optimize_filters_for_hits=true;compaction_pri=kMinOverlappingRatio;\
                         compression=kLZ4Compression;bottommost_compression=kZSTD;\
                         block_based_table_factory={{cache_index_and_filter_blocks=1;\
                         cache_index_and_filter_blocks_with_high_priority=1;pin_l0_filter_and_index_blocks_in_cache=1;\
                         index_type=kTwoLevelIndexSearch;partition_filters=1;metadata_block_size=4096;\
                         filter_policy=bloomfilter:10:false;whole_key_filtering=1}}",
                        (memtable / 2).max(4 * MIB),
                        (4 * memtable).clamp(64 * MIB, 512 * MIB),
                    ),
                ]);
            }
            Kind::Strata => {
                lines.extend([
                    format!("strata_block_cache_size={}", conditions.block_cache_mb() * MIB),
                    format!("strata_memtable_budget={}", conditions.memtable_mb() * MIB),
                    "strata_flush_log_at_trx_commit=1".into(),
                ]);
                lines.extend(conditions.strata_extra.iter().cloned());
            }
        }
        lines
    }

    /// Variables that are read back from the running server, with the values
    /// they must have: equal conditions are checked, not assumed.
    pub fn must_have(self, conditions: &Conditions) -> Vec<(String, String)> {
        const MIB: u64 = 1 << 20;
        let mut wanted = vec![
            ("log_bin".to_string(), "ON".to_string()),
            ("sync_binlog".into(), "1".into()),
            ("binlog_format".into(), "ROW".into()),
            ("performance_schema".into(), "OFF".into()),
            ("tx_isolation".into(), self.isolation(conditions.isolation).name().into()),
            (format!("{}_flush_log_at_trx_commit", self.id()), "1".into()),
        ];
        if encryption::is_on(&conditions.extra) || self == Kind::Strata && encryption::is_on(&conditions.strata_extra) {
            wanted.extend(encryption::variables(self).into_iter().map(|name| (name, "ON".into())));
        }
        let mut cache = |name: &str, mb: u64| wanted.push((name.into(), (mb * MIB).to_string()));
        match self {
            Kind::Innodb => cache("innodb_buffer_pool_size", conditions.budget_mb),
            Kind::Rocksdb => {
                cache("rocksdb_block_cache_size", conditions.block_cache_mb());
                cache("rocksdb_db_write_buffer_size", conditions.memtable_mb());
            }
            Kind::Strata => {
                cache("strata_block_cache_size", conditions.block_cache_mb());
                cache("strata_memtable_budget", conditions.memtable_mb());
            }
        }
        wanted
    }

    /// Whether a file of the data directory (path below it) is this engine's,
    /// and if so, whether it is a log rather than data.
    pub fn owns(self, path: &str) -> Option<Part> {
        let name = path.rsplit('/').next().unwrap_or(path);
        match self {
            Kind::Innodb => {
                if name.starts_with("ib_logfile") {
                    Some(Part::Log)
                } else if name.ends_with(".ibd") && !path.starts_with("mysql/")
                    || name.starts_with("ibdata")
                    || name.starts_with("undo0")
                {
                    Some(Part::Data)
                } else {
                    None
                }
            }
            Kind::Rocksdb | Kind::Strata => {
                let folder = if self == Kind::Rocksdb { "#rocksdb/" } else { "#strata/" };
                path.strip_prefix(folder)?;
                Some(if name.ends_with(".log") { Part::Log } else { Part::Data })
            }
        }
    }

    /// Bytes on disk of the engine's files in a data directory.
    pub fn size_on_disk(self, data: &Path) -> Result<DiskSize> {
        let mut size = DiskSize::default();
        self.add_sizes(data, "", &mut size)?;
        Ok(size)
    }

    fn add_sizes(self, dir: &Path, prefix: &str, size: &mut DiskSize) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        for entry in std::fs::read_dir(dir)? {
            let Ok(entry) = entry else { continue };
            // Engines remove files while this runs.
            let Ok(meta) = entry.metadata() else { continue };
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if meta.is_dir() {
                self.add_sizes(&entry.path(), &format!("{path}/"), size)?;
                continue;
            }
            // Blocks, not length: holes and reserved space count as they cost.
            let bytes = meta.blocks() * 512;
            match self.owns(&path) {
                Some(Part::Data) => size.data += bytes,
                Some(Part::Log) => size.log += bytes,
                None => {}
            }
        }
        Ok(())
    }
}

/// What a file is to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Tables, indexes, undo, catalogs.
    Data,
    /// Redo or write-ahead log.
    Log,
}

/// Bytes that an engine has on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSize {
    /// Tables, indexes, undo, catalogs.
    pub data: u64,
    /// Redo or write-ahead log.
    pub log: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(budget_mb: u64) -> Conditions {
        Conditions { budget_mb, isolation: Isolation::RepeatableRead, extra: vec![], strata_extra: vec![] }
    }

    /// Many sessions connect, and what the caller asked for counts, as it stands behind.
    #[test]
    fn servers_have_room_for_the_sessions_of_a_load() {
        let asked = Conditions { extra: vec!["max_connections=1000".into()], ..conditions(16) };
        assert_eq!(asked.clone().for_sessions(380).extra, asked.extra);
        assert_eq!(asked.for_sessions(500).extra, ["max_connections=520", "max_connections=1000"]);
    }

    #[test]
    fn budgets_are_equal() {
        for budget in [16, 100, 512, 1024, 65536] {
            let c = conditions(budget);
            assert_eq!(c.block_cache_mb() + c.memtable_mb(), budget, "{budget}");
        }
    }

    #[test]
    fn files_are_told_apart() {
        assert_eq!(Kind::Innodb.owns("tpcc/stock.ibd"), Some(Part::Data));
        assert_eq!(Kind::Innodb.owns("ib_logfile0"), Some(Part::Log));
        assert_eq!(Kind::Innodb.owns("undo001"), Some(Part::Data));
        assert_eq!(Kind::Innodb.owns("mysql/innodb_table_stats.ibd"), None);
        assert_eq!(Kind::Innodb.owns("#rocksdb/000012.sst"), None);
        assert_eq!(Kind::Rocksdb.owns("#rocksdb/000012.sst"), Some(Part::Data));
        assert_eq!(Kind::Rocksdb.owns("#rocksdb/000013.log"), Some(Part::Log));
        assert_eq!(Kind::Strata.owns("#strata/log/000000000001.log"), Some(Part::Log));
        assert_eq!(Kind::Strata.owns("tpcc/stock.frm"), None);
    }

    #[test]
    fn options_name_every_checked_variable() {
        for kind in [Kind::Innodb, Kind::Rocksdb, Kind::Strata] {
            let c = conditions(100);
            let lines = kind.option_lines(&c).join("\n");
            for (name, _) in kind.must_have(&c).iter().filter(|(name, _)| name.starts_with(kind.id())) {
                assert!(lines.contains(&format!("{name}=")), "{name}");
            }
        }
    }
}
