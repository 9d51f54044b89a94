//! A conversation as a provider is sent it. Providers refuse a call without its result and a result without its call, so a
//! call that was never answered gets an answer that says so, and a stray result is left out.

use super::{ModelTarget, network::may_fetch};
use atoll_types::conversation::{Block, Message, Role, ToolCall, ToolResult};
use genai::chat::{ChatMessage, ContentPart, MessageContent, ToolCall as SentCall, ToolResponse};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Most pictures of one request; older ones are notes.
const MOST_PICTURES: usize = 8;
/// The largest picture that is sent, in bytes of base64.
const LARGEST_PICTURE: usize = 5 << 20;
/// What all pictures of one request have together: some providers take 20 MB.
const MOST_PICTURE_BYTES: usize = 14 << 20;

/// What stands for a picture in a tool's result. Its number counts the result's pictures from 0.
pub(crate) fn shown_beside(number: usize) -> String {
    format!("[picture {}, shown beside this result]", number + 1)
}

/// The same where the model does not get it.
fn not_shown(number: usize) -> String {
    format!("[picture {}, which is not shown to you]", number + 1)
}

/// The URLs of pictures that the provider may be told to fetch, the newest.
pub(super) async fn fetchable(messages: &[Arc<Message>], target: &ModelTarget) -> HashSet<String> {
    let blocks = messages.iter().rev().flat_map(|message| &message.content);
    let urls = blocks.filter_map(|block| match block {
        Block::ImageUrl { url } if target.sees => Some(url),
        _ => None,
    });
    let mut found = HashSet::new();
    for url in urls.take(MOST_PICTURES) {
        if !found.contains(url) && may_fetch(url).await {
            found.insert(url.clone());
        }
    }
    found
}

/// The picture itself, or a note about it.
fn picture(mime: &str, data: &str, shown: bool) -> ContentPart {
    match shown {
        true => ContentPart::from_binary_base64(mime, data, None),
        false => ContentPart::from_text(format!("[a picture of the type {mime}, which is not shown to you]")),
    }
}

/// A picture: whether a tool made it, its message or call, and its number there.
type PictureKey<'a> = (bool, &'a str, usize);

/// The pictures that are sent, chosen from the newest.
fn shown<'a>(messages: &'a [Arc<Message>], target: &ModelTarget) -> HashSet<PictureKey<'a>> {
    let pictures = messages.iter().rev().flat_map(|message| {
        let of_tool = message.tool_result().into_iter().flat_map(|result| {
            let all = result.pictures.iter().enumerate();
            all.map(|(number, one)| ((true, result.call.as_str(), number), one.data.len()))
        });
        let of_person = message.content.iter().enumerate().filter_map(|(number, block)| match block {
            Block::Image { data, .. } => Some(((false, message.id.as_str(), number), data.len())),
            _ => None,
        });
        let all: Vec<_> = of_tool.chain(of_person).collect();
        all.into_iter().rev()
    });
    let (mut shown, mut room) = (HashSet::new(), MOST_PICTURE_BYTES);
    for (key, bytes) in pictures.filter(|(_, bytes)| target.sees && *bytes <= LARGEST_PICTURE) {
        if bytes <= room && shown.len() < MOST_PICTURES {
            room -= bytes;
            shown.insert(key);
        }
    }
    shown
}

fn user(message: &Message, results: &Results<'_>, fetchable: &HashSet<String>) -> ChatMessage {
    let part = |(number, block): (usize, &Block)| match block {
        Block::Text { text } => Some(ContentPart::from_text(text.clone())),
        Block::Image { mime, data } => {
            Some(picture(mime, data, results.shown.contains(&(false, message.id.as_str(), number))))
        }
        Block::ImageUrl { url } if fetchable.contains(url) => {
            Some(ContentPart::from_binary_url("image/png", url.as_str(), None))
        }
        Block::ImageUrl { .. } => Some(ContentPart::from_text("[a picture, which is not shown to you]")),
        _ => None,
    };
    let parts: Vec<ContentPart> = message.content.iter().enumerate().filter_map(part).collect();
    ChatMessage::user(MessageContent::from_parts(parts))
}

fn call(call: &ToolCall) -> SentCall {
    // A provider wants an object; what was wrong with the arguments is said by the result.
    let arguments = if call.arguments.is_object() { call.arguments.clone() } else { json!({}) };
    SentCall {
        call_id: call.id.clone(),
        fn_name: call.name.clone(),
        fn_arguments: arguments,
        thought_signatures: call.signature.clone().map(|signature| vec![signature]),
    }
}

