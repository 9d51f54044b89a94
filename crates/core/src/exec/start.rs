//! Starting a command, whoever waits for it.

use super::{ExecCommand, ExecMode, follow::ExecFollow, leash::Leash};
use crate::{Caller, Core};
use atoll_provider::{Command, Container, ExecEvent, ExecReport};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, ExecId, Result};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use uuid::Uuid;

/// A command that was checked, and the container for it.
pub(super) struct Ready {
    pub(super) id: ExecId,
    pub(super) command: Command,
    pub(super) container: Arc<dyn Container>,
    /// It was begun before; perhaps by a server that is dead.
    pub(super) joined: bool,
}

/// A command that could not even come to its program is the caller's mistake. A program that is not
/// there is an ordinary failure of a command line, as a shell has it.
pub(super) fn started(report: &ExecReport) -> Result<()> {
    match &report.failure {
        Some(failure) if failure.stage != "exec" => {
            let error = Error::new(ErrorCode::ExecFailed, failure.message.clone());
            Err(match failure.stage.as_str() {
                "workdir" => error.at("working_directory"),
                "user" => error.at("user"),
                _ => error,
            })
        }
        _ => Ok(()),
    }
}

impl Core {
    /// The id of a command whose request may be repeated: the same for the same request of the same
    /// owner, so that a repetition finds the command, whatever became of the server meanwhile.
    #[must_use]
    pub fn repeatable_exec(caller: &Caller, sandbox: SandboxId, key: &str, request: &[u8; 32]) -> ExecId {
        let mut hash = Sha256::new();
        for part in
            [&b"exec"[..], caller.owner.as_bytes(), sandbox.uuid().as_bytes(), key.as_bytes(), request]
        {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        ExecId::from_uuid(Uuid::from_bytes(bytes))
    }

    pub(super) async fn make_ready(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
        mode: ExecMode,
    ) -> Result<Ready> {
        let command = request.build(mode)?;
        self.writable(caller, sandbox).await?;
        let container = self.desks.container(sandbox).await?;
        let joined = match request.id {
            None => false,
            Some(id) => match container.guest().get_exec(id).await {
                Ok(_) => true,
                Err(error) if error.code == ErrorCode::NotFound => false,
                Err(error) => return Err(error),
            },
        };
        Ok(Ready { id: request.id.unwrap_or_else(ExecId::random), command, container, joined })
    }

    /// Starts a command and does not wait for it. What it writes to files is told by the next command.
    pub async fn exec_background(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
    ) -> Result<ExecReport> {
        let Ready { id, command, container, joined } =
            self.make_ready(caller, sandbox, request, ExecMode::Background).await?;
        let report = container.guest().start(id, &command).await?;
        started(&report)?;
        // Whoever began it has seen to both, or the next start of the server does.
        if !joined {
            request.feed(container.guest(), id);
            self.watch_exec(sandbox, &container, &report, request.shown());
        }
        Ok(report)
    }

    /// Starts a command and follows it. Who drops what comes back ends a streamed command; a background
    /// one goes on.
    pub async fn exec_stream(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
        mode: ExecMode,
    ) -> Result<ExecFollow> {
        let Ready { id, command, container, joined } =
            self.make_ready(caller, sandbox, request, mode).await?;
        let leashed = mode != ExecMode::Background && request.id.is_none();
        let leash = leashed.then(|| Leash::new(Arc::clone(&container), id, None));
        let mut events = container.guest().exec(id, &command).await?;
        let Some(ExecEvent::Started(report)) = events.next().await? else {
            return Err(Error::internal("a command's events do not begin with its start"));
        };
        started(&report).inspect_err(|_| leash.iter().for_each(Leash::release))?;
        if !joined {
            request.feed(container.guest(), id);
            self.watch_exec(sandbox, &container, &report, request.shown());
        }
        let changes = (mode != ExecMode::Background).then(|| (self.clone(), sandbox, container));
        Ok(ExecFollow::new(report, events, leash, changes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_of_one_owner_is_one_command() {
        let (ann, sandbox) = (Caller::local(), SandboxId::random());
        let bob = Caller { owner: "bob".into(), ..Caller::local() };
        let id = Core::repeatable_exec(&ann, sandbox, "k", &[1; 32]);
        assert_eq!(Core::repeatable_exec(&ann, sandbox, "k", &[1; 32]), id);
        for other in [
            Core::repeatable_exec(&bob, sandbox, "k", &[1; 32]),
            Core::repeatable_exec(&ann, SandboxId::random(), "k", &[1; 32]),
            Core::repeatable_exec(&ann, sandbox, "l", &[1; 32]),
            Core::repeatable_exec(&ann, sandbox, "k", &[2; 32]),
        ] {
            assert_ne!(other, id);
        }
    }
}
