//! Index keys: SQL values as bytes whose plain order is the order of the values.
//!
//! # Purpose
//! The engine compares keys as bytes and knows nothing of types, collations or NULL. A [`KeyCodec`], made once when a
//! table is opened, turns records and the server's search keys into such bytes and, for covering reads, back.
//!
//! # Format
//! Exactly described in `docs/develop/format/keys.md`. In short:
//!
//! ```text
//! clustered key   = index id (4, big-endian), primary-key parts          value = row (see rowcode)
//!                 | index id, hidden row id (8, big-endian)
//! secondary key   = index id, own parts, suffix                          value = unpack data
//! unique, no NULL = index id, own parts                                  value = suffix, unpack data
//! of a term       = index id, term, suffix                               value = what is stored with the term
//! ```
//!
//! The *suffix* is what of the primary key the own parts do not hold already, or the hidden row id. A unique index
//! leaves it out of the key, so that two rows with equal values meet at the same key; if some own part is NULL the rows
//! do not conflict, and the suffix tells them apart as in any other index.
//!
//! The *unpack data* is what must be known besides the key to restore the columns: in what the text differs from what the weights in the
//! key are usually of ([`restore`]), or the text, the number of trailing spaces where the key has all but those, the sign of a negative
//! zero.
//!
//! # Invariants
//! - Every part delimits itself, so the concatenation of parts sorts as the tuple of values does, and a key image of
//!   leading parts encodes to a prefix of every key it equals.
//! - The same column encodes to the same bytes in every index (but for inversion in descending parts), therefore the
//!   clustered key is put together from a secondary entry by copying pieces.
//! - Values the server takes for equal encode to equal bytes.
//! - Encoding appends to the caller's buffer and allocates nothing else (a collation may).
//! - Decoding never panics, whatever the bytes.
//!
//! # Rejected alternative
//! Comparing keys by a callback per index instead of transforming them: keys would be shorter and reversible, but every
//! comparison in memtable, block search and merge would have to know the index, prefix compression and filters could
//! not work on bytes, and a change of a collation would silently reorder what is stored.

pub mod collations;
mod error;
mod groups;
mod number;
mod prefix;
mod restore;
mod step;
#[cfg(test)]
pub(crate) mod testkit;
#[cfg(test)]
mod tests;

use crate::kv::IndexId;
use crate::kv::codec::Reader;
use crate::kv::limits::KEY_BYTES_MAX;

pub use error::{CodecError, Result};
pub use prefix::{prefix_end, prefix_end_in_place};
use restore::Restorer;
pub use step::TERM_BYTES_MAX;
use step::{ROW_ID_BYTES, Step, Unpack};

use crate::def::{ColumnType, IndexKind, TableDef};
#[cfg(doc)]
use crate::rowcode::layout::Layout;
use crate::rowcode::{ColumnSet, Record};

/// Bytes of a reference that tell its length.
pub(crate) const REFERENCE_LENGTH: usize = 2;

/// Bytes of a reference that the server has room for in the table of an index of vectors (`mhnsw_hlindex_table_def`).
pub(crate) const SHORT_REFERENCE: usize = 256;

/// Most parts of a key, suffix included: twice the server's limit for an index.
pub const PARTS_MAX: usize = 64;

/// What [`KeyCodec::encode_image`] found in a key image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageParts {
    /// Leading parts that were given.
    pub parts: usize,
    /// Some of them is NULL.
    pub has_null: bool,
}

/// An entry of a secondary index, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Index id and own parts.
    pub own: &'a [u8],
    /// What the own parts lack of the primary key, or the hidden row id.
    pub suffix: &'a [u8],
    /// Unpack data.
    pub unpack: &'a [u8],
    /// Some own part is NULL.
    pub has_null: bool,
}

/// A piece of the clustered key: a part of the secondary entry, inverted or not.
#[derive(Clone, Copy)]
struct Piece {
    step: usize,
    mask: u8,
}

