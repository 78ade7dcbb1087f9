//! Rows that expire: a model in a plain map says what is seen of a table at each moment, while rows come, are prolonged, expire, give way and
//! are purged, the clock is set forward and back, and the store is opened again after power cuts.

use crate::common::values::{Names, V, Values, table, values};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strata_engine::io::{ManualClock, MemDisk};
use strata_row::def::TableDef;
use strata_row::error::Error;
use strata_row::isolation::{Isolation, Waiting};
use strata_row::kv::{LockMode, Options};
use strata_row::purge;
use strata_row::rowcode::Record;
use strata_row::scan::{RowCursor, Seek};
use strata_row::session::Session;
use strata_row::store::Store;
use strata_row::table::Table;

/// Seconds that a row lives after its moment.
const LIFE: u64 = 10;
const NAME: &str = "./db/t";

/// Rows `(id, u, k, m)`: a primary key, a unique key, a plain one, and the moment. With `ordered` an index begins with the moment.
fn definition(ordered: bool, hidden: bool) -> TableDef {
    let primary = if hidden { "p unique (id)" } else { "PRIMARY (id)" };
    let mut indexes = vec![primary, "u unique (u)", "k (k)"];
    indexes.extend(ordered.then_some("m (m, k)"));
    let mut def = table(&["id int4", "u int4 null", "k int4", "m int8 null"], &indexes);
    def.columns[3].is_moment = true;
    def.ttl = Some(format!("m + INTERVAL {LIFE} SECOND"));
    def
}

struct Db {
    disk: Arc<MemDisk>,
    clock: Arc<ManualClock>,
    def: TableDef,
    store: Arc<Store>,
    table: Arc<Table>,
}

fn open(disk: &Arc<MemDisk>, clock: &Arc<ManualClock>) -> Arc<Store> {
    let options = Options { disk: disk.clone(), clock: clock.clone(), ..Options::default() };
    let store = Store::open(Path::new("/db"), options).unwrap();
    store.set_library(Arc::new(Names));
    store
}

impl Db {
    fn new(def: TableDef) -> Db {
        let (disk, clock) = (Arc::new(MemDisk::new()), Arc::new(ManualClock::default()));
        let store = open(&disk, &clock);
        store.create_table(NAME, &def, 0).unwrap();
        let table = store.open_table(NAME, def.clone()).unwrap();
        Db { disk, clock, def, store, table }
    }

    /// The clock shows this many seconds since 1970.
    fn at(&self, seconds: u64) {
        self.clock.set_unix_us(seconds * 1_000_000);
    }

    /// The same, for another table to be put in.
    fn again(&self) -> Db {
        let Db { disk, clock, def, store, table } = self;
        Db { disk: disk.clone(), clock: clock.clone(), def: def.clone(), store: store.clone(), table: table.clone() }
    }

    /// What is on the disk after a power cut is opened again.
    fn crash(&mut self, seed: u64) {
        let disk = Arc::new(self.disk.crash(seed));
        (self.disk, self.store) = (disk.clone(), open(&disk, &self.clock));
        self.table = self.store.open_table(NAME, self.def.clone()).unwrap();
    }

    fn conn(&self) -> Conn<'_> {
        let session = Session::new(&self.store, Box::new(|| false));
        let cursor = RowCursor::new(&self.table);
        Conn { db: self, session, cursor, record: vec![0; self.def.record_bytes as usize] }
    }

    fn check(&self) {
        let mut lines = Vec::new();
        let session = Session::new(&self.store, Box::new(|| false));
        let good = self.table.check(&session, false, None, &mut |line| lines.push(line.to_owned())).unwrap();
        assert!(good, "{lines:?}");
    }

    /// Rows that are stored, expired or not.
    fn stored(&self) -> usize {
        let mut conn = self.conn();
        conn.session.set_sees_expired(true);
        conn.all(None, true).len()
    }
}

struct Conn<'a> {
    db: &'a Db,
    session: Session,
    cursor: RowCursor,
    record: Vec<u8>,
}

