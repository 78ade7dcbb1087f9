//! Tests of versions from text, of the edit log under crashes, damage and failures, of stored bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use super::feature::{SHARED_FILES, SHARED_SPILLS};
use super::state::Unread;
use super::*;
use crate::base::{Error, FileNo, IndexId, KeyVersion, Lsn, Result, SeqNo};
use crate::crypt::testing::ring;
use crate::io::{Disk, FaultKind, MemDisk, Mode};
use crate::sst::{Share, SstMeta};
use crate::wal::testtext::{check_doc_example, check_fixture, engine_path, run_cases};

fn key(index: u32, text: &str) -> Vec<u8> {
    [&IndexId(index).prefix(), text.as_bytes()].concat()
}

/// `no [index/]smallest-largest min-max`
fn parse_meta(text: &str) -> SstMeta {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (index, range) = words[1].split_once('/').unwrap_or(("1", words[1]));
    let index = index.parse().unwrap();
    let (smallest, largest) = range.split_once('-').unwrap();
    let (min, max) = words[2].split_once('-').unwrap();
    let no = words[0].parse().unwrap();
    SstMeta {
        no: FileNo(no),
        index: IndexId(index),
        file_bytes: 100,
        smallest: key(index, smallest),
        largest: key(index, largest),
        min_seq: SeqNo(min.parse().unwrap()),
        max_seq: SeqNo(max.parse().unwrap()),
        entries: 10,
        tombstones: 1,
        raw_bytes: 200,
        stamped: false,
        // Some files are encrypted.
        superseded: crate::sst::Superseded::default(),
        key: (no % 7 == 3).then_some(KeyVersion { id: 2, version: 1 }),
        shares: Default::default(),
    }
}

/// Edits in text: `L<level> + <meta>` and `L<level> - <no>`.
fn parse_edit(lines: &[&str]) -> VersionEdit {
    let mut edit = VersionEdit::default();
    for line in lines {
        let (level, rest) = line[1..].split_once(' ').unwrap();
        let level = level.parse().unwrap();
        match rest.split_at(2) {
            ("+ ", meta) => edit.added.push((level, parse_meta(meta))),
            ("- ", no) => edit.removed.push((level, FileNo(no.parse().unwrap()))),
            _ => panic!("{line}"),
        }
    }
    edit
}

fn show(version: &Version) -> String {
    let mut out = String::new();
    let mut line = |name: String, run: &[Arc<FileEntry>]| {
        let numbers: Vec<String> = run.iter().map(|file| file.meta.no.to_string()).collect();
        if !numbers.is_empty() {
            out += &format!("{name}: {}\n", numbers.join(" "));
        }
    };
    for (at, run) in version.sublevels().enumerate().rev() {
        line(format!("L0.{at}"), run);
    }
    (1..LEVELS as u8).for_each(|level| line(format!("L{level}"), version.level(level)));
    out
}

fn lookup(version: &Version, key: &[u8]) -> Vec<FileNo> {
    let mut found = Vec::new();
    let look = |file: &Arc<FileEntry>| {
        found.push(file.meta.no);
        Ok(false)
    };
    version.visit(key, look).unwrap();
    found
}

fn files_of(version: &Version) -> BTreeMap<FileNo, (u8, SstMeta)> {
    version.files().map(|(level, file)| (file.meta.no, (level, file.meta.clone()))).collect()
}

fn new_obsolete() -> Arc<ObsoleteFiles> {
    Arc::new(ObsoleteFiles::default())
}

#[test]
fn versions_follow_the_text() {
    run_cases("manifest-version.txt", |input| {
        let obsolete_files = new_obsolete();
        let mut version = Version::new(&[], &obsolete_files).unwrap();
        let mut state = State::new(1 << 20);
        let mut pending: Vec<&str> = Vec::new();
        let mut out = String::new();
        for line in input.lines() {
            let mut words = line.split_whitespace();
            match words.next().unwrap() {
                "apply" => {
                    let edit = parse_edit(&pending);
                    pending.clear();
                    // What a manifest file amounts to and what readers use is the same set of files, by the same rules. That
                    // files do not overlap only the version knows.
                    let stored = state.apply(&edit);
                    match version.apply(&edit) {
                        Ok(next) => {
                            assert_eq!(stored, Ok(()));
                            assert_eq!(state.files, files_of(&next));
                            version.retire(&edit);
                            version = next;
                            out += &show(&version);
                        }
                        Err(e) => {
                            let text = e.to_string();
                            match stored {
                                Err(what) => assert_eq!(text, format!("internal error: version edit: {what}")),
                                Ok(()) => {
                                    assert!(text.contains(" overlap "), "{text}");
                                    state.files = files_of(&version);
                                }
                            }
                            out += &format!("error: {text}\n");
                        }
                    }
                    let dead: Vec<String> = obsolete_files.drain().iter().map(|no| no.to_string()).collect();
                    if !dead.is_empty() {
                        out += &format!("dead: {}\n", dead.join(" "));
                    }
                }
                "get" => {
                    let key = key(1, words.next().unwrap());
                    let hits: Vec<String> = lookup(&version, &key).iter().map(|no| no.to_string()).collect();
                    out += &format!("get: {}\n", hits.join(" "));
                }
                "range" => {
                    let (lower, upper) = words.next().unwrap().split_once('-').unwrap();
                    let (lower, upper) = (key(1, lower), key(1, upper));
                    let hits = version.runs(&lower, &upper).flatten();
                    let hits: Vec<String> = hits.map(|file| file.meta.no.to_string()).collect();
                    out += &format!("range: {}\n", hits.join(" "));
                }
                "bytes" => {
                    let bytes: Vec<u64> = (0..7).map(|level| version.level_bytes(level)).collect();
                    let each: Vec<String> = bytes.iter().map(u64::to_string).collect();
                    out += &format!("bytes: {} = {}\n", each.join(" "), bytes.iter().sum::<u64>());
                }
                _ => pending.push(line),
            }
        }
        out
    });
}

