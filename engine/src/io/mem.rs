//! A disk in memory that can crash and fail.
//!
//! Every file keeps two contents: what programs see and what a power cut would leave for certain. They differ in the
//! 512-byte sectors written since the last `sync_data`. Every directory likewise keeps the operations on its names since
//! the last `sync_dir`. [`MemDisk::crash`] makes a new disk out of the durable part plus a random choice of the rest,
//! which is what a drive with a volatile cache and a file system without ordering promises may leave.
//!
//! Invariants: a synced sector is never lost; a failed `sync_data` never becomes a success for the bytes it covered (a
//! later sync does not make them durable, as on Linux). Directories themselves are durable at once: the engine creates
//! them only while a store is created.
//!
//! Rejected: recording a trace of writes and replaying prefixes. It cannot show writes reordered inside one sync window.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, File, Mode};
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Result};

const SECTOR: usize = 512;

/// How an injected fault looks to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The device is full.
    StorageFull,
    /// Any other failure of the device.
    Other,
    /// The process has no file descriptor left: only what needs one fails, reading included.
    TooManyFiles,
}

impl FaultKind {
    fn error(self) -> io::Error {
        match self {
            FaultKind::StorageFull => io::Error::from(io::ErrorKind::StorageFull),
            FaultKind::Other => io::Error::other("injected fault"),
            FaultKind::TooManyFiles => io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()),
        }
    }
}

/// Operations so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct MemDiskCounters {
    /// Files opened or created.
    pub opens: u64,
    /// Reads of file content.
    pub reads: u64,
    /// Writes of file content.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Calls of `sync_data`.
    pub syncs: u64,
    /// Calls of `sync_dir`.
    pub dir_syncs: u64,
    /// Renames, removals and links.
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

struct Fault {
    /// Operations left until it strikes, counting down to 1.
    left: u64,
    kind: FaultKind,
    lasting: bool,
    /// The first operation that failed.
    struck: Option<&'static str>,
}

/// What an operation needs, so what makes it fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// More space, and a descriptor.
    SpaceAndDescriptor,
    Space,
    Descriptor,
    /// A descriptor; it changes or settles something.
    MutationAndDescriptor,
    Mutation,
}

type NodeRef = Arc<Mutex<Node>>;

#[derive(Default)]
struct Node {
    data: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors in which `data` may differ from `durable`.
    dirty: BTreeSet<usize>,
    /// Sectors whose sync failed: they may or may not be on the medium, and no later sync settles it.
    doubtful: BTreeSet<usize>,
}

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

/// The generator behind crash images: small, seeded, the same everywhere.
struct XorShift(u64);

