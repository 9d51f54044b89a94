//! From unchecked JSON to an input, with all of its problems. The bounds are those of the schemas, and are
//! enforced here for clients that ignore a schema.

use super::input::{
    CreateSession, ExecuteCode, ExecuteTerminal, ExportFiles, ImportFile, ImportFiles, LONGEST_CODE,
    LONGEST_PATH, LONGEST_TIMEOUT, MOST_DEPENDENCIES, MOST_FILES, MOST_PRESETS, StopSession,
};
use atoll_types::{
    names,
    packages::{DEPENDENCY_PATTERN, is_dependency, is_dependency_version},
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use serde_path_to_error::Segment;

names!(
    /// What kind of mistake an input has.
    ProblemKind {
        /// A required field is absent.
        Missing = "missing",
        /// A field has another type.
        TypeError = "type_error",
        /// A field has a value that is not allowed.
        ValueError = "value_error",
    }
);

/// One thing that is wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputProblem {
    /// Where: names of fields and numbers of items.
    pub loc: Vec<Value>,
    /// What.
    pub msg: String,
    /// What kind of mistake.
    #[serde(rename = "type")]
    pub kind: ProblemKind,
}

impl InputProblem {
    /// An invalid value.
    pub fn value(loc: impl IntoIterator<Item = Value>, msg: impl Into<String>) -> Self {
        Self { loc: loc.into_iter().collect(), msg: msg.into(), kind: ProblemKind::ValueError }
    }
}

/// An input that can list its problems.
pub trait Checked: DeserializeOwned + JsonSchema {
    /// All of its problems.
    fn wrongs(&self) -> Vec<InputProblem>;
}

/// The input of a call, or all of its problems.
pub fn parse<T: Checked>(arguments: Value) -> Result<T, Vec<InputProblem>> {
    let arguments = if arguments.is_null() { json!({}) } else { arguments };
    if !arguments.is_object() {
        return Err(vec![InputProblem {
            kind: ProblemKind::TypeError,
            ..InputProblem::value([], "the arguments must be an object")
        }]);
    }
    let input: T = match serde_path_to_error::deserialize(&arguments) {
        Ok(input) => input,
        Err(error) => loosely::<T>(arguments).ok_or_else(|| vec![mistake(&error)])?,
    };
    let wrongs = input.wrongs();
    if wrongs.is_empty() { Ok(input) } else { Err(wrongs) }
}

/// The input with mistyped fields converted: models write numbers, lists and objects as text, and give one
/// object where a list is wanted.
fn loosely<T: Checked>(mut arguments: Value) -> Option<T> {
    let schema = schemars::schema_for!(T).to_value();
    for (name, value) in arguments.as_object_mut()? {
        let kinds = &schema["properties"][name]["type"];
        let wants =
            |kind: &str| kinds == kind || kinds.as_array().is_some_and(|all| all.contains(&json!(kind)));
        if let Value::String(text) = &*value
            && let Ok(meant) = serde_json::from_str::<Value>(text)
        {
            let fits = match &meant {
                Value::Number(_) => wants("integer") || wants("number"),
                Value::Bool(_) => wants("boolean"),
                Value::Array(_) => wants("array"),
                Value::Object(_) => wants("object") || wants("array"),
                Value::Null | Value::String(_) => false,
            };
            if fits {
                *value = meant;
            }
        }
        if value.is_object() && wants("array") {
            *value = Value::Array(vec![value.take()]);
        }
    }
    serde_json::from_value(arguments).ok()
}

fn mistake(error: &serde_path_to_error::Error<serde_json::Error>) -> InputProblem {
    let place = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(json!(index)),
        Segment::Map { key } => Some(json!(key)),
        Segment::Enum { variant } => Some(json!(variant)),
        Segment::Unknown => None,
    };
    let mut loc: Vec<Value> = error.path().iter().filter_map(place).collect();
    let msg: String = error.inner().to_string().chars().take(500).collect();
    let missing = msg.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    let kind = if missing.is_some() { ProblemKind::Missing } else { ProblemKind::TypeError };
    loc.extend(missing.map(|name| json!(name)));
    InputProblem { loc, msg, kind }
}

fn text(loc: &[Value], text: &str, longest: usize) -> Option<InputProblem> {
    let name = loc.iter().rev().find_map(Value::as_str).unwrap_or_default();
    if text.is_empty() || text.chars().count() > longest {
        return Some(InputProblem::value(
            loc.to_vec(),
            format!("{name} must have 1 to {longest} characters"),
        ));
    }
    text.contains('\0')
        .then(|| InputProblem::value(loc.to_vec(), format!("{name} must not hold a NUL character")))
}

fn session(id: &str) -> Option<InputProblem> {
    text(&[json!("session_id")], id, 64)
}

fn timeout(seconds: u32) -> Option<InputProblem> {
    let message = format!("timeout must be between 1 and {LONGEST_TIMEOUT} seconds");
    (!(1..=LONGEST_TIMEOUT).contains(&seconds)).then(|| InputProblem::value([json!("timeout")], message))
}

