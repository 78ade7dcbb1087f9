//! All short histories of two sessions over a few rows that pass a unique value around.
//!
//! One session, the *holder*, keeps a snapshot and writes; the other commits each of its changes at once. Whatever they do,
//! the holder's consistent reads must show what its snapshot shows, with its own rows in place of those that it has written.
//! Each index is read in both directions and must give exactly these rows: an entry of its own must not hide, in a unique
//! index, the entry of another row that the snapshot still shows with the same value.
//!
//! Histories share a store; each has a range of keys and values of its own.

use crate::common::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strata_engine::io::MemDisk;
use strata_row::error::Error;
use strata_row::index::Updated;
use strata_row::kv::{self, LockMode, Options};
use strata_row::rowcode::Record;
use strata_row::scan::{RowCursor, Seek};
use strata_row::store::Store;
use strata_row::table::Table;

/// A change by one of the two sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// The row gets this value, whether or not it is there.
    Put(usize, i32),
    /// The row goes.
    Delete(usize),
    /// What the session's last statement wrote is taken back.
    Undo,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Holder,
    Other,
}

type Step = (Who, Change);
/// Row number to value.
type View = BTreeMap<usize, i32>;

const ROWS: usize = 3;
const VALUES: i32 = 2;
/// Keys and values of one history.
const SPAN: i32 = 16;

fn bytes(record: &[u8]) -> Record<'_> {
    // SAFETY: the row that the record was made of outlives it.
    unsafe { Record::new(record) }
}

fn changes(undo: bool) -> Vec<Change> {
    let puts = (0..ROWS).flat_map(|r| (0..VALUES).map(move |e| Change::Put(r, e)));
    puts.chain((0..ROWS).map(Change::Delete)).chain(undo.then_some(Change::Undo)).collect()
}

struct World {
    store: Arc<Store>,
    table: Arc<Table>,
    base: i32,
}

impl World {
    fn row(&self, number: usize, value: i32) -> Row {
        let e = self.base + value;
        row(i64::from(self.base), number as i32, Some(&format!("{e:09}")), Some(e))
    }

    fn client(&self) -> Client {
        let mut client = Client::new(&self.store, &self.table);
        client.timeout = Duration::ZERO;
        client
    }

    /// The newest row, locked.
    fn lock(&self, client: &mut Client, number: usize) -> Result<Option<Row>, Error> {
        client.locking(Some(LockMode::Exclusive));
        let found = client.get(PRIMARY, &image_ca(i64::from(self.base), number as i32));
        client.locking(None);
        found
    }

    /// True if it was done; else another session's lock or a duplicate was in the way, and nothing has changed.
    fn change(&self, client: &mut Client, change: Change) -> bool {
        let done = (|| {
            let (number, value) = match change {
                Change::Put(number, value) => (number, Some(value)),
                Change::Delete(number) => (number, None),
                Change::Undo => unreachable!("not a statement"),
            };
            let old = self.lock(client, number)?;
            let new = value.map(|value| self.row(number, value));
            let (was, is) = (old.as_ref().map(Row::record), new.as_ref().map(Row::record));
            let session = &mut client.session;
            match (&was, &is) {
                (None, None) => Ok(false),
                (None, Some(new)) => client.cursor.insert(session, bytes(new)).map(|()| true),
                (Some(old), None) => client.cursor.delete(session, bytes(old)).map(|()| true),
                // A row that stays as it is is not written, and stays what the snapshot shows.
                (Some(old), Some(new)) => {
                    client.cursor.update(session, bytes(old), bytes(new)).map(|updated| updated == Updated::Changed)
                }
            }
        })();
        match done {
            Ok(done) => {
                client.session.statement_end();
                done
            }
            Err(Error::Duplicate(_)) => {
                client.session.statement_rollback();
                false
            }
            Err(Error::Engine(kv::Error::LockTimeout)) => {
                client.session.statement_rollback();
                false
            }
            Err(e) => panic!("{change:?}: {e}"),
        }
    }

