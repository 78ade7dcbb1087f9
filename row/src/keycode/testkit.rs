//! A table with a column of every kind, random rows and indexes over it, and a reference order of values that shares
//! nothing with the codecs.

use std::cmp::Ordering;
use std::sync::Arc;

use proptest::prelude::*;

use super::collations::{Binary, Latin1, TwoLevel, Utf8};
use crate::def::{Collation, Column, ColumnType, Index, KeyPart, TableDef, UNPACK_FORM};
use crate::rowcode::Record;

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum V {
    Null,
    Int(i128),
    Float(f64),
    /// Bytes or text; of CHAR without padding at the end.
    Bytes(Vec<u8>),
}

/// The reference's notion of a text order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Binary,
    Latin1 { ci: bool, pad: bool },
    Utf8 { weight: usize, pad: bool },
    TwoLevel,
}

impl Order {
    fn collation(self) -> Arc<dyn Collation> {
        match self {
            Order::Binary => Arc::new(Binary),
            Order::Latin1 { ci, pad } => Arc::new(Latin1 { ci, pad }),
            Order::Utf8 { weight, pad } => Arc::new(Utf8 { weight, pad }),
            Order::TwoLevel => Arc::new(TwoLevel),
        }
    }
    fn wide(self) -> bool {
        matches!(self, Order::Utf8 { .. })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) kind: ColumnType,
    /// Bytes; of text, characters.
    pub(crate) size: usize,
    pub(crate) nullable: bool,
    pub(crate) order: Option<Order>,
    pub(crate) is_virtual: bool,
}

impl Spec {
    fn mbmaxlen(&self) -> usize {
        if self.order.is_some_and(Order::wide) { 4 } else { 1 }
    }
    fn bytes(&self) -> usize {
        if self.kind == ColumnType::Blob { 0 } else { self.size * self.mbmaxlen() }
    }
    fn length_bytes(&self) -> usize {
        match self.kind {
            ColumnType::VarChar => 1 + usize::from(self.bytes() > 255),
            ColumnType::Blob => 2,
            _ => 0,
        }
    }
    fn slot(&self) -> usize {
        self.length_bytes() + if self.kind == ColumnType::Blob { 8 } else { self.bytes() }
    }
}

const fn number(kind: ColumnType, size: usize, nullable: bool) -> Spec {
    Spec { kind, size, nullable, order: None, is_virtual: false }
}

pub(crate) const fn text(kind: ColumnType, size: usize, nullable: bool, order: Order) -> Spec {
    Spec { kind, size, nullable, order: Some(order), is_virtual: false }
}

use ColumnType::{Blob, Bytes, Char, Double, Float, Int, VarChar};
const SIGNED: ColumnType = Int { unsigned: false };
const UNSIGNED: ColumnType = Int { unsigned: true };
const fn latin(ci: bool, pad: bool) -> Order {
    Order::Latin1 { ci, pad }
}
const fn utf8(weight: usize, pad: bool) -> Order {
    Order::Utf8 { weight, pad }
}

/// A column of every kind, with and without NULL.
pub(crate) const SPECS: &[Spec] = &[
    number(SIGNED, 4, false),
    number(UNSIGNED, 8, false),
    number(SIGNED, 3, false),
    number(SIGNED, 1, true),
    number(UNSIGNED, 3, true),
    number(SIGNED, 8, true),
    number(SIGNED, 2, false),
    number(Float, 4, true),
    number(Double, 8, true),
    number(Double, 8, false),
    number(Bytes, 5, false),
    number(Bytes, 3, true),
    text(Char, 6, true, Order::Binary),
    text(Char, 9, false, Order::Binary),
    text(VarChar, 12, true, Order::Binary),
    text(VarChar, 20, false, Order::Binary),
    text(Char, 6, false, latin(true, true)),
    text(Char, 11, true, latin(false, true)),
    text(VarChar, 10, false, latin(false, true)),
    text(VarChar, 10, true, latin(false, false)),
    text(VarChar, 12, true, latin(true, false)),
    text(Char, 5, true, latin(true, false)),
    text(VarChar, 300, true, latin(true, true)),
    text(VarChar, 10, false, utf8(2, true)),
    text(VarChar, 10, true, utf8(3, true)),
    text(VarChar, 10, true, utf8(2, false)),
    text(Char, 5, false, utf8(2, false)),
    text(Char, 7, true, utf8(3, true)),
    text(Char, 5, false, utf8(0, false)),
    text(VarChar, 8, false, utf8(0, true)),
    text(VarChar, 8, true, utf8(0, false)),
    text(VarChar, 6, true, Order::TwoLevel),
    text(Char, 4, false, Order::TwoLevel),
    text(Blob, 30, true, utf8(2, true)),
    text(Blob, 30, false, Order::Binary),
    Spec { is_virtual: true, ..number(SIGNED, 4, true) },
    number(UNSIGNED, 1, false),
];