fn count(files: usize) -> Option<InputProblem> {
    let message = format!("files must have 1 to {MOST_FILES} items");
    (!(1..=MOST_FILES).contains(&files)).then(|| InputProblem::value([json!("files")], message))
}

impl Checked for CreateSession {
    fn wrongs(&self) -> Vec<InputProblem> {
        let Self { language: _, dependencies, network: _, network_presets } = self;
        let at = |name: &str| [json!("dependencies"), json!(name.chars().take(200).collect::<String>())];
        let names = dependencies.keys().filter(|name| !is_dependency(name));
        let names = names
            .map(|name| InputProblem::value(at(name), format!("a package must match {DEPENDENCY_PATTERN}")));
        let versions =
            dependencies.iter().filter(|(_, version)| !is_dependency_version(version)).map(|(name, _)| {
                InputProblem::value(at(name), "a version may have 128 letters, digits and .+!*-_~^<>=,| ")
            });
        let many = (dependencies.len() > MOST_DEPENDENCIES).then(|| {
            InputProblem::value([json!("dependencies")], format!("there may be {MOST_DEPENDENCIES} packages"))
        });
        let presets = (network_presets.len() > MOST_PRESETS).then(|| {
            InputProblem::value([json!("network_presets")], format!("there may be {MOST_PRESETS} presets"))
        });
        many.into_iter().chain(presets).chain(names).chain(versions).take(MOST_DEPENDENCIES).collect()
    }
}

impl Checked for ExecuteCode {
    fn wrongs(&self) -> Vec<InputProblem> {
        let Self { session_id, code, timeout: seconds } = self;
        let code = text(&[json!("code")], code, LONGEST_CODE);
        [session(session_id), code, timeout(*seconds)].into_iter().flatten().collect()
    }
}

impl Checked for ExecuteTerminal {
    fn wrongs(&self) -> Vec<InputProblem> {
        let Self { session_id, command, timeout: seconds } = self;
        let command = match command.trim().is_empty() {
            true => Some(InputProblem::value([json!("command")], "command must not be empty")),
            false => text(&[json!("command")], command, LONGEST_CODE),
        };
        [session(session_id), command, timeout(*seconds)].into_iter().flatten().collect()
    }
}

impl Checked for ImportFiles {
    fn wrongs(&self) -> Vec<InputProblem> {
        let Self { session_id, files } = self;
        let each = files.iter().enumerate().flat_map(|(n, file)| {
            let path = move |name: &str, path: &str| {
                text(&[json!("files"), json!(n), json!(name)], path, LONGEST_PATH)
            };
            match file {
                ImportFile::Host { source, destination: _ } => [path("source", source), None],
                ImportFile::Session { session_id, path: from, destination: _ } => {
                    [path("session_id", session_id), path("path", from)]
                }
                ImportFile::Inline { file_name, file_content: _, encoding: _ } => {
                    [path("file_name", file_name), None]
                }
                ImportFile::Unclear => {
                    [Some(InputProblem::value([json!("files"), json!(n)], ImportFile::FORMS)), None]
                }
            }
        });
        session(session_id)
            .into_iter()
            .chain(count(files.len()))
            .chain(each.flatten())
            .take(MOST_FILES)
            .collect()
    }
}

impl Checked for ExportFiles {
    fn wrongs(&self) -> Vec<InputProblem> {
        let Self { session_id, files } = self;
        let each = files.iter().enumerate().filter_map(|(n, file)| {
            text(&[json!("files"), json!(n), json!("source")], &file.source, LONGEST_PATH)
        });
        session(session_id).into_iter().chain(count(files.len())).chain(each).take(MOST_FILES).collect()
    }
}