fn row(id: i64, u: Option<i64>, k: i64, m: Option<i64>) -> Values {
    let or_null = |n: Option<i64>| n.map_or(V::Null, V::Int);
    values([("id", V::Int(id)), ("u", or_null(u)), ("k", V::Int(k)), ("m", or_null(m))])
}

impl Conn<'_> {
    fn begin(&mut self) {
        self.session.statement_begin(Isolation::RepeatableRead, Duration::ZERO).unwrap();
    }

    fn mode(&mut self, lock: Option<LockMode>) {
        self.cursor.set_mode(lock, Waiting::Wait);
    }

    fn read(&self) -> Values {
        crate::common::values::read(&self.db.def, &self.record)
    }

    /// All rows by an index, as far as its entries, or the rows, say them.
    fn all(&mut self, index: Option<usize>, forward: bool) -> Vec<Values> {
        self.begin();
        self.cursor.begin(index, false).unwrap();
        let mode = if forward { Seek::First } else { Seek::Last };
        let mut rows = Vec::new();
        let mut found = self.cursor.seek(&mut self.session, mode, &[], &mut self.record).unwrap();
        while found {
            rows.push(self.read());
            found = match forward {
                true => self.cursor.next(&mut self.session, &mut self.record).unwrap(),
                false => self.cursor.prev(&mut self.session, &mut self.record).unwrap(),
            };
        }
        self.session.statement_end();
        rows
    }

    fn count(&mut self, index: usize) -> usize {
        self.begin();
        crate::common::count(&mut self.cursor, &mut self.session, &mut self.record, index)
    }

    fn insert(&mut self, row: &Values) -> strata_row::Result<()> {
        self.begin();
        let bytes = crate::common::values::record(&self.db.def, row);
        // SAFETY: the table has no BLOBs.
        let result = self.cursor.insert(&mut self.session, unsafe { Record::new(&bytes) });
        self.session.statement_end();
        result
    }

    /// The row of this id, by the key of it, locked or not.
    fn find(&mut self, id: i64) -> Option<Values> {
        self.begin();
        self.cursor.begin(Some(0), false).unwrap();
        let image = (id as i32).to_le_bytes();
        let found = self.cursor.seek(&mut self.session, Seek::Exact, &image, &mut self.record).unwrap();
        found.then(|| self.read())
    }

    /// False if there is no such row.
    fn update(&mut self, id: i64, change: impl FnOnce(&mut Values)) -> strata_row::Result<bool> {
        self.mode(Some(LockMode::Exclusive));
        let found = self.find(id);
        let result = match found {
            None => Ok(false),
            Some(mut row) => {
                change(&mut row);
                let (old, new) = (self.record.clone(), crate::common::values::record(&self.db.def, &row));
                // SAFETY: the table has no BLOBs.
                let (old, new) = unsafe { (Record::new(&old), Record::new(&new)) };
                self.cursor.update(&mut self.session, old, new).map(|_| true)
            }
        };
        self.session.statement_end();
        self.mode(None);
        result
    }

    fn delete(&mut self, id: i64) -> bool {
        self.mode(Some(LockMode::Exclusive));
        let found = self.find(id).is_some();
        if found {
            let old = self.record.clone();
            // SAFETY: the table has no BLOBs.
            self.cursor.delete(&mut self.session, unsafe { Record::new(&old) }).unwrap();
        }
        self.session.statement_end();
        self.mode(None);
        found
    }
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Insert(i64, Option<i64>, Option<i64>),
    /// The row gets another moment and another unique value.
    Update(i64, Option<i64>, Option<i64>),
    Delete(i64),
    /// The clock goes on, or back.
    Clock(i64),
    Purge,
    Crash,
    Undo,
    Commit,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..8i64;
    let unique = prop::option::of(0..5i64);
    let moment = prop::option::weighted(0.8, 95..130i64);
    prop_oneof![
        6 => (id.clone(), unique.clone(), moment.clone()).prop_map(|(id, u, m)| Step::Insert(id, u, m)),
        4 => (id.clone(), unique, moment).prop_map(|(id, u, m)| Step::Update(id, u, m)),
        2 => id.prop_map(Step::Delete),
        4 => (-6..12i64).prop_map(Step::Clock),
        2 => Just(Step::Purge),
        1 => Just(Step::Crash),
        1 => Just(Step::Undo),
        4 => Just(Step::Commit),
    ]
}

