use proptest::prelude::*;

use super::*;
use crate::base::{Kind, SeqNo};

type Row = (Vec<u8>, u64, bool, Vec<u8>);

fn build(rows: &[Row]) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    for (key, seq, delete, value) in rows {
        let kind = if *delete { Kind::Delete } else { Kind::Put };
        builder.add(key, SeqNo(*seq), kind, value);
    }
    let mut out = Vec::new();
    builder.finish(&mut out);
    assert!(builder.is_empty());
    out
}

fn row_of(block: &Block, row: u32) -> Row {
    let mut key = Vec::new();
    block.append_key(row, &mut key);
    assert_eq!(key.len(), block.key_len(row));
    (key, block.seq(row).0, block.kind(row) == Kind::Delete, block.value(row).to_vec())
}

/// Rows in internal order without duplicates of (key, seq).
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let key = (0..3usize, proptest::collection::vec(0..3u8, 0..14)).prop_map(|(shared, tail)| {
        let mut key = vec![0, 0, 0, 7];
        key.extend_from_slice(&b"common/longer"[..[0, 6, 13][shared]]);
        key.extend_from_slice(&tail);
        key
    });
    let seq = prop_oneof![Just(0u64), 0..5u64, 0..100_000u64, 0..(1u64 << 56)];
    let value = proptest::collection::vec(any::<u8>(), 0..20);
    let row = (key, seq, proptest::bool::weighted(0.2), value);
    (proptest::collection::vec(row, 1..80), any::<bool>(), any::<bool>()).prop_map(|(mut rows, flat, fixed)| {
        for row in &mut rows {
            row.3 = if row.2 { Vec::new() } else { std::mem::take(&mut row.3) };
            if flat {
                row.1 = 9;
            }
            if fixed {
                row.0.truncate(4);
                row.0.extend_from_slice(&row.1.to_be_bytes());
                row.3 = vec![1; 10];
                row.2 = false;
            }
        }
        rows.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        rows.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
        rows
    })
}

proptest! {
    #[test]
    fn shuffled_blocks_come_back_and_damaged_ones_do_no_harm(rows in rows(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let block = build(&rows);
        for what in [Shuffle::Columns, Shuffle::Rows] {
            let mut shuffled = Vec::new();
            shuffle(&block, what, &mut shuffled).unwrap();
            let mut back = vec![0; block.len()];
            unshuffle(&shuffled, what, &mut back).unwrap();
            prop_assert_eq!(&back, &block);
            let at = at.index(shuffled.len());
            shuffled[at] ^= 1 << bit;
            prop_assert!(unshuffle(&shuffled, what, &mut back).is_err() || back != block);
            prop_assert!(unshuffle(&shuffled[..at], what, &mut back[..at]).is_err());
            prop_assert!(unshuffle(&shuffled, what, &mut back[..at]).is_err());
        }
    }

    #[test]
    fn rows_come_back_and_searches_agree_with_a_list(rows in rows(), probe in proptest::collection::vec(0..4u8, 0..18)) {
        let block = Block::parse(build(&rows).into_boxed_slice()).unwrap();
        prop_assert_eq!(block.rows(), rows.len());
        for (i, row) in rows.iter().enumerate() {
            prop_assert_eq!(&row_of(&block, i as u32), row);
        }
        prop_assert_eq!(block.newest().0, rows.iter().map(|r| r.1).max().unwrap());
        prop_assert_eq!(block.has_tombstones(), rows.iter().any(|r| r.2));
        let mut buf = block.prefix().to_vec();
        for (i, row) in rows.iter().enumerate() {
            let len = block.fill_key(i as u32, &mut buf);
            prop_assert_eq!(&buf[..len], &row.0[..]);
        }
        let mut probes: Vec<Vec<u8>> = vec![probe];
        for row in &rows {
            let mut longer = row.0.clone();
            longer.push(0);
            let mut shorter = row.0.clone();
            shorter.pop();
            probes.extend([row.0.clone(), longer, shorter]);
        }
        for (i, row) in rows.iter().enumerate() {
            let next = rows.iter().position(|r| r.0 > row.0).unwrap_or(rows.len());
            prop_assert_eq!(block.next_key(i as u32), next);
        }
        for key in &probes {
            let expected = rows.partition_point(|r| r.0 < *key);
            let exact = rows.get(expected).is_some_and(|r| r.0 == *key);
            prop_assert_eq!(block.lower_bound(key), (expected, exact));
            for (i, row) in rows.iter().enumerate() {
                prop_assert_eq!(block.key_is(i as u32, key), row.0 == *key);
            }
            if exact {
                for read in [0, 3, 9, 50_000, 1 << 55] {
                    let seen = (expected..rows.len()).find(|&i| rows[i].0 != *key || rows[i].1 <= read);
                    prop_assert_eq!(block.first_visible(expected, key, SeqNo(read)), seen.unwrap_or(rows.len()));
                }
            }
        }
    }

    #[test]
    fn any_bytes_parse_or_are_refused(rows in rows(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let bytes = build(&rows);
        let mut flipped = bytes.clone();
        let at = at.index(bytes.len());
        flipped[at] = byte;
        for broken in [flipped, bytes[..cut.index(bytes.len())].to_vec()] {
            if let Ok(block) = Block::parse(broken.into_boxed_slice()) {
                for i in 0..block.rows().min(1000) as u32 {
                    row_of(&block, i);
                }
                for row in &rows {
                    let (at, exact) = block.lower_bound(&row.0);
                    if exact {
                        block.first_visible(at, &row.0, SeqNo(4));
                    }
                }
            }
        }
    }
}

#[test]
fn header_fields_at_their_extremes_do_not_overflow() {
    let bytes = build(&[(b"abcd".to_vec(), 1, false, b"v".to_vec())]);
    for at in [0, 28, 32] {
        for value in [0u32, 1, 0x7fff_ffff, u32::MAX] {
            for flags in 0..=255u8 {
                let mut broken = bytes.clone();
                broken[at..at + 4].copy_from_slice(&value.to_le_bytes());
                broken[6] = flags;
                if let Ok(block) = Block::parse(broken.into_boxed_slice()) {
                    row_of(&block, 0);
                }
            }
        }
    }
}

#[test]
fn large_values_use_wide_offsets() {
    let rows = vec![
        (b"aaaaaaaaaaaaaaaaaaaaab".to_vec(), 5, false, vec![1; 70_000]),
        (b"aaaaaaaaaaaaaaaaaaaaacccccccccccccc".to_vec(), 1 << 40, false, vec![2; 3]),
    ];
    let block = Block::parse(build(&rows).into_boxed_slice()).unwrap();
    assert_eq!((row_of(&block, 0), row_of(&block, 1)), (rows[0].clone(), rows[1].clone()));
}
