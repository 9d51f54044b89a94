//! Server-sent events whose data is one line of JSON each.

use crate::{Error, Result, client::root_cause};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// Far more than any event has.
const LARGEST_EVENT: usize = 64 << 20;

/// The data of events as they come.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
    /// Up to where there is no end of an event.
    searched: usize,
}

impl Lines {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, buffer: Vec::new(), searched: 0 }
    }

    /// The data of the next event; none when the answer is over. One that breaks off is an error.
    pub(crate) async fn next(&mut self) -> Result<Option<String>> {
        loop {
            let end = self.buffer[self.searched..].windows(2).position(|two| two == b"\n\n");
            if let Some(end) = end.map(|end| self.searched + end) {
                let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                self.searched = 0;
                let text = String::from_utf8_lossy(&event);
                // What has no data is a comment.
                match text.lines().find_map(|line| line.strip_prefix("data: ")) {
                    Some(data) => return Ok(Some(data.to_owned())),
                    None => continue,
                }
            }
            self.searched = self.buffer.len().saturating_sub(1);
            if self.buffer.len() > LARGEST_EVENT {
                return Err(Error::Unexpected("it sent an event without an end".into()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.buffer.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                Some(Err(e)) => {
                    return Err(Error::Unexpected(format!("the connection broke ({})", root_cause(&e))));
                }
            }
        }
    }
}
