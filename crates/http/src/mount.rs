//! What a front serves at one path of its own. The mount authenticates the caller, applies its rate limit and
//! names the front for the audit; the front answers.

use crate::{
    HttpContext,
    auth::{FrontName, identify, presented},
};
use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::Request,
    http::{Method, Response},
    response::IntoResponse,
    routing::any,
};
use std::convert::Infallible;
use tower::{BoxError, Service, ServiceExt, util::BoxCloneSyncService};

/// A front at one path.
#[derive(Clone)]
pub struct Mount {
    path: &'static str,
    front: FrontName,
    answer: BoxCloneSyncService<Request, Response<Body>, Infallible>,
}

impl Mount {
    /// What answers at a path. Each request has its caller among its extensions, except for `OPTIONS`, which
    /// browsers send without a key.
    pub fn new<S, B>(path: &'static str, front: &'static str, service: S) -> Self
    where
        S: Service<Request, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let answer = BoxCloneSyncService::new(service.map_response(|response| response.map(Body::new)));
        Self { path, front: FrontName(front), answer }
    }

    pub(crate) fn router(self, context: HttpContext) -> Router {
        let path = self.path;
        Router::new().route(path, any(move |request: Request| self.serve(context, request)))
    }

    async fn serve(self, context: HttpContext, request: Request) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        if parts.method != Method::OPTIONS {
            match identify(&context, self.front, &parts, presented(&parts.headers)).await {
                Ok(caller) => _ = parts.extensions.insert(caller),
                Err(failure) => return failure.into_response(),
            }
        }
        match self.answer.oneshot(Request::from_parts(parts, body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
