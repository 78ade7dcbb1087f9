//! Files that are not encrypted as they should be, written anew in the background: after a key got a new version, or after an index
//! was to be encrypted, under another key, or no longer.
//!
//! # Algorithm
//! A file is *stale* if it has keys of an index whose master key is another, or none, or whose version is older than the newest one
//! that is known. Housekeeping looks through the files each second and asks the key service for newer versions. Stale files are
//! written anew in their places (`compact::renew`) while nothing more urgent is due. Flushes and merges write with what holds when
//! they begin a file, so all that is new is right, or is found by the next look.
//!
//! Once no file is stale the manifest is written anew as well, since it may have edits that were sealed under an older version. The
//! log goes over to a new version with its next write.
//!
//! Invariant: nothing of it is on the disk but the files themselves. Whatever a crash leaves, the next look finds what is stale.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::base::IndexId;
use crate::crypt::Keyring;
use crate::manifest::Version;
use crate::settings::Settings;
use crate::sst::SstMeta;

/// How files are encrypted.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct EncryptionState {
    /// Files that are encrypted, under whatever key.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that are to be written anew, encrypted or not.
    pub stale_files: u64,
    /// Their bytes.
    pub stale_bytes: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Reencryption {
    /// There may be stale files.
    wanted: AtomicBool,
    looked: Mutex<Looked>,
}

#[derive(Default)]
struct Looked {
    state: EncryptionState,
    /// When the first of the files that are stale was found to be.
    since_us: Option<u64>,
    /// The manifest may have something under an older version of a key.
    manifest_is_old: bool,
}

/// What a look has found.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Nothing to tell.
    None,
    /// There are stale files, so many with so many bytes.
    Begun(u64, u64),
    /// There are none any more, after so many microseconds.
    Done(u64),
}

/// Whether a file is to be written anew. What it has of dropped indexes does not count.
pub(crate) fn is_stale(
    meta: &SstMeta,
    settings: &Settings,
    keys: &Keyring,
    is_dropped: &dyn Fn(IndexId) -> bool,
) -> bool {
    if meta.key.is_none() && !settings.encrypts() {
        return false;
    }
    meta.indexes().filter(|&id| !is_dropped(id)).any(|id| match (settings.encryption(id), meta.key) {
        (None, None) => false,
        (Some(wanted), Some(key)) => wanted != key.id || key.version < keys.known(key.id),
        _ => true,
    })
}

impl Reencryption {
    /// Whether stale files are to be looked for when a merge is chosen: no more than a load.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Has them looked for.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Nobody need look for them before the next [`Reencryption::look`].
    pub fn rest(&self) {
        self.wanted.store(false, Ordering::Release);
    }

    /// What the last look has found.
    pub fn state(&self) -> EncryptionState {
        self.looked.lock().state
    }

    /// Looks through the files of a version. `is_newer`: a key has got a newer version since the last look.
    pub fn look(&self, version: &Version, is_stale: &dyn Fn(&SstMeta) -> bool, is_newer: bool, now_us: u64) -> Change {
        let mut state = EncryptionState::default();
        for (_, file) in version.files() {
            let meta = &file.meta;
            if meta.key.is_some() {
                state.files += 1;
                state.bytes += meta.file_bytes;
            }
            if is_stale(meta) {
                state.stale_files += 1;
                state.stale_bytes += meta.file_bytes;
            }
        }
        let mut looked = self.looked.lock();
        looked.state = state;
        looked.manifest_is_old |= is_newer;
        if state.stale_files > 0 {
            self.want();
            let is_new = looked.since_us.is_none();
            looked.since_us.get_or_insert(now_us);
            return if is_new { Change::Begun(state.stale_files, state.stale_bytes) } else { Change::None };
        }
        match looked.since_us.take() {
            Some(since_us) => {
                looked.manifest_is_old = true;
                Change::Done(now_us.saturating_sub(since_us))
            }
            None => Change::None,
        }
    }

    /// Whether the manifest is to be written anew now.
    pub fn wants_manifest(&self) -> bool {
        let looked = self.looked.lock();
        looked.manifest_is_old && looked.since_us.is_none()
    }

    /// It was.
    pub fn manifest_is_new(&self) {
        self.looked.lock().manifest_is_old = false;
    }
}