#[test]
fn a_file_dies_with_its_last_holder() {
    let obsolete_files = new_obsolete();
    let v0 = Version::new(&[], &obsolete_files).unwrap();
    let v1 = v0.apply(&parse_edit(&["L0 + 1 a-c 1-5", "L1 + 2 a-c 1-5"])).unwrap();
    let edit = parse_edit(&["L0 - 1"]);
    let v2 = v1.apply(&edit).unwrap();
    let held = v1.files().next().unwrap().1.clone();
    v1.retire(&edit);
    drop(v1);
    assert!(obsolete_files.drain().is_empty() && held.is_obsolete());
    drop(held);
    assert_eq!(obsolete_files.drain(), [FileNo(1)]);
    drop(v2);
    assert!(obsolete_files.drain().is_empty(), "files in use are not deleted at the end");
}

proptest! {
    /// Against the definition: in lookup order, the first file that has a key is the newest that has it.
    #[test]
    fn sublevels_order_every_key_by_age(ranges in prop::collection::vec((0u8..40, 0u8..12), 1..40)) {
        let files: Vec<(u8, SstMeta)> = ranges.iter().enumerate().map(|(i, &(start, len))| {
            let range = format!("{}-{}", (b'0' + start) as char, (b'0' + start + len) as char);
            let range = range.replace("---", "--.").replace('/', "0");
            let parts: Vec<&str> = range.splitn(2, '-').collect();
            let mut meta = parse_meta(&format!("{} a-b {}-{}", i + 1, i * 10, i * 10 + 9));
            meta.smallest = key(1, parts[0]);
            meta.largest = key(1, parts[1]);
            (0, meta)
        }).collect();
        let version = Version::new(&files, &new_obsolete()).unwrap();
        let mut reversed = files.clone();
        reversed.reverse();
        prop_assert_eq!(show(&version), show(&Version::new(&reversed, &new_obsolete()).unwrap()));
        for run in version.sublevels() {
            prop_assert!(run.windows(2).all(|pair| pair[0].meta.largest < pair[1].meta.smallest));
        }
        for byte in b'0'..b'0' + 52 {
            let key = key(1, &(byte as char).to_string());
            let found = lookup(&version, &key);
            let mut expected: Vec<FileNo> =
                files.iter().filter(|(_, m)| m.smallest <= key && key <= m.largest).map(|(_, m)| m.no).collect();
            expected.reverse();
            prop_assert_eq!(found, expected);
        }
        // Lowest possible: a file above the bottom overlaps one right below it.
        let sublevels: Vec<_> = version.sublevels().collect();
        for pair in sublevels.windows(2) {
            for file in pair[1].iter() {
                let meta = &file.meta;
                let touches =
                    |below: &Arc<FileEntry>| below.meta.smallest <= meta.largest && meta.smallest <= below.meta.largest;
                prop_assert!(pair[0].iter().any(touches));
            }
        }
    }
}

fn dir() -> &'static Path {
    Path::new("/store")
}

