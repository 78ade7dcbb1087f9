//! The relations of an open table, bound to its records: made once per handler and change of the relations.

use crate::def::{Collation, TableDef};
use crate::error::{Error, Result};
use crate::foreign::key::database;
use crate::foreign::{Reference, Relations};
use crate::rowcode::layout::Layout;
use crate::rowcode::{ColumnSet, Record};
use crate::table::Table;
use std::sync::Arc;

/// How all rows of a child are looked at for a key.
pub(super) struct ChildScan {
    /// The index that has all columns of the key; `None`: the rows themselves.
    pub index: Option<usize>,
    pub columns: Columns,
    /// What is decoded of a row.
    pub wanted: ColumnSet,
}

impl ChildScan {
    /// For a key of which the table is the child, and has all columns.
    pub fn of(table: &Table, reference: &Reference) -> Result<ChildScan> {
        // Rows of the past are left out.
        let end = table.versions.as_ref().map(|versions| versions.end_number());
        let columns = || reference.child_columns.iter().copied().chain(end);
        let covers = |index: &usize| {
            table.def.primary != Some(*index) && columns().all(|column| table.indexes[*index].covers(column))
        };
        let index = reference.child_index.map(|place| number_of(table, place)).transpose()?.filter(covers);
        let mut wanted = ColumnSet::new(table.def.columns.len());
        columns().for_each(|column| wanted.insert(column));
        Ok(ChildScan { index, columns: Columns::new(table, &reference.child_columns)?, wanted })
    }
}

/// The columns of a key in the records of one open table, in the order of the key.
pub(super) struct Columns(Vec<Column>);

struct Column {
    layout: Layout,
    /// The collation and the number of characters of a text whose characters differ in length.
    chars: Option<(Arc<dyn Collation>, usize)>,
}

impl Column {
    fn new(def: &TableDef, number: usize) -> Result<Column> {
        let layout = Layout::of(def, number)?;
        let longest = |collation: &Arc<dyn Collation>| usize::from(collation.traits().mbmaxlen.max(1));
        let collation = def.columns[number].collation.clone().filter(|collation| longest(collation) > 1);
        let chars = collation.map(|collation| {
            let chars = layout.size / longest(&collation);
            (collation, chars)
        });
        Ok(Column { layout, chars })
    }

    /// Takes a carried value; false if the column cannot have it.
    fn carry(&self, record: &mut [u8], value: Option<&[u8]>) -> bool {
        let has_room = match (&self.chars, value) {
            (Some((collation, chars)), Some(text)) => collation.prefix_bytes(text, *chars) >= text.len(),
            _ => true,
        };
        has_room && self.layout.carry(record, value)
    }
}

/// A key whose child the table is.
pub(super) struct Outgoing {
    pub(super) reference: Arc<Reference>,
    pub(super) columns: Columns,
    /// What is in an entry of the child's index: while that is the same the parent is not looked for again.
    pub(super) entry: Columns,
    /// That of the child's index, see [`turn_of`].
    pub(super) turn: usize,
}

/// A key whose parent the table is.
pub(super) struct Incoming {
    pub(super) reference: Arc<Reference>,
    pub(super) columns: Columns,
    /// That of the index referred to, see [`turn_of`].
    pub(super) turn: usize,
}

/// The relations of an open table.
pub(crate) struct Links {
    relations: Arc<Relations>,
    /// In the order in which InnoDB looks at them: by the index of the child, the one of the rows first, then by name.
    pub(super) parents: Vec<Outgoing>,
    /// Likewise: by the index referred to, then by the names of the child's database and of the key. It shows where one key deletes
    /// what another protects.
    pub(super) children: Vec<Incoming>,
}

