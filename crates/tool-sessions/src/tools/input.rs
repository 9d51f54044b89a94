//! Inputs of the tools. The schemas are made of these types and calls are parsed into them; [`super::check`]
//! enforces the bounds of the schemas.

use atoll_types::packages::{DEPENDENCY_PATTERN, LONGEST_NAME};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The longest piece of code, and the longest command.
pub const LONGEST_CODE: usize = 1 << 20;
/// The longest that a cell or a command may ask for, in seconds.
pub const LONGEST_TIMEOUT: u32 = 300;
/// Most files of one call.
pub const MOST_FILES: usize = 100;
/// Most packages of one session.
pub const MOST_DEPENDENCIES: usize = 64;
/// Most presets of one session's network.
pub const MOST_PRESETS: usize = 16;
/// The largest file that is given as text, after decoding.
pub const LARGEST_INLINE: usize = 8 << 20;
/// The longest path.
pub const LONGEST_PATH: usize = 4096;

/// What a session speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    #[default]
    #[serde(alias = "python3", alias = "py", alias = "Python")]
    Python,
    #[serde(alias = "nodejs", alias = "javascript", alias = "js", alias = "JavaScript", alias = "Node")]
    Node,
    #[serde(alias = "R")]
    R,
}

impl Runtime {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::R => "r",
        }
    }
}

/// The input of create_session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateSession {
    /// The language of the session: python (IPython), node (Node.js) or r. `runtime` means the same.
    #[serde(default, alias = "runtime", deserialize_with = "or_default")]
    pub language: Runtime,
    /// Packages to install before the session is ready, by name, with their versions; an empty version is
    /// the latest one. For example {"pandas": "2.2.3", "matplotlib": ""}.
    #[serde(default, deserialize_with = "or_default")]
    #[schemars(schema_with = "dependencies")]
    pub dependencies: BTreeMap<String, String>,
    /// What the session may reach: none, allowlist (package indexes and the like) or full. It can be less than the
    /// server's policy, never more; what the policy says where left out.
    #[serde(default)]
    pub network: Option<NetworkAccess>,
    /// With the network allowlist: only these presets, such as python, node or github; all of the policy where left
    /// out.
    #[serde(default, deserialize_with = "or_default")]
    #[schemars(length(max = 16))]
    pub network_presets: Vec<String>,
}

/// What a session may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkAccess {
    None,
    Allowlist,
    Full,
}

/// The input of execute_code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecuteCode {
    /// The session, as create_session returned it.
    #[schemars(length(min = 1, max = 64))]
    pub session_id: String,
    /// The code to run. Variables, imports and definitions of earlier calls are there.
    #[schemars(length(min = 1, max = 1_048_576))]
    pub code: String,
    /// Seconds after which the code is interrupted.
    #[serde(default = "usual_timeout", deserialize_with = "seconds")]
    #[schemars(range(min = 1, max = 300))]
    pub timeout: u32,
}

/// The input of execute_terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecuteTerminal {
    /// The session, as create_session returned it.
    #[schemars(length(min = 1, max = 64))]
    pub session_id: String,
    /// A line for the shell. It runs in /workspace, in a shell of its own: `cd` and `export` do not last.
    #[schemars(length(min = 1, max = 1_048_576))]
    pub command: String,
    /// Seconds after which the command is ended.
    #[serde(default = "usual_timeout", deserialize_with = "seconds")]
    #[schemars(range(min = 1, max = 300))]
    pub timeout: u32,
}

/// The input of import_files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportFiles {
    /// The session to import into, as create_session returned it.
    #[schemars(length(min = 1, max = 64))]
    pub session_id: String,
    /// What to import; each is done or fails for itself.
    #[schemars(length(min = 1, max = 100))]
    pub files: Vec<ImportFile>,
}

