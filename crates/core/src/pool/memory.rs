//! The pool's entry in the store: which containers and volumes are its own. It is written before one is made,
//! so that the next server finds what one that died leaves behind; a volume in a sandbox's record is the
//! sandbox's whatever the entry says, so a claim does not write the entry.
//!
//! At its start the server destroys every container and volume in the entry that no record has; it adopts
//! none, because the state in which the last server left it is not known. A record that is `provisioning` in
//! one of these containers is a claim that was cut off: its container is destroyed and the sandbox is
//! stopped, with its volume.

use atoll_store::{ListQuery, Store};
use atoll_types::{ContainerId, ProviderName, Result, VolumeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The name of the entry.
const STORED: &str = "pool";

/// One container of the pool's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Remembered {
    pub(crate) container: ContainerId,
    pub(crate) volume: VolumeId,
    /// Entries of older releases name none.
    #[serde(default = "ProviderName::native")]
    pub(crate) provider: ProviderName,
}

/// Writes these and no others.
pub(super) async fn write(store: &dyn Store, all: &HashMap<ContainerId, Remembered>) -> Result<()> {
    let all: Vec<&Remembered> = all.values().collect();
    let value = serde_json::to_value(all).map_err(|e| atoll_types::Error::internal(e.to_string()))?;
    Ok(store.put_setting(STORED, value).await?)
}

/// Empties the entry.
pub(crate) async fn clear(store: &dyn Store) -> Result<()> {
    write(store, &HashMap::new()).await
}

/// The entry of an earlier server.
pub(crate) async fn read(store: &dyn Store) -> Result<Vec<Remembered>> {
    let value = store.get_setting(STORED).await?.unwrap_or(Value::Array(Vec::new()));
    Ok(serde_json::from_value(value).unwrap_or_else(|error| {
        tracing::error!(%error, "what was remembered of the pool cannot be read");
        Vec::new()
    }))
}

/// The volumes that sandboxes have, stopped ones included.
pub(crate) async fn owned(store: &dyn Store) -> Result<HashSet<VolumeId>> {
    let all = ListQuery { limit: u32::MAX, ..ListQuery::default() };
    Ok(store.list_sandboxes(&all).await?.items.into_iter().map(|record| record.volume).collect())
}
