//! Builds as callers see them: lists, logs and cancelling. Admins see all of them, other keys those that their owner asked for.

use super::{
    Images,
    build_log::{BuildLog, BuildLogFollow, LogFolder},
    template::StepPins,
};
use crate::{Caller, events::new_event, operation::OperationSpec};
use atoll_store::{BUILDS_KEPT, Scope};
use atoll_types::{
    BuildId, BuildProgress, BuildRecord, BuildState, Error, ErrorCode, EventKind, Operation, Result,
};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Builds that run at the same time.
const MOST_AT_ONCE: usize = 8;

/// A build, and how far it is while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildView {
    pub record: BuildRecord,
    pub progress: Option<BuildProgress>,
}

/// A build that this server carries out.
#[derive(Clone)]
pub(super) struct RunningBuild {
    pub(super) log: BuildLog,
    /// The owner of the key that asked for it.
    asked_by: String,
    cancelled: watch::Sender<bool>,
}

impl RunningBuild {
    pub(super) fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    /// Waits until a request cancels it.
    pub(super) async fn cancelled(&self) {
        // The sender lives as long as this.
        let _ = self.cancelled.subscribe().wait_for(|cancelled| *cancelled).await;
    }
}

/// The builds that this server carries out, and the logs of all.
pub(crate) struct Builds {
    pub(super) logs: LogFolder,
    pub(super) step_pins: Arc<StepPins>,
    running: Mutex<HashMap<BuildId, RunningBuild>>,
}

impl Builds {
    pub(crate) fn new(logs: PathBuf) -> Self {
        Self { logs: LogFolder::new(logs), step_pins: Arc::default(), running: Mutex::default() }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<BuildId, RunningBuild>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, id: BuildId) -> Option<RunningBuild> {
        self.running().get(&id).cloned()
    }

    /// A build begins. It ends when the guard is dropped. `most_of_owner` bounds how many builds its owner may have running.
    pub(super) fn enter(
        self: &Arc<Self>,
        id: BuildId,
        asked_by: &str,
        most_of_owner: Option<usize>,
    ) -> Result<RunningBuildGuard> {
        let mut running = self.running();
        let own = running.values().filter(|build| build.asked_by == asked_by).count();
        if let Some(most) = most_of_owner.filter(|most| own >= *most) {
            let message = format!(
                "{most} images are being pulled for your owner; ask again when one of them has ended"
            );
            return Err(Error::new(ErrorCode::LimitExceeded, message));
        }
        if running.len() >= MOST_AT_ONCE {
            let message = format!(
                "{MOST_AT_ONCE} images are being built, the most at a time; try again when one has ended"
            );
            return Err(Error::new(ErrorCode::LimitExceeded, message));
        }
        let (log, asked_by) = (self.logs.create(id), asked_by.to_owned());
        let build = RunningBuild { log, asked_by, cancelled: watch::Sender::default() };
        running.insert(id, build.clone());
        Ok(RunningBuildGuard { builds: Arc::clone(self), id, build })
    }
}

/// A build that ends when this is dropped, also where its work panics or its caller leaves before it began: another may take its
/// place, and followers of its log see an end.
pub(super) struct RunningBuildGuard {
    builds: Arc<Builds>,
    id: BuildId,
    pub(super) build: RunningBuild,
}

impl Drop for RunningBuildGuard {
    fn drop(&mut self) {
        self.builds.running().remove(&self.id);
        self.build.log.end();
    }
}

impl Images {
    /// The newest builds that the caller may see.
    pub async fn builds(&self, caller: &Caller) -> Result<Vec<BuildView>> {
        let all = self.store.builds(2 * BUILDS_KEPT).await?;
        Ok(all.into_iter().filter(|build| sees(caller, build)).map(|build| self.view_of(build)).collect())
    }

    /// One of them.
    pub async fn get_build(&self, caller: &Caller, id: BuildId) -> Result<BuildView> {
        self.visible_build(caller, id).await.map(|build| self.view_of(build))
    }

    /// The log of a build from an offset, to its end.
    pub async fn build_log(&self, caller: &Caller, id: BuildId, at: u64) -> Result<BuildLogFollow> {
        let build = self.visible_build(caller, id).await?;
        Ok(self.builds.logs.follow(build.id, self.builds.find(id).map(|running| running.log).as_ref(), at))
    }

