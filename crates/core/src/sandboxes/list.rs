//! Listing sandboxes, and the activities of one.

use crate::{Caller, Sandboxes};
use atoll_store::{ActivityEntry, ListQuery, Page, SandboxId, Scope};
use atoll_types::{Error, Result};

/// The most that one page may have.
pub const LARGEST_PAGE: u32 = 200;

impl Sandboxes {
    /// A page of the sandboxes that the caller may see.
    pub async fn list(&self, caller: &Caller, mut query: ListQuery) -> Result<Page> {
        if !(1..=LARGEST_PAGE).contains(&query.limit) {
            return Err(Error::invalid(
                "page_size",
                format!("page_size must be between 1 and {LARGEST_PAGE}"),
            ));
        }
        if caller.scope != Scope::Admin {
            // Another owner's sandboxes are as if they did not exist.
            if query.owner.as_ref().is_some_and(|owner| *owner != caller.owner) {
                return Ok(Page::default());
            }
            query.owner = Some(caller.owner.clone());
        }
        Ok(self.store.list_sandboxes(&query).await?)
    }

    /// The activities of a sandbox, the latest first.
    pub async fn activities(&self, caller: &Caller, id: SandboxId, limit: u32) -> Result<Vec<ActivityEntry>> {
        if !(1..=LARGEST_PAGE).contains(&limit) {
            return Err(Error::invalid("limit", format!("limit must be between 1 and {LARGEST_PAGE}")));
        }
        self.operations.visible(caller, id).await?;
        Ok(self.store.activities(id, limit, None).await?)
    }
}

impl Sandboxes {
    /// How many sandboxes there are of each status, for the metrics.
    pub async fn status_counts(&self) -> Result<std::collections::BTreeMap<atoll_store::Status, u64>> {
        let query = ListQuery { limit: 1, ..ListQuery::default() };
        Ok(self.store.list_sandboxes(&query).await?.status_counts)
    }
}
