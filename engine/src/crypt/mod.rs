//! Encryption at rest: what is secret in a store's files is sealed under keys that somebody else keeps.
//!
//! # Purpose
//! A [`KeyProvider`] has *master keys*, each with a number and versions. The store never writes with one of these itself. Everything
//! that is sealed (an SST, the units that one opening writes to one segment of the log, one of these that is written again, an edit of
//! the manifest) has a *data key* of its own, derived from a master key and a random salt. The [`KeyHeader`] beside it, in the clear, says
//! from which master key and which salt; docs/develop/format/encryption.md has the bytes.
//!
//! # Algorithm
//! `HKDF-SHA-256(salt, master key)` gives the data key and eight bytes that tell a wrong master key from damage. Data are sealed with
//! AES-256-GCM. As a data key seals one file, the nonce is the place in it: offset and piece. Nothing has to be counted, kept or
//! agreed upon over a crash.
//!
//! # Invariants
//! - No nonce is used twice under a data key. Each place of an SST is written once; a position of the log gets a new salt when it is
//!   written again, as does a segment that is used again, and every opening. Unit tests keep all pairs and fail on the second.
//! - Checksums are over what is on the disk. So whether a unit is torn or a block damaged is known without any key, and nothing
//!   is opened before its checksum is verified.
//! - A key that is missing or wrong is an error of its own, [`Error::Key`](crate::Error::Key), never taken for damage.
//!
//! # Rejected
//! Data keys wrapped by the master key (one more secret to generate and to store, and rotation by wrapping anew would change files that
//! are immutable). Master keys used directly, with random nonces (96 bits are too few for a store's lifetime of blocks). AES-XTS
//! below the files (it detects nothing, and a recycled segment would be written twice under one tweak).

mod cipher;
mod keyring;

#[cfg(test)]
pub(crate) use cipher::audit;
pub(crate) use cipher::{Cipher, Forged, KEY_HEADER_BYTES, KeyHeader, Nonce, TAG_BYTES};
pub(crate) use keyring::LastMaster;
#[cfg(test)]
pub(crate) use keyring::testing;
pub use keyring::{KeyProvider, Keyring, SYSTEM_KEY};

pub use crate::base::KeyVersion;

/// What a data key is for: keys for different ends never coincide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// An SST.
    Sst,
    /// Units of the log in one segment.
    Log,
    /// Fields of the manifest.
    Manifest,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Purpose::Sst => b"strata sst 1",
            Purpose::Log => b"strata log 1",
            Purpose::Manifest => b"strata manifest 1",
        }
    }
}
