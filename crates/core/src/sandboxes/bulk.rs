//! An admin's operations on sandboxes of all owners: listing them, and ending many at once. Each of them is
//! an operation of its own in the audit trail.

use crate::{Caller, Sandboxes, operation::OperationSpec};
use atoll_store::{ListQuery, Page, SandboxId, SandboxRecord, Status};
use atoll_types::{Error, ErrorCode, Operation, Result};
use futures_util::{StreamExt, stream};

/// Most sandboxes in one request.
pub const MOST_AT_ONCE: usize = 10_000;
/// How many are processed concurrently.
const ABREAST: usize = 8;

/// What to do with many sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkAction {
    /// Their containers end; their volumes are kept.
    Stop,
    /// They end with their volumes.
    Destroy,
}

impl BulkAction {
    fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Destroy => "destroy",
        }
    }
}

/// Which sandboxes.
#[derive(Debug, Clone)]
pub enum BulkTarget {
    /// These, of any owner.
    Ids(Vec<SandboxId>),
    /// All that match a query.
    Found(Box<ListQuery>),
}

/// The result of a bulk request.
#[derive(Debug, Clone, Default)]
pub struct BulkOutcome {
    /// Stopped now.
    pub stopped: u64,
    /// Destroyed now.
    pub destroyed: u64,
    /// Those that already had the status.
    pub skipped: u64,
    /// Those that failed, and why.
    pub errors: Vec<(SandboxId, Error)>,
}

enum Done {
    Changed,
    Skipped,
}

impl Sandboxes {
    /// A page of the sandboxes of all owners, for an admin.
    pub async fn list_all(&self, caller: &Caller, query: ListQuery) -> Result<Page> {
        caller.must_administer()?;
        self.list(caller, query).await
    }

    /// Stops or destroys many sandboxes, for an admin. A sandbox that fails is reported and does not stop the
    /// others.
    pub async fn bulk(&self, caller: &Caller, target: BulkTarget, action: BulkAction) -> Result<BulkOutcome> {
        let audited = self
            .operations
            .audited(caller, OperationSpec::new(Operation::SandboxBulk).with(action.name()))
            .await?;
        let result = async {
            let ids = self.meant(target).await?;
            Ok(self.bulk_as(caller, ids, action).await)
        }
        .await;
        audited.done(result).await
    }

    async fn meant(&self, target: BulkTarget) -> Result<Vec<SandboxId>> {
        let mut ids = match target {
            BulkTarget::Ids(ids) => ids,
            BulkTarget::Found(query) => {
                let images = self.all_names(&query.images);
                let query = ListQuery { images, limit: MOST_AT_ONCE as u32 + 1, offset: 0, ..*query };
                self.store.list_sandboxes(&query).await?.items.iter().map(|record| record.id).collect()
            }
        };
        ids.sort_unstable();
        ids.dedup();
        match ids.len() > MOST_AT_ONCE {
            true => {
                let message = format!("a request may be about {MOST_AT_ONCE} sandboxes; there are more");
                Err(Error::new(ErrorCode::TooLarge, message))
            }
            false => Ok(ids),
        }
    }

    async fn bulk_as(&self, caller: &Caller, ids: Vec<SandboxId>, action: BulkAction) -> BulkOutcome {
        let one = |id| async move { (id, self.bulk_one(caller, id, action).await) };
        let all: Vec<_> = stream::iter(ids).map(one).buffer_unordered(ABREAST).collect().await;
        let mut outcome = BulkOutcome::default();
        for (id, done) in all {
            match (done, action) {
                (Ok(Done::Changed), BulkAction::Stop) => outcome.stopped += 1,
                (Ok(Done::Changed), BulkAction::Destroy) => outcome.destroyed += 1,
                (Ok(Done::Skipped), _) => outcome.skipped += 1,
                (Err(error), _) => outcome.errors.push((id, error)),
            }
        }
        outcome
    }

    async fn bulk_one(&self, caller: &Caller, id: SandboxId, action: BulkAction) -> Result<Done> {
        let SandboxRecord { status, .. } = self.operations.visible(caller, id).await?;
        let there = match action {
            BulkAction::Stop => matches!(status, Status::Stopped | Status::Destroyed),
            BulkAction::Destroy => status == Status::Destroyed,
        };
        match (there, action) {
            (true, _) => return Ok(Done::Skipped),
            (false, BulkAction::Stop) => drop(self.stop(caller, id).await?),
            (false, BulkAction::Destroy) => self.destroy(caller, id).await?,
        }
        Ok(Done::Changed)
    }
}