/// Lays the columns out as the server does: NULL bits, then slots.
pub(crate) fn table(specs: &[Spec]) -> TableDef {
    let null_bytes = (1 + specs.iter().filter(|spec| spec.nullable).count()).div_ceil(8);
    let mut offset = null_bytes;
    // Bit 0 is the server's own.
    let mut bit = 1;
    let mut columns = Vec::new();
    for (i, spec) in specs.iter().enumerate() {
        columns.push(Column {
            name: format!("c{i}"),
            kind: spec.kind,
            is_virtual: spec.is_virtual,
            length_bytes: spec.length_bytes() as u8,
            null_offset: if spec.nullable { bit / 8 } else { 0 },
            null_mask: if spec.nullable { 1 << (bit % 8) } else { 0 },
            null_first: 0,
            offset: offset as u32,
            size: spec.bytes() as u32,
            collation: spec.order.map(Order::collation),
            is_moment: false,
        });
        bit += u32::from(spec.nullable);
        offset += spec.slot();
    }
    TableDef::of_columns(columns, null_bytes as u32, offset as u32)
}

/// An index part; `chars` limits it to a prefix of a text.
pub(crate) fn part(specs: &[Spec], column: usize, chars: Option<usize>, descending: bool) -> KeyPart {
    let spec = &specs[column];
    let chars = match spec.kind {
        Blob => chars.unwrap_or(spec.size),
        _ => chars.unwrap_or(spec.size).min(spec.size),
    };
    let length = chars * spec.mbmaxlen();
    let lengths = if matches!(spec.kind, VarChar | Blob) { 2 } else { 0 };
    KeyPart {
        column: column as u32,
        length: length as u32,
        descending,
        store_length: (length + lengths + usize::from(spec.nullable)) as u32,
    }
}

/// A row: values, and the record made of them, whose BLOBs point into the values.
pub(crate) struct Row {
    pub(crate) values: Vec<V>,
    pub(crate) bytes: Vec<u8>,
}

impl Row {
    pub(crate) fn new(specs: &[Spec], def: &TableDef, values: Vec<V>) -> Row {
        let mut bytes = vec![0; def.record_bytes as usize];
        for ((spec, column), value) in specs.iter().zip(&def.columns).zip(&values) {
            let at = column.offset as usize;
            let data = at + spec.length_bytes();
            match value {
                V::Null => {
                    bytes[column.null_offset as usize] |= column.null_mask;
                    if spec.kind == Char {
                        fill(spec, &mut bytes[at..at + spec.bytes()]);
                    }
                }
                V::Int(value) => bytes[at..at + spec.size].copy_from_slice(&value.to_le_bytes()[..spec.size]),
                V::Float(value) if spec.size == 4 => {
                    bytes[at..at + 4].copy_from_slice(&(*value as f32).to_le_bytes());
                }
                V::Float(value) => bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()),
                V::Bytes(value) if spec.kind == Blob => {
                    bytes[at..at + 2].copy_from_slice(&(value.len() as u16).to_le_bytes());
                    let address = value.as_ptr().expose_provenance();
                    bytes[data..data + 8].copy_from_slice(&address.to_ne_bytes());
                }
                V::Bytes(value) => {
                    if spec.kind == Char {
                        fill(spec, &mut bytes[at..at + spec.bytes()]);
                    }
                    bytes[at..data].copy_from_slice(&value.len().to_le_bytes()[..data - at]);
                    bytes[data..data + value.len()].copy_from_slice(value);
                }
            }
        }
        Row { values, bytes }
    }

    pub(crate) fn record(&self) -> Record<'_> {
        // SAFETY: the BLOB slots point into `values`, which live as long as `self`.
        unsafe { Record::new(&self.bytes) }
    }
}

fn fill(spec: &Spec, slot: &mut [u8]) {
    slot.fill(if spec.order == Some(Order::Binary) { 0 } else { b' ' });
}

