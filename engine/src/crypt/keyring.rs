//! Master keys: where they come from, and which of them is used.
//!
//! Reads ask the provider each time something is opened, so a key that was taken away is missed at once. Writes must not stop when
//! a key service is away for a minute, as the store would stop with them: they use the newest version that was ever got, and ask
//! for a newer one now and then ([`Keyring::renew`]).
//!
//! Invariant: a version counts as the newest only once its key is there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::Purpose;
use super::cipher::{Cipher, KEY_HEADER_BYTES, KeyHeader, Nonce, TAG_BYTES};
use crate::base::{Error, KeyVersion, Result};

/// The number of the key for what belongs to no table: the log, the manifest, catalogs.
pub const SYSTEM_KEY: u32 = 1;

/// Keeps master keys. Called from any thread, also while files are opened and written. An error says in a few words why
/// there is no such key.
pub trait KeyProvider: Send + Sync {
    /// The newest version of a key.
    fn latest(&self, id: u32) -> std::result::Result<u32, String>;
    /// The bytes of a version of a key: 16 or more.
    fn key(&self, key: KeyVersion) -> std::result::Result<Vec<u8>, String>;
}

type Master = Arc<Zeroizing<Vec<u8>>>;
/// A master key that was asked for; see [`Keyring::open_next`].
pub(crate) type LastMaster = (KeyVersion, Zeroizing<Vec<u8>>);

/// The keys of a store; see the module.
#[derive(Default)]
pub struct Keyring {
    provider: Option<Arc<dyn KeyProvider>>,
    newest: Mutex<BTreeMap<u32, (u32, Master)>>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyring")
    }
}

impl Keyring {
    /// The keys of `provider`; without one there are none.
    pub fn new(provider: Option<Arc<dyn KeyProvider>>) -> Keyring {
        Keyring { provider, newest: Mutex::default() }
    }

    /// A new data key under the newest version of a key, for something at `path`.
    pub(crate) fn begin(&self, id: u32, purpose: Purpose, path: &Path) -> Result<(KeyHeader, Cipher)> {
        let (version, master) = self.newest(id, path)?;
        let begun = KeyHeader::begin(KeyVersion { id, version }, &master, purpose);
        begun.map_err(|e| Error::io("get random bytes for", path, std::io::Error::other(e)))
    }

    /// The data key of what lies at `path` with this header.
    pub(crate) fn open(&self, header: &KeyHeader, purpose: Purpose, path: &Path) -> Result<Cipher> {
        self.open_next(header, purpose, path, &mut None)
    }

    /// The same for one of many that follow each other: `last` keeps the master key, which is asked for once.
    pub(crate) fn open_next(
        &self,
        header: &KeyHeader,
        purpose: Purpose,
        path: &Path,
        last: &mut Option<LastMaster>,
    ) -> Result<Cipher> {
        let missing = |what: String| Error::Key { path: path.to_owned(), key: header.key, what };
        let master = match last {
            Some((of, master)) if *of == header.key => master,
            last => {
                let Some(provider) = &self.provider else { return Err(missing("there is no key service".into())) };
                let master = Zeroizing::new(provider.key(header.key).map_err(missing)?);
                &last.insert((header.key, master)).1
            }
        };
        let wrong = || missing("it is not the key that this was encrypted with".into());
        header.cipher(master, purpose).ok_or_else(wrong)
    }

    /// Fails unless the key is there to write at `path`.
    pub fn require(&self, id: u32, path: &Path) -> Result<()> {
        self.newest(id, path).map(drop)
    }

    /// The version of a key that is written with, without a question to the provider; 0 if the key was never used.
    pub fn known(&self, id: u32) -> u32 {
        self.newest.lock().get(&id).map_or(0, |(version, _)| *version)
    }

    /// Asks for newer versions of the keys that are written with. True if there are some. What cannot be got stays as it is.
    pub fn renew(&self) -> bool {
        let ids: Vec<u32> = self.newest.lock().keys().copied().collect();
        ids.into_iter().filter(|&id| self.fetch(id).unwrap_or(false)).count() > 0
    }

    fn newest(&self, id: u32, path: &Path) -> Result<(u32, Master)> {
        let known = |ring: &Keyring| ring.newest.lock().get(&id).cloned();
        if let Some(known) = known(self) {
            return Ok(known);
        }
        let missing = |(version, what): (u32, String)| {
            let key = KeyVersion { id, version };
            Error::Key { path: path.to_owned(), key, what }
        };
        self.fetch(id).map_err(missing)?;
        known(self).ok_or_else(|| missing((0, "there is no such key".into())))
    }

