//! The files that SQL loads.
//!
//! The definition of a table is written in UTF-8, its rows in the character set `binary`, in statements of half a mebibyte or one row.
//! A table with partitions is one table here, and so is what its partitions hold.

use super::sql_names;
use crate::catalog::sql_name;
use crate::ddl::{Collations, Table, identifier};
use crate::value;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use strata_engine::layer::IndexId;

/// A statement ends when it is longer than this.
const STATEMENT_BYTES: usize = 512 << 10;
/// What the session must be like: bytes are taken as they are, and nothing is checked that was checked before.
const SESSION: &str = "SET NAMES utf8mb4;\n\
    SET SESSION sql_mode='STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone='+00:00', \
    foreign_key_checks=0, unique_checks=0, check_constraint_checks=0;\n";
/// What loads all files.
const LOAD: &str = "#!/bin/sh\n# sh load.sh [options of the client mariadb]\nset -e\ncd \"$(dirname \"$0\")\"\n";
/// Rows of tables with system versions are written with their periods.
const HISTORY: &str = "SET SESSION system_versioning_insert_history=1;\n";

/// The output of a salvage.
pub struct Output {
    dir: PathBuf,
    tables: BTreeSet<[String; 2]>,
    open: Option<Rows>,
    raw: BTreeMap<IndexId, BufWriter<File>>,
    doubtful: BTreeSet<[String; 2]>,
}

/// The rows of one table that are being written.
struct Rows {
    place: [String; 2],
    /// Certain and doubtful ones.
    files: [Option<Statement>; 2],
}

/// A file in which an INSERT may be open.
struct Statement {
    file: BufWriter<File>,
    path: PathBuf,
    head: String,
    bytes: usize,
}

impl Output {
    /// Into a directory that exists.
    pub fn new(dir: &Path) -> Output {
        let (tables, doubtful, raw) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Output { dir: dir.to_owned(), tables, open: None, raw, doubtful }
    }

    fn path(&self, [database, table]: [&str; 2], suffix: &str) -> PathBuf {
        self.dir.join(database).join(format!("{table}{suffix}"))
    }

    /// Begins the file of a table; of several partitions the first.
    pub fn begin(&mut self, table: &Table<'_>, place: [&str; 2], collations: &Collations) -> Result<()> {
        if !self.tables.insert(place.map(str::to_owned)) {
            return Ok(());
        }
        let path = self.path(place, ".sql");
        let write = || -> Result<()> {
            fs::create_dir_all(self.dir.join(place[0]))?;
            let mut file = File::create_new(&path)?;
            let [database, _] = sql_names(place);
            file.write_all(SESSION.as_bytes())?;
            if table.is_versioned() {
                file.write_all(HISTORY.as_bytes())?;
            }
            writeln!(file, "CREATE DATABASE IF NOT EXISTS {database};\nUSE {database};")?;
            let source = match (table.meta.no_rollback, table.frm.is_some()) {
                (true, _) => "-- A sequence; its row is below.",
                (_, true) => {
                    "-- Types, defaults and expressions are of the .frm file, names and indexes of the catalog."
                }
                (_, false) => {
                    "-- There is no .frm file: each column has a type that holds what is stored, not the one it had."
                }
            };
            writeln!(file, "{source}")?;
            if !table.meta.no_rollback {
                file.write_all(table.create(&sql_name(place[1]), collations).as_bytes())?;
            }
            writeln!(file, "SET NAMES binary;")?;
            Ok(())
        };
        write().with_context(|| path.display().to_string())
    }

    /// Writes a row.
    pub fn row(&mut self, table: &Table<'_>, place: [&str; 2], literals: &[Vec<u8>], doubtful: bool) -> Result<()> {
        if self.open.as_ref().is_none_or(|open| open.place != place) {
            self.close()?;
            self.open = Some(Rows { place: place.map(str::to_owned), files: [None, None] });
        }
        let path = self.path(place, if doubtful { ".doubtful.sql" } else { ".sql" });
        let Some(open) = &mut self.open else { return Ok(()) };
        let at = path.display().to_string();
        if table.meta.no_rollback {
            return sequence(&path, table, place, literals).context(at);
        }
        let slot = &mut open.files[usize::from(doubtful)];
        let statement = match slot {
            Some(statement) => statement,
            None => {
                let is_new = !path.exists();
                let mut file =
                    BufWriter::new(File::options().append(true).create(true).open(&path).context(at.clone())?);
                let [database, name] = sql_names(place);
                if is_new {
                    let history = if table.is_versioned() { HISTORY } else { "" };
                    write!(file, "{SESSION}{history}USE {database};\nSET NAMES binary;\n").context(at.clone())?;
                }
                let written = table.meta.columns.iter().filter(|column| table.is_written(column));
                let columns: Vec<String> = written.map(|column| identifier(&column.name)).collect();
                let ignore = if doubtful { " IGNORE" } else { "" };
                let head = format!("INSERT{ignore} INTO {name} ({}) VALUES\n", columns.join(","));
                slot.insert(Statement { file, path, head, bytes: 0 })
            }
        };
        if doubtful {
            self.doubtful.insert(place.map(str::to_owned));
        }
        statement.row(literals)
    }

