//! Nanoseconds per call of the key and row codecs, for a sysbench row and a TPC-C order line.
//!
//! `cargo run --release -p strata-row --example bench_codec`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use strata_engine::layer::IndexId;
use strata_row::def::{Collation, Column, ColumnType, Index, KeyPart, TableDef};
use strata_row::keycode::KeyCodec;
use strata_row::keycode::collations::{Latin1, Utf8};
use strata_row::rowcode::{ColumnSet, Record, RowCodec};

const INT: ColumnType = ColumnType::Int { unsigned: false };
const ROUNDS: u32 = 2_000_000;

struct Builder {
    def: TableDef,
    nulls: u32,
}

impl Builder {
    fn new(null_bytes: u32) -> Builder {
        Builder { def: TableDef::of_columns(Vec::new(), null_bytes, null_bytes), nulls: 1 }
    }

    fn column(&mut self, kind: ColumnType, size: u32, nullable: bool, collation: Option<Arc<dyn Collation>>) {
        let length_bytes = if kind == ColumnType::VarChar { 1 + u8::from(size > 255) } else { 0 };
        self.def.columns.push(Column {
            name: format!("c{}", self.def.columns.len()),
            kind,
            is_virtual: false,
            length_bytes,
            null_offset: self.nulls / 8,
            null_mask: if nullable { 1 << (self.nulls % 8) } else { 0 },
            null_first: 0,
            offset: self.def.record_bytes,
            size,
            collation,
            is_moment: false,
        });
        self.nulls += u32::from(nullable);
        self.def.record_bytes += size + u32::from(length_bytes);
    }

    fn index(&mut self, columns: &[u32]) {
        let parts = columns.iter().map(|&column| {
            let c = &self.def.columns[column as usize];
            let lengths = if c.kind == ColumnType::VarChar { 2 } else { 0 };
            let store_length = c.size + lengths + u32::from(c.null_mask != 0);
            KeyPart { column, length: c.size, descending: false, store_length }
        });
        self.def.indexes.push(Index::ordinary("", false, parts.collect()));
    }
}

fn time(what: &str, mut call: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            call();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    println!("{what:<52} {best:7.1} ns");
}

fn run(name: &str, def: &TableDef, record: &[u8], some: &[usize]) {
    let main = Arc::new(KeyCodec::new(def, Some(0), IndexId(16), IndexId(16)).expect("primary key"));
    let second = KeyCodec::new(def, Some(1), IndexId(17), IndexId(16)).expect("index");
    let rows = RowCodec::new(def, &main).expect("rows");
    // SAFETY: the table has no BLOB.
    let view = unsafe { Record::new(record) };
    let (mut key, mut value, mut entry, mut unpack, mut out) = (vec![], vec![], vec![], vec![], vec![]);
    let mut filled = vec![0; record.len()];
    main.encode_record(view, 0, &mut key).expect("key");
    rows.encode(view, &mut value);
    second.encode_record(view, 0, &mut entry).expect("entry");
    second.encode_value(view, 0, &mut unpack).expect("entry");
    println!(
        "{name}: record {} bytes, key {}, row {}, index entry {} + {}",
        record.len(),
        key.len(),
        value.len(),
        entry.len(),
        unpack.len()
    );
    time("  clustered key: encode", || main.encode_record(black_box(view), 0, &mut out).expect("key"));
    time("  row: encode", || rows.encode(black_box(view), &mut out));
    time("  row: decode all", || {
        rows.decode(black_box(&key), black_box(&value), &mut filled, None).expect("row");
    });
    let mut columns = ColumnSet::new(def.columns.len());
    some.iter().for_each(|&column| columns.insert(column));
    time(&format!("  row: decode columns {some:?}"), || {
        rows.decode(black_box(&key), black_box(&value), &mut filled, Some(&columns)).expect("row");
    });
    time("  index entry: encode key and value", || {
        second.encode_record(black_box(view), 0, &mut out).expect("entry");
        second.encode_value(black_box(view), 0, &mut unpack).expect("entry");
    });
    time("  index entry: clustered key", || {
        second.clustered_key_from(black_box(&entry), black_box(&unpack), &mut out).expect("entry");
    });
    time("  index entry: covering decode", || {
        second.decode_into(black_box(&entry), black_box(&unpack), &mut filled, None).expect("entry");
    });
}

fn put(record: &mut [u8], def: &TableDef, column: usize, bytes: &[u8]) {
    record[def.columns[column].offset as usize..][..bytes.len()].copy_from_slice(bytes);
}

fn main() {
    for (name, collation) in [
        ("sysbench, latin1", Arc::new(Latin1 { ci: true, pad: true }) as Arc<dyn Collation>),
        ("sysbench, utf8mb4", Arc::new(Utf8 { weight: 2, pad: true })),
    ] {
        let wide = u32::from(collation.traits().mbmaxlen);
        let mut table = Builder::new(1);
        table.column(INT, 4, false, None);
        table.column(INT, 4, false, None);
        table.column(ColumnType::Char, 120 * wide, false, Some(Arc::clone(&collation)));
        table.column(ColumnType::Char, 60 * wide, false, Some(collation));
        table.index(&[0]);
        table.index(&[1]);
        table.def.primary = Some(0);
        let def = table.def;
        let mut record = vec![b' '; def.record_bytes as usize];
        record[0] = 0;
        put(&mut record, &def, 0, &4711u32.to_le_bytes());
        put(&mut record, &def, 1, &502_113u32.to_le_bytes());
        put(&mut record, &def, 2, &"08566691963-".repeat(10).as_bytes()[..119]);
        put(&mut record, &def, 3, &"67847967377-".repeat(5).as_bytes()[..59]);
        run(name, &def, &record, &[2]);
    }

    // order_line: o_id, d_id, w_id, number; i_id, supply_w_id, delivery_d, quantity, amount, dist_info.
    let latin = || Some(Arc::new(Latin1 { ci: true, pad: true }) as Arc<dyn Collation>);
    let mut table = Builder::new(1);
    table.column(INT, 4, false, None);
    table.column(INT, 1, false, None);
    table.column(INT, 2, false, None);
    table.column(INT, 1, false, None);
    table.column(INT, 4, true, None);
    table.column(INT, 2, true, None);
    table.column(ColumnType::Bytes, 5, true, None);
    table.column(INT, 1, true, None);
    table.column(ColumnType::Bytes, 3, true, None);
    table.column(ColumnType::Char, 24, true, latin());
    table.index(&[2, 1, 0, 3]);
    table.index(&[5, 4]);
    table.def.primary = Some(0);
    let def = table.def;
    let mut record = vec![1; def.record_bytes as usize];
    record[0] = 0;
    put(&mut record, &def, 9, b"abcdefghijklmnopqrstuvwx");
    run("TPC-C order_line", &def, &record, &[4, 8]);

    // customer by name: (w_id, d_id, last VARCHAR(16), first VARCHAR(16)), key (w_id, d_id, id).
    let mut table = Builder::new(1);
    table.column(INT, 4, false, None);
    table.column(INT, 1, false, None);
    table.column(INT, 2, false, None);
    table.column(ColumnType::VarChar, 16, false, latin());
    table.column(ColumnType::VarChar, 16, false, latin());
    table.index(&[2, 1, 0]);
    table.index(&[2, 1, 3, 4]);
    table.def.primary = Some(0);
    let def = table.def;
    let mut record = vec![1; def.record_bytes as usize];
    record[0] = 0;
    put(&mut record, &def, 3, b"\x0cBARBARABLEXX");
    put(&mut record, &def, 4, b"\x08franklin");
    run("TPC-C customer by name", &def, &record, &[3]);
}