    /// The rows of this history, by an index.
    fn scan(&self, client: &mut Client, index: usize, forward: bool, covering: bool) -> Vec<(usize, i32)> {
        let (low, high) = (self.base, self.base + SPAN - 1);
        client.begin();
        client.cursor.begin(Some(index), covering).unwrap();
        let image = |edge: i32| match index {
            PRIMARY => image_c(i64::from(edge)),
            BY_E => image_e(Some(edge)),
            BY_B => image_b(Some(&format!("{edge:09}")), 20),
            _ => unreachable!("an index of this test"),
        };
        let (mode, start) = if forward { (Seek::Ge, image(low)) } else { (Seek::Le, image(high)) };
        let mut rows = Vec::new();
        let mut found = client.cursor.seek(&mut client.session, mode, &start, &mut client.record).unwrap();
        while found {
            let record = &client.record;
            let (c, a) = (i64::from_le_bytes(record[26..34].try_into().unwrap()), &record[1..5]);
            if c != i64::from(self.base) {
                break;
            }
            let e = i32::from_le_bytes(record[44..48].try_into().unwrap()) - self.base;
            rows.push((i32::from_le_bytes(a.try_into().unwrap()) as usize, e));
            found = match forward {
                true => client.cursor.next(&mut client.session, &mut client.record).unwrap(),
                false => client.cursor.prev(&mut client.session, &mut client.record).unwrap(),
            };
        }
        client.session.statement_end();
        rows
    }

    /// The rows that have a value, by an exact search of the unique index and the steps that follow it.
    fn search(&self, client: &mut Client, value: i32) -> Vec<(usize, i32)> {
        client.begin();
        client.cursor.begin(Some(BY_E), false).unwrap();
        let image = image_e(Some(self.base + value));
        let mut rows = Vec::new();
        let mut found = client.cursor.seek(&mut client.session, Seek::Exact, &image, &mut client.record).unwrap();
        while found {
            let row = Row::read(&client.record);
            rows.push((row.a as usize, row.e.unwrap() - self.base));
            found = client.cursor.next_same(&mut client.session, &mut client.record).unwrap();
        }
        client.session.statement_end();
        rows
    }

    fn compare(&self, holder: &mut Client, view: &View, history: &[Step]) {
        let want: Vec<(usize, i32)> = view.iter().map(|(&r, &e)| (r, e)).collect();
        for (index, covering) in [(PRIMARY, false), (BY_B, false), (BY_E, false), (BY_E, true)] {
            let forward = self.scan(holder, index, true, covering);
            let mut backward = self.scan(holder, index, false, covering);
            backward.reverse();
            let what = || format!("index {index}, covering {covering}, after {history:?}");
            assert_eq!(forward, backward, "{}", what());
            if index == BY_E {
                assert!(forward.is_sorted_by_key(|&(_, e)| e), "{forward:?}: {}", what());
            }
            let mut sorted = forward;
            sorted.sort_unstable();
            assert_eq!(sorted, want, "{}", what());
        }
        for value in 0..VALUES {
            let mut found = self.search(holder, value);
            found.sort_unstable();
            let with: Vec<_> = want.iter().copied().filter(|&(_, e)| e == value).collect();
            assert_eq!(found, with, "search for {value} after {history:?}");
        }
    }

    /// Runs a history from two rows that have a value each, and compares after each step from `from` on.
    fn run(&mut self, history: &[Step], from: usize, flush: bool) {
        self.base += SPAN;
        let mut other = self.client();
        let mut newest = View::new();
        for number in 0..2 {
            assert!(self.change(&mut other, Change::Put(number, number as i32)));
            newest.insert(number, number as i32);
        }
        other.commit();
        let mut holder = self.client();
        let mut view = newest.clone();
        assert_eq!(self.scan(&mut holder, PRIMARY, true, false).len(), 2);
        let mut undo = None;
        for (at, &(who, change)) in history.iter().enumerate() {
            match who {
                Who::Other => {
                    self.change(&mut other, change);
                    other.commit();
                    if flush {
                        self.store.engine().flush().unwrap();
                    }
                }
                Who::Holder if change == Change::Undo => {
                    if let Some((mark, before)) = undo.take() {
                        holder.session.rollback_to(mark);
                        view = before;
                    }
                }
                Who::Holder => {
                    let before = (holder.session.savepoint(), view.clone());
                    if self.change(&mut holder, change) {
                        undo = Some(before);
                        match change {
                            Change::Put(number, value) => view.insert(number, value),
                            Change::Delete(number) => view.remove(&number),
                            Change::Undo => None,
                        };
                    }
                }
            }
            if at >= from {
                self.compare(&mut holder, &view, history);
            }
        }
        holder.commit();
        let mut later = self.client();
        let all = self.scan(&mut later, PRIMARY, true, false).into_iter().collect();
        self.compare(&mut later, &all, history);
    }
}

