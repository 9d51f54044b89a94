//! The connection below HTTP: the server closes it without a reset. Below it, [`crate::watched`] gives up on a client that
//! does not read, whatever is written: an answer, events, frames of a WebSocket. What waits to be sent goes with it.
//!
//! Closing without a reset. A request may be answered before all of its body was read, as a refused upload
//! is; closing then would make the kernel throw the answer away with the unread rest. So the end of the
//! answer is sent, and what still comes is read and dropped for a while. Only then: a connection that was
//! read to the end of its last request is closed at once.

use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// How long a client may go on sending after the answer; the server drops what it sends.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether some of a connection's last request was not read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unread(Arc<AtomicBool>);

impl Unread {
    fn set(&self, unread: bool) {
        self.0.store(unread, Ordering::Relaxed);
    }
}

/// The body of a request, which notes whether it was read to its end.
pub(crate) struct TrackedBody {
    body: Incoming,
    unread: Unread,
}

impl TrackedBody {
    pub(crate) fn new(body: Incoming, unread: &Unread) -> Self {
        unread.set(!body.is_end_stream());
        Self { body, unread: unread.clone() }
    }
}

impl Body for TrackedBody {
    type Data = <Incoming as Body>::Data;
    type Error = <Incoming as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.unread.set(false);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that is closed in that way.
pub(crate) struct Lingering<S> {
    stream: S,
    unread: Unread,
    /// Set once our side is closed.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S, unread: Unread) -> Self {
        Self { stream, unread, end: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, unread, end } = &mut *self;
        let late = match end {
            Some(late) => late,
            None => {
                ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
                end.insert(Box::pin(sleep(PATIENCE)))
            }
        };
        if !unread.0.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let mut room = [const { std::mem::MaybeUninit::uninit() }; 16 * 1024];
        while late.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::uninit(&mut room);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    /// Without lingering the client's answer is lost to a reset, as this shows by leaving it out.
    #[tokio::test]
    async fn the_answer_arrives_though_the_question_was_not_read() {
        for (lingers, arrives) in [(true, true), (false, false)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            client.write_all(&vec![0; 1 << 20]).await.ok();
            server.write_all(b"no").await.unwrap();
            if lingers {
                let unread = Unread::default();
                unread.set(true);
                let closing = tokio::spawn(async move { Lingering::new(server, unread).shutdown().await });
                client.write_all(&vec![0; 1 << 20]).await.unwrap();
                client.shutdown().await.unwrap();
                closing.await.unwrap().unwrap();
            } else {
                drop(server);
            }
            let mut answer = Vec::new();
            let read = client.read_to_end(&mut answer).await;
            assert_eq!(read.is_ok() && answer == b"no", arrives, "{read:?}");
        }
    }
}
