//! What statements that only read allocate when their cursor has been used before: nothing where rows come from a memtable or
//! one row from a table in the cache; a scan of tables gets the memory of its key anew. Counted are the allocations of the
//! thread that reads.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use strata_row::scan::Seek;

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

/// A transaction with one statement: from a key of an index on, so many rows.
fn read(client: &mut Client, index: usize, mode: Seek, image: &[u8], rows: usize) {
    client.begin();
    client.cursor.begin(Some(index), false).unwrap();
    assert!(client.cursor.seek(&mut client.session, mode, image, &mut client.record).unwrap());
    for _ in 1..rows {
        assert!(client.cursor.next(&mut client.session, &mut client.record).unwrap());
    }
    client.cursor.end();
    client.session.statement_end();
    client.session.commit().unwrap();
}

#[test]
fn cached_reads_allocate_next_to_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, table) = fresh(dir.path());
    let mut client = Client::new(&store, &table);
    for c in 0..ROWS {
        client.insert(&row(c, 0, Some("k"), Some(c as i32))).unwrap();
        client.commit();
    }
    let keys: Vec<(Vec<u8>, Vec<u8>)> =
        (0..ROWS - RANGE as i64).map(|c| (image_ca(c, 0), image_e(Some(c as i32)))).collect();
    for place in ["memtable", "table"] {
        if place == "table" {
            store.engine().flush().unwrap();
            store.engine().wait_idle().unwrap();
        }
        // The last number: allocations of a statement that reads from a table.
        let reads: [(&str, usize, Seek, usize, u64); 4] = [
            ("row", PRIMARY, Seek::Exact, 1, 0),
            ("rows", PRIMARY, Seek::Ge, RANGE, 2),
            ("row by an index", BY_E, Seek::Exact, 1, 0),
            ("rows by an index", BY_E, Seek::Ge, RANGE, 2),
        ];
        for (what, index, mode, rows, of_tables) in reads {
            let all = |client: &mut Client| {
                let before = ALLOCATIONS.get();
                for (primary, e) in &keys {
                    read(client, index, mode, if index == PRIMARY { primary } else { e }, rows);
                }
                ALLOCATIONS.get() - before
            };
            // What it needs grows to its size, and blocks come into the cache.
            all(&mut client);
            let allowed = if place == "table" { of_tables * keys.len() as u64 } else { 0 };
            assert_eq!(all(&mut client), allowed, "{what} from a {place}, {} statements", keys.len());
        }
    }
}
