//! The foreign keys of tables as they are at a moment: bound to columns and indexes by the catalog.

use super::key::ForeignKey;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A foreign key between two tables as they are now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The definition.
    pub key: Arc<ForeignKey>,
    /// The child's name in the catalog.
    pub child: String,
    /// The name by which statements know the child. It is another one while a copy is about to take the child's place.
    pub called: String,
    /// The parent's name in the catalog, as in the key.
    pub parent: String,
    /// Numbers of the child's columns, in the order of the key.
    pub child_columns: Vec<usize>,
    /// Numbers of the parent's columns, in the order of the key. Empty without `parent_index`.
    pub parent_columns: Vec<usize>,
    /// The catalog's number of the child's index that begins with the columns, whole and in their order. Only a session that
    /// does not check foreign keys can leave a child without.
    pub child_index: Option<usize>,
    /// The catalog's number of the parent's index that begins so. `None` while there is no parent that fits the key.
    pub parent_index: Option<usize>,
}

impl Reference {
    /// The table refers to itself.
    pub fn is_own(&self) -> bool {
        self.child == self.parent
    }
}

/// The foreign keys of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Relations {
    /// Those of which the table is the child, by name.
    pub parents: Vec<Arc<Reference>>,
    /// Those of which it is the parent, by the child's database and the key's name.
    pub children: Vec<Arc<Reference>>,
}

impl Relations {
    fn is_empty(&self) -> bool {
        self.parents.is_empty() && self.children.is_empty()
    }
}

/// The relations of a table as they are now, shared by whoever has it open.
#[derive(Default)]
pub struct Related {
    any: AtomicBool,
    now: RwLock<Option<Arc<Relations>>>,
}

impl Related {
    /// The relations; `None` if the table has none, which costs a load.
    #[inline]
    pub fn get(&self) -> Option<Arc<Relations>> {
        match self.any.load(Ordering::Relaxed) {
            false => None,
            true => self.present(),
        }
    }

    /// True if there are any. A load.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Where `any` is read without a call: a byte that is not 0.
    pub(crate) fn flag(&self) -> *const u8 {
        self.any.as_ptr().cast()
    }

    #[cold]
    fn present(&self) -> Option<Arc<Relations>> {
        self.now.read().clone()
    }

    /// They are others now.
    pub(crate) fn set(&self, relations: Relations) {
        let mut now = self.now.write();
        *now = (!relations.is_empty()).then(|| Arc::new(relations));
        self.any.store(now.is_some(), Ordering::Relaxed);
    }
}
