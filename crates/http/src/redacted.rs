//! Answers that may be kept for a repetition of their request, without secret values.

use crate::Rendered;
use atoll_core::Redactor;
use axum::{http::StatusCode, response::Response};
use serde::Serialize;
use serde_json::Value;

/// An answer that its caller gets whole, and of which a copy without secret values is kept.
pub struct Redacted<T> {
    /// What its caller gets.
    pub answer: T,
    /// Takes secret values out of the copy.
    pub redactor: Redactor,
}

impl<T: Serialize + Send + 'static> Rendered for Redacted<T> {
    fn kept(&self) -> Option<Vec<u8>> {
        let mut value = serde_json::to_value(&self.answer).ok()?;
        redact(&mut value, &self.redactor);
        serde_json::to_vec(&value).ok()
    }

    fn respond(self, status: StatusCode) -> Response {
        self.answer.respond(status)
    }
}

/// Takes secret values out of every text of a value.
fn redact(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => *text = redactor.text(text),
        Value::Array(values) => values.iter_mut().for_each(|value| redact(value, redactor)),
        Value::Object(values) => values.values_mut().for_each(|value| redact(value, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
