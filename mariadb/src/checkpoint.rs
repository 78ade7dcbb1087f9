//! Checkpoints of the database: copies that are databases of their own, for backups.

use crate::outcome::{code, guard, guard_value, reference, store_out, text};
use crate::store::StoreHandle;
use crate::types::CCallbacks;
use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};
use strata_row::kv::{self, Checkpoint};
use strata_row::{Error, Result};

/// `StrataCheckpoint`.
pub struct CheckpointHandle {
    checkpoint: Checkpoint,
    calls: CCallbacks,
}

/// The work of a checkpoint ends with the statement.
fn tick(calls: &CCallbacks) -> kv::Result<()> {
    if calls.is_killed() { Err(kv::Error::Interrupted) } else { Ok(()) }
}

/// Where a checkpoint may lie. A name without a slash is one in the database's own directory, where the server can write and
/// files get second names; the engine says which it may be. Any other is absolute, and outside of the server's data directory, in which
/// other programs take a directory for a database.
fn place(name: &str, store: &Path) -> Result<PathBuf> {
    let dir = Path::new(name);
    let refuse = |what: &str| Err(Error::invalid(format!("checkpoint {name}: {what}")));
    if !name.contains('/') {
        return Ok(store.join(name));
    }
    let (Some(above), Some(last)) = (dir.parent(), dir.file_name()) else { return refuse("names no directory") };
    if !dir.is_absolute() {
        return refuse("a name with a slash begins with one");
    }
    // Links are followed, so that no way leads back into the data directory.
    let Ok(above) = above.canonicalize() else { return refuse("there is no directory to make it in") };
    match Path::new(".").canonicalize() {
        Ok(data) if above.starts_with(&data) => refuse("lies within the data directory"),
        _ => Ok(above.join(last)),
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_checkpoint_begin(
    store: *mut StoreHandle,
    dir: *const c_char,
    out: *mut *mut CheckpointHandle,
) -> c_int {
    guard(|| {
        let (store, dir) = unsafe { (reference(store)?, text(dir)?) };
        let (calls, engine) = (store.calls, store.store.engine());
        let dir = place(dir, engine.dir())?;
        let checkpoint = engine.begin_checkpoint(&dir, &|| tick(&calls))?;
        unsafe { store_out(out, Box::into_raw(Box::new(CheckpointHandle { checkpoint, calls })))? };
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_checkpoint_fix(checkpoint: *mut CheckpointHandle) -> c_int {
    guard(|| {
        let Some(handle) = (unsafe { checkpoint.as_mut() }) else { return Err(Error::invalid("no checkpoint")) };
        handle.checkpoint.fix()?;
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_checkpoint_finish(checkpoint: *mut CheckpointHandle, note: *const c_char) -> c_int {
    guard(|| {
        if checkpoint.is_null() {
            return Err(Error::invalid("no checkpoint"));
        }
        let CheckpointHandle { checkpoint, calls } = *unsafe { Box::from_raw(checkpoint) };
        checkpoint.finish(unsafe { text(note)? }.as_bytes(), &|| tick(&calls))?;
        Ok(code::OK)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_checkpoint_free(checkpoint: *mut CheckpointHandle) {
    guard_value((), || {
        if !checkpoint.is_null() {
            drop(unsafe { Box::from_raw(checkpoint) });
        }
    });
}
