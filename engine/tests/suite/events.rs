//! What a store tells its listener: each thing once, with what belongs to it, where it happens; and what a listener may do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{DIR, Recorder, Rng, dump, eventually, hooked, key, options, value, within};
use parking_lot::{Condvar, Mutex};
use strata_engine::event::{FlushReason, MergeReason, StallCause, Work};
use strata_engine::io::{Disk, FaultKind, HookedDisk, ManualClock, MemDisk, Mode, Operation};
use strata_engine::layer::{Feature, IndexId, Need};
use strata_engine::{Durability, Engine, Error, Event, Options, Result, Severity};

fn put(engine: &Engine, rng: &mut Rng, rows: u64, bytes: u64) -> Result<()> {
    for _ in 0..rows {
        let key = key(1, rng.below(100_000));
        engine.write(&[(key, Some(value(rng, 0, bytes)))], false)?;
    }
    Ok(())
}

/// A disk that refuses to make or to remove table files.
struct Refusing {
    creations: Arc<AtomicBool>,
    removals: Arc<AtomicBool>,
    disk: Arc<dyn Disk>,
}

impl Refusing {
    fn new(inner: &MemDisk) -> Refusing {
        let (creations, removals) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let refused = [(Operation::Open(Mode::Create), creations.clone()), (Operation::Remove, removals.clone())];
        let pass = move |operation: Operation, path: &Path| {
            let refuses = refused.iter().any(|(of, refuses)| *of == operation && refuses.load(Ordering::SeqCst));
            match refuses && path.extension().is_some_and(|e| e == "sst") {
                true => Err(Error::io(operation.name(), path, std::io::Error::from_raw_os_error(5))),
                false => Ok(()),
            }
        };
        Refusing { creations, removals, disk: Arc::new(HookedDisk::new(Arc::new(inner.clone()), Arc::new(pass))) }
    }
}

/// A store on a new disk, and who is told.
fn told() -> (MemDisk, Recorder, Engine) {
    let (disk, recorder) = (MemDisk::new(), Recorder::default());
    let options = Options { listener: recorder.listener(), ..options(Arc::new(disk.clone())) };
    let engine = Engine::open(Path::new(DIR), options).unwrap();
    (disk, recorder, engine)
}

#[test]
fn a_flush_is_told_from_its_beginning_to_its_end() {
    within("a flush", 60, || {
        let (disk, recorder, engine) = told();
        assert!(matches!(recorder.events()[..], [Event::Opened { files: 0, commits: 0, prepared: 0, orphans: 0, .. }]));
        put(&engine, &mut Rng::new(1), 20, 1000).unwrap();
        let held = engine.metrics().memtable_bytes;
        engine.flush().unwrap();
        let flushes: Vec<Event> = recorder
            .events()
            .into_iter()
            .filter(|e| matches!(e, Event::FlushBegun { .. } | Event::FlushDone { .. } | Event::FlushFailed { .. }))
            .collect();
        let work = engine.metrics().work;
        let [
            Event::FlushBegun { job, memtables: 1, bytes, reason: FlushReason::Asked },
            Event::FlushDone {
                job: done, memtables: 1, files, bytes_in, bytes_out, reason: FlushReason::Asked, ..
            },
        ] = flushes[..]
        else {
            panic!("{flushes:?}")
        };
        assert!(job == done && files > 0 && bytes == bytes_in && bytes_in > 20_000 && bytes_in <= held, "{flushes:?}");
        assert_eq!((work.flushes, work.flush_bytes_in, work.flush_bytes), (1, bytes_in, bytes_out));
        engine.flush().unwrap();
        assert_eq!(recorder.count(|e| matches!(e, Event::FlushBegun { .. })), 1, "there is nothing to flush");
        assert_eq!(recorder.lines(), [""; 0], "nothing for an operator");

        // The next opening: what is in files is not in the log.
        put(&engine, &mut Rng::new(2), 3, 10).unwrap();
        engine.close().unwrap();
        drop(engine);
        // Left by a crash before the manifest could name it.
        disk.open(&Path::new(DIR).join("00000000000000000999.sst"), Mode::Create, false).unwrap();
        let recorder = Recorder::default();
        let options = Options { listener: recorder.listener(), ..crate::common::options(Arc::new(disk)) };
        let _engine = Engine::open(Path::new(DIR), options).unwrap();
        let opened = recorder.events().into_iter().find(|e| matches!(e, Event::Opened { .. }));
        let Some(Event::Opened { files: has, commits: 3, prepared: 0, orphans: 1, .. }) = opened else {
            panic!("{opened:?}")
        };
        assert_eq!(has, files);
    });
}

