//! Definition of a foreign key, as the child's catalog entry has it.

/// What becomes of child rows whose parent row goes, or changes the referenced values.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Action {
    /// The change of the parent row fails.
    #[default]
    Restrict,
    /// The same, since keys are checked at once.
    NoAction,
    /// The child rows go too, or change as the parent row does.
    Cascade,
    /// The child columns become NULL.
    SetNull,
}

impl Action {
    /// Its number in the catalog.
    pub fn number(self) -> u8 {
        match self {
            Action::Restrict => 0,
            Action::NoAction => 1,
            Action::Cascade => 2,
            Action::SetNull => 3,
        }
    }

    /// The action of this number.
    pub fn from_number(number: u8) -> Option<Action> {
        [Action::Restrict, Action::NoAction, Action::Cascade, Action::SetNull].get(usize::from(number)).copied()
    }

    /// Its words in SQL.
    pub fn sql(self) -> &'static str {
        match self {
            Action::Restrict => "RESTRICT",
            Action::NoAction => "NO ACTION",
            Action::Cascade => "CASCADE",
            Action::SetNull => "SET NULL",
        }
    }

    /// True if child rows keep the change of the parent row from happening.
    pub fn refuses(self) -> bool {
        matches!(self, Action::Restrict | Action::NoAction)
    }
}

/// What is wrong with a key that cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The parent has no such columns, of these types, at the beginning of an index.
    Parent,
    /// An action makes a column NULL that takes none; or the child's index comes with the key, and then its columns have other types.
    Child,
    /// Anything else.
    Other,
}

/// A foreign key. Names of columns are compared without regard to case.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ForeignKey {
    /// Name of the constraint, unique among those of the child's database.
    pub name: String,
    /// Columns of the child.
    pub columns: Vec<String>,
    /// The parent's name in the catalog. There may be no such table.
    pub parent: String,
    /// Columns of the parent, as many.
    pub parent_columns: Vec<String>,
    /// When a parent row is deleted.
    pub on_delete: Action,
    /// When referenced columns of a parent row change.
    pub on_update: Action,
    /// The child is a copy, not yet in its place, of a table that has the key already: the rows that it is filled with are not
    /// checked, as ALTER TABLE does not check the rows that are there.
    pub inherited: bool,
}

/// True if these name the same column.
pub(crate) fn same_column(a: &str, b: &str) -> bool {
    same_name(a, b)
}

/// True if these are the same but for the case of their letters.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    a == b || a.to_lowercase() == b.to_lowercase()
}

/// True if the server has given this name to a table that it is making or replacing: its keys are not in force yet, or no more.
pub fn is_passive(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|table| table.starts_with("#sql"))
}

/// What comes before the table in a name.
pub(crate) fn database(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(database, _)| database)
}