/// The rows that are stored, by id. Which of them are seen follows from the clock.
type Model = BTreeMap<i64, Values>;

fn lives(row: &Values, now: u64) -> bool {
    match row["m"] {
        V::Int(m) => m as u64 + LIFE > now,
        _ => true,
    }
}

/// Puts a row into the model, in the place of the one of `old`; false if it is a duplicate of a row that lives. Expired ones go.
fn put(model: &mut Model, old: Option<i64>, row: &Values, now: u64) -> bool {
    let V::Int(id) = row["id"] else { unreachable!() };
    let conflicts = |other: &Values| other["id"] == row["id"] || row["u"] != V::Null && other["u"] == row["u"];
    let others: Vec<i64> =
        model.iter().filter(|(id, other)| Some(**id) != old && conflicts(other)).map(|(id, _)| *id).collect();
    if others.iter().any(|id| lives(&model[id], now)) {
        return false;
    }
    others.iter().chain(&old).for_each(|id| drop(model.remove(id)));
    model.insert(id, row.clone());
    true
}

fn matches(db: &Db, conn: &mut Conn<'_>, model: &Model, now: u64) {
    let mut wanted: Vec<Values> = model.values().filter(|row| lives(row, now)).cloned().collect();
    for index in [None].into_iter().chain((0..db.def.indexes.len()).map(Some)) {
        for forward in [true, false] {
            let mut rows = conn.all(index, forward);
            let order = |row: &Values| match row["id"] {
                V::Int(id) => id,
                _ => unreachable!(),
            };
            rows.sort_by_key(order);
            wanted.sort_by_key(order);
            assert_eq!(rows, wanted, "index {index:?}");
        }
        if let Some(index) = index {
            assert_eq!(conn.count(index), wanted.len(), "entries of index {index}");
        }
    }
    for id in 0..8 {
        let found = conn.find(id);
        conn.session.statement_end();
        assert_eq!(found, model.get(&id).filter(|row| lives(row, now)).cloned());
    }
}

