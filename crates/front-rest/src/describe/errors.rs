//! The errors of the document: their two shapes, and which operation may answer with which.

use atoll_types::ErrorCode;
use serde_json::{Map, Value, json};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, Schema, schema::ObjectBuilder, schema::Type},
};

/// Every error but those of validation.
#[derive(ToSchema)]
#[schema(as = Error)]
#[allow(dead_code)] // Only described; `atoll_http` writes it.
pub(crate) struct ErrorBody {
    error: ErrorInfo,
}

/// What went wrong.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ErrorInfo {
    code: Code,
    /// For people.
    message: String,
    /// What else is known, by name: `field`, `retry_after_seconds`, `death`, `asked`, `allowed`, …
    details: Map<String, Value>,
}

/// The kind of an error.
struct Code;

impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        let names = ErrorCode::ALL.iter().map(|code| code.as_str());
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).into()
    }
}

impl ToSchema for Code {
    fn name() -> std::borrow::Cow<'static, str> {
        "ErrorCode".into()
    }
}

/// A request that is wrong, field by field.
#[derive(ToSchema)]
#[schema(as = ValidationError)]
#[allow(dead_code)]
pub(crate) struct ValidationBody {
    detail: Vec<ValidationDetail>,
}

/// One thing that is wrong.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct ValidationDetail {
    /// Where: `body`, `query`, `path` or `header`, and the names and indices that lead to what is wrong there.
    loc: Vec<LocationPart>,
    /// For people.
    msg: String,
    /// `value_error`, or `unsupported` for what this server cannot do.
    #[schema(rename = "type")]
    kind: String,
}

/// A name, or an index of a list.
#[derive(serde::Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum LocationPart {
    Name(String),
    Index(u64),
}

/// What decides which errors an operation may answer with.
struct Kind<'a> {
    path: &'a str,
    /// Whether a key is asked for.
    keyed: bool,
    body: bool,
    websocket: bool,
    /// Whether an `Idempotency-Key` makes it repeatable.
    repeatable: bool,
}

impl Kind<'_> {
    fn in_sandbox(&self) -> bool {
        self.path.starts_with("/api/v1/sandboxes/{id}/")
    }

    /// Whether a container of a sandbox may be asked or started for it.
    fn uses_container(&self) -> bool {
        let changes = self.body && matches!(self.path, "/api/v1/sandboxes" | "/api/v1/sandboxes/{id}");
        changes || self.in_sandbox()
    }

    /// Whether it works on the files of a sandbox, or starts something inside.
    fn writes(&self) -> bool {
        let last = self.path.strip_prefix("/api/v1/sandboxes/{id}/").unwrap_or_default();
        ["files", "fs", "exec", "run", "kernels", "dependencies", "terminal", "skills"]
            .iter()
            .any(|part| last.starts_with(part))
    }
}

impl Kind<'_> {
    /// Whether it makes or reads snapshots.
    fn keeps(&self) -> bool {
        let last = self.path.strip_prefix("/api/v1/sandboxes/{id}/").unwrap_or_default();
        last.starts_with("snapshots") || last == "fork"
    }
}

type Applies = fn(&Kind<'_>) -> bool;

/// Every status that can come, to which operations, and what it means.
const STATUSES: &[(u16, Applies, &str)] = &[
    (400, |k| k.writes(), "A path that leads out of its folder, or something that is no file or no folder"),
    (401, |k| k.keyed, "No key, or one that is not valid"),
    (403, |k| k.keyed, "The key, its tier or the owner's plan does not allow it"),
    (404, |k| k.path.contains('{'), "There is no such thing, or it is another owner's"),
    (
        409,
        |k| k.in_sandbox() || k.repeatable,
        "Not in the state that it needs: not running, in use, ended; or a request with the same key is under way",
    ),
    (413, |k| k.body, "The body is too large"),
    (422, |k| k.keyed, "A field, a parameter or a header is wrong"),
    (426, |k| k.websocket, "The request is no WebSocket"),
    (
        429,
        |k| k.keyed,
        "Too many requests, too many at a time, or no room; `Retry-After` says when to ask again",
    ),
    (500, |k| k.keyed, "A fault of the server; its log says which"),
    (
        501,
        |k| k.uses_container() || (k.body && k.path.starts_with("/api/v1/volumes")),
        "This server, image or language cannot do it",
    ),
    (502, |k| k.uses_container(), "What runs inside does not answer as it should"),
    (503, |_| true, "A part of the server does not answer at the moment"),
    (504, |k| k.uses_container(), "It took too long"),
    (507, |k| k.writes() || k.keeps(), "The sandbox's disk is full"),
];

fn content(path: &str, status: &str) -> Value {
    let shape = |shape: &str| json!({"$ref": format!("#/components/schemas/{shape}")});
    let schema = match status {
        // What is wrong with a package has a code of its own.
        "422" if path.starts_with("/api/v1/skills") => {
            json!({"anyOf": [shape("ValidationError"), shape("Error")]})
        }
        "422" => shape("ValidationError"),
        _ => shape("Error"),
    };
    json!({"application/json": {"schema": schema}})
}

/// Adds the errors that an operation does not name itself, and the shape of all of them.
pub(super) fn add(path: &str, operation: &mut Value) {
    // One way in beside the key is a way in for some callers only.
    let keyed = operation.get("security").and_then(Value::as_array).is_none_or(|ways| ways.len() > 1);
    let body = operation.get("requestBody").is_some();
    let repeatable = operation["parameters"]
        .as_array()
        .is_some_and(|all| all.iter().any(|parameter| parameter["name"] == "Idempotency-Key"));
    let Some(answers) = operation["responses"].as_object_mut() else { return };
    let kind = Kind { path, keyed, body, websocket: answers.contains_key("101"), repeatable };
    for (status, applies, meaning) in STATUSES {
        let status = status.to_string();
        if applies(&kind) && !answers.contains_key(&status) {
            answers.insert(status, json!({"description": meaning}));
        }
    }
    for (status, answer) in answers.iter_mut() {
        let number: u16 = status.parse().unwrap_or_default();
        if answer["description"].as_str().is_none_or(str::is_empty) {
            let known = STATUSES.iter().find(|(listed, ..)| *listed == number).map(|(_, _, text)| *text);
            answer["description"] = known.unwrap_or("As asked").into();
        }
        if number >= 400 && answer.get("content").is_none() {
            answer["content"] = content(path, status);
        }
        if number == 429 {
            let seconds = json!({"description": "Seconds to wait", "schema": {"type": "integer"}});
            answer["headers"] = json!({"Retry-After": seconds});
        }
    }
}
