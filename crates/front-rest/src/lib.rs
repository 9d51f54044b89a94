//! The REST API of `/api/v1`. Handlers parse into operations of the core and render what comes back; they
//! decide nothing. Authentication and the shape of errors are the HTTP floor's.

mod admin;
mod audit;
mod builds;
mod describe;
mod docs;
mod egress;
mod events;
mod exec;
mod files;
mod folders;
mod forward;
mod history;
mod image_builds;
mod image_specs;
mod images;
mod kernels;
mod keys;
mod meta;
mod metrics;
mod parse;
mod pool;
mod preview;
mod sandboxes;
mod settings;
mod shapes;
mod skill_catalogue;
mod skills;
mod snapshots;
mod terminal;
mod threads;
mod transfer;
mod usage;
mod volumes;

use atoll_agent::Agents;
use atoll_core::Core;
use atoll_http::{FrontName, HttpContext};
use atoll_tool_sessions::Sessions;
use axum::{Router, extract::FromRef, middleware, routing::any};
use docs::Bearer;
use preview::Preview;
pub use preview::{Domain as PreviewDomain, PreviewSettings};
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

/// What every handler can reach.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) core: Core,
    pub(crate) sessions: Sessions,
    pub(crate) agents: Agents,
    pub(crate) http: HttpContext,
    pub(crate) preview: Arc<Preview>,
}

impl FromRef<App> for HttpContext {
    fn from_ref(app: &App) -> Self {
        app.http.clone()
    }
}

