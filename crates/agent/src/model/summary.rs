//! What stands for old work of tools where the model's window has no room for all of it. A result becomes a summary of itself:
//! the facts that are short stay as they are, and a long text becomes its beginning, the lines of its middle that say what
//! went wrong, its end and how much is left out; beside them the command's ids and the files that it changed. Where that is
//! not enough, steps are folded: each becomes one line below the result of the first one.
//!
//! A summary is made of the call and its result alone. No model is asked for it: it costs nothing, is the same each time, and
//! hostile output cannot have it say what did not happen. It stays the result of a tool, so nothing that a tool printed
//! comes to stand among the words of a person.

use atoll_types::{
    conversation::{Block, Message, ToolCall, ToolCallStatus, ToolResult},
    text::cut,
};
use serde_json::{Map, Value, json};
use std::{collections::HashMap, sync::Arc};

/// How many values of an old list stay.
const LISTED: usize = 16;
/// Changed files that a summary names.
const FILES: usize = 16;
/// The note about what was left out, about.
const NOTE: usize = 160;
/// The longest line of the middle that stays, in bytes.
const LONGEST_LINE: usize = 200;
/// What a line says that matters, in lower case.
const NOTABLE: [&str; 10] = [
    "error",
    "fail",
    "exception",
    "traceback",
    "panic",
    "fatal",
    "denied",
    "not found",
    "no such",
    "warning",
];
/// Bytes of the lines of one fold; of more the oldest are counted.
const FOLD: usize = 8 << 10;
/// Parts of such a line, in bytes.
const ARGUMENTS: usize = 160;
const ENDING: usize = 80;
/// Where the lines of folded steps stand in the value of a result.
const FOLDED: &str = "later_steps";
/// How many there were that have no line any more.
const UNTOLD: &str = "later_steps_left_out";

/// The lines of a text that say what went wrong, each once, in so many bytes.
fn notable(text: &str, most: usize) -> Vec<&str> {
    let (mut found, mut used): (Vec<&str>, usize) = (Vec::new(), 0);
    for line in text.lines().map(str::trim) {
        let line = cut(line, LONGEST_LINE);
        let lower = line.to_ascii_lowercase();
        if !NOTABLE.iter().any(|word| lower.contains(word)) || found.contains(&line) {
            continue;
        }
        used += line.len() + 1;
        if used > most {
            break;
        }
        found.push(line);
    }
    found
}

/// A long text as its beginning, its notable lines and its end: about so many bytes.
pub(super) fn condense(text: &mut String, kept: usize) {
    if text.len() <= kept + NOTE {
        return;
    }
    let begin = cut(text, kept / 3);
    let from = (text.len() - kept / 3..text.len()).find(|at| text.is_char_boundary(*at));
    let from = from.unwrap_or(text.len());
    let (middle, end) = (&text[begin.len()..from], &text[from..]);
    let lines = notable(middle, kept / 3);
    let told = match lines.is_empty() {
        true => String::new(),
        false => format!("; lines of it:\n{}\n", lines.join("\n")),
    };
    *text = format!(
        "{begin}… [{} of {} bytes and {} lines of old output were left out{told}] …{end}",
        middle.len(),
        text.len(),
        text.lines().count(),
    );
}

/// Every long text and list of a value, condensed.
pub(super) fn shorten(value: &mut Value, kept: usize) {
    match value {
        Value::String(text) => condense(text, kept),
        Value::Array(all) => {
            let left = all.len().saturating_sub(LISTED);
            all.truncate(LISTED);
            all.iter_mut().for_each(|value| shorten(value, kept));
            if left > 0 {
                all.push(format!("[{left} more values of old output were left out]").into());
            }
        }
        Value::Object(all) => all.values_mut().for_each(|value| shorten(value, kept)),
        _ => {}
    }
}

