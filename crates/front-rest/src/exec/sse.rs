//! Sending a command's updates as they come. The body is pulled: a client that does not read holds what fits
//! into one buffer here, and slows neither the command nor other clients.

use super::encode::Encoder;
use atoll_core::{ExecFollow, ExecUpdate};
use atoll_http::{Ending, KEEP_ALIVE, event_stream};
use atoll_types::{Error, ErrorCode, OutputStream, Result, sse};
use axum::response::Response;
use futures_util::{FutureExt, Stream, stream};
use std::pin::Pin;

/// What has come already is sent together, up to this.
const TOGETHER: usize = 256 << 10;

/// What a reader wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutputRequest {
    pub(super) from: u64,
    pub(super) follow: bool,
    pub(super) only: Option<OutputStream>,
}

impl OutputRequest {
    /// Everything, to the end.
    pub(super) fn whole() -> Self {
        Self { from: 0, follow: true, only: None }
    }
}

pub(super) type Updates = Pin<Box<dyn Stream<Item = Result<ExecUpdate>> + Send>>;

/// The updates of a command.
pub(super) fn updates(follow: ExecFollow) -> Updates {
    Box::pin(stream::unfold(Some(follow), |follow| async {
        let mut follow = follow?;
        match follow.next().await {
            Ok(Some(update)) => Some((Ok(update), Some(follow))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    }))
}

pub(super) fn server_ends() -> Error {
    Error::new(ErrorCode::Unavailable, "the server ends; the command goes on, so ask again")
}

struct Sender {
    follow: ExecFollow,
    encoder: Encoder,
    to_the_end: bool,
    ending: Ending,
    started: Option<Box<atoll_types::ExecReport>>,
    done: bool,
}

/// An answer of events, to the command's end.
pub(super) fn respond(follow: ExecFollow, wish: OutputRequest, ending: Ending) -> Response {
    let OutputRequest { from, follow: to_the_end, only } = wish;
    let sender = Sender {
        encoder: Encoder::new(from, only),
        to_the_end,
        ending,
        started: Some(Box::new(follow.report.clone())),
        follow,
        done: false,
    };
    event_stream(stream::unfold(sender, |mut sender| async { Some((sender.next().await?, sender)) }))
}

impl Sender {
    async fn next(&mut self) -> Option<String> {
        let mut out = String::new();
        if self.done {
            return None;
        }
        if let Some(report) = self.started.take() {
            self.encoder.started(&mut out, *report);
            return Some(out);
        }
        loop {
            tokio::select! {
                biased;
                update = self.follow.next() => self.add(&mut out, update),
                () = self.ending.wait() => {
                    self.follow.detach();
                    self.fail(&mut out, &server_ends());
                }
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(sse::alive("it still runs", None)),
            }
            while !self.done && out.len() < TOGETHER {
                let Some(update) = self.follow.next().now_or_never() else { break };
                self.add(&mut out, update);
            }
            // The start of a character alone is no event yet.
            if self.done || !out.is_empty() {
                return (!out.is_empty()).then_some(out);
            }
        }
    }

    fn fail(&mut self, out: &mut String, error: &Error) {
        self.done = true;
        self.encoder.failed(out, error);
    }

    fn add(&mut self, out: &mut String, update: Result<Option<ExecUpdate>>) {
        match update {
            Ok(Some(ExecUpdate::Output { stream, offset, data })) => {
                self.encoder.output(out, stream, offset, &data);
            }
            Ok(Some(ExecUpdate::Ended { report, changed })) => {
                self.done = true;
                self.encoder.ended(out, *report, changed);
            }
            Err(error) => self.fail(out, &error),
            Ok(None) if self.to_the_end => {
                let message = "the command's output broke off; ask again";
                self.fail(out, &Error::new(ErrorCode::Unavailable, message));
            }
            Ok(None) => self.done = true,
        }
    }
}
