//! Tables that the catalog has and the server does not: dropped while the plugin was absent, when the server removes a
//! definition and asks no engine.
//!
//! The server knows a table by its definition, `<database>/<table>.frm` in the data directory; that of a partition
//! (`t#P#p0`, `t#P#p0#SP#s0`) is the partitioned table's. The question is asked once, after the server has finished or undone
//! interrupted statements. In doubt a table stays: temporary tables, which have no such file; names that the server makes
//! while it alters a table (`#sql-...`), which may hold the only copy of one; anything below a directory that cannot be read,
//! or that is a link to nowhere (a file system that is not mounted); and everything, if this is no server's data directory,
//! or if a definition of this engine has no table: a rename that was interrupted, and recovered without the engine, leaves both.

use std::collections::{BTreeMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Looks for definitions in a data directory.
pub struct Definitions {
    data: PathBuf,
    /// Per database the names of the definitions in lower case, or `None` if nothing is certain.
    databases: BTreeMap<String, Option<HashSet<String>>>,
}

impl Definitions {
    /// Those in `data`.
    pub fn of(data: &Path) -> Definitions {
        Definitions { data: data.to_owned(), databases: BTreeMap::new() }
    }

    /// True if it is certain that the server does not know the table of this name.
    pub fn lack(&mut self, name: &str) -> bool {
        let Some((database, base)) = base_of(name) else { return false };
        let data = &self.data;
        let found = self.databases.entry(database.to_owned()).or_insert_with(|| definitions(data, database));
        found.as_ref().is_some_and(|found| !found.contains(&base.to_lowercase()))
    }

    /// A definition of this engine without a table among `tables`, or what kept the search for one from its end. Reads all
    /// definitions.
    pub fn without_table(&self, tables: &[String]) -> Option<PathBuf> {
        let lower = |(database, base): (&str, &str)| (database.to_owned(), base.to_lowercase());
        let known: HashSet<_> = tables.iter().filter_map(|name| base_of(name).map(lower)).collect();
        let unknown = |dir: &Path| -> std::io::Result<Option<PathBuf>> {
            let database = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            for entry in dir.read_dir()? {
                let path = entry?.path();
                let base = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_lowercase();
                if path.extension().is_some_and(|e| e == "frm")
                    && !known.contains(&(database.clone(), base))
                    && std::fs::read(&path)?.windows(ENGINE.len()).any(|bytes| bytes == ENGINE)
                {
                    return Ok(Some(path));
                }
            }
            Ok(None)
        };
        let Ok(entries) = self.data.read_dir() else { return Some(self.data.clone()) };
        let mut dirs = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
        dirs.find_map(|dir| unknown(&dir).unwrap_or(Some(dir)))
    }
}

/// Whether this is the name of a partition. In names that users give the server writes a '#' in another way.
pub fn is_partition(name: &str) -> bool {
    name.to_ascii_uppercase().contains("#P#")
}

/// How a definition names the engine.
const ENGINE: &[u8] = b"STRATA";

/// Database and table of a user's table, of a partition the table that is divided.
fn base_of(name: &str) -> Option<(&str, &str)> {
    let (database, table) = name.strip_prefix("./")?.split_once('/')?;
    // In a name of the user's, this character is encoded.
    let base = table.split('#').next().unwrap_or_default();
    (!base.is_empty() && !database.is_empty() && !base.contains('/')).then_some((database, base))
}

/// Names of the definitions of a database. None, for certain, if it has no directory.
fn definitions(data: &Path, database: &str) -> Option<HashSet<String>> {
    // Every server has this one.
    if !data.join("mysql").is_dir() {
        return None;
    }
    let dir = data.join(database);
    match dir.symlink_metadata() {
        Err(error) => (error.kind() == ErrorKind::NotFound).then(HashSet::new),
        Ok(_) => {
            let mut names = HashSet::new();
            for entry in dir.read_dir().ok()? {
                let name = entry.ok()?.file_name().to_str()?.to_lowercase();
                names.extend(name.strip_suffix(".frm").map(str::to_owned));
            }
            Some(names)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_table_is_an_orphan_only_if_its_definition_is_certainly_gone() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        for database in ["mysql", "db", "empty"] {
            fs::create_dir(data.join(database)).unwrap();
        }
        for file in ["t.frm", "T2.frm", "a@0023b.frm", "parts.frm", "#sql-alter-1-2.frm"] {
            fs::write(data.join("db").join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("/nowhere/at/all", data.join("unmounted")).unwrap();
        let mut server = Definitions::of(data);
        let known = [
            "./db/t",
            "./db/t2",
            "./db/a@0023b",
            "./db/parts#P#p0",
            "./db/parts#P#p0#SP#s1",
            "./db/#sql-alter-1-2",
            "./db/#sql-backup-1-2",
            "./unmounted/t",
            "/tmp/#sql-temptable-1-2-3",
            "#aside/7",
            "./t",
            "t",
        ];
        for name in known {
            assert!(!server.lack(name), "{name}");
        }
        for name in ["./db/u", "./db/gone#P#p0", "./empty/t", "./dropped/t", "./db/a@0023c"] {
            assert!(server.lack(name), "{name}");
        }
        let tables = ["./db/t", "./db/parts#P#p0", "./db/u"].map(str::to_owned);
        assert_eq!(server.without_table(&tables), None, "the other definitions are not of this engine");
        fs::write(data.join("db/parts.frm"), "..STRATA..").unwrap();
        assert_eq!(server.without_table(&tables), None);
        fs::write(data.join("db/old-name.frm"), "..STRATA..").unwrap();
        assert_eq!(server.without_table(&tables), Some(data.join("db/old-name.frm")));
        assert!(
            is_partition("./db/parts#P#p0#SP#s1") && is_partition("./db/parts#p#p0") && !is_partition("./db/a@0023b")
        );
        // Not a data directory at all.
        fs::remove_dir(data.join("mysql")).unwrap();
        assert!(!Definitions::of(data).lack("./db/u"));
    }
}
