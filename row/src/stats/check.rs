//! CHECK TABLE: blocks, and agreement of the indexes with the rows.
//!
//! At one read point every row is decoded and every secondary entry is followed to its row. The entry must be the one that
//! the row encodes to, key and value: from the value covering reads restore what the key does not say (the case of letters,
//! trailing spaces, the clustered key behind a unique one). Virtual columns are computed by the server ([`Compute`]); without that
//! the entries of their indexes are only followed. The counts must agree: an ordinary index has an entry per row, another as many as
//! its rows have terms. Together that proves that secondary indexes and rows are in one-to-one
//! correspondence. Of an index that is being built only the entries that are there are checked, of one that is being dropped nothing.

use crate::error::{Error, Result};
use crate::index::entries::{Sink, TermEntries, Written};
use crate::kv::ValueBuf;
use crate::kv::{self, IndexId, SeqNo};
use crate::progress::{Step, Told};
use crate::rowcode::Record;
use crate::session::Session;
use crate::table::Table;

/// What is done with the key and value of each entry.
type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// Computes the virtual columns that indexes have, in a record that has all others. False: that failed.
pub type Compute<'a> = &'a mut dyn FnMut(&mut [u8]) -> bool;

/// Findings beyond this many per index are only counted.
const FINDINGS_MAX: u64 = 10;

/// Counts a finding, and tells it unless there were many.
fn found(count: &mut u64, report: &mut dyn FnMut(&str), what: impl FnOnce() -> String) {
    *count += 1;
    if *count <= FINDINGS_MAX {
        report(&what());
    }
}

/// A walk over all keys of an index as one state has them.
struct Walk<'a> {
    session: &'a Session,
    seq: SeqNo,
    told: Told<'a>,
    /// Rows of the table, more or less.
    of: u64,
}

impl Table {
    /// Checks; findings are reported as lines. `quick` checks blocks only. True if all is well.
    pub fn check(
        &self,
        session: &Session,
        quick: bool,
        compute: Option<Compute<'_>>,
        report: &mut dyn FnMut(&str),
    ) -> Result<bool> {
        self.check_telling(session, quick, compute, report, &mut |_, _, _| {})
    }

    /// The same; `told` of the indexes whose blocks have been read, then of rows, anew for each index.
    pub fn check_telling(
        &self,
        session: &Session,
        quick: bool,
        mut compute: Option<Compute<'_>>,
        report: &mut dyn FnMut(&str),
        told: Told<'_>,
    ) -> Result<bool> {
        let mut good = true;
        let ids = self.state.meta.ids();
        for (number, id) in ids.iter().copied().enumerate() {
            told(Step::CheckingBlocks, number as u64, ids.len() as u64);
            if let Err(e) = self.engine().verify_index_with(id, &|| session.check_interrupted()) {
                if !matches!(e, kv::Error::Corruption { .. }) {
                    return Err(e.into());
                }
                good = false;
                report(&e.to_string());
            }
        }
        if quick || !good {
            return Ok(good);
        }
        let point = self.engine().read_point();
        let mut walk = Walk { session, seq: point.seq(), told, of: self.estimated_rows() };
        let rows = self.check_rows(&mut walk, report, &mut good)?;
        walk.of = rows;
        for index in &self.written {
            let entries = self.check_index(index, &mut walk, &mut compute, report, &mut good)?;
            let (expected, whose) = match &index.terms {
                None => (rows, "the table has"),
                Some(_) if index.is_virtual && compute.is_none() => continue,
                Some(terms) => (self.count_terms(index, terms, &mut walk, &mut compute)?, "its rows have"),
            };
            if entries != expected {
                let (name, what) = (self.name_of(index), if index.terms.is_some() { "terms" } else { "rows" });
                report(&format!("index '{name}' has {entries} entries, {whose} {expected} {what}"));
                good = false;
            }
        }
        Ok(good)
    }

    fn check_rows(&self, walk: &mut Walk<'_>, report: &mut dyn FnMut(&str), good: &mut bool) -> Result<u64> {
        let mut record = vec![0; self.def.record_bytes as usize];
        let mut rows = 0;
        let mut bad = 0;
        self.walk_all(self.index_id(None), walk, &mut |key, value| {
            rows += 1;
            if let Err(e) = self.row.decode(key, value, &mut record, None) {
                found(&mut bad, report, || format!("row {rows} does not decode: {e}"));
            }
            Ok(())
        })?;
        *good &= bad == 0;
        Ok(rows)
    }

    fn name_of(&self, index: &Written) -> &str {
        match self.def.indexes.get(index.number) {
            Some(index) => &index.name,
            None => &self.state.meta.indexes[index.place].name,
        }
    }

