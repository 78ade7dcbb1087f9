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
//! Rejected: to leave this to the administrator in each case (it is what other engines do that can be absent: the server
//! refuses to start, and `--tc-heuristic-recover` treats all transactions alike); to write the binary log's place with each
//! commit, as InnoDB does (bytes and instructions for each transaction, where one note for each file is enough).

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

/// Decides about transactions that the server has prepared, unless it will do so itself; `tell` gets lines for the error
/// log, with their severity. See the module.
///
/// Errors: the store's, and of a damaged note.
pub fn settle(store: &Store, start: &Start<'_>, tell: &dyn Fn(c_int, &str)) -> Result<()> {
    let engine = store.engine();
    let found = engine.prepared().into_iter();
    let open: Vec<_> = found.filter_map(|xid| own_number(&xid).map(|number| (xid, number))).collect();
    if open.is_empty() {
        return Ok(());
    }
    let wanted: HashSet<u64> = open.iter().map(|(_, (_, number))| *number).collect();
    let answer = match start.judge(store.decision_log()?.as_ref()) {
        Ok(Judge::Server) => return Ok(()),
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
    Ok(())
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
mod tests {
    use super::*;
    use crate::binlog::samples::{checkpoint, event, file, rotate, xid};
    use std::cell::RefCell;
    use strata_row::kv::{IndexId, Options};

    const KEY_INDEX: IndexId = IndexId(9);

    fn id(number: u64) -> Vec<u8> {
        let mut id = vec![1, 0, 0, 0, 0, 0, 0, 0, FIRST, 0];
        id.extend_from_slice(PREFIX);
        id.extend_from_slice(&7u64.to_le_bytes());
        id.extend_from_slice(&number.to_le_bytes());
        id
    }

    fn row(id: &[u8]) -> Vec<u8> {
        [&KEY_INDEX.prefix()[..], id].concat()
    }

    /// A store and a folder with binary logs.
    struct World {
        folder: tempfile::TempDir,
        store: Arc<Store>,
    }

    impl World {
        fn new() -> World {
            let folder = tempfile::tempdir().unwrap();
            let store = World::open(&folder);
            World { folder, store }
        }

        fn open(folder: &tempfile::TempDir) -> Arc<Store> {
            Store::open(&folder.path().join("store"), Options::default()).unwrap()
        }

        /// The next start of the store.
        fn restart(self) -> World {
            let World { folder, store } = self;
            store.close().unwrap();
            drop(store);
            let store = World::open(&folder);
            World { folder, store }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str, bytes: Vec<u8>) {
            std::fs::write(self.at(name), bytes).unwrap();
        }

        fn index(&self, names: &[&str]) -> PathBuf {
            let text: String = names.iter().map(|name| format!("{}\n", self.at(name).display())).collect();
            std::fs::write(self.at("bin.index"), text).unwrap();
            self.at("bin.index")
        }

        /// As in a run of the server whose binary log has this name: leaves transactions prepared.
        fn prepare(&self, log: &str, ids: &[Vec<u8>]) {
            let path = self.at(log);
            let decisions = Decisions::new(self.store.clone(), Box::new(move || Some(path.clone())));
            for id in ids {
                decisions.before_prepare().unwrap();
                self.leave(id, &row(id));
            }
        }

        fn leave(&self, id: &[u8], key: &[u8]) {
            let mut txn = self.store.engine().begin();
            txn.put(key, b"v").unwrap();
            txn.prepare(id).unwrap();
            txn.detach();
        }

        /// What the error log is told.
        fn settle(&self, index: Option<&Path>, is_over: bool) -> Vec<(c_int, String)> {
            let told: RefCell<Vec<(c_int, String)>> = RefCell::default();
            let start = Start { binlog_index: index, tc_log: &self.at("tc.log"), is_over };
            let tell = |severity, what: &str| told.borrow_mut().push((severity, what.to_owned()));
            settle(&self.store, &start, &tell).unwrap();
            told.into_inner()
        }

        fn has(&self, id: &[u8]) -> bool {
            let engine = self.store.engine();
            engine.get_at(&row(id), engine.visible(), &mut Vec::new()).unwrap()
        }

        fn prepared(&self) -> Vec<Vec<u8>> {
            self.store.engine().prepared()
        }
    }

    /// The run that prepared 5 and 6 crashed, when it had written 5 to its log.
    fn crashed() -> World {
        let world = World::new();
        world.write("bin.000003", file(30, true, true, &[checkpoint("bin.000003"), xid(5)]));
        world.prepare("bin.000003", &[id(5), id(6)]);
        world.restart()
    }

    #[test]
    fn the_server_decides_where_its_newest_log_is_the_one_that_crashed() {
        let world = crashed();
        let index = world.index(&["bin.000002", "bin.000003"]);
        assert!(world.settle(Some(&index), false).is_empty());
        assert_eq!(world.prepared(), [id(5), id(6)]);
        // It has recovered already, without this engine.
        world.settle(Some(&index), true);
        assert!(world.prepared().is_empty() && world.has(&id(5)) && !world.has(&id(6)));
    }

    /// However the run without the engine ended, and however many there were.
    #[test]
    fn after_a_run_without_the_engine_its_own_log_decides() {
        for (in_use, own) in [(false, false), (true, false), (true, true)] {
            let world = crashed();
            // Numbers begin anew with each run: here 6 is another transaction.
            world.write("bin.000004", file(40, true, in_use, &[checkpoint("bin.000004"), xid(6)]));
            let index = world.index(&["bin.000003", "bin.000004"]);
            let told = world.settle(Some(&index).filter(|_| !own).map(PathBuf::as_path), false);
            assert!(world.prepared().is_empty() && world.has(&id(5)) && !world.has(&id(6)), "{told:?}");
            assert!(told.len() == 1 && told[0].0 == 0 && told[0].1.contains("000003 have 1:"), "{told:?}");
            let world = world.restart();
            assert!(world.prepared().is_empty() && world.has(&id(5)) && !world.has(&id(6)));
        }
    }

    #[test]
    fn all_files_of_the_run_are_read() {
        let world = World::new();
        world.write("bin.000003", file(30, true, false, &[checkpoint("bin.000003"), rotate()]));
        world.prepare("bin.000003", &[id(5), id(6), id(7)]);
        world.write("bin.000003", file(30, true, false, &[checkpoint("bin.000003"), xid(5), rotate()]));
        world.write("bin.000004", file(31, false, true, &[checkpoint("bin.000003"), xid(6)]));
        world.write("bin.000005", file(32, true, false, &[checkpoint("bin.000005"), xid(7)]));
        let index = world.index(&["bin.000003", "bin.000004", "bin.000005"]);
        world.settle(Some(&index), false);
        assert!(world.has(&id(5)) && world.has(&id(6)) && !world.has(&id(7)) && world.prepared().is_empty());
    }

    /// A transaction whose spilled rows are damaged does not keep the server from starting, whoever decides about it.
    #[test]
    fn one_that_is_damaged_is_set_aside_and_the_start_goes_on() {
        for server_decides in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let small = || Options { transaction_bytes: 64 << 10, ..Options::default() };
            let open = || Store::open(&folder.path().join("store"), small()).unwrap();
            let world = World { store: open(), folder: tempfile::tempdir().unwrap() };
            let body = [checkpoint("bin.000003"), xid(5), xid(6)];
            world.write("bin.000003", file(30, true, true, &body));
            world.prepare("bin.000003", &[id(6)]);
            let mut large = world.store.engine().begin();
            for n in 0..2000u32 {
                large.put(&row(&n.to_be_bytes()), &[n as u8; 100]).unwrap();
            }
            large.prepare(&id(5)).unwrap();
            large.detach();
            drop(large);
            let World { store, folder: logs } = world;
            store.close().unwrap();
            drop(store);
            // Spills that were merged since are gone with the closing.
            let files = std::fs::read_dir(folder.path().join("store")).unwrap().map(|entry| entry.unwrap().path());
            let spilled = files.filter(|path| path.extension().is_some_and(|end| end == "sst"));
            let largest = spilled.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
            let mut bytes = std::fs::read(&largest).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&largest, bytes).unwrap();

            let world = World { store: open(), folder: logs };
            let told: RefCell<Vec<(c_int, String)>> = RefCell::default();
            let tell = |severity, what: &str| told.borrow_mut().push((severity, what.to_owned()));
            if server_decides {
                assert!(matches!(
                    commit(&world.store, &id(5), &tell),
                    Err(Error::Engine(kv::Error::Corruption { .. }))
                ));
                assert!(commit(&world.store, &id(6), &tell).unwrap());
            } else {
                let index = world.index(&["bin.000003"]);
                settle(&world.store, &Start { binlog_index: Some(&index), tc_log: &index, is_over: true }, &tell)
                    .unwrap();
            }
            let told = told.into_inner();
            let name = largest.file_name().unwrap().to_str().unwrap();
            let is_told =
                |(severity, what): &(c_int, String)| *severity == 2 && what.contains(name) && what.contains("offset");
            assert_eq!(told.iter().filter(|line| is_told(line)).count(), 1, "{told:?}");
            assert!(world.has(&id(6)) && !world.has(&7u32.to_be_bytes()), "{told:?}");
            assert_eq!(world.prepared(), [users(&id(5), 0)]);
            assert!(world.store.engine().rollback_prepared(&users(&id(5), 0)).unwrap());
        }
    }

    /// It stays prepared as a user's transaction, also at the start after one that crashed, and beside another of that number.
    #[test]
    fn where_the_log_is_gone_nothing_is_guessed_at_any_start() {
        let mut world = crashed();
        for n in 0..2 {
            std::fs::remove_file(world.at("bin.000003")).unwrap();
            world.write("bin.000004", file(40, true, true, &[checkpoint("bin.000004"), xid(5)]));
            let index = world.index(&["bin.000004"]);
            let told = world.settle(Some(&index), false);
            assert!(told.len() == 2 && told.iter().all(|(severity, text)| *severity == 1 && text.contains("Xid = ")));
            let mut expected: Vec<_> = (0..=n).flat_map(|n| [users(&id(5), n), users(&id(6), n)]).collect();
            expected.sort();
            assert_eq!(world.prepared(), expected);
            assert!(expected.iter().all(|xid| own_number(xid).is_none()));
            // The next run has transactions of the same numbers, and crashes, too.
            world.write("bin.000003", file(50, true, true, &[checkpoint("bin.000003"), xid(5)]));
            if n == 0 {
                world.prepare("bin.000003", &[]);
                for id in [id(5), id(6)] {
                    world.leave(&id, &row(&[&id[..], b"2"].concat()));
                }
            }
            world = world.restart();
        }
        assert_eq!(world.prepared().len(), 4);
        assert!(world.store.engine().commit_prepared(&users(&id(5), 0)).unwrap() && world.has(&id(5)));
    }

    #[test]
    fn another_file_of_the_same_name_does_not_count() {
        let world = crashed();
        world.write("bin.000003", file(31, true, true, &[checkpoint("bin.000003"), xid(5), xid(6)]));
        let index = world.index(&["bin.000003"]);
        assert_eq!(world.settle(Some(&index), false).len(), 2);
        assert_eq!(world.prepared(), [users(&id(5), 0), users(&id(6), 0)]);
    }

    #[test]
    fn an_encrypted_log_is_left_to_the_server_or_nothing_is_guessed() {
        let world = crashed();
        world.write("bin.000003", file(30, true, true, &[event(164, 0, b"key")]));
        let index = world.index(&["bin.000003"]);
        assert!(world.settle(Some(&index), false).is_empty());
        world.settle(None, false);
        assert_eq!(world.prepared(), [users(&id(5), 0), users(&id(6), 0)]);
    }

    #[test]
    fn users_transactions_are_left_alone() {
        let world = crashed();
        let mut own = id(5);
        own[9] = 1;
        own.push(b'b');
        world.prepare("bin.000003", &[own.clone(), b"short".to_vec()]);
        world.settle(None, false);
        assert_eq!(world.prepared(), [own, b"short".to_vec()]);
    }

    /// Without binary logs the server has a log of another form, of which only it knows what it says.
    #[test]
    fn without_binary_logs_the_server_decides_by_its_other_log() {
        for (note, is_there) in [(true, true), (true, false), (false, true), (false, false)] {
            let world = World::new();
            if note {
                Decisions::new(world.store.clone(), Box::new(|| None)).before_prepare().unwrap();
            }
            world.leave(&id(5), &row(&id(5)));
            let world = world.restart();
            if is_there {
                world.write("tc.log", vec![]);
                world.settle(None, false);
                assert_eq!(world.prepared(), [id(5)]);
            }
            world.settle(None, is_there);
            assert_eq!(world.prepared(), [users(&id(5), 0)]);
        }
    }

    /// Of an earlier build there is no note.
    #[test]
    fn without_a_note_the_newest_log_counts() {
        for (in_use, is_over, own) in [(true, false, true), (false, false, false), (true, true, false)] {
            let world = World::new();
            world.leave(&id(5), &row(&id(5)));
            let world = world.restart();
            world.write("bin.000001", file(1, true, in_use, &[]));
            let index = world.index(&["bin.000001"]);
            world.settle(Some(&index), is_over);
            assert_eq!(world.prepared(), [if own { id(5) } else { users(&id(5), 0) }]);
        }
    }

    #[test]
    fn each_file_is_noted_before_the_first_transaction_is_prepared_in_it() {
        let world = World::new();
        let name = Arc::new(Mutex::new("bin.000001"));
        let (now, folder) = (name.clone(), world.folder.path().to_owned());
        let decisions = Decisions::new(world.store.clone(), Box::new(move || Some(folder.join(*now.lock()))));
        let noted = || match world.store.decision_log().unwrap() {
            Some(DecisionLog::File { path, created }) => Some((PathBuf::from(OsString::from_vec(path)), created)),
            _ => None,
        };
        assert!(decisions.before_prepare().is_err(), "no file of this name");
        assert!(noted().is_none());
        world.write("bin.000001", file(1, true, true, &[]));
        decisions.before_prepare().unwrap();
        assert_eq!(noted(), Some((world.at("bin.000001"), 1)));
        *name.lock() = "bin.000002";
        decisions.before_prepare().unwrap();
        assert_eq!(noted(), Some((world.at("bin.000001"), 1)), "nobody is asked again and again");
        decisions.rotated();
        decisions.before_prepare().unwrap();
        assert_eq!(noted(), Some((world.at("bin.000001"), 1)), "the older one leads to it, too");
        world.write("bin.000002", file(2, false, true, &[]));
        decisions.before_prepare().unwrap();
        assert_eq!(noted(), Some((world.at("bin.000002"), 2)));
    }
}
