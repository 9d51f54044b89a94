//! Questions to a person, in the form that LangChain's clients show: one interrupt for all calls of a step, with an action
//! for each call and what may be decided about it. Their decisions become the agent's words.

use atoll_types::conversation::{Checkpoint, Interrupt};
use serde_json::{Value, json};

/// The interrupt of a checkpoint; none where nothing waits. Its id is that of the first question.
pub(crate) fn write(interrupts: &[Interrupt]) -> Option<Value> {
    let first = interrupts.first()?;
    let action = |interrupt: &Interrupt| {
        json!({ "name": interrupt.call.name, "args": interrupt.call.arguments, "description": interrupt.reason,
                "tool_call_id": interrupt.call.id })
    };
    let review = |interrupt: &Interrupt| json!({ "action_name": interrupt.call.name, "allowed_decisions": ["approve", "edit", "reject"] });
    let value = json!({
        "action_requests": interrupts.iter().map(action).collect::<Vec<_>>(),
        "review_configs": interrupts.iter().map(review).collect::<Vec<_>>(),
    });
    Some(json!({ "id": first.id, "value": value }))
}

/// The interrupts of a checkpoint as a list.
pub(crate) fn write_list(checkpoint: &Checkpoint) -> Value {
    write(&checkpoint.interrupts).into_iter().collect()
}

/// Decisions as the agent takes them: LangChain's become a list with one decision for each question; anything else
/// is passed on. `pending` is what the thread waits for: an answer may be wrapped by the id under which it was shown.
pub(crate) fn read(resume: Value, pending: &[Interrupt]) -> Value {
    let shown = pending.first().map(|first| first.id.as_str());
    let inner = shown.and_then(|id| resume.get(id)).cloned();
    let value = inner.unwrap_or(resume);
    if let Some(Value::Array(decisions)) = value.get("decisions") {
        return decisions.iter().map(decision).collect();
    }
    match value {
        Value::Array(list) => list.iter().map(decision).collect(),
        one => decision(&one),
    }
}

/// One decision; in the older form `args` has the action.
fn decision(value: &Value) -> Value {
    let Some(kind) = value.get("type").and_then(Value::as_str) else { return value.clone() };
    match kind {
        "approve" | "accept" => "approve".into(),
        "edit" => {
            let edited = ["edited_action", "args"].iter().find_map(|name| value.get(name));
            let action = edited.cloned().unwrap_or_default();
            let name = action.get("name").or(action.get("action")).and_then(Value::as_str);
            let args = action.get("args").filter(|_| name.is_some());
            match (name, args) {
                (Some(name), Some(args)) => json!({ "type": "edit", "name": name, "args": args }),
                _ => json!({ "type": "edit", "args": action }),
            }
        }
        "reject" | "refuse" | "ignore" | "response" => {
            let said = ["message", "args"].iter().find_map(|name| value.get(name)?.as_str());
            json!({ "type": "refuse", "message": said.unwrap_or_default() })
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_types::conversation::{InterruptKind, ToolCall};

    fn pending() -> Vec<Interrupt> {
        let call = |id: &str| ToolCall {
            id: id.into(),
            name: "execute_code".into(),
            arguments: json!({ "code": "1" }),
            broken: None,
            signature: None,
        };
        let one = |id: &str| Interrupt {
            id: format!("int-{id}"),
            kind: InterruptKind::ToolApproval,
            call: call(id),
            reason: "it writes".into(),
        };
        vec![one("a"), one("b")]
    }

    #[test]
    fn one_interrupt_asks_for_all_calls_of_a_step() {
        insta::assert_snapshot!(format!("{:#}", write(&pending()).unwrap()));
        assert_eq!(write(&[]), None);
    }

    #[test]
    fn decisions_of_every_client_are_the_agents_words() {
        let read = |value| read(value, &pending());
        let edit = json!({ "type": "edit", "args": { "code": "2" } });
        let named = json!({ "type": "edit", "name": "execute_code", "args": { "code": "2" } });
        for (resume, word) in [
            (json!(true), json!(true)),
            (json!("approve"), json!("approve")),
            (json!({ "type": "accept" }), json!("approve")),
            (json!([{ "type": "accept", "args": null }]), json!(["approve"])),
            (
                json!({ "decisions": [{ "type": "approve" }, { "type": "reject", "message": "no" }] }),
                json!(["approve", { "type": "refuse", "message": "no" }]),
            ),
            (
                json!({ "decisions": [{ "type": "edit", "edited_action": { "name": "execute_code", "args": { "code": "2" } } }] }),
                json!([named]),
            ),
            (
                json!([{ "type": "edit", "args": { "action": "execute_code", "args": { "code": "2" } } }]),
                json!([named]),
            ),
            (json!({ "type": "edit", "args": { "code": "2" } }), edit),
            (json!({ "int-a": { "decisions": [{ "type": "approve" }] } }), json!(["approve"])),
            (json!({ "int-b": "approve" }), json!({ "int-b": "approve" })),
        ] {
            assert_eq!(read(resume.clone()), word, "{resume}");
        }
    }
}