fn world(transaction_bytes: u64) -> World {
    let disk = Arc::new(MemDisk::new());
    let store = Store::open(Path::new("/db"), Options { disk, transaction_bytes, ..Options::default() }).unwrap();
    store.create_table("./db/t", &definition(false), 0).unwrap();
    let table = store.open_table("./db/t", definition(false)).unwrap();
    World { store, table, base: 0 }
}

/// Calls `run` with every history of `steps` steps that the other session begins and the holder ends.
fn each(steps: usize, undo: bool, mut run: impl FnMut(&[Step])) -> usize {
    let all: Vec<Step> = (changes(false).into_iter().map(|c| (Who::Other, c)))
        .chain(changes(undo).into_iter().map(|c| (Who::Holder, c)))
        .collect();
    let mut count = 0;
    let mut digits = vec![0; steps];
    'histories: loop {
        let history: Vec<Step> = digits.iter().map(|&d| all[d]).collect();
        if history[0].0 == Who::Other && history[steps - 1].0 == Who::Holder {
            run(&history);
            count += 1;
        }
        for digit in &mut digits {
            *digit += 1;
            if *digit < all.len() {
                continue 'histories;
            }
            *digit = 0;
        }
        return count;
    }
}

#[test]
fn a_value_that_passed_on_is_shown_where_the_snapshot_has_it() {
    let mut world = world(1 << 20);
    for steps in 2..=4 {
        let count = each(steps, true, |history| world.run(history, steps - 1, false));
        assert!(count >= 90, "{count}");
    }
}

#[test]
fn so_also_where_all_that_is_committed_lies_in_tables() {
    let mut world = world(1 << 20);
    assert!(each(2, true, |history| world.run(history, 1, true)) >= 90);
}

#[test]
fn so_also_where_the_holders_writes_lie_in_runs() {
    let mut stage = world(64);
    let count = each(3, true, |history| {
        // Each change leaves a file; many of them are slow to read.
        if stage.base > 32 * SPAN {
            stage = world(64);
        }
        stage.run(history, 2, false);
    });
    assert!(count >= 1000, "{count}");
}

#[test]
fn a_scan_under_way_meets_each_row_that_is_not_written_once() {
    let mut world = world(1 << 20);
    let others: Vec<Change> = changes(false);
    let mut count = 0;
    let twice = others.iter().flat_map(|&a| others.iter().map(move |&b| [a, b]));
    for (before, own, met, forward) in twice.flat_map(|before| {
        let own = changes(false).into_iter();
        own.flat_map(move |own| (0..3).flat_map(move |met| [true, false].map(|f| (before, own, met, f))))
    }) {
        world.base += SPAN;
        let mut other = world.client();
        for number in 0..2 {
            assert!(world.change(&mut other, Change::Put(number, number as i32)));
        }
        other.commit();
        let mut holder = world.client();
        let shown: BTreeMap<usize, i32> = world.scan(&mut holder, PRIMARY, true, false).into_iter().collect();
        for change in before {
            world.change(&mut other, change);
            other.commit();
        }
        // The scan stands between two rows while the session writes by another cursor.
        let mut scan = RowCursor::new(&world.table);
        let mut record = vec![0; RECORD];
        let (mode, edge) = if forward { (Seek::Ge, world.base) } else { (Seek::Le, world.base + SPAN - 1) };
        holder.begin();
        scan.begin(Some(BY_E), false).unwrap();
        let mut found = scan.seek(&mut holder.session, mode, &image_e(Some(edge)), &mut record).unwrap();
        let mut rows = Vec::new();
        let (mut written, mut pending) = (false, Some(own));
        loop {
            if let Some(own) = pending.take_if(|_| rows.len() == met) {
                written = world.change(&mut holder, own);
            }
            if !found || Row::read(&record).c != i64::from(world.base) {
                break;
            }
            let row = Row::read(&record);
            rows.push((row.a as usize, row.e.unwrap() - world.base));
            assert!(rows.len() < 9, "the scan does not end");
            found = match forward {
                true => scan.next(&mut holder.session, &mut record).unwrap(),
                false => scan.prev(&mut holder.session, &mut record).unwrap(),
            };
        }
        let touched = match own {
            Change::Put(number, _) | Change::Delete(number) => number,
            Change::Undo => unreachable!("not among the changes"),
        };
        for (&number, &value) in shown.iter().filter(|&(&number, _)| !written || number != touched) {
            let times = rows.iter().filter(|&&row| row == (number, value)).count();
            assert_eq!(times, 1, "row {number}: {rows:?} after {before:?}, then {own:?} at {met}, forward {forward}");
        }
        count += 1;
    }
    assert!(count > 4000, "{count}");
}