/// One thing to import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ImportFile {
    /// A file or folder of the machine that the server runs on: an uploaded one by its path, or one in a
    /// folder that the operator allows by its absolute path.
    Host {
        /// Where it is.
        #[schemars(length(min = 1, max = 4096))]
        source: String,
        /// Where it goes, below /workspace; its own name where left out.
        #[schemars(length(max = 4096))]
        #[serde(skip_serializing_if = "Option::is_none")]
        destination: Option<String>,
    },
    /// A file or folder that another session of this conversation exported.
    Session {
        /// The session that exported it.
        #[schemars(length(min = 1, max = 64))]
        session_id: String,
        /// Its path there, as export_files returned it.
        #[schemars(length(min = 1, max = 4096))]
        path: String,
        /// Where it goes, below /workspace; its own name where left out.
        #[schemars(length(max = 4096))]
        #[serde(skip_serializing_if = "Option::is_none")]
        destination: Option<String>,
    },
    /// A file whose content is given here.
    Inline {
        /// Its name or path below /workspace.
        #[schemars(length(min = 1, max = 4096))]
        file_name: String,
        /// What is in it, at most 8 MiB.
        file_content: String,
        /// How `file_content` is written: text as it is, or base64 for bytes.
        #[serde(default)]
        encoding: Encoding,
    },
    /// None of these, or several at once; refused before the call.
    #[serde(skip)]
    Unclear,
}

impl ImportFile {
    /// What each import must have.
    pub(crate) const FORMS: &str =
        "each of files must have either source, or session_id and path, or file_name and file_content";
}

/// How the content of a file is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    #[default]
    Text,
    Base64,
}

/// The input of export_files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportFiles {
    /// The session to export from, as create_session returned it.
    #[schemars(length(min = 1, max = 64))]
    pub session_id: String,
    /// What to export; each is done or fails for itself.
    #[schemars(length(min = 1, max = 100))]
    pub files: Vec<ExportFile>,
}

/// One thing to export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportFile {
    /// A file or a folder, absolute or relative to /workspace. A folder stands for all that is in it.
    #[schemars(length(min = 1, max = 4096))]
    pub source: String,
}

/// The input of stop_session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StopSession {
    /// The session, as create_session returned it.
    #[schemars(length(min = 1, max = 64))]
    pub session_id: String,
}

/// The default timeout of a cell or a command.
#[must_use]
pub fn usual_timeout() -> u32 {
    30
}

fn dependencies(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": { "pattern": DEPENDENCY_PATTERN, "maxLength": LONGEST_NAME },
        "additionalProperties": { "type": "string", "maxLength": 128 },
        "maxProperties": MOST_DEPENDENCIES,
        "default": {},
    })
}

/// Null is the same as absent: some clients send every field.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Whole seconds, also where they are written as 30.0.
fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(usual_timeout()) };
    let whole = number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && *float >= 0.0)?;
        Some(float as u64)
    });
    // A value out of bounds stays so, and is refused with the allowed range.
    Ok(whole.map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX)))
}

/// All that the three kinds of imports have.
#[derive(Deserialize)]
struct Flat {
    source: Option<String>,
    session_id: Option<String>,
    path: Option<String>,
    destination: Option<String>,
    file_name: Option<String>,
    file_content: Option<String>,
    encoding: Option<Encoding>,
}

/// The kind of an import follows from its fields.
impl<'de> Deserialize<'de> for ImportFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Flat { source, session_id, path, destination, file_name, file_content, encoding } =
            Flat::deserialize(from)?;
        match (source, session_id, path, file_name, file_content) {
            (Some(source), None, None, None, None) => Ok(Self::Host { source, destination }),
            (None, Some(session_id), Some(path), None, None) => {
                Ok(Self::Session { session_id, path, destination })
            }
            (None, None, None, Some(file_name), Some(file_content)) => {
                let encoding = encoding.unwrap_or_default();
                Ok(Self::Inline { file_name, file_content, encoding })
            }
            _ => Ok(Self::Unclear),
        }
    }
}
