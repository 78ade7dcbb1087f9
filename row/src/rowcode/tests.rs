use std::sync::Arc;

use crate::kv::IndexId;
use proptest::prelude::*;

use super::*;
use crate::catalog::alter::Source;
use crate::def::Index;
use crate::keycode::testkit::{
    self, Order, Row, SPECS, Spec, V, hex, part, same, table, tables, value_of, values, without,
};
use crate::schema::{Initial, TableMeta};

const CLUSTERED: IndexId = IndexId(0x20);

fn codecs(def: &TableDef) -> (Arc<KeyCodec>, RowCodec) {
    let key = Arc::new(KeyCodec::new(def, def.primary, CLUSTERED, CLUSTERED).unwrap());
    let rows = RowCodec::new(def, &key).unwrap();
    (key, rows)
}

fn encode(key: &KeyCodec, rows: &RowCodec, row: &Row) -> (Vec<u8>, Vec<u8>) {
    let (mut key_bytes, mut value) = (Vec::new(), vec![9; 9]);
    key.encode_record(row.record(), 77, &mut key_bytes).unwrap();
    rows.encode(row.record(), &mut value);
    (key_bytes, value)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn rows_come_back_as_they_were(plan in tables(), row in values(), wanted: u64) {
        let def = plan.def();
        let row = Row::new(SPECS, &def, row);
        let (key, rows) = codecs(&def);
        let (key_bytes, value) = encode(&key, &rows, &row);
        let wanted = ColumnSet::from_words(&[wanted], SPECS.len());
        for columns in [None, Some(&wanted)] {
            for filler in [0x00, 0xff] {
                let mut record = vec![filler; def.record_bytes as usize];
                rows.decode(&key_bytes, &value, &mut record, columns).unwrap();
                let asked = |i: usize| !SPECS[i].is_virtual && columns.is_none_or(|set| set.contains(i));
                for (i, column) in def.columns.iter().enumerate().filter(|(i, _)| asked(*i)) {
                    let got = value_of(&SPECS[i], column, &record);
                    prop_assert!(same(&got, &row.values[i]), "column {i}: {got:?}, not {:?}", row.values[i]);
                }
                let before = vec![filler; record.len()];
                prop_assert_eq!(without(&def, &record, asked), without(&def, &before, asked));
                if columns.is_none() {
                    // SAFETY: the BLOB slots point into `value`.
                    let again = unsafe { Record::new(&record) };
                    let mut out = Vec::new();
                    rows.encode(again, &mut out);
                    prop_assert_eq!(&out, &value);
                }
            }
        }
        // SAFETY: the record has the table's length and is used by nobody else.
        let mut record = vec![0; def.record_bytes as usize];
        unsafe { rows.decode_raw(&key_bytes, &value, record.as_mut_ptr(), None) }.unwrap();
        prop_assert!(same(&value_of(&SPECS[0], &def.columns[0], &record), &row.values[0]));
    }

    #[test]
    fn damaged_rows_are_errors_or_values_but_never_panics(
        plan in tables(),
        row in values(),
        (hits, cut) in testkit::damage(),
        wanted: u64,
    ) {
        let def = plan.def();
        let row = Row::new(SPECS, &def, row);
        let (key, rows) = codecs(&def);
        let (key_bytes, value) = encode(&key, &rows, &row);
        let mut record = vec![0; def.record_bytes as usize];
        let short = &value[..cut.index(value.len())];
        prop_assert!(rows.decode(&key_bytes, short, &mut record, None).is_err());
        let long = [&value[..], &[0]].concat();
        prop_assert!(rows.decode(&key_bytes, &long, &mut record, None).is_err());
        let mut hurt = value.clone();
        for (at, byte) in &hits {
            let at = at.index(hurt.len());
            hurt[at] = *byte;
        }
        let wanted = ColumnSet::from_words(&[wanted], SPECS.len());
        for columns in [None, Some(&wanted)] {
            let _ = rows.decode(&key_bytes, &hurt, &mut record, columns);
            let _ = rows.decode(&key_bytes, short, &mut record, columns);
            let _ = rows.decode(short, &value, &mut record, columns);
        }
    }
}

const ID: Spec =
    Spec { kind: ColumnType::Int { unsigned: true }, size: 4, nullable: false, order: None, is_virtual: false };
const LATIN: Option<Order> = Some(Order::Latin1 { ci: true, pad: true });

fn text(value: &[u8]) -> V {
    V::Bytes(value.to_vec())
}

