//! How a clean close leaves the log, so that the next opening has little to do.
//!
//! An opening reads what lies behind the log's end: only the absence of units there says that the end is one
//! (`super::verdict`). And it begins in a fresh segment. So the close, once everything is durable and witnessed,
//!
//! 1. makes the file of the next segment, unless it is there already,
//! 2. has it noted how far the log is durable, and that segments behind the last one have no files any more,
//! 3. gives those files to the pool, from which the next opening takes its first segment,
//! 4. cuts the last segment behind its last unit.
//!
//! A crash between any two of these leaves what a crash before the close would: files that nobody has announced hold
//! nothing, and a file may be longer or shorter than what is valid in it. Nothing is synced after step 2, as nothing depends
//! on it.
//!
//! Invariant: space is given back only where the next opening has a whole segment without it, since on a full disk others may
//! be quicker to take it.
//!
//! Rejected: a mark in the manifest that nothing lies behind the end. Whoever read the store without knowing the mark would
//! have to be refused, and a file that was cut needs none.

use std::sync::atomic::Ordering;

use super::log::Log;
use crate::base::Result;

/// Writes down, durably, how far the log is durable; with a number, that the segments from it on have no files.
pub type NoteEnd<'a> = &'a dyn Fn(Option<u64>) -> Result<()>;

impl Log {
    /// Ends the log: syncs everything, leaves a witness of it, has `note` called once, and leaves the files as the next
    /// opening likes them. The last call on a log. An inner error says what prevented only the latter: nothing is lost, and
    /// the next opening takes longer.
    ///
    /// Errors: `Poisoned`, whatever `note` returns.
    pub fn close(&self, note: NoteEnd<'_>) -> Result<Result<()>> {
        self.seal()?;
        let next = self.current_segment.load(Ordering::Acquire) + 1;
        if let Err(error) = self.prepare_next() {
            self.check()?;
            note(None)?;
            return Ok(Err(error));
        }
        let withdrawn = self.segments.withdraw(next);
        note(Some(next))?;
        Ok(self.segments.pool(withdrawn).and_then(|()| self.cut_behind_end()))
    }

    /// Takes from the last segment what is behind the end, unless somebody writes on.
    fn cut_behind_end(&self) -> Result<()> {
        let writer = self.writer.lock();
        let end = {
            let buffer = self.buffer.lock();
            if buffer.poison.is_some() || buffer.led || buffer.syncing || buffer.unwritten > 0 {
                return Ok(());
            }
            buffer.end()
        };
        let used = end.0 - writer.segment() * self.options.segment_bytes;
        match writer.file() {
            Some(file) if used < self.options.segment_bytes => {
                self.segments.note_short(writer.segment());
                self.room_end.store(end.0, Ordering::Release);
                file.set_len(used)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use crate::base::Lsn;
    use crate::crypt::Keyring;
    use crate::io::{Disk, MemDisk};
    use crate::wal::format::segment_path;
    use crate::wal::{Log, LogOptions, LogPlace, Tail, recover};

    const PAGE: u64 = 4096;
    const SEGMENT: u64 = 8 * PAGE;

    /// Wherever in a segment the log ends, at its last byte too: the file ends there, the next segment has none, and the next
    /// opening goes on behind it.
    #[test]
    fn a_closed_log_ends_where_its_last_file_does() {
        let dir = Path::new("/wal");
        for pages in 0..12 {
            let disk = MemDisk::new();
            disk.create_dir_all(dir).unwrap();
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            let (mut tail, mut written) = (Tail::NEW, 0);
            for epoch in 1..4 {
                let options = LogOptions { segment_bytes: SEGMENT, epoch, pool_files: 2, ..LogOptions::default() };
                let announced = Arc::new(Mutex::new(0));
                let seen = announced.clone();
                let announce = move |number| {
                    *seen.lock().unwrap() = number;
                    Ok(())
                };
                let log = Log::open(shared.clone(), dir, options, tail, Box::new(announce)).unwrap();
                for _ in 0..pages {
                    // One unit and so one page each.
                    log.append(&[7; 100]).unwrap();
                    log.sync(log.end()).unwrap();
                    written += 1;
                }
                log.close(&|segments| {
                    *announced.lock().unwrap() = segments.unwrap();
                    Ok(())
                })
                .unwrap()
                .unwrap();
                let end = log.durable();
                drop(log);
                let mut records = 0;
                let mut count = |_: Lsn, _: Lsn, _: &[u8]| {
                    records += 1;
                    Ok(())
                };
                let cut;
                let keys = Keyring::default();
                let place = LogPlace { disk: &shared, dir, segment_bytes: SEGMENT, keys: &keys };
                (tail, cut) = recover(&place, Lsn(0), end, &mut count, &mut |_| ()).unwrap();
                assert_eq!((tail.cut, cut, records), (end, None, written), "{pages} pages, epoch {epoch}");
                // The witness is the last page.
                let last = (end.0 - PAGE) / SEGMENT;
                assert_eq!(disk.content(&segment_path(dir, last)).unwrap().len() as u64, end.0 - last * SEGMENT);
                assert!(!disk.exists(&segment_path(dir, last + 1)).unwrap());
                assert_eq!(
                    (*announced.lock().unwrap(), tail.next_segment_start),
                    (last + 1, Lsn((last + 1) * SEGMENT))
                );
            }
        }
    }
}
