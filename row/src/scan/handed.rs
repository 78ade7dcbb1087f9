//! Consistent reads of a unique index in which values may have passed from row to row.
//!
//! The key of a unique entry is the value alone. Say that the snapshot shows row A with a value, that another transaction
//! has taken the value from A since, and that this one writes it for its row B (or deletes a row that had it meanwhile). Then
//! the own operation lies over the entry by which the snapshot shows A, which it has not written: A would be found by every
//! index but this one.
//!
//! So the session notes that an entry it writes has changed since its snapshot (`Session::writes_unique`). From then on a scan
//! of a unique index has a second engine cursor, over what is committed alone, and shows of it the *covered* entries: those
//! whose key the transaction has written while it has not written their row. What is covered follows from the
//! transaction's writes as they are when the scan comes by; after a rollback to a savepoint there is nothing to take back.
//! Of two entries with one key the transaction's own comes first.
//!
//! The scan's own cursor and the second one change places so that `RowCursor::cursor` always is the one that the scan stands
//! on: scans without a second cursor do not pay for it.
//!
//! Rejected: a list of the entries that were covered. It would have to follow savepoints and be counted as memory.

use super::fetch::copy;
use super::next::Direction;
use super::{RowCursor, Scan};
use crate::error::Result;
use crate::keycode::KeyCodec;
use crate::kv::{Cursor, Txn};
use crate::session::Session;

/// What kind of entry a scan with two cursors stands on, or stood on when it lost them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryKind {
    /// One that lies over no other.
    Plain,
    /// One that the transaction wrote: a covered one may follow with the same key.
    Own,
    /// A covered one.
    Covered,
}

/// The second cursor.
pub(super) struct Committed {
    /// The cursor that the scan does not stand on.
    other: Cursor,
    /// A transaction without writes, to read with.
    nobody: Txn,
    /// The scan stands on a covered entry: `other` is its first cursor.
    swapped: bool,
    /// Which way the cursors have moved, and the session's count of writes then.
    direction: Direction,
    writes: u64,
    /// Key of the row of the entry looked at.
    row_key: Vec<u8>,
}

impl Committed {
    /// Over the same keys as the scan's own cursor, which is open.
    pub(super) fn open(session: &Session, cursor: &Cursor, mut other: Cursor, scan: &Scan) -> Result<Box<Committed>> {
        let nobody = session.engine().begin();
        session.kill_switch().watch_fill(nobody.owner());
        let seq = cursor.read_seq().unwrap_or(scan.seq);
        other.open(&nobody, seq, &scan.lower, &scan.opened_upper)?;
        let (direction, writes) = (Direction::Forward, session.writes());
        Ok(Box::new(Committed { other, nobody, swapped: false, direction, writes, row_key: Vec::new() }))
    }

    /// Gives the scan its own cursor back.
    pub(super) fn restore(&mut self, cursor: &mut Cursor) {
        if std::mem::take(&mut self.swapped) {
            std::mem::swap(cursor, &mut self.other);
        }
    }

    /// Both cursors to the first entries from `key` on; the second to entries with this key only if `again`, the first if
    /// `inclusive`.
    fn seek(
        &mut self,
        cursor: &mut Cursor,
        session: &Session,
        codec: &KeyCodec,
        direction: Direction,
        key: &[u8],
        [inclusive, again]: [bool; 2],
    ) -> Result<EntryKind> {
        self.restore(cursor);
        self.direction = direction;
        self.writes = session.writes();
        seek(cursor, session.txn(), direction, key, inclusive)?;
        seek(&mut self.other, &self.nobody, direction, key, again)?;
        self.settle(cursor, session, codec)
    }

    /// To the next entry in the way that both went.
    fn step(&mut self, cursor: &mut Cursor, session: &Session, codec: &KeyCodec) -> Result<EntryKind> {
        let own = if self.swapped { &self.nobody } else { session.txn() };
        match self.direction {
            Direction::Forward => cursor.next(own)?,
            Direction::Backward => cursor.prev(own)?,
        }
        self.restore(cursor);
        self.settle(cursor, session, codec)
    }

