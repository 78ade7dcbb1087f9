//! What only has to survive the process: it stays in the page cache, many records to a page, and waits for no sync.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::base::KeyVersion;
use crate::crypt::KeyProvider;
use crate::io::{DiskHook, FaultKind, HookedDisk, Operation};

/// A test that would wait for ever fails after this.
const PATIENCE: Duration = Duration::from_secs(20);

/// A disk whose every operation `hook` is shown before it is done, with a log on it.
fn hooked(disk: &MemDisk, epoch: u64, hook: DiskHook) -> Log {
    let hooked: Arc<dyn Disk> = Arc::new(HookedDisk::new(as_disk(disk), hook));
    Log::open(hooked, dir(), options(epoch), Tail::NEW, Box::new(|_| Ok(()))).unwrap()
}

/// A sync that is held up in the device until it is let go.
struct HeldSync {
    /// Syncs are held from now on.
    holds: Arc<AtomicBool>,
    entered: mpsc::Receiver<()>,
    let_go: mpsc::Sender<()>,
}

impl HeldSync {
    /// The hook of a disk whose held syncs end with `outcome`.
    fn new(outcome: fn(&Path) -> Result<()>) -> (HeldSync, DiskHook) {
        let (enter, entered) = mpsc::channel();
        let (let_go, gate) = mpsc::channel();
        let gate = std::sync::Mutex::new(gate);
        let holds = Arc::new(AtomicBool::new(false));
        let held = holds.clone();
        let hook = move |operation, path: &Path| {
            if operation != Operation::Sync || !held.swap(false, Ordering::SeqCst) {
                return Ok(());
            }
            enter.send(()).unwrap();
            gate.lock().unwrap().recv_timeout(PATIENCE).expect("a write waited for the sync");
            outcome(path)
        };
        (HeldSync { holds, entered, let_go }, Arc::new(hook))
    }

    /// The next sync will be held.
    fn hold(&self) {
        self.holds.store(true, Ordering::SeqCst);
    }

    fn wait_until_held(&self) {
        self.entered.recv_timeout(PATIENCE).unwrap();
    }

    fn let_go(&self) {
        self.let_go.send(()).unwrap();
    }
}

/// Whenever the process dies, what was written before is in the file; and short records share their pages. Plain and encrypted, where
/// each writing of a page has a key of its own (the audit of nonces would tell otherwise).
#[test]
fn written_records_survive_the_process_and_share_pages() {
    for epoch in [1, 2] {
        let disk = new_disk();
        let log = open(&disk, epoch, Tail::NEW).unwrap();
        log.sync(log.end()).unwrap();
        let begin = log.end();
        let mut bytes = 0;
        // Lengths that end before, at and behind a page's end, and some that need more than one.
        let lengths = (0..300).map(|i| if i % 60 == 59 { 5000 + i } else { i % 97 });
        for (i, len) in lengths.enumerate() {
            let span = log.append(&record(2 * i + 1, len)).unwrap();
            bytes += len as u64 + 3;
            log.write(span.end).unwrap();
            assert!(log.written() >= span.end && log.durable() <= begin);
            let (_, found) = read(&disk, Lsn(0)).unwrap();
            assert_eq!(found.len(), i + 1);
            assert_eq!((found[i].0, found[i].1), (span.start, span.end));
            assert!(found[i].2 == record(2 * i + 1, len));
        }
        let pages = (log.end().0 - begin.0) / PAGE;
        assert!(pages <= bytes / PAGE * 5 / 4 + 6, "{bytes} bytes of records took {pages} pages");
        let counters = log.counters();
        assert_eq!(counters.records, 300);
        assert!(counters.units <= pages + 2);
        let whole = log.end().0.next_multiple_of(PAGE);
        assert_eq!(counters.payload_bytes + counters.padding_bytes, whole, "the space that the log takes");
    }
}

