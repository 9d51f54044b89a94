//! Requests to the agent and its answers, as fronts parse and render them.

use atoll_egress::Net;
use atoll_types::{
    AssistantId, RunId, ThreadCheckpointId, ThreadId,
    conversation::{
        ApprovalRule, Checkpoint, Message, Metadata, MultitaskStrategy, Node, RunBudget, RunInput, RunRecord,
        ThreadRecord,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// What the operator decides for all runs.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// The model where neither the owner nor the run names another: `CHAT_MODEL` and its kin.
    pub model: ModelSettings,
    /// What a run may use that names no budget, and the most that it may name.
    pub budget: RunBudget,
    /// Private addresses that owners' base URLs may lead to.
    pub allowed_addresses: Vec<Net>,
    /// Instructions that every conversation begins with; the built-in ones where left out.
    pub system_prompt: Option<String>,
    /// The server's public URL, for downloads.
    pub server_url: Option<String>,
    /// Runs that are carried out at the same time; others wait.
    pub runs_at_once: usize,
}

/// Which model, where it is, and the key to it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSettings {
    /// The model's name, such as `gpt-4o`; `provider:name` names both.
    pub model: Option<String>,
    /// openai, openai_responses, anthropic, google_genai, ollama, or a compatible one by its name with a base URL.
    pub provider: Option<String>,
    /// The provider's key.
    pub api_key: Option<String>,
    /// Where the provider is, where that is not its usual place.
    pub base_url: Option<String>,
    /// Whether it sees pictures; found out where left out.
    pub supports_vision: Option<bool>,
    /// Its window in tokens; found out where left out.
    pub context_tokens: Option<u32>,
}

impl fmt::Debug for ModelSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, provider, api_key, base_url, supports_vision, context_tokens } = self;
        f.debug_struct("ModelSettings")
            .field("model", model)
            .field("provider", provider)
            .field("has_api_key", &api_key.is_some())
            .field("base_url", base_url)
            .field("supports_vision", supports_vision)
            .field("context_tokens", context_tokens)
            .finish()
    }
}

/// An owner's model settings as they are shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelSettingsView {
    pub model: Option<String>,
    pub provider: Option<String>,
    pub base_url: Option<String>,
    pub supports_vision: Option<bool>,
    pub context_tokens: Option<u32>,
    /// Whether there is a key, the owner's or the server's.
    pub has_api_key: bool,
    /// The last characters of the owner's own key, as `…abcd`; never of the server's.
    pub api_key_hint: Option<String>,
    /// What the owner set itself; the rest is the server's.
    pub own: OwnModelSettings,
}

/// What an owner set of its model; nothing where the server's applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OwnModelSettings {
    pub model: Option<String>,
    pub provider: Option<String>,
    pub base_url: Option<String>,
    pub supports_vision: Option<bool>,
    pub context_tokens: Option<u32>,
    pub has_api_key: bool,
}

impl From<&ModelSettings> for OwnModelSettings {
    fn from(own: &ModelSettings) -> Self {
        let ModelSettings { model, provider, api_key, base_url, supports_vision, context_tokens } =
            own.clone();
        Self { model, provider, base_url, supports_vision, context_tokens, has_api_key: api_key.is_some() }
    }
}

/// What is done where the thing exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfExists {
    /// The request fails with `AlreadyExists`.
    #[default]
    Raise,
    /// The existing one is the answer.
    DoNothing,
}

/// What is done where a run's thread does not exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IfMissing {
    /// The request fails with `NotFound`.
    #[default]
    Reject,
    /// It is made.
    Create,
}

/// An assistant to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAssistantRequest {
    pub id: Option<AssistantId>,
    pub graph: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub config: Value,
    pub context: Value,
    pub metadata: Metadata,
    pub if_exists: IfExists,
}

/// What changes of an assistant; metadata are merged, the rest is replaced.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PatchAssistant {
    pub graph: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    pub config: Option<Value>,
    pub context: Option<Value>,
    pub metadata: Option<Metadata>,
}

/// A thread to be made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewThreadRequest {
    pub id: Option<ThreadId>,
    pub metadata: Metadata,
    pub if_exists: IfExists,
}

/// A thread with its state.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadView {
    /// The thread.
    pub thread: ThreadRecord,
    /// Its head; none where nothing was said yet.
    pub head: Option<Checkpoint>,
}

/// Values for a thread's state.
#[derive(Debug, Clone, PartialEq)]
pub struct StateUpdate {
    /// Messages: those of an id that the state has replace theirs, others are added at the end.
    pub messages: Vec<Message>,
    /// Ids of messages that are removed.
    pub removed: Vec<String>,
    /// Other values.
    pub values: Metadata,
    /// The checkpoint that it changes; the head where left out.
    pub at: Option<ThreadCheckpointId>,
    /// The node that the update stands for, which decides what comes next.
    pub as_node: Option<Node>,
    /// What the client keeps with the checkpoint.
    pub metadata: Metadata,
}

/// A run to begin.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRequest {
    /// The run's id; a random one where left out.
    pub id: Option<RunId>,
    /// An assistant's id or a graph's name.
    pub assistant: String,
    /// What it begins with.
    pub input: RunInput,
    /// `config.configurable`, merged over the assistant's: `model`, `model_provider` (or `provider`), `api_key`, `base_url`,
    /// `supports_vision`, `system_prompt`, `approval`, `max_iterations`, `max_tokens`, `max_seconds`. Unknown names are
    /// ignored.
    pub configurable: Metadata,
    /// `config.recursion_limit`, as a budget of iterations.
    pub recursion_limit: Option<u32>,
    /// Budgets.
    pub budget: RunBudget,
    /// Which tools need approval; as the assistant says where left out.
    pub approval: Option<ApprovalRule>,
    /// The run stops before these nodes.
    pub interrupt_before: Vec<Node>,
    /// The run stops after these nodes.
    pub interrupt_after: Vec<Node>,
    /// What the client keeps with it.
    pub metadata: Metadata,
    /// The request as it is shown again; the engine takes the key out of it.
    pub kwargs: Metadata,
    /// What becomes of it where the thread has a run under way.
    pub multitask: MultitaskStrategy,
    /// The checkpoint that it goes on from; the thread's head where left out.
    pub from: Option<ThreadCheckpointId>,
    /// What is done where there is no such thread.
    pub if_missing: IfMissing,
    /// Seconds to wait before it begins.
    pub after_seconds: u32,
    /// The URL that the caller reaches this server by, for downloads.
    pub address: Option<String>,
}

impl RunRequest {
    /// A run of an assistant with an input, and everything else as usual.
    #[must_use]
    pub fn new(assistant: impl Into<String>, input: RunInput) -> Self {
        Self {
            id: None,
            assistant: assistant.into(),
            input,
            configurable: Metadata::new(),
            recursion_limit: None,
            budget: RunBudget::default(),
            approval: None,
            interrupt_before: Vec::new(),
            interrupt_after: Vec::new(),
            metadata: Metadata::new(),
            kwargs: Metadata::new(),
            multitask: MultitaskStrategy::Enqueue,
            from: None,
            if_missing: IfMissing::Reject,
            after_seconds: 0,
            address: None,
        }
    }
}

/// What a cancelled run leaves behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CancelAction {
    /// What it did stays.
    #[default]
    Interrupt,
    /// Its checkpoints and its record are removed.
    Rollback,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// The run.
    pub run: RunRecord,
    /// The thread's state after it.
    pub state: Option<Checkpoint>,
}
