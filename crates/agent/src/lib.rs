//! The agent: a model that works in its own sandboxes, through the six tools of `tool-sessions`.
//!
//! [`Agents`] is the whole of it for a front: assistants, threads, states, runs, stored items and the owner's model
//! settings, as typed methods that take the caller. Every change is an audited operation of the core. Nothing here knows
//! HTTP as a server, and no front's shapes.
//!
//! One task owns one run (`runs`). A run is a row in the store before it is carried out, and a checkpoint is written after
//! each of its steps, so that the next start of the server goes on with it. Its events are numbered in its thread's log
//! (`log`), which is bounded: a follower that is too slow loses the oldest and is told so. What a model writes is hostile
//! input: an unknown tool, broken arguments or a stream that stops are data for the next step or the reason of a failed run,
//! never a crash. A provider's key is opened only for the request that sends it.

mod log;
mod model;
mod runs;
mod service;
mod settings;
mod turn;

pub use log::{Event, EventKind, OutputStream, RunFollow};
pub use service::{
    AgentSettings, Agents, CancelAction, IfExists, IfMissing, ModelSettings, ModelSettingsView,
    NewAssistantRequest, NewThreadRequest, OwnModelSettings, PatchAssistant, RunOutcome, RunRequest,
    StateUpdate, ThreadView,
};
