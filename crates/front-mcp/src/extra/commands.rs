//! Commands in the background of a session: starting one, reading what it prints, ending it; and addresses of what listens inside.

use super::{Extra, ExtraTool, json_of, nothing, schema};
use crate::tools::tool;
use atoll_core::{ExecCommand, ExecUpdate};
use atoll_tool_sessions::{
    Hints, ToolCaller, ToolReply,
    tools::check::{Checked, InputProblem, parse},
};
use atoll_types::{Error, ErrorCode, ExecId, ExecReport, OutputStream, Result, SandboxId};
use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most bytes of output in one answer.
const LONGEST_OUTPUT: usize = 50_000;

/// What start_command wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct Start {
    /// The session, as create_session returned it.
    session_id: String,
    /// A line for the shell, such as a server's start. It runs in /workspace until it ends or is killed.
    command: String,
}

/// What command_output wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct Output {
    /// The session, as create_session returned it.
    session_id: String,
    /// The command, as start_command returned it.
    command_id: String,
    /// From which byte of its output on; `next_offset` of the answer before, to read on.
    #[serde(default)]
    offset: u64,
}

/// What kill_command wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct Kill {
    /// The session, as create_session returned it.
    session_id: String,
    /// The command, as start_command returned it.
    command_id: String,
}

/// What preview_url wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct Preview {
    /// The session, as create_session returned it.
    session_id: String,
    /// The port on which something listens in the session, on 127.0.0.1 or all addresses.
    #[schemars(range(min = 1))]
    port: u16,
    /// For how many seconds the address works; an hour where left out, a week at most.
    ttl_seconds: Option<u32>,
}

/// A command that runs in the background.
#[derive(Debug, Serialize, JsonSchema)]
struct Command {
    success: bool,
    /// What the other tools want.
    command_id: String,
    /// Whether it has not ended.
    running: bool,
    /// As a shell has it; null while it runs.
    exit_code: Option<i32>,
}

impl Command {
    fn of(report: &ExecReport) -> Self {
        let exit_code = report.ended.then(|| report.shell_code().get());
        Self { success: true, command_id: report.id.to_string(), running: !report.ended, exit_code }
    }
}

/// What a command printed.
#[derive(Debug, Serialize, JsonSchema)]
struct Printed {
    success: bool,
    running: bool,
    /// As a shell has it; null while it runs.
    exit_code: Option<i32>,
    stdout: String,
    stderr: String,
    /// Where to read on.
    next_offset: u64,
    /// Whether there is more by now.
    more: bool,
}

/// Where to look at what listens.
#[derive(Debug, Serialize, JsonSchema)]
struct Address {
    success: bool,
    /// An address for a browser; anyone who has it may open it.
    url: String,
    /// When it expires, in milliseconds since 1970.
    expires_at: i64,
}

impl Checked for Start {
    fn wrongs(&self) -> Vec<InputProblem> {
        [nothing(&self.session_id, "session_id"), nothing(&self.command, "command")]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl Checked for Output {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.command_id, "command_id").into_iter().collect()
    }
}

impl Checked for Kill {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.command_id, "command_id").into_iter().collect()
    }
}

impl Checked for Preview {
    fn wrongs(&self) -> Vec<InputProblem> {
        let zero = || InputProblem::value(["port".into()], "port must be between 1 and 65535");
        (self.port == 0).then(zero).into_iter().collect()
    }
}

fn command_id(text: &str) -> Result<ExecId> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no command with this id in this session");
    text.parse().map_err(|_| missing())
}

pub(super) fn tools(plain: Hints) -> Vec<Tool> {
    let looks = Hints { read_only: true, idempotent: true, ..plain };
    let runs = Hints { destructive: true, open_world: true, ..plain };
    let ends = Hints { destructive: true, idempotent: true, ..plain };
    let start = "Starts a shell command in the background of a session, such as a web server or a long build, and \
                 returns its command_id at once. Read what it prints with command_output, end it with kill_command.";
    let output = "Reads what a background command has printed, from an offset on, and whether it still runs. Does \
                  not wait: ask again with next_offset to read on.";
    let kill = "Ends a background command with everything that it started.";
    let preview = "Makes an address by which a browser reaches a port of the session, such as that of a web server \
                   started with start_command. Anyone who has the address may open it, until it expires.";
    vec![
        tool(
            ExtraTool::Start.as_str(),
            "Start a command in the background",
            start,
            schema::<Start>(),
            schema::<Command>(),
            runs,
        ),
        tool(
            ExtraTool::Output.as_str(),
            "Read a background command's output",
            output,
            schema::<Output>(),
            schema::<Printed>(),
            looks,
        ),
        tool(
            ExtraTool::Kill.as_str(),
            "End a background command",
            kill,
            schema::<Kill>(),
            schema::<Command>(),
            ends,
        ),
        tool(
            ExtraTool::Preview.as_str(),
            "Address of a port",
            preview,
            schema::<Preview>(),
            schema::<Address>(),
            plain,
        ),
    ]
}

impl Extra {
    pub(super) async fn start(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let Start { session_id, command } = parse(arguments)?;
        let work = |sandbox| async move {
            let command = ExecCommand {
                command: Some(command),
                working_directory: Some("/workspace".into()),
                ..ExecCommand::default()
            };
            let (report, _) = self.core.execs.run_background(&who.caller, sandbox, &command).await?;
            json_of(&Command::of(&report))
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    pub(super) async fn output(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let Output { session_id, command_id: id, offset } = parse(arguments)?;
        let work = |sandbox| async move {
            let mut found =
                self.core.execs.output(&who.caller, sandbox, command_id(&id)?, offset, false).await?;
            let (mut out, mut err, mut next) = (Vec::new(), Vec::new(), offset);
            while out.len() + err.len() < LONGEST_OUTPUT {
                let Some(ExecUpdate::Output { stream, offset, data }) = found.next().await? else { break };
                let room = LONGEST_OUTPUT - out.len() - err.len();
                let taken = &data[..data.len().min(room)];
                next = offset + taken.len() as u64;
                match stream {
                    OutputStream::Stdout => out.extend_from_slice(taken),
                    OutputStream::Stderr => err.extend_from_slice(taken),
                }
            }
            let report = self.core.execs.get(&who.caller, sandbox, found.report.id).await?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let exit_code = report.ended.then(|| report.shell_code().get());
            json_of(&Printed {
                success: true,
                running: !report.ended,
                exit_code,
                stdout: text(&out),
                stderr: text(&err),
                next_offset: next,
                more: next < report.output_bytes,
            })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    pub(super) async fn kill(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let Kill { session_id, command_id: id } = parse(arguments)?;
        let work = |sandbox| async move {
            json_of(&Command::of(&self.core.execs.kill(&who.caller, sandbox, command_id(&id)?).await?))
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    pub(super) async fn preview(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let Preview { session_id, port, ttl_seconds } = parse(arguments)?;
        let work = |sandbox: SandboxId| async move {
            let nowhere =
                "this server listens nowhere, so nothing of it has an address; it is one for a single client";
            let base = who.address.as_ref().ok_or_else(|| Error::new(ErrorCode::Unsupported, nowhere))?;
            let made = self.core.ports.preview_token(&who.caller, sandbox, Some(port), ttl_seconds).await?;
            let url = format!("{base}/api/v1/sandboxes/{}/ports/{port}~{}/", sandbox.uuid(), made.token);
            json_of(&Address { success: true, url, expires_at: made.record.expires_at })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }
}
