//! What statements take from memory. Those that only read allocate nothing when their cursor has been used before and what they read
//! is in memory: counted are the allocations of the thread that reads. Those that write count what they make of a long row.

#[path = "suite/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use strata_row::kv::Options;
use strata_row::scan::Seek;
use strata_row::store::Store;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(old, layout, bytes) }
    }
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: i64 = 300;
const RANGE: usize = 10;

/// So large that there are some blocks of them.
fn large(c: i64, b: &str) -> Row {
    Row { d: Some(vec![c as u8; 500]), ..row(c, 0, Some(b), Some(c as i32)) }
}

/// A transaction with one statement: the first rows of a search, fewer if it comes to the end of the index.
fn read(client: &mut Client, index: usize, mode: Seek, image: &[u8], rows: usize) {
    client.begin();
    client.cursor.begin(Some(index), false).unwrap();
    let mut found = client.cursor.seek(&mut client.session, mode, image, &mut client.record).unwrap();
    assert!(found);
    for _ in 1..rows {
        found = found
            && match mode {
                Seek::Last => client.cursor.prev(&mut client.session, &mut client.record).unwrap(),
                _ => client.cursor.next(&mut client.session, &mut client.record).unwrap(),
            };
    }
    client.cursor.end();
    client.session.statement_end();
    client.session.commit().unwrap();
}

/// Each kind of search for each of some keys, once to let buffers grow and bring blocks into the cache, then counted.
fn check(client: &mut Client, place: &str) {
    let keys: Vec<(Vec<u8>, Vec<u8>)> =
        (0..ROWS).step_by(3).map(|c| (image_ca(c, 0), image_e(Some(c as i32)))).collect();
    let reads: [(&str, usize, Seek, usize); 8] = [
        ("row", PRIMARY, Seek::Exact, 1),
        ("rows", PRIMARY, Seek::Ge, RANGE),
        ("row by an index", BY_E, Seek::Exact, 1),
        ("rows by an index", BY_E, Seek::Ge, RANGE),
        ("first rows", PRIMARY, Seek::First, RANGE),
        ("last rows", PRIMARY, Seek::Last, RANGE),
        ("all rows", PRIMARY, Seek::First, ROWS as usize + 1),
        ("all rows backward", PRIMARY, Seek::Last, ROWS as usize + 1),
    ];
    for (what, index, mode, rows) in reads {
        let all = |client: &mut Client| {
            let before = ALLOCATIONS.get();
            for (primary, e) in &keys {
                let image = match mode {
                    Seek::First | Seek::Last => &[],
                    _ if index == PRIMARY => primary.as_slice(),
                    _ => e,
                };
                read(client, index, mode, image, rows);
            }
            ALLOCATIONS.get() - before
        };
        all(client);
        assert_eq!(all(client), 0, "{what} from {place}, {} statements", keys.len());
    }
}

#[test]
fn cached_reads_allocate_nothing() {
    for (sst_bytes, place) in [(64 << 20, "a table"), (1, "many tables")] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options { sst_bytes, ..Options::default() }).unwrap();
        store.create_table("./db/t", &definition(false), 0).unwrap();
        let table = store.open_table("./db/t", definition(false)).unwrap();
        let mut client = Client::new(&store, &table);
        for c in 0..ROWS {
            client.insert(&large(c, "k")).unwrap();
            client.commit();
        }
        check(&mut client, "a memtable");
        store.engine().flush().unwrap();
        store.engine().wait_idle().unwrap();
        // Four indexes and the dictionary.
        let files = store.engine().metrics().level_files.iter().sum::<u64>();
        assert!(if sst_bytes == 1 { files >= 2 * 5 } else { files <= 5 }, "{files} files");
        check(&mut client, place);
        for c in (0..ROWS).step_by(7) {
            client.update(&large(c, "k"), &large(c, "l")).unwrap();
            client.commit();
        }
        check(&mut client, &format!("{place} and a memtable"));
    }
}

/// The only buffers of this length in the process.
#[test]
fn a_long_row_that_is_written_is_counted_until_the_statement_ends() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    store.create_table("./db/t", &definition(false), 0).unwrap();
    let table = store.open_table("./db/t", definition(false)).unwrap();
    let mut client = Client::new(&store, &table);
    let counted = || store.engine().metrics().value_buffer_bytes;
    // The longest BLOB that is not left in the server's memory, so that the row is longer.
    let long = |e| Row { d: Some(vec![1; u16::MAX.into()]), ..row(1, 0, Some("k"), Some(e)) };
    client.insert(&long(1)).unwrap();
    assert!(counted() > u64::from(u16::MAX), "{}", counted());
    client.cursor.forget_values();
    assert_eq!(counted(), 0);
    client.write(&long(1), &long(2)).unwrap();
    assert!(counted() > u64::from(u16::MAX), "{}", counted());
    client.cursor.forget_values();
    client.session.statement_end();
    client.commit();
    assert_eq!(counted(), 0);
    // Who does not forget gives it back with the cursor.
    client.insert(&Row { c: 2, ..long(3) }).unwrap();
    assert!(counted() > 0);
    client.commit();
    drop(client);
    assert_eq!(store.engine().metrics().left_behind(), []);
}
