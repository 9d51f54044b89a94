//! Messages in the form that LangChain's clients have for them. [`read`] takes every spelling that they send: roles or
//! types, text or blocks, OpenAI's, Anthropic's and LangChain's own blocks. [`write`] has one spelling for each.
//!
//! A message that is read and written again says the same: what the agent does not understand is kept as it came.

mod blocks;
mod read;
mod write;

pub(crate) use read::read_list;
#[cfg(test)]
use read::read_message;
pub(crate) use write::{usage_metadata, write_chunk, write_list, write_message, write_v2};

#[cfg(test)]
mod tests;
