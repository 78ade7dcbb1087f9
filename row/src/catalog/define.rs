//! What a statement that creates or renames a table makes of foreign keys: names, and what is refused.
//!
//! Pure functions of the tables that there are, called under the lock of the catalog's changes.
//!
//! A key is refused unless the child has an index that begins with its columns, the parent has one that begins with the referenced
//! columns, and the columns can be compared. Without checks the parent may be missing, but a parent that is there has to fit
//! even then. A table that comes to be under the name of a missing parent must fit the keys that wait for it, unless checks are off.
//!
//! ALTER TABLE by copy creates `#sql-alter-...`, which *stands for* the altered table: keys that it takes over have their names and
//! were checked before; what it is to be is checked now, before rows are copied, as if it had the altered table's name already.

use super::graph::{columns, index_of, is_comparable};
use crate::error::{Error, Result};
use crate::foreign::key::{database, is_passive, same_column};
use crate::foreign::{Action, Fault, ForeignKey, Reference, Statement};
use crate::schema::TableMeta;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What comes between a table's name and a number in names that nobody has given.
const GENERATED: &str = "_ibfk_";
/// Why a table cannot refer to itself.
const COMES_TOO: &str = "The referenced index comes with the same statement: it must be there before.";

/// The tables that there are.
pub(crate) trait Dictionary {
    /// The table of this name.
    fn meta(&self, name: &str) -> Option<&Arc<TableMeta>>;
    /// The names of the tables that have keys with this parent.
    fn children_of<'a>(&'a self, parent: &str) -> Box<dyn Iterator<Item = &'a str> + 'a>;
    /// The table that has a key of this name, which is in lower case, in this database.
    fn owner(&self, database: &str, name: &str) -> Option<&str>;
}

/// How names of tables look in SQL.
pub(crate) trait Names {
    /// The table's own name, without its database.
    fn table(&self, name: &str) -> String;
    /// Both, quoted.
    fn quoted(&self, name: &str) -> String;
    /// The table, quoted, and the partition with its subpartition, which is empty for a table in one piece.
    fn with_partition(&self, name: &str) -> (String, String) {
        let Some((table, partition)) = name.split_once("#P#") else {
            return (self.quoted(name), String::new());
        };
        let parts: Vec<String> = partition.split("#SP#").map(|part| self.table(&format!("./p/{part}"))).collect();
        (self.quoted(table), parts.join("/"))
    }
}

/// The keys that a table gets beside those that it has, if it has any, with names for those that have none. `meta` is the table as it is
/// to be.
pub(crate) fn keys_to_come(
    tables: &dyn Dictionary,
    names: &dyn Names,
    statement: &Statement,
    name: &str,
    meta: &TableMeta,
    keys: &[ForeignKey],
) -> Result<Vec<Arc<ForeignKey>>> {
    let stands_for = statement.stands_for(name);
    let altered = statement.altered.as_deref();
    let base = names.table(stands_for);
    let before = altered.and_then(|altered| tables.meta(altered));
    let mut taken: BTreeSet<String> = meta.foreign.iter().map(|key| key.name.to_lowercase()).collect();
    // Names that a key of this table has, and of another one.
    let (mut own, mut others) = (Vec::new(), None);
    for (number, key) in keys.iter().enumerate().filter(|(_, key)| !key.name.is_empty()) {
        let lower = key.name.to_lowercase();
        if tables.owner(database(name), &lower).is_some_and(|owner| Some(owner) != altered) {
            others = others.or(Some(key));
        }
        let was_there =
            || before.is_some_and(|before| before.foreign.iter().any(|old| old.name.to_lowercase() == lower));
        match taken.insert(lower.clone()) {
            true => {}
            false if was_there() => own.push(number),
            false => return Err(refused(key, Fault::Other, "The statement has two foreign keys of this name.".into())),
        }
    }
    let subject = Subject { tables, names, statement, name, meta, before };
    for (number, key) in keys.iter().enumerate() {
        subject.check_parts(key)?;
        if own.contains(&number) {
            return Err(Error::ForeignNameTaken(key.name.clone()));
        }
        if subject.had_index(key) {
            subject.check_columns(key, Fault::Parent)?;
        }
    }
    keys.iter().filter(|key| !subject.had_index(key)).try_for_each(|key| subject.check_columns(key, Fault::Child))?;
    if let Some(key) = others {
        return Err(Error::ForeignNameTaken(key.name.clone()));
    }
    let known = before.into_iter().flat_map(|meta| &meta.foreign).map(|key| key.name.as_str());
    let mut number = known.filter_map(|name| generated_number(name, &base)).max().unwrap_or(0);
    let mut made = Vec::with_capacity(keys.len());
    for key in keys {
        let mut key = key.clone();
        while key.name.is_empty() {
            number += 1;
            let generated = format!("{base}{GENERATED}{number}");
            let lower = generated.to_lowercase();
            let is_free = tables.owner(database(name), &lower).is_none_or(|owner| Some(owner) == altered);
            if is_free && taken.insert(lower) {
                key.name = generated;
            }
        }
        made.push(Arc::new(key));
    }
    Ok(made)
}

