//! A response: its parsed value, and its text as it came, which may have more fields than this client knows.

use crate::{Error, Result};
use serde::de::DeserializeOwned;
use std::ops::Deref;

/// A response of the server.
#[derive(Debug, Clone)]
pub struct ServerReply<T> {
    /// The parsed value.
    pub value: T,
    /// The JSON as the server sent it.
    pub json: String,
    /// The HTTP status, where several mean success.
    pub status: u16,
}

impl<T: DeserializeOwned> ServerReply<T> {
    pub(crate) fn parse(status: u16, body: Vec<u8>) -> Result<Self> {
        let wrong =
            |cause: String| Error::Unexpected(format!("it sent what is no answer of Atoll ({cause})"));
        let json = String::from_utf8(body).map_err(|e| wrong(e.to_string()))?;
        let value = serde_json::from_str(&json).map_err(|e| wrong(e.to_string()))?;
        Ok(Self { value, json, status })
    }
}

impl<T> Deref for ServerReply<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}
