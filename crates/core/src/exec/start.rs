//! Starting a command, in every mode.

use super::{
    ExecCommand, ExecMode,
    follow::ExecFollow,
    output_channel::{OutputReceiver, output_channel},
    task::{CallerStream, ExecEntry},
};
use crate::{
    Caller, Execs, actor::rolled_back, execution::Execution, idempotency::repeatable,
    kill_on_drop::KillOnDrop, lifecycle::ActiveContainer, operation::AuditedOperation,
};
use atoll_audit::Redactor;
use atoll_provider::{Command, Container, ExecEvent, ExecReport, ExecStream};
use atoll_store::SandboxId;
use atoll_types::{AutoSnapshot, Error, ErrorCode, ExecId, Operation, Result, StartStage};
use std::sync::Arc;

/// A command that runs, and its caller's way to follow it.
pub(super) struct Begun {
    pub(super) follow: ExecFollow,
    /// Where another request began the command, whose task writes its end: the operation of this request.
    pub(super) joined: Option<AuditedOperation>,
    pub(super) redactor: Redactor,
}

/// A command that can be started.
struct Prepared {
    sandbox: SandboxId,
    command: Command,
    container: ActiveContainer,
    /// None where another request began it.
    entry: Option<ExecEntry>,
}

/// A command that PID 1 has started, or knows.
struct Started {
    report: ExecReport,
    events: ExecStream,
    kill_on_drop: Option<KillOnDrop>,
}

/// A command that could not even come to its program is the caller's mistake. A program that is not
/// there is an ordinary failure of a command line, as a shell has it.
pub(super) fn started(report: &ExecReport) -> Result<()> {
    match &report.failure {
        Some(failure) if failure.stage != StartStage::Exec => {
            let error = Error::new(ErrorCode::ExecFailed, failure.message.clone());
            Err(match failure.stage {
                StartStage::Workdir => error.at("working_directory"),
                StartStage::User => error.at("user"),
                _ => error,
            })
        }
        _ => Ok(()),
    }
}

impl Prepared {
    async fn start(&self, id: ExecId) -> Result<Started> {
        let Self { command, container, entry, .. } = self;
        // Until it has a task, no command outlives a start that fails: its end would not be written.
        let mut kill_on_drop = entry.is_some().then(|| KillOnDrop::new(container.inner(), id));
        let mut events = match entry {
            Some(_) => container.guest().exec(id, command).await?,
            None => container.guest().attach(id, 0, true).await?,
        };
        let Some(ExecEvent::Started(report)) = events.next().await? else {
            return Err(Error::internal("a command's events do not begin with its start"));
        };
        if let Err(error) = started(&report) {
            kill_on_drop.iter_mut().for_each(KillOnDrop::disarm);
            return Err(error);
        }
        Ok(Started { report, events, kill_on_drop })
    }
}

impl Execs {
    /// The id of a command whose request may be repeated.
    #[must_use]
    pub fn repeatable_id(caller: &Caller, sandbox: SandboxId, key: &str, request: &[u8; 32]) -> ExecId {
        ExecId::from_uuid(repeatable("exec", caller, sandbox, key, request))
    }

