//! The server's collations behind the row layer's trait.

use crate::outcome::text;
use crate::types::{CCallbacks, CCollation};
use std::ffi::{CString, c_void};
use std::sync::Arc;
use strata_row::def::{Collation, CollationTraits, Library};
use strata_row::{Error, Result};

/// Bytes of an identifier, in UTF-8, and its end: 64 characters.
const IDENTIFIER_MAX: usize = 64 * 4 + 1;

const PAD: u32 = 1;
const BYTES: u32 = 2;
const BINARY: u32 = 4;
const MULTILEVEL: u32 = 8;
const TWO_FORMS: u32 = 16;

/// One collation of the server.
#[derive(Clone)]
pub struct ServerCollation {
    id: u32,
    name: String,
    traits: CollationTraits,
    form: u8,
    newest_form: u8,
    cs: *const c_void,
    calls: CCallbacks,
}

// SAFETY: `cs` is an immutable object of the server that lives as long as the process; its functions may be called from any
// thread.
unsafe impl Send for ServerCollation {}
// SAFETY: as above.
unsafe impl Sync for ServerCollation {}

impl ServerCollation {
    /// From the header's structure; `None` if it stands for "no collation".
    pub fn from_header(c: &CCollation, calls: &CCallbacks) -> Result<Option<Arc<dyn Collation>>> {
        if c.name.is_null() {
            return Ok(None);
        }
        if calls.weights.is_none() || calls.weights_max.is_none() || calls.weights_padded.is_none() {
            return Err(Error::invalid("collation call-backs are missing"));
        }
        // SAFETY: the header promises a 0-terminated name.
        let name = unsafe { text(c.name)? }.to_owned();
        let byte = |n: u32| u8::try_from(n).map_err(|_| Error::invalid("a character of more than 255 bytes"));
        let traits = CollationTraits {
            pad: c.flags & PAD != 0,
            bytes: c.flags & BYTES != 0,
            binary: c.flags & BINARY != 0,
            multilevel: c.flags & MULTILEVEL != 0,
            mbminlen: byte(c.mbminlen)?,
            mbmaxlen: byte(c.mbmaxlen)?,
        };
        let newest_form = if c.flags & TWO_FORMS != 0 { 2 } else { 1 };
        let (cs, calls) = (c.cs, *calls);
        Ok(Some(Arc::new(ServerCollation { id: c.id, name, traits, form: newest_form, newest_form, cs, calls })))
    }

    fn bound(&self, bytes: usize) -> usize {
        match self.calls.weights_max {
            // SAFETY: `cs` is alive.
            Some(max) => unsafe { max(self.cs, bytes) },
            None => 0,
        }
    }

    fn fill(&self, call: Option<crate::types::WeightsFn>, source: &[u8], chars: usize, cap: usize, out: &mut Vec<u8>) {
        let Some(call) = call else { return };
        out.reserve(cap);
        let start = out.len();
        // SAFETY: `cs` is alive; the spare capacity holds `cap` bytes, of which the call says how many it wrote.
        unsafe {
            let n = call(
                self.cs,
                u32::from(self.form),
                source.as_ptr(),
                source.len(),
                chars,
                out.as_mut_ptr().add(start),
                cap,
            );
            out.set_len(start + n.min(cap));
        }
    }
}

/// The server's collations, by number.
pub struct ServerLibrary(pub CCallbacks);

impl Library for ServerLibrary {
    fn identifier(&self, part: &str) -> String {
        let Ok(from) = CString::new(part) else { return part.to_owned() };
        let mut to = vec![0u8; IDENTIFIER_MAX];
        // SAFETY: a text that ends with 0, and a buffer of the length that is told.
        let len = self.0.identifier.map(|decode| unsafe { decode(from.as_ptr(), to.as_mut_ptr().cast(), to.len()) });
        to.truncate(len.unwrap_or(0));
        String::from_utf8(to).ok().filter(|text| !text.is_empty()).unwrap_or_else(|| part.to_owned())
    }

    fn collation(&self, id: u32, name: &str) -> Option<Arc<dyn Collation>> {
        let (name_ptr, cs) = (std::ptr::null(), std::ptr::null());
        let mut found = CCollation { id: 0, flags: 0, mbminlen: 0, mbmaxlen: 0, name: name_ptr, cs };
        // SAFETY: the call fills the structure, as the header says.
        if unsafe { self.0.find?(id, &mut found) } == 0 {
            return None;
        }
        // A server release may give the number to another collation.
        ServerCollation::from_header(&found, &self.0).ok()?.filter(|collation| collation.name() == name)
    }
}

impl Collation for ServerCollation {
    fn id(&self) -> u32 {
        self.id
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn traits(&self) -> CollationTraits {
        self.traits
    }
    fn form(&self) -> u8 {
        self.form
    }
    fn in_form(&self, form: u8) -> Option<Arc<dyn Collation>> {
        let known = (1..=self.newest_form).contains(&form);
        known.then(|| Arc::new(ServerCollation { form, ..self.clone() }) as Arc<dyn Collation>)
    }
    fn weights(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        // No text has more characters than bytes; the server counts in 32 bits.
        let chars = max_chars.min(text.len());
        self.fill(self.calls.weights, text, chars, self.bound(text.len()), out);
    }
    fn weights_padded(&self, text: &[u8], max_chars: usize, out: &mut Vec<u8>) {
        let full = max_chars.saturating_mul(usize::from(self.traits.mbmaxlen)).max(text.len());
        self.fill(self.calls.weights_padded, text, max_chars, self.bound(full), out);
    }
    fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
        match self.calls.prefix_bytes {
            // SAFETY: `cs` is alive.
            Some(call) => unsafe { call(self.cs, text.as_ptr(), text.len(), chars) }.min(text.len()),
            None => text.len(),
        }
    }
}
