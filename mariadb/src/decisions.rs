//! What becomes, at a start, of transactions that the server has prepared, and that a crash left so.
//!
//! The server decides about them if the log that it keeps for that is the last one and was not closed: the newest binary
//! log, or `tc.log` without binary logs. Then it commits what this log has, and rolls back the rest. What the store
//! prepared is in that log only if the server has not run without this engine since: such a run recovers the others'
//! transactions, closes the matter and begins a log of its own. At the next start the server would refuse to go on, or
//! would look up our transactions in the wrong log (its numbers begin anew with each run), and roll back what was acknowledged.
//!
//! So the store remembers which file the log of its transactions begins with: [`Decisions::before_prepare`] notes it durably
//! before the first one is prepared in a run of the server, and before the next one after the server went on to another
//! file. At a start [`settle`] compares:
//!
//! | the last file of that run | |
//! |---|---|
//! | is the server's newest, and was not closed | the server decides |
//! | is older, or was closed | what it has is committed, the rest is rolled back, here, by the same rule |
//! | cannot be read: purged, encrypted, no longer there | nothing is guessed |
//!
//! In the last case a transaction stays prepared, with its locks, under another id: its own with a second part, which
//! makes it a user's for the server. `XA RECOVER` lists it, and somebody decides (docs/use/errors.md). The id is changed
//! durably, so that no later start takes it for one of its own time.
//!
//! The same becomes of one that is to be committed, by the server's decision or by this module's, whose rows are damaged on
//! disk: the server does not ask again about a transaction that it has decided about, and its later runs give the number to
//! others.
//!
//! What the server has rolled back is put off until it has decided about all: see [`undone`].
//!
//! Rejected: to leave this to the administrator in each case (it is what other engines do that can be absent: the server
//! refuses to start, and `--tc-heuristic-recover` treats all transactions alike); to write the binary log's place with each
//! commit, as InnoDB does (bytes and instructions for each transaction, where one note for each file is enough).

pub mod undone;

use crate::binlog::{self, Unknown};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ffi::{OsString, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strata_row::catalog::format::DecisionLog;
use strata_row::store::Store;
use strata_row::{Error, Result, kv};

/// What the server gives to its own transactions as the first part of their ids, before its number and theirs.
const PREFIX: &[u8] = b"MySQLXid";
/// Bytes of the first part.
const FIRST: u8 = 24;
/// Where parts begin in the bytes of an id (mariadb/cc/handlerton.cc): format and two lengths stand before.
const PARTS: usize = 10;
/// The second part of the id of one that nobody can decide about.
const UNDECIDED: &[u8] = b"undecided";

/// Commits a prepared transaction, for the server. If its rows are damaged on disk and the server has prepared it, it becomes a
/// user's, which [`tell`](settle) explains. False if there is none of this id.
///
/// Errors: the store's, and the damage.
pub fn commit(store: &Store, xid: &[u8], tell: &dyn Fn(c_int, &str)) -> Result<bool> {
    let engine = store.engine();
    let error = match engine.commit_prepared(xid) {
        Err(error @ kv::Error::Corruption { .. }) => error,
        done => return Ok(done?),
    };
    if let Some((server, number)) = own_number(xid) {
        set_aside(store, xid)?;
        let what = format!(
            "the server prepared a transaction (Xid = {number} of server {server}) before a crash, and its log says that it is \
             committed, but what it wrote cannot be read: {error}. It stays prepared and keeps its locks. XA RECOVER \
             FORMAT='SQL' names it; XA ROLLBACK gives its locks and files back; the binary log has its changes"
        );
        tell(2, &what);
    }
    Err(error.into())
}

/// Makes a transaction of the server's a user's.
fn set_aside(store: &Store, xid: &[u8]) -> Result<()> {
    let engine = store.engine();
    let taken: HashSet<Vec<u8>> = engine.prepared().into_iter().collect();
    let free = (0..).map(|n| users(xid, n)).find(|to| !taken.contains(to));
    engine.rename_prepared(xid, &free.unwrap_or_default())?;
    Ok(())
}

/// The server's and the transaction's number, if the server made this id.
fn own_number(xid: &[u8]) -> Option<(u64, u64)> {
    let parts = xid.get(PARTS..)?;
    if xid[8] != FIRST || xid[9] != 0 || parts.len() != usize::from(FIRST) || !parts.starts_with(PREFIX) {
        return None;
    }
    let number = |at: usize| parts.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    Some((number(8)?, number(16)?)).filter(|&(_, number)| number != 0)
}

/// An id with a second part, which the server does not take for its own; the `n`-th.
fn users(xid: &[u8], n: usize) -> Vec<u8> {
    let mut second = UNDECIDED.to_vec();
    if n > 0 {
        second.extend_from_slice(n.to_string().as_bytes());
    }
    let mut users = xid.to_vec();
    users[9] = second.len() as u8;
    users.extend_from_slice(&second);
    users
}

/// What the server works with at this start.
pub struct Start<'a> {
    /// The index of its binary logs, if it writes any.
    pub binlog_index: Option<&'a Path>,
    /// The log that serves without them.
    pub tc_log: &'a Path,
    /// It has recovered already: the engine was loaded while it ran.
    pub is_over: bool,
}

/// Who decides.
#[derive(PartialEq, Eq, Debug)]
enum Judge {
    Server,
    /// The logs that end with this file.
    Logs(PathBuf),
}

fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

