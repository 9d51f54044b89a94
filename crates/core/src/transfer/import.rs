//! A sandbox on its way in. It is made as any other, within the caller's tier, the owner's plan and the machine's
//! room, and filled inside; the digests are compared before it counts. An import that fails, or whose client
//! goes away, leaves no sandbox; one that a killed server began is removed at the next start.
//!
//! Path rules would keep the import itself from its files, so they, and volumes, come last, with another container.
//!
//! With snapshots the files as they are now are kept in a snapshot that has no record. Then each part of the archive makes
//! the files what they were at an earlier snapshot, which is made of them; in the end the sandbox is rolled back to now. So
//! what snapshots share they share here too, and the sandbox's disk limit counts it once.

use super::{
    Transfers, folders,
    manifest::{self, Manifest, ManifestSandbox, ManifestVolume},
    parts::{Body, Parts, cut_off},
    tail::DigestCheck,
};
use crate::{
    AttachVolume, Caller,
    actor::Rollback,
    events::new_event,
    files::{Tool, ToolOptions, feed_tool, transfer},
    operation::OperationSpec,
    run_to_end::run_to_end,
};
use atoll_guest_tools::{
    ImportFolders, Unpacked,
    archive::{BLOCK, small_file_length},
};
use atoll_store::{ActivityKind, SandboxId, SandboxRecord, Store};
use atoll_types::{
    Error, ErrorCode, EventKind, Operation, Profile, Result, SnapshotId, SnapshotRecord,
    attachment::MOST_VOLUMES, files::Changed,
};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The most skills of an archive that are remembered.
const MOST_SKILLS: usize = 1000;

/// As many volumes as a sandbox has, and what else an archive leaves out; beyond that it is no archive of ours.
const MOST_LEFT_OUT: usize = 20;

/// The longest text of one of these.
const LONGEST_LEFT_OUT: usize = 300;

/// Whether a text of an archive is the digest of an image, and none of its other names.
fn is_digest(text: &str) -> bool {
    let hex = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    text.strip_prefix("sha256:").is_some_and(hex)
}

/// Texts of an archive that may be shown to people.
fn readable(texts: Vec<String>) -> Vec<String> {
    let plain = |text: &String| text.len() <= LONGEST_LEFT_OUT && !text.contains(char::is_control);
    texts.into_iter().filter(plain).take(MOST_LEFT_OUT).collect()
}

/// What of an archive an import takes, beside record and files.
#[derive(Debug, Clone, Copy)]
pub struct ImportOptions {
    /// Its snapshots.
    pub snapshots: bool,
    /// The volumes of the same names that the importer has. An archive may come from anywhere, so it gets none unasked.
    pub volumes: bool,
}

/// A sandbox that was imported.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The sandbox.
    pub record: SandboxRecord,
    /// What was unpacked.
    pub unpacked: Unpacked,
    /// The variables whose values are secret, which no archive has.
    pub missing_secrets: Vec<String>,
    /// How many snapshots it has.
    pub snapshots: usize,
    /// Those of them with which variables of kernels were kept, which no archive has.
    pub missing_kernels: Vec<SnapshotId>,
    /// What belonged to the exported sandbox and no archive has, for people.
    pub left_out: Vec<String>,
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

impl Transfers {
    /// Makes a sandbox from an archive.
    pub async fn import(
        &self,
        caller: &Caller,
        options: ImportOptions,
        body: impl Stream<Item = Result<Bytes>> + Send + 'static,
    ) -> Result<Imported> {
        let id = SandboxId::random();
        let mut what = OperationSpec::to(Operation::SandboxImport, id);
        if !options.snapshots {
            what = what.and("snapshots", false);
        }
        if options.volumes {
            what = what.and("volumes", true);
        }
        let audited = self.operations.audited(caller, what).await?;
        let (transfers, caller) = (self.clone(), caller.clone());
        // From here on it completes, or cleans up, whether the caller waits for it or not.
        let importing = run_to_end("the import", async move {
            let mut audited = audited;
            let count = Arc::new(AtomicU64::new(0));
            let counter = Arc::clone(&count);
            let body = body.inspect(move |piece| {
                counter.fetch_add(piece.as_ref().map_or(0, Bytes::len) as u64, Ordering::Relaxed);
            });
            let result = transfers.import_as(&caller, id, options, Box::pin(body)).await;
            let bytes = count.load(Ordering::Relaxed);
            audited.moved(bytes);
            if let Ok(imported) = &result {
                // Any file may be one that the archive had.
                audited.changed(&Changed { files: Vec::new(), truncated: true });
                let data = serde_json::json!({ "snapshots": imported.snapshots });
                audited.add_event(new_event(
                    &imported.record.owner,
                    Some(id),
                    EventKind::Imported,
                    None,
                    &data,
                ));
                audited.note(transfer(id, ActivityKind::Upload, "import".into(), bytes));
            }
            audited.done(result).await
        });
        importing.await
    }

