//! SSTs against a sorted list. Most run on a disk in memory, which also checks the alignment of all direct I/O.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use self::stored::{document, hex_of, shared_options, shared_rows};
use super::*;
use crate::base::{Error, FileNo, IndexId, Kind, SeqNo};
use crate::cache::Cache;
use crate::crypt::Purpose;
use crate::crypt::testing::ring;
use crate::io::{Disk, MemDisk, Mode, PosixDisk};
use crate::iter::VersionIter;

mod ahead;
mod dictionary;
mod handoff;
mod stored;

/// Key, sequence number, kind, value.
type Row = (Vec<u8>, u64, Kind, Vec<u8>);

/// A disk with one SST on it.
struct Bed {
    memory: MemDisk,
    disk: Arc<dyn Disk>,
}

impl Bed {
    fn new() -> Bed {
        let memory = MemDisk::new();
        memory.create_dir_all(Path::new("/store")).unwrap();
        Bed { disk: Arc::new(memory.clone()), memory }
    }
    fn path() -> &'static Path {
        Path::new("/store/000009.sst")
    }
    fn remove(&self) {
        if self.disk.exists(Bed::path()).unwrap() {
            self.disk.remove(Bed::path()).unwrap();
        }
    }
    /// Replaces the SST.
    fn write(&self, rows: &[Row], options: SstOptions) -> SstMeta {
        self.remove();
        let meta = write(&self.disk, Bed::path(), rows, options);
        assert_eq!(self.bytes().len() as u64, meta.file_bytes);
        meta
    }
    fn bytes(&self) -> Vec<u8> {
        self.memory.content(Bed::path()).unwrap()
    }
    /// Changes the file in place, under the feet of whoever has it open.
    fn set_bytes(&self, bytes: Vec<u8>) {
        let file = self.disk.open(Bed::path(), Mode::ReadWrite, false).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
    }
    fn open(&self, cache: &Arc<BlockCache>) -> crate::base::Result<Arc<Sst>> {
        Sst::open(&self.disk, Bed::path(), FileNo(9), cache.clone(), &ring())
    }
}

/// What `finish` returned survives a power cut, once the directory is synced.
#[test]
fn a_finished_table_is_durable() {
    let bed = Bed::new();
    bed.write(&[(key("a"), 1, Kind::Put, vec![7; 9000])], SstOptions::default());
    bed.disk.sync_dir(Path::new("/store")).unwrap();
    assert_eq!(bed.memory.crash(1).content(Bed::path()), Some(bed.bytes()));
}

fn key(text: &str) -> Vec<u8> {
    [&IndexId(7).prefix()[..], text.as_bytes()].concat()
}

fn write(disk: &Arc<dyn Disk>, path: &Path, rows: &[Row], options: SstOptions) -> SstMeta {
    let mut writer = SstWriter::create(disk, path, FileNo(9), options).unwrap();
    if let Some(id) = options.key {
        writer = writer.encrypt(ring().begin(id, Purpose::Sst, path).unwrap());
    }
    let mut so_far = 0;
    let mut index = None;
    for (key, seq, kind, value) in rows {
        // Of several indexes each is compressed in a way of its own.
        let ways = [options.compression, Compression::None, Compression::Lz4, Compression::Zstd];
        if index.replace(IndexId::of(key)).is_some_and(|before| before != IndexId::of(key)) {
            writer.begin_index(key, ways[IndexId::of(key).0 as usize % 4]).unwrap();
        }
        writer.add(key, SeqNo(*seq), *kind, value).unwrap();
        assert!(writer.file_bytes_so_far() >= so_far);
        so_far = writer.file_bytes_so_far();
    }
    writer.finish().unwrap()
}

fn here(iter: &SstIter) -> Option<Row> {
    iter.valid().then(|| (iter.key().to_vec(), iter.seq().0, iter.kind(), iter.value().to_vec()))
}

const HINTS: [ReadHints; 4] = [
    ReadHints { fill_cache: true, read_ahead: 0, defer_large: false },
    ReadHints { fill_cache: true, read_ahead: 1 << 20, defer_large: false },
    ReadHints { fill_cache: false, read_ahead: 1 << 20, defer_large: false },
    ReadHints { fill_cache: false, read_ahead: 0, defer_large: false },
];

