//! The details of a refusal by a limit, for programs: the requested value, the allowed one, and when to
//! retry.

use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The details of a refusal by a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// After how many seconds a retry may succeed; none where waiting does not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
    /// By name, such as `asked`, `allowed` and `tier`.
    pub facts: Map<String, Value>,
}

impl Error {
    /// The same failure, with a fact for programs.
    #[must_use]
    pub fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.refusal.get_or_insert_default().facts.insert(name.to_owned(), value.into());
        self
    }

    /// The same failure, with a time to retry after; at least a second.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.refusal.get_or_insert_default().retry_after_seconds = Some(seconds.max(1));
        self
    }
}
