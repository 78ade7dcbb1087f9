//! What crashes and faults leave.

use super::*;

fn disk() -> (MemDisk, PathBuf) {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("/d")).unwrap();
    (disk, PathBuf::from("/d/f"))
}

#[test]
fn synced_bytes_and_names_survive_every_crash() {
    let (disk, path) = disk();
    let file = disk.open(&path, Mode::Create, false).unwrap();
    file.write_all_at(&[7; 10_000], 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_all_at(&[8; 1000], 9_500).unwrap();
    for seed in 0..50 {
        let content = disk.crash(seed).content(&path).unwrap();
        assert!(content.len() >= 10_000);
        assert!(content[..9_216].iter().all(|&b| b == 7), "seed {seed}");
    }
}

#[test]
fn unsynced_bytes_and_names_are_sometimes_lost_and_sometimes_not() {
    let (disk, path) = disk();
    let file = disk.open(&path, Mode::Create, false).unwrap();
    file.write_all_at(&[7; 8192], 0).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    let (mut lost, mut kept, mut torn) = (false, false, false);
    for seed in 0..200 {
        let sevens = disk.crash(seed).content(&path).unwrap().iter().filter(|&&b| b == 7).count();
        lost |= sevens == 0;
        kept |= sevens == 8192;
        torn |= sevens > 0 && sevens < 8192;
    }
    assert!(lost && kept && torn);

    let moved = PathBuf::from("/d/g");
    disk.rename(&path, &moved).unwrap();
    let outcomes: BTreeSet<(bool, bool)> = (0..50)
        .map(|seed| disk.crash(seed))
        .map(|image| (image.exists(&path).unwrap(), image.exists(&moved).unwrap()))
        .collect();
    assert_eq!(outcomes, BTreeSet::from([(true, false), (false, true)]), "a rename is atomic");
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.remove(&moved).unwrap();
    let outcomes: BTreeSet<bool> = (0..50).map(|seed| disk.crash(seed).exists(&moved).unwrap()).collect();
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn a_failed_sync_is_not_repaired_by_the_next() {
    let (disk, path) = disk();
    let file = disk.open(&path, Mode::Create, false).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_all_at(&[7; 512], 0).unwrap();
    disk.fail_after(1, FaultKind::Other);
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    let lost = (0..50).any(|seed| !disk.crash(seed).content(&path).unwrap().contains(&7));
    assert!(lost);
    file.write_all_at(&[9; 512], 0).unwrap();
    file.sync_data().unwrap();
    assert!((0..50).all(|seed| disk.crash(seed).content(&path).unwrap()[0] == 9));
}

#[test]
fn faults_strike_once_at_the_chosen_operation() {
    let (disk, path) = disk();
    disk.fail_after(3, FaultKind::StorageFull);
    let file = disk.open(&path, Mode::Create, false).unwrap();
    file.write_all_at(b"a", 0).unwrap();
    assert!(file.sync_data().unwrap_err().is_disk_full());
    file.sync_data().unwrap();
    assert!(!disk.clear_fault());
}

#[test]
fn capacity_limits_growth_but_not_overwriting() {
    let (disk, path) = disk();
    disk.set_capacity(Some(1000));
    let file = disk.open(&path, Mode::Create, false).unwrap();
    file.write_all_at(&[1; 1000], 0).unwrap();
    file.write_all_at(&[2; 1000], 0).unwrap();
    assert!(file.write_all_at(&[3; 1], 1000).unwrap_err().is_disk_full());
    assert!(file.allocate(1001).unwrap_err().is_disk_full());
    disk.remove(&path).unwrap();
    assert_eq!(disk.used(), 0);
}

#[test]
fn locks_exclude_and_release() {
    let (disk, _) = disk();
    let guard = disk.lock_dir(Path::new("/d")).unwrap();
    assert!(matches!(disk.lock_dir(Path::new("/d")), Err(Error::InUse(_))));
    drop(guard);
    disk.lock_dir(Path::new("/d")).unwrap();
}