/// Everything an SST answers, against the rows it was made of.
fn check(sst: &Arc<Sst>, rows: &[Row], probes: &[Vec<u8>], reads: &[u64]) {
    sst.verify().unwrap();
    for hints in HINTS {
        let mut iter = sst.iter(hints);
        assert!(!iter.valid());
        iter.seek_first().unwrap();
        for row in rows {
            assert_eq!(here(&iter).as_ref(), Some(row));
            assert_eq!(&*iter.pinned_value(), &row.3[..]);
            iter.next().unwrap();
        }
        assert!(!iter.valid());
        iter.seek_last().unwrap();
        for row in rows.iter().rev() {
            assert_eq!(here(&iter).as_ref(), Some(row));
            iter.prev().unwrap();
        }
        assert!(!iter.valid());
        iter.seek_first().unwrap();
        for (i, row) in rows.iter().enumerate().filter(|(i, row)| *i == 0 || rows[i - 1].0 != row.0) {
            assert_eq!(here(&iter).as_ref(), Some(row), "row {i}");
            iter.next_key().unwrap();
        }
        assert!(!iter.valid());
        for key in probes {
            let at = rows.partition_point(|r| r.0 < *key);
            iter.seek_ge(key).unwrap();
            assert_eq!(here(&iter).as_ref(), rows.get(at));
            if iter.valid() {
                iter.prev().unwrap();
                assert_eq!(here(&iter).as_ref(), at.checked_sub(1).map(|i| &rows[i]));
            }
            iter.seek_lt(key).unwrap();
            assert_eq!(here(&iter).as_ref(), at.checked_sub(1).map(|i| &rows[i]));
            if iter.valid() {
                iter.next().unwrap();
                assert_eq!(here(&iter).as_ref(), rows.get(at));
            }
        }
    }
    let mut sorted: Vec<&Vec<u8>> = probes.iter().collect();
    sorted.sort();
    let mut bytes = 0;
    for key in sorted {
        let at = rows.partition_point(|r| r.0 < *key) as u64;
        let Extent { bytes: b, entries: e, exact } = sst.before(key).unwrap();
        // Entries are counted to the key itself only while its block is in the cache, which it may leave at any time.
        assert!(b >= bytes && e <= at, "bytes never fall, entries never exceed the truth");
        assert!(!exact || e == at);
        bytes = b;
        for &read in reads {
            let expected = rows[at as usize..].iter().take_while(|r| r.0 == *key).find(|r| r.1 <= read);
            let found = sst.get(key, SeqNo(read)).unwrap().map(|(seq, kind, value)| (seq.0, kind, value.to_vec()));
            assert_eq!(found, expected.map(|r| (r.1, r.2, r.3.clone())));
        }
        if rows.get(at as usize).is_some_and(|r| r.0 == *key) {
            assert!(sst.may_contain(key).unwrap());
        }
    }
}

fn rows_strategy() -> impl Strategy<Value = Vec<Row>> {
    let one_key = prop_oneof![
        4 => "[ab]{0,6}",
        2 => "[a-c]{0,3}/common/path/[a-c]{0,12}",
        2 => (0..300u32).prop_map(|n| format!("{n:08}")),
        1 => "[a\\x00]{0,30}",
    ];
    let value = prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 0..8),
        2 => (0..60usize).prop_map(|n| vec![b'v'; n]),
        1 => (0..3000usize).prop_map(|n| vec![b'w'; n]),
    ];
    let versions = prop_oneof![
        6 => proptest::collection::vec(0..1000u64, 1..3),
        2 => Just(vec![0]),
        1 => proptest::collection::vec(0..(1u64 << 56), 1..60),
    ];
    let per_key = (one_key, versions, proptest::collection::vec((value, proptest::bool::weighted(0.2)), 60));
    proptest::collection::vec(per_key, 1..60).prop_map(|keys| {
        let mut rows = Vec::new();
        for (text, versions, values) in keys {
            for (seq, (value, delete)) in versions.into_iter().zip(values) {
                let (kind, value) = if delete { (Kind::Delete, Vec::new()) } else { (Kind::Put, value) };
                rows.push((key(&text), seq, kind, value));
            }
        }
        rows.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        rows.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
        rows
    })
}

fn compression() -> impl Strategy<Value = Compression> {
    prop_oneof![Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)]
}

