//! A conversation within the model's window: old tool output and old reasoning are shortened, the oldest first; what people
//! said never is. Only what the model is sent changes, not what is kept.

use super::ModelTarget;
use atoll_types::{
    conversation::{Block, Message, Role},
    text::cut,
};
use serde_json::Value;
use std::sync::Arc;

/// Bytes of a token, about: low, so that the estimate is rather too high.
const BYTES_PER_TOKEN: usize = 3;
/// Tokens of a picture, about.
const PICTURE: usize = 1500;
/// Tokens of the six tools' descriptions.
const TOOLS: usize = 3000;
/// How much of an old text stays, in bytes: less where that is not enough.
const KEPT: [usize; 3] = [4000, 1000, 250];
/// How many values of an old list stay.
const LISTED: usize = 16;
/// The last messages whose output stays whole as long as that is enough.
const FRESH: usize = 6;

fn tokens(message: &Message) -> usize {
    let bytes = |text: &str| text.len() / BYTES_PER_TOKEN;
    let block = |block: &Block| match block {
        Block::Text { text } | Block::Reasoning { text, .. } => bytes(text),
        Block::Image { .. } | Block::ImageUrl { .. } => PICTURE,
        Block::ToolCall(call) => bytes(&call.name) + bytes(&call.arguments.to_string()),
        Block::ToolResult(result) => bytes(&result.value.to_string()) + result.pictures.len() * PICTURE,
        Block::Other { .. } => 0,
    };
    4 + message.content.iter().map(block).sum::<usize>()
}

/// The beginning and the end of a long text, which is where an error says what it is about.
fn cut_middle(text: &mut String, kept: usize) {
    if text.len() <= kept + NOTE {
        return;
    }
    let begin = cut(text, kept * 2 / 3);
    let from = (text.len() - kept / 3..text.len()).find(|at| text.is_char_boundary(*at));
    let end = &text[from.unwrap_or(text.len())..];
    let left = text.len() - begin.len() - end.len();
    *text = format!("{begin}… [{left} bytes of old output were left out] …{end}");
}

/// The note about what was left out, about.
const NOTE: usize = 64;

/// Every long text and list of a tool's reply, cut.
fn shorten(value: &mut Value, kept: usize) {
    match value {
        Value::String(text) => cut_middle(text, kept),
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

/// A message with its output shortened, if it has any.
fn shortened(message: &Message, kept: usize) -> Message {
    let mut message = message.clone();
    for block in &mut message.content {
        match block {
            Block::ToolResult(result) => {
                shorten(&mut result.value, kept);
                result.pictures.clear();
            }
            Block::ToolCall(call) => shorten(&mut call.arguments, kept),
            // What a provider signed it wants back as it was.
            Block::Reasoning { text, signature: None } => cut_middle(text, kept),
            _ => {}
        }
    }
    message
}

/// The messages that the model is sent: the oldest are shortened first and least, the last ones only where the rest was not
/// enough, and the words of a person never.
pub(super) fn fit(
    messages: &[Arc<Message>],
    system: &str,
    target: &ModelTarget,
    share: f64,
) -> Vec<Arc<Message>> {
    let room = (target.window as f64 * share) as usize;
    let all: usize = messages.iter().map(|message| tokens(message)).sum();
    let mut used: usize = TOOLS + system.len() / BYTES_PER_TOKEN + all;
    let mut fitting = messages.to_vec();
    let (old, fresh) = (0..messages.len()).partition::<Vec<_>, _>(|at| at + FRESH < messages.len());
    for (part, kept) in [&old, &fresh].into_iter().flat_map(|part| KEPT.map(|kept| (part, kept))) {
        for at in part {
            if used <= room {
                return fitting;
            }
            if messages[*at].role == Role::User {
                continue;
            }
            let before = tokens(&fitting[*at]);
            fitting[*at] = Arc::new(shortened(&messages[*at], kept));
            used = used.saturating_sub(before.saturating_sub(tokens(&fitting[*at])));
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelSettings;
    use atoll_types::conversation::{ToolCallStatus, ToolResult};

    fn result(id: &str, size: usize) -> Arc<Message> {
        let result = ToolResult {
            call: id.into(),
            name: "execute_code".into(),
            status: ToolCallStatus::Success,
            value: serde_json::json!({ "stdout": "x".repeat(size) }),
            pictures: Vec::new(),
            sandbox: None,
            exec: None,
            cell: None,
            operations: Vec::new(),
            egress: Vec::new(),
            asked: None,
            duration_ms: 0,
        };
        Arc::new(Message::new(id, Role::Tool, vec![Block::ToolResult(result)]))
    }

    #[test]
    fn old_output_is_shortened_and_the_users_words_are_kept() {
        let settings = ModelSettings {
            model: Some("gpt-4-x".into()),
            context_tokens: Some(13_800),
            ..ModelSettings::default()
        };
        let target = ModelTarget::of(&settings, false).unwrap();
        let words = "w".repeat(9000);
        let mut messages = vec![Arc::new(Message::text("u", Role::User, words.clone()))];
        messages.extend((0..10).map(|number| result(&number.to_string(), 3000)));
        let fitting = fit(&messages, "", &target, 1.0);
        assert_eq!(fitting[0].plain_text(), words);
        let size = |at: usize| fitting[at].tool_result().unwrap().value.to_string().len();
        assert!(size(1) < 1200 && size(10) > 3000, "{} {}", size(1), size(10));
        assert_eq!(fit(&messages[..2], "", &target, 0.8), &messages[..2]);
    }

    #[test]
    fn what_is_left_out_is_said_and_errors_keep_their_end() {
        let mut value = serde_json::json!({
            "stderr": format!("{}ValueError: the end", "x".repeat(9000)), "files": (0..40).collect::<Vec<_>>(),
        });
        shorten(&mut value, 1000);
        let text = value["stderr"].as_str().unwrap();
        assert!(text.len() < 1100 && text.ends_with("ValueError: the end"), "{text}");
        assert!(text.contains("bytes of old output were left out"), "{text}");
        assert_eq!(value["files"].as_array().unwrap().len(), LISTED + 1);
        assert_eq!(value["files"][LISTED], "[24 more values of old output were left out]");
        let mut wide = "€".repeat(2000);
        cut_middle(&mut wide, 1000);
        assert!(wide.contains("left out") && !wide.contains('\u{fffd}'), "on the borders of characters");
    }

    #[test]
    fn the_window_of_a_model_can_be_said() {
        let small = ModelSettings {
            model: Some("gpt-4o".into()),
            context_tokens: Some(4000),
            ..ModelSettings::default()
        };
        let target = ModelTarget::of(&small, false).unwrap();
        let messages: Vec<_> = (0..10).map(|number| result(&number.to_string(), 3000)).collect();
        let size = |one: &Arc<Message>| one.tool_result().unwrap().value.to_string().len();
        let fitting = fit(&messages, "", &target, 1.0);
        assert!(fitting.iter().all(|one| size(one) < 500), "also the last ones, where it must be");
    }
}