/// Whoever reads pages that have a key each asks the key service once.
#[test]
fn keys_of_pages_ask_for_one_master_key() {
    struct Counted(AtomicUsize);
    impl KeyProvider for Counted {
        fn latest(&self, _: u32) -> std::result::Result<u32, String> {
            Ok(1)
        }
        fn key(&self, _: KeyVersion) -> std::result::Result<Vec<u8>, String> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(vec![7; 32])
        }
    }
    let counted = Arc::new(Counted(AtomicUsize::new(0)));
    let keys = Arc::new(Keyring::new(Some(counted.clone())));
    let disk = new_disk();
    let options = LogOptions { keys: Some(keys.clone()), ..options(1) };
    let log = Log::open(as_disk(&disk), dir(), options, Tail::NEW, Box::new(|_| Ok(()))).unwrap();
    for i in 0..600 {
        log.append(&record(i, 60)).unwrap();
        log.write(log.end()).unwrap();
    }
    let before = counted.0.load(Ordering::SeqCst);
    let mut found = 0;
    let mut visit = |_: Lsn, _: Lsn, _: &[u8]| {
        found += 1;
        Ok(())
    };
    recover(&place(&as_disk(&disk), dir(), SEGMENT, &keys), Lsn(0), Lsn(0), &mut visit, &mut |_| ()).unwrap();
    assert_eq!((found, before), (600, 1));
    assert!(counted.0.load(Ordering::SeqCst) - before <= 2, "once for each pass");
}

/// A page that was written once is written again only as one page, which a process that dies in the middle of the call leaves
/// as it was or as it is to be.
#[test]
fn what_is_written_again_is_one_page() {
    let disk = new_disk();
    let lengths: Arc<std::sync::Mutex<Vec<usize>>> = Arc::default();
    let seen = lengths.clone();
    let log = hooked(
        &disk,
        1,
        Arc::new(move |operation, _| {
            if let Operation::Write(bytes) = operation {
                seen.lock().unwrap().push(bytes);
            }
            Ok(())
        }),
    );
    log.sync(log.end()).unwrap();
    lengths.lock().unwrap().clear();
    log.append(&record(1, 100)).unwrap();
    log.write(log.end()).unwrap();
    log.append(&record(3, 6000)).unwrap();
    log.write(log.end()).unwrap();
    // The page is completed, and what does not fit lies in the next unit, here of one page.
    assert_eq!(*lengths.lock().unwrap(), [4096; 3]);
    log.append(&record(5, 20_000)).unwrap();
    log.append(&record(7, 10)).unwrap();
    log.write(log.end()).unwrap();
    assert_eq!(lengths.lock().unwrap()[3], 4096);
    assert_eq!(read(&disk, Lsn(0)).unwrap().1.len(), 4);
}

/// What is in the page cache is not written again by the sync that makes it durable, and no page of it afterwards.
#[test]
fn a_sync_of_what_is_written_only_syncs() {
    for epoch in [1, 2] {
        let disk = new_disk();
        let log = open(&disk, epoch, Tail::NEW).unwrap();
        log.sync(log.end()).unwrap();
        for i in 0..5 {
            log.append(&record(i, 50)).unwrap();
            log.write(log.end()).unwrap();
        }
        let before = disk.counters();
        log.sync(log.end()).unwrap();
        let after = disk.counters();
        assert_eq!((after.writes, after.syncs), (before.writes, before.syncs + 1));
        let durable = log.durable();
        assert_eq!(durable.0 % PAGE, 0);
        let path = format::segment_path(dir(), 0);
        let synced = disk.content(&path).unwrap()[..durable.0 as usize].to_vec();
        for i in 5..10 {
            log.append(&record(i, 50)).unwrap();
            log.write(log.end()).unwrap();
        }
        assert!(disk.content(&path).unwrap()[..durable.0 as usize] == synced, "a durable page was written again");
        for seed in 0..50 {
            let (_, found) = read(&disk.crash(seed), Lsn(0)).unwrap();
            assert!(found.len() >= 5 && found.len() <= 10);
        }
    }
}

/// A mark between two records of a page parts them: the copy of a log ends there.
#[test]
fn a_mark_ends_a_page_that_is_written() {
    let (disk, log) = with_a_record();
    log.append(b"before").unwrap();
    log.write(log.end()).unwrap();
    let mark = log.mark().unwrap();
    assert_eq!(mark.0 % PAGE, 0);
    let behind = log.append(b"behind").unwrap();
    assert!(behind.start > mark);
    log.write(behind.end).unwrap();
    log.sync(mark).unwrap();
    assert_eq!(read(&disk, Lsn(0)).unwrap().1.len(), 3);
    log.seal().unwrap();
    assert_eq!(read(&disk.crash(1), Lsn(0)).unwrap().1.len(), 3);
}

