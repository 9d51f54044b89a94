//! A sandbox on its way out. A copy of its volume is packed, which is of one moment, in a container without its
//! attachments. Where the provider makes no copies, and where the files are in memory (nothing can be attached in these),
//! they are packed as they are, and files that change meanwhile may be of different moments.
//!
//! Its snapshots are copied too before the first byte, so none has to stay while a client reads. Their copies are attached to
//! the same container, where one tool packs the differences.

use super::{Transfers, folders, manifest, manifest::Manifest, tail, tail::HoldBack};
use crate::{
    Caller,
    actor::{ExportCopy, LONGEST_EXPORT, SNAPSHOTS},
    events::new_event,
    files::{Outgoing, Tool, ToolOptions},
    operation::OperationSpec,
};
use atoll_guest_tools::{
    ExportFolders, ExportSnapshots,
    archive::{END_MARK, small_file},
};
use atoll_provider::Container;
use atoll_store::{NewEvent, SandboxId, SandboxRecord};
use atoll_types::{
    Error, ErrorCode, EventKind, Operation, Result, SnapshotId, SnapshotRecord, attachment::MOST_WHOLE,
};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// A sandbox as an archive. The audit row is written when it is dropped.
pub struct Export {
    /// What belongs to the sandbox and is not in the archive, for people.
    pub left_out: Vec<String>,
    tool: Tool,
    /// The digest of what was sent; none behind the end.
    digest: Option<Sha256>,
    /// The mark of the tool's archive, which does not end there.
    mark: HoldBack,
    /// What is sent next, without asking the tool.
    next: Option<Bytes>,
    note: Outgoing,
    /// What is told once all of it was sent.
    event: Option<NewEvent>,
    until: Instant,
    /// Behind the tool, which runs there.
    _copy: Option<ExportCopy>,
}

impl Export {
    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let until = self.until;
        let piece = timeout_at(until, self.piece()).await.unwrap_or_else(|_| Err(too_long()));
        // The copy is gone at that time, so the tool's own error says nothing.
        let bytes = piece.map_err(|error| if Instant::now() >= until { too_long() } else { error });
        self.note.count(&bytes);
        bytes
    }

    async fn piece(&mut self) -> Result<Option<Bytes>> {
        let Some(digest) = &mut self.digest else { return Ok(None) };
        let mut piece = self.next.take().unwrap_or_default();
        while piece.is_empty() {
            let Some(bytes) = self.tool.next().await? else { return self.end() };
            piece = self.mark.push(&bytes);
        }
        digest.update(&piece);
        Ok(Some(piece))
    }

    /// The end of the archive, in the place of the tool's own.
    fn end(&mut self) -> Result<Option<Bytes>> {
        if self.mark.rest() != END_MARK {
            return Err(Error::new(ErrorCode::Unavailable, "the sandbox sent an archive without an end"));
        }
        if let Some(event) = self.event.take() {
            self.note.add_event(event);
        }
        Ok(self.digest.take().map(|digest| tail::tail_of(digest).into()))
    }
}

/// The error of an export whose copy is gone.
fn too_long() -> Error {
    let message = format!("the export took longer than {} minutes", LONGEST_EXPORT.as_secs() / 60);
    Error::new(ErrorCode::Timeout, message)
}

impl Transfers {
    /// A sandbox, its record, its files and with `snapshots` what they were at its snapshots, as one archive. An error is
    /// reported before the first byte.
    pub async fn export(&self, caller: &Caller, id: SandboxId, snapshots: bool) -> Result<Export> {
        let mut what = OperationSpec::to(Operation::SandboxExport, id);
        if !snapshots {
            what = what.and("snapshots", false);
        }
        let audited = self.operations.audited(caller, what).await?;
        let opened = async {
            audited.record()?;
            let record = self.registry.check_state(id, Operation::SandboxExport).await?;
            let until = Instant::now() + LONGEST_EXPORT;
            let (copy, container, snapshots) = self.copied(&record, snapshots).await?;
            let digest = self.sandboxes.catalogue.digest(&record.profile.image);
            let environment = self.operations.environment_of(&record)?;
            let manifest = Manifest::of(&record, digest, environment, &snapshots)?;
            let json = manifest.json()?;
            let made_ms = snapshots.iter().map(|snapshot| snapshot.created_at).collect();
            let states = ExportSnapshots { path: SNAPSHOTS.into(), made_ms };
            let states = Some(states).filter(|states| !states.made_ms.is_empty());
            let request = ExportFolders { folders: folders(&record.profile), snapshots: states };
            let mut tool = Tool::start(&container, "export", &request, ToolOptions::default()).await?;
            let empty = || Error::new(ErrorCode::Unavailable, "the sandbox sent no archive");
            let first = tool.next().await?.ok_or_else(empty)?;
            let mut mark = HoldBack::new(END_MARK.len());
            let mut next = small_file(manifest::NAME, &json);
            next.extend_from_slice(&mark.push(&first));
            let data = serde_json::json!({ "snapshots": snapshots.len() });
            let event = new_event(&record.owner, Some(id), EventKind::Exported, None, &data);
            Ok((tool, mark, Some(next.into()), until, copy, manifest.sandbox.left_out, event))
        };
        match opened.await {
            Ok((tool, mark, next, until, copy, left_out, event)) => {
                let note = Outgoing::new(audited, id, "export");
                Ok(Export {
                    left_out,
                    tool,
                    digest: Some(Sha256::new()),
                    mark,
                    next,
                    note,
                    event: Some(event),
                    until,
                    _copy: copy,
                })
            }
            Err(error) => audited.done(Err(error)).await,
        }
    }

    /// A container with the files as they are now, and the snapshots whose files are attached to it, the newest first.
    async fn copied(
        &self,
        record: &SandboxRecord,
        snapshots: bool,
    ) -> Result<(Option<ExportCopy>, Arc<dyn Container>, Vec<SnapshotRecord>)> {
        // None is deleted before it is copied.
        let _turn = if snapshots { Some(self.snapshots.turn(record.id).await?) } else { None };
        let mut all = match snapshots {
            true => self.operations.store.snapshots_of(record.id).await?,
            false => Vec::new(),
        };
        all.retain(|snapshot| snapshot.ready);
        all.reverse();
        if all.len() > MOST_WHOLE {
            let message = format!(
                "the sandbox has {} snapshots, and {MOST_WHOLE} can be exported; delete some, or export without them",
                all.len()
            );
            return Err(Error::new(ErrorCode::TooLarge, message));
        }
        let ids: Vec<SnapshotId> = all.iter().map(|snapshot| snapshot.id).collect();
        Ok(match self.registry.export_copy(record, &ids).await.map_err(|e| explained(e, ids.len()))? {
            Some((copy, container)) => (Some(copy), container, all),
            None => (None, self.registry.files(record.id).await?, Vec::new()),
        })
    }
}

/// The error of a copy that could not be made, where the sandbox could be exported without its snapshots.
fn explained(error: Error, snapshots: usize) -> Error {
    match error.code {
        ErrorCode::DiskFull | ErrorCode::Unsupported if snapshots > 0 => error.context(format!(
            "the sandbox cannot be exported with its {snapshots} snapshots; without them (snapshots=false) it may"
        )),
        _ => error,
    }
}
