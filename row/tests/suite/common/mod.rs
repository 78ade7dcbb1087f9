//! A table with a composite clustered key, a text index, a unique index and a mixed descending one; records and key images
//! as the server makes them.
#![allow(dead_code)]

pub mod related;
pub mod values;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strata_row::Result;
use strata_row::catalog::alter::Source;
use strata_row::def::{Column, ColumnType, Index, KeyPart, TableDef};
use strata_row::foreign::{KeyChange, Statement};
use strata_row::isolation::{Isolation, Waiting};
use strata_row::keycode::collations::{Binary, Latin1};
use strata_row::kv::{Engine, LockMode, Options};
use strata_row::rowcode::Record;
use strata_row::scan::{RowCursor, Seek};
use strata_row::session::Session;
use strata_row::store::{Alteration, AlteredTable, Store};
use strata_row::table::Table;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Row {
    pub c: i64,
    pub a: i32,
    pub b: Option<String>,
    pub d: Option<Vec<u8>>,
    pub e: Option<i32>,
}

/// No statement is killed.
pub const NEVER: &dyn Fn() -> bool = &|| false;

pub const RECORD: usize = 48;
pub const PRIMARY: usize = 0;
pub const BY_B: usize = 1;
pub const BY_E: usize = 2;
pub const BY_B_A: usize = 3;

pub fn row(c: i64, a: i32, b: Option<&str>, e: Option<i32>) -> Row {
    Row { c, a, b: b.map(str::to_owned), d: Some(format!("blob {c} {a}").into_bytes()), e }
}

impl Row {
    pub fn record(&self) -> Vec<u8> {
        let mut r = vec![0; RECORD];
        r[1..5].copy_from_slice(&self.a.to_le_bytes());
        match &self.b {
            Some(b) => {
                r[5] = b.len() as u8;
                r[6..6 + b.len()].copy_from_slice(b.as_bytes());
            }
            None => r[0] |= 1,
        }
        r[26..34].copy_from_slice(&self.c.to_le_bytes());
        match &self.d {
            Some(d) => {
                r[34..36].copy_from_slice(&(d.len() as u16).to_le_bytes());
                r[36..44].copy_from_slice(&(d.as_ptr() as usize).to_le_bytes());
            }
            None => r[0] |= 2,
        }
        match self.e {
            Some(e) => r[44..48].copy_from_slice(&e.to_le_bytes()),
            None => r[0] |= 4,
        }
        r
    }
    pub fn read(r: &[u8]) -> Row {
        let b = (r[0] & 1 == 0).then(|| String::from_utf8(r[6..6 + r[5] as usize].to_vec()).unwrap());
        let d = (r[0] & 2 == 0).then(|| {
            let n = u16::from_le_bytes([r[34], r[35]]) as usize;
            let p = usize::from_le_bytes(r[36..44].try_into().unwrap()) as *const u8;
            if n == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(p, n) }.to_vec() }
        });
        Row {
            a: i32::from_le_bytes(r[1..5].try_into().unwrap()),
            b,
            c: i64::from_le_bytes(r[26..34].try_into().unwrap()),
            d,
            e: (r[0] & 4 == 0).then(|| i32::from_le_bytes(r[44..48].try_into().unwrap())),
        }
    }
}

pub fn image_c(c: i64) -> Vec<u8> {
    c.to_le_bytes().to_vec()
}
pub fn image_ca(c: i64, a: i32) -> Vec<u8> {
    [image_c(c), a.to_le_bytes().to_vec()].concat()
}
pub fn image_b(b: Option<&str>, width: usize) -> Vec<u8> {
    let mut out = vec![0; 1 + 2 + width];
    match b {
        Some(b) => {
            out[1..3].copy_from_slice(&(b.len() as u16).to_le_bytes());
            out[3..3 + b.len()].copy_from_slice(b.as_bytes());
        }
        None => out[0] = 1,
    }
    out
}
pub fn image_e(e: Option<i32>) -> Vec<u8> {
    match e {
        Some(e) => [vec![0], e.to_le_bytes().to_vec()].concat(),
        None => vec![1, 0, 0, 0, 0],
    }
}