/// Runs a history. Steps between two commits are a transaction; each is seen at once by its own session.
fn run(def: TableDef, steps: Vec<Step>) {
    let mut db = Db::new(def);
    let (mut committed, mut model) = (Model::new(), Model::new());
    let mut now = 100u64;
    let mut steps = steps.into_iter().peekable();
    while steps.peek().is_some() {
        db.at(now);
        let mut conn = db.conn();
        let mut ends = None;
        for step in steps.by_ref() {
            match step {
                Step::Insert(id, u, m) => {
                    let row = row(id, u, id % 3, m);
                    let done = match conn.insert(&row) {
                        Ok(()) => true,
                        Err(Error::Duplicate(_)) => false,
                        Err(error) => panic!("{error}"),
                    };
                    assert_eq!(done, put(&mut model, None, &row, now), "insert of {row:?} at {now}");
                }
                Step::Update(id, u, m) => {
                    let old = model.get(&id).filter(|row| lives(row, now)).cloned();
                    let change = |row: &mut Values| {
                        row.insert("u".into(), u.map_or(V::Null, V::Int));
                        row.insert("m".into(), m.map_or(V::Null, V::Int));
                    };
                    let done = match conn.update(id, change) {
                        Ok(done) => done,
                        Err(Error::Duplicate(_)) => false,
                        Err(error) => panic!("{error}"),
                    };
                    let wanted = old.is_some_and(|mut row| {
                        change(&mut row);
                        put(&mut model, Some(id), &row, now)
                    });
                    assert_eq!(done, wanted, "update of {id} at {now}");
                }
                Step::Delete(id) => {
                    let lived = model.get(&id).is_some_and(|row| lives(row, now));
                    assert_eq!(conn.delete(id), lived);
                    if lived {
                        model.remove(&id);
                    }
                }
                Step::Clock(by) => {
                    now = now.saturating_add_signed(by);
                    db.at(now);
                    // Between two statements.
                }
                other => {
                    ends = Some(other);
                    break;
                }
            }
            matches(&db, &mut conn, &model, now);
        }
        match ends.unwrap_or(Step::Commit) {
            Step::Undo => {
                conn.session.rollback().unwrap();
                model = committed.clone();
            }
            Step::Crash => {
                drop(conn);
                db.crash(now);
                model = committed.clone();
                db.check();
                continue;
            }
            last => {
                conn.session.commit().unwrap();
                committed = model.clone();
                if let Step::Purge = last {
                    let gone = model.values().filter(|row| !lives(row, now)).count() as u64;
                    assert_eq!(purge::pass(&db.store, now).unwrap(), gone);
                    model.retain(|_, row| lives(row, now));
                    committed = model.clone();
                    assert_eq!(db.stored(), model.len());
                }
            }
        }
        drop(conn);
        db.check();
        let mut fresh = db.conn();
        matches(&db, &mut fresh, &model, now);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn what_is_seen_is_what_lives(
        ordered in any::<bool>(),
        hidden in any::<bool>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        run(definition(ordered, hidden), steps);
    }
}

/// A row that somebody has locked stays, and so does one whose unique value somebody has locked; both go later.
#[test]
fn the_purge_waits_for_nobody() {
    for ordered in [true, false] {
        let db = Db::new(definition(ordered, false));
        db.at(200);
        let mut conn = db.conn();
        conn.session.set_sees_expired(true);
        for id in 1..=4 {
            conn.insert(&row(id, Some(id), 0, Some(1))).unwrap();
        }
        conn.session.commit().unwrap();
        let mut holder = db.conn();
        holder.session.set_sees_expired(true);
        holder.mode(Some(LockMode::Exclusive));
        assert!(holder.find(2).is_some());
        holder.session.statement_end();
        // Its unique value is locked by who wants it for another row and waits for nothing yet.
        let mut other = db.conn();
        other.session.set_time(1);
        let taken = other.insert(&row(9, Some(3), 0, None));
        assert!(matches!(taken, Err(Error::Duplicate(1))), "{taken:?}");
        assert_eq!(purge::pass(&db.store, 200).unwrap(), 2, "rows 1 and 4");
        holder.session.rollback().unwrap();
        other.session.rollback().unwrap();
        assert_eq!(purge::pass(&db.store, 200).unwrap(), 2);
        assert_eq!(db.stored(), 0);
        db.check();
    }
}

/// More rows than a batch takes, among others that live, with every kind of moment.
#[test]
fn a_pass_goes_through_all_rows_in_batches() {
    for (ordered, hidden) in [(true, false), (false, true), (false, false), (true, true)] {
        let db = Db::new(definition(ordered, hidden));
        let mut conn = db.conn();
        let moment = |id: i64| match id % 5 {
            0 => None,
            1 => Some(0),
            2 => Some(-7),
            3 => Some(1_000),
            _ => Some(id % 50 + 1),
        };
        for id in 0..2_000 {
            conn.insert(&row(id, Some(id), id % 7, moment(id))).unwrap();
        }
        conn.session.commit().unwrap();
        let expired = (0..2_000).filter(|id| moment(*id).is_some_and(|m| m > 0 && m as u64 + LIFE <= 40)).count();
        assert!(expired > 200);
        assert_eq!(purge::pass(&db.store, 40).unwrap(), expired as u64);
        assert_eq!(purge::pass(&db.store, 40).unwrap(), 0);
        assert_eq!(db.stored(), 2_000 - expired);
        db.check();
    }
}

/// One statement sees a row everywhere or nowhere, whatever the clock does meanwhile; the next one sees the new moment.
#[test]
fn a_statement_has_one_present() {
    let db = Db::new(definition(false, false));
    db.at(100);
    let mut conn = db.conn();
    conn.insert(&row(1, None, 0, Some(100))).unwrap();
    conn.insert(&row(2, None, 0, Some(100))).unwrap();
    conn.session.commit().unwrap();
    conn.begin();
    conn.cursor.begin(None, false).unwrap();
    assert!(conn.cursor.seek(&mut conn.session, Seek::First, &[], &mut conn.record).unwrap());
    db.at(100 + LIFE);
    assert!(conn.cursor.next(&mut conn.session, &mut conn.record).unwrap());
    conn.session.statement_end();
    assert_eq!(conn.all(None, true).len(), 0);
    // Its own clock is the one that counts.
    conn.session.set_time(100);
    assert_eq!(conn.all(None, true).len(), 2);
}

/// What repeats events of rows sees expired ones, and puts rows in the place of those that its own clock takes for expired.
#[test]
fn an_applier_sees_expired_rows_and_puts_others_in_their_place() {
    let db = Db::new(definition(false, false));
    db.at(100);
    let mut conn = db.conn();
    conn.insert(&row(1, Some(1), 0, Some(100))).unwrap();
    conn.session.commit().unwrap();
    db.at(500);
    conn.session.set_sees_expired(true);
    // The event is of the time before the row expired.
    conn.session.set_time(105);
    assert!(conn.find(1).is_some());
    conn.session.statement_end();
    conn.session.set_time(105);
    conn.insert(&row(2, Some(1), 0, None)).unwrap();
    conn.session.commit().unwrap();
    let seen = conn.all(None, true);
    assert_eq!(seen, [row(2, Some(1), 0, None)]);
    db.check();
}

/// An entry of a unique index whose row is not there is damage: who inserts its value is told of a duplicate, and does not look for the row for
/// ever.
#[test]
fn an_entry_without_its_row_is_a_duplicate() {
    let db = Db::new(definition(false, false));
    db.at(100);
    let mut conn = db.conn();
    conn.insert(&row(1, Some(1), 0, Some(1))).unwrap();
    conn.session.commit().unwrap();
    let mut key = db.table.clustered.prefix().to_vec();
    key.extend_from_slice(&(1u32 ^ 1 << 31).to_be_bytes());
    let mut txn = db.store.engine().begin();
    txn.delete(&key).unwrap();
    txn.commit().unwrap();
    let refused = conn.insert(&row(2, Some(1), 0, None));
    assert!(matches!(refused, Err(Error::Duplicate(1))), "{refused:?}");
    conn.insert(&row(3, Some(3), 0, None)).unwrap();
    conn.session.commit().unwrap();
    assert_eq!(conn.all(None, true), [row(3, Some(3), 0, None)]);
}

/// A fill (a copy of a table) leaves out rows that have expired: they are no duplicates of each other, nor of rows that live, in any order. What
/// repeats events keeps them.
#[test]
fn a_fill_leaves_expired_rows_out() {
    let db = Db::new(definition(true, false));
    db.at(200);
    let fill = |conn: &mut Conn<'_>, rows: &[Values]| -> strata_row::Result<()> {
        conn.cursor.bulk_begin(&conn.session).unwrap();
        let done = rows.iter().try_for_each(|row| conn.insert(row));
        conn.cursor.bulk_end(done.is_err()).unwrap();
        done
    };
    let (expired, lives) = (row(1, Some(1), 0, Some(1)), row(2, Some(1), 0, Some(200)));
    let rows =
        [expired.clone(), row(1, Some(1), 0, Some(190)), lives.clone(), expired.clone(), row(1, Some(2), 0, None)];
    let mut conn = db.conn();
    fill(&mut conn, &rows).unwrap();
    assert_eq!(conn.all(None, true), [row(1, Some(2), 0, None), lives]);
    assert_eq!(db.stored(), 2);
    db.check();
    // Rows that live are duplicates as ever.
    let twice = fill(&mut conn, &[row(5, Some(5), 0, Some(191)), row(6, Some(5), 0, None)]);
    assert!(matches!(twice, Err(Error::Duplicate(1))), "{twice:?}");
    conn.session.set_sees_expired(true);
    fill(&mut conn, &[row(7, Some(7), 0, Some(1))]).unwrap();
    assert_eq!(db.stored(), 3);
}

