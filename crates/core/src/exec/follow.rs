//! Following a command's output, from its start or from any offset.

use super::leash::Leash;
use crate::{Caller, Core, operation::OutputAudit};
use atoll_provider::{Changed, Container, ExecEvent, ExecReport, ExecStream, OutputStream};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, ExecId, Result};
use bytes::Bytes;
use std::sync::Arc;

/// What a follower is told.
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
        /// Which files changed since the command before; none where nobody can tell, or nobody asked.
        changed: Option<Changed>,
    },
}

/// A command that is followed.
pub struct ExecFollow {
    /// How it was when following began.
    pub report: ExecReport,
    events: ExecStream,
    leash: Option<Arc<Leash>>,
    changes: Option<(Core, SandboxId, Arc<dyn Container>)>,
    /// Where it is this follower that tells of it.
    trail: Option<OutputAudit>,
}

impl ExecFollow {
    pub(super) fn new(
        report: ExecReport,
        events: ExecStream,
        leash: Option<Leash>,
        changes: Option<(Core, SandboxId, Arc<dyn Container>)>,
        trail: Option<OutputAudit>,
    ) -> Self {
        Self { report, events, leash: leash.map(Arc::new), changes, trail }
    }

    /// The next update; none when there is no more.
    pub async fn next(&mut self) -> Result<Option<ExecUpdate>> {
        loop {
            match self.events.next().await? {
                Some(ExecEvent::Started(_)) => {}
                Some(ExecEvent::Output { stream, offset, data }) => {
                    if let Some(trail) = &mut self.trail {
                        trail.take(stream, offset, &data);
                    }
                    return Ok(Some(ExecUpdate::Output { stream, offset, data }));
                }
                Some(ExecEvent::Ended(report)) => {
                    self.grip().detach();
                    let changed = match self.changes.take() {
                        Some((core, sandbox, container)) => core.take_changes(sandbox, &container).await,
                        None => None,
                    };
                    if let Some(trail) = self.trail.take()
                        && let Err(error) = trail.end(Some(&report), changed.as_ref(), None).await
                    {
                        tracing::error!(%error, "the end of a command waits to be written");
                    }
                    return Ok(Some(ExecUpdate::Ended { report: Box::new(report), changed }));
                }
                None => return Ok(None),
            }
        }
    }

    /// What holds the command to its follower.
    #[must_use]
    pub fn grip(&self) -> ExecGrip {
        ExecGrip(self.leash.clone())
    }
}

/// What holds a command to its follower.
pub struct ExecGrip(Option<Arc<Leash>>);

impl ExecGrip {
    /// Lets the command go on without whoever follows it, as when the server ends and not the caller.
    pub fn detach(&self) {
        if let Some(leash) = &self.0 {
            leash.release();
        }
    }
}

impl Core {
    /// Reads a command's output from an offset on; with `follow` to its end.
    pub async fn exec_output(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        exec: ExecId,
        from: u64,
        follow: bool,
    ) -> Result<ExecFollow> {
        self.visible(caller, sandbox).await?;
        let container = self.registry.container(sandbox, "a look at a command's output").await?;
        let mut events = container.guest().attach(exec, from, follow).await?;
        match events.next().await? {
            Some(ExecEvent::Started(report)) => Ok(ExecFollow::new(report, events, None, None, None)),
            _ => Err(Error::new(ErrorCode::Unavailable, "the command's output broke off")),
        }
    }
}