/// Keys of the rows and their close neighbours.
fn probes(rows: &[Row], extra: &[String]) -> Vec<Vec<u8>> {
    let mut probes: Vec<Vec<u8>> = extra.iter().map(|text| key(text)).collect();
    for (i, row) in rows.iter().enumerate() {
        probes.push(row.0.clone());
        if i % 5 == 0 {
            probes.push([&row.0[..], &[0]].concat());
            probes.push(row.0[..row.0.len() - 1].to_vec());
        }
    }
    probes.extend([Vec::new(), IndexId(6).prefix().to_vec(), IndexId(8).prefix().to_vec(), vec![0xff; 40]]);
    probes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_table_answers_like_a_sorted_list(
        rows in rows_strategy(),
        extra in proptest::collection::vec("[a-c0]{0,9}", 10),
        compression in compression(),
        block_bytes in prop_oneof![Just(1usize), Just(150), Just(1000), Just(16 << 10)],
        filter_bits_per_key in prop_oneof![Just(0u8), Just(10)],
        cache_bytes in prop_oneof![Just(0usize), Just(10_000), Just(8 << 20)],
        key in prop_oneof![Just(None), Just(Some(2))],
    ) {
        let bed = Bed::new();
        let meta = bed.write(&rows, SstOptions { compression, block_bytes, filter_bits_per_key, key });
        prop_assert_eq!(meta.index, IndexId(7));
        prop_assert_eq!((&meta.smallest, &meta.largest), (&rows[0].0, &rows[rows.len() - 1].0));
        prop_assert_eq!(meta.min_seq.0, rows.iter().map(|r| r.1).min().unwrap());
        prop_assert_eq!(meta.max_seq.0, rows.iter().map(|r| r.1).max().unwrap());
        prop_assert_eq!(meta.entries, rows.len() as u64);
        prop_assert_eq!(meta.tombstones, rows.iter().filter(|r| r.2 == Kind::Delete).count() as u64);
        prop_assert_eq!(meta.raw_bytes, rows.iter().map(|r| r.0.len() + r.3.len()).sum::<usize>() as u64);
        let cache = Cache::new(cache_bytes);
        let sst = bed.open(&cache).unwrap();
        prop_assert_eq!(sst.meta(), &meta);
        check(&sst, &rows, &probes(&rows, &extra), &[0, 3, 500, 1 << 50, SeqNo::MAX.0]);
        prop_assert!(cache.usage() <= cache_bytes);
    }
}

#[test]
fn versions_of_one_key_span_blocks_and_partitions() {
    let bed = Bed::new();
    let mut rows: Vec<Row> = vec![(key("a"), 5, Kind::Put, b"x".to_vec())];
    rows.extend((0..20_000u64).rev().map(|seq| (key("hot"), seq * 2, Kind::Put, seq.to_string().into_bytes())));
    rows.push((key("z"), 5, Kind::Put, b"y".to_vec()));
    bed.write(&rows, SstOptions { block_bytes: 512, ..SstOptions::default() });
    let cache = Cache::new(8 << 20);
    let sst = bed.open(&cache).unwrap();
    assert!(sst.top.rows() > 2);
    sst.verify().unwrap();
    for read in [0, 1, 2, 3, 777, 20_000, 39_998, 39_999, SeqNo::MAX.0] {
        let (seq, kind, value) = sst.get(&key("hot"), SeqNo(read)).unwrap().unwrap();
        assert_eq!((seq.0, kind), ((read / 2 * 2).min(39_998), Kind::Put));
        assert_eq!(&*value, (seq.0 / 2).to_string().as_bytes());
    }
    assert!(sst.get(&key("z"), SeqNo(4)).unwrap().is_none());
    assert_eq!(&*sst.get(&key("z"), SeqNo(5)).unwrap().unwrap().2, b"y");
    let mut iter = sst.iter(ReadHints::default());
    iter.seek_ge(&key("hot")).unwrap();
    assert_eq!(iter.seq().0, 39_998);
    iter.seek_lt(&key("z")).unwrap();
    assert_eq!((iter.key(), iter.seq().0), (&key("hot")[..], 0));
    iter.seek_lt(&key("hot")).unwrap();
    assert_eq!(iter.key(), &key("a")[..]);
}

