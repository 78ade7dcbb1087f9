//! What cursors read from the disk, in reads and bytes: read-ahead, and ranges whose end is known.

use super::*;

/// An SST of 1600 rows, eight to a block, each of which is stored plain: 4 KiB.
pub(super) fn of_small_blocks(bed: &Bed) -> Vec<Row> {
    let rows: Vec<Row> = (0..1600).map(|i| (key(&format!("{i:06}")), 3, Kind::Put, vec![b'v'; 500])).collect();
    let options = SstOptions { compression: Compression::None, block_bytes: 4200, ..SstOptions::default() };
    bed.write(&rows, options);
    rows
}

/// A range of some rows more than a block has would cost a read for each block, one within a block a long one.
#[test]
fn what_a_range_reads_grows_with_what_it_walks_over() {
    let bed = Bed::new();
    let rows = of_small_blocks(&bed);
    for (walked, most_reads, most_bytes) in [(1, 1, 8 << 10), (9, 2, 28 << 10), (30, 2, 28 << 10), (800, 6, 600 << 10)]
    {
        for forward in [true, false] {
            let cache = Cache::new(64 << 20);
            let sst = bed.open(&cache).unwrap();
            (0..sst.top.rows() as u32).for_each(|partition| drop(sst.index(partition).unwrap()));
            let mut iter = sst.iter(ReadHints::default());
            let before = bed.memory.counters();
            iter.seek_ge(&rows[if forward { 404 } else { 1204 }].0).unwrap();
            for _ in 0..walked {
                if forward { iter.next().unwrap() } else { iter.prev().unwrap() }
            }
            let after = bed.memory.counters();
            let (reads, bytes) = (after.reads - before.reads, after.bytes_read - before.bytes_read);
            assert!(
                reads <= most_reads && bytes <= most_bytes,
                "{walked} rows, forward {forward}: {reads} reads of {bytes} bytes"
            );
        }
    }
}

/// A block lies anywhere in the file: read in pages, one of 4 KiB took two of them, where its sectors are hardly more than itself.
#[test]
fn a_block_is_read_with_the_sectors_that_it_lies_in_and_no_others() {
    let bed = Bed::new();
    let rows = of_small_blocks(&bed);
    let sst = bed.open(&Cache::new(64 << 20)).unwrap();
    (0..sst.top.rows() as u32).for_each(|partition| drop(sst.index(partition).unwrap()));
    for row in rows.iter().step_by(40) {
        let mut iter = sst.iter(ReadHints::default());
        let before = bed.memory.counters();
        iter.seek_ge(&row.0).unwrap();
        let after = bed.memory.counters();
        let (reads, bytes) = (after.reads - before.reads, after.bytes_read - before.bytes_read);
        assert!(reads == 1 && bytes < 8 * 530 + (2 << 9), "{reads} reads of {bytes} bytes");
    }
}

/// The file, opened, with its index in the cache, and a cursor whose user wants no keys from row `to` on.
fn ending(bed: &Bed, rows: &[Row], to: usize) -> SstIter {
    let sst = bed.open(&Cache::new(64 << 20)).unwrap();
    (0..sst.top.rows() as u32).for_each(|partition| drop(sst.index(partition).unwrap()));
    until(&sst, rows, to)
}

pub(super) fn until(sst: &Arc<Sst>, rows: &[Row], to: usize) -> SstIter {
    let mut memory = IterMemory::default();
    memory.end_at(&rows.get(to).map_or(key("~"), |row| row.0.clone()));
    sst.iter_in(memory, ReadHints::default())
}

/// Read-ahead went on behind the end of a range: a hundred rows that lie in a few blocks cost twice their bytes. And it began with
/// the second block: a range of a few rows cost two reads.
#[test]
fn read_ahead_ends_where_the_range_does() {
    let bed = Bed::new();
    let rows = of_small_blocks(&bed);
    for (from, to, most_reads) in
        [(0, 8, 1), (5, 20, 1), (404, 500, 3), (404, 1000, 6), (800, 1599, 8), (1500, 1600, 4)]
    {
        let mut iter = ending(&bed, &rows, to);
        let before = bed.memory.counters();
        iter.seek_ge(&rows[from].0).unwrap();
        (from..to - 1).for_each(|_| iter.next().unwrap());
        assert_eq!(here(&iter).as_ref(), Some(&rows[to - 1]));
        let after = bed.memory.counters();
        let (reads, read) = (after.reads - before.reads, after.bytes_read - before.bytes_read);
        // The blocks at the two ends, and that each read begins and ends with a sector.
        let most = (to - from) as u64 * 530 + 2 * 8 * 530 + reads * (2 << 9);
        assert!(
            reads <= most_reads && read <= most,
            "{reads} reads of {read} bytes for rows {from} to {to}, at most {most_reads} of {most}"
        );
        // It does not end the cursor.
        let rest = std::iter::from_fn(|| iter.next().ok().filter(|()| iter.valid())).count();
        assert_eq!(rest, rows.len() - to, "rows behind {to}");
    }
}

/// Who estimates a range looks at both its ends, and then it is read: three reads where one brings all of it.
#[test]
fn a_range_whose_ends_were_looked_at_is_not_read_again() {
    let bed = Bed::new();
    let rows = of_small_blocks(&bed);
    let mut iter = ending(&bed, &rows, 126);
    let before = bed.memory.counters();
    iter.seek_ge(&rows[106].0).unwrap();
    iter.seek_lt(&rows[126].0).unwrap();
    assert_eq!(here(&iter).as_ref(), Some(&rows[125]));
    let mut again = until(iter.sst(), &rows, 126);
    again.seek_ge(&rows[106].0).unwrap();
    for row in &rows[106..126] {
        assert_eq!(here(&again).as_ref(), Some(row));
        again.next().unwrap();
    }
    assert_eq!(bed.memory.counters().reads - before.reads, 1);
    // What lies in the cache is not read along: there is nothing between it and the first block.
    let mut wider = until(iter.sst(), &rows, 122);
    wider.seek_ge(&rows[98].0).unwrap();
    let after = bed.memory.counters();
    assert_eq!((after.reads - before.reads, here(&wider).as_ref()), (2, Some(&rows[98])));
    assert!(after.bytes_read - before.bytes_read <= (98..126).len() as u64 * 530 + (4 << 12));
}

/// A block that came into the cache unread, beside another, may be damaged: that is found when it is asked for, and once the disk
/// gives it right, so does the cursor.
#[test]
fn damage_that_was_read_along_is_found_and_not_kept() {
    let bed = Bed::new();
    let rows = of_small_blocks(&bed);
    let right = bed.bytes();
    let mut iter = ending(&bed, &rows, 24);
    let mut wrong = right.clone();
    wrong[6000] ^= 1;
    bed.set_bytes(wrong);
    iter.seek_ge(&rows[0].0).unwrap();
    let walk = |iter: &mut SstIter| (0..20).try_for_each(|_| iter.next());
    let found = walk(&mut iter).unwrap_err();
    assert!(matches!(&found, Error::Corruption { path, .. } if path == Bed::path()), "{found}");
    bed.set_bytes(right);
    iter.seek_ge(&rows[0].0).unwrap();
    walk(&mut iter).unwrap();
    assert_eq!(here(&iter).as_ref(), Some(&rows[20]));
}
