//! Terminals. One is a command like any other, whose streams are a terminal: it lives on when its clients go
//! away, and any number of them may read and type at the same time.

use crate::{
    Caller, Execs, OpenStream,
    actor::SandboxRegistry,
    bounds::check_directory,
    exec::{ExecEntry, LONGEST_COMMAND},
    execution::Execution,
    kill_on_drop::KillOnDrop,
    lifecycle::ActiveContainer,
    operation::{AuditedOperation, OperationSpec},
};
use atoll_provider::{Command, Container, ExecEvent, ExecReport, ExecStream, TerminalSize};
use atoll_store::SandboxId;
use atoll_types::{AutoSnapshot, ContainerId, Error, ErrorCode, ExecId, Operation, Result, StartStage};
use bytes::Bytes;
use futures_util::stream;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Bytes of a terminal's newest output that are kept for clients that connect later.
const SCROLL_BACK: u64 = 1 << 20;

/// What a terminal is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalRequest {
    /// A line for the shell; the image's login shell itself where there is none.
    pub command: Option<String>,
    /// Where, absolute or relative to /workspace.
    pub working_directory: Option<String>,
    /// On top of the sandbox's own.
    pub env_vars: BTreeMap<String, String>,
    /// Who: a name, UID or UID:GID.
    pub user: Option<String>,
    /// How large.
    pub size: TerminalSize,
}

impl TerminalRequest {
    fn build(self) -> Result<Command> {
        let Self { command, working_directory, env_vars, user, size } = self;
        checked(size)?;
        let line = match command {
            Some(line) if line.trim().is_empty() => {
                return Err(Error::invalid("command", "command must not be empty"));
            }
            Some(line) if line.contains('\0') => {
                return Err(Error::invalid("command", "a command cannot hold a NUL character"));
            }
            Some(line) if line.len() > LONGEST_COMMAND => {
                let message = format!("command may have {LONGEST_COMMAND} bytes, and has {}", line.len());
                return Err(Error::new(ErrorCode::TooLarge, message).at("command"));
            }
            Some(line) => line,
            None => String::new(),
        };
        let mut built = Command::shell(line);
        check_directory(working_directory.as_deref())?;
        built.working_directory = working_directory.unwrap_or_default();
        built.environment = env_vars;
        built.user = user.unwrap_or_default();
        built.terminal = Some(size);
        built.output_limit = Some(SCROLL_BACK);
        built.keep_newest = true;
        Ok(built)
    }
}

fn checked(size: TerminalSize) -> Result<()> {
    for (field, side) in [("rows", size.rows), ("cols", size.columns)] {
        if !TerminalSize::SIDE.contains(&side) {
            let most = TerminalSize::SIDE.end();
            return Err(Error::invalid(field, format!("{field} must be between 1 and {most}")));
        }
    }
    Ok(())
}

/// A client's connection to a terminal. Dropping it leaves the terminal as it is.
pub struct Terminal {
    /// How the command was when the client connected.
    pub report: ExecReport,
    /// The offset of the first byte of output to come.
    pub offset: u64,
    /// What comes.
    pub events: TerminalStream,
    /// For typing, and the rest.
    pub keyboard: Keyboard,
}

/// What a terminal shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// It printed something; its first byte has this offset.
    Output {
        /// The offset of the first byte.
        offset: u64,
        /// What.
        data: Bytes,
    },
    /// Its command ended. Nothing comes after this.
    Ended(ExecReport),
}

/// The events of a terminal. Dropping it leaves the terminal as it is.
pub struct TerminalStream {
    events: ExecStream,
    registry: Arc<SandboxRegistry>,
    sandbox: SandboxId,
    container: ContainerId,
    /// The output broke off with this error.
    lost: Option<Error>,
    _place: OpenStream,
}

impl TerminalStream {
    /// The next event; an error where the output broke off. A caller may stop waiting and ask again.
    pub async fn next(&mut self) -> Result<TerminalEvent> {
        loop {
            if let Some(error) = &self.lost {
                let during = "the terminal was open";
                let (sandbox, container) = (self.sandbox, self.container);
                return Err(self.registry.why_lost(sandbox, container, during, error.clone()).await);
            }
            match self.events.next().await {
                Ok(Some(ExecEvent::Started(_))) => {}
                Ok(Some(ExecEvent::Output { stream: _, offset, data })) => {
                    return Ok(TerminalEvent::Output { offset, data });
                }
                Ok(Some(ExecEvent::Ended(report))) => return Ok(TerminalEvent::Ended(report)),
                Ok(None) => {
                    let message = "the terminal's output broke off";
                    self.lost = Some(Error::new(ErrorCode::Unavailable, message));
                }
                Err(error) => self.lost = Some(error),
            }
        }
    }
}