pub fn definition(hidden: bool) -> TableDef {
    let column = |name: &str, kind, offset, size, null_mask| Column {
        name: name.into(),
        kind,
        is_virtual: false,
        length_bytes: 0,
        null_offset: 0,
        null_mask,
        null_first: 0,
        offset,
        size,
        collation: None,
        is_moment: false,
    };
    let int = ColumnType::Int { unsigned: false };
    let part = |column, length, store_length| KeyPart { column, length, descending: false, store_length };
    let mut b = column("b", ColumnType::VarChar, 5, 20, 1);
    b.length_bytes = 1;
    b.collation = Some(Arc::new(Latin1 { ci: true, pad: true }));
    let mut d = column("d", ColumnType::Blob, 34, 0, 2);
    d.length_bytes = 2;
    d.collation = Some(Arc::new(Binary));
    let columns = vec![column("a", int, 1, 4, 0), b, column("c", int, 26, 8, 0), d, column("e", int, 44, 4, 4)];
    TableDef {
        indexes: vec![
            Index::ordinary(if hidden { "ca" } else { "PRIMARY" }, !hidden, vec![part(2, 8, 8), part(0, 4, 4)]),
            Index::ordinary("b", false, vec![part(1, 20, 23)]),
            Index::ordinary("e", true, vec![part(4, 4, 5)]),
            Index::ordinary("b_a", false, vec![part(1, 3, 6), KeyPart { descending: true, ..part(0, 4, 4) }]),
        ],
        primary: if hidden { None } else { Some(0) },
        autoinc_column: Some(2),
        version: [1; 16],
        ..TableDef::of_columns(columns, 1, RECORD as u32)
    }
}

pub struct Client {
    pub session: Session,
    pub cursor: RowCursor,
    pub record: Vec<u8>,
    pub isolation: Isolation,
    pub timeout: Duration,
}

impl Client {
    pub fn new(store: &Arc<Store>, table: &Arc<Table>) -> Client {
        Client {
            session: Session::new(store, Box::new(|| false)),
            cursor: RowCursor::new(table),
            record: vec![0; RECORD],
            isolation: Isolation::RepeatableRead,
            timeout: Duration::from_secs(20),
        }
    }
    pub fn begin(&mut self) {
        self.try_begin().unwrap();
    }
    /// An error where a background write failed just before: then no statement begins any more.
    fn try_begin(&mut self) -> Result<()> {
        self.session.statement_begin(self.isolation, self.timeout)
    }
    pub fn locking(&mut self, lock: Option<LockMode>) -> &mut Client {
        self.cursor.set_mode(lock, Waiting::Wait);
        self
    }
    pub fn insert(&mut self, r: &Row) -> Result<()> {
        self.try_begin()?;
        let bytes = r.record();
        let result = self.cursor.insert(&mut self.session, unsafe { Record::new(&bytes) });
        self.session.statement_end();
        result
    }
    /// First row of an exact search.
    pub fn get(&mut self, index: usize, image: &[u8]) -> Result<Option<Row>> {
        self.try_begin()?;
        self.cursor.begin(Some(index), false)?;
        let found = self.cursor.seek(&mut self.session, Seek::Exact, image, &mut self.record)?;
        Ok(found.then(|| Row::read(&self.record)))
    }
    pub fn update(&mut self, old: &Row, new: &Row) -> Result<()> {
        self.locking(Some(LockMode::Exclusive));
        let found = self.get(PRIMARY, &image_ca(old.c, old.a))?;
        assert_eq!(found.as_ref(), Some(old));
        let result = self.write(old, new);
        self.session.statement_end();
        self.locking(None);
        result
    }
    /// Writes over a row without reading it.
    pub fn write(&mut self, old: &Row, new: &Row) -> Result<()> {
        self.try_begin()?;
        let (old, new) = (old.record(), new.record());
        let (old, new) = unsafe { (Record::new(&old), Record::new(&new)) };
        self.cursor.update(&mut self.session, old, new).map(drop)
    }
    pub fn delete(&mut self, old: &Row) -> Result<()> {
        self.locking(Some(LockMode::Exclusive));
        let found = self.get(PRIMARY, &image_ca(old.c, old.a))?;
        assert_eq!(found.as_ref(), Some(old));
        let bytes = old.record();
        let result = self.cursor.delete(&mut self.session, unsafe { Record::new(&bytes) });
        self.session.statement_end();
        self.locking(None);
        result
    }
    /// Deletes all rows, and says how many there were.
    pub fn delete_all(&mut self) -> usize {
        self.locking(Some(LockMode::Exclusive));
        self.begin();
        self.cursor.begin(None, false).unwrap();
        let mut rows = 0;
        let mut found = self.cursor.seek(&mut self.session, Seek::First, &[], &mut self.record).unwrap();
        while found {
            self.cursor.delete(&mut self.session, unsafe { Record::new(&self.record) }).unwrap();
            rows += 1;
            found = self.cursor.next(&mut self.session, &mut self.record).unwrap();
        }
        self.session.statement_end();
        self.locking(None);
        rows
    }
    pub fn scan(&mut self, index: Option<usize>, forward: bool) -> Result<Vec<Row>> {
        self.try_begin()?;
        self.cursor.begin(index, false)?;
        let mut rows = Vec::new();
        let mode = if forward { Seek::First } else { Seek::Last };
        let mut found = self.cursor.seek(&mut self.session, mode, &[], &mut self.record)?;
        while found {
            rows.push(Row::read(&self.record));
            found = match forward {
                true => self.cursor.next(&mut self.session, &mut self.record)?,
                false => self.cursor.prev(&mut self.session, &mut self.record)?,
            };
        }
        self.session.statement_end();
        Ok(rows)
    }
    pub fn count(&mut self, index: usize) -> usize {
        self.begin();
        count(&mut self.cursor, &mut self.session, &mut self.record, index)
    }
    pub fn position(&self, record: &[u8], out: &mut [u8]) {
        let id = self.cursor.position_id().load(std::sync::atomic::Ordering::Relaxed);
        let record = unsafe { Record::new(record) };
        self.cursor.table().position(record, id, &mut Vec::new(), out).unwrap();
    }
    pub fn commit(&mut self) {
        self.session.commit().unwrap();
    }
    pub fn check(&self) {
        let mut lines = Vec::new();
        let good = self.cursor.table().check(&self.session, false, None, &mut |l| lines.push(l.to_owned())).unwrap();
        assert!(good, "{lines:?}");
    }
}

