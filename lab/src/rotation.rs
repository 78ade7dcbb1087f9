//! Keys that get new versions while a server is under load and is ended, for `strata-lab crash --rotate`; and starts with wrong and missing keys.
//!
//! The keys are those of the packaged plugin `debug_key_management`, whose newest version a session sets. A server is asked to open the same
//! store with no plugin of keys, with `file_key_management` (which has no version but the first) and with `example_key_management` (which has all
//! versions, of other bytes): it must refuse, tell which key it misses, and leave every file as it was. At times all files must come to the newest
//! version.

use crate::drive::is_lost;
use crate::engine::Conditions;
use crate::server::Instance;
use anyhow::{Context, Result, bail, ensure};
use mysql::prelude::Queryable;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

const KEYS: &str = "debug_key_management";
const PATIENCE: Duration = Duration::from_secs(120);
/// The server's log of DDL.
const BEGUN: &str = "ddl_recovery.log";
/// Bytes of a page of a table file's end: key and version, 48 bytes behind them the footer, whose last part is the mark.
const PAGE: usize = 4096;
const MARK: &[u8] = b"STRATSST";
const MARK_AT: usize = 64;
const FORMAT_AT: usize = 56;
const KEY_AT: usize = 112;
/// The first format of table files with keys.
const KEYED: u32 = 4;

/// Keys that a server is started with, and that are not those of its store.
const OTHERS: [(&str, Option<&str>); 3] = [
    ("no keys", None),
    ("missing versions", Some("file_key_management")),
    ("other keys", Some("example_key_management")),
];

/// The versions, over all ends of servers.
pub struct Rotation {
    /// The newest version that a server may have been told.
    version: u32,
    rng: SmallRng,
    pub refused: u32,
}

impl Rotation {
    pub fn new(seed: u64) -> Rotation {
        Rotation { version: 1, rng: SmallRng::seed_from_u64(seed.wrapping_mul(17)), refused: 0 }
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    /// The conditions of a server that has the keys.
    pub fn conditions(&self, given: &Conditions) -> Conditions {
        let mut conditions = encrypting(given, Some(KEYS));
        conditions.extra.push(format!("debug-key-management-version={}", self.version));
        conditions
    }

    /// Sets new versions until `stop` is set or the server goes away. Some come in the middle of the last rotation.
    pub fn rotate(&mut self, instance: &Instance, stop: &AtomicBool) -> Result<()> {
        let Ok(mut conn) = instance.connect(None) else { return Ok(()) };
        while !stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.rng.random_range(50..1500)));
            self.version += 1;
            match conn.query_drop(format!("SET GLOBAL debug_key_management_version = {}", self.version)) {
                Ok(()) => {}
                Err(error) if is_lost(&error) => break,
                Err(error) => bail!("a new version of the key: {error}"),
            }
        }
        Ok(())
    }

    /// A new version while no server runs; starts with the wrong keys, at times.
    pub fn between(&mut self, instance: &Instance, given: &Conditions) -> Result<()> {
        if self.rng.random_range(0..3) == 0 {
            self.version += 1;
        }
        if self.rng.random_range(0..3) > 0 {
            return Ok(());
        }
        let (what, plugin) = OTHERS[self.rng.random_range(0..OTHERS.len())];
        let folder = instance.data().join("#strata");
        let before = listing(&folder)?;
        let _ = fs::remove_file(instance.log());
        // The server removes its own log of what DDL had begun when it ends before it has read it, whatever the engine.
        let (begun, aside) = (instance.data().join(BEGUN), instance.data().with_file_name(BEGUN));
        let had_begun = begun.is_file() && fs::copy(&begun, &aside).is_ok();
        let mut server = instance.launch(&encrypting(given, plugin))?;
        ensure!(server.wait_ready(PATIENCE).is_err(), "a server with {what} opens the store");
        server.end()?;
        let said = fs::read_to_string(instance.log())?;
        ensure!(!said.contains("got signal"), "a server with {what} crashed:\n{}", instance.log_tail(40));
        let names_key = said.lines().any(|line| line.contains("Strata") && line.contains("encryption key"));
        ensure!(names_key, "a server with {what} does not say which key is missing:\n{}", instance.log_tail(40));
        let after = listing(&folder)?;
        ensure!(before == after, "a server with {what} has changed the store:\n{}", told(&before, &after));
        if had_begun {
            fs::copy(&aside, &begun)?;
        }
        self.refused += 1;
        Ok(())
    }

    /// Waits until all table files have the newest version, but for those of prepared transactions: these stay as they are until their
    /// transaction ends. `is_last`: that is brought about.
    pub fn settle(&self, instance: &Instance, is_last: bool) -> Result<()> {
        let mut conn = instance.connect(None)?;
        let mut prepared: Vec<(i64, i64, i64, String)> = conn.query("XA RECOVER")?;
        if is_last {
            conn.query_drop("SET SESSION sql_log_bin = 0")?;
            for (_, _, _, id) in prepared.drain(..) {
                conn.query_drop(format!("XA ROLLBACK '{id}'"))?;
            }
        }
        let began = Instant::now();
        loop {
            let found = versions(&instance.data().join("#strata"))?;
            let stale: Option<(String, u64)> =
                conn.query_first("SHOW GLOBAL STATUS LIKE 'Strata_reencryption_files'")?;
            let is_new = found.iter().all(|&found| found == (1, self.version)) || !prepared.is_empty();
            if found.contains(&(1, self.version)) && is_new && stale.is_some_and(|(_, files)| files == 0) {
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "files have the keys {found:?} (0: none), and should have version {} of key 1",
                self.version
            );
            sleep(Duration::from_millis(100));
        }
    }
}

