//! Files whose later blocks are packed by a dictionary: they answer like all others, also without one of its two copies.

use super::*;
use crate::crypt::Keyring;
use crate::sst::reader::PARTITION_BLOCKS;

const WORDS: [&str; 12] = [
    "warehouse",
    "district",
    "customer",
    "order",
    "delivery",
    "payment",
    "history",
    "stock",
    "carrier",
    "balance",
    "discount",
    "quantity",
];

/// Rows of words, in blocks of half a KiB; so many that there are four partitions.
pub(super) fn texts() -> Vec<Row> {
    let mut x = 5u64;
    let mut random = |below: usize| {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 33) as usize % below
    };
    let mut text = |count: usize| (0..count).map(|_| WORDS[random(12)]).collect::<Vec<_>>().join(" ").into_bytes();
    (0..1700u64).map(|i| (key(&format!("{:06}", 3 * i)), 1 + i % 4, Kind::Put, text(4 + i as usize % 9))).collect()
}

pub(super) fn text_options(key: Option<u32>) -> SstOptions {
    SstOptions { compression: Compression::Zstd, block_bytes: 512, filter_bits_per_key: 10, key }
}

/// The kinds of the data blocks, as their frames say.
pub(super) fn kinds(sst: &Arc<Sst>, bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    for partition in 0..sst.top.rows() as u32 {
        let index = sst.index(partition).unwrap();
        for entry in 0..index.rows() as u32 {
            let (handle, _) = sst.entry(&index, entry).unwrap();
            kinds.push(bytes[handle.end() as usize - frame::TRAILER_BYTES]);
        }
    }
    kinds
}

/// A file's first two partitions are its sample; it is smaller by what the others have in common with them.
#[test]
fn long_files_of_like_rows_have_a_dictionary() {
    let (bed, rows) = (Bed::new(), texts());
    for key in [None, Some(2)] {
        let meta = bed.write(&rows, text_options(key));
        for cache_bytes in [0, 40_000, 8 << 20] {
            let sst = bed.open(&Cache::new(cache_bytes)).unwrap();
            check(&sst, &rows, &probes(&rows, &[]), &[0, 2, SeqNo::MAX.0]);
        }
        let sst = bed.open(&Cache::new(0)).unwrap();
        let kinds = kinds(&sst, &bed.bytes());
        // The last one is short, and not packed at all.
        let (sample, others) = kinds[..kinds.len() - 1].split_at(2 * PARTITION_BLOCKS);
        assert!(sample.iter().all(|&kind| kind < 5) && others.len() > PARTITION_BLOCKS);
        assert!(others.iter().all(|&kind| kind >= 5), "{others:?}");
        // The footer's version tells programs that do not know of it.
        assert_eq!(bed.bytes()[bed.bytes().len() - 56], if key.is_some() { 8 } else { 6 });
        let bytes_of = |partitions: std::ops::Range<u32>| {
            let first = |partition| sst.entry(&sst.index(partition).unwrap(), 0).unwrap().0.offset;
            first(partitions.end) - first(partitions.start)
        };
        assert!(bytes_of(2..3) * 10 < bytes_of(1..2) * 9, "{} {}", bytes_of(2..3), bytes_of(1..2));
        assert_eq!(meta.file_bytes, bed.bytes().len() as u64);
    }
}

/// Neither short files, nor rows that have nothing in common.
#[test]
fn other_files_have_none() {
    let (bed, rows) = (Bed::new(), texts());
    let version = |rows: &[Row], options| {
        bed.write(rows, options);
        bed.bytes()[bed.bytes().len() - 56]
    };
    assert_eq!(version(&rows[..300], text_options(None)), 2);
    let mut x = 9u64;
    let mut noise = |len: usize| -> Vec<u8> {
        let mut byte = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            b'0' + (x >> 40) as u8 % 10
        };
        (0..len).map(|_| byte()).collect()
    };
    let digits: Vec<Row> = rows.iter().map(|row| (row.0.clone(), row.1, Kind::Put, noise(row.3.len()))).collect();
    // Blocks that are no shorter than users' ones: of half a KiB even the codes count.
    let large = SstOptions { block_bytes: 4 << 10, ..text_options(None) };
    let many: Vec<Row> = (0..8)
        .flat_map(|i| digits.iter().map(move |row| (i, row)))
        .map(|(i, row)| ([&row.0[..4], &[b'a' + i], &row.0[4..]].concat(), row.1, Kind::Put, row.3.clone()))
        .collect();
    assert_eq!(version(&many, large), 2);
    assert_eq!(version(&rows, SstOptions { compression: Compression::Lz4, ..text_options(None) }), 2);
}

