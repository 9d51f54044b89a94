//! Commands. One model serves all uses: a command has an id, its output has offsets, and a stream of
//! events can be joined at any of them.

use super::{
    Guest,
    command::{Command, Program, terminal_message, terminal_size},
};
use atoll_guest_proto::v1;
use atoll_types::{
    Error, ErrorCode, ExecId, ExecReport, OutputStream, Result, StartFailure, StartStage, TerminalSize,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tonic::Streaming;

/// What PID 1 says of a command.
fn report(info: v1::ExecInfo) -> Result<ExecReport> {
    let v1::ExecInfo {
        exec_id,
        state,
        exit_code,
        signal,
        timed_out,
        killed,
        oom_killed,
        oom_kills,
        failure,
        output_bytes,
        dropped_bytes,
        started_unix_ms,
        duration_us,
        cpu_user_us,
        cpu_system_us,
        max_rss_bytes,
        pid,
        command,
        descendants_alive,
        terminal,
        first_offset,
        tool,
    } = info;
    let failure = match failure {
        Some(v1::StartFailure { stage, errno, message }) => {
            let stage = StartStage::from_name(&stage).ok_or_else(|| hostile("a stage"))?;
            Some(StartFailure { stage, errno, message })
        }
        None => None,
    };
    Ok(ExecReport {
        id: exec_id.parse().map_err(|_| hostile("an exec id"))?,
        ended: state == v1::ExecState::Ended as i32,
        exit_code: exit_code.filter(|c| (0..=255).contains(c)),
        signal: signal.filter(|s| (1..=64).contains(s)),
        timed_out,
        killed,
        oom_killed,
        oom_kills,
        failure,
        output_bytes,
        dropped_bytes,
        started_unix_ms,
        duration: Duration::from_micros(duration_us),
        cpu_user: Duration::from_micros(cpu_user_us),
        cpu_system: Duration::from_micros(cpu_system_us),
        max_rss_bytes,
        pid,
        command,
        descendants_alive,
        terminal: terminal.map(terminal_size).transpose()?,
        first_offset,
        tool,
    })
}

pub(super) fn hostile(what: &str) -> Error {
    Error::internal(format!("the sandbox sent {what} that cannot be right"))
}

/// An event of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// It runs, or could not start.
    Started(ExecReport),
    /// It printed something; its first byte has this offset over both outputs.
    Output {
        /// Where it printed.
        stream: OutputStream,
        /// The offset of the first byte.
        offset: u64,
        /// What.
        data: Bytes,
    },
    /// It ended. Nothing comes after this.
    Ended(ExecReport),
}

/// The events of a command. Dropping it does not end the command.
pub struct ExecStream {
    inner: Streaming<v1::ExecEvent>,
    guest: Guest,
    /// The next offset: output at an earlier one is rejected.
    next: u64,
}

impl ExecStream {
    /// The next event; none when the stream is over.
    pub async fn next(&mut self) -> Result<Option<ExecEvent>> {
        let message = self.inner.message().await;
        match self.guest.check(message).await?.map(|m| m.event.ok_or_else(|| hostile("an empty event"))) {
            None => Ok(None),
            Some(event) => self.read(event?).map(Some),
        }
    }

    fn read(&mut self, event: v1::exec_event::Event) -> Result<ExecEvent> {
        match event {
            v1::exec_event::Event::Started(info) => report(info).map(ExecEvent::Started),
            v1::exec_event::Event::Ended(info) => report(info).map(ExecEvent::Ended),
            v1::exec_event::Event::Output(v1::Output { stream, offset, data }) => {
                let stream = match v1::Stream::try_from(stream) {
                    Ok(v1::Stream::Stdout) => OutputStream::Stdout,
                    Ok(v1::Stream::Stderr) => OutputStream::Stderr,
                    _ => return Err(hostile("an output without a stream")),
                };
                let end = offset.checked_add(data.len() as u64).filter(|_| offset >= self.next);
                self.next = end.ok_or_else(|| hostile("an offset"))?;
                Ok(ExecEvent::Output { stream, offset, data })
            }
        }
    }
}

/// A finished command, with its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub report: ExecReport,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// The most output that [`Guest::run`] holds in memory.
const LARGEST_RESULT: usize = 64 << 20;

impl Guest {
    /// A request that this PID 1 understands.
    fn checked(&self, id: ExecId, command: &Command) -> Result<v1::ExecRequest> {
        if command.terminal.is_some() && !self.has(atoll_guest_proto::FEATURE_TERMINAL) {
            let message =
                "the sandbox was started by an older release, which has no terminals; stop and resume it";
            return Err(Error::new(ErrorCode::Unsupported, message));
        }
        let with_environment = matches!(command.program, Program::Tool { environment: true, .. });
        if with_environment && !self.has(atoll_guest_proto::FEATURE_KERNELS) {
            let message =
                "the sandbox was started by an older release, which has no kernels; stop and resume it";
            return Err(Error::new(ErrorCode::Unsupported, message));
        }
        Ok(command.request(id))
    }

    /// Starts a command and follows it. With an id that is known already, joins it instead.
    pub async fn exec(&self, id: ExecId, command: &Command) -> Result<ExecStream> {
        let reply = self.client().exec(self.checked(id, command)?).await;
        Ok(ExecStream { inner: self.check(reply).await?.into_inner(), guest: self.clone(), next: 0 })
    }