/// The error of a key that cannot be made. One without a name is called by its columns.
fn refused(key: &ForeignKey, fault: Fault, why: String) -> Error {
    let name = match key.name.is_empty() {
        true => format!("({})", key.columns.join(", ")),
        false => format!("`{}`", key.name),
    };
    Error::CannotAddForeign { name, why, fault }
}

/// A table that gets keys.
struct Subject<'a> {
    tables: &'a dyn Dictionary,
    names: &'a dyn Names,
    statement: &'a Statement,
    name: &'a str,
    /// As it is to be.
    meta: &'a TableMeta,
    /// As it is, if a statement alters it.
    before: Option<&'a Arc<TableMeta>>,
}

impl Subject<'_> {
    /// True unless the index for the key comes with the statement that brings the key. InnoDB looks at types, and for NULL, when it has the
    /// child's index: of such a key in the end only.
    fn had_index(&self, key: &ForeignKey) -> bool {
        self.before.is_none_or(|before| index_name(before, &key.columns).is_some())
    }

    /// The key's parent, if there is a table of that name. A copy refers to itself by the name that it is to have.
    fn parent(&self, key: &ForeignKey) -> Option<&TableMeta> {
        match key.parent == self.statement.stands_for(self.name) {
            true => Some(self.meta),
            false => self.tables.meta(&key.parent).map(|meta| &**meta),
        }
    }

    /// An error if the table lacks what the key is made of, or there is no parent that has the columns and an index of them.
    fn check_parts(&self, key: &ForeignKey) -> Result<()> {
        let refuse = |why: String| Err(refused(key, Fault::Other, why));
        let Subject { statement, meta, before, .. } = *self;
        if meta.temporary {
            return refuse("Temporary tables cannot have foreign keys.".into());
        }
        let Some(numbers) = columns(meta, &key.columns) else {
            let missing = key.columns.iter().find(|column| columns(meta, std::slice::from_ref(column)).is_none());
            return refuse(format!("The table has no column `{}`.", missing.map_or("", String::as_str)));
        };
        if index_of(meta, &numbers).is_none() {
            // Only ALTER TABLE can leave a key without the index that came with it.
            return match before.and_then(|before| index_name(before, &key.columns)) {
                Some(_) if !statement.checks => Ok(()),
                Some(index) => Err(Error::IndexOfForeign(index)),
                // It has lost its index before, and goes on without where nobody asks.
                None if key.inherited && !statement.checks => Ok(()),
                None => refuse("The table has no index that begins with these columns.".into()),
            };
        }
        match self.parent(key) {
            // What was accepted once is not refused because the parent went, or was replaced without checks; only a parent that has lost
            // its index is in the way of a copy.
            None if key.inherited => Ok(()),
            Some(_) if key.inherited && !statement.checks => Ok(()),
            None if !statement.checks => Ok(()),
            None => refuse(format!("There is no table {} of this engine.", self.names.quoted(&key.parent))),
            Some(parent) => {
                let why = no_index(key, parent).or_else(|| {
                    // The rows that are copied are looked for in the table that there is.
                    let before = before.filter(|_| key.parent == statement.stands_for(self.name) && !key.inherited)?;
                    no_index(key, before).map(|_| COMES_TOO.into())
                });
                why.map_or(Ok(()), |why| Err(refused(key, Fault::Parent, why)))
            }
        }
    }

    /// An error if the columns do not go together, which is the fault of `other_types`, or an action could not do what it is to.
    fn check_columns(&self, key: &ForeignKey, other_types: Fault) -> Result<()> {
        let Subject { statement, meta, before, .. } = *self;
        let Some(numbers) = columns(meta, &key.columns).filter(|numbers| index_of(meta, numbers).is_some()) else {
            return Ok(());
        };
        let parent = self.parent(key).filter(|_| !key.inherited);
        if let Some(why) = parent.and_then(|parent| misfit(meta, &numbers, key, parent)) {
            return Err(refused(key, other_types, why));
        }
        let is_own = key.parent == statement.stands_for(self.name) && !key.inherited;
        if is_own && before.is_some_and(|before| misfit(meta, &numbers, key, before).is_some()) {
            return Err(refused(key, Fault::Parent, COMES_TOO.into()));
        }
        let sets_null = [key.on_delete, key.on_update].contains(&Action::SetNull);
        if let Some(number) = numbers.iter().find(|number| sets_null && !meta.columns[**number].nullable) {
            let column = &meta.columns[*number].name;
            let why = format!("SET NULL is not possible: column `{column}` is NOT NULL.");
            return Err(refused(key, Fault::Child, why));
        }
        match parent.and_then(|parent| no_room_for_null(meta, &numbers, key, parent)).filter(|_| statement.strict) {
            Some(why) => Err(refused(key, Fault::Child, why)),
            None => Ok(()),
        }
    }
}