fn as_disk(disk: &MemDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn new_disk() -> MemDisk {
    let disk = MemDisk::new();
    disk.create_dir_all(dir()).unwrap();
    disk
}

const LOG_SEGMENT: u64 = 1 << 20;

fn create(disk: &MemDisk) -> Result<Manifest> {
    let version = Version::new([], &new_obsolete())?;
    Manifest::create(as_disk(disk), dir(), &ring(), Marks::new(LOG_SEGMENT), Arc::new(version))
}

/// The manifest and what it was opened with.
fn open(disk: &MemDisk) -> Result<(Manifest, State)> {
    let stored = Manifest::load(&as_disk(disk), dir(), &[], &ring())?;
    Ok((resume(disk, &stored)?, stored.state))
}

fn resume(disk: &MemDisk, stored: &Stored) -> Result<Manifest> {
    let version = Version::new(stored.state.files.values(), &new_obsolete())?;
    Manifest::resume(as_disk(disk), dir(), &ring(), stored, Arc::new(version))
}

/// Number and state of the manifest in force.
fn read(disk: &MemDisk) -> Result<(u64, State)> {
    Manifest::load(&as_disk(disk), dir(), &[], &ring()).map(|stored| (stored.number, stored.state))
}

/// The same of a stored manifest of a format.
fn read_fixture(format: &str) -> (u64, State) {
    let disk: Arc<dyn Disk> = Arc::new(crate::io::PosixDisk::default());
    let dir = engine_path(&format!("fixtures/{format}/manifest"));
    let stored = Manifest::load(&disk, &dir, &[], &ring()).unwrap();
    (stored.number, stored.state)
}

/// Appends; the version that is returned is the one that a reading of the file would make.
fn append(manifest: &Manifest, edit: &VersionEdit) -> Result<()> {
    let version = manifest.append(edit, &[])?;
    assert_eq!(files_of(&version), manifest.state().files);
    Ok(())
}

/// Edit number `i` of a history in which every edit fits.
fn edit(i: u64) -> VersionEdit {
    let range = format!("k{i:06}-k{i:06}z");
    let mut edit = VersionEdit {
        added: vec![(1, parse_meta(&format!("{} {range} {i}-{i}", i + 1)))],
        log_start: Some(Lsn(i * 100)),
        flushed_seq: Some(SeqNo(i)),
        next_file: Some(FileNo(i + 2)),
        dropped: vec![IndexId(i as u32)],
        ..VersionEdit::default()
    };
    if i >= 10 {
        edit.removed.push((1, FileNo(i - 9)));
        edit.undropped.push(IndexId(i as u32 - 10));
    }
    if i % 7 == 3 {
        // Some edits need several units.
        edit.dropped.extend((0..3000).map(|n| IndexId(1 << 31 | n)));
    }
    edit
}

fn state_after(edits: u64) -> State {
    let mut state = State::new(LOG_SEGMENT);
    (0..edits).for_each(|i| state.apply(&edit(i)).unwrap());
    state
}

#[test]
fn the_state_comes_back() {
    let disk = new_disk();
    assert!(!Manifest::exists(&disk, dir()).unwrap());
    assert!(matches!(open(&disk), Err(Error::Io { .. })));
    let mut manifest = create(&disk).unwrap();
    assert!(matches!(create(&disk), Err(Error::Internal(_))));
    for i in 0..60 {
        append(&manifest, &edit(i)).unwrap();
        if i % 13 == 0 {
            let state;
            (manifest, state) = open(&disk).unwrap();
            assert_eq!(state, state_after(i + 1));
        }
    }
    assert_eq!(manifest.state(), state_after(60));
    assert_eq!(read(&disk).unwrap(), (6, state_after(60)));
    Version::new(state_after(60).files.values(), &new_obsolete()).unwrap();
    let names = ["CURRENT", "CURRENT.tmp", "MANIFEST-000006", "MANIFEST.spare"].map(PathBuf::from);
    assert_eq!(disk.list(dir()).unwrap(), names);
}

#[test]
fn an_edit_that_does_not_fit_changes_nothing() {
    let disk = new_disk();
    let manifest = create(&disk).unwrap();
    (0..5).for_each(|i| append(&manifest, &edit(i)).unwrap());
    let wrong = [
        parse_edit(&["L1 - 77"]),
        parse_edit(&["L2 - 1"]),
        parse_edit(&["L1 - 1", "L1 - 1"]),
        parse_edit(&["L3 + 2 x-y 1-2"]),
        parse_edit(&["L7 + 20 x-y 1-2"]),
        parse_edit(&["L3 + 20 y-x 1-2"]),
        VersionEdit { log_start: Some(Lsn(1)), ..VersionEdit::default() },
        VersionEdit { next_file: Some(FileNo(1)), ..VersionEdit::default() },
        VersionEdit { flushed_seq: Some(SeqNo(1)), ..VersionEdit::default() },
    ];
    for edit in wrong {
        assert!(matches!(append(&manifest, &edit), Err(Error::Internal(_))), "{edit:?}");
    }
    assert_eq!(manifest.state(), state_after(5));
    assert_eq!(open(&disk).unwrap().1, state_after(5));
}

#[test]
fn a_long_history_is_rewritten() {
    let disk = new_disk();
    let manifest = create(&disk).unwrap();
    for i in 0..800 {
        append(&manifest, &edit(i)).unwrap();
        assert!(disk.used() < 3 << 20);
    }
    let (number, state) = read(&disk).unwrap();
    assert!(number > 3);
    assert_eq!(state, state_after(800));
}

/// With no byte free the store can be opened and indexes can be dropped, as often as one likes; work is refused, and
/// accepted again once there is space.
#[test]
fn a_full_disk_refuses_work_and_no_relief() {
    let disk = new_disk();
    let (mut manifest, mut state) = {
        let manifest = create(&disk).unwrap();
        (0..20).for_each(|i| append(&manifest, &edit(i)).unwrap());
        let state = manifest.state();
        (manifest, state)
    };
    disk.set_capacity(Some(disk.used()));
    let mut refused = 0;
    for i in 0..1000u64 {
        let relief = VersionEdit { dropped: vec![IndexId(i as u32)], ..VersionEdit::default() };
        manifest.append_relief(&relief).unwrap_or_else(|e| panic!("{i}: {e}"));
        state.apply(&relief).unwrap();
        let work = VersionEdit { next_file: Some(FileNo(100_000 + i)), ..VersionEdit::default() };
        match append(&manifest, &work) {
            Ok(()) => state.apply(&work).unwrap(),
            Err(e) => refused += u32::from(matches!(e, Error::Io { .. }) && e.is_disk_full()),
        }
        assert_eq!(manifest.state(), state);
        if i % 50 == 0 {
            let read;
            (manifest, read) = open(&disk).unwrap();
            assert_eq!(read, state);
        }
    }
    assert!(refused > 100, "{refused}");
    disk.set_capacity(None);
    append(&manifest, &VersionEdit { next_file: Some(FileNo(200_000)), ..VersionEdit::default() }).unwrap();
}

/// A new file that cannot be written is no failure of the manifest: the old one is as good as before.
#[test]
fn a_rewrite_that_fails_before_it_is_in_force_stops_nothing() {
    for kind in [FaultKind::TooManyFiles, FaultKind::StorageFull] {
        let disk = new_disk();
        let manifest = create(&disk).unwrap();
        (0..40).for_each(|i| append(&manifest, &edit(i)).unwrap());
        disk.fail_from(1, kind);
        let mut there = 40;
        while disk.struck().is_none() || there < 900 {
            if append(&manifest, &edit(there)).is_err() {
                break;
            }
            there += 1;
        }
        manifest.check().unwrap();
        disk.clear_fault();
        append(&manifest, &edit(there)).unwrap();
        assert_eq!(read(&disk).unwrap().1, state_after(there + 1));
    }
}

/// A snapshot of more than a unit.
#[test]
fn many_files_fit() {
    let disk = new_disk();
    let manifest = create(&disk).unwrap();
    let added = (1..50_000).map(|i| (3, parse_meta(&format!("{i} k{i:06}-k{i:06}z {i}-{i}")))).collect();
    append(&manifest, &VersionEdit { added, ..VersionEdit::default() }).unwrap();
    let (manifest, state) = open(&disk).unwrap();
    assert_eq!(state.files.len(), 49_999);
    assert_eq!(read(&disk).unwrap().1, manifest.state());
    let version = Version::new(state.files.values(), &new_obsolete()).unwrap();
    assert_eq!(version.find_file(3, &key(1, "k007777m")).unwrap().meta.no, FileNo(7777));
    assert!(version.find_file(3, &key(1, "k0077770")).is_some() && version.find_file(3, &key(1, "a")).is_none());
}

#[test]
fn after_a_crash_every_returned_edit_is_there() {
    for n in 1..400 {
        let disk = new_disk();
        let Ok(manifest) = create(&disk) else { panic!() };
        disk.fail_after(n, FaultKind::StorageFull);
        let mut returned = 0;
        let mut manifest = Some(manifest);
        for i in 0..30 {
            let Some(current) = &manifest else { break };
            match append(current, &edit(i)) {
                Ok(()) => returned = i + 1,
                Err(e) => {
                    let cause = if let Error::Poisoned(cause) = &e { cause } else { &e };
                    assert!(cause.is_disk_full());
                    if matches!(e, Error::Poisoned(_)) {
                        assert!(append(current, &edit(i)).is_err() && append(current, &edit(i + 1)).is_err());
                        break;
                    }
                    // There was no room: nothing has happened.
                    assert_eq!(current.state(), state_after(i));
                    append(current, &edit(i)).unwrap();
                    returned = i + 1;
                }
            }
            if i % 10 == 9 {
                manifest = open(&disk).ok().map(|(manifest, _)| manifest);
            }
        }
        let struck = !disk.clear_fault();
        for seed in 0..6 {
            let mut image = disk.crash(seed);
            let (_, state) = read(&image).unwrap();
            let there = state.marks.flushed_seq.0 + u64::from(!state.files.is_empty());
            assert_eq!(state, state_after(there));
            assert!(there == returned || (struck && there == returned + 1), "{there} of {returned}");
            // And the store goes on from there, through another crash.
            let (manifest, state) = open(&image).unwrap();
            assert_eq!(state, state_after(there));
            append(&manifest, &edit(there)).unwrap();
            image = image.crash(seed + 100);
            assert_eq!(read(&image).unwrap().1, state_after(there + 1));
        }
        if !struck {
            return;
        }
    }
    panic!("the fault always struck");
}

#[test]
fn creation_is_all_or_nothing() {
    for n in 1..50 {
        let disk = new_disk();
        disk.fail_after(n, FaultKind::Other);
        let created = create(&disk).is_ok();
        for seed in 0..8 {
            let image = disk.crash(seed);
            if Manifest::exists(&image, dir()).unwrap() {
                assert_eq!(open(&image).unwrap().1, State::new(LOG_SEGMENT));
            } else {
                assert!(!created);
                create(&image).unwrap();
            }
        }
        if disk.clear_fault() {
            return;
        }
    }
    panic!("the fault always struck");
}

/// The last edit too: its witness follows at once.
#[test]
fn damage_is_noticed_at_every_byte() {
    let disk = new_disk();
    let manifest = create(&disk).unwrap();
    (0..3).for_each(|i| append(&manifest, &edit(i)).unwrap());
    let path = dir().join("MANIFEST-000001");
    let content = disk.content(&path).unwrap();
    // The snapshot's page, three edits', each followed by a witness.
    assert_eq!(without_room(&content).len(), 8 * 4096);
    // An image in which the unsynced last witness survived.
    let whole = (0..100).map(|seed| disk.crash(seed)).find(|image| image.content(&path).as_ref() == Some(&content));
    let whole = whole.unwrap();
    for page in 0..7 {
        let payload = u32::from_le_bytes(content[page * 4096 + 12..][..4].try_into().unwrap()) as usize;
        for at in 0..48 + payload {
            let image = whole.crash(0);
            image.corrupt(&path, (page * 4096 + at) as u64);
            match open(&image) {
                Err(Error::Corruption { path: p, offset, .. }) => {
                    assert_eq!((p, offset), (path.clone(), page as u64 * 4096));
                }
                other => panic!("page {page} byte {at}: {:?}", other.map(|(_, state)| state)),
            }
        }
    }
    for at in 0..16 {
        let image = disk.crash(0);
        image.corrupt(&dir().join("CURRENT"), at);
        let outcome = open(&image).map(|(_, state)| state);
        assert!(matches!(outcome, Err(Error::Corruption { .. })), "CURRENT byte {at}");
    }
}

/// At lengths of every kind, cut off or zeroed from there on: the state is that before or after one of the edits, or the error names the
/// place. (That edits are missing is told by the files that they named: `tests/suite/corruption.rs`.)
#[test]
fn the_rest_is_a_whole_state_wherever_it_is_lost() {
    let disk = new_disk();
    let manifest = create(&disk).unwrap();
    let mut states = vec![manifest.state()];
    for i in 0..3 {
        append(&manifest, &edit(i)).unwrap();
        states.push(manifest.state());
    }
    let path = dir().join("MANIFEST-000001");
    let content = disk.content(&path).unwrap();
    let (mut whole, mut refused) = ([0; 4], 0);
    for keep in (0..without_room(&content).len()).step_by(11) {
        for zeroed in [false, true] {
            let image = disk.copy();
            image.cut(&path, keep as u64, zeroed).unwrap();
            match Manifest::load(&as_disk(&image), dir(), &[], &ring()) {
                Ok(stored) => {
                    let at = states.iter().position(|state| *state == stored.state);
                    whole[at.unwrap_or_else(|| panic!("kept {keep}: {:?}", stored.state))] += 1;
                    assert!(stored.end <= keep.next_multiple_of(4096) as u64, "kept {keep}");
                }
                Err(Error::Corruption { path: named, offset, .. }) => {
                    assert!(named == path && offset <= keep as u64, "kept {keep}: {} {offset}", named.display());
                    refused += 1;
                }
                Err(e) => panic!("kept {keep}: {e}"),
            }
        }
    }
    assert!(whole.iter().all(|&times| times > 0) && refused > 0, "{whole:?}, {refused}");
}

#[test]
fn an_unknown_format_is_refused() {
    let disk = new_disk();
    create(&disk).unwrap();
    let path = dir().join("MANIFEST-000001");
    let mut unit = disk.content(&path).unwrap()[..4096].to_vec();
    let payload = u32::from_le_bytes(unit[12..16].try_into().unwrap()) as usize;
    // Frame length, frame flag, record kind, format version.
    assert_eq!(unit[49..52], [0, 1, 3]);
    unit[51] = 99;
    let crc = crc32c::crc32c(&unit[4..48 + payload]);
    unit[..4].copy_from_slice(&crc.to_le_bytes());
    disk.open(&path, Mode::ReadWrite, false).unwrap().write_all_at(&unit, 0).unwrap();
    let outcome: Result<_> = open(&disk);
    assert!(matches!(outcome, Err(Error::Incompatible { .. })));
}

const NEWER: Feature = Feature::new("newer", "7.1", Need::Reader);
const NEWER_WRITES: Feature = Feature::new("newer-writes", "7.2", Need::Writer);
const HINT: Feature = Feature::new("hint", "7.3", Need::Nobody);

/// A store is of format 3, which every reader since has known, until it uses a feature that such a reader does not know.
#[test]
fn features_are_listed_once_they_are_used() {
    let disk = new_disk();
    let manifest = create(&disk).unwrap();
    (0..5).for_each(|i| append(&manifest, &edit(i)).unwrap());
    [SHARED_FILES, SHARED_SPILLS].iter().for_each(|feature| manifest.require(feature).unwrap());
    assert_eq!(read(&disk).unwrap(), (1, state_after(5)));
    assert_eq!(manifest.state().marks.format(), 3);

    manifest.require(&NEWER).unwrap();
    manifest.require(&NEWER).unwrap();
    append(&manifest, &edit(5)).unwrap();
    let names = ["CURRENT", "CURRENT.tmp", "MANIFEST-000002", "MANIFEST.spare"].map(PathBuf::from);
    assert_eq!(disk.list(dir()).unwrap(), names);
    let stored = Manifest::load(&as_disk(&disk), dir(), &[NEWER], &ring()).unwrap();
    assert_eq!((stored.number, stored.state.marks.format()), (2, 4));
    let mut expected = state_after(6);
    expected.marks.features.add(&NEWER);
    assert_eq!(stored.state, expected);
    // They stay over an opening.
    let manifest = resume(&disk, &stored).unwrap();
    assert_eq!(manifest.features(), [NEWER, SHARED_FILES, SHARED_SPILLS]);
    assert_eq!(Manifest::load(&as_disk(&disk), dir(), &[NEWER], &ring()).unwrap().state, expected);
}

#[test]
fn a_store_with_an_unknown_feature_is_refused_by_name() {
    let refusal = |features: &[Feature], known: &[Feature]| {
        let disk = new_disk();
        let manifest = create(&disk).unwrap();
        features.iter().for_each(|feature| manifest.require(feature).unwrap());
        let before = disk.content(&dir().join("CURRENT")).unwrap();
        let refusal = Manifest::load(&as_disk(&disk), dir(), known, &ring()).err().map(|e| e.to_string());
        assert_eq!(disk.content(&dir().join("CURRENT")).unwrap(), before);
        refusal
    };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        refusal(&[NEWER], &[]).unwrap(),
        format!(
            "/store/MANIFEST-000002: the store uses a feature that Strata {version} does not know: newer (Strata 7.1 or later)"
        )
    );
    assert_eq!(
        refusal(&[NEWER_WRITES, NEWER, HINT], &[]).unwrap(),
        format!(
            "/store/MANIFEST-000004: the store uses features that Strata {version} does not know: newer (Strata 7.1 or \
             later), newer-writes (Strata 7.2 or later)"
        )
    );
    assert!(refusal(&[NEWER_WRITES, NEWER], &[NEWER]).unwrap().ends_with("newer-writes (Strata 7.2 or later)"));
    assert_eq!(refusal(&[HINT], &[]), None);
    assert_eq!(refusal(&[NEWER, NEWER_WRITES], &[NEWER_WRITES, NEWER]), None);
}