/// Where uncompressed blocks do not fit, compressed ones may; what is asked for all the time is decompressed once.
#[test]
fn a_full_cache_holds_compressed_blocks() {
    let bed = Bed::new();
    let rows: Vec<Row> =
        (0..2_000u64).map(|n| (key(&format!("k{n:05}")), n, Kind::Put, format!("{n:>500}").into_bytes())).collect();
    bed.write(&rows, SstOptions::default());
    let cache = Cache::with_shards(600 << 10, 1);
    let sst = bed.open(&cache).unwrap();
    let read_all = || {
        // About one of each block.
        for (key, _, _, value) in rows.iter().step_by(28) {
            assert_eq!(*sst.get(key, SeqNo::MAX).unwrap().unwrap().2, **value);
        }
        cache.misses() - cache.second_hits()
    };
    // The first time some come in uncompressed, and leave again when there is no room. Uncompressed a good half would fit.
    read_all();
    let before = read_all();
    let mut after = before;
    for _ in 0..20 {
        after = read_all();
    }
    let asked = 20 * rows.len() as u64 / 28;
    assert!(after - before < asked / 5, "{} of {asked} were read from disk", after - before);
    assert!(cache.usage() <= 600 << 10);
    let often = |times: usize| (0..times).for_each(|_| drop(sst.get(&rows[1_000].0, SeqNo::MAX).unwrap()));
    often(3);
    let before = cache.second_hits();
    often(10);
    assert_eq!(cache.second_hits(), before);
}

#[test]
fn large_values_have_blocks_of_their_own() {
    let bed = Bed::new();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let mut rows: Vec<Row> = Vec::new();
        for i in 0..40u64 {
            let len = [10, 5_000, 20_000, 3 << 20][i as usize % 4];
            rows.push((key(&format!("k{i:03}")), i, Kind::Put, (0..len).map(|b| (b as u64 * i / 7) as u8).collect()));
        }
        bed.write(&rows, SstOptions { compression, ..SstOptions::default() });
        let cache = Cache::new(32 << 20);
        let sst = bed.open(&cache).unwrap();
        check(&sst, &rows, &probes(&rows, &[]), &[SeqNo::MAX.0]);
    }
}

#[test]
fn the_writer_refuses_what_breaks_the_order() {
    let bed = Bed::new();
    let mut writer = SstWriter::create(&bed.disk, Bed::path(), FileNo(9), SstOptions::default()).unwrap();
    let refused = |result: crate::base::Result<()>| assert!(matches!(result, Err(Error::Internal(_))));
    refused(writer.add(b"abc", SeqNo(1), Kind::Put, b""));
    writer.add(&key("b"), SeqNo(5), Kind::Put, b"").unwrap();
    refused(writer.add(&key("a"), SeqNo(5), Kind::Put, b""));
    refused(writer.add(&key("b"), SeqNo(5), Kind::Put, b""));
    refused(writer.add(&key("b"), SeqNo(6), Kind::Put, b""));
    refused(writer.add(&key("c"), SeqNo(1), Kind::Delete, b"x"));
    refused(writer.add(&key("c"), SeqNo(1 << 56), Kind::Put, b"x"));
    refused(writer.add(&[&IndexId(6).prefix()[..], b"z"].concat(), SeqNo(1), Kind::Put, b"x"));
    refused(writer.add(b"\xff", SeqNo(1), Kind::Put, b"x"));
    refused(writer.begin_index(&[&IndexId(6).prefix()[..], b"z"].concat(), Compression::None));
    refused(writer.add(&key(&"c".repeat(33 << 10)), SeqNo(1), Kind::Put, b"x"));
    writer.add(&key("b"), SeqNo(4), Kind::Delete, b"").unwrap();
    assert_eq!(writer.finish().unwrap().entries, 2);
    assert!(SstWriter::create(&bed.disk, Bed::path(), FileNo(9), SstOptions::default()).is_err(), "the file exists");
    let empty = SstWriter::create(&bed.disk, Path::new("/e"), FileNo(9), SstOptions::default()).unwrap();
    assert!(matches!(empty.finish(), Err(Error::Internal(_))));
}

