use std::cmp::Ordering;

use proptest::prelude::*;

use super::collations::Latin1;
use super::testkit::{
    self, Order, Row, SPECS, Spec, V, compare, hex, image, part, same, table, tables, two_rows, values, without,
};
use super::*;
use crate::def::{ColumnType, Index, KeyPart, TableDef};
use crate::rowcode::layout::Layout;

const CLUSTERED: IndexId = IndexId(0x20);
const SECOND: IndexId = IndexId(0x21);

fn clustered(def: &TableDef) -> KeyCodec {
    KeyCodec::new(def, def.primary, CLUSTERED, CLUSTERED).unwrap()
}

fn second(def: &TableDef) -> KeyCodec {
    KeyCodec::new(def, Some(def.indexes.len() - 1), SECOND, CLUSTERED).unwrap()
}

fn primary_parts(def: &TableDef) -> &[KeyPart] {
    def.primary.map_or(&[], |number| &def.indexes[number].parts)
}

fn own_parts(def: &TableDef) -> &[KeyPart] {
    &def.indexes[def.indexes.len() - 1].parts
}

fn compare_rows(parts: &[KeyPart], a: &Row, b: &Row) -> Ordering {
    parts.iter().fold(Ordering::Equal, |order, part| {
        let column = part.column as usize;
        order.then_with(|| compare(&SPECS[column], part, &a.values[column], &b.values[column]))
    })
}

fn key(codec: &KeyCodec, row: &Row, row_id: u64) -> Vec<u8> {
    let mut out = vec![7; 3];
    codec.encode_record(row.record(), row_id, &mut out).unwrap();
    assert!(out.len() <= codec.max_key_bytes(), "{} bytes, at most {}", out.len(), codec.max_key_bytes());
    out
}

fn value(codec: &KeyCodec, row: &Row, row_id: u64) -> Vec<u8> {
    let mut out = vec![7; 3];
    codec.encode_value(row.record(), row_id, &mut out).unwrap();
    out
}

fn own(codec: &KeyCodec, row: &Row) -> Vec<u8> {
    let mut out = vec![7; 3];
    codec.encode_own_parts(row.record(), &mut out).unwrap();
    out
}

