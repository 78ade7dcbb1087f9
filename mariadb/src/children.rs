//! The server's part where cascades change rows: virtual columns of child tables, and the time of the statement.

use crate::store::TableHandle;
use crate::types::{CCallbacks, TIME_BYTES};
use crate::waits::Thd;
use std::ffi::{CString, c_int};
use std::sync::Arc;
use strata_row::integrity::Computing;
use strata_row::table::Table;
use strata_row::{Error, Result};

/// The tables that a connection's statement has open.
pub struct Children {
    /// The server's functions.
    pub calls: CCallbacks,
    /// The connection.
    pub thd: Thd,
}

fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::invalid("a name with a zero in it"))
}

impl Computing for Children {
    fn time(&self) -> Result<Vec<u8>> {
        let time = self.calls.statement_time.ok_or_else(|| Error::invalid("the server does not tell the time"))?;
        let mut out = vec![0; TIME_BYTES];
        // SAFETY: the connection runs on this thread, and the header asks for so many bytes.
        unsafe { time(self.thd.0, out.as_mut_ptr()) };
        Ok(out)
    }

    fn table(&self, name: &str) -> Result<Arc<Table>> {
        let c_name = c_name(name)?;
        // SAFETY: the connection runs on this thread, and the handle is valid while the statement has the table open.
        let found = self
            .calls
            .child
            .and_then(|child| unsafe { child(self.thd.0, c_name.as_ptr()).cast::<TableHandle>().as_ref() });
        let missing = || Error::invalid(format!("table '{name}' is not open, and nobody computes its virtual columns"));
        found.map(|handle: &TableHandle| handle.table.clone()).ok_or_else(missing)
    }

    fn compute(&self, name: &str, record: &mut [u8], is_new: bool) -> Result<()> {
        let c_name = c_name(name)?;
        // SAFETY: the record is one of the table that was given out for this name.
        let call = |compute: unsafe extern "C" fn(_, _, _, _) -> _| unsafe {
            compute(self.thd.0, c_name.as_ptr(), record.as_mut_ptr(), c_int::from(is_new))
        };
        match self.calls.compute_child.map(call) {
            Some(0) => Ok(()),
            _ => Err(Error::Condition),
        }
    }
}
