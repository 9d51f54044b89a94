//! Skills: packages of instructions and files for agents. They are their owner's; an admin sees all of them.
//!
//! The record is in the store and the package in a file beside it. A package is stored before the record that names it,
//! and removed after it, so a crash between two steps leaves at most a file without a record, which the next start
//! removes ([`Skills::repair`]). One change is made at a time: two skills may share a package.

mod builtin;
mod folder;
mod install;
mod package;
mod skill_md;

pub use builtin::{CatalogueSkill, builtin_skill, builtin_skills, check_catalogue};
pub use install::{ExtractionError, InstallOutcome, MOST_INSTALLED_AT_ONCE};
pub use package::{LARGEST_PACKAGE, MOST_FILES as MOST_SKILL_FILES, MOST_UNPACKED as MOST_SKILL_BYTES};
pub use skill_md::{LONGEST_DESCRIPTION, LONGEST_SKILL_MD, SkillFields};

use crate::{
    Caller, Files,
    admission::Turns,
    ceiling::CallerLimits,
    events::new_event,
    operation::{OperationSpec, Operations},
    run_to_end::run_to_end,
};
use atoll_store::{NewEvent, Scope, Sha256, Store};
use atoll_types::{
    Error, ErrorCode, EventKind, Operation, Result, SkillId, SkillPage, SkillQuery, SkillRecord, SkillSource,
    text::{NUL, TextRule},
    time::now_ms,
};
use bytes::Bytes;
use folder::{PackageFolder, PartialFile, digest_of};
use futures_util::Stream;
use package::Package;
use skill_md::SkillMd;
use std::{io::BufReader, path::Path, sync::Arc};
use tokio::sync::{Mutex, Semaphore};

/// Most skills of one page.
pub const SKILLS_PER_PAGE: u32 = 200;
/// What is searched for.
pub const SKILL_SEARCH: TextRule = TextRule::new(0, 200, NUL);
/// Packages that are unpacked at the same time.
const WORKERS: usize = 2;
const MIB: u64 = 1 << 20;

/// Skills.
#[derive(Clone)]
pub struct Skills {
    pub(crate) operations: Operations,
    pub(crate) limits: CallerLimits,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) files: Files,
    /// One install in a sandbox at a time.
    pub(crate) turns: Arc<Turns>,
    shared: Arc<Shared>,
}

struct Shared {
    folder: PackageFolder,
    /// Held by a change, from the check of the quota to the end of a package that no skill has any more.
    change: Mutex<()>,
    workers: Arc<Semaphore>,
}

/// A package that was checked and may become a skill's. Its bytes wait in a file: a change waits for the one before it.
struct NewPackage {
    skill_md: SkillMd,
    files: u32,
    digest: Sha256,
    size: u64,
    file: PartialFile,
}

/// A package that is being downloaded.
pub struct PackageDownload {
    /// The skill.
    pub record: SkillRecord,
    file: tokio::fs::File,
}

impl PackageDownload {
    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let mut piece = vec![0; 64 << 10];
        let read = tokio::io::AsyncReadExt::read(&mut self.file, &mut piece).await;
        let read = read.map_err(|e| Error::internal(format!("the package cannot be read: {e}")))?;
        piece.truncate(read);
        Ok((read > 0).then(|| piece.into()))
    }
}

fn unknown(id: SkillId) -> Error {
    Error::new(ErrorCode::NotFound, format!("there is no skill {}", id.uuid()))
}

fn damaged(error: &Error) -> Error {
    Error::internal(format!("the stored package is damaged: {error}"))
}

fn taken(there: &SkillRecord) -> Error {
    let message = format!("you have a skill {}", there.name);
    Error::new(ErrorCode::AlreadyExists, message).at("name").fact("skill_id", there.id.uuid().to_string())
}

fn event(record: &SkillRecord, kind: EventKind) -> NewEvent {
    let data = serde_json::json!({
        "id": record.id.uuid(), "name": record.name, "package_size_bytes": record.package_bytes,
    });
    new_event(&record.owner, None, kind, None, &data)
}

