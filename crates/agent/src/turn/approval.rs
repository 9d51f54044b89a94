//! Tools that need approval, and the decisions about them.

use atoll_tool_sessions::describe;
use atoll_types::{
    Error, Result, RunId,
    conversation::{ApprovalRule, Interrupt, InterruptKind, Message, ToolCall},
};
use serde_json::Value;

/// What a person says about a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Word {
    Approve,
    /// It is carried out with other arguments, and as another tool where one is named.
    Edit {
        name: Option<String>,
        arguments: Value,
    },
    Refuse(String),
}

/// The tools that change nothing in a session: one makes an empty one, the other copies files out.
const KEEPS: [&str; 2] = ["create_session", "export_files"];

/// Why a call needs a word; none where it needs none. A tool that does not exist needs none: it is not carried out.
fn reason(rule: ApprovalRule, call: &ToolCall) -> Option<&'static str> {
    let tool = describe().iter().find(|tool| tool.name == call.name)?;
    match rule {
        ApprovalRule::None => None,
        ApprovalRule::All => Some("every call of a tool needs your approval"),
        ApprovalRule::Write => (!KEEPS.contains(&tool.name)).then_some("it changes what is in a session"),
        ApprovalRule::Network => tool.hints.open_world.then_some("it may reach the network"),
    }
}

/// The questions about the calls of a message. Where one call needs a word, all calls of the message wait.
pub(super) fn questions(rule: ApprovalRule, run: RunId, message: &Message) -> Vec<Interrupt> {
    let ask = |call: &ToolCall| {
        reason(rule, call).map(|reason| Interrupt {
            id: atoll_core::repeatable_uuid(&["interrupt", &run.to_string(), &call.id]).simple().to_string(),
            kind: InterruptKind::ToolApproval,
            call: call.clone(),
            reason: reason.to_owned(),
        })
    };
    message.tool_calls().filter_map(ask).collect()
}

fn word(value: &Value) -> Word {
    let refused = |why: &str| Word::Refuse(why.to_owned());
    match value {
        Value::Bool(true) => Word::Approve,
        Value::String(text) => match text.to_lowercase().as_str() {
            "approve" | "accept" | "yes" | "y" | "true" => Word::Approve,
            "refuse" | "reject" | "no" | "n" | "false" | "" => refused(""),
            _ => refused(text),
        },
        Value::Object(fields) => match fields.get("type").and_then(Value::as_str) {
            Some("approve" | "accept") => Word::Approve,
            Some("edit") => Word::Edit {
                name: fields.get("name").and_then(Value::as_str).map(str::to_owned),
                arguments: fields.get("args").cloned().unwrap_or_default(),
            },
            _ => refused(fields.get("message").and_then(Value::as_str).unwrap_or_default()),
        },
        _ => refused(""),
    }
}

/// The decisions, one for each question in their order.
pub(crate) fn words(value: &Value, questions: &[Interrupt]) -> Result<Vec<Word>> {
    match value {
        Value::Array(list) if list.len() == questions.len() => Ok(list.iter().map(word).collect()),
        Value::Array(list) => {
            let message = format!("{} decisions for {} calls that wait", list.len(), questions.len());
            Err(Error::invalid("command.resume", message))
        }
        Value::Object(by_id) if questions.iter().any(|question| by_id.contains_key(&question.id)) => {
            let of = |question: &Interrupt| by_id.get(&question.id).map_or(Word::Refuse(String::new()), word);
            Ok(questions.iter().map(of).collect())
        }
        one => match word(one) {
            Word::Edit { .. } if questions.len() > 1 => {
                let message = format!(
                    "one edit for {} calls that wait; send a list with a decision for each",
                    questions.len()
                );
                Err(Error::invalid("command.resume", message))
            }
            word => Ok(vec![word; questions.len()]),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_types::conversation::{Block, Role};
    use serde_json::json;

    fn asked(rule: ApprovalRule) -> Vec<Interrupt> {
        let call = |id: &str, name: &str| {
            Block::ToolCall(ToolCall {
                id: id.into(),
                name: name.into(),
                arguments: json!({}),
                broken: None,
                signature: None,
            })
        };
        let calls = vec![call("1", "execute_code"), call("2", "export_files"), call("3", "no_such_tool")];
        questions(rule, RunId::from_uuid(uuid::Uuid::nil()), &Message::new("m", Role::Assistant, calls))
    }

    #[test]
    fn a_rule_says_which_tools_wait() {
        assert_eq!(asked(ApprovalRule::None).len(), 0);
        assert_eq!(asked(ApprovalRule::All).len(), 2, "a tool that does not exist is not asked about");
        let names = |rule| asked(rule).into_iter().map(|one| one.call.name).collect::<Vec<_>>();
        assert_eq!(names(ApprovalRule::Write), ["execute_code"], "an export only reads");
        assert_eq!(names(ApprovalRule::Network), ["execute_code"]);
    }

    #[test]
    fn words_are_given_to_questions() {
        let questions = asked(ApprovalRule::All);
        let edit = json!({ "type": "edit", "args": { "code": "2" } });
        assert_eq!(words(&json!(true), &questions).unwrap(), [Word::Approve, Word::Approve]);
        assert_eq!(
            words(&json!(["approve", edit]), &questions).unwrap(),
            [Word::Approve, Word::Edit { name: None, arguments: json!({ "code": "2" }) }]
        );
        let named = json!({ "type": "edit", "name": "execute_terminal", "args": {} });
        let name = Some("execute_terminal".to_owned());
        let renamed = Word::Edit { name, arguments: json!({}) };
        assert_eq!(words(&named, &questions[..1]).unwrap(), [renamed]);
        assert!(words(&named, &questions).is_err(), "one edit is no word for two calls");
        assert!(words(&json!(["approve"]), &questions).is_err());
        let by_id = json!({ questions[1].id.clone(): "approve" });
        assert_eq!(words(&by_id, &questions).unwrap(), [Word::Refuse(String::new()), Word::Approve]);
        assert_eq!(words(&json!("not now"), &questions).unwrap()[0], Word::Refuse("not now".into()));
    }
}
