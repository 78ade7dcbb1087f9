//! Tables WITH SYSTEM VERSIONING: which of their rows are of the past.
//!
//! The server writes such tables itself: a row that goes stays, with the time of the statement in the column of ROW END; one that changes
//! gets that time in ROW START, and its former values become another row, of the past. A row whose ROW END is the greatest time there is,
//! is a present one. To most of this layer all of them are rows like any other.
//!
//! Foreign keys are about present rows only ([`crate::integrity`]): a row of the past needs no parent and is none, and what a cascade does to
//! a row it does as the server would. That happens in tables which no handler has open; so the catalog has what it takes.
//!
//! The greatest time is that of the server that made the table: later series have a later one. The upgrade of the server writes the rows anew.
//!
//! Rejected: to find out by the greatest value that any row has. A table may have rows of the past only.

/// What SYSTEM VERSIONING says of a table. Columns are named by their numbers in a definition, and by their ids in the catalog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemVersions {
    /// The column of ROW START.
    pub start: u32,
    /// The column of ROW END.
    pub end: u32,
    /// What ROW END holds in a present row, as in the server's record.
    pub greatest: Vec<u8>,
    /// Columns WITHOUT SYSTEM VERSIONING, ascending: a change of these alone leaves nothing in the past.
    pub without: Vec<u32>,
}

impl SystemVersions {
    /// The same with other names of the columns; `None` if one has none.
    pub(crate) fn renamed(&self, name: impl Fn(u32) -> Option<u32>) -> Option<SystemVersions> {
        let mut without: Vec<u32> = self.without.iter().map(|column| name(*column)).collect::<Option<_>>()?;
        without.sort_unstable();
        Some(SystemVersions {
            start: name(self.start)?,
            end: name(self.end)?,
            greatest: self.greatest.clone(),
            without,
        })
    }
}
