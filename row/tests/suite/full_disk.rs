//! A disk without a free byte: the store starts, as often as it is told to, reads, and drops and empties tables, which
//! gives space back.

use crate::common::*;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strata_engine::io::MemDisk;
use strata_row::kv::{Error as EngineError, Options};
use strata_row::store::Store;
use strata_row::table::Table;
use strata_row::{Error, Result};

const ROWS: i64 = 300;

fn open(disk: &MemDisk) -> Arc<Store> {
    let options = Options {
        disk: Arc::new(disk.clone()),
        memtable_budget_bytes: 2 << 20,
        // What is kept of it for drops is enough for those of these tests, however late a flush comes.
        log_segment_bytes: 4 << 20,
        ..Options::default()
    };
    Store::open(Path::new("/data"), options).unwrap()
}

fn table(store: &Arc<Store>, name: &str) -> Arc<Table> {
    store.open_table(name, definition(false)).unwrap()
}

fn rows(store: &Arc<Store>, name: &str) -> usize {
    Client::new(store, &table(store, name)).scan(None, true).unwrap().len()
}

/// Rows that neither compress nor are the same in two tables; how many were acknowledged.
fn fill(store: &Arc<Store>, name: &str, from: i64, to: i64) -> (i64, Result<()>) {
    let mut client = Client::new(store, &table(store, name));
    let mut seed = from as u64 ^ name.len() as u64;
    for c in from..to {
        let mut new = row(c, 0, None, Some(c as i32));
        let noise = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        };
        new.d = Some((0..3000).map(noise).collect());
        let begun = client.session.statement_begin(client.isolation, client.timeout);
        if let Err(error) = begun.and_then(|()| client.insert(&new)).and_then(|()| client.session.commit()) {
            return (c, Err(error));
        }
    }
    (to, Ok(()))
}

fn is_disk_full(error: &Error) -> bool {
    matches!(error, Error::Engine(error) if error.is_disk_full())
}

/// A store on a disk that got full under inserts; the last byte is somebody else's. Rows of "./db/t" and all the tables.
fn full() -> (MemDisk, i64, Vec<String>) {
    let disk = MemDisk::new();
    let store = open(&disk);
    let names: Vec<String> = (0..40).map(|n| format!("./db/small-{n}")).collect();
    for name in names.iter().map(String::as_str).chain(["./db/t", "./db/u"]) {
        store.create_table(name, &definition(false), 0).unwrap();
    }
    for name in ["./db/t", "./db/u"] {
        fill(&store, name, 0, ROWS).1.unwrap();
    }
    names.iter().for_each(|name| fill(&store, name, 0, 1).1.unwrap());
    store.engine().flush().unwrap();
    disk.set_capacity(Some(disk.used() + (2 << 20)));
    let (rows, refused) = fill(&store, "./db/t", ROWS, 100_000);
    assert!(is_disk_full(&refused.unwrap_err()));
    // Killed, not closed.
    let killed = disk.crash(1);
    drop(store);
    killed.set_capacity(Some(killed.used()));
    (killed, rows, names)
}

