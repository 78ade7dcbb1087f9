//! Tests of the log as a whole: verdicts from text, random histories with crashes, damage.

mod failures;
mod stored;
mod system;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::format::{self, UnitFault, UnitHeader};
use super::read::{Event, FileSource, Source, walk};
use super::testtext::run_cases;
use super::verdict::{EpochStart, Sighting};
use super::*;
use crate::base::{Error, Lsn, Result};
use crate::crypt::Keyring;
use crate::crypt::testing::ring;
use crate::io::{Disk, MemDisk, Mode};

const PAGE: u64 = 4096;
const SEGMENT: u64 = 8 * PAGE;

fn dir() -> &'static Path {
    Path::new("/wal")
}

fn new_disk() -> MemDisk {
    let disk = MemDisk::new();
    disk.create_dir_all(dir()).unwrap();
    disk
}

fn as_disk(disk: &MemDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn options(epoch: u64) -> LogOptions {
    // Every other opening encrypts.
    let keys = (epoch % 2 == 1).then(ring);
    LogOptions { segment_bytes: SEGMENT, epoch, buffer_bytes: 64 << 10, pool_files: 2, fill_new_segments: true, keys }
}

fn place<'a>(disk: &'a Arc<dyn Disk>, dir: &'a Path, segment_bytes: u64, keys: &'a Keyring) -> LogPlace<'a> {
    LogPlace { disk, dir, segment_bytes, keys }
}

fn open(disk: &MemDisk, epoch: u64, tail: Tail) -> Result<Log> {
    Log::open(as_disk(disk), dir(), options(epoch), tail, Box::new(|_| Ok(())))
}

type Found = Vec<(Lsn, Lsn, Vec<u8>)>;

fn read(disk: &MemDisk, from: Lsn) -> Result<(Tail, Found)> {
    read_with_cut(disk, from).map(|(tail, found, _)| (tail, found))
}

fn read_with_cut(disk: &MemDisk, from: Lsn) -> Result<(Tail, Found, Option<Cut>)> {
    let mut found = Vec::new();
    let mut visit = |start: Lsn, end: Lsn, record: &[u8]| {
        found.push((start, end, record.to_vec()));
        Ok(())
    };
    let (tail, cut) = recover(&place(&as_disk(disk), dir(), SEGMENT, &ring()), from, Lsn(0), &mut visit, &mut |_| ())?;
    Ok((tail, found, cut))
}

fn record(i: usize, len: usize) -> Vec<u8> {
    // Even numbers compress well, odd ones do not.
    let mut x = i as u64 + 1;
    (0..len)
        .map(|at| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if i % 2 == 0 { (i + at / 64) as u8 } else { (x >> 33) as u8 }
        })
        .collect()
}

/// A log described by its units; positions in pages, four pages per segment.
#[derive(Default)]
struct TextLog {
    units: Vec<(UnitHeader, Lsn, bool)>,
}

impl TextLog {
    fn intact(&self) -> impl Iterator<Item = &(UnitHeader, Lsn, bool)> {
        self.units.iter().filter(|unit| !unit.2)
    }
}

impl Source for TextLog {
    fn unit(&mut self, at: Lsn) -> Result<std::result::Result<(UnitHeader, &[u8]), UnitFault>> {
        let unit = self.intact().find(|(header, ..)| header.lsn == at);
        Ok(unit.map(|(header, ..)| (*header, &[][..])).ok_or(UnitFault::Bad("bad unit")))
    }
    fn epochs(&mut self) -> Result<Vec<EpochStart>> {
        let firsts = self.intact().filter(|(header, ..)| header.first);
        Ok(firsts.map(|&(header, cut, _)| EpochStart { lsn: header.lsn, cut, epoch: header.epoch }).collect())
    }
    fn beyond(&mut self, at: Lsn, _: Option<u64>) -> Result<Vec<Sighting>> {
        let later = self.intact().filter(|(header, ..)| header.lsn > at);
        Ok(later.map(|(h, ..)| Sighting { lsn: h.lsn, epoch: h.epoch, durable: h.durable }).collect())
    }
    fn broken_segment(&mut self, at: Lsn, upto: Lsn) -> Result<Option<Lsn>> {
        let mut starts = (at.0 / (4 * PAGE) + 1..=upto.0 / (4 * PAGE)).rev().map(|n| Lsn(n * 4 * PAGE));
        Ok(starts.find(|&start| !self.intact().any(|(header, ..)| header.lsn == start)))
    }
    fn place(&self, at: Lsn) -> (PathBuf, u64) {
        (PathBuf::from(format!("segment {}", at.0 / (4 * PAGE))), at.0 % (4 * PAGE) / PAGE)
    }
}

