//! Opens the payloads of units that are encrypted.
//!
//! Units are checked for damage as they lie there, so a payload that does not open was forged, or is a fault of ours: an error,
//! as a key that is missing is one. Neither cuts the log.

use std::path::PathBuf;

use super::format::UnitHeader;
use crate::base::{Error, Result};
use crate::crypt::{Cipher, KEY_HEADER_BYTES, KeyHeader, Keyring, LastMaster, Purpose};

/// Opens payloads one after the other. Most units of a segment have one data key, which is kept for the next; those that were written
/// more than once have one each, of the same master key.
pub(super) struct Unsealing<'a> {
    keys: &'a Keyring,
    key: Option<([u8; KEY_HEADER_BYTES], Cipher)>,
    master: Option<LastMaster>,
    opened: Vec<u8>,
}

impl<'a> Unsealing<'a> {
    pub fn new(keys: &'a Keyring) -> Unsealing<'a> {
        Unsealing { keys, key: None, master: None, opened: Vec::new() }
    }

    /// The bytes of records of an intact unit, which lies at `place`.
    pub fn payload<'b>(
        &'b mut self,
        header: &UnitHeader,
        payload: &'b [u8],
        place: &dyn Fn() -> (PathBuf, u64),
    ) -> Result<&'b [u8]> {
        if !header.encrypted {
            return Ok(payload);
        }
        let forged = || {
            let (path, offset) = place();
            Error::corruption(&path, offset, "unit is not what was encrypted")
        };
        let key_header = payload.first_chunk::<KEY_HEADER_BYTES>().ok_or_else(forged)?;
        let cipher = match &mut self.key {
            Some((of, cipher)) if of == key_header => cipher,
            key => {
                let cipher =
                    self.keys.open_next(&KeyHeader::decode(key_header), Purpose::Log, &place().0, &mut self.master)?;
                &mut key.insert((*key_header, cipher)).1
            }
        };
        header.open(payload, cipher, &mut self.opened).map_err(|_| forged())?;
        Ok(&self.opened)
    }
}