/// A disk on which a read or write of a file with this extension takes eleven seconds of the store's clock, while that is said.
fn slow(
    inner: &MemDisk,
    what: &'static str,
    extension: &'static str,
    clock: &Arc<ManualClock>,
) -> (Arc<dyn Disk>, Arc<AtomicBool>) {
    let is_slow = Arc::<AtomicBool>::default();
    let (clock, says) = (clock.clone(), is_slow.clone());
    let pass = move |operation: Operation, path: &Path| {
        let is_meant = operation.name() == what && path.extension().is_some_and(|e| e == extension);
        if is_meant && says.load(Ordering::SeqCst) {
            clock.advance_us(11_000_000);
        }
        Ok(())
    };
    (Arc::new(HookedDisk::new(Arc::new(inner.clone()), Arc::new(pass))), is_slow)
}

/// Enough that recovery reads its log in several pieces, and that a close flushes it.
fn long_log(engine: &Engine) {
    put(engine, &mut Rng::new(1), 200, 100_000).unwrap();
    engine.sync().unwrap();
}

#[test]
fn a_long_recovery_tells_how_far_it_is() {
    within("a recovery", 120, || {
        let (inner, clock) = (MemDisk::new(), Arc::new(ManualClock::default()));
        let options = |disk| Options {
            clock: clock.clone(),
            memtable_budget_bytes: 256 << 20,
            log_segment_bytes: 4 << 20,
            ..options(disk)
        };
        let engine = Engine::open(Path::new(DIR), options(Arc::new(inner.clone()))).unwrap();
        long_log(&engine);
        let crashed = inner.crash(1);
        drop(engine);
        // Quick, it tells nothing.
        let told = |disk| {
            let recorder = Recorder::default();
            drop(Engine::open(Path::new(DIR), Options { listener: recorder.listener(), ..options(disk) }).unwrap());
            recorder.events()
        };
        let is_of_recovery = |e: &Event| matches!(e, Event::Recovering(_));
        assert!(!told(Arc::new(crashed.crash(1))).iter().any(is_of_recovery));
        let (disk, is_slow) = slow(&crashed, "read", "log", &clock);
        is_slow.store(true, Ordering::SeqCst);
        let events = told(disk);
        let reached: Vec<_> = events
            .iter()
            .filter_map(|e| if let Event::Recovering(reached) = e { Some(reached) } else { None })
            .collect();
        assert!(reached.len() >= 3, "{events:?}");
        assert!(reached.windows(2).all(|pair| pair[0].done < pair[1].done && pair[0].us < pair[1].us), "{reached:?}");
        let (first, last) = (reached[0], reached[reached.len() - 1]);
        assert!(reached.iter().all(|now| now.done <= now.of && now.of == first.of), "{reached:?}");
        assert!(first.left_us > last.left_us && last.left_us.is_some(), "{reached:?}");
        // What there is to read is known to two segments.
        assert!(last.of - last.done <= 3 * (4 << 20), "{last:?}");
        let opened = events.iter().position(|e| matches!(e, Event::Opened { .. }));
        assert!(events.iter().rposition(is_of_recovery) < opened, "{events:?}");
    });
}

#[test]
fn a_long_close_tells_how_far_it_is() {
    within("a close", 120, || {
        let (inner, clock, recorder) = (MemDisk::new(), Arc::new(ManualClock::default()), Recorder::default());
        let is_closing = Arc::<AtomicBool>::default();
        let pass = {
            let (clock, recorder, is_closing) = (clock.clone(), recorder.clone(), is_closing.clone());
            move |operation: Operation, path: &Path| {
                let is_meant = matches!(operation, Operation::Write(_)) && path.extension().is_some_and(|e| e == "sst");
                if is_meant && is_closing.swap(false, Ordering::SeqCst) {
                    clock.advance_us(11_000_000);
                    // Whoever waits for the flush is told meanwhile.
                    eventually("a word of the close", || recorder.count(|e| matches!(e, Event::Closing(_))) > 0);
                }
                Ok(())
            }
        };
        let disk = Arc::new(HookedDisk::new(Arc::new(inner.clone()), Arc::new(pass)));
        let options = |disk, listener| Options {
            clock: clock.clone(),
            listener,
            memtable_budget_bytes: 256 << 20,
            ..options(disk)
        };
        let engine = Engine::open(Path::new(DIR), options(disk, recorder.listener())).unwrap();
        long_log(&engine);
        let held = engine.metrics().memtable_bytes;
        is_closing.store(true, Ordering::SeqCst);
        engine.close().unwrap();
        let told: Vec<_> = recorder
            .events()
            .into_iter()
            .filter_map(|e| if let Event::Closing(reached) = e { Some(reached) } else { None })
            .collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].of == held && told[0].done < held && told[0].us == 11_000_000, "{told:?} of {held}");
        drop(engine);
        // A close that is quick tells nothing.
        let recorder = Recorder::default();
        let engine = Engine::open(Path::new(DIR), options(Arc::new(inner), recorder.listener())).unwrap();
        long_log(&engine);
        engine.close().unwrap();
        assert_eq!(recorder.count(|e| matches!(e, Event::Closing(_))), 0);
    });
}

