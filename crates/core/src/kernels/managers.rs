//! The kernel managers of all containers: the server connects to each once, at the first request that needs
//! it, and again when it or its connection is gone. A connection is no activity: nothing here keeps a sandbox
//! awake.

use super::link::Link;
use crate::idempotency::derived_id;
use atoll_provider::Container;
use atoll_types::{ContainerId, ErrorCode, ExecId, Result};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The request that holds the lock connects.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<Link>>>>;

/// Every kernel manager that is connected to.
#[derive(Default)]
pub(crate) struct KernelManagers(Mutex<HashMap<ContainerId, Slot>>);

/// The kernel manager's id among the commands of its container: the same for every server.
pub(crate) fn manager_exec(container: ContainerId) -> ExecId {
    ExecId::from_uuid(derived_id([&b"atoll kernels"[..], container.uuid().as_bytes()]))
}

impl KernelManagers {
    fn slots(&self) -> MutexGuard<'_, HashMap<ContainerId, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, container: ContainerId) -> Slot {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(&container) {
            return Arc::clone(slot);
        }
        // Links that are over are dropped when another container is added.
        slots.retain(|_, slot| {
            let idle = |link: &Option<Arc<Link>>| link.as_ref().is_none_or(|link| link.is_over());
            Arc::strong_count(slot) > 1 || !slot.try_lock().is_ok_and(|link| idle(&link))
        });
        Arc::clone(slots.entry(container).or_default())
    }

    /// The connection to a container's kernel manager, which is started where there is none. The container is
    /// not to be one that counts as work.
    pub(crate) async fn link(&self, container: &Arc<dyn Container>) -> Result<Arc<Link>> {
        let slot = self.slot(container.id());
        let mut link = slot.lock().await;
        match &*link {
            Some(link) if !link.is_over() => Ok(Arc::clone(link)),
            _ => {
                let made = Link::make(container, manager_exec(container.id())).await?;
                *link = Some(Arc::clone(&made));
                Ok(made)
            }
        }
    }

    /// The same where there is a kernel manager; none where there is not.
    pub(crate) async fn existing(&self, container: &Arc<dyn Container>) -> Result<Option<Arc<Link>>> {
        if let Some(link) = &*self.slot(container.id()).lock().await
            && !link.is_over()
        {
            return Ok(Some(Arc::clone(link)));
        }
        match container.guest().get_exec(manager_exec(container.id())).await {
            Ok(report) if !report.ended => self.link(container).await.map(Some),
            Ok(_) => Ok(None),
            Err(error) if error.code == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
