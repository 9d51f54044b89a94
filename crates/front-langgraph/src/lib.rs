//! The LangGraph Platform API at the server's root, so that its SDKs, Agent Chat UI and other clients of that world reach
//! the agent. Each handler parses its protocol into an operation of [`atoll_agent::Agents`] and renders the answer;
//! nothing is decided here. Authentication, rate limits and body limits are the HTTP floor's.
//!
//! Both streams are served: the events of one run (`stream/modes.rs`) and protocol v2, the events of a thread
//! (`stream/protocol.rs`). A renderer always reads a run from its first event and is silent up to where the client resumes,
//! so what a client sees does not depend on where it was cut off. A wire event that is not the last one of an event of the
//! agent has the number before it: a client that resumes after it gets the rest again, and never less.
//!
//! These routes are not in the OpenAPI description, which is of the native API: `docs/agent.md` describes them.

mod assistants;
mod errors;
mod graph;
mod ids;
mod interrupts;
mod messages;
mod meta;
mod pages;
mod protocol;
mod runs;
mod settings;
mod state;
mod store;
mod stream;
mod threads;

use atoll_agent::Agents;
use atoll_http::{FrontName, HttpContext, OriginCheck};
use axum::{Router, extract::FromRef, middleware};
use std::sync::Arc;

/// What every handler can reach.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) agents: Agents,
    pub(crate) http: HttpContext,
}

impl FromRef<App> for HttpContext {
    fn from_ref(app: &App) -> Self {
        app.http.clone()
    }
}

impl FromRef<App> for FrontName {
    fn from_ref(_: &App) -> Self {
        Self("langgraph")
    }
}

/// The routes over an agent.
pub fn routes(http: HttpContext, agents: Agents) -> Router {
    let app = App { agents, http };
    meta::routes()
        .merge(assistants::routes())
        .merge(threads::routes())
        .merge(state::routes())
        .merge(runs::routes())
        .merge(protocol::routes())
        .merge(store::routes())
        .merge(settings::routes())
        .with_state(app)
}

/// Renders every error of these paths in their shape, whichever layer refused the request, and lets pages of the allowed
/// origins read the answers.
pub fn around(router: Router, origins: Arc<OriginCheck>) -> Router {
    router
        .layer(middleware::from_fn(errors::render))
        .layer(middleware::from_fn_with_state(origins, pages::check))
}
