//! Random steps: a transaction is a map over a map, a snapshot is the map of its time, and ranges give out what the map has, in any
//! turns from both ends.

use crate::common::{Map, OnFailure, Rng, left_behind, open, seeds, value};
use strata_engine::io::MemDisk;
use strata_engine::{Isolation, Key, Keyspace, Range, Snapshot, Transaction, Value};

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

fn random_key(rng: &mut Rng) -> Vec<u8> {
    let bytes = [0x00, b'a', b'b', 0xff];
    (0..rng.below(4)).map(|_| bytes[rng.below(4) as usize]).collect()
}

/// Reads `range` from both ends in random turns.
fn both_ends(rng: &mut Rng, mut range: Range<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    let turns = rng.below(101);
    let own = |(key, value): (Key, Value)| (Vec::from(key), Vec::from(value));
    loop {
        let from_front = rng.chance(turns);
        let row = if from_front { range.next() } else { range.next_back() };
        match row.transpose().unwrap() {
            Some(row) if from_front => front.push(own(row)),
            Some(row) => back.push(own(row)),
            None => break,
        }
    }
    assert!(range.next().is_none() && range.next_back().is_none());
    front.extend(back.into_iter().rev());
    front
}

fn in_map(map: &Map, keeps: impl Fn(&[u8]) -> bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    map.iter().filter(|(key, _)| keeps(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn check_transaction(rng: &mut Rng, transaction: &Transaction, keyspace: &Keyspace, map: &Map) {
    let (from, to) = (random_key(rng), random_key(rng));
    assert_eq!(transaction.get(keyspace, &from).unwrap().as_deref(), map.get(&from).map(Vec::as_slice));
    let range = transaction.range(keyspace, &from..&to);
    assert_eq!(both_ends(rng, range), in_map(map, |key| key >= &from[..] && key < &to[..]));
    let range = transaction.range(keyspace, ..=&to);
    assert_eq!(both_ends(rng, range), in_map(map, |key| key <= &to[..]));
    let range = transaction.prefix(keyspace, &from);
    assert_eq!(both_ends(rng, range), in_map(map, |key| key.starts_with(&from)));
}

fn check_snapshot(rng: &mut Rng, snapshot: &Snapshot, keyspace: &Keyspace, map: &Map) {
    let key = random_key(rng);
    assert_eq!(snapshot.get(keyspace, &key).unwrap().as_deref(), map.get(&key).map(Vec::as_slice));
    assert_eq!(both_ends(rng, snapshot.iter(keyspace)), in_map(map, |_| true));
    let range = snapshot.range(keyspace, (std::ops::Bound::Excluded(&key), std::ops::Bound::Unbounded));
    assert_eq!(both_ends(rng, range), in_map(map, |other| other > &key[..]));
}

/// One transaction at a time, and old snapshots, are maps; so are two keyspaces side by side.
#[test]
fn transactions_and_snapshots_are_maps() {
    for seed in seeds(30) {
        let _case = OnFailure(format!("seed {seed}"));
        let mut rng = Rng::new(seed);
        let engine = open(&MemDisk::new()).unwrap();
        let keyspaces = [engine.keyspace("one").unwrap(), engine.keyspace("two").unwrap()];
        let mut maps = [Map::new(), Map::new()];
        let mut old: Vec<(Snapshot, [Map; 2])> = Vec::new();
        for _ in 0..25 {
            let mut transaction = engine.transaction(LEVELS[rng.below(3) as usize]);
            let mut own = maps.clone();
            let mut marks = Vec::new();
            for step in 0..rng.below(30) {
                let which = rng.below(2) as usize;
                let (keyspace, map) = (&keyspaces[which], &mut own[which]);
                let key = random_key(&mut rng);
                match rng.below(8) {
                    0..4 => {
                        let new = value(&mut rng, step, 1 + step * 40);
                        transaction.put(keyspace, &key, &new).unwrap();
                        map.insert(key, new);
                    }
                    4 => {
                        transaction.delete(keyspace, &key).unwrap();
                        map.remove(&key);
                    }
                    5 => marks.push((transaction.savepoint(), own.clone())),
                    6 => {
                        if let Some((mark, then)) = marks.pop() {
                            transaction.rollback_to(mark).unwrap();
                            own = then;
                        }
                    }
                    _ => {
                        let got = transaction.get_for_update(keyspace, &key).unwrap();
                        assert_eq!(got.as_deref(), map.get(&key).map(Vec::as_slice));
                    }
                }
                check_transaction(&mut rng, &transaction, &keyspaces[which], &own[which]);
            }
            if rng.chance(70) {
                transaction.commit().unwrap();
                maps = own;
            }
            match rng.below(6) {
                0 => engine.flush().unwrap(),
                1 => keyspaces.iter().for_each(|keyspace| engine.compact(keyspace).unwrap()),
                2 => old.push((engine.snapshot(), maps.clone())),
                3 if old.len() > 2 => drop(old.remove(0)),
                _ => {}
            }
            for (snapshot, maps) in &old {
                for which in 0..2 {
                    check_snapshot(&mut rng, snapshot, &keyspaces[which], &maps[which]);
                }
            }
        }
        drop(old);
        assert_eq!(left_behind(&engine), []);
    }
}
