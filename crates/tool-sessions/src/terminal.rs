//! A command in a session's sandbox, beside its interpreter and in a shell of its own.

use crate::{
    Listener, Progress, Sessions, ToolCaller, ToolReply,
    failure::{Failure, ToolResult},
    paths::WORKSPACE,
    tools::{input::ExecuteTerminal, output::CommandExecuted},
    truncate::shown,
};
use atoll_core::{ExecCommand, ExecOutcome, OutputLimits};
use atoll_store::ToolSession;
use atoll_types::{Error, ErrorCode, ExecId, OutputStream, Result, TextDecoder};
use std::{pin::Pin, time::Duration};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

fn command_of(input: &ExecuteTerminal) -> ExecCommand {
    ExecCommand {
        command: Some(input.command.clone()),
        timeout_seconds: Some(input.timeout.into()),
        working_directory: Some(WORKSPACE.to_owned()),
        ..ExecCommand::default()
    }
}

impl Sessions {
    pub(crate) async fn terminal(&self, who: &ToolCaller, input: ExecuteTerminal) -> ToolResult {
        let (session, _using) = self.use_session(who, &input.session_id).await?;
        let ran = self.core.execs.run(&who.caller, session.sandbox, &command_of(&input)).await;
        self.touch(&session).await;
        match ran {
            Ok(outcome) => Ok(self.executed(outcome, input.timeout)),
            Err(error) => Err(self.failed_in(&session, error).await),
        }
    }

    /// The same under an id: a command that runs or ran under it is joined. It outlives its caller, so a cancelled call kills
    /// it.
    pub(crate) async fn joined_terminal(
        &self,
        who: &ToolCaller,
        input: ExecuteTerminal,
        id: Uuid,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> ToolResult {
        let (session, _using) = self.use_session(who, &input.session_id).await?;
        let id = ExecId::from_uuid(id);
        let command = ExecCommand { id: Some(id), ..command_of(&input) };
        let mut decoders: [TextDecoder; 2] = Default::default();
        let mut observer = |stream, bytes: &[u8]| {
            let text = decoders[usize::from(stream == OutputStream::Stderr)].push(bytes);
            if text.is_empty() {
                return;
            }
            listener(match stream {
                OutputStream::Stdout => Progress::Stdout(text),
                OutputStream::Stderr => Progress::Stderr(text),
            });
        };
        let running = self.core.execs.run_observed(&who.caller, session.sandbox, &command, &mut observer);
        let mut running = std::pin::pin!(running);
        let ran = tokio::select! {
            ran = &mut running => ran,
            () = cancel.cancelled() => {
                self.kill_until_ended(who, &session, id, running).await?;
                return Err(cancelled());
            }
        };
        self.touch(&session).await;
        match ran {
            Ok(outcome) => Ok(self.executed(outcome, input.timeout)),
            Err(error) => Err(self.failed_in(&session, error).await),
        }
    }

    fn executed(&self, mut outcome: ExecOutcome, seconds: u32) -> ToolReply {
        let changed = outcome.changed.take();
        ToolReply { changed, ..ToolReply::of(&executed(&outcome, seconds, &self.settings.output)) }
    }

    /// Kills a command whose call was cancelled, and waits for its end. A command that is being started is not known yet, and its
    /// start goes on without its caller; so it is killed again until its end is seen.
    async fn kill_until_ended<T>(
        &self,
        who: &ToolCaller,
        session: &ToolSession,
        id: ExecId,
        mut running: Pin<&mut impl Future<Output = Result<T>>>,
    ) -> Result<(), Failure> {
        let (mut failures, mut wait) = (0, BETWEEN_KILLS);
        loop {
            // The start is driven on meanwhile.
            let killing = self.core.execs.kill(&who.caller, session.sandbox, id);
            let killed = tokio::select! {
                killed = killing => killed,
                _ = &mut running => return Ok(()),
            };
            match killed {
                Err(error) if error.code != ErrorCode::NotFound => {
                    failures += 1;
                    if failures == MOST_FAILURES {
                        return Err(self.failed_in(session, error).await);
                    }
                }
                _ => failures = 0,
            }
            if tokio::time::timeout(wait, &mut running).await.is_ok() {
                return Ok(());
            }
            wait = (wait * 2).min(LONGEST_BETWEEN);
        }
    }
}

/// How long a killed command may take to be seen ended, before it is killed again; each time longer.
const BETWEEN_KILLS: Duration = Duration::from_millis(200);
const LONGEST_BETWEEN: Duration = Duration::from_secs(10);
/// So often a kill may fail one after the other.
const MOST_FAILURES: u32 = 20;

/// Why a cancelled command has no outcome.
fn cancelled() -> Failure {
    let error = Error::new(ErrorCode::Conflict, "the call was cancelled and the command killed");
    Failure::with_hint(error, "Call it again if you still need it.")
}

fn executed(outcome: &ExecOutcome, seconds: u32, limits: &OutputLimits) -> CommandExecuted {
    let ExecOutcome {
        report,
        stdout,
        stderr,
        truncated: _,
        tails: [out, err],
        changed: _,
        held: _,
        redactor: _,
    } = outcome;
    let stdout = shown(stdout, out, limits.stdout as usize);
    let mut stderr = shown(stderr, err, limits.stderr as usize);
    let notice = match (report.timed_out, report.oom_killed) {
        (true, _) => Some(format!("[the command was ended after {seconds} s]")),
        (_, true) => Some("[the command was ended: out of memory]".to_owned()),
        _ => None,
    };
    if let Some(notice) = notice {
        let line = if stderr.is_empty() || stderr.ends_with('\n') { "" } else { "\n" };
        stderr = format!("{stderr}{line}{notice}");
    }
    CommandExecuted { exit_code: report.shell_code().get(), stdout, stderr }
}
