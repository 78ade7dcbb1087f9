//! The report of a salvage: what was lost, where, and what it means.

use crate::catalog::Catalog;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use strata_engine::internals::salvage::{Loss, Salvage};
use strata_engine::layer::IndexId;

/// Names of indexes.
pub struct Names(BTreeMap<IndexId, String>);

impl Names {
    /// Those of the catalog.
    pub fn new(catalog: &Catalog) -> Names {
        let owners = catalog.owners();
        let mut names: BTreeMap<IndexId, String> =
            owners.into_iter().map(|(id, (table, index))| (id, format!("table {table}, index {index}"))).collect();
        names.insert(IndexId(1), "the catalog".into());
        names.insert(IndexId(2), "the counters of AUTO_INCREMENT".into());
        names.insert(IndexId(3), "statistics".into());
        Names(names)
    }

    fn of(&self, key: &[u8]) -> String {
        match key.first_chunk::<{ IndexId::LEN }>() {
            Some(_) => self.of_index(IndexId::of(key)),
            None => "the first index".into(),
        }
    }

    fn of_index(&self, id: IndexId) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| format!("index {id}, of no table"))
    }
}

/// What is told of rows.
#[derive(Default)]
struct Counts {
    rows: u64,
    doubtful: u64,
}

/// What is to be told.
#[derive(Default)]
pub struct Report {
    tables: BTreeMap<String, Counts>,
    definitions: BTreeMap<String, Result<(), String>>,
    left_out: Vec<(String, String)>,
    unreadable: Vec<(String, Vec<u8>, String)>,
    ownerless: BTreeMap<IndexId, u64>,
}

/// A key in hexadecimal, the index left out; a long one is cut.
fn shown(key: &[u8]) -> String {
    let rest = key.get(IndexId::LEN..).unwrap_or_default();
    let digits: String = rest.iter().take(40).map(|byte| format!("{byte:02x}")).collect();
    let more = if rest.len() > 40 { "..." } else { "" };
    format!("{digits}{more}")
}

/// A loss in one line.
pub fn describe(loss: &Loss, names: &Names) -> String {
    let mut line = format!("{} at offset {}", loss.path.display(), loss.offset);
    if let Some(bytes) = loss.bytes {
        let _ = write!(line, ", {bytes} bytes");
    }
    let _ = write!(line, ": {}", loss.what);
    match (&loss.keys, loss.versions) {
        (Some((lower, upper)), versions) => {
            let of = match (names.of(lower), names.of(upper)) {
                (lower, upper) if lower == upper => lower,
                (lower, upper) => format!("{lower} to {upper}"),
            };
            let rows = versions.map_or("an unknown number of".into(), |versions| versions.to_string());
            let _ = write!(line, "; {rows} versions of rows of {of}, keys {} to {}", shown(lower), shown(upper));
        }
        (None, Some(0)) => line.push_str("; no row is lost with it"),
        (None, _) => {}
    }
    line
}

impl Report {
    /// A row was written.
    pub fn row(&mut self, table: &str, doubtful: bool) {
        if !self.tables.contains_key(table) {
            self.tables.insert(table.to_owned(), Counts::default());
        }
        if let Some(counts) = self.tables.get_mut(table) {
            match doubtful {
                true => counts.doubtful += 1,
                false => counts.rows += 1,
            }
        }
    }

    /// Where the definition of a table comes from.
    pub fn definition(&mut self, table: &str, frm: Result<(), String>) {
        self.definitions.insert(table.to_owned(), frm);
    }

    /// A table that is not written.
    pub fn left_out(&mut self, table: &str, why: &str) {
        self.left_out.push((table.to_owned(), why.to_owned()));
    }

    /// A row whose bytes are intact and make no sense.
    pub fn unreadable(&mut self, table: &str, key: &[u8], what: &str) {
        self.unreadable.push((table.to_owned(), key.to_vec(), what.to_owned()));
    }

    /// An entry of an index that belongs to no table.
    pub fn ownerless(&mut self, index: IndexId) {
        *self.ownerless.entry(index).or_default() += 1;
    }

    /// The report.
    pub fn text(&self, dir: &Path, salvage: &Salvage, catalog: &Catalog, names: &Names) -> String {
        let mut text = format!("Salvage of {}\n", dir.display());
        let _ = writeln!(text, "\nLosses: {}", salvage.losses.len());
        for loss in &salvage.losses {
            let _ = writeln!(text, "  {}", describe(loss, names));
        }
        for note in &salvage.notes {
            let _ = writeln!(text, "  {note}");
        }
        for broken in &catalog.broken {
            let _ = writeln!(text, "  {broken}");
        }
        for (table, key, what) in &self.unreadable {
            let _ = writeln!(text, "  a row of {table} with key {} is in index-N.hex only: {what}", shown(key));
        }
        for (index, entries) in &self.ownerless {
            let _ = writeln!(
                text,
                "  index {index} belongs to no table that the catalog still has: {entries} entries are in index-{index}.hex"
            );
        }
        for undecided in &salvage.undecided {
            let _ = writeln!(
                text,
                "  transaction {:02x?} is prepared and undecided: its writes, {} keys and {} files, are not in the output",
                undecided.xid,
                undecided.keys.len(),
                undecided.files.len()
            );
        }
        let _ = writeln!(text, "\nTables: {}", catalog.tables.len() - self.left_out.len());
        for (table, frm) in &self.definitions {
            let Counts { rows, doubtful } = self.tables.get(table).unwrap_or(&Counts { rows: 0, doubtful: 0 });
            let _ = write!(text, "  {table}: {rows} rows");
            if *doubtful > 0 {
                let _ = write!(text, ", {doubtful} doubtful rows (a newer version, or their deletion, may be lost)");
            }
            if catalog.doubtful.contains(table) {
                text.push_str(", by a definition that may be an older one");
            }
            if let Err(why) = frm {
                let _ = write!(text, "; without the server's types: {why}");
            }
            text.push('\n');
        }
        for (table, why) in &self.left_out {
            let _ = writeln!(text, "  {table} is left out: {why}");
        }
        text
    }
}