/// What only a newer program can read is behind the list of features: that is what the refusal is about, not damage.
#[test]
fn a_feature_is_named_before_what_it_explains() {
    let mut features = Features::default();
    features.add(&NEWER);
    let mut snapshot = vec![4, 0];
    features.encode(&mut snapshot);
    snapshot.extend([200, 1, 2, 3]);
    let decode =
        |known: &[Feature]| State::decode(&mut crate::base::codec::Reader::new(&snapshot), known, &ring(), dir());
    assert!(matches!(decode(&[]), Err(Unread::Unknown(what)) if what.contains("newer")));
    assert!(matches!(decode(&[NEWER]), Err(Unread::Damaged(what)) if what == "snapshot malformed"));
    // A need that nobody knows yet is taken for the greatest.
    snapshot[3] = 77;
    let decoded = State::decode(&mut crate::base::codec::Reader::new(&snapshot), &[], &ring(), dir());
    assert!(matches!(decoded, Err(Unread::Unknown(_))));
}

/// At each operation of the disk at which a feature is noted: a failure changes nothing, or stops the manifest; after a crash
/// the store is as before or has the feature, and has it if the call returned.
#[test]
fn a_feature_is_noted_as_a_whole() {
    for kind in [FaultKind::StorageFull, FaultKind::Other, FaultKind::TooManyFiles] {
        let (mut whole, mut refused, mut stopped) = (false, 0, 0);
        for n in 1..60 {
            let disk = new_disk();
            let manifest = create(&disk).unwrap();
            (0..3).for_each(|i| append(&manifest, &edit(i)).unwrap());
            disk.fail_after(n, kind);
            let outcome = manifest.require(&NEWER);
            whole = disk.clear_fault();
            match &outcome {
                Ok(()) => assert_eq!(manifest.state().marks.format(), 4),
                Err(Error::Poisoned(_)) => {
                    stopped += 1;
                    assert!(manifest.check().is_err() && append(&manifest, &edit(3)).is_err());
                }
                Err(e) => {
                    refused += 1;
                    assert!(matches!(e, Error::Io { .. }), "{e}");
                    assert_eq!(manifest.state(), state_after(3));
                }
            }
            for seed in 0..6 {
                let image = disk.crash(seed);
                let state = Manifest::load(&as_disk(&image), dir(), &[NEWER], &ring()).unwrap().state;
                let has = state.marks.features.has("newer");
                assert!(has || outcome.is_err(), "{n}: lost");
                assert!(!has || outcome.is_ok() || manifest.check().is_err(), "{n}: refused and noted");
                assert_eq!(state.marks.format(), if has { 4 } else { 3 });
                let marks = Marks { features: state_after(3).marks.features, ..state.marks };
                assert_eq!(State { marks, ..state }, state_after(3));
            }
            if manifest.check().is_ok() {
                // It is noted at the next attempt, and work goes on.
                manifest.require(&NEWER).unwrap();
                append(&manifest, &edit(3)).unwrap();
                let image = disk.crash(n);
                let stored = Manifest::load(&as_disk(&image), dir(), &[NEWER], &ring()).unwrap();
                assert!(stored.state.marks.features.has("newer") && stored.state.marks.flushed_seq == SeqNo(3));
            }
            if whole {
                break;
            }
        }
        assert!(
            whole && refused > 0 && (stopped > 0 || kind == FaultKind::StorageFull),
            "{kind:?} {refused} {stopped}"
        );
    }
}

