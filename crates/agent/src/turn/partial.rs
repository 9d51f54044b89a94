//! The part of an answer that a model has streamed so far. A run that is cancelled keeps it: the person has read it.

use crate::model::Delta;
use atoll_types::conversation::{Block, FinishReason, Message, Role};
use std::sync::{Mutex, PoisonError};

/// The answer so far, put together from what is streamed.
#[derive(Default)]
pub(super) struct PartialAnswer(Mutex<PartialState>);

#[derive(Default)]
struct PartialState {
    message: String,
    model: String,
    /// Text and reasoning with the numbers of their blocks. Calls are left out: one that is not whole is none, and one that is whole
    /// was never carried out.
    blocks: Vec<(usize, Block)>,
}

impl PartialAnswer {
    fn change(&self, change: impl FnOnce(&mut PartialState)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// An answer begins, in the place of one that failed.
    pub(super) fn begin(&self, message: &str, model: &str) {
        let said = PartialState { message: message.to_owned(), model: model.to_owned(), blocks: Vec::new() };
        self.change(|now| *now = said);
    }

    /// A piece of it.
    pub(super) fn add(&self, delta: &Delta) {
        self.change(|said| match delta {
            Delta::Text { block, text } => said.grow(*block, text, |text| Block::Text { text }),
            Delta::Reasoning { block, text } => {
                said.grow(*block, text, |text| Block::Reasoning { text, signature: None });
            }
            Delta::Call { .. } => {}
        });
    }

    /// The message that is kept of it; none where nothing was said.
    pub(super) fn into_message(self) -> Option<Message> {
        let PartialState { message, model, blocks } =
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let blocks: Vec<_> = blocks.into_iter().map(|(_, block)| block).filter(says).collect();
        let mut kept = Message::new(message, Role::Assistant, blocks);
        (kept.model, kept.finish) = (Some(model), Some(FinishReason::Cancelled));
        (!kept.content.is_empty()).then_some(kept)
    }
}

impl PartialState {
    fn grow(&mut self, number: usize, more: &str, begin: fn(String) -> Block) {
        match self.blocks.last_mut() {
            Some((last, Block::Text { text } | Block::Reasoning { text, .. })) if *last == number => {
                text.push_str(more);
            }
            _ => self.blocks.push((number, begin(more.to_owned()))),
        }
    }
}

fn says(block: &Block) -> bool {
    matches!(block, Block::Text { text } | Block::Reasoning { text, .. } if !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(block: usize, text: &str) -> Delta {
        Delta::Text { block, text: text.into() }
    }

    #[test]
    fn what_was_said_is_kept_and_a_call_is_not() {
        let partial = PartialAnswer::default();
        partial.begin("m1", "gpt-4o");
        partial.add(&Delta::Reasoning { block: 0, text: "Six ".into() });
        partial.add(&Delta::Reasoning { block: 0, text: "times".into() });
        partial.add(&text(1, "It "));
        partial.add(&text(1, "is"));
        let (id, name) = (Some("c".into()), Some("t".into()));
        partial.add(&Delta::Call { block: 2, index: 0, id, name, arguments: "{}".into() });
        let kept = partial.into_message().unwrap();
        let thought = Block::Reasoning { text: "Six times".into(), signature: None };
        assert_eq!(kept.content, [thought, Block::Text { text: "It is".into() }]);
        assert_eq!((kept.id.as_str(), kept.finish), ("m1", Some(FinishReason::Cancelled)));
    }

    #[test]
    fn nothing_is_kept_of_silence_or_of_an_answer_that_failed() {
        assert_eq!(PartialAnswer::default().into_message(), None);
        let partial = PartialAnswer::default();
        partial.begin("m1", "gpt-4o");
        partial.add(&text(0, "Half of"));
        partial.begin("m2", "gpt-4o");
        partial.add(&text(0, " \n"));
        assert_eq!(partial.into_message(), None);
    }
}
