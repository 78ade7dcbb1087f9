//! Bytes that must not change: the stored files of each version of the format, and the examples of docs/develop/format/sst.md.

use super::*;

fn fixtures(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/v{version}/sst"))
}

fn fixture_options() -> [(&'static str, SstOptions); 3] {
    let of = |compression, block_bytes| SstOptions { compression, block_bytes, filter_bits_per_key: 10, key: None };
    [
        ("plain.sst", of(Compression::None, 512)),
        // A row per block, hence two partitions.
        ("lz4.sst", of(Compression::Lz4, 1)),
        ("zstd.sst", of(Compression::Zstd, 512)),
    ]
}

/// Files written by any release of the format must stay readable for ever.
#[test]
fn stored_files_are_still_read() {
    for version in [1, 2] {
        for (name, _) in fixture_options() {
            let cache = Cache::new(1 << 20);
            let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
            let sst = Sst::open(&disk, &fixtures(version).join(name), FileNo(9), cache.clone(), &ring()).unwrap();
            let rows = small_rows();
            assert_eq!(sst.top.rows(), if name == "lz4.sst" { 2 } else { 1 });
            check(&sst, &rows, &probes(&rows, &[]), &[0, 10, 15, SeqNo::MAX.0]);
        }
    }
}

/// The later blocks of this one are packed by a dictionary (kinds 5 and 6).
#[test]
fn a_stored_file_with_a_dictionary_is_still_read() {
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
    let (rows, path) = (dictionary::texts(), fixtures(6).join("dictionary.sst"));
    let sst = Sst::open(&disk, &path, FileNo(9), Cache::new(1 << 20), &ring()).unwrap();
    let kinds = dictionary::kinds(&sst, &fs::read(&path).unwrap());
    assert!(kinds.iter().filter(|&&kind| kind >= 5).count() > 64);
    check(&sst, &rows, &probes(&rows, &[]), &[0, 2, SeqNo::MAX.0]);
}

/// Writes the stored file with a dictionary; see `store_files`.
#[test]
#[ignore = "writes a stored file"]
fn store_dictionary() {
    fs::create_dir_all(fixtures(6)).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
    write(&disk, &fixtures(6).join("dictionary.sst"), &dictionary::texts(), dictionary::text_options(None));
}

/// Rows of numbers, which are compressed with shuffled rows.
fn number_rows() -> Vec<Row> {
    let number = |i: u64| (i * 7919 % 300).to_le_bytes();
    let value = |i: u64| (0..3).flat_map(|column| number(3 * i + column)).collect();
    (0..300).map(|i| (key(&format!("{i:04}")), 1 + i % 3, Kind::Put, value(i))).collect()
}

/// The other stored files have no block with shuffled rows (kind 4).
#[test]
fn stored_shuffled_rows_are_still_read() {
    let (rows, path) = (number_rows(), fixtures(2).join("shuffled-rows.sst"));
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
    let sst = Sst::open(&disk, &path, FileNo(9), Cache::new(1 << 20), &ring()).unwrap();
    let (block, _) = sst.entry(&sst.index(0).unwrap(), 0).unwrap();
    assert_eq!(fs::read(&path).unwrap()[block.end() as usize - frame::TRAILER_BYTES], 4);
    check(&sst, &rows, &probes(&rows, &[]), &[0, 1, 2, SeqNo::MAX.0]);
}

/// Rows of three indexes; those of the last share a block with those before.
pub(super) fn shared_rows() -> Vec<Row> {
    let of = |index: u32, from: usize, count: usize| {
        let row = move |(at, (key, seq, kind, value)): (usize, Row)| {
            let key = [&IndexId(index).prefix()[..], &key[4..]].concat();
            (key, seq + at as u64 % 2, kind, value)
        };
        let mut rows: Vec<Row> = small_rows().into_iter().enumerate().skip(from).take(count).map(row).collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        rows.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
        rows
    };
    [of(4, 0, 60), of(7, 0, 200), of(300, 5, 3)].concat()
}

pub(super) fn shared_options() -> SstOptions {
    SstOptions { compression: Compression::None, block_bytes: 512, filter_bits_per_key: 10, key: None }
}

/// Files of several indexes say what they have of each.
#[test]
fn stored_shared_files_are_still_read() {
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
    let rows = shared_rows();
    let sst = Sst::open(&disk, &fixtures(3).join("shared.sst"), FileNo(9), Cache::new(1 << 20), &ring()).unwrap();
    check(&sst, &rows, &probes(&rows, &[]), &[0, 10, 15, SeqNo::MAX.0]);
    let meta = sst.meta();
    assert_eq!(meta.indexes().map(|index| index.0).collect::<Vec<_>>(), [4, 7, 300]);
    for index in meta.indexes() {
        let of_index: Vec<&Row> = rows.iter().filter(|row| IndexId::of(&row.0) == index).collect();
        let part = meta.part_of(index).unwrap();
        assert_eq!(part.entries, of_index.len() as u64);
        assert_eq!(part.tombstones, of_index.iter().filter(|row| row.2 == Kind::Delete).count() as u64);
        assert_eq!(part.raw_bytes, of_index.iter().map(|row| row.0.len() + row.3.len()).sum::<usize>() as u64);
    }
    // A file of a single index is of the version before, which older programs read.
    let bed = Bed::new();
    bed.write(&small_rows(), shared_options());
    let version = |bytes: &[u8]| bytes[bytes.len() - 56];
    assert_eq!((version(&bed.bytes()), version(&fs::read(fixtures(3).join("shared.sst")).unwrap())), (2, 3));
}

/// Plain files are written byte for byte as ever (compressors may change their output, the format may not).
#[test]
fn the_plain_file_is_written_as_stored() {
    let bed = Bed::new();
    let (name, options) = fixture_options()[0];
    bed.write(&small_rows(), options);
    assert!(bed.bytes() == fs::read(fixtures(2).join(name)).unwrap());
    let plain: Vec<Row> = shared_rows().into_iter().filter(|row| IndexId::of(&row.0).0 != 7).collect();
    bed.write(&plain, shared_options());
    assert!(bed.bytes() == fs::read(fixtures(3).join("shared-plain.sst")).unwrap());
}

/// Writes the fixtures of the newest version; to be run by hand when one is introduced, never for an old one.
#[test]
#[ignore = "writes the stored files"]
fn store_files() {
    fs::create_dir_all(fixtures(3)).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
    write(&disk, &fixtures(3).join("shared.sst"), &shared_rows(), shared_options());
    let plain: Vec<Row> = shared_rows().into_iter().filter(|row| IndexId::of(&row.0).0 != 7).collect();
    write(&disk, &fixtures(3).join("shared-plain.sst"), &plain, shared_options());
}

/// Large rows between small ones, also two versions of one key; all of them regular, so that the file is short.
fn large_rows() -> Vec<Row> {
    let large = |byte: u8, more: usize| vec![byte; LARGE + more];
    vec![
        (key("a"), 3, Kind::Put, b"small".to_vec()),
        (key("apple"), 9, Kind::Put, large(1, 0)),
        (key("apple"), 4, Kind::Put, large(2, 1000)),
        (key("apple"), 2, Kind::Delete, Vec::new()),
        (key("banana split"), 8, Kind::Delete, Vec::new()),
        (key("banana split"), 5, Kind::Put, large(3, 77)),
        (key("cherry"), 6, Kind::Put, b"small too".to_vec()),
        (key("date"), 7, Kind::Put, large(4, 5)),
    ]
}

/// Writes a stored file with large rows; see `store_files`.
#[test]
#[ignore = "writes a stored file"]
fn store_large_rows() {
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
    write(&disk, &fixtures(2).join("large-in-index.sst"), &large_rows(), SstOptions::default());
}

/// The index of files that earlier programs wrote does not have large rows: they are read as a cursor comes to them.
#[test]
fn stored_large_rows_are_still_read() {
    for (name, in_index) in [("large.sst", false), ("large-in-index.sst", true)] {
        let (rows, path) = (large_rows(), fixtures(2).join(name));
        let disk: Arc<dyn Disk> = Arc::new(PosixDisk::default());
        let sst = Sst::open(&disk, &path, FileNo(9), Cache::new(1 << 20), &ring()).unwrap();
        check(&sst, &rows, &probes(&rows, &[]), &[0, 2, 4, 5, 8, SeqNo::MAX.0]);
        let is_large = |row: &Row| row.3.len() >= LARGE;
        let lengths = |entry| sst.index(0).unwrap().value(entry).len();
        let entries = (0..sst.index(0).unwrap().rows() as u32).filter(|&entry| lengths(entry) == 32).count();
        assert_eq!(entries, if in_index { rows.iter().filter(|row| is_large(row)).count() } else { 0 });
        for hints in HINTS {
            let hints = ReadHints { defer_large: true, ..hints };
            let deferred = |row: &Row| in_index && is_large(row);
            check_deferred(&sst, &rows, hints, &deferred);
        }
    }
}

pub(super) fn document() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/develop/format/sst.md")).unwrap()
}