#[test]
fn misses_read_no_data_and_hits_stay_in_the_cache() {
    let bed = Bed::new();
    let rows: Vec<Row> = (0..20_000).map(|i| (key(&format!("{:06}", i * 2)), 3, Kind::Put, vec![b'v'; 50])).collect();
    bed.write(&rows, SstOptions::default());
    let cache = Cache::new(64 << 20);
    let sst = bed.open(&cache).unwrap();
    let mut past_filter = 0;
    for (i, row) in rows.iter().enumerate() {
        let absent = key(&format!("{:06}", i * 2 + 1));
        past_filter += u32::from(sst.may_contain(&absent).unwrap());
        assert!(sst.get(&absent, SeqNo::MAX).unwrap().is_none());
        assert!(sst.get(&row.0, SeqNo(2)).unwrap().is_none(), "older than the table");
    }
    assert!(past_filter < 500, "{past_filter} of 20000 false positives");
    for row in &rows {
        sst.get(&row.0, SeqNo::MAX).unwrap().unwrap();
    }
    let (misses, blocks) = (cache.misses(), cache.len());
    assert_eq!(misses, blocks as u64, "each block was loaded once");
    for row in &rows {
        sst.get(&row.0, SeqNo::MAX).unwrap().unwrap();
    }
    assert_eq!(cache.misses(), misses);
    // Estimates are exact where blocks are cached.
    for (i, row) in rows.iter().enumerate().step_by(97) {
        assert_eq!(sst.before(&row.0).unwrap().entries, i as u64);
        for length in [0, 1, 7, 60, 400, 5000] {
            let (end, upper) = match rows.get(i + length) {
                Some(row) => (i + length, row.0.as_slice()),
                None => (rows.len(), &[0xff; 64][..]),
            };
            let found = sst.between(&row.0, upper).unwrap();
            assert_eq!((found.entries, found.exact), ((end - i) as u64, true), "{length} from {i}");
        }
        assert_eq!(sst.between(&row.0, b"").unwrap().entries, 0);
    }
    cache.erase_file(FileNo(9));
    assert!(cache.is_empty());
    let mut iter = sst.iter(ReadHints { fill_cache: false, read_ahead: 1 << 20, defer_large: false });
    iter.seek_first().unwrap();
    while iter.valid() {
        iter.next().unwrap();
    }
    assert!(cache.len() <= sst.top.rows(), "a bulk reader leaves no data blocks");
}

/// A filter that is not in memory is read where keys are absent, and not where they are found.
#[test]
fn filters_are_read_where_they_spare_reads() {
    let bed = Bed::new();
    let rows: Vec<Row> = (0..60_000).map(|i| (key(&format!("{:06}", i * 2)), 3, Kind::Put, vec![b'v'; 50])).collect();
    bed.write(&rows, SstOptions::default());
    let absent = |i: usize| key(&format!("{:06}", i * 2 + 1));

    let cache = Cache::new(64 << 20);
    let sst = bed.open(&cache).unwrap();
    let partitions = sst.top.rows();
    assert!(partitions >= 3, "{partitions} partitions");
    for row in &rows {
        sst.get(&row.0, SeqNo::MAX).unwrap().unwrap();
    }
    let has_filter = |partition: usize| {
        let handle = sst.partition(partition as u32).unwrap().1.unwrap();
        cache.peek_with(FileNo(9), handle.offset, |_| ()).is_some()
    };
    assert!(!(0..partitions).any(has_filter), "keys that are there need no filter");
    // Some absent keys among many that are there change nothing for long.
    for i in 0..partitions {
        let at = i * rows.len() / partitions;
        assert!(sst.get(&absent(at), SeqNo::MAX).unwrap().is_none());
        rows[at..at + 100].iter().for_each(|row| drop(sst.get(&row.0, SeqNo::MAX).unwrap().unwrap()));
    }
    let read = (0..partitions).filter(|&partition| has_filter(partition)).count();
    assert!(read < partitions, "all {read} filters were read");

    let cache = Cache::new(64 << 20);
    let sst = bed.open(&cache).unwrap();
    for i in (0..rows.len()).step_by(7) {
        assert!(sst.get(&absent(i), SeqNo::MAX).unwrap().is_none());
    }
    let data = cache.len() - 2 * partitions;
    // One in two hundred passes a filter.
    assert!(data < rows.len() / 7 / 100, "{data} data blocks were read for absent keys");
}

