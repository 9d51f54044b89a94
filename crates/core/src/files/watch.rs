//! Watching a folder for changes.

use super::{
    lines::{Lines, believable},
    tool::ToolOptions,
};
use crate::{Caller, Files, OpenStream};
use atoll_guest_tools::{Watch, WatchEvent};
use atoll_provider::{Guest, about_path};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, ExecId, Result};
use bytes::Bytes;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often the tool gets a heartbeat. It ends when none comes, even if this process died without killing
/// it.
const BEAT: Duration = Duration::from_secs(20);

/// Events as they happen. Dropping it ends the watch.
pub struct WatchStream {
    lines: Lines,
    first: Option<WatchEvent>,
    heart: JoinHandle<()>,
    _place: OpenStream,
}

impl WatchStream {
    /// The next event; none when the folder is gone.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some((event, _)) = self.lines.next::<WatchEvent>().await? else { return Ok(None) };
        event.path.iter().chain(&event.to).try_for_each(|path| believable(path))?;
        Ok(Some(event))
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.heart.abort();
    }
}

async fn beat(guest: Guest, id: ExecId) {
    loop {
        tokio::time::sleep(BEAT).await;
        let pulse = futures_util::stream::iter([Bytes::from_static(b"\n")]);
        if guest.add_stdin(id, pulse).await.is_err() {
            return;
        }
    }
}

impl Files {
    /// Watches a folder; answers when everything in it is watched.
    pub async fn watch(&self, caller: &Caller, id: SandboxId, request: &Watch) -> Result<WatchStream> {
        request.check()?;
        let place = self.answers.stream(&caller.owner)?;
        // In a stopped sandbox no process changes files.
        let container = self.reach_running(caller, id, &request.path).await?;
        let options = ToolOptions { stdin: true, ..ToolOptions::default() };
        let tool = self.start_tool(id, &container, "watch", request, options).await?;
        let heart = tokio::spawn(beat(container.guest().clone(), tool.id));
        let mut stream = WatchStream { lines: Lines::new(tool), first: None, heart, _place: place };
        let silent = || Error::new(ErrorCode::Unavailable, "the watch ended before it began");
        let first = stream.next().await.map_err(|e| about_path(e, &request.path))?;
        stream.first = Some(first.ok_or_else(silent)?);
        Ok(stream)
    }
}
