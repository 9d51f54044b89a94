//! Progress of a long call: for how long it runs, how much it has printed, and its last line. Progress is for
//! people; a model gets the whole at the end.

use atoll_tool_sessions::Progress;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How often progress is sent.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// When progress of code is sent first over HTTP: an answer after progress is an event, and clients bound how long
/// one may be; a picture that code shows soon comes as JSON.
pub(crate) const LATE: Duration = Duration::from_secs(10);
/// The most characters of a line that are sent.
const LINE: usize = 200;

/// The progress of a call so far.
#[derive(Debug)]
pub(crate) struct Heard {
    began: Instant,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    installing: bool,
    bytes: usize,
    shown: usize,
    line: String,
    /// Whether the next character begins a line.
    ended: bool,
}

impl Seen {
    fn text(&mut self, text: &str) {
        self.installing = false;
        self.bytes = self.bytes.saturating_add(text.len());
        for piece in text.split_inclusive('\n') {
            let line = piece.trim_end_matches(['\n', '\r']);
            if self.ended && !line.is_empty() {
                self.line.clear();
                self.ended = false;
            }
            let room = LINE.saturating_sub(self.line.chars().count());
            self.line.extend(line.chars().filter(|c| !c.is_control()).take(room));
            self.ended |= piece.ends_with('\n');
        }
    }
}

impl Heard {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), seen: Mutex::default() }
    }

    /// Adds progress.
    pub(crate) fn note(&self, progress: &Progress) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match progress {
            Progress::Installing => seen.installing = true,
            Progress::Stdout(text) | Progress::Stderr(text) => seen.text(text),
            Progress::Display(_) => seen.shown += 1,
        }
    }

    /// Seconds since the call began, which only grow.
    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The progress as text.
    pub(crate) fn words(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let time = self.began.elapsed().as_secs();
        if seen.installing {
            return format!("installing packages, {time} s");
        }
        let mut words = format!("running for {time} s");
        if seen.bytes > 0 {
            words.push_str(&format!(", {} bytes of output", seen.bytes));
        }
        if seen.shown > 0 {
            words.push_str(&format!(", {} shown", seen.shown));
        }
        if !seen.line.is_empty() {
            words.push_str(&format!(": {}", seen.line));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_told_and_never_more_of_it_than_fits() {
        let heard = Heard::new();
        assert!(heard.words().starts_with("running for"));
        heard.note(&Progress::Installing);
        assert!(heard.words().starts_with("installing"));
        heard.note(&Progress::Stdout("one\ntw".into()));
        heard.note(&Progress::Stdout("o".into()));
        assert!(heard.words().ends_with("7 bytes of output: two"), "{}", heard.words());
        heard.note(&Progress::Stderr("\n\u{1b}[1mthree\n\n".into()));
        assert!(heard.words().ends_with(": [1mthree"), "{}", heard.words());
        heard.note(&Progress::Stdout("é".repeat(10_000)));
        assert!(heard.words().chars().count() < LINE + 80, "{}", heard.words());
    }
}
