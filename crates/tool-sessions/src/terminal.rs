//! A command in a session's sandbox, beside its interpreter and in a shell of its own.

use crate::{
    Sessions, ToolCaller, ToolReply,
    failure::ToolResult,
    paths::WORKSPACE,
    tools::{input::ExecuteTerminal, output::CommandExecuted},
    truncate::{STDERR, STDOUT, shown},
};
use atoll_core::{ExecCommand, ExecOutcome};

impl Sessions {
    pub(crate) async fn terminal(&self, who: &ToolCaller, input: ExecuteTerminal) -> ToolResult {
        let (session, _using) = self.use_session(who, &input.session_id).await?;
        let command = ExecCommand {
            command: Some(input.command),
            timeout_seconds: Some(input.timeout.into()),
            working_directory: Some(WORKSPACE.to_owned()),
            ..ExecCommand::default()
        };
        let ran = self.core.execs.run(&who.caller, session.sandbox, &command).await;
        self.touch(&session).await;
        match ran {
            Ok(outcome) => Ok(ToolReply::of(&executed(&outcome, input.timeout))),
            Err(error) => Err(self.failed_in(&session, error).await),
        }
    }
}

fn executed(outcome: &ExecOutcome, seconds: u32) -> CommandExecuted {
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
    let stdout = shown(stdout, out, STDOUT);
    let mut stderr = shown(stderr, err, STDERR);
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
