//! Will the server decide, at this start, about the transactions that it left prepared?
//!
//! It does so only if its own log was not closed: the newest binary log is marked as in use or, without binary logs, there
//! is a `tc.log`. Then it lists what the engines have prepared, commits what its log says, and rolls back the rest. Otherwise
//! it expects to find nothing, and refuses to start if it does find a transaction of its own.
//!
//! It may find some nevertheless: after a crash it was once started without this engine, decided about the others'
//! transactions, and began a new log. What it knew of ours is then in an older binary log only, which it does not read
//! again. Neither answer may be guessed, and one such transaction must not keep the server down. So it is shown to the server
//! as if a user had prepared it: it stays prepared, with its locks, until somebody decides (README).

use crate::outcome::guard_value;
use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// First bytes of a binary log.
const MAGIC: &[u8] = b"\xfebin";
/// Where the flags of its first event are, and which of them says that the file was not closed.
const FLAGS_OFFSET: usize = 4 + 17;
const IN_USE: u8 = 1;

/// True if the first bytes of a binary log say that it was not closed. Of what cannot be told too: the server reports it.
fn is_in_use(head: &[u8]) -> bool {
    !head.starts_with(MAGIC) || head.get(FLAGS_OFFSET).is_none_or(|flags| flags & IN_USE != 0)
}

/// The newest binary log that an index names.
fn newest(index: &str) -> Option<&str> {
    index.lines().map(str::trim).rfind(|line| !line.is_empty())
}

fn decides(binlog_index: Option<&Path>, tc_log: &Path) -> bool {
    let Some(index) = binlog_index else { return tc_log.exists() };
    let Ok(text) = std::fs::read_to_string(index) else {
        // None was written yet.
        return index.exists();
    };
    let Some(name) = newest(&text) else { return false };
    let mut head = Vec::new();
    let read = File::open(name).and_then(|file| file.take(FLAGS_OFFSET as u64 + 1).read_to_end(&mut head));
    read.is_err() || is_in_use(&head)
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strata_server_decides(binlog_index: *const c_char, tc_log: *const c_char) -> c_int {
    guard_value(1, || {
        let path = |text: *const c_char| {
            // SAFETY: the header asks for a text that ends with 0, or null.
            let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })?;
            Some(Path::new(text.to_str().ok()?))
        };
        let Some(tc_log) = path(tc_log) else { return 1 };
        if !binlog_index.is_null() && path(binlog_index).is_none() {
            return 1;
        }
        c_int::from(decides(path(binlog_index), tc_log))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_was_not_closed_is_recovered_from() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut head = b"\xfebin\0\0\0\0\x0f\x01\0\0\0\xf4\0\0\0\xf8\0\0\0\0\0".to_vec();
        std::fs::write(at("closed"), &head).unwrap();
        head[FLAGS_OFFSET] |= IN_USE;
        std::fs::write(at("open"), &head).unwrap();
        std::fs::write(at("short"), &head[..9]).unwrap();
        let index = at("index");
        let with = |names: &[&str]| {
            let lines: String = names.iter().map(|name| format!("{}\n", at(name).display())).collect();
            std::fs::write(&index, lines).unwrap();
            decides(Some(&index), &at("tc.log"))
        };
        assert!(with(&["closed", "open"]) && !with(&["open", "closed"]) && with(&["closed", "short"]));
        assert!(with(&["gone"]) && !with(&[]));
        assert!(!decides(Some(&at("no index")), &at("tc.log")));
        assert!(!decides(None, &at("tc.log")));
        std::fs::write(at("tc.log"), "").unwrap();
        assert!(decides(None, &at("tc.log")));
        assert!(!decides(Some(&at("no index")), &at("tc.log")), "with binary logs that file means nothing");
    }
}
