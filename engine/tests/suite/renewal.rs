//! Values that are written anew: in the end none of the old ones is left, whatever merges and flushes were under way, and nobody sees
//! anything else than before; and the question whether an index is untouched, which is never answered with yes in vain.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{DIR, Rng, key, open, options, seeds, within};
use strata_engine::io::{FaultKind, MemDisk};
use strata_engine::layer::{IndexId, ReadPoint, Rule};
use strata_engine::{Engine, Error};

const OLD: u8 = 1;
const NEW: u8 = 2;
/// The index that is renewed, and one beside it.
const INDEX: u32 = 20;
const BESIDE: u32 = 21;

fn rule() -> Rule {
    Arc::new(|key, value, out| {
        assert_eq!(IndexId::of(key), IndexId(INDEX));
        if value[0] == NEW {
            return false;
        }
        out.clear();
        out.push(NEW);
        // Of another length.
        out.extend_from_slice(&value[1..]);
        out.push(b'!');
        true
    })
}

fn value(form: u8, n: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![b'.'; bytes + 9];
    value[0] = form;
    value[1..9].copy_from_slice(&n.to_be_bytes());
    value
}

/// The number that a value stands for, and its form.
fn meaning(value: &[u8]) -> (u64, u8) {
    (u64::from_be_bytes(value[1..9].try_into().unwrap()), value[0])
}

type Model = BTreeMap<u64, u64>;

struct Store {
    engine: Engine,
    rng: Rng,
    model: Model,
    next: u64,
}

impl Store {
    fn write(&mut self, form: u8, keys: u64) {
        let mut txn = self.engine.begin();
        for _ in 0..self.rng.below(200) {
            let k = self.rng.below(keys);
            self.next += 1;
            txn.put(&key(BESIDE, k), &value(OLD, self.next, 20)).unwrap();
            match self.rng.chance(20) {
                true => {
                    txn.delete(&key(INDEX, k)).unwrap();
                    self.model.remove(&k);
                }
                false => {
                    txn.put(&key(INDEX, k), &value(form, self.next, 50)).unwrap();
                    self.model.insert(k, self.next);
                }
            }
        }
        txn.commit().unwrap();
    }

    /// What is there at a point, and the forms that it has.
    fn read(&self, index: u32, point: &ReadPoint) -> (Model, Vec<u8>) {
        let none = self.engine.begin();
        let mut cursor = self.engine.cursor();
        let (lower, upper) = (IndexId(index).prefix(), IndexId(index + 1).prefix());
        cursor.open(&none, point.seq(), &lower, &upper).unwrap();
        cursor.seek_ge(&none, &lower).unwrap();
        let (mut found, mut forms) = (Model::new(), Vec::new());
        while cursor.valid() {
            let (n, form) = meaning(cursor.value());
            let k = std::str::from_utf8(&cursor.key()[IndexId::LEN..]).unwrap();
            found.insert(k.parse().unwrap(), n);
            forms.push(form);
            let mut alone = Vec::new();
            assert!(self.engine.get_at(cursor.key(), point.seq(), &mut alone).unwrap());
            assert_eq!(meaning(&alone).0, n);
            cursor.next(&none).unwrap();
        }
        forms.sort_unstable();
        forms.dedup();
        (found, forms)
    }
}

#[test]
fn none_of_the_old_values_is_left_and_nobody_sees_it() {
    for seed in seeds(12) {
        within(&format!("seed {seed}"), 120, move || case(seed));
    }
}

