//! The tools as clients list them: names, descriptions, schemas of input and output, and hints.

use crate::extra;
use atoll_tool_sessions::{Hints, describe};
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How a call fails as a whole; what is left out depends on why.
fn failure() -> Value {
    let session = json!({
        "type": "object",
        "properties": {
            "session_id": { "type": "string" },
            "runtime": { "type": "string" },
            "status": { "type": "string" },
        },
        "required": ["session_id", "runtime", "status"],
    });
    json!({
        "type": "object",
        "description": "The call failed as a whole.",
        "properties": {
            "success": { "const": false },
            "error": { "type": "string", "description": "INVALID_INPUT, CONTAINER_DIED: why, or a kind and a message." },
            "details": { "type": "array", "description": "Of INVALID_INPUT: what is wrong, and where.", "items": { "type": "object" } },
            "session_id": { "type": "string", "description": "Of CONTAINER_DIED: the session that is lost." },
            "hint": { "type": "string", "description": "What to do next." },
            "active_sessions": { "type": "array", "items": session },
        },
        "required": ["success", "error"],
    })
}

/// One schema for both ends of a call, because some clients hold a failure against it too.
pub(crate) fn either(mut answer: Map<String, Value>) -> Map<String, Value> {
    let mut both = Map::new();
    if let Some(dialect) = answer.remove("$schema") {
        both.insert("$schema".into(), dialect);
    }
    both.insert("type".into(), "object".into());
    both.insert("anyOf".into(), json!([answer, failure()]));
    both
}

/// A tool in the SDK's words.
pub(crate) fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input: Map<String, Value>,
    output: Map<String, Value>,
    hints: Hints,
) -> Tool {
    let Hints { read_only, destructive, idempotent, open_world } = hints;
    let annotations = ToolAnnotations::with_title(title)
        .read_only(read_only)
        .destructive(destructive)
        .idempotent(idempotent)
        .open_world(open_world);
    Tool::new(name, description, input)
        .with_title(title)
        .with_raw_output_schema(Arc::new(either(output)))
        .with_annotations(annotations)
}

/// Every tool that is offered: six, or with those beyond them.
pub(crate) fn all(with_extra: bool) -> Vec<Tool> {
    let six = describe().iter().map(|one| {
        tool(one.name, one.title, one.description, one.input.clone(), one.output.clone(), one.hints)
    });
    let more = with_extra.then(extra::tools).into_iter().flatten();
    six.chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_and_no_more_unless_it_is_set() {
        let names = |extra| -> Vec<String> { all(extra).iter().map(|tool| tool.name.to_string()).collect() };
        let six = names(false);
        assert_eq!(
            six,
            [
                "create_session",
                "execute_code",
                "execute_terminal",
                "import_files",
                "export_files",
                "stop_session"
            ]
        );
        assert!(names(true).len() > six.len() && names(true).starts_with(&six));
    }

    #[test]
    fn every_tool_says_what_goes_in_and_comes_out_and_what_it_does() {
        for tool in all(true) {
            assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
            let output = tool.output_schema.unwrap();
            assert_eq!(output["type"], "object", "{}", tool.name);
            assert_eq!(output["anyOf"].as_array().unwrap().len(), 2, "{}", tool.name);
            let annotations = tool.annotations.unwrap();
            assert!(annotations.destructive_hint.is_some() && annotations.open_world_hint.is_some());
            assert!(tool.title.is_some() && tool.description.unwrap().len() > 40, "{}", tool.name);
        }
    }
}
