//! A sandbox on its way out. A copy of its volume is packed, which is of one moment, in a container without its
//! attachments. Where the provider makes no copies, and where the files are in memory (nothing can be attached in these),
//! they are packed as they are, and files that change meanwhile may be of different moments.

use super::{Transfers, folders, manifest, manifest::Manifest, tail, tail::HoldBack};
use crate::{
    Caller,
    actor::{ExportCopy, LONGEST_EXPORT},
    files::{Outgoing, Tool, ToolOptions},
    operation::OperationSpec,
};
use atoll_guest_tools::archive::{END_MARK, small_file};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, Operation, Result};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

/// A sandbox as an archive. The audit row is written when it is dropped.
pub struct Export {
    tool: Tool,
    /// The digest of what was sent; none behind the end.
    digest: Option<Sha256>,
    /// The mark of the tool's archive, which does not end there.
    mark: HoldBack,
    /// What is sent next, without asking the tool.
    next: Option<Bytes>,
    note: Outgoing,
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
        Ok(self.digest.take().map(|digest| tail::tail_of(digest).into()))
    }
}

/// The error of an export whose copy is gone.
fn too_long() -> Error {
    let message = format!("the export took longer than {} minutes", LONGEST_EXPORT.as_secs() / 60);
    Error::new(ErrorCode::Timeout, message)
}

impl Transfers {
    /// A sandbox, its record and its files, as one archive. An error is reported before the first byte.
    pub async fn export(&self, caller: &Caller, id: SandboxId) -> Result<Export> {
        let audited =
            self.operations.audited(caller, OperationSpec::to(Operation::SandboxExport, id)).await?;
        let opened = async {
            audited.record()?;
            let record = self.registry.check_state(id, Operation::SandboxExport).await?;
            let manifest = Manifest::of(&record, self.operations.environment_of(&record)?)?;
            let json = serde_json::to_vec_pretty(&manifest).map_err(|e| Error::internal(e.to_string()))?;
            let until = Instant::now() + LONGEST_EXPORT;
            let (copy, container) = match self.registry.export_copy(&record).await? {
                Some((copy, container)) => (Some(copy), container),
                None => (None, self.registry.files(id).await?),
            };
            let folders = folders(&record.profile);
            let mut tool = Tool::start(&container, "export", &folders, ToolOptions::default()).await?;
            let empty = || Error::new(ErrorCode::Unavailable, "the sandbox sent no archive");
            let first = tool.next().await?.ok_or_else(empty)?;
            let mut mark = HoldBack::new(END_MARK.len());
            let mut next = small_file(manifest::NAME, &json);
            next.extend_from_slice(&mark.push(&first));
            Ok((tool, mark, Some(next.into()), until, copy))
        };
        match opened.await {
            Ok((tool, mark, next, until, copy)) => {
                let note = Outgoing::new(audited, id, "export");
                Ok(Export { tool, digest: Some(Sha256::new()), mark, next, note, until, _copy: copy })
            }
            Err(error) => audited.done(Err(error)).await,
        }
    }
}
