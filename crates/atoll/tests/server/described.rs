//! Every answer to a test has a status that the committed description of the API has for its operation.

use serde_json::Value;
use std::sync::LazyLock;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap());

/// Whether a path is one of a template's. Its last name takes slashes too where it is called `path`.
fn fits(template: &str, path: &str) -> bool {
    let (parts, asked): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    let many = template.ends_with("/{path}") && asked.len() > parts.len();
    (many || asked.len() == parts.len())
        && parts.iter().zip(asked).all(|(part, asked)| part.starts_with('{') || *part == asked)
}

/// Fails the test where an operation of the description answered with a status that it does not have there.
pub(crate) fn expect_described(method: &str, path: &str, status: u16) {
    let path = path.split('?').next().unwrap_or_default();
    let operations = DOCUMENT["paths"].as_object().unwrap().iter();
    let found = operations
        .filter(|(template, _)| fits(template, path))
        .filter_map(|(template, all)| Some((template, all.get(method.to_ascii_lowercase())?)))
        // As for the router, a text is nearer than a name.
        .min_by_key(|(template, _)| template.matches('{').count());
    let Some((template, operation)) = found else { return };
    // What answers there is a program inside a sandbox.
    let foreign = template.contains("/ports/{port}/");
    let described = operation["responses"].get(status.to_string()).is_some();
    assert!(foreign || described, "{method} {path}: docs/openapi.json has no {status} for {template}");
}