/// Rows of a small SST with several versions of a key and tombstones.
fn small_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for i in 0..40u64 {
        for version in (0..=i % 3).rev() {
            let kind = if (i + version) % 5 == 0 { Kind::Delete } else { Kind::Put };
            let value = if kind == Kind::Put { format!("value {i} {version}").into_bytes() } else { Vec::new() };
            rows.push((key(&format!("key{i:03}")), version * 10, kind, value));
        }
    }
    rows
}

/// Every answer is right or an error of a kind that damage may cause; returns whether anything was noticed.
fn damaged_answers(bed: &Bed, rows: &[Row]) -> bool {
    let fine = |e: &Error| assert!(matches!(e, Error::Corruption { .. }), "{e:?}");
    let cache = Cache::new(1 << 20);
    let sst = match bed.open(&cache) {
        Ok(sst) => sst,
        Err(e) => {
            fine(&e);
            return true;
        }
    };
    let mut noticed = false;
    if let Err(e) = sst.verify() {
        fine(&e);
        assert!(e.to_string().contains(Bed::path().to_str().unwrap()));
        noticed = true;
    }
    for row in rows {
        match sst.get(&row.0, SeqNo(row.1)) {
            Ok(found) => {
                let (seq, kind, value) = found.expect("a version that exists");
                assert_eq!((seq.0, kind, &*value), (row.1, row.2, &row.3[..]));
            }
            Err(e) => {
                fine(&e);
                noticed = true;
            }
        }
    }
    for hints in [HINTS[0], HINTS[2]] {
        let mut iter = sst.iter(hints);
        for forward in [true, false] {
            let mut count = 0;
            let mut step = if forward { iter.seek_first() } else { iter.seek_last() };
            loop {
                if let Err(e) = step {
                    fine(&e);
                    noticed = true;
                    break;
                }
                if !iter.valid() {
                    assert_eq!(count, rows.len());
                    break;
                }
                let at = if forward { count } else { rows.len() - 1 - count };
                assert_eq!(here(&iter).as_ref(), Some(&rows[at]));
                count += 1;
                step = if forward { iter.next() } else { iter.prev() };
            }
        }
    }
    noticed
}

#[test]
fn any_flipped_byte_gives_right_answers_or_corruption() {
    let bed = Bed::new();
    let rows = small_rows();
    let forms = [(Compression::None, 300, None), (Compression::Zstd, 300, None), (Compression::Lz4, 1, None)];
    for (compression, block_bytes, key) in forms.into_iter().chain([(Compression::Zstd, 300, Some(2))]) {
        bed.write(&rows, SstOptions { compression, block_bytes, filter_bits_per_key: 10, key });
        let bytes = bed.bytes();
        assert!(!damaged_answers(&bed, &rows));
        let cache = Cache::new(0);
        let sst = bed.open(&cache).unwrap();
        let used = sst.meta().file_bytes as usize - footer::Footer::bytes(sst.cipher.is_some());
        let padding = bytes[..used].iter().rev().take_while(|&&b| b == 0).count();
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 1 << (at % 8);
            bed.set_bytes(broken);
            let noticed = damaged_answers(&bed, &rows);
            assert!(noticed || (used - padding..used).contains(&at), "byte {at} went unnoticed");
        }
    }
}

#[test]
fn truncated_files_are_refused() {
    let bed = Bed::new();
    let rows: Vec<Row> = (0..3000).map(|i| (key(&format!("{i:06}")), 1, Kind::Put, vec![i as u8; 20])).collect();
    bed.write(&rows, SstOptions { compression: Compression::None, ..SstOptions::default() });
    let bytes = bed.bytes();
    let cache = Cache::new(1 << 20);
    for len in (0..bytes.len()).step_by(512).chain([1, bytes.len() - 1]) {
        bed.set_bytes(bytes[..len].to_vec());
        assert!(matches!(bed.open(&cache), Err(Error::Corruption { .. })), "{len} bytes");
    }
    // Cut while open: reads behind the cut fail, the others work.
    bed.set_bytes(bytes.clone());
    let sst = bed.open(&cache).unwrap();
    bed.set_bytes(bytes[..8192].to_vec());
    assert!(matches!(sst.get(&rows[2999].0, SeqNo::MAX), Err(Error::Corruption { .. })));
    assert!(sst.verify().is_err());
}

