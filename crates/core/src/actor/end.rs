//! The end of a container, and of a sandbox. The world goes first: a server that dies in between finds a
//! record without a container, and closes that the next time. Of a sandbox that is to be destroyed the
//! record says so before anything is: a sandbox without its files would be half of one, so whoever comes
//! next goes on to the end.

use super::{SandboxActor, claim::is_taken};
use atoll_store::{ActivityKind, Change, SandboxRecord, Status, StatusChange};
use atoll_types::{Error, ErrorCode, Result, time::now_ms};

impl SandboxActor {
    /// Ends the container, whatever state it is in.
    async fn end_container(&mut self, record: &SandboxRecord) -> Result<()> {
        self.end_files().await?;
        self.detach();
        self.shared.egress_sessions.close(self.id).await;
        match record.container {
            Some(container) => self.shared.provider.destroy(container).await,
            None => Ok(()),
        }
    }

    pub(super) async fn stop(&mut self, reason: Option<String>) -> Result<SandboxRecord> {
        let record = self.whole_record().await?;
        match record.status {
            Status::Stopped => return Ok(record),
            Status::Destroyed => return Err(Error::new(ErrorCode::Conflict, "the sandbox is destroyed")),
            _ => {}
        }
        self.end_container(&record).await?;
        let why = reason.clone().unwrap_or_default();
        let change = Change {
            status: Some(StatusChange { status: Status::Stopped, reason }),
            container: Some(None),
            stopped_at: Some(Some(now_ms())),
            activity: self.activity(ActivityKind::Stop, why),
            ..Change::default()
        };
        self.shared.admission.stopped(self.id);
        self.change(&record, change).await
    }

    /// The record, unless its sandbox is on its way out.
    pub(super) async fn whole_record(&self) -> Result<SandboxRecord> {
        let record = self.record().await?;
        if record.destroyed_at.is_some() && record.status != Status::Destroyed {
            return Err(Error::new(ErrorCode::Conflict, "the sandbox is being destroyed"));
        }
        Ok(record)
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
        if let Some(volumes) = self.shared.provider.volumes() {
            match volumes.remove_volume(record.volume).await {
                Err(error) if is_taken(&error) => {
                    self.free_volume(Some(record.volume)).await?;
                    volumes.remove_volume(record.volume).await?;
                }
                removed => removed?,
            }
        }
        self.shared.admission.gone(self.id);
        let why = reason.clone().unwrap_or_default();
        let change = Change {
            status: Some(StatusChange { status: Status::Destroyed, reason }),
            container: Some(None),
            destroyed_at: Some(now_ms()),
            activity: self.activity(ActivityKind::Destroy, why),
            ..Change::default()
        };
        let record = self.change(&record, change).await?;
        // Nobody keeps what an actor needs for those that are gone: there may be many.
        self.over = true;
        Ok(record)
    }
}
