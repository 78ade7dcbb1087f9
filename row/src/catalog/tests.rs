//! The bytes of entries: the documented ones, those of earlier builds, and damaged ones.

use super::format::*;
use crate::def::{ColumnType, Compression, Encrypted, Encryption, IndexKind};
use crate::foreign::{Action, ForeignKey};
use crate::kv::IndexId;
use crate::schema::{Initial, Schema, StoredColumn, StoredIndex, StoredPart, TableMeta};
use crate::ttl::Ttl;
use crate::versions::SystemVersions;
use std::sync::Arc;

/// A change of an entry.
type Edit = fn(&mut TableMeta);

fn column(id: u32, name: &str, kind: ColumnType, size: u32) -> StoredColumn {
    StoredColumn {
        id,
        name: name.into(),
        kind,
        is_virtual: false,
        nullable: false,
        length_bytes: 0,
        size,
        collation: None,
        form: 1,
        initial: None,
    }
}

fn text_column(id: u32, size: u32) -> StoredColumn {
    StoredColumn {
        nullable: true,
        length_bytes: 1,
        collation: Some((45, "utf8mb4_general_ci".into())),
        ..column(id, "t", ColumnType::VarChar, size)
    }
}

fn index(id: u32, name: &str, unique: bool, part: StoredPart) -> StoredIndex {
    StoredIndex {
        id: IndexId(id),
        name: name.into(),
        kind: IndexKind::ORDINARY,
        unique,
        long_hash: false,
        parts: vec![part],
        options: Vec::new(),
        unpack_form: 1,
    }
}

fn part(column: u32, length: u32, descending: bool) -> StoredPart {
    StoredPart { column, length, descending }
}

fn example() -> TableMeta {
    TableMeta {
        table_id: 7,
        schema_version: 1,
        create_time: 1_000_000_000,
        version: [0xab; 16],
        primary: Some(0),
        hidden: None,
        autoinc_column: Some(0),
        temporary: false,
        no_rollback: false,
        compression: Some(Compression::Lz4),
        encryption: Encryption::default(),
        ttl: None,
        versions: None,
        next_column: 2,
        columns: vec![column(0, "id", ColumnType::Int { unsigned: true }, 4), text_column(1, 40)],
        former: Vec::new(),
        indexes: vec![index(16, "PRIMARY", true, part(0, 4, false)), index(17, "t", false, part(1, 40, true))],
        foreign: Vec::new(),
    }
}

/// The example with a new first column, and an index on it.
fn altered() -> TableMeta {
    let former = vec![Schema { version: 1, columns: example().columns }];
    let new = StoredColumn {
        initial: Some(Initial::Value(vec![5, 0])),
        ..column(2, "n", ColumnType::Int { unsigned: false }, 2)
    };
    let mut indexes = vec![index(16, "PRIMARY", true, part(1, 4, false)), index(17, "t", false, part(2, 40, true))];
    indexes.push(index(18, "n", false, part(0, 2, false)));
    let columns = vec![new, example().columns[0].clone(), text_column(1, 40)];
    TableMeta { schema_version: 2, autoinc_column: Some(1), next_column: 3, columns, former, indexes, ..example() }
}

fn form_2() -> TableMeta {
    let mut meta = example();
    meta.columns[1].collation = Some((1, "big5_chinese_ci".into()));
    meta.columns[1].form = 2;
    meta
}

fn foreign_key() -> ForeignKey {
    ForeignKey {
        name: "t_ibfk_1".into(),
        columns: vec!["id".into()],
        parent: "./db/p".into(),
        parent_columns: vec!["n".into()],
        on_delete: Action::Cascade,
        on_update: Action::Restrict,
        inherited: false,
    }
}

fn encrypted() -> TableMeta {
    TableMeta { encryption: Encryption { encrypted: Encrypted::Yes, key: 4 }, ..example() }
}

