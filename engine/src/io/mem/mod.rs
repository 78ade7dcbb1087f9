//! A disk in memory that can crash and fail.
//!
//! Every file keeps two contents, what programs see and what a power cut would leave for certain ([`node`]). Every directory
//! likewise keeps the operations on its names since the last `sync_dir`. [`MemDisk::crash`] makes a new disk out of the durable part plus a random choice of the rest,
//! which is what a drive with a volatile cache and a file system without ordering promises may leave.
//!
//! Invariants: a synced sector is never lost; a failed `sync_data` never becomes a success for the bytes it covered (a
//! later sync does not make them durable, as on Linux). Directories themselves are durable at once: the engine creates
//! them only while a store or a checkpoint is created.
//!
//! Rejected: a directory in the memory of the system (it cannot lose what was not synced, nor fail at a chosen operation).

mod fault;
mod file;
mod node;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use self::fault::FaultKind;
use self::fault::{Fault, Needs};
use self::file::MemFile;
use self::node::{Node, SECTOR, XorShift};
use super::{Disk, File, Mode};
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Result};

/// Operations so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct MemDiskCounters {
    /// Files opened or created.
    pub opens: u64,
    /// Reads of file content.
    pub reads: u64,
    /// Bytes asked for by these.
    pub bytes_read: u64,
    /// Writes of file content.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Calls of `sync_data`.
    pub syncs: u64,
    /// Calls of `sync_dir`.
    pub dir_syncs: u64,
    /// Renames and removals.
    pub name_changes: u64,
    /// Operations that [`MemDisk::fail_after`] counts: every one that changes something or makes it durable.
    pub mutations: u64,
}

/// A disk in memory. Clones are handles to the same disk.
#[derive(Clone, Default)]
pub struct MemDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    names: BTreeMap<PathBuf, NodeRef>,
    durable_names: BTreeMap<PathBuf, NodeRef>,
    /// Changes of names not yet covered by a `sync_dir`, oldest first.
    unsynced_names: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    fault: Option<Fault>,
    capacity: Option<u64>,
    /// Files that are open.
    descriptors: usize,
    descriptors_max: Option<usize>,
    counters: MemDiskCounters,
}

type NodeRef = Arc<Mutex<Node>>;

#[derive(Clone)]
enum NameChange {
    Add(PathBuf, NodeRef),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, NodeRef),
}

impl NameChange {
    fn touches(&self, dir: &Path) -> bool {
        match self {
            NameChange::Add(path, _) | NameChange::Remove(path) => path.parent() == Some(dir),
            NameChange::Rename(from, to, _) => from.parent() == Some(dir) || to.parent() == Some(dir),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, NodeRef>) {
        match self {
            NameChange::Add(path, node) => {
                names.insert(path.clone(), node.clone());
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to, node) => {
                if names.get(from).is_some_and(|n| Arc::ptr_eq(n, node)) {
                    names.remove(from);
                }
                names.insert(to.clone(), node.clone());
            }
        }
    }
}

impl MemDisk {
    /// An empty disk.
    pub fn new() -> MemDisk {
        MemDisk::default()
    }

    /// The disk as a power cut now would leave it, one of many possibilities chosen by `seed`. This disk is unchanged;
    /// locks, faults and the capacity do not carry over.
    pub fn crash(&self, seed: u64) -> MemDisk {
        let state = self.state.lock();
        let mut rng = XorShift::new(seed);
        // Extremes are where bugs are: some images lose everything unsynced, some nothing.
        let survive_percent = match rng.next() % 8 {
            0 => 0,
            1 => 100,
            2 => 90,
            3 => 10,
            _ => 50,
        };
        let sectors_per_page = if rng.chance(50) { 1 } else { IO_ALIGN / SECTOR };
        let mut names = state.durable_names.clone();
        for change in &state.unsynced_names {
            if rng.chance(survive_percent) {
                change.apply(&mut names);
            }
        }
        let mut images: Vec<(NodeRef, NodeRef)> = Vec::new();
        let mut image_names = BTreeMap::new();
        for (path, node) in names {
            let image = match images.iter().find(|(original, _)| Arc::ptr_eq(original, &node)) {
                Some((_, image)) => image.clone(),
                None => {
                    let image = Arc::new(Mutex::new(node.lock().crash(&mut rng, survive_percent, sectors_per_page)));
                    images.push((node, image.clone()));
                    image
                }
            };
            image_names.insert(path, image);
        }
        let image = State {
            names: image_names.clone(),
            durable_names: image_names,
            dirs: state.dirs.clone(),
            ..State::default()
        };
        MemDisk { state: Arc::new(Mutex::new(image)) }
    }