/// The hex of a fenced block that starts with ```` ```hex NAME ````; text behind `#` is commentary.
pub(super) fn hex_of(document: &str, name: &str) -> Vec<u8> {
    let start = document.find(&format!("```hex {name}\n")).expect("the example");
    let digits: String = document[start..]
        .lines()
        .skip(1)
        .take_while(|line| !line.starts_with("```"))
        .flat_map(|line| line.split('#').next().unwrap_or("").chars())
        .filter(|c| !c.is_whitespace())
        .collect();
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_documented_example_is_what_the_code_writes() {
    let rows: [Row; 4] = [
        (key("fig"), 9, Kind::Put, b"green".to_vec()),
        (key("fig"), 7, Kind::Delete, Vec::new()),
        (key("figure of eight"), 7, Kind::Put, b"knot".to_vec()),
        (key("finch"), 8, Kind::Put, b"bird".to_vec()),
    ];
    let mut builder = BlockBuilder::default();
    for (key, seq, kind, value) in &rows {
        builder.add(key, SeqNo(*seq), *kind, value);
    }
    let mut bytes = Vec::new();
    builder.finish(&mut bytes);
    assert_eq!(to_hex(&bytes), to_hex(&hex_of(&document(), "block")));
    let mut shuffled = Vec::new();
    block::shuffle(&bytes, block::Shuffle::Columns, &mut shuffled).unwrap();
    assert_eq!(to_hex(&shuffled), to_hex(&hex_of(&document(), "shuffled columns")));
    for (name, value) in [("fig", "ab12"), ("fog", "cd34"), ("fug", "ef567")] {
        builder.add(&key(name), SeqNo::ZERO, Kind::Put, value.as_bytes());
    }
    let mut rows = Vec::new();
    builder.finish(&mut rows);
    block::shuffle(&rows, block::Shuffle::Rows, &mut shuffled).unwrap();
    assert_eq!(to_hex(&shuffled), to_hex(&hex_of(&document(), "shuffled rows")));
    let mut packer = frame::Packer::new(Compression::None).unwrap();
    let framed = packer.pack(&bytes, FileNo(9), 0, true).unwrap();
    assert_eq!(to_hex(&framed[bytes.len()..]), to_hex(&hex_of(&document(), "trailer")));
    let footer = footer::Footer {
        no: FileNo(9),
        file_bytes: 8192,
        data_end: 4000,
        top: frame::Handle { offset: 4400, len: 100 },
        properties: frame::Handle { offset: 4500, len: 60 },
        shared: false,
        by_dictionary: false,
        key: None,
    };
    assert_eq!(to_hex(&footer.encode()), to_hex(&hex_of(&document(), "footer")));
    let mut filter = Vec::new();
    Filter::build(&[key_hash(&key("fig")), key_hash(&key("finch"))], 10, &mut filter);
    assert_eq!(to_hex(&filter), to_hex(&hex_of(&document(), "filter")));
}
