//! Data keys and what is done with them.

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, KeyInit};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::Purpose;
use crate::base::KeyVersion;
use crate::base::codec::Reader;

/// Bytes of an encoded [`KeyHeader`].
pub const KEY_HEADER_BYTES: usize = 48;
/// Bytes that sealing adds to each piece.
pub const TAG_BYTES: usize = 16;
const SALT_BYTES: usize = 32;
const CHECK_BYTES: usize = 8;
const KEY_BYTES: usize = 32;

/// From what the data key of something sealed is derived. Not secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyHeader {
    /// The master key.
    pub key: KeyVersion,
    salt: [u8; SALT_BYTES],
    /// Derived with the data key: with another master key it comes out different.
    check: [u8; CHECK_BYTES],
}

/// A place that is sealed once under its data key: an offset or lsn, and the number of the piece there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonce(pub u64, pub u32);

impl Nonce {
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.1.to_le_bytes());
        bytes
    }
}

/// A data key in use. Wiped when it drops.
pub struct Cipher {
    gcm: Aes256Gcm,
    #[cfg(test)]
    name: [u8; SALT_BYTES],
}

/// What was opened is not what was sealed.
#[derive(Debug)]
pub struct Forged;

impl Cipher {
    /// Seals `bytes` in place; the tag is to be stored with them. `context` is authenticated, not stored.
    pub fn seal(&self, nonce: Nonce, context: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        #[cfg(test)]
        audit::note(&self.name, nonce);
        match self.gcm.encrypt_inout_detached(&nonce.bytes().into(), context, bytes.into()) {
            Ok(tag) => tag.into(),
            Err(_) => unreachable!("a piece is shorter than 64 GiB"),
        }
    }

    /// Opens what [`Cipher::seal`] made, in place.
    pub fn open(&self, nonce: Nonce, context: &[u8], bytes: &mut [u8], tag: &[u8; TAG_BYTES]) -> Result<(), Forged> {
        let opened = self.gcm.decrypt_inout_detached(&nonce.bytes().into(), context, bytes.into(), tag.into());
        opened.map_err(|_| Forged)
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

/// Derives the data key of a salt, and the bytes that tell the right master key.
fn derive(master: &[u8], salt: &[u8; SALT_BYTES], purpose: Purpose) -> (Cipher, [u8; CHECK_BYTES]) {
    let mut out = Zeroizing::new([0; KEY_BYTES + CHECK_BYTES]);
    let expanded = Hkdf::<Sha256>::new(Some(salt), master).expand(purpose.label(), &mut *out);
    debug_assert!(expanded.is_ok(), "HKDF gives up to 8160 bytes");
    let (mut key, mut check) = (Zeroizing::new([0; KEY_BYTES]), [0; CHECK_BYTES]);
    key.copy_from_slice(&out[..KEY_BYTES]);
    check.copy_from_slice(&out[KEY_BYTES..]);
    let gcm = Aes256Gcm::new((&*key).into());
    let cipher = Cipher {
        gcm,
        #[cfg(test)]
        name: *salt,
    };
    (cipher, check)
}

impl KeyHeader {
    /// A new data key.
    ///
    /// Errors: the system has no random bytes.
    pub(super) fn begin(
        key: KeyVersion,
        master: &[u8],
        purpose: Purpose,
    ) -> Result<(KeyHeader, Cipher), getrandom::Error> {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt)?;
        let (cipher, check) = derive(master, &salt, purpose);
        Ok((KeyHeader { key, salt, check }, cipher))
    }

    /// The same with a salt that is known.
    #[cfg(test)]
    pub(crate) fn example(
        key: KeyVersion,
        master: &[u8],
        salt: [u8; SALT_BYTES],
        purpose: Purpose,
    ) -> (KeyHeader, Cipher) {
        let (cipher, check) = derive(master, &salt, purpose);
        (KeyHeader { key, salt, check }, cipher)
    }

    /// The data key; `None` if it was derived from another master key.
    pub(super) fn cipher(&self, master: &[u8], purpose: Purpose) -> Option<Cipher> {
        let (cipher, check) = derive(master, &self.salt, purpose);
        (check == self.check).then_some(cipher)
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; KEY_HEADER_BYTES] {
        let mut out = [0; KEY_HEADER_BYTES];
        out[..4].copy_from_slice(&self.key.id.to_le_bytes());
        out[4..8].copy_from_slice(&self.key.version.to_le_bytes());
        out[8..8 + SALT_BYTES].copy_from_slice(&self.salt);
        out[8 + SALT_BYTES..].copy_from_slice(&self.check);
        out
    }

    /// Reads what `encode` made.
    pub fn decode(bytes: &[u8; KEY_HEADER_BYTES]) -> KeyHeader {
        let mut reader = Reader::new(bytes);
        let mut number = || reader.u32().unwrap_or_default();
        let key = KeyVersion { id: number(), version: number() };
        let (mut salt, mut check) = ([0; SALT_BYTES], [0; CHECK_BYTES]);
        salt.copy_from_slice(&bytes[8..8 + SALT_BYTES]);
        check.copy_from_slice(&bytes[8 + SALT_BYTES..]);
        KeyHeader { key, salt, check }
    }
}

/// In unit tests every pair of data key and nonce is kept: the second use of one is a defect, wherever it is met.
#[cfg(test)]
pub(crate) mod audit {
    use std::collections::HashSet;

