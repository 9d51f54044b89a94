//! The running cell: what it has printed and displayed, the time it has left, and its report at the end.

use super::{
    countdown::Countdown,
    event::{DriverError, Lengths, is_text},
    journal::Record,
    out::Out,
    text::{Text, cut},
};
use crate::{CellError, CellErrorKind, CellEvent, CellReport, CellStream, Display, Execute, OutputLimits};
use atoll_types::{Death, KernelId};
use base64::Engine;
use rustix::fs::{Mode, OFlags};
use std::{
    collections::BTreeMap,
    io::Read,
    rc::Rc,
    time::{Duration, Instant},
};

/// The longest name of an error, in characters.
const LONGEST_KIND: u32 = 200;
/// All of a report's texts are within this, whatever limits the request sets: one line holds them.
const MOST_TEXT: u32 = 150_000;
const MOST_DISPLAYS_BYTES: usize = 12 << 20;

/// Why a cell is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Timeout,
    Interrupt,
}

pub(super) struct Running {
    pub(super) id: u64,
    pub(super) record: Rc<Record>,
    pub(super) stop: Option<Stop>,
    pub(super) countdown: Countdown,
    /// How often it is still to be interrupted.
    pub(super) repeats: u32,
    pub(super) execution_count: u64,
    limits: OutputLimits,
    timeout: Duration,
    stdout: Text,
    stderr: Text,
    began: Instant,
    shown: u32,
    shown_bytes: usize,
    left_out: u32,
    truncated: bool,
}

impl Running {
    pub(super) fn new(id: u64, execute: &Execute, record: Rc<Record>, execution_count: u64) -> Self {
        let limits = bounded(execute.limits);
        let timeout = Duration::from_millis(execute.timeout_ms.max(1));
        Self {
            id,
            record,
            stop: None,
            countdown: Countdown::new(timeout),
            repeats: 0,
            execution_count,
            limits,
            timeout,
            stdout: Text::new(limits.stdout),
            stderr: Text::new(limits.stderr),
            began: Instant::now(),
            shown: 0,
            shown_bytes: 0,
            left_out: 0,
            truncated: false,
        }
    }

    /// It printed these bytes.
    pub(super) fn print(&mut self, out: &Out, stream: CellStream, bytes: &[u8]) {
        let text = self.text(stream).add(bytes);
        self.say(out, stream, text);
    }

    fn text(&mut self, stream: CellStream) -> &mut Text {
        match stream {
            CellStream::Stdout => &mut self.stdout,
            CellStream::Stderr => &mut self.stderr,
        }
    }

    fn say(&self, out: &Out, stream: CellStream, text: String) {
        if !text.is_empty() {
            self.record.add(out, CellEvent::Output { stream, text });
        }
    }

