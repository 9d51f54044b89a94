//! Tools beyond the six, where the operator wants them: commands in the background and addresses of what listens inside
//! ([`commands`]), snapshots of a session's files ([`snapshots`]), forks and volumes ([`storage`]), and what changed a file
//! ([`history`]).

mod commands;
mod history;
mod snapshots;
mod storage;

use atoll_core::Core;
use atoll_tool_sessions::{Hints, Sessions, ToolCaller, ToolReply, tools::check::InputProblem};
use atoll_types::{Error, Result, names};
use rmcp::model::Tool;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
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

fn nothing(text: &str, name: &str) -> Option<InputProblem> {
    let empty = || InputProblem::value([name.into()], format!("{name} must not be empty"));
    text.trim().is_empty().then(empty)
}

fn schema<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = SchemaGenerator::from(settings).into_root_schema_for::<T>();
    schema.as_object().cloned().unwrap_or_default()
}

/// All of them.
pub(crate) fn tools() -> Vec<Tool> {
    let plain = Hints { read_only: false, destructive: false, idempotent: false, open_world: false };
    let mut all = snapshots::tools_to_keep(plain);
    all.extend(commands::tools(plain));
    all.extend(storage::tools(plain));
    all.extend(snapshots::tools(plain));
    all.push(history::tool_of(plain));
    all
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
}
