//! What a front asks of the agent, and the handle that it asks.

mod assistants;
mod follows;
mod items;
mod requests;
mod states;
mod threads;

pub use requests::{
    AgentSettings, CancelAction, IfExists, IfMissing, ModelSettings, ModelSettingsView, NewAssistantRequest,
    NewThreadRequest, OwnModelSettings, PatchAssistant, RunOutcome, RunRequest, StateUpdate, ThreadView,
};

pub(crate) use states::{changed, common, next_after};
pub(crate) use threads::no_thread;

use crate::{log::ThreadLogs, model::Models, runs::ActiveRuns};
use atoll_core::Core;
use atoll_egress::Reach;
use atoll_store::Store;
use atoll_tool_sessions::Sessions;
use atoll_types::Result;
use std::sync::Arc;

/// The agent of a server. Cheap to clone.
#[derive(Clone)]
pub struct Agents {
    pub(crate) core: Core,
    pub(crate) sessions: Sessions,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Arc<AgentSettings>,
    pub(crate) models: Arc<Models>,
    pub(crate) logs: ThreadLogs,
    pub(crate) active: ActiveRuns,
}

impl Agents {
    /// Puts the parts together.
    pub fn new(
        core: Core,
        sessions: Sessions,
        store: Arc<dyn Store>,
        settings: AgentSettings,
    ) -> Result<Self> {
        let reach = Reach::default().with_opened(settings.allowed_addresses.clone());
        Ok(Self {
            models: Arc::new(Models::new(reach)?),
            active: ActiveRuns::new(settings.runs_at_once),
            core,
            sessions,
            store,
            settings: Arc::new(settings),
            logs: ThreadLogs::default(),
        })
    }
}
