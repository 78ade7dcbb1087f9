//! What a declaration says of a figure.

/// The part of the store that a figure belongs to. Reports have them in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Subsystem {
    /// Memory by use.
    Memory,
    /// Limits that are in force.
    Budget,
    /// The block cache.
    Cache,
    /// The write-ahead log.
    Log,
    /// Memtables and their flushes.
    Flush,
    /// Compaction as a whole.
    Compaction,
    /// Levels of the tree, and the compactions into each.
    Level,
    /// Waits of writers for background work.
    Throttle,
    /// Row locks.
    Lock,
    /// Rows, counted by the layer that has them.
    Row,
    /// Transactions and snapshots.
    Transaction,
    /// Files and descriptors.
    File,
    /// Failures.
    Error,
}

impl Subsystem {
    /// All of them, in the order of reports.
    pub const ALL: [Subsystem; 13] = [
        Subsystem::Memory,
        Subsystem::Budget,
        Subsystem::Cache,
        Subsystem::Log,
        Subsystem::Flush,
        Subsystem::Compaction,
        Subsystem::Level,
        Subsystem::Throttle,
        Subsystem::Lock,
        Subsystem::Row,
        Subsystem::Transaction,
        Subsystem::File,
        Subsystem::Error,
    ];

    /// Its name, in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Subsystem::Memory => "memory",
            Subsystem::Budget => "budget",
            Subsystem::Cache => "cache",
            Subsystem::Log => "log",
            Subsystem::Flush => "flush",
            Subsystem::Compaction => "compaction",
            Subsystem::Level => "level",
            Subsystem::Throttle => "throttle",
            Subsystem::Lock => "lock",
            Subsystem::Row => "row",
            Subsystem::Transaction => "transaction",
            Subsystem::File => "file",
            Subsystem::Error => "error",
        }
    }
}

/// How a figure behaves over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// It counts from the opening of the store and never goes down.
    Counter,
    /// It tells the state of this moment.
    Gauge,
}

impl Kind {
    /// Its name, in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// What a figure counts in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// Things or events; the help says which.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds for each 1,024 bytes written.
    NanosecondsPerKb,
    /// Hundredths of a limit.
    Percent,
    /// 1 for yes, 0 for no.
    Flag,
}

impl Unit {
    /// Its name, in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Microseconds => "microseconds",
            Unit::NanosecondsPerKb => "nanoseconds/KB",
            Unit::Percent => "percent",
            Unit::Flag => "flag",
        }
    }
}

/// What is declared of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name, the same wherever it is shown.
    pub name: &'static str,
    /// The part it belongs to.
    pub subsystem: Subsystem,
    /// How it behaves over time.
    pub kind: Kind,
    /// What it counts in.
    pub unit: Unit,
    /// A sentence for people.
    pub help: &'static str,
    /// True if it is 0 when every transaction and cursor is closed: anything else was left behind.
    pub zero_at_rest: bool,
}

/// A figure: its declaration and how its value is taken from a sample `S`.
pub struct Figure<S> {
    /// The declaration.
    pub metric: Metric,
    /// The value.
    pub value: fn(&S) -> u64,
}

/// A way to declare a figure of this kind.
macro_rules! declaration {
    ($(#[$what:meta])* $name:ident, $kind:expr) => {
        impl<S> Figure<S> {
            $(#[$what])*
            pub const fn $name(
                subsystem: Subsystem,
                name: &'static str,
                unit: Unit,
                help: &'static str,
                value: fn(&S) -> u64,
            ) -> Figure<S> {
                Figure { metric: Metric { name, subsystem, kind: $kind, unit, help, zero_at_rest: false }, value }
            }
        }
    };
}

declaration! {
    /// A figure that never goes down.
    counter, Kind::Counter
}
declaration! {
    /// A figure of this moment.
    gauge, Kind::Gauge
}

impl<S> Figure<S> {
    /// The same, 0 when nothing runs.
    pub const fn zero_at_rest(self) -> Figure<S> {
        Figure { metric: Metric { zero_at_rest: true, ..self.metric }, value: self.value }
    }
}
