//! The task of one command: the only one that reads its pipes, writes its spool and changes its
//! record. It ends when nothing of the command is left.

use super::{
    clock::StillClock,
    followers::Followers,
    oom::OomCounter,
    program::Named,
    record::{Exec, Phase, Status, micros, start_failure},
    registry::Execs,
    share::Share,
    spawn::Pipe,
    spool::SpoolWriter,
    sweep,
    wire::{Ending, Order, Report},
};
use atoll_guest_proto::v1::Stream;
use std::{cell::RefCell, io::ErrorKind, os::fd::OwnedFd, sync::Arc};
use tokio::{
    io::Interest,
    time::{Duration, Instant, sleep_until},
};

const READ: usize = 64 * 1024;
/// The most that an unprivileged user can put into a pipe.
const LARGEST_PIPE: u64 = 1024 * 1024;
/// More than the kernel holds of a terminal's output.
const LARGEST_TERMINAL: u64 = 128 * 1024;
/// Read output of a lossless command is freed in pieces of at least this.
const FREE: u64 = 1024 * 1024;

thread_local! {
    /// Reading and spooling a chunk does not yield, so all commands share one buffer.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Driver {
    pub(crate) execs: Execs,
    pub(crate) exec: Arc<Exec>,
    pub(crate) stdout: Option<Pipe>,
    pub(crate) stderr: Option<Pipe>,
    /// Held, and never used, so that a terminal lasts as long as anything of its command.
    pub(crate) slave: Option<OwnedFd>,
    pub(crate) spool: SpoolWriter,
    /// Of a command that keeps its newest output.
    pub(crate) share: Option<Share>,
    pub(crate) oom: OomCounter,
    pub(crate) oom_before: u64,
    pub(crate) clock: StillClock,
    /// For how long the sandbox had been paused when that was last read.
    pub(crate) still_before: Duration,
    pub(crate) started: Instant,
    pub(crate) timeout: Option<Duration>,
    /// For the message of a failure.
    pub(crate) program: Named,
    pub(crate) directory: String,
}

enum Next {
    Report(Option<Report>),
    Output(Stream),
    /// A follower has read on, or left.
    Progress,
    /// There are more or fewer commands to share the spool with.
    Share,
    Timeout,
}

impl Driver {
    pub(crate) async fn run(mut self) {
        self.take_share();
        loop {
            match self.next().await {
                Next::Output(stream) => {
                    if self.read(stream).is_some() {
                        self.publish();
                    }
                    // One chunk a turn, so that a loud command does not hold up the others.
                    tokio::task::yield_now().await;
                }
                Next::Progress => self.free_what_is_read(),
                Next::Share => self.take_share(),
                Next::Timeout => self.time_out(),
                Next::Report(Some(Report::Started(pid))) => self.exec.update(|s| {
                    s.phase = Phase::Running;
                    s.pid = pid;
                }),
                Next::Report(Some(Report::Failed(failed))) => {
                    let failure = start_failure(failed, &self.program, &self.directory);
                    self.end(|s| s.failure = Some(failure), true);
                    break;
                }
                Next::Report(Some(Report::Ended(ending))) => {
                    let change = |s: &mut Status| (s.ending, s.usage) = (Some(ending), ending.usage);
                    self.end(change, ending.alone);
                    if ending.alone {
                        break;
                    }
                }
                Next::Report(Some(Report::Gone(usage))) => {
                    self.exec.update(|s| s.usage = usage);
                    break;
                }
                Next::Report(None) => {
                    self.lose_shim().await;
                    break;
                }
            }
        }
        self.drain();
        self.exec.update(|s| s.gone = true);
        self.execs.note_gone(self.exec.id);
    }

    async fn next(&mut self) -> Next {
        let Some(control) = &self.exec.control else { return Next::Report(None) };
        let timeout = self.timeout.and_then(|t| self.started.checked_add(t));
        let followers = self.exec.followers.as_deref();
        let slowest = followers.and_then(Followers::slowest);
        let reading = !slowest.is_some_and(|offset| self.spool.is_full_for(offset));
        tokio::select! {
            report = control.report() => Next::Report(report),
            () = readable(self.stdout.as_ref()), if reading => Next::Output(Stream::Stdout),
            () = readable(self.stderr.as_ref()), if reading => Next::Output(Stream::Stderr),
            () = progress(followers) => Next::Progress,
            () = share_changed(self.share.as_mut()) => Next::Share,
            () = at(timeout) => Next::Timeout,
        }
    }

    fn free_what_is_read(&mut self) {
        let slowest = self.exec.followers.as_deref().and_then(Followers::slowest);
        if let Some(offset) = slowest
            && (offset >= self.spool.extent().freed + FREE || self.spool.is_full_for(offset))
        {
            self.spool.free(offset);
            self.publish();
        }
    }

