//! Starting a command, whoever waits for it.

use super::{ExecCommand, ExecMode, follow::ExecFollow, leash::Leash};
use crate::{Caller, Core, idempotency::repeatable, operation::AuditedOperation};
use atoll_provider::{Command, Container, ExecEvent, ExecReport};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, ExecId, Operation, Result};
use std::sync::Arc;

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
    /// The id of a command whose request may be repeated.
    #[must_use]
    pub fn repeatable_exec(caller: &Caller, sandbox: SandboxId, key: &str, request: &[u8; 32]) -> ExecId {
        ExecId::from_uuid(repeatable("exec", caller, sandbox, key, request))
    }

    pub(super) async fn make_ready(
        &self,
        audited: &AuditedOperation,
        caller: &Caller,
        id: ExecId,
        request: &ExecCommand,
        mode: ExecMode,
    ) -> Result<Ready> {
        let command = request.build(mode, self.most(caller))?;
        let container = self.registry.container(audited.record()?.id, "exec").await?;
        let joined = match request.id {
            None => false,
            Some(id) => match container.guest().get_exec(id).await {
                Ok(_) => true,
                Err(error) if error.code == ErrorCode::NotFound => false,
                Err(error) => return Err(error),
            },
        };
        Ok(Ready { id, command, container, joined })
    }

    /// Starts a command and does not wait for it. What it writes to files is told by the next command.
    pub async fn exec_background(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
    ) -> Result<ExecReport> {
        self.take_exec(caller)?;
        let id = request.id.unwrap_or_else(ExecId::random);
        let audited =
            self.audited(caller, request.what(Operation::Exec, sandbox, ExecMode::Background, id)).await?;
        let begun = async {
            let ready = self.make_ready(&audited, caller, id, request, ExecMode::Background).await?;
            let report = ready.container.guest().start(id, &ready.command).await?;
            started(&report)?;
            Ok((ready, report))
        };
        let (Ready { container, joined, .. }, report) = match begun.await {
            Ok(begun) => begun,
            Err(error) => return audited.done(Err(error)).await,
        };
        // Whoever began it has seen to all of this, or the next start of the server does.
        if joined {
            return audited.done(Ok(report)).await;
        }
        request.feed(container.guest(), id);
        let shown = audited.redacted(&request.shown());
        self.watch_exec(sandbox, &container, &report, shown, Some(audited.follow()));
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
        self.take_exec(caller)?;
        let id = request.id.unwrap_or_else(ExecId::random);
        let audited = self.audited(caller, request.what(Operation::Exec, sandbox, mode, id)).await?;
        let leashed = mode != ExecMode::Background && request.id.is_none();
        let begun = async {
            let ready = self.make_ready(&audited, caller, id, request, mode).await?;
            let leash = leashed.then(|| Leash::new(Arc::clone(&ready.container), id, None));
            let mut events = ready.container.guest().exec(id, &ready.command).await?;
            let Some(ExecEvent::Started(report)) = events.next().await? else {
                return Err(Error::internal("a command's events do not begin with its start"));
            };
            started(&report).inspect_err(|_| leash.iter().for_each(Leash::release))?;
            Ok((ready, leash, events, report))
        };
        let (Ready { container, joined, .. }, leash, events, report) = match begun.await {
            Ok(begun) => begun,
            Err(error) => return audited.done(Err(error)).await,
        };
        // Whoever goes with its follower is told of by it; whoever may stay behind, by who watches.
        let mut trail = None;
        if joined {
            audited.done(Ok(())).await?;
        } else {
            request.feed(container.guest(), id);
            let shown = audited.redacted(&request.shown());
            let (followed, watched) =
                if leashed { (Some(audited.follow()), None) } else { (None, Some(audited.follow())) };
            trail = followed;
            self.watch_exec(sandbox, &container, &report, shown, watched);
        }
        let changes = (mode != ExecMode::Background).then(|| (self.clone(), sandbox, container));
        Ok(ExecFollow::new(report, events, leash, changes, trail))
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