#[test]
fn verdicts_follow_the_text() {
    run_cases("wal-verdict.txt", |input| {
        let mut log = TextLog::default();
        let mut begin = 0;
        for line in input.lines() {
            let mut words = line.split_whitespace();
            let at = words.next().unwrap();
            if at == "from" {
                begin = words.next().unwrap().parse::<u64>().unwrap();
                continue;
            }
            let (mut first, mut bad, mut durable, mut epoch, mut pages) = (None, false, 0, 0, 1u64);
            for word in words {
                let (key, value) = word.split_once('=').unwrap_or((word, "0"));
                let value = value.parse::<u64>().unwrap();
                match key {
                    "first" => first = Some(Lsn(value * PAGE)),
                    "bad" => bad = true,
                    "durable" => durable = value,
                    "epoch" => epoch = value,
                    "pages" => pages = value,
                    _ => panic!("unknown word {word}"),
                }
            }
            let header = UnitHeader {
                lsn: Lsn(at.parse::<u64>().unwrap() * PAGE),
                epoch,
                durable: Lsn(durable * PAGE),
                first: first.is_some(),
                payload_bytes: (pages * PAGE) as u32 - format::HEADER_BYTES as u32,
                first_record: None,
                segment_pages: 4,
                encrypted: false,
            };
            log.units.push((header, first.unwrap_or_default(), bad));
        }
        let mut out = String::new();
        let end = walk(&mut log, Lsn(begin * PAGE), &mut |event| {
            match event {
                Event::Epoch => out += "epoch ",
                Event::Unit(header, _) => out += &format!("{} ", header.lsn.0 / PAGE),
            }
            Ok(())
        });
        let verdict = match end {
            Ok(end) => {
                let next = end.next_segment_start(4 * PAGE).0 / PAGE;
                format!("cut {} next {next} trusted {}", end.cut.0 / PAGE, end.trusted.0 / PAGE)
            }
            Err(Error::Corruption { path, offset, .. }) => {
                format!("corruption {} page {offset}", path.display())
            }
            Err(e) => e.to_string(),
        };
        format!("read {out}\n{verdict}")
    });
}

#[test]
fn records_come_back_with_their_positions() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    let mut spans = Vec::new();
    // Lengths around every border: empty, unit ends, segment ends, compressed, many segments.
    let lengths = [0, 1, 100, 4000, 4047, 4048, 4049, 9000, 30_000, 70_000, 5, 600_000, 0, 3];
    for (i, &len) in lengths.iter().enumerate() {
        let span = log.append_parts(b"head", &Body::compress(&record(i, len))).unwrap();
        assert!(span.start < span.end);
        if i % 3 == 0 {
            log.sync(span.end).unwrap();
            assert!(log.durable() >= span.end);
        }
        spans.push(span);
    }
    log.sync(log.end()).unwrap();
    log.sync(log.end()).unwrap();
    let (tail, found) = read(&disk, Lsn(0)).unwrap();
    assert_eq!(tail.cut, log.durable());
    assert_eq!(found.len(), lengths.len());
    for (i, (start, end, bytes)) in found.iter().enumerate() {
        assert_eq!((*start, *end), (spans[i].start, spans[i].end));
        assert_eq!(bytes[..4], *b"head");
        assert!(bytes[4..] == record(i, lengths[i]));
    }
    // From any record on, also in the middle of segments full of another record.
    for i in 0..spans.len() {
        let (_, found) = read(&disk, spans[i].start).unwrap();
        assert_eq!(found.len(), spans.len() - i);
        assert_eq!(found[0].0, spans[i].start);
    }
    let counters = log.counters();
    assert_eq!(counters.records, lengths.len() as u64);
    assert_eq!((counters.payload_bytes + counters.padding_bytes) % PAGE, 0);
    assert!(counters.segments > 10);
}