    fn take_share(&mut self) {
        if let Some(share) = &self.share {
            self.spool.share(share.bytes());
            self.publish();
        }
    }

    fn time_out(&mut self) {
        let still = self.clock.read();
        let more = still.saturating_sub(self.still_before);
        if !more.is_zero() {
            // Time spent paused does not count, so the timeout is not reached yet.
            self.still_before = still;
            self.timeout = self.timeout.and_then(|timeout| timeout.checked_add(more));
            return;
        }
        self.timeout = None;
        self.exec.update(|s| s.timeout_reached = s.phase < Phase::Ended);
        if let Some(control) = &self.exec.control {
            control.order(Order::Kill);
        }
    }

    /// The main process has ended: its output is stored before its end is reported.
    fn end(&mut self, change: impl FnOnce(&mut Status), alone: bool) {
        self.timeout = None;
        self.drain();
        let oom_kills = self.oom.read().saturating_sub(self.oom_before);
        let duration = micros(self.started.into_std());
        self.exec.update(|s| {
            change(s);
            s.phase = Phase::Ended;
            s.gone = alone;
            s.oom_kills = oom_kills;
            s.duration_us = duration;
        });
        self.exec.stdin.close_now();
        if let Some(terminal) = &self.exec.terminal {
            // The last reading of the size, for requests that come when the terminal is gone.
            terminal.size();
        }
    }

    /// The shim was killed, which only the sandbox's root or the kernel can do: its processes have no shim any
    /// more, so they are killed too.
    async fn lose_shim(&mut self) {
        if self.exec.status().phase < Phase::Ended {
            let ending = Ending { status: libc::SIGKILL, ..Ending::default() };
            self.end(|s| s.ending = Some(ending), false);
        }
        sweep::sweep(&self.execs, self.exec.id).await;
    }

    /// Reads what is in the pipes now, and not what a background process goes on to write.
    fn drain(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let pipe = if stream == Stream::Stdout { &self.stdout } else { &self.stderr };
            let Some(pipe) = pipe else { continue };
            // A terminal reports only a part of what waits, but reading it brings up the rest.
            let waiting = match self.slave {
                Some(_) => LARGEST_TERMINAL,
                None => rustix::io::ioctl_fionread(pipe.get_ref()).unwrap_or(0).min(LARGEST_PIPE),
            };
            let mut left = waiting as usize;
            while left > 0 {
                match self.read_now(stream, left.min(READ)) {
                    Some(length) => left = left.saturating_sub(length),
                    None => break,
                }
            }
        }
        self.publish();
    }

    fn publish(&self) {
        let extent = self.spool.extent();
        self.exec.update(|s| s.extent = extent);
    }

    /// Moves one chunk to the spool, if the runtime has reported the pipe readable.
    fn read(&mut self, stream: Stream) -> Option<usize> {
        self.read_with(stream, READ, |pipe, chunk| {
            pipe.try_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, chunk)?))
        })
    }

    /// Moves one chunk to the spool, whether or not the runtime has reported the pipe readable.
    fn read_now(&mut self, stream: Stream, most: usize) -> Option<usize> {
        self.read_with(stream, most, |pipe, chunk| Ok(rustix::io::read(pipe.get_ref(), chunk)?))
    }

    /// None when there is nothing to read; a pipe is closed at its end.
    fn read_with(
        &mut self,
        stream: Stream,
        most: usize,
        read: impl FnOnce(&Pipe, &mut [u8]) -> std::io::Result<usize>,
    ) -> Option<usize> {
        let followed = self.exec.followers.as_deref().is_some_and(|f| f.slowest().is_some());
        let slot = if stream == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
        let pipe = slot.as_ref()?;
        let result = BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(READ, 0);
            let chunk = &mut buffer[..most.min(READ)];
            let length = read(pipe, chunk)?;
            if followed {
                self.spool.append_all(stream, &chunk[..length]);
            } else {
                self.spool.append(stream, &chunk[..length]);
            }
            Ok::<usize, std::io::Error>(length)
        });
        match result {
            Ok(length @ 1..) => Some(length),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Ok(_) | Err(_) => {
                *slot = None;
                None
            }
        }
    }
}

async fn readable(pipe: Option<&Pipe>) {
    match pipe {
        Some(pipe) => match pipe.readable().await {
            Ok(mut ready) => ready.retain_ready(),
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

async fn progress(followers: Option<&Followers>) {
    match followers {
        Some(followers) => followers.progress().await,
        None => std::future::pending().await,
    }
}

async fn share_changed(share: Option<&mut Share>) {
    match share {
        Some(share) => share.changed().await,
        None => std::future::pending().await,
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
