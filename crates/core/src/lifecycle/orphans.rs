//! Containers and volumes that belong to no sandbox. A record names its container and its volume before
//! either is made, and both are listed before the records are read: so what is being made now is never found
//! here. Even so nothing is removed before it was without an owner for a while, by the monotonic clock.
//!
//! Containers without a volume are left alone: `atoll run` makes them and destroys them.

use super::{Look, PATIENCE, retention::system};
use crate::{Lifecycle, operation::OperationSpec};
use atoll_provider::Listed;
use atoll_store::ListQuery;
use atoll_types::{ContainerId, Error, ErrorCode, Operation, ProviderName, Result, VolumeId};
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

/// Since when each was without an owner.
pub(super) type UnownedSince = HashMap<Unowned, Instant>;

/// A container or a volume without an owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Unowned {
    provider: ProviderName,
    thing: Thing,
}

impl Unowned {
    fn new(provider: ProviderName, thing: Thing) -> Self {
        Self { provider, thing }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Thing {
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
    known.iter().filter(|(_, since)| long(since)).map(|(stranger, _)| stranger.clone()).collect()
}

impl Lifecycle {
    pub(super) async fn collect_orphans(&self, look: &Look<'_>, known: &mut UnownedSince) -> Result<()> {
        let late = |_| Error::new(ErrorCode::Timeout, "the provider does not answer");
        let (mut containers, mut volumes) = (Vec::new(), Vec::new());
        for (name, provider) in self.providers.iter() {
            let listed = tokio::time::timeout(PATIENCE, provider.list()).await.map_err(late)??;
            containers.extend(listed.into_iter().map(|listed| (name.clone(), listed)));
            if let Some(power) = provider.volumes() {
                let listed = tokio::time::timeout(PATIENCE, power.list_volumes()).await.map_err(late)??;
                volumes.extend(listed.into_iter().map(|volume| (name.clone(), volume)));
            }
        }
        // Read after listing containers and volumes: whatever is made from now on is in neither list.
        let owned = self.owned().await?;
        let ours = |listed: &Listed| listed.volume.is_some() && !owned.containers.contains(&listed.id);
        let containers = containers.into_iter().filter(|(_, listed)| ours(listed));
        let containers =
            containers.map(|(provider, listed)| Unowned::new(provider, Thing::Container(listed.id)));
        let volumes = volumes.into_iter().filter(|(_, id)| !owned.volumes.contains(id));
        let volumes = volumes.map(|(provider, id)| Unowned::new(provider, Thing::Volume(id)));
        let grace = Duration::from_secs(look.runtime_settings.lifecycle_orphan_seconds.into());
        let mut due = grown(known, containers.chain(volumes).collect(), grace, Instant::now());
        // A volume cannot go before its container.
        due.sort_by_key(|stranger| matches!(stranger.thing, Thing::Volume(_)));
        for stranger in due {
            if let Err(error) = self.collect(&stranger).await {
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
        owned.volumes.extend(self.store.volumes(None).await?.into_iter().map(|volume| volume.id));
        owned.containers.extend(self.registry.file_containers());
        owned.volumes.extend(self.registry.file_copies());
        for (container, volume) in self.pool.known() {
            owned.containers.insert(container);
            owned.volumes.insert(volume);
        }
        Ok(owned)
    }

    async fn collect(&self, stranger: &Unowned) -> Result<()> {
        let (kind, id) = match stranger.thing {
            Thing::Container(id) => (Operation::OrphanContainer, id.to_string()),
            Thing::Volume(id) => (Operation::OrphanVolume, id.to_string()),
        };
        let provider = self.providers.get(&stranger.provider)?;
        tracing::warn!(id, "removing what belongs to no sandbox");
        let what = OperationSpec::new(kind).with(id).and("reason", "it belongs to no sandbox");
        let audited = self.operations.audited(&system(), what).await?;
        let removing = async {
            match (stranger.thing, provider.volumes()) {
                (Thing::Container(id), _) => provider.destroy(id).await,
                (Thing::Volume(id), Some(volumes)) => volumes.remove_volume(id).await,
                (Thing::Volume(_), None) => Ok(()),
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
        let volume = || Unowned::new(ProviderName::native(), Thing::Volume(VolumeId::random()));
        let (first, second) = (&volume(), &volume());
        let (began, grace) = (Instant::now(), Duration::from_secs(10));
        let mut known = UnownedSince::new();
        let mut look = |now: &[&Unowned], seconds| {
            grown(
                &mut known,
                now.iter().copied().cloned().collect(),
                grace,
                began + Duration::from_secs(seconds),
            )
        };
        assert_eq!(look(&[first, second], 0), []);
        assert_eq!(look(&[first, second], 9), []);
        // It had an owner for a moment.
        assert_eq!(look(&[first], 9), []);
        assert_eq!(look(&[first, second], 10), std::slice::from_ref(first));
        assert_eq!(look(&[second], 19), []);
        assert_eq!(look(&[second], 20), std::slice::from_ref(second));
    }
}
