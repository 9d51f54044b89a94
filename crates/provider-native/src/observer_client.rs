//! Asks the observer which files of one container changed. Each call has a connection of its own, so no container
//! waits for another.

use async_trait::async_trait;
use atoll_launch_proto::{
    HEADER, MAX_ANSWER, MAX_REQUEST, ObserveAnswer, ObserveRequest, decode, encode, frame_length,
};
use atoll_provider::{ChangeReport, FileChanges};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use std::{
    hash::{BuildHasher, RandomState},
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::Mutex,
};

/// How long a reply may take: the slowest observer scans a whole volume.
const PATIENCE: Duration = Duration::from_secs(20);

/// The changes of one container.
pub(crate) struct ContainerChanges {
    socket: PathBuf,
    id: ContainerId,
    /// Tells this reader of the container's reports from others.
    reader: u64,
    received: Mutex<Received>,
}

/// The last report that was received, and the connection on which it is acknowledged.
#[derive(Default)]
struct Received {
    sequence: u64,
    stream: Option<UnixStream>,
}

impl ContainerChanges {
    /// `socket` is where the observer listens.
    pub(crate) fn new(socket: &Path, id: ContainerId) -> Self {
        let reader = RandomState::new().hash_one(id);
        Self { socket: socket.to_owned(), id, reader, received: Mutex::default() }
    }

    async fn ask(&self, request: ObserveRequest) -> io::Result<(ObserveAnswer, UnixStream)> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        stream.write_all(&encode(&request, MAX_REQUEST).map_err(io::Error::other)?).await?;
        let mut header = [0; HEADER];
        stream.read_exact(&mut header).await?;
        let mut body = vec![0; frame_length(header, MAX_ANSWER).map_err(io::Error::other)?];
        stream.read_exact(&mut body).await?;
        Ok((decode(&body).map_err(io::Error::other)?, stream))
    }
}

fn silent(error: io::Error) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the observer of file changes does not answer: {error}"))
}

#[async_trait]
impl FileChanges for ContainerChanges {
    async fn take(&self) -> Result<ChangeReport> {
        let mut received = self.received.lock().await;
        let (container, reader) = (self.id, self.reader);
        let request = ObserveRequest::Take { container, reader, received: received.sequence };
        let asked = tokio::time::timeout(PATIENCE, self.ask(request)).await;
        // Nothing waits from here on: a report that was received is returned, and any other is sent again.
        match asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(silent)? {
            (ObserveAnswer::Changes { sequence, changed }, stream) => {
                *received = Received { sequence, stream: Some(stream) };
                Ok(ChangeReport { sequence, changed })
            }
            (ObserveAnswer::Err(error), _) => Err(error),
            (ObserveAnswer::Done, _) => Err(Error::internal("the observer answered something else")),
        }
    }

    fn acknowledge(&self, sequence: u64) {
        // A call in progress says that it was received, and the acknowledgement of its own report covers it.
        let Ok(mut received) = self.received.try_lock() else { return };
        if received.sequence != sequence {
            return;
        }
        let request = ObserveRequest::Acknowledge { container: self.id, sequence };
        if let (Some(stream), Ok(frame)) = (received.stream.take(), encode(&request, MAX_REQUEST)) {
            // If this fails, the next acknowledgement covers it.
            let _ = stream.try_write(&frame);
        }
    }
}