/// What covers() should say: the whole column is in the index or the primary key.
fn covered(def: &TableDef, column: usize) -> bool {
    own_parts(def).iter().chain(primary_parts(def)).any(|part| {
        part.column as usize == column
            && SPECS[column].kind != ColumnType::Blob
            && part.length == testkit::part(SPECS, column, None, false).length
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn keys_sort_as_values_do(plan in tables(), (a, b) in two_rows(), ids in (0u64..3, 0u64..3)) {
        let def = plan.def();
        let (a, b) = (Row::new(SPECS, &def, a), Row::new(SPECS, &def, b));
        let codec = second(&def);
        let expected = compare_rows(own_parts(&def), &a, &b);
        prop_assert_eq!(own(&codec, &a).cmp(&own(&codec, &b)), expected);

        let main = clustered(&def);
        let (main_a, main_b) = (key(&main, &a, ids.0), key(&main, &b, ids.1));
        let by_primary = match def.primary {
            Some(_) => compare_rows(primary_parts(&def), &a, &b),
            None => ids.0.cmp(&ids.1),
        };
        prop_assert_eq!(main_a.cmp(&main_b), by_primary);

        let (key_a, key_b) = (key(&codec, &a, ids.0), key(&codec, &b, ids.1));
        let unique = codec.is_unique() && !codec.has_null_part(a.record());
        if expected != Ordering::Equal || unique {
            prop_assert_eq!(key_a.cmp(&key_b), expected);
        } else {
            prop_assert_eq!(key_a == key_b, by_primary == Ordering::Equal);
            let shared = |part: &KeyPart| own_parts(&def).iter().any(|own| own.column == part.column);
            if !primary_parts(&def).iter().any(shared) {
                prop_assert_eq!(key_a.cmp(&key_b), by_primary);
            }
        }
    }

    #[test]
    fn covering_reads_restore_values_and_nothing_else(plan in tables(), row in values(), row_id: u64, wanted: u64) {
        let def = plan.def();
        let row = Row::new(SPECS, &def, row);
        let codec = second(&def);
        let (key, value) = (key(&codec, &row, row_id), value(&codec, &row, row_id));
        let wanted = ColumnSet::from_words(&[wanted], SPECS.len());
        for columns in [None, Some(&wanted)] {
            for filler in [0x00, 0xff] {
                let mut record = vec![filler; def.record_bytes as usize];
                codec.decode_into(&key, &value, &mut record, columns).unwrap();
                let asked = |i: usize| codec.covers(i) && columns.is_none_or(|set| set.contains(i));
                for (i, column) in def.columns.iter().enumerate() {
                    prop_assert_eq!(codec.covers(i), covered(&def, i), "column {}", i);
                    if asked(i) {
                        let got = testkit::value_of(&SPECS[i], column, &record);
                        prop_assert!(same(&got, &row.values[i]), "column {i}: {got:?}, not {:?}", row.values[i]);
                    }
                }
                let before = vec![filler; record.len()];
                prop_assert_eq!(without(&def, &record, asked), without(&def, &before, asked));
            }
        }
    }

    #[test]
    fn the_clustered_key_comes_out_of_a_secondary_entry(plan in tables(), row in values(), row_id: u64) {
        let def = plan.def();
        let row = Row::new(SPECS, &def, row);
        let codec = second(&def);
        let main = clustered(&def);
        let (key_, value) = (key(&codec, &row, row_id), value(&codec, &row, row_id));
        let mut found = vec![1];
        codec.clustered_key_from(&key_, &value, &mut found).unwrap();
        prop_assert_eq!(&found, &key(&main, &row, row_id));
        if def.primary.is_none() {
            prop_assert_eq!(main.row_id(&found).unwrap(), row_id);
        } else {
            prop_assert!(main.row_id(&found).is_err());
        }

        let entry = codec.split(&key_, &value).unwrap();
        prop_assert_eq!(entry.own, &own(&codec, &row)[..]);
        prop_assert_eq!(entry.has_null, codec.has_null_part(row.record()));
        let null = own_parts(&def).iter().any(|part| row.values[part.column as usize] == V::Null);
        prop_assert_eq!(entry.has_null, null);
        let in_value = codec.is_unique() && !null;
        prop_assert_eq!(in_value, def.indexes[def.indexes.len() - 1].unique && !null);
        prop_assert_eq!(key_.len(), entry.own.len() + if in_value { 0 } else { entry.suffix.len() });
        let mut unpack = Vec::new();
        codec.encode_unpack(row.record(), &mut unpack);
        prop_assert_eq!(entry.unpack, &unpack[..]);

        let mut ends = vec![9];
        codec.part_ends(&key_, &mut ends).unwrap();
        prop_assert_eq!(ends.len(), if in_value { codec.own_parts() } else { codec.parts() });
        prop_assert_eq!(ends[codec.own_parts() - 1], entry.own.len());
        prop_assert_eq!(*ends.last().unwrap(), key_.len());
        prop_assert!(ends.windows(2).all(|pair| pair[0] < pair[1]) || own_parts(&def).iter().any(|p| p.length == 0));
    }

    #[test]
    fn a_key_image_encodes_to_a_prefix_of_the_key(plan in tables(), row in values(), row_id: u64, take in 0usize..8) {
        let def = plan.def();
        let row = Row::new(SPECS, &def, row);
        let codec = second(&def);
        // The server's extended keys: columns of the primary key that are not in the index, if all is whole.
        let whole = |part: &KeyPart| part.length == part_of(part).length && SPECS[part.column as usize].kind != ColumnType::Blob;
        fn part_of(p: &KeyPart) -> KeyPart { part(SPECS, p.column as usize, None, false) }
        let mut parts: Vec<&KeyPart> = own_parts(&def).iter().collect();
        let unique = codec.is_unique() && !codec.has_null_part(row.record());
        if parts.iter().all(|part| whole(part)) && !unique {
            for part in primary_parts(&def) {
                if own_parts(&def).iter().all(|own| own.column != part.column) {
                    parts.push(part);
                }
            }
        }
        parts.truncate(take);
        let mut found = vec![1];
        let image = image(SPECS, &parts, &row.values);
        let given = codec.encode_image(&image, &mut found).unwrap();
        prop_assert_eq!(given.parts, parts.len());
        prop_assert_eq!(given.has_null, parts.iter().any(|part| row.values[part.column as usize] == V::Null));
        let key = key(&codec, &row, row_id);
        let mut ends = Vec::new();
        codec.part_ends(&key, &mut ends).unwrap();
        let end = if parts.is_empty() { 4 } else { ends[parts.len() - 1] };
        prop_assert_eq!(&found[..], &key[..end]);
        if parts.last().is_some_and(|part| part.store_length > 1) {
            prop_assert!(matches!(codec.encode_image(&image[..image.len() - 1], &mut found), Err(CodecError::Image(_))));
        }
    }

    #[test]
    fn damaged_entries_never_panic(
        plan in tables(),
        row in values(),
        (hits, cut) in testkit::damage(),
        whole: bool,
        on_value: bool,
    ) {
        let def = plan.def();
        let row = Row::new(SPECS, &def, row);
        let codec = second(&def);
        let (mut key, mut value) = (key(&codec, &row, 5), value(&codec, &row, 5));
        let target = if on_value { &mut value } else { &mut key };
        if !target.is_empty() {
            for (at, byte) in &hits {
                let at = at.index(target.len());
                target[at] = *byte;
            }
            if !whole {
                let keep = cut.index(target.len());
                target.truncate(keep);
            }
        }
        let mut record = vec![0; def.record_bytes as usize];
        let mut out = Vec::new();
        let _ = codec.decode_into(&key, &value, &mut record, None);
        let _ = codec.decode_into(&key, &value, &mut record, Some(&ColumnSet::new(1)));
        let split = codec.split(&key, &value).is_ok();
        prop_assert_eq!(codec.clustered_key_from(&key, &value, &mut out).is_ok(), split);
        if codec.part_ends(&key, &mut Vec::new()).is_err() {
            prop_assert!(!split);
        }
        // A byte that was hit may end a string earlier, where the key was cut.
        if hits.is_empty() && !whole && !on_value {
            prop_assert!(!split, "a shortened key went unnoticed");
        }
        let _ = clustered(&def).decode_key(&key, &mut record, None);
    }

    #[test]
    fn prefix_end_is_the_least_key_above(
        prefix in prop::collection::vec(prop::sample::select(vec![0u8, 1, 254, 255]), 1..7),
        other in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 254, 255]), IndexId::LEN..9),
    ) {
        match prefix_end(&prefix) {
            Some(end) => {
                prop_assert!(end.len() >= prefix.len().min(IndexId::LEN));
                prop_assert_eq!(other >= end, other > prefix && !other.starts_with(&prefix));
            }
            None => prop_assert!(prefix.iter().all(|&byte| byte == 255)),
        }
    }
}