#[test]
fn a_store_starts_reads_and_drops_without_a_free_byte() {
    let (disk, count, names) = full();
    for start in 0..30 {
        let store = open(&disk);
        assert_eq!(rows(&store, "./db/t"), count as usize, "start {start}");
        assert_eq!(rows(&store, "./db/u"), ROWS as usize);
        // Killed and shut down in turn; an image of the disk has no limit of its own.
        if start % 2 == 0 {
            store.close().unwrap();
        }
        disk.set_capacity(Some(disk.used()));
    }
    let store = open(&disk);
    // A long row of drops of tables that free next to nothing.
    for name in &names {
        disk.set_capacity(Some(disk.used()));
        store.drop_table(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    store.rename_table("./db/u", "./db/v").unwrap();
    store.truncate_table("./db/t").unwrap();
    assert_eq!(rows(&store, "./db/t"), 0);
    assert_eq!(rows(&store, "./db/v"), ROWS as usize);
    drop(store);
    let store = open(&disk);
    assert_eq!(store.catalog().names(""), ["./db/t", "./db/v"]);
    assert_eq!((rows(&store, "./db/t"), rows(&store, "./db/v")), (0, ROWS as usize));
}

/// The space of a table that was emptied on the full disk serves new rows, without a restart.
#[test]
fn what_truncate_frees_can_be_written() {
    let (disk, _, _) = full();
    let store = open(&disk);
    store.truncate_table("./db/t").unwrap();
    let began = Instant::now();
    let mut next = 0;
    while next < 50 {
        let (reached, refused) = fill(&store, "./db/t", next, 50);
        next = reached;
        match refused {
            Err(error) if is_disk_full(&error) => {
                assert!(began.elapsed() < Duration::from_secs(120), "{error}");
                std::thread::sleep(Duration::from_millis(20));
            }
            other => other.unwrap(),
        }
    }
    assert_eq!(rows(&store, "./db/t"), 50);
}

/// Deletes need room in the log only; when there is none, they are refused and nothing has happened.
#[test]
fn deletes_go_as_far_as_the_log_has_room() {
    let (disk, count, _) = full();
    let store = open(&disk);
    let mut client = Client::new(&store, &table(&store, "./db/t"));
    let all = client.scan(None, true).unwrap();
    client.commit();
    let mut deleted = 0;
    for old in all.iter().take(100) {
        let done = client.delete(old).and_then(|()| client.session.commit());
        match done {
            Ok(()) => deleted += 1,
            Err(error) => {
                assert!(is_disk_full(&error), "{error}");
                println!("{error}");
                break;
            }
        }
    }
    assert!(deleted > 0);
    assert_eq!(rows(&store, "./db/t"), count as usize - deleted);
    drop(client);
    drop(store);
    assert_eq!(rows(&open(&disk), "./db/t"), count as usize - deleted);
}

/// A manifest that fails under the clean-up of a TRUNCATE: the statement is done, and nothing is acknowledged any more.
#[test]
fn nothing_is_acknowledged_after_the_manifest_has_failed() {
    use strata_engine::io::FaultKind;
    for drop_it in [false, true] {
        let disk = MemDisk::new();
        let store = open(&disk);
        for name in ["./db/t", "./db/u"] {
            store.create_table(name, &definition(false), 0).unwrap();
            fill(&store, name, 0, 4).1.unwrap();
        }
        store.engine().flush().unwrap();
        let base = disk.copy();
        drop(store);
        let (mut stopped, mut done) = (0, 0);
        for n in 1..40 {
            let disk = base.copy();
            let store = open(&disk);
            let old = table(&store, "./db/t");
            disk.fail_after(n, FaultKind::Other);
            let outcome = match drop_it {
                true => store.drop_table("./db/t").and_then(|()| store.create_table("./db/t", &definition(false), 0)),
                false => store.truncate_table("./db/t"),
            };
            let struck = !disk.clear_fault();
            drop(old);
            let listed = store.catalog().get("./db/t").is_ok();
            let (kept, refused) = if listed { fill(&store, "./db/t", 100, 110) } else { (100, Ok(())) };
            let (other, others) = fill(&store, "./db/u", 100, 103);
            for error in [refused.as_ref().err(), others.as_ref().err()].into_iter().flatten() {
                assert!(matches!(error, Error::Engine(EngineError::Poisoned(_))), "{error}");
            }
            if store.engine().check().is_err() {
                assert!((!listed || refused.is_err()) && others.is_err(), "operation {n}, DROP {drop_it}");
                stopped += 1;
            }
            let killed = disk.crash(n);
            drop(store);
            let store = open(&killed);
            if kept > 100 {
                let expected = (kept - 100) as usize + if outcome.is_ok() { 0 } else { 4 };
                assert_eq!(rows(&store, "./db/t"), expected, "operation {n}, DROP {drop_it}");
            }
            assert_eq!(rows(&store, "./db/u"), 4 + (other - 100) as usize, "operation {n}, DROP {drop_it}");
            done += u64::from(outcome.is_ok());
            if !struck {
                break;
            }
        }
        assert!(stopped > 0 && done > 0, "{stopped} {done}");
    }
}

/// A row of drops of small tables shares what it costs to give back their space; it comes back without another statement, and
/// a clean end leaves nothing.
#[test]
fn drops_that_follow_each_other_are_cleared_together() {
    let disk = MemDisk::new();
    let store = open(&disk);
    let names: Vec<String> = (0..200).map(|n| format!("./db/small-{n}")).collect();
    let mut gone = Vec::new();
    for name in &names {
        store.create_table(name, &definition(false), 0).unwrap();
        fill(&store, name, 0, 1).1.unwrap();
        gone.extend(store.catalog().get(name).unwrap().ids());
    }
    store.engine().flush().unwrap();
    let (half, rest) = names.split_at(100);
    let mut waited = 0;
    for name in half {
        store.drop_table(name).unwrap();
        waited = waited.max(store.catalog().uncleared());
    }
    assert!(waited > 10, "{waited} waited at most");
    let began = Instant::now();
    while store.catalog().uncleared() > 0 {
        assert!(began.elapsed() < Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(5));
    }
    rest.iter().for_each(|name| store.drop_table(name).unwrap());
    store.close().unwrap();
    assert_eq!(store.catalog().uncleared(), 0);
    drop(store);
    let store = open(&disk);
    let left = store.engine().indexes().unwrap();
    assert!(gone.iter().all(|id| !left.contains(id)));
}

/// A clean-up that fails without stopping the store, as the manifest can neither go on nor begin anew on the full disk, is
/// repeated in the background: once there is room, the space is given back though nobody changes a table again.
#[test]
fn a_failed_clean_up_is_repeated_without_another_statement() {
    use strata_engine::io::FaultKind;
    let (disk, _, names) = full();
    let mut repeated = 0;
    // A drop takes few operations, but for one that begins the manifest anew: faults that come later meet only that.
    for n in 8..40 {
        let disk = disk.copy();
        disk.set_capacity(Some(disk.used()));
        let store = open(&disk);
        let mut gone = Vec::new();
        for name in &names {
            disk.set_capacity(Some(disk.used()));
            gone = store.catalog().get(name).unwrap().ids();
            disk.fail_after(n, FaultKind::StorageFull);
            let outcome = store.drop_table(name);
            // Left for later, as one of many.
            store.catalog().clear();
            disk.clear_fault();
            if store.engine().check().is_err() || store.catalog().uncleared() > 0 {
                break;
            }
            outcome.unwrap();
        }
        if store.engine().check().is_err() || store.catalog().uncleared() == 0 {
            continue;
        }
        assert_eq!(store.catalog().uncleared(), gone.len());
        assert!(gone.iter().any(|id| store.engine().indexes().unwrap().contains(id)));
        disk.set_capacity(None);
        let began = Instant::now();
        while store.catalog().uncleared() > 0 {
            assert!(began.elapsed() < Duration::from_secs(120), "operation {n}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(gone.iter().all(|id| !store.engine().indexes().unwrap().contains(id)));
        let (note, newest) = (strata_row::catalog::format::pending_key, store.engine().visible());
        assert!(gone.iter().all(|&id| !store.engine().get_at(&note(id), newest, &mut Vec::new()).unwrap()));
        repeated += 1;
        if repeated == 2 {
            break;
        }
    }
    assert_eq!(repeated, 2);
}