#[test]
fn foreign_files_and_versions_are_told_apart() {
    let bed = Bed::new();
    bed.write(&small_rows(), SstOptions::default());
    let cache = Cache::new(1 << 20);
    let other = Sst::open(&bed.disk, Bed::path(), FileNo(10), cache.clone(), &ring());
    assert!(matches!(other, Err(Error::Corruption { .. })));
    let mut bytes = bed.bytes();
    let at = bytes.len() - 64;
    bytes[at + 8] = 10;
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 12]), &bytes[at + 16..]);
    bytes[at + 12..at + 16].copy_from_slice(&sum.to_le_bytes());
    bed.set_bytes(bytes.clone());
    assert!(matches!(bed.open(&cache), Err(Error::Incompatible { .. })));
}

#[test]
fn real_files_work_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.sst");
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
    let rows = small_rows();
    let meta = write(&disk, &path, &rows, SstOptions { block_bytes: 512, ..SstOptions::default() });
    assert_eq!(fs::metadata(&path).unwrap().len(), meta.file_bytes);
    let sst = Sst::open(&disk, &path, FileNo(9), Cache::new(1 << 20), &ring()).unwrap();
    check(&sst, &rows, &probes(&rows, &[]), &[0, 10, SeqNo::MAX.0]);
    let error = Sst::open(&disk, &dir.path().join("none.sst"), FileNo(9), Cache::new(0), &ring()).unwrap_err();
    assert!(matches!(error, Error::Io { op: "open", .. }));
}

/// A share that is not what the data say is found by a check of the file, and one that does not add up when it is opened.
#[test]
fn wrong_shares_are_found() {
    let bed = Bed::new();
    let good = bed.write(&shared_rows(), shared_options());
    let cache = Cache::new(1 << 20);
    let (mut properties, mut shares) = (Vec::new(), Vec::new());
    SstMeta { file_bytes: 0, ..good.clone() }.encode(&mut properties);
    good.encode_shares(&mut shares);
    let bytes = bed.bytes();
    let at = bytes.windows(shares.len()).rposition(|window| window == shares).unwrap();
    let frame_start = at - properties.len();
    let damage = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = bytes.clone();
        change(&mut bytes[at..at + shares.len()]);
        let end = at + shares.len() + 5;
        let mut place = [0; 16];
        place[..8].copy_from_slice(&9u64.to_le_bytes());
        place[8..].copy_from_slice(&(frame_start as u64).to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&place), &bytes[frame_start..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
        bed.set_bytes(bytes);
        bed.open(&cache).and_then(|sst| sst.verify())
    };
    damage(&|_| {}).unwrap();
    // The first index has a version more than it should.
    assert!(matches!(damage(&|shares| shares[2] += 1), Err(Error::Corruption { .. })));
    // The second index has another number: the sums are right.
    assert_eq!(shares[1], 0, "the first distance");
    let second = shares.iter().skip(1).position(|&byte| byte == 3).unwrap() + 1;
    assert!(matches!(damage(&|shares| shares[second] = 2), Err(Error::Corruption { .. })));
}

/// Whoever reads a row of a small index unpacks nothing; an index of some size is packed but for its end.
#[test]
fn small_indexes_are_left_as_they_are() {
    let rows_of = |index: u32, count: u32| {
        (0..count).map(move |i| {
            let key = [&IndexId(index).prefix()[..], &i.to_be_bytes()].concat();
            (key, 1u64, Kind::Put, b"a value like all the others".to_vec())
        })
    };
    let options =
        SstOptions { compression: Compression::Zstd, block_bytes: 16 << 10, filter_bits_per_key: 10, key: None };
    let packed = |rows: Vec<Row>| {
        let bed = Bed::new();
        let meta = bed.write(&rows, options);
        check(&bed.open(&Cache::new(1 << 20)).unwrap(), &rows, &probes(&rows, &[]), &[0, 1, SeqNo::MAX.0]);
        meta.file_bytes < meta.raw_bytes / 2
    };
    // The helper packs every fourth index by zstd.
    let of_each = |rows: u32| (0..20).flat_map(move |i| rows_of(4 * i + 3, rows)).collect();
    assert!(!packed(of_each(3)) && !packed(of_each(100)));
    assert!(packed(of_each(250)) && packed(of_each(2_000)));
}

