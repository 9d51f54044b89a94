//! The sandbox's end of a connection, and reading requests from it.

use super::{
    head::{self, Malformed, RequestHead, Scan},
    io::{Buffered, Sink},
    tcp::Tcp,
};
use std::time::Duration;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};

/// For a complete head once it has begun, and for it to begin.
const HEAD: Duration = Duration::from_secs(10);
const BETWEEN: Duration = Duration::from_secs(60);

/// The sandbox's end of a connection.
pub(crate) struct Client {
    pub(crate) reader: Buffered,
    pub(crate) writer: Sink,
    /// Whether a response has begun, so that no other can be sent.
    pub(crate) begun: bool,
}

/// Why no request was read.
pub(crate) enum Unread {
    /// The client closed the connection.
    End,
    /// It is malformed.
    Malformed(Malformed),
}

impl Client {
    /// Both ends of a connection, with what was read of it already.
    pub(crate) fn new(stream: TcpStream, read: Vec<u8>) -> Self {
        let stream = Tcp::new(stream);
        Self { reader: Buffered::new(stream.clone(), read), writer: Box::new(stream), begun: false }
    }

    /// Makes the connection end with a reset.
    pub(crate) fn abort(&mut self) {
        self.reader.source().abort();
    }

    /// The head of the next request.
    pub(crate) async fn head(&mut self) -> Result<RequestHead, Unread> {
        if self.reader.data().is_empty() {
            match timeout(BETWEEN, self.reader.fill(4096)).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => return Err(Unread::End),
            }
        }
        let whole = async {
            let mut scan = Scan::default();
            while scan.end(self.reader.data()).map_err(Unread::Malformed)?.is_none() {
                if self.reader.fill(16 * 1024).await.map_err(|_| Unread::End)? == 0 {
                    return Err(Unread::End);
                }
            }
            Ok(())
        };
        timeout(HEAD, whole).await.map_err(|_| Unread::End)??;
        match head::request(self.reader.data()).map_err(Unread::Malformed)? {
            Some((head, length)) => {
                self.reader.consume(length);
                Ok(head)
            }
            None => Err(Unread::End),
        }
    }
}

/// Closes so that what was sent before arrives: incoming bytes are read and dropped for a moment.
pub(crate) async fn linger(mut client: Client) {
    let _ = client.writer.shutdown().await;
    let rest = async {
        for _ in 0..64 {
            let held = client.reader.data().len();
            client.reader.consume(held);
            if !matches!(client.reader.fill(16 * 1024).await, Ok(read) if read > 0) {
                break;
            }
        }
    };
    let _ = timeout(Duration::from_secs(2), rest).await;
}