    /// Writes key and value of an index that belongs to nobody.
    pub fn raw(&mut self, index: IndexId, key: &[u8], row: &[u8]) -> Result<()> {
        let path = self.dir.join(format!("index-{index}.hex"));
        let at = path.display().to_string();
        let file = match self.raw.entry(index) {
            std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                new.insert(BufWriter::new(File::create_new(&path).context(at.clone())?))
            }
        };
        let mut line = Vec::new();
        value::hex(key, &mut line);
        line.push(b' ');
        value::hex(row, &mut line);
        line.push(b'\n');
        file.write_all(&line).context(at)
    }

    fn close(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        open.files.into_iter().flatten().try_for_each(Statement::finish)
    }

    /// Ends all files, and writes the one that loads them.
    pub fn finish(mut self) -> Result<()> {
        self.close()?;
        for (_, mut file) in std::mem::take(&mut self.raw) {
            file.flush()?;
        }
        let mut load = LOAD.to_owned();
        for [database, table] in &self.tables {
            load.push_str(&format!("mariadb \"$@\" --binary-mode <'{database}/{table}.sql'\n"));
        }
        for [database, table] in &self.doubtful {
            load.push_str(&format!(
                "# Doubtful rows: mariadb \"$@\" --binary-mode <'{database}/{table}.doubtful.sql'\n"
            ));
        }
        let path = self.dir.join("load.sh");
        fs::write(&path, load).with_context(|| path.display().to_string())
    }
}

impl Statement {
    fn row(&mut self, literals: &[Vec<u8>]) -> Result<()> {
        let write = |this: &mut Statement| -> std::io::Result<()> {
            let lead = if this.bytes == 0 { this.head.clone() } else { ",\n".to_owned() };
            this.file.write_all(lead.as_bytes())?;
            let row = literals.join(&b","[..]);
            this.file.write_all(b"(")?;
            this.file.write_all(&row)?;
            this.file.write_all(b")")?;
            this.bytes += row.len() + 3;
            if this.bytes > STATEMENT_BYTES {
                this.file.write_all(b";\n")?;
                this.bytes = 0;
            }
            Ok(())
        };
        let at = self.path.display().to_string();
        write(self).context(at)
    }

    fn finish(mut self) -> Result<()> {
        let write = |this: &mut Statement| -> std::io::Result<()> {
            if this.bytes > 0 {
                this.file.write_all(b";\n")?;
            }
            this.file.flush()
        };
        let at = self.path.display().to_string();
        write(&mut self).context(at)
    }
}

/// A sequence is created as it stands: its one row says all.
fn sequence(path: &Path, table: &Table<'_>, place: [&str; 2], literals: &[Vec<u8>]) -> Result<()> {
    let value = |name: &str| {
        let number = table.meta.columns.iter().position(|column| column.name == name);
        number.and_then(|number| literals.get(number)).map(|text| String::from_utf8_lossy(text).into_owned())
    };
    let need = |name: &str| value(name).with_context(|| format!("the sequence has no {name}"));
    let [_, name] = sql_names(place);
    let cycle = if need("cycle_option")? == "0" { "NOCYCLE" } else { "CYCLE" };
    let text = format!(
        "CREATE SEQUENCE {name} START WITH {} MINVALUE {} MAXVALUE {} INCREMENT BY {} CACHE {} {cycle} ENGINE=STRATA;\n\
         SELECT SETVAL({name}, {}, 0, {}) AS {name};\n",
        need("start_value")?,
        need("minimum_value")?,
        need("maximum_value")?,
        need("increment")?,
        need("cache_size")?,
        need("next_not_cached_value")?,
        need("cycle_count")?,
    );
    Ok(File::options().append(true).open(path)?.write_all(text.as_bytes())?)
}