    /// How many entries the rows have in the index.
    fn count_terms(
        &self,
        index: &Written,
        terms: &TermEntries,
        walk: &mut Walk<'_>,
        compute: &mut Option<Compute<'_>>,
    ) -> Result<u64> {
        let mut record = vec![0; self.def.record_bytes as usize];
        let mut count = 0;
        self.walk_all(self.index_id(None), walk, &mut |key, value| {
            // What does not decode or compute is reported elsewhere.
            if self.row.decode(key, value, &mut record, None).is_err() {
                return Ok(());
            }
            if let Some(compute) = compute.as_mut().filter(|_| index.is_virtual)
                && !compute(&mut record)
            {
                return Ok(());
            }
            let row_id = if self.def.primary.is_none() { self.clustered.row_id(key)? } else { 0 };
            // SAFETY: the record was just decoded; its BLOB pointers point into `value`.
            count += terms.of(unsafe { Record::new(&record) }, row_id)?.len() as u64;
            Ok(())
        })?;
        Ok(count)
    }

    /// How many entries the index has.
    fn check_index(
        &self,
        index: &Written,
        walk: &mut Walk<'_>,
        compute: &mut Option<Compute<'_>>,
        report: &mut dyn FnMut(&str),
        good: &mut bool,
    ) -> Result<u64> {
        let name = self.name_of(index);
        let (session, seq) = (walk.session, walk.seq);
        let mut record = vec![0; self.def.record_bytes as usize];
        let (mut row_key, mut row_value) = (Vec::new(), ValueBuf::default());
        let mut expected = Looking::default();
        let (mut entries, mut bad) = (0, 0);
        self.walk_all(self.state.meta.indexes[index.place].id, walk, &mut |key, value| {
            entries += 1;
            let mut find = || -> Result<Option<&'static str>> {
                index.codec.clustered_key_from(key, value, &mut row_key)?;
                if !session.txn().get(&row_key, seq, &mut row_value)? {
                    return Ok(Some("has no row"));
                }
                if index.is_virtual && compute.is_none() {
                    return Ok(None);
                }
                self.row.decode(&row_key, &row_value, &mut record, None)?;
                if let Some(compute) = compute.as_mut().filter(|_| index.is_virtual)
                    && !compute(&mut record)
                {
                    return Ok(Some("has a row whose virtual columns cannot be computed"));
                }
                let row_id = if self.def.primary.is_none() { self.clustered.row_id(&row_key)? } else { 0 };
                // SAFETY: the record was just decoded; its BLOB pointers point into `row_value`.
                let row = unsafe { Record::new(&record) };
                expected.looks_for(key, value);
                index.entries(row, row_id, &mut expected)?;
                Ok(match expected.found {
                    None => Some("is not the one its row has"),
                    Some(false) => Some("restores other values than its row has"),
                    Some(true) => None,
                })
            };
            let finding = match find() {
                Ok(finding) => finding.map(str::to_owned),
                Err(Error::Corruption { what, .. }) => Some(what),
                Err(e) => return Err(e),
            };
            if let Some(what) = finding {
                found(&mut bad, report, || format!("index '{name}': entry {entries} {what}"));
            }
            Ok(())
        })?;
        *good &= bad == 0;
        Ok(entries)
    }

    fn walk_all(&self, id: IndexId, walk: &mut Walk<'_>, each: Each<'_>) -> Result<()> {
        let Walk { session, seq, told, of } = walk;
        let (session, seq) = (*session, *seq);
        told(Step::CheckingRows, 0, *of);
        let mut cursor = self.engine().cursor();
        cursor.open(session.txn(), seq, &id.prefix(), &IndexId(id.0 + 1).prefix())?;
        cursor.seek_ge(session.txn(), &id.prefix())?;
        let mut steps = 0u64;
        while cursor.valid() {
            each(cursor.key(), cursor.value())?;
            steps += 1;
            if steps % 1024 == 0 {
                session.check_killed()?;
                told(Step::CheckingRows, steps, *of);
            }
            cursor.next(session.txn())?;
        }
        cursor.close();
        Ok(())
    }
}

/// Looks for an entry among those of a row.
#[derive(Default)]
struct Looking {
    wanted_key: Vec<u8>,
    wanted_value: Vec<u8>,
    /// The key was there, and whether the value was the same.
    found: Option<bool>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Looking {
    fn looks_for(&mut self, key: &[u8], value: &[u8]) {
        key.clone_into(&mut self.wanted_key);
        value.clone_into(&mut self.wanted_value);
        self.found = None;
    }
}

impl Sink for Looking {
    fn room(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        (&mut self.key, &mut self.value)
    }
    fn take(&mut self, _: bool) -> Result<()> {
        if self.key == self.wanted_key {
            self.found = Some(self.value == self.wanted_value);
        }
        Ok(())
    }
}
