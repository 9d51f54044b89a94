//! Standard input as it is sent to a command in a sandbox.

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use std::io;
use tokio::io::AsyncReadExt;

const PIECE: usize = 64 << 10;

/// Whether standard input is a pipe, a file or a socket, and neither a terminal, which a command would read
/// for ever, nor a device such as /dev/null.
pub(crate) fn is_given() -> bool {
    let kind =
        rustix::fs::fstat(rustix::stdio::stdin()).map(|s| rustix::fs::FileType::from_raw_mode(s.st_mode));
    kind.is_ok_and(|kind| kind != rustix::fs::FileType::CharacterDevice)
}

/// Standard input, piece by piece.
pub(crate) fn pieces() -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold(tokio::io::stdin(), |mut from| async move {
        let mut buffer = BytesMut::with_capacity(PIECE);
        let count = from.read_buf(&mut buffer).await?;
        Ok((count > 0).then(|| (buffer.freeze(), from)))
    })
}