impl Columns {
    pub(super) fn new(table: &Table, numbers: &[usize]) -> Result<Columns> {
        Ok(Columns(numbers.iter().map(|number| Column::new(&table.def, *number)).collect::<Result<_>>()?))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The values of a row; `None` is NULL.
    pub(super) fn values<'a>(&'a self, record: Record<'a>) -> impl Iterator<Item = Option<&'a [u8]>> {
        self.0.iter().map(move |column| column.layout.carried(record))
    }

    /// True if some value is NULL: the row refers to nothing, and nothing refers to it.
    pub(super) fn has_null(&self, record: Record<'_>) -> bool {
        self.0.iter().any(|column| column.layout.is_null(record.bytes()))
    }

    /// Takes values that columns of another table had, none for a column that stays as it is; false if a column cannot have its value.
    pub(super) fn carry<'a>(
        &self,
        record: &mut [u8],
        values: impl IntoIterator<Item = Option<Option<&'a [u8]>>>,
    ) -> bool {
        let mut pairs = self.0.iter().zip(values);
        pairs.all(|(column, value)| value.is_none_or(|value| column.carry(record, value)))
    }

    /// True if both rows have the same bytes here.
    pub(super) fn same(&self, a: Record<'_>, b: Record<'_>) -> bool {
        self.0.iter().all(|column| column.layout.carried(a) == column.layout.carried(b))
    }
}

impl Links {
    /// Binds relations to the records of `table`.
    fn new(table: &Table, relations: Arc<Relations>) -> Result<Links> {
        let mut parents = Vec::new();
        for reference in &relations.parents {
            let number = reference.child_index.map(|place| number_of(table, place)).transpose()?;
            let columns = Columns::new(table, &reference.child_columns)?;
            let turn = number.map_or(LAST_TURN, |number| turn_of(table, number));
            let mut parts = reference.child_columns.clone();
            for index in number.into_iter().chain(table.def.primary) {
                parts.extend(table.def.indexes[index].parts.iter().map(|part| part.column as usize));
            }
            let entry = Columns::new(table, &parts)?;
            parents.push(Outgoing { reference: reference.clone(), columns, entry, turn });
        }
        let mut children = Vec::new();
        for reference in &relations.children {
            // A key that does not fit protects nothing. One whose children have no index does.
            let Some(parent_index) = reference.parent_index else { continue };
            let number = number_of(table, parent_index)?;
            let columns = Columns::new(table, &reference.parent_columns)?;
            children.push(Incoming { reference: reference.clone(), columns, turn: turn_of(table, number) });
        }
        parents.sort_by(|a, b| (a.turn, names(&a.reference)).cmp(&(b.turn, names(&b.reference))));
        children.sort_by(|a, b| (a.turn, names(&a.reference)).cmp(&(b.turn, names(&b.reference))));
        Ok(Links { relations, parents, children })
    }
}

/// The end of all turns.
pub(super) const ALL: usize = usize::MAX;
/// That of keys without an index.
const LAST_TURN: usize = usize::MAX - 1;

/// When InnoDB writes the entry of a row in the open table's index of this number: that of the rows comes first. With it go the keys of
/// the index: first the rows that refer to what leaves, then the parents of what comes, then whether that is a duplicate.
pub(super) fn turn_of(table: &Table, number: usize) -> usize {
    if table.def.primary == Some(number) { 0 } else { number + 1 }
}

fn names(reference: &Reference) -> (&str, &str) {
    (database(&reference.child), &reference.key.name)
}

/// The open table's number of an index that has this number in the catalog.
pub(super) fn number_of(table: &Table, place: usize) -> Result<usize> {
    table.places.iter().position(|known| *known == place).ok_or_else(|| {
        Error::invalid(format!("table '{}' has no index {place}, which a foreign key needs", table.state.name()))
    })
}

impl Table {
    /// The relations as they are now; `None` if there are none.
    pub(super) fn links(&self) -> Result<Option<Arc<Links>>> {
        let Some(relations) = self.state.relations() else { return Ok(None) };
        let mut bound = self.links.lock();
        if let Some(links) = bound.as_ref().filter(|links| Arc::ptr_eq(&links.relations, &relations)) {
            return Ok(Some(links.clone()));
        }
        let links = Arc::new(Links::new(self, relations)?);
        *bound = Some(links.clone());
        Ok(Some(links))
    }
}