fn example() -> (Vec<Spec>, TableDef) {
    let specs = vec![
        ID,
        Spec { kind: ColumnType::Int { unsigned: false }, nullable: true, ..ID },
        Spec { kind: ColumnType::Int { unsigned: false }, size: 2, ..ID },
        Spec { kind: ColumnType::Char, size: 8, order: LATIN, ..ID },
        Spec { kind: ColumnType::VarChar, size: 20, order: LATIN, nullable: true, ..ID },
        Spec { is_virtual: true, ..ID },
        Spec { kind: ColumnType::Blob, size: 0, order: Some(Order::Binary), nullable: true, ..ID },
    ];
    let mut def = table(&specs);
    def.indexes.push(Index::ordinary("PRIMARY", true, vec![part(&specs, 0, None, false)]));
    def.primary = Some(0);
    (specs, def)
}

/// Numbers of four and eight bytes have a way of their own out of a primary key.
#[test]
fn numbers_come_back_from_a_primary_key() {
    for size in [1, 2, 3, 4, 8] {
        for (unsigned, descending) in [(false, false), (false, true), (true, false), (true, true)] {
            let specs = [Spec { kind: ColumnType::Int { unsigned }, size, ..ID }];
            let mut def = table(&specs);
            def.indexes.push(Index::ordinary("PRIMARY", true, vec![part(&specs, 0, None, descending)]));
            def.primary = Some(0);
            let (key, rows) = codecs(&def);
            let span = 1i128 << (8 * size);
            let least = if unsigned { 0 } else { -span / 2 };
            for value in [least, least + 1, least + span / 2 - 1, least + span / 2, least + 0x35, least + span - 1] {
                let row = Row::new(&specs, &def, vec![V::Int(value)]);
                let (key_bytes, row_bytes) = encode(&key, &rows, &row);
                let mut record = vec![0xff; def.record_bytes as usize];
                rows.decode(&key_bytes, &row_bytes, &mut record, None).unwrap();
                let got = value_of(&specs[0], &def.columns[0], &record);
                assert!(same(&got, &V::Int(value)), "{size} bytes, descending {descending}: {got:?}, not {value}");
            }
        }
    }
}

fn documented(name: &str) -> String {
    testkit::documented(include_str!("../../../docs/develop/format/rows.md"), name)
}

#[test]
fn documented_examples_are_what_is_written() {
    let (specs, mut def) = example();
    let values = vec![V::Int(7), V::Int(-2), V::Int(258), text(b"ab"), text(b"x "), V::Int(1), text(b"\0\xff")];
    let row = Row::new(&specs, &def, values);
    let null = vec![V::Int(7), V::Null, V::Int(258), text(b""), V::Null, V::Int(1), V::Null];
    let null = Row::new(&specs, &def, null);
    let (key, rows) = codecs(&def);
    assert_eq!(hex(&encode(&key, &rows, &row).1), documented("row"));
    assert_eq!(hex(&encode(&key, &rows, &null).1), documented("row with NULL"));
    def.primary = None;
    let (key, rows) = codecs(&def);
    assert_eq!(hex(&encode(&key, &rows, &row).1), documented("row without primary key"));
}

#[test]
fn null_columns_are_left_with_empty_data() {
    let (specs, def) = example();
    let null = vec![V::Int(7), V::Null, V::Int(258), text(b""), V::Null, V::Int(1), V::Null];
    let row = Row::new(&specs, &def, null);
    let (key, rows) = codecs(&def);
    let (key_bytes, value) = encode(&key, &rows, &row);
    let mut record = vec![0xff; def.record_bytes as usize];
    rows.decode(&key_bytes, &value, &mut record, None).unwrap();
    let slot = |i: usize, bytes: usize| &record[def.columns[i].offset as usize..][..bytes];
    assert_eq!(slot(1, 4), [0; 4]);
    assert!(slot(4, def.columns[4].size as usize + 1).iter().all(|&byte| byte == 0));
    assert_eq!(slot(6, 10), [0; 10]);
}

#[test]
fn another_schema_version_is_refused() {
    let (specs, def) = example();
    let row = Row::new(&specs, &def, vec![V::Int(7), V::Null, V::Int(1), text(b""), V::Null, V::Int(1), V::Null]);
    let (key, rows) = codecs(&def);
    let (key_bytes, mut value) = encode(&key, &rows, &row);
    let mut record = vec![0; def.record_bytes as usize];
    for version in [0, 2] {
        value[0] = version;
        let error = rows.decode(&key_bytes, &value, &mut record, Some(&ColumnSet::new(8))).unwrap_err();
        assert!(error.to_string().contains("schema version"), "{error}");
    }
}

/// The example's table after a change: `k` wider, `n` gone, two columns more, the rest in another order.
fn altered() -> (TableMeta, TableDef) {
    let (specs, def) = example();
    let meta = TableMeta::new(&def, 1, 0, &mut || CLUSTERED).unwrap();
    let wide = Spec { size: 8, ..specs[1] };
    let new =
        vec![specs[6], specs[0], specs[6], wide, specs[4], specs[3], Spec { size: 2, nullable: false, ..specs[1] }];
    let mut new_def = table(&new);
    new_def.indexes.push(Index::ordinary("PRIMARY", true, vec![part(&new, 1, None, false)]));
    new_def.primary = Some(0);
    let blob = Source::Added(Initial::Value(b"blob".to_vec()));
    let sources =
        [Source::Kept(6), Source::Kept(0), blob, Source::Kept(1), Source::Kept(4), Source::Kept(3)].into_iter();
    let number = Source::Added(Initial::Value(vec![7, 0]));
    let meta = meta.with_columns(&new_def, &sources.chain([number]).collect::<Vec<_>>(), true).unwrap();
    (meta, new_def)
}

