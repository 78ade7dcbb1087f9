//! Turns of merges, with one thread that acts for several.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::flusher::flush_oldest;
use super::running::{Running, Slice};
use super::scheduler::{Scheduler, Step, look, take_step};
use crate::base::{FileNo, IndexId, SeqNo};
use crate::compact::pick::Reason;
use crate::event::FlushReason;
use crate::io::MemDisk;
use crate::options::Options;
use crate::parts::Core;
use crate::recover::recover;
use crate::txn::Txn;

const ROWS: u64 = 4000;

/// A store whose threads do not run.
fn still_store() -> (Arc<Core>, Scheduler) {
    let options = Options { disk: Arc::new(MemDisk::new()), ..Options::default() };
    let core = Arc::new(recover(Path::new("/still"), options).unwrap());
    let scheduler = Scheduler::new(&core);
    (core, scheduler)
}

fn key(index: u32, row: u64) -> Vec<u8> {
    [&IndexId(index).prefix()[..], &row.to_be_bytes()].concat()
}

/// What a row holds after so many rounds.
fn row(row: u64, round: u64, len: usize) -> Vec<u8> {
    let mut state = (row << 20 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| byte()).collect()
}

/// Writes all rows anew, into a file of level 0.
fn write(core: &Arc<Core>, index: u32, rows: u64, round: u64, len: usize) {
    let mut txn = Txn::new(core.clone());
    for number in 0..rows {
        txn.put(&key(index, number), &row(number, round, len)).unwrap();
    }
    txn.commit().unwrap();
    core.journal.committer.seal(FlushReason::Asked);
    flush_oldest(core, usize::MAX).unwrap();
    look(core);
}

fn manual(core: &Arc<Core>, index: u32) -> Running {
    let (lower, upper) = (IndexId(index).prefix(), IndexId(index + 1).prefix());
    match take_step(core, &mut core.board.shared.lock(), (&lower, &upper), FileNo(u64::MAX)) {
        Step::Job(running, ..) => running,
        Step::Done | Step::Blocked => panic!("there are files to merge"),
    }
}

fn run_to_end(scheduler: &Scheduler, mut running: Running) {
    while let Slice::More(_) = running.run_slice().unwrap() {}
    assert!(scheduler.end(running, Ok(())));
}

/// A merge in hand that has more to do.
fn begun(core: &Arc<Core>) -> Running {
    write(core, 1, ROWS, 1, 1000);
    write(core, 1, ROWS, 2, 1000);
    let mut long = manual(core, 1);
    for _ in 0..2 {
        assert!(matches!(long.run_slice().unwrap(), Slice::More(_)));
    }
    long
}

/// So many overlapping files that level 0 calls for a merge.
fn crowd_level_0(core: &Arc<Core>) {
    for round in 0..8 {
        write(core, 2, 10, round, 10);
    }
}

/// A merge that was laid down for a more urgent one goes on in the first thread that is free, also while the urgent one is at work.
#[test]
fn a_merge_that_rests_goes_on_in_any_thread() {
    let (core, scheduler) = still_store();
    let long = begun(&core);
    let again = scheduler.next(Some(long), None).unwrap();
    assert_eq!(again.reason(), Reason::Manual, "nothing is more urgent");
    crowd_level_0(&core);

    let urgent = scheduler.next(Some(again), None).unwrap();
    assert_eq!(urgent.reason(), Reason::L0);
    assert_eq!(core.board.shared.lock().running.len(), 2);
    let resting = scheduler.next(None, None).unwrap();
    assert_eq!(resting.reason(), Reason::Manual);
    run_to_end(&scheduler, resting);
    let work = core.board.counters();
    assert_eq!(work.compactions, 1, "the urgent one is still to be done");
    run_to_end(&scheduler, urgent);
    assert_eq!(core.board.counters().compactions, 2);
    assert!(core.board.shared.lock().running.is_empty());

    for number in 0..ROWS {
        let mut value = Vec::new();
        assert!(crate::read::get(&core.tree, &key(1, number), SeqNo::MAX, &mut value).unwrap());
        assert_eq!(value, row(number, 2, 1000), "row {number}");
    }
    let version = core.tree.states.load().version.clone();
    assert_eq!(version.sublevels().count(), 0);
    assert!(version.holding(IndexId(1)).all(|(level, _)| level == 6));
}

/// After a failure no other job is begun for a while, but what rests goes on.
#[test]
fn what_rests_goes_on_after_a_failure() {
    let (core, scheduler) = still_store();
    let long = begun(&core);
    crowd_level_0(&core);
    let later = Instant::now() + Duration::from_secs(600);
    let same = scheduler.next(Some(long), Some(later)).unwrap();
    assert_eq!(same.reason(), Reason::Manual);
    let urgent = scheduler.next(Some(same), Some(Instant::now())).unwrap();
    assert_eq!(urgent.reason(), Reason::L0);
}

/// When the store is closed, no merge is handed out, and those that rest take their files along.
#[test]
fn merges_that_rest_are_given_up_with_the_store() {
    let (core, scheduler) = still_store();
    let files = |core: &Core| core.tree.ssts.disk.list(&core.tree.ssts.dir).unwrap().len();
    write(&core, 1, ROWS, 1, 1000);
    write(&core, 1, ROWS, 2, 1000);
    let before = files(&core);
    let mut long = manual(&core, 1);
    for _ in 0..6 {
        assert!(matches!(long.run_slice().unwrap(), Slice::More(_)));
    }
    assert!(files(&core) > before);
    core.board.stop();
    assert!(scheduler.next(Some(long), None).is_none());
    scheduler.give_up();
    assert_eq!(files(&core), before);
    assert!(core.board.shared.lock().running.is_empty());
}
