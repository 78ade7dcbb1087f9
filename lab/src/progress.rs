//! Progress bars.

use crate::drive::Control;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A progress bar; silent when nobody looks.
pub fn bar(title: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}").expect("the template is good");
    ProgressBar::new(1).with_style(style).with_prefix(title)
}

/// Does the work behind a progress bar that shows the transactions of each second, and tells it to end then.
pub fn watched<R>(title: String, seconds: u64, control: &Control, work: impl FnOnce() -> R) -> R {
    let bar = bar(title);
    bar.set_length(seconds);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut before = 0;
            while !control.stop.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_secs(1));
                let sum = control.transactions.load(Ordering::Relaxed);
                bar.inc(1);
                bar.set_message(format!("{} tps", sum - before));
                before = sum;
            }
        });
        let done = work();
        control.stop.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        bar.finish_and_clear();
        done
    })
}