#[test]
fn an_end_is_always_reachable() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    assert!(matches!(log.sync(Lsn(PAGE + 1)), Err(Error::Internal(_))));
    log.sync(log.end()).unwrap();
    log.append(&record(1, 4096 - 48 - 3)).unwrap();
    log.write(log.end()).unwrap();
    assert!(log.written() >= log.end() && log.durable() < log.end());
    log.seal().unwrap();
    log.seal().unwrap();
    assert!(log.durable() >= log.end());
}

#[test]
fn bodies_are_compressed_when_it_pays() {
    assert!(matches!(Body::compress(&record(0, 1000)), Body::Plain(_)));
    assert!(matches!(Body::compress(&record(1, 100_000)), Body::Plain(_)));
    let raw = record(0, 5 << 20);
    let body = Body::compress(&raw);
    assert!(matches!(body, Body::Lz4 { blocks, .. } if blocks.len() < raw.len() / 10));
    // Just enough and just too little: seven eighths random.
    for (random, packs) in [(10_000, true), (30_000, false)] {
        let mut mixed = record(1, random);
        mixed.resize(32_000, 0);
        assert_eq!(matches!(Body::compress(&mixed), Body::Lz4 { .. }), packs);
    }
}

#[test]
fn damaged_compressed_frames_are_refused_not_trusted() {
    let raw = record(0, 3 << 20);
    let Body::Lz4 { blocks, raw_bytes } = Body::compress(&raw) else { panic!() };
    let frame = |raw_bytes: u64, blocks: &[u8]| {
        let mut content = vec![2, b'h', b'i'];
        crate::base::codec::put_varint(&mut content, raw_bytes);
        content.extend_from_slice(blocks);
        content
    };
    let mut out = Vec::new();
    format::decompress_frame(&frame(raw_bytes, &blocks), &mut out).unwrap();
    assert!(out[..2] == *b"hi" && out[2..] == raw);
    for wrong in [0, 1, raw_bytes - 1, raw_bytes + 1, u64::MAX] {
        assert!(format::decompress_frame(&frame(wrong, &blocks), &mut out).is_none());
    }
    assert!(format::decompress_frame(&frame(raw_bytes, &blocks[..blocks.len() - 1]), &mut out).is_none());
}

/// The units of the log on `disk`, by walking it.
fn units(disk: &MemDisk) -> Vec<UnitHeader> {
    let mut source = FileSource::of_segments(as_disk(disk), dir(), SEGMENT).unwrap();
    let mut units = Vec::new();
    walk(&mut source, Lsn(0), &mut |event| {
        if let Event::Unit(header, _) = event {
            units.push(*header);
        }
        Ok(())
    })
    .unwrap();
    units
}

fn two_epochs() -> MemDisk {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    for i in 0..20 {
        log.append(&record(i, 700 * i)).unwrap();
        log.sync(log.end()).unwrap();
    }
    let (tail, _) = read(&disk, Lsn(0)).unwrap();
    let log = open(&disk, 2, tail).unwrap();
    for i in 0..9 {
        log.append(&record(i, 900 * i)).unwrap();
        log.sync(log.end()).unwrap();
    }
    log.seal().unwrap();
    disk
}

#[test]
fn damage_below_the_durable_mark_is_named_by_file_and_offset() {
    let disk = two_epochs();
    let (_, found) = read(&disk, Lsn(0)).unwrap();
    assert_eq!(found.len(), 29);
    let mut all = units(&disk);
    // The seal is the one unit nobody witnesses.
    all.pop();
    let firsts = FileSource::of_segments(as_disk(&disk), dir(), SEGMENT).unwrap().epochs().unwrap();
    assert_eq!(firsts.len(), 2);
    let mut places: Vec<(Lsn, u64)> = firsts.iter().map(|first| (first.lsn, 8)).collect();
    places.extend(all.iter().map(|header| (header.lsn, u64::from(header.payload_bytes))));
    for (lsn, payload) in places {
        let path = format::segment_path(dir(), lsn.0 / SEGMENT);
        for at in [0, 5, 13, 17, 25, 33, 41, 47, 48, 47 + payload] {
            let image = disk.crash(0);
            image.corrupt(&path, lsn.0 % SEGMENT + at);
            match read(&image, Lsn(0)) {
                Err(Error::Corruption { path: p, offset, .. }) => {
                    assert_eq!((p, offset), (path.clone(), lsn.0 % SEGMENT), "unit {lsn} byte {at}");
                }
                other => panic!("unit {lsn} byte {at}: {:?}", other.map(|(tail, found)| (tail, found.len()))),
            }
        }
    }
}