/// Two text columns of one collation that differ in everything else, a value of each, and whether the second descends.
fn two_columns() -> impl Strategy<Value = ([Spec; 2], [V; 2], bool)> {
    let latin = |ci, pad| Order::Latin1 { ci, pad };
    let utf8 = |weight, pad| Order::Utf8 { weight, pad };
    let orders = vec![
        latin(true, true),
        latin(false, true),
        latin(true, false),
        utf8(0, true),
        utf8(0, false),
        utf8(2, true),
        utf8(2, false),
        Order::TwoLevel,
        Order::Binary,
    ];
    let kinds = prop::sample::select(vec![ColumnType::Char, ColumnType::VarChar]);
    let column = (kinds, 1usize..6, any::<bool>());
    (prop::sample::select(orders), column.clone(), column, any::<bool>()).prop_flat_map(|(order, a, b, descending)| {
        let specs = [a, b].map(|(kind, size, nullable)| testkit::text(kind, size, nullable, order));
        (Just(specs), specs.map(testkit::value), Just(descending))
    })
}

/// What a value is where it has as much room as it needs.
fn roomy(spec: &Spec, value: &V) -> V {
    match value {
        V::Bytes(bytes) if spec.kind == ColumnType::Char && spec.order == Some(Order::Binary) => {
            V::Bytes([&bytes[..], &vec![0; spec.size - bytes.len()]].concat())
        }
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn a_value_of_another_column_finds_the_rows_that_have_it((specs, values, descending) in two_columns()) {
        let rows: Vec<(TableDef, Row)> = (0..2).map(|i| {
            let spec = &specs[i..=i];
            let mut def = table(spec);
            def.indexes.push(Index::ordinary("second", false, vec![part(spec, 0, None, descending)]));
            let row = Row::new(spec, &def, vec![values[i].clone()]);
            (def, row)
        }).collect();
        let layout = Layout::of(&rows[0].0, 0).unwrap();
        let codec = second(&rows[1].0);
        let mut found = Vec::new();
        let can_be = codec.encode_values([layout.carried(rows[0].1.record())], &mut found).unwrap();
        let wide = Spec { kind: ColumnType::VarChar, size: 40, ..specs[1] };
        let alike = [0, 1].map(|i| roomy(&specs[i], &values[i]));
        let is_null = alike.contains(&V::Null);
        // Without padding a CHAR has as many characters as fit, in which a character without weight takes a place.
        let soft = |value: &V| matches!(value, V::Bytes(bytes) if bytes.windows(2).any(|pair| pair == "\u{ad}".as_bytes()));
        prop_assume!(specs[1].kind != ColumnType::Char || !alike.iter().any(soft));
        let equal = !is_null && compare(&wide, &part(&[wide], 0, None, false), &alike[0], &alike[1]) == Ordering::Equal;
        let own = own(&codec, &rows[1].1);
        prop_assert_eq!(can_be.is_some() && found == own, equal, "{:?}, {:?}", &values, can_be);
        if can_be.is_some() {
            // What is carried is the value: taken back it is the same.
            let back = Layout::of(&rows[1].0, 0).unwrap();
            let mut record = rows[1].1.bytes.clone();
            if back.carry(&mut record, layout.carried(rows[0].1.record())) {
                let carried = Row { values: Vec::new(), bytes: record };
                let mut again = Vec::new();
                codec.encode_own_parts(carried.record(), &mut again).unwrap();
                prop_assert_eq!(again, found);
            }
        }
    }
}

/// A table of the given columns with a primary key over the first and one index over all others.
fn small(specs: &[Spec], unique: bool, descending: &[bool]) -> TableDef {
    let mut def = table(specs);
    def.indexes.push(Index::ordinary("PRIMARY", true, vec![part(specs, 0, None, false)]));
    def.primary = Some(0);
    let parts = (1..specs.len()).map(|i| part(specs, i, None, descending.get(i - 1) == Some(&true)));
    def.indexes.push(Index::ordinary("second", unique, parts.collect()));
    def
}

const ID: Spec =
    Spec { kind: ColumnType::Int { unsigned: true }, size: 4, nullable: false, order: None, is_virtual: false };
const K: Spec = Spec { kind: ColumnType::Int { unsigned: false }, nullable: true, ..ID };
const NAME: Spec = Spec {
    kind: ColumnType::VarChar,
    size: 20,
    nullable: false,
    order: Some(testkit::Order::Latin1 { ci: true, pad: true }),
    is_virtual: false,
};

fn documented(name: &str) -> String {
    testkit::documented(include_str!("../../../docs/develop/format/keys.md"), name)
}

fn text(value: &[u8]) -> V {
    V::Bytes(value.to_vec())
}

#[test]
fn documented_examples_are_what_is_written() {
    let specs = [ID, K, NAME];
    let def = small(&specs, false, &[]);
    let codec = second(&def);
    let row = Row::new(&specs, &def, vec![V::Int(7), V::Int(-2), text(b"Smith ")]);
    assert_eq!(hex(&key(&clustered(&def), &row, 0)), documented("clustered key"));
    assert_eq!(hex(&key(&codec, &row, 0)), documented("secondary key"));
    assert_eq!(hex(&value(&codec, &row, 0)), documented("secondary value"));
    let mut older = def.clone();
    older.indexes[1].unpack_form = 1;
    assert_eq!(hex(&value(&second(&older), &row, 0)), documented("secondary value of form 1"));

    let null = Row::new(&specs, &def, vec![V::Int(7), V::Null, text(b"")]);
    assert_eq!(hex(&key(&codec, &null, 0)), documented("secondary key with NULL"));
    assert_eq!(hex(&value(&codec, &null, 0)), documented("secondary value with NULL"));

    let long = Row::new(&specs, &def, vec![V::Int(7), V::Int(1), text(b"smithson!")]);
    assert_eq!(hex(&key(&codec, &long, 0)), documented("two groups"));

    let def = small(&specs, true, &[true]);
    let codec = second(&def);
    assert_eq!(hex(&key(&codec, &row, 0)), documented("unique key"));
    assert_eq!(hex(&value(&codec, &row, 0)), documented("unique value"));
    assert_eq!(hex(&key(&codec, &null, 0)), documented("unique key with NULL"));

    let mut def = table(&specs);
    def.indexes.push(Index::ordinary("second", false, vec![part(&specs, 1, None, false)]));
    let codec = second(&def);
    assert_eq!(hex(&key(&clustered(&def), &row, 258)), documented("hidden clustered key"));
    assert_eq!(hex(&key(&codec, &row, 258)), documented("secondary key, hidden row id"));

    for unique in [false, true] {
        let mut def = small(&specs, false, &[]);
        (def.indexes[1].kind, def.indexes[1].unique) = (IndexKind::FULL_TEXT, unique);
        let codec = second(&def);
        let (mut key, mut value, mut row_key) = (Vec::new(), Vec::new(), Vec::new());
        codec.encode_term(b"jones", &[1], row.record(), 0, &mut key, &mut value).unwrap();
        let name = if unique { "unique key of a term" } else { "key of a term" };
        assert_eq!(hex(&key), documented(name));
        assert_eq!(hex(&value), documented(&name.replace("key", "value")));
        // The row is found from the entry, nothing else is to be had from it, and a search for the term meets it.
        codec.clustered_key_from(&key, &value, &mut row_key).unwrap();
        assert_eq!(hex(&row_key), documented("clustered key"));
        assert!((0..specs.len()).all(|column| !codec.covers(column)));
        let mut record = vec![0xff; def.record_bytes as usize];
        codec.decode_into(&key, &value, &mut record, None).unwrap();
        assert_eq!(record, vec![0xff; def.record_bytes as usize]);
        let mut image = vec![0; 2 + TERM_BYTES_MAX];
        (image[0], image[2]) = (5, b'j');
        image[3..7].copy_from_slice(b"ones");
        let mut prefix = Vec::new();
        assert_eq!(codec.encode_image(&image, &mut prefix).unwrap(), ImageParts { parts: 1, has_null: false });
        assert!(key.starts_with(&prefix) && (key == prefix) == unique);
        for at in 0..key.len() {
            assert!(codec.clustered_key_from(&key[..at], &value, &mut row_key).is_err());
        }
    }

    let varbinary = Spec { order: Some(testkit::Order::Binary), ..NAME };
    let specs = [ID, varbinary];
    let def = small(&specs, false, &[]);
    let row = Row::new(&specs, &def, vec![V::Int(7), text(b"abcdefghij")]);
    assert_eq!(hex(&key(&second(&def), &row, 0)), documented("varbinary"));
    let double = Spec { kind: ColumnType::Double, size: 8, ..ID };
    let specs = [ID, double];
    let def = small(&specs, false, &[]);
    let row = Row::new(&specs, &def, vec![V::Int(7), V::Float(-0.0)]);
    assert_eq!(hex(&key(&second(&def), &row, 0)), documented("double"));
    assert_eq!(hex(&value(&second(&def), &row, 0)), documented("double value"));
}

#[test]
fn spaces_at_the_end_do_not_count_but_what_is_below_a_space_does() {
    let specs = [ID, NAME];
    let def = small(&specs, false, &[]);
    let codec = second(&def);
    let key = |name: &[u8]| own(&codec, &Row::new(&specs, &def, vec![V::Int(1), text(name)]));
    assert_eq!(key(b"a"), key(b"A   "));
    assert_eq!(key(b""), key(b"         "));
    assert_eq!(key(b"12345678"), key(b"12345678 "));
    assert!(key(b"a\t") < key(b"a"));
    assert!(key(b"12345678\t") < key(b"12345678"));
    assert!(key(b"12345678         \t") < key(b"12345678"));
    assert!(key(b"12345678         !") > key(b"12345678"));
    assert!(key(b"12345678         \t") < key(b"12345678        !"));
}

#[test]
fn a_char_in_byte_order_is_stored_without_its_padding() {
    for pad in [false, true] {
        let fixed = Spec { kind: ColumnType::Char, order: Some(testkit::Order::Latin1 { ci: false, pad }), ..NAME };
        let specs = [ID, fixed];
        let def = small(&specs, false, &[]);
        let row = Row::new(&specs, &def, vec![V::Int(1), text(b"x")]);
        assert_eq!(own(&second(&def), &row)[4..], *b"x       \x02");
    }
}

#[test]
fn nothing_is_stored_for_unpacking_that_the_key_says() {
    let bin = Spec { order: Some(testkit::Order::Latin1 { ci: false, pad: true }), ..NAME };
    let fixed = Spec { kind: ColumnType::Char, ..bin };
    let specs = [ID, bin, fixed, K];
    let def = small(&specs, false, &[]);
    let codec = second(&def);
    let row = |name: &[u8]| Row::new(&specs, &def, vec![V::Int(1), text(name), text(b"x"), V::Int(3)]);
    assert_eq!(value(&codec, &row(b"abc"), 0), b"");
    assert_eq!(value(&codec, &row(b"abc   "), 0), [3]);
}

/// A search for a longer one finds none, and is no error.
#[test]
fn with_short_references_a_row_with_a_longer_key_is_refused() {
    let specs = [Spec { size: 600, order: Some(testkit::Order::Binary), ..NAME }];
    let mut def = small(&specs, false, &[]);
    let row = |n: usize| Row::new(&specs, &def, vec![text(&vec![1; n])]);
    let codec = |def: &TableDef| KeyCodec::new(def, Some(0), IndexId(16), IndexId(16)).unwrap();
    let (short, long, mut out) = (row(150), row(300), Vec::new());
    assert!(codec(&def).encode_record(long.record(), 0, &mut out).is_ok());
    def.short_references = true;
    let codec = codec(&def);
    let limit = IndexId::LEN + SHORT_REFERENCE - REFERENCE_LENGTH;
    assert_eq!(codec.max_key_bytes(), limit);
    assert!(codec.encode_record(short.record(), 0, &mut out).is_ok());
    let refused = codec.encode_record(long.record(), 0, &mut out);
    assert!(matches!(refused, Err(CodecError::TooLong { bytes, limit: told }) if bytes > limit && told == limit));
    assert!(codec.encode_own_parts(long.record(), &mut out).is_ok());
}

#[test]
fn more_than_the_engine_takes_is_refused() {
    let long = Spec { size: 10_000, order: Some(testkit::Order::Binary), ..NAME };
    let specs = [ID, long, long, long];
    let def = small(&specs, false, &[]);
    let codec = second(&def);
    assert_eq!(codec.max_key_bytes(), KEY_BYTES_MAX);
    let row =
        |n: usize| Row::new(&specs, &def, vec![V::Int(1), text(&vec![1; n]), text(&vec![1; n]), text(&vec![1; n])]);
    let mut out = Vec::new();
    assert!(codec.encode_record(row(9000).record(), 0, &mut out).is_ok());
    let refused = codec.encode_record(row(10_000).record(), 0, &mut out);
    assert!(matches!(refused, Err(CodecError::TooLong { bytes, limit: KEY_BYTES_MAX }) if bytes > KEY_BYTES_MAX));
}

#[test]
fn the_longest_sql_key_fits() {
    // 768 characters of up to four bytes, and a long primary key behind them.
    let wide = Spec { size: 768, order: Some(testkit::Order::Utf8 { weight: 3, pad: true }), ..NAME };
    let specs = [wide, wide];
    let def = small(&specs, false, &[]);
    let codec = second(&def);
    let full = || V::Bytes("😀".repeat(768).into_bytes());
    let row = Row::new(&specs, &def, vec![full(), full()]);
    assert!(key(&codec, &row, 0).len() < KEY_BYTES_MAX);
}

#[test]
fn definitions_that_cannot_be_are_refused() {
    let specs = [ID, K, NAME];
    let refused = |change: &dyn Fn(&mut TableDef)| {
        let mut def = small(&specs, false, &[]);
        change(&mut def);
        let number = def.indexes.len() - 1;
        match KeyCodec::new(&def, Some(number), SECOND, CLUSTERED) {
            Err(CodecError::Definition(what)) => what,
            _ => panic!("accepted"),
        }
    };
    assert!(refused(&|def| def.indexes[1].parts[0].column = 9).contains("column 9"));
    assert!(refused(&|def| def.indexes[1].parts.clear()).contains("no parts"));
    assert!(refused(&|def| def.indexes[1].parts[0].length = 2).contains("in part"));
    assert!(refused(&|def| def.indexes[1].parts[1].store_length = 3).contains("store length"));
    assert!(refused(&|def| def.record_bytes -= 1).contains("beyond the record"));
    assert!(refused(&|def| def.columns[2].collation = None).contains("collation"));
    assert!(refused(&|def| def.columns[2].length_bytes = 3).contains("length bytes"));
    assert!(refused(&|def| def.indexes[0].parts[0] = part(&specs, 1, None, false)).contains("NULL"));
    let def = small(&specs, false, &[]);
    assert!(KeyCodec::new(&def, None, CLUSTERED, CLUSTERED).is_err());
    assert!(KeyCodec::new(&def, Some(2), CLUSTERED, CLUSTERED).is_err());
}

#[test]
fn a_long_hash_index_is_not_unique() {
    let specs = [ID, K];
    let mut def = small(&specs, true, &[]);
    assert!(second(&def).is_unique());
    def.indexes[1].long_hash = true;
    assert!(!second(&def).is_unique());
    assert!(clustered(&def).is_unique());
}

#[test]
fn a_wide_unit_character_set_pads_with_wide_spaces() {
    // UTF-16 with its own bytes as weights, big- and little-endian.
    struct Utf16(&'static str);
    impl crate::def::Collation for Utf16 {
        fn id(&self) -> u32 {
            1
        }
        fn name(&self) -> &str {
            self.0
        }
        fn traits(&self) -> crate::def::CollationTraits {
            crate::def::CollationTraits { mbminlen: 2, mbmaxlen: 4, ..Latin1 { ci: true, pad: true }.traits() }
        }
        fn weights(&self, text: &[u8], _: usize, out: &mut Vec<u8>) {
            for unit in text.chunks(2) {
                let swap = self.0.starts_with("utf16le");
                out.extend(if swap { [unit[1], unit[0]] } else { [unit[0], unit[1]] });
            }
        }
        fn weights_padded(&self, _: &[u8], _: usize, _: &mut Vec<u8>) {}
        fn prefix_bytes(&self, text: &[u8], chars: usize) -> usize {
            text.len().min(2 * chars)
        }
    }
    let specs = [ID, Spec { size: 20, ..NAME }];
    for (name, a, spaced, tab) in [
        ("utf16_general_ci", &b"\0a"[..], &b"\0a\0 \0 "[..], &b"\0a\0\t"[..]),
        ("utf16le_general_ci", &b"a\0"[..], &b"a\0 \0 \0"[..], &b"a\0\t\0"[..]),
    ] {
        let mut def = small(&specs, false, &[]);
        def.columns[1].collation = Some(std::sync::Arc::new(Utf16(name)));
        let codec = second(&def);
        let key = |name: &[u8]| own(&codec, &Row::new(&specs, &def, vec![V::Int(1), text(name)]));
        assert_eq!(key(a), key(spaced));
        assert!(key(tab) < key(a));
        let row = Row::new(&specs, &def, vec![V::Int(1), text(spaced)]);
        let mut record = vec![0; def.record_bytes as usize];
        codec.decode_into(&super::tests::key(&codec, &row, 0), &value(&codec, &row, 0), &mut record, None).unwrap();
        assert!(same(&testkit::value_of(&specs[1], &def.columns[1], &record), &text(spaced)));
    }
}
