//! New indexes of a table that is written to meanwhile: they have the entries of its rows, whatever happened while they were made.

use crate::common::{Client, RECORD, Row, definition, image_e, made, row};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strata_engine::io::{Disk, FaultKind, MemDisk};
use strata_row::build::{Build, Rows, Worker};
use strata_row::catalog::alter::Source;
use strata_row::catalog::format::FIRST_INDEX_ID;
use strata_row::def::{Index, TableDef};
use strata_row::foreign::{KeyChange, Statement};
use strata_row::kv::{self, CrashPoint, Engine, Options};
use strata_row::progress::{Progress, Step};
use strata_row::rowcode::Record;
use strata_row::schema::Initial;
use strata_row::store::{Alteration, Store};
use strata_row::table::Table;
use strata_row::{Error, Result};

const T: &str = "./db/t";

/// The record that a row is read into is that of the new definition, too.
pub(crate) struct Same(pub(crate) Vec<u8>);

impl Rows for Same {
    fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }
    fn made(&mut self, _again: bool) -> Result<Option<Record<'_>>> {
        Ok(Some(unsafe { Record::new(&self.0) }))
    }
    fn made_room(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// The table of the tests without some indexes, by name.
fn without(def: &TableDef, names: &[&str]) -> TableDef {
    let mut def = def.clone();
    def.indexes.retain(|index| !names.contains(&index.name.as_str()));
    def
}

/// A store in `dir` with a table of so many rows that lacks some indexes: the whole definition, that of the table, the table.
fn lacking(dir: &Path, names: &[&str], rows: i64) -> (Arc<Store>, TableDef, TableDef, Arc<Table>) {
    let full = definition(false);
    let bare = without(&full, names);
    let store = crate::common::open(dir);
    let table = made(&store, T, bare.clone());
    filled(&store, &table, rows);
    (store, full, bare, table)
}

/// Where the indexes of `to` come from.
fn kept(from: &TableDef, to: &TableDef) -> Vec<Option<usize>> {
    to.indexes.iter().map(|index| from.indexes.iter().position(|old| old.name == index.name)).collect()
}

/// Another definition, whose columns are the same.
fn alteration(from: &TableDef, to: &TableDef) -> Alteration {
    let sources = (0..to.columns.len()).map(Source::Kept).collect();
    let (kept, statement, keys) = (kept(from, to), Statement::default(), KeyChange::default());
    Alteration { def: to.clone(), sources, kept, statement, keys, rebuilds: false, converts: false, counter: None }
}

/// The same, and all is written anew.
fn rebuild(from: &TableDef, to: &TableDef) -> Alteration {
    Alteration { rebuilds: true, ..alteration(from, to) }
}

/// The store of `disk`, made with a table of so many rows that lacks some indexes, and closed.
fn left_lacking(disk: &MemDisk, bare: &TableDef, rows: i64) {
    let store = open_on(disk);
    let table = made(&store, T, bare.clone());
    filled(&store, &table, rows);
    drop(table);
    store.close().unwrap();
}

/// Calls a part of a build; `told` hears of its progress.
fn work<T>(told: &mut dyn FnMut(&Progress), part: impl FnOnce(&mut Worker<'_>) -> T) -> T {
    let mut rows = Same(vec![0; RECORD]);
    part(&mut Worker { rows: &mut rows, is_killed: &|| false, told })
}

fn quiet<T>(part: impl FnOnce(&mut Worker<'_>) -> T) -> T {
    work(&mut |_| {}, part)
}

/// An index of the name that has the entries of all rows: so says CHECK.
fn check(store: &Arc<Store>, def: &TableDef) {
    let table = store.open_table(T, def.clone()).unwrap();
    Client::new(store, &table).check();
}

/// Nothing is left that no table owns.
fn no_strays(store: &Store) {
    let owned = store.catalog().get(T).unwrap().ids();
    let mut indexes = store.engine().indexes().unwrap();
    indexes.retain(|id| id.0 >= FIRST_INDEX_ID && !owned.contains(id));
    assert!(indexes.is_empty(), "{indexes:?} belong to no table");
    assert_eq!(store.catalog().uncleared(), 0);
    assert!(store.builds().is_empty());
}

fn filled(store: &Arc<Store>, table: &Arc<Table>, rows: i64) {
    let mut user = Client::new(store, table);
    for k in 0..rows {
        user.insert(&row(k, (k % 7) as i32, Some(&format!("b{}", k % 50)), Some(k as i32 * 3))).unwrap();
        if k % 97 == 0 {
            user.commit();
        }
    }
    user.commit();
}

const ALL: [&str; 3] = ["b", "e", "b_a"];

#[test]
fn all_kinds_of_indexes_are_built_of_rows_that_change_meanwhile() {
    for hidden in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let full = definition(hidden);
        let bare = without(&full, &ALL);
        let roomy = |dir| Store::open(dir, Options { transaction_bytes: 64 << 10, ..Options::default() }).unwrap();
        let store = roomy(dir.path());
        let first = made(&store, T, bare.clone());
        filled(&store, &first, 3000);
        let asked = alteration(&bare, &full);
        let mut build = Build::begin(&first, &asked, crate::common::NEVER).unwrap();
        let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3_i64 {
                let (store, table, stop, changes) = (&store, &first, &stop, &changes);
                scope.spawn(move || {
                    let mut user = Client::new(store, table);
                    let mut k = 10_000_000 * (thread + 1);
                    while !stop.load(Ordering::Relaxed) {
                        k += 1;
                        let new = row(k, 1, Some("new"), Some(k as i32));
                        user.insert(&new).unwrap();
                        let mark = user.session.savepoint();
                        // What is taken back is noted all the same.
                        user.insert(&row(-k, 2, None, None)).unwrap();
                        user.session.rollback_to(mark);
                        if !hidden {
                            let newer = Row { b: Some(format!("n{}", k % 9)), e: Some(-(k as i32)), ..new.clone() };
                            user.update(&new, &newer).unwrap();
                            if k % 3 == 0 {
                                user.delete(&newer).unwrap();
                            }
                        }
                        match k % 5 {
                            0 => user.session.rollback().unwrap(),
                            _ => user.commit(),
                        }
                        changes.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while changes.load(Ordering::Relaxed) < 200 {
                std::thread::yield_now();
            }
            quiet(|worker| build.run(worker)).unwrap();
            let after = changes.load(Ordering::Relaxed) + 200;
            while changes.load(Ordering::Relaxed) < after {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        // As the server's lock has it, nobody has the table now.
        quiet(|worker| build.end(worker)).unwrap();
        Build::commit(vec![build], &asked, crate::common::NEVER).unwrap();
        check(&store, &full);
        no_strays(&store);
        // They are in use, and what is unique is.
        let table = store.open_table(T, full.clone()).unwrap();
        let mut user = Client::new(&store, &table);
        let number = full.indexes.iter().position(|index| index.name == "e").unwrap();
        assert!(matches!(user.insert(&row(99_999, 0, None, Some(30))), Err(Error::Duplicate(n)) if n == number));
        assert_eq!(user.get(number, &image_e(Some(30))).unwrap().unwrap().c, 10);
        drop((user, table, first));
        store.close().unwrap();
        drop(store);
        let store = roomy(dir.path());
        check(&store, &full);
        no_strays(&store);
    }
}

/// Transactions that were open while passes ran, and what they do to rows that passes have seen.
#[test]
fn a_row_that_is_locked_or_newer_than_a_pass_comes_with_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (store, full, bare, table) = lacking(dir.path(), &ALL, 10);
    let asked = alteration(&bare, &full);
    let mut build = Build::begin(&table, &asked, crate::common::NEVER).unwrap();
    let (mut slow, mut quick) = (Client::new(&store, &table), Client::new(&store, &table));
    let one = row(1, 1, Some("b1"), Some(3));
    let changed = Row { b: Some("slow".into()), e: Some(1000), ..one.clone() };
    slow.update(&one, &changed).unwrap();
    slow.insert(&row(100, 0, Some("slow"), Some(2000))).unwrap();
    quick.insert(&row(101, 0, Some("quick"), Some(2001))).unwrap();
    quick.commit();
    quiet(|worker| build.run(worker)).unwrap();
    quiet(|worker| build.end(worker)).unwrap();
    slow.commit();
    quick.delete(&row(101, 0, Some("quick"), Some(2001))).unwrap();
    quick.commit();
    slow.update(&changed, &one).unwrap();
    slow.session.rollback().unwrap();
    quiet(|worker| build.end(worker)).unwrap();
    quick.delete(&changed).unwrap();
    quick.commit();
    quick.insert(&one).unwrap();
    quick.commit();
    drop((slow, quick));
    quiet(|worker| build.end(worker)).unwrap();
    Build::commit(vec![build], &asked, crate::common::NEVER).unwrap();
    check(&store, &full);
}

/// The value of a duplicate is in the record that was made last.
#[test]
fn duplicates_of_the_scan_and_of_writers_are_found_and_those_that_go_are_none() {
    type Turn = fn(&mut Client);
    let cases: [(&str, Turn, Turn, bool); 6] = [
        ("none", |_| {}, |_| {}, false),
        ("in the rows", |user| user.insert(&row(50, 0, None, Some(3))).unwrap(), |_| {}, true),
        (
            "NULL",
            |user| user.insert(&row(50, 0, None, None)).unwrap(),
            |u| u.insert(&row(51, 0, None, None)).unwrap(),
            false,
        ),
        ("by a writer", |_| {}, |user| user.insert(&row(50, 0, None, Some(3))).unwrap(), true),
        (
            "taken back",
            |_| {},
            |user| {
                user.insert(&row(50, 0, None, Some(3))).unwrap();
                user.delete(&row(50, 0, None, Some(3))).unwrap();
            },
            false,
        ),
        (
            "exchanged",
            |_| {},
            |user| {
                let [one, two] = [1, 2].map(|k| row(k, k as i32, Some(&format!("b{k}")), Some(k as i32 * 3)));
                user.update(&one, &Row { e: Some(6), ..one.clone() }).unwrap();
                user.update(&two, &Row { e: Some(3), ..two.clone() }).unwrap();
            },
            false,
        ),
    ];
    for (what, before, meanwhile, twice) in cases {
        let dir = tempfile::tempdir().unwrap();
        let full = definition(false);
        let bare = without(&full, &["e"]);
        let store = crate::common::open(dir.path());
        let table = made(&store, T, bare.clone());
        filled(&store, &table, 10);
        let mut user = Client::new(&store, &table);
        before(&mut user);
        user.commit();
        let asked = alteration(&bare, &full);
        let mut build = Build::begin(&table, &asked, crate::common::NEVER).unwrap();
        let mut rows = Same(vec![0; RECORD]);
        let mut worker = Worker { rows: &mut rows, is_killed: &|| false, told: &mut |_| {} };
        let run = build.run(&mut worker);
        meanwhile(&mut user);
        user.commit();
        let outcome = run.and_then(|()| build.end(&mut worker));
        if twice {
            assert!(matches!(outcome, Err(Error::Duplicate(2))), "{what}: {outcome:?}");
            assert_eq!(Row::read(&rows.0).e, Some(3), "{what}");
            drop(build);
            no_strays(&store);
            check(&store, &bare);
            user.insert(&row(77, 0, None, Some(3))).unwrap();
            user.commit();
            continue;
        }
        outcome.unwrap();
        Build::commit(vec![build], &asked, crate::common::NEVER).unwrap();
        check(&store, &full);
    }
}

#[test]
fn a_snapshot_from_before_reads_the_table_and_not_the_new_index() {
    let dir = tempfile::tempdir().unwrap();
    let (store, full, bare, table) = lacking(dir.path(), &["b"], 10);
    let mut old = Client::new(&store, &table);
    assert_eq!(old.scan(None, true).unwrap().len(), 10);
    let mut user = Client::new(&store, &table);
    user.delete(&row(3, 3, Some("b3"), Some(9))).unwrap();
    user.commit();
    let asked = alteration(&bare, &full);
    let mut build = Build::begin(&table, &asked, crate::common::NEVER).unwrap();
    quiet(|worker| build.run(worker).and_then(|()| build.end(worker))).unwrap();
    Build::commit(vec![build], &asked, crate::common::NEVER).unwrap();
    let table = store.open_table(T, full).unwrap();
    old.cursor = strata_row::scan::RowCursor::new(&table);
    assert_eq!(old.scan(None, true).unwrap().len(), 10, "the row that has gone is in the snapshot");
    assert_eq!(old.scan(Some(2), true).unwrap().len(), 10, "by another index, too");
    assert!(matches!(old.scan(Some(1), true), Err(Error::TableChanged(_))), "the new one has no entry of it");
    old.commit();
    assert_eq!(old.scan(Some(1), true).unwrap().len(), 9);
}

#[test]
fn what_is_prepared_without_a_session_keeps_a_build_from_beginning_and_from_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let full = definition(false);
    let bare = without(&full, &["e"]);
    let store = crate::common::open(dir.path());
    let table = made(&store, T, bare.clone());
    let asked = alteration(&bare, &full);
    let prepare = |xid: &[u8], k: i64| {
        let mut user = Client::new(&store, &table);
        user.insert(&row(k, 0, None, Some(k as i32))).unwrap();
        user.session.prepare(xid, true).unwrap();
        user.session.close().unwrap();
    };
    prepare(b"one", 1);
    let refused = Build::begin(&table, &asked, crate::common::NEVER).err();
    assert!(matches!(refused, Some(Error::Engine(kv::Error::LockTimeout))), "{refused:?}");
    no_strays(&store);
    store.engine().commit_prepared(b"one").unwrap();
    let mut build = Build::begin(&table, &asked, crate::common::NEVER).unwrap();
    prepare(b"two", 2);
    prepare(b"three", 3);
    quiet(|worker| build.run(worker).and_then(|()| build.end(worker))).unwrap();
    store.engine().commit_prepared(b"two").unwrap();
    let refused = Build::commit(vec![build], &asked, crate::common::NEVER);
    assert!(matches!(refused, Err(Error::Engine(kv::Error::LockTimeout))), "{refused:?}");
    no_strays(&store);
    let mut build = Build::begin(&table, &asked, crate::common::NEVER);
    assert!(build.is_err(), "three is prepared still");
    store.engine().rollback_prepared(b"three").unwrap();
    build = Build::begin(&table, &asked, crate::common::NEVER);
    let mut build = build.unwrap();
    quiet(|worker| build.run(worker).and_then(|()| build.end(worker))).unwrap();
    Build::commit(vec![build], &asked, crate::common::NEVER).unwrap();
    check(&store, &full);
}

/// Two tables are altered together, and indexes go with the same write.
#[test]
fn partitions_change_together_and_indexes_go_where_others_come() {
    let dir = tempfile::tempdir().unwrap();
    let full = definition(false);
    let (from, mut to) = (without(&full, &["e"]), without(&full, &["b"]));
    to.indexes.push(Index { name: "by_b".into(), ..full.indexes[1].clone() });
    let store = crate::common::open(dir.path());
    let names = ["./db/t", "./db/t#P#p1"];
    let tables = names.map(|name| made(&store, name, from.clone()));
    tables.iter().for_each(|table| filled(&store, table, 100));
    let asked = alteration(&from, &to);
    let begin = |table| Build::begin(table, &asked, crate::common::NEVER).unwrap();
    let mut builds: Vec<Build> = tables.iter().map(begin).collect();
    for build in &mut builds {
        quiet(|worker| build.run(worker).and_then(|()| build.end(worker))).unwrap();
    }
    Build::commit(builds, &asked, crate::common::NEVER).unwrap();
    for name in names {
        let table = store.open_table(name, to.clone()).unwrap();
        Client::new(&store, &table).check();
        assert_eq!(store.catalog().get(name).unwrap().indexes.len(), 4);
    }
    no_strays_of(&store, &names);
}

fn no_strays_of(store: &Store, names: &[&str]) {
    let owned: Vec<_> = names.iter().flat_map(|name| store.catalog().get(name).unwrap().ids()).collect();
    let mut indexes = store.engine().indexes().unwrap();
    indexes.retain(|id| id.0 >= FIRST_INDEX_ID && !owned.contains(id));
    assert!(indexes.is_empty(), "{indexes:?} belong to no table");
}

/// What a build notes and sorts is in files where memory is small, and nothing of it is left.
#[test]
fn what_does_not_fit_in_memory_is_in_files_until_the_build_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        transaction_bytes: 16 << 10,
        memtable_budget_bytes: 2 << 20,
        block_cache_bytes: 1 << 20,
        ..Options::default()
    };
    let store = Store::open(dir.path(), options).unwrap();
    let full = definition(false);
    let bare = without(&full, &ALL);
    let table = made(&store, T, bare.clone());
    filled(&store, &table, 5000);
    let asked = alteration(&bare, &full);
    let mut build = Build::begin(&table, &asked, crate::common::NEVER).unwrap();
    let mut user = Client::new(&store, &table);
    for k in 0..40_000_i64 {
        user.insert(&row(10_000 + k, 0, Some("noted"), Some(-1 - k as i32))).unwrap();
        if k % 500 == 0 {
            user.commit();
        }
    }
    user.commit();
    drop(user);
    let mut steps = Vec::new();
    work(&mut |progress| steps.push(progress.now().0), |worker| build.run(worker)).unwrap();
    assert!(steps.contains(&Step::Sorting) && steps.contains(&Step::Following), "{steps:?}");
    quiet(|worker| build.end(worker)).unwrap();
    Build::commit(vec![build], &asked, crate::common::NEVER).unwrap();
    check(&store, &full);
    assert!(store.engine().metrics().work.spill_bytes > 0);
    let left = crate::common::left_behind(store.engine());
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_kill_ends_a_build_at_each_of_its_steps() {
    let dir = tempfile::tempdir().unwrap();
    let (store, full, bare, table) = lacking(dir.path(), &ALL, 2000);
    let asked = alteration(&bare, &full);
    let mut ended = 0;
    for n in 0.. {
        let mut build = Build::begin(&table, &asked, crate::common::NEVER).unwrap();
        let left = AtomicU64::new(n * 3);
        let killed = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_err();
        let mut rows = Same(vec![0; RECORD]);
        let mut worker = Worker { rows: &mut rows, is_killed: &killed, told: &mut |_| {} };
        let outcome = build.run(&mut worker).and_then(|()| build.end(&mut worker));
        drop(build);
        // Of drops that follow each other some wait for housekeeping.
        store.catalog().clear();
        no_strays(&store);
        match outcome {
            Ok(()) => break,
            Err(error) => {
                assert!(matches!(error, Error::Interrupted | Error::Engine(kv::Error::Interrupted)), "{error:?}")
            }
        }
        ended += 1;
    }
    assert!(ended > 3, "{ended}");
}

fn options(disk: &MemDisk) -> Options {
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    Options {
        disk,
        memtable_budget_bytes: 2 << 20,
        block_cache_bytes: 1 << 20,
        transaction_bytes: 8 << 10,
        log_segment_bytes: 64 << 10,
        ..Options::default()
    }
}

fn open_on(disk: &MemDisk) -> Arc<Store> {
    Store::open(Path::new("/data"), options(disk)).unwrap()
}

/// A whole ALTER with a writer in its middle.
fn alter(store: &Arc<Store>, from: &TableDef, to: &TableDef, k: i64) -> Result<()> {
    let table = store.open_table(T, from.clone())?;
    let asked = alteration(from, to);
    let mut build = Build::begin(&table, &asked, crate::common::NEVER)?;
    quiet(|worker| {
        build.run(worker)?;
        let mut user = Client::new(store, &table);
        // The writer may fail as well; what it has done then is not in the table.
        drop(user.insert(&row(k, 0, Some("writer"), Some(-(k as i32)))).and_then(|()| user.session.commit()));
        build.end(worker)
    })?;
    Build::commit(vec![build], &asked, crate::common::NEVER)
}

fn old_or_new(store: &Arc<Store>, old: &TableDef, new: &TableDef, rows: i64) -> bool {
    let is_new = store.catalog().get(T).unwrap().indexes.len() == new.indexes.len();
    let def = if is_new { new } else { old };
    check(store, def);
    let table = store.open_table(T, def.clone()).unwrap();
    let found = Client::new(store, &table).scan(None, true).unwrap().len() as i64;
    assert!((rows..rows + 2).contains(&found), "{found}");
    store.catalog().clear();
    no_strays(store);
    is_new
}

/// Each operation of the disk fails in turn, for once or from then on; the power goes at each.
#[test]
fn a_build_that_fails_or_dies_leaves_the_old_table_or_the_new_one() {
    let full = definition(false);
    let bare = without(&full, &ALL);
    let disk = MemDisk::new();
    left_lacking(&disk, &bare, 400);
    let (mut became, mut stayed) = (0, 0);
    for kind in [FaultKind::StorageFull, FaultKind::Other] {
        for n in (1..).step_by(3) {
            let disk = disk.copy();
            let store = open_on(&disk);
            disk.fail_from(n, kind);
            let outcome = alter(&store, &bare, &full, 5000);
            let struck = disk.struck().is_some();
            let killed = disk.crash(n);
            disk.clear_fault();
            drop(store.close());
            drop(store);
            for image in [&killed, &disk] {
                let store = open_on(image);
                let is_new = old_or_new(&store, &bare, &full, 400);
                assert!(is_new || outcome.is_err(), "{kind:?} at {n}: {outcome:?}");
                if is_new {
                    became += 1;
                } else {
                    stayed += 1;
                    // And it can be done then.
                    alter(&store, &bare, &full, 6000).unwrap();
                    check(&store, &full);
                }
            }
            if !struck {
                break;
            }
        }
    }
    assert!(became > 0 && stayed > 0, "{became}, {stayed}");
}

#[test]
fn a_crash_at_each_step_leaves_the_old_table_or_the_new_one() {
    let full = definition(false);
    let bare = without(&full, &ALL);
    let points = [
        (CrashPoint::BuildBegun, false),
        (CrashPoint::IngestWritten, false),
        (CrashPoint::Ingested, false),
        (CrashPoint::ChangeDurable, true),
    ];
    for (point, is_new) in points {
        let disk = MemDisk::new();
        left_lacking(&disk, &bare, 400);
        let image = Arc::new(parking_lot::Mutex::new(None));
        let (taken, watched) = (image.clone(), disk.clone());
        let armed = Arc::new(AtomicBool::new(false));
        let hook = {
            let armed = armed.clone();
            move |reached| {
                if reached == point && armed.load(Ordering::Relaxed) {
                    // The last time counts: the change of the catalog comes after that which reserves numbers.
                    *taken.lock() = Some(watched.crash(1));
                }
            }
        };
        let store = Store::open(Path::new("/data"), Options { on_crash_point: Some(Arc::new(hook)), ..options(&disk) })
            .unwrap();
        armed.store(true, Ordering::Relaxed);
        alter(&store, &bare, &full, 5000).unwrap();
        let image = image.lock().take().unwrap_or_else(|| panic!("{} is not passed", point.name()));
        let store = open_on(&image);
        assert_eq!(old_or_new(&store, &bare, &full, 400), is_new, "{}", point.name());
        let _ = Engine::check(store.engine());
    }
}

/// Another primary key, one where there was none, and the same rows written anew, while rows change.
#[test]
fn a_table_is_rebuilt_while_its_rows_change() {
    let with_primary = definition(false);
    let mut other = with_primary.clone();
    other.indexes[0].parts.reverse();
    other.indexes[0].parts.truncate(2);
    let hidden = definition(true);
    for (from, to) in
        [(&with_primary, &with_primary), (&with_primary, &other), (&hidden, &with_primary), (&hidden, &hidden)]
    {
        let dir = tempfile::tempdir().unwrap();
        let options = || Options { transaction_bytes: 64 << 10, ..Options::default() };
        let store = Store::open(dir.path(), options()).unwrap();
        let table = made(&store, T, from.clone());
        filled(&store, &table, 2000);
        let mut old = Client::new(&store, &table);
        old.scan(None, true).unwrap();
        let asked = rebuild(from, to);
        let mut build = Build::begin(&table, &asked, crate::common::NEVER).unwrap();
        let mut user = Client::new(&store, &table);
        for k in 0..300_i64 {
            user.insert(&row(5000 + k, 1, Some("new"), Some(-1 - k as i32))).unwrap();
            if from.primary.is_some() {
                let was = row(k, (k % 7) as i32, Some(&format!("b{}", k % 50)), Some(k as i32 * 3));
                match k % 3 {
                    0 => user.delete(&was).unwrap(),
                    1 => user.update(&was, &Row { d: Some(vec![7; 300]), ..was.clone() }).unwrap(),
                    _ => user
                        .update(&was, &Row { a: was.a + 10, e: Some(was.e.unwrap() + 100_000), ..was.clone() })
                        .unwrap(),
                }
            }
            if k % 20 == 0 {
                user.session.rollback().unwrap();
            }
        }
        user.commit();
        quiet(|worker| build.run(worker)).unwrap();
        user.insert(&row(9000, 1, Some("late"), None)).unwrap();
        user.commit();
        let mut expected = user.scan(None, true).unwrap();
        user.session.rollback().unwrap();
        quiet(|worker| build.end(worker)).unwrap();
        Build::commit(vec![build], &asked, crate::common::NEVER).unwrap();
        check(&store, to);
        no_strays(&store);
        let again = store.open_table(T, to.clone()).unwrap();
        let mut found = Client::new(&store, &again).scan(None, true).unwrap();
        expected.sort();
        found.sort();
        assert!(found == expected);
        old.cursor = strata_row::scan::RowCursor::new(&again);
        assert!(matches!(old.scan(None, true), Err(Error::TableChanged(_))), "no row of it is in an older snapshot");
        old.session.rollback().unwrap();
        // The counters go on.
        assert_eq!(again.state.autoinc().is_some(), to.autoinc_column.is_some());
        drop((old, user, table, again));
        store.close().unwrap();
        drop(store);
        let store = Store::open(dir.path(), options()).unwrap();
        check(&store, to);
        no_strays(&store);
    }
}

/// Guards that the counter of a column that goes, and what is stored of it, are nothing to the one that comes.
#[test]
fn a_table_whose_rows_were_numbered_anew_counts_on_from_there() {
    let def = definition(false);
    let dir = tempfile::tempdir().unwrap();
    let store = crate::common::open(dir.path());
    let table = made(&store, T, def.clone());
    filled(&store, &table, 20);
    table.raise_autoinc(5000, crate::common::NEVER).unwrap();
    let mut asked = rebuild(&def, &def);
    asked.sources[2] = Source::Added(Initial::Null);
    let refused = store.check_alteration(asked.of(&table), &asked, crate::common::NEVER).unwrap_err();
    assert!(refused.to_string().contains("needs the rows to be numbered"), "{refused}");
    asked.counter = Some(41);
    store.check_alteration(asked.of(&table), &asked, crate::common::NEVER).unwrap();
    let mut build = Build::begin(&table, &asked, crate::common::NEVER).unwrap();
    quiet(|worker| build.run(worker)).unwrap();
    quiet(|worker| build.end(worker)).unwrap();
    Build::commit(vec![build], &asked, crate::common::NEVER).unwrap();
    drop(table);
    check(&store, &def);
    let table = store.open_table(T, def.clone()).unwrap();
    assert_eq!(table.state.autoinc().unwrap().peek(), 41);
    assert_eq!(table.state.autoinc().unwrap().take(crate::common::NEVER).unwrap(), 41);
    drop(table);
    store.close().unwrap();
    drop(store);
    let store = crate::common::open(dir.path());
    assert_eq!(store.open_table(T, def).unwrap().state.autoinc().unwrap().peek(), 42);
    no_strays(&store);
}

/// A value that comes twice in the new primary key, among the rows and by a writer.
#[test]
fn a_duplicate_of_the_new_primary_key_is_told() {
    let from = definition(false);
    let mut to = from.clone();
    to.indexes[0].parts.remove(0);
    for by_writer in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = crate::common::open(dir.path());
        let table = made(&store, T, from.clone());
        let mut user = Client::new(&store, &table);
        (0..10).for_each(|k| user.insert(&row(k, k as i32, None, None)).unwrap());
        user.commit();
        let asked = rebuild(&from, &to);
        let add = |user: &mut Client| {
            user.insert(&row(100, 5, None, None)).unwrap();
            user.commit();
        };
        if !by_writer {
            add(&mut user);
        }
        let mut build = Build::begin(&table, &asked, crate::common::NEVER).unwrap();
        let mut rows = Same(vec![0; RECORD]);
        let mut worker = Worker { rows: &mut rows, is_killed: &|| false, told: &mut |_| {} };
        let mut outcome = build.run(&mut worker);
        if by_writer {
            outcome.unwrap();
            add(&mut user);
            outcome = build.end(&mut worker);
        }
        assert!(matches!(outcome, Err(Error::Duplicate(0))), "{outcome:?}");
        assert_eq!(Row::read(&rows.0).a, 5);
        drop(build);
        store.catalog().clear();
        no_strays(&store);
        check(&store, &from);
    }
}