/// What can be done to a terminal, beside looking. Cheap to clone.
#[derive(Clone)]
pub struct Keyboard {
    execs: Execs,
    caller: Caller,
    sandbox: SandboxId,
    /// The sandbox counts as active while a client is connected; the terminal's task alone does not count.
    container: Arc<ActiveContainer>,
    id: ExecId,
}

impl Keyboard {
    /// The container; typing unpauses a paused sandbox.
    async fn awake(&self) -> Result<Arc<dyn Container>> {
        self.execs.registry.container(self.sandbox, "typing at a terminal").await
    }

    /// Types. Answers when all of it is typed, which a command that does not read puts off.
    pub async fn input(&self, data: Bytes) -> Result<()> {
        let length = data.len() as u64;
        let typed = self.awake().await?.guest().add_stdin(self.id, stream::iter([data])).await?;
        if typed < length { Err(Error::new(ErrorCode::Conflict, "the command has ended")) } else { Ok(()) }
    }

    /// Types the end of input.
    pub async fn end_input(&self) -> Result<()> {
        self.awake().await?.guest().write_stdin(self.id, stream::empty()).await.map(drop)
    }

    /// Sets another size of the terminal.
    pub async fn resize(&self, size: TerminalSize) -> Result<()> {
        checked(size)?;
        self.container.guest().resize(self.id, size).await
    }

    /// Sends a signal to the command's own processes.
    pub async fn signal(&self, signal: i32) -> Result<()> {
        self.execs.signal(&self.caller, self.sandbox, self.id, signal).await
    }

    /// Ends the command and everything that it started.
    pub async fn kill(&self) -> Result<()> {
        self.execs.kill(&self.caller, self.sandbox, self.id).await.map(drop)
    }
}

impl Execs {
    /// Opens a terminal and connects to it.
    pub async fn open_terminal(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: TerminalRequest,
    ) -> Result<Terminal> {
        self.limits.take_exec(caller)?;
        let place = self.answers.stream(&caller.owner)?;
        let shown = request.command.clone().unwrap_or_else(|| "terminal".into());
        let exec = ExecId::random();
        let mut what = OperationSpec::running(Operation::Terminal, id, exec).with(&shown);
        if let Some(user) = &request.user {
            what = what.and("user", user);
        }
        what.directory.clone_from(&request.working_directory);
        what.variables = request.env_vars.keys().cloned().collect();
        let audited = self.operations.audited(caller, what).await?;
        match self.open_in(&audited, caller, exec, request, place).await {
            Ok((terminal, entry)) => {
                let container = Arc::clone(terminal.keyboard.container.inner());
                let shown = Some(audited.redacted(&shown));
                let execution =
                    Execution::new(&self.end_writer, id, container, Some(audited.follow()), shown, false);
                self.spawn(entry, execution, &terminal.report, None);
                Ok(terminal)
            }
            Err(error) => audited.done(Err(error)).await,
        }
    }

    async fn open_in(
        &self,
        audited: &AuditedOperation,
        caller: &Caller,
        exec: ExecId,
        request: TerminalRequest,
        place: OpenStream,
    ) -> Result<(Terminal, ExecEntry)> {
        let mut command = request.build()?;
        command.timeout =
            self.limits.ceiling(caller).timeout("timeout_seconds", None, None)?.map(Duration::from_secs_f64);
        let record = audited.record()?;
        let sandbox = record.id;
        if command.working_directory.is_empty() {
            command.working_directory = self.catalogue.working_directory(&record.profile);
        }
        let container = self.registry.acquire_in(audited, "a terminal").await?;
        let known = |_| Error::internal("a terminal's new id is in use");
        let entry = self.exec_tasks.enter(sandbox, exec).map_err(known)?;
        self.snapshots.make_automatic(record, AutoSnapshot::BeforeExec, exec.to_string()).await?;
        // A caller that goes away before it knows the id leaves nothing behind.
        let mut kill_on_drop = KillOnDrop::new(container.inner(), exec);
        let mut events = container.guest().exec(exec, &command).await?;
        let report = started(&mut events, exec).await?;
        if let Some(failure) = &report.failure {
            kill_on_drop.forget();
            let error = Error::new(ErrorCode::ExecFailed, failure.message.clone());
            return Err(match failure.stage {
                StartStage::Workdir => error.at("cwd"),
                StartStage::User => error.at("user"),
                _ => error,
            });
        }
        kill_on_drop.disarm();
        let events = self.terminal_stream(sandbox, &container, events, place);
        let keyboard = self.keyboard(sandbox, caller, container, exec);
        Ok((Terminal { report, offset: 0, events, keyboard }, entry))
    }