/// Encoder and decoder of the keys of one index.
pub struct KeyCodec {
    id: IndexId,
    clustered_id: IndexId,
    clustered: bool,
    hidden_row_id: bool,
    unique: bool,
    /// Own parts, then the suffix.
    steps: Vec<Step>,
    own: usize,
    record_bytes: usize,
    bytes_max: usize,
    /// Longest key of a row in bytes.
    limit: usize,
    /// Some step has unpack data.
    unpacks: bool,
    /// Its own part is a term, and its values hold what is stored with that in the place of unpack data.
    has_terms: bool,
    /// The clustered key, in order; empty if it is the id and the suffix as it is.
    pieces: Vec<Piece>,
}

/// The lowest form of unpack data that says of the index what its definition says: 1 where it makes no difference.
pub(crate) fn lowest_unpack_form(def: &TableDef, number: usize) -> u8 {
    let index = &def.indexes[number];
    if index.kind != IndexKind::ORDINARY || def.primary == Some(number) {
        return 1;
    }
    let rows = def.primary.map(|primary| &def.indexes[primary].parts).into_iter().flatten();
    let differs = index.parts.iter().chain(rows).any(|part| {
        let column = &def.columns[part.column as usize];
        matches!(column.kind, ColumnType::Char | ColumnType::VarChar)
            && part.length >= column.size
            && column.collation.as_ref().is_some_and(|collation| Restorer::is_for(&**collation))
    });
    if differs { index.unpack_form } else { 1 }
}

fn checked(key: &[u8], limit: usize) -> Result<()> {
    if key.len() > limit { Err(CodecError::TooLong { bytes: key.len(), limit }) } else { Ok(()) }
}

impl KeyCodec {
    /// The codec of index number `index` of `def`, whose keys begin with `id`; `None` is the clustered index of a table
    /// without primary key. `clustered_id` is the id of the table's clustered index.
    pub fn new(def: &TableDef, index: Option<usize>, id: IndexId, clustered_id: IndexId) -> Result<KeyCodec> {
        let clustered = index == def.primary;
        let missing = |number: usize| {
            CodecError::Definition(format!("index {number} of a table with {} indexes", def.indexes.len()))
        };
        let parts_of = |number: usize| match def.indexes.get(number) {
            Some(index) if index.parts.is_empty() => {
                Err(CodecError::Definition(format!("index `{}` has no parts", index.name)))
            }
            Some(index) => Ok(&index.parts),
            None => Err(missing(number)),
        };
        let is_ordinary = |number: usize| def.indexes.get(number).is_none_or(|i| i.kind == IndexKind::ORDINARY);
        // Rows hold what their keys do not restore.
        let own = index.filter(|_| !clustered).and_then(|number| def.indexes.get(number));
        let unpack_form = own.map_or(1, |index| index.unpack_form);
        let steps_of = |number: usize| -> Result<Vec<Step>> {
            let parts = parts_of(number)?;
            if !is_ordinary(number) {
                return Ok(vec![Step::term()]);
            }
            parts.iter().map(|part| Step::new(def, part, unpack_form)).collect()
        };
        let has_terms = index.is_some_and(|number| !is_ordinary(number));
        let primary = match def.primary {
            Some(number) if !is_ordinary(number) => {
                return Err(CodecError::Definition("rows lie in an ordinary index".into()));
            }
            Some(number) => steps_of(number)?,
            None => vec![Step::row_id()],
        };
        for step in &primary {
            if step.layout.nullable() {
                return Err(CodecError::Definition(format!("column {} of the primary key may be NULL", step.column)));
            }
        }
        let (mut steps, unique) = match index {
            Some(number) if !clustered => {
                let steps = steps_of(number)?;
                let index = &def.indexes[number];
                (steps, index.unique && !index.long_hash)
            }
            Some(_) => (Vec::new(), true),
            None if clustered => (Vec::new(), true),
            None => {
                return Err(CodecError::Definition("the table has a primary key, no hidden row id".into()));
            }
        };
        let own = if clustered { primary.len() } else { steps.len() };
        let mut pieces = Vec::new();
        if clustered {
            steps = primary;
        } else {
            // Where each part of the primary key comes from: an own part, or the suffix. The server's extended keys
            // pass over a primary-key column that an own part holds; where that part is of other length than the
            // primary key's, it is of no use here, and the column goes to the end of the suffix, after all the columns
            // the server counts.
            let source: Vec<Option<usize>> =
                primary.iter().map(|part| steps[..own].iter().position(|step| step.same_bytes(part))).collect();
            let held: Vec<bool> = primary
                .iter()
                .map(|part| part.column != usize::MAX && steps[..own].iter().any(|step| step.column == part.column))
                .collect();
            let mut place: Vec<usize> = source.iter().map(|own| own.unwrap_or(usize::MAX)).collect();
            let masks: Vec<u8> = primary.iter().map(|part| part.mask).collect();
            let mut rest: Vec<(usize, Step)> =
                primary.into_iter().enumerate().filter(|(i, _)| source[*i].is_none()).collect();
            rest.sort_by_key(|(i, _)| held[*i]);
            for (i, step) in rest {
                place[i] = steps.len();
                steps.push(if has_terms { step.behind_term() } else { step });
            }
            let verbatim = place.iter().copied().eq(own..steps.len());
            if !verbatim {
                pieces = place
                    .iter()
                    .zip(masks)
                    .map(|(&step, mask)| Piece { step, mask: mask ^ steps[step].mask })
                    .collect();
            }
        }
        if steps.len() > PARTS_MAX {
            return Err(CodecError::Definition(format!("{} key parts, at most {PARTS_MAX} are possible", steps.len())));
        }
        let bytes: usize = steps.iter().map(|step| step.bytes_max).sum();
        let limit = match clustered && def.short_references {
            true => IndexId::LEN + SHORT_REFERENCE - REFERENCE_LENGTH,
            false => KEY_BYTES_MAX,
        };
        Ok(KeyCodec {
            id,
            clustered_id,
            clustered,
            hidden_row_id: def.primary.is_none(),
            unique,
            own,
            record_bytes: def.record_bytes as usize,
            bytes_max: (IndexId::LEN + bytes).min(limit),
            limit,
            has_terms,
            unpacks: steps.iter().any(|step| step.unpack != Unpack::None),
            steps,
            pieces,
        })
    }

