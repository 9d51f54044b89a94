//! How large a body may be, by what it asks for and not by its front, and how long it may take.

use crate::Failure;
use atoll_types::{Error, ErrorCode};
use axum::body::HttpBody;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::{fmt, time::Duration};
use tower::BoxError;

/// The largest body that is neither a file nor a call of a tool.
pub const LARGEST_BODY: usize = 4 << 20;
/// The largest call of a tool, by whichever protocol: a file of 8 MiB in base64 fits into it.
pub const LARGEST_CALL: usize = 16 << 20;
/// How long each part of this size may take.
const PATIENCE: Duration = Duration::from_secs(30);
const PART: usize = 8 << 20;

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
    let patience = PATIENCE * u32::try_from(most.div_ceil(PART)).unwrap_or(1);
    match tokio::time::timeout(patience, Limited::new(body, most).collect()).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge(most)),
        Ok(Err(_)) => Err(BodyError::CutOff),
        Err(_) => Err(BodyError::TooSlow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

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
