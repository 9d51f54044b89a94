//! Tools beyond the six, where the operator wants them: commands in the background, addresses of what listens inside,
//! and snapshots of a session's files. Those for forks and volumes are in [`storage`], the rest of those for snapshots in [`snapshots`],
//! and a file's story in [`history`].

mod history;
mod snapshots;
mod storage;

use crate::tools::tool;
use atoll_core::{Core, ExecCommand, ExecUpdate, NewSnapshot, RollbackOptions};
use atoll_tool_sessions::{
    Hints, Sessions, ToolCaller, ToolReply,
    tools::check::{Checked, InputProblem, parse},
};
use atoll_types::{
    Error, ErrorCode, ExecId, ExecReport, OutputStream, Result, SnapshotQuery, SnapshotRecord, names,
};
use rmcp::model::Tool;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

names!(
    /// A tool beyond the six.
    ExtraTool {
        /// Starts a command in the background.
        Start = "start_command",
        /// Reads its output.
        Output = "command_output",
        /// Ends it.
        Kill = "kill_command",
        /// The address of a port.
        Preview = "preview_url",
        /// Keeps the session's files.
        CreateSnapshot = "create_snapshot",
        /// Lists what was kept.
        ListSnapshots = "list_snapshots",
        /// Makes the files what they were.
        RollBack = "roll_back",
        /// Makes a session of another one.
        ForkSession = "fork_session",
        /// Makes a volume.
        CreateVolume = "create_volume",
        /// Lists the owner's volumes.
        ListVolumes = "list_volumes",
        /// Deletes a volume.
        DeleteVolume = "delete_volume",
        /// Makes a session with volumes.
        CreateWithVolumes = "create_session_with_volumes",
        /// Compares kept files.
        DiffSnapshot = "diff_snapshot",
        /// Deletes kept files.
        DeleteSnapshot = "delete_snapshot",
        /// Gives a volume another limit.
        ResizeVolume = "resize_volume",
        /// Gives kept files another label.
        LabelSnapshot = "label_snapshot",
        /// Tells what changed a file.
        FileHistory = "file_history",
    }
);

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

/// What create_snapshot wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct CreateSnapshot {
    /// The session, as create_session returned it.
    session_id: String,
    /// What to call it.
    label: Option<String>,
    /// Whether the variables of the session's Python code are kept too; false where left out.
    #[serde(default)]
    kernels: bool,
}

/// What list_snapshots wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListSnapshots {
    /// The session, as create_session returned it.
    session_id: String,
    /// How many of the newest to leave out; `next_offset` of the answer before, to read on.
    #[serde(default)]
    offset: u64,
}

/// What roll_back wants.
#[derive(Debug, Deserialize, JsonSchema)]
struct RollBack {
    /// The session, as create_session returned it.
    session_id: String,
    /// The snapshot, as create_snapshot or list_snapshots returned it.
    snapshot_id: String,
    /// Whether the variables that were kept with the snapshot come back too; false where left out, and variables are lost.
    #[serde(default)]
    kernels: bool,
    /// Whether the files as they are now are kept in a snapshot first; true where left out.
    keep_before: Option<bool>,
}

/// A session's files as they were.
#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotInfo {
    /// What roll_back wants.
    snapshot_id: String,
    label: Option<String>,
    /// manual, automatic or before_rollback.
    kind: String,
    /// When it was made, in milliseconds since 1970.
    created_at: i64,
    /// Whether it has variables too, and not files alone.
    kernels: bool,
}

impl From<SnapshotRecord> for SnapshotInfo {
    fn from(record: SnapshotRecord) -> Self {
        let SnapshotRecord { id, label, kind, created_at, kernels, .. } = record;
        let (snapshot_id, kernels) = (id.to_string(), kernels.is_some());
        Self { snapshot_id, label, kind: kind.as_str().to_owned(), created_at, kernels }
    }
}

/// A snapshot that was made.
#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotReply {
    success: bool,
    snapshot: SnapshotInfo,
}

