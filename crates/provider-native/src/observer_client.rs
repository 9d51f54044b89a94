//! Queries the observer which files changed, over one connection that is reused.

use async_trait::async_trait;
use atoll_launch_proto::{
    FileAction as Action, HEADER, Layout, MAX_ANSWER, MAX_REQUEST, ObserveAnswer, ObserveRequest, decode,
    encode, frame_length,
};
use atoll_provider::{Changed, FileAction, FileChange, FileChanges};
use atoll_types::{ContainerId, Error, ErrorCode, Result};
use std::{io, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::Mutex,
};

/// How long a reply may take: the slowest observer scans a whole volume.
const PATIENCE: Duration = Duration::from_secs(20);

/// The observer of an instance. One connection serves all its containers, one request at a time.
#[derive(Debug)]
pub(crate) struct ObserverClient {
    socket: PathBuf,
    stream: Mutex<Option<UnixStream>>,
}

impl ObserverClient {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { socket: layout.observer(), stream: Mutex::new(None) }
    }

    async fn ask(&self, request: ObserveRequest) -> Result<ObserveAnswer> {
        let mut place = self.stream.lock().await;
        let kept = place.take();
        let fresh = kept.is_none();
        match self.try_ask(kept, request).await {
            Ok((answer, stream)) => {
                *place = Some(stream);
                Ok(answer)
            }
            // It may have been restarted since the last request.
            Err(_) if !fresh => {
                let (answer, stream) = self.try_ask(None, request).await.map_err(silent)?;
                *place = Some(stream);
                Ok(answer)
            }
            Err(error) => Err(silent(error)),
        }
    }

    async fn try_ask(
        &self,
        kept: Option<UnixStream>,
        request: ObserveRequest,
    ) -> io::Result<(ObserveAnswer, UnixStream)> {
        let mut stream = match kept {
            Some(stream) => stream,
            None => UnixStream::connect(&self.socket).await?,
        };
        let exchange = async {
            stream.write_all(&encode(&request, MAX_REQUEST).map_err(io::Error::other)?).await?;
            let mut header = [0; HEADER];
            stream.read_exact(&mut header).await?;
            let mut body = vec![0; frame_length(header, MAX_ANSWER).map_err(io::Error::other)?];
            stream.read_exact(&mut body).await?;
            decode(&body).map_err(io::Error::other)
        };
        let answer =
            tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok((answer, stream))
    }
}

fn silent(error: io::Error) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the observer of file changes does not answer: {error}"))
}

/// The changes of one container.
pub(crate) struct ContainerChanges {
    pub(crate) observer: Arc<ObserverClient>,
    pub(crate) id: ContainerId,
}

#[async_trait]
impl FileChanges for ContainerChanges {
    async fn take(&self) -> Result<Changed> {
        match self.observer.ask(ObserveRequest::Take(self.id)).await? {
            ObserveAnswer::Changes { entries, truncated } => {
                let change = |c: atoll_launch_proto::FileChange| FileChange {
                    path: c.path,
                    action: match c.action {
                        Action::Created => FileAction::Created,
                        Action::Modified => FileAction::Modified,
                        Action::Deleted => FileAction::Deleted,
                    },
                    size_bytes: c.size_bytes,
                };
                Ok(Changed { files: entries.into_iter().map(change).collect(), truncated })
            }
            ObserveAnswer::Err(error) => Err(error),
            ObserveAnswer::Done => Err(Error::internal("the observer answered something else")),
        }
    }
}
