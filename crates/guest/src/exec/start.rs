//! From a request to a running command. All of it happens without an await, so that of two requests with one id
//! exactly one starts it.

use super::{
    driver::Driver,
    environment,
    plan::{Plan, working_directory},
    program::{self, Program},
    record::{Began, Exec, Parts, Status},
    registry::{Execs, parse_id},
    spawn::{Spawned, Streams, spawn},
    spool::{Keep, SpoolWriter},
    stdin::Stdin,
    terminal::{Size, TerminalPlan},
    users::{self, UserError},
};
use atoll_guest_proto::v1::ExecRequest;
use atoll_types::{Error, ErrorCode, ExecId, Result, StartFailure, StartStage};
use std::{
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

impl Execs {
    /// Starts the command, or finds the one that already has this id.
    pub(crate) fn start(&self, request: ExecRequest) -> Result<Arc<Exec>> {
        let id = parse_id(&request.exec_id)?;
        match self.find(id) {
            Some(known) => Ok(known),
            None => self.start_new(id, request),
        }
    }

    /// Waits until the command runs or has failed to start. A command for which no process, memory or descriptor
    /// was left is not recorded, so that the host may retry it.
    pub(crate) async fn started(&self, exec: &Exec) -> Result<()> {
        exec.started().await;
        match exec.refused_by_limit() {
            None => Ok(()),
            Some(errno) => {
                self.remove(exec.id);
                Err(refused(&std::io::Error::from_raw_os_error(errno)))
            }
        }
    }

    fn start_new(&self, id: ExecId, request: ExecRequest) -> Result<Arc<Exec>> {
        let ExecRequest {
            exec_id: _,
            program,
            working_directory: directory,
            environment,
            user,
            stdin,
            timeout_ms,
            output_limit,
            lossless,
            terminal,
            keep_newest,
        } = request;
        let size = terminal.map(Size::parse).transpose()?;
        let program = Program::parse(program, size.is_some())?;
        let own = self.own_program(&program)?;
        environment::validate(&environment)?;
        let directory = working_directory(&directory)?;
        let user = match users::resolve(&user, &self.config) {
            Ok(user) => user,
            Err(UserError::Refused(error)) => return Err(error),
            Err(UserError::Unknown { stage, message }) => {
                return Ok(self.insert_failed(id, program.display, stage, message));
            }
        };
        let settings = self.settings();
        let shell = program::shell();
        let terminal_shell = size.and_then(|_| shell.to_str().ok());
        // The sandbox's variables must not reach a program of ours, except the one that starts the user's
        // programs.
        let variables = match program.environment {
            true => environment::assemble(&user, terminal_shell, &settings.environment, &environment),
            false => environment::Variables::new(),
        };
        let command = program.display.clone();
        let group = || users::tty_group().unwrap_or(user.gid);
        let terminal = size.map(|size| TerminalPlan { size, group: group() });
        let mut plan = Plan::new(program, &variables, directory, user, settings.limits, terminal, self)?;
        plan.own = own;
        let tool = own.is_some();
        let began = Began::now();
        let oom_before = self.oom.read();
        let Spawned { control, streams } = spawn(&plan, stdin).map_err(|e| refused(&e))?;
        let Streams { stdin, stdout, stderr, terminal, slave } = streams;
        let followers = lossless.then(Arc::default);
        let stdin = Stdin::new(stdin, terminal.is_some());
        let oom = Some((self.oom.clone(), oom_before));
        let parts = Parts { control: Some(control), stdin, followers, terminal, tool, oom };
        let exec = Arc::new(Exec::new(id, command, Status::default(), began, parts));
        self.insert(exec.clone());
        let limit = if output_limit == 0 { settings.output_limit } else { output_limit };
        let keep = if keep_newest { Keep::Newest } else { Keep::Oldest };
        let driver = Driver {
            execs: self.clone(),
            exec: exec.clone(),
            stdout: Some(stdout),
            stderr,
            slave,
            share: keep_newest.then(|| self.shares.join()),
            spool: SpoolWriter::new(self.spool.clone(), id, limit, keep),
            oom: self.oom.clone(),
            oom_before,
            clock: self.clock.clone(),
            still_before: self.clock.read(),
            started: Instant::from_std(began.at),
            timeout: (timeout_ms != 0).then(|| Duration::from_millis(timeout_ms)),
            directory: plan.directory.to_string_lossy().into_owned(),
            program: plan.into_named(),
        };
        tokio::spawn(driver.run());
        Ok(exec)
    }

    fn own_program(&self, program: &Program) -> Result<Option<RawFd>> {
        if !program.own {
            return Ok(None);
        }
        let missing = || Error::new(ErrorCode::Unsupported, "this sandbox cannot run tools").at("tool");
        self.own_program.as_ref().map(|fd| Some(fd.as_raw_fd())).ok_or_else(missing)
    }

    fn insert_failed(&self, id: ExecId, command: String, stage: StartStage, message: String) -> Arc<Exec> {
        let failure = StartFailure { stage, errno: 0, message };
        let exec = Arc::new(Exec::new(id, command, Status::failed(failure), Began::now(), Parts::default()));
        self.insert(exec.clone());
        exec
    }
}

/// A used-up limit does not free itself by waiting, so the message says what frees it.
fn refused(error: &std::io::Error) -> Error {
    let used_up = |what: &str| {
        let message = format!(
            "{what}, so no further command can start: kill a command that runs, or stop and resume the sandbox"
        );
        Error::new(ErrorCode::Conflict, message)
    };
    match error.raw_os_error() {
        Some(libc::EAGAIN) => used_up("the sandbox's limit of processes is reached"),
        Some(libc::ENOSPC) => used_up("the sandbox has as many terminals as it may").at("terminal"),
        Some(libc::EMFILE | libc::ENFILE) => used_up("too many commands run at once in the sandbox"),
        Some(libc::ENOMEM) => used_up("the sandbox has no memory left for another process"),
        _ => Error::internal(format!("cannot start a process: {error}")),
    }
}
