//! A conversation within the model's window: old work of tools and old reasoning are summarised, the oldest first; what people
//! said never is. Only what the model is sent changes, not what is kept.
//!
//! In order, until it fits: old results become summaries, in three sizes; then the steps of each turn are folded, half of them
//! and then all; then the same for the latest messages, of which the last step always stays a step of its own.

use super::{
    ModelTarget,
    summary::{Results, condense, fold, is_folded, shorten, summarise},
};
use atoll_types::conversation::{Block, Message, Role};
use std::{ops::Range, sync::Arc};

/// Bytes of a token, about: low, so that the estimate is rather too high.
const BYTES_PER_TOKEN: usize = 3;
/// Tokens of a picture, about.
const PICTURE: usize = 1500;
/// Tokens of the six tools' descriptions.
const TOOLS: usize = 3000;
/// How much of an old text stays, in bytes: less where that is not enough.
const KEPT: [usize; 3] = [4000, 1000, 250];
/// The same of what was folded and has to be shortened too.
const LEAST: usize = 100;
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

/// What a model is likely to have used for an answer, in tokens: what it was sent, and what it said.
pub(crate) fn estimated(system: &str, sent: &[Arc<Message>], answer: &Message) -> u64 {
    let all: usize = sent.iter().map(|message| tokens(message)).sum();
    (TOOLS + system.len() / BYTES_PER_TOKEN + all + tokens(answer)) as u64
}

/// A message with its output summarised, if it has any.
fn shortened(message: &Message, kept: usize) -> Message {
    let mut message = message.clone();
    for block in &mut message.content {
        match block {
            Block::ToolResult(result) => summarise(result, kept),
            Block::ToolCall(call) => shorten(&mut call.arguments, kept),
            // What a provider signed it wants back as it was.
            Block::Reasoning { text, signature: None } => condense(text, kept),
            _ => {}
        }
    }
    message
}

/// The messages that the model is sent.
pub(super) fn fit(
    messages: &[Arc<Message>],
    system: &str,
    target: &ModelTarget,
    share: f64,
) -> Vec<Arc<Message>> {
    let room = (target.window as f64 * share) as usize;
    let room = room.saturating_sub(TOOLS + system.len() / BYTES_PER_TOKEN);
    let used = messages.iter().map(|message| tokens(message)).sum();
    let mut fitting = Fitting { messages: messages.to_vec(), room, used };
    if fitting.fits() {
        return fitting.messages;
    }
    let results = messages.iter().filter_map(|message| message.tool_result());
    let results: Results<'_> = results.map(|result| (result.call.as_str(), result)).collect();
    for fresh in [FRESH, 0] {
        for kept in KEPT {
            fitting.shorten(messages, fresh, kept);
        }
        for part in [2, 1] {
            fitting.fold(fresh, part, &results);
        }
        if fitting.fits() {
            break;
        }
    }
    fitting.shorten(messages, 0, LEAST);
    fitting.messages
}

/// What is sent, as far as it is made to fit.
struct Fitting {
    messages: Vec<Arc<Message>>,
    room: usize,
    used: usize,
}

impl Fitting {
    fn fits(&self) -> bool {
        self.used <= self.room
    }

    /// Replaces a range of messages, and counts.
    fn replace(&mut self, range: Range<usize>, by: Vec<Arc<Message>>) {
        let size = |all: &[Arc<Message>]| all.iter().map(|message| tokens(message)).sum::<usize>();
        self.used = (self.used + size(&by)).saturating_sub(size(&self.messages[range.clone()]));
        self.messages.splice(range, by);
    }

    /// Shortens all but the latest messages, the oldest first, from what they were. What was folded already stays.
    fn shorten(&mut self, originals: &[Arc<Message>], fresh: usize, kept: usize) {
        for at in 0..self.messages.len().saturating_sub(fresh) {
            if self.fits() {
                return;
            }
            let message = &self.messages[at];
            if message.role == Role::User || (is_folded(message) && kept != LEAST) {
                continue;
            }
            // Nothing stands at another place before the first fold, and after it only what is latest is shortened.
            let from_end = self.messages.len() - at;
            let original = originals.len().checked_sub(from_end).and_then(|at| originals.get(at));
            let from = original.filter(|original| original.id == message.id).unwrap_or(message);
            let shorter = Arc::new(shortened(from, kept));
            if tokens(&shorter) < tokens(message) {
                self.replace(at..at + 1, vec![shorter]);
            }
        }
    }

