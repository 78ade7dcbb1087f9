//! What the statement that changes tables says of foreign keys.

use super::key::is_passive;

/// What a statement says that changes tables.
#[derive(Clone, Default)]
pub struct Statement {
    /// Foreign keys are checked: what does not fit is refused.
    pub checks: bool,
    /// The table that the statement alters, if it does: that of a `#sql-...` name stands for it.
    pub altered: Option<String>,
    /// The whole database is dropped: keys between its tables are no obstacle.
    pub drops_database: bool,
    /// Keys are refused by which NULL could come to a column that takes none.
    pub strict: bool,
}

impl Statement {
    /// The name that a table is to have in the end, as far as one can tell from `name`.
    pub(crate) fn stands_for<'a>(&'a self, name: &'a str) -> &'a str {
        match &self.altered {
            Some(altered) if is_passive(name) => altered,
            _ => name,
        }
    }
}
