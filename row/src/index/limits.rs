//! Limits of a definition, checked when a table is created.

use crate::def::TableDef;
use crate::error::{Error, Result};
use crate::keycode::KeyCodec;
use crate::kv::IndexId;
use crate::kv::limits::KEY_BYTES_MAX;

/// Builds the codecs as an open would and checks that the longest keys fit.
pub fn check(def: &TableDef) -> Result<()> {
    let id = IndexId(crate::catalog::format::FIRST_INDEX_ID);
    for i in 0..def.indexes.len() {
        let bytes = KeyCodec::new(def, Some(i), id, id)?.max_key_bytes();
        if bytes > KEY_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "index '{}' needs keys of up to {bytes} bytes, the limit is {KEY_BYTES_MAX}",
                def.indexes[i].name
            )));
        }
    }
    Ok(())
}
