//! Of which schema versions a table has rows, so that the catalog forgets the others.
//!
//! # Algorithm
//! Two things are known without a look at rows:
//!
//! - *A version to which nothing was written has no rows.* The engine says whether the index of the rows is untouched since the
//!   version began. So changes that follow each other leave nothing behind.
//! - *Rows that merges have written anew are of the version that they were renewed to.* Once rows of [`RENEWED_FROM`] earlier versions may
//!   be there, the engine is asked for a renewal ([`kv::Renewal`]): merges put rows of the present version in their places. When it is
//!   done, versions before that one are gone.
//!
//! Both are found out by the next change of the table, whose write of the catalog forgets what it can. Nothing of it is on the disk: after
//! a restart all versions of the catalog may have rows, and a renewal begins anew.
//!
//! # Invariants
//! All rows of versions before the present one were committed before the catalog's change to it: the server's metadata lock keeps
//! writers away meanwhile, and a table to which a prepared transaction has written is not changed. A renewal begins after that change
//! is durable. Rows of snapshots are renewed as well, at their own numbers.
//!
//! # Rejected
//! A renewal at each change (a write of the whole table each time, for rows that the next change makes old again).

use crate::catalog::alter::FORMER_MAX;
use crate::catalog::compare;
use crate::def::TableDef;
use crate::error::{Error, Result};
use crate::keycode::KeyCodec;
use crate::kv::{self, Engine, Moment, Renewal};
use crate::rowcode::RowCodec;
use crate::schema::TableMeta;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// From so many earlier versions on, rows are written anew.
pub const RENEWED_FROM: usize = 64;

/// What is known of one table. See the module.
#[derive(Default)]
pub(crate) struct History {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// When the present version began, if that was since the start.
    began: Option<Moment>,
    renewing: Option<Renewing>,
}

/// Rows are being written anew.
#[derive(Clone)]
struct Renewing {
    /// As rows of this version.
    version: u32,
    renewal: Arc<Renewal>,
    /// A row could not be read.
    failed: Arc<AtomicBool>,
}

impl Renewing {
    fn is_done(&self, engine: &Engine) -> bool {
        engine.is_renewed(&self.renewal) && !self.failed.load(Ordering::Acquire)
    }
}

impl History {
    /// The table has a new schema version from now on, and nobody has written to it yet.
    pub fn begin_version(&self, engine: &Engine) {
        self.inner.lock().began = Some(engine.moment());
    }

    /// The entry without the versions that no row is of, and whether there may be rows of the present one.
    pub fn known(&self, engine: &Engine, meta: &TableMeta) -> Result<(TableMeta, bool)> {
        let inner = self.inner.lock();
        let meta = match inner.renewing.as_ref().filter(|renewing| renewing.is_done(engine)) {
            Some(renewing) => meta.since_version(renewing.version),
            None => meta.clone(),
        };
        let untouched = match inner.began {
            Some(began) => engine.is_untouched(meta.clustered_id(), began)?,
            None => false,
        };
        Ok((meta, !untouched))
    }

    /// Begins a renewal if there are many earlier versions and none is under way. `meta` is durable, and `def` the definition of it.
    pub fn renew_if_many(&self, engine: &Engine, meta: &TableMeta, def: &TableDef) -> Result<()> {
        let mut inner = self.inner.lock();
        let ended = inner.renewing.as_ref().is_none_or(|renewing| engine.is_renewed(&renewing.renewal));
        if meta.former.len() < RENEWED_FROM || !ended {
            return Ok(());
        }
        let mut def = def.clone();
        compare::keep_forms("", meta, &mut def)?;
        let id = meta.clustered_id();
        let clustered = Arc::new(KeyCodec::new(&def, def.primary, id, id)?);
        let codec = RowCodec::versioned(meta, &def, &clustered)?;
        let failed = Arc::new(AtomicBool::new(false));
        let damaged = failed.clone();
        let rule = move |key: &[u8], value: &[u8], out: &mut Vec<u8>| {
            let renewed = codec.renew(key, value, out);
            if renewed.is_err() {
                // Who reads it is told; its version stays.
                damaged.store(true, Ordering::Release);
            }
            renewed.unwrap_or(false)
        };
        let renewal = engine.renew(id, Arc::new(rule));
        inner.renewing = Some(Renewing { version: meta.schema_version, renewal, failed });
        Ok(())
    }

    /// Waits for the renewal that is under way if there are as many versions as there may be. Whether there is room then, the change
    /// itself finds out. `Interrupted` once `is_killed` says so.
    pub fn await_room(&self, engine: &Engine, meta: &TableMeta, is_killed: &dyn Fn() -> bool) -> Result<()> {
        let renewing = self.inner.lock().renewing.clone();
        let Some(renewing) = renewing.filter(|_| meta.former.len() >= FORMER_MAX) else { return Ok(()) };
        let tick = || if is_killed() { Err(kv::Error::Interrupted) } else { Ok(()) };
        match engine.await_renewed(&renewing.renewal, &tick) {
            Err(kv::Error::Interrupted) => Err(Error::from(kv::Error::Interrupted)),
            _ => Ok(()),
        }
    }
}