#[test]
fn a_row_of_an_earlier_version_is_read_as_one_of_today_and_written_as_such() {
    let (specs, def) = example();
    let values = vec![V::Int(7), V::Int(-2), V::Int(258), text(b"ab"), text(b"x "), V::Int(1), text(b"\0\xff")];
    let row = Row::new(&specs, &def, values);
    let (key, rows) = codecs(&def);
    let (key_bytes, value) = encode(&key, &rows, &row);
    let (meta, new_def) = altered();
    let new_rows = RowCodec::versioned(&meta, &new_def, &codecs(&new_def).0).unwrap();
    let mut record = vec![0xff; new_def.record_bytes as usize];
    new_rows.decode(&key_bytes, &value, &mut record, None).unwrap();
    let wide = Spec { size: 8, ..specs[1] };
    let new = [specs[6], specs[0], specs[6], wide, specs[4], specs[3], Spec { size: 2, nullable: false, ..specs[1] }];
    let expected = [text(b"\0\xff"), V::Int(7), text(b"blob"), V::Int(-2), text(b"x "), text(b"ab"), V::Int(7)];
    for (i, expected) in expected.iter().enumerate() {
        let got = value_of(&new[i], &new_def.columns[i], &record);
        assert!(same(&got, expected), "column {i}: {got:?}, not {expected:?}");
    }
    // Only what is asked for is touched.
    let mut wanted = ColumnSet::new(new.len());
    wanted.insert(6);
    let mut some = vec![0xff; new_def.record_bytes as usize];
    new_rows.decode(&key_bytes, &value, &mut some, Some(&wanted)).unwrap();
    assert_eq!(without(&new_def, &some, |i| i == 6), without(&new_def, &vec![0xff; some.len()], |i| i == 6));
    assert!(same(&value_of(&new[6], &new_def.columns[6], &some), &V::Int(7)));
    // Written again it is of the second version.
    let mut again = Vec::new();
    // SAFETY: the BLOB slots point into `value`, or to the initial value.
    new_rows.encode(unsafe { Record::new(&record) }, &mut again);
    assert_eq!(hex(&again), documented("row of schema version 2"));
    assert!(rows.decode(&key_bytes, &again, &mut vec![0; def.record_bytes as usize], None).is_err());
    new_rows.decode(&key_bytes, &again, &mut some, None).unwrap();
    // Damage is an error or a value.
    for at in 0..value.len() {
        assert!(new_rows.decode(&key_bytes, &value[..at], &mut record, None).is_err());
        for bit in 0..8 {
            let mut hurt = value.clone();
            hurt[at] ^= 1 << bit;
            let _ = new_rows.decode(&key_bytes, &hurt, &mut record, None);
            let _ = new_rows.decode(&key_bytes, &hurt, &mut record, Some(&wanted));
        }
    }
    assert!(new_rows.decode(&key_bytes, &[&value[..], &[0]].concat(), &mut record, None).is_err());
}

#[test]
fn reading_ends_at_the_last_column_asked_for() {
    let (specs, def) = example();
    let row = Row::new(&specs, &def, vec![V::Int(7), V::Int(3), V::Int(1), text(b"x"), V::Null, V::Int(1), V::Null]);
    let (key, rows) = codecs(&def);
    let (key_bytes, value) = encode(&key, &rows, &row);
    let mut record = vec![0; def.record_bytes as usize];
    let mut columns = ColumnSet::new(specs.len());
    columns.insert(1);
    // Version, NULL bits, and the four bytes of column 1: nothing beyond is looked at.
    rows.decode(&key_bytes, &value[..6], &mut record, Some(&columns)).unwrap();
    assert_eq!(testkit::value_of(&specs[1], &def.columns[1], &record), V::Int(3));
    columns.insert(2);
    assert!(rows.decode(&key_bytes, &value[..6], &mut record, Some(&columns)).is_err());
}

#[test]
fn a_secondary_codec_is_not_the_one_of_rows() {
    let (specs, mut def) = example();
    def.indexes.push(Index::ordinary("second", false, vec![part(&specs, 1, None, false)]));
    let second = Arc::new(KeyCodec::new(&def, Some(1), IndexId(0x21), CLUSTERED).unwrap());
    assert!(matches!(RowCodec::new(&def, &second), Err(CodecError::Definition(_))));
}
