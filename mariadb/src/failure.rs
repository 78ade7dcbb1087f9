//! What the last failure of a thread was about, where a foreign key has caused it: the server asks for that after the call.

use std::cell::RefCell;
use std::sync::Arc;
use strata_row::Error;
use strata_row::foreign::Reference;

thread_local! {
    static LAST: RefCell<Failure> = const { RefCell::new(Failure::None) };
}

/// What the last failure of this thread that a foreign key has caused was about.
pub enum Failure {
    /// Nothing of the kind.
    None,
    /// A row's key.
    Reference(Arc<Reference>),
    /// Names: of a key or an index; of a child and its index.
    Names([String; 2]),
}

/// Keeps what an error is about, for whoever is told of it. Any error.
pub fn note(error: &Error) {
    let failure = match error {
        Error::NoReferencedRow(reference) | Error::RowIsReferenced(reference) | Error::CascadeTooDeep(reference) => {
            Failure::Reference(reference.clone())
        }
        Error::CannotAddForeign { name, .. }
        | Error::ForeignNameTaken(name)
        | Error::IndexOfForeign(name)
        | Error::NoForeignKey(name) => Failure::Names([name.clone(), String::new()]),
        Error::ForeignDuplicate { child, index } => Failure::Names([child.clone(), index.clone()]),
        _ => return,
    };
    LAST.with(|last| *last.borrow_mut() = failure);
}

/// Shows what was noted last.
pub fn latest<T>(show: impl FnOnce(&Failure) -> T) -> T {
    LAST.with(|last| show(&last.borrow()))
}