    /// A disk of its own with the same files, all durable: where many cases begin.
    pub fn copy(&self) -> MemDisk {
        let state = self.state.lock();
        let mut copies: BTreeMap<*const Mutex<Node>, NodeRef> = BTreeMap::new();
        let mut copied = |node: &NodeRef| {
            let new = || Arc::new(Mutex::new(Node::synced(node.lock().data.clone())));
            copies.entry(Arc::as_ptr(node)).or_insert_with(new).clone()
        };
        let names: BTreeMap<_, _> = state.names.iter().map(|(path, node)| (path.clone(), copied(node))).collect();
        let copy = State { names: names.clone(), durable_names: names, dirs: state.dirs.clone(), ..State::default() };
        MemDisk { state: Arc::new(Mutex::new(copy)) }
    }

    /// Takes away what a file has behind `keep` bytes, durably: the file ends there, or goes on with zeros.
    pub fn cut(&self, path: &Path, keep: u64, zeroed: bool) -> Result<()> {
        let file = self.open(path, Mode::ReadWrite, false)?;
        match zeroed {
            true => file.write_all_at(&vec![0; file.len()?.saturating_sub(keep) as usize], keep)?,
            false => file.set_len(keep)?,
        }
        file.sync_data()
    }

    /// Lets the `n`-th next mutating operation (create, write, sync, rename, remove, ...) fail once; 1 is the very next.
    pub fn fail_after(&self, n: u64, kind: FaultKind) {
        self.state.lock().fault = Some(Fault { left: n.max(1), kind, lasting: false, struck: None });
    }

    /// As [`MemDisk::fail_after`], and all that follow fail as well, until [`MemDisk::clear_fault`]. A device that is full
    /// fails only what needs more space.
    pub fn fail_from(&self, n: u64, kind: FaultKind) {
        self.state.lock().fault = Some(Fault { left: n.max(1), kind, lasting: true, struck: None });
    }

    /// Takes back a fault; true if there was one that has not struck yet.
    pub fn clear_fault(&self) -> bool {
        self.state.lock().fault.take().is_some_and(|fault| fault.struck.is_none())
    }

    /// The operation that the last fault struck first.
    pub fn struck(&self) -> Option<&'static str> {
        self.state.lock().fault.as_ref().and_then(|fault| fault.struck)
    }

    /// Limits the sum of file sizes; growth beyond it fails with `StorageFull`. `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Limits the files that are open at once: beyond it, opening and listing fail as they do for a process without
    /// descriptors. `None` lifts the limit.
    pub fn set_descriptors_max(&self, most: Option<usize>) {
        self.state.lock().descriptors_max = most;
    }

    /// Files that are open.
    pub fn descriptors(&self) -> usize {
        self.state.lock().descriptors
    }

    /// Sum of the sizes of all files, in bytes.
    pub fn used(&self) -> u64 {
        self.state.lock().used()
    }

    /// What was done so far.
    pub fn counters(&self) -> MemDiskCounters {
        self.state.lock().counters
    }

    /// Flips one bit of the byte at `offset`, durably: decay of the medium. Panics if there is no such byte.
    pub fn corrupt(&self, path: &Path, offset: u64) {
        let node = self.state.lock().names.get(path).cloned();
        let node = node.unwrap_or_else(|| panic!("no file {}", path.display()));
        let mut node = node.lock();
        let at = offset as usize;
        node.data[at] ^= 0x10;
        if at < node.durable.len() {
            node.durable[at] ^= 0x10;
        }
    }

    /// The visible content of a file, if it exists.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let node = self.state.lock().names.get(path).cloned();
        node.map(|n| n.lock().data.clone())
    }
}

impl State {
    /// Counts an operation; the injected error if this is one to fail.
    fn pass(&mut self, op: &'static str, needs: Needs) -> io::Result<()> {
        self.counters.mutations += u64::from(needs != Needs::Descriptor);
        self.fault.as_mut().map_or(Ok(()), |fault| fault.pass(op, needs))
    }