/// Each merge that begins ends, in the figures as in the events.
#[test]
fn a_merge_is_told_from_its_beginning_to_its_end() {
    within("merges", 60, || {
        let recorder = Recorder::default();
        let options = Options { listener: recorder.listener(), ..options(Arc::new(MemDisk::new())) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let mut rng = Rng::new(1);
        for _ in 0..3 {
            put(&engine, &mut rng, 50, 1000).unwrap();
            engine.flush().unwrap();
        }
        engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        engine.wait_idle().unwrap();
        engine.close().unwrap();
        let (mut begun, mut done, mut moved) = (Vec::new(), Vec::new(), 0);
        let (mut read, mut written) = (0, 0);
        for event in recorder.events() {
            match event {
                Event::MergeBegun { job, reason, from, to, bytes, files } => {
                    assert!(files > 0 && from <= to);
                    begun.push((job, reason, from, to, bytes));
                }
                Event::MergeDone { job, reason, from, to, bytes_in, bytes_out, files, .. } => {
                    assert!(files > 0);
                    done.push((job, reason, from, to, bytes_in));
                    read += bytes_in;
                    written += bytes_out;
                }
                Event::FilesMoved { files, .. } => moved += files,
                Event::MergeFailed { .. } => panic!("{event}"),
                _ => {}
            }
        }
        begun.sort_by_key(|merge| merge.0);
        done.sort_by_key(|merge| merge.0);
        assert!(!begun.is_empty() && begun == done, "{begun:?} {done:?}");
        assert!(done.iter().any(|merge| merge.1 == MergeReason::Manual && merge.2 == 0), "{done:?}");
        let work = engine.metrics().work;
        assert_eq!((work.compactions, work.moves), (done.len() as u64, moved));
        assert_eq!((work.compact_bytes_read, work.compact_bytes_written), (read, written));
        assert_eq!(recorder.lines(), [""; 0]);
    });
}

#[test]
fn a_full_disk_is_told_when_it_begins_and_when_it_ends() {
    within("a full disk", 120, || {
        let (disk, recorder) = (MemDisk::new(), Recorder::default());
        let clock = Arc::new(ManualClock::default());
        let options =
            Options { listener: recorder.listener(), clock: clock.clone(), ..options(Arc::new(disk.clone())) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let mut rng = Rng::new(1);
        let begun = || recorder.count(|e| matches!(e, Event::OutOfSpace { .. }));
        let ended = || recorder.count(|e| matches!(e, Event::SpaceFound { .. }));
        for round in 1..3 {
            put(&engine, &mut rng, 30, 1000).unwrap();
            disk.set_capacity(Some(disk.used()));
            // Its flush is refused again and again, and so are writers, once the log is full.
            for _ in 0..4 {
                assert!(engine.flush().unwrap_err().is_disk_full());
            }
            let refused = put(&engine, &mut rng, 1000, 1000).unwrap_err();
            assert!(refused.is_disk_full(), "{refused}");
            for _ in 0..20 {
                assert!(put(&engine, &mut rng, 1, 1000).is_err_and(|error| error.is_disk_full()));
            }
            assert!(recorder.count(|e| matches!(e, Event::FlushFailed { .. })) >= 4 * round);
            assert_eq!((begun(), ended()), (round, round - 1));
            clock.advance_us(7_000_000);
            disk.set_capacity(None);
            engine.flush().unwrap();
            // The writers are gone; housekeeping finds the room for which they were refused.
            eventually("the end of the full disk", || ended() == round);
            put(&engine, &mut rng, 100, 1000).unwrap();
            engine.flush().unwrap();
            assert_eq!((begun(), ended()), (round, round));
        }
        let lines = recorder.lines();
        assert_eq!(lines.len(), 4, "{lines:?}");
        for full in [0, 2] {
            assert!(lines[full].starts_with("the disk is full: ") && lines[full].contains(DIR), "{lines:?}");
            assert_eq!(lines[full + 1], "the disk has space again, after 7.000 s");
        }
        assert!(engine.check().is_ok());
    });
}

/// Also where nothing but a writer has met the full disk, with more than a segment of the log at once.
#[test]
fn a_writer_alone_finds_the_disk_full() {
    within("a writer", 60, || {
        let (disk, recorder, engine) = told();
        // The segment that follows is made by housekeeping.
        put(&engine, &mut Rng::new(1), 1, 10).unwrap();
        let segments = || disk.list(&Path::new(DIR).join("log")).unwrap().len();
        eventually("the next segment", || segments() >= 2);
        disk.set_capacity(Some(disk.used()));
        assert!(put(&engine, &mut Rng::new(2), 1, 200_000).unwrap_err().is_disk_full());
        let after = engine.metrics().work;
        // Looks of housekeeping, which finds the next segment made, but no room for what was refused.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2500) {
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(recorder.count(|e| matches!(e, Event::SpaceFound { .. })), 0);
        }
        assert!(
            matches!(&recorder.lines()[..], [one] if one.contains("a write was refused")),
            "{:?}",
            recorder.lines()
        );
        disk.set_capacity(None);
        eventually("the end", || recorder.count(|e| matches!(e, Event::SpaceFound { .. })) == 1);
        assert_eq!(engine.metrics().work, after);
        assert_eq!(recorder.lines().len(), 2);
    });
}

/// Also where a large transaction has met it, whose files take the space back when it gives up.
#[test]
fn a_large_transaction_alone_finds_the_disk_full() {
    within("a large transaction", 60, || {
        let (disk, recorder) = (MemDisk::new(), Recorder::default());
        let options = Options {
            listener: recorder.listener(),
            log_segment_bytes: 4 << 20,
            transaction_bytes: 64 << 10,
            ..options(Arc::new(disk.clone()))
        };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let segments = || disk.list(&Path::new(DIR).join("log")).unwrap().len();
        eventually("the next segment", || segments() >= 2);
        disk.set_capacity(Some(disk.used() + (16 << 10)));
        let mut rng = Rng::new(1);
        let mut txn = engine.begin();
        let refused = (0..1000).find_map(|k| txn.put(&key(1, k), &value(&mut rng, 0, 1000)).err()).unwrap();
        assert!(refused.is_disk_full(), "{refused}");
        txn.rollback().unwrap();
        // The log has room, and there are some bytes: too few for what was refused.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2500) {
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(recorder.lines().len(), 1, "{:?}", recorder.lines());
        }
        assert!(recorder.lines()[0].contains("writing a large transaction was refused"), "{:?}", recorder.lines());
        disk.set_capacity(None);
        eventually("the end", || recorder.count(|e| matches!(e, Event::SpaceFound { .. })) == 1);
        eventually("no file", || {
            disk.list(Path::new(DIR)).unwrap().iter().all(|f| f.extension().is_none_or(|e| e != "sst"))
        });
        assert_eq!(recorder.lines().len(), 2);
    });
}

