//! Texts that are one of a closed set, as the code has them. A set that is open, or that grows with every
//! release (kinds of operations and events), is not here.

use atoll_core::{Language, image_specs::PackageManager};
use atoll_types::{
    ActivityKind, AutoSnapshot, BuildState, ImageOrigin, Profile, Scope, SkillSource, SnapshotKind, SortBy,
    Status, Tier,
    audit::Outcome,
    files::{EntryKind, FileAction},
};
use serde_json::{Map, Value, json};

type Names = fn() -> Vec<&'static str>;

pub(super) fn status_names() -> Vec<&'static str> {
    let mut names: Vec<&str> = Status::ALL.iter().copied().map(Status::shown).collect();
    names.dedup();
    names
}

fn languages() -> Vec<&'static str> {
    Language::ALL.iter().copied().map(Language::name).collect()
}

fn tiers() -> Vec<&'static str> {
    Tier::ALL.iter().map(|tier| tier.as_str()).collect()
}

fn scopes() -> Vec<&'static str> {
    Scope::ALL.iter().map(|scope| scope.as_str()).collect()
}

fn outcomes() -> Vec<&'static str> {
    Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect()
}

fn verdicts() -> Vec<&'static str> {
    vec!["allowed", "refused"]
}

fn changes() -> Vec<&'static str> {
    FileAction::ALL.iter().map(|action| action.as_str()).collect()
}

fn auto_snapshots() -> Vec<&'static str> {
    AutoSnapshot::ALL.iter().map(|when| when.as_str()).collect()
}

fn package_managers() -> Vec<&'static str> {
    PackageManager::ALL.iter().map(|manager| manager.as_str()).collect()
}

fn skill_sources() -> Vec<&'static str> {
    SkillSource::ALL.iter().map(|source| source.as_str()).collect()
}

fn entries() -> Vec<&'static str> {
    EntryKind::ALL.iter().map(|kind| kind.as_str()).collect()
}

/// By schema and property.
const PROPERTIES: &[(&str, &str, Names)] = &[
    ("ActivityItem", "kind", || ActivityKind::ALL.iter().map(|kind| kind.as_str()).collect()),
    ("AuditEnd", "outcome", outcomes),
    ("AuditFile", "action", changes),
    ("AuditKept", "encoding", || vec!["utf8", "base64"]),
    ("Build", "origin", || ImageOrigin::ALL.iter().map(|origin| origin.as_str()).collect()),
    ("Build", "status", || BuildState::ALL.iter().map(|state| state.as_str()).collect()),
    ("ChangedFile", "action", changes),
    ("CreateBody", "auto_snapshot", auto_snapshots),
    ("CreateBody", "profile", || Profile::BUILTIN.to_vec()),
    ("DependenciesBody", "language", || vec!["python", "node", "r"]),
    ("EgressItem", "verdict", verdicts),
    ("EgressPolicy", "mode", || vec!["none", "allowlist", "full"]),
    ("ExecItem", "status", || vec!["running", "ended"]),
    ("FileHistoryItem", "action", || vec!["created", "modified", "deleted", "unknown"]),
    ("ForkSandboxBody", "auto_snapshot", auto_snapshots),
    ("FileItem", "type", entries),
    ("FoundItem", "type", entries),
    ("Health", "status", || vec!["ok", "degraded"]),
    ("Image", "origin", || {
        std::iter::once("host").chain(ImageOrigin::ALL.iter().map(|origin| origin.as_str())).collect()
    }),
    ("Image", "status", || vec!["ready", "deleting"]),
    ("KernelItem", "language", languages),
    ("KernelItem", "status", || vec!["starting", "idle", "busy", "dead"]),
    ("KeyBody", "scope", scopes),
    ("KeyBody", "tier", tiers),
    ("KeyItem", "scope", scopes),
    ("LifecycleItem", "on_shutdown", || vec!["keep", "stop"]),
    ("PackageItem", "manager", package_managers),
    ("PackageVersion", "manager", || vec!["debian", "pip", "npm", "alpine"]),
    ("PatchBody", "auto_snapshot", auto_snapshots),
    ("RunBody", "language", languages),
    ("Sandbox", "auto_snapshot", auto_snapshots),
    ("Sandbox", "status", status_names),
    ("SessionItem", "runtime", || vec!["python", "node", "r"]),
    ("SessionItem", "status", || vec!["starting", "running", "dead"]),
    ("SkillItem", "source_type", skill_sources),
    ("SnapshotItem", "kind", || SnapshotKind::ALL.iter().map(|kind| kind.as_str()).collect()),
    ("StartBody", "language", languages),
    ("TierItem", "network", || vec!["none", "restricted", "full"]),
    ("WatchItem", "event", || {
        vec!["ready", "created", "modified", "deleted", "renamed", "overflow", "limit", "error"]
    }),
];

