//! The relations of an open table, bound to its records: made once per handler and change of the relations.

use crate::error::{Error, Result};
use crate::foreign::graph::{Reference, Relations, database};
use crate::keycode::KeyCodec;
use crate::rowcode::Record;
use crate::rowcode::layout::Layout;
use crate::table::Table;
use std::sync::Arc;

/// The columns of a key in the records of one open table, in the order of the key.
pub(super) struct Columns(Vec<Layout>);

/// A key whose child the table is.
pub(super) struct Outgoing {
    pub(super) reference: Arc<Reference>,
    pub(super) columns: Columns,
}

/// A key whose parent the table is.
pub(super) struct Incoming {
    pub(super) reference: Arc<Reference>,
    pub(super) columns: Columns,
    /// Of the index that it refers to.
    pub(super) codec: Arc<KeyCodec>,
}

/// The relations of an open table.
pub(crate) struct Links {
    relations: Arc<Relations>,
    pub(super) parents: Vec<Outgoing>,
    /// In the order in which InnoDB looks at them: by the index referred to, the one of the rows first, then by the names of
    /// the child's database and of the key. It shows where one key deletes what another protects.
    pub(super) children: Vec<Incoming>,
}

impl Columns {
    pub(super) fn new(table: &Table, numbers: &[usize]) -> Result<Columns> {
        let layouts = numbers.iter().map(|number| Layout::of(&table.def, *number));
        Ok(Columns(layouts.collect::<std::result::Result<_, _>>()?))
    }

    pub(super) fn layouts(&self) -> &[Layout] {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The values of a row; `None` is NULL.
    pub(super) fn values<'a>(&'a self, record: Record<'a>) -> impl Iterator<Item = Option<&'a [u8]>> {
        self.0.iter().map(move |layout| layout.carried(record))
    }

    /// True if some value is NULL: the row refers to nothing, and nothing refers to it.
    pub(super) fn has_null(&self, record: Record<'_>) -> bool {
        self.0.iter().any(|layout| layout.is_null(record.bytes()))
    }

    /// True if both rows have the same bytes here.
    pub(super) fn same(&self, a: Record<'_>, b: Record<'_>) -> bool {
        self.0.iter().all(|layout| layout.carried(a) == layout.carried(b))
    }
}

impl Links {
    /// Binds relations to the records of `table`.
    fn new(table: &Table, relations: Arc<Relations>) -> Result<Links> {
        let parents = relations.parents.iter().map(|reference| {
            let columns = Columns::new(table, &reference.child_columns)?;
            Ok(Outgoing { reference: reference.clone(), columns })
        });
        let parents = parents.collect::<Result<_>>()?;
        let mut children = Vec::new();
        for reference in &relations.children {
            // A key that does not fit protects nothing.
            let (Some(parent_index), Some(_)) = (reference.parent_index, reference.child_index) else { continue };
            let number = number_of(table, parent_index)?;
            let columns = Columns::new(table, &reference.parent_columns)?;
            let order = (table.def.primary != Some(number), number);
            let codec = table.indexes[number].clone();
            children.push((order, Incoming { reference: reference.clone(), columns, codec }));
        }
        children.sort_by(|(a, one), (b, other)| {
            let names = |incoming: &Incoming| {
                (database(&incoming.reference.child).to_owned(), incoming.reference.key.name.clone())
            };
            a.cmp(b).then_with(|| names(one).cmp(&names(other)))
        });
        Ok(Links { relations, parents, children: children.into_iter().map(|(_, incoming)| incoming).collect() })
    }
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