    use parking_lot::Mutex;

    use super::{Nonce, SALT_BYTES};

    type Pair = ([u8; SALT_BYTES], [u8; 12]);
    static SEEN: Mutex<Option<HashSet<Pair>>> = Mutex::new(None);

    pub(super) fn note(salt: &[u8; SALT_BYTES], nonce: Nonce) {
        let is_new = SEEN.lock().get_or_insert_default().insert((*salt, nonce.bytes()));
        assert!(is_new, "nonce {nonce:?} used twice under one data key");
    }

    /// How many there were so far.
    pub(crate) fn count() -> usize {
        SEEN.lock().as_ref().map_or(0, HashSet::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyVersion = KeyVersion { id: 7, version: 3 };

    #[test]
    fn opens_what_was_sealed_and_nothing_else() {
        let (header, cipher) = KeyHeader::begin(KEY, b"master", Purpose::Sst).unwrap();
        let mut bytes = *b"attack at dawn";
        let tag = cipher.seal(Nonce(4096, 1), b"ctx", &mut bytes);
        assert_ne!(&bytes, b"attack at dawn");
        let again = KeyHeader::decode(&header.encode());
        assert_eq!(again, header);
        let cipher = again.cipher(b"master", Purpose::Sst).unwrap();
        let open = |nonce, context: &[u8], flip: usize, tag: &[u8; TAG_BYTES]| {
            let mut bytes = bytes;
            bytes[flip / 8 % 14] ^= (1 << (flip % 8)) * u8::from(flip < 14 * 8);
            cipher.open(nonce, context, &mut bytes, tag).map(|()| bytes)
        };
        assert_eq!(&open(Nonce(4096, 1), b"ctx", usize::MAX, &tag).unwrap(), b"attack at dawn");
        assert!(open(Nonce(4096, 2), b"ctx", usize::MAX, &tag).is_err());
        assert!(open(Nonce(8192, 1), b"ctx", usize::MAX, &tag).is_err());
        assert!(open(Nonce(4096, 1), b"other", usize::MAX, &tag).is_err());
        (0..14 * 8).for_each(|flip| assert!(open(Nonce(4096, 1), b"ctx", flip, &tag).is_err()));
        let mut forged = tag;
        forged[15] ^= 1;
        assert!(open(Nonce(4096, 1), b"ctx", usize::MAX, &forged).is_err());
    }

    #[test]
    fn another_master_key_or_purpose_is_told() {
        let (header, _) = KeyHeader::begin(KEY, b"master", Purpose::Sst).unwrap();
        assert!(header.cipher(b"master", Purpose::Sst).is_some());
        assert!(header.cipher(b"Master", Purpose::Sst).is_none());
        assert!(header.cipher(b"master", Purpose::Log).is_none());
        let (other, _) = KeyHeader::begin(KEY, b"master", Purpose::Sst).unwrap();
        assert_ne!(header.encode(), other.encode(), "each has its own salt");
    }

    #[test]
    #[should_panic(expected = "used twice")]
    fn the_audit_finds_a_second_use() {
        let (_, cipher) = KeyHeader::begin(KEY, b"master", Purpose::Log).unwrap();
        cipher.seal(Nonce(1, 0), b"", &mut [0; 4]);
        cipher.seal(Nonce(1, 0), b"", &mut [1; 4]);
    }
}
