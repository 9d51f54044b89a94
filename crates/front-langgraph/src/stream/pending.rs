//! A message that a model is writing, as far as it has come.

use atoll_types::conversation::{Block, Message, Role, ToolCall};
use serde_json::Value;

/// The message so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingMessage {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) step: i64,
    blocks: Vec<PendingBlock>,
    /// The bytes of it, and how many of them clients have that get it whole each time.
    size: usize,
    told: usize,
}

/// Up to this size a message is sent whole with each of its pieces, and later each time when it has grown by such a part: what is
/// sent of a message is then in proportion to it, and not to its square.
const SMALL: usize = 4096;
const GROWTH: usize = 32;

#[derive(Debug, Clone, PartialEq)]
enum PendingBlock {
    Text(String),
    Reasoning(String),
    Call { index: usize, id: String, name: String, arguments: String },
}

/// What a piece of a block did to its message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grown {
    /// Whether it is the block's first.
    pub(crate) first: bool,
    /// The block's place in the message.
    pub(crate) at: usize,
}

impl PendingMessage {
    pub(crate) fn new(id: &str, model: &str, step: i64) -> Self {
        Self { id: id.to_owned(), model: model.to_owned(), step, blocks: Vec::new(), size: 0, told: 0 }
    }

    /// Whether it is time to send it whole.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.size <= SMALL || self.size - self.told >= self.size / GROWTH;
        if due {
            self.told = self.size;
        }
        due
    }

    /// Makes room for a block: providers count them without gaps.
    fn place(&mut self, block: usize, fresh: PendingBlock) -> (Grown, Option<&mut PendingBlock>) {
        let first = block >= self.blocks.len();
        if first {
            self.blocks.push(fresh);
        }
        let at = block.min(self.blocks.len() - 1);
        (Grown { first, at }, self.blocks.get_mut(at))
    }

    pub(crate) fn text(&mut self, block: usize, more: &str) -> Grown {
        self.size += more.len();
        let (grown, place) = self.place(block, PendingBlock::Text(String::new()));
        if let Some(PendingBlock::Text(text)) = place {
            text.push_str(more);
        }
        grown
    }

    pub(crate) fn reasoning(&mut self, block: usize, more: &str) -> Grown {
        self.size += more.len();
        let (grown, place) = self.place(block, PendingBlock::Reasoning(String::new()));
        if let Some(PendingBlock::Reasoning(text)) = place {
            text.push_str(more);
        }
        grown
    }

    pub(crate) fn call(
        &mut self,
        block: usize,
        index: usize,
        id: Option<&str>,
        name: Option<&str>,
        more: &str,
    ) -> Grown {
        self.size += more.len();
        let fresh = PendingBlock::Call {
            index,
            id: id.unwrap_or_default().to_owned(),
            name: name.unwrap_or_default().to_owned(),
            arguments: String::new(),
        };
        let (grown, place) = self.place(block, fresh);
        if let Some(PendingBlock::Call { arguments, .. }) = place {
            arguments.push_str(more);
        }
        grown
    }

    /// Whether the model has thought: its content is then blocks and no text.
    pub(crate) fn has_reasoning(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, PendingBlock::Reasoning(_)))
    }

    /// A call's number, id, name and arguments so far.
    pub(crate) fn call_at(&self, at: usize) -> Option<(usize, &str, &str, &str)> {
        match self.blocks.get(at)? {
            PendingBlock::Call { index, id, name, arguments } => Some((*index, id, name, arguments)),
            _ => None,
        }
    }

    /// The message as it would be if nothing more came.
    pub(crate) fn message(&self) -> Message {
        let block = |block: &PendingBlock| match block {
            PendingBlock::Text(text) => Block::Text { text: text.clone() },
            PendingBlock::Reasoning(text) => Block::Reasoning { text: text.clone(), signature: None },
            PendingBlock::Call { id, name, arguments, .. } => Block::ToolCall(ToolCall {
                id: id.clone(),
                name: name.clone(),
                arguments: serde_json::from_str(arguments)
                    .unwrap_or_else(|_| Value::Object(serde_json::Map::new())),
                broken: None,
                signature: None,
            }),
        };
        let mut message = Message::new(&self.id, Role::Assistant, self.blocks.iter().map(block).collect());
        message.model = Some(self.model.clone());
        message
    }
}
