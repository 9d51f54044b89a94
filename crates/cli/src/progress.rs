//! The progress of a copy, a build or a push: drawn on standard error, and only when that is a terminal.

use crate::terminal::plain;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::{IsTerminal, stderr},
    time::Duration,
};

/// How often what has no length shows that it goes on.
const TICK: Duration = Duration::from_millis(200);

/// A bar for so many bytes, where that is known.
pub(crate) fn bar(name: &str, total: Option<u64>, json: bool) -> ProgressBar {
    if json || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total {
        Some(total) => {
            let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            (ProgressBar::new(total), template)
        }
        None => (ProgressBar::no_length(), "{msg} {bytes} {bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(plain(name))
}

/// For how long something has been running whose length only the server knows.
pub(crate) fn spinner(name: &str, json: bool) -> ProgressBar {
    if json || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    let bar = ProgressBar::new_spinner().with_message(plain(name));
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(TICK);
    bar
}
