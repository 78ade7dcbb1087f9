//! One batch: the next rows of a table, of which those that have expired are removed in one transaction.
//!
//! Rows are first looked at without locks, in the order of an index that begins with the column, if there is one, as far as they have
//! expired, else all in the order in which they are stored. Those found are then locked one by one, and removed if they still are what
//! they were taken for. Nobody is waited for: a row, or a unique value, that somebody has locked is left for the next time.

use crate::error::{Error, Result};
use crate::index::expired::Removal;
use crate::index::{WriteBuffers, Writer};
use crate::isolation::{Isolation, Waiting};
use crate::kv::IndexId;
use crate::session::Session;
use crate::store::Store;
use crate::table::Table;
use std::sync::Arc;
use std::time::Duration;

/// Rows removed by a batch at most.
pub(super) const REMOVED_MAX: usize = 256;
/// Rows or entries looked at by a batch at most.
const LOOKED_MAX: u64 = 4096;
/// Rows between two looks at whether somebody else wants to work.
const ROWS_PER_POLL: u64 = 64;

/// Where a pass goes on in a table.
pub(super) struct Place {
    /// The indexes of the rows, and of the order of the pass: if these are others now, the pass begins anew.
    indexes: (IndexId, IndexId),
    from: Vec<u8>,
}

/// What a batch has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Batch {
    pub looked: u64,
    pub removed: u64,
    pub locked: u64,
    /// There is nothing left to look at.
    pub is_through: bool,
    /// The table has an index in the order in which rows expire.
    pub is_ordered: bool,
}

/// Goes on with a pass through the table of this name, whose rows expired at `now` or before are to go. `None` if it is not the time.
pub(super) fn run(
    store: &Arc<Store>,
    session: &mut Session,
    (name, id): (&str, u64),
    place: &mut Option<Place>,
    now: u64,
) -> Result<Option<Batch>> {
    let gate = store.gate().clone();
    let Some(_working) = gate.batch(id) else { return Ok(None) };
    // First, as it forgets what an earlier change has left; whatever would wait does not: see the module.
    session.statement_begin(Isolation::ReadCommitted, Duration::ZERO)?;
    let batch = work(store, session, (name, id), place, now);
    session.statement_end();
    match &batch {
        Ok(_) => session.commit()?,
        Err(_) => session.rollback()?,
    }
    batch.map(Some)
}

fn work(
    store: &Arc<Store>,
    session: &mut Session,
    (name, id): (&str, u64),
    place: &mut Option<Place>,
    now: u64,
) -> Result<Batch> {
    let meta = match store.catalog().get(name) {
        Ok(meta) if meta.table_id == id && meta.ttl.is_some() => meta,
        Ok(_) | Err(Error::NoTable(_)) => return Ok(Batch { is_through: true, ..Batch::default() }),
        Err(error) => return Err(error),
    };
    let table = store.open_by_catalog(name)?;
    let order = table.expiry_order()?;
    let index = table.index_id(order.as_ref().map(|(index, _)| *index));
    let indexes = (meta.clustered_id(), index);
    let from = match place.take().filter(|place| place.indexes == indexes) {
        Some(place) => place.from,
        None => order.as_ref().map_or_else(|| index.prefix().to_vec(), |(_, from)| from.clone()),
    };
    let found = look(&table, session, order.map(|(index, _)| index), from, now)?;
    let mut batch = Batch {
        looked: found.looked,
        is_through: found.end.is_none(),
        is_ordered: indexes.0 != index,
        ..Batch::default()
    };
    *place = found.end.map(|from| Place { indexes, from });
    remove(&table, session, &found.keys, now, &mut batch)?;
    Ok(batch)
}

/// What was found.
struct Found {
    /// Clustered keys of rows that have expired.
    keys: Vec<Vec<u8>>,
    looked: u64,
    /// Where to go on; `None`: there is no more.
    end: Option<Vec<u8>>,
}

fn look(table: &Table, session: &Session, order: Option<usize>, from: Vec<u8>, now: u64) -> Result<Found> {
    let id = table.index_id(order);
    let none = table.engine().begin();
    let point = table.engine().read_point();
    let mut cursor = table.engine().cursor();
    cursor.open(&none, point.seq(), &id.prefix(), &IndexId(id.0 + 1).prefix())?;
    cursor.seek_ge(&none, &from)?;
    let mut found = Found { keys: Vec::new(), looked: 0, end: None };
    let mut room = Vec::new();
    while cursor.valid() {
        let is_pause = found.looked % ROWS_PER_POLL == 0 && found.looked > 0 && session.check_killed().is_err();
        if found.keys.len() >= REMOVED_MAX || found.looked >= LOOKED_MAX || is_pause {
            found.end = Some(cursor.key().to_vec());
            break;
        }
        found.looked += 1;
        let moment = match order {
            Some(index) => table.moment_of_entry(index, cursor.key(), cursor.value(), &mut room)?,
            None => table.moment_of(cursor.key(), cursor.value(), &mut room)?,
        };
        match (order, moment.is_some_and(|moment| moment <= now)) {
            (None, true) => found.keys.push(cursor.key().to_vec()),
            (Some(index), true) => {
                let mut key = Vec::new();
                table.indexes[index].clustered_key_from(cursor.key(), cursor.value(), &mut key)?;
                found.keys.push(key);
            }
            (None, false) => {}
            // All that follow expire later.
            (Some(_), false) => break,
        }
        cursor.next(&none)?;
    }
    cursor.close();
    Ok(found)
}

fn remove(table: &Table, session: &mut Session, keys: &[Vec<u8>], now: u64, batch: &mut Batch) -> Result<()> {
    let mut buffers = WriteBuffers::default();
    for key in keys {
        if session.check_killed().is_err() {
            // Somebody else wants to work. What is left comes with the next pass.
            batch.locked += 1;
            continue;
        }
        let mark = session.savepoint();
        match (Writer { table, session, buffers: &mut buffers }).remove(key, now, Waiting::SkipLocked) {
            Ok(Removal::Removed) => batch.removed += 1,
            Ok(Removal::Locked) => batch.locked += 1,
            Ok(Removal::Absent | Removal::Lives) => {}
            Err(error) if error.is_lock_busy() || error.is_lock_timeout() => {
                session.rollback_to(mark);
                batch.locked += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
