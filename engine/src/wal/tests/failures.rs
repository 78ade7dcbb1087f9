//! What fails: the device that the log is on, the manifest that its segments are announced to.

use super::*;
use crate::io::FaultKind;

#[test]
fn the_first_failure_stops_the_log_for_good() {
    let mut clean = false;
    for n in 1.. {
        let disk = new_disk();
        let log = open(&disk, 1, Tail::NEW).unwrap();
        disk.fail_after(n, if n % 2 == 0 { FaultKind::StorageFull } else { FaultKind::Other });
        let mut synced = 0;
        let mut failed = false;
        for i in 0..40 {
            let outcome = log.append(&record(i, 1500)).and_then(|span| log.sync(span.end));
            match outcome {
                Ok(()) => {
                    assert!(!failed, "success after failure {n}");
                    synced = i + 1;
                }
                Err(e) => {
                    let Error::Poisoned(cause) = &e else { panic!("{e}") };
                    assert_eq!(cause.is_disk_full(), n % 2 == 0);
                    assert!(!e.is_disk_full(), "a stopped store is no full disk");
                    failed = true;
                }
            }
        }
        assert_eq!(log.poison().is_some(), failed);
        if failed {
            assert!(matches!(log.write(Lsn(0)), Err(Error::Poisoned(_))));
            assert!(matches!(log.seal(), Err(Error::Poisoned(_))));
        }
        for seed in 0..4 {
            let (_, found) = read(&disk.crash(seed), Lsn(0)).unwrap();
            assert!(found.len() >= synced);
        }
        if disk.clear_fault() {
            clean = true;
            break;
        }
    }
    assert!(clean);
}

/// A segment is made by who writes the log, and the manifest, which has stopped, does not take note of it: the log stops for the same
/// cause, told once.
#[test]
fn a_manifest_that_has_stopped_stops_the_log() {
    let disk = new_disk();
    let announce = |number| match number {
        1 => Ok(()),
        _ => Err(Error::Poisoned(Arc::new(Error::io("write", Path::new("/MANIFEST"), std::io::Error::other("torn"))))),
    };
    let log = Log::open(as_disk(&disk), dir(), options(1), Tail::NEW, Box::new(announce)).unwrap();
    let refused = (0..).find_map(|i| {
        log.append(&record(2 * i + 1, 3000)).unwrap();
        log.sync(log.end()).err()
    });
    let told = refused.unwrap().to_string();
    assert!(told.ends_with("earlier failure: write /MANIFEST: torn"), "{told}");
    assert_eq!(told.matches("earlier failure").count(), 1, "{told}");
    assert_eq!(log.append(b"later").unwrap_err().to_string(), told);
}

#[test]
fn preparing_ahead_may_fail_without_harm() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    disk.set_capacity(Some(SEGMENT));
    assert!(log.prepare_next().unwrap_err().is_disk_full());
    log.append(b"a").unwrap();
    log.sync(log.end()).unwrap();
    disk.set_capacity(None);
    log.prepare_next().unwrap();
    log.append(&record(1, 40_000)).unwrap();
    log.sync(log.end()).unwrap();
    assert_eq!(read(&disk, Lsn(0)).unwrap().1.len(), 2);
}