/// An error if rows of a table that is to be under a name expire and foreign keys refer to it, be it its own or those of other tables, or
/// if it refers to such a table. Whether foreign keys are checked does not matter: a parent's row must not go by itself.
pub(crate) fn check_ttl(tables: &dyn Dictionary, names: &dyn Names, name: &str, meta: &TableMeta) -> Result<()> {
    let why =
        |name: &str| format!("Rows of table {} expire (TTL): no foreign key can refer to them.", names.quoted(name));
    let expires = |parent: &str| match parent == name {
        true => meta.ttl.is_some(),
        false => tables.meta(parent).is_some_and(|meta| meta.ttl.is_some()),
    };
    if let Some(key) = meta.foreign.iter().find(|key| expires(&key.parent)) {
        return Err(refused(key, Fault::Other, why(&key.parent)));
    }
    let child = tables.children_of(name).find(|child| *child != name).filter(|_| meta.ttl.is_some());
    match child {
        Some(child) => {
            Err(Error::WrongOption(format!("TTL: a foreign key of table {} refers to the table", names.quoted(child))))
        }
        None => Ok(()),
    }
}

/// Why a parent cannot be one by the columns that a key names.
fn no_index(key: &ForeignKey, parent: &TableMeta) -> Option<String> {
    let Some(parent_numbers) = columns(parent, &key.parent_columns) else {
        let missing = key.parent_columns.iter().find(|column| columns(parent, std::slice::from_ref(column)).is_none());
        return Some(format!("The referenced table has no column `{}`.", missing.map_or("", String::as_str)));
    };
    let lacks = index_of(parent, &parent_numbers).is_none();
    lacks.then(|| "The referenced table has no index that begins with the referenced columns, whole.".into())
}

/// Why a parent does not fit a key whose columns have these numbers in the child.
fn misfit(child: &TableMeta, numbers: &[usize], key: &ForeignKey, parent: &TableMeta) -> Option<String> {
    if let Some(why) = no_index(key, parent) {
        return Some(why);
    }
    let parent_numbers = columns(parent, &key.parent_columns)?;
    let mut pairs = numbers.iter().zip(&parent_numbers).map(|(c, p)| (&child.columns[*c], &parent.columns[*p]));
    let differ = pairs.find(|(column, referenced)| !is_comparable(column, referenced))?;
    Some(format!(
        "Type or collation of column `{}` differs from that of the referenced column `{}`.",
        differ.0.name, differ.1.name
    ))
}

/// Why a key cannot copy what becomes of a parent that fits: NULL, to a column that takes none. InnoDB accepts such a key with any action
/// ON DELETE; the update of a parent fails then.
fn no_room_for_null(child: &TableMeta, numbers: &[usize], key: &ForeignKey, parent: &TableMeta) -> Option<String> {
    if (key.on_delete, key.on_update) != (Action::Restrict, Action::Cascade) {
        return None;
    }
    let parent_numbers = columns(parent, &key.parent_columns)?;
    let mut pairs = numbers.iter().zip(&parent_numbers).map(|(c, p)| (&child.columns[*c], &parent.columns[*p]));
    let (column, referenced) = pairs.find(|(column, referenced)| !column.nullable && referenced.nullable)?;
    Some(format!(
        "ON UPDATE CASCADE is not possible: column `{}` is NOT NULL, the referenced column `{}` may be NULL.",
        column.name, referenced.name
    ))
}

