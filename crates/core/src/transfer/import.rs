//! A sandbox on its way in. It is made as any other, within the caller's tier, the owner's plan and the machine's
//! room, and filled inside; the digests are compared before it counts. An import that fails, or whose client
//! goes away, leaves no sandbox; one that a killed server began is removed at the next start.

use super::{
    Transfers, folders,
    manifest::{self, Manifest},
    tail::DigestCheck,
};
use crate::{
    Caller,
    files::{Tool, ToolOptions, feed_tool, transfer},
    operation::{AuditedOperation, OperationSpec},
    run_to_end::run_to_end,
};
use atoll_guest_tools::{
    Unpacked,
    archive::{BLOCK, END_MARK, small_file_length},
};
use atoll_store::{ActivityKind, SandboxId, SandboxRecord, Store};
use atoll_types::{Error, Operation, Result};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use std::{
    collections::HashSet,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The most skills of an archive that are remembered.
const MOST_SKILLS: usize = 1000;

/// A sandbox that was imported.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The sandbox.
    pub record: SandboxRecord,
    /// What was unpacked.
    pub unpacked: Unpacked,
    /// The variables whose values are secret, which no archive has.
    pub missing_secrets: Vec<String>,
}

type Body = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// The error of a body that ended before the archive did.
fn cut_off(error: Error) -> Error {
    Error::invalid("body", format!("the archive broke off: {}", error.message))
}

/// Whether the first block of a body, or as much of it as came, is that of an archive.
fn may_be_archive(first: &[u8]) -> bool {
    match first.first_chunk::<BLOCK>() {
        Some(block) => small_file_length(block, manifest::NAME, manifest::LONGEST).is_ok(),
        None => manifest::NAME.as_bytes().starts_with(&first[..first.len().min(manifest::NAME.len())]),
    }
}

/// The error of a body that is something else.
fn no_archive() -> Error {
    Error::invalid(
        "body",
        format!("this is no archive of a sandbox: it does not begin with {}", manifest::NAME),
    )
}

/// The beginning of an archive: its manifest, and what was read beyond.
async fn read_manifest(body: &mut Body, checked: &mut DigestCheck) -> Result<(Manifest, BytesMut)> {
    let broke_off = || Error::invalid("body", "the archive broke off before its files");
    let (mut read, mut first) = (BytesMut::new(), Vec::new());
    let mut needed = BLOCK;
    let mut size = None;
    loop {
        while read.len() < needed {
            let Some(piece) = body.next().await else {
                return Err(if may_be_archive(&first) { broke_off() } else { no_archive() });
            };
            let piece = piece.map_err(cut_off)?;
            first.extend_from_slice(&piece[..piece.len().min(BLOCK - first.len())]);
            read.extend_from_slice(&checked.push(&piece));
        }
        if let Some(size) = size {
            let mut manifest = read.split_to(needed);
            let json = manifest.split_off(BLOCK);
            return Ok((Manifest::parse(&json[..size])?, read));
        }
        let block = read.first_chunk::<BLOCK>().ok_or_else(broke_off)?;
        let (padded, length) = small_file_length(block, manifest::NAME, manifest::LONGEST)?;
        (needed, size) = (BLOCK + padded, Some(length));
    }
}

/// Why an archive's bytes ended early: set by the stream of its files, read when the tool has ended.
type Fault = Arc<Mutex<Option<Error>>>;

/// The files of an archive as an archive of their own. It lacks its end where the whole is not as it was, and
/// then `fault` says so.
fn files(
    body: Body,
    checked: DigestCheck,
    beyond: Bytes,
    fault: Fault,
) -> impl Stream<Item = Result<Bytes>> + Send {
    let state = Some((body, checked, beyond));
    stream::unfold(state, move |state| {
        let fault = Arc::clone(&fault);
        async move {
            let (mut body, mut checked, mut piece) = state?;
            let failed = |error: Error| {
                *fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
                Some((Err(error), None))
            };
            while piece.is_empty() {
                piece = match body.next().await {
                    Some(Ok(bytes)) => checked.push(&bytes),
                    Some(Err(error)) => return failed(cut_off(error)),
                    None => {
                        return match checked.check() {
                            Ok(()) => Some((Ok(Bytes::from_static(&END_MARK)), None)),
                            Err(error) => failed(error),
                        };
                    }
                };
            }
            Some((Ok(piece), Some((body, checked, Bytes::new()))))
        }
    })
}