    /// Starts a command and does not wait for it.
    pub async fn start(&self, id: ExecId, command: &Command) -> Result<ExecReport> {
        let reply = self.client().start_exec(self.checked(id, command)?).await;
        report(self.check(reply).await?.into_inner())
    }

    /// Joins a command's output at an offset, and follows it to its end if asked.
    pub async fn attach(&self, id: ExecId, from: u64, follow: bool) -> Result<ExecStream> {
        let request = v1::AttachRequest { exec_id: id.to_string(), from, follow };
        let reply = self.client().attach(request).await;
        Ok(ExecStream { inner: self.check(reply).await?.into_inner(), guest: self.clone(), next: from })
    }

    /// Runs a command to its end and collects what it printed.
    pub async fn run(&self, command: &Command) -> Result<Finished> {
        let mut events = self.exec(ExecId::random(), command).await?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        while let Some(event) = events.next().await? {
            match event {
                ExecEvent::Started(_) => {}
                ExecEvent::Output { stream, data, .. } => {
                    if stdout.len() + stderr.len() + data.len() > LARGEST_RESULT {
                        return Err(Error::new(
                            ErrorCode::TooLarge,
                            "the output is too large to hold; follow it",
                        ));
                    }
                    match stream {
                        OutputStream::Stdout => stdout.extend_from_slice(&data),
                        OutputStream::Stderr => stderr.extend_from_slice(&data),
                    }
                }
                ExecEvent::Ended(report) => return Ok(Finished { report, stdout, stderr }),
            }
        }
        Err(hostile("a stream without an end"))
    }

    /// Sends input to a command; the stream's end closes its stdin. Returns how much it took.
    pub async fn write_stdin(
        &self,
        id: ExecId,
        data: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<u64> {
        self.feed(id, data, true).await
    }

    /// Sends input to a command and leaves its stdin open. Returns how much it took.
    pub async fn add_stdin(
        &self,
        id: ExecId,
        data: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<u64> {
        self.feed(id, data, false).await
    }

    async fn feed(
        &self,
        id: ExecId,
        data: impl Stream<Item = Bytes> + Send + 'static,
        close: bool,
    ) -> Result<u64> {
        let first = v1::StdinChunk { exec_id: id.to_string(), data: Bytes::new(), close: false };
        let last = v1::StdinChunk { exec_id: String::new(), data: Bytes::new(), close };
        let middle = data.map(|data| v1::StdinChunk { exec_id: String::new(), data, close: false });
        let all = futures_util::stream::once(async { first })
            .chain(middle)
            .chain(futures_util::stream::once(async { last }));
        let reply = self.client().write_stdin(all).await;
        self.check(reply).await.map(|r| r.into_inner().written)
    }

    /// Sends a signal to a command's own processes.
    pub async fn signal(&self, id: ExecId, signal: i32) -> Result<()> {
        let reply = self.client().signal_exec(v1::SignalRequest { exec_id: id.to_string(), signal }).await;
        self.check(reply).await.map(|_| ())
    }

    /// Sets the size of a command's terminal.
    pub async fn resize(&self, id: ExecId, size: TerminalSize) -> Result<()> {
        let request = v1::ResizeRequest { exec_id: id.to_string(), terminal: Some(terminal_message(size)) };
        let reply = self.client().resize_exec(request).await;
        self.check(reply).await.map(|_| ())
    }

    /// Kills a command and everything that it started; returns when none of it is left.
    pub async fn kill(&self, id: ExecId) -> Result<ExecReport> {
        let reply = self.client().kill_exec(v1::ExecRef { exec_id: id.to_string() }).await;
        report(self.check(reply).await?.into_inner())
    }

    /// The state of a command.
    pub async fn get_exec(&self, id: ExecId) -> Result<ExecReport> {
        let reply = self.client().get_exec(v1::ExecRef { exec_id: id.to_string() }).await;
        report(self.check(reply).await?.into_inner())
    }

    /// Every command that PID 1 remembers.
    pub async fn list_execs(&self) -> Result<Vec<ExecReport>> {
        let reply = self.client().list_execs(v1::ListExecsRequest {}).await;
        self.check(reply).await?.into_inner().execs.into_iter().map(report).collect()
    }

    /// The command that has the socket with this address of the container's own network; none where no
    /// command has it, or it cannot be found.
    pub async fn socket_owner(&self, address: SocketAddr) -> Result<Option<ExecId>> {
        if !self.has(atoll_guest_proto::FEATURE_SOCKETS) {
            return Ok(None);
        }
        let bytes = match address.ip().to_canonical() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let request = v1::SocketRef { address: bytes, port: address.port().into() };
        let reply = self.client().find_socket(request).await;
        match self.check(reply).await {
            Ok(found) => {
                let id = found.into_inner().exec_id;
                id.parse().map(Some).map_err(|_| hostile("a command's id"))
            }
            Err(error) if error.code == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets an ended command and its output.
    pub async fn forget_exec(&self, id: ExecId) -> Result<()> {
        let reply = self.client().forget_exec(v1::ExecRef { exec_id: id.to_string() }).await;
        self.check(reply).await.map(|_| ())
    }
}
