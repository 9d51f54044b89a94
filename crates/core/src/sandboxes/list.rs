//! Listing sandboxes, and the activities of one.

use crate::{Caller, Sandboxes};
use atoll_store::{ActivityEntry, EventQuery, EventRow, ListQuery, Page, SandboxId, Scope, Status};
use atoll_types::{Error, EventKind, Millis, Result};

/// The most that one page may have.
pub const LARGEST_PAGE: u32 = 200;
/// Events that are read at a time.
const EVENTS_AT_ONCE: u32 = 1000;

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
        query.images = self.all_names(&query.images);
        Ok(self.store.list_sandboxes(&query).await?)
    }

    /// The names of images that a request may have meant with these: a record keeps the one that its create used.
    pub(super) fn all_names(&self, images: &[String]) -> Vec<String> {
        images.iter().flat_map(|image| self.catalogue.names_of(image)).collect()
    }

    /// The activities of a sandbox, the latest first.
    pub async fn activities(&self, caller: &Caller, id: SandboxId, limit: u32) -> Result<Vec<ActivityEntry>> {
        if !(1..=LARGEST_PAGE).contains(&limit) {
            return Err(Error::invalid("limit", format!("limit must be between 1 and {LARGEST_PAGE}")));
        }
        self.operations.visible(caller, id).await?;
        Ok(self.store.activities(id, limit, None).await?)
    }

    /// When the sandbox's last container was started, by its events; none where they are trimmed.
    pub async fn started_at(&self, caller: &Caller, id: SandboxId) -> Result<Option<Millis>> {
        self.operations.visible(caller, id).await?;
        // What goes on after a pause is ready too, and was not started.
        let goes_on = |row: &EventRow| {
            let data: serde_json::Value = serde_json::from_str(&row.event.data).unwrap_or_default();
            data["was"] == Status::Paused.as_str()
        };
        let kinds = Some(vec![EventKind::Ready]);
        let mut query =
            EventQuery { sandbox: Some(id), kinds, limit: EVENTS_AT_ONCE, ..EventQuery::default() };
        let mut started = None;
        loop {
            let items = self.store.events(&query).await?.items;
            started = items.iter().rfind(|row| !goes_on(row)).map(|row| row.event.at).or(started);
            match items.last() {
                Some(last) if items.len() >= EVENTS_AT_ONCE as usize => query.after = Some(last.id),
                _ => return Ok(started),
            }
        }
    }
}

impl Sandboxes {
    /// How many sandboxes there are of each status, for the metrics.
    pub async fn status_counts(&self) -> Result<std::collections::BTreeMap<atoll_store::Status, u64>> {
        let query = ListQuery { limit: 1, ..ListQuery::default() };
        Ok(self.store.list_sandboxes(&query).await?.status_counts)
    }
}
