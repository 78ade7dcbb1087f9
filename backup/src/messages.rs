//! What mariadb-backup says, handed on to the user, and held up once.
//!
//! While it keeps commits waiting, mariadb-backup 10.11 tells its thread that copies InnoDB's log to end, says so, looks whether the thread
//! has ended, and if not sleeps for 200 ms. A thread does not end between two lines, so each backup would keep commits waiting
//! for 200 ms in which nothing happens. But saying so can take as long as the reader of the messages likes: they go through a pipe that
//! holds a single one. With commits waiting, nothing is read for [`HOLD`] behind the line [`BEFORE`]. The next line fills the
//! pipe, the one after it, which says that the thread is told to end, waits, and the thread ends meanwhile. Where a version says other
//! words, nothing is held up, and the 200 ms are slept.
//!
//! Rejected: a preloaded library that shortens the sleep, which is another program than the one that the user has installed; a
//! mariadb-backup of our own.

use anyhow::Result;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

/// A pipe of one page; in packet mode each message has a page for itself, so it holds one.
const PAGE: usize = 4096;

/// Said when commits begin to wait.
const WAITING: &str = "BACKUP STAGE BLOCK_COMMIT";

/// Said two messages before the thread is told to end, and once before commits wait.
const BEFORE: &str = "Flushed Logs";

/// A woken thread runs within a few milliseconds on a busy machine, and reads what is left of the log.
const HOLD: Duration = Duration::from_millis(20);

/// The end that a program writes its messages to, and the one for [`hand_on`].
pub fn channel() -> Result<(OwnedFd, OwnedFd)> {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT)?;
    fcntl_setpipe_size(&writes, PAGE)?;
    Ok((writes, reads))
}

/// Writes each message to `out`, until nobody has the other end any more.
pub fn hand_on(messages: OwnedFd, mut out: impl Write) -> Result<()> {
    let mut messages = File::from(messages);
    let (mut message, mut moment) = ([0; PAGE], Moment::default());
    loop {
        let n = messages.read(&mut message)?;
        if n == 0 {
            return Ok(());
        }
        // Whom nobody listens to, the backup goes on.
        let _ = out.write_all(&message[..n]);
        let text = String::from_utf8_lossy(&message[..n]);
        if moment.has_come(&text) {
            sleep(HOLD);
        }
    }
}

/// When to stop reading for a while.
#[derive(Default)]
struct Moment {
    commits_wait: bool,
}

impl Moment {
    fn has_come(&mut self, message: &str) -> bool {
        self.commits_wait |= message.contains(WAITING);
        self.commits_wait && message.contains(BEFORE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// What a writer waits for in its last line, after these.
    fn wait_after(lines: &[&str]) -> Duration {
        let (writes, reads) = channel().unwrap();
        let taken = std::thread::spawn(move || {
            let mut taken = Vec::new();
            hand_on(reads, &mut taken).unwrap();
            taken
        });
        let mut writes = File::from(writes);
        let (last, first) = lines.split_last().unwrap();
        first.iter().for_each(|line| writes.write_all(line.as_bytes()).unwrap());
        let since = Instant::now();
        writes.write_all(last.as_bytes()).unwrap();
        let waited = since.elapsed();
        drop(writes);
        assert_eq!(taken.join().unwrap(), lines.concat().as_bytes());
        waited
    }

    #[test]
    fn the_line_after_the_thread_is_told_to_end_takes_a_while() {
        let lines = [WAITING, "[00] Flushed Logs\n", "[00] The latest check point: '1'\n", "Stopping"];
        // The hold may be over before a busy machine lets the last line be written: once out of several times it is not.
        assert!((0..10).any(|_| wait_after(&lines) > HOLD / 3));
    }

    #[test]
    fn lines_are_held_up_once_commits_wait() {
        let mut moment = Moment::default();
        let stages =
            ["Flushed Logs", "Starting BACKUP STAGE BLOCK_COMMIT", "Getting InnoDB LSN", "[00] Flushed Logs\n", "..."];
        assert_eq!(stages.map(|line| moment.has_come(line)), [false, false, false, true, false]);
    }

    #[test]
    fn lines_that_are_longer_than_the_pipe_arrive_whole() {
        wait_after(&["short\n", &"long".repeat(PAGE), "\n"]);
    }
}
