//! Work on whole folders: PID 1's own programs, run inside as the user. Any process inside could have written
//! the output, so lines are bounded, parsed strictly and counted.

use super::explained;
use crate::{
    Files,
    actor::{SandboxRegistry, rolled_back},
    kill_on_drop::KillOnDrop,
};
use atoll_provider::{Command, Container, ExecEvent, ExecReport, ExecStream, FEATURE_TOOLS, OutputStream};
use atoll_store::SandboxId;
use atoll_types::{ContainerId, Error, ErrorCode, ExecId, Result};
use bytes::Bytes;
use serde::Serialize;
use std::{sync::Arc, time::Duration};

/// Bytes buffered for a slow reader before the tool blocks.
const WAITING: u64 = 4 << 20;
/// The longest error.
const LONGEST_ERROR: usize = 16 << 10;
const LONGEST_MESSAGE: usize = 500;

/// Fields that a tool's error may name.
const FIELDS: &[&str] = &["path", "pattern", "glob", "prefix", "body"];

/// A running tool. Dropped before its end, it is killed.
pub(crate) struct Tool {
    pub(crate) id: ExecId,
    events: ExecStream,
    kill_on_drop: KillOnDrop,
    complaint: Vec<u8>,
    /// Where the sandbox may be stopped meanwhile: of whom to ask whether it was.
    stoppable: Option<(Arc<SandboxRegistry>, SandboxId, ContainerId)>,
}

/// How a tool is run.
#[derive(Default)]
pub(crate) struct ToolOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) stdin: bool,
    /// Let it clean up when the caller has gone.
    pub(crate) gently: bool,
}

impl ToolOptions {
    /// That of a tool that reads an archive.
    pub(crate) fn fed() -> Self {
        Self { stdin: true, gently: true, ..Self::default() }
    }
}

impl Files {
    /// Starts a tool in a sandbox's container. Where it breaks off because the sandbox was stopped or rolled
    /// back, its error says so.
    pub(super) async fn start_tool(
        &self,
        sandbox: SandboxId,
        container: &Arc<dyn Container>,
        name: &str,
        request: &impl Serialize,
        options: ToolOptions,
    ) -> Result<Tool> {
        let mut tool = Tool::start(container, name, request, options).await?;
        tool.stoppable = Some((Arc::clone(&self.registry), sandbox, container.id()));
        Ok(tool)
    }
}

impl Tool {
    /// Starts a tool in a container.
    pub(crate) async fn start(
        container: &Arc<dyn Container>,
        name: &str,
        request: &impl Serialize,
        options: ToolOptions,
    ) -> Result<Self> {
        let guest = container.guest();
        if !guest.has(FEATURE_TOOLS) {
            let message = "this sandbox was started by an older release; stop it and resume it";
            return Err(Error::new(ErrorCode::Unsupported, message));
        }
        let request = serde_json::to_vec(request).map_err(|e| Error::internal(e.to_string()))?;
        let mut command = Command::tool(name, request);
        command.lossless = true;
        command.output_limit = Some(WAITING);
        command.timeout = options.timeout;
        command.stdin = options.stdin;
        let id = ExecId::random();
        let kill_on_drop = KillOnDrop::new(container, id);
        let kill_on_drop = if options.gently { kill_on_drop.gently() } else { kill_on_drop };
        let events = guest.exec(id, &command).await?;
        Ok(Self { id, events, kill_on_drop, complaint: Vec::new(), stoppable: None })
    }

    /// The next output; none when it has ended well.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        match (self.read().await, &self.stoppable) {
            (Err(_), Some((registry, ..))) if registry.was_rolled_back(self.id.uuid()) => Err(rolled_back()),
            (read, Some((registry, sandbox, container))) => {
                explained(registry, *sandbox, *container, read).await
            }
            (read, None) => read,
        }
    }

    async fn read(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.events.next().await? {
                Some(ExecEvent::Started(_)) => {}
                Some(ExecEvent::Output { stream: OutputStream::Stdout, data, .. }) => return Ok(Some(data)),
                Some(ExecEvent::Output { stream: OutputStream::Stderr, data, .. }) => {
                    let room = LONGEST_ERROR.saturating_sub(self.complaint.len()).min(data.len());
                    self.complaint.extend_from_slice(&data[..room]);
                }
                Some(ExecEvent::Ended(report)) => {
                    self.kill_on_drop.forget();
                    return self.verdict(&report).map(|()| None);
                }
                None => return Err(Error::new(ErrorCode::Unavailable, "the tool's answer broke off")),
            }
        }
    }

    fn verdict(&self, report: &ExecReport) -> Result<()> {
        let ended = |code, message: &str| Err(Error::new(code, message));
        match report.exit_code {
            _ if report.failure.is_some() => ended(ErrorCode::Unavailable, "the tool could not be started"),
            _ if report.timed_out => ended(ErrorCode::Timeout, "it took longer than allowed"),
            _ if report.oom_killed => {
                ended(ErrorCode::LimitExceeded, "the sandbox's memory was not enough for it")
            }
            // Its answer or its error is missing. A reader frees room for more, so nothing else drops any of it.
            _ if report.dropped_bytes > 0 => {
                ended(ErrorCode::DiskFull, "the disk has no room for the output of this request")
            }
            Some(0) => Ok(()),
            Some(1) => Err(complaint(&self.complaint)),
            _ => ended(ErrorCode::Unavailable, "the tool was ended inside the sandbox"),
        }
    }
}

/// The error that a tool printed, as far as it can be shown.
fn complaint(bytes: &[u8]) -> Error {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let Ok(Error { code, message, field, death: _, refusal: _ }) = serde_json::from_slice::<Error>(line)
    else {
        return Error::new(ErrorCode::Unavailable, "the tool ended without a reason");
    };
    let code = match code {
        // Processes inside must not be able to report an internal error or a container's death.
        ErrorCode::Internal
        | ErrorCode::ContainerDied
        | ErrorCode::KernelDied
        | ErrorCode::RolledBack
        | ErrorCode::NotRunning
        | ErrorCode::VersionMismatch => ErrorCode::Unavailable,
        code => code,
    };
    let message: String = message.chars().filter(|c| !c.is_control()).take(LONGEST_MESSAGE).collect();
    let error = Error::new(code, message);
    match field {
        Some(field) if FIELDS.contains(&field.as_str()) => error.at(field),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_shown_as_far_as_it_can_be() {
        let told = |text: &str| complaint(text.as_bytes());
        let error = told(r#"{"code":"not_found","message":"no such file","field":"path"}"#);
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::NotFound, Some("path")));
        let error = told(r#"{"code":"internal","message":"\u001b[2Jx","field":"api_key"}"#);
        assert_eq!((error.code, error.message.as_str(), error.field), (ErrorCode::Unavailable, "[2Jx", None));
        for text in [
            "",
            "{",
            "[]",
            r#"{"code":"no_such","message":""}"#,
            r#"{"code":"conflict","message":"x","more":1}"#,
        ] {
            assert_eq!(told(text).code, ErrorCode::Unavailable, "{text}");
        }
    }
}