impl FromRef<App> for FrontName {
    fn from_ref(_: &App) -> Self {
        Self("rest")
    }
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Atoll", description = "A computer of its own for every AI agent.", license(name = "Apache-2.0")),
    paths(preview::open),
    components(schemas(describe::ErrorBody, describe::ValidationBody)),
    modifiers(&Bearer),
    security(("key" = []))
)]
struct Document;

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(meta::root))
        .routes(routes!(meta::health))
        .routes(routes!(meta::metrics))
        .routes(routes!(sandboxes::create, sandboxes::list))
        .routes(routes!(sandboxes::get, sandboxes::patch, sandboxes::destroy))
        .routes(routes!(sandboxes::stop))
        .routes(routes!(sandboxes::pause))
        .routes(routes!(sandboxes::resume))
        .routes(routes!(sandboxes::activity))
        .routes(routes!(snapshots::create, snapshots::list))
        .routes(routes!(snapshots::get, snapshots::label, snapshots::delete))
        .routes(routes!(snapshots::diff))
        .routes(routes!(snapshots::rollback))
        .routes(routes!(snapshots::fork))
        .routes(routes!(transfer::export))
        .routes(routes!(transfer::import))
        .routes(routes!(usage::metrics))
        .routes(routes!(usage::usage))
        .routes(routes!(egress::get, egress::put))
        .routes(routes!(egress::log))
        .routes(routes!(egress::token))
        .routes(routes!(egress::presets))
        .routes(routes!(exec::exec))
        .routes(routes!(terminal::terminal))
        .routes(routes!(exec::control::list))
        .routes(routes!(exec::control::get, exec::control::forget))
        .routes(routes!(exec::output::output))
        .routes(routes!(exec::control::stdin))
        .routes(routes!(exec::control::signal))
        .routes(routes!(exec::control::kill))
        .routes(routes!(kernels::start, kernels::list))
        .routes(routes!(kernels::get, kernels::remove))
        .routes(routes!(kernels::execute::execute))
        .routes(routes!(kernels::interrupt))
        .routes(routes!(kernels::complete::complete))
        .routes(routes!(kernels::restart))
        .routes(routes!(kernels::fork))
        .routes(routes!(kernels::checkpoints::make, kernels::checkpoints::list))
        .routes(routes!(kernels::checkpoints::remove))
        .routes(routes!(kernels::checkpoints::rollback))
        .routes(routes!(kernels::execute::run))
        .routes(routes!(kernels::dependencies::install))
        .routes(routes!(files::list))
        .routes(routes!(files::download, files::upload))
        .routes(routes!(files::stat))
        .routes(routes!(files::mkdir))
        .routes(routes!(files::rename))
        .routes(routes!(files::remove))
        .routes(routes!(folders::find))
        .routes(routes!(folders::grep))
        .routes(routes!(folders::pack, folders::unpack))
        .routes(routes!(folders::watch))
        .routes(routes!(history::history))
        .routes(routes!(preview::ports))
        .routes(routes!(preview::create, preview::list))
        .routes(routes!(preview::revoke))
        .routes(routes!(forward::forward))
        .route("/api/v1/sandboxes/{id}/ports/{port}", any(preview::redirect))
        .route("/api/v1/sandboxes/{id}/ports/{port}/", any(preview::open))
        .route("/api/v1/sandboxes/{id}/ports/{port}/{*path}", any(preview::open))
        .routes(routes!(images::list, image_builds::build_image))
        .routes(routes!(image_builds::build_image_with_files))
        .routes(routes!(images::import))
        .routes(routes!(builds::pull))
        .routes(routes!(builds::builds))
        .routes(routes!(builds::build, builds::cancel_build))
        .routes(routes!(builds::build_log))
        .routes(routes!(images::export))
        .routes(routes!(images::push))
        .routes(routes!(images::get, images::patch, images::delete))
        .routes(routes!(volumes::create, volumes::list))
        .routes(routes!(volumes::get, volumes::resize, volumes::delete))
        .routes(routes!(skills::create, skills::list))
        .routes(routes!(skills::upload))
        .routes(routes!(skill_catalogue::templates))
        .routes(routes!(skill_catalogue::catalog))
        .routes(routes!(skill_catalogue::catalog_detail))
        .routes(routes!(skill_catalogue::import))
        .routes(routes!(skills::get, skills::update, skills::delete))
        .routes(routes!(skills::package))
        .routes(routes!(skills::install))
        .routes(routes!(image_specs::package_catalogue))
        .routes(routes!(image_specs::template_list))
        .routes(routes!(keys::create, keys::list))
        .routes(routes!(keys::revoke))
        .routes(routes!(admin::sandboxes))
        .routes(routes!(admin::bulk_stop))
        .routes(routes!(admin::owners))
        .routes(routes!(settings::get, settings::patch))
        .routes(routes!(pool::summary))
        .routes(routes!(pool::get, pool::patch))
        .routes(routes!(pool::drain))
        .routes(routes!(audit::list))
        .routes(routes!(audit::summary))
        .routes(routes!(audit::trail::export))
        .routes(routes!(audit::trail::verify))
        .routes(routes!(audit::trail::cleanup))
        .routes(routes!(audit::get))
        .routes(routes!(audit::output))
        .routes(routes!(events::events))
        .routes(routes!(threads::tools))
        .routes(routes!(threads::call))
        .routes(routes!(threads::sessions))
        .routes(routes!(threads::exports))
        .routes(routes!(threads::download))
        .routes(routes!(threads::upload))
        .routes(routes!(threads::delete))
}

/// The document that describes the API.
#[must_use]
pub fn openapi() -> String {
    let (_, document) = routes().split_for_parts();
    serde_json::to_string_pretty(&describe::finish(&document)).unwrap_or_default()
}

/// The REST API over a core.
pub struct Rest(App);

impl Rest {
    /// Of a server whose fronts share this.
    #[must_use]
    pub fn new(http: HttpContext, sessions: Sessions, agents: Agents, preview: PreviewSettings) -> Self {
        let preview = Arc::new(Preview::new(preview));
        Self(App { core: http.core.clone(), sessions, agents, http, preview })
    }

    /// Its routes.
    pub fn routes(&self) -> Router {
        let (router, document) = routes().split_for_parts();
        router.merge(docs::router(describe::finish(&document).to_string())).with_state(self.0.clone())
    }

    /// Serves previews that have names of their own; nothing else of that name comes to `router`.
    pub fn around(&self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self.0.clone(), preview::route))
    }
}
