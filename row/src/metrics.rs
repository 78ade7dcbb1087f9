//! Figures about the database: those of the engine and those that only this layer knows, in one list.

use crate::kv::Subsystem::{Error, Row as Rows, Transaction};
use crate::kv::{Figure, Metric, Unit, engine_metrics};
use crate::report::{self, Cell, Row};
use crate::rows;
use crate::store::Store;
use std::sync::atomic::Ordering;

/// A sample of what the engine does not know.
struct Sample {
    open_transactions: u64,
    oldest_transaction_us: u64,
    purge: [u64; 5],
    rows: rows::Rows,
    foreign_errors: u64,
}

static FIGURES: &[Figure<Sample>] = &[
    Figure::gauge(
        Transaction,
        "open_transactions",
        Unit::Count,
        "Open transactions of connections; information_schema.STRATA_TRX lists them",
        |sample| sample.open_transactions,
    ),
    Figure::gauge(
        Transaction,
        "oldest_transaction_us",
        Unit::Microseconds,
        "Time since the oldest open transaction began",
        |sample| sample.oldest_transaction_us,
    ),
    Figure::counter(
        Transaction,
        "ttl_rows_removed",
        Unit::Count,
        "Expired rows that the purge has removed from tables with a TTL",
        |sample| sample.purge[0],
    ),
    Figure::counter(
        Transaction,
        "ttl_rows_locked",
        Unit::Count,
        "Expired rows that the purge has left for its next pass, since somebody had locked them or a table was changed",
        |sample| sample.purge[1],
    ),
    Figure::counter(
        Transaction,
        "ttl_rows_looked_at",
        Unit::Count,
        "Rows or index entries that the purge has looked at",
        |sample| sample.purge[2],
    ),
    Figure::counter(Transaction, "ttl_passes", Unit::Count, "Passes of the purge through a table", |sample| {
        sample.purge[3]
    }),
    Figure::counter(
        Transaction,
        "ttl_failures",
        Unit::Count,
        "Batches of the purge that failed; the error log has the reason",
        |sample| sample.purge[4],
    ),
    Figure::counter(Rows, "rows_read", Unit::Count, "Rows given to the server", |sample| sample.rows.read),
    Figure::counter(
        Rows,
        "rows_inserted",
        Unit::Count,
        "Rows inserted, also by transactions that were rolled back",
        |sample| sample.rows.inserted,
    ),
    Figure::counter(
        Rows,
        "rows_updated",
        Unit::Count,
        "Rows updated, by cascades too; rows that became what they were do not count",
        |sample| sample.rows.updated,
    ),
    Figure::counter(Rows, "rows_deleted", Unit::Count, "Rows deleted, by cascades too", |sample| sample.rows.deleted),
    Figure::counter(
        Error,
        "foreign_key_errors",
        Unit::Count,
        "Rows and changes of tables that a foreign key has refused; SHOW ENGINE STRATA STATUS shows the latest",
        |sample| sample.foreign_errors,
    ),
];

/// What is declared of all figures, by subsystem.
pub fn metrics() -> Vec<&'static Metric> {
    let mut all: Vec<_> = engine_metrics().chain(FIGURES.iter().map(|figure| &figure.metric)).collect();
    all.sort_by_key(|metric| metric.subsystem);
    all
}

fn own_values(store: &Store) -> Vec<(&'static Metric, u64)> {
    let now = store.engine().now_us();
    let open = store.sessions().into_iter().filter_map(|session| session.transaction());
    let ages: Vec<u64> = open.map(|transaction| now.saturating_sub(transaction.began_us)).collect();
    let counts = &store.gate().counts;
    let counts = [&counts.removed, &counts.locked, &counts.looked, &counts.passes, &counts.failed];
    let sample = Sample {
        open_transactions: ages.len() as u64,
        oldest_transaction_us: ages.into_iter().max().unwrap_or(0),
        purge: counts.map(|count| count.load(Ordering::Relaxed)),
        rows: store.rows(),
        foreign_errors: store.foreign_errors(),
    };
    FIGURES.iter().map(|figure| (&figure.metric, (figure.value)(&sample))).collect()
}

/// All figures with their values, in the order of [`metrics`].
pub fn values(store: &Store) -> Vec<(&'static Metric, u64)> {
    let mut all: Vec<_> = store.engine().metrics().values().collect();
    all.extend(own_values(store));
    all.sort_by_key(|(metric, _)| metric.subsystem);
    all
}

/// All figures as rows: name, subsystem, value, kind, unit, help.
pub fn rows(store: &Store) -> Vec<Row> {
    let text = |what: &str| Cell::Text(what.to_owned());
    let row = |(metric, value): (&Metric, u64)| {
        vec![
            text(metric.name),
            text(metric.subsystem.name()),
            Cell::Number(value),
            text(metric.kind.name()),
            text(metric.unit.name()),
            text(metric.help),
        ]
    };
    values(store).into_iter().map(row).collect()
}

/// The state of the store as text: figures, failures, the latest error of a foreign key and the latest deadlock.
pub fn status_text(store: &Store) -> String {
    store.engine().status_text_with(&own_values(store)) + &report::foreign_error(store) + &report::deadlock(store)
}
