//! Making one snapshot, between the two writes of its record.

use atoll_provider::Provider;
use atoll_store::{SandboxRecord, Store};
use atoll_types::{Error, ErrorCode, Result, SnapshotRecord};

/// The error where the provider of a sandbox has no snapshots.
pub(crate) fn unable(record: &SandboxRecord) -> Error {
    let message = format!("the provider {} cannot make snapshots of its sandboxes", record.provider);
    Error::new(ErrorCode::Unsupported, message)
}

/// Makes a snapshot and records it. Where that fails, neither is left, or the next repair removes what is.
pub(crate) async fn make(
    store: &dyn Store,
    provider: &dyn Provider,
    record: &SandboxRecord,
    new: SnapshotRecord,
) -> Result<SnapshotRecord> {
    let power = provider.snapshots().ok_or_else(|| unable(record))?;
    let id = new.id;
    store.insert_snapshot(new).await?;
    match power.create_snapshot(record.volume, id).await {
        Ok(made) => {
            let created_at = i64::try_from(made.created_unix_ms).unwrap_or(i64::MAX);
            Ok(store.finish_snapshot(id, created_at, made.size_bytes).await?)
        }
        Err(error) => {
            // The reply may have been lost after the snapshot was made. A record that is left is repaired later.
            if power.delete_snapshot(record.volume, id).await.is_ok() {
                store.remove_snapshot(record.id, id).await?;
            }
            Err(error)
        }
    }
}
