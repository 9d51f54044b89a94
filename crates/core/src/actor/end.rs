//! The end of a container, and of a sandbox. The container is destroyed before its record is changed: a
//! server that dies in between finds a record without a container at its next start and closes it. A sandbox
//! is recorded as being destroyed before anything of it is: without its files it is useless, so the next
//! request or reconciler finishes the destruction.

use super::{SandboxActor, claim::is_taken, must_allow};
use atoll_store::{ActivityKind, Change, SandboxRecord, Status, StatusChange};
use atoll_types::{Error, ErrorCode, Operation, Result, time::now_ms};

impl SandboxActor {
    /// Ends the container, whatever its state.
    pub(super) async fn end_container(&mut self, record: &SandboxRecord) -> Result<()> {
        self.end_files().await?;
        self.detach();
        self.shared.egress_sessions.close(self.id).await;
        match record.container {
            Some(container) => self.destroy_container(record, container).await,
            None => Ok(()),
        }
    }

    pub(super) async fn stop(&mut self, reason: Option<String>) -> Result<SandboxRecord> {
        let record = self.whole_record().await?;
        must_allow(Operation::SandboxStop.states(), &record)?;
        if record.status == Status::Stopped {
            return Ok(record);
        }
        self.end_container(&record).await?;
        let why = reason.clone().unwrap_or_default();
        let change = Change {
            status: Some(StatusChange::new(Status::Stopped, reason)),
            container: Some(None),
            stopped_at: Some(Some(now_ms())),
            activity: self.activity(ActivityKind::Stop, why),
            ..Change::default()
        };
        self.shared.admission.stopped(self.id);
        self.change(&record, change).await
    }

    /// The record, unless its sandbox is being destroyed.
    pub(super) async fn whole_record(&self) -> Result<SandboxRecord> {
        let record = self.record().await?;
        if record.destroyed_at.is_some() && record.status != Status::Destroyed {
            return Err(Error::new(ErrorCode::Conflict, "the sandbox is being destroyed"));
        }
        Ok(record)
    }

    /// Destroys the sandbox for a caller, to whom one that is destroyed already is not there.
    pub(super) async fn destroy_as_asked(&mut self) -> Result<SandboxRecord> {
        must_allow(Operation::SandboxDestroy.states(), &self.record().await?)?;
        self.destroy(None).await
    }

    pub(super) async fn destroy(&mut self, reason: Option<String>) -> Result<SandboxRecord> {
        let mut record = self.record().await?;
        if record.status == Status::Destroyed {
            return Ok(record);
        }
        if record.destroyed_at.is_none() {
            let begun = Change { destroyed_at: Some(now_ms()), ..Change::default() };
            record = self.change(&record, begun).await?;
        }
        self.end_container(&record).await?;
        if let Some(volumes) = self.provider(&record)?.volumes() {
            match volumes.remove_volume(record.volume).await {
                Err(error) if is_taken(&error) => {
                    self.free_volume(&record).await?;
                    volumes.remove_volume(record.volume).await?;
                }
                removed => removed?,
            }
        }
        self.shared.admission.gone(self.id);
        let why = reason.clone().unwrap_or_default();
        let change = Change {
            status: Some(StatusChange::new(Status::Destroyed, reason)),
            container: Some(None),
            destroyed_at: Some(now_ms()),
            activity: self.activity(ActivityKind::Destroy, why),
            ..Change::default()
        };
        let record = self.change(&record, change).await?;
        // The actor of a destroyed sandbox ends and leaves no entry in the registry: there may be many.
        self.over = true;
        Ok(record)
    }
}
