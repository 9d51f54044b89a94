//! The tools as models see them: in words, and as schemas.

use super::{
    Tool,
    input::{CreateSession, ExecuteCode, ExecuteTerminal, ExportFiles, ImportFiles, StopSession},
    output::{CodeExecuted, CommandExecuted, FilesExported, FilesImported, SessionCreated, SessionStopped},
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// A tool, as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDescription {
    /// Which.
    pub tool: Tool,
    /// Its name on the wire.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// For a model.
    pub description: &'static str,
    /// The JSON Schema of its input.
    pub input: Map<String, Value>,
    /// The JSON Schema of its answer. Failures of whole calls have another shape, and are errors.
    pub output: Map<String, Value>,
    /// Its side effects.
    pub hints: Hints,
}

/// The side effects of a tool, as MCP annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: bool,
    /// It may destroy what is there.
    pub destructive: bool,
    /// Doing it twice is doing it once.
    pub idempotent: bool,
    /// It may reach the network.
    pub open_world: bool,
}

const CREATE: &str = "Creates an isolated sandbox session with a live interpreter (python, node or r) and returns its \
session_id, which every other tool needs. Variables, imports and files persist within the session between calls. \
Packages in `dependencies` are installed first; if that fails the session is created all the same and `stderr` says \
why. Reuse a session instead of creating one for each step: there are only a few. Stop it when you are done.";
const CODE: &str = "Runs code in the session's interpreter, like a notebook cell: variables persist between calls, the \
value of the last expression is returned as `result`, top-level await works, and figures and rich outputs come as \
`display_outputs`. Returns success, stdout, stderr, result, error and display_outputs. Long outputs are truncated \
in the middle with a notice. `state_lost` means that the interpreter was started anew: variables are lost, files are \
there. If it answers CONTAINER_DIED, the session is lost: create a new one.";
const TERMINAL: &str = "Runs a shell command in the session's sandbox and returns exit_code, stdout and stderr. It \
starts in /workspace in a shell of its own: use it for files, git, package managers and programs, and execute_code \
for code whose variables should persist. exit_code 124 means that the time was up; ask for a longer timeout.";
const IMPORT: &str = "Brings files and folders into a session's /workspace. Each item is one of: {file_name, \
file_content, encoding} with the content itself (encoding text or base64); {session_id, path, destination} for what \
another session of this conversation exported with export_files; {source, destination} for an uploaded file or a \
path that the server's operator allows. Each succeeds or fails for itself: look at every item's success and error.";
const EXPORT: &str = "Registers files or folders of a session's /workspace as exported, so that people can download \
them (download_url, where the server has an address) and other sessions of this conversation can import them with \
import_files. Nothing is copied: the session must stay alive. A folder stands for all that is in it.";
const STOP: &str = "Stops a session and frees it, with its variables, files and exports. Import what you still need \
into another session first. success is false when there is no such session.";

fn schema<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    plain(&mut schema);
    match schema {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Removes what only Rust knows, and the line breaks of comments.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.retain(|name, value| !(name == "format" && value.is_string()));
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            map.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

fn of<I: JsonSchema, O: JsonSchema>(
    tool: Tool,
    title: &'static str,
    description: &'static str,
    hints: Hints,
) -> ToolDescription {
    let (input, output) = (schema::<I>(), schema::<O>());
    ToolDescription { tool, name: tool.as_str(), title, description, input, output, hints }
}

static ALL: LazyLock<Vec<ToolDescription>> = LazyLock::new(|| {
    let plain = Hints { read_only: false, destructive: false, idempotent: false, open_world: false };
    let runs = Hints { destructive: true, open_world: true, ..plain };
    vec![
        of::<CreateSession, SessionCreated>(
            Tool::CreateSession,
            "Create a session",
            CREATE,
            Hints { open_world: true, ..plain },
        ),
        of::<ExecuteCode, CodeExecuted>(Tool::ExecuteCode, "Run code", CODE, runs),
        of::<ExecuteTerminal, CommandExecuted>(Tool::ExecuteTerminal, "Run a command", TERMINAL, runs),
        of::<ImportFiles, FilesImported>(
            Tool::ImportFiles,
            "Import files",
            IMPORT,
            // It overwrites a file of the same name.
            Hints { destructive: true, idempotent: true, ..plain },
        ),
        of::<ExportFiles, FilesExported>(
            Tool::ExportFiles,
            "Export files",
            EXPORT,
            Hints { idempotent: true, ..plain },
        ),
        of::<StopSession, SessionStopped>(
            Tool::StopSession,
            "Stop a session",
            STOP,
            Hints { destructive: true, idempotent: true, ..plain },
        ),
    ]
});

/// The six tools.
#[must_use]
pub fn describe() -> &'static [ToolDescription] {
    &ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_tools_and_no_more() {
        let names: Vec<&str> = describe().iter().map(|tool| tool.name).collect();
        assert_eq!(names, Tool::ALL.map(Tool::as_str));
        for tool in describe() {
            assert_eq!(tool.input["type"], "object", "{}", tool.name);
            assert_eq!(tool.output["type"], "object", "{}", tool.name);
            assert_eq!(tool.name.parse(), Ok(tool.tool));
        }
    }

    #[test]
    fn the_schemas_are_what_clients_were_told() {
        let all: Vec<Value> = describe()
            .iter()
            .map(|tool| serde_json::json!({ "name": tool.name, "input": tool.input, "output": tool.output }))
            .collect();
        insta::assert_snapshot!(serde_json::to_string_pretty(&all).unwrap());
    }
}
