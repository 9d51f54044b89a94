//! Reads with a buffer of earlier bytes, and ends of connections that hold no buffer while idle.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, ReadHalf};

/// A reader that may know whether it is readable.
pub(crate) trait Source: AsyncRead + Send + Sync + Unpin {
    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Ends the connection with a reset, so that the peer does not take it for an ordinary end.
    fn abort(&self);
}

/// TLS has records of its own; only reading shows whether there is data.
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Source for ReadHalf<T> {
    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Without close_notify the end of TLS is not an ordinary one.
    fn abort(&self) {}
}

pub(crate) type Sink = Box<dyn AsyncWrite + Send + Sync + Unpin>;

/// A source, and what was read from it and not used yet.
pub(crate) struct Buffered {
    source: Box<dyn Source>,
    read: Vec<u8>,
    used: usize,
}

impl Buffered {
    pub(crate) fn new(source: impl Source + 'static, read: Vec<u8>) -> Self {
        Self { source: Box::new(source), read, used: 0 }
    }

    /// What is there.
    pub(crate) fn data(&self) -> &[u8] {
        self.read.get(self.used..).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.used = (self.used + bytes).min(self.read.len());
        if self.used == self.read.len() {
            // An idle connection holds no buffer.
            self.read = Vec::new();
            self.used = 0;
        }
    }

    /// Reads more, at most so much. Zero is the end.
    pub(crate) async fn fill(&mut self, most: usize) -> io::Result<usize> {
        if self.used > 0 {
            self.read.drain(..self.used);
            self.used = 0;
        }
        poll_fn(|cx| self.source.poll_ready(cx)).await?;
        self.read.reserve(most);
        (&mut *self.source).take(most as u64).read_buf(&mut self.read).await
    }

    /// Whether the other side has sent bytes or closed, while the connection was idle.
    pub(crate) fn is_stale(&mut self) -> bool {
        if !self.data().is_empty() {
            return true;
        }
        let mut byte = [0_u8; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        Pin::new(&mut *self.source).poll_read(&mut cx, &mut buffer).is_ready()
    }

    /// What was read and not used.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut read = std::mem::take(&mut self.read);
        read.drain(..std::mem::take(&mut self.used));
        read
    }

    /// The source itself, once everything that was read is used.
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        &mut *self.source
    }

    pub(crate) fn into_parts(self) -> (Box<dyn Source>, Vec<u8>) {
        let Self { source, mut read, used } = self;
        read.drain(..used);
        (source, read)
    }
}