#[test]
fn a_lost_segment_is_corruption() {
    let disk = two_epochs();
    for number in 0..units(&disk).last().unwrap().lsn.0 / SEGMENT {
        let path = format::segment_path(dir(), number);
        let image = disk.crash(0);
        if !image.exists(&path).unwrap() {
            continue;
        }
        image.remove(&path).unwrap();
        match read(&image, Lsn(0)) {
            Err(Error::Corruption { path: p, .. }) => assert_eq!(p, path),
            other => panic!("segment {number}: {:?}", other.map(|(tail, found)| (tail, found.len()))),
        }
    }
}

#[test]
fn damage_in_the_unsynced_tail_is_cut() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    for i in 0..5 {
        log.append(&record(i, 3000)).unwrap();
        log.sync(log.end()).unwrap();
    }
    let durable = log.durable();
    for i in 5..30 {
        log.append(&record(i, 3000)).unwrap();
        write_unit(&log);
    }
    // An image in which everything survived.
    let images = (0..100).map(|seed| disk.crash(seed));
    let whole = images.into_iter().find(|image| scan_count(image) == 30).unwrap();
    for header in units(&disk).into_iter().filter(|header| header.lsn >= durable) {
        let image = whole.crash(0);
        let path = format::segment_path(dir(), header.lsn.0 / SEGMENT);
        image.corrupt(&path, header.lsn.0 % SEGMENT + 60);
        let (tail, found) = read(&image, Lsn(0)).unwrap();
        assert_eq!(tail.cut, header.lsn);
        assert!(tail.next_segment_start.0 > units(&disk).last().unwrap().lsn.0, "stale units are left behind");
        assert!(found.len() >= 5 && found.last().unwrap().1 <= header.lsn);
    }
}

fn scan_count(disk: &MemDisk) -> usize {
    let mut count = 0;
    let mut visit = |_: Lsn, _: Lsn, _: &[u8]| {
        count += 1;
        Ok(())
    };
    scan(&place(&as_disk(disk), dir(), SEGMENT, &ring()), Lsn(0), &mut visit).unwrap();
    count
}

/// A large record, a rest, and one byte of it lost: the unit that was left behind the last sync knows.
#[test]
fn after_a_rest_damage_to_the_last_sync_is_told_from_a_torn_write() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    log.witness().unwrap();
    assert_eq!(log.counters().units, 0, "nothing is durable yet");
    log.append(&record(1, 60_000)).unwrap();
    log.sync(log.end()).unwrap();
    log.prepare_next().unwrap();
    let before = log.counters();
    log.witness().unwrap();
    log.witness().unwrap();
    let after = log.counters();
    assert_eq!((after.units - before.units, after.padding_bytes - before.padding_bytes), (1, PAGE));
    assert_eq!(after.syncs, before.syncs);
    // Nothing is left to make durable: who syncs once in a while has nothing to do.
    log.sync(log.records_end()).unwrap();
    assert_eq!(log.counters(), after);

    // The process died; the witness is in the file.
    let mut all = units(&disk);
    assert_eq!(all.pop().map(|witness| witness.payload_bytes), Some(0));
    for header in all {
        let image = disk.crash(0);
        let path = format::segment_path(dir(), header.lsn.0 / SEGMENT);
        copy(&disk, &image);
        image.corrupt(&path, header.lsn.0 % SEGMENT + 60);
        match read(&image, Lsn(0)) {
            Err(Error::Corruption { path: p, offset, .. }) => assert_eq!((p, offset), (path, header.lsn.0 % SEGMENT)),
            other => panic!("unit {}: {:?}", header.lsn, other.map(|(tail, found)| (tail, found.len()))),
        }
    }
    // Appending goes on behind the witness.
    log.append(b"next").unwrap();
    log.sync(log.end()).unwrap();
    assert_eq!(read(&disk, Lsn(0)).unwrap().1.len(), 2);
}

