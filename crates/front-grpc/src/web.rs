//! Browsers. Pages reach the server by gRPC-Web, so every request passes the check of host and origin that MCP's pass,
//! and an answer names the page that may read it. There is no `*`.

use atoll_core::HeldAnswer;
use atoll_http::{Cors, OriginCheck, RequestOrigin};
use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, Method, Response, StatusCode, header},
    middleware::Next,
    response::IntoResponse,
};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tower::Service;

const CORS: Cors = Cors {
    methods: "POST",
    sent: "authorization, content-type, grpc-timeout, x-api-key, x-grpc-web, x-user-agent, connect-protocol-version",
    read: "grpc-status, grpc-message, grpc-status-details-bin, retry-after",
};

/// Refuses pages and hosts that are not allowed, answers preflights, and lets the page see the answer.
pub(crate) async fn check_page(
    State(origins): State<Arc<OriginCheck>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let asked = match RequestOrigin::read(request.uri(), request.headers()) {
        Ok(asked) => asked,
        Err(failure) => return failure.into_response(),
    };
    if let Err(why) = origins.check(&asked) {
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let page = request.headers().get(header::ORIGIN).cloned();
    if request.method() == Method::OPTIONS {
        return allow(preflight(page.is_some()), page);
    }
    allow(next.run(request).await, page)
}

fn preflight(page: bool) -> Response<Body> {
    let mut answer = StatusCode::NO_CONTENT.into_response();
    let headers = answer.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static("POST, OPTIONS"));
    if page {
        CORS.preflight(headers);
    }
    answer
}

fn allow(mut answer: Response<Body>, page: Option<HeaderValue>) -> Response<Body> {
    CORS.show(answer.headers_mut(), page);
    answer
}

/// Keeps what an answer holds of its owner's budget until its body is sent or dropped. A call puts it among the
/// extensions of its answer.
#[derive(Clone)]
pub(crate) struct HoldAnswer<S>(pub(crate) S);

impl<S, R, B> Service<axum::http::Request<R>> for HoldAnswer<S>
where
    S: Service<axum::http::Request<R>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<HeldBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: axum::http::Request<R>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            let held = answer.extensions_mut().remove::<Arc<HeldAnswer>>();
            Ok(answer.map(|body| HeldBody { body, _held: held }))
        })
    }
}

/// A body that counts until it is sent or dropped.
pub(crate) struct HeldBody<B> {
    body: B,
    _held: Option<Arc<HeldAnswer>>,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for HeldBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_frame(context)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