#[test]
fn damage_that_a_merge_meets_is_told_once() {
    within("damage", 60, || {
        let (disk, recorder) = (MemDisk::new(), Recorder::default());
        let options = Options { listener: recorder.listener(), ..options(Arc::new(disk.clone())) };
        let engine = Engine::open(Path::new(DIR), options.clone()).unwrap();
        let mut rng = Rng::new(1);
        put(&engine, &mut rng, 100, 1000).unwrap();
        engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        engine.close().unwrap();
        drop(engine);
        // What the merge has replaced is gone now.
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let files = disk.list(Path::new(DIR)).unwrap().into_iter();
        let first = files.filter(|name| name.extension().is_some_and(|e| e == "sst")).min().unwrap();
        let damaged = Path::new(DIR).join(first);
        disk.corrupt(&damaged, 100);
        let found = || recorder.count(|e| matches!(e, Event::CorruptionFound { .. }));
        while found() == 0 {
            put(&engine, &mut rng, 50, 1000).unwrap();
            engine.flush().unwrap();
        }
        // The caller of a compaction gets the error; that it failed is told, but no operator needs a line.
        let error = engine.compact_range(&[0; 4], &[255; 4]).unwrap_err();
        assert!(matches!(&error, Error::Corruption { path, .. } if *path == damaged), "{error}");
        let events = recorder.events();
        let errors: Vec<_> = events.iter().filter(|e| e.severity() > Severity::Info).collect();
        let [Event::CorruptionFound { work: Work::Merge, error: Error::Corruption { path, offset, .. } }] = errors[..]
        else {
            panic!("{errors:?}")
        };
        assert!(*path == damaged && *offset <= 100, "{errors:?}");
        let failed = recorder.count(|e| matches!(e, Event::MergeFailed { error: Error::Corruption { .. }, .. }));
        assert!(failed >= 2, "the merge of the background, and the caller's");
        engine.close().unwrap();
        let begun = recorder.count(|e| matches!(e, Event::MergeBegun { .. }));
        let ended = recorder.count(|e| matches!(e, Event::MergeDone { .. } | Event::MergeFailed { .. }));
        assert_eq!(begun, ended);
    });
}

