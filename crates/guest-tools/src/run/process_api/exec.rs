//! A command, run to its end. It has a process group of its own, which is killed when its time is up or its caller goes
//! away; what it left in the background when it ended by itself goes on, as after any command.

use super::http::Refusal;
use atoll_types::text::cut;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionread},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    fs,
    net::TcpStream,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Seconds of a command that names no timeout.
const USUAL_SECONDS: u32 = 30;
/// The most that a command may name: a day.
pub(super) const MOST_SECONDS: u32 = 86_400;
/// Bytes of each output that one answer carries.
const LARGEST_OUTPUT: usize = 2 << 20;
/// Read at once.
const PIECE: usize = 64 << 10;
const STACK: usize = 64 << 10;

pub(super) const TIMED_OUT: &str = "Command timed out";

/// What to run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    command: String,
    #[serde(default)]
    workdir: String,
    /// In seconds; 0 is the usual one.
    #[serde(default)]
    timeout: u32,
}

impl Exec {
    /// When its time is up.
    pub(super) fn until(&self, usual_seconds: u32) -> Result<Instant, Refusal> {
        let seconds = if self.timeout == 0 { usual_seconds } else { self.timeout };
        if seconds > MOST_SECONDS {
            return Err(Refusal::status(400, format!("timeout must be at most {MOST_SECONDS} seconds")));
        }
        Ok(Instant::now() + Duration::from_secs(seconds.into()))
    }
}

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Stdout = 0,
    Stderr = 1,
}

/// How a command ended.
pub(super) enum Ended {
    /// With this code; 128 and its number for a signal, as a shell says it.
    Code(i32),
    TimedOut,
    /// Its caller went away.
    Abandoned,
}

/// Runs a command and tells all that it printed; none where the caller went away.
pub(super) fn run(exec: &Exec, caller: &TcpStream) -> Result<Option<Value>, Refusal> {
    let until = exec.until(USUAL_SECONDS)?;
    let mut kept = [Vec::new(), Vec::new()];
    let mut printed = 0_u64;
    let started = Running::start(exec);
    let ended = started.and_then(|running| {
        running.follow(caller, until, |output, piece| {
            let kept = &mut kept[output as usize];
            kept.extend_from_slice(&piece[..piece.len().min(LARGEST_OUTPUT - kept.len())]);
            printed += piece.len() as u64;
            true
        })
    });
    let [stdout, mut stderr] = kept.each_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let shown = kept.iter().map(Vec::len).sum::<usize>() as u64;
    let (exit_code, timed_out) = match ended {
        Ok(Ended::Code(code)) => (code, false),
        Ok(Ended::TimedOut) => {
            stderr = TIMED_OUT.into();
            (-1, true)
        }
        Ok(Ended::Abandoned) => return Ok(None),
        Err(why) => {
            stderr = why;
            (-1, false)
        }
    };
    if printed > shown && !timed_out {
        stderr.push_str(&format!(
            "\n[the output had {printed} bytes, {shown} are shown; /exec/stream sends all]\n"
        ));
    }
    Ok(Some(json!({"exit_code": exit_code, "stdout": stdout, "stderr": stderr, "timed_out": timed_out})))
}

/// A command that runs. Dropped before its end, it is killed.
pub(super) struct Running {
    child: Child,
    group: Pid,
    outputs: [Option<OwnedFd>; 2],
    /// Closed by the thread that waits for the command's end.
    ended: OwnedFd,
    reaped: bool,
}

