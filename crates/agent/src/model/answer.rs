//! A model's answer, put together from the pieces of its stream. Whatever a provider sends, what comes out is a message: the
//! size is bounded, each call has an id of its own, and arguments that are no JSON object are kept as text.

use super::{ModelFailure, ModelTarget};
use atoll_types::{
    conversation::{Block, FinishReason, Message, Role, TokenUsage, ToolCall},
    text::cut,
};
use genai::chat::{ContentPart, StopReason, StreamEnd, ToolCall as SentCall, Usage};
use serde_json::Value;

/// The largest answer, in bytes.
const LARGEST: usize = 8 << 20;
/// Most calls of one answer.
const MOST_CALLS: usize = 32;
/// How much of arguments that are no JSON is kept.
const BROKEN_KEPT: usize = 2000;
/// The longest name and id of a call.
const LONGEST_NAME: usize = 128;

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Delta {
    /// Text.
    Text { block: usize, text: String },
    /// Reasoning.
    Reasoning { block: usize, text: String },
    /// A call of a tool; id and name come with its first piece.
    Call { block: usize, index: usize, id: Option<String>, name: Option<String>, arguments: String },
}

/// A call that is being put together.
struct Part {
    block: usize,
    /// As the provider names it.
    sent_id: String,
    id: String,
    name: String,
    text: String,
    whole: Option<Value>,
    signature: Option<String>,
}

pub(super) struct Answer<'a> {
    id: &'a str,
    target: &'a ModelTarget,
    /// Text and reasoning, and places for calls.
    blocks: Vec<Block>,
    calls: Vec<Part>,
    size: usize,
}

type DeltaSink<'a> = &'a mut (dyn FnMut(Delta) + Send);

impl<'a> Answer<'a> {
    pub(super) fn new(id: &'a str, target: &'a ModelTarget) -> Self {
        Self { id, target, blocks: Vec::new(), calls: Vec::new(), size: 0 }
    }

    /// Counts what is kept of the answer; refused where it is more than one may be.
    pub(super) fn grow(&mut self, by: usize) -> Result<(), ModelFailure> {
        self.size += by;
        if self.size > LARGEST { Err(ModelFailure::TooLarge) } else { Ok(()) }
    }

    pub(super) fn text(&mut self, text: String, told: DeltaSink<'_>) -> Result<(), ModelFailure> {
        self.grow(text.len())?;
        match self.blocks.last_mut() {
            Some(Block::Text { text: so_far }) => so_far.push_str(&text),
            _ => self.blocks.push(Block::Text { text: text.clone() }),
        }
        told(Delta::Text { block: self.blocks.len() - 1, text });
        Ok(())
    }

    pub(super) fn reasoning(&mut self, text: String, told: DeltaSink<'_>) -> Result<(), ModelFailure> {
        self.grow(text.len())?;
        match self.blocks.last_mut() {
            Some(Block::Reasoning { text: so_far, .. }) => so_far.push_str(&text),
            _ => self.blocks.push(Block::Reasoning { text: text.clone(), signature: None }),
        }
        told(Delta::Reasoning { block: self.blocks.len() - 1, text });
        Ok(())
    }

    /// The call that a piece belongs to: of the same id; without a name, the one of the number that the library made the id
    /// of, or the last; otherwise a new one.
    fn part_of(&self, sent: &SentCall) -> Option<usize> {
        let same = self.calls.iter().rposition(|part| part.sent_id == sent.call_id);
        if sent.fn_name.is_empty() {
            let number = sent.call_id.strip_prefix("call_").and_then(|number| number.parse::<usize>().ok());
            let last = self.calls.len().checked_sub(1);
            return same.or_else(|| number.filter(|number| *number < self.calls.len())).or(last);
        }
        // Whole calls of the same id are several: some providers number all of them 0.
        same.filter(|_| sent.fn_arguments.is_string())
    }

    pub(super) fn call(&mut self, sent: SentCall, told: DeltaSink<'_>) -> Result<(), ModelFailure> {
        let at = self.part_of(&sent);
        let first = at.is_none();
        let index = match at {
            Some(index) => index,
            None => self.begin(&sent)?,
        };
        let arguments = match &sent.fn_arguments {
            Value::String(text) => {
                let part = &self.calls[index];
                // Some adapters send all so far, others what is new.
                let grown = !self.target.has_numbered_calls() && text.starts_with(&part.text);
                if grown { text[part.text.len()..].to_owned() } else { text.clone() }
            }
            Value::Null => String::new(),
            whole => {
                self.calls[index].whole = Some(whole.clone());
                whole.to_string()
            }
        };
        self.grow(arguments.len())?;
        let part = &mut self.calls[index];
        part.text.push_str(&arguments);
        if let Some(signature) = sent.thought_signatures.and_then(|all| all.into_iter().next()) {
            part.signature.get_or_insert(signature);
        }
        let (id, name) = if first { (Some(part.id.clone()), Some(part.name.clone())) } else { (None, None) };
        told(Delta::Call { block: part.block, index, id, name, arguments });
        Ok(())
    }