    async fn import_as(
        &self,
        caller: &Caller,
        id: SandboxId,
        options: ImportOptions,
        mut body: Body,
    ) -> Result<Imported> {
        let ImportOptions { snapshots, volumes } = options;
        let mut checked = DigestCheck::default();
        let (manifest, beyond) = read_manifest(&mut body, &mut checked).await?;
        // As many as were ever in a sandbox; beyond that it is no archive of ours.
        let skills: Vec<_> = manifest.sandbox.skills.iter().take(MOST_SKILLS).cloned().collect();
        let mut parts = Parts::new(body, checked, beyond.freeze(), manifest.snapshots.len());
        let (mut request, missing_secrets) = manifest.clone().request()?;
        let (image, mut left_out) = self.image_of(caller, &manifest.sandbox);
        request.image = Some(image);
        left_out.extend(readable(manifest.sandbox.left_out.clone()));
        if snapshots {
            self.snapshots.check_import(manifest.snapshots.len())?;
        }
        let record = self.sandboxes.make_from(caller, id, request).await?;
        // Until it is filled, nothing of its image starts.
        let _working = self.sandboxes.activity_tracker.begin(id);
        let unpacked = async {
            let profile = self.attachments(&record, &manifest.sandbox, volumes, &mut left_out).await?;
            let unpacked = self.unpack(&record, &mut parts, None).await?;
            let made = match snapshots && !manifest.snapshots.is_empty() {
                true => {
                    self.unpack_snapshots(&record, &mut parts, manifest.snapshot_records(&record)?).await?
                }
                false => Vec::new(),
            };
            parts.end().await?;
            for skill in &skills {
                self.operations.store.install_skill(id, skill.clone()).await?;
            }
            if let Some(profile) = profile {
                self.registry.reattach(id, profile).await?;
                self.sandboxes.changes.forget(id);
            }
            Ok((unpacked, made))
        };
        match unpacked.await {
            Ok((unpacked, made)) => {
                let kept = |(_, said): &(&SnapshotId, &manifest::ManifestSnapshot)| said.kernels;
                let missing_kernels = made.iter().zip(&manifest.snapshots).filter(kept);
                let now = self.operations.store.sandbox(id).await?;
                let record = now.unwrap_or(SandboxRecord { skills, ..record });
                Ok(Imported {
                    record: self.sandboxes.start_again(record).await?,
                    unpacked,
                    missing_secrets,
                    snapshots: made.len(),
                    missing_kernels: missing_kernels.map(|(id, _)| *id).collect(),
                    left_out,
                })
            }
            Err(error) => {
                if let Err(left) = self.registry.destroy(id).await {
                    tracing::error!(sandbox = %id, error = %left, "a sandbox whose import failed cannot be destroyed");
                }
                Err(error)
            }
        }
    }