    /// Connects to a terminal that is there, at an offset of its output or at the oldest that is kept.
    pub async fn attach_terminal(
        &self,
        caller: &Caller,
        id: SandboxId,
        exec: ExecId,
        from: Option<u64>,
    ) -> Result<Terminal> {
        let place = self.answers.stream(&caller.owner)?;
        let audited = self
            .operations
            .audited(caller, OperationSpec::to(Operation::TerminalAttach, id).and("exec_id", exec))
            .await?;
        let result = self.attach_in(&audited, caller, exec, from, place).await;
        audited.done(result).await
    }

    fn terminal_stream(
        &self,
        sandbox: SandboxId,
        container: &ActiveContainer,
        events: ExecStream,
        place: OpenStream,
    ) -> TerminalStream {
        let (registry, container) = (Arc::clone(&self.registry), container.inner().id());
        TerminalStream { events, registry, sandbox, container, lost: None, _place: place }
    }

    fn keyboard(
        &self,
        sandbox: SandboxId,
        caller: &Caller,
        container: ActiveContainer,
        id: ExecId,
    ) -> Keyboard {
        let (execs, caller) = (self.clone(), caller.clone());
        Keyboard { execs, caller, sandbox, container: Arc::new(container), id }
    }

    async fn attach_in(
        &self,
        audited: &AuditedOperation,
        caller: &Caller,
        exec: ExecId,
        from: Option<u64>,
        place: OpenStream,
    ) -> Result<Terminal> {
        let sandbox = audited.record()?.id;
        let container = self.registry.acquire_in(audited, "a terminal").await?;
        let known = container.guest().get_exec(exec).await?;
        if known.terminal.is_none() {
            return Err(Error::new(ErrorCode::Conflict, "this command has no terminal").at("exec_id"));
        }
        if from.is_some_and(|from| from > known.output_bytes) {
            return Err(Error::invalid("from", format!("there are {} bytes so far", known.output_bytes)));
        }
        let offset = from.unwrap_or(0).max(known.first_offset);
        let mut events = container.guest().attach(exec, offset, true).await?;
        let report = started(&mut events, exec).await?;
        let events = self.terminal_stream(sandbox, &container, events, place);
        let keyboard = self.keyboard(sandbox, caller, container, exec);
        Ok(Terminal { report, offset, events, keyboard })
    }
}

/// The first event, which says of which command the others are.
async fn started(events: &mut ExecStream, id: ExecId) -> Result<ExecReport> {
    match events.next().await? {
        Some(ExecEvent::Started(report)) if report.id == id => Ok(report),
        _ => Err(Error::internal("the sandbox did not say how the command began")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_provider::Program;

    fn request(command: Option<&str>, rows: u16, columns: u16) -> TerminalRequest {
        let size = TerminalSize { rows, columns };
        let command = command.map(str::to_owned);
        TerminalRequest { command, working_directory: None, env_vars: BTreeMap::new(), user: None, size }
    }

    #[test]
    fn a_terminal_keeps_its_newest_output_and_has_no_end_of_time() {
        let built = request(None, 24, 80).build().unwrap();
        assert_eq!((built.program, built.timeout), (Program::Shell(String::new()), None));
        assert_eq!((built.keep_newest, built.output_limit), (true, Some(SCROLL_BACK)));
    }

    #[test]
    fn wrong_requests_name_their_field() {
        for (command, rows, columns, field) in [
            (None, 0, 80, "rows"),
            (None, 24, 10_001, "cols"),
            (Some(" "), 24, 80, "command"),
            (Some("a\0b"), 24, 80, "command"),
        ] {
            assert_eq!(request(command, rows, columns).build().unwrap_err().field.as_deref(), Some(field));
        }
    }
}