/// A cursor that defers large rows tells of each row what there is to tell before its value is read, and the value then.
fn check_deferred(sst: &Arc<Sst>, rows: &[Row], hints: ReadHints, deferred: &dyn Fn(&Row) -> bool) {
    let mut iter = sst.iter(hints);
    let at = |iter: &SstIter, row: &Row| {
        assert_eq!((iter.key(), iter.seq().0, iter.kind(), iter.value_len()), (&row.0[..], row.1, row.2, row.3.len()));
        assert_eq!((iter.is_deferred(), iter.deferred().is_some()), (deferred(row), deferred(row)));
    };
    let load = |iter: &mut SstIter, row: &Row| {
        if let Some(place) = iter.deferred() {
            assert!(*place.read().unwrap() == *row.3 && place.value_len() == row.3.len());
        }
        iter.load().unwrap();
        assert!(!iter.is_deferred() && here(iter).as_ref() == Some(row));
        assert_eq!(iter.large_value().is_some(), row.3.len() >= LARGE);
    };
    // Without loading any, loading all, and every other one; a seek to a row that was loaded defers it again.
    for step in [usize::MAX, 1, 2] {
        iter.seek_first().unwrap();
        for (i, row) in rows.iter().enumerate() {
            at(&iter, row);
            if i % step == step - 1 {
                load(&mut iter, row);
            }
            iter.next().unwrap();
        }
        assert!(!iter.valid());
        iter.seek_last().unwrap();
        for (i, row) in rows.iter().enumerate().rev() {
            at(&iter, row);
            if i % step == 0 {
                load(&mut iter, row);
            }
            iter.prev().unwrap();
        }
        assert!(!iter.valid());
    }
    for (i, row) in rows.iter().enumerate() {
        for _ in 0..2 {
            let newest = rows.iter().find(|other| other.0 == row.0).unwrap();
            iter.seek_ge(&row.0).unwrap();
            at(&iter, newest);
            load(&mut iter, newest);
            iter.next_key().unwrap();
            let next = rows[i..].iter().find(|other| other.0 > row.0);
            assert_eq!(iter.valid(), next.is_some());
            next.inspect(|next| at(&iter, next));
            iter.seek_lt(&row.0).unwrap();
            let before = rows[..i].iter().rfind(|other| other.0 < row.0);
            assert_eq!(iter.valid(), before.is_some());
            before.inspect(|before| at(&iter, before));
        }
    }
}

/// An index that says something else of a large row than its block is found by who loads the row, and by a check of the file.
#[test]
fn a_large_row_is_what_the_index_says() {
    let bed = Bed::new();
    let plain = SstOptions { compression: Compression::None, ..SstOptions::default() };
    bed.write(&[(key("a"), 77, Kind::Put, vec![7; LARGE]), (key("b"), 1, Kind::Put, vec![8; 9])], plain);
    let good = bed.bytes();
    let entry = hex_of(&document(), "large row");
    let at = good.windows(entry.len()).rposition(|window| window == entry).unwrap() + 20;
    let handle = bed.open(&Cache::new(1 << 20)).unwrap().partition(0).unwrap().0;
    assert!((handle.offset as usize..handle.end() as usize).contains(&at));
    for (byte, change) in [(0, 1), (7, 1), (8, 1), (10, 1), (0, 0)] {
        let mut bytes = good.clone();
        bytes[at + byte] ^= change;
        let sum_at = handle.end() as usize - 4;
        let sum = frame::checksum_of_place(FileNo(9), handle.offset);
        let sum = crc32c::crc32c_append(sum, &bytes[handle.offset as usize..sum_at]);
        bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
        bed.set_bytes(bytes);
        let sst = bed.open(&Cache::new(1 << 20)).unwrap();
        let mut iter = sst.iter(ReadHints { defer_large: true, ..ReadHints::default() });
        iter.seek_ge(&key("a")).unwrap();
        assert!(iter.is_deferred());
        for found in [iter.deferred().unwrap().read().map(drop), iter.load(), sst.verify()] {
            match found {
                Ok(()) => assert_eq!(change, 0),
                Err(Error::Corruption { path, offset: 0, .. }) => {
                    assert_eq!((path.as_path(), change), (Bed::path(), 1))
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
