//! Sizes of a table are counted when something may have changed them, not for each statement that asks: one on thousands of
//! partitions asks each of them. Counted are the looks at the clock, one for each time that sizes are taken.

use std::cell::Cell;
use std::sync::Arc;

use crate::common::*;
use strata_engine::io::{Clock, SystemClock};
use strata_row::kv::Options;
use strata_row::store::Store;

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

#[derive(Default)]
struct Counting(SystemClock);

impl Clock for Counting {
    fn now_us(&self) -> u64 {
        let _ = LOOKS.try_with(|looks| looks.set(looks.get() + 1));
        self.0.now_us()
    }
}

#[test]
fn sizes_that_nothing_has_changed_are_not_counted_anew() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { clock: Arc::new(Counting::default()), ..Options::default() };
    let store = Store::open(dir.path(), options).unwrap();
    let table = made(&store, "./db/t", definition(false));
    let mut client = Client::new(&store, &table);
    let looks = |times: usize| {
        let before = LOOKS.get();
        let stats = (0..times).map(|_| table.stats().unwrap()).next_back().unwrap();
        (LOOKS.get() - before, stats)
    };
    assert_eq!(looks(1).1.rows, 0);
    for c in 0..100 {
        client.insert(&row(c, 0, Some("b"), Some(c as i32))).unwrap();
        client.commit();
        let (taken, stats) = looks(1);
        assert!(taken > 0);
        assert_eq!(stats.rows, c as u64 + 1, "whatever was committed is counted");
    }
    let (taken, in_memory) = looks(50);
    assert_eq!(taken, 0, "nothing was committed");
    store.engine().flush().unwrap();
    store.engine().wait_idle().unwrap();
    let (taken, in_files) = looks(50);
    assert!((1..=2).contains(&taken), "what a flush moves is counted once: {taken}");
    assert_ne!(in_memory.data_bytes, in_files.data_bytes);
    assert_eq!(in_memory.rows, in_files.rows);
}