    fn begin(&mut self, sent: &SentCall) -> Result<usize, ModelFailure> {
        if self.calls.len() >= MOST_CALLS {
            return Err(ModelFailure::TooLarge);
        }
        self.grow(sent.fn_name.len() + sent.call_id.len())?;
        let plain = |text: &str| -> String { text.chars().filter(|c| !c.is_control()).collect() };
        let id = cut(&plain(&sent.call_id), LONGEST_NAME).to_owned();
        let taken = id.is_empty() || self.calls.iter().any(|part| part.id == id);
        // Unique in its thread as well: a provider that numbers calls begins anew with every message.
        let made = id.strip_prefix("call_").is_some_and(|rest| rest.parse::<u32>().is_ok());
        let id = if taken || made { format!("call_{}", uuid::Uuid::new_v4().simple()) } else { id };
        // Its place among the blocks, filled at the end.
        self.blocks.push(Block::Other { value: Value::Null });
        self.calls.push(Part {
            block: self.blocks.len() - 1,
            sent_id: sent.call_id.clone(),
            id,
            name: cut(&plain(&sent.fn_name), LONGEST_NAME).to_owned(),
            text: String::new(),
            whole: None,
            signature: None,
        });
        Ok(self.calls.len() - 1)
    }

    /// The whole message.
    pub(super) fn end(mut self, end: StreamEnd, told: DeltaSink<'_>) -> Result<Message, ModelFailure> {
        let Some(reason) = end.captured_stop_reason else { return Err(ModelFailure::Cut) };
        let mut thoughts = Vec::new();
        for part in end.captured_content.map(|content| content.into_parts()).unwrap_or_default() {
            match part {
                // Calls that no piece of the stream had.
                ContentPart::ToolCall(call)
                    if !self.calls.iter().any(|part| part.sent_id == call.call_id) =>
                {
                    self.call(call, told)?;
                }
                ContentPart::ThoughtSignature(signature) => thoughts.push((String::new(), Some(signature))),
                ContentPart::ReasoningContent(text) => match thoughts.last_mut() {
                    Some((empty, Some(_))) if empty.is_empty() => *empty = text,
                    _ => thoughts.push((text, None)),
                },
                _ => {}
            }
        }
        self.sign(thoughts);
        let calls = std::mem::take(&mut self.calls);
        let finish = finished(&reason, !calls.is_empty());
        for part in calls {
            let block = part.block;
            self.blocks[block] = Block::ToolCall(parsed(part));
        }
        let mut message = Message::new(self.id, Role::Assistant, self.blocks);
        message.model = Some(self.target.model.clone());
        message.finish = Some(finish);
        message.usage = end.captured_usage.as_ref().map(used);
        Ok(message)
    }

    /// Gives reasoning its signatures: in their order to what was streamed, and in front where nothing was.
    fn sign(&mut self, thoughts: Vec<(String, Option<String>)>) {
        let mut unsigned = self.blocks.iter_mut().filter_map(|block| match block {
            Block::Reasoning { signature, .. } => Some(signature),
            _ => None,
        });
        let mut more = Vec::new();
        for (text, signature) in thoughts {
            match unsigned.next() {
                Some(place) => *place = signature,
                None if signature.is_some() => more.push(Block::Reasoning { text, signature }),
                None => {}
            }
        }
        let shift = more.len();
        for part in &mut self.calls {
            part.block += shift;
        }
        self.blocks.splice(0..0, more);
    }
}

fn parsed(part: Part) -> ToolCall {
    let Part { block: _, sent_id: _, id, name, text, whole, signature } = part;
    let value = match whole {
        Some(whole) => Some(whole),
        // A tool without arguments is called with none at all by some models.
        None if text.trim().is_empty() => Some(Value::Object(serde_json::Map::new())),
        None => serde_json::from_str(&text).ok(),
    };
    match value.filter(Value::is_object) {
        Some(arguments) => ToolCall { id, name, arguments, broken: None, signature },
        None => {
            let broken = Some(cut(&text, BROKEN_KEPT).to_owned());
            ToolCall { id, name, arguments: Value::Null, broken, signature }
        }
    }
}

