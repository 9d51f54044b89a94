//! Settings of the server, as the server names them: this client knows none by name.

use crate::{Client, Result, ServerReply};
use hyper::Method;
use serde_json::{Map, Value};

const PATH: &str = "/api/v1/settings/sandbox";

impl Client {
    /// The settings, and where each comes from.
    pub async fn settings(&self) -> Result<ServerReply<Map<String, Value>>> {
        self.ask(Method::GET, PATH).await
    }

    /// Changes some of them, or none.
    pub async fn patch_settings(
        &self,
        changes: &Map<String, Value>,
    ) -> Result<ServerReply<Map<String, Value>>> {
        self.tell(Method::PATCH, PATH, changes).await
    }
}
