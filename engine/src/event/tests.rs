use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::incidents::Incidents;
use super::stalls::{Change, Ended, Stalls};
use super::*;

fn disk_full(path: &str) -> Error {
    Error::io("write", Path::new(path), io::ErrorKind::StorageFull.into())
}

fn eio(op: &'static str, path: &str) -> Error {
    Error::io(op, Path::new(path), io::Error::from_raw_os_error(5))
}

fn damage(offset: u64) -> Error {
    Error::corruption(Path::new("/s/7.sst"), offset, "checksum differs")
}

/// Every kind of event, in the order of their declaration: severity and line.
#[test]
fn each_event_has_a_severity_and_a_line() {
    let reason = FlushReason::Full;
    let path = Path::new("/s/log/3.log").to_owned();
    let cut = |begun_bytes| Event::LogCut {
        path: path.clone(),
        offset: 4096,
        fault: "checksum differs",
        bytes: 8192,
        begun_bytes,
        intact_units: 1,
        records: 5,
        commits: 3,
        prepares: 2,
    };
    let cause = StallCause::Memtables;
    let reached = |left_us| Reached { done: 300, of: 900, us: 10_000_000, left_us };
    let events = [
        Event::Recovering(reached(Some(20_000_001))),
        Event::Recovering(reached(None)),
        Event::Opened { files: 3, commits: 40, prepared: 1, orphans: 2, us: 1_500_000 },
        cut(0),
        cut(17),
        Event::PreparedDamaged { xid: b"x\n".to_vec(), error: damage(9) },
        Event::FlushBegun { job: 1, memtables: 2, bytes: 300, reason },
        Event::FlushDone { job: 1, memtables: 2, files: 1, bytes_in: 300, bytes_out: 100, reason, us: 2_000 },
        Event::FlushFailed { job: 1, error: eio("sync", "/s/8.sst") },
        Event::MergeBegun { job: 2, reason: MergeReason::Size, from: 0, to: 5, files: 4, bytes: 900 },
        Event::MergeDone {
            job: 2,
            reason: MergeReason::Size,
            from: 0,
            to: 5,
            files: 2,
            bytes_in: 900,
            bytes_out: 700,
            us: 61_000_000,
        },
        Event::MergeFailed { job: 2, from: 0, to: 5, error: damage(9) },
        Event::FilesMoved { from: 5, to: 6, files: 2, bytes: 700 },
        Event::WriteStallBegun { stall: 1, cause, memtable_bytes: 64, sublevels: 3, debt_bytes: 10 },
        Event::WriteStallEnded { stall: 1, cause: StallCause::Backlog, us: 250_000 },
        Event::CorruptionFound { work: Work::Merge, error: damage(9) },
        Event::OutOfSpace { work: Work::Flush, error: disk_full("/s/8.sst") },
        Event::SpaceFound { us: 3_000_000 },
        Event::ReencryptionBegun { files: 3, bytes: 900 },
        Event::ReencryptionDone { us: 4_000_000 },
        Event::BackgroundFailed { work: Work::Flush, error: eio("sync", "/s/8.sst"), untold: 0 },
        Event::BackgroundFailed { work: Work::Removal, error: eio("remove", "/s/8.sst"), untold: 59 },
        Event::BackgroundRecovered { work: Work::Flush, failures: 60, us: 60_000_000 },
        Event::Closing(reached(Some(20_000_000))),
        Event::Stopped { cause: Arc::new(eio("sync", "/s/log/3.log")) },
    ];
    let found: Vec<String> = events.iter().map(|event| format!("{:?}: {event}", event.severity())).collect();
    let expected = [
        "Note: recovery has read 300 of 900 bytes of the log after 10.000 s; about 21 s are left",
        "Note: recovery has read 300 of 900 bytes of the log after 10.000 s; nothing was done in the last seconds",
        "Info: the store is open after 1.500 s: 3 table files, 40 commits from the log, 1 prepared transactions, 2 table files \
         without an owner removed",
        "Warning: the log ends in /s/log/3.log at offset 4096 (checksum differs), and 8192 bytes of it behind are left out; \
         whole units in them: 1, whole records: 5, among these 3 commits and 2 prepared transactions. That is how a write looks \
         that a crash cut short, and nothing in the log states that it was ever synced; if the server had been idle for \
         seconds before it ended, suspect the disk",
        "Warning: the log ends in /s/log/3.log at offset 4096 (checksum differs), and 8192 bytes of it behind are left out, \
         with them a record of which 17 bytes stand before; whole units in them: 1, whole records: 5, among these 3 commits and \
         2 prepared transactions. That is how a write looks that a crash cut short, and nothing in the log states that it was \
         ever synced; if the server had been idle for seconds before it ended, suspect the disk",
        "Warning: the prepared transaction \"x\\n\" cannot be committed, only rolled back; until then nobody else writes to the \
         indexes of this file of it: corruption in /s/7.sst at offset 9: checksum differs",
        "Info: flush 1 begins: 2 memtables of 300 bytes (full)",
        "Info: flush 1 is done after 0.002 s: 2 memtables of 300 bytes (full), 1 files of 100 bytes",
        "Info: flush 1 failed: sync /s/8.sst: Input/output error (os error 5)",
        "Info: merge 2 begins: level 0 to 5, 4 files of 900 bytes (the level is above its target)",
        "Info: merge 2 is done after 61.000 s: level 0 to 5 (the level is above its target), 900 bytes read, 2 files of 700 \
         bytes written",
        "Info: merge 2, level 0 to 5, failed: corruption in /s/7.sst at offset 9: checksum differs",
        "Info: 2 files of 700 bytes moved from level 5 to 6",
        "Info: write stall 1 begins: the memtables are full and writes wait for a flush; memtables have 64 bytes, level 0 has 3 \
         sublevels, merges lag 10 bytes behind",
        "Info: write stall 1 is over after 0.250 s: background work lags behind and writes are slowed",
        "Error: compaction failed: corruption in /s/7.sst at offset 9: checksum differs; the file stays as it is, and other work \
         goes on",
        "Warning: the disk is full: flushing was refused: write /s/8.sst: no storage space; work goes on once there is space",
        "Note: the disk has space again, after 3.000 s",
        "Note: 3 table files of 900 bytes are written anew, to be encrypted as they should be",
        "Note: all table files are encrypted as they should be, after 4.000 s",
        "Warning: flush failed: sync /s/8.sst: Input/output error (os error 5)",
        "Warning: cannot remove a file that is no longer needed: remove /s/8.sst: Input/output error (os error 5) (59 times more \
         since this was told last)",
        "Note: flushing works again, after 60 failures in 60.000 s",
        "Note: the store is being closed: 300 of 900 bytes of memtables are written after 10.000 s; about 20 s are left",
        "Error: the store has stopped: sync /s/log/3.log: Input/output error (os error 5)",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

/// `WORK fails with WHAT [for BYTES] at SECONDS`, `WORK succeeds [with BYTES] at SECONDS`, `-> told`.
const STORY: &str = "
    Flush fails with eio at 0          -> BackgroundFailed 0
    Flush fails with eio at 1          ->
    Flush fails with eio at 59         ->
    Flush fails with eio at 60         -> BackgroundFailed 2
    Merge fails with eio at 61         -> BackgroundFailed 0
    Flush fails with damage at 62      -> CorruptionFound
    Flush fails with damage at 63      ->
    Flush fails with eio at 179        ->
    Flush fails with eio at 180        -> BackgroundFailed 1
    Flush succeeds at 181              -> BackgroundRecovered 8 after 181
    Flush succeeds at 182              ->
    Flush fails with eio at 183        ->
    Flush succeeds at 184              ->
    Flush fails with eio at 420        -> BackgroundFailed 1
    Flush succeeds at 421              -> BackgroundRecovered 1 after 1
    Merge succeeds at 422              -> BackgroundRecovered 1 after 361
    Flush succeeds at 99999            ->
    Flush fails with eio at 100000     -> BackgroundFailed 0
    Flush fails with eio at 100061     -> BackgroundFailed 0
    Flush succeeds at 100062           -> BackgroundRecovered 2 after 62

    Flush fails with full at 200000    -> OutOfSpace
    Flush fails with full at 200001    ->
    Merge fails with full for 900 at 200002 ->
    Write fails with full for 100 at 200003 ->
    Write fails with full for 20 at 200003  ->
    Flush succeeds at 200010           ->
    Merge succeeds with 800 at 200011  ->
    Write succeeds with 20 at 200012   ->
    Write succeeds with 100 at 200013  ->
    Merge succeeds with 900 at 200014  -> SpaceFound 14
    Merge succeeds with 900 at 200015  ->
    Log fails with full at 200020      -> OutOfSpace
    Log succeeds at 200021             -> SpaceFound 1

    Flush fails with stopped at 300000 ->
    Flush fails with closed at 300001  ->
    Flush succeeds at 300002           ->
    Flush fails with eio at 400000     -> BackgroundFailed 0
    the store stops
    Flush fails with eio at 500000     ->
    Flush fails with full at 500001    ->";

#[test]
fn what_repeats_is_not_told_each_time() {
    let mut incidents = Incidents::default();
    for line in STORY.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some((what, expected)) = line.split_once("->") else {
            incidents.stopped();
            continue;
        };
        let words: Vec<&str> = what.split_whitespace().collect();
        let after = |word: &str| words.iter().position(|w| *w == word).map(|at| words[at + 1]);
        let number = |word: &str| after(word).map_or(0, |n| n.parse::<u64>().unwrap());
        let work = [Work::Flush, Work::Merge, Work::Log, Work::Write];
        let work = *work.iter().find(|work| format!("{work:?}") == words[0]).unwrap();
        let now_us = number("at") * 1_000_000;
        let events: Vec<Event> = match words[1] {
            "fails" => {
                let error = match after("with").unwrap() {
                    // Each attempt is for a new file.
                    "eio" => eio("sync", &format!("/s/{now_us}.sst")),
                    "full" => disk_full(&format!("/s/{now_us}.sst")),
                    "damage" => damage(3),
                    "stopped" => Error::Poisoned(Arc::new(eio("sync", "/s/log/1.log"))),
                    "closed" => Error::Closed,
                    other => panic!("{other}"),
                };
                incidents.failed(work, number("for"), &error, now_us).into_iter().collect()
            }
            _ => incidents.succeeded(work, number("with"), now_us).into_iter().flatten().collect(),
        };
        let told = events.iter().map(|event| match event {
            Event::BackgroundFailed { work: of, untold, .. } => {
                assert_eq!(*of, work);
                format!("BackgroundFailed {untold}")
            }
            Event::BackgroundRecovered { failures, us, .. } => {
                format!("BackgroundRecovered {failures} after {}", us / 1_000_000)
            }
            Event::SpaceFound { us } => format!("SpaceFound {}", us / 1_000_000),
            other => format!("{other:?}").split([' ', '{']).next().unwrap().to_owned(),
        });
        assert_eq!(told.collect::<Vec<_>>().join(", "), expected.trim(), "{line}");
    }
}

/// A disk that finds a new way to fail each time does not fill the memory or the log.
#[test]
fn many_causes_count_as_one() {
    let mut incidents = Incidents::default();
    let told = (0..10_000).filter(|&n| incidents.failed(Work::Merge, 0, &damage(n), 0).is_some()).count();
    assert_eq!(told, 65);
}

#[test]
fn waits_that_overlap_are_one_stall() {
    let mut stalls = Stalls::default();
    assert_eq!(stalls.enter(10), Some(1));
    assert_eq!(stalls.enter(11), None);
    assert_eq!(stalls.leave(12), None);
    assert_eq!(stalls.enter(13), None);
    assert_eq!(stalls.leave(14), None);
    assert_eq!(stalls.leave(25), Some(Ended { stall: 1, us: 15 }));
    assert_eq!(stalls.enter(30), Some(2));
    assert_eq!(stalls.leave(30), Some(Ended { stall: 2, us: 0 }));

    assert_eq!(stalls.look(99_999, 0), None, "too little to tell");
    assert_eq!(stalls.look(200_000, 1_000_000), Some(Change::Begun(1)));
    assert_eq!(stalls.look(200_001, 2_000_000), None, "a little is not the end");
    assert_eq!(stalls.look(200_001, 2_999_999), None, "a look that comes early is none");
    assert_eq!(stalls.look(900_000, 3_000_000), None);
    assert_eq!(stalls.look(900_000, 4_000_000), Some(Change::Ended(Ended { stall: 1, us: 3_000_000 })));
    assert_eq!(stalls.look(900_000, 5_000_000), None);
    assert_eq!(stalls.look(1_000_000, 6_000_000), Some(Change::Begun(2)));
}

/// A panic of the listener ends with the event, and the next is told.
#[test]
fn a_listener_that_panics_is_called_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let listener = move |_: &Event| {
        assert!(is_listening());
        if counted.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("this panic is wanted");
        }
    };
    let teller = Teller::new(Some(Arc::new(listener)));
    for _ in 0..2 {
        teller.tell(|| Event::SpaceFound { us: 1 });
        assert!(!is_listening());
    }
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// Where nobody listens no event is made, and no lock taken.
#[test]
fn nothing_is_made_for_nobody() {
    let teller = Teller::new(None);
    let (_incidents, _stalls) = (teller.incidents.lock(), teller.stalls.lock());
    teller.tell(|| unreachable!());
    teller.failed(Work::Flush, 0, &eio("sync", "/s/1.sst"), 0);
    teller.succeeded(Work::Flush, 0, 0);
    teller.look_at_backlog(|| unreachable!(), 0, || unreachable!());
    assert_eq!(teller.refused_bytes(Work::Write), None);
    drop(teller.wait_for_memory(&crate::io::ManualClock::default(), || unreachable!()));
}