/// With no byte free a feature has its room, since the spare has it.
#[test]
fn a_feature_is_noted_on_a_full_disk() {
    let disk = new_disk();
    let manifest = create(&disk).unwrap();
    (0..20).for_each(|i| append(&manifest, &edit(i)).unwrap());
    disk.set_capacity(Some(disk.used()));
    for name in ["one", "two", "three", "four"] {
        manifest.require(&Feature::new(name, "9", Need::Reader)).unwrap();
        manifest.append_relief(&VersionEdit { dropped: vec![IndexId(5)], ..VersionEdit::default() }).unwrap();
    }
    let refusal = Manifest::load(&as_disk(&disk), dir(), &[], &ring()).err().unwrap().to_string();
    assert!(
        ["one", "two", "three", "four"].iter().all(|name| refusal.contains(&format!("{name} (Strata 9"))),
        "{refusal}"
    );
}

proptest! {
    #[test]
    fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut reader = crate::base::codec::Reader::new(&bytes);
        if let Ok(edit) = VersionEdit::decode(&mut reader, &ring(), dir()) {
            let mut state = State::new(LOG_SEGMENT);
            let _ = state.apply(&edit);
        }
    }
}

/// The store whose bytes are kept as fixture and shown in the documentation.
fn example() -> MemDisk {
    let disk = new_disk();
    let manifest = create(&disk).unwrap();
    let mut first = parse_edit(&["L0 + 1 7/apple-cherry 1-9", "L1 + 2 a-c 3-4"]);
    first.log_start = Some(Lsn(65536));
    first.flushed_seq = Some(SeqNo(9));
    first.next_file = Some(FileNo(3));
    append(&manifest, &first).unwrap();
    let mut second = parse_edit(&["L1 - 2"]);
    second.dropped.push(IndexId(1));
    append(&manifest, &second).unwrap();
    disk
}