/// A result as a summary of itself.
pub(super) fn summarise(result: &mut ToolResult, kept: usize) {
    let (before, facts) = (result.value.to_string().len(), facts(result));
    shorten(&mut result.value, kept);
    if result.value.to_string().len() < before
        && let Value::Object(value) = &mut result.value
    {
        value.insert("summary_of".into(), facts.into());
    }
    result.pictures.clear();
}

/// What is known of a result beside its value.
fn facts(result: &ToolResult) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("tool".into(), result.name.as_str().into());
    facts.insert("duration_ms".into(), result.duration_ms.into());
    facts.extend(result.exec.map(|id| ("exec_id".to_owned(), id.to_string().into())));
    facts.extend(result.cell.map(|id| ("cell_id".to_owned(), id.to_string().into())));
    facts.extend(result.sandbox.map(|id| ("sandbox_id".to_owned(), id.to_string().into())));
    if !result.pictures.is_empty() {
        facts.insert("pictures".into(), result.pictures.len().into());
    }
    let files = files(result);
    if !files.is_empty() {
        facts.insert("files_changed".into(), files.into());
    }
    facts
}

/// The files that a result changed, and how.
fn files(result: &ToolResult) -> Vec<String> {
    let Some(changed) = &result.changed else { return Vec::new() };
    let action = |file: &atoll_types::files::FileChange| {
        let action = json!(file.action);
        format!("{} {}", action.as_str().unwrap_or_default(), cut(&file.path, LONGEST_LINE))
    };
    let mut told: Vec<String> = changed.files.iter().take(FILES).map(action).collect();
    if changed.truncated || changed.files.len() > FILES {
        told.push("and more".into());
    }
    told
}

/// A step as one line: what was called, and what came of it.
fn line(call: &ToolCall, result: Option<&ToolResult>) -> String {
    let arguments = call.arguments.to_string();
    let cut_short = if arguments.len() > ARGUMENTS { "…" } else { "" };
    let mut text = format!("{} {}{cut_short}", call.name, cut(&arguments, ARGUMENTS));
    let Some(result) = result else { return text + ": cancelled before it had a result" };
    text += &match (result.value["exit_code"].as_i64(), result.status) {
        (Some(code), _) => format!(": exit code {code}"),
        (None, ToolCallStatus::Error) => ": failed".into(),
        (None, _) if result.value["success"] == false => ": no success".into(),
        (None, _) => ": success".into(),
    };
    let error = &result.value["error"];
    if let Some(error) = error.as_str().or_else(|| error["message"].as_str()) {
        text += &format!("; error {:?}", cut(error, ENDING * 2));
    }
    if let Some(session) = result.value["session_id"].as_str() {
        text += &format!("; session_id {session}");
    }
    for name in ["stdout", "stderr"] {
        let Some(output) = result.value[name].as_str().filter(|output| !output.is_empty()) else { continue };
        let last = || output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let shown = match notable(output, LONGEST_LINE).first() {
            Some(line) => format!("among it {:?}", cut(line, ENDING)),
            None => format!("at its end {:?}", cut(last(), ENDING)),
        };
        text += &format!("; {name} of {} bytes, {shown}", output.len());
    }
    let id =
        result.exec.map(|id| format!("exec {id}")).or_else(|| result.cell.map(|id| format!("cell {id}")));
    text.extend(id.map(|id| format!("; {id}")));
    let files = files(result);
    if !files.is_empty() {
        text += &format!("; {}", cut(&files.join(", "), LONGEST_LINE));
    }
    text
}

/// The results of a conversation as they are, by their calls.
pub(super) type Results<'a> = HashMap<&'a str, &'a ToolResult>;