    /// Folds the steps of each turn but the latest messages and the last step: one half of them, or all.
    fn fold(&mut self, fresh: usize, part: usize, results: &Results<'_>) {
        let mut at = 0;
        while !self.fits() {
            let Some(steps) = self.steps(at, fresh) else { return };
            let some = steps.len().div_ceil(part);
            let (from, to) = (steps[0].start, steps[some - 1].end);
            let folded = fold(&self.messages[from..to], results);
            at = steps[steps.len() - 1].end - (to - from) + folded.len();
            self.replace(from..to, folded);
        }
    }

    /// The next steps that follow one another: each a message that calls tools, and its results.
    fn steps(&self, from: usize, fresh: usize) -> Option<Vec<Range<usize>>> {
        let calls = |at: &usize| self.messages[*at].tool_calls().next().is_some();
        let last = (0..self.messages.len()).rfind(calls)?;
        let end = last.min(self.messages.len().saturating_sub(fresh));
        let first = (from..end).find(calls)?;
        let mut steps: Vec<Range<usize>> = Vec::new();
        let mut at = first;
        while at < end && calls(&at) {
            let results = self.messages[at + 1..].iter().take_while(|message| message.role == Role::Tool);
            let next = at + 1 + results.count();
            if next > end {
                break;
            }
            steps.push(at..next);
            at = next;
        }
        // A step whose results are among the latest is none here.
        (!steps.is_empty()).then_some(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelSettings;
    use atoll_types::conversation::{ToolCall, ToolCallStatus, ToolResult};

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
            changed: None,
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

    /// A turn of so many steps, whose results have so many bytes.
    fn turn(words: &str, steps: usize, size: usize) -> Vec<Arc<Message>> {
        let mut all = vec![Arc::new(Message::text(format!("u-{words}"), Role::User, words))];
        for number in 0..steps {
            let id = format!("{words}-{number}");
            let call = ToolCall {
                id: id.clone(),
                name: "execute_code".into(),
                arguments: serde_json::json!({ "code": "x".repeat(size / 10) }),
                broken: None,
                signature: None,
            };
            all.push(Arc::new(Message::new(format!("c-{id}"), Role::Assistant, vec![Block::ToolCall(call)])));
            all.push(result(&id, size));
        }
        all
    }

    #[test]
    fn a_conversation_of_any_length_fits_with_every_word_of_the_user_and_every_result_after_its_call() {
        for (steps, size, window) in
            [(3, 9000, 8000), (40, 6000, 12_000), (300, 3000, 10_000), (300, 10, 9000)]
        {
            let settings = ModelSettings {
                model: Some("gpt-4-x".into()),
                context_tokens: Some(window),
                ..ModelSettings::default()
            };
            let target = ModelTarget::of(&settings, false).unwrap();
            let mut messages = turn("first", steps, size);
            messages.push(Arc::new(Message::text("a", Role::Assistant, "done")));
            messages.extend(turn("second", steps, size));
            let fitting = fit(&messages, "", &target, 1.0);
            let used: usize = fitting.iter().map(|message| tokens(message)).sum();
            assert!(used + TOOLS <= window as usize, "{steps} {size} {window}: {used}");
            let words = |all: &[Arc<Message>]| -> Vec<String> {
                let said = all.iter().filter(|message| message.role == Role::User);
                said.map(|message| message.plain_text()).collect()
            };
            assert_eq!(words(&fitting), words(&messages));
            for (at, message) in fitting.iter().enumerate() {
                if let Some(result) = message.tool_result() {
                    let call = fitting[at - 1].tool_calls().next().unwrap();
                    assert_eq!(call.id, result.call, "{steps} {size} {window}");
                }
            }
            let last = fitting.last().unwrap().tool_result().unwrap();
            assert_eq!(last.call, format!("second-{}", steps - 1), "the last step is one of its own");
        }
    }
}