/// A record that waits for no sync, as the commit of a prepared transaction, is written and is the witness.
#[test]
fn a_waiting_record_is_the_witness() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    log.append(&record(1, 100)).unwrap();
    log.sync(log.end()).unwrap();
    let synced = log.durable();
    log.append(b"commit").unwrap();
    let before = log.counters();
    log.witness().unwrap();
    log.witness().unwrap();
    let after = log.counters();
    assert_eq!((after.units - before.units, after.syncs), (1, before.syncs));
    assert_eq!(units(&disk).last().map(|last| (last.lsn, last.durable)), Some((synced, synced)));
    // Who appends later than a unit that witnesses all finds nothing more to say.
    log.append(b"another").unwrap();
    log.witness().unwrap();
    assert_eq!(log.counters().units, after.units);
}

/// Where the disk is full, a witness does not take what prepared transactions were promised.
#[test]
fn a_witness_takes_no_promised_room() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    disk.set_capacity(Some(disk.used()));
    let promised = 4;
    (0..promised).for_each(|_| log.pledge_end());
    for _ in 0..2 * SEGMENT / PAGE {
        if log.end().0 + (promised + 1) * PAGE >= SEGMENT {
            break;
        }
        log.append(b"a").unwrap();
        log.sync(log.end()).unwrap();
        log.witness().unwrap();
    }
    for _ in 0..promised {
        log.witness().unwrap();
        log.append(b"end").unwrap();
        log.redeem_end();
        log.sync(log.end()).unwrap();
    }
}

/// All files of one disk on another, as they are.
fn copy(from: &MemDisk, to: &MemDisk) {
    for name in from.list(dir()).unwrap() {
        let path = dir().join(name);
        if to.exists(&path).unwrap() {
            to.remove(&path).unwrap();
        }
        let file = to.open(&path, Mode::Create, false).unwrap();
        file.write_all_at(&from.content(&path).unwrap(), 0).unwrap();
    }
}

/// Writes what was appended, in units that end there; unsynced.
fn write_unit(log: &Log) {
    log.write(log.mark().unwrap()).unwrap();
}

/// A log with a durable record.
fn with_a_record() -> (MemDisk, Log) {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    log.append(b"kept").unwrap();
    log.sync(log.end()).unwrap();
    (disk, log)
}

/// What a crash cut off is told with its place and with what can be read in it; a log that ends whole tells nothing.
#[test]
fn a_cut_is_told_with_what_was_in_it() {
    let (disk, log) = with_a_record();
    assert_eq!(read_with_cut(&disk, Lsn(0)).unwrap().2, None);
    let cut = log.durable();
    for _ in 0..3 {
        log.append(b"one").unwrap();
        log.append(b"two").unwrap();
        write_unit(&log);
    }
    assert_eq!(read_with_cut(&disk, Lsn(0)).unwrap().2, None);
    let path = format::segment_path(dir(), 0);
    let image = new_disk();
    copy(&disk, &image);
    image.corrupt(&path, cut.0 + 50);
    let told = read_with_cut(&image, Lsn(0)).unwrap().2.unwrap();
    let expected = Cut {
        path: path.clone(),
        offset: cut.0,
        fault: "unit checksum mismatch",
        bytes: 3 * PAGE,
        intact_units: 2,
        records: 4,
        begun_bytes: 0,
    };
    assert_eq!(told, expected);
    // Nothing but the torn unit.
    let image = new_disk();
    copy(&disk, &image);
    image.corrupt(&path, cut.0 + 2 * PAGE + 50);
    let told = read_with_cut(&image, Lsn(0)).unwrap().2.unwrap();
    assert_eq!((told.offset, told.bytes, told.records), (cut.0 + 2 * PAGE, PAGE, 0));
    // A record of which only a part is left.
    log.append(&record(1, 9000)).unwrap();
    write_unit(&log);
    log.append(&record(1, 90_000)).unwrap();
    write_unit(&log);
    let last = *units(&disk).last().unwrap();
    copy(&disk, &image);
    image.corrupt(&format::segment_path(dir(), last.lsn.0 / SEGMENT), last.lsn.0 % SEGMENT + 50);
    let told = read_with_cut(&image, Lsn(0)).unwrap().2.unwrap();
    assert!(told.begun_bytes > 0 && told.intact_units == 0, "{told:?}");
    // Once cut, it is over.
    let (tail, ..) = read_with_cut(&image, Lsn(0)).unwrap();
    let log = open(&image, 2, tail).unwrap();
    log.sync(log.end()).unwrap();
    assert_eq!(read_with_cut(&image, Lsn(0)).unwrap().2, None);
}