    /// Starts a command, or joins it where its request may be repeated and was begun before. `told`: the kind
    /// and the text that the audit trail records instead of those of an exec. `checked`: whether something is
    /// wrong with it.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
        mode: ExecMode,
        told: Option<(Operation, String)>,
        checked: Result<()>,
    ) -> Result<Begun> {
        let id = request.id.unwrap_or_else(ExecId::random);
        let (kind, shown) = told.unwrap_or_else(|| (Operation::Exec, request.shown()));
        let audited =
            self.operations.audited(caller, request.what(kind, sandbox, mode, id).with(&shown)).await?;
        let prepared = async {
            checked?;
            self.prepare(&audited, caller, id, request, mode).await
        };
        let prepared = match prepared.await {
            Ok(prepared) => prepared,
            Err(error) => return audited.done(Err(error)).await,
        };
        // A caller that goes away now interrupts no start: the command has its task then, which writes its end.
        let (execs, request) = (self.clone(), request.clone());
        let starting = async move { execs.start(audited, id, &request, mode, &shown, prepared).await };
        let started = tokio::spawn(starting).await;
        started.unwrap_or_else(|_| Err(Error::internal("the start of a command was cut off")))
    }

    async fn start(
        &self,
        audited: AuditedOperation,
        id: ExecId,
        request: &ExecCommand,
        mode: ExecMode,
        shown: &str,
        prepared: Prepared,
    ) -> Result<Begun> {
        let Started { report, events, kill_on_drop } = match prepared.start(id).await {
            Ok(started) => started,
            Err(_) if self.registry.was_rolled_back(prepared.container.inner().id().uuid()) => {
                return audited.done(Err(rolled_back())).await;
            }
            Err(error) => return audited.done(Err(error)).await,
        };
        let Prepared { sandbox, container, entry, .. } = prepared;
        let redactor = audited.redactor();
        let Some(entry) = entry else {
            let task = self.exec_tasks.get(sandbox, id);
            let follow = ExecFollow::new(report, OutputReceiver::spool(events), task, None);
            return Ok(Begun { follow, joined: Some(audited), redactor });
        };
        request.feed(container.guest(), id);
        let patience = self.answers.connection_limits().write_timeout;
        let lossless = request.lossless.then_some(patience);
        let (sender, receiver) = output_channel(container.guest(), id, lossless);
        let shown = Some(audited.redacted(shown));
        let takes_changes = mode.takes_changes();
        let audit = Some(audited.follow());
        let container: Arc<dyn Container> =
            if mode.is_work() { Arc::new(container) } else { Arc::clone(container.inner()) };
        let execution = Execution::new(&self.end_writer, sandbox, container, audit, shown, takes_changes);
        let tied = mode != ExecMode::Background && request.id.is_none();
        let task = self.spawn(entry, execution, &report, Some(CallerStream { events, output: sender, tied }));
        let mut kill_on_drop = kill_on_drop.map(|kill_on_drop| kill_on_drop.of(&task));
        if !tied {
            kill_on_drop.iter_mut().for_each(KillOnDrop::disarm);
        }
        let follow = ExecFollow::new(report, receiver, Some(task), kill_on_drop);
        Ok(Begun { follow, joined: None, redactor })
    }

    async fn prepare(
        &self,
        audited: &AuditedOperation,
        caller: &Caller,
        id: ExecId,
        request: &ExecCommand,
        mode: ExecMode,
    ) -> Result<Prepared> {
        let mut command = request.build(mode, self.limits.ceiling(caller))?;
        let record = audited.record()?;
        let sandbox = record.id;
        if command.working_directory.is_empty() {
            command.working_directory = self.catalogue.working_directory(&record.profile);
        }
        let container = self.registry.acquire_in(audited, "exec").await?;
        let entry = match request.id {
            Some(_) => self.enter_repeatable(sandbox, id, container.guest()).await?,
            None => self.exec_tasks.enter(sandbox, id).ok(),
        };
        // Not of a command that another request began, and of none that no request asks for.
        if entry.is_some() && mode.is_work() {
            let before = id.to_string();
            self.snapshots.make_automatic(audited.record()?, AutoSnapshot::BeforeExec, before).await?;
        }
        Ok(Prepared { sandbox, command, container, entry })
    }

    /// Starts a command and does not wait for it. Files that it changes are reported by the next command. The
    /// redactor takes secret values out of a copy of the report that is kept.
    pub async fn run_background(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
    ) -> Result<(ExecReport, Redactor)> {
        let (follow, redactor) = self.begin_followed(caller, sandbox, request, ExecMode::Background).await?;
        Ok((follow.report, redactor))
    }

    /// Starts a command and follows it. A caller that drops what comes back ends a streamed command; a
    /// background one goes on.
    pub async fn run_streamed(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
        mode: ExecMode,
    ) -> Result<ExecFollow> {
        // Before the command begins: what was begun is answered.
        let place = self.answers.stream(&caller.owner)?;
        Ok(self.begin_followed(caller, sandbox, request, mode).await?.0.counted(place))
    }

    /// Starts what the image of a sandbox says, unless that command was begun before.
    pub(crate) async fn run_of_image(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        exec: ExecId,
        line: &str,
    ) -> Result<()> {
        let request =
            ExecCommand { command: Some(line.to_owned()), id: Some(exec), ..ExecCommand::default() };
        let Begun { joined, .. } =
            self.begin(caller, sandbox, &request, ExecMode::Start, None, Ok(())).await?;
        match joined {
            Some(audited) => audited.done(Ok(())).await,
            None => Ok(()),
        }
    }

    async fn begin_followed(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
        mode: ExecMode,
    ) -> Result<(ExecFollow, Redactor)> {
        self.limits.take_exec(caller)?;
        let Begun { follow, joined, redactor } =
            self.begin(caller, sandbox, request, mode, None, Ok(())).await?;
        let follow = match joined {
            Some(audited) => audited.done(Ok(follow)).await?,
            None => follow,
        };
        Ok((follow, redactor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_of_one_owner_is_one_command() {
        let (ann, sandbox) = (Caller::local(), SandboxId::random());
        let bob = Caller { owner: "bob".into(), ..Caller::local() };
        let id = Execs::repeatable_id(&ann, sandbox, "k", &[1; 32]);
        assert_eq!(Execs::repeatable_id(&ann, sandbox, "k", &[1; 32]), id);
        for other in [
            Execs::repeatable_id(&bob, sandbox, "k", &[1; 32]),
            Execs::repeatable_id(&ann, SandboxId::random(), "k", &[1; 32]),
            Execs::repeatable_id(&ann, sandbox, "l", &[1; 32]),
            Execs::repeatable_id(&ann, sandbox, "k", &[2; 32]),
        ] {
            assert_ne!(other, id);
        }
    }
}