#[test]
fn work_that_fails_each_second_is_told_once_and_once_when_it_succeeds() {
    within("a flush that fails", 60, || {
        let disk = Refusing::new(&MemDisk::new());
        let recorder = Recorder::default();
        let options = Options { listener: recorder.listener(), ..options(disk.disk.clone()) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        put(&engine, &mut Rng::new(1), 30, 1000).unwrap();
        disk.creations.store(true, Ordering::SeqCst);
        for _ in 0..5 {
            engine.flush().unwrap_err();
        }
        let lines = recorder.lines();
        assert!(matches!(&lines[..], [one] if one.starts_with("flush failed: create /store/")), "{lines:?}");
        disk.creations.store(false, Ordering::SeqCst);
        engine.flush().unwrap();
        let failures = recorder.count(|e| matches!(e, Event::FlushFailed { .. }));
        assert!(failures >= 5);
        eventually("the success", || recorder.lines().len() == 2);
        let last = recorder.events().into_iter().rfind(|e| e.severity() > Severity::Info);
        assert!(
            matches!(last, Some(Event::BackgroundRecovered { work: Work::Flush, failures: told, .. }) if told == failures as u64),
            "{last:?}"
        );

        // Files that cannot be removed, however many.
        disk.removals.store(true, Ordering::SeqCst);
        for round in 0..5 {
            put(&engine, &mut Rng::new(round), 30, 1000).unwrap();
            engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        }
        eventually("many files", || engine.metrics().obsolete_files > 3);
        eventually("a line", || recorder.lines().len() == 3);
        assert!(recorder.lines()[2].starts_with("cannot remove a file that is no longer needed: remove /store/"));
        disk.removals.store(false, Ordering::SeqCst);
        eventually("the removal", || engine.metrics().obsolete_files == 0);
        eventually("the removal's line", || recorder.lines().len() == 4);
        assert!(recorder.lines()[3].starts_with("removing files works again"), "{:?}", recorder.lines());
    });
}

/// A thread's name, and what it has told.
type Heard = (Option<String>, Event);

#[test]
fn a_failed_sync_is_told_once_on_the_thread_that_meets_it() {
    within("a failed sync", 60, || {
        let disk = MemDisk::new();
        let told: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let heard = told.clone();
        let thread = || std::thread::current().name().map(str::to_owned);
        let listener = move |event: &Event| heard.lock().push((thread(), event.clone()));
        let options = Options {
            listener: Some(Arc::new(listener)),
            log_segment_bytes: 4 << 20,
            ..options(Arc::new(disk.clone()))
        };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        put(&engine, &mut Rng::new(1), 1, 10).unwrap();
        engine.sync().unwrap();
        let mut txn = engine.begin();
        txn.put(&key(1, 1), b"value").unwrap();
        disk.fail_from(2, FaultKind::Other);
        txn.commit().unwrap_err();
        let stops: Vec<_> = {
            let told = told.lock();
            told.iter().filter(|(_, event)| matches!(event, Event::Stopped { .. })).cloned().collect()
        };
        let [(on, Event::Stopped { cause })] = &stops[..] else { panic!("{stops:?}") };
        // Housekeeping writes, too, and may have come first.
        assert!(*on == thread() || on.as_deref() == Some("strata-clean"), "{on:?}");
        assert!(cause.to_string().contains("injected fault"), "{cause}");
        // Nothing that fails from now on is news.
        for _ in 0..3 {
            assert!(engine.flush().is_err() && engine.sync().is_err());
        }
        assert!(engine.close().is_err());
        drop((txn, engine));
        let last: Vec<String> = told
            .lock()
            .iter()
            .filter(|(_, event)| event.severity() > Severity::Info)
            .map(|(_, event)| event.to_string())
            .collect();
        assert_eq!(last.len(), 1, "{last:?}");
    });
}

/// The log is written where its buffer is full, which may be under the lock of the order of commits. A listener that writes
/// when it hears of the failure would wait for that lock for ever.
#[test]
fn a_store_that_stops_under_a_lock_tells_without_it() {
    within("a full log buffer", 60, || {
        let disk = MemDisk::new();
        let recorder = Recorder::default();
        let engine_of: Arc<Mutex<Option<Engine>>> = Arc::default();
        let (known, keep) = (engine_of.clone(), recorder.listener().unwrap());
        let listener = move |event: &Event| {
            let engine = known.lock().clone();
            if let (Event::Stopped { .. }, Some(engine)) = (event, engine) {
                assert!(engine.write(&[(key(1, 1), None)], false).is_err());
                assert!(engine.drop_indexes(&[IndexId(9)]).is_err());
                let _ = engine.features();
            }
            keep.event(event);
        };
        let options = Options {
            listener: Some(Arc::new(listener)),
            memtable_budget_bytes: 64 << 20,
            log_segment_bytes: 64 << 20,
            durability: Durability::EverySecond,
            ..options(Arc::new(disk.clone()))
        };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        *engine_of.lock() = Some(engine.clone());
        disk.fail_from(1, FaultKind::Other);
        let failed = put(&engine, &mut Rng::new(1), 200, 300_000).unwrap_err();
        assert!(matches!(failed, Error::Poisoned(_)), "{failed}");
        eventually("the stop", || recorder.count(|e| matches!(e, Event::Stopped { .. })) == 1);
        *engine_of.lock() = None;
        drop(engine);
        assert_eq!(recorder.count(|e| matches!(e, Event::Stopped { .. })), 1);
    });
}

#[test]
fn a_cut_log_is_told_with_what_was_cut() {
    within("a cut", 60, || {
        let disk = MemDisk::new();
        let engine = crate::common::open(&disk).unwrap();
        for n in 0..3 {
            let mut txn = engine.begin();
            txn.put(&key(1, n), b"value").unwrap();
            txn.commit().unwrap();
        }
        let image = disk.crash(1);
        let log = Path::new(DIR).join("log");
        let mut segments = image.list(&log).unwrap();
        segments.sort();
        let last_page = |name: &PathBuf| {
            let content = image.content(&log.join(name))?;
            Some((log.join(name), content.chunks(4096).rposition(|page| page.iter().any(|&byte| byte != 0))?))
        };
        let (last, page) = segments.iter().rev().find_map(last_page).unwrap();
        image.corrupt(&last, page as u64 * 4096 + 60);
        let recorder = Recorder::default();
        let options = Options { listener: recorder.listener(), ..options(Arc::new(image.clone())) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let cuts: Vec<Event> = recorder.events().into_iter().filter(|e| matches!(e, Event::LogCut { .. })).collect();
        let [Event::LogCut { path, offset, bytes: 4096, begun_bytes: 0, intact_units: 0, records: 0, .. }] = &cuts[..]
        else {
            panic!("{cuts:?}")
        };
        assert!(*path == last && *offset == page as u64 * 4096, "{cuts:?}");
        assert_eq!(dump(&engine, 0, u32::MAX).unwrap().len(), 2);
        assert_eq!(recorder.lines().len(), 1);
    });
}

/// Flushes wait at a gate until it is opened.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn disk(self: &Arc<Gate>) -> Arc<dyn Disk> {
        let gate = self.clone();
        let hook = Arc::new(move |what: &str, path: &Path| {
            let is_flush = std::thread::current().name() == Some("strata-flush");
            if what == "create" && is_flush && path.extension().is_some_and(|e| e == "sst") {
                let mut open = gate.0.lock();
                while !*open {
                    gate.1.wait(&mut open);
                }
            }
        });
        hooked(MemDisk::new(), hook)
    }

    fn open(&self) {
        *self.0.lock() = true;
        self.1.notify_all();
    }
}