/// Folds the steps of some messages, of which each begins with one that calls tools, into the first of them. The lines are
/// made of the results as they are, and not of what is left of them.
pub(super) fn fold(steps: &[Arc<Message>], results: &Results<'_>) -> Vec<Arc<Message>> {
    let is_call = |message: &Arc<Message>| message.tool_calls().next().is_some();
    let first = 1 + steps.iter().skip(1).position(is_call).unwrap_or(steps.len().saturating_sub(1));
    let (head, rest) = steps.split_at(first.min(steps.len()));
    let mut head = head.to_vec();
    let mut lines = Vec::new();
    for message in rest.iter().filter(|message| is_call(message)) {
        let said = message.plain_text();
        if !said.trim().is_empty() {
            lines.push(format!("you said {:?}", cut(said.trim(), LONGEST_LINE)));
        }
        lines.extend(message.tool_calls().map(|call| line(call, results.get(call.id.as_str()).copied())));
    }
    if let Some(message) = head.last_mut()
        && !lines.is_empty()
    {
        let mut folded = Message::clone(message);
        let result = folded.content.iter_mut().find_map(|block| match block {
            Block::ToolResult(result) => Some(result),
            _ => None,
        });
        if let Some(result) = result {
            add_lines(result, lines);
            *message = Arc::new(folded);
            return head;
        }
    }
    // The first step has no result to which the others could be added.
    steps.to_vec()
}

/// Whether other steps were folded into this message.
pub(super) fn is_folded(message: &Message) -> bool {
    message.tool_result().is_some_and(|result| result.value.get(FOLDED).is_some())
}

