//! `backup.json`: what a backup consists of. It is written last and renamed into place, so a directory that has it is complete.

use crate::files::{Identity, write_durably};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The file's name.
pub const NAME: &str = "backup.json";
/// The directory of mariadb-backup.
pub const SERVER: &str = "server";
/// The directory of the engine.
pub const STRATA: &str = "strata";
/// Raised when an older program would misread the file.
const FORMAT: u32 = 1;

/// What a backup consists of.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct Manifest {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// Names this backup among all: seconds of its beginning and the process.
    pub id: String,
    /// The backup that it adds to.
    pub base: Option<String>,
    /// The server's version.
    pub server_version: String,
    /// Where the server was: the text of the engine's checkpoint, as names and values.
    pub position: BTreeMap<String, String>,
    /// `prepare` has been run.
    pub prepared: bool,
    /// By their paths in the backup.
    pub files: BTreeMap<String, Entry>,
}

/// A file of a backup.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its size.
    pub bytes: u64,
    /// Its checksum, in hexadecimal digits.
    pub sha256: String,
    /// What it was on the server, for table files of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// It is not in this backup but in the one that this adds to, or the one before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_base: bool,
}

impl Manifest {
    /// A backup that has nothing yet.
    pub fn new(id: String, server_version: String) -> Manifest {
        Manifest {
            format: FORMAT,
            id,
            base: None,
            server_version,
            position: BTreeMap::new(),
            prepared: false,
            files: BTreeMap::new(),
        }
    }

    /// Reads that of the backup in `dir`.
    pub fn load(dir: &Path) -> Result<Manifest> {
        let path = dir.join(NAME);
        let text = fs::read(&path)
            .with_context(|| format!("{} holds no complete backup: there is no {NAME}", dir.display()))?;
        let manifest: Manifest =
            serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?;
        ensure!(manifest.format == FORMAT, "{} has format {}, known is {FORMAT}", path.display(), manifest.format);
        Ok(manifest)
    }

    /// Puts it into `dir`, whose other files are durable.
    pub fn store(&self, dir: &Path) -> Result<()> {
        write_durably(&dir.join(NAME), &self.text()?)
    }

    /// Its bytes.
    pub fn text(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Takes over the text of the checkpoint.
    pub fn set_position(&mut self, text: &str) -> Result<()> {
        let mut lines = text.lines();
        match lines.next() {
            Some("strata checkpoint 1") => {}
            other => bail!("the checkpoint's text begins with {other:?}, which this program does not know"),
        }
        let pairs = lines.filter_map(|line| line.split_once('='));
        self.position = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(())
    }

    /// What `name` is in the position, if it is there and not empty.
    pub fn place(&self, name: &str) -> Option<&str> {
        self.position.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_comes_back_and_an_incomplete_backup_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Manifest::load(dir.path()).unwrap_err().to_string().contains("no complete backup"));
        let mut manifest = Manifest::new("7-8".into(), "10.11".into());
        manifest.set_position("strata checkpoint 1\nbinlog_file=b.1\ngtid_binlog_pos=\n").unwrap();
        let entry = Entry { bytes: 3, sha256: "ab".into(), identity: None, in_base: true };
        manifest.files.insert("strata/1.sst".into(), entry);
        manifest.store(dir.path()).unwrap();
        let found = Manifest::load(dir.path()).unwrap();
        assert_eq!((found.files, found.id), (manifest.files.clone(), manifest.id.clone()));
        assert_eq!((manifest.place("binlog_file"), manifest.place("gtid_binlog_pos")), (Some("b.1"), None));
        assert!(manifest.set_position("strata checkpoint 2\n").is_err());
        manifest.format = 2;
        manifest.store(dir.path()).unwrap();
        assert!(Manifest::load(dir.path()).is_err());
    }
}
