//! The HTTP floor that fronts stand on: the listener and its limits, authentication and rate limits, checks
//! of host and origin, repeatable requests, the shape of errors, and the size of bodies. Routes and their
//! answers are a front's own business; no front depends on another.

mod auth;
mod body;
mod context;
mod cors;
mod error;
mod event_stream;
mod guard;
mod idempotency;
mod linger;
mod listen;
mod metrics;
mod mount;
mod origin;
mod parse;
mod peers;
mod redacted;
mod request_body;
mod server_address;
mod session;
mod stalled;
mod tls;
mod unsent;
mod watched;

/// What a front's routes are assembled in.
pub use axum::Router;

pub use auth::{Access, FrontName, LookUp, SocketWho, Who, caller_of, presented};
pub use body::{BodyError, LARGEST_BODY, LARGEST_CALL, read_body, read_body_within};
pub use context::HttpContext;
pub use cors::Cors;
pub use error::{ERROR_TABLE, Failure, RenderedFailure};
pub use event_stream::{KEEP_ALIVE, event_stream, keep_alive};
pub use guard::PassedOn;
pub use idempotency::{Busy, HandlerResult, Rendered, Repeat, once, once_streamed};
pub use listen::{Ending, Life, Transport, serve, serve_over};
pub use mount::Mount;
pub use origin::{Origin, OriginCheck, RequestOrigin};
pub use parse::{Params, Raw, json, read_request, required_json};
pub use peers::{OpenCall, OpenCalls};
pub use redacted::Redacted;
pub use server_address::ServerAddress;
pub use session::{BrowserSession, PresentedSession, SessionCookie};
pub use tls::Tls;
pub use unsent::ChangedNothing;

use axum::{extract::DefaultBodyLimit, middleware};
use tower_http::catch_panic::CatchPanicLayer;

/// Everything that one listener serves: the routes of `api` and those of `mounts`, behind the same checks.
/// `around` is a front's middleware, which sees requests before the API's routes do.
pub fn router(
    context: &HttpContext,
    api: Router,
    mounts: Vec<Mount>,
    around: impl FnOnce(Router) -> Router,
) -> Router {
    let all = mounts.into_iter().fold(api, |router, mount| router.merge(mount.router(context.clone())));
    let checked = all
        .fallback(error::no_such_route)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(middleware::from_fn_with_state(context.clone(), unsent::count))
        .layer(middleware::from_fn(session::end_streams))
        .layer(middleware::from_fn_with_state(context.clone(), guard::check))
        .layer(middleware::from_fn_with_state(context.clone(), metrics::count));
    around(checked).layer(middleware::from_fn(guard::read)).layer(CatchPanicLayer::custom(error::panicked))
}