/// The value of a column of a record, read back.
pub(crate) fn value_of(spec: &Spec, column: &Column, bytes: &[u8]) -> V {
    if bytes[column.null_offset as usize] & column.null_mask != 0 {
        return V::Null;
    }
    let at = column.offset as usize;
    let data = at + spec.length_bytes();
    let mut wide = [0; 16];
    match spec.kind {
        Int { unsigned } => {
            wide[..spec.size].copy_from_slice(&bytes[at..at + spec.size]);
            let value = i128::from_le_bytes(wide);
            let limit = 1i128 << (8 * spec.size);
            V::Int(if !unsigned && value >= limit / 2 { value - limit } else { value })
        }
        Float => V::Float(f64::from(f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()))),
        Double => V::Float(f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())),
        Bytes => V::Bytes(bytes[at..at + spec.size].to_vec()),
        Char => {
            let mut value = bytes[at..at + spec.bytes()].to_vec();
            trim(spec, &mut value);
            V::Bytes(value)
        }
        VarChar => {
            wide[..data - at].copy_from_slice(&bytes[at..data]);
            let length = u128::from_le_bytes(wide) as usize;
            V::Bytes(bytes[data..data + length].to_vec())
        }
        Blob => {
            let length = u16::from_le_bytes([bytes[at], bytes[at + 1]]) as usize;
            let address = usize::from_ne_bytes(bytes[data..data + 8].try_into().unwrap());
            // SAFETY: callers read only records whose BLOBs lead to live bytes.
            V::Bytes(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), length) }.to_vec())
        }
    }
}

fn trim(spec: &Spec, value: &mut Vec<u8>) {
    let pad = if spec.order == Some(Order::Binary) { 0 } else { b' ' };
    while value.last() == Some(&pad) {
        value.pop();
    }
}

/// A record with the slots and NULL bits of the columns that `skip` names set to zero.
pub(crate) fn without(def: &TableDef, record: &[u8], skip: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut rest = record.to_vec();
    for (i, column) in def.columns.iter().enumerate().filter(|(i, _)| skip(*i)) {
        rest[column.null_offset as usize] &= !column.null_mask;
        let size = if SPECS[i].kind == Blob { 8 } else { column.size as usize };
        rest[column.offset as usize..][..column.length_bytes as usize + size].fill(0);
    }
    rest
}

