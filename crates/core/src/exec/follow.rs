//! Following a command's output, from its start or from any offset.

use super::{
    output_channel::{OutputReceiver, Piece, Received},
    task::{ExecEnd, ExecTask},
};
use crate::{
    Caller, Execs, OpenStream,
    actor::{SandboxRegistry, rolled_back},
    kill_on_drop::KillOnDrop,
};
use atoll_provider::{Changed, ExecEvent, ExecReport, OutputStream};
use atoll_store::SandboxId;
use atoll_types::{ContainerId, Error, ErrorCode, ExecId, Result};
use bytes::Bytes;
use std::sync::Arc;

/// What a follower receives.
#[derive(Debug, Clone)]
pub enum ExecUpdate {
    /// It printed something. Where the offset is beyond the last byte seen, what lies between is gone.
    Output {
        /// Where it printed.
        stream: OutputStream,
        /// The offset of the first byte, over both outputs.
        offset: u64,
        /// What.
        data: Bytes,
    },
    /// It ended. Nothing comes after this.
    Ended {
        /// How it went.
        report: Box<ExecReport>,
        /// Which files changed since the command before; none where that is not known, or was not asked for.
        changed: Option<Changed>,
    },
}

/// A command that is followed. Dropped before its end, the command is killed where it is tied to its caller.
pub struct ExecFollow {
    /// How it was when following began.
    pub report: ExecReport,
    output: OutputReceiver,
    /// The task that writes the command's end; none where only its output is read.
    task: Option<Arc<ExecTask>>,
    kill_on_drop: Option<KillOnDrop>,
    /// Where only the output is read: of whom to ask why it broke off.
    source: Option<(Arc<SandboxRegistry>, SandboxId, ContainerId)>,
    /// All output was received.
    ending: Option<Option<ExecReport>>,
    done: bool,
    /// Its place among the streams of its caller, where there is a caller that may not read.
    _stream: Option<OpenStream>,
}

impl ExecFollow {
    pub(super) fn new(
        report: ExecReport,
        output: OutputReceiver,
        task: Option<Arc<ExecTask>>,
        kill_on_drop: Option<KillOnDrop>,
    ) -> Self {
        Self { report, output, task, kill_on_drop, source: None, ending: None, done: false, _stream: None }
    }

    pub(super) fn counted(self, stream: OpenStream) -> Self {
        Self { _stream: Some(stream), ..self }
    }

    /// The next update; none when there is no more. A caller that gives up waiting for it loses nothing.
    pub async fn next(&mut self) -> Result<Option<ExecUpdate>> {
        if self.done {
            return Ok(None);
        }
        if self.ending.is_none() {
            let received = match (self.output.next().await, &self.source) {
                (Err(error), Some((registry, sandbox, container))) => {
                    let during = "the output was read";
                    return Err(registry.why_lost(*sandbox, *container, during, error).await);
                }
                (received, _) => received?,
            };
            match received {
                Received::Piece(Piece { stream, offset, data }) => {
                    return Ok(Some(ExecUpdate::Output { stream, offset, data }));
                }
                Received::End(_) if matches!(&self.source, Some((registry, ..)) if registry.was_rolled_back(self.report.id.uuid())) =>
                {
                    return Err(rolled_back());
                }
                Received::End(report) => self.ending = Some(report),
                Received::Over => return Ok(None),
            }
        }
        let told = match &self.task {
            Some(task) => Some(task.end().await),
            None => None,
        };
        self.done = true;
        self.detach();
        let read = self.ending.take().flatten();
        let (report, changed) = match (told, read) {
            (Some(Ok(ExecEnd { report, changed })), _) => (report, changed),
            (Some(Err(error)), _) if error.code == ErrorCode::RolledBack => return Err(error),
            // The command ended, though its task could not see how.
            (_, Some(report)) => (report, None),
            (Some(Err(error)), None) => return Err(error),
            (None, None) => return Ok(None),
        };
        Ok(Some(ExecUpdate::Ended { report: Box::new(report), changed }))
    }

    /// Leaves the command running when this is dropped, as when the server ends and not the caller.
    pub fn detach(&mut self) {
        if let Some(kill_on_drop) = &mut self.kill_on_drop {
            kill_on_drop.disarm();
        }
    }
}

impl Execs {
    /// Reads a command's output from an offset on; with `follow` to its end.
    pub async fn output(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        exec: ExecId,
        from: u64,
        follow: bool,
    ) -> Result<ExecFollow> {
        self.operations.visible(caller, sandbox).await?;
        let place = self.answers.stream(&caller.owner)?;
        let container = self.registry.container(sandbox, "a look at a command's output").await?;
        let begun = async {
            let attached = container.guest().attach(exec, from, follow).await;
            let mut events = self.unless_rolled_back(exec, attached)?;
            let first = events.next().await?;
            Ok::<_, Error>((events, first))
        };
        let (events, first) = match begun.await {
            Ok(begun) => begun,
            Err(error) if error.code == ErrorCode::NotFound => return Err(error),
            Err(error) => {
                let during = "its output was asked for";
                return Err(self.registry.why_lost(sandbox, container.id(), during, error).await);
            }
        };
        match first {
            Some(ExecEvent::Started(report)) => {
                let mut follow = ExecFollow::new(report, OutputReceiver::spool(events), None, None);
                follow.source = Some((Arc::clone(&self.registry), sandbox, container.id()));
                Ok(follow.counted(place))
            }
            _ => Err(Error::new(ErrorCode::Unavailable, "the command's output broke off")),
        }
    }
}