/// Stale units beyond a cut that come back later (the drive lied to recovery) stay dead.
#[test]
fn what_was_cut_never_comes_back() {
    let (disk, log) = with_a_record();
    let cut = log.durable();
    log.append(b"lost").unwrap();
    log.write(log.end()).unwrap();
    let path = format::segment_path(dir(), 0);
    disk.corrupt(&path, cut.0 + 50);
    let (tail, found) = read(&disk, Lsn(0)).unwrap();
    assert_eq!((tail.cut, found.len()), (cut, 1));
    let log = open(&disk, 2, tail).unwrap();
    log.append(b"new").unwrap();
    log.sync(log.end()).unwrap();
    disk.corrupt(&path, cut.0 + 50);
    let (_, found) = read(&disk, Lsn(0)).unwrap();
    let bytes: Vec<&[u8]> = found.iter().map(|f| &f.2[..]).collect();
    assert_eq!(bytes, [&b"kept"[..], b"new"]);
}

#[test]
fn another_version_or_segment_size_is_refused() {
    let disk = two_epochs();
    let mut ignore = |_: Lsn, _: Lsn, _: &[u8]| Ok(());
    let outcome =
        recover(&place(&as_disk(&disk), dir(), SEGMENT * 2, &ring()), Lsn(0), Lsn(0), &mut ignore, &mut |_| ());
    assert!(matches!(outcome, Err(Error::Incompatible { .. })));

    let path = format::segment_path(dir(), 0);
    let mut unit = disk.content(&path).unwrap()[PAGE as usize..2 * PAGE as usize].to_vec();
    unit[8] = 3;
    let payload = u32::from_le_bytes(unit[12..16].try_into().unwrap()) as usize;
    let crc = crc32c::crc32c(&unit[4..format::HEADER_BYTES + payload]);
    unit[..4].copy_from_slice(&crc.to_le_bytes());
    disk.open(&path, Mode::ReadWrite, false).unwrap().write_all_at(&unit, PAGE).unwrap();
    assert!(matches!(read(&disk, Lsn(0)), Err(Error::Incompatible { .. })));
}

#[test]
fn released_segments_are_reused_and_bounded() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    let mut last = Lsn(0);
    for i in 0..200 {
        last = log.append(&record(1, 3000 + i)).unwrap().start;
        log.sync(log.end()).unwrap();
        log.release_before(last).unwrap();
        log.prepare_next().unwrap();
    }
    assert!(log.counters().segments > 15);
    // The current one, the one before, the next, and the pool.
    assert!(disk.used() <= 6 * SEGMENT, "{}", disk.used());
    assert_eq!(read(&disk, last).unwrap().1.len(), 1);
    // Opening again cleans up as well.
    let (tail, _) = read(&disk, last).unwrap();
    let log = open(&disk, 2, tail).unwrap();
    log.release_before(log.end()).unwrap();
    assert!(disk.used() <= 4 * SEGMENT);
    assert_eq!(log.live_bytes(), SEGMENT);
}

