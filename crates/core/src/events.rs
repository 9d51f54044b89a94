//! Following events. An admin gets all of them, any other caller those of its own owner's sandboxes.

use crate::Caller;
use atoll_store::{EventKind, EventPage, EventQuery, EventRow, KeyId, NewEvent, SandboxId, Scope, Store};
use atoll_types::{Error, ErrorCode, Result, time::now_ms};
use std::{collections::VecDeque, sync::Arc};

/// The most that one page may have.
pub const LARGEST_PAGE: u32 = 1000;

/// An event of this moment.
pub(crate) fn new_event(
    owner: &str,
    sandbox: Option<SandboxId>,
    kind: EventKind,
    reason: Option<String>,
    data: &serde_json::Value,
) -> NewEvent {
    let (owner, data) = (owner.to_owned(), data.to_string());
    NewEvent { at: now_ms(), owner, sandbox, kind, reason, data }
}

/// What a follower receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventUpdate {
    /// Something happened.
    Event(EventRow),
    /// Events that the follower asked for were removed, or the last one that it saw never existed.
    Missed {
        /// The event after which it wanted to continue.
        after: u64,
        /// The event after which it continues.
        resume: u64,
    },
}

/// Events in order, those stored and those to come. Cancelling a wait loses none.
pub struct EventFollow {
    store: Arc<dyn Store>,
    query: EventQuery,
    /// Whether the caller may see no event at all.
    sees_none: bool,
    waiting: VecDeque<EventUpdate>,
    /// The last event that was read; those in `waiting` lie before it.
    read_to: u64,
    /// The last event that was handed out, or read and filtered.
    reported: u64,
    key: Option<(KeyId, String)>,
}

impl EventFollow {
    /// The event after which another follower would continue.
    #[must_use]
    pub fn resume(&self) -> u64 {
        self.reported
    }

    /// The next event, where it is known already.
    pub fn waiting(&mut self) -> Option<EventUpdate> {
        let news = self.waiting.pop_front()?;
        self.reported = match &news {
            EventUpdate::Event(row) => row.id,
            EventUpdate::Missed { resume, .. } => *resume,
        };
        Some(news)
    }

    /// The next event, once there is one.
    pub async fn next(&mut self) -> Result<EventUpdate> {
        if self.sees_none {
            return std::future::pending().await;
        }
        loop {
            if let Some(news) = self.waiting() {
                return Ok(news);
            }
            self.reported = self.read_to;
            let page = self.store.events(&self.query).await?;
            let EventPage { items, missed, newest } = page;
            if missed {
                let after = self.query.after.unwrap_or(0);
                let resume = items.first().map_or(newest, |row| row.id.saturating_sub(1));
                self.waiting.push_back(EventUpdate::Missed { after, resume });
            }
            self.read_to = match items.last() {
                Some(last) if items.len() as u64 >= u64::from(self.query.limit) => last.id,
                _ => newest,
            };
            self.query.after = Some(self.read_to);
            self.waiting.extend(items.into_iter().map(EventUpdate::Event));
            if self.waiting.is_empty() {
                self.reported = self.read_to;
                self.store.await_event(self.read_to).await?;
            }
        }
    }

    /// Whether the caller may still follow: its key may have been revoked meanwhile.
    pub async fn check(&self) -> Result<()> {
        let Some((id, owner)) = &self.key else { return Ok(()) };
        let keys = self.store.list_keys(Some(owner)).await?;
        let valid = keys.iter().any(|key| {
            key.id == *id && key.revoked_at.is_none() && key.expires_at.is_none_or(|at| at > now_ms())
        });
        if valid {
            return Ok(());
        }
        Err(Error::new(ErrorCode::PermissionDenied, "the key has expired or was revoked"))
    }
}

/// Restricts a query to what this caller may see, and says whether that is nothing.
fn restrict(caller: &Caller, query: &mut EventQuery) -> bool {
    if caller.scope == Scope::Admin {
        return false;
    }
    let foreign = query.owner.as_ref().is_some_and(|owner| *owner != caller.owner);
    query.owner = Some(caller.owner.clone());
    foreign
}

/// The events of sandboxes.
#[derive(Clone)]
pub struct Events {
    pub(crate) store: Arc<dyn Store>,
}

impl Events {
    /// A page of the events that the caller may see, the oldest first.
    pub async fn page(&self, caller: &Caller, mut query: EventQuery) -> Result<EventPage> {
        if !(1..=LARGEST_PAGE).contains(&query.limit) {
            return Err(Error::invalid("limit", format!("limit must be between 1 and {LARGEST_PAGE}")));
        }
        if restrict(caller, &mut query) {
            query.limit = 0;
        }
        Ok(self.store.events(&query).await?)
    }

    /// The events that the caller may see, as they come: with `from_now` those to come, else those after the
    /// one that the query names.
    pub async fn follow(
        &self,
        caller: &Caller,
        mut query: EventQuery,
        from_now: bool,
    ) -> Result<EventFollow> {
        let sees_none = restrict(caller, &mut query);
        query.limit = LARGEST_PAGE;
        if from_now {
            let newest = self.store.events(&EventQuery { limit: 0, ..EventQuery::default() }).await?.newest;
            query.after = Some(newest);
        }
        let reported = query.after.unwrap_or(0);
        let key = caller.key.map(|key| (key, caller.owner.clone()));
        let store = Arc::clone(&self.store);
        Ok(EventFollow {
            store,
            query,
            sees_none,
            waiting: VecDeque::new(),
            read_to: reported,
            reported,
            key,
        })
    }
}
