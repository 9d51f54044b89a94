//! Answers in memory that are not yet sent count for their owner, and no owner may hold more than is set.
//! Answers that are streamed from a sandbox hold a buffer each and are not counted here.

use crate::{Failure, HttpContext};
use atoll_core::HeldAnswer;
use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

/// Smaller answers are not counted: what a connection holds anyway.
const SMALL: u64 = 64 << 10;

/// The owner of the request, once it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnerSlot(Arc<OnceLock<String>>);

impl OwnerSlot {
    pub(crate) fn set(&self, owner: &str) {
        self.0.get_or_init(|| owner.to_owned());
    }
}

/// A body that counts until it is sent or dropped.
struct Counted {
    body: Body,
    _held: HeldAnswer,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts what an answer holds. A GET is refused where its owner holds too much; an operation that was
/// carried out is answered all the same, and its owner may begin nothing more until it has read.
pub(crate) async fn count(State(context): State<HttpContext>, mut request: Request, next: Next) -> Response {
    let (slot, looks) = (OwnerSlot::default(), *request.method() == Method::GET);
    request.extensions_mut().insert(slot.clone());
    let response = next.run(request).await;
    let size = response.body().size_hint().exact().unwrap_or(0);
    let (Some(owner), true) = (slot.0.get(), size > SMALL) else { return response };
    let mut held = match context.core.answers.hold(owner) {
        Ok(held) => held,
        Err(error) if looks => return Failure::from(error).into_response(),
        Err(_) => return response,
    };
    if !held.grow(usize::try_from(size).unwrap_or(usize::MAX)) {
        if looks {
            return Failure::too_large_unread().into_response();
        }
        held.fill();
    }
    response.map(|body| Body::new(Counted { body, _held: held }))
}