    /// The index id, with which every key begins.
    pub fn prefix(&self) -> [u8; IndexId::LEN] {
        self.id.prefix()
    }

    /// True for the clustered index.
    pub fn is_clustered(&self) -> bool {
        self.clustered
    }

    /// True if no two rows may have the same own parts, unless one of them is NULL. Always true for a clustered index;
    /// false for the hash index of a long UNIQUE, whose values may collide.
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Parts of the index itself.
    pub fn own_parts(&self) -> usize {
        self.own
    }

    /// Parts including the suffix.
    pub fn parts(&self) -> usize {
        self.steps.len()
    }

    /// Upper bound of the length of a key in bytes, suffix included. Encoders of rows refuse what is longer than the engine's
    /// limit, or than a short reference has room for, so this is never more.
    pub fn max_key_bytes(&self) -> usize {
        self.bytes_max
    }

    /// The stored key of a row. `row_id` is the hidden row id, and ignored if the table has a primary key.
    pub fn encode_record(&self, record: Record<'_>, row_id: u64, out: &mut Vec<u8>) -> Result<()> {
        self.check_record(record.bytes());
        let suffix = !self.clustered && (!self.unique || self.has_null_part(record));
        let steps = if suffix { &self.steps[..] } else { &self.steps[..self.own] };
        self.begin(out);
        for step in steps {
            step.encode(record, row_id, out);
        }
        checked(out, self.limit)
    }

    /// Index id and own parts of a row, without suffix: what a unique index locks and looks up to find a duplicate.
    pub fn encode_own_parts(&self, record: Record<'_>, out: &mut Vec<u8>) -> Result<()> {
        self.check_record(record.bytes());
        self.begin(out);
        for step in &self.steps[..self.own] {
            // A row id among the own parts is that of a clustered index, which has no use for this call.
            step.encode(record, 0, out);
        }
        checked(out, KEY_BYTES_MAX)
    }

