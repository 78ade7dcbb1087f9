//! Blocks that a thread holds for its next scan: what it takes, and that nobody else gets them.

use super::ahead::{of_small_blocks, until};
use super::*;
use crate::sst::{hold_for_scan, let_go};

/// The file, with a cache that is full of its blocks as they are on disk.
fn packed(bed: &Bed, rows: &[Row]) -> (Arc<BlockCache>, Arc<Sst>) {
    let cache = Cache::new(256 << 10);
    let sst = bed.open(&cache).unwrap();
    for row in rows.iter().chain(rows) {
        sst.get(&row.0, SeqNo::MAX).unwrap().unwrap();
    }
    assert!(!cache.has_room());
    (cache, sst)
}

/// Looks at both ends of a range of rows, as an estimate does.
fn look_at_ends(sst: &Arc<Sst>, rows: &[Row], from: usize, to: usize) {
    let mut iter = until(sst, rows, to);
    iter.seek_ge(&rows[from].0).unwrap();
    iter.seek_lt(&rows[to].0).unwrap();
}

fn is_known(sst: &Arc<Sst>, rows: &[Row], from: usize, to: usize) -> bool {
    let found = sst.between(&rows[from].0, &rows[to].0).unwrap();
    assert!(!found.exact || found.entries == (to - from) as u64, "{found:?}");
    found.exact
}

/// The estimate knew no more than before, and the scan unpacked the same blocks again.
#[test]
fn what_an_estimate_unpacks_the_scan_takes() {
    let bed = Bed::new();
    let rows = of_small_blocks(&bed);
    let (cache, sst) = packed(&bed, &rows);
    // Blocks 13 to 15.
    let (from, to) = (106, 126);
    let unpacked_by_scan = || {
        let before = cache.second_hits();
        let mut scan = until(&sst, &rows, to);
        scan.seek_ge(&rows[from].0).unwrap();
        for row in &rows[from..to] {
            assert_eq!(here(&scan).as_ref(), Some(row));
            scan.next().unwrap();
        }
        cache.second_hits() - before
    };
    look_at_ends(&sst, &rows, from, to);
    assert!(!is_known(&sst, &rows, from, to), "nobody holds anything");
    hold_for_scan(|| {
        look_at_ends(&sst, &rows, from, to);
        let unpacked = cache.second_hits();
        look_at_ends(&sst, &rows, from, to);
        assert!(is_known(&sst, &rows, from, to));
        assert_eq!(cache.second_hits(), unpacked, "what it holds is there for all of the estimate");
    });
    assert!(is_known(&sst, &rows, from, to));
    assert_eq!(unpacked_by_scan(), 1, "the block in the middle");
    assert!(!is_known(&sst, &rows, from, to), "they were taken");
    hold_for_scan(|| look_at_ends(&sst, &rows, from, to));
    let_go();
    assert!(!is_known(&sst, &rows, from, to), "they were let go");
}

/// Not by another thread, and not of another file, be it with the same number and at the same place: the next store's.
#[test]
fn nobody_else_gets_what_a_thread_holds() {
    let bed = Bed::new();
    let rows = of_small_blocks(&bed);
    let (cache, sst) = packed(&bed, &rows);
    hold_for_scan(|| look_at_ends(&sst, &rows, 106, 126));
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!is_known(&sst, &rows, 106, 126)));
    });
    assert!(is_known(&sst, &rows, 106, 126));
    drop((cache, sst));
    let others: Vec<Row> = rows.iter().map(|(key, seq, kind, _)| (key.clone(), *seq, *kind, vec![b'o'; 500])).collect();
    bed.write(&others, SstOptions { compression: Compression::None, block_bytes: 4200, ..SstOptions::default() });
    for _ in 0..20 {
        let (_, sst) = packed(&bed, &others);
        let mut iter = until(&sst, &others, 126);
        iter.seek_ge(&others[106].0).unwrap();
        assert_eq!(here(&iter).as_ref(), Some(&others[106]));
    }
    let_go();
}

/// However many an estimate comes to.
#[test]
fn a_thread_holds_few() {
    let bed = Bed::new();
    let rows = of_small_blocks(&bed);
    let (cache, sst) = packed(&bed, &rows);
    hold_for_scan(|| {
        for from in (0..1600).step_by(64) {
            look_at_ends(&sst, &rows, from, from + 10);
        }
    });
    let known = || (0..1600).step_by(64).filter(|&from| is_known(&sst, &rows, from, from + 10)).count();
    let with = known();
    let_go();
    // Of a range two blocks; and some are in the cache unpacked, having been asked for so often.
    let held = with - known();
    assert!((1..=4).contains(&held), "{held}");
    drop(cache);
}
