//! The values of a record, column by column, for those who know what they mean: tools that read a table without a server.

use super::Record;
use super::layout::Layout;
use crate::def::TableDef;
use crate::keycode::Result;

/// Takes records of one table apart.
pub struct Values {
    layouts: Vec<Layout>,
}

impl Values {
    /// For records of `def`.
    pub fn new(def: &TableDef) -> Result<Values> {
        let layouts = (0..def.columns.len()).map(|column| Layout::of(def, column)).collect::<Result<_>>()?;
        Ok(Values { layouts })
    }

    /// The value of a column: of a text without its length, of a CHAR without its padding, all else as in the record; `None` is NULL.
    pub fn get<'a>(&self, record: Record<'a>, column: usize) -> Option<&'a [u8]> {
        self.layouts[column].carried(record)
    }
}
