//! Running a command to its end, for a caller that waits.

use super::{ExecCommand, ExecFollow, ExecMode, ExecUpdate, start::Begun};
use crate::{Caller, Execs, HeldAnswer};
use atoll_audit::Redactor;
use atoll_provider::{Changed, ExecReport, OutputStream};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, Operation, Result};
use std::sync::Arc;

/// The most of each output that is returned; what is beyond is counted.
const LARGEST_OUTPUT: usize = 8 << 20;

/// How much of an output's end is kept where the rest of it did not fit.
const TAIL: usize = 256 << 10;

/// The end of an output that was too long to be returned whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputTail {
    /// The last bytes; none where the output is whole.
    pub bytes: Vec<u8>,
    /// Characters of the whole output.
    pub characters: u64,
}

impl OutputTail {
    fn add(&mut self, head: &[u8], beyond: &[u8]) {
        let begins = |bytes: &[u8]| bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as u64;
        self.characters += begins(head) + begins(beyond);
        self.bytes.extend_from_slice(&beyond[beyond.len().saturating_sub(TAIL)..]);
        // Seldom, so that not every piece moves all of it.
        if self.bytes.len() > 2 * TAIL {
            self.bytes.drain(..self.bytes.len() - TAIL);
        }
    }
}

/// A command that was waited for.
#[derive(Debug, Clone)]
pub struct ExecOutcome {
    /// How it went.
    pub report: ExecReport,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained.
    pub stderr: Vec<u8>,
    /// Whether some of either is missing.
    pub truncated: bool,
    /// The end of stdout, and of stderr, where they did not fit.
    pub tails: [OutputTail; 2],
    /// Which files changed since the command before; none where that is not known.
    pub changed: Option<Changed>,
    /// The outputs' part of what the owner's answers may hold.
    pub held: Arc<HeldAnswer>,
    /// Takes secret values out of a copy that is kept.
    pub redactor: Redactor,
}

/// Receives what a command prints as it comes.
pub type OutputObserver<'a> = &'a mut (dyn FnMut(OutputStream, &[u8]) + Send);

/// The most by which the memory of an output grows ahead of what was printed.
const AHEAD: usize = 1 << 20;

/// What was printed so far.
struct Printed {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    tails: [OutputTail; 2],
    next: u64,
    truncated: bool,
    held: HeldAnswer,
    /// The owner may hold no more: what comes is the tail's, so that nothing is missing in the middle.
    full: bool,
}

impl Printed {
    fn add(&mut self, stream: OutputStream, offset: u64, data: &[u8]) {
        let [out, err] = &mut self.tails;
        let (to, tail) = match stream {
            OutputStream::Stdout => (&mut self.stdout, out),
            OutputStream::Stderr => (&mut self.stderr, err),
        };
        let mut room = LARGEST_OUTPUT.saturating_sub(to.len()).min(data.len());
        // The rest stays in the sandbox's spool, where the caller can read it by the command's id.
        self.full |= !self.full && !self.held.grow(room);
        if self.full {
            room = 0;
        }
        if to.len() + room > to.capacity() {
            to.reserve_exact(room.max(to.len().min(AHEAD)));
        }
        let (head, beyond) = data.split_at(room);
        to.extend_from_slice(head);
        tail.add(head, beyond);
        self.truncated |= !beyond.is_empty() || offset > self.next;
        self.next = offset + data.len() as u64;
    }

    fn end(self, report: ExecReport, changed: Option<Changed>, redactor: Redactor) -> ExecOutcome {
        let Self { stdout, stderr, tails, next, truncated, held, full: _ } = self;
        let truncated = truncated || report.dropped_bytes > 0 || next < report.output_bytes;
        ExecOutcome { report, stdout, stderr, truncated, tails, changed, held: Arc::new(held), redactor }
    }
}

impl Execs {
    /// Runs a command to its end. Its output can be asked for again afterwards.
    pub async fn run(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
    ) -> Result<ExecOutcome> {
        self.run_as(caller, sandbox, request, None, Ok(())).await
    }

    /// The same; what the command prints is passed on as it comes.
    pub async fn run_observed(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
        observer: OutputObserver<'_>,
    ) -> Result<ExecOutcome> {
        self.run_with(caller, sandbox, request, None, Ok(()), observer).await
    }

    /// The same under another kind of operation and with other words for what is done, unless something
    /// is wrong with it.
    pub(crate) async fn run_as(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
        told: Option<(Operation, String)>,
        checked: Result<()>,
    ) -> Result<ExecOutcome> {
        self.run_with(caller, sandbox, request, told, checked, &mut |_, _| {}).await
    }

    async fn run_with(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ExecCommand,
        told: Option<(Operation, String)>,
        checked: Result<()>,
        observer: OutputObserver<'_>,
    ) -> Result<ExecOutcome> {
        // Before the first audit row is written: a flood of requests must not fill the audit trail.
        self.limits.take_exec(caller)?;
        let held = self.answers.hold(&caller.owner)?;
        let mode = ExecMode::Foreground;
        let Begun { follow, joined, redactor } =
            self.begin(caller, sandbox, request, mode, told, checked).await?;
        let result = collect(follow, held, redactor, observer).await;
        match joined {
            Some(audited) => audited.done(result).await,
            None => result,
        }
    }
}

async fn collect(
    mut follow: ExecFollow,
    held: HeldAnswer,
    redactor: Redactor,
    observer: OutputObserver<'_>,
) -> Result<ExecOutcome> {
    let mut printed = Printed {
        stdout: Vec::new(),
        stderr: Vec::new(),
        tails: Default::default(),
        next: 0,
        truncated: false,
        held,
        full: false,
    };
    loop {
        match follow.next().await? {
            Some(ExecUpdate::Output { stream, offset, data }) => {
                observer(stream, &data);
                printed.add(stream, offset, &data);
            }
            Some(ExecUpdate::Ended { report, changed }) => return Ok(printed.end(*report, changed, redactor)),
            None => return Err(Error::new(ErrorCode::Unavailable, "the command's output broke off")),
        }
    }
}
