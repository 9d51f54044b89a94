//! Containers and volumes that belong to no sandbox. A record names its container and its volume before
//! either is made, and both are listed before the records are read: so what is being made now is never found
//! here. Even so nothing is removed before it was without an owner for a while, by the monotonic clock.
//!
//! Containers without a volume are left alone: `atoll run` makes them and destroys them.

use super::{Look, PATIENCE, retention::system};
use crate::{Lifecycle, operation::OperationSpec};
use atoll_provider::Listed;
use atoll_store::ListQuery;
use atoll_types::{ContainerId, Error, ErrorCode, Operation, Result, VolumeId};
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

/// Since when each was without an owner.
pub(super) type UnownedSince = HashMap<Unowned, Instant>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Unowned {
    Container(ContainerId),
    Volume(VolumeId),
}

/// All containers and volumes with an owner.
#[derive(Default)]
struct Owned {
    containers: HashSet<ContainerId>,
    volumes: HashSet<VolumeId>,
}

/// Keeps those without an owner now, and returns those that have been for long enough.
fn grown(known: &mut UnownedSince, now: HashSet<Unowned>, grace: Duration, at: Instant) -> Vec<Unowned> {
    known.retain(|stranger, _| now.contains(stranger));
    for stranger in now {
        known.entry(stranger).or_insert(at);
    }
    let long = |since: &Instant| at.saturating_duration_since(*since) >= grace;
    known.iter().filter(|(_, since)| long(since)).map(|(stranger, _)| *stranger).collect()
}

impl Lifecycle {
    pub(super) async fn collect_orphans(&self, look: &Look<'_>, known: &mut UnownedSince) -> Result<()> {
        let late = |_| Error::new(ErrorCode::Timeout, "the provider does not answer");
        let containers = tokio::time::timeout(PATIENCE, self.provider.list()).await.map_err(late)??;
        let volumes = match self.provider.volumes() {
            Some(power) => tokio::time::timeout(PATIENCE, power.list_volumes()).await.map_err(late)??,
            None => Vec::new(),
        };
        // Read after listing containers and volumes: whatever is made from now on is in neither list.
        let owned = self.owned().await?;
        let ours = |listed: &Listed| listed.volume.is_some() && !owned.containers.contains(&listed.id);
        let containers = containers.into_iter().filter(ours).map(|listed| Unowned::Container(listed.id));
        let volumes = volumes.into_iter().filter(|id| !owned.volumes.contains(id)).map(Unowned::Volume);
        let grace = Duration::from_secs(look.runtime_settings.lifecycle_orphan_seconds.into());
        let mut due = grown(known, containers.chain(volumes).collect(), grace, Instant::now());
        // A volume cannot go before its container.
        due.sort_by_key(|stranger| matches!(stranger, Unowned::Volume(_)));
        for stranger in due {
            if let Err(error) = self.collect(stranger).await {
                tracing::warn!(?stranger, %error, "an orphaned container or volume cannot be removed");
            }
        }
        Ok(())
    }

    /// A part that keeps a container or a volume that no record names must be added here.
    async fn owned(&self) -> Result<Owned> {
        let mut owned = Owned::default();
        let all = ListQuery { limit: u32::MAX, ..ListQuery::default() };
        for record in self.store.list_sandboxes(&all).await?.items {
            owned.containers.extend(record.container);
            owned.volumes.insert(record.volume);
        }
        owned.containers.extend(self.registry.file_containers());
        for (container, volume) in self.pool.known() {
            owned.containers.insert(container);
            owned.volumes.insert(volume);
        }
        Ok(owned)
    }

    async fn collect(&self, stranger: Unowned) -> Result<()> {
        let (kind, id) = match stranger {
            Unowned::Container(id) => (Operation::OrphanContainer, id.to_string()),
            Unowned::Volume(id) => (Operation::OrphanVolume, id.to_string()),
        };
        tracing::warn!(id, "removing what belongs to no sandbox");
        let what = OperationSpec::new(kind).with(id).and("reason", "it belongs to no sandbox");
        let audited = self.operations.audited(&system(), what).await?;
        let removing = async {
            match (stranger, self.provider.volumes()) {
                (Unowned::Container(id), _) => self.provider.destroy(id).await,
                (Unowned::Volume(id), Some(volumes)) => volumes.remove_volume(id).await,
                (Unowned::Volume(_), None) => Ok(()),
            }
        };
        let late = || Error::new(ErrorCode::Timeout, "the provider does not answer");
        let removed = tokio::time::timeout(PATIENCE, removing).await.unwrap_or_else(|_| Err(late()));
        audited.done(removed).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_goes_when_it_was_one_for_long_enough_without_a_break() {
        let (first, second) = (Unowned::Volume(VolumeId::random()), Unowned::Volume(VolumeId::random()));
        let (began, grace) = (Instant::now(), Duration::from_secs(10));
        let mut known = UnownedSince::new();
        let mut look = |now: &[Unowned], seconds| {
            grown(&mut known, now.iter().copied().collect(), grace, began + Duration::from_secs(seconds))
        };
        assert_eq!(look(&[first, second], 0), []);
        assert_eq!(look(&[first, second], 9), []);
        // It had an owner for a moment.
        assert_eq!(look(&[first], 9), []);
        assert_eq!(look(&[first, second], 10), [first]);
        assert_eq!(look(&[second], 19), []);
        assert_eq!(look(&[second], 20), [second]);
    }
}
