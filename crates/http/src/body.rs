//! How large a body may be, by what it asks for and not by its front, and how long it may take.

use crate::Failure;
use atoll_types::{Error, ErrorCode};
use axum::{
    body::{Body, HttpBody},
    http::Response,
};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Frame, SizeHint};
use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tower::BoxError;

/// The largest body that is neither a file nor a call of a tool.
pub const LARGEST_BODY: usize = 4 << 20;
/// The largest call of a tool, by whichever protocol: a file of 8 MiB in base64 fits into it.
pub const LARGEST_CALL: usize = 16 << 20;
/// How long each part of this size may take.
const PATIENCE: Duration = Duration::from_secs(30);
const PART: usize = 8 << 20;
/// How long the largest call may take.
pub(crate) const CALL_PATIENCE: Duration =
    Duration::from_secs(PATIENCE.as_secs() * (LARGEST_CALL / PART) as u64);

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// It is larger than this many bytes.
    TooLarge(usize),
    /// The client sent less than it said.
    CutOff,
    /// The client was too slow.
    TooSlow,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(most) if *most < 1 << 20 => {
                write!(f, "the body is larger than {} KiB", most.div_ceil(1 << 10))
            }
            Self::TooLarge(most) => write!(f, "the body is larger than {} MiB", most >> 20),
            Self::CutOff => f.write_str("the body was cut off"),
            Self::TooSlow => f.write_str("the body took too long"),
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(_) => Error::new(ErrorCode::TooLarge, error.to_string()),
            BodyError::CutOff | BodyError::TooSlow => Error::invalid("body", error.to_string()),
        }
        .into()
    }
}

/// The whole of a body, which may have this many bytes.
pub async fn read_body<B>(body: B, most: usize) -> Result<Bytes, BodyError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    read_body_within(body, most, PATIENCE * u32::try_from(most.div_ceil(PART)).unwrap_or(1)).await
}

/// The same within this time.
pub async fn read_body_within<B>(body: B, most: usize, patience: Duration) -> Result<Bytes, BodyError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match tokio::time::timeout(patience, Limited::new(body, most).collect()).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge(most)),
        Ok(Err(_)) => Err(BodyError::CutOff),
        Err(_) => Err(BodyError::TooSlow),
    }
}

/// The most that an answer's body gives at once. A connection of HTTP/1 takes more only when it has sent most of what it
/// has, so an answer counts for its owner until its client has taken all but some pieces.
const PIECE: usize = 64 << 10;

/// An answer's body that keeps something until it is sent or dropped.
pub(crate) struct HoldingBody<T> {
    body: Body,
    /// What was taken of the body and not given yet.
    rest: Bytes,
    _held: T,
}

impl<T: Unpin> HttpBody for HoldingBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context))
                .map(|frame| frame.map(Frame::into_data))
            {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = PIECE.min(self.rest.len());
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        with_rest(self.body.size_hint(), &self.rest)
    }
}

/// The size of a body of which a rest was taken already.
pub(crate) fn with_rest(hint: SizeHint, rest: &Bytes) -> SizeHint {
    let rest = rest.len() as u64;
    let mut all = SizeHint::new();
    all.set_lower(hint.lower() + rest);
    if let Some(upper) = hint.upper() {
        all.set_upper(upper + rest);
    }
    all
}

/// An answer that keeps something until it is sent or dropped.
pub(crate) fn holding<T: Unpin + Send + 'static>(response: Response<Body>, held: T) -> Response<Body> {
    response.map(|body| Body::new(HoldingBody { body, rest: Bytes::new(), _held: held }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_has_a_size_and_a_time() {
        assert_eq!(read_body(Body::from("four"), 4).await.as_deref(), Ok(&b"four"[..]));
        assert_eq!(read_body(Body::from("five!"), 4).await, Err(BodyError::TooLarge(4)));
        let silent = Body::from_stream(futures_util::stream::pending::<Result<Bytes, BoxError>>());
        assert_eq!(read_body(silent, LARGEST_CALL).await, Err(BodyError::TooSlow));
        let broken = Body::from_stream(futures_util::stream::iter([Err::<Bytes, BoxError>("gone".into())]));
        assert_eq!(read_body(broken, 4).await, Err(BodyError::CutOff));
    }
}