    /// Cancels a build that runs, and removes all but its record; removes the record of a build that has ended.
    pub async fn cancel_build(&self, caller: &Caller, id: BuildId) -> Result<()> {
        let what = OperationSpec::new(Operation::ImageCancel).with(id.uuid().to_string());
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            self.visible_build(caller, id).await?;
            if let Some(running) = self.builds.find(id) {
                running.cancelled.send_replace(true);
                running.log.ended().await;
                return self.was_cancelled(caller, id).await;
            }
            // Read after it was seen not to run, so that one which ends at this moment is not taken for a failed one.
            let build = self.visible_build(caller, id).await?;
            match build.state {
                // It has failed, and could not be cleaned up.
                BuildState::Running => {
                    self.clean_up(&build).await?;
                    self.end_build(&build, BuildState::Cancelled, "the build was cancelled").await;
                    Ok(())
                }
                _ => {
                    self.store.remove_build(id).await?;
                    self.builds.logs.remove(id);
                    Ok(())
                }
            }
        }
        .await;
        audited.done(result).await
    }

    /// How a build that a request cancelled has ended.
    async fn was_cancelled(&self, caller: &Caller, id: BuildId) -> Result<()> {
        match self.visible_build(caller, id).await?.state {
            BuildState::Done => {
                let message = "the build is complete and cannot be cancelled; remove its image instead";
                Err(Error::new(ErrorCode::Conflict, message))
            }
            BuildState::Running => {
                let message = "the build has ended, and what it made is not removed yet; cancel it again";
                Err(Error::new(ErrorCode::Unavailable, message))
            }
            BuildState::Failed | BuildState::Cancelled => Ok(()),
        }
    }

    /// Waits for the end of a build.
    pub(super) async fn await_end(&self, id: BuildId) {
        if let Some(running) = self.builds.find(id) {
            running.log.ended().await;
        }
    }

    fn view_of(&self, mut record: BuildRecord) -> BuildView {
        let progress = self.builds.find(record.id).map(|running| running.log.progress_now());
        // The image is recorded before its pool and its presets are: until then the build has not ended.
        if progress.is_some() {
            (record.state, record.ended_at) = (BuildState::Running, None);
        }
        BuildView { record, progress }
    }

    async fn visible_build(&self, caller: &Caller, id: BuildId) -> Result<BuildRecord> {
        let found = self.store.build(id).await?.filter(|build| sees(caller, build));
        found.ok_or_else(|| Error::new(ErrorCode::NotFound, format!("there is no build {}", id.uuid())))
    }

    /// An event of a build.
    pub(super) async fn told(
        &self,
        caller: &Caller,
        build: &BuildRecord,
        kind: EventKind,
        reason: Option<String>,
    ) {
        let BuildRecord { id, image, tag, origin, source, .. } = build;
        let data = serde_json::json!({
            "build_id": id.uuid(), "image_id": image.uuid(), "name": tag.name, "tag": tag.tag, "origin": origin,
            "source": source,
        });
        let event = new_event(&caller.owner, None, kind, reason, &data);
        if let Err(error) = self.store.append_events(vec![event]).await {
            tracing::warn!(build = %id, %error, "an event of a build is not recorded");
        }
    }

    /// Removes the logs of builds that are recorded no more.
    pub(super) async fn keep_logs(&self) {
        match self.store.builds(u32::MAX).await {
            // A build has its log before its record.
            Ok(all) => {
                let running: Vec<_> = self.builds.running().keys().copied().collect();
                let known = all.into_iter().map(|build| build.id).chain(running).collect();
                self.builds.logs.keep(&known);
            }
            Err(error) => tracing::warn!(%error, "old logs of builds are not removed"),
        }
    }
}

fn sees(caller: &Caller, build: &BuildRecord) -> bool {
    caller.scope == Scope::Admin || caller.owner == build.asked_by
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_counts_until_its_guard_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let builds = Arc::new(Builds::new(folder.path().to_owned()));
        let enter = |owner: &str, most| builds.enter(BuildId::random(), owner, most);
        let mut held: Vec<_> = (0..2).map(|_| enter("a", Some(2)).unwrap()).collect();
        assert_eq!(enter("a", Some(2)).err().unwrap().code, ErrorCode::LimitExceeded);
        held.extend((0..MOST_AT_ONCE - 2).map(|_| enter("b", None).unwrap()));
        assert_eq!(enter("c", None).err().unwrap().code, ErrorCode::LimitExceeded);
        let first = held.remove(0);
        let (id, log) = (first.id, first.build.log.clone());
        drop(first);
        assert!(builds.find(id).is_none());
        // Followers of the log see its end.
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(log.ended());
        assert!(enter("a", Some(2)).is_ok());
    }
}
