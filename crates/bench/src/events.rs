//! Reading a command's events. Output is the bulk of them, so it is not decoded: only its length is computed,
//! which costs the measured machine the least.

use crate::Result;
use serde::Deserialize;
use std::{io, time::Instant};

/// Where the output of an event begins. The server writes its fields in this order.
const DATA: &[u8] = b"\"data\":\"";
const BASE64: &[u8] = b"\"encoding\":\"base64\",";

/// The events so far.
#[derive(Default)]
pub(crate) struct Events {
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
    /// When the first output came.
    pub(crate) first: Option<Instant>,
    /// Bytes that the command printed, and those that came as base64.
    pub(crate) bytes: u64,
    pub(crate) as_base64: u64,
    last: Option<Last>,
    lost: u64,
}

/// An event without output.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Other {
    Started {},
    Dropped { bytes: u64 },
    Exit { exit_code: i32 },
    Error { error: serde_json::Value },
}

#[derive(Debug)]
enum Last {
    Exit(i32),
    Error(String),
}

impl Events {
    /// Takes the next bytes.
    pub(crate) fn take(&mut self, piece: &[u8]) -> io::Result<()> {
        let Some(end) = piece.iter().rposition(|byte| *byte == b'\n') else {
            self.rest.extend_from_slice(piece);
            return Ok(());
        };
        let mut lines = piece[..end].split(|byte| *byte == b'\n');
        if !self.rest.is_empty() {
            let mut first = std::mem::take(&mut self.rest);
            first.extend_from_slice(lines.next().unwrap_or_default());
            self.line(&first)?;
        }
        lines.try_for_each(|line| self.line(line))?;
        self.rest.extend_from_slice(&piece[end + 1..]);
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(event) = line.strip_prefix(b"data: ") else { return Ok(()) };
        if let Some(fields) = event.strip_prefix(b"{\"type\":\"std") {
            let length = printed(fields).ok_or_else(|| io::Error::other("output without an end"))?;
            self.first.get_or_insert_with(Instant::now);
            self.bytes += length.bytes;
            self.as_base64 += if length.base64 { length.bytes } else { 0 };
            return Ok(());
        }
        match serde_json::from_slice(event)? {
            Other::Started {} => {}
            Other::Dropped { bytes } => self.lost += bytes,
            Other::Exit { exit_code } => self.last = Some(Last::Exit(exit_code)),
            Other::Error { error } => self.last = Some(Last::Error(error.to_string())),
        }
        Ok(())
    }

    /// Whether the command succeeded, and none of its output is missing.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.last {
            Some(Last::Exit(0)) if self.lost == 0 => Ok(()),
            Some(Last::Exit(0)) => Err(format!("{} bytes of output were lost", self.lost).into()),
            Some(Last::Exit(code)) => Err(format!("the command ended with {code}").into()),
            Some(Last::Error(error)) => Err(format!("the server said: {error}").into()),
            None => Err("the output broke off".into()),
        }
    }
}

/// The size of an output event.
struct Printed {
    bytes: u64,
    base64: bool,
}

fn printed(fields: &[u8]) -> Option<Printed> {
    // The fields before the output are short.
    let head = &fields[..fields.len().min(160)];
    let begin = head.windows(DATA.len()).position(|window| window == DATA)? + DATA.len();
    let data = fields[begin..].strip_suffix(b"\"}")?;
    let base64 = head[..begin - DATA.len()].ends_with(BASE64);
    let bytes = if base64 { base64_length(data) } else { text_length(data) };
    Some(Printed { bytes: bytes as u64, base64 })
}

fn base64_length(data: &[u8]) -> usize {
    let padding = data.iter().rev().take_while(|byte| **byte == b'=').count();
    (data.len() / 4 * 3).saturating_sub(padding)
}

/// The length of the text of a JSON string. Only control characters are escaped by their number, each of
/// which is a byte.
fn text_length(data: &[u8]) -> usize {
    let (mut at, mut saved) = (0, 0);
    while at < data.len() {
        let step = match (data[at], data.get(at + 1)) {
            (b'\\', Some(b'u')) => 6,
            (b'\\', _) => 2,
            _ => 1,
        };
        saved += step - 1;
        at += step;
    }
    data.len().saturating_sub(saved)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        "id: 0\ndata: {\"type\":\"started\",\"exec_id\":\"x\",\"status\":\"running\"}\n\n",
        ": it still runs\n\n",
        "id: 6\ndata: {\"type\":\"stdout\",\"offset\":0,\"data\":\"a\\n\\u0001\\\\\\\"\\t\"}\n\n",
        "id: 8\ndata: {\"type\":\"stderr\",\"offset\":6,\"data\":\"\u{e9}\"}\n\n",
        "id: 12\ndata: {\"type\":\"stdout\",\"offset\":8,\"next\":12,\"encoding\":\"base64\",\"data\":\"/w==\"}\n\n",
        "id: 12\ndata: {\"type\":\"exit\",\"exec_id\":\"x\",\"exit_code\":0}\n\n",
    );

    fn read(stream: &str, at_once: usize) -> Events {
        let mut events = Events::default();
        stream.as_bytes().chunks(at_once).for_each(|piece| events.take(piece).unwrap());
        events
    }

    #[test]
    fn output_is_counted_as_it_was_printed_however_it_comes() {
        for at_once in [1, 2, 7, 100, STREAM.len()] {
            let events = read(STREAM, at_once);
            assert_eq!((events.bytes, events.as_base64), (9, 1), "{at_once}");
            events.check().unwrap();
            assert!(events.first.is_some());
        }
    }

    #[test]
    fn text_is_as_long_as_a_parser_finds_it() {
        for text in ["", "plain", "\n\n", "\u{1}x\"\\\u{1f}", "\\u0041", "\u{e9}\u{1f600}"] {
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(text_length(&json.as_bytes()[1..json.len() - 1]), text.len(), "{json}");
        }
        for (data, length) in [("", 0), ("YQ==", 1), ("YWI=", 2), ("YWJj", 3)] {
            assert_eq!(base64_length(data.as_bytes()), length);
        }
    }

    #[test]
    fn what_is_not_whole_is_an_error() {
        let event = |json: &str| read(&format!("id: 0\ndata: {json}\n\n"), 64).check();
        assert!(event(r#"{"type":"exit","exit_code":0}"#).is_ok());
        assert!(event(r#"{"type":"exit","exit_code":1}"#).is_err());
        assert!(event(r#"{"type":"error","error":{"code":"unavailable"}}"#).is_err());
        assert!(event(r#"{"type":"started"}"#).is_err());
        let lost = "data: {\"type\":\"dropped\",\"offset\":0,\"bytes\":5}\n\ndata: {\"type\":\"exit\",\"exit_code\":0}\n\n";
        assert!(read(lost, 64).check().is_err());
        assert!(Events::default().take(b"data: {\"type\":\"stdout\",\"offset\":0}\n").is_err());
    }
}