/// The name of the index by which these columns are found.
fn index_name(meta: &TableMeta, names: &[String]) -> Option<String> {
    let index = index_of(meta, &columns(meta, names)?)?;
    Some(meta.indexes[index].name.clone())
}

/// An error if a table that comes to be under a name does not fit the keys of other tables that name it. `meta` stands for
/// the table of `statement.altered` if `name` is passive.
pub(crate) fn check_children(
    tables: &dyn Dictionary,
    names: &dyn Names,
    statement: &Statement,
    name: &str,
    meta: &TableMeta,
) -> Result<()> {
    if !statement.checks {
        return Ok(());
    }
    let parent = statement.stands_for(name);
    for child in tables.children_of(parent).filter(|child| *child != parent) {
        let Some(child_meta) = tables.meta(child) else { continue };
        for key in child_meta.foreign.iter().filter(|key| key.parent == parent) {
            let Some(numbers) = columns(child_meta, &key.columns) else { continue };
            let Some(why) = misfit(child_meta, &numbers, key, meta) else { continue };
            // One that did not fit before need not fit now.
            let before = tables.meta(parent);
            if before.is_some_and(|before| misfit(child_meta, &numbers, key, before).is_some()) {
                continue;
            }
            let index = before.and_then(|before| index_name(before, &key.parent_columns));
            let has_columns = columns(meta, &key.parent_columns);
            return match index.filter(|_| has_columns.is_some_and(|numbers| index_of(meta, &numbers).is_none())) {
                Some(index) => Err(Error::IndexOfForeign(index)),
                None => {
                    let why =
                        format!("Foreign key `{}` of table {} refers to it: {why}", key.name, names.quoted(child));
                    Err(refused(key, Fault::Parent, why))
                }
            };
        }
    }
    Ok(())
}

/// `meta` with the names that columns had in `before`: the keys know them by these until they follow. New columns have none.
fn under_former_names(before: &TableMeta, meta: &TableMeta) -> TableMeta {
    let mut meta = meta.clone();
    for column in &mut meta.columns {
        let former = before.columns.iter().find(|former| former.id == column.id);
        column.name = former.map(|former| former.name.clone()).unwrap_or_default();
    }
    meta
}

/// An error if a table that changes from `before` to `meta` lacks an index that a foreign key needs. The keys have the former names of
/// columns.
pub(crate) fn check_indexes(
    tables: &dyn Dictionary,
    names: &dyn Names,
    statement: &Statement,
    name: &str,
    [before, meta]: [&TableMeta; 2],
) -> Result<()> {
    if !statement.checks {
        return Ok(());
    }
    let meta = &under_former_names(before, meta);
    for key in &meta.foreign {
        let Some(numbers) = columns(meta, &key.columns) else { continue };
        if index_of(meta, &numbers).is_none()
            && let Some(index) = index_name(before, &key.columns)
        {
            return Err(Error::IndexOfForeign(index));
        }
        if key.parent == name
            && misfit(meta, &numbers, key, meta).is_some()
            && let Some(index) = index_name(before, &key.parent_columns)
        {
            return Err(Error::IndexOfForeign(index));
        }
    }
    check_children(tables, names, statement, name, meta)
}

/// What a rename makes of the table's entry and of those of its children: their names with what they are to be.
pub(crate) struct Renamed {
    /// The table itself.
    pub meta: TableMeta,
    /// Others.
    pub children: Vec<(String, TableMeta)>,
}