/// Same value, bit by bit.
pub(crate) fn same(a: &V, b: &V) -> bool {
    match (a, b) {
        (V::Float(a), V::Float(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

fn chars_of(order: Order, value: &[u8]) -> Vec<u32> {
    match order {
        Order::Utf8 { .. } => std::str::from_utf8(value).unwrap().chars().map(u32::from).collect(),
        _ => value.iter().map(|&byte| u32::from(byte)).collect(),
    }
}

fn padded_cmp(a: &[u32], b: &[u32]) -> Ordering {
    for i in 0..a.len().max(b.len()) {
        let at = |s: &[u32]| s.get(i).copied().unwrap_or(32);
        if at(a) != at(b) {
            return at(a).cmp(&at(b));
        }
    }
    Ordering::Equal
}

fn upper(c: u32) -> u32 {
    if (97..=122).contains(&c) { c - 32 } else { c }
}

/// The SQL order of two values of an index part.
pub(crate) fn compare(spec: &Spec, part: &KeyPart, a: &V, b: &V) -> Ordering {
    let order = match (a, b) {
        (V::Null, V::Null) => Ordering::Equal,
        (V::Null, _) => Ordering::Less,
        (_, V::Null) => Ordering::Greater,
        (V::Int(a), V::Int(b)) => a.cmp(b),
        (V::Float(a), V::Float(b)) => a.partial_cmp(b).expect("no NaN among the values"),
        (V::Bytes(a), V::Bytes(b)) => match spec.order {
            None => a.cmp(b),
            Some(order) => compare_text(spec, order, part.length as usize / spec.mbmaxlen(), a, b),
        },
        _ => panic!("{a:?} against {b:?}"),
    };
    if part.descending { order.reverse() } else { order }
}

fn compare_text(spec: &Spec, order: Order, limit: usize, a: &[u8], b: &[u8]) -> Ordering {
    let take = |value: &[u8]| {
        let mut chars = chars_of(order, value);
        if spec.kind == Char {
            chars.resize(spec.size, if order == Order::Binary { 0 } else { 32 });
        }
        chars.truncate(limit);
        chars
    };
    let (a, b) = (take(a), take(b));
    let map = |chars: &[u32], ci: bool| -> Vec<u32> { chars.iter().map(|&c| if ci { upper(c) } else { c }).collect() };
    let light = |chars: &[u32], weight: usize| -> Vec<u32> {
        let kept = chars.iter().filter(|&&c| weight == 0 || c != 0xad);
        let kept: Vec<u32> = kept.map(|&c| if weight == 2 && c > 0xffff { 0xfffd } else { c }).collect();
        map(&kept, weight != 0)
    };
    match order {
        Order::Binary => a.cmp(&b),
        Order::Latin1 { ci, pad: true } => padded_cmp(&map(&a, ci), &map(&b, ci)),
        Order::Latin1 { ci, pad: false } => map(&a, ci).cmp(&map(&b, ci)),
        Order::Utf8 { weight, pad: true } => padded_cmp(&light(&a, weight), &light(&b, weight)),
        Order::Utf8 { weight, pad: false } => light(&a, weight).cmp(&light(&b, weight)),
        Order::TwoLevel => {
            let case = |chars: &[u32]| -> Vec<u32> {
                chars.iter().map(|&c| if (97..=122).contains(&c) { 2 } else { 1 }).collect()
            };
            let pad = |mut level: Vec<u32>, with: u32| {
                level.resize(limit, with);
                level
            };
            pad(map(&a, true), 32).cmp(&pad(map(&b, true), 32)).then_with(|| pad(case(&a), 1).cmp(&pad(case(&b), 1)))
        }
    }
}

/// A value of a column; few different ones, so that equal ones and common beginnings are frequent.
pub(crate) fn value(spec: Spec) -> BoxedStrategy<V> {
    let plain: BoxedStrategy<V> = match spec.kind {
        Int { unsigned } => {
            let bits = 8 * spec.size as u32;
            let (low, high) =
                if unsigned { (0, (1i128 << bits) - 1) } else { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) };
            prop_oneof![
                prop::sample::select(vec![low, low + 1, high - 1, high, 0, 1, low.max(-1), 127.min(high)]),
                low..=high,
            ]
            .prop_map(V::Int)
            .boxed()
        }
        Float => prop_oneof![
            prop::sample::select(vec![
                0.0f32,
                -0.0,
                1.5,
                -1.5,
                f32::MIN,
                f32::MAX,
                f32::INFINITY,
                f32::NEG_INFINITY,
                1e-45
            ]),
            prop::num::f32::NORMAL,
        ]
        .prop_map(|v| V::Float(f64::from(v)))
        .boxed(),
        Double => prop_oneof![
            prop::sample::select(vec![
                0.0f64,
                -0.0,
                1.5,
                -1.5,
                f64::MIN,
                f64::MAX,
                f64::INFINITY,
                f64::NEG_INFINITY,
                5e-324
            ]),
            prop::num::f64::NORMAL,
        ]
        .prop_map(V::Float)
        .boxed(),
        Bytes => {
            prop::collection::vec(prop::sample::select(vec![0u8, 1, 128, 255]), spec.size).prop_map(V::Bytes).boxed()
        }
        Char | VarChar | Blob => {
            let alphabet: Vec<&'static [u8]> = match spec.order {
                Some(Order::Utf8 { .. }) => vec![
                    b"a",
                    b"A",
                    b"b",
                    b" ",
                    b" ",
                    b" ",
                    b"\t",
                    b"\0",
                    "\u{ad}".as_bytes(),
                    "é".as_bytes(),
                    "€".as_bytes(),
                    "\u{2020}".as_bytes(),
                    "😀".as_bytes(),
                    "\u{fffd}".as_bytes(),
                    "\u{ffff}".as_bytes(),
                ],
                Some(Order::TwoLevel) => vec![b"a", b"A", b"b", b"B", b" ", b" ", b"\t"],
                _ => vec![b"a", b"A", b"b", b" ", b" ", b" ", b"\t", b"\0", b"\xff", b"\x1f", b"!"],
            };
            let longest = spec.size.min(40);
            prop::collection::vec(prop::sample::select(alphabet), 0..=longest)
                .prop_map(move |chars| {
                    let mut value = chars.concat();
                    if spec.kind == Char {
                        trim(&spec, &mut value);
                    }
                    V::Bytes(value)
                })
                .boxed()
        }
    };
    if spec.nullable { prop_oneof![1 => Just(V::Null), 4 => plain].boxed() } else { plain }
}

pub(crate) fn values() -> impl Strategy<Value = Vec<V>> {
    SPECS.iter().map(|&spec| value(spec)).collect::<Vec<_>>()
}

/// Two rows that agree in most columns.
pub(crate) fn two_rows() -> impl Strategy<Value = (Vec<V>, Vec<V>)> {
    let same = prop::collection::vec(prop::bool::weighted(0.6), SPECS.len());
    (values(), values(), same).prop_map(|(a, b, same)| {
        let b = a.iter().zip(b).zip(same).map(|((a, b), same)| if same { a.clone() } else { b }).collect();
        (a, b)
    })
}

fn parts(columns: Vec<usize>, most: usize) -> impl Strategy<Value = Vec<KeyPart>> {
    let one = (prop::sample::select(columns), prop::option::weighted(0.3, 1usize..6), prop::bool::weighted(0.3));
    prop::collection::vec(one, 1..=most).prop_map(|picked| {
        let mut parts: Vec<KeyPart> = Vec::new();
        for (column, chars, descending) in picked {
            let chars = chars.filter(|_| SPECS[column].order.is_some());
            if parts.iter().all(|part| part.column as usize != column) {
                parts.push(part(SPECS, column, chars, descending));
            }
        }
        parts
    })
}

/// Random indexes over the table: a primary key (index 0) or none, and a secondary index (the last).
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    primary: Option<Vec<KeyPart>>,
    second: Vec<KeyPart>,
    unique: bool,
    unpack_form: u8,
}

impl Plan {
    pub(crate) fn def(&self) -> TableDef {
        let mut def = table(SPECS);
        if let Some(primary) = &self.primary {
            def.indexes.push(Index::ordinary("PRIMARY", true, primary.clone()));
            def.primary = Some(0);
        }
        let second = Index::ordinary("second", self.unique, self.second.clone());
        def.indexes.push(Index { unpack_form: self.unpack_form, ..second });
        def
    }
}

pub(crate) fn tables() -> impl Strategy<Value = Plan> {
    let not_null = (0..SPECS.len()).filter(|&i| !SPECS[i].nullable && SPECS[i].kind != Blob).collect();
    let any = (0..SPECS.len()).collect();
    let primary = prop::option::weighted(0.8, parts(not_null, 3));
    (primary, parts(any, 4), prop::bool::ANY, prop::option::of(prop::bool::ANY), 1..=UNPACK_FORM).prop_map(
        |(primary, mut second, unique, share, unpack_form)| {
            if let (Some(primary), Some(descending)) = (&primary, share) {
                // Let the index hold a column of the primary key, in either direction.
                if second.iter().all(|part| part.column != primary[0].column) {
                    second.push(KeyPart { descending, ..primary[0].clone() });
                }
            }
            Plan { primary, second, unique, unpack_form }
        },
    )
}

/// The server's key image of some parts of a row.
pub(crate) fn image(specs: &[Spec], parts: &[&KeyPart], values: &[V]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        let end = out.len() + part.store_length as usize;
        let spec = &specs[part.column as usize];
        let value = &values[part.column as usize];
        if spec.nullable {
            out.push(u8::from(*value == V::Null));
        }
        match value {
            V::Null => {}
            V::Int(value) => out.extend_from_slice(&value.to_le_bytes()[..spec.size]),
            V::Float(value) if spec.size == 4 => out.extend_from_slice(&(*value as f32).to_le_bytes()),
            V::Float(value) => out.extend_from_slice(&value.to_le_bytes()),
            V::Bytes(value) => {
                // As the server does: at most the part's characters, VARCHAR and BLOB with their length, CHAR padded.
                let mut text = value.clone();
                if let Some(order) = spec.order {
                    let limit = part.length as usize / spec.mbmaxlen();
                    if order.wide() {
                        text = String::from_utf8(text).unwrap().chars().take(limit).collect::<String>().into_bytes();
                    } else {
                        text.truncate(limit);
                    }
                }
                if matches!(spec.kind, VarChar | Blob) {
                    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
                }
                out.extend_from_slice(&text);
                if spec.kind == Char {
                    let from = out.len();
                    out.resize(end, 0);
                    fill(spec, &mut out[from..]);
                }
            }
        }
        out.resize(end, 0);
    }
    out
}

/// The worked examples of a page in docs/develop/format: each line `hex  # name` is looked up by its name.
pub(crate) fn documented(page: &str, name: &str) -> String {
    let line = page.lines().find(|line| line.trim_end().ends_with(&format!("# {name}")));
    let line = line.unwrap_or_else(|| panic!("no example `{name}`"));
    line.split('#').next().unwrap().chars().filter(|c| !c.is_whitespace() && *c != '|').collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that are struck, each with what is done to it, and where the rest is cut off.
pub(crate) fn damage() -> impl Strategy<Value = (Vec<(prop::sample::Index, u8)>, prop::sample::Index)> {
    (prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4), any::<prop::sample::Index>())
}
