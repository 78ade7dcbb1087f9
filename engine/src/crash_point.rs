//! Crash points: the steps of a transaction on its way to its end, and of a change of tables, as crash tests see them.
//!
//! A test that wants to know what a crash at a certain step leaves behind sets [`crate::Options::on_crash_point`] and takes
//! an image of the disk, or ends the process, when it is told of the step. Without a hook a crash point costs one load of a
//! value that never changes.
//!
//! ```text
//! two phases   prepare-begins  prepare-logged  prepare-durable  (binlog)  order-begins  ordered  commit-visible
//! one phase                                                               order-begins  ordered  commit-visible  commit-durable
//! XA COMMIT                                                               order-begins  ordered  commit-visible  commit-durable
//! XA ROLLBACK  rollback-begins  rollback-logged  rolled-back
//! log cleaning relocated
//! catalog      change-ordered  change-durable  (indexes go:)  drop-recorded  indexes-dropped  notes-removed
//! fill         fill-ended  (in files:)  files-written  order-begins  ordered  commit-visible  commit-durable
//! flush        takeover-begins  taken-over
//! build        build-begun  (each index:)  ingest-written  ingested  (its end: catalog)
//! counter      counter-ordered
//! sequence     sequence-ordered  sequence-durable
//! feature      feature-noted
//! ```

use std::sync::Arc;

/// Is told of crash points as they are reached.
pub type CrashHook = Arc<dyn Fn(CrashPoint) + Send + Sync>;

macro_rules! crash_points {
    ($($(#[$doc:meta])* $point:ident $name:literal,)*) => {
        /// A crash point; see the module.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum CrashPoint {
            $($(#[$doc])* $point,)*
        }

        impl CrashPoint {
            /// All of them.
            pub const ALL: &'static [CrashPoint] = &[$(CrashPoint::$point),*];

            /// What it is called in test descriptions.
            pub fn name(self) -> &'static str {
                match self {
                    $(CrashPoint::$point => $name,)*
                }
            }
        }
    };
}

crash_points! {
    /// Nothing of it is in the log yet.
    PrepareBegins "prepare-begins",
    /// Its prepare record is in the log's buffer.
    PrepareLogged "prepare-logged",
    /// Its prepare record is as durable as the store's setting says. The server writes the binlog next.
    PrepareDurable "prepare-durable",
    /// It is about to get its place in the order of commits. With a binlog: the binlog has it, durably.
    OrderBegins "order-begins",
    /// Its commit record is in the log's buffer.
    Ordered "ordered",
    /// Others see it, its locks are free.
    CommitVisible "commit-visible",
    /// Its commit record is as durable as the store's setting says.
    CommitDurable "commit-durable",
    /// A prepared transaction is about to be rolled back.
    RollbackBegins "rollback-begins",
    /// The record of the rollback is in the log's buffer.
    RollbackLogged "rollback-logged",
    /// The rollback is as durable as the store's setting says, and its locks are free.
    RolledBack "rolled-back",
    /// Prepare records were written again ahead of a flush, in the log's buffer.
    Relocated "relocated",
    /// A change of the catalog is in the log's buffer, and others see it.
    ChangeOrdered "change-ordered",
    /// A change of the catalog is durable. Tables that are open have their former state, nothing is given back yet.
    ChangeDurable "change-durable",
    /// The manifest has the drop of indexes, durably; readers still see their files.
    DropRecorded "drop-recorded",
    /// Indexes are dropped; the catalog's notes that they are to be dropped are still there.
    IndexesDropped "indexes-dropped",
    /// The removal of these notes is in the log's buffer.
    NotesRemoved "notes-removed",
    /// The last row of a fill is written, nothing of it is committed.
    FillEnded "fill-ended",
    /// All that a transaction has written is in files, durably; neither log nor manifest names them.
    FilesWritten "files-written",
    /// A flush is about to name in the manifest, beside what it has written, the files of a large transaction.
    TakeoverBegins "takeover-begins",
    /// The manifest names them; the log, which does too, is not given up yet.
    TakenOver "taken-over",
    /// The numbers of indexes that are built beside writers are noted durably, as such that are to be dropped. None has keys.
    BuildBegun "build-begun",
    /// The sorted entries of a new index are in files, durably; the manifest does not name them.
    IngestWritten "ingest-written",
    /// The manifest names them. No table has the index yet.
    Ingested "ingested",
    /// A counter's new mark is in the log's buffer.
    CounterOrdered "counter-ordered",
    /// The row of a sequence is in the log's buffer, and others see it: the values below its mark are not handed out yet.
    SequenceOrdered "sequence-ordered",
    /// The row of a sequence is as durable as the store's setting says.
    SequenceDurable "sequence-durable",
    /// The manifest says, durably, that the store uses a feature; what needs the feature is not written yet.
    FeatureNoted "feature-noted",
}

impl CrashPoint {
    /// The crash point of this name.
    pub fn from_name(name: &str) -> Option<CrashPoint> {
        CrashPoint::ALL.iter().copied().find(|point| point.name() == name)
    }
}