    /// Gets the newest version of a key. True if it is newer than what was known; an error names the version that was asked for.
    fn fetch(&self, id: u32) -> std::result::Result<bool, (u32, String)> {
        let Some(provider) = &self.provider else { return Err((0, "there is no key service".into())) };
        let version = provider.latest(id).map_err(|what| (0, what))?;
        if self.known(id) == version {
            return Ok(false);
        }
        let master = provider.key(KeyVersion { id, version }).map_err(|what| (version, what))?;
        let mut newest = self.newest.lock();
        let is_newer = newest.get(&id).is_none_or(|(known, _)| *known < version);
        if is_newer {
            newest.insert(id, (version, Arc::new(Zeroizing::new(master))));
        }
        Ok(is_newer)
    }

    /// Seals `bytes` under a data key of their own: header, sealed bytes, tag.
    pub(crate) fn seal(&self, id: u32, purpose: Purpose, path: &Path, bytes: &[u8]) -> Result<Vec<u8>> {
        let (header, cipher) = self.begin(id, purpose, path)?;
        let mut sealed = [&header.encode()[..], bytes].concat();
        let tag = cipher.seal(Nonce(0, 0), &[], &mut sealed[KEY_HEADER_BYTES..]);
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    /// Opens what [`Keyring::seal`] made. The inner value is `None` if it is not that.
    pub(crate) fn unseal(&self, purpose: Purpose, path: &Path, sealed: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some((header, rest)) = sealed.split_first_chunk::<KEY_HEADER_BYTES>() else { return Ok(None) };
        let Some((bytes, tag)) = rest.split_last_chunk::<TAG_BYTES>() else { return Ok(None) };
        let cipher = self.open(&KeyHeader::decode(header), purpose, path)?;
        let mut bytes = bytes.to_vec();
        Ok(cipher.open(Nonce(0, 0), &[], &mut bytes, tag).ok().map(|()| bytes))
    }
}

/// Keys for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Keys made of their names. Versions come, keys go.
    #[derive(Default)]
    pub(crate) struct FixedKeys(pub Mutex<BTreeMap<u32, u32>>, pub Mutex<Option<String>>);

    impl FixedKeys {
        pub fn of(ids: &[u32]) -> Arc<FixedKeys> {
            Arc::new(FixedKeys(Mutex::new(ids.iter().map(|&id| (id, 1)).collect()), Mutex::default()))
        }
    }

    /// Keys 1 and 2.
    pub(crate) fn ring() -> Arc<Keyring> {
        Arc::new(Keyring::new(Some(FixedKeys::of(&[1, 2]))))
    }

    impl KeyProvider for FixedKeys {
        fn latest(&self, id: u32) -> std::result::Result<u32, String> {
            self.0.lock().get(&id).copied().ok_or_else(|| "no such key".into())
        }
        fn key(&self, key: KeyVersion) -> std::result::Result<Vec<u8>, String> {
            let latest = self.latest(key.id)?;
            let text = self.1.lock().clone().unwrap_or_default();
            if key.version > latest {
                return Err("no such version".into());
            }
            Ok(format!("{text} master key {} {}", key.id, key.version).into_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::FixedKeys;
    use super::*;

    #[test]
    fn writes_go_on_with_what_is_known_and_reads_do_not() {
        let keys = FixedKeys::of(&[1]);
        let ring = Keyring::new(Some(keys.clone()));
        let path = Path::new("/f");
        let sealed = ring.seal(1, Purpose::Manifest, path, b"text").unwrap();
        assert_eq!(ring.unseal(Purpose::Manifest, path, &sealed).unwrap().unwrap(), b"text");
        assert!(
            (0..sealed.len()).all(|cut| !matches!(ring.unseal(Purpose::Manifest, path, &sealed[..cut]), Ok(Some(_))))
        );
        keys.0.lock().insert(1, 2);
        assert_eq!(ring.known(1), 1);
        assert!(ring.renew() && !ring.renew());
        assert_eq!(ring.known(1), 2);
        keys.0.lock().clear();
        assert!(!ring.renew());
        let later = ring.seal(1, Purpose::Manifest, path, b"text").unwrap();
        let error = ring.unseal(Purpose::Manifest, path, &later).unwrap_err().to_string();
        assert_eq!(error, "/f: encryption key 1 version 2: no such key");
        let error = ring.seal(9, Purpose::Manifest, path, b"text").unwrap_err().to_string();
        assert_eq!(error, "/f: encryption key 9: no such key");
    }

    #[test]
    fn a_wrong_key_is_told_from_damage() {
        let keys = FixedKeys::of(&[1]);
        let ring = Keyring::new(Some(keys.clone()));
        let path = Path::new("/f");
        let mut sealed = ring.seal(1, Purpose::Manifest, path, b"text").unwrap();
        *keys.1.lock() = Some("another".into());
        let error = ring.unseal(Purpose::Manifest, path, &sealed).unwrap_err().to_string();
        assert_eq!(error, "/f: encryption key 1 version 1: it is not the key that this was encrypted with");
        *keys.1.lock() = None;
        sealed[KEY_HEADER_BYTES] ^= 1;
        assert_eq!(ring.unseal(Purpose::Manifest, path, &sealed).unwrap(), None);
    }
}
