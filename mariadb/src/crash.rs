//! Ends the process at a chosen crash point: for crash tests only.
//!
//! `STRATA_CRASH_AT=point` in the environment of the server, or `point:n` for the n-th time it is reached; the names of crash
//! points are those of [`strata_engine::layer::CrashPoint`]. It is no variable of the server, so that nobody can set it by accident or
//! find it in a list. The process ends as with `kill -9`: no handler runs, nothing is flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strata_engine::layer::{CrashHook, CrashPoint};
use strata_row::{Error, Result};

const VARIABLE: &str = "STRATA_CRASH_AT";

fn parse(text: &str) -> Option<(CrashPoint, u64)> {
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    Some((CrashPoint::from_name(name)?, count.parse().ok().filter(|&n| n > 0)?))
}

/// What the environment asks for.
pub fn hook() -> Result<Option<CrashHook>> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
    let Some((point, count)) = parse(&text) else {
        return Err(Error::invalid(format!("{VARIABLE}={text} names no crash point")));
    };
    let left = AtomicU64::new(count);
    Ok(Some(Arc::new(move |reached| {
        if reached == point && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            die();
        }
    })))
}

fn die() {
    unsafe extern "C" {
        fn kill(pid: i32, signal: i32) -> i32;
    }
    const SIGKILL: i32 = 9;
    // SAFETY: a system call without memory. It does not return.
    unsafe { kill(std::process::id() as i32, SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_points_are_named_with_a_count() {
        for step in CrashPoint::ALL {
            assert_eq!(parse(step.name()), Some((*step, 1)));
        }
        assert_eq!(parse("ordered:7"), Some((CrashPoint::Ordered, 7)));
        for text in ["", "orderd", "ordered:", "ordered:0", "ordered:x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
