//! The end of a container, and of a sandbox. The world goes first: a server that dies in between finds a
//! record without a container, and closes that the next time.

use super::Desk;
use crate::now;
use atoll_store::{ActivityKind, Change, SandboxRecord, Status, StatusChange};
use atoll_types::{Error, ErrorCode, Result};

impl Desk {
    /// Ends the container, whatever state it is in.
    async fn end_container(&mut self, record: &SandboxRecord) -> Result<()> {
        self.let_go();
        self.shared.gates.close(self.id).await;
        match record.container {
            Some(container) => self.shared.provider.destroy(container).await,
            None => Ok(()),
        }
    }

    pub(super) async fn stop(&mut self, reason: Option<String>) -> Result<SandboxRecord> {
        let record = self.record().await?;
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
            stopped_at: Some(Some(now())),
            activity: self.activity(ActivityKind::Stop, why),
            ..Change::default()
        };
        self.shared.admission.stopped(self.id);
        self.change(&record, change).await
    }

    pub(super) async fn destroy(&mut self, reason: Option<String>) -> Result<SandboxRecord> {
        let record = self.record().await?;
        if record.status == Status::Destroyed {
            return Ok(record);
        }
        self.end_container(&record).await?;
        if let Some(volumes) = self.shared.provider.volumes() {
            volumes.remove_volume(record.volume).await?;
        }
        self.shared.admission.gone(self.id);
        let why = reason.clone().unwrap_or_default();
        let change = Change {
            status: Some(StatusChange { status: Status::Destroyed, reason }),
            container: Some(None),
            destroyed_at: Some(now()),
            activity: self.activity(ActivityKind::Destroy, why),
            ..Change::default()
        };
        self.change(&record, change).await
    }
}
