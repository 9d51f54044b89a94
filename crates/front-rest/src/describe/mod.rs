//! What the document has that no handler can say of itself: unique names of operations, the errors that any
//! of them may answer with, closed sets of texts, binary bodies, and which bodies may be left out.

mod bounds;
mod errors;
mod sets;

pub(crate) use errors::{ErrorBody, ValidationBody};
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

/// The sections of the document, in the order in which a reader needs them.
const TAGS: &[(&str, &str)] = &[
    ("sandboxes", "Making, looking at, changing, stopping and ending sandboxes."),
    ("snapshots", "A sandbox's files as they were: kept, compared, returned to, and made a sandbox of."),
    ("exec", "Commands and terminals."),
    ("files", "Files and folders of a sandbox."),
    ("skills", "Packages of instructions and files for agents."),
    ("images", "Root filesystems of sandboxes, and what they are built of."),
    ("kernels", "Live interpreters that keep their variables, and packages for them."),
    ("preview", "Servers inside a sandbox, seen from outside."),
    ("egress", "What sandboxes may reach."),
    ("events", "What happens to sandboxes, as it happens."),
    ("threads", "The six tools for a model, by plain HTTP."),
    ("keys", "API keys."),
    ("admin", "Sandboxes of all owners, for admins."),
    ("settings", "Settings of the whole server, for admins."),
    ("pool", "Sandboxes that are kept ready, for admins."),
    ("audit", "Who did what."),
    ("server", "The server itself."),
];

/// Operations whose body counts even though each of its fields may be left out: without one nothing is
/// changed and the request is refused.
const NEEDS_BODY: &[&str] = &["egress_put", "exec_exec", "admin_bulk_stop"];

/// Operations that are carried out once for each `Idempotency-Key`.
const REPEATABLE: &[&str] = &[
    "exec_exec",
    "images_build_image",
    "images_pull",
    "kernels_execute",
    "kernels_run",
    "keys_create",
    "sandboxes_create",
    "sandboxes_import",
    "skills_create",
    "snapshots_create",
    "snapshots_fork",
    "snapshots_rollback",
    "volumes_create",
];

/// Adds the header of an operation that may be repeated.
fn repeatable(operation: &mut Value) {
    if !operation["operationId"].as_str().is_some_and(|id| REPEATABLE.contains(&id)) {
        return;
    }
    let header = json!({
        "name": "Idempotency-Key", "in": "header", "required": false,
        "description": "A name of this request, of the caller's choice: however often it is sent, it is carried out once.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    });
    match operation["parameters"].as_array_mut() {
        Some(parameters) => parameters.push(header),
        None => operation["parameters"] = json!([header]),
    }
}

/// The whole document.
pub(crate) fn finish(document: &OpenApi) -> Value {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    document["tags"] = TAGS.iter().map(|(name, text)| json!({"name": name, "description": text})).collect();
    let schemas = document["components"]["schemas"].take();
    let mut schemas = match schemas {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    sets::close(&mut schemas);
    bounds::bind(&mut schemas);
    let Value::Object(paths) = document["paths"].take() else { return document };
    let mut named = Map::new();
    for (path, mut item) in paths {
        // The router's `{*path}` takes slashes too; OpenAPI has no word for that.
        let path = path.replace("{*", "{");
        for operation in item.as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
            name(operation);
            repeatable(operation);
            bodies(operation, &schemas);
            sets::close_parameters(operation);
            bounds::bind_parameters(operation);
            errors::add(&path, operation);
        }
        named.insert(path, item);
    }
    document["paths"] = named.into();
    document["components"]["schemas"] = schemas.into();
    plain(&mut document);
    document
}

/// What a number of a format may be, signed and not.
const WIDTHS: &[(&str, (i64, i64), u64)] = &[
    ("int32", (i32::MIN as i64, i32::MAX as i64), u32::MAX as u64),
    ("int64", (i64::MIN, i64::MAX), u64::MAX),
];

/// Unsigned numbers reach beyond the signed formats that the macros give them, so all say their bounds; and a
/// default of null would make a field one that must be there for some generators.
fn plain(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let unsigned = map.get("minimum").and_then(Value::as_f64).is_some_and(|least| least >= 0.0);
            let width = WIDTHS.iter().find(|(format, ..)| map.get("format").is_some_and(|of| of == format));
            if let Some((_, (least, most), most_unsigned)) = width {
                let most = if unsigned { json!(most_unsigned) } else { json!(most) };
                map.entry("maximum").or_insert(most);
                map.entry("minimum").or_insert(json!(least));
                if unsigned {
                    map.remove("format");
                }
            }
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            map.values_mut().for_each(plain);
        }
        Value::Array(all) => all.iter_mut().for_each(plain),
        _ => {}
    }
}

/// A function's name, with its section in front: `sandboxes_create`.
fn name(operation: &mut Value) {
    let tag = operation["tags"][0].as_str().unwrap_or("other").to_owned();
    let id = operation["operationId"].as_str().unwrap_or_default();
    // Figures are given without a key to this machine itself.
    if (tag.as_str(), id) == ("server", "metrics") {
        operation["security"] = json!([{}, {"key": []}]);
    }
    let id = operation["operationId"].as_str().unwrap_or_default();
    if !id.starts_with(&format!("{tag}_")) {
        operation["operationId"] = format!("{tag}_{id}").into();
    }
}

fn is_binary(media_type: &str) -> bool {
    matches!(media_type, "application/octet-stream" | "application/x-tar" | "application/zip")
}

fn binary(content: &mut Value) {
    for (media_type, of) in content.as_object_mut().into_iter().flatten() {
        if is_binary(media_type) {
            of["schema"] = json!({"type": "string", "format": "binary"});
        }
        // Each event has a shape of its own, which the operation's description gives.
        if media_type == "text/event-stream" {
            of["schema"] = json!({});
        }
    }
}

/// Bytes are bytes and not lists of numbers, and a body without a field that must be there may be left out.
fn bodies(operation: &mut Value, schemas: &Map<String, Value>) {
    for answer in operation["responses"].as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
        if answer.get("content").is_some() {
            binary(&mut answer["content"]);
        }
    }
    let needs = operation["operationId"].as_str().is_some_and(|id| NEEDS_BODY.contains(&id));
    let Some(body) = operation.get_mut("requestBody") else { return };
    binary(&mut body["content"]);
    if let Some(json) = body["content"].get_mut("application/json") {
        // `Option<T>` says null too, which a body is not.
        if let Some(of) = json["schema"]["oneOf"].as_array().and_then(|all| all.last()).cloned() {
            json["schema"] = of;
        }
        let reference = json["schema"]["$ref"].as_str().and_then(|r| r.rsplit('/').next());
        let required = reference.and_then(|name| schemas.get(name)?.get("required")).is_some();
        body["required"] = (required || needs).into();
    } else {
        // A file may be empty, a form may not.
        let form = body["content"].get("multipart/form-data").is_some();
        body["required"] = form.into();
    }
}