fn finished(reason: &StopReason, calls: bool) -> FinishReason {
    match reason {
        _ if calls => FinishReason::ToolCalls,
        StopReason::MaxTokens(_) => FinishReason::Length,
        StopReason::ContentFilter(_) => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    }
}

fn used(usage: &Usage) -> TokenUsage {
    let count =
        |number: Option<i32>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
    TokenUsage {
        input: count(usage.prompt_tokens),
        output: count(usage.completion_tokens),
        reasoning: count(
            usage.completion_tokens_details.as_ref().and_then(|details| details.reasoning_tokens),
        ),
        cached: count(usage.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelSettings;
    use serde_json::json;

    fn sent(id: &str, name: &str, arguments: Value) -> SentCall {
        SentCall {
            call_id: id.into(),
            fn_name: name.into(),
            fn_arguments: arguments,
            thought_signatures: None,
        }
    }

    fn message(provider: &str, pieces: Vec<SentCall>) -> Result<Message, ModelFailure> {
        let settings = ModelSettings {
            model: Some("m".into()),
            provider: Some(provider.into()),
            ..ModelSettings::default()
        };
        let target = ModelTarget::of(&settings, false).unwrap();
        let mut answer = Answer::new("id", &target);
        for piece in pieces {
            answer.call(piece, &mut |_| {})?;
        }
        let reason = Some(StopReason::ToolCall("tool_calls".into()));
        answer.end(StreamEnd { captured_stop_reason: reason, ..StreamEnd::default() }, &mut |_| {})
    }

    fn calls(message: &Message) -> Vec<(String, Value)> {
        message.tool_calls().map(|call| (call.name.clone(), call.arguments.clone())).collect()
    }

    #[test]
    fn pieces_of_parallel_calls_find_their_call() {
        let text = |text: &str| Value::from(text);
        let pieces = vec![
            sent("a", "one", text("{\"x\"")),
            sent("call_0", "", text(":1}")),
            sent("b", "two", text("")),
            sent("call_1", "", text("{\"y\":2}")),
        ];
        let wanted = vec![("one".to_owned(), json!({ "x": 1 })), ("two".to_owned(), json!({ "y": 2 }))];
        assert_eq!(calls(&message("openai", pieces).unwrap()), wanted);
        // All so far, as others send it; and whole calls of one id.
        let pieces = vec![sent("a", "one", text("{\"x\"")), sent("a", "one", text("{\"x\":1}"))];
        assert_eq!(calls(&message("anthropic", pieces).unwrap()), wanted[..1]);
        let pieces = vec![sent("call_0", "one", json!({ "x": 1 })), sent("call_0", "two", json!({ "y": 2 }))];
        let two = message("ollama", pieces).unwrap();
        assert_eq!(calls(&two), wanted);
        let ids: std::collections::HashSet<&str> = two.tool_calls().map(|call| call.id.as_str()).collect();
        assert_eq!(ids.len(), 2);
    }

    #[test]
    fn what_is_no_object_is_kept_as_text() {
        for arguments in ["{\"x\":", "[1]", "7", "\"text\""] {
            let one = message("openai", vec![sent("a", "t", Value::from(arguments))]).unwrap();
            let call = one.tool_calls().next().unwrap();
            assert_eq!((call.arguments.clone(), call.broken.as_deref()), (Value::Null, Some(arguments)));
        }
        let none = message("openai", vec![sent("a", "t", Value::from(""))]).unwrap();
        assert_eq!(none.tool_calls().next().unwrap().arguments, json!({}));
    }

    #[test]
    fn an_answer_is_bounded() {
        let huge = Value::from("x".repeat(LARGEST + 1));
        assert_eq!(message("openai", vec![sent("a", "t", huge)]).unwrap_err(), ModelFailure::TooLarge);
        let many = (0..=MOST_CALLS).map(|n| sent(&n.to_string(), "t", Value::from(""))).collect();
        assert_eq!(message("openai", many).unwrap_err(), ModelFailure::TooLarge);
    }

    #[test]
    fn a_stream_without_a_reason_for_its_end_was_cut() {
        let settings = ModelSettings { model: Some("gpt-4o".into()), ..ModelSettings::default() };
        let target = ModelTarget::of(&settings, false).unwrap();
        let answer = Answer::new("id", &target);
        assert_eq!(answer.end(StreamEnd::default(), &mut |_| {}).unwrap_err(), ModelFailure::Cut);
    }
}
