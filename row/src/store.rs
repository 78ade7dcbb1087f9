//! The open database: engine, catalog, and the tables in use.
//!
//! A table's run-time state (counters, statistics, age) exists once per table from its first open on, whatever the number
//! of handlers; it is found by name. DDL goes through here so that catalog and registry change together; the server's
//! metadata locks keep users of a table away meanwhile. The registry follows the catalog, without waiting in between for the
//! disk: whatever a change's clean-up says, a state that is not of the catalog's entry is never handed out.

use crate::auto_increment::{Counter, Which};
use crate::catalog::define::Names;
use crate::catalog::format::{self, DecisionLog};
use crate::catalog::{Catalog, Patience, await_prepared, compare, refuse_prepared};
use crate::def::{IndexKind, Library, TableDef, Terms};
use crate::error::{Error, Result};
use crate::event::{Event, EventListener, Teller};
use crate::foreign::key::database;
use crate::foreign::{ForeignKey, Statement};
use crate::gate::Gate;
use crate::index::entries::unknown_kind;
use crate::index::limits;
use crate::jobs::{Job, Jobs};
use crate::kill_switch::KillSwitch;
use crate::kv::{self, Engine, Options, SeqNo};
use crate::progress::Progress;
use crate::rows::{RowTotals, Rows};
use crate::schema::{StoredIndex, TableMeta};
use crate::session::Session;
use crate::table::{Table, TableState};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

mod alter;

pub use alter::{Alteration, AlteredTable};

/// A deadlock that somebody has noted.
pub struct NotedDeadlock {
    /// When, by the engine's clock.
    pub at_us: u64,
    /// Which.
    pub deadlock: kv::Deadlock,
    /// What each of its transactions ran, in their order.
    pub statements: Vec<Option<String>>,
}

/// Something that a foreign key has refused.
#[derive(Clone)]
pub struct ForeignError {
    /// When, by the engine's clock.
    pub at_us: u64,
    /// What, and why.
    pub what: String,
    /// The statement that was to do it, if that is known.
    pub statement: Option<String>,
}

/// Tells the statement that the calling thread's connection runs, if it has one.
pub type StatementSource = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// An open database.
pub struct Store {
    engine: Engine,
    catalog: Catalog,
    /// State of tables that were opened since start, by name.
    tables: Mutex<HashMap<String, Arc<TableState>>>,
    /// Sessions, for reports.
    sessions: Mutex<Vec<Weak<KillSwitch>>>,
    library: OnceLock<Arc<dyn Library>>,
    /// Keeps the purge of expired rows and changes of tables apart.
    gate: Arc<Gate>,
    /// Builds of indexes that are under way, for reports.
    builds: Mutex<Vec<Arc<Progress>>>,
    /// Flushes and merges; nothing where nobody listens.
    jobs: Arc<Jobs>,
    rows: Arc<RowTotals>,
    /// What a foreign key has refused last.
    latest_foreign_error: Mutex<Option<ForeignError>>,
    foreign_errors: AtomicU64,
    /// Tells what the calling thread's connection runs.
    statement: OnceLock<StatementSource>,
    /// The latest deadlock, if anybody has noted one.
    latest_deadlock: Mutex<Option<Arc<NotedDeadlock>>>,
}

impl Store {
    /// Opens or creates the database in a directory.
    pub fn open(dir: &Path, options: Options) -> Result<Arc<Store>> {
        Store::open_with(dir, options, Teller::default(), Arc::default())
    }

    /// Takes note of a deadlock and of the statement of each of its transactions, as far as they are known. It is put into words when
    /// somebody asks: that looks at the whole catalog.
    pub fn note_deadlock(&self, deadlock: &kv::Deadlock, statements: Vec<Option<String>>) -> Arc<NotedDeadlock> {
        let noted = NotedDeadlock { at_us: self.engine.now_us(), deadlock: deadlock.clone(), statements };
        let noted = Arc::new(noted);
        *self.latest_deadlock.lock() = Some(noted.clone());
        noted
    }

    /// The latest one, if any was noted.
    pub fn latest_deadlock(&self) -> Option<Arc<NotedDeadlock>> {
        self.latest_deadlock.lock().clone()
    }

    /// Flushes and merges that run, then the last ones that have ended, for a store with a listener.
    pub fn jobs(&self) -> Vec<Job> {
        self.jobs.all()
    }

