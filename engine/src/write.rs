//! Writes outside any transaction: atomic, without locks, ordered among the commits.
//!
//! ```text
//! room      memory and space, with all waits and errors for want of them
//! within    ordered and visible; no I/O
//! sync      durable
//! ```
//!
//! A caller that orders its writes under a lock takes the steps one by one, and holds the lock in the second only. For what
//! helps to free space there is room on a full disk, too.
//!
//! Invariant: later commits never become durable before an earlier write.
//!
//! Rejected: transactions for this (a lock owner and a write buffer for a write that nobody can conflict with).

use crate::base::limits::{check_key, check_value};
use crate::base::{Error, Kind, Lsn, Result, SeqNo};
use crate::commit::Committer;
use crate::journal::Durable;
use crate::parts::Core;
use crate::wal::Room;
use crate::write_buffer::WriteBuffer;

/// One operation of an autonomous write: a key, and its new value or `None` to delete it.
pub type WriteOp = (Vec<u8>, Option<Vec<u8>>);

/// What a write is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It waits for memory, and is refused on a full disk.
    Work,
    /// It helps to free space: it waits for nothing, and there is room for it on a full disk.
    Relief,
}

/// Room in the log and in memory for a write to come; see `Engine::room`.
pub struct WriteRoom<'a> {
    room: Room<'a>,
    bytes: usize,
}

impl WriteRoom<'_> {
    /// The most bytes that the write may have, as `Engine::write_bytes` counts.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A write that is ordered and visible; durable once `Engine::sync_write` has returned.
#[must_use]
pub struct Written {
    /// Its sequence number.
    pub seq: SeqNo,
    log_end: Lsn,
}

fn check_ops(ops: &[WriteOp]) -> Result<()> {
    ops.iter().try_for_each(|(key, value)| {
        check_key(key)?;
        check_value(value.as_ref().map_or(0, Vec::len))
    })
}

/// See `Engine::write_bytes`.
pub(crate) fn bytes(ops: &[WriteOp]) -> usize {
    // Each has a kind, two lengths, and a place in the index of the batch.
    ops.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len) + 64).sum()
}

/// All three steps. The last one only if `durable`.
pub(crate) fn alone(core: &Core, ops: &[WriteOp], durable: bool, purpose: Purpose) -> Result<SeqNo> {
    if ops.is_empty() {
        return Ok(core.tree.states.visible());
    }
    check_ops(ops)?;
    let room = match purpose {
        Purpose::Work => room(core, bytes(ops), &|| false)?,
        Purpose::Relief => room_for_relief(core, bytes(ops))?,
    };
    let written = within(core, room, ops)?;
    if durable {
        sync(core, &written)?;
    }
    Ok(written.seq)
}

/// See `Engine::room`.
pub(crate) fn room<'a>(core: &'a Core, bytes: usize, is_interrupted: &dyn Fn() -> bool) -> Result<WriteRoom<'a>> {
    Ok(WriteRoom { room: core.admit(bytes, is_interrupted)?, bytes })
}

/// See `Engine::room_for_relief`.
pub(crate) fn room_for_relief(core: &Core, bytes: usize) -> Result<WriteRoom<'_>> {
    Ok(WriteRoom { room: core.journal.log.reserve_relief(bytes)?, bytes })
}

/// See `Engine::write_within`.
pub(crate) fn within(core: &Core, room: WriteRoom<'_>, ops: &[WriteOp]) -> Result<Written> {
    check_ops(ops)?;
    let mut buffer = WriteBuffer::new();
    for (key, value) in ops {
        match value {
            Some(value) => buffer.push(Kind::Put, key, value),
            None => buffer.push(Kind::Delete, key, &[]),
        }
    }
    if buffer.is_empty() || buffer.bytes() > room.bytes {
        let (bytes, most) = (buffer.bytes(), room.bytes);
        return Err(Error::Invalid(format!("a write of {bytes} bytes, where there is room for 1 to {most}")));
    }
    let batch = buffer.encode();
    let order = |committer: &Committer| {
        let ordered = committer.order_batch(batch)?;
        drop(room.room);
        Ok(ordered)
    };
    let ordered = core.commit(order, Some(batch), None, Durable::Elsewhere)?;
    core.journal.committer.count_internal();
    Ok(Written { seq: ordered.seq, log_end: ordered.log_end })
}

/// See `Engine::sync_write`.
pub(crate) fn sync(core: &Core, written: &Written) -> Result<()> {
    core.journal.log.sync(written.log_end)
}