/// The example with rows that expire a day after `m`, and with nothing said of encryption.
fn expiring() -> TableMeta {
    let mut meta = example();
    meta.columns.push(StoredColumn { nullable: true, ..column(2, "m", ColumnType::Bytes, 4) });
    TableMeta { ttl: Some(Ttl { column: 2, seconds: 86_400 }), next_column: 3, ..meta }
}

/// The example with rows of the past, and with nothing said of encryption.
fn versioned() -> TableMeta {
    let mut meta = example();
    meta.columns.push(column(2, "s", ColumnType::Bytes, 7));
    meta.columns.push(column(3, "e", ColumnType::Bytes, 7));
    meta.indexes[0].parts.push(StoredPart { column: 3, length: 7, descending: false });
    let greatest = vec![0x7f, 0xff, 0xff, 0xff, 0x0f, 0x42, 0x3f];
    let versions = SystemVersions { start: 2, end: 3, greatest, without: vec![1] };
    TableMeta { versions: Some(versions), next_column: 4, ..meta }
}

/// The example, the unpack data of whose second index have form 2.
fn restoring() -> TableMeta {
    let mut meta = example();
    meta.indexes[1].unpack_form = 2;
    meta
}

/// The example with a foreign key.
fn child() -> TableMeta {
    TableMeta { foreign: vec![Arc::new(foreign_key())], ..example() }
}

/// Hex lines of the fenced blocks in the format's description.
fn documented() -> Vec<Vec<u8>> {
    let text = include_str!("../../../docs/develop/format/catalog.md");
    let mut blocks = Vec::new();
    let mut current: Option<String> = None;
    for line in text.lines() {
        if line.starts_with("```") {
            match current.take() {
                Some(block) => blocks.push(bytes_of(&block)),
                None => current = Some(String::new()),
            }
        } else if let Some(block) = &mut current {
            block.push_str(line);
            block.push('\n');
        }
    }
    blocks
}

/// The bytes of a text of hex numbers, with remarks after `#`.
fn bytes_of(text: &str) -> Vec<u8> {
    let words = text.lines().flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace());
    words.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn the_documented_example_is_what_is_written() {
    let blocks = documented();
    assert_eq!(blocks[0], ids_key());
    assert_eq!(blocks[1], encode_ids(18, 8));
    assert_eq!(blocks[2], table_key("./db/t"));
    assert_eq!(blocks[3], example().encode());
    assert_eq!(blocks[4], pending_key(IndexId(17)));
    assert_eq!(blocks[5], counter_key(7, 0));
    assert_eq!(blocks[6], decisions_key());
    assert_eq!(blocks[7], encode_decisions(&place()));
    assert_eq!(blocks[8], altered().encode());
    assert_eq!(blocks[9], child().encode());
    assert_eq!(blocks[10], encrypted().encode());
    assert_eq!(blocks[11], expiring().encode());
    assert_eq!(blocks[12], versioned().encode());
    assert_eq!(blocks[13], restoring().encode());
}

/// An entry of version 5 that asks for nothing, or for a key that none is: nobody writes such.
#[test]
fn encryption_that_says_nothing_is_refused() {
    let bytes = encrypted().encode();
    for end in [[0, 1], [1, 0], [3, 4]] {
        let mut hurt = bytes.clone();
        let at = hurt.len() - 2;
        hurt[at..].copy_from_slice(&end);
        assert!(TableMeta::decode("x", &hurt).is_err(), "{end:?}");
    }
}

fn place() -> DecisionLog {
    DecisionLog::File { path: b"./bin.000001".to_vec(), created: 1_000_000_000 }
}

#[test]
fn the_place_of_decisions_round_trips_and_what_is_cut_is_refused() {
    for place in [place(), DecisionLog::None] {
        let bytes = encode_decisions(&place);
        assert_eq!(decode_decisions(&bytes).unwrap(), place);
        for n in 0..bytes.len() {
            assert!(decode_decisions(&bytes[..n]).is_err(), "{n} bytes decoded");
        }
        assert!(decode_decisions(&[&bytes[..], b"x"].concat()).is_err());
    }
}