/// The snapshots of a session.
#[derive(Debug, Serialize, JsonSchema)]
struct SnapshotList {
    success: bool,
    /// The newest first, 50 at most.
    snapshots: Vec<SnapshotInfo>,
    /// How many there are.
    total: u64,
    /// Where to read on; null at the end.
    next_offset: Option<u64>,
}

/// A session that was rolled back.
#[derive(Debug, Serialize, JsonSchema)]
struct RollbackReply {
    success: bool,
    /// The snapshot of the files as they were before, if one was wanted.
    before: Option<SnapshotInfo>,
}

/// The most snapshots in one answer.
const MOST_SNAPSHOTS: u32 = 50;

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

fn nothing(text: &str, name: &str) -> Option<InputProblem> {
    let empty = || InputProblem::value([name.into()], format!("{name} must not be empty"));
    text.trim().is_empty().then(empty)
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

impl Checked for CreateSnapshot {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.session_id, "session_id").into_iter().collect()
    }
}

impl Checked for ListSnapshots {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.session_id, "session_id").into_iter().collect()
    }
}

impl Checked for RollBack {
    fn wrongs(&self) -> Vec<InputProblem> {
        nothing(&self.snapshot_id, "snapshot_id").into_iter().collect()
    }
}

fn schema<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = SchemaGenerator::from(settings).into_root_schema_for::<T>();
    schema.as_object().cloned().unwrap_or_default()
}

/// All of them.
pub(crate) fn tools() -> Vec<Tool> {
    let plain = Hints { read_only: false, destructive: false, idempotent: false, open_world: false };
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
    let keep = "Keeps the files of a session as they are, so that roll_back can return to them. Variables of Python code are \
                kept too with `kernels`, until the session's container ends.";
    let kept = "Lists the snapshots of a session, the newest first.";
    let back = "Makes the files of a session what they were at a snapshot. Commands and code that run end, and variables are \
                lost, unless they were kept with the snapshot and `kernels` is true. The files as they were before are kept in a snapshot, which the answer names, unless `keep_before` is false.";
    let mut all = vec![
        tool(
            ExtraTool::CreateSnapshot.as_str(),
            "Keep the files as they are",
            keep,
            schema::<CreateSnapshot>(),
            schema::<SnapshotReply>(),
            plain,
        ),
        tool(
            ExtraTool::ListSnapshots.as_str(),
            "List kept files",
            kept,
            schema::<ListSnapshots>(),
            schema::<SnapshotList>(),
            looks,
        ),
        tool(
            ExtraTool::RollBack.as_str(),
            "Return to kept files",
            back,
            schema::<RollBack>(),
            schema::<RollbackReply>(),
            ends,
        ),
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
    ];
    all.extend(storage::tools(plain));
    all.extend(snapshots::tools(plain));
    all.push(history::tool_of(plain));
    all
}

fn command_id(text: &str) -> Result<ExecId> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no command with this id in this session");
    text.parse().map_err(|_| missing())
}

fn json_of(answer: &impl Serialize) -> Result<Value> {
    serde_json::to_value(answer).map_err(|e| Error::internal(e.to_string()))
}

/// Does what they ask.
pub(crate) struct Extra {
    core: Core,
    sessions: Sessions,
}

impl Extra {
    pub(crate) fn new(core: Core, sessions: Sessions) -> Self {
        Self { core, sessions }
    }

