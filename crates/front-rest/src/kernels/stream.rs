//! A cell's events as server-sent events, in the way of a command's. The body is pulled: a client that does
//! not read holds what the core keeps of the cell, and slows neither the cell nor other clients.

use super::wire::{CellResult, DisplayItem};
use atoll_core::{CellEvent, CellFollow, CellStream};
use atoll_http::{Ending, KEEP_ALIVE, event_stream};
use atoll_types::{Error, ErrorCode, Result, sse};
use axum::response::Response;
use futures_util::stream;
use serde::Serialize;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event<'a> {
    Started { cell_id: String },
    Began { execution_count: u64 },
    Output { stream: &'static str, text: &'a str },
    Display { display: DisplayItem },
    Ended(Box<CellResult>),
    Error { error: Reason<'a> },
}

#[derive(Serialize)]
struct Reason<'a> {
    code: ErrorCode,
    message: &'a str,
}

fn line(event: &Event) -> String {
    let (json, mut out) = (serde_json::to_string(event).unwrap_or_default(), String::new());
    sse::write(&mut out, None, None, |out| out.push_str(&json));
    out
}

fn failed(error: &Error) -> String {
    line(&Event::Error { error: Reason { code: error.code, message: &error.message } })
}

struct Sender {
    follow: CellFollow,
    ending: Ending,
    started: bool,
    done: bool,
}

/// An answer of events, to the cell's end.
pub(super) fn respond(follow: CellFollow, ending: Ending) -> Response {
    let sender = Sender { follow, ending, started: false, done: false };
    event_stream(stream::unfold(sender, |mut sender| async { Some((sender.next().await?, sender)) }))
}

impl Sender {
    async fn next(&mut self) -> Option<String> {
        if self.done {
            return None;
        }
        if !std::mem::replace(&mut self.started, true) {
            return Some(line(&Event::Started { cell_id: self.follow.cell.to_string() }));
        }
        let event = tokio::select! {
            biased;
            event = self.follow.next() => event,
            () = self.ending.wait() => {
                self.done = true;
                self.follow.detach();
                let message = "the server ends; the cell goes on";
                return Some(failed(&Error::new(ErrorCode::Unavailable, message)));
            }
            () = tokio::time::sleep(KEEP_ALIVE) => return Some(sse::alive("it still runs", None)),
        };
        Some(self.written(event))
    }

    fn written(&mut self, event: Result<Option<CellEvent>>) -> String {
        match event {
            Ok(Some(CellEvent::Began { execution_count })) => line(&Event::Began { execution_count }),
            Ok(Some(CellEvent::Output { stream, text })) => {
                let stream = match stream {
                    CellStream::Stdout => "stdout",
                    CellStream::Stderr => "stderr",
                };
                line(&Event::Output { stream, text: &text })
            }
            Ok(Some(CellEvent::Display(display))) => line(&Event::Display { display: display.into() }),
            Ok(Some(CellEvent::Ended(report))) => {
                self.done = true;
                let (cell, changed) = (self.follow.cell, self.follow.changed().cloned());
                line(&Event::Ended(Box::new(CellResult::new(cell, *report, changed))))
            }
            Ok(None) => {
                self.done = true;
                failed(&Error::new(ErrorCode::Unavailable, "the cell's events broke off"))
            }
            Err(error) => {
                self.done = true;
                failed(&error)
            }
        }
    }
}
