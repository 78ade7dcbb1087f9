//! `salvage`: what can be read of a damaged store, as files that SQL loads, and a report of what is lost.
//!
//! ```text
//! DIR/report.txt              every loss: file, offset, keys, table; what is doubtful; where definitions come from
//! DIR/load.sh                 loads all tables, but for doubtful rows: sh load.sh, with options of the client mariadb
//! DIR/db/table.sql            CREATE TABLE and the rows
//! DIR/db/table.doubtful.sql   rows of which a newer version, or their deletion, may be lost
//! DIR/index-N.hex             keys and values of an index that belongs to no table of the catalog
//! ```
//!
//! Rows come in the order of the store, table by table, in one pass over its files. Nothing is written to the store.

mod output;
mod report;

use crate::catalog::{Catalog, parts, sql_name, whole_table};
use crate::ddl::{Collations, Table, identifier};
use crate::frm::{self, Frm};
use crate::layout::definition;
use crate::open::{Offline, Place};
use crate::value;
use anyhow::{Context, Result, ensure};
use output::Output;
use report::Report;
pub use report::{Names, describe};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strata_engine::internals::salvage::Row;
use strata_engine::layer::IndexId;
use strata_row::catalog::format::FIRST_INDEX_ID;
use strata_row::keycode::KeyCodec;
use strata_row::rowcode::{Record, RowCodec, Values};
use strata_row::schema::TableMeta;

/// Its options.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    pub place: Place,
    /// Where the files go: a new directory
    #[arg(long)]
    pub to: PathBuf,
    /// The data directory that has the .frm files; the one that the store lies in if left out
    #[arg(long, value_name = "DIR")]
    pub definitions: Option<PathBuf>,
}

/// A table whose rows are being read.
struct Reading<'a> {
    name: &'a str,
    meta: &'a TableMeta,
    rows: RowCodec,
    values: Values,
    record: Vec<u8>,
    frm: Option<Frm>,
    columns: Vec<usize>,
}

/// See the module.
pub fn run(args: &Args) -> Result<()> {
    let store = Offline::open(&args.place)?;
    let definitions = args.definitions.clone().or_else(|| store.data_dir());
    ensure!(!args.to.exists(), "{} exists already", args.to.display());
    fs::create_dir_all(&args.to).with_context(|| args.to.display().to_string())?;
    let mut salvage = store.salvage()?;
    let catalog = Catalog::read(&mut salvage);
    let mut report = Report::default();
    let mut collations = Collations::new();
    for column in catalog.tables.values().flat_map(|meta| &meta.columns) {
        collations.extend(column.collation.clone());
    }
    let mut reading: BTreeMap<IndexId, Reading<'_>> = BTreeMap::new();
    let mut output = Output::new(&args.to);
    for (name, meta) in &catalog.tables {
        let Some((database, table)) = parts(name).filter(|_| !meta.temporary) else {
            report.left_out(name, "a temporary table, or one that was set aside");
            continue;
        };
        if table.starts_with("#sql") {
            report.left_out(name, "a table that an ALTER TABLE was about to make or to drop");
            continue;
        }
        let whole = whole_table(table);
        let frm = read_frm(definitions.as_deref(), database, whole);
        report.definition(name, frm.as_ref().map(|_| ()).map_err(|error| format!("{error:#}")));
        match Reading::new(name, meta, frm.ok()) {
            Ok(of) => {
                let next = catalog.counters.get(&meta.table_id).copied();
                output.begin(&of.table(next), [database, whole], &collations)?;
                reading.insert(meta.clustered_id(), of);
            }
            Err(error) => report.left_out(name, &error.to_string()),
        }
    }
    let owners = catalog.owners();
    let dropped = salvage.dropped.clone();
    let (from, to) = (IndexId(FIRST_INDEX_ID).prefix(), [0xff; 4]);
    salvage.walk(&from, &to, &mut |row: Row<'_>| -> Result<()> {
        let index = IndexId::of(row.key);
        if dropped.contains(&index) || catalog.pending.contains(&index) {
            return Ok(());
        }
        match reading.get_mut(&index) {
            Some(of) => {
                let (database, table) = parts(of.name).unwrap_or_default();
                let place = [database, whole_table(table)];
                match of.literals(row.key, row.value) {
                    Ok(literals) => {
                        report.row(of.name, row.doubtful);
                        output.row(&of.table(None), place, &literals, row.doubtful)
                    }
                    Err(what) => {
                        report.unreadable(of.name, row.key, &what);
                        output.raw(index, row.key, row.value)
                    }
                }
            }
            None if owners.contains_key(&index) => Ok(()),
            None => {
                report.ownerless(index);
                output.raw(index, row.key, row.value)
            }
        }
    })?;
    output.finish()?;
    let names = Names::new(&catalog);
    let text = report.text(&store.dir, &salvage, &catalog, &names);
    let path = args.to.join("report.txt");
    fs::write(&path, &text).with_context(|| path.display().to_string())?;
    eprint!("{text}");
    Ok(())
}

/// The definition of a table.
fn read_frm(definitions: Option<&Path>, database: &str, table: &str) -> Result<Frm> {
    let dir = definitions.context("no data directory is known: --definitions names it")?;
    let path = dir.join(database).join(format!("{table}.frm"));
    let content = fs::read(&path).with_context(|| path.display().to_string())?;
    frm::parse(&content).with_context(|| path.display().to_string())
}

impl<'a> Reading<'a> {
    fn new(name: &'a str, meta: &'a TableMeta, frm: Option<Frm>) -> Result<Reading<'a>> {
        let def = definition(meta);
        let id = meta.clustered_id();
        let keys = Arc::new(KeyCodec::new(&def, meta.primary, id, id)?);
        let rows = RowCodec::versioned(meta, &def, &keys)?;
        let (values, record) = (Values::new(&def)?, vec![0; def.record_bytes as usize]);
        let mut of = Reading { name, meta, rows, values, record, frm, columns: Vec::new() };
        let is_written = |number: &usize| of.table(None).is_written(&meta.columns[*number]);
        of.columns = (0..meta.columns.len()).filter(is_written).collect();
        Ok(of)
    }

    fn table(&self, next: Option<u64>) -> Table<'_> {
        Table { meta: self.meta, frm: self.frm.as_ref(), next }
    }

    /// The values of a row, as SQL writes them.
    fn literals(&mut self, key: &[u8], row: &[u8]) -> std::result::Result<Vec<Vec<u8>>, String> {
        self.rows.decode(key, row, &mut self.record, None).map_err(|error| error.to_string())?;
        // SAFETY: the record was just filled; its pointers lead into `row`, or to what lives as long as the codec.
        let record = unsafe { Record::new(&self.record) };
        let table = self.table(None);
        let mut literals = Vec::with_capacity(self.columns.len());
        for &number in &self.columns {
            let column = &self.meta.columns[number];
            let mut out = Vec::new();
            value::write(column, table.frm_column(column), self.values.get(record, number), &mut out)
                .map_err(|error| format!("column {}: {error:#}", column.name))?;
            literals.push(out);
        }
        Ok(literals)
    }
}

/// Database and table in SQL.
fn sql_names([database, table]: [&str; 2]) -> [String; 2] {
    [database, table].map(|name| identifier(&sql_name(name)))
}
