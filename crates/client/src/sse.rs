//! Server-sent events of a response's body.

use crate::{Error, Result, client::root_cause};
use atoll_types::sse::{SseEvent, SseReader};
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// Events as they come.
#[derive(Debug)]
pub(crate) struct Events {
    body: Incoming,
    reader: SseReader,
}

impl Events {
    /// Of a response whose events are at most so large.
    pub(crate) fn new(body: Incoming, largest: usize) -> Self {
        Self { body, reader: SseReader::new(largest) }
    }

    /// The next event; none when the stream is over. A stream that breaks off is an error.
    pub(crate) async fn next(&mut self) -> Result<Option<SseEvent>> {
        loop {
            if let Some(event) = self.reader.next_event().map_err(wrong)? {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let broke =
                |e: hyper::Error| Error::Unexpected(format!("the events broke off ({})", root_cause(&e)));
            if let Ok(data) = frame.map_err(broke)?.into_data() {
                self.reader.push(&data);
            }
        }
    }

    /// The data of the next event that has any; those without are keep-alives.
    pub(crate) async fn next_data(&mut self) -> Result<Option<String>> {
        while let Some(event) = self.next().await? {
            if let Some(data) = event.data {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    pub(crate) fn into_body(self) -> Incoming {
        self.body
    }
}

/// The error of an invalid event.
pub(crate) fn wrong(cause: impl std::fmt::Display) -> Error {
    Error::Unexpected(format!("it sent what is no event of Atoll ({cause})"))
}
