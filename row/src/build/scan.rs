//! The first filling of the indexes: all rows of a snapshot, as sorted entries that become files.

use super::entries::Sorting;
use super::{Build, Worker};
use crate::error::Result;
use crate::kv::IndexId;
use crate::progress::Step;

/// Rows after which the cursor lets go of the memtables and files that it reads, and comes back.
const TURN_ROWS: u32 = 1 << 16;
/// Rows between two questions whether the statement was killed.
const ASK_ROWS: u32 = 256;

impl Build {
    pub(super) fn scan(&mut self, worker: &mut Worker<'_>) -> Result<()> {
        let Worker { rows, is_killed, told } = worker;
        let is_killed = *is_killed;
        let tick = || Build::interrupted(is_killed);
        let (table, engine) = (&self.table, self.table.engine());
        self.progress.begin_scan(table.estimated_rows());
        // Before the first row is read, which may take long.
        told(&self.progress);
        let mut sorting = Sorting { sorter: engine.sorter(), tick: &tick, room: Default::default() };
        let none = engine.begin();
        let mut cursor = engine.cursor();
        let id = table.state.meta.clustered_id();
        let mut from = id.prefix().to_vec();
        let upper = IndexId(id.0 + 1).prefix();
        'turns: loop {
            cursor.open(&none, self.point.seq(), &from, &upper)?;
            cursor.seek_ge(&none, &from)?;
            for row in 1..=TURN_ROWS {
                if !cursor.valid() {
                    self.progress.add_rows(u64::from((row - 1) % ASK_ROWS));
                    break 'turns;
                }
                if row.is_multiple_of(ASK_ROWS) {
                    tick()?;
                    self.progress.add_rows(u64::from(ASK_ROWS));
                }
                let row_id = self.row_id(cursor.key())?;
                if let Some(record) = self.record_of(cursor.key(), cursor.value(), &mut **rows, false)? {
                    self.sort(record, row_id, &mut sorting)?;
                }
                cursor.next(&none)?;
            }
            if !cursor.valid() {
                break;
            }
            from = cursor.key().to_vec();
            cursor.close();
            told(&self.progress);
        }
        drop(cursor);
        self.progress.enter(Step::Sorting);
        told(&self.progress);
        match sorting.sorter.ingest(self.point.seq(), &tick)? {
            None => Ok(()),
            Some(same) => Err(self.duplicate(same, self.point.seq(), &mut **rows)),
        }
    }
}