    /// Calls one.
    pub(crate) async fn call(&self, who: &ToolCaller, tool: ExtraTool, arguments: Value) -> ToolReply {
        let done = match tool {
            ExtraTool::Start => self.start(who, arguments).await,
            ExtraTool::Output => self.output(who, arguments).await,
            ExtraTool::Kill => self.kill(who, arguments).await,
            ExtraTool::Preview => self.preview(who, arguments).await,
            ExtraTool::CreateSnapshot => self.create_snapshot(who, arguments).await,
            ExtraTool::ListSnapshots => self.list_snapshots(who, arguments).await,
            ExtraTool::RollBack => self.roll_back(who, arguments).await,
            ExtraTool::ForkSession => self.fork_session(who, arguments).await,
            ExtraTool::CreateVolume => self.create_volume(who, arguments).await,
            ExtraTool::ListVolumes => self.list_volumes(who, arguments).await,
            ExtraTool::DeleteVolume => self.delete_volume(who, arguments).await,
            ExtraTool::CreateWithVolumes => self.create_with_volumes(who, arguments).await,
            ExtraTool::DiffSnapshot => self.diff_snapshot(who, arguments).await,
            ExtraTool::DeleteSnapshot => self.delete_snapshot(who, arguments).await,
            ExtraTool::ResizeVolume => self.resize_volume(who, arguments).await,
            ExtraTool::LabelSnapshot => self.label_snapshot(who, arguments).await,
            ExtraTool::FileHistory => self.file_history(who, arguments).await,
        };
        done.unwrap_or_else(|wrongs| ToolReply::invalid(&wrongs))
    }

    async fn start(&self, who: &ToolCaller, arguments: Value) -> Result<ToolReply, Vec<InputProblem>> {
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

    async fn output(&self, who: &ToolCaller, arguments: Value) -> Result<ToolReply, Vec<InputProblem>> {
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

    async fn kill(&self, who: &ToolCaller, arguments: Value) -> Result<ToolReply, Vec<InputProblem>> {
        let Kill { session_id, command_id: id } = parse(arguments)?;
        let work = |sandbox| async move {
            json_of(&Command::of(&self.core.execs.kill(&who.caller, sandbox, command_id(&id)?).await?))
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    async fn create_snapshot(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let CreateSnapshot { session_id, label, kernels } = parse(arguments)?;
        let new = NewSnapshot { label, kernels };
        let work = |sandbox| async move {
            let made = self.core.snapshots.create(&who.caller, sandbox, new).await?;
            json_of(&SnapshotReply { success: true, snapshot: made.into() })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    async fn list_snapshots(
        &self,
        who: &ToolCaller,
        arguments: Value,
    ) -> Result<ToolReply, Vec<InputProblem>> {
        let ListSnapshots { session_id, offset } = parse(arguments)?;
        let work = |sandbox| async move {
            let query = SnapshotQuery { sandbox, offset, limit: MOST_SNAPSHOTS };
            let page = self.core.snapshots.list(&who.caller, query).await?;
            let snapshots: Vec<_> = page.items.into_iter().map(SnapshotInfo::from).collect();
            let next = offset.saturating_add(snapshots.len() as u64);
            let next_offset = (!snapshots.is_empty() && next < page.total).then_some(next);
            json_of(&SnapshotList { success: true, snapshots, total: page.total, next_offset })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    async fn roll_back(&self, who: &ToolCaller, arguments: Value) -> Result<ToolReply, Vec<InputProblem>> {
        let RollBack { session_id, snapshot_id, kernels, keep_before } = parse(arguments)?;
        let options = RollbackOptions { kernels, keep_before: keep_before.unwrap_or(true) };
        let work = |sandbox| async move {
            let to = snapshots::snapshot_of(&snapshot_id)?;
            let rolled = self.core.snapshots.roll_back(&who.caller, sandbox, to, options).await?;
            json_of(&RollbackReply { success: true, before: rolled.before.map(SnapshotInfo::from) })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }

    async fn preview(&self, who: &ToolCaller, arguments: Value) -> Result<ToolReply, Vec<InputProblem>> {
        let Preview { session_id, port, ttl_seconds } = parse(arguments)?;
        let work = |sandbox: atoll_types::SandboxId| async move {
            let nowhere =
                "this server listens nowhere, so nothing of it has an address; it is one for a single client";
            let base = who.address.as_ref().ok_or_else(|| Error::new(ErrorCode::Unsupported, nowhere))?;
            let made = self.core.ports.preview_token(&who.caller, sandbox, Some(port), ttl_seconds).await?;
            let url = format!("{base}/api/v1/sandboxes/{}/ports/{port}~{}/", sandbox.uuid(), made.token);
            json_of(&Address { success: true, url, expires_at: made.expires_at })
        };
        Ok(self.sessions.beyond(who, &session_id, work).await)
    }
}
