//! The server's key service, as the engine's keeper of keys.

use crate::types::CCallbacks;
use strata_row::kv::{KeyProvider, KeyVersion};

/// More than any key has.
const KEY_BYTES_MAX: usize = 1024;

/// Keys of the server's encryption plugin.
pub struct ServerKeys(pub CCallbacks);

impl KeyProvider for ServerKeys {
    fn latest(&self, id: u32) -> Result<u32, String> {
        // SAFETY: the header allows the call from any thread.
        match self.0.key_version.map_or(0, |version| unsafe { version(id) }) {
            0 => Err("the server's encryption plugin, if there is one, has no such key".into()),
            version => Ok(version),
        }
    }

    fn key(&self, key: KeyVersion) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; KEY_BYTES_MAX];
        // SAFETY: the header allows the call from any thread; the buffer has the length that is told.
        let bytes_of = |bytes: &mut [u8]| match self.0.key_bytes {
            Some(get) => unsafe { get(key.id, key.version, bytes.as_mut_ptr(), bytes.len()) },
            None => 0,
        };
        let len = bytes_of(&mut bytes);
        bytes.truncate(len);
        match len {
            0 => Err("the server's encryption plugin, if there is one, has no such key".into()),
            _ => Ok(bytes),
        }
    }
}
