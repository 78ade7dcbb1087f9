//! A transaction that reads a moment of the past, and what it may do.

use super::Session;
use crate::catalog::define::Names;
use crate::error::{Error, Result};
use crate::kv::ReadPoint;
use crate::table::TableState;
use std::sync::Arc;

/// What a transaction sees of the past.
pub(super) struct Past {
    pub(super) point: ReadPoint,
    /// In seconds since 1970.
    pub(super) moment: u64,
    /// Tables that were then what they are now, by number.
    known: Vec<u64>,
}

impl Session {
    /// The transaction that is about to begin reads a moment of the past, in seconds since 1970. Nothing happens within one: what it reads
    /// is fixed.
    ///
    /// Errors: `Moment` of the engine.
    pub fn read_past(&mut self, moment: u64) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        let point = self.engine().read_point_at(moment)?;
        self.engine().await_visible(point.seq());
        self.past = Some(Past { point, moment, known: Vec::new() });
        self.epoch += 1;
        Ok(())
    }

    /// Whether the transaction reads the past.
    pub fn reads_past(&self) -> bool {
        self.past.is_some()
    }

    /// An error unless the table may be written by a transaction that reads the past: it must have been created since, so that nothing
    /// of it is read there.
    pub fn check_write_to(&self, name: &str) -> Result<()> {
        match &self.past {
            Some(past) if self.store.catalog().was_there(name, past.point.seq())? => {
                Err(Error::PastIsReadOnly(self.shown(name)))
            }
            _ => Ok(()),
        }
    }

    /// An error if the table was not then what it is now.
    pub(crate) fn check_past(&mut self, table: &Arc<TableState>) -> Result<()> {
        let Some(past) = &self.past else { return Ok(()) };
        if past.known.contains(&table.meta.table_id) {
            return Ok(());
        }
        let (name, seq) = (table.name(), past.point.seq());
        if let Some(what) = self.store.catalog().became_after(&name, seq)? {
            return Err(Error::NotThen { table: self.shown(&name), what });
        }
        if let Some(past) = &mut self.past {
            past.known.push(table.meta.table_id);
        }
        Ok(())
    }

    /// A table's name for people.
    fn shown(&self, name: &str) -> String {
        match Names::with_partition(&*self.store, name) {
            (table, partition) if partition.is_empty() => table,
            (table, partition) => format!("{table}, partition {partition},"),
        }
    }
}