#[test]
fn a_stall_of_several_writers_is_told_once() {
    within("a stall", 60, || {
        let (gate, recorder) = (Arc::new(Gate::default()), Recorder::default());
        let options = Options { listener: recorder.listener(), log_segment_bytes: 1 << 20, ..options(gate.disk()) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        let begun = || recorder.count(|e| matches!(e, Event::WriteStallBegun { cause: StallCause::Memtables, .. }));
        let ended = || recorder.count(|e| matches!(e, Event::WriteStallEnded { cause: StallCause::Memtables, .. }));
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let engine = &engine;
                // Each writes until it has waited once, and the last write of each goes through.
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    while begun() == 0 {
                        put(engine, &mut rng, 1, 5000).unwrap();
                    }
                    put(engine, &mut rng, 1, 5000).unwrap();
                });
            }
            eventually("a stall of all", || engine.metrics().work.write_stalls == 3);
            assert_eq!((begun(), ended()), (1, 0));
            let shown = engine.metrics();
            assert!(shown.stalled && shown.memtable_bytes >= shown.memtable_budget_bytes);
            gate.open();
        });
        assert_eq!((begun(), ended()), (1, 1));
        let events = recorder.events();
        let memtables = events.iter().find_map(|e| match e {
            Event::WriteStallBegun { stall: 1, memtable_bytes, .. } => Some(*memtable_bytes),
            _ => None,
        });
        assert!(memtables.is_some_and(|bytes| bytes >= 2 << 20), "{events:?}");
        assert!(events.iter().any(|e| matches!(e, Event::WriteStallEnded { stall: 1, .. })));
        assert_eq!(recorder.lines(), [""; 0]);
    });
}

