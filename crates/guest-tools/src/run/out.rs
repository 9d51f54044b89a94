//! The lines of an answer, within bounds.

use crate::{LONGEST_LINE, MOST_OUTPUT};
use atoll_types::{Error, ErrorCode, Result};
use serde::Serialize;
use std::io::{self, BufWriter, Stdout, Write};

/// Stdout as lines of JSON.
pub(super) struct Lines {
    out: BufWriter<Stdout>,
    /// Bytes that may still be written, beside the last line.
    room: usize,
}

fn broken(error: io::Error) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the answer cannot be written: {error}"))
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, io::stdout()), room: MOST_OUTPUT }
    }

    /// Writes a line; false where there is no room for it.
    pub(super) fn line(&mut self, value: &impl Serialize) -> Result<bool> {
        let text = serde_json::to_string(value).map_err(|e| Error::internal(e.to_string()))?;
        if text.len() >= LONGEST_LINE || text.len() >= self.room {
            return Ok(false);
        }
        self.room -= text.len() + 1;
        self.write(&text)?;
        Ok(true)
    }

    /// Writes a line of an answer that has no end.
    pub(super) fn tell(&mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value).map_err(|e| Error::internal(e.to_string()))?;
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.write_all(b"\n")).map_err(broken)
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(broken)
    }
}
