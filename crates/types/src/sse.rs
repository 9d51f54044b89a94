//! Server-sent events (WHATWG HTML, "Server-sent events"): one writer and one reader.

use crate::lines::{Line, LineBuffer};
use std::fmt::Write as _;

/// One event; comments alone are an event with nothing in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The id after which a reader resumes.
    pub id: Option<String>,
    /// Its kind.
    pub event: Option<String>,
    /// Its data. The lines of several fields are joined.
    pub data: Option<String>,
}

/// Why a stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// An event is longer than allowed.
    #[error("an event is too long")]
    TooLong,
    /// A field is not UTF-8.
    #[error("an event is not UTF-8")]
    NotText,
}

/// Parses events from the pieces of a stream.
#[derive(Debug)]
pub struct SseReader {
    lines: LineBuffer,
    largest: usize,
    event: SseEvent,
    /// Bytes of the event that is being read; zero before its first line.
    size: usize,
}

impl SseReader {
    /// For events of at most so many bytes.
    #[must_use]
    pub fn new(largest: usize) -> Self {
        Self { lines: LineBuffer::new(largest), largest, event: SseEvent::default(), size: 0 }
    }

    /// Takes a piece. The caller must read all complete events before the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.lines.push(piece);
    }

    /// The next event, if it is complete. After an error the rest of the stream is invalid.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, SseError> {
        while let Some(line) = self.lines.next_line() {
            let Line::Whole(line) = line else { return Err(SseError::TooLong) };
            if line.is_empty() {
                if std::mem::take(&mut self.size) > 0 {
                    return Ok(Some(std::mem::take(&mut self.event)));
                }
                continue;
            }
            self.size += line.len();
            if self.size > self.largest {
                return Err(SseError::TooLong);
            }
            add(&mut self.event, line)?;
        }
        Ok(None)
    }
}

/// Adds a field to an event; unknown ones and comments are ignored.
fn add(event: &mut SseEvent, line: &[u8]) -> Result<(), SseError> {
    let (name, value) = match line.iter().position(|byte| *byte == b':') {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &[][..]),
    };
    let text = || {
        let value = value.strip_prefix(b" ").unwrap_or(value);
        std::str::from_utf8(value).map_err(|_| SseError::NotText)
    };
    match name {
        b"id" => event.id = Some(text()?.to_owned()),
        b"event" => event.event = Some(text()?.to_owned()),
        b"data" => match &mut event.data {
            Some(data) => {
                data.push('\n');
                data.push_str(text()?);
            }
            None => event.data = Some(text()?.to_owned()),
        },
        _ => {}
    }
    Ok(())
}

/// Appends an event. `data` appends its data, which has to be one line, as JSON is.
pub fn write(out: &mut String, id: Option<u64>, event: Option<&str>, data: impl FnOnce(&mut String)) {
    if let Some(id) = id {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "id: {id}");
    }
    if let Some(event) = event {
        out.push_str("event: ");
        // A line's end would end the field.
        out.extend(event.chars().filter(|c| !c.is_control()));
        out.push('\n');
    }
    out.push_str("data: ");
    data(out);
    out.push_str("\n\n");
}

/// A keep-alive with an id: without data this is no event, but a reader resumes after its id.
#[must_use]
pub fn alive(text: &str, id: Option<u64>) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!(": {text}\n{id}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(largest: usize, pieces: &[&[u8]]) -> Result<Vec<SseEvent>, SseError> {
        let (mut reader, mut all) = (SseReader::new(largest), Vec::new());
        for piece in pieces {
            reader.push(piece);
            while let Some(event) = reader.next_event()? {
                all.push(event);
            }
        }
        Ok(all)
    }

    fn event(id: &str, event: &str, data: &str) -> SseEvent {
        let some = |text: &str| (text != "-").then(|| text.to_owned());
        SseEvent { id: some(id), event: some(event), data: some(data) }
    }

    #[test]
    fn events_are_read_however_their_lines_end_and_their_pieces_are_cut() {
        let text: &[u8] =
            b"id: 1/0\nevent: dead\ndata: {\"a\":\": \"}\n\n: alive\nid:7\r\ndata:x\r\nretry: 3\r\n\r\n\
            \n\ndata: a\ndata: b\n: c\n\n: it runs\n\ndata: \n\ndata\n\ndata: half";
        let wanted = [
            event("1/0", "dead", "{\"a\":\": \"}"),
            event("7", "-", "x"),
            event("-", "-", "a\nb"),
            event("-", "-", "-"),
            event("-", "-", ""),
            event("-", "-", ""),
        ];
        for size in [1, 2, 7, text.len()] {
            assert_eq!(read(1000, &text.chunks(size).collect::<Vec<_>>()).unwrap(), wanted, "{size}");
        }
    }

    #[test]
    fn what_cannot_be_right_is_refused() {
        assert_eq!(read(100, &[b"data: \xff\n\n"]), Err(SseError::NotText));
        assert_eq!(read(8, &[b"data: 123"]), Err(SseError::TooLong), "before its line has ended");
        assert_eq!(read(8, &[b"data: 1\ndata: 2\n\n"]), Err(SseError::TooLong));
        assert_eq!(read(8, &[b"data: 1\n\ndata: 2\n\n"]).unwrap().len(), 2);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut out = alive("listening", None) + &alive("listening", Some(6));
        write(&mut out, Some(7), Some("de\nad"), |out| out.push_str("{}"));
        write(&mut out, None, None, |out| out.push_str("{}"));
        let wanted =
            [event("-", "-", "-"), event("6", "-", "-"), event("7", "dead", "{}"), event("-", "-", "{}")];
        assert_eq!(read(100, &[out.as_bytes()]).unwrap(), wanted);
    }
}
