//! Turns a record and its spool into a stream of events, from any offset. The stream is pulled: a slow reader
//! holds one chunk and slows no other reader, and one that disconnects leaves nothing behind.

use super::{
    followers::Follower,
    record::{Exec, Phase, Status},
    spool::{Extent, SpoolDirectory, SpoolReader},
};
use crate::errors;
use atoll_guest_proto::{
    to_status,
    v1::{ExecEvent, Output, exec_event::Event},
};
use atoll_types::{Error, ErrorCode};
use futures_util::{Stream, stream};
use std::{pin::Pin, sync::Arc};
use tokio::sync::watch;

const CHUNK: u64 = 64 * 1024;

pub(crate) type EventStream = Pin<Box<dyn Stream<Item = Result<ExecEvent, tonic::Status>> + Send>>;

struct Replay {
    exec: Arc<Exec>,
    directory: SpoolDirectory,
    watch: watch::Receiver<Status>,
    reader: Option<SpoolReader>,
    offset: u64,
    follow: bool,
    /// The reader's position, which a lossless command waits for.
    place: Option<Follower>,
    step: Step,
}

enum Step {
    Start,
    Output,
    /// The final status: output that comes later is for later requests.
    Finish(Status),
    Done,
}

/// All events of a command from this offset on.
pub(crate) fn follow(exec: Arc<Exec>, directory: SpoolDirectory, from: u64, follow: bool) -> EventStream {
    let watch = exec.watch();
    let place = exec.followers.as_ref().filter(|_| follow).map(|followers| followers.join(from));
    let replay =
        Replay { exec, directory, watch, reader: None, offset: from, follow, place, step: Step::Start };
    Box::pin(stream::unfold(replay, |mut replay| async move {
        let event = replay.next().await?;
        if event.is_err() {
            replay.step = Step::Done;
        }
        Some((event.map_err(|e| to_status(&e)), replay))
    }))
}

fn event(event: Event) -> ExecEvent {
    ExecEvent { event: Some(event) }
}

impl Replay {
    async fn next(&mut self) -> Option<Result<ExecEvent, Error>> {
        loop {
            match &self.step {
                Step::Start => {
                    self.step = Step::Output;
                    return Some(Ok(event(Event::Started(self.exec.info()))));
                }
                Step::Output => {
                    let status = self.watch.borrow_and_update().clone();
                    self.skip_what_is_gone(status.extent);
                    if status.phase == Phase::Ended {
                        self.step = Step::Finish(status);
                    } else if self.offset < status.extent.kept {
                        return Some(self.output(status.extent, status.extent.kept));
                    } else if !self.follow || self.watch.changed().await.is_err() {
                        return None;
                    }
                }
                Step::Finish(status) => {
                    let (until, last) = (status.extent.kept, self.exec.info_at(status));
                    // There may be less output now than at the end, when newer output replaced it.
                    let extent = self.exec.status().extent;
                    self.skip_what_is_gone(extent);
                    if self.offset < until {
                        return Some(self.output(extent, until));
                    }
                    self.step = Step::Done;
                    return Some(Ok(event(Event::Ended(last))));
                }
                Step::Done => return None,
            }
        }
    }

    /// A reader that requests output that newer output replaced, or that was too slow for it, continues with the
    /// first that is left. It sees the gap by the offsets.
    fn skip_what_is_gone(&mut self, extent: Extent) {
        self.offset = self.offset.max(extent.freed);
    }

    fn output(&mut self, extent: Extent, until: u64) -> Result<ExecEvent, Error> {
        let lost = |e| match errors::code(e) {
            code @ ErrorCode::LimitExceeded => {
                let message =
                    "the command's output cannot be read now: PID 1 of the sandbox has too many files open";
                Error::new(code, message)
            }
            code => Error::new(code, "the command's output is gone"),
        };
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(SpoolReader::open(&self.directory, self.exec.id).map_err(lost)?),
        };
        reader.refresh(&self.directory, self.exec.id, extent);
        let (stream, end) = reader.run_at(self.offset, extent).map_err(lost)?;
        let length = end.min(until).saturating_sub(self.offset).clamp(1, CHUNK) as usize;
        let data = reader.read(self.offset, length).map_err(lost)?;
        if data.is_empty() {
            return Err(lost(rustix::io::Errno::NOENT));
        }
        let output = Output { stream: stream.into(), offset: self.offset, data: data.into() };
        self.offset += output.data.len() as u64;
        if let Some(place) = &self.place {
            place.reached(self.offset);
        }
        Ok(event(Event::Output(output)))
    }
}