impl Transfers {
    /// Makes a sandbox from an archive.
    pub async fn import(
        &self,
        caller: &Caller,
        body: impl Stream<Item = Result<Bytes>> + Send + 'static,
    ) -> Result<Imported> {
        let id = SandboxId::random();
        let audited =
            self.operations.audited(caller, OperationSpec::to(Operation::SandboxImport, id)).await?;
        let (transfers, caller) = (self.clone(), caller.clone());
        // From here on it completes, or cleans up, whether the caller waits for it or not.
        let importing = run_to_end("the import", async move {
            let mut audited = audited;
            let count = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&count);
            let body = body.inspect(move |piece| {
                counter.fetch_add(piece.as_ref().map_or(0, Bytes::len) as u64, Ordering::Relaxed);
            });
            let result = transfers.import_as(&audited, &caller, id, Box::pin(body)).await;
            let bytes = count.load(Ordering::Relaxed);
            audited.moved(bytes);
            if result.is_ok() {
                audited.note(transfer(id, ActivityKind::Upload, "import".into(), bytes));
            }
            audited.done(result).await
        });
        importing.await
    }

    async fn import_as(
        &self,
        audited: &AuditedOperation,
        caller: &Caller,
        id: SandboxId,
        mut body: Body,
    ) -> Result<Imported> {
        audited.allowed()?;
        let mut checked = DigestCheck::default();
        let (manifest, beyond) = read_manifest(&mut body, &mut checked).await?;
        // As many as were ever in a sandbox; beyond that it is no archive of ours.
        let skills: Vec<_> = manifest.sandbox.skills.iter().take(MOST_SKILLS).cloned().collect();
        let (request, missing_secrets) = manifest.request()?;
        let record = self.sandboxes.make_from(caller, id, request).await?;
        let fault = Fault::default();
        let files = files(body, checked, beyond.freeze(), Arc::clone(&fault));
        let unpacked = async {
            let container = self.registry.files(id).await?;
            let request = folders(&record.profile);
            let unpacked = match Tool::start(&container, "import", &request, ToolOptions::fed()).await {
                Ok(tool) => feed_tool(&container, tool, files).await,
                Err(error) => Err(error),
            };
            // What the archive itself lacks is the reason why the tool met no end.
            let fault = fault.lock().unwrap_or_else(PoisonError::into_inner).take();
            let unpacked = fault.map_or(unpacked, Err)?;
            // What was unpacked is no command's.
            self.sandboxes.changes.set_aside(id, &container, &["/workspace"]).await;
            for skill in &skills {
                self.operations.store.install_skill(id, skill.clone()).await?;
            }
            Ok(unpacked)
        };
        match unpacked.await {
            Ok(unpacked) => {
                Ok(Imported { record: SandboxRecord { skills, ..record }, unpacked, missing_secrets })
            }
            Err(error) => {
                if let Err(left) = self.registry.destroy(id).await {
                    tracing::error!(sandbox = %id, error = %left, "a half imported sandbox is left");
                }
                Err(error)
            }
        }
    }
}

/// The sandboxes that a former server was importing when it ended.
pub(crate) async fn half_imported(store: &dyn Store) -> Result<HashSet<SandboxId>> {
    let (mut found, mut after) = (HashSet::new(), 0);
    loop {
        let page = store.open_operations(after, 500).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.seq;
        for open in page {
            let Some(operation) = store.audit_operation(open.id).await? else { continue };
            if Operation::from_name(&operation.begin.kind) == Some(Operation::SandboxImport) {
                found.extend(operation.begin.sandbox);
            }
        }
    }
}