/// The content up to the last unit: pages of zeros behind it are reserved space.
fn without_room(content: &[u8]) -> &[u8] {
    let used = content.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
    &content[..used.next_multiple_of(4096).min(content.len())]
}

/// A file of the same indexes that a large transaction wrote.
fn large_shared_meta() -> SstMeta {
    SstMeta { no: FileNo(6), ..shared_meta().stamp(SeqNo(13)) }
}

/// A file of the indexes 7, 9 and 300.
fn shared_meta() -> SstMeta {
    let share = |index, entries, raw_bytes| Share { index: IndexId(index), entries, tombstones: 0, raw_bytes };
    SstMeta {
        largest: key(300, "z"),
        tombstones: 1,
        shares: [share(7, 6, 120), Share { tombstones: 1, ..share(9, 3, 50) }, share(300, 1, 30)].into(),
        ..parse_meta("5 7/d-e 10-12")
    }
}

#[test]
fn stored_bytes_stay_the_same() {
    let disk = example();
    let manifest = open(&disk).unwrap().0;
    let added = vec![(0, shared_meta()), (0, large_shared_meta())];
    append(&manifest, &VersionEdit { added, ..VersionEdit::default() }).unwrap();
    for name in ["CURRENT", "MANIFEST-000002"] {
        let content = disk.content(&dir().join(name)).unwrap();
        check_fixture(&format!("v3/manifest/{name}"), without_room(&content));
    }
    let (number, state) = read_fixture("v3");
    assert_eq!(number, 2);
    let first = parse_meta("1 7/apple-cherry 1-9");
    assert!(state.files.values().eq(&[(0, first), (0, shared_meta()), (0, large_shared_meta())]));
}