    /// It displayed an output, as data or in a file.
    pub(super) fn show(&mut self, out: &Out, mime: String, data: Option<String>, file: Option<&str>) {
        let most = self.limits.display_bytes as usize;
        if self.shown >= self.limits.displays {
            file.map(std::fs::remove_file);
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        let data = match (data, file) {
            (Some(data), _) => Ok(data),
            (None, Some(file)) => read_file(file, most, is_text(&mime)),
            (None, None) => return,
        };
        let size = data.as_ref().map_or_else(|size| *size, |data| in_json(data));
        let display = match data {
            Ok(data) if size <= most => {
                if self.shown_bytes.saturating_add(size) > self.limits.displays_bytes as usize {
                    self.left_out = self.left_out.saturating_add(1);
                    return;
                }
                self.shown_bytes += size;
                Display { mime, data }
            }
            _ => {
                self.truncated = true;
                let data = format!("[{mime} of {size} bytes left out: at most {most} are shown]");
                Display { mime: "text/plain".into(), data }
            }
        };
        self.shown += 1;
        self.record.add(out, CellEvent::Display(display));
    }

    /// The driver reports that it is done.
    pub(super) fn done(
        mut self,
        out: &Out,
        result: Option<BTreeMap<String, String>>,
        error: Option<DriverError>,
        lengths: Lengths,
    ) -> (Rc<Record>, CellReport) {
        let error = error.map(|error| self.error(error, lengths));
        let result = result.map(|forms| self.result(forms, lengths));
        let error = match (self.stop, error) {
            (Some(Stop::Timeout), error) => Some(self.timed_out("it was interrupted", error)),
            (Some(Stop::Interrupt), Some(error)) => Some(CellError {
                kind: CellErrorKind::Interrupted,
                message: "the cell was interrupted; its variables are kept".into(),
                traceback: error.traceback,
            }),
            (_, error) => error,
        };
        let mut report = self.report(out);
        report.success = error.is_none();
        report.result = result.filter(|_| error.is_none());
        report.error = error;
        (self.record, report)
    }

    /// It ended with its interpreter.
    pub(super) fn lost(
        mut self,
        out: &Out,
        why: &str,
        death: Option<Death>,
        restarted: bool,
    ) -> (Rc<Record>, CellReport) {
        let error = match self.stop {
            Some(Stop::Timeout) => self.timed_out(why, None),
            Some(Stop::Interrupt) => CellError::new(CellErrorKind::Interrupted, why),
            None => CellError::new(CellErrorKind::KernelDied, why),
        };
        let mut report = self.report(out);
        report.error = Some(error);
        (report.state_lost, report.restarted, report.death) = (true, restarted, death);
        (self.record, report)
    }

    fn timed_out(&self, what: &str, error: Option<CellError>) -> CellError {
        let message = format!("the cell ran longer than {} s: {what}", seconds(self.timeout));
        CellError { kind: CellErrorKind::Timeout, message, traceback: error.and_then(|e| e.traceback) }
    }

    /// The part of the report that is the same however it ended.
    fn report(&mut self, out: &Out) -> CellReport {
        for stream in [CellStream::Stdout, CellStream::Stderr] {
            let rest = self.text(stream).finish();
            self.say(out, stream, rest);
            self.truncated |= self.text(stream).is_cut();
        }
        if self.left_out > 0 {
            let data = format!("[{} more displays left out]", self.left_out);
            self.record.add(out, CellEvent::Display(Display { mime: "text/plain".into(), data }));
            self.truncated = true;
        }
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        CellReport {
            execution_count: self.execution_count,
            duration_us: micros,
            timed_out: self.stop == Some(Stop::Timeout),
            interrupted: self.stop == Some(Stop::Interrupt),
            truncated: self.truncated,
            ..never_ran(self.record.kernel)
        }
    }

    fn cut(&mut self, text: String, limit: u32, known: u64) -> String {
        let (text, is_cut) = cut(text, limit, known);
        self.truncated |= is_cut;
        text
    }

    fn error(&mut self, error: DriverError, lengths: Lengths) -> CellError {
        let DriverError { kind, message, traceback } = error;
        let limit = self.limits.traceback;
        CellError {
            kind: CellErrorKind::Raised(self.cut(kind, LONGEST_KIND, 0)),
            message: self.cut(message, limit, lengths.message),
            traceback: traceback.map(|text| self.cut(text, limit, lengths.traceback)),
        }
    }

    /// Its value: the text is cut, and of the other forms those that are too large are left out.
    fn result(&mut self, forms: BTreeMap<String, String>, lengths: Lengths) -> BTreeMap<String, String> {
        let mut kept = BTreeMap::new();
        for (mime, data) in forms {
            if mime == "text/plain" {
                kept.insert(mime, self.cut(data, self.limits.result, lengths.result));
                continue;
            }
            let size = in_json(&data);
            let room = (self.limits.displays_bytes as usize).saturating_sub(self.shown_bytes);
            if size > room.min(self.limits.display_bytes as usize) {
                self.truncated = true;
            } else {
                self.shown_bytes += size;
                kept.insert(mime, data);
            }
        }
        kept.entry("text/plain".into()).or_default();
        kept
    }
}

/// The report of a cell whose turn never came.
pub(super) fn dropped(kernel: KernelId, kind: CellErrorKind, why: &str) -> CellReport {
    let interrupted = kind == CellErrorKind::Interrupted;
    CellReport { error: Some(CellError::new(kind, why)), interrupted, ..never_ran(kernel) }
}

fn never_ran(kernel: KernelId) -> CellReport {
    CellReport {
        kernel,
        success: false,
        stdout: String::new(),
        stderr: String::new(),
        result: None,
        error: None,
        display_outputs: Vec::new(),
        execution_count: 0,
        duration_us: 0,
        timed_out: false,
        interrupted: false,
        state_lost: false,
        restarted: false,
        death: None,
        truncated: false,
    }
}

/// Limits within which a report fits into a line.
fn bounded(limits: OutputLimits) -> OutputLimits {
    let OutputLimits { stdout, stderr, result, traceback, display_bytes, displays_bytes, displays } = limits;
    let most = u32::try_from(MOST_DISPLAYS_BYTES).unwrap_or(u32::MAX);
    OutputLimits {
        stdout: stdout.min(MOST_TEXT),
        stderr: stderr.min(MOST_TEXT),
        result: result.min(MOST_TEXT),
        traceback: traceback.min(MOST_TEXT / 2),
        display_bytes: display_bytes.min(most),
        displays_bytes: displays_bytes.min(most),
        displays: displays.min(1024),
    }
}

/// How long a text is as JSON.
fn in_json(text: &str) -> usize {
    let escaped = |b: u8| match b {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(escaped).sum()
}

fn seconds(time: Duration) -> String {
    let text = format!("{:.3}", time.as_secs_f64());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A file that a driver wrote, as text or base64; it is removed. Its size, where it is too large or no file.
fn read_file(path: &str, most: usize, text: bool) -> Result<String, usize> {
    // Without blocking: the user's code may have put a file of any type there.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|_| 0_usize)?;
    let file = std::fs::File::from(file);
    let about = file.metadata().map_err(|_| 0_usize)?;
    if !about.is_file() {
        return Err(0);
    }
    let _ = std::fs::remove_file(path);
    let size = usize::try_from(about.len()).unwrap_or(usize::MAX);
    if size > most {
        return Err(size);
    }
    let mut bytes = Vec::with_capacity(size);
    file.take(most as u64).read_to_end(&mut bytes).map_err(|_| size)?;
    Ok(match text {
        true => String::from_utf8_lossy(&bytes).into_owned(),
        false => base64::engine::general_purpose::STANDARD.encode(bytes),
    })
}