/// Each table is written in the lowest version that can say what it is: an earlier build opens what it would not misread. The
/// stored entries are those of the builds that made the versions first.
#[test]
fn entries_of_every_version_are_read_and_written_as_they_were() {
    let stored = [
        (1, example(), include_str!("../../testdata/catalog-table-1.txt")),
        (2, form_2(), include_str!("../../testdata/catalog-table-2.txt")),
        (3, altered(), include_str!("../../testdata/catalog-table-3.txt")),
        (4, child(), include_str!("../../testdata/catalog-table-4.txt")),
        (5, encrypted(), include_str!("../../testdata/catalog-table-5.txt")),
        (6, expiring(), include_str!("../../testdata/catalog-table-6.txt")),
        (7, versioned(), include_str!("../../testdata/catalog-table-7.txt")),
        (8, restoring(), include_str!("../../testdata/catalog-table-8.txt")),
    ];
    for (version, meta, text) in stored {
        let bytes = bytes_of(text);
        assert_eq!(bytes[0], version);
        assert_eq!(TableMeta::decode("x", &bytes).unwrap(), meta, "version {version}");
        assert_eq!(meta.encode(), bytes, "version {version}");
    }
}

/// Whatever an earlier build would not see, or would take for something else, makes the version one that it refuses.
#[test]
fn what_an_earlier_build_would_misread_has_a_version_that_it_refuses() {
    let changes: [(&str, Edit); 7] = [
        ("a schema version", |t| t.schema_version = 2),
        ("an earlier schema version", |t| *t = TableMeta { indexes: example().indexes, ..altered() }),
        ("columns in another order than their ids", |t| t.columns[1].id = 2),
        ("an id that was given before", |t| t.next_column = 3),
        ("an initial value", |t| t.columns[1].initial = Some(Initial::Null)),
        ("a kind", |t| t.indexes[1].kind = IndexKind::FULL_TEXT),
        ("options", |t| t.indexes[1].options = vec![1]),
    ];
    for (what, change) in changes {
        let mut meta = example();
        meta.next_column = 3;
        change(&mut meta);
        let bytes = meta.encode();
        assert_eq!(bytes[0], 3, "{what}");
        assert_eq!(TableMeta::decode("x", &bytes).unwrap(), meta, "{what}");
    }
}

#[test]
fn entries_round_trip_and_truncated_ones_are_refused() {
    let keys = vec![
        Arc::new(foreign_key()),
        Arc::new(ForeignKey { inherited: true, on_update: Action::SetNull, ..foreign_key() }),
    ];
    let asks = Encryption { encrypted: Encrypted::No, key: 300 };
    let both = TableMeta { foreign: keys.clone(), encryption: asks, ..altered() };
    let all = TableMeta { foreign: keys.clone(), encryption: asks, ..expiring() };
    let with_keys = TableMeta { foreign: keys, ..altered() };
    // TTL= is refused beside rows of the past, but not by the format.
    let past = TableMeta { ttl: Some(Ttl { column: 2, seconds: 9 }), foreign: child().foreign, ..versioned() };
    let plain = [example(), form_2(), altered(), child(), encrypted(), expiring(), versioned(), restoring()];
    let restores = |meta: &TableMeta| {
        let mut meta = meta.clone();
        meta.indexes[0].unpack_form = 2;
        meta
    };
    let restoring = [&all, &past, &expiring(), &versioned()].map(restores);
    for meta in plain.into_iter().chain([both, with_keys, all, past]).chain(restoring) {
        let bytes = meta.encode();
        assert_eq!(TableMeta::decode("x", &bytes).unwrap(), meta);
        for n in 0..bytes.len() {
            assert!(TableMeta::decode("x", &bytes[..n]).is_err(), "{n} bytes decoded");
        }
        assert!(TableMeta::decode("x", &[&bytes[..], &[0]].concat()).is_err());
        let mut newer = bytes.clone();
        newer[0] = 9;
        assert!(TableMeta::decode("x", &newer).unwrap_err().to_string().contains("unknown version 9"));
    }
    assert_eq!(decode_ids(&encode_ids(18, 8)).unwrap(), (18, 8));
}

