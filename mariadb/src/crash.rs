//! Ends the process at a chosen step of a transaction: for crash tests only.
//!
//! `STRATA_CRASH_AT=step` in the environment of the server, or `step:n` for the n-th time the step is reached; the names
//! of steps are those of [`strata_engine::Step`]. It is no variable of the server, so that nobody can set it by accident or
//! find it in a list. The process ends as with `kill -9`: no handler runs, nothing is flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strata_engine::{Step, Watch};
use strata_row::{Error, Result};

const VARIABLE: &str = "STRATA_CRASH_AT";

fn parse(text: &str) -> Option<(Step, u64)> {
    let (name, count) = text.split_once(':').unwrap_or((text, "1"));
    Some((Step::from_name(name)?, count.parse().ok().filter(|&n| n > 0)?))
}

/// What the environment asks for.
pub fn watch() -> Result<Option<Watch>> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
    let Some((step, count)) = parse(&text) else {
        return Err(Error::invalid(format!("{VARIABLE}={text} names no step of a transaction")));
    };
    let left = AtomicU64::new(count);
    Ok(Some(Arc::new(move |reached| {
        if reached == step && left.fetch_sub(1, Ordering::Relaxed) == 1 {
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
    fn steps_are_named_with_a_count() {
        for step in Step::ALL {
            assert_eq!(parse(step.name()), Some((*step, 1)));
        }
        assert_eq!(parse("ordered:7"), Some((Step::Ordered, 7)));
        for text in ["", "orderd", "ordered:", "ordered:0", "ordered:x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
