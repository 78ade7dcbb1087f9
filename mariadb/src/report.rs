//! What the server shows of the store: status variables, the status report, tables of information_schema.

use crate::outcome::{guard_value, reference};
use crate::store::{StoreHandle, on_store};
use crate::types::{CCell, CMetric, EmitText};
use std::ffi::{CString, c_int, c_void};
use std::sync::LazyLock;
use strata_row::report::{self, Cell, storage};
use strata_row::{Error, metrics};

/// The names of the figures, in the order of their values.
static NAMES: LazyLock<Vec<CString>> = LazyLock::new(|| {
    let name = |metric: &strata_row::kv::Metric| CString::new(metric.name).unwrap_or_default();
    metrics::metrics().into_iter().map(name).collect()
});

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_metrics(store: *mut StoreHandle, out: *mut CMetric, cap: usize) -> usize {
    guard_value(0, || {
        let Ok(handle) = (unsafe { reference(store) }) else {
            return 0;
        };
        let values = metrics::values(&handle.store);
        // So that who compares the two finds the same.
        if let Some(memory) = &handle.memory {
            memory.tell(handle.store.engine());
        }
        if !out.is_null() {
            for (i, (name, (_, value))) in NAMES.iter().zip(&values).take(cap).enumerate() {
                unsafe { out.add(i).write(CMetric { name: name.as_ptr(), value: *value }) };
            }
        }
        values.len()
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_status(store: *mut StoreHandle, emit: Option<EmitText>, ctx: *mut c_void) -> c_int {
    unsafe {
        on_store(store, |s| {
            let status = metrics::status_text(&s.store);
            if let Some(emit) = emit {
                emit(ctx, status.as_ptr().cast(), status.len());
            }
            Ok(())
        })
    }
}

/// An id as XA COMMIT takes it: the parts in hexadecimal, unless they are plain text, and the format.
fn shown_xid(xid: &[u8]) -> String {
    let part = |bytes: &[u8]| match bytes.iter().all(|byte| byte.is_ascii_graphic() && !b"'\\".contains(byte)) {
        true => format!("'{}'", String::from_utf8_lossy(bytes)),
        false => report::hex(bytes),
    };
    let shown = || {
        let (format, rest) = xid.split_first_chunk::<8>()?;
        let ([first, second], parts) = rest.split_first_chunk::<2>()?;
        let (first, rest) = parts.split_at_checked(usize::from(*first))?;
        let second = rest.get(..usize::from(*second))?;
        Some(format!("{},{},{}", part(first), part(second), i64::from_le_bytes(*format)))
    };
    shown().unwrap_or_else(|| part(xid))
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_report(
    store: *mut StoreHandle,
    which: u32,
    emit: Option<unsafe extern "C" fn(*mut c_void, *const CCell, usize)>,
    ctx: *mut c_void,
) -> c_int {
    unsafe {
        on_store(store, |s| {
            let rows = match which {
                0 => report::locks(&s.store),
                1 => report::lock_waits(&s.store),
                2 => report::transactions(&s.store, &shown_xid),
                3 => metrics::rows(&s.store),
                4 => report::foreign_keys(&s.store),
                5 => report::builds(&s.store),
                6 => storage::tables(&s.store),
                7 => storage::indexes(&s.store),
                8 => storage::levels(&s.store),
                9 => storage::compactions(&s.store),
                n => return Err(Error::invalid(format!("there is no report {n}"))),
            };
            let Some(emit) = emit else { return Ok(()) };
            for row in &rows {
                let cells: Vec<CCell> = row
                    .iter()
                    .map(|cell| match cell {
                        Cell::Number(number) => CCell { text: std::ptr::null(), len: 0, number: *number },
                        Cell::Text(text) => CCell { text: text.as_ptr().cast(), len: text.len(), number: 0 },
                    })
                    .collect();
                emit(ctx, cells.as_ptr(), cells.len());
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_as_statements_take_them() {
        let xid = |first: &[u8], second: &[u8], format: i64| {
            let lengths = [first.len() as u8, second.len() as u8];
            [&format.to_le_bytes()[..], &lengths, first, second].concat()
        };
        assert_eq!(shown_xid(&xid(b"a", b"", 1)), "'a','',1");
        assert_eq!(shown_xid(&xid(b"it's", b"b\\", -1)), "0x69742773,0x625c,-1");
        assert_eq!(shown_xid(&xid(b"MySQLXid\x01\0", b"x", 1)), "0x4d7953514c5869640100,'x',1");
        assert_eq!(shown_xid(b"torn"), "'torn'");
    }
}
