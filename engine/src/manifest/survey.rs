//! What can still be read of a manifest that may be damaged.
//!
//! An intact manifest says it all, also one that `CURRENT` should name and does not, if there is no other. Otherwise the store's files are those that lie in its directory, and of each unit of each
//! manifest that is still intact it is learned which of them are which: what was removed, what was never named, and the sequence
//! numbers of files that do not know their own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::edit::Undecoded;
use super::feature::Feature;
use super::state::State;
use super::state::Unread;
use super::store::{EDIT, Manifest, SNAPSHOT, Stored, manifest_number};
use super::{Marks, VersionEdit};
use crate::base::codec::Reader;
use crate::base::{Error, FileNo, Result};
use crate::crypt::Keyring;
use crate::io::Disk;
use crate::sst::SstMeta;
use crate::wal::survey_file;

/// What is known of a store's state.
pub enum Findings {
    /// All of it; with what is wrong with `CURRENT`, if something is.
    Whole(Box<Stored>, Option<Error>),
    /// Some of it.
    Parts {
        /// What is wrong with the manifest in force.
        error: Error,
        /// What was learned.
        parts: Box<Parts>,
    },
}

/// What was learned from intact parts of manifests.
#[derive(Default)]
pub struct Parts {
    /// The marks of the last snapshot that was met, with the edits behind it that were.
    pub marks: Option<Marks>,
    /// The last description of each file.
    pub files: BTreeMap<FileNo, SstMeta>,
    /// Files that left, by the last that was said of them.
    pub removed: BTreeSet<FileNo>,
}

/// Reads the state of the store in `dir` as far as it can be.
///
/// Errors: `Incompatible`, `Key`, and `Io` if the directory cannot be listed.
pub fn survey(disk: &Arc<dyn Disk>, dir: &Path, known: &[Feature], keys: &Keyring) -> Result<Findings> {
    let error = match Manifest::load(disk, dir, known, keys) {
        Ok(stored) => return Ok(Findings::Whole(Box::new(stored), None)),
        Err(error @ (Error::Incompatible { .. } | Error::Key { .. })) => return Err(error),
        Err(error) => error,
    };
    let mut parts = Parts::default();
    // The spare is the file before the one in force.
    let mut names: Vec<(u64, PathBuf)> = disk
        .list(dir)?
        .into_iter()
        .filter_map(|name| match manifest_number(&name) {
            Some(number) => Some((number, name)),
            None => (name.as_os_str() == "MANIFEST.spare").then_some((0, name)),
        })
        .collect();
    names.sort();
    // With two of them, or where another is named, one may be left of a rewrite that never came into force, and the other has gone on
    // since.
    if let [.., (0, _), (number, name)] | [(number, name)] = names.as_slice()
        && *number > 0
        && Manifest::named(disk, dir).is_err()
        && let Ok(stored) = Manifest::load_file(disk, dir.join(name), *number, known, keys)
    {
        return Ok(Findings::Whole(Box::new(stored), Some(error)));
    }
    let mut unknown = None;
    for (_, name) in names {
        let path = dir.join(name);
        let read = survey_file(disk, &path, keys, &mut |found| {
            let Ok((_, record)) = found else { return };
            if let Err(error) = parts.take(record, known, keys, &path) {
                unknown.get_or_insert(error);
            }
        });
        drop(read);
    }
    match unknown {
        Some(unknown) => Err(unknown),
        None => Ok(Findings::Parts { error, parts: Box::new(parts) }),
    }
}

impl Parts {
    fn take(&mut self, record: &[u8], known: &[Feature], keys: &Keyring, path: &Path) -> Result<()> {
        let mut reader = Reader::new(record);
        match reader.u8() {
            Some(SNAPSHOT) => match State::decode(&mut reader, known, keys, path) {
                Ok(state) => {
                    self.files.extend(state.files.into_iter().map(|(no, (_, meta))| (no, meta)));
                    self.removed.retain(|no| !self.files.contains_key(no));
                    self.marks = Some(state.marks);
                }
                Err(Unread::Unknown(what)) => return Err(Error::Incompatible { path: path.to_owned(), what }),
                Err(Unread::Key(error)) => return Err(error),
                Err(Unread::Damaged(_)) => {}
            },
            Some(EDIT) => {
                let edit = match VersionEdit::decode(&mut reader, keys, path) {
                    Ok(edit) => edit,
                    Err(Undecoded::Malformed) => return Ok(()),
                    Err(Undecoded::Key(error)) => return Err(error),
                };
                self.removed.extend(edit.removed.iter().map(|(_, no)| *no));
                for (_, meta) in &edit.added {
                    self.removed.remove(&meta.no);
                    self.files.insert(meta.no, meta.clone());
                }
                if let Some(marks) = &mut self.marks {
                    marks.advance(&edit);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