/// The file with each byte of a part changed in turn, by steps.
fn flipped(bytes: &[u8], part: std::ops::Range<usize>, step: usize) -> impl Iterator<Item = Vec<u8>> + '_ {
    part.step_by(step).map(|at| {
        let mut broken = bytes.to_vec();
        broken[at] ^= 1 << (at % 8);
        broken
    })
}

#[test]
fn one_damaged_copy_costs_nothing_and_both_are_noticed() {
    let (bed, rows) = (Bed::new(), texts());
    for key in [None, Some(2)] {
        bed.write(&rows, text_options(key));
        let bytes = bed.bytes();
        let [first, second] = bed.open(&Cache::new(0)).unwrap().dictionary.unwrap().copies();
        let place = |handle: frame::Handle| handle.offset as usize..handle.end() as usize;
        for copy in [first, second] {
            for broken in flipped(&bytes, place(copy), 97) {
                bed.set_bytes(broken);
                let sst = bed.open(&Cache::new(1 << 20)).unwrap();
                assert!(matches!(sst.verify(), Err(Error::Corruption { .. })));
                for row in rows.iter().step_by(50) {
                    let (_, _, value) = sst.get(&row.0, SeqNo::MAX).unwrap().unwrap();
                    assert_eq!(&*value, &row.3[..]);
                }
            }
        }
        let mut broken = bytes.clone();
        broken[place(first).start + 7] ^= 1;
        broken[place(second).start + 9] ^= 1;
        bed.set_bytes(broken);
        assert!(damaged_answers(&bed, &rows));
        let sst = bed.open(&Cache::new(1 << 20)).unwrap();
        assert!(sst.get(&rows[0].0, SeqNo::MAX).unwrap().is_some());
        match sst.get(&rows[1600].0, SeqNo::MAX) {
            Err(Error::Corruption { offset, .. }) => assert_eq!(offset, first.offset),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
}

/// What a survey finds: how many rows, and what it says of the damage. Every row that it finds is right.
fn surveyed(bed: &Bed, rows: &[Row]) -> (usize, Vec<String>) {
    let survey = Survey::of(&bed.disk, Bed::path(), FileNo(9), None, &ring(), true).unwrap();
    let told = survey.damage.iter().map(|part| part.what.clone()).collect();
    let mut cursor = Arc::new(survey).cursor(None, None);
    let mut found = 0;
    while cursor.valid() {
        let at = rows.binary_search_by(|row| row.0.as_slice().cmp(cursor.key())).unwrap();
        assert_eq!((cursor.seq().0, cursor.value()), (rows[at].1, rows[at].3.as_slice()));
        found += 1;
        cursor.next();
    }
    (found, told)
}

/// A file is taken apart with whichever copy is left.
#[test]
fn a_survey_unpacks_by_what_is_left_of_the_dictionary() {
    let (bed, rows) = (Bed::new(), texts());
    for key in [None, Some(2)] {
        bed.write(&rows, text_options(key));
        let bytes = bed.bytes();
        assert_eq!(surveyed(&bed, &rows), (rows.len(), Vec::new()));
        let sst = bed.open(&Cache::new(0)).unwrap();
        let [first, _] = sst.dictionary.unwrap().copies();
        let break_at = |places: &[u64]| {
            let mut broken = bytes.clone();
            places.iter().for_each(|&at| broken[at as usize] ^= 4);
            bed.set_bytes(broken);
        };
        break_at(&[first.offset + 20]);
        assert_eq!(surveyed(&bed, &rows), (rows.len(), vec!["dictionary: the first copy is damaged".to_owned()]));
        break_at(&[first.end() + 20]);
        assert_eq!(surveyed(&bed, &rows), (rows.len(), vec!["dictionary: the second copy is damaged".to_owned()]));
        // Rows before the first block that needs it, and those of the last one, which is not packed.
        let before = |partition, entry| sst.entry(&sst.index(partition).unwrap(), entry).unwrap().1 as usize;
        let last = sst.top.rows() as u32 - 1;
        let last_block = before(last, sst.index(last).unwrap().rows() as u32 - 1);
        let in_sample = before(2, 0) + rows.len() - last_block;
        break_at(&[first.offset + 20, first.end() + 20]);
        assert_eq!(surveyed(&bed, &rows), (in_sample, vec!["dictionary: both copies are damaged".to_owned()]));
        // Without the index all blocks are found, and unpacked, all the same.
        let top = sst.partition(0).unwrap().0;
        break_at(&[top.offset + 3, first.offset + 20]);
        assert_eq!(surveyed(&bed, &rows).0, rows.len());
        if key.is_none() {
            // Without the footer, too.
            break_at(&[bytes.len() as u64 - 30]);
            assert_eq!(surveyed(&bed, &rows).0, rows.len());
        }
    }
}

/// The next file of the index is packed by the same one from its first block on, which is in memory once; a file whose rows are
/// others gets one of its own.
#[test]
fn the_next_file_takes_the_dictionary_up() {
    let (bed, rows) = (Bed::new(), texts());
    let dictionaries = Arc::<Dictionaries>::default();
    let write = |no: u64, rows: &[Row]| {
        let path = PathBuf::from(format!("/store/{no:06}.sst"));
        let writer = SstWriter::create(&bed.disk, &path, FileNo(no), text_options(None)).unwrap();
        let mut writer = writer.share(dictionaries.clone());
        rows.iter().for_each(|(key, seq, kind, value)| writer.add(key, SeqNo(*seq), *kind, value).unwrap());
        assert!(writer.has_dictionary());
        writer.finish().unwrap();
        let cache = Cache::new(8 << 20);
        let sst = Sst::open(&bed.disk, &path, FileNo(no), cache.clone(), &ring()).unwrap();
        check(&sst, rows, &probes(rows, &[]), &[SeqNo::MAX.0]);
        let place = sst.dictionary.unwrap().copies()[0];
        let bytes = bed.memory.content(&path).unwrap();
        (kinds(&sst, &bytes), bytes[place.offset as usize..place.end() as usize - frame::TRAILER_BYTES].to_vec())
    };
    let (first, trained) = write(10, &rows);
    let (second, taken_up) = write(11, &rows[..400]);
    assert!(first[0] < 5 && second[..second.len() - 1].iter().all(|&kind| kind >= 5), "{second:?}");
    assert!(trained == taken_up);
    let numbers: Vec<Row> = rows
        .iter()
        .enumerate()
        .map(|(i, row)| {
            (row.0.clone(), row.1, Kind::Put, format!("{{\"a\": {}, \"b\": {}}}", i * 37 % 1009, i * 3).into_bytes())
        })
        .collect();
    let many: Vec<Row> = (b'a'..b'e')
        .flat_map(|prefix| numbers.iter().map(move |row| (prefix, row)))
        .map(|(prefix, row)| ([&row.0[..4], &[prefix], &row.0[4..]].concat(), row.1, Kind::Put, row.3.clone()))
        .collect();
    let (third, other) = write(12, &many);
    assert!(third[0] < 5 && other != trained, "{third:?}");
}

/// A dictionary has pieces of rows in it: that of an encrypted file stays among such.
#[test]
fn a_dictionary_of_encrypted_files_is_for_encrypted_files() {
    let (bed, rows) = (Bed::new(), texts());
    let dictionaries = Arc::<Dictionaries>::default();
    let has_one = |no: u64, key: Option<u32>, rows: &[Row]| {
        let path = PathBuf::from(format!("/store/{no:06}.sst"));
        let mut writer = SstWriter::create(&bed.disk, &path, FileNo(no), text_options(key)).unwrap();
        if let Some(id) = key {
            writer = writer.encrypt(ring().begin(id, Purpose::Sst, &path).unwrap());
        }
        let mut writer = writer.share(dictionaries.clone());
        rows.iter().for_each(|(key, seq, kind, value)| writer.add(key, SeqNo(*seq), *kind, value).unwrap());
        writer.finish().unwrap();
        Sst::open(&bed.disk, &path, FileNo(no), Cache::new(0), &ring()).unwrap().dictionary.is_some()
    };
    assert!(has_one(10, Some(2), &rows));
    assert!(has_one(11, Some(2), &rows[..400]));
    assert!(!has_one(12, None, &rows[..400]));
}

/// Whoever wants to read an encrypted one needs its key.
#[test]
fn the_dictionary_of_an_encrypted_file_is_sealed() {
    let (bed, rows) = (Bed::new(), texts());
    bed.write(&rows, text_options(Some(2)));
    let bytes = bed.bytes();
    let sst = bed.open(&Cache::new(0)).unwrap();
    let [place, _] = sst.dictionary.unwrap().copies();
    let stored = &bytes[place.offset as usize..place.end() as usize];
    assert!(!WORDS.iter().any(|word| stored.windows(word.len()).any(|part| part == word.as_bytes())));
    assert!(Sst::open(&bed.disk, Bed::path(), FileNo(9), Cache::new(0), &Keyring::default()).is_err());
}
