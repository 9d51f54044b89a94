//! Tools beyond the six, where the operator wants them: commands in the background, and addresses of what
//! listens inside. Snapshots will come here with the snapshots.

use atoll_core::Core;
use atoll_sessions::{Reply, Sessions, Who};
use rmcp::model::Tool;
use serde_json::Value;

pub(crate) struct Extra {
    core: Core,
    sessions: Sessions,
}
impl Extra {
    pub(crate) fn new(core: Core, sessions: Sessions) -> Self {
        Self { core, sessions }
    }
    pub(crate) async fn call(&self, who: &Who, name: &str, arguments: Value) -> Reply {
        let _ = (&self.core, &self.sessions);
        self.sessions.call(who, name, arguments).await
    }
}
pub(crate) fn is_one(_name: &str) -> bool {
    false
}
pub(crate) fn tools() -> Vec<Tool> {
    Vec::new()
}