/// Any entry that decodes is one that makes sense, and is written again as it was.
#[test]
fn a_flipped_byte_is_refused_or_gives_another_table_that_makes_sense() {
    let altered = TableMeta { foreign: child().foreign, ..altered() };
    let bytes = [altered.encode(), expiring().encode(), versioned().encode(), restoring().encode()];
    for (bytes, at) in bytes.iter().flat_map(|bytes| (0..bytes.len()).map(move |at| (bytes, at))) {
        for bit in 0..8 {
            let mut hurt = bytes.clone();
            hurt[at] ^= 1 << bit;
            let Ok(meta) = TableMeta::decode("x", &hurt) else { continue };
            let _ = (meta.clustered_id(), meta.ids());
            assert!(meta.indexes.iter().flat_map(|i| &i.parts).all(|p| (p.column as usize) < meta.columns.len()));
            assert_eq!(TableMeta::decode("x", &meta.encode()).unwrap(), meta, "byte {at}, bit {bit}");
        }
    }
}

/// Two columns for one, none at all, and an entry of version 4 without keys: nobody writes such.
#[test]
fn foreign_keys_that_make_no_sense_are_refused() {
    let uneven = ForeignKey { parent_columns: vec![], columns: vec![], ..foreign_key() };
    assert!(TableMeta::decode("x", &TableMeta { foreign: vec![Arc::new(uneven)], ..example() }.encode()).is_err());
    let mut none = altered().encode();
    none[0] = 4;
    none.push(0);
    assert!(TableMeta::decode("x", &none).is_err());
}

/// What the server would not say of a table, and what would have rows of the past looked for in the wrong place.
#[test]
fn rows_of_the_past_that_nothing_tells_are_refused() {
    type Change = fn(&mut SystemVersions);
    let changes: [(&str, Change); 6] = [
        ("one column for both", |v| v.start = v.end),
        ("a column that is not there", |v| v.end = 9),
        ("a number", |v| v.start = 0),
        ("a time of another length", |v| v.greatest.truncate(6)),
        ("columns twice", |v| v.without = vec![1, 1]),
        ("a column without versions that is not there", |v| v.without = vec![4]),
    ];
    for (what, change) in changes {
        let mut meta = versioned();
        change(meta.versions.as_mut().unwrap());
        assert!(TableMeta::decode("x", &meta.encode()).is_err(), "{what}");
    }
}

/// A table that is emptied numbers its columns anew: what names them by their ids has to follow.
#[test]
fn rows_of_the_past_are_told_by_the_same_columns_once_the_table_is_empty() {
    let mut meta = versioned();
    meta.columns.rotate_right(2);
    meta.indexes[0].parts[1].column = 1;
    meta.forget_former();
    let versions = meta.versions.as_ref().unwrap();
    assert_eq!((versions.start, versions.end, versions.without.as_slice()), (0, 1, &[3][..]));
    assert_eq!(meta.columns[1].name, "e");
}

#[test]
fn ids_and_versions_that_contradict_each_other_are_refused() {
    let changes: [(&str, Edit); 5] = [
        ("an id twice", |t| t.columns[0].id = 1),
        ("an id twice in an earlier version", |t| t.former[0].columns[0].id = 1),
        ("an id not given yet", |t| t.next_column = 2),
        ("an earlier version that is the present one", |t| t.former[0].version = 2),
        ("version zero", |t| t.former[0].version = 0),
    ];
    for (what, change) in changes {
        let mut meta = altered();
        change(&mut meta);
        assert!(TableMeta::decode("x", &meta.encode()).is_err(), "{what}");
    }
}
