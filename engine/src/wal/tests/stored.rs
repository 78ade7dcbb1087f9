//! Bytes that must not change: the stored log, and the examples of docs/develop/format.

use super::*;
use crate::base::KeyVersion;
use crate::crypt::{KeyHeader, Purpose};
use crate::io::AlignedBuf;
use crate::wal::testtext::{check_doc_example, check_fixture, engine_path};
use crate::wal::unsealing::Unsealing;

fn example() -> MemDisk {
    let disk = new_disk();
    let options = LogOptions { segment_bytes: 4 * PAGE, ..options(0x1122_3344_5566_7788) };
    let tail = Tail { cut: Lsn(9 * PAGE), next_segment_start: Lsn(12 * PAGE) };
    let log = Log::open(as_disk(&disk), dir(), options, tail, Box::new(|_| Ok(()))).unwrap();
    log.sync(log.end()).unwrap();
    log.append(b"hello").unwrap();
    log.append(b"log").unwrap();
    log.sync(log.end()).unwrap();
    log.append(&record(0, 5000)).unwrap();
    log.seal().unwrap();
    disk
}

#[test]
fn stored_bytes_stay_the_same() {
    let bytes = example().content(&format::segment_path(dir(), 3)).unwrap();
    check_fixture("v1/wal/000000000003.log", &bytes);
    let mut found = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(crate::io::PosixDisk::default());
    let folder = engine_path("fixtures/v1/wal");
    let tail = scan(&place(&disk, &folder, 4 * PAGE, &ring()), Lsn(12 * PAGE), &mut |start, _, bytes| {
        found.push((start.0, bytes.to_vec()));
        Ok(())
    })
    .unwrap();
    assert_eq!(tail, Tail { cut: Lsn(16 * PAGE), next_segment_start: Lsn(16 * PAGE) });
    let expected =
        [(13 * PAGE + 48, b"hello".to_vec()), (13 * PAGE + 48 + 7, b"log".to_vec()), (14 * PAGE + 48, record(0, 5000))];
    assert!(found == expected);
}

#[test]
fn the_documented_example_is_what_is_written() {
    let bytes = example().content(&format::segment_path(dir(), 3)).unwrap();
    let page = PAGE as usize;
    check_doc_example("wal.md", "### First unit", &bytes[..56]);
    check_doc_example("wal.md", "### Second unit", &bytes[page..page + 60]);
}

#[test]
fn the_documented_encrypted_unit_is_what_is_written() {
    let key = KeyVersion { id: 1, version: 1 };
    let salt = std::array::from_fn(|i| i as u8);
    let data_key = KeyHeader::example(key, b" master key 1 1", salt, Purpose::Log);
    check_doc_example("encryption.md", "### Key header", &data_key.0.encode());
    let mut unit = format::UnitBuf::new(AlignedBuf::zeroed(4096), Lsn(53248), Lsn(65536)).encrypted();
    for record in [&b"hello"[..], b"log"] {
        unit.begin_record();
        let (prefix, _) = format::frame_prefixes(&[], &format::Body::Plain(record));
        unit.push(prefix.as_slice());
        unit.push(record);
    }
    let bytes = unit.seal(0x1122_3344_5566_7788, Lsn(53248), 4, Some(&data_key));
    check_doc_example("encryption.md", "### Encrypted unit", &bytes[..48 + 48 + 12 + 16]);
    let (header, payload) = format::decode_unit(bytes, Some(Lsn(53248))).unwrap();
    let keys = ring();
    let mut unsealing = Unsealing::new(&keys);
    let opened = unsealing.payload(&header, payload, &|| (PathBuf::new(), 0)).unwrap();
    assert_eq!(opened, b"\x05\0hello\x03\0log");
}