fn add_lines(result: &mut ToolResult, lines: Vec<String>) {
    let mut value = match result.value.take() {
        Value::Object(value) => value,
        other => Map::from_iter([("result".to_owned(), other)]),
    };
    let mut all = match value.remove(FOLDED) {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    all.extend(lines.into_iter().map(Value::from));
    let untold = value.get(UNTOLD).and_then(Value::as_u64).unwrap_or(0);
    let size = |line: &Value| line.as_str().map_or(0, str::len);
    let mut used = 0;
    let kept = all.iter().rev().take_while(|line| {
        used += size(line);
        used <= FOLD
    });
    let left = all.len() - kept.count();
    all.drain(..left);
    if left > 0 {
        value.insert(UNTOLD.into(), (untold + left as u64).into());
    }
    value.insert(
        "summary".into(),
        "the steps after this one, one line each; their output was left out".into(),
    );
    value.insert(FOLDED.into(), all.into());
    result.value = value.into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_types::{
        ExecId,
        conversation::Role,
        files::{Changed, FileAction, FileChange},
    };

    fn result(id: &str, value: Value) -> ToolResult {
        ToolResult {
            call: id.into(),
            name: "execute_terminal".into(),
            status: ToolCallStatus::Success,
            value,
            pictures: Vec::new(),
            sandbox: None,
            exec: None,
            cell: None,
            operations: Vec::new(),
            egress: Vec::new(),
            changed: None,
            asked: None,
            duration_ms: 7,
        }
    }

    #[test]
    fn what_is_left_out_is_said_and_errors_stay() {
        let middle = format!("{}\nsrc/a.rs:7: error: no such type\n{}", "x".repeat(4000), "y".repeat(4000));
        let mut value = json!({
            "exit_code": 1,
            "stderr": format!("begin{middle}ValueError: the end"),
            "files": (0..40).collect::<Vec<_>>(),
        });
        shorten(&mut value, 1000);
        let text = value["stderr"].as_str().unwrap();
        assert!(text.starts_with("begin") && text.ends_with("ValueError: the end"), "{text}");
        assert!(text.contains("\nsrc/a.rs:7: error: no such type\n") && text.len() < 1200, "{text}");
        assert!(text.contains("and 3 lines of old output were left out"), "{text}");
        assert_eq!(value["exit_code"], 1);
        assert_eq!(value["files"].as_array().unwrap().len(), LISTED + 1);
        assert_eq!(value["files"][LISTED], "[24 more values of old output were left out]");
        let mut wide = "€".repeat(2000);
        condense(&mut wide, 1000);
        assert!(wide.contains("left out") && !wide.contains('\u{fffd}'), "on the borders of characters");
    }

    #[test]
    fn a_summary_names_the_command_and_the_files_that_it_changed() {
        let change = |path: String| FileChange { path, action: FileAction::Created, size_bytes: 1 };
        let files = (0..FILES + 1).map(|number| change(format!("f{number}"))).collect();
        let exec = ExecId::random();
        let mut one = ToolResult {
            exec: Some(exec),
            changed: Some(Changed { files, truncated: false }),
            ..result("a", json!({ "exit_code": 3, "stdout": "x".repeat(9000) }))
        };
        summarise(&mut one, 250);
        let about = &one.value["summary_of"];
        assert_eq!((&about["tool"], &about["duration_ms"]), (&json!("execute_terminal"), &json!(7)));
        assert_eq!((&about["exec_id"], &one.value["exit_code"]), (&json!(exec.to_string()), &json!(3)));
        assert_eq!(about["files_changed"][0], "created f0");
        assert_eq!(about["files_changed"][FILES], "and more");
        let mut small = result("b", json!({ "exit_code": 0, "stdout": "x" }));
        summarise(&mut small, 250);
        assert_eq!(small.value, json!({ "exit_code": 0, "stdout": "x" }), "what is short is its own summary");
    }

    fn step(id: &str, arguments: Value, value: Value) -> [Arc<Message>; 2] {
        let name = "execute_terminal".to_owned();
        let call = ToolCall { id: id.into(), name, arguments, broken: None, signature: None };
        [
            Arc::new(Message::new(format!("call-{id}"), Role::Assistant, vec![Block::ToolCall(call)])),
            Arc::new(Message::new(id, Role::Tool, vec![Block::ToolResult(result(id, value))])),
        ]
    }

    #[test]
    fn steps_are_folded_into_the_result_of_the_first() {
        let first = step("a", json!({ "command": "one" }), json!({ "exit_code": 0, "stdout": "1" }));
        let second = step(
            "b",
            json!({ "command": "make" }),
            json!({ "exit_code": 2, "stdout": "many\nlines\n", "stderr": "" }),
        );
        let third =
            step("c", json!({ "language": "r" }), json!({ "success": false, "error": "NotFound: no R" }));
        let all: Vec<_> = [first, second, third].concat();
        let results = all.iter().filter_map(|message| message.tool_result());
        let results: Results<'_> = results.map(|result| (result.call.as_str(), result)).collect();
        let folded = fold(&all, &results);
        assert_eq!(folded.len(), 2);
        assert!(is_folded(&folded[1]) && !is_folded(&all[1]));
        let value = &folded[1].tool_result().unwrap().value;
        assert_eq!((&value["exit_code"], &value["stdout"]), (&json!(0), &json!("1")), "the first one's own");
        assert_eq!(
            value[FOLDED],
            json!([
                "execute_terminal {\"command\":\"make\"}: exit code 2; stdout of 11 bytes, at its end \"lines\"",
                "execute_terminal {\"language\":\"r\"}: no success; error \"NotFound: no R\"",
            ])
        );
        // Folded again, the lines of before stay.
        let more = step("d", json!({}), json!({ "success": true }));
        let again = fold(&[folded, more.to_vec()].concat(), &results);
        assert_eq!(again[1].tool_result().unwrap().value[FOLDED].as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_fold_has_a_size_and_counts_what_it_leaves_out() {
        let steps: Vec<_> = (0..400)
            .flat_map(|n| step(&n.to_string(), json!({ "n": n }), json!({ "exit_code": n })))
            .collect();
        let results = steps.iter().filter_map(|message| message.tool_result());
        let results: Results<'_> = results.map(|result| (result.call.as_str(), result)).collect();
        let folded = fold(&steps, &results);
        let value = &folded[1].tool_result().unwrap().value;
        let lines = value[FOLDED].as_array().unwrap();
        assert!(value[FOLDED].to_string().len() < FOLD * 2, "{}", value[FOLDED].to_string().len());
        assert_eq!(value[UNTOLD].as_u64().unwrap() + lines.len() as u64, 399);
        assert!(lines.last().unwrap().as_str().unwrap().ends_with("exit code 399"), "{lines:?}");
    }
}