fn assistant(message: &Message) -> Option<ChatMessage> {
    let mut parts = Vec::new();
    for block in &message.content {
        match block {
            Block::Reasoning { text, signature } => {
                parts.extend(signature.clone().map(ContentPart::ThoughtSignature));
                if !text.is_empty() {
                    parts.push(ContentPart::ReasoningContent(text.clone()));
                }
            }
            Block::Text { text } if !text.is_empty() => parts.push(ContentPart::from_text(text.clone())),
            Block::ToolCall(one) => parts.push(ContentPart::ToolCall(call(one))),
            _ => {}
        }
    }
    let says = parts.iter().any(|part| part.is_text() || part.is_tool_call());
    says.then(|| ChatMessage::assistant(MessageContent::from_parts(parts)))
}

/// The results of a message's calls, and the pictures that they have.
struct Results<'a> {
    by_call: HashMap<&'a str, &'a ToolResult>,
    shown: HashSet<PictureKey<'a>>,
}

impl<'a> Results<'a> {
    fn new(messages: &'a [Arc<Message>], target: &ModelTarget) -> Self {
        let results = messages.iter().filter_map(|message| message.tool_result());
        let by_call = results.map(|result| (result.call.as_str(), result)).collect();
        Self { by_call, shown: shown(messages, target) }
    }

    /// The answers of all calls of a message, and after them its pictures: results are text alone.
    fn answers(&self, message: &Message, to: &mut Vec<ChatMessage>) {
        let mut responses = Vec::new();
        let mut pictures = Vec::new();
        for one in message.tool_calls() {
            let text = match self.by_call.get(one.id.as_str()) {
                Some(result) => {
                    self.pictures(result, &mut pictures);
                    self.text(result)
                }
                None => unanswered().to_string(),
            };
            responses.push(ToolResponse::from_tool_call(&call(one), text));
        }
        if !responses.is_empty() {
            to.push(ChatMessage::from(responses));
        }
        if !pictures.is_empty() {
            to.push(ChatMessage::user(MessageContent::from_parts(pictures)));
        }
    }

    /// A result as text, which says of each picture whether the model gets it.
    fn text(&self, result: &ToolResult) -> String {
        let mut value = result.value.clone();
        let outputs = value.get_mut("display_outputs").and_then(Value::as_array_mut);
        let texts = outputs.into_iter().flatten().filter_map(|output| output.get_mut("data"));
        let mut number = 0;
        for text in texts {
            if *text == *shown_beside(number) {
                if !self.shown.contains(&(true, result.call.as_str(), number)) {
                    *text = not_shown(number).into();
                }
                number += 1;
            }
        }
        value.to_string()
    }

    fn pictures(&self, result: &ToolResult, to: &mut Vec<ContentPart>) {
        for (number, one) in result.pictures.iter().enumerate() {
            if self.shown.contains(&(true, result.call.as_str(), number)) {
                to.push(ContentPart::from_text(format!(
                    "Picture {} of the tool call {}:",
                    number + 1,
                    result.call
                )));
                to.push(picture(&one.mime, &one.data, true));
            }
        }
    }
}

/// The result of a call that has none: the run was cancelled before.
fn unanswered() -> Value {
    json!({ "success": false, "error": "Cancelled: the call was cancelled before it had a result",
        "hint": "Call it again if you still need it." })
}