    /// The error if there is no descriptor for another open file.
    fn take_descriptor(&self) -> std::result::Result<(), io::Error> {
        match self.descriptors_max.is_some_and(|most| self.descriptors >= most) {
            true => Err(FaultKind::TooManyFiles.error()),
            false => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        // A file with two names takes its space once.
        let files: BTreeMap<*const Mutex<Node>, &NodeRef> =
            self.names.values().map(|node| (Arc::as_ptr(node), node)).collect();
        files.values().map(|node| node.lock().data.len() as u64).sum()
    }

    fn check_room(&self, growth: u64) -> std::result::Result<(), io::Error> {
        match self.capacity {
            Some(capacity) if growth > 0 && self.used() + growth > capacity => Err(FaultKind::StorageFull.error()),
            _ => Ok(()),
        }
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }
}

fn absent() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Disk for MemDisk {
    fn open(&self, path: &Path, mode: Mode, direct: bool) -> Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        state.counters.opens += 1;
        state.take_descriptor().map_err(|e| Error::io("open", path, e))?;
        let existing = state.names.get(path).cloned();
        if mode != Mode::Create {
            state.pass("open", Needs::Descriptor).map_err(|e| Error::io("open", path, e))?;
        }
        let node = match (mode, existing) {
            (Mode::Create, Some(_)) => {
                return Err(Error::io("open", path, io::Error::from(io::ErrorKind::AlreadyExists)));
            }
            (Mode::Create, None) => {
                if !path.parent().is_some_and(|p| p.as_os_str().is_empty() || state.dirs.contains(p)) {
                    return Err(Error::io("open", path, absent()));
                }
                state.pass("create", Needs::SpaceAndDescriptor).map_err(|e| Error::io("open", path, e))?;
                let node = NodeRef::default();
                state.change_name(NameChange::Add(path.to_owned(), node.clone()));
                node
            }
            (_, Some(node)) => node,
            (_, None) => return Err(Error::io("open", path, absent())),
        };
        state.descriptors += 1;
        Ok(Arc::new(MemFile { disk: self.clone(), node, path: path.to_owned(), direct, writable: mode != Mode::Read }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.counters.name_changes += 1;
        state.pass("rename", Needs::Mutation).map_err(|e| Error::io("rename", from, e))?;
        let node = state.names.get(from).cloned().ok_or_else(|| Error::io("rename", from, absent()))?;
        state.change_name(NameChange::Rename(from.to_owned(), to.to_owned(), node));
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.counters.name_changes += 1;
        state.pass("remove", Needs::Mutation).map_err(|e| Error::io("remove", path, e))?;
        if !state.names.contains_key(path) {
            return Err(Error::io("remove", path, absent()));
        }
        state.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.counters.name_changes += 1;
        state.pass("link", Needs::Mutation).map_err(|e| Error::io("link", to, e))?;
        let node = state.names.get(from).cloned().ok_or_else(|| Error::io("link", to, absent()))?;
        if state.names.contains_key(to) {
            return Err(Error::io("link", to, io::Error::from(io::ErrorKind::AlreadyExists)));
        }
        if !to.parent().is_some_and(|parent| state.dirs.contains(parent)) {
            return Err(Error::io("link", to, absent()));
        }
        state.change_name(NameChange::Add(to.to_owned(), node));
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.pass("remove directory", Needs::Mutation).map_err(|e| Error::io("remove directory", dir, e))?;
        let inside = |path: &PathBuf| path.parent() == Some(dir);
        if state.names.keys().any(inside) || state.dirs.iter().any(inside) {
            return Err(Error::io("remove directory", dir, io::Error::from(io::ErrorKind::DirectoryNotEmpty)));
        }
        match state.dirs.remove(dir) {
            true => Ok(()),
            false => Err(Error::io("remove directory", dir, absent())),
        }
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let mut state = self.state.lock();
        state.pass("list", Needs::Descriptor).map_err(|e| Error::io("list", dir, e))?;
        state.take_descriptor().map_err(|e| Error::io("list", dir, e))?;
        if !state.dirs.contains(dir) {
            return Err(Error::io("list", dir, absent()));
        }
        let inside = state.names.keys().chain(state.dirs.iter()).filter(|path| path.parent() == Some(dir));
        let mut names: Vec<PathBuf> = inside.filter_map(|path| path.file_name()).map(PathBuf::from).collect();
        names.sort();
        Ok(names)
    }

    fn size(&self, path: &Path) -> Result<Option<u64>> {
        let state = self.state.lock();
        let bytes = state.names.get(path).map(|node| node.lock().data.len() as u64);
        Ok(bytes.or_else(|| state.dirs.contains(path).then_some(0)))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        let mut state = self.state.lock();
        for ancestor in dir.ancestors().filter(|a| !a.as_os_str().is_empty()) {
            state.dirs.insert(ancestor.to_owned());
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.state.lock();
        state.counters.dir_syncs += 1;
        state.pass("sync directory", Needs::MutationAndDescriptor).map_err(|e| Error::io("sync directory", dir, e))?;
        let (covered, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.unsynced_names).into_iter().partition(|change| change.touches(dir));
        state.unsynced_names = rest;
        for change in covered {
            change.apply(&mut state.durable_names);
        }
        Ok(())
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn Send + Sync>> {
        if !self.state.lock().locks.insert(dir.to_owned()) {
            return Err(Error::InUse(dir.to_owned()));
        }
        Ok(Box::new(DirLock { disk: self.clone(), dir: dir.to_owned() }))
    }
}

struct DirLock {
    disk: MemDisk,
    dir: PathBuf,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        self.disk.state.lock().locks.remove(&self.dir);
    }
}