impl Running {
    pub(super) fn start(exec: &Exec) -> Result<Self, String> {
        let workdir = crate::run::place::absolute(&exec.workdir);
        match fs::metadata(&workdir) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(format!("{}: it is no directory", shown(&workdir))),
            Err(e) => return Err(format!("{}: {e}", shown(&workdir))),
        }
        let bash = fs::exists("/bin/bash").unwrap_or(false);
        let mut child = Command::new(if bash { "/bin/bash" } else { "/bin/sh" })
            .args(["-c", &exec.command])
            .current_dir(&workdir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("the command cannot be started: {e}"))?;
        let group = Pid::from_child(&child);
        let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
        let watched =
            pipe_with(PipeFlags::CLOEXEC).map_err(std::io::Error::from).and_then(|(ended, held)| {
                thread::Builder::new().stack_size(STACK).spawn(move || wait(group, held)).map(|_| ended)
            });
        match watched {
            Ok(ended) => Ok(Self { child, group, outputs, ended, reaped: false }),
            Err(e) => {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                Err(format!("the command cannot be watched: {e}"))
            }
        }
    }

    /// Hands over what it prints until it ends. `take` says whether its caller still takes it.
    pub(super) fn follow(
        mut self,
        caller: &TcpStream,
        until: Instant,
        mut take: impl FnMut(Output, &[u8]) -> bool,
    ) -> Result<Ended, String> {
        let (mut buffer, mut caller) = (vec![0; PIECE], Caller { stream: caller, sends: false });
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Ended::TimedOut);
            }
            let Ready { readable, ended, caller: happened } = self.ready(&caller, left)?;
            if caller.is_gone(happened) {
                return Ok(Ended::Abandoned);
            }
            if ended {
                return Ok(match self.drain(&mut buffer, &mut take) {
                    true => Ended::Code(self.reap()?),
                    false => Ended::Abandoned,
                });
            }
            for output in [Output::Stdout, Output::Stderr] {
                if readable[output as usize] && self.read(output, &mut buffer, &mut take).is_none() {
                    return Ok(Ended::Abandoned);
                }
            }
        }
    }

    /// Waits until something happens.
    fn ready(&self, caller: &Caller<'_>, left: Duration) -> Result<Ready, String> {
        let of = |output: Output| self.outputs[output as usize].as_ref();
        let mut fds = vec![
            PollFd::new(&self.ended, PollFlags::empty()),
            PollFd::from_borrowed_fd(caller.stream.as_fd(), caller.events()),
        ];
        let open: Vec<Output> =
            [Output::Stdout, Output::Stderr].into_iter().filter(|output| of(*output).is_some()).collect();
        fds.extend(open.iter().filter_map(|output| of(*output)).map(|fd| PollFd::new(fd, PollFlags::IN)));
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("the command cannot be watched: {e}")),
        }
        let happened: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut readable = [false; 2];
        for (output, is_ready) in open.into_iter().zip(happened.iter().skip(2)) {
            readable[output as usize] = *is_ready;
        }
        Ok(Ready { readable, ended: happened[0], caller: fds[1].revents() })
    }

    /// Reads a piece. Returns its length; none where the caller does not take it any more.
    fn read(
        &mut self,
        output: Output,
        buffer: &mut [u8],
        take: &mut impl FnMut(Output, &[u8]) -> bool,
    ) -> Option<usize> {
        let Some(pipe) = &self.outputs[output as usize] else { return Some(0) };
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(length @ 1..) => take(output, &buffer[..length]).then_some(length),
            Err(Errno::INTR | Errno::AGAIN) => Some(0),
            Ok(_) | Err(_) => {
                self.outputs[output as usize] = None;
                Some(0)
            }
        }
    }

    /// What the command had printed when it ended, and not what its orphans print on.
    fn drain(&mut self, buffer: &mut [u8], take: &mut impl FnMut(Output, &[u8]) -> bool) -> bool {
        for output in [Output::Stdout, Output::Stderr] {
            let pipe = self.outputs[output as usize].as_ref();
            let mut left = pipe.and_then(|pipe| ioctl_fionread(pipe).ok()).unwrap_or(0) as usize;
            while left > 0 {
                let most = left.min(buffer.len());
                match self.read(output, &mut buffer[..most], take) {
                    None => return false,
                    Some(0) => break,
                    Some(length) => left -= length,
                }
            }
        }
        true
    }

    fn reap(&mut self) -> Result<i32, String> {
        self.reaped = true;
        let status = self.child.wait().map_err(|e| format!("the command's end is not known: {e}"))?;
        Ok(code(status))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            // It is not reaped, so its number is still its own.
            let _ = kill_process_group(self.group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// What happened.
struct Ready {
    readable: [bool; 2],
    ended: bool,
    caller: PollFlags,
}

/// The connection of a caller whose command runs.
struct Caller<'a> {
    stream: &'a TcpStream,
    /// It sent more than its request, which nothing reads.
    sends: bool,
}

impl Caller<'_> {
    /// The end of what it sends is readable: not every runtime's kernel reports it otherwise.
    fn events(&self) -> PollFlags {
        if self.sends { PollFlags::RDHUP } else { PollFlags::RDHUP | PollFlags::IN }
    }

    /// Whether it went away.
    fn is_gone(&mut self, happened: PollFlags) -> bool {
        if happened.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            return true;
        }
        if happened.contains(PollFlags::IN) {
            match self.stream.peek(&mut [0]) {
                Ok(0) => return true,
                Ok(_) => self.sends = true,
                Err(_) => {}
            }
        }
        false
    }
}

/// Waits for a command's end without reaping it, and closes a pipe then. Where a runtime's kernel has no file
/// descriptors of processes this is the way to poll for an end.
fn wait(command: Pid, held: OwnedFd) {
    while let Err(Errno::INTR) = waitid(WaitId::Pid(command), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
    }
    drop(held);
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

fn shown(path: &str) -> String {
    cut(path, 200).escape_debug().to_string()
}
