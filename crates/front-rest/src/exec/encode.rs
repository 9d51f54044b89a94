//! A command's updates as server-sent events. Output is the bulk of it, so it is written by hand, straight
//! into the buffer that is sent.
//!
//! Output that is UTF-8 is sent as text. A character that is cut by the end of a piece waits for its rest,
//! so plain text never becomes base64. An event's id is the offset to resume at: the first byte that was
//! not sent yet.

use super::ChangedFile;
use super::report::ExecItem;
use atoll_types::{Error, ErrorCode, ExecReport, OutputStream, files::Changed, sse};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use std::fmt::Write;

/// The start of a character whose rest has not come.
#[derive(Default)]
struct Cut {
    bytes: Vec<u8>,
    /// Of the first byte, and beyond the last.
    offset: u64,
    end: u64,
}

/// What becomes of a cut character.
enum Rest {
    /// So many further bytes make it whole.
    Comes(usize),
    /// They are part of it, and more must come.
    NotYet,
    /// It never was one.
    Never,
}

impl Cut {
    fn with(&self, data: &[u8]) -> Rest {
        let mut whole = self.bytes.clone();
        for (taken, byte) in data.iter().enumerate() {
            whole.push(*byte);
            match std::str::from_utf8(&whole) {
                Ok(_) => return Rest::Comes(taken + 1),
                Err(e) if e.error_len().is_none() => {}
                Err(_) => return Rest::Never,
            }
        }
        Rest::NotYet
    }
}

/// How many bytes at the end are the start of a character.
fn cut_at_end(data: &[u8]) -> usize {
    for back in 1..=data.len().min(3) {
        let tail = &data[data.len() - back..];
        if tail[0] >= 0xc0 {
            let cut = std::str::from_utf8(tail).is_err_and(|e| e.error_len().is_none());
            return if cut { back } else { 0 };
        }
    }
    0
}

/// Writes the events of one reader.
pub(super) struct Encoder {
    /// Beyond the last byte that came.
    next: u64,
    /// The only output that is wanted, if one is.
    only: Option<OutputStream>,
    cuts: [Cut; 2],
}

fn name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    }
}

#[derive(Serialize)]
struct Tagged<'a> {
    r#type: &'static str,
    #[serde(flatten)]
    item: &'a ExecItem,
    #[serde(skip_serializing_if = "Option::is_none")]
    files_changed: Option<Vec<ChangedFile>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files_changed_truncated: Option<bool>,
}

#[derive(Serialize)]
struct Dropped {
    r#type: &'static str,
    offset: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Failed<'a> {
    r#type: &'static str,
    error: Reason<'a>,
}

#[derive(Serialize)]
struct Reason<'a> {
    code: ErrorCode,
    message: &'a str,
}

impl Encoder {
    pub(super) fn new(from: u64, only: Option<OutputStream>) -> Self {
        Self { next: from, only, cuts: [Cut::default(), Cut::default()] }
    }

    /// The offset to resume at.
    fn resume(&self) -> u64 {
        let waiting = self.cuts.iter().filter(|cut| !cut.bytes.is_empty()).map(|cut| cut.offset);
        waiting.min().unwrap_or(self.next)
    }

    /// Any event but output.
    fn push(&self, out: &mut String, event: &impl Serialize) {
        let event = serde_json::to_string(event).unwrap_or_default();
        sse::write(out, Some(self.resume()), None, |out| out.push_str(&event));
    }

