//! A stream whose writes make progress, or end. It is the lowest layer of a connection, below TLS: what TLS still has to
//! write when it flushes or closes is watched as well.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A stream that gives up on a peer that does not read.
pub(crate) struct Watched<S> {
    stream: S,
    /// How long a write may wait for the peer to read.
    patience: Duration,
    /// Set while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, stalled: None }
    }

    /// What came of a write; an error where the peer has read nothing for too long.
    fn watched<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let late = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watched(context, closed)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watched(context, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A client that reads slowly gets everything; one that stops is given up on.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up_on() {
        let (mut client, server) = tokio::io::duplex(1024);
        let mut server = Watched::new(server, PATIENCE);
        let slow = tokio::spawn(async move {
            let mut part = [0; 512];
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_secs(59)).await;
                client.read_exact(&mut part).await.unwrap();
            }
            client
        });
        server.write_all(&[0; 4096]).await.unwrap();
        let _client = slow.await.unwrap();
        let given_up = server.write_all(&[0; 4096]).await.unwrap_err();
        assert_eq!(given_up.kind(), io::ErrorKind::TimedOut);
    }

    /// A layer above that keeps what is written, as TLS does, writes it when it flushes or closes.
    #[tokio::test(start_paused = true)]
    async fn what_a_layer_above_still_has_to_write_is_watched() {
        for closes in [false, true] {
            let (_client, server) = tokio::io::duplex(1024);
            let mut above = BufWriter::with_capacity(8192, Watched::new(server, PATIENCE));
            above.write_all(&[0; 4096]).await.unwrap();
            let ended = if closes { above.shutdown().await } else { above.flush().await };
            assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
    }
}
