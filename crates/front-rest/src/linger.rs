//! Closing without a reset. A request may be answered before all of its body was read, as a refused
//! upload is; closing then would make the kernel throw the answer away with the unread rest. So the end
//! of the answer is sent, and what still comes is read and dropped for a while.

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

/// How long a client may go on sending to nobody, and how much.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST: usize = 64 << 20;

/// A connection that is closed in that way.
pub(crate) struct Lingering<S> {
    stream: S,
    /// Set once our side is closed.
    end: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S> Lingering<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, end: None }
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
        let Self { stream, end } = &mut *self;
        let (late, left) = match end {
            Some(end) => end,
            None => {
                ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
                end.insert((Box::pin(sleep(PATIENCE)), MOST))
            }
        };
        let mut room = [const { std::mem::MaybeUninit::uninit() }; 16 * 1024];
        while *left > 0 && late.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::uninit(&mut room);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => *left = left.saturating_sub(buffer.filled().len()),
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
                let closing = tokio::spawn(async move { Lingering::new(server).shutdown().await });
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