/// A table is not touched while indexes are built, and a build that notes what changes meanwhile misses nothing.
#[test]
fn the_option_comes_goes_and_is_kept() {
    let db = Db::new(definition(false, false));
    db.at(200);
    let mut conn = db.conn();
    conn.insert(&row(1, None, 0, Some(1))).unwrap();
    conn.session.commit().unwrap();
    assert!(conn.find(1).is_none());
    conn.session.statement_end();
    conn.session.commit().unwrap();
    drop(conn);
    let sources: Vec<_> = (0..4).map(strata_row::catalog::alter::Source::Kept).collect();
    let alter = |def: &TableDef| {
        crate::common::alter_columns(&db.store, &[NAME.to_owned()], def, &sources, crate::common::NEVER).unwrap();
        let table = db.store.open_table(NAME, def.clone()).unwrap();
        let mut session = Session::new(&db.store, Box::new(|| false));
        let mut cursor = RowCursor::new(&table);
        session.statement_begin(Isolation::ReadCommitted, Duration::ZERO).unwrap();
        cursor.begin(None, false).unwrap();
        let mut record = vec![0; def.record_bytes as usize];
        let found = cursor.seek(&mut session, Seek::First, &[], &mut record).unwrap();
        session.statement_end();
        found
    };
    assert!(alter(&TableDef { ttl: None, ..db.def.clone() }));
    assert_eq!(purge::pass(&db.store, 200).unwrap(), 0);
    assert!(alter(&TableDef { ttl: Some("m + INTERVAL 1 DAY".into()), ..db.def.clone() }));
    assert!(!alter(&TableDef { ttl: Some("m".into()), ..db.def.clone() }));
    db.store.truncate_table(NAME).unwrap();
    db.store.rename_table(NAME, "./db/u").unwrap();
    assert!(db.store.catalog().get("./db/u").unwrap().ttl.is_some());
    // An option that means nothing changes nothing.
    let wrong = crate::common::alter_columns(
        &db.store,
        &["./db/u".to_owned()],
        &TableDef { ttl: Some("k + INTERVAL 1 DAY".into()), ..db.def.clone() },
        &sources,
        crate::common::NEVER,
    );
    assert!(matches!(wrong, Err(Error::WrongOption(_))), "{wrong:?}");
}

