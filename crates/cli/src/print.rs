//! Printing a command's events: its output as it is, and remarks on stderr.

use crate::{Failure, terminal};
use atoll_client::{Event, Exec, ExecEvent, OutputStream, Uuid};
use std::io::{self, Write};

/// The next step after an event.
pub(crate) enum Step {
    More,
    /// The command ended.
    Exit(Box<Exec>),
    /// The connection ended.
    Broken(String),
}

/// Prints each byte once, however often the connection breaks.
pub(crate) struct Printer {
    json: bool,
    /// Whether there is no reader any more.
    muted: bool,
    exec: Option<Uuid>,
    resume: u64,
    /// The offset after the last printed byte, of each output.
    printed: [u64; 2],
}

impl Printer {
    /// From an offset on.
    pub(crate) fn new(from: u64, json: bool) -> Self {
        Self { json, muted: false, exec: None, resume: from, printed: [from; 2] }
    }

    /// Prints nothing more to standard output.
    pub(crate) fn mute(&mut self) {
        self.muted = true;
    }

    /// The command's id, once it is known.
    pub(crate) fn exec(&self) -> Option<Uuid> {
        self.exec
    }

    /// The offset at which another connection continues.
    pub(crate) fn resume(&self) -> u64 {
        self.resume
    }

    /// Prints an event; none is the end of the connection.
    pub(crate) fn print(&mut self, event: Option<Event>) -> Result<Step, Failure> {
        let Some(Event { resume, event, json }) = event else {
            return Ok(Step::Broken("the answer ended before the command".into()));
        };
        self.resume = resume.unwrap_or(self.resume);
        let again = matches!(event, ExecEvent::Started(_)) && self.exec.is_some();
        // Before anything is printed: where the output is closed, the command is still to be signalled and fed.
        if let ExecEvent::Started(exec) = &event {
            self.exec = Some(exec.exec_id);
        }
        // With --json a reconnection is not printed: neither its repeated start nor the failure before it.
        if self.json && !self.muted && !again && !matches!(event, ExecEvent::Failed(_)) {
            match terminal::print_json(&json) {
                // A closed output does not change the command's result.
                Err(failure) if failure.is_broken_pipe() && matches!(event, ExecEvent::Exit(_)) => {}
                printed => printed?,
            }
        }
        match event {
            ExecEvent::Started(_) => {}
            ExecEvent::Output { stream, span, data } => self.output(stream, span, &data)?,
            ExecEvent::Dropped { bytes, .. } => {
                if !self.json {
                    terminal::note(&format!(
                        "{bytes} bytes of output are gone, because newer ones took their room"
                    ));
                }
            }
            ExecEvent::Exit(exec) => {
                if !self.json {
                    explain(&exec);
                }
                return Ok(Step::Exit(exec));
            }
            ExecEvent::Failed(error) if error.code == "unavailable" => {
                return Ok(Step::Broken(error.message));
            }
            ExecEvent::Failed(error) => return Err(atoll_client::Error::Api(error).into()),
            ExecEvent::Other => {}
        }
        Ok(Step::More)
    }

    fn output(
        &mut self,
        stream: OutputStream,
        (offset, end): (u64, u64),
        data: &[u8],
    ) -> Result<(), Failure> {
        let printed = &mut self.printed[stream as usize];
        let known = usize::try_from(printed.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
        *printed = end.max(*printed);
        match stream {
            _ if self.json => Ok(()),
            OutputStream::Stdout if self.muted => Ok(()),
            OutputStream::Stdout => terminal::print_bytes(&data[known..]),
            OutputStream::Stderr => {
                let _ = io::stderr().write_all(&data[known..]);
                Ok(())
            }
        }
    }
}

/// Explains what the exit code alone does not.
fn explain(exec: &Exec) {
    if let Some(failure) = &exec.failure {
        terminal::note(&failure.message);
    }
    if exec.oom_killed {
        terminal::note("the memory limit ended the command");
    }
    if exec.timed_out {
        terminal::note("the command's time was up; give it more with --timeout");
    }
}
