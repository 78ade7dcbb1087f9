//! Tests of what becomes of transactions that a crash has left in doubt.

use super::undone::Undone;
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
            assert!(matches!(commit(&world.store, &id(5), &tell), Err(Error::Engine(kv::Error::Corruption { .. }))));
            assert!(commit(&world.store, &id(6), &tell).unwrap());
        } else {
            let index = world.index(&["bin.000003"]);
            settle(&world.store, &Start { binlog_index: Some(&index), tc_log: &index, is_over: true }, &tell).unwrap();
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

/// The server has transactions rolled back before it cuts them off its log. One that is undone durably before that would be one that the
/// log has and the store has not.
#[test]
fn nothing_is_rolled_back_before_the_server_has_cut_its_log() {
    let undone = Undone::default();
    let mut world = crashed();
    let index = world.index(&["bin.000003"]);
    let decides = |world: &World| {
        let start = Start { binlog_index: Some(&index), tc_log: &world.at("tc.log"), is_over: false };
        settle(&world.store, &start, &|_, _| {}).unwrap()
    };
    for crash in [true, false] {
        assert!(decides(&world));
        undone.begin(&world.store);
        undone.listed(&world.store).unwrap();
        assert!(undone.roll_back(&world.store, &id(6)).unwrap());
        assert!(!undone.roll_back(&world.store, &id(6)).unwrap(), "the server asks each engine, and counts");
        assert!(!undone.roll_back(&world.store, &id(7)).unwrap());
        if crash {
            world = world.restart();
            assert_eq!(world.prepared(), [id(5), id(6)]);
        }
    }
    undone.listed(&world.store).unwrap();
    assert_eq!(world.prepared(), [id(5)]);
    // The server's recovery is over: users' transactions are rolled back at once.
    world.leave(&id(8), &row(&id(8)));
    assert!(undone.roll_back(&world.store, &id(8)).unwrap() && !undone.roll_back(&world.store, &id(9)).unwrap());
    assert_eq!(world.restart().prepared(), [id(5)]);
}

/// Where the server lists nothing any more, its start is over at the latest when it calls for the tables of its last run.
#[test]
fn what_is_put_off_takes_place_at_the_end_of_the_start() {
    let (undone, world) = (Undone::default(), crashed());
    undone.begin(&world.store);
    undone.end(&world.store).unwrap();
    assert_eq!(world.prepared(), [id(5), id(6)], "nothing was asked for");
    undone.begin(&world.store);
    undone.roll_back(&world.store, &id(5)).unwrap();
    undone.end(&world.store).unwrap();
    assert_eq!(world.restart().prepared(), [id(6)]);
}
