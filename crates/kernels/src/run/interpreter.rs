//! A running interpreter: its process, its pipes, and the requests that are still to be written to it.

use super::{
    channels::{Channels, InterpreterEnds},
    language::Interpreter,
    processes,
};
use crate::{LONGEST_LINE, Language};
use atoll_types::{
    Error, ErrorCode, Result,
    lines::{Line, LineBuffer},
};
use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Pid, Signal, getpgid, setpgid};
use std::{
    collections::BTreeMap,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    rc::Rc,
};

pub(super) type Variables = BTreeMap<String, String>;

pub(super) struct LiveInterpreter {
    /// Not known of one that was just forked.
    pub(super) pid: Option<i32>,
    pub(super) channels: Rc<Channels>,
    lines: LineBuffer,
    /// The variables that it was started with or was sent since.
    pub(super) environment: Variables,
    /// Bytes that are still to be written to the driver.
    unsent: Vec<u8>,
    sent: usize,
    language: Language,
}

impl LiveInterpreter {
    /// An interpreter whose process exists already, or is being forked.
    pub(super) fn adopt(
        language: Language,
        pid: Option<i32>,
        channels: Rc<Channels>,
        environment: Variables,
    ) -> Self {
        let lines = LineBuffer::new(LONGEST_LINE);
        let live = Self { pid, channels, lines, environment, unsent: Vec::new(), sent: 0, language };
        live.take_group();
        live
    }

    /// Starts one; its driver is written to its pipe as it reads.
    pub(super) fn spawn(language: Language, directory: &Path, environment: Variables) -> Result<Self> {
        let path = environment.get("PATH").map_or("", String::as_str);
        let interpreter = language.interpreter(path)?;
        if !directory.is_dir() {
            let message = format!("there is no folder {}", directory.display());
            return Err(Error::invalid("working_directory", message));
        }
        let (channels, theirs) = Channels::open(language.forks()).map_err(|e| refused(&e))?;
        let pid = start(&interpreter, directory, &environment, theirs).map_err(|e| refused(&e))?;
        let mut live = Self::adopt(language, Some(pid), Rc::new(channels), environment);
        live.send(language.driver());
        Ok(live)
    }

    /// The lines of its driver that these bytes complete. One that is too long is skipped.
    pub(super) fn heard(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.lines.push(bytes);
        let mut whole = Vec::new();
        while let Some(line) = self.lines.next_line() {
            if let Line::Whole(line) = line {
                whole.push(line.to_vec());
            }
        }
        whole
    }

    /// Queues a request.
    pub(super) fn send(&mut self, request: Vec<u8>) {
        if self.has_unsent() {
            self.unsent.extend_from_slice(&request);
        } else {
            (self.unsent, self.sent) = (request, 0);
        }
        self.send_on();
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Writes as much as there is room for.
    pub(super) fn send_on(&mut self) {
        while let Some(rest @ [_, ..]) = self.unsent.get(self.sent..) {
            match self.channels.write(rest) {
                Some(0) => return,
                Some(length) => self.sent += length,
                // The reaper reports its end.
                None => break,
            }
        }
        (self.unsent, self.sent) = (Vec::new(), 0);
    }

    /// Sends the changes that make its variables the wanted ones.
    pub(super) fn tell_variables(&mut self, wanted: Variables) {
        let set: Variables = wanted
            .iter()
            .filter(|(name, value)| self.environment.get(*name) != Some(value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let unset: Vec<String> =
            self.environment.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        self.environment = wanted;
        if !set.is_empty() || !unset.is_empty() {
            self.send(self.language.variables(&set, &unset));
        }
    }

    /// Interrupts it and the processes that it has started.
    pub(super) fn interrupt(&self) {
        let Some(pid) = self.pid else { return };
        let group = Pid::from_raw(pid).and_then(|pid| getpgid(Some(pid)).ok());
        if group.map(|group| group.as_raw_nonzero().get()) == Some(pid) {
            processes::send_group(pid, Signal::INT);
        } else {
            processes::send(pid, Signal::INT);
        }
    }

    /// A forked interpreter is still in the process group of its parent.
    pub(super) fn take_group(&self) {
        if let Some(pid) = self.pid.and_then(Pid::from_raw) {
            let _ = setpgid(Some(pid), Some(pid));
        }
    }
}

fn start(
    interpreter: &Interpreter,
    directory: &Path,
    environment: &Variables,
    theirs: InterpreterEnds,
) -> std::io::Result<i32> {
    let InterpreterEnds { stdout, stderr, requests, events, socket } = theirs;
    let mapped = [Some(requests), Some(events), socket].into_iter().flatten().zip(3..);
    let mappings = mapped.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd }).collect();
    let mut command = Command::new(&interpreter.program);
    command
        .args(interpreter.arguments.iter().map(|a| a.trim_end()))
        .env_clear()
        .envs(environment)
        .current_dir(directory)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .fd_mappings(mappings)
        .map_err(std::io::Error::other)?;
    // The reaper waits for it, so only its pid is kept here.
    let child = command.spawn()?;
    i32::try_from(child.id()).map_err(std::io::Error::other)
}

/// The error when no further process can be started.
pub(super) fn refused(error: &std::io::Error) -> Error {
    let limit = |message| Error::new(ErrorCode::LimitExceeded, message);
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::AGAIN) => {
            let message = "the sandbox's limit of processes is reached, so no interpreter can start: \
                           kill a command that runs, or stop and resume the sandbox";
            Error::new(ErrorCode::Conflict, message)
        }
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => limit(
            "the sandbox's limit of open files is reached, so no interpreter can start: end a command or a kernel",
        ),
        Some(rustix::io::Errno::NOMEM) => limit(
            "there is no memory for another interpreter: end a command or a kernel, or give the sandbox more memory",
        ),
        _ => Error::new(ErrorCode::ExecFailed, format!("the interpreter cannot start: {error}")),
    }
}