/// A listener that does, for the first events of each kind, all that it may: it looks, reads, takes a snapshot, writes; and what
/// it may not, which is refused.
struct Busy {
    engine: Arc<Mutex<Option<Engine>>>,
    kinds: Arc<Mutex<std::collections::BTreeMap<String, usize>>>,
    calls: Arc<AtomicUsize>,
}

impl Busy {
    fn new() -> Busy {
        Busy { engine: Arc::default(), kinds: Arc::default(), calls: Arc::default() }
    }

    fn listener(&self) -> Option<Arc<dyn strata_engine::EventListener>> {
        let (known, kinds, calls) = (self.engine.clone(), self.kinds.clone(), self.calls.clone());
        Some(Arc::new(move |event: &Event| {
            let Some(engine) = known.lock().clone() else { return };
            let text = format!("{event:?}");
            let times = {
                let mut kinds = kinds.lock();
                let times = kinds.entry(text.split([' ', '{']).next().unwrap().to_owned()).or_default();
                *times += 1;
                *times
            };
            if times > 4 {
                // What it does makes flushes and merges, which are told in turn.
                calls.fetch_add(1, Ordering::SeqCst);
                return;
            }
            assert!(!engine.status_text().is_empty());
            let (_, _) = (engine.metrics(), engine.prepared());
            let point = engine.read_point();
            let _ = engine.get_at(&key(1, 1), point.seq(), &mut Vec::new());
            let _ = engine.write(&[(key(7, 1), Some(vec![7; 2000]))], false);
            let mut txn = engine.begin();
            let _ = txn.put(&key(7, 2), b"listener");
            let _ = txn.commit();
            let _ = (engine.features(), engine.indexes());
            let _ = engine.drop_indexes(&[IndexId(1 << 20)]);
            for refused in [engine.flush(), engine.wait_idle(), engine.compact_range(&[0; 4], &[255; 4])] {
                assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
            }
            calls.fetch_add(1, Ordering::SeqCst);
        }))
    }
}

static FEATURES: [Feature; 1] = [Feature::new("for-a-test", "0.1.0", Need::Writer)];