    /// Chooses between the scan's own cursor and the second, neither of which stands before the next entry.
    fn settle(&mut self, cursor: &mut Cursor, session: &Session, codec: &KeyCodec) -> Result<EntryKind> {
        while self.other.valid() {
            let comes_first = !cursor.valid()
                || match self.direction {
                    Direction::Forward => self.other.key() < cursor.key(),
                    Direction::Backward => self.other.key() >= cursor.key(),
                };
            if !comes_first {
                break;
            }
            if self.is_covered(session, codec)? {
                std::mem::swap(cursor, &mut self.other);
                self.swapped = true;
                return Ok(EntryKind::Covered);
            }
            match self.direction {
                Direction::Forward => self.other.next(&self.nobody)?,
                Direction::Backward => self.other.prev(&self.nobody)?,
            }
        }
        Ok(if cursor.valid() && session.txn().wrote(cursor.key())? { EntryKind::Own } else { EntryKind::Plain })
    }

    fn is_covered(&mut self, session: &Session, codec: &KeyCodec) -> Result<bool> {
        if !session.txn().wrote(self.other.key())? {
            return Ok(false);
        }
        codec.clustered_key_from(self.other.key(), self.other.value(), &mut self.row_key)?;
        Ok(!session.txn().wrote(&self.row_key)?)
    }
}

fn seek(cursor: &mut Cursor, own: &Txn, direction: Direction, key: &[u8], inclusive: bool) -> Result<()> {
    match direction {
        Direction::Forward => {
            cursor.seek_ge(own, key)?;
            if !inclusive && cursor.valid() && cursor.key() == key {
                cursor.next(own)?;
            }
        }
        Direction::Backward if inclusive => cursor.seek_lt(own, &[key, &[0]].concat())?,
        Direction::Backward => cursor.seek_lt(own, key)?,
    }
    Ok(())
}

impl RowCursor {
    /// Gives up the second cursor.
    pub(super) fn forget_committed(&mut self) {
        if let Some(mut committed) = self.committed.take() {
            committed.restore(&mut self.cursor);
        }
    }

    /// A new search: both cursors to the first entry from `scan.target` on, or before it.
    #[cold]
    pub(super) fn seek_both(&mut self, session: &Session, direction: Direction) -> Result<()> {
        let (Some(scan), Some(committed)) = (&mut self.scan, &mut self.committed) else { return Ok(()) };
        let inclusive = [direction == Direction::Forward; 2];
        scan.stand = committed.seek(&mut self.cursor, session, &scan.codec, direction, &scan.target, inclusive)?;
        Ok(())
    }

    /// From the entry that the scan stands on to the next.
    #[cold]
    pub(super) fn step_both(&mut self, session: &Session, direction: Direction) -> Result<()> {
        let (Some(scan), Some(committed)) = (&mut self.scan, &mut self.committed) else { return Ok(()) };
        if committed.direction == direction && committed.writes == session.writes() {
            scan.stand = committed.step(&mut self.cursor, session, &scan.codec)?;
            return Ok(());
        }
        copy(&mut self.entry_key, self.cursor.key());
        self.go_on_both(session, direction)
    }

    /// From the entry at `entry_key`, of the kind that `scan.stand` says, to the next.
    #[cold]
    pub(super) fn go_on_both(&mut self, session: &Session, direction: Direction) -> Result<()> {
        let (Some(scan), Some(committed)) = (&mut self.scan, &mut self.committed) else { return Ok(()) };
        let own = session.txn().wrote(&self.entry_key)?;
        let inclusive = match (direction, scan.stand) {
            (Direction::Forward, EntryKind::Own) => [false, own],
            (Direction::Backward, EntryKind::Covered) => [own, false],
            _ => [false, false],
        };
        scan.stand = committed.seek(&mut self.cursor, session, &scan.codec, direction, &self.entry_key, inclusive)?;
        Ok(())
    }
}