/// A transaction that reads the past sees what had not expired then, also once the purge has been there.
#[test]
fn the_past_shows_what_lived_then() {
    let db = Db::new(definition(false, false));
    db.at(1_000);
    db.store.engine().set_history_retention(10_000).unwrap();
    let mut conn = db.conn();
    for (id, moment) in [(1, Some(1_000)), (2, None)] {
        conn.insert(&row(id, None, 0, moment)).unwrap();
        conn.session.commit().unwrap();
    }
    for second in [1_005, 1_015, 1_020] {
        db.at(second);
        conn.insert(&row(second as i64, None, 0, None)).unwrap();
        conn.session.commit().unwrap();
    }
    assert_eq!(purge::pass(&db.store, 1_020).unwrap(), 1);
    let mut ids_at = |moment: u64| -> Vec<V> {
        conn.session.read_past(moment).unwrap();
        let rows = conn.all(None, true);
        conn.session.commit().unwrap();
        rows.into_iter().map(|row| row["id"].clone()).collect()
    };
    assert_eq!(ids_at(1_005), [1, 2].map(V::Int));
    assert_eq!(ids_at(1_015), [2, 1_005].map(V::Int));
}

/// The thread goes through all tables when it is told to, while tables are emptied, renamed, dropped and altered under it, ends at once, and
/// leaves rows and indexes in agreement.
#[test]
fn the_thread_and_changes_of_tables_keep_out_of_each_other() {
    let db = Db::new(definition(true, false));
    db.at(1_000);
    let name = |number: usize| format!("./db/t{number}");
    let count = 200;
    for number in 0..count {
        db.store.create_table(&name(number), &db.def, 0).unwrap();
    }
    let purge = purge::Purge::start(&db.store, true, Box::new(|present| present)).unwrap();
    let removed = || {
        let all = strata_row::metrics::values(&db.store);
        all.iter().find(|(metric, _)| metric.name == "ttl_rows_removed").unwrap().1
    };
    let fill = |name: &str| -> u64 {
        let Ok(table) = db.store.open_table(name, db.def.clone()) else { return 0 };
        let other = Db { table, ..db.again() };
        let mut conn = other.conn();
        for id in 0..10 {
            conn.insert(&row(id, Some(id), 0, if id < 7 { Some(1) } else { None })).unwrap();
        }
        conn.session.commit().unwrap();
        7
    };
    let all: u64 = (0..count).map(|number| fill(&name(number))).sum();
    purge.set_on(true);
    while removed() < all {
        purge.set_on(true);
        std::thread::yield_now();
    }
    assert_eq!(removed(), all);
    let sources: Vec<_> = (0..4).map(strata_row::catalog::alter::Source::Kept).collect();
    let kept: Vec<usize> = (0..db.def.indexes.len()).filter(|number| db.def.indexes[*number].name != "k").collect();
    let mut without = db.def.clone();
    without.indexes = kept.iter().map(|number| db.def.indexes[*number].clone()).collect();
    for number in 0..count {
        let (from, to) = (name(number), format!("./db/renamed{number}"));
        fill_expired(&db, &from);
        purge.set_on(true);
        match number % 4 {
            0 => db.store.truncate_table(&from).unwrap(),
            1 => db.store.rename_table(&from, &to).unwrap(),
            2 => db.store.drop_table(&from).unwrap(),
            _ => {
                let alteration = strata_row::store::Alteration {
                    def: without.clone(),
                    sources: sources.clone(),
                    kept: kept.iter().map(|number| Some(*number)).collect(),
                    statement: Default::default(),
                    keys: Default::default(),
                    rebuilds: false,
                    converts: false,
                    counter: None,
                };
                let altered = strata_row::store::AlteredTable { name: from, kept: kept.clone(), built: Vec::new() };
                db.store.alter_tables(&[altered], &alteration, crate::common::NEVER).unwrap();
            }
        }
    }
    drop(purge);
    let after = removed();
    std::thread::yield_now();
    assert_eq!(removed(), after);
    for name in db.store.catalog().names("./db/") {
        let def = if db.store.catalog().get(&name).unwrap().indexes.len() == 4 { &db.def } else { &without };
        let table = db.store.open_table(&name, def.clone()).unwrap();
        Db { table, def: def.clone(), ..db.again() }.check();
    }
}

