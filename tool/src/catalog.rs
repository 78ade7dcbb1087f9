//! The tables of a store, as far as the catalog can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use strata_engine::internals::salvage::Salvage;
use strata_engine::layer::IndexId;
use strata_row::catalog::format::{self, CATALOG, COUNTERS, Entry, FIRST_INDEX_ID};
use strata_row::schema::TableMeta;

/// The catalog.
#[derive(Default)]
pub struct Catalog {
    /// Tables by their names in the catalog.
    pub tables: BTreeMap<String, TableMeta>,
    /// Tables whose entry may be an older one.
    pub doubtful: BTreeSet<String>,
    /// The next value of AUTO_INCREMENT, by table id.
    pub counters: BTreeMap<u64, u64>,
    /// Indexes that were dropped.
    pub pending: BTreeSet<IndexId>,
    /// Entries that make no sense.
    pub broken: Vec<String>,
}

impl Catalog {
    /// Reads it.
    pub fn read(salvage: &mut Salvage) -> Catalog {
        let mut catalog = Catalog::default();
        let (from, to) = (CATALOG.prefix(), IndexId(FIRST_INDEX_ID).prefix());
        let done: Result<(), Infallible> = salvage.walk(&from, &to, &mut |row| {
            catalog.take(row.key, row.value, row.doubtful);
            Ok(())
        });
        let Ok(()) = done;
        catalog
    }

    fn take(&mut self, key: &[u8], value: &[u8], doubtful: bool) {
        match IndexId::of(key) {
            CATALOG => match format::parse_key(key) {
                Ok(Entry::Table(name)) => match TableMeta::decode(name, value) {
                    Ok(meta) => {
                        self.tables.insert(name.to_owned(), meta);
                        if doubtful {
                            self.doubtful.insert(name.to_owned());
                        }
                    }
                    Err(error) => self.broken.push(error.to_string()),
                },
                Ok(Entry::Pending(id)) => drop(self.pending.insert(id)),
                Ok(Entry::Ids | Entry::Decisions) => {}
                Err(error) => self.broken.push(error.to_string()),
            },
            COUNTERS => {
                let (table, which) = key[IndexId::LEN..].split_at((key.len() - IndexId::LEN).min(8));
                if let (Ok(table), [0], Ok(next)) = (table.try_into(), which, format::decode_counter(value)) {
                    self.counters.insert(u64::from_be_bytes(table), next);
                }
            }
            _ => {}
        }
    }

    /// The table and the name of the index, of those that have an owner.
    pub fn owners(&self) -> BTreeMap<IndexId, (&str, &str)> {
        let mut owners = BTreeMap::new();
        for (name, meta) in &self.tables {
            owners.extend(meta.hidden.map(|id| (id, (name.as_str(), "rows"))));
            owners.extend(meta.indexes.iter().map(|index| (index.id, (name.as_str(), index.name.as_str()))));
        }
        owners
    }
}

/// Database and table of a name in the catalog: `./db/table`, in the form that names of files have.
pub fn parts(name: &str) -> Option<(&str, &str)> {
    let (database, table) = name.strip_prefix("./")?.split_once('/')?;
    (!table.is_empty() && !table.contains('/')).then_some((database, table))
}

/// A name as SQL has it, from the form that the server gives names of files: `@` and four hexadecimal digits stand for a character.
/// `None` if it has one in a shorter form.
pub fn decoded(name: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = name;
    while let Some(at) = rest.find('@') {
        out.push_str(&rest[..at]);
        let code = u32::from_str_radix(rest.get(at + 1..at + 5)?, 16).ok()?;
        out.push(char::from_u32(code)?);
        rest = &rest[at + 5..];
    }
    out.push_str(rest);
    Some(out)
}

/// A name for SQL, always: the server takes one behind `#mysql50#` as that of the file.
pub fn sql_name(name: &str) -> String {
    decoded(name).unwrap_or_else(|| format!("#mysql50#{name}"))
}

/// The table that a partition belongs to.
pub fn whole_table(table: &str) -> &str {
    let at = table.find("#P#").or_else(|| table.find("#p#"));
    at.map_or(table, |at| &table[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(parts("./db/t"), Some(("db", "t")));
        assert_eq!(parts("#aside/7"), None);
        assert_eq!(parts("/tmp/#sql1"), None);
        assert_eq!(decoded("a@002db").as_deref(), Some("a-b"));
        assert_eq!(decoded("caf@00e9").as_deref(), Some("café"));
        assert_eq!(decoded("caf@0g"), None);
        assert_eq!(sql_name("caf@0g"), "#mysql50#caf@0g");
        assert_eq!(whole_table("t#P#p0#SP#s1"), "t");
        assert_eq!(whole_table("t"), "t");
    }
}