impl Start<'_> {
    /// Whether the server has a log that was not closed, and whether it is the one that ends with `last`, if that is known.
    /// Of one that makes no sense, too: the server reports it.
    fn decides(&self, last: Option<&Path>) -> bool {
        let Some(index) = self.binlog_index else {
            return !self.is_over && last.is_none() && self.tc_log.exists();
        };
        let newest = match binlog::newest(index) {
            Ok(Some(newest)) => newest,
            Ok(None) => return false,
            Err(_) => return !self.is_over && last.is_none(),
        };
        let in_use = binlog::head(&newest).map_or(last.is_none(), |head| head.in_use);
        !self.is_over && in_use && last.is_none_or(|last| is_same(last, &newest))
    }

    fn judge(&self, noted: Option<&DecisionLog>) -> std::result::Result<Judge, Unknown> {
        match noted {
            // An earlier build prepared them: the server's word has to be good enough.
            None if self.decides(None) => Ok(Judge::Server),
            None => Err("the store does not know which log has it".into()),
            Some(DecisionLog::None) if self.binlog_index.is_none() && self.decides(None) => Ok(Judge::Server),
            Some(DecisionLog::None) => Err("there was no binary log when it was prepared".into()),
            Some(DecisionLog::File { path, created }) => {
                let first = PathBuf::from(OsString::from_vec(path.clone()));
                let last = binlog::last_of_run(&first, *created)?;
                match self.decides(Some(&last)) {
                    true => Ok(Judge::Server),
                    false => Ok(Judge::Logs(last)),
                }
            }
        }
    }
}

/// Decides about transactions that the server has prepared, unless it will do so itself: whether it will. `tell` gets lines for the error
/// log, with their severity. See the module.
///
/// Errors: the store's, and of a damaged note.
pub fn settle(store: &Store, start: &Start<'_>, tell: &dyn Fn(c_int, &str)) -> Result<bool> {
    let engine = store.engine();
    let found = engine.prepared().into_iter();
    let open: Vec<_> = found.filter_map(|xid| own_number(&xid).map(|number| (xid, number))).collect();
    if open.is_empty() {
        return Ok(false);
    }
    let wanted: HashSet<u64> = open.iter().map(|(_, (_, number))| *number).collect();
    let answer = match start.judge(store.decision_log()?.as_ref()) {
        Ok(Judge::Server) => return Ok(true),
        Ok(Judge::Logs(last)) => binlog::complete(&last, &wanted).map(|found| (last, found)),
        Err(why) => Err(why),
    };
    match answer {
        Ok((last, found)) => {
            let mut damaged = 0;
            for (xid, (_, number)) in &open {
                match found.contains(number) {
                    true => match commit(store, xid, tell) {
                        Err(Error::Engine(kv::Error::Corruption { .. })) => damaged += 1,
                        done => drop(done?),
                    },
                    false => drop(engine.rollback_prepared(xid)?),
                }
            }
            let what = format!(
                "a crash left transactions prepared ({}) about which the server does not decide at this start. Of these the \
                 binary logs up to {} have {}: they are committed now, the others are rolled back",
                open.len() - damaged,
                last.display(),
                open.iter().filter(|(_, (_, number))| found.contains(number)).count() - damaged
            );
            tell(0, &what);
        }
        Err(why) => {
            for (xid, (server, number)) in &open {
                set_aside(store, xid)?;
                let what = format!(
                    "the server prepared a transaction (Xid = {number} of server {server}) before a crash, and it cannot be told \
                     any more whether it was committed: {why}. It stays prepared and keeps its locks. If the binary log from \
                     before the crash has this Xid, commit it, else roll it back: XA RECOVER FORMAT='SQL' names it; SET \
                     sql_log_bin=0 before XA COMMIT or XA ROLLBACK"
                );
                tell(1, &what);
            }
        }
    }
    Ok(false)
}

/// Tells the name of the binary log that the server writes now, if any.
pub type Current = Box<dyn Fn() -> Option<PathBuf> + Send + Sync>;

/// Keeps the store's note of the server's log. One for each run of the server.
pub struct Decisions {
    store: Arc<Store>,
    current: Current,
    /// Files that the server has gone on to, the first one included.
    files: AtomicU64,
    /// How many they were when the note was made; 0: not in this run.
    noted: AtomicU64,
    noting: Mutex<()>,
}

impl Decisions {
    /// For a run that begins.
    pub fn new(store: Arc<Store>, current: Current) -> Decisions {
        Decisions { store, current, files: AtomicU64::new(1), noted: AtomicU64::new(0), noting: Mutex::default() }
    }

    /// The server has gone on to another file of its log, or is about to.
    pub fn rotated(&self) {
        self.files.fetch_add(1, Ordering::AcqRel);
    }

    /// Sees to it, before the server prepares a transaction, that the store knows where its decision will be. May wait for the
    /// server's mutex over its log.
    ///
    /// Errors: those of a write, if no transaction was prepared in this run before. Later ones may go on with the note
    /// there is: it leads to the newer files, or to none.
    #[inline]
    pub fn before_prepare(&self) -> Result<()> {
        match self.noted.load(Ordering::Acquire) == self.files.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.note(),
        }
    }

    #[cold]
    fn note(&self) -> Result<()> {
        let _noting = self.noting.lock();
        // Before the name is asked for: what rotates from here on asks for another note.
        let files = self.files.load(Ordering::Acquire);
        let noted = self.noted.load(Ordering::Acquire);
        if noted == files {
            return Ok(());
        }
        match self.write() {
            Ok(()) => self.noted.store(files, Ordering::Release),
            Err(error) if noted == 0 => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    fn write(&self) -> Result<()> {
        let place = match (self.current)() {
            None => DecisionLog::None,
            Some(path) => {
                let head = binlog::head(&path).map_err(Error::invalid)?;
                DecisionLog::File { path: path.as_os_str().as_bytes().to_vec(), created: head.created }
            }
        };
        if self.store.decision_log()?.as_ref() != Some(&place) {
            self.store.set_decision_log(&place)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
