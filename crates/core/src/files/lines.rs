//! Lines of JSON from a tool, of a bounded length.

use super::tool::Tool;
use atoll_guest_tools::{LONGEST_LINE, LONGEST_PATH};
use atoll_types::{
    Error, ErrorCode, Result,
    lines::{Line, LineBuffer},
};
use serde::de::DeserializeOwned;

pub(super) struct Lines {
    tool: Tool,
    lines: LineBuffer,
}

fn hostile() -> Error {
    Error::new(ErrorCode::Unavailable, "the sandbox sent an answer that cannot be right")
}

/// A path that may be shown. Bytes that are not UTF-8 count three times.
pub(super) fn believable(path: &str) -> Result<()> {
    let fits = !path.is_empty() && path.len() <= 3 * LONGEST_PATH && !path.contains('\0');
    if fits { Ok(()) } else { Err(hostile()) }
}

/// The one line that a tool answers with.
pub(crate) async fn answer_of<T: DeserializeOwned>(tool: Tool, longest: usize) -> Result<T> {
    let mut lines = Lines { tool, lines: LineBuffer::new(longest) };
    match lines.next().await? {
        Some((answer, _)) => lines.finish(answer).await,
        None => lines.refuse(),
    }
}

impl Lines {
    pub(super) fn new(tool: Tool) -> Self {
        Self { tool, lines: LineBuffer::new(LONGEST_LINE) }
    }

    /// The next line and its length; none when the tool has ended well.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<(T, usize)>> {
        loop {
            match self.lines.next_line() {
                Some(Line::Whole(line)) => {
                    let value = serde_json::from_slice(line).map_err(|_| hostile())?;
                    return Ok(Some((value, line.len() + 1)));
                }
                Some(Line::TooLong) => return Err(hostile()),
                None => {}
            }
            match self.tool.next().await? {
                Some(data) => self.lines.push(&data),
                None if self.lines.unfinished() == 0 => return Ok(None),
                None => return Err(hostile()),
            }
        }
    }

    /// The result, if the tool prints nothing more.
    pub(super) async fn finish<T>(mut self, answer: T) -> Result<T> {
        match self.next::<serde_json::Value>().await? {
            None => Ok(answer),
            Some(_) => Err(hostile()),
        }
    }

    /// The error of a tool that exceeds its own limits.
    pub(super) fn refuse<T>(&self) -> Result<T> {
        Err(hostile())
    }
}
