//! Isolation levels: what a transaction may see of others.
//!
//! All levels write in the same way: a write locks its key exclusively until the transaction ends, so no two transactions that are
//! open have written the same key, and nobody reads what is not committed.

/// What a [`Transaction`](crate::Transaction) sees of others, and what it keeps others from.
///
/// | | `ReadCommitted` | `Snapshot` | `Serializable` |
/// |---|---|---|---|
/// | a read sees | what is committed when it begins | what was committed when the transaction began | what is committed; nobody changes it before the transaction ends |
/// | and | the transaction's own writes | the transaction's own writes | the transaction's own writes |
/// | a read waits | never | never | for those who have written, and not committed, what it reads |
/// | a write over what others have changed since | takes place | fails: [`Error::Conflict`](crate::Error::Conflict) | cannot be: what was read is locked |
/// | dirty read: of what is rolled back later | no | no | no |
/// | non-repeatable read: of a key twice, with another's commit between | possible | no | no |
/// | phantom: new keys in a range that is read again | possible | no | no |
/// | lost update: two read a key, then both write it | possible; [`get_for_update`](crate::Transaction::get_for_update) prevents it | no | no |
/// | write skew: two read the same, then each writes another part of it | possible | possible; `get_for_update` of what the decision depends on prevents it | no |
///
/// The order of transactions of [`Isolation::Serializable`] is that of their commits. The promise holds against everybody who writes
/// through transactions or through [`Engine::put`](crate::Engine::put) and [`Engine::delete`](crate::Engine::delete), of whatever
/// level. Reads of a [`Snapshot`](crate::Snapshot) see a state between two commits and lock nothing.
///
/// ```
/// use strata_engine::{Error, Isolation};
/// # fn main() -> strata_engine::Result<()> {
/// # let engine = strata_engine::Engine::open_in_memory()?;
/// # let stock = engine.keyspace("stock")?;
/// let mut late = engine.transaction(Isolation::Snapshot);
/// engine.put(&stock, "apples", "7")?;
/// assert!(late.get(&stock, "apples")?.is_none(), "it was put after the transaction had begun");
/// assert!(matches!(late.put(&stock, "apples", "1"), Err(Error::Conflict)));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Isolation {
    /// Each read sees what is committed when it begins. A range sees one state from its first row to its last.
    ReadCommitted,
    /// All reads see the state that was committed when the transaction began. A write of a key that another transaction has changed since
    /// is [`Error::Conflict`](crate::Error::Conflict): of two that write the same key the first to commit wins. A key that others have both
    /// brought in and deleted since may count as unchanged: it is what the snapshot shows.
    Snapshot,
    /// As if transactions ran one after the other. Reads lock what they read in shared mode: the key, be it there or not; of a range
    /// all rows that were given out and what lies between them. Two that have read the same and want to write it wait for each
    /// other: one gets [`Error::Deadlock`](crate::Error::Deadlock), and may succeed when it is run again.
    Serializable,
}