#[test]
fn threads_share_syncs_and_lose_nothing() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8usize {
            let (log, done) = (&log, &done);
            scope.spawn(move || {
                for i in 0..150 {
                    let mut bytes = vec![thread as u8, i as u8];
                    bytes.resize(2 + i * 7, 9);
                    let span = log.append(&bytes).unwrap();
                    match i % 5 {
                        0 => log.write(span.end).unwrap(),
                        _ => {
                            log.sync(span.end).unwrap();
                            assert!(log.durable() >= span.end);
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while done.load(Ordering::Relaxed) < 1200 {
                log.prepare_next().unwrap();
                std::thread::yield_now();
            }
        });
    });
    let (_, found) = read(&disk, Lsn(0)).unwrap();
    assert_eq!(found.len(), 1200);
    let mut next = [0u8; 8];
    for (_, _, bytes) in found {
        assert_eq!(bytes[1], next[bytes[0] as usize], "each thread's records are in its order");
        next[bytes[0] as usize] += 1;
    }
}

/// Nobody syncs: appends that hit the buffer bound write by themselves.
#[test]
fn the_buffer_is_bounded() {
    let disk = new_disk();
    let log = open(&disk, 1, Tail::NEW).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = &log;
            scope.spawn(move || {
                for _ in 0..200 {
                    log.append(&record(1, 1000 + thread)).unwrap();
                }
            });
        }
    });
    assert!(log.end().0 - log.written().0 <= 128 << 10);
    log.append(&record(1, 1 << 20)).unwrap();
    log.sync(log.end()).unwrap();
    assert_eq!(read(&disk, Lsn(0)).unwrap().1.len(), 801);
}

#[derive(Clone, Debug)]
enum Op {
    Append(usize),
    Write,
    Sync,
    Prepare,
    Release,
    Seal,
    Witness,
    /// Power cut and recovery.
    Crash(u64),
    /// The process died, its writes did not.
    Restart,
    /// A clean close and recovery.
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0usize..6000).prop_map(Op::Append),
        8 => (0usize..200).prop_map(Op::Append),
        1 => (20_000usize..150_000).prop_map(Op::Append),
        8 => Just(Op::Write),
        4 => Just(Op::Sync),
        1 => Just(Op::Prepare),
        1 => Just(Op::Release),
        1 => Just(Op::Seal),
        2 => Just(Op::Witness),
        1 => any::<u64>().prop_map(Op::Crash),
        1 => Just(Op::Restart),
        1 => Just(Op::Close),
    ]
}

/// More with PROPTEST_CASES in the environment.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]
    #[test]
    fn recovery_yields_a_prefix_with_everything_synced(ops in prop::collection::vec(op(), 1..120)) {
        let mut disk = new_disk();
        let mut epoch = 1;
        let mut log = open(&disk, epoch, Tail::NEW).unwrap();
        let mut from = Lsn(0);
        // What was appended and not lost: its place, its seed, its length; and how many are promised.
        let mut model: Vec<(Span, usize, usize)> = Vec::new();
        let mut promised = 0;
        for (i, op) in ops.into_iter().chain([Op::Crash(77), Op::Restart]).enumerate() {
            match op {
                Op::Append(len) => model.push((log.append(&record(i, len)).unwrap(), i, len)),
                Op::Write => log.write(log.end()).unwrap(),
                Op::Sync => {
                    log.sync(log.end()).unwrap();
                    promised = model.len();
                }
                Op::Seal => {
                    log.seal().unwrap();
                    promised = model.len();
                }
                Op::Witness => log.witness().unwrap(),
                Op::Prepare => log.prepare_next().unwrap(),
                Op::Release => {
                    let gone = promised / 2;
                    if gone > 0 {
                        from = model[gone].0.start.min(log.durable());
                        if from == model[gone].0.start {
                            model.drain(..gone);
                            promised -= gone;
                            log.release_before(from).unwrap();
                        }
                    }
                }
                Op::Crash(_) | Op::Restart | Op::Close => {
                    if matches!(op, Op::Close) {
                        log.close(&|_| Ok(())).unwrap().unwrap();
                        promised = model.len();
                    }
                    if let Op::Crash(seed) = op {
                        disk = disk.crash(seed);
                    }
                    from = model.first().map_or(from, |m| m.0.start.min(from.max(m.0.start)));
                    let (tail, found) = read(&disk, from).unwrap();
                    prop_assert!(found.len() >= promised && found.len() <= model.len());
                    for ((start, end, bytes), (span, i, len)) in found.iter().zip(&model) {
                        prop_assert_eq!((*start, *end), (span.start, span.end));
                        prop_assert!(*bytes == record(*i, *len));
                    }
                    // What recovery returned is promised from now on.
                    model.truncate(found.len());
                    promised = model.len();
                    epoch += 1;
                    log = open(&disk, epoch, tail).unwrap();
                }
            }
        }
    }

    #[test]
    fn damage_anywhere_never_yields_wrong_records(at in any::<prop::sample::Index>(), from_start in any::<bool>()) {
        let disk = two_epochs();
        let segments = FileSource::of_segments(as_disk(&disk), dir(), SEGMENT).unwrap().epochs().unwrap();
        let all = read(&disk, Lsn(0)).unwrap().1;
        let size = (units(&disk).last().unwrap().end().0) as usize;
        let at = at.index(size) as u64;
        let path = format::segment_path(dir(), at / SEGMENT);
        prop_assume!(disk.exists(&path).unwrap());
        disk.corrupt(&path, at % SEGMENT);
        let from = if from_start { Lsn(0) } else { segments[1].lsn };
        let expected: Vec<_> = all.into_iter().filter(|f| f.0 >= from).collect();
        if let Ok((_, found)) = read(&disk, from) {
            prop_assert!(found == expected, "an intact log must be read in full");
        }
    }
}