/// Query parameters, by operation.
const PARAMETERS: &[(&str, &str, Names)] = &[
    ("audit_list", "outcome", outcomes),
    ("audit_summary", "outcome", outcomes),
    ("egress_log", "verdict", verdicts),
    ("images_package_catalogue", "manager", package_managers),
    ("skills_list", "source_type", skill_sources),
    ("sandboxes_list", "sort_by", || SortBy::ALL.iter().map(|sort| sort.as_str()).collect()),
    ("sandboxes_list", "sort_order", || vec!["asc", "desc"]),
    ("admin_sandboxes", "sort_by", || SortBy::ALL.iter().map(|sort| sort.as_str()).collect()),
    ("admin_sandboxes", "sort_order", || vec!["asc", "desc"]),
];

fn is_nullable(schema: &Value) -> bool {
    schema["type"].as_array().is_some_and(|types| types.iter().any(|one| one == "null"))
}

/// Says what the properties of all schemas may be.
pub(super) fn close(schemas: &mut Map<String, Value>) {
    for (schema, property, names) in PROPERTIES {
        let Some(of) = schemas.get_mut(*schema).and_then(|of| of["properties"].get_mut(*property)) else {
            continue;
        };
        let mut allowed: Vec<Value> = names().into_iter().map(Value::from).collect();
        if is_nullable(of) {
            allowed.push(Value::Null);
        }
        of["enum"] = allowed.into();
    }
    for of in schemas.values_mut() {
        for (name, property) in of.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
        {
            let text =
                property["type"] == "string" || is_nullable(property) && property["type"][0] == "string";
            if text && (name == "at" || name.ends_with("_at")) {
                property["format"] = "date-time".into();
            }
        }
    }
    if let Some(file) = schemas.get_mut("SkillUpload").and_then(|of| of["properties"].get_mut("file")) {
        *file = json!({"type": "string", "format": "binary"});
    }
    // Files of a form are bytes.
    if let Some(files) = schemas.get_mut("UploadBody").and_then(|of| of["properties"].get_mut("files")) {
        *files = json!({"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}});
    }
}

/// Says what the parameters of an operation may be. A query has no null.
pub(super) fn close_parameters(operation: &mut Value) {
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        if parameter["required"] == false && is_nullable(&parameter["schema"]) {
            let types = parameter["schema"]["type"].as_array().cloned().unwrap_or_default();
            parameter["schema"]["type"] = types.into_iter().find(|one| one != "null").unwrap_or_default();
        }
        let set = PARAMETERS.iter().find(|(of, name, _)| *of == id && parameter["name"] == *name);
        if let Some((_, _, names)) = set {
            parameter["schema"]["enum"] = names().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_of_something_that_is_described() {
        let document: Value = serde_json::from_str(&crate::openapi()).unwrap();
        for (schema, property, _) in PROPERTIES {
            let of = &document["components"]["schemas"][schema]["properties"][property];
            assert!(of["enum"].is_array(), "{schema}.{property}");
        }
        let operations: Vec<&Value> = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|item| item.as_object().unwrap().values())
            .collect();
        for (id, name, _) in PARAMETERS {
            let operation = operations.iter().find(|of| of["operationId"] == *id).unwrap();
            let all = operation["parameters"].as_array().unwrap();
            let parameter = all.iter().find(|of| of["name"] == *name).unwrap();
            assert!(parameter["schema"]["enum"].is_array(), "{id} {name}");
        }
        let mut ids: Vec<&str> = operations.iter().map(|of| of["operationId"].as_str().unwrap()).collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all, "two operations of one name");
    }
}
