//! A change of settings as a request has it: its place for each name of the core's, and seconds with fractions.

use atoll_core::RuntimeSettings;
use atoll_types::{Error, Result};
use serde_json::{Map, Value, json};

pub(super) const OWN: &str = "atoll";

/// Whether a name of the core's is in `atoll` here.
pub(super) fn is_own(name: &str) -> bool {
    RuntimeSettings::NAMES.contains(&name) && (name.contains('.') || matches!(name, "plans" | "owners"))
}

/// The body as the core's names. What it does not know keeps the whole of its own.
pub(super) fn flat(body: Map<String, Value>) -> Result<Map<String, Value>> {
    let object = |name: &str, value: Value| match value {
        Value::Object(map) => Ok(map),
        _ => Err(Error::invalid(name, format!("{name} must be an object"))),
    };
    let mut all = Map::new();
    for (name, value) in body {
        if name != OWN {
            // Ours are not found outside of their place.
            let name = if is_own(&name) { format!("{name} outside of {OWN}") } else { name };
            all.insert(name, value);
            continue;
        }
        for (group, value) in object(OWN, value)? {
            let whole = format!("{OWN}.{group}");
            if is_own(&group) {
                all.insert(group, value);
            } else if RuntimeSettings::NAMES.iter().any(|name| name.split('.').next() == Some(&group)) {
                for (name, value) in object(&whole, value)? {
                    let (known, name) = (format!("{group}.{name}"), format!("{whole}.{name}"));
                    all.insert(if is_own(&known) { known } else { name }, value);
                }
            } else {
                all.insert(whole, value);
            }
        }
    }
    Ok(all)
}

/// Whether a setting is whole seconds, of which a change may name a fraction.
fn is_seconds(name: &str, schema: &Value) -> bool {
    name.ends_with("seconds") && schema["type"] == "integer"
}

/// The changes with whole seconds: a fraction counts as a second more. What is below the least value is left for the
/// check to refuse.
pub(super) fn whole_seconds(mut changes: Map<String, Value>) -> Map<String, Value> {
    for (name, value) in &mut changes {
        let Some(seconds) = value.as_f64().filter(|seconds| value.is_f64() && *seconds > 0.0) else {
            continue;
        };
        let schema = RuntimeSettings::schema(name).unwrap_or_default();
        let fits = |least: f64, most: f64| (least..=most).contains(&seconds);
        if is_seconds(name, &schema)
            && let (Some(least), Some(most)) = (schema["minimum"].as_f64(), schema["maximum"].as_f64())
            && fits(least, most)
        {
            *value = (seconds.ceil() as i64).into();
        }
    }
    changes
}

/// The schema of whole seconds, with fractions.
fn with_fractions(mut schema: Value) -> Value {
    schema["type"] = "number".into();
    if schema["minimum"] == -1 {
        // Between never and the least there is nothing; null is no number.
        let above = if schema.get("not").is_some() { "maximum" } else { "exclusiveMaximum" };
        schema["not"] = json!({"type": "number", "exclusiveMinimum": -1, above: 0});
    }
    schema
}

/// What a change may say: the settings in the places of [`super::SettingsItem`].
pub(crate) fn schema() -> Value {
    let or_null = |mut of: Value| {
        let kind = of["type"].take();
        of["type"] = Value::Array(vec![kind, "null".into()]);
        if let Some(all) = of.get_mut("enum").and_then(Value::as_array_mut) {
            all.push(Value::Null);
        }
        of
    };
    let object = || json!({"type": "object", "additionalProperties": false, "properties": {}});
    let (mut all, mut own) = (object(), object());
    for name in RuntimeSettings::NAMES {
        let of = RuntimeSettings::schema(name).unwrap_or_default();
        let of = or_null(if is_seconds(name, &of) { with_fractions(of) } else { of });
        match (is_own(name), name.split_once('.')) {
            (true, Some((group, name))) => {
                if own["properties"].get(group).is_none() {
                    own["properties"][group] = object();
                }
                own["properties"][group]["properties"][name] = of;
            }
            (true, None) => own["properties"][*name] = of,
            (false, _) => all["properties"][*name] = of,
        }
    }
    all["properties"][OWN] = own;
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_fractions_between_their_bounds() {
        let read = |name: &str, value: Value| {
            whole_seconds(Map::from_iter([(name.to_owned(), value)]))[name].clone()
        };
        assert_eq!(read("idle_timeout_seconds", json!(30.5)), 31);
        assert_eq!(read("stopped_retention_seconds", json!(0.25)), 1);
        for (name, value) in [
            ("idle_timeout_seconds", json!(9.5)),
            ("idle_timeout_seconds", json!(-1.5)),
            ("idle_timeout_seconds", json!(2_592_000.5)),
            ("stopped_retention_seconds", json!(-0.5)),
            ("default_max_per_user", json!(2.5)),
            ("no_such_seconds", json!(2.5)),
        ] {
            assert_eq!(read(name, value.clone()), value, "{name}");
        }
        let all = schema();
        let retention = &all["properties"]["stopped_retention_seconds"];
        assert_eq!(retention["not"], json!({"type": "number", "exclusiveMinimum": -1, "maximum": 0}));
        assert_eq!(retention["type"], json!(["number", "null"]));
        assert_eq!(all["properties"]["idle_timeout_seconds"]["minimum"], 10);
    }

    #[test]
    fn a_body_is_read_into_the_cores_names() {
        let read = |body: Value| match body {
            Value::Object(map) => flat(map).map(Value::Object).map_err(|e| e.field.unwrap_or_default()),
            _ => unreachable!(),
        };
        let body = json!({"default_max_per_user": 4, "atoll": {"plan": {"disk_mb": 1}, "plans": {"a": {}}}});
        assert_eq!(read(body), Ok(json!({"default_max_per_user": 4, "plan.disk_mb": 1, "plans": {"a": {}}})));
        assert_eq!(read(json!({"atoll": {"plan": {"no": 1}, "tiers": 2}})), {
            Ok(json!({"atoll.plan.no": 1, "atoll.tiers": 2}))
        });
        assert_eq!(read(json!({"plan.disk_mb": 1})), Ok(json!({"plan.disk_mb outside of atoll": 1})));
        assert_eq!(read(json!({"atoll": 1})), Err("atoll".into()));
        assert_eq!(read(json!({"atoll": {"plan": 1}})), Err("atoll.plan".into()));
    }
}