impl Checked for StopSession {
    fn wrongs(&self) -> Vec<InputProblem> {
        session(&self.session_id).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::input::{Encoding, Runtime};

    fn wrong<T: Checked + std::fmt::Debug>(arguments: Value) -> Vec<(String, &'static str)> {
        let place = |wrong: InputProblem| {
            let loc: Vec<String> =
                wrong.loc.iter().map(|v| v.as_str().map_or(v.to_string(), str::to_owned)).collect();
            (loc.join("."), wrong.kind.as_str())
        };
        parse::<T>(arguments).unwrap_err().into_iter().map(place).collect()
    }

    #[test]
    fn a_language_has_two_names_and_a_default() {
        let language = |arguments| parse::<CreateSession>(arguments).unwrap().language;
        assert_eq!(language(json!({})), Runtime::Python);
        assert_eq!(language(Value::Null), Runtime::Python);
        assert_eq!(language(json!({ "runtime": "r" })), Runtime::R);
        assert_eq!(language(json!({ "language": "node", "dependencies": null })), Runtime::Node);
        assert_eq!(
            wrong::<CreateSession>(json!({ "language": "cobol" })),
            [("language".into(), "type_error")]
        );
        assert_eq!(wrong::<CreateSession>(json!([])).len(), 1);
    }

    #[test]
    fn an_option_or_a_command_is_no_dependency() {
        let found =
            wrong::<CreateSession>(json!({ "dependencies": { "--x": "", "ok": "$(id)", "fine": "" } }));
        assert_eq!(
            found,
            [("dependencies.--x".into(), "value_error"), ("dependencies.ok".into(), "value_error")]
        );
    }

    #[test]
    fn everything_that_is_wrong_is_named() {
        let all = wrong::<ExecuteCode>(json!({ "session_id": "", "code": "", "timeout": 301 }));
        assert_eq!(
            all.iter().map(|(loc, _)| loc.as_str()).collect::<Vec<_>>(),
            ["session_id", "code", "timeout"]
        );
        assert_eq!(wrong::<ExecuteCode>(json!({ "session_id": "x" })), [("code".into(), "missing")]);
        assert_eq!(
            wrong::<ExecuteCode>(json!({ "session_id": 7, "code": "1" })),
            [("session_id".into(), "type_error")]
        );
        for timeout in [json!(0), json!(-1), json!(1.5), json!(301), json!(1e30)] {
            let found = wrong::<ExecuteCode>(json!({ "session_id": "x", "code": "1", "timeout": timeout }));
            assert_eq!(found, [("timeout".into(), "value_error")], "{timeout}");
        }
        let timeout = |t: Value| {
            parse::<ExecuteCode>(json!({ "session_id": "x", "code": "1", "timeout": t })).unwrap().timeout
        };
        assert_eq!((timeout(json!(7.0)), timeout(Value::Null), timeout(json!(300))), (7, 30, 300));
        assert_eq!(
            wrong::<ExecuteTerminal>(json!({ "session_id": "x", "command": " \n" })),
            [("command".into(), "value_error")]
        );
    }

    #[test]
    fn numbers_and_lists_that_are_written_as_text_are_understood() {
        let code = |timeout: Value| {
            let arguments = json!({ "session_id": "x", "code": "7", "timeout": timeout });
            parse::<ExecuteCode>(arguments).map(|input| (input.code, input.timeout)).ok()
        };
        let seven = |timeout| Some(("7".to_owned(), timeout));
        assert_eq!((code(json!("30")), code(json!(" 7.0 "))), (seven(30), seven(7)));
        assert_eq!((code(json!("soon")), code(json!("301")), code(json!("[30]"))), (None, None, None));
        let list = json!([{ "source": "a" }]);
        for files in [list.clone(), json!(list.to_string()), list[0].clone(), json!(list[0].to_string())] {
            let arguments = json!({ "session_id": "x", "files": files });
            assert_eq!(parse::<ExportFiles>(arguments.clone()).unwrap().files[0].source, "a", "{arguments}");
            assert_eq!(parse::<ImportFiles>(arguments).unwrap().files.len(), 1);
        }
        let packages = json!({ "dependencies": "{\"pandas\": \"\"}", "network_presets": "[\"python\"]" });
        let input = parse::<CreateSession>(packages).unwrap();
        assert_eq!((input.dependencies.len(), input.network_presets), (1, vec!["python".to_owned()]));
        assert_eq!(
            wrong::<ExportFiles>(json!({ "session_id": "x", "files": "a" })),
            [("files".into(), "type_error")]
        );
    }

    #[test]
    fn an_import_is_one_of_three_kinds() {
        let files = |files: Value| parse::<ImportFiles>(json!({ "session_id": "x", "files": files }));
        let inline = files(json!([{ "file_name": "a", "file_content": "" }])).unwrap().files.remove(0);
        assert_eq!(
            inline,
            ImportFile::Inline {
                file_name: "a".into(),
                file_content: String::new(),
                encoding: Encoding::Text
            }
        );
        assert!(matches!(files(json!([{ "source": "a" }])).unwrap().files[0], ImportFile::Host { .. }));
        assert!(matches!(
            files(json!([{ "session_id": "b", "path": "p" }])).unwrap().files[0],
            ImportFile::Session { .. }
        ));
        let places = |items: Value| wrong::<ImportFiles>(json!({ "session_id": "x", "files": items }));
        assert_eq!(places(json!([])), [("files".into(), "value_error")]);
        assert_eq!(places(json!([{}])), [("files.0".into(), "value_error")]);
        assert_eq!(
            places(json!([{ "source": "a" }, { "source": "a", "path": "b" }])),
            [("files.1".into(), "value_error")]
        );
        assert_eq!(places(json!([{ "session_id": "b" }])), [("files.0".into(), "value_error")]);
        assert_eq!(
            places(json!([{ "source": "a" }, { "source": 1 }])),
            [("files.1.source".into(), "type_error")]
        );
        assert_eq!(
            places(json!([{ "file_name": "a", "file_content": "", "encoding": "rot13" }])),
            [("files.0.encoding".into(), "type_error")]
        );
    }
}
