//! Which tables are encrypted, and under which keys: what CREATE TABLE asks for, and what holds for tables that ask for nothing.
//!
//! The engine is told for each index, before anything is written to it, and keeps that; it writes the files of indexes anew that
//! should be otherwise. The catalog, the counters and the statistics, which have names and defaults, are encrypted as long as
//! any table is, or the log.

use super::Catalog;
use super::format::{CATALOG, COUNTERS, STATISTICS};
use crate::def::{EncryptTables, Encrypted};
use crate::error::{Error, Result};
use crate::kv::{self, IndexId, SYSTEM_KEY};
use crate::schema::TableMeta;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The key under which a table is encrypted, if it is.
fn key_of(meta: &TableMeta, mode: EncryptTables) -> Option<u32> {
    let encrypts = match meta.encryption.encrypted {
        Encrypted::Yes => true,
        Encrypted::No => false,
        Encrypted::Default => mode != EncryptTables::Off,
    };
    encrypts.then_some(meta.encryption.key)
}

/// As an option of the table that cannot be had, if a key is missing.
fn as_option(error: kv::Error) -> Error {
    match error {
        kv::Error::Key { key, .. } => Error::WrongOption(format!("ENCRYPTION_KEY_ID {} not available", key.id)),
        other => other.into(),
    }
}

impl Catalog {
    pub(super) fn encrypt_tables(&self) -> EncryptTables {
        EncryptTables::from_number(self.encrypt_tables.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// Refuses what a new table may not ask for.
    pub(super) fn check_encryption(&self, meta: &TableMeta) -> Result<()> {
        if meta.encryption.encrypted == Encrypted::No && self.encrypt_tables() == EncryptTables::Force {
            let what = "ENCRYPTED=NO cannot be used with strata_encrypt_tables=FORCE";
            return Err(Error::WrongOption(what.into()));
        }
        // Also where it is not encrypted yet: it may be by the word of a variable.
        match meta.encryption.encrypted {
            Encrypted::No => Ok(()),
            Encrypted::Default if meta.encryption.key == SYSTEM_KEY => Ok(()),
            _ => self.engine.require_key(meta.encryption.key).map_err(as_option),
        }
    }

    /// Tells the engine of the indexes of tables that are new, or have new ones.
    pub(super) fn encrypt<'a>(&self, tables: impl IntoIterator<Item = &'a TableMeta>) -> Result<()> {
        let mode = self.encrypt_tables();
        for meta in tables {
            let key = key_of(meta, mode);
            if key.is_some() {
                self.encrypt_own(true)?;
            }
            self.engine.set_index_encryption(&meta.ids(), key).map_err(as_option)?;
        }
        Ok(())
    }

    /// Tells the engine of indexes that are built for a table, before they have a key.
    pub(crate) fn encrypt_new(&self, meta: &TableMeta, ids: &[IndexId]) -> Result<()> {
        self.engine.set_index_encryption(ids, key_of(meta, self.encrypt_tables())).map_err(as_option)
    }

    fn encrypt_own(&self, on: bool) -> Result<()> {
        let own = [CATALOG, COUNTERS, STATISTICS];
        self.engine.set_index_encryption(&own, on.then_some(SYSTEM_KEY)).map_err(as_option)
    }

    /// Says what becomes of tables that ask for nothing, those that there are included. What is in files is written anew in the
    /// background. An error leaves it as it was, or partly so, and may be repeated.
    pub fn set_encrypt_tables(&self, mode: EncryptTables) -> Result<()> {
        let ids = self.ids.lock();
        let mut wanted: BTreeMap<Option<u32>, Vec<IndexId>> = BTreeMap::new();
        for (_, entry) in self.tables.read().from("") {
            wanted.entry(key_of(&entry.meta, mode)).or_default().extend(entry.meta.ids());
        }
        let any = wanted.keys().any(Option::is_some) || self.engine.encrypts_log();
        if mode != EncryptTables::Off {
            self.engine.require_key(SYSTEM_KEY)?;
        }
        if any {
            self.encrypt_own(true)?;
        }
        for (key, ids) in &wanted {
            self.engine.set_index_encryption(ids, *key)?;
        }
        if !any {
            self.encrypt_own(false)?;
        }
        self.encrypt_tables.store(mode as u8, Ordering::Relaxed);
        drop(ids);
        Ok(())
    }
}
