//! Installing skills in a sandbox. A package becomes a tar archive on its way, and the sandbox's user unpacks it into a
//! folder beside the final one, which is then exchanged for it. The record is written last: a crash before leaves a
//! sandbox that is not said to have the skill, and the next install begins anew.

use super::{Skills, package};
use crate::{
    Caller,
    events::new_event,
    files::{Tool, ToolOptions, feed_tool, is_read_only, transfer, unpack_as_owner},
    operation::OperationSpec,
    run_to_end::run_to_end,
};
use atoll_guest_tools::{Unpack, Unpacked};
use atoll_provider::Container;
use atoll_store::{ActivityKind, NewEvent, SandboxId};
use atoll_types::{
    Error, ErrorCode, EventKind, InstalledSkill, Operation, Result, SkillId, SkillName, SkillRecord,
    time::now_ms,
};
use bytes::Bytes;
use futures_util::stream;
use std::{io::BufReader, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};

/// Where skills are installed.
const ROOT: &str = "/workspace/skills";
/// Most skills of one request.
pub const MOST_INSTALLED_AT_ONCE: usize = 50;
/// How long an install waits for the one before it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a package is unpacked.
const LONGEST: Duration = Duration::from_secs(120);
/// Pieces of an archive on their way.
const AHEAD: usize = 4;

/// A skill that could not be unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractionError {
    pub id: SkillId,
    pub name: SkillName,
    pub error: Error,
}

/// What became of an install.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallOutcome {
    /// These are there now.
    pub installed: Vec<SkillName>,
    /// These were there, in the version that the skill has.
    pub already_installed: Vec<SkillName>,
    /// There are no such skills.
    pub not_found: Vec<SkillId>,
    /// These could not be unpacked.
    pub extraction_errors: Vec<ExtractionError>,
    /// Bytes of the files that were unpacked.
    bytes: u64,
}

fn event(sandbox: SandboxId, owner: &str, names: &[SkillName]) -> NewEvent {
    let data = serde_json::json!({ "skills": names });
    new_event(owner, Some(sandbox), EventKind::SkillsInstalled, None, &data)
}

/// Whatever is at a path is removed, or is not there.
async fn clear(container: &Arc<dyn Container>, path: &str) -> Result<()> {
    match container.guest().remove(path, true).await {
        Err(error) if error.code == ErrorCode::NotFound => Ok(()),
        removed => removed,
    }
}

