//! Inserting, finding and changing the records of sandboxes.

use crate::{
    SqliteStore, activity,
    error::failed,
    event, image, list,
    row::{self, SANDBOX},
    snapshot, volume, write,
};
use async_trait::async_trait;
use atoll_store::{
    Change, Inserted, ListQuery, Millis, NewSandbox, Page, Result, SandboxId, SandboxRecord, Sandboxes,
    Status, StoreError, Thing, event_of_change, events_of_insert,
};
use atoll_types::ContainerId;
use sqlx::SqliteConnection;
use std::{collections::BTreeMap, sync::LazyLock};

static BY_ID: LazyLock<String> =
    LazyLock::new(|| format!("SELECT seq, {SANDBOX} FROM sandboxes WHERE id = ?"));
static BY_CONTAINER: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {SANDBOX} FROM sandboxes WHERE container = ?"));
static BY_SESSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {SANDBOX} FROM sandboxes \
         WHERE owner = ? AND session_key = ? AND image = ? AND status <> 'destroyed'"
    )
});
static LIVE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {SANDBOX} FROM sandboxes WHERE status NOT IN ('stopped', 'destroyed') \
         OR (status = 'stopped' AND destroyed_at IS NOT NULL) ORDER BY seq"
    )
});

async fn of_session(conn: &mut SqliteConnection, wanted: &SandboxRecord) -> Result<SandboxRecord> {
    let row = sqlx::query(&BY_SESSION)
        .bind(&wanted.owner)
        .bind(&wanted.session_key)
        .bind(&wanted.image)
        .fetch_one(conn)
        .await
        .map_err(failed("finding a session's sandbox"))?;
    row::sandbox(&row)
}

/// The result, and the id of its event.
type ChangeAndEvent<T> = (T, Option<u64>);

async fn insert(conn: &mut SqliteConnection, record: SandboxRecord) -> Result<ChangeAndEvent<Inserted>> {
    let Some(seq) = write::insert(conn, &record).await? else {
        return Ok((Inserted::Existing(of_session(conn, &record).await?), None));
    };
    if !record.labels.is_empty() {
        write::labels(conn, seq, &record.labels).await?;
    }
    if !record.profile.volumes.is_empty() {
        volume::attach(conn, seq, &record).await?;
    }
    image::begin_use(conn, seq, &record).await?;
    let newest = event::append(conn, &events_of_insert(&record)).await?;
    Ok((Inserted::New(record), newest))
}

async fn update(
    conn: &mut SqliteConnection,
    id: SandboxId,
    expected_revision: u64,
    change: Change,
) -> Result<ChangeAndEvent<SandboxRecord>> {
    let activity = change.activity.clone();
    let relabelled = change.labels.is_some();
    let reattached = change.profile.is_some();
    let found = sqlx::query(&BY_ID)
        .bind(&id.uuid().as_bytes()[..])
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("changing a sandbox"))?;
    let found = found.ok_or(StoreError::NotFound(Thing::Sandbox))?;
    let seq = row::get(&found, "seq")?;
    let record = row::sandbox(&found)?;
    let was = record.status;
    let record = change.apply(record, expected_revision)?;
    write::update(conn, seq, &record).await?;
    if record.status == Status::Destroyed {
        snapshot::remove_all(conn, seq).await?;
        image::end_use(conn, seq, &record).await?;
    }
    if relabelled {
        write::labels(conn, seq, &record.labels).await?;
    }
    if reattached || (record.status == Status::Destroyed && !record.profile.volumes.is_empty()) {
        volume::attach(conn, seq, &record).await?;
    }
    if let Some(activity) = activity {
        activity::record(conn, activity).await?;
    }
    let newest = event::append(conn, event_of_change(was, &record).as_slice()).await?;
    Ok((record, newest))
}

/// One statement however many there are: other writers wait for it.
async fn touch(conn: &mut SqliteConnection, active: BTreeMap<SandboxId, Millis>) -> Result<()> {
    const DOING: &str = "noting what is active";
    let active: BTreeMap<String, Millis> =
        active.into_iter().map(|(id, at)| (id.uuid().simple().to_string(), at)).collect();
    let active = serde_json::to_string(&active).map_err(|e| StoreError::Internal(DOING, e.into()))?;
    sqlx::query(
        "UPDATE sandboxes SET last_activity_at = max(last_activity_at, active.at) \
         FROM (SELECT unhex(key) AS id, value AS at FROM json_each(?)) AS active \
         WHERE sandboxes.id = active.id AND status <> 'destroyed'",
    )
    .bind(active)
    .execute(conn)
    .await
    .map_err(failed(DOING))?;
    Ok(())
}

async fn purge(conn: &mut SqliteConnection, before: Millis, most: u32) -> Result<u64> {
    let gone = sqlx::query(
        "DELETE FROM sandboxes WHERE seq IN (SELECT seq FROM sandboxes \
         WHERE status = 'destroyed' AND destroyed_at <= ? ORDER BY destroyed_at, seq LIMIT ?)",
    )
    .bind(before)
    .bind(most)
    .execute(conn)
    .await
    .map_err(failed("forgetting the destroyed"))?;
    Ok(gone.rows_affected())
}

#[async_trait]
impl Sandboxes for SqliteStore {
    async fn insert_sandbox(&self, new: NewSandbox) -> Result<Inserted> {
        let record = SandboxRecord::from(new);
        let (inserted, newest) =
            self.writer.write("adding a sandbox", |conn| Box::pin(insert(conn, record))).await?;
        self.tell(newest);
        Ok(inserted)
    }

    async fn sandbox(&self, id: SandboxId) -> Result<Option<SandboxRecord>> {
        let found = sqlx::query(&BY_ID)
            .bind(&id.uuid().as_bytes()[..])
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("finding a sandbox"))?;
        found.as_ref().map(row::sandbox).transpose()
    }

    async fn sandbox_by_container(&self, id: ContainerId) -> Result<Option<SandboxRecord>> {
        let found = sqlx::query(&BY_CONTAINER)
            .bind(&id.uuid().as_bytes()[..])
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("finding a container's sandbox"))?;
        found.as_ref().map(row::sandbox).transpose()
    }

    async fn list_sandboxes(&self, query: &ListQuery) -> Result<Page> {
        list::page(&self.readers, query).await
    }

    async fn update_sandbox(
        &self,
        id: SandboxId,
        expected_revision: u64,
        change: Change,
    ) -> Result<SandboxRecord> {
        let work = self
            .writer
            .write("changing a sandbox", move |conn| Box::pin(update(conn, id, expected_revision, change)));
        let (record, newest) = work.await?;
        self.tell(newest);
        Ok(record)
    }

    async fn live_sandboxes(&self) -> Result<Vec<SandboxRecord>> {
        let rows = sqlx::query(&LIVE).fetch_all(&self.readers).await.map_err(failed("listing what lives"))?;
        rows.iter().map(row::sandbox).collect()
    }

    async fn touch_sandboxes(&self, active: &BTreeMap<SandboxId, Millis>) -> Result<()> {
        if active.is_empty() {
            return Ok(());
        }
        let active = active.clone();
        self.writer.write("noting what is active", |conn| Box::pin(touch(conn, active))).await
    }

    async fn purge_destroyed(&self, before: Millis, most: u32) -> Result<u64> {
        let doing = "forgetting the destroyed";
        self.writer.write(doing, move |conn| Box::pin(purge(conn, before, most))).await
    }
}
