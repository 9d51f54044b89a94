//! What the fields and parameters of requests may be, from the bounds that the checks are made of, so that
//! the document refuses what the server refuses.

use super::sets::status_names;
use crate::{
    audit::trail::OLDEST_DAYS, exec::signals, keys, sandboxes, settings, threads::MOST_FILES, usage,
};
use atoll_core::{
    EgressEntry, FILES_PER_PAGE, LARGEST_PAGE, Language, MAX_BACKGROUND_SECONDS, MAX_CELL_SECONDS,
    MAX_TIMEOUT_SECONDS, PoolSize, SAMPLES_KEPT, SKILL_SEARCH, SKILLS_PER_PAGE, bounds,
    image_specs::{MOST_LOCKED, PACKAGE_SEARCH, dockerfile::LONGEST_DOCKERFILE},
};
use atoll_tool_sessions::ThreadId;
use atoll_types::{
    ID_PATTERN, LONGEST_USER, READY_INTERVAL_MS, READY_TIMEOUT_SECONDS, SKILL_NAME_PATTERN, SkillName,
    TerminalSize, USER_PATTERN, text::TextRule,
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::ops::RangeInclusive;

type Facts = fn() -> Value;

/// A text by its rule.
fn text(rule: &TextRule) -> Value {
    let mut facts = json!({"pattern": rule.pattern()});
    if rule.least > 0 {
        facts["minLength"] = rule.least.into();
    }
    if rule.most < usize::MAX {
        facts["maxLength"] = rule.most.into();
    }
    facts
}

fn range<T: Serialize>(range: &RangeInclusive<T>) -> Value {
    json!({"minimum": range.start(), "maximum": range.end()})
}

fn map(most: usize, names: Value, values: Value) -> Value {
    let mut values = values;
    values["type"] = "string".into();
    json!({"maxProperties": most, "propertyNames": names, "additionalProperties": values})
}

fn idle() -> Value {
    range(&bounds::IDLE_SECONDS)
}

fn cores() -> Value {
    let of = |millis: &u32| f64::from(*millis) / 1000.0;
    json!({"minimum": of(bounds::CPU_MILLIS.start()), "maximum": of(bounds::CPU_MILLIS.end())})
}

fn seconds(most: u64) -> Value {
    json!({"minimum": bounds::LEAST_TIMEOUT, "maximum": most})
}

fn cell_seconds() -> Value {
    seconds(MAX_CELL_SECONDS)
}

fn token_seconds() -> Value {
    range(&bounds::TOKEN_SECONDS)
}

fn pool_size() -> Value {
    range(&(0..=PoolSize::MOST))
}

/// What is counted from 1 to a most.
fn up_to(most: impl Serialize) -> Value {
    json!({"minimum": 1, "maximum": most})
}

fn code() -> Value {
    text(&bounds::CODE)
}

fn directory() -> Value {
    text(&bounds::DIRECTORY)
}

fn command() -> Value {
    text(&bounds::COMMAND)
}

fn user() -> Value {
    json!({"maxLength": LONGEST_USER, "pattern": USER_PATTERN})
}

fn port() -> Value {
    range(&(0..=u16::MAX))
}

/// A path of a sandbox.
fn path() -> Value {
    json!({"minLength": 1, "maxLength": bounds::LONGEST_PATH, "pattern": bounds::path_pattern()})
}

/// A path that is attached or has a rule.
fn place() -> Value {
    json!({"maxLength": bounds::LONGEST_PLACE, "pattern": bounds::PLACE_PATTERN})
}

fn places() -> Value {
    json!({"maxItems": bounds::MOST_RULES})
}

fn volume_name() -> Value {
    json!({"maxLength": 64, "pattern": "^[a-z0-9][a-z0-9._-]*$"})
}

fn skill_name() -> Value {
    json!({"minLength": 1, "maxLength": SkillName::LONGEST, "pattern": SKILL_NAME_PATTERN})
}

fn skill_description() -> Value {
    json!({"minLength": 1, "maxLength": bounds::LONGEST_DESCRIPTION})
}

fn skill_md() -> Value {
    json!({"maxLength": bounds::LONGEST_SKILL_MD})
}

fn image_name() -> Value {
    json!({"maxLength": bounds::LONGEST_IMAGE_NAME, "pattern": bounds::IMAGE_NAME_PATTERN})
}

fn image_tag() -> Value {
    json!({"maxLength": bounds::LONGEST_TAG, "pattern": bounds::TAG_PATTERN})
}

/// A glob or a regular expression.
fn expression() -> Value {
    json!({"minLength": 1, "maxLength": bounds::LONGEST_PATTERN})
}

/// A time: RFC 3339, or milliseconds since 1970.
fn moment() -> Value {
    json!({"anyOf": [
        {"type": "string", "format": "date-time"}, {"type": "string", "pattern": "^-?[0-9]{1,15}$"},
    ]})
}

/// One or several statuses, separated by commas.
fn statuses() -> Value {
    let one = format!("(?:{})?", status_names().join("|"));
    json!({"pattern": format!("^{one}(?:,{one})*$")})
}

fn labels() -> Value {
    json!({"pattern": sandboxes::LABELS})
}

fn packages(name: &str, version: Value) -> Value {
    let names = json!({"maxLength": bounds::PACKAGE_NAME_LENGTH, "pattern": format!("^{name}$")});
    let mut facts = map(bounds::MOST_PACKAGES, names, version);
    facts["minProperties"] = 1.into();
    facts
}

fn version() -> Value {
    json!({"maxLength": bounds::PACKAGE_VERSION_LENGTH, "pattern": format!("^{}$", bounds::PACKAGE_VERSION)})
}

fn key_name() -> Value {
    text(&bounds::KEY_NAME)
}

/// That a field is given, and not as null.
fn given(field: &str, kind: &str) -> Value {
    json!({"required": [field], "properties": {field: {"type": kind}}})
}

/// One of two fields: whichever is given, the other is not.
fn either(one: (&str, &str), other: (&str, &str)) -> Value {
    let only = |(field, kind): (&str, &str), (absent, _): (&str, &str)| {
        let mut only = given(field, kind);
        only["properties"][absent] = json!({"type": "null"});
        only
    };
    json!({"allOf": [{"oneOf": [only(one, other), only(other, one)]}]})
}

/// A field with this value.
fn is(field: &str, value: impl Serialize) -> Value {
    json!({"required": [field], "properties": {field: {"const": value}}})
}

/// A command: a line or a program, and flags that go together.
fn exec() -> Value {
    let mut facts = either(("command", "string"), ("arguments", "array"));
    let without = |flags: Vec<Value>| json!({"not": {"anyOf": flags}});
    let long = json!({"required": ["timeout_seconds"], "properties": {
        "timeout_seconds": {"type": "number", "exclusiveMinimum": MAX_TIMEOUT_SECONDS},
    }});
    let (stream, background) = (is("stream", true), is("background", true));
    facts["not"] = json!({"anyOf": [
        {"allOf": [long, without(vec![background.clone()])]},
        {"allOf": [is("stdin_open", true), without(vec![stream.clone(), background.clone()])]},
        {"allOf": [is("lossless", true), without(vec![stream])]},
        {"allOf": [is("lossless", true), background]},
    ]});
    facts
}

/// What a mode of egress wants of the lists.
fn policy() -> Value {
    let empty = json!({"maxItems": 0});
    let some = json!({"minItems": 1});
    let mode = |mode: &str| json!({"const": mode});
    json!({"allOf": [{"anyOf": [
        {"properties": {"mode": mode("none"), "presets": empty, "allow": empty, "deny": empty}},
        {"required": ["mode", "allow"], "properties": {"mode": mode("allowlist"), "allow": some}},
        {"required": ["mode", "presets"], "properties": {"mode": mode("allowlist"), "presets": some}},
        is("mode", "full"),
    ]}]})
}

/// A create says one thing of the network.
fn network() -> Value {
    let open = json!({"required": ["mode"], "properties": {"mode": {"enum": ["allowlist", "full"]}}});
    let egress = |of: Value| json!({"required": ["egress"], "properties": {"egress": of}});
    let closed = json!({"type": "object", "not": open});
    json!({"not": {"anyOf": [
        {"allOf": [is("network_enabled", false), egress(open)]},
        {"allOf": [is("network_enabled", true), egress(closed)]},
    ]}})
}

/// Which packages there can be of which language; python's where none is named.
fn dependencies() -> Value {
    let of = |language: Value, packages: &str| {
        let packages = format!("#/components/schemas/{packages}");
        json!({"properties": {"language": language, "packages": {"$ref": packages}}})
    };
    let named = |language: Language, packages: &str| {
        let mut named = of(json!({"const": language.name()}), packages);
        named["required"] = json!(["language"]);
        named
    };
    json!({"allOf": [{"anyOf": [
        of(json!({"enum": [Language::Python.name(), null]}), "Packages"),
        named(Language::Node, "NodePackages"),
        named(Language::R, "RPackages"),
    ]}]})
}

/// By schema, and where in it: what requests may say, and what ids and ports in answers are.
const SCHEMAS: &[(&str, &str, Facts)] = &[
    ("Attachment", "/properties/name", volume_name),
    ("Attachment", "/properties/path", place),
    ("BulkBody", "", || either(("ids", "array"), ("filter", "object"))),
    ("BulkBody", "/properties/ids", || json!({"maxItems": bounds::MOST_AT_ONCE})),
    ("BulkFilter", "/properties/labels", labels),
    ("BulkFilter", "/properties/status", statuses),
    ("BuildBody", "/properties/cpu_cores", cores),
    ("BuildBody", "/properties/disk_mb", || range(&bounds::DISK_MB)),
    ("BuildBody", "/properties/dockerfile", || json!({"maxLength": LONGEST_DOCKERFILE})),
    ("BuildBody", "/properties/lock", || json!({"maxItems": MOST_LOCKED})),
    ("BuildBody", "/properties/memory_mb", || range(&bounds::MEMORY_MB)),
    ("BuildBody", "/properties/warm_pool_max", pool_size),
    ("BuildBody", "/properties/warm_pool_min", pool_size),
    ("CheckpointBody", "/properties/name", || text(&bounds::CHECKPOINT_NAME)),
    ("CleanupBody", "", || either(("before", "string"), ("older_than_days", "integer"))),
    ("CleanupBody", "/properties/before", moment),
    ("CleanupBody", "/properties/older_than_days", || range(&(0..=OLDEST_DAYS))),
    ("CompleteBody", "/properties/code", || text(&TextRule { least: 0, ..bounds::CODE })),
    ("CreateBody", "", network),
    ("CreateBody", "/properties/cpu_cores", cores),
    ("CreateBody", "/properties/disk_mb", || range(&bounds::DISK_MB)),
    ("CreateBody", "/properties/idle_timeout_seconds", idle),
    ("CreateBody", "/properties/image", || text(&bounds::IMAGE)),
    ("CreateBody", "/properties/max_lifetime_seconds", || range(&bounds::LIFETIME_SECONDS)),
    ("CreateBody", "/properties/memory_mb", || range(&bounds::MEMORY_MB)),
    ("CreateBody", "/properties/processes", || range(&bounds::PROCESSES)),
    ("CreateBody", "/properties/session_key", || text(&bounds::SESSION_KEY)),
    ("CreateBody", "/properties/tenant_id", || text(&bounds::TENANT_ID)),
    ("CreateBody", "/properties/volumes", || json!({"maxItems": bounds::MOST_VOLUMES})),
    ("DependenciesBody", "", dependencies),
    ("DependenciesBody", "/properties/timeout", || seconds(MAX_TIMEOUT_SECONDS)),
    (
        "EgressEntry",
        "/oneOf/0",
        || json!({"maxLength": EgressEntry::LONGEST, "pattern": EgressEntry::pattern()}),
    ),
    ("EgressEntry", "/oneOf/1", || json!({"additionalProperties": false})),
    ("EgressEntry", "/oneOf/1/properties/methods", || json!({"maxItems": EgressEntry::MOST_METHODS})),
    (
        "EgressEntry",
        "/oneOf/1/properties/methods/items",
        || json!({"pattern": EgressEntry::method_pattern()}),
    ),
    ("EgressEntry", "/oneOf/1/properties/paths", || json!({"maxItems": EgressEntry::MOST_PATHS})),
    (
        "EgressEntry",
        "/oneOf/1/properties/paths/items",
        || json!({"maxLength": EgressEntry::LONGEST_PATH, "pattern": EgressEntry::path_pattern()}),
    ),
    (
        "EgressEntry",
        "/oneOf/1/properties/to",
        || json!({"maxLength": EgressEntry::LONGEST, "pattern": EgressEntry::pattern()}),
    ),
    ("EgressItem", "/properties/port", port),
    (
        "EgressLimits",
        "/properties/connection_seconds",
        || json!({"exclusiveMinimum": 0, "maximum": u32::MAX}),
    ),
    ("EgressPolicy", "", policy),
    ("EgressPolicy", "/properties/allow", || json!({"maxItems": bounds::MOST_EGRESS_ENTRIES})),
    ("EgressPolicy", "/properties/deny", || json!({"maxItems": bounds::MOST_EGRESS_ENTRIES})),
    ("EgressPolicy", "/properties/presets", || json!({"maxItems": bounds::MOST_EGRESS_ENTRIES})),
    ("EgressTokenBody", "/properties/ttl_seconds", token_seconds),
    ("ExecBody", "", exec),
    ("ExecBody", "/properties/arguments", || json!({"minItems": 1})),
    ("ExecBody", "/properties/arguments/items", || text(&bounds::ARGUMENT)),
    ("ExecBody", "/properties/command", command),
    ("ExecBody", "/properties/timeout_seconds", || seconds(MAX_BACKGROUND_SECONDS)),
    ("ExecBody", "/properties/user", user),
    ("ExecBody", "/properties/working_directory", directory),
    ("ExecuteBody", "/properties/code", code),
    ("ExecuteBody", "/properties/timeout", cell_seconds),
    ("FileHistoryItem", "/properties/cell_id", id),
    ("FileHistoryItem", "/properties/exec_id", id),
    ("Filesystem", "/properties/blocked", places),
    ("Filesystem", "/properties/blocked/items", place),
    ("Filesystem", "/properties/read_only", places),
    ("Filesystem", "/properties/read_only/items", place),
    ("Filesystem", "/properties/read_write", places),
    ("Filesystem", "/properties/read_write/items", place),
    ("FindBody", "/properties/limit", || up_to(bounds::MOST_FOUND)),
    ("FindBody", "/properties/max_depth", || json!({"minimum": 1})),
    ("FindBody", "/properties/path", path),
    ("FindBody", "/properties/pattern", expression),
    ("ForkSandboxBody", "/properties/cpu_cores", cores),
    ("ForkSandboxBody", "/properties/disk_mb", || range(&bounds::DISK_MB)),
    ("ForkSandboxBody", "/properties/idle_timeout_seconds", idle),
    ("ForkSandboxBody", "/properties/max_lifetime_seconds", || range(&bounds::LIFETIME_SECONDS)),
    ("ForkSandboxBody", "/properties/memory_mb", || range(&bounds::MEMORY_MB)),
    ("ForkSandboxBody", "/properties/processes", || range(&bounds::PROCESSES)),
    ("GrepBody", "/properties/context", || json!({"maximum": bounds::MOST_CONTEXT})),
    ("GrepBody", "/properties/glob", expression),
    ("GrepBody", "/properties/max_file_size", || up_to(bounds::LARGEST_FILE)),
    ("GrepBody", "/properties/max_matches", || up_to(bounds::MOST_MATCHES)),
    ("GrepBody", "/properties/max_per_file", || up_to(bounds::MOST_MATCHES)),
    ("GrepBody", "/properties/path", path),
    ("GrepBody", "/properties/pattern", expression),
    ("ImagePatch", "/properties/cpu_cores", cores),
    ("ImagePatch", "/properties/description", || text(&bounds::IMAGE_DESCRIPTION)),
    ("ImagePatch", "/properties/disk_mb", || range(&bounds::DISK_MB)),
    ("ImagePatch", "/properties/display_name", || text(&bounds::IMAGE_DISPLAY_NAME)),
    ("ImagePatch", "/properties/memory_mb", || range(&bounds::MEMORY_MB)),
    ("ImagePatch", "/properties/name", image_name),
    ("ImagePatch", "/properties/tags", || json!({"maxItems": bounds::MOST_TAGS, "uniqueItems": true})),
    ("ImagePatch", "/properties/tags/items", image_tag),
    ("ImagePatch", "/properties/warm_pool_max", pool_size),
    ("ImagePatch", "/properties/warm_pool_min", pool_size),
    ("KeyBody", "/properties/expires_in_seconds", || range(&keys::EXPIRES_SECONDS)),
    ("KeyBody", "/properties/name", key_name),
    ("KeyBody", "/properties/owner", key_name),
    ("Labels", "", || map(bounds::MOST_LABELS, text(&bounds::LABEL_NAME), text(&bounds::LABEL_VALUE))),
    ("MkdirBody", "/properties/path", path),
    ("MoveBody", "/properties/from", path),
    ("MoveBody", "/properties/to", path),
    ("NodePackages", "", || packages(&bounds::scoped_package(), version())),
    ("Packages", "", || packages(&bounds::package_with_extras(), version())),
    ("PatchBody", "/properties/cpu_cores", cores),
    ("PatchBody", "/properties/disk_mb", || range(&bounds::DISK_MB)),
    ("PatchBody", "/properties/idle_timeout_seconds", idle),
    ("PatchBody", "/properties/memory_mb", || range(&bounds::MEMORY_MB)),
    (
        "InstallBody",
        "/properties/skill_ids",
        || json!({"minItems": 1, "maxItems": bounds::MOST_INSTALLED_AT_ONCE}),
    ),
    ("PatchBody", "/properties/volumes", || json!({"maxItems": bounds::MOST_VOLUMES})),
    ("PoolBody", "/properties/images", || {
        let size = json!({"$ref": "#/components/schemas/SizeBody"});
        json!({"propertyNames": text(&bounds::IMAGE), "additionalProperties": {"oneOf": [{"type": "null"}, size]}})
    }),
    ("PortItem", "/properties/port", port),
    ("PreviewTokenBody", "/properties/ttl_seconds", token_seconds),
    ("PullBody", "/properties/disk_mb", || range(&bounds::DISK_MB)),
    ("PullBody", "/properties/reference", || json!({"minLength": 1, "maxLength": 512})),
    ("PushBody", "/properties/reference", || json!({"minLength": 1, "maxLength": 512})),
    ("RPackages", "", || packages(bounds::PLAIN_PACKAGE, json!({"maxLength": 0}))),
    ("RefusedHost", "/properties/port", port),
    ("RemoveBody", "/properties/path", path),
    ("ResizeBody", "/properties/disk_mb", || range(&bounds::DISK_MB)),
    ("RunBody", "/properties/code", code),
    ("RunBody", "/properties/timeout", cell_seconds),
    ("SettingsBody", "", settings::schema),
    ("SignalName", "/oneOf/0", || json!({"pattern": signals::pattern()})),
    ("SignalName", "/oneOf/1", || range(&signals::NUMBERS)),
    ("SizeBody", "/properties/max", pool_size),
    ("SizeBody", "/properties/min", pool_size),
    ("SnapshotBody", "/properties/label", || text(&bounds::SNAPSHOT_LABEL)),
    ("SnapshotPatch", "/properties/label", || text(&bounds::SNAPSHOT_LABEL)),
    ("StartBody", "/properties/working_directory", directory),
    ("CellResult", "/properties/cell_id", id),
    ("CellResult", "/properties/kernel_id", id),
    ("CheckpointItem", "/properties/checkpoint_id", id),
    ("ExecItem", "/properties/exec_id", id),
    ("ExecResult", "/properties/exec_id", id),
    ("KernelItem", "/properties/cell_id", id),
    ("KernelItem", "/properties/kernel_id", id),
    ("KernelItem", "/properties/parent_id", id),
    ("UploadBody", "/properties/files", || json!({"maxItems": MOST_FILES})),
    ("TemplateBody", "/properties/ready_interval_ms", || range(&READY_INTERVAL_MS)),
    ("TemplateBody", "/properties/ready_timeout_seconds", || range(&READY_TIMEOUT_SECONDS)),
    ("Variables", "", || {
        map(bounds::MOST_VARIABLES, text(&bounds::VARIABLE_NAME), text(&bounds::VARIABLE_VALUE))
    }),
    ("SkillBody", "/properties/description", skill_description),
    ("SkillBody", "/properties/name", skill_name),
    ("SkillBody", "/properties/skill_md_content", skill_md),
    ("SkillChange", "/properties/description", skill_description),
    ("SkillChange", "/properties/name", skill_name),
    ("SkillChange", "/properties/skill_md_content", skill_md),
    ("VolumeBody", "/properties/disk_mb", || range(&bounds::DISK_MB)),
    ("VolumeBody", "/properties/name", volume_name),
];

/// Parameters, by the operation's name or the end of it.
const PARAMETERS: &[(&str, &str, Facts)] = &[
    ("admin_owners", "page", || range(&sandboxes::PAGES)),
    ("admin_owners", "page_size", || up_to(LARGEST_PAGE)),
    ("admin_sandboxes", "labels", labels),
    ("admin_sandboxes", "page", || range(&sandboxes::PAGES)),
    ("admin_sandboxes", "page_size", || up_to(bounds::SANDBOXES_PER_PAGE)),
    ("admin_sandboxes", "status", statuses),
    ("audit_list", "limit", || up_to(bounds::OPERATIONS_PER_PAGE)),
    ("audit_list", "since", moment),
    ("audit_list", "until", moment),
    ("audit_summary", "limit", || up_to(bounds::OPERATIONS_PER_PAGE)),
    ("audit_summary", "since", moment),
    ("audit_summary", "until", moment),
    ("audit_verify", "expect", || json!({"pattern": "^[0-9]{1,19}:[0-9a-f]{64}$"})),
    ("egress_log", "limit", || up_to(bounds::EGRESS_PER_PAGE)),
    ("events_events", "limit", || up_to(bounds::EVENTS_PER_PAGE)),
    ("exec_terminal", "cols", || range(&TerminalSize::SIDE)),
    ("exec_terminal", "command", command),
    ("exec_terminal", "cwd", directory),
    ("exec_terminal", "exec_id", id),
    ("exec_terminal", "rows", || range(&TerminalSize::SIDE)),
    ("exec_terminal", "user", user),
    ("files_download", "path", path),
    ("files_history", "limit", || up_to(bounds::OPERATIONS_PER_PAGE)),
    ("files_history", "path", path),
    ("files_list", "limit", || json!({"minimum": 1, "maximum": FILES_PER_PAGE, "default": FILES_PER_PAGE})),
    ("files_list", "path", path),
    ("files_pack", "path", path),
    (
        "files_pack",
        "prefix",
        || json!({"minLength": 1, "maxLength": bounds::LONGEST_PATH, "pattern": bounds::relative_pattern()}),
    ),
    ("files_stat", "path", path),
    ("files_unpack", "path", path),
    ("files_upload", "path", path),
    ("files_watch", "path", path),
    ("images_package_catalogue", "q", || text(&PACKAGE_SEARCH)),
    ("keys_list", "page", || range(&sandboxes::PAGES)),
    ("keys_list", "page_size", || up_to(LARGEST_PAGE)),
    ("sandboxes_activity", "limit", || up_to(bounds::SANDBOXES_PER_PAGE)),
    ("sandboxes_list", "labels", labels),
    ("sandboxes_list", "page", || range(&sandboxes::PAGES)),
    ("sandboxes_list", "page_size", || up_to(bounds::SANDBOXES_PER_PAGE)),
    ("sandboxes_list", "status", statuses),
    ("sandboxes_metrics", "limit", || range(&(0..=SAMPLES_KEPT))),
    ("sandboxes_metrics", "since", moment),
    ("sandboxes_usage", "ids", || json!({"pattern": usage::IDS})),
    ("sandboxes_usage", "limit", || range(&(0..=SAMPLES_KEPT))),
    ("skills_list", "limit", || up_to(SKILLS_PER_PAGE)),
    ("skills_list", "search", || text(&SKILL_SEARCH)),
    ("snapshots_diff", "to", || json!({"pattern": "^(?:now|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$"})),
    ("snapshots_list", "page", || range(&sandboxes::PAGES)),
    ("snapshots_list", "page_size", || up_to(bounds::SANDBOXES_PER_PAGE)),
    ("threads_download", "path", || json!({"minLength": 1, "maxLength": bounds::LONGEST_PATH})),
    ("volumes_list", "page", || range(&sandboxes::PAGES)),
    ("volumes_list", "page_size", || up_to(LARGEST_PAGE)),
];

/// An id that is not a UUID in its usual spelling.
fn id() -> Value {
    json!({"pattern": ID_PATTERN})
}

/// A thread, wherever it is named.
fn thread() -> Value {
    json!({"maxLength": ThreadId::LONGEST, "pattern": ThreadId::PATTERN})
}

fn add(to: &mut Value, facts: Value) {
    if let (Value::Object(to), Value::Object(facts)) = (to, facts) {
        // Each kind of text says of itself that it is one.
        if facts.contains_key("anyOf") && to.get("type").is_some_and(|kind| kind == "string") {
            to.remove("type");
        }
        to.extend(facts);
    }
}

/// Says what the fields of requests may be.
pub(super) fn bind(schemas: &mut Map<String, Value>) {
    for (name, place, facts) in SCHEMAS {
        if let Some(of) = schemas.get_mut(*name).and_then(|of| of.pointer_mut(place)) {
            add(of, facts());
        }
    }
}

/// Says what the parameters of an operation may be.
pub(super) fn bind_parameters(operation: &mut Value) {
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let bound = PARAMETERS.iter().find(|(of, name, _)| *of == id && parameter["name"] == *name);
        if let Some((_, _, facts)) = bound {
            add(&mut parameter["schema"], facts());
        }
        if parameter["name"] == "thread_id" {
            add(&mut parameter["schema"], thread());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_is_of_something_that_is_described() {
        let document: Value = serde_json::from_str(&crate::openapi()).unwrap();
        for (name, place, facts) in SCHEMAS {
            let of = document["components"]["schemas"][name].pointer(place);
            for (keyword, value) in facts().as_object().unwrap() {
                assert_eq!(of.and_then(|of| of.get(keyword)), Some(value), "{name}{place} {keyword}");
            }
        }
        let paths = document["paths"].as_object().unwrap().values();
        let operations: Vec<&Value> = paths.flat_map(|item| item.as_object().unwrap().values()).collect();
        for (id, name, facts) in PARAMETERS {
            let operation = operations.iter().find(|of| of["operationId"] == *id).unwrap();
            let all = operation["parameters"].as_array().unwrap();
            let parameter = all.iter().find(|of| of["name"] == *name).unwrap();
            for (keyword, value) in facts().as_object().unwrap() {
                assert_eq!(parameter["schema"].get(keyword), Some(value), "{id} {name} {keyword}");
            }
        }
    }
}