/// A sync is held up in the device: who only writes goes on, who wants a sync waits for its end and is served by the next.
#[test]
fn who_only_writes_waits_for_no_sync() {
    let disk = new_disk();
    let (held, hook) = HeldSync::new(|_| Ok(()));
    let log = hooked(&disk, 1, hook);
    log.sync(log.end()).unwrap();
    let first = log.append(b"first").unwrap();
    held.hold();
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| log.sync(first.end));
        held.wait_until_held();
        let mut last = first;
        for _ in 0..100 {
            last = log.append(b"only written").unwrap();
            log.write(last.end).unwrap();
        }
        assert!(log.written() >= last.end && log.durable() < first.end);
        // The records of one who died now.
        assert_eq!(read(&disk, Lsn(0)).unwrap().1.len(), 101);
        let (log, end) = (&log, last.end);
        let wants_sync = scope.spawn(move || log.sync(end));
        held.let_go();
        syncs.join().unwrap().unwrap();
        wants_sync.join().unwrap().unwrap();
        assert!(log.durable() >= last.end);
    });
    for seed in 0..20 {
        assert_eq!(read(&disk.crash(seed), Lsn(0)).unwrap().1.len(), 101);
    }
}

/// The sync fails while others write: nobody is told of success afterwards, by either call.
#[test]
fn a_failed_sync_stops_those_who_only_write() {
    let disk = new_disk();
    let (held, hook) = HeldSync::new(|path| Err(Error::io("sync", path, std::io::Error::other("lost"))));
    let log = hooked(&disk, 1, hook);
    log.sync(log.end()).unwrap();
    let first = log.append(b"first").unwrap();
    held.hold();
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| log.sync(first.end));
        held.wait_until_held();
        let span = log.append(b"written").unwrap();
        log.write(span.end).unwrap();
        held.let_go();
        assert!(matches!(syncs.join().unwrap(), Err(Error::Poisoned(_))));
        assert!(matches!(log.write(span.end), Err(Error::Poisoned(_))));
        assert!(log.append(b"more").is_err() && log.durable() < first.end);
    });
}

/// The first failure of a write by the page cache stops the log, and leaves what was acknowledged before.
#[test]
fn a_failed_write_of_a_page_stops_the_log() {
    for n in 1..60 {
        let disk = new_disk();
        let log = open(&disk, n, Tail::NEW).unwrap();
        log.sync(log.end()).unwrap();
        disk.fail_after(n, if n % 2 == 0 { FaultKind::StorageFull } else { FaultKind::Other });
        let (mut synced, mut failed) = (0, false);
        for i in 0..50 {
            let outcome = log.append(&record(i, 300)).and_then(|span| match i % 10 {
                9 => log.sync(span.end).inspect(|()| synced = i + 1),
                _ => log.write(span.end),
            });
            assert!(!(failed && outcome.is_ok()), "success after failure {n}");
            failed |= outcome.is_err();
        }
        for seed in 0..4 {
            assert!(read(&disk.crash(seed), Lsn(0)).unwrap().1.len() >= synced);
        }
    }
}

/// Writers and those who sync, at once: none is forgotten by who leads, whichever of the two that is.
#[test]
fn writers_and_syncs_share_the_lead() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let log = &log;
            scope.spawn(move || {
                for i in 0..400 {
                    let span = log.append(&record(thread, i % 211)).unwrap();
                    if (thread + i) % 4 == 0 {
                        log.sync(span.end).unwrap();
                        assert!(log.durable() >= span.end);
                    } else {
                        log.write(span.end).unwrap();
                        assert!(log.written() >= span.end);
                    }
                    if i % 50 == 0 {
                        log.witness().unwrap();
                        log.prepare_next().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(read(&disk, Lsn(0)).unwrap().1.len(), 3200);
}