    /// The profile with the path rules of the archive, and with those of its volumes that its importer has and asks for; none where there
    /// is nothing of either. What is attached is not left out.
    async fn attachments(
        &self,
        record: &SandboxRecord,
        sandbox: &ManifestSandbox,
        volumes: bool,
        left_out: &mut Vec<String>,
    ) -> Result<Option<Profile>> {
        let mut profile = Profile { paths: sandbox.filesystem.clone(), ..record.profile.clone() };
        if sandbox.volumes.len() > MOST_VOLUMES {
            let message = format!("{} has more than {MOST_VOLUMES} volumes", manifest::NAME);
            return Err(Error::invalid("body", message));
        }
        for volume in sandbox.volumes.iter().filter(|_| volumes) {
            let ManifestVolume { name, path, read_only } = volume.clone();
            let asked = AttachVolume { name, path, read_only };
            let shown = volume.shown();
            match self.sandboxes.volumes.mounts(&record.owner, &record.provider, &[asked]).await {
                Ok(mounts) => {
                    profile.volumes.extend(mounts);
                    left_out.retain(|text| *text != shown);
                }
                Err(error) if error.code == ErrorCode::NotFound => {
                    let said = format!("{shown}: there is none of this name");
                    left_out.iter_mut().filter(|text| **text == shown).for_each(|text| *text = said.clone());
                }
                Err(error) => return Err(error.at("body")),
            }
        }
        if !profile.has_attachments() {
            return Ok(None);
        }
        profile.validate().map_err(|e| e.at("body").context(manifest::NAME))?;
        if self.sandboxes.providers.get(&record.provider)?.attachments().is_none() {
            let message =
                "the archive has path rules or volumes, and the provider of this server has neither";
            return Err(Error::new(ErrorCode::Unsupported, message).at("body"));
        }
        Ok(Some(profile))
    }

    /// The image that the sandbox had, where the caller may use it here; else that of its name, and what is then another.
    fn image_of(&self, caller: &Caller, sandbox: &ManifestSandbox) -> (String, Vec<String>) {
        let catalogue = &self.sandboxes.catalogue;
        let name = sandbox.image.clone();
        let Some(digest) = sandbox.image_digest.as_ref().filter(|digest| is_digest(digest)) else {
            return (name, Vec::new());
        };
        let found = catalogue.find(&name).map(|found| catalogue.digest(&found.name));
        if found.as_ref().is_some_and(|here| here.as_ref() == Some(digest)) {
            return (name, Vec::new());
        }
        if catalogue.usable(caller, digest).is_ok() {
            return (digest.clone(), Vec::new());
        }
        let here = found.flatten().unwrap_or_else(|| "the machine's own files".into());
        let note = format!(
            "its image: {:.100} was {digest} there and is {here} here, which the sandbox has now",
            name.escape_debug()
        );
        (name, vec![note])
    }

    /// Unpacks the files, or the difference that makes them those of a snapshot by its number.
    async fn unpack(
        &self,
        record: &SandboxRecord,
        parts: &mut Parts,
        snapshot: Option<u32>,
    ) -> Result<Unpacked> {
        let container = self.registry.files(record.id).await?;
        let request = ImportFolders { folders: folders(&record.profile), snapshot };
        let part = parts.next();
        let unpacked = match Tool::start(&container, "import", &request, ToolOptions::fed()).await {
            Ok(tool) => feed_tool(&container, tool, part).await,
            Err(error) => Err(error),
        };
        // What the archive itself lacks is the reason why the tool met no end.
        let unpacked = parts.take_fault().map_or(unpacked, Err)?;
        // What was unpacked is no command's.
        self.sandboxes.changes.set_aside(record.id, &container, &["/workspace"]).await;
        Ok(unpacked)
    }

    /// Makes the snapshots, the newest first, and returns to the files of now.
    async fn unpack_snapshots(
        &self,
        record: &SandboxRecord,
        parts: &mut Parts,
        records: Vec<SnapshotRecord>,
    ) -> Result<Vec<SnapshotId>> {
        let _turn = self.snapshots.turn(record.id).await?;
        let now = SnapshotId::random();
        self.snapshots.keep_unrecorded(record, now).await?;
        let made = records.iter().map(|snapshot| snapshot.id).collect();
        for (number, snapshot) in (1..).zip(records) {
            self.unpack(record, parts, Some(number)).await?;
            self.snapshots.make_imported(record, snapshot).await?;
        }
        self.registry.roll_back(record.id, Rollback { to: now, before: None, kernels: None }).await?;
        self.sandboxes.changes.forget(record.id);
        self.snapshots.drop_unrecorded(record, now).await?;
        Ok(made)
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