/// Rows of an index, counted from its entries alone, in a statement that has begun and is ended.
pub fn count(cursor: &mut RowCursor, session: &mut Session, record: &mut [u8], index: usize) -> usize {
    cursor.begin(Some(index), true).unwrap();
    let mut count = 0;
    let mut found = cursor.seek(session, Seek::First, &[], record).unwrap();
    while found {
        count += 1;
        found = cursor.next(session, record).unwrap();
    }
    session.statement_end();
    count
}

pub fn open(dir: &Path) -> Arc<Store> {
    // So little that a statement of a dozen rows is a large transaction, and that of one row is not.
    Store::open(dir, Options { transaction_bytes: 2 << 10, ..Options::default() }).unwrap()
}

pub fn fresh(dir: &Path) -> (Arc<Store>, Arc<Table>) {
    let store = open(dir);
    let table = made(&store, "./db/t", definition(false));
    (store, table)
}

/// Gives tables the columns of `def`; their indexes stay.
pub fn alter_columns(
    store: &Store,
    names: &[String],
    def: &TableDef,
    sources: &[Source],
    is_killed: &dyn Fn() -> bool,
) -> Result<()> {
    let alteration = Alteration {
        def: def.clone(),
        sources: sources.to_vec(),
        kept: (0..def.indexes.len()).map(Some).collect(),
        statement: Statement::default(),
        keys: KeyChange::default(),
        rebuilds: false,
        converts: false,
        counter: None,
    };
    let table = |name: &String| -> Result<AlteredTable> {
        let kept = (0..store.catalog().get(name)?.indexes.len()).collect();
        Ok(AlteredTable { name: name.clone(), kept, built: Vec::new() })
    };
    let tables = names.iter().map(table).collect::<Result<Vec<_>>>()?;
    store.alter_tables(&tables, &alteration, is_killed)
}

/// Makes a table and opens it.
pub fn made(store: &Arc<Store>, name: &str, def: TableDef) -> Arc<Table> {
    store.create_table(name, &def, 0).unwrap();
    store.open_table(name, def).unwrap()
}

/// What is left of transactions and cursors, but for long values in buffers: they are counted for the whole process, and
/// other tests hold some.
pub fn left_behind(engine: &Engine) -> Vec<(&'static str, u64)> {
    let left = engine.metrics().left_behind();
    left.into_iter().filter(|(name, _)| *name != "memory_value_buffer_bytes").collect()
}