/// See [`Renamed`].
pub(crate) fn rename(
    tables: &dyn Dictionary,
    names: &dyn Names,
    statement: &Statement,
    [from, to]: [&str; 2],
    meta: &TableMeta,
) -> Result<Renamed> {
    let mut renamed = Renamed { meta: meta.clone(), children: Vec::new() };
    if is_passive(to) {
        return Ok(renamed);
    }
    // The name that others know it by.
    let known = statement.stands_for(from);
    let (base, new_base) = (names.table(known), names.table(to));
    for key in &mut renamed.meta.foreign {
        let mut next = ForeignKey { inherited: false, ..ForeignKey::clone(key) };
        if key.parent == known {
            next.parent = to.to_owned();
        }
        if let Some(number) = generated_number(&key.name, &base).filter(|_| known != to) {
            next.name = format!("{new_base}{GENERATED}{number}");
        }
        let owner = tables.owner(database(to), &next.name.to_lowercase());
        if owner.is_some_and(|owner| ![from, known].contains(&owner)) {
            return Err(Error::ForeignNameTaken(next.name));
        }
        *key = Arc::new(next);
    }
    // Keys of other tables go with the name. A copy that takes the altered table's place takes them as they are.
    if !is_passive(known) && known != to {
        for child in tables.children_of(known).filter(|child| ![from, known].contains(child)) {
            let Some(child_meta) = tables.meta(child) else { continue };
            let mut next = TableMeta::clone(child_meta);
            for key in next.foreign.iter_mut().filter(|key| key.parent == known) {
                *key = Arc::new(ForeignKey { parent: to.to_owned(), ..ForeignKey::clone(key) });
            }
            renamed.children.push((child.to_owned(), next));
        }
    }
    let waiting = Statement { altered: None, ..statement.clone() };
    check_children(tables, names, &waiting, to, &renamed.meta)?;
    check_ttl(tables, names, to, &renamed.meta)?;
    Ok(renamed)
}

/// Foreign keys follow the names of columns when table `name` changes from `old` to `meta`: its own, and those of the tables that refer
/// to it, which are returned with their new entries.
pub(crate) fn rename_columns(
    tables: &dyn Dictionary,
    name: &str,
    old: &TableMeta,
    meta: &mut TableMeta,
) -> Vec<(String, Arc<TableMeta>)> {
    let mut renamed: Vec<(&str, String)> = Vec::new();
    for column in &old.columns {
        let now = meta.columns.iter().find(|now| now.id == column.id && now.name != column.name);
        renamed.extend(now.map(|now| (column.name.as_str(), now.name.clone())));
    }
    if renamed.is_empty() {
        return Vec::new();
    }
    let follow = |columns: &mut Vec<String>| {
        for column in columns {
            if let Some((_, to)) = renamed.iter().find(|(from, _)| same_column(from, column)) {
                column.clone_from(to);
            }
        }
    };
    let keys_of = |table: &str, keys: &[Arc<ForeignKey>]| -> Vec<Arc<ForeignKey>> {
        let mut keys = keys.to_vec();
        for key in keys.iter_mut().map(Arc::make_mut) {
            if table == name {
                follow(&mut key.columns);
            }
            if key.parent == name {
                follow(&mut key.parent_columns);
            }
        }
        keys
    };
    meta.foreign = keys_of(name, &meta.foreign);
    let others = tables.children_of(name).filter(|child| *child != name);
    let others = others.filter_map(|child| {
        let meta = tables.meta(child)?;
        Some((
            child.to_owned(),
            Arc::new(TableMeta { foreign: keys_of(child, &meta.foreign), ..TableMeta::clone(meta) }),
        ))
    });
    others.collect()
}

/// The key of another table that keeps these tables from being dropped.
pub(crate) fn obstacle(tables: &dyn Dictionary, statement: &Statement, dropped: &[String]) -> Option<Arc<Reference>> {
    if !statement.checks {
        return None;
    }
    dropped.iter().find_map(|parent| {
        let goes = |child: &&str| {
            dropped.iter().any(|name| name == child)
                || (statement.drops_database && database(child) == database(parent))
        };
        let child = tables.children_of(parent).find(|child| !goes(child))?;
        let child_meta = tables.meta(child)?;
        let key = child_meta.foreign.iter().find(|key| key.parent == *parent)?;
        Some(Arc::new(Reference::bind(key, child, child_meta, tables.meta(parent).map(|meta| &**meta))))
    })
}

/// The number in a name that was made for a key of the table `base`.
fn generated_number(name: &str, base: &str) -> Option<u64> {
    let digits = name.get(..base.len()).filter(|begin| begin.to_lowercase() == base.to_lowercase());
    let digits = digits.and_then(|_| name[base.len()..].strip_prefix(GENERATED))?;
    let is_number = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}