/// What the provider is sent.
pub(super) fn messages(
    messages: &[Arc<Message>],
    target: &ModelTarget,
    fetchable: &HashSet<String>,
) -> Vec<ChatMessage> {
    let results = Results::new(messages, target);
    let mut sent = Vec::new();
    for message in messages {
        match message.role {
            Role::System => sent.push(ChatMessage::system(message.plain_text())),
            Role::User => sent.push(user(message, &results, fetchable)),
            Role::Assistant => {
                if let Some(said) = assistant(message) {
                    sent.push(said);
                    results.answers(message, &mut sent);
                }
            }
            // Sent with the message that called it.
            Role::Tool => {}
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelSettings;
    use atoll_types::conversation::{ToolCallStatus, ToolPicture};

    fn target(sees: bool) -> ModelTarget {
        let settings = ModelSettings {
            model: Some("gpt-4o".into()),
            supports_vision: Some(sees),
            ..ModelSettings::default()
        };
        ModelTarget::of(&settings, true).unwrap()
    }

    fn asked(id: &str) -> Block {
        let (name, arguments) = ("execute_code".to_owned(), json!({ "code": "1" }));
        Block::ToolCall(ToolCall { id: id.into(), name, arguments, broken: None, signature: None })
    }

    /// A result with so many pictures, each of so many bytes.
    fn result(id: &str, pictures: usize, bytes: usize) -> Arc<Message> {
        let output = |number| json!({ "type": "image/png", "data": shown_beside(number) });
        let picture = ToolPicture { mime: "image/png".into(), data: "A".repeat(bytes) };
        let result = ToolResult {
            call: id.into(),
            name: "execute_code".into(),
            status: ToolCallStatus::Success,
            value: json!({ "display_outputs": (0..pictures).map(output).collect::<Vec<_>>() }),
            pictures: vec![picture; pictures],
            sandbox: None,
            exec: None,
            cell: None,
            operations: Vec::new(),
            egress: Vec::new(),
            changed: None,
            asked: None,
            duration_ms: 0,
        };
        Arc::new(Message::new(format!("of-{id}"), Role::Tool, vec![Block::ToolResult(result)]))
    }

    fn model(id: &str, blocks: Vec<Block>) -> Arc<Message> {
        Arc::new(Message::new(id, Role::Assistant, blocks))
    }

    /// What is sent, as text, and how many pictures are in it.
    fn sent(all: &[Arc<Message>], target: &ModelTarget) -> (String, usize) {
        let sent = messages(all, target, &HashSet::new());
        let parts = sent.iter().flat_map(|message| message.content.parts());
        let pictures = parts.filter(|part| part.is_binary()).count();
        (format!("{sent:?}"), pictures)
    }

    #[test]
    fn a_model_is_told_of_each_picture_whether_it_is_shown() {
        let shown = |text: &str| text.matches("shown beside").count();
        let hidden = |text: &str| text.matches("not shown to you").count();
        let all = [model("m", vec![asked("a"), asked("b")]), result("a", 4, 9), result("b", 6, 9)];
        let (text, pictures) = sent(&all, &target(true));
        assert_eq!((shown(&text), hidden(&text), pictures), (MOST_PICTURES, 2, MOST_PICTURES));
        let (text, pictures) = sent(&all, &target(false));
        assert_eq!((shown(&text), hidden(&text), pictures), (0, 10, 0), "one that is blind gets none");
        let large = [model("m", vec![asked("a")]), result("a", 1, LARGEST_PICTURE + 1)];
        let (text, pictures) = sent(&large, &target(true));
        assert_eq!((shown(&text), hidden(&text), pictures), (0, 1, 0));
        let block = || Block::Image { mime: "image/png".into(), data: "A".repeat(LARGEST_PICTURE) };
        let person = Message::new("u", Role::User, (0..4).map(|_| block()).collect());
        let (text, pictures) = sent(&[Arc::new(person)], &target(true));
        let two = MOST_PICTURE_BYTES / LARGEST_PICTURE;
        assert_eq!((hidden(&text), pictures), (4 - two, two), "so much together");
    }

    #[test]
    fn every_call_has_a_result_and_no_result_is_without_its_call() {
        let all = [model("m", vec![asked("a")]), result("stray", 0, 0)];
        let (text, _) = sent(&all, &target(true));
        assert!(text.contains("Cancelled") && !text.contains("stray"), "{text}");
        assert_eq!(sent(&[model("m", vec![])], &target(true)).0, "[]", "an empty message is none");
    }

    #[tokio::test]
    async fn a_picture_by_its_url_is_fetched_by_no_model_where_it_is_private() {
        let urls = ["http://8.8.8.8/a.png", "https://10.0.0.1/b.png", "https://8.8.8.8/c.png"];
        let blocks = urls.map(|url| Block::ImageUrl { url: url.into() }).to_vec();
        let all = [Arc::new(Message::new("u", Role::User, blocks))];
        let (seeing, blind) = (target(true), target(false));
        let fetchable = fetchable(&all, &seeing).await;
        assert_eq!(fetchable, HashSet::from([urls[2].to_owned()]));
        assert!(super::fetchable(&all, &blind).await.is_empty());
        let text = format!("{:?}", messages(&all, &seeing, &fetchable));
        assert!(text.contains(urls[2]) && !text.contains("a.png") && !text.contains("b.png"), "{text}");
    }
}
