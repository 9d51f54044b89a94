//! Making one snapshot, between the two writes of its record.

use atoll_provider::{Provider, Snapshots};
use atoll_store::{SandboxRecord, Store};
use atoll_types::{Error, ErrorCode, Profile, Result, SnapshotRecord, Storage};

/// The snapshots of a sandbox with this profile. Its files must be on a volume, and its provider must have snapshots.
pub(crate) fn snapshots_for<'a>(provider: &'a dyn Provider, profile: &Profile) -> Result<&'a dyn Snapshots> {
    let message = match (&profile.storage, provider.snapshots()) {
        (Storage::Volume, Some(snapshots)) => return Ok(snapshots),
        (Storage::Volume, None) => "the provider of this sandbox cannot make snapshots".to_owned(),
        (Storage::Tmpfs(_), _) => {
            format!(
                "the files of a sandbox with the profile {} are in memory and have no snapshots",
                profile.name
            )
        }
    };
    Err(Error::new(ErrorCode::Unsupported, message))
}

/// Makes a snapshot and records it. Where that fails, neither is left, or the next repair removes what is.
pub(crate) async fn make(
    store: &dyn Store,
    provider: &dyn Provider,
    record: &SandboxRecord,
    new: SnapshotRecord,
) -> Result<SnapshotRecord> {
    let power = snapshots_for(provider, &record.profile)?;
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