impl Skills {
    /// Installs skills in a sandbox, running or not, each in a folder of its name. One that is there in another version,
    /// or whose folder is gone, is installed anew.
    pub async fn install(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        mut ids: Vec<SkillId>,
    ) -> Result<InstallOutcome> {
        let mut seen = std::collections::BTreeSet::new();
        ids.retain(|id| seen.insert(*id));
        let shown: Vec<String> =
            ids.iter().take(MOST_INSTALLED_AT_ONCE).map(|id| id.uuid().to_string()).collect();
        let what = OperationSpec::to(Operation::SkillInstall, sandbox).with(shown.join(" "));
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let owner = audited.record()?.owner.clone();
            if !(1..=MOST_INSTALLED_AT_ONCE).contains(&ids.len()) {
                let message = format!("skill_ids names 1 to {MOST_INSTALLED_AT_ONCE} skills");
                return Err(Error::invalid("skill_ids", message));
            }
            let (mut found, mut outcome) = (Vec::new(), InstallOutcome::default());
            for id in ids {
                match self.visible(caller, id).await {
                    Ok(record) => found.push(record),
                    Err(error) if error.code == ErrorCode::NotFound => outcome.not_found.push(id),
                    Err(error) => return Err(error),
                }
            }
            let late =
                || Error::new(ErrorCode::Conflict, "skills are being installed in this sandbox; try again");
            let turn = self.turns.take(&sandbox.to_string(), Instant::now() + PATIENCE, late).await?;
            let container = self.files.reach_in(&audited, &[ROOT]).await?;
            let (skills, inside) = (self.clone(), Arc::clone(&container));
            let outcome = run_to_end("the install", async move {
                let _turn = turn;
                skills.install_all(sandbox, &inside, found, outcome).await
            });
            Ok((owner, container, outcome.await?))
        };
        match result.await {
            Ok((owner, container, outcome)) => {
                let changed = self.files.changes.set_aside(sandbox, &container, &[ROOT]).await;
                audited.changed(&changed);
                if !outcome.installed.is_empty() {
                    audited.moved(outcome.bytes);
                    let names: Vec<&str> = outcome.installed.iter().map(SkillName::as_str).collect();
                    let detail = format!("skills {}", names.join(" "));
                    audited.note(transfer(sandbox, ActivityKind::Upload, detail, outcome.bytes));
                    audited.add_event(event(sandbox, &owner, &outcome.installed));
                }
                audited.done(Ok(outcome)).await
            }
            Err(error) => audited.done(Err(error)).await,
        }
    }

    async fn install_all(
        &self,
        sandbox: SandboxId,
        container: &Arc<dyn Container>,
        skills: Vec<SkillRecord>,
        mut outcome: InstallOutcome,
    ) -> Result<InstallOutcome> {
        // Read behind the turn: an install before this one may have installed some of them.
        let record = self.store.sandbox(sandbox).await?;
        let (there, rules) = record.map(|record| (record.skills, record.profile.paths)).unwrap_or_default();
        let by_owner = is_read_only(&rules, ROOT);
        for skill in skills {
            let same = |one: &InstalledSkill| {
                one.id == skill.id && one.digest == skill.digest && one.name == skill.name
            };
            if there.iter().any(same)
                && container.guest().stat(&format!("{ROOT}/{}/SKILL.md", skill.name), false).await.is_ok()
            {
                outcome.already_installed.push(skill.name);
                continue;
            }
            match self.install_one(sandbox, container, &skill, by_owner).await {
                Ok(Unpacked { bytes, .. }) => {
                    outcome.bytes += bytes;
                    outcome.installed.push(skill.name);
                }
                Err(error) => {
                    outcome.extraction_errors.push(ExtractionError { id: skill.id, name: skill.name, error });
                }
            }
        }
        Ok(outcome)
    }

    async fn install_one(
        &self,
        sandbox: SandboxId,
        container: &Arc<dyn Container>,
        skill: &SkillRecord,
        by_owner: bool,
    ) -> Result<Unpacked> {
        let (folder, partial) = (format!("{ROOT}/{}", skill.name), format!("{ROOT}/.{}.part", skill.name));
        // What an install left that was cut off.
        clear(container, &partial).await?;
        container.guest().make_dir(ROOT, true).await?;
        let unpacked = async {
            let unpacked = self.unpack(container, skill, &partial, by_owner).await?;
            clear(container, &folder).await?;
            container.guest().rename(&partial, &folder, false).await?;
            Ok(unpacked)
        };
        let unpacked = match unpacked.await {
            Ok(unpacked) => unpacked,
            Err(error) => {
                let _ = clear(container, &partial).await;
                return Err(error);
            }
        };
        let installed = InstalledSkill {
            id: skill.id,
            name: skill.name.clone(),
            digest: skill.digest,
            installed_at: now_ms(),
        };
        self.store.install_skill(sandbox, installed).await?;
        Ok(unpacked)
    }

    /// Sends a package into a folder of the sandbox, `by_owner` where commands only read it. Where the package breaks off, so does the
    /// archive, which is then refused.
    async fn unpack(
        &self,
        container: &Arc<dyn Container>,
        skill: &SkillRecord,
        path: &str,
        by_owner: bool,
    ) -> Result<Unpacked> {
        let (digest, changed_at) = (skill.digest, skill.updated_at);
        let (send, receive) = mpsc::channel::<Result<Bytes>>(AHEAD);
        let shared = Arc::clone(&self.shared);
        // On a thread beside the package workers: the sandbox sets its pace, and would hold a worker's permit.
        let unpacking = tokio::task::spawn_blocking(move || {
            let gone = |_| Error::new(ErrorCode::Unavailable, "the sandbox stopped reading");
            let package = BufReader::new(shared.folder.open(digest)?);
            package::tar(package, changed_at, |piece| send.blocking_send(Ok(piece)).map_err(gone))
        });
        let body = stream::unfold(receive, |mut receive| async { Some((receive.recv().await?, receive)) });
        let fed = async {
            if by_owner {
                return unpack_as_owner(container, path, body).await;
            }
            let request = Unpack { path: path.to_owned() };
            let options = ToolOptions { timeout: Some(LONGEST), ..ToolOptions::fed() };
            let tool = Tool::start(container, "unpack", &request, options).await?;
            feed_tool(container, tool, body).await
        };
        let (unpacking, fed) = tokio::join!(unpacking, fed);
        let unpacking = unpacking.unwrap_or_else(|_| Err(Error::internal("reading a package panicked")));
        match (unpacking, fed) {
            // The tool's own reason, where it has one: the rest follows from it.
            (_, Err(error)) => Err(error),
            (Err(error), Ok(_)) => Err(error),
            (Ok(()), Ok(unpacked)) => Ok(unpacked),
        }
    }
}