    pub(super) fn started(&self, out: &mut String, report: ExecReport) {
        let item = &ExecItem::from(report);
        self.push(
            out,
            &Tagged { r#type: "started", item, files_changed: None, files_changed_truncated: None },
        );
    }

    /// The last event. What did not come before it never will.
    pub(super) fn ended(&mut self, out: &mut String, report: ExecReport, changed: Option<Changed>) {
        let (printed, dropped) = (report.output_bytes, report.dropped_bytes);
        self.skip(out, printed);
        self.give_up_cuts(out);
        if dropped > 0 {
            self.push(out, &Dropped { r#type: "dropped", offset: printed, bytes: dropped });
        }
        let (files_changed, files_changed_truncated) = match changed {
            Some(Changed { files, truncated }) => {
                (Some(files.into_iter().map(ChangedFile::from).collect()), Some(truncated))
            }
            None => (None, None),
        };
        let item = &ExecItem::from(report);
        self.push(out, &Tagged { r#type: "exit", item, files_changed, files_changed_truncated });
    }

    pub(super) fn failed(&self, out: &mut String, error: &Error) {
        let error = Reason { code: error.code, message: &error.message };
        self.push(out, &Failed { r#type: "error", error });
    }

    /// What lies before this offset and did not come is gone.
    fn skip(&mut self, out: &mut String, offset: u64) {
        if offset > self.next {
            let from = self.next;
            self.give_up_cuts(out);
            self.next = offset;
            self.push(out, &Dropped { r#type: "dropped", offset: from, bytes: offset - from });
        }
    }

    /// Sends what waits for a rest that does not come.
    fn give_up_cuts(&mut self, out: &mut String) {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let Cut { bytes, offset, end } = std::mem::take(&mut self.cuts[stream as usize]);
            if !bytes.is_empty() {
                self.binary(out, stream, (offset, end), &bytes);
            }
        }
    }

    pub(super) fn output(&mut self, out: &mut String, stream: OutputStream, offset: u64, data: &[u8]) {
        self.skip(out, offset);
        let end = offset + data.len() as u64;
        if self.only.is_some_and(|only| only != stream) {
            self.next = end;
            return;
        }
        let mut cut = std::mem::take(&mut self.cuts[stream as usize]);
        let taken = match (cut.bytes.is_empty(), cut.with(data)) {
            (true, _) => 0,
            (false, Rest::Comes(taken)) => {
                cut.bytes.extend_from_slice(&data[..taken]);
                self.next = offset + taken as u64;
                self.text(out, stream, (cut.offset, self.next), &cut.bytes);
                taken
            }
            (false, Rest::NotYet) => {
                cut.bytes.extend_from_slice(data);
                (cut.end, self.next) = (end, end);
                self.cuts[stream as usize] = cut;
                return;
            }
            (false, Rest::Never) => {
                self.binary(out, stream, (cut.offset, cut.end), &cut.bytes);
                0
            }
        };
        self.piece(out, stream, offset + taken as u64, &data[taken..]);
    }

    /// A piece that begins with a whole character, or with none.
    fn piece(&mut self, out: &mut String, stream: OutputStream, offset: u64, data: &[u8]) {
        let (whole, plain) = match std::str::from_utf8(data) {
            Ok(_) => (data.len(), true),
            Err(e) if e.error_len().is_none() => (e.valid_up_to(), true),
            Err(_) => (data.len() - cut_at_end(data), false),
        };
        let end = offset + whole as u64;
        self.next = offset + data.len() as u64;
        self.cuts[stream as usize] = Cut { bytes: data[whole..].to_vec(), offset: end, end: self.next };
        match (whole, plain) {
            (0, _) => {}
            (_, true) => self.text(out, stream, (offset, end), &data[..whole]),
            (_, false) => self.binary(out, stream, (offset, end), &data[..whole]),
        }
    }

    /// An event of so many bytes of output; `rest` appends the output itself.
    fn put(
        &self,
        out: &mut String,
        stream: OutputStream,
        (offset, end): (u64, u64),
        length: usize,
        rest: impl FnOnce(&mut String),
    ) {
        sse::write(out, Some(self.resume()), None, |out| {
            // Writing to a string cannot fail.
            let _ = write!(out, "{{\"type\":\"{}\",\"offset\":{offset},", name(stream));
            // The other output's bytes lie between those of one character.
            if end - offset != length as u64 {
                let _ = write!(out, "\"next\":{end},");
            }
            rest(out);
            out.push_str("\"}");
        });
    }

    fn text(&self, out: &mut String, stream: OutputStream, span: (u64, u64), data: &[u8]) {
        let Ok(text) = std::str::from_utf8(data) else { return self.binary(out, stream, span, data) };
        out.reserve(data.len() + data.len() / 8 + 128);
        self.put(out, stream, span, data.len(), |out| {
            out.push_str("\"data\":\"");
            escape(out, text);
        });
    }

    fn binary(&self, out: &mut String, stream: OutputStream, span: (u64, u64), data: &[u8]) {
        out.reserve(data.len() * 4 / 3 + 160);
        self.put(out, stream, span, data.len(), |out| {
            out.push_str("\"encoding\":\"base64\",\"data\":\"");
            STANDARD.encode_string(data, out);
        });
    }
}

/// How much of an output is encoded at a time.
const PIECE: usize = 32 << 10;

/// Bytes as the inside of a JSON string, piece by piece; what is not UTF-8 becomes the replacement character,
/// as it would in the whole.
pub(crate) fn json_pieces(bytes: Vec<u8>) -> impl Stream<Item = String> {
    stream::iter(std::iter::successors(Some((0, String::new())), move |(from, _)| {
        let rest = bytes.get(*from..).filter(|rest| !rest.is_empty())?;
        let mut piece = &rest[..rest.len().min(PIECE)];
        if piece.len() < rest.len() {
            piece = &piece[..piece.len() - cut_at_end(piece)];
        }
        let mut out = String::with_capacity(piece.len() + piece.len() / 8);
        escape(&mut out, &String::from_utf8_lossy(piece));
        Some((from + piece.len(), out))
    }))
    .map(|(_, piece)| piece)
}

/// Text as the inside of a JSON string.
fn escape(out: &mut String, text: &str) {
    let mut copied = 0;
    while let Some(at) = next_special(text.as_bytes(), copied) {
        out.push_str(&text[copied..at]);
        copied = at + 1;
        match text.as_bytes()[at] {
            b'\n' => out.push_str("\\n"),
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            byte => _ = write!(out, "\\u{byte:04x}"),
        }
    }
    out.push_str(&text[copied..]);
}

/// The next byte that cannot stand in a string as it is. Blocks without one are passed over as a whole: a
/// loop without a way out is one that the compiler does sixteen or more bytes of at a time.
fn next_special(bytes: &[u8], from: usize) -> Option<usize> {
    const BLOCK: usize = 32;
    let special = |byte: &u8| (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\');
    let mut at = from;
    while let Some(block) = bytes.get(at..at + BLOCK) {
        if block.iter().fold(false, |any, byte| any | special(byte)) {
            break;
        }
        at += BLOCK;
    }
    bytes[at..].iter().position(special).map(|n| at + n)
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