/// Reading never panics, whatever the bytes are.
#[test]
fn garbage_is_an_empty_log() {
    let disk = new_disk();
    let file = disk.open(&format::segment_path(dir(), 0), Mode::Create, false).unwrap();
    file.write_all_at(&record(1, 10_000), 0).unwrap();
    let (tail, found) = read(&disk, Lsn(0)).unwrap();
    assert_eq!((tail, found.len()), (Tail::NEW, 0));
}

#[test]
fn a_large_record_spans_many_segments() {
    large_record(48 << 20, 4 << 20);
}

#[test]
#[ignore = "needs 3 GiB of memory"]
fn a_record_beyond_one_gibibyte() {
    large_record((1 << 30) + 12_345, 64 << 20);
}

fn large_record(len: usize, segment_bytes: u64) {
    let disk = new_disk();
    let options = LogOptions { segment_bytes, ..LogOptions::default() };
    let log = Log::open(as_disk(&disk), dir(), options, Tail::NEW, Box::new(|_| Ok(()))).unwrap();
    let raw = record(1, len);
    log.append(b"before").unwrap();
    let span = log.append(&raw).unwrap();
    log.append(b"after").unwrap();
    log.sync(log.end()).unwrap();
    let mut seen = 0;
    scan(&place(&as_disk(&disk), dir(), segment_bytes, &ring()), span.start, &mut |start, _, bytes| {
        assert!(if start == span.start { bytes == raw } else { bytes == b"after" });
        seen += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, 2);
}

/// The log whose bytes are kept as fixture and shown in the documentation.
/// A start waits for it: each byte of the log is read once, and of a file that is only looked at the first unit.
#[test]
fn a_recovery_reads_the_log_once() {
    let (disk, segment_bytes) = (new_disk(), 1 << 20);
    let options = |epoch| LogOptions { segment_bytes, ..options(epoch) };
    let mut tail = Tail::NEW;
    for epoch in 1..6 {
        let log = Log::open(as_disk(&disk), dir(), options(epoch), tail, Box::new(|_| Ok(()))).unwrap();
        log.append(&record(epoch as usize, 1000)).unwrap();
        log.sync(log.end()).unwrap();
        drop(log);
        tail = recover(
            &place(&as_disk(&disk), dir(), segment_bytes, &ring()),
            Lsn(0),
            Lsn(0),
            &mut |_, _, _| Ok(()),
            &mut |_| (),
        )
        .unwrap()
        .0;
    }
    let from = tail.cut.0 / segment_bytes * segment_bytes;
    let before = disk.counters().bytes_read;
    recover(
        &place(&as_disk(&disk), dir(), segment_bytes, &ring()),
        Lsn(from),
        Lsn(0),
        &mut |_, _, _| Ok(()),
        &mut |_| (),
    )
    .unwrap();
    let read = disk.counters().bytes_read - before;
    // All segments are looked at twice, for epochs and for what poses as one; the last one is read.
    assert!(read <= segment_bytes + 12 * (64 << 10), "{read} bytes were read");
}