/// A script of all work, over disks of which each operation in turn fails, once or from then on: a listener that was called under
/// a lock, or on a thread that has to go on first, would hang.
#[test]
fn a_listener_may_look_read_and_write_at_every_event() {
    let mut seen = std::collections::BTreeMap::new();
    let kinds = [(FaultKind::Other, false), (FaultKind::Other, true), (FaultKind::StorageFull, true)];
    for (kind, lasting) in kinds {
        for n in (1..).step_by(5) {
            let found = within(&format!("operation {n}, {kind:?}, lasting: {lasting}"), 60, move || {
                let (disk, busy) = (MemDisk::new(), Busy::new());
                let options = Options {
                    listener: busy.listener(),
                    transaction_bytes: 8 << 10,
                    features: &FEATURES,
                    ..options(Arc::new(disk.clone()))
                };
                let engine = Engine::open(Path::new(DIR), options).unwrap();
                *busy.engine.lock() = Some(engine.clone());
                match lasting {
                    true => disk.fail_from(n, kind),
                    false => disk.fail_after(n, kind),
                }
                let mut rng = Rng::new(n);
                for _ in 0..2 {
                    let _ = put(&engine, &mut rng, 40, 1000);
                    let _ = engine.flush();
                    let mut large = engine.begin();
                    (0..20).for_each(|k| drop(large.put(&key(2, k), &[1; 2000])));
                    let _ = large.commit();
                }
                let _ = engine.require(&FEATURES[0]);
                let _ = engine.compact_range(&[0; 4], &[255; 4]);
                let _ = engine.drop_indexes(&[IndexId(2)]);
                let _ = engine.close();
                let struck = !disk.clear_fault();
                *busy.engine.lock() = None;
                drop(engine);
                let stops = busy.kinds.lock().get("Stopped").copied().unwrap_or(0);
                assert!(stops <= 1, "told {stops} times");
                let started: usize = busy.kinds.lock().values().sum();
                assert_eq!(busy.calls.load(Ordering::SeqCst), started, "a call of the listener has panicked");
                (struck, std::mem::take(&mut *busy.kinds.lock()))
            });
            found.1.into_iter().for_each(|(kind, times)| *seen.entry(kind).or_insert(0) += times);
            if !found.0 {
                break;
            }
            assert!(n < 5000, "the script never gets past the fault");
        }
    }
    for kind in
        ["FlushBegun", "FlushDone", "FlushFailed", "MergeBegun", "MergeDone", "MergeFailed", "OutOfSpace", "Stopped"]
    {
        assert!(seen.contains_key(kind), "{kind} was not met: {seen:?}");
    }
}

/// Memory is full and the thread that would make room is in the listener, which writes.
#[test]
fn a_listener_that_writes_does_not_wait_for_its_own_flush() {
    within("a write on the flush's thread", 60, || {
        let engine_of: Arc<Mutex<Option<Engine>>> = Arc::default();
        let writes = Arc::new(AtomicUsize::new(0));
        let (known, written) = (engine_of.clone(), writes.clone());
        let listener = move |event: &Event| {
            let Some(engine) = known.lock().clone() else { return };
            match event {
                Event::FlushBegun { job: 1, .. } => eventually("full memory", || engine.metrics().stalled),
                Event::WriteStallBegun { stall: 1, cause: StallCause::Memtables, .. } => {}
                _ => return,
            }
            engine.write(&[(key(7, 1), Some(vec![7; 2000]))], true).unwrap();
            written.fetch_add(1, Ordering::SeqCst);
        };
        let options = Options {
            listener: Some(Arc::new(listener)),
            log_segment_bytes: 1 << 20,
            ..options(Arc::new(MemDisk::new()))
        };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        *engine_of.lock() = Some(engine.clone());
        let mut rng = Rng::new(1);
        while engine.metrics().work.flushes < 4 {
            put(&engine, &mut rng, 1, 5000).unwrap();
        }
        engine.flush().unwrap();
        *engine_of.lock() = None;
        assert_eq!(writes.load(Ordering::SeqCst), 2, "of the flush's thread, and of the writer that waits");
    });
}

/// What a listener does to itself is its own affair.
#[test]
fn a_listener_that_panics_takes_nothing_down() {
    within("a panic", 60, || {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let listener = move |_: &Event| {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("this panic is wanted");
        };
        let options = Options { listener: Some(Arc::new(listener)), ..options(Arc::new(MemDisk::new())) };
        let engine = Engine::open(Path::new(DIR), options).unwrap();
        put(&engine, &mut Rng::new(1), 50, 1000).unwrap();
        engine.compact_range(&[0; 4], &[255; 4]).unwrap();
        put(&engine, &mut Rng::new(2), 50, 1000).unwrap();
        engine.flush().unwrap();
        assert!(calls.load(Ordering::SeqCst) >= 6, "the opening, two flushes, and what was merged");
        engine.close().unwrap();
    });
}
