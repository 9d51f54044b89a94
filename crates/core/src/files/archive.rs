//! Folders as archives, out and in. Bytes are streams in both directions; the tool inside and the caller read
//! the archive, this process never does.

use super::{
    lines::Lines,
    owner_unpack::{is_read_only, unpack_as_owner},
    tool::{Tool, ToolOptions},
};
use crate::{
    Caller, Files, OpenStream,
    files::{Outgoing, transfer},
    operation::OperationSpec,
};
use atoll_guest_tools::{Pack, Unpack, Unpacked};
use atoll_provider::{Container, about_path};
use atoll_store::{ActivityKind, SandboxId};
use atoll_types::{Error, ErrorCode, Operation, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use serde::de::DeserializeOwned;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// An archive that is being downloaded. The audit row is written when it is dropped.
pub struct Archive {
    tool: Tool,
    first: Option<Bytes>,
    note: Outgoing,
    _stream: OpenStream,
}

impl Archive {
    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let bytes = match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.tool.next().await,
        };
        self.note.count(&bytes);
        bytes
    }
}

impl Files {
    /// A folder, or a file, as a tar archive. An error is reported before the first byte.
    pub async fn pack(&self, caller: &Caller, id: SandboxId, request: &Pack) -> Result<Archive> {
        request.check()?;
        let stream = self.answers.stream(&caller.owner)?;
        let audited = self
            .operations
            .audited(caller, OperationSpec::to(Operation::FolderRead, id).with(&request.path))
            .await?;
        let opened = async {
            let container = self.reach_in(&audited, &[&request.path]).await?;
            let mut tool = self.start_tool(id, &container, "pack", request, ToolOptions::default()).await?;
            let empty = || Error::new(ErrorCode::Unavailable, "the sandbox sent no archive");
            let first = Some(tool.next().await?.ok_or_else(empty)?);
            Ok((tool, first))
        };
        match opened.await {
            Ok((tool, first)) => {
                let note = Outgoing::new(audited, id, &request.path);
                Ok(Archive { tool, first, note, _stream: stream })
            }
            Err(error) => audited.done(Err(about_path(error, &request.path))).await,
        }
    }

    /// Unpacks a tar archive into a folder, which is made if it does not exist.
    pub async fn unpack(
        &self,
        caller: &Caller,
        id: SandboxId,
        request: &Unpack,
        body: impl Stream<Item = Result<Bytes>> + Send + 'static,
    ) -> Result<Unpacked> {
        request.check()?;
        let mut audited = self
            .operations
            .audited(caller, OperationSpec::to(Operation::FolderWrite, id).with(&request.path))
            .await?;
        let count = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&count);
        let body = body.inspect(move |piece| {
            let bytes = piece.as_ref().map_or(0, Bytes::len) as u64;
            counter.fetch_add(bytes, Ordering::Relaxed);
        });
        let reached = self.reach_in(&audited, &[&request.path]).await;
        let by_owner =
            audited.record().is_ok_and(|record| is_read_only(&record.profile.paths, &request.path));
        let result = match &reached {
            Ok(container) => {
                let fed = async {
                    if by_owner {
                        return unpack_as_owner(container, &request.path, body).await;
                    }
                    let tool = self.start_tool(id, container, "unpack", request, ToolOptions::fed()).await?;
                    feed_tool(container, tool, body).await
                };
                fed.await.map_err(|e| about_path(e, &request.path))
            }
            Err(error) => Err(error.clone()),
        };
        let bytes = count.load(Ordering::Relaxed);
        if let Ok(container) = &reached {
            // A part of it may have been unpacked even so.
            let changed = self.changes.set_aside(id, container, &[&request.path]).await;
            audited.changed(&changed);
            audited.moved(bytes);
            audited.note(transfer(id, ActivityKind::Upload, request.path.clone(), bytes));
        }
        audited.done(result).await
    }
}

/// Hands an archive to a tool that reads one, and returns what it says of it.
pub(crate) async fn feed_tool<T: DeserializeOwned>(
    container: &Arc<dyn Container>,
    tool: Tool,
    body: impl Stream<Item = Result<Bytes>> + Send + 'static,
) -> Result<T> {
    let id = tool.id;
    // A body that breaks off ends the input, and the tool reports what it unpacked.
    let pieces = body.take_while(|piece| std::future::ready(piece.is_ok())).filter_map(async |p| p.ok());
    let input = container.guest().write_stdin(id, pieces);
    let answer = async {
        let mut lines = Lines::new(tool);
        match lines.next().await? {
            Some((answer, _)) => lines.finish(answer).await,
            None => lines.refuse(),
        }
    };
    let (mut input, mut answer) = (std::pin::pin!(input), std::pin::pin!(answer));
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        sent = &mut input => {
            // The tool may have ended, which its answer explains better; else it must see the end of its
            // input.
            if sent.is_err() {
                let _ = container.guest().write_stdin(id, futures_util::stream::empty()).await;
            }
        }
    }
    answer.await
}