/// Rows with other keys than those that are there.
fn fill_expired(db: &Db, name: &str) {
    let table = db.store.open_table(name, db.def.clone()).unwrap();
    let other = Db { table, ..db.again() };
    let mut conn = other.conn();
    for id in 100..400 {
        conn.insert(&row(id, Some(id), 0, Some(1))).unwrap();
    }
    conn.session.commit().unwrap();
}

/// Whatever operation of the disk fails while the purge is at work, and wherever the power is cut, a row goes with all its entries or not at
/// all, and the next pass removes the rest.
#[test]
fn a_failing_disk_leaves_whole_rows() {
    for after in 0..40 {
        let mut db = Db::new(definition(true, false));
        db.at(1_000);
        let mut conn = db.conn();
        for id in 0..600 {
            conn.insert(&row(id, Some(id), id % 7, if id % 3 > 0 { Some(1) } else { None })).unwrap();
        }
        conn.session.commit().unwrap();
        drop(conn);
        db.disk.fail_from(after, strata_engine::io::FaultKind::Other);
        let first = purge::pass(&db.store, 1_000);
        db.crash(after);
        db.check();
        let lives = db.conn().all(None, true).len();
        assert_eq!(lives, 200, "after {after}: {first:?}");
        purge::pass(&db.store, 1_000).unwrap();
        assert_eq!(db.stored(), 200);
        db.check();
    }
}
