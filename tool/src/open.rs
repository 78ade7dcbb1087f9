//! A store that no server has open, and its files.
//!
//! Keys of what is encrypted come in here, by [`Offline::keys`], and go from here to all that reads. A store whose keys are not given
//! is refused, with the key that it needs.

use crate::keys::KeyFile;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strata_engine::Error;
use strata_engine::crypt::{KeyProvider, Keyring};
use strata_engine::internals::salvage::Salvage;
use strata_engine::io::{Disk, PosixDisk};
use strata_row::catalog::format::FEATURES;

/// The directory of the store in a server's data directory.
const WITHIN_DATA: &str = "#strata";

/// Which store is read, and with which keys.
#[derive(clap::Args, Debug)]
pub struct Place {
    /// The store's directory, or the data directory that it is in
    pub store: PathBuf,
    /// The keys of an encrypted store: the file of the server's file_key_management_filename
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// What has the passphrase of an encrypted key file: the file of the server's file_key_management_filekey
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub passphrase_file: Option<PathBuf>,
}

/// A store on the disk.
pub struct Offline {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The store's directory.
    pub dir: PathBuf,
    keys: Option<Arc<dyn KeyProvider>>,
    /// Nobody opens it meanwhile.
    _lock: Option<Box<dyn Send + Sync>>,
}

impl Offline {
    /// Refuses a store that a server has open.
    pub fn open(place: &Place) -> Result<Offline> {
        let dir = &place.store;
        let within = dir.join(WITHIN_DATA);
        let dir = if within.is_dir() { within } else { dir.to_owned() };
        ensure!(dir.is_dir(), "{}: there is no such directory", dir.display());
        let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
        // A store on a medium that cannot be written to is locked by that.
        let lock = match dir.join("LOCK").exists().then(|| disk.lock_dir(&dir)) {
            None => None,
            Some(Ok(lock)) => Some(lock),
            Some(Err(Error::InUse(_))) => bail!("{} is open in a server: stop it first", dir.display()),
            Some(Err(error)) => {
                eprintln!("strata-tool: not locked: {error}");
                None
            }
        };
        let read = |path: &PathBuf| KeyFile::read(path, place.passphrase_file.as_deref());
        let keys = place.key_file.as_ref().map(read).transpose()?;
        let keys = keys.map(|keys| Arc::new(keys) as Arc<dyn KeyProvider>);
        Ok(Offline { disk, dir, keys, _lock: lock })
    }

    /// The keys of what is encrypted.
    fn keys(&self) -> Option<Arc<dyn KeyProvider>> {
        self.keys.clone()
    }

    /// The same, for those who open files.
    pub fn keyring(&self) -> Keyring {
        Keyring::new(self.keys())
    }

    /// What can be read of it.
    pub fn salvage(&self) -> Result<Salvage> {
        let found = Salvage::open(self.disk.clone(), &self.dir, FEATURES, self.keys());
        found.with_context(|| format!("{}", self.dir.display()))
    }

    /// The data directory that it lies in, if it is where a server has it.
    pub fn data_dir(&self) -> Option<PathBuf> {
        let is_within = self.dir.file_name().is_some_and(|name| name == WITHIN_DATA);
        self.dir.canonicalize().ok().filter(|_| is_within)?.parent().map(Path::to_owned)
    }
}
