//! The HTTP floor that fronts stand on: the listener and its limits, authentication and rate limits, checks
//! of host and origin, repeatable requests, the shape of errors, and the size of bodies. Routes and their
//! answers are a front's own business; no front depends on another.

mod auth;
mod body;
mod context;
mod error;
mod event_stream;
mod guard;
mod idempotency;
mod linger;
mod listen;
mod metrics;
mod mount;
mod origin;
mod peers;
mod unsent;

pub use auth::{Access, FrontName, SocketWho, Who, caller_of, presented};
pub use body::{BodyError, LARGEST_BODY, LARGEST_CALL, read_body};
pub use context::HttpContext;
pub use error::{ERROR_TABLE, Failure};
pub use event_stream::{KEEP_ALIVE, event_stream, keep_alive};
pub use guard::PassedOn;
pub use idempotency::{Busy, HandlerResult, Rendered, Repeat, once, once_streamed};
pub use listen::{Ending, Life, serve};
pub use mount::Mount;
pub use origin::{Origin, OriginCheck, RequestOrigin};

use axum::{Router, extract::DefaultBodyLimit, middleware};
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
        .layer(middleware::from_fn_with_state(context.clone(), guard::check))
        .layer(middleware::from_fn_with_state(context.clone(), metrics::count));
    around(checked).layer(middleware::from_fn(guard::read)).layer(CatchPanicLayer::custom(error::panicked))
}