/// A manifest that lists features.
#[test]
fn stored_bytes_with_features_stay_the_same() {
    let disk = example();
    let manifest = open(&disk).unwrap().0;
    manifest.require(&NEWER).unwrap();
    manifest.require(&HINT).unwrap();
    append(&manifest, &VersionEdit { added: vec![(0, shared_meta())], ..VersionEdit::default() }).unwrap();
    for name in ["CURRENT", "MANIFEST-000004"] {
        let content = disk.content(&dir().join(name)).unwrap();
        check_fixture(&format!("v4/manifest/{name}"), without_room(&content));
    }
    let disk: Arc<dyn Disk> = Arc::new(crate::io::PosixDisk::default());
    let stored = Manifest::load(&disk, &engine_path("fixtures/v4/manifest"), &[NEWER], &ring()).unwrap();
    assert!(stored.state.files.values().eq(&[(0, parse_meta("1 7/apple-cherry 1-9")), (0, shared_meta())]));
    let features: Vec<Feature> = stored.state.marks.features.iter().cloned().collect();
    assert_eq!(features, [HINT, NEWER, SHARED_FILES, SHARED_SPILLS]);
}

/// Manifests of the earlier formats are read, and what is written next is of the newest.
#[test]
fn stores_of_earlier_formats_are_still_read() {
    let (number, state) = read_fixture("v2");
    assert_eq!((number, state.marks.format()), (2, 3));
    assert!(state.files.values().eq(&[(0, parse_meta("1 7/apple-cherry 1-9")), (0, shared_meta())]));
    let (number, state) = read_fixture("v1");
    assert_eq!(state.marks.format(), 3);
    let marks = Marks {
        log_start: Lsn(65536),
        flushed_seq: SeqNo(9),
        next_file: FileNo(3),
        dropped: [IndexId(1)].into(),
        ..Marks::new(LOG_SEGMENT)
    };
    let files = [(FileNo(1), (0, parse_meta("1 7/apple-cherry 1-9")))].into();
    assert_eq!((number, state), (1, State { marks, files }));
}