    /// As [`Store::open`]; `listener` is told of what happens in the engine and in the tables. It takes the place of the options' own.
    pub fn open_listening(dir: &Path, options: Options, listener: Arc<dyn EventListener>) -> Result<Arc<Store>> {
        let events = Teller::new(Some(listener.clone()));
        let jobs = Arc::new(Jobs::default());
        let known = jobs.clone();
        let below = move |event: &kv::Event| {
            known.note(event);
            listener.event(&Event::Engine(event));
        };
        Store::open_with(dir, Options { listener: Some(Arc::new(below)), ..options }, events, jobs)
    }

    fn open_with(dir: &Path, options: Options, events: Teller, jobs: Arc<Jobs>) -> Result<Arc<Store>> {
        let engine = Engine::open(dir, Options { features: format::FEATURES, ..options })?;
        let catalog = Catalog::open(&engine, events)?;
        Ok(Arc::new(Store {
            engine,
            catalog,
            tables: Mutex::default(),
            sessions: Mutex::default(),
            library: OnceLock::new(),
            gate: Arc::default(),
            builds: Mutex::default(),
            jobs,
            rows: Arc::default(),
            latest_foreign_error: Mutex::default(),
            foreign_errors: AtomicU64::new(0),
            statement: OnceLock::new(),
            latest_deadlock: Mutex::default(),
        }))
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub(crate) fn add_session(&self, session: &Arc<KillSwitch>) {
        let mut sessions = self.sessions.lock();
        sessions.retain(|s| s.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
    }

    /// The parts of all sessions that other threads may look at.
    pub(crate) fn sessions(&self) -> Vec<Arc<KillSwitch>> {
        self.sessions.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// A build of indexes has begun.
    pub(crate) fn enter_build(&self, build: &Arc<Progress>) {
        self.builds.lock().push(build.clone());
    }

    /// It is over.
    pub(crate) fn leave_build(&self, build: &Arc<Progress>) {
        self.builds.lock().retain(|other| !Arc::ptr_eq(other, build));
    }

    /// The builds of indexes that are under way.
    pub fn builds(&self) -> Vec<Arc<Progress>> {
        self.builds.lock().clone()
    }

    /// A foreign key has refused something that this thread was to do: kept for reports, until the next time.
    pub fn note_foreign_error(&self, what: String) {
        self.foreign_errors.fetch_add(1, Ordering::Relaxed);
        let statement = self.statement.get().and_then(|statement| statement());
        *self.latest_foreign_error.lock() = Some(ForeignError { at_us: self.engine.now_us(), what, statement });
    }

    /// Who tells which statement a thread runs. To be told once.
    pub fn set_statement_source(&self, statement: StatementSource) {
        let _ = self.statement.set(statement);
    }

    /// How often a foreign key has refused something.
    pub(crate) fn foreign_errors(&self) -> u64 {
        self.foreign_errors.load(Ordering::Relaxed)
    }

    pub(crate) fn row_totals(&self) -> &Arc<RowTotals> {
        &self.rows
    }

    /// Rows that all sessions have read and changed since the opening.
    pub fn rows(&self) -> Rows {
        self.rows.rows()
    }

    /// A row has been refused: noted if a foreign key has done it.
    #[cold]
    pub(crate) fn note_refused_row(&self, error: &Error) {
        let (reference, what) = match error {
            Error::NoReferencedRow(reference) => (reference, "was not written: there is no such row in"),
            Error::RowIsReferenced(reference) => (reference, "refers to a row that was to go or to change in"),
            _ => return,
        };
        let (child, parent) = (self.quoted(&reference.child), self.quoted(&reference.parent));
        self.note_foreign_error(format!(
            "a row of table {child} {what} {parent}, foreign key `{}`",
            reference.key.name
        ));
    }

    /// What was noted last.
    pub fn latest_foreign_error(&self) -> Option<ForeignError> {
        self.latest_foreign_error.lock().clone()
    }

    /// Writes the exact counters, gives back what drops have left and closes the engine cleanly.
    pub fn close(&self) -> Result<()> {
        let states: Vec<_> = self.tables.lock().drain().map(|e| e.1).collect();
        let saved: Result<()> = states.iter().try_for_each(|s| s.save_counters());
        self.catalog.clear();
        let closed = self.engine.close();
        saved?;
        Ok(closed?)
    }

    /// Creates a table; its auto-increment column starts at `autoinc_start` (0 = 1).
    pub fn create_table(&self, name: &str, def: &TableDef, autoinc_start: u64) -> Result<()> {
        self.create_table_with(name, def, autoinc_start, (&[], &Statement::default()), &|| false)
    }

    /// As [`Store::create_table`], with foreign keys, and for a statement that can be killed while it waits for memory:
    /// `Interrupted`, and nothing has happened. A key with an empty name gets one.
    ///
    /// Errors: `CannotAddForeign`, `ForeignNameTaken`; `IndexOfForeign` if a table that is to replace another lacks an index that
    /// a key needs.
    pub fn create_table_with(
        &self,
        name: &str,
        def: &TableDef,
        autoinc_start: u64,
        (keys, statement): (&[ForeignKey], &Statement),
        is_killed: &dyn Fn() -> bool,
    ) -> Result<()> {
        limits::check(def)?;
        for index in &def.indexes {
            self.check_kind(&index.name, index.kind, &index.options)?;
        }
        let counters = |meta: &TableMeta| match def.autoinc_column {
            Some(_) if autoinc_start > 1 => {
                vec![Counter::initial(meta.table_id, Which::AutoIncrement, autoinc_start)]
            }
            _ => Vec::new(),
        };
        let created = self.catalog.create(name, def, (keys, statement, self), counters, is_killed);
        self.noting(name, created.map(drop))
    }

    /// Waits until no prepared transaction without a session has written to a table, which is to be dropped, emptied or renamed: it is
    /// refused before that. A temporary table is not waited for, since it loses its name at once.
    ///
    /// Errors: `LockTimeout`; `Interrupted`; `NoTable`.
    pub fn await_prepared(&self, name: &str, patience: Patience<'_>) -> Result<()> {
        let meta = self.catalog.get(name)?;
        if meta.temporary { Ok(()) } else { await_prepared(&self.engine, &meta, patience) }
    }

    /// Drops a table, whatever foreign keys refer to it. A temporary one that a prepared transaction has written to loses its name now
    /// and goes later.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.drop_table_with(name, &Statement::default())
    }

    /// As [`Store::drop_table`], for a statement that may check foreign keys.
    ///
    /// Errors: `RowIsReferenced` if a table that stays has a foreign key with this parent, and the statement checks that.
    pub fn drop_table_with(&self, name: &str, statement: &Statement) -> Result<()> {
        let temporary = self.catalog.get(name)?.temporary;
        match self.drop_tables(&[name.to_owned()], statement) {
            Err(error) if temporary && error.is_lock_timeout() => self.set_aside(name),
            other => other,
        }
    }

    /// Drops a partition of a table that goes as a whole. The server has then removed the list of partitions, and does not stop at
    /// one that cannot be dropped: refused, nothing of the table would be left but that. So one that a prepared transaction has
    /// written to loses its name now and goes at the next start at which the transaction has ended.
    pub fn drop_partition(&self, name: &str) -> Result<()> {
        match self.drop_tables(&[name.to_owned()], &Statement::default()) {
            Err(error) if error.is_lock_timeout() => self.set_aside(name),
            other => other,
        }
    }

    /// Renames a table; an existing target is an error. Foreign keys go with the names.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.rename_table_with(from, to, &Statement::default())
    }

    /// As [`Store::rename_table`], for a statement that may check foreign keys.
    ///
    /// Errors: as of [`Store::create_table_with`].
    pub fn rename_table_with(&self, from: &str, to: &str, statement: &Statement) -> Result<()> {
        let _change = self.gate.change();
        self.noting(from, self.catalog.rename(from, to, statement, self))?;
        let mut tables = self.tables.lock();
        if let Some(state) = tables.remove(from) {
            state.set_name(to);
            tables.insert(to.to_owned(), state);
        }
        Ok(())
    }

    /// Empties a table. Handlers that have it open must open it again.
    pub fn truncate_table(&self, name: &str) -> Result<()> {
        let _change = self.gate.change();
        let (meta, seq) = self.catalog.truncate(name)?;
        let mut tables = self.tables.lock();
        if tables.get(name).is_none_or(|state| !Arc::ptr_eq(&state.meta, &meta)) {
            let mut state = TableState::new(&self.engine, name, meta, seq, self.catalog.related(name)?);
            if let Some(former) = tables.get(name) {
                state.changes = former.changes.clone();
            }
            tables.insert(name.to_owned(), Arc::new(state));
        }
        Ok(())
    }

    /// Drops all tables whose names start with `prefix` but those that prepared transactions have written to, for which
    /// it fails.
    pub fn drop_database(&self, prefix: &str) -> Result<()> {
        let (held, free) = self.split_held(self.catalog.names(prefix));
        self.drop_tables(&free, &Statement::default())?;
        if held.is_empty() { Ok(()) } else { Err(kv::Error::LockTimeout.into()) }
    }

    /// Drops temporary tables left over by a crash, and what has lost its name. Those that prepared transactions have written
    /// to give their names free and wait for the next start.
    pub fn drop_temporary(&self) -> Result<()> {
        let (held, free) = self.split_held(self.catalog.temporary());
        self.drop_tables(&free, &Statement::default())?;
        held.iter().try_for_each(|name| self.set_aside(name))
    }

    /// Drops the tables of which `is_orphan` says that nobody knows them any more, and tells their names. Temporary tables, and
    /// those that prepared transactions have written to, stay.
    pub fn drop_orphans(&self, mut is_orphan: impl FnMut(&str) -> bool) -> Result<Vec<String>> {
        let mut names = self.catalog.names("");
        names.retain(|name| self.catalog.get(name).is_ok_and(|meta| !meta.temporary) && is_orphan(name));
        let (_, free) = self.split_held(names);
        self.drop_tables(&free, &Statement::default())?;
        Ok(free)
    }

    /// Tables that a prepared transaction without a session has written to, and the others.
    fn split_held(&self, names: Vec<String>) -> (Vec<String>, Vec<String>) {
        let held =
            |name: &String| self.catalog.get(name).is_ok_and(|meta| refuse_prepared(&self.engine, &meta).is_err());
        names.into_iter().partition(held)
    }

    fn set_aside(&self, name: &str) -> Result<()> {
        let _change = self.gate.change();
        self.catalog.set_aside(name)?;
        self.tables.lock().remove(name);
        Ok(())
    }

    /// Where what becomes of the transactions that are prepared now is kept, as [`Store::set_decision_log`] was told last.
    pub fn decision_log(&self) -> Result<Option<DecisionLog>> {
        let mut value = Vec::new();
        match self.engine.get_at(&format::decisions_key(), self.engine.visible(), &mut value)? {
            true => format::decode_decisions(&value).map(Some),
            false => Ok(None),
        }
    }

    /// Notes where what becomes of transactions is kept; durable when this returns. Made on a full disk, too.
    pub fn set_decision_log(&self, place: &DecisionLog) -> Result<()> {
        let value = format::encode_decisions(place);
        self.engine.write_relief(&[(format::decisions_key(), Some(value))], true)?;
        Ok(())
    }

    /// Who implements what the catalog names. To be told once, before [`Store::open_by_catalog`].
    pub fn set_library(&self, library: Arc<dyn Library>) {
        let _ = self.library.set(library);
    }

    /// What finds the terms of rows for an index; `None` if it is ordinary, or nobody knows its kind.
    pub(crate) fn terms(&self, index: &StoredIndex) -> Option<Arc<dyn Terms>> {
        self.terms_of(index.kind, &index.options)
    }

    pub(crate) fn terms_of(&self, kind: IndexKind, options: &[u8]) -> Option<Arc<dyn Terms>> {
        match kind {
            IndexKind::ORDINARY => None,
            _ => self.library.get()?.terms(kind, options),
        }
    }

    pub(crate) fn check_kind(&self, name: &str, kind: IndexKind, options: &[u8]) -> Result<()> {
        match kind == IndexKind::ORDINARY || self.terms_of(kind, options).is_some() {
            true => Ok(()),
            false => Err(unknown_kind(name, kind)),
        }
    }

    /// Opens a table with the definition that the catalog has of it, for work that no handler of the server does. Records are not
    /// the server's.
    pub fn open_by_catalog(self: &Arc<Store>, name: &str) -> Result<Arc<Table>> {
        let def = self.definition(name)?;
        self.open_table(name, def)
    }

    /// The definition that the catalog has of a table.
    fn definition(&self, name: &str) -> Result<TableDef> {
        let library = self.library.get().ok_or_else(|| Error::invalid("nobody knows the collations yet"))?;
        self.catalog.get(name)?.definition(name, &**library)
    }

    /// Opens a table whose definition in the server is `def`.
    pub fn open_table(self: &Arc<Store>, name: &str, mut def: TableDef) -> Result<Arc<Table>> {
        let meta = self.catalog.get(name)?;
        for index in &meta.indexes {
            self.check_kind(&index.name, index.kind, &index.options)?;
        }
        let places = compare::check(name, &meta, &def)?;
        compare::keep_forms(name, &meta, &mut def)?;
        compare::keep_unpack_forms(&meta, &mut def, &places);
        let state = {
            let mut tables = self.tables.lock();
            let is_of = |state: &&Arc<TableState>| Arc::ptr_eq(&state.meta, &meta) || state.meta.has_rows_of(&meta);
            match tables.get(name).filter(is_of) {
                Some(state) => state.clone(),
                None => {
                    let min_snapshot = self.catalog.min_snapshot(name)?;
                    let state =
                        Arc::new(TableState::new(&self.engine, name, meta, min_snapshot, self.catalog.related(name)?));
                    tables.insert(name.to_owned(), state.clone());
                    state
                }
            }
        };
        let table = Arc::new(Table::new(self, state, def, places)?);
        table.state.start_counters(&table)?;
        Ok(table)
    }

    /// What a result of a query on a table may be kept under, or a kept one handed out; another one after each change of the table. None
    /// where neither is allowed: to a transaction that has written, to one whose snapshot lacks changes, and while a commit that has
    /// written to the table is on its way. `transaction`: the session, if the query is a part of more than one statement, and whether
    /// its reads are of one snapshot.
    pub fn result_version(&self, name: &str, transaction: Option<(&mut Session, bool)>) -> Option<SeqNo> {
        let state = self.tables.lock().get(name).cloned()?;
        if state.meta.ttl.is_some() {
            // Rows go from it by themselves.
            return None;
        }
        let snapshot = match transaction {
            Some((session, _)) if session.has_writes() => return None,
            Some((session, true)) => session.consistent(),
            _ => SeqNo::MAX,
        };
        // After the snapshot: what is committed in between is not in it.
        state.newest_change().filter(|newest| *newest <= snapshot)
    }

    /// The tables that a transaction without a session has written to change when it is committed: nobody knows which these are, and all
    /// count as changed.
    pub fn while_all_change<T>(&self, commit: impl FnOnce() -> T) -> T {
        let states: Vec<Arc<TableState>> = self.tables.lock().values().cloned().collect();
        states.iter().for_each(|state| state.changes.commit_begins());
        let outcome = commit();
        let visible = self.engine.visible();
        states.iter().for_each(|state| state.changes.commit_ends(visible, None));
        outcome
    }

    /// Keeps what foreign keys have against a change of this table, for reports.
    fn noting<T>(&self, name: &str, result: Result<T>) -> Result<T> {
        let table = |name: &str| Names::quoted(self, name);
        let what = match &result {
            Err(Error::CannotAddForeign { name: key, why, .. }) => {
                format!("foreign key {key} of table {} cannot be made: {why}", table(name))
            }
            Err(Error::ForeignNameTaken(key)) => {
                format!("table {} cannot have foreign key `{key}`: the database has one of this name", table(name))
            }
            Err(Error::IndexOfForeign(index)) => {
                format!("table {} needs index `{index}` for a foreign key", table(name))
            }
            Err(Error::RowIsReferenced(reference)) => {
                let (child, parent) = (table(&reference.child), table(&reference.parent));
                format!(
                    "table {parent} cannot be dropped: foreign key `{}` of table {child} refers to it",
                    reference.key.name
                )
            }
            _ => return result,
        };
        self.note_foreign_error(what);
        result
    }

    fn drop_tables(&self, names: &[String], statement: &Statement) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let _change = self.gate.change();
        self.noting(&names[0], self.catalog.drop_tables(names, statement))?;
        let mut tables = self.tables.lock();
        for name in names {
            tables.remove(name);
        }
        Ok(())
    }
}

impl Names for Store {
    fn table(&self, name: &str) -> String {
        let table = name.rsplit('/').next().unwrap_or_default();
        self.library.get().map_or_else(|| table.to_owned(), |library| library.identifier(table))
    }

    fn quoted(&self, name: &str) -> String {
        let database = database(name).rsplit('/').next().unwrap_or_default();
        let database = self.library.get().map_or_else(|| database.to_owned(), |library| library.identifier(database));
        let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
        format!("{}.{}", quote(&database), quote(&self.table(name)))
    }
}