/// A server that encrypts all, with keys of this plugin.
fn encrypting(given: &Conditions, plugin: Option<&str>) -> Conditions {
    let mut conditions = given.clone();
    conditions.extra.extend(["strata_encrypt_tables=ON", "strata_encrypt_log=ON"].map(String::from));
    conditions.extra.extend(plugin.map(|plugin| format!("plugin-load-add={plugin}")));
    conditions
}

/// Sizes and times of all files of a store, but for the lock.
fn listing(folder: &Path) -> Result<BTreeMap<String, (u64, std::time::SystemTime)>> {
    let mut all = BTreeMap::new();
    for dir in [folder.to_owned(), folder.join("log")] {
        for entry in fs::read_dir(&dir).with_context(|| format!("there is no {}", dir.display()))? {
            let entry = entry?;
            let (path, meta) = (entry.path(), entry.metadata()?);
            if meta.is_file() && !path.ends_with("LOCK") {
                all.insert(path.to_string_lossy().into_owned(), (meta.len(), meta.modified()?));
            }
        }
    }
    Ok(all)
}

/// The files that differ.
fn told<V: PartialEq>(before: &BTreeMap<String, V>, after: &BTreeMap<String, V>) -> String {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    differ.take(10).cloned().collect::<Vec<_>>().join("\n")
}

/// Keys and versions of table files; key 0 of those in the clear.
fn versions(folder: &Path) -> Result<BTreeSet<(u32, u32)>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // A file that has gone meanwhile, or is being written.
        let bytes = match path.extension() {
            Some(end) if end == "sst" => fs::read(&path).unwrap_or_default(),
            _ => continue,
        };
        found.extend(version_of(&bytes));
    }
    Ok(found)
}

fn version_of(file: &[u8]) -> Option<(u32, u32)> {
    let part = |at: usize, len: usize| &file[file.len() - at..file.len() - at + len];
    let number = |at: usize| u32::from_le_bytes(part(at, 4).try_into().expect("four bytes"));
    if file.len() < PAGE || part(MARK_AT, MARK.len()) != MARK {
        return None;
    }
    Some(if number(FORMAT_AT) < KEYED { (0, 0) } else { (number(KEY_AT), number(KEY_AT - 4)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Isolation;

    #[test]
    fn keys_of_files_are_read() {
        let file = |format: u32| {
            let mut bytes = vec![0; 2 * PAGE];
            let end = bytes.len();
            let mut put = |at: usize, part: &[u8]| bytes[end - at..end - at + part.len()].copy_from_slice(part);
            put(MARK_AT, MARK);
            put(FORMAT_AT, &format.to_le_bytes());
            put(KEY_AT, &1u32.to_le_bytes());
            put(KEY_AT - 4, &7u32.to_le_bytes());
            bytes
        };
        assert_eq!(version_of(&file(KEYED)), Some((1, 7)));
        assert_eq!(version_of(&file(KEYED - 1)), Some((0, 0)));
        assert_eq!(version_of(&vec![0; PAGE]), None);
        assert_eq!(version_of(b""), None);
    }

    #[test]
    fn a_server_gets_the_newest_version() {
        let given =
            Conditions { budget_mb: 1, isolation: Isolation::RepeatableRead, extra: vec![], strata_extra: vec![] };
        let rotation = Rotation { version: 9, ..Rotation::new(1) };
        let extra = rotation.conditions(&given).extra;
        assert!(extra.contains(&"debug-key-management-version=9".into()));
        assert!(extra.contains(&format!("plugin-load-add={KEYS}")));
        assert!(!encrypting(&given, None).extra.iter().any(|option| option.contains("plugin-load-add")));
    }

    #[test]
    fn a_file_that_was_touched_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("log")).unwrap();
        fs::write(dir.path().join("a.sst"), "x").unwrap();
        fs::write(dir.path().join("LOCK"), "x").unwrap();
        let before = listing(dir.path()).unwrap();
        fs::write(dir.path().join("LOCK"), "xy").unwrap();
        assert_eq!(listing(dir.path()).unwrap(), before);
        fs::write(dir.path().join("log/1.log"), "x").unwrap();
        let after = listing(dir.path()).unwrap();
        assert!(told(&before, &after).ends_with("log/1.log"));
    }
}
