//! Writes the store with a history that is kept in `fixtures/history/store`, and what each of its moments shows.
//!
//!     cargo run -p strata-engine --example history_store -- OUT_DIR
//!
//! Its marks and versions lie in merged files, in files of level 0 and in the log; the older ones are void, for the retention was shorter for
//! a while; a transaction was prepared in one second and committed in another. It is left as a crash leaves it. `OUT_DIR/store` gets the
//! files, `OUT_DIR/moments.txt` the changes:
//!
//! ```text
//! FLOOR                    moments up to this second are unknown
//! SECOND KEY VALUE         committed in this second; without VALUE, deleted
//! ```
//!
//! `tests/suite/past.rs` opens it and reads every moment.

#[path = "../tests/suite/common/day_clock.rs"]
mod day_clock;
mod kept;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use day_clock::DayClock;
use strata_engine::layer::{IndexId, LockMode, Txn, Wait};
use strata_engine::{Engine, Options};

/// Monday, 23 November 2026, 10:00:00 UTC.
const BEGIN: u64 = 1_795_428_000;
const INDEX: u32 = 16;

/// What is written, with the seconds.
struct Author {
    clock: Arc<DayClock>,
    text: String,
}

impl Author {
    fn set(&self, second: u64) {
        self.clock.set(BEGIN + second);
    }

    /// A change of a transaction that will be committed in a second.
    fn change(&mut self, txn: &mut Txn, second: u64, name: &str, value: Option<String>) {
        let key = [&IndexId(INDEX).prefix()[..], name.as_bytes()].concat();
        txn.lock(&key, LockMode::Exclusive, Wait::No).expect("free");
        self.text += &format!("{} {name}", BEGIN + second);
        match &value {
            Some(value) => {
                txn.put(&key, value.as_bytes()).expect("put");
                self.text += &format!(" {value}\n");
            }
            None => {
                txn.delete(&key).expect("delete");
                self.text += "\n";
            }
        }
    }

    /// A second with two transactions that change the same key, so that one version of it is nobody's.
    fn second(&mut self, engine: &Engine, second: u64) {
        self.set(second);
        for n in 0..2 {
            let mut txn = engine.begin();
            let value = format!("{second}-{n}-").repeat(1 + second as usize % 4);
            self.change(&mut txn, second, &format!("row-{}", second % 7), Some(value));
            if n == 1 && second % 5 == 0 {
                self.change(&mut txn, second, &format!("row-{}", (second + 3) % 7), None);
            }
            txn.commit().expect("commit");
        }
    }
}

fn main() {
    let out = std::env::args().nth(1).expect("usage: history_store OUT_DIR");
    let out = Path::new(&out);
    let dir = std::env::temp_dir().join(format!("strata-history-store-{}", std::process::id()));
    let clock = DayClock::at(BEGIN);
    let mut author = Author { clock: clock.clone(), text: String::new() };
    let options = Options {
        log_segment_bytes: 64 << 10,
        memtable_budget_bytes: 1 << 20,
        clock,
        history_retention_s: 100,
        ..Options::default()
    };
    let engine = Engine::open(&dir, options).expect("open");
    (1..=12).for_each(|second| author.second(&engine, second));
    engine.flush().expect("flush");
    // Prepared in one second, committed in another.
    let mut txn = engine.begin();
    author.change(&mut txn, 16, "prepared", Some("seen-from-second-17-on".to_owned()));
    txn.prepare(b"xid").expect("prepare");
    (13..=15).for_each(|second| author.second(&engine, second));
    author.set(16);
    txn.commit_ordered();
    txn.commit().expect("commit");
    drop(txn);
    engine.flush().expect("flush");
    engine.compact_range(&IndexId(0).prefix(), &IndexId(u32::MAX).prefix()).expect("compact");
    (18..=25).for_each(|second| author.second(&engine, second));
    engine.flush().expect("flush");
    // Nothing is kept of the oldest seconds any more.
    author.set(30);
    engine.set_history_retention(20).expect("shorter");
    engine.set_history_retention(100).expect("longer");
    let floor = BEGIN + 30 - 20 - 1;
    // In the log only.
    (31..=40).for_each(|second| author.second(&engine, second));
    engine.sync().expect("sync");

    kept::keep(&dir, &out.join("store"));
    fs::write(out.join("moments.txt"), format!("{floor}\n{}", author.text)).expect("write");
    drop(fs::remove_dir_all(&dir));
    // As a crash: nothing is closed.
    std::process::exit(0);
}
