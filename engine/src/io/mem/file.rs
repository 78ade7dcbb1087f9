//! An open file of the disk in memory: checks what direct I/O would ask for, and passes faults and the capacity.
//!
//! Invariant: an operation that fails has changed nothing, but a failed write may have torn its sectors and a failed sync leaves
//! the file's unsynced sectors in doubt for good.
//!
//! Rejected: files that only remember their path (one that was removed while open must stay readable).

use std::io;
use std::path::{Path, PathBuf};

use super::fault::Needs;
use super::node::SECTOR;
use super::{MemDisk, NodeRef};
use crate::base::limits::IO_ALIGN;
use crate::base::{Error, Result};
use crate::io::File;

pub(super) struct MemFile {
    pub disk: MemDisk,
    pub node: NodeRef,
    pub path: PathBuf,
    pub direct: bool,
    pub writable: bool,
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.disk.state.lock().descriptors -= 1;
    }
}

impl MemFile {
    /// A drive would refuse an unaligned direct request; here it is a bug of the caller.
    fn check_alignment(&self, buf: &[u8], offset: u64, align: usize) {
        if self.direct {
            let aligned =
                offset % align as u64 == 0 && buf.len() % align == 0 && (buf.as_ptr() as usize) % IO_ALIGN == 0;
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
        self.check_alignment(buf, offset, self.read_align());
        {
            let counters = &mut self.disk.state.lock().counters;
            counters.reads += 1;
            counters.bytes_read += buf.len() as u64;
        }
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

    fn read_align(&self) -> usize {
        if self.writable { IO_ALIGN } else { SECTOR }
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_alignment(buf, offset, IO_ALIGN);
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