impl XorShift {
    fn new(seed: u64) -> XorShift {
        let mut rng = XorShift(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // Neighbouring seeds differ in few bits; some rounds spread them.
        for _ in 0..8 {
            rng.next();
        }
        rng
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// True with `percent` in 100.
    fn chance(&mut self, percent: u64) -> bool {
        (self.next() >> 20) % 100 < percent
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
        let copied = |node: &NodeRef| {
            let data = node.lock().data.clone();
            Arc::new(Mutex::new(Node { durable: data.clone(), data, ..Node::default() }))
        };
        let names: BTreeMap<_, _> = state.names.iter().map(|(path, node)| (path.clone(), copied(node))).collect();
        let copy = State { names: names.clone(), durable_names: names, dirs: state.dirs.clone(), ..State::default() };
        MemDisk { state: Arc::new(Mutex::new(copy)) }
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

impl Node {
    fn mark_dirty(&mut self, from: usize, to: usize) {
        for sector in from / SECTOR..to.div_ceil(SECTOR) {
            self.dirty.insert(sector);
            self.doubtful.remove(&sector);
        }
    }

    fn resize(&mut self, len: usize) {
        let old = self.data.len();
        self.data.resize(len, 0);
        self.mark_dirty(old.min(len), old.max(len));
    }

    fn write(&mut self, buf: &[u8], offset: usize) {
        let end = offset + buf.len();
        if end > self.data.len() {
            self.resize(end);
        }
        self.data[offset..end].copy_from_slice(buf);
        self.mark_dirty(offset, end);
    }

    fn copy_sector(from: &[u8], to: &mut Vec<u8>, sector: usize) {
        let start = sector * SECTOR;
        let end = (start + SECTOR).min(from.len());
        if start < end {
            if to.len() < end {
                to.resize(end, 0);
            }
            to[start..end].copy_from_slice(&from[start..end]);
        }
    }

    fn sync(&mut self) {
        let Node { data, durable, dirty, .. } = self;
        durable.resize(data.len(), 0);
        for &sector in dirty.iter() {
            Self::copy_sector(data, durable, sector);
        }
        dirty.clear();
    }

    fn sync_failed(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        self.doubtful.extend(dirty);
    }

    fn crash(&self, rng: &mut XorShift, survive_percent: u64, sectors_per_page: usize) -> Node {
        let mut data = self.durable.clone();
        if rng.chance(survive_percent) {
            data.resize(self.data.len(), 0);
        }
        let mut page = None;
        let mut survives = false;
        for &sector in self.dirty.union(&self.doubtful) {
            if page != Some(sector / sectors_per_page) {
                page = Some(sector / sectors_per_page);
                survives = rng.chance(survive_percent);
            }
            if survives {
                Self::copy_sector(&self.data, &mut data, sector);
            }
        }
        Node { durable: data.clone(), data, ..Node::default() }
    }
}

impl State {
    /// Counts an operation; the injected error if this is one to fail.
    fn pass(&mut self, op: &'static str, needs: Needs) -> std::result::Result<(), io::Error> {
        let mutates = needs != Needs::Descriptor;
        self.counters.mutations += u64::from(mutates);
        let Some(fault) = &mut self.fault else { return Ok(()) };
        let concerned = match (fault.kind, needs) {
            (FaultKind::TooManyFiles, Needs::Space | Needs::Mutation) => false,
            (FaultKind::TooManyFiles, _) => true,
            (FaultKind::StorageFull, _) if fault.lasting => matches!(needs, Needs::Space | Needs::SpaceAndDescriptor),
            _ => mutates,
        };
        if !concerned || (fault.struck.is_some() && !fault.lasting) {
            return Ok(());
        }
        fault.left = fault.left.saturating_sub(1);
        if fault.left > 0 {
            return Ok(());
        }
        fault.struck.get_or_insert(op);
        Err(fault.kind.error())
    }

    /// The error if there is no descriptor for another open file.
    fn take_descriptor(&self) -> std::result::Result<(), io::Error> {
        match self.descriptors_max.is_some_and(|most| self.descriptors >= most) {
            true => Err(FaultKind::TooManyFiles.error()),
            false => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        let mut seen: Vec<*const Mutex<Node>> = Vec::new();
        let mut used = 0;
        for node in self.names.values() {
            let address = Arc::as_ptr(node);
            if !seen.contains(&address) {
                seen.push(address);
                used += node.lock().data.len() as u64;
            }
        }
        used
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

    fn exists(&self, path: &Path) -> Result<bool> {
        let state = self.state.lock();
        Ok(state.names.contains_key(path) || state.dirs.contains(path))
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

struct MemFile {
    disk: MemDisk,
    node: NodeRef,
    path: PathBuf,
    direct: bool,
    writable: bool,
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.disk.state.lock().descriptors -= 1;
    }
}

impl MemFile {
    /// A drive would refuse an unaligned direct request; here it is a bug of the caller.
    fn check_alignment(&self, buf: &[u8], offset: u64) {
        if self.direct {
            let aligned =
                offset % IO_ALIGN as u64 == 0 && buf.len() % IO_ALIGN == 0 && (buf.as_ptr() as usize) % IO_ALIGN == 0;
            assert!(aligned, "unaligned direct I/O on {} at {offset}, {} bytes", self.path.display(), buf.len());
        }
    }

    fn check_writable(&self, op: &'static str) -> Result<()> {
        if self.writable {
            return Ok(());
        }
        Err(Error::io(op, &self.path, io::Error::from(io::ErrorKind::PermissionDenied)))
    }

    fn resize(&self, op: &'static str, len: u64, grow_only: bool) -> Result<()> {
        self.check_writable(op)?;
        let mut state = self.disk.state.lock();
        let old = self.node.lock().data.len() as u64;
        let needs = if len > old { Needs::Space } else { Needs::Mutation };
        state.pass(op, needs).map_err(|e| Error::io(op, &self.path, e))?;
        state.check_room(len.saturating_sub(old)).map_err(|e| Error::io(op, &self.path, e))?;
        if len > old || !grow_only {
            self.node.lock().resize(len as usize);
        }
        Ok(())
    }
}

impl File for MemFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check_alignment(buf, offset);
        self.disk.state.lock().counters.reads += 1;
        let node = self.node.lock();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match start.checked_add(buf.len()).and_then(|end| node.data.get(start..end)) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(Error::corruption(
                &self.path,
                offset,
                format!("file ends before the {} bytes expected here", buf.len()),
            )),
        }
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_alignment(buf, offset);
        self.check_writable("write")?;
        let mut state = self.disk.state.lock();
        state.counters.writes += 1;
        state.counters.bytes_written += buf.len() as u64;
        let grows = offset + buf.len() as u64 > self.node.lock().data.len() as u64;
        let failed = state.pass("write", if grows { Needs::Space } else { Needs::Mutation });
        let mut node = self.node.lock();
        if let Err(e) = failed {
            // A failed write may have reached the disk in part.
            let part = buf.len() / 2 / SECTOR * SECTOR;
            if offset as usize + part <= node.data.len() {
                node.write(&buf[..part], offset as usize);
            }
            return Err(Error::io("write", &self.path, e));
        }
        let growth = (offset + buf.len() as u64).saturating_sub(node.data.len() as u64);
        drop(node);
        state.check_room(growth).map_err(|e| Error::io("write", &self.path, e))?;
        node = self.node.lock();
        node.write(buf, offset as usize);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        let mut state = self.disk.state.lock();
        state.counters.syncs += 1;
        let outcome = state.pass("sync", Needs::Mutation);
        let mut node = self.node.lock();
        match outcome {
            Ok(()) => {
                node.sync();
                Ok(())
            }
            Err(e) => {
                node.sync_failed();
                Err(Error::io("sync", &self.path, e))
            }
        }
    }

    fn len(&self) -> Result<u64> {
        Ok(self.node.lock().data.len() as u64)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.resize("truncate", len, false)
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.resize("allocate", len, true)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (MemDisk, PathBuf) {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new("/d")).unwrap();
        (disk, PathBuf::from("/d/f"))
    }

    #[test]
    fn synced_bytes_and_names_survive_every_crash() {
        let (disk, path) = disk();
        let file = disk.open(&path, Mode::Create, false).unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_all_at(&[8; 1000], 9_500).unwrap();
        for seed in 0..50 {
            let content = disk.crash(seed).content(&path).unwrap();
            assert!(content.len() >= 10_000);
            assert!(content[..9_216].iter().all(|&b| b == 7), "seed {seed}");
        }
    }

    #[test]
    fn unsynced_bytes_and_names_are_sometimes_lost_and_sometimes_not() {
        let (disk, path) = disk();
        let file = disk.open(&path, Mode::Create, false).unwrap();
        file.write_all_at(&[7; 8192], 0).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        let (mut lost, mut kept, mut torn) = (false, false, false);
        for seed in 0..200 {
            let sevens = disk.crash(seed).content(&path).unwrap().iter().filter(|&&b| b == 7).count();
            lost |= sevens == 0;
            kept |= sevens == 8192;
            torn |= sevens > 0 && sevens < 8192;
        }
        assert!(lost && kept && torn);

        let moved = PathBuf::from("/d/g");
        disk.rename(&path, &moved).unwrap();
        let outcomes: BTreeSet<(bool, bool)> = (0..50)
            .map(|seed| disk.crash(seed))
            .map(|image| (image.exists(&path).unwrap(), image.exists(&moved).unwrap()))
            .collect();
        assert_eq!(outcomes, BTreeSet::from([(true, false), (false, true)]), "a rename is atomic");
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.remove(&moved).unwrap();
        let outcomes: BTreeSet<bool> = (0..50).map(|seed| disk.crash(seed).exists(&moved).unwrap()).collect();
        assert_eq!(outcomes.len(), 2);
    }

    #[test]
    fn a_failed_sync_is_not_repaired_by_the_next() {
        let (disk, path) = disk();
        let file = disk.open(&path, Mode::Create, false).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_all_at(&[7; 512], 0).unwrap();
        disk.fail_after(1, FaultKind::Other);
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        let lost = (0..50).any(|seed| !disk.crash(seed).content(&path).unwrap().contains(&7));
        assert!(lost);
        file.write_all_at(&[9; 512], 0).unwrap();
        file.sync_data().unwrap();
        assert!((0..50).all(|seed| disk.crash(seed).content(&path).unwrap()[0] == 9));
    }

    #[test]
    fn faults_strike_once_at_the_chosen_operation() {
        let (disk, path) = disk();
        disk.fail_after(3, FaultKind::StorageFull);
        let file = disk.open(&path, Mode::Create, false).unwrap();
        file.write_all_at(b"a", 0).unwrap();
        assert!(file.sync_data().unwrap_err().is_disk_full());
        file.sync_data().unwrap();
        assert!(!disk.clear_fault());
    }

    #[test]
    fn capacity_limits_growth_but_not_overwriting() {
        let (disk, path) = disk();
        disk.set_capacity(Some(1000));
        let file = disk.open(&path, Mode::Create, false).unwrap();
        file.write_all_at(&[1; 1000], 0).unwrap();
        file.write_all_at(&[2; 1000], 0).unwrap();
        assert!(file.write_all_at(&[3; 1], 1000).unwrap_err().is_disk_full());
        assert!(file.allocate(1001).unwrap_err().is_disk_full());
        disk.remove(&path).unwrap();
        assert_eq!(disk.used(), 0);
    }

    #[test]
    fn locks_exclude_and_release() {
        let (disk, _) = disk();
        let guard = disk.lock_dir(Path::new("/d")).unwrap();
        assert!(matches!(disk.lock_dir(Path::new("/d")), Err(Error::InUse(_))));
        drop(guard);
        disk.lock_dir(Path::new("/d")).unwrap();
    }
}
