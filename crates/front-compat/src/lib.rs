//! The APIs of two other sandbox servers, both at `/api/sandbox`, so that their clients move over by changing a URL:
//! [`runs`] (create, run, poll, delete) and [`containers`] (configuration, containers, snapshots and more). Each only translates: it parses its protocol into operations of the core and
//! renders the answer in its own shapes. Authentication, rate limits and repeatable requests are the HTTP floor's.
//!
//! They are not in the OpenAPI description, which is of the native API: `docs/compatible-apis.md` describes them.

mod containers;
mod errors;
mod ids;
mod runs;

use atoll_core::{Core, KeptOutput};
use atoll_http::{FrontName, HttpContext};
use atoll_types::{Millis, time::rfc3339};
use axum::{Router, extract::FromRef, http::header, middleware, routing::get};
use std::sync::Arc;

/// Where the server shows the page that describes these APIs.
const DOCS: &str = "/docs/compatible-apis";

/// What every handler can reach.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) core: Core,
    pub(crate) http: HttpContext,
}

impl FromRef<App> for HttpContext {
    fn from_ref(app: &App) -> Self {
        app.http.clone()
    }
}

impl FromRef<App> for FrontName {
    fn from_ref(_: &App) -> Self {
        Self("compat")
    }
}

/// A time with whole seconds, as both APIs write it.
pub(crate) fn at(millis: Millis) -> String {
    rfc3339(millis - millis.rem_euclid(1000)).replace(".000Z", "Z")
}

/// What the audit trail keeps of an output, as text.
pub(crate) fn kept_text(output: Option<KeptOutput>) -> String {
    let Some(KeptOutput { head, tail, length, truncated, .. }) = output else { return String::new() };
    let (head_text, tail_text) = (String::from_utf8_lossy(&head), String::from_utf8_lossy(&tail));
    match truncated {
        false => head_text.into_owned(),
        true => {
            let missing = length.saturating_sub((head.len() + tail.len()) as u64);
            format!("{head_text}\n[{missing} bytes are not kept]\n{tail_text}")
        }
    }
}

async fn docs() -> ([(header::HeaderName, &'static str); 1], &'static str) {
    let page = include_str!("../../../docs/compatible-apis.md");
    ([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], page)
}

/// The routes of both APIs over a core.
pub fn routes(http: HttpContext) -> Router {
    let app = App { core: http.core.clone(), http };
    runs::routes().merge(containers::routes()).route(DOCS, get(docs)).with_state(app)
}

/// Renders every error below the paths of these APIs in the shape of its protocol, whichever layer refused the request.
/// Errors link to the documentation, by the server's public address where the operator names one.
pub fn around(router: Router, server_url: Option<&str>) -> Router {
    let docs: Arc<str> = format!("{}{DOCS}", server_url.unwrap_or_default()).into();
    router.layer(middleware::from_fn_with_state(docs, errors::render))
}