    /// Index id and leading parts with these values, as [`Layout::carried`] has them, of columns of another table that compare
    /// with those of the parts. The keys of all rows that have the values begin with the first bytes of what comes out, as many as
    /// are returned; what is stored under them begins with the others, which are there if the values go beyond the own parts of a
    /// unique index. `None` if no row can have the values.
    pub(crate) fn encode_values<'a>(
        &self,
        values: impl IntoIterator<Item = Option<&'a [u8]>>,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        self.begin(out);
        let mut in_key = None;
        for (number, (step, value)) in self.steps.iter().zip(values).enumerate() {
            if self.unique && number == self.own {
                in_key = Some(out.len());
            }
            if !value.is_some_and(|value| step.carried_value(value, out)) {
                return Ok(None);
            }
        }
        checked(out, KEY_BYTES_MAX)?;
        Ok(Some(in_key.unwrap_or(out.len())))
    }

    /// The value stored under a row's key in a secondary index: the suffix if it is not in the key, then unpack data.
    pub fn encode_value(&self, record: Record<'_>, row_id: u64, out: &mut Vec<u8>) -> Result<()> {
        self.check_record(record.bytes());
        out.clear();
        if self.clustered {
            return Ok(());
        }
        if self.unique && !self.has_null_part(record) {
            for step in &self.steps[self.own..] {
                step.encode(record, row_id, out);
            }
        }
        if self.unpacks {
            self.encode_unpack(record, out);
        }
        Ok(())
    }

    /// The entry of a row for one of its terms, in an index that has such: index id, term and suffix, and what is stored with it. A
    /// unique index has the suffix before that, in the value.
    pub(crate) fn encode_term(
        &self,
        term: &[u8],
        payload: &[u8],
        record: Record<'_>,
        row_id: u64,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<()> {
        self.check_record(record.bytes());
        self.begin(key);
        self.steps[0].value(term, key);
        value.clear();
        let suffix = if self.unique { &mut *value } else { &mut *key };
        self.steps[self.own..].iter().for_each(|step| step.encode(record, row_id, suffix));
        value.extend_from_slice(payload);
        checked(key, KEY_BYTES_MAX)
    }

    /// Appends the unpack data of a row; nothing if the key says it all.
    pub fn encode_unpack(&self, record: Record<'_>, out: &mut Vec<u8>) {
        let mut needed = out.len();
        for step in &self.steps {
            if step.put_unpack(record, out) {
                needed = out.len();
            }
        }
        out.truncate(needed);
    }

    /// Encodes a key image of the server: leading own parts, then, if more are given, parts of the suffix in the order
    /// of the server's extended keys. The result is a prefix of the keys of all rows that have these values; of a unique
    /// index whose parts are not NULL only as far as its own parts go, for the suffix is then not in the key.
    pub fn encode_image(&self, mut image: &[u8], out: &mut Vec<u8>) -> Result<ImageParts> {
        self.begin(out);
        let mut found = ImageParts { parts: 0, has_null: false };
        for (i, step) in self.steps.iter().enumerate() {
            if image.is_empty() || step.store_length == 0 {
                break;
            }
            let Some(null) = step.encode_image(image, out) else {
                return Err(CodecError::Image(format!(
                    "index {}: part {} needs {} bytes, {} are given",
                    self.id,
                    i + 1,
                    step.store_length,
                    image.len()
                )));
            };
            found.parts += 1;
            found.has_null |= null;
            image = &image[step.store_length..];
        }
        if !image.is_empty() {
            return Err(CodecError::Image(format!("index {}: {} bytes after the last part", self.id, image.len())));
        }
        checked(out, KEY_BYTES_MAX)?;
        Ok(found)
    }

    /// True if an own part is NULL, so that the row cannot conflict with another in this index.
    pub fn has_null_part(&self, record: Record<'_>) -> bool {
        self.steps[..self.own].iter().any(|step| step.layout.is_null(record.bytes()))
    }

    /// Takes an entry apart and checks its form.
    pub fn split<'a>(&self, key: &'a [u8], value: &'a [u8]) -> Result<Entry<'a>> {
        let mut at = self.body(key)?;
        let mut has_null = false;
        for i in 0..self.own {
            let (end, null) = self.skip(i, key, at)?;
            at = end;
            has_null |= null;
        }
        let own = &key[..at];
        if self.clustered {
            self.at_end(key, at)?;
            return Ok(Entry { own, suffix: &[], unpack: &[], has_null });
        }
        if self.unique && !has_null {
            self.at_end(key, at)?;
            let end = self.skip_suffix(value, 0)?;
            return Ok(Entry { own, suffix: &value[..end], unpack: &value[end..], has_null });
        }
        let end = self.skip_suffix(key, at)?;
        self.at_end(key, end)?;
        Ok(Entry { own, suffix: &key[at..], unpack: value, has_null })
    }

    /// The clustered key, id included, of the row that a secondary entry belongs to.
    pub fn clustered_key_from(&self, key: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        if self.clustered {
            out.extend_from_slice(key);
            return Ok(());
        }
        let entry = self.split(key, value)?;
        out.extend_from_slice(&self.clustered_id.prefix());
        if self.pieces.is_empty() {
            out.extend_from_slice(entry.suffix);
            return Ok(());
        }
        // The ends of all parts: of own parts in the key, of others in the suffix.
        let mut bounds = [(0, 0); PARTS_MAX];
        let mut at = IndexId::LEN;
        for (i, bound) in bounds.iter_mut().enumerate().take(self.steps.len()) {
            if i == self.own {
                at = 0;
            }
            let (end, _) = self.skip(i, if i < self.own { entry.own } else { entry.suffix }, at)?;
            *bound = (at, end);
            at = end;
        }
        for piece in &self.pieces {
            let (begin, end) = bounds[piece.step];
            let mut from = if piece.step < self.own { entry.own } else { entry.suffix };
            from = &from[begin..end];
            let to = out.len();
            out.extend_from_slice(from);
            if piece.mask != 0 {
                out[to..].iter_mut().for_each(|byte| *byte = !*byte);
            }
        }
        Ok(())
    }

    /// The hidden row id at the end of a clustered key; an error if the table has a primary key.
    pub fn row_id(&self, clustered_key: &[u8]) -> Result<u64> {
        let id = clustered_key.get(IndexId::LEN..).and_then(|id| <[u8; ROW_ID_BYTES]>::try_from(id).ok());
        match id {
            Some(id) if self.hidden_row_id => Ok(u64::from_be_bytes(id)),
            _ => Err(self.corrupt(format!("{} bytes are not the key of a hidden row id", clustered_key.len()))),
        }
    }

    /// True if [`KeyCodec::decode_into`] restores the column: it is in the index or the primary key, not only in part.
    pub fn covers(&self, column: usize) -> bool {
        self.steps.iter().any(|step| step.column == column && step.restores())
    }

    /// True if the column can be restored from the key alone. The row then need not hold it.
    pub(crate) fn recovers(&self, column: usize) -> bool {
        self.steps.iter().any(|step| step.column == column && step.restores() && step.unpack == Unpack::None)
    }

    /// Restores columns from a secondary entry into `record`: the covered ones among `columns`, or all covered ones.
    /// Everything else in the record is left as it is. After an error the columns are in no particular state.
    pub fn decode_into(&self, key: &[u8], value: &[u8], record: &mut [u8], columns: Option<&ColumnSet>) -> Result<()> {
        self.check_record(record);
        if self.clustered {
            return self.decode_key(key, record, columns);
        }
        let mut at = self.body(key)?;
        let (suffix, mut suffix_at, unpack) = if self.unique {
            let entry = self.split(key, value)?;
            (entry.suffix, 0, entry.unpack)
        } else {
            (key, usize::MAX, value)
        };
        let mut unpack = Reader::new(unpack);
        for i in 0..self.own {
            at = self.decode_step(i, key, at, &mut unpack, record, columns)?;
        }
        if suffix_at == usize::MAX {
            suffix_at = at;
        }
        for i in self.own..self.steps.len() {
            suffix_at = self.decode_step(i, suffix, suffix_at, &mut unpack, record, columns)?;
        }
        self.at_end(suffix, suffix_at)?;
        if !unpack.is_empty() && !self.has_terms {
            return Err(self.corrupt(format!("{} bytes after the unpack data", unpack.rest().len())));
        }
        Ok(())
    }

    /// Restores the columns that a clustered key alone holds.
    pub(crate) fn decode_key(&self, key: &[u8], record: &mut [u8], columns: Option<&ColumnSet>) -> Result<()> {
        let mut at = self.body(key)?;
        for i in 0..self.own {
            let step = &self.steps[i];
            let write = step.unpack == Unpack::None && columns.is_none_or(|columns| columns.contains(step.column));
            let end = if write {
                step.decode_number(key, at, record)
                    .or_else(|| step.decode(key, at, &mut Reader::new(&[]), record, true))
            } else {
                step.skip(key, at).map(|(end, _)| end)
            };
            at = end.ok_or_else(|| self.bad_part(i))?;
        }
        self.at_end(key, at)
    }

    /// Where each part that is in the key ends: `key[..ends[n - 1]]` are the first `n` parts.
    pub fn part_ends(&self, key: &[u8], ends: &mut Vec<usize>) -> Result<()> {
        ends.clear();
        let mut at = self.body(key)?;
        for i in 0..self.steps.len() {
            if i == self.own && at == key.len() {
                break;
            }
            (at, _) = self.skip(i, key, at)?;
            ends.push(at);
        }
        self.at_end(key, at)
    }

    #[inline]
    fn decode_step(
        &self,
        i: usize,
        bytes: &[u8],
        at: usize,
        unpack: &mut Reader<'_>,
        record: &mut [u8],
        columns: Option<&ColumnSet>,
    ) -> Result<usize> {
        let step = &self.steps[i];
        let write = columns.is_none_or(|columns| columns.contains(step.column));
        step.decode(bytes, at, unpack, record, write).ok_or_else(|| self.bad_part(i))
    }

    fn begin(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.id.prefix());
    }

    /// A record of another table is a bug of the caller.
    fn check_record(&self, record: &[u8]) {
        assert!(record.len() >= self.record_bytes, "a record of {} bytes, not {}", record.len(), self.record_bytes);
    }

    /// Where the parts of a key begin.
    fn body(&self, key: &[u8]) -> Result<usize> {
        if key.starts_with(&self.id.prefix()) {
            return Ok(IndexId::LEN);
        }
        Err(self.corrupt(format!("a key begins with {:02x?}", &key[..key.len().min(IndexId::LEN)])))
    }

    fn skip(&self, i: usize, bytes: &[u8], at: usize) -> Result<(usize, bool)> {
        self.steps[i].skip(bytes, at).ok_or_else(|| self.bad_part(i))
    }

    fn skip_suffix(&self, bytes: &[u8], mut at: usize) -> Result<usize> {
        for i in self.own..self.steps.len() {
            (at, _) = self.skip(i, bytes, at)?;
        }
        Ok(at)
    }

    fn at_end(&self, bytes: &[u8], at: usize) -> Result<()> {
        if at == bytes.len() {
            return Ok(());
        }
        Err(self.corrupt(format!("{} bytes after the last key part", bytes.len() - at)))
    }

    #[cold]
    fn bad_part(&self, i: usize) -> CodecError {
        let of = if i < self.own { "" } else { " (of the primary key)" };
        self.corrupt(match self.steps[i].column {
            usize::MAX => format!("part {}: no whole row id", i + 1),
            column => format!("part {}{of}: no well-formed value of column {column}", i + 1),
        })
    }

    #[cold]
    fn corrupt(&self, what: String) -> CodecError {
        CodecError::Corrupt(format!("index {}: {what}", self.id))
    }
}