/// Checks a package that is in a file.
fn check_package(bytes: &[u8], file: PartialFile) -> Result<NewPackage> {
    let package = Package::read(bytes)?;
    let (files, digest, size) = (package.files(), digest_of(bytes), bytes.len() as u64);
    Ok(NewPackage { skill_md: package.skill_md, files, digest, size, file })
}

/// Checks a package that was made here, and writes it into a file.
fn write_package(folder: &PackageFolder, bytes: &[u8]) -> Result<NewPackage> {
    check_package(bytes, folder.write(bytes)?)
}

impl Skills {
    pub(crate) fn new(
        operations: Operations,
        limits: CallerLimits,
        store: Arc<dyn Store>,
        files: Files,
        folder: &Path,
    ) -> Self {
        let shared = Shared {
            folder: PackageFolder::new(folder),
            change: Mutex::default(),
            workers: Arc::new(Semaphore::new(WORKERS)),
        };
        Self { operations, limits, store, files, turns: Arc::default(), shared: Arc::new(shared) }
    }

    /// Does what reads a whole package, on a thread of its own.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PackageFolder) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let closed = |_| Error::internal("the server ends: it reads no more packages");
        let permit = Arc::clone(&self.shared.workers).acquire_owned().await.map_err(closed)?;
        let shared = Arc::clone(&self.shared);
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&shared.folder)
        });
        done.await.unwrap_or_else(|_| Err(Error::internal("reading a package panicked")))
    }

    /// A skill that this caller may see. One that it may not see does not exist for it.
    async fn visible(&self, caller: &Caller, id: SkillId) -> Result<SkillRecord> {
        match self.store.skill(id).await? {
            Some(record) if caller.may_see(&record.owner) => Ok(record),
            _ => Err(unknown(id)),
        }
    }

    /// The caller's skills by name; those of all owners for an admin that names none.
    pub async fn list(&self, caller: &Caller, query: SkillQuery) -> Result<SkillPage> {
        if !(1..=SKILLS_PER_PAGE).contains(&query.limit) {
            return Err(Error::invalid("limit", format!("limit must be between 1 and {SKILLS_PER_PAGE}")));
        }
        query.search.as_deref().map_or(Ok(()), |text| SKILL_SEARCH.check("search", text))?;
        let owner = match query.owner.as_deref().map(crate::owner_id) {
            Some(owner) if !caller.may_see(&owner) => {
                return Err(Error::new(ErrorCode::NotFound, "there is no such owner with skills"));
            }
            Some(owner) => Some(owner),
            None => (caller.scope != Scope::Admin).then(|| caller.owner.clone()),
        };
        let search = query.search.filter(|text| !text.is_empty());
        Ok(self.store.skills(&SkillQuery { owner, search, ..query }).await?)
    }

    /// A skill and its SKILL.md.
    pub async fn get(&self, caller: &Caller, id: SkillId) -> Result<(SkillRecord, String)> {
        let record = self.visible(caller, id).await?;
        let digest = record.digest;
        let text = self.work(move |folder| {
            package::skill_md_of(BufReader::new(folder.open(digest)?)).map_err(|error| damaged(&error))
        });
        Ok((record, text.await?))
    }

    /// A skill's package, as it was uploaded or as it was made.
    pub async fn download(&self, caller: &Caller, id: SkillId) -> Result<PackageDownload> {
        let record = self.visible(caller, id).await?;
        let file = tokio::fs::File::from_std(self.shared.folder.open(record.digest)?);
        Ok(PackageDownload { record, file })
    }

    /// Makes a skill of the caller's from instructions.
    pub async fn create(
        &self,
        caller: &Caller,
        text: String,
        fields: SkillFields,
    ) -> Result<(SkillRecord, String)> {
        let what = OperationSpec::new(Operation::SkillCreate).with(fields.name.clone().unwrap_or_default());
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let new = self.work(move |folder| {
                write_package(folder, &package::write(&SkillMd::compose(&text, fields)?, None)?)
            });
            self.add(caller, new.await?, SkillSource::Manual, false).await
        }
        .await;
        if let Ok((record, ..)) = &result {
            audited.add_event(event(record, EventKind::SkillCreated));
        }
        audited.done(result).await.map(|(record, text, _)| (record, text))
    }

    /// Makes a skill of the caller's from a package. Where the owner has one of its name, that is replaced, or the
    /// request is refused. Whether it was made is returned too.
    pub async fn upload(
        &self,
        caller: &Caller,
        replace: bool,
        body: impl Stream<Item = Result<Bytes>> + Send,
    ) -> Result<(SkillRecord, String, bool)> {
        let what = OperationSpec::new(Operation::SkillCreate).and("replace", replace);
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let received = self.shared.folder.receive(body).await?;
            let new = self.work(move |_| check_package(&received.bytes()?, received)).await?;
            audited.moved(new.size);
            self.add(caller, new, SkillSource::Upload, replace).await
        }
        .await;
        if let Ok((record, _, new)) = &result {
            audited.add_event(event(
                record,
                if *new { EventKind::SkillCreated } else { EventKind::SkillUpdated },
            ));
        }
        audited.done(result).await
    }

    async fn add(
        &self,
        caller: &Caller,
        new: NewPackage,
        source: SkillSource,
        replace: bool,
    ) -> Result<(SkillRecord, String, bool)> {
        let now = now_ms();
        let record = SkillRecord {
            id: SkillId::random(),
            owner: caller.owner.clone(),
            owner_name: caller.owner_name.clone(),
            name: new.skill_md.name.clone(),
            description: String::new(),
            source,
            metadata: String::new(),
            digest: new.digest,
            package_bytes: 0,
            files: 0,
            created_at: now,
            updated_at: now,
        };
        let (skills, caller) = (self.clone(), caller.clone());
        run_to_end("the change of the skill", async move {
            let _change = skills.shared.change.lock().await;
            let text = new.skill_md.text.clone();
            let query = SkillQuery {
                owner: Some(record.owner.clone()),
                search: Some(record.name.to_string()),
                limit: u32::MAX,
                ..SkillQuery::default()
            };
            let there = skills.store.skills(&query).await?.items;
            let there = there.into_iter().find(|one| one.name == record.name);
            match there {
                Some(there) if replace => {
                    let record = SkillRecord { source, updated_at: now, ..there.clone() };
                    Ok((skills.put(&caller, Some(there), record, new).await?, text, false))
                }
                Some(there) => Err(taken(&there)),
                None => Ok((skills.put(&caller, None, record, new).await?, text, true)),
            }
        })
        .await
    }

    /// Stores a package and then the record that names it, in the place of another record or not.
    async fn put(
        &self,
        caller: &Caller,
        former: Option<SkillRecord>,
        record: SkillRecord,
        new: NewPackage,
    ) -> Result<SkillRecord> {
        let NewPackage { skill_md, files, digest, size, file } = new;
        let record = SkillRecord {
            name: skill_md.name,
            description: skill_md.description,
            metadata: serde_json::to_string(&skill_md.metadata)
                .map_err(|e| Error::internal(e.to_string()))?,
            digest,
            package_bytes: size,
            files,
            ..record
        };
        self.check_quota(caller, former.as_ref(), &record).await?;
        self.work(move |folder| folder.store(digest, &file)).await?;
        let written = match &former {
            Some(_) => self.store.update_skill(record.clone()).await,
            None => self.store.insert_skill(record.clone()).await,
        };
        let result = match written {
            Ok(None) => Ok(record),
            Ok(Some(there)) => Err(taken(&there)),
            Err(error) => Err(error.into()),
        };
        let unused = if result.is_ok() { former.map(|former| former.digest) } else { Some(digest) };
        if let Some(unused) = unused {
            self.collect(unused).await;
        }
        result
    }

    /// Removes a package unless a skill has it.
    async fn collect(&self, digest: Sha256) {
        match self.store.has_package(digest).await {
            Ok(true) => {}
            Ok(false) => self.shared.folder.remove(digest),
            Err(error) => tracing::warn!(%error, "a skill's package is removed at the next start"),
        }
    }

    async fn check_quota(
        &self,
        caller: &Caller,
        former: Option<&SkillRecord>,
        new: &SkillRecord,
    ) -> Result<()> {
        let Some(quota) = self.limits.quota(caller, &new.owner, &new.owner_name) else { return Ok(()) };
        let (count, bytes) = self.store.skill_usage(&new.owner).await?;
        let (count, bytes) = match former {
            Some(former) => (count, bytes.saturating_sub(former.package_bytes)),
            None => (count + 1, bytes),
        };
        let bytes = bytes.saturating_add(new.package_bytes);
        let most =
            [("skills", count, u64::from(quota.skills)), ("skills_mb", bytes.div_ceil(MIB), quota.skills_mb)];
        match most.into_iter().find(|(_, asked, allowed)| asked > allowed) {
            None => Ok(()),
            Some((resource, asked, allowed)) => {
                let plan = &quota.plan;
                let message = format!("the plan {plan} allows {resource} {allowed}; delete skills first");
                Err(Error::new(ErrorCode::LimitExceeded, message)
                    .fact("resource", resource)
                    .fact("asked", asked)
                    .fact("allowed", allowed)
                    .fact("plan", plan.as_str()))
            }
        }
    }

    /// Changes a skill: its instructions, or what its front matter says. Files beside SKILL.md stay.
    pub async fn update(
        &self,
        caller: &Caller,
        id: SkillId,
        text: Option<String>,
        fields: SkillFields,
    ) -> Result<(SkillRecord, String)> {
        let what = OperationSpec::new(Operation::SkillUpdate).with(id.uuid().to_string());
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            self.visible(caller, id).await?;
            let (skills, caller) = (self.clone(), caller.clone());
            run_to_end("the change of the skill", async move {
                let _change = skills.shared.change.lock().await;
                let former = skills.visible(&caller, id).await?;
                let digest = former.digest;
                let new = skills.work(move |folder| {
                    let bytes = folder.read(digest)?;
                    let package = Package::read(&bytes).map_err(|error| damaged(&error))?;
                    let text = text.as_deref().unwrap_or(&package.skill_md.text);
                    let skill_md = SkillMd::compose(text, fields)?;
                    match skill_md == package.skill_md {
                        true => write_package(folder, &bytes),
                        false => write_package(folder, &package::write(&skill_md, Some(&bytes))?),
                    }
                });
                let new = new.await?;
                let text = new.skill_md.text.clone();
                let record = SkillRecord { updated_at: now_ms(), ..former.clone() };
                Ok((skills.put(&caller, Some(former), record, new).await?, text))
            })
            .await
        }
        .await;
        if let Ok((record, _)) = &result {
            audited.add_event(event(record, EventKind::SkillUpdated));
        }
        audited.done(result).await
    }

    /// Deletes a skill. What was installed of it stays.
    pub async fn delete(&self, caller: &Caller, id: SkillId) -> Result<()> {
        let what = OperationSpec::new(Operation::SkillDelete).with(id.uuid().to_string());
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let (skills, asker) = (self.clone(), caller.clone());
            run_to_end("the change of the skill", async move {
                let _change = skills.shared.change.lock().await;
                let record = skills.visible(&asker, id).await?;
                if !skills.store.delete_skill(id).await? {
                    return Err(unknown(id));
                }
                skills.collect(record.digest).await;
                Ok(record)
            })
            .await
        }
        .await;
        if let Ok(record) = &result {
            audited.add_event(event(record, EventKind::SkillDeleted));
        }
        audited.done(result.map(drop)).await
    }

    /// Removes packages that a former server stored and that no skill has.
    pub(crate) async fn repair(&self) -> Result<()> {
        let _change = self.shared.change.lock().await;
        for digest in self.work(PackageFolder::sweep).await? {
            self.collect(digest).await;
        }
        Ok(())
    }
}