#[test]
fn the_documented_example_is_what_is_written() {
    let disk = new_disk();
    let manifest = create(&disk).unwrap();
    let stamped = parse_meta("4 7/d-e 1-2").stamp(SeqNo(12));
    let large =
        VersionEdit { added: vec![(0, stamped.clone())], flushed_seq: Some(SeqNo(12)), ..VersionEdit::default() };
    append(&manifest, &large).unwrap();
    let (_, state) = read(&disk).unwrap();
    assert!(state.files.values().eq(&[(0, stamped)]));
    for meta in [shared_meta(), large_shared_meta()] {
        append(&manifest, &VersionEdit { added: vec![(0, meta)], ..VersionEdit::default() }).unwrap();
    }
    let bytes_of = |disk: &MemDisk| disk.content(&dir().join("MANIFEST-000001")).unwrap();
    check_doc_example("manifest.md", "### File of a large transaction", unit_payload(&bytes_of(&disk), 2));
    check_doc_example("manifest.md", "### File of several indexes", unit_payload(&bytes_of(&disk), 4));
    let heading = "### File of several indexes, of a large transaction";
    check_doc_example("manifest.md", heading, unit_payload(&bytes_of(&disk), 6));
    let bytes = bytes_of(&example());
    check_doc_example("manifest.md", "### Snapshot", unit_payload(&bytes, 0));
    check_doc_example("manifest.md", "### Edit", unit_payload(&bytes, 2));
    let disk = new_disk();
    create(&disk).unwrap().require(&Feature::new("schema-versions", "0.1", Need::Reader)).unwrap();
    let bytes = disk.content(&dir().join("MANIFEST-000002")).unwrap();
    check_doc_example("manifest.md", "### Snapshot with features", unit_payload(&bytes, 0));
}

/// The frame in the unit that begins at a page.
fn unit_payload(bytes: &[u8], page: usize) -> &[u8] {
    let unit = &bytes[page * 4096..];
    let length = u32::from_le_bytes(unit[12..16].try_into().unwrap()) as usize;
    &unit[48..48 + length]
}

/// A shared file is not asked for keys of an index that lies within its bounds and has files of its own.
#[test]
fn a_shared_file_is_visited_for_its_own_indexes_only() {
    let version = Version::new(&[(0, shared_meta())], &Arc::default()).unwrap();
    let visits = |key: &[u8]| {
        let mut count = 0;
        let visited = version.visit(key, |_| {
            count += 1;
            Ok(false)
        });
        visited.map(|()| count).unwrap()
    };
    assert_eq!(visits(&key(9, "a")), 1);
    assert_eq!(visits(&key(8, "x")), 0);
    assert_eq!(visits(&key(300, "a")), 1);
    assert_eq!(visits(&key(6, "x")), 0);
    assert_eq!(visits(&[0, 0, 1]), 0, "no whole index id");
}