fn case(seed: u64) {
    let disk = MemDisk::new();
    let engine = Engine::open(Path::new(DIR), options(Arc::new(disk.clone()))).unwrap();
    let mut store = Store { engine, rng: Rng::new(seed), model: Model::new(), next: 0 };
    let mut points: Vec<(ReadPoint, Model)> = Vec::new();
    let keys = 1 + store.rng.below(3000);
    for _ in 0..store.rng.below(80) {
        store.write(OLD, keys);
        match store.rng.below(12) {
            0 => store.engine.flush().unwrap(),
            1 => store.engine.compact_range(&IndexId(INDEX).prefix(), &IndexId(INDEX + 1).prefix()).unwrap(),
            2 | 3 => points.push((store.engine.read_point(), store.model.clone())),
            4 if !points.is_empty() => drop(points.swap_remove(0)),
            _ => {}
        }
    }
    // Flushes and merges are under way.
    let renewal = store.engine.renew(IndexId(INDEX), rule());
    for _ in 0..store.rng.below(40) {
        store.write(NEW, keys);
        if store.rng.chance(10) {
            points.push((store.engine.read_point(), store.model.clone()));
        }
    }
    store.engine.await_renewed(&renewal, &|| Ok(())).unwrap();
    assert!(store.engine.is_renewed(&renewal));
    points.push((store.engine.read_point(), store.model.clone()));
    for (point, model) in &points {
        let (found, forms) = store.read(INDEX, point);
        assert_eq!(found, *model);
        assert!(forms.is_empty() || forms == [NEW], "{forms:?}");
        let beside = store.read(BESIDE, point).1;
        assert!(beside.is_empty() || beside == [OLD], "{beside:?}");
    }
    // It stays done, and after a restart nothing old comes out of the log.
    for _ in 0..3 {
        store.write(NEW, keys);
    }
    store.engine.wait_idle().unwrap();
    assert!(store.engine.is_renewed(&renewal));
    drop((points, renewal));
    let Store { engine, rng, model, next } = store;
    if seed % 2 == 0 {
        engine.close().unwrap();
    }
    let disk = if seed % 2 == 0 { disk } else { disk.crash(seed) };
    drop(engine);
    let store = Store { engine: open(&disk).unwrap(), rng, model, next };
    let (found, forms) = store.read(INDEX, &store.engine.read_point());
    assert_eq!(found, store.model);
    assert!(forms.is_empty() || forms == [NEW], "{forms:?}");
}

/// A renewal that cannot write says why to who waits for it, and goes on when it can.
#[test]
fn a_full_disk_holds_it_up() {
    within("full", 60, || {
        let disk = MemDisk::new();
        let engine = open(&disk).unwrap();
        for k in 0..500 {
            engine.write(&[(key(INDEX, k), Some(value(OLD, k, 50)))], false).unwrap();
        }
        engine.flush().unwrap();
        disk.fail_from(1, FaultKind::StorageFull);
        let renewal = engine.renew(IndexId(INDEX), rule());
        let error = engine.await_renewed(&renewal, &|| Ok(())).unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        assert!(!engine.is_renewed(&renewal));
        disk.clear_fault();
        let ended = AtomicBool::new(false);
        let tick = || match ended.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted),
            false => Ok(()),
        };
        // The error stands until the next attempt.
        while engine.await_renewed(&renewal, &tick).is_err() {
            std::thread::yield_now();
        }
        ended.store(true, Ordering::Relaxed);
        assert!(engine.is_renewed(&renewal));
        // Without a handle nothing is renewed.
        let given_up = engine.renew(IndexId(INDEX), rule());
        drop(given_up);
        engine.write(&[(key(INDEX, 1), Some(value(OLD, 1, 50)))], false).unwrap();
        engine.flush().unwrap();
        engine.compact_range(&[], &[0xff; 4]).unwrap();
        let mut found = Vec::new();
        assert!(engine.get_at(&key(INDEX, 1), engine.visible(), &mut found).unwrap());
        assert_eq!(meaning(&found), (1, OLD));
    });
}

#[test]
fn an_index_is_untouched_only_if_nothing_is_left_of_later_commits() {
    for seed in seeds(40) {
        let engine = open(&MemDisk::new()).unwrap();
        let mut rng = Rng::new(seed);
        // When each key that is there was written.
        let mut written = BTreeMap::new();
        let (mut since, mut began, mut certain) = (engine.moment(), 0, 0);
        for n in 0..200 {
            match rng.below(10) {
                0 => engine.flush().unwrap(),
                1 => engine.compact_range(&[], &[0xff; 4]).unwrap(),
                2 => (since, began) = (engine.moment(), n),
                3 => {
                    let k = rng.below(20);
                    let new = rng.chance(70).then(|| value(OLD, n, 30));
                    match new {
                        Some(_) => drop(written.insert(k, n)),
                        None => drop(written.remove(&k)),
                    }
                    engine.write(&[(key(INDEX, k), new)], false).unwrap();
                }
                _ => drop(engine.write(&[(key(BESIDE, rng.below(20)), Some(value(OLD, n, 30)))], false).unwrap()),
            }
            let untouched = engine.is_untouched(IndexId(INDEX), since).unwrap();
            let touched = written.values().any(|&at| at >= began);
            assert!(!(untouched && touched), "seed {seed}, step {n}");
            certain += u32::from(untouched);
        }
        // Doubt comes from merges alone.
        assert!(certain > 5, "seed {seed}: {certain}");
    }
}
