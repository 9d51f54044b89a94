//! Inserting, finding and changing the records of sandboxes.

use crate::{
    PostgresStore, activity,
    error::failed,
    event, image, list,
    row::{self, SANDBOX},
    snapshot, sql, volume, write,
};
use async_trait::async_trait;
use atoll_store::{
    Change, Inserted, ListQuery, Millis, NewSandbox, Page, Result, SandboxId, SandboxRecord, Sandboxes,
    Status, StoreError, Thing, event_of_change, events_of_insert,
};
use atoll_types::ContainerId;
use sqlx::PgConnection;
use std::{collections::BTreeMap, sync::LazyLock};

static BY_ID: LazyLock<String> =
    LazyLock::new(|| format!("SELECT seq, {SANDBOX} FROM sandboxes WHERE id = $1"));
/// An activity that is recorded meanwhile waits, or its time would be lost.
static TO_CHANGE: LazyLock<String> = LazyLock::new(|| format!("{} FOR UPDATE", *BY_ID));
static BY_CONTAINER: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {SANDBOX} FROM sandboxes WHERE container = $1"));
static BY_SESSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {SANDBOX} FROM sandboxes \
         WHERE owner = $1 AND session_key = $2 AND image = $3 AND status <> 'destroyed'"
    )
});
static LIVE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {SANDBOX} FROM sandboxes WHERE status NOT IN ('stopped', 'destroyed') \
         OR (status = 'stopped' AND destroyed_at IS NOT NULL) ORDER BY seq"
    )
});

async fn of_session(conn: &mut PgConnection, wanted: &SandboxRecord) -> Result<SandboxRecord> {
    let row = sql::query(&BY_SESSION)
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

async fn insert(conn: &mut PgConnection, record: SandboxRecord) -> Result<ChangeAndEvent<Inserted>> {
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
    conn: &mut PgConnection,
    id: SandboxId,
    expected_revision: u64,
    change: Change,
) -> Result<ChangeAndEvent<SandboxRecord>> {
    let activity = change.activity.clone();
    let relabelled = change.labels.is_some();
    let reattached = change.profile.is_some();
    let found = sql::query(&TO_CHANGE)
        .bind(&id.uuid().as_bytes()[..])
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed("changing a sandbox"))?;
    let found = found.ok_or(StoreError::NotFound(Thing::Sandbox))?;
    let seq = sql::get(&found, "seq")?;
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
async fn touch(conn: &mut PgConnection, active: BTreeMap<SandboxId, Millis>) -> Result<()> {
    const DOING: &str = "noting what is active";
    let (ids, times): (Vec<Vec<u8>>, Vec<Millis>) =
        active.into_iter().map(|(id, at)| (id.uuid().as_bytes().to_vec(), at)).unzip();
    sql::query(
        "WITH active AS (SELECT s.seq, a.at FROM sandboxes AS s JOIN unnest($1, $2) AS a (id, at) ON a.id = s.id \
         WHERE s.status <> 'destroyed' ORDER BY s.id FOR UPDATE OF s) \
         UPDATE sandboxes SET last_activity_at = greatest(last_activity_at, active.at) FROM active \
         WHERE sandboxes.seq = active.seq",
    )
    .bind(ids)
    .bind(times)
    .execute(conn)
    .await
    .map_err(failed(DOING))?;
    Ok(())
}

async fn purge(conn: &mut PgConnection, before: Millis, most: u32) -> Result<u64> {
    let gone = sql::query(
        "DELETE FROM sandboxes WHERE seq IN (SELECT seq FROM sandboxes \
         WHERE status = 'destroyed' AND destroyed_at <= $1 ORDER BY destroyed_at, seq LIMIT $2 FOR UPDATE SKIP LOCKED)",
    )
    .bind(before)
    .bind(most)
    .execute(conn)
    .await
    .map_err(failed("forgetting the destroyed"))?;
    Ok(gone.rows_affected())
}

#[async_trait]
impl Sandboxes for PostgresStore {
    async fn insert_sandbox(&self, new: NewSandbox) -> Result<Inserted> {
        let record = SandboxRecord::from(new);
        let (inserted, newest) =
            self.records.write("adding a sandbox", |conn| Box::pin(insert(conn, record))).await?;
        self.tell(newest);
        Ok(inserted)
    }

    async fn sandbox(&self, id: SandboxId) -> Result<Option<SandboxRecord>> {
        let found = sql::query(&BY_ID)
            .bind(&id.uuid().as_bytes()[..])
            .fetch_optional(self.readers()?)
            .await
            .map_err(failed("finding a sandbox"))?;
        found.as_ref().map(row::sandbox).transpose()
    }

    async fn sandbox_by_container(&self, id: ContainerId) -> Result<Option<SandboxRecord>> {
        let found = sql::query(&BY_CONTAINER)
            .bind(&id.uuid().as_bytes()[..])
            .fetch_optional(self.readers()?)
            .await
            .map_err(failed("finding a container's sandbox"))?;
        found.as_ref().map(row::sandbox).transpose()
    }

    async fn list_sandboxes(&self, query: &ListQuery) -> Result<Page> {
        list::page(self.readers()?, query).await
    }

    async fn update_sandbox(
        &self,
        id: SandboxId,
        expected_revision: u64,
        change: Change,
    ) -> Result<SandboxRecord> {
        let work = self
            .records
            .write("changing a sandbox", move |conn| Box::pin(update(conn, id, expected_revision, change)));
        let (record, newest) = work.await?;
        self.tell(newest);
        Ok(record)
    }

    async fn live_sandboxes(&self) -> Result<Vec<SandboxRecord>> {
        let rows =
            sql::query(&LIVE).fetch_all(self.readers()?).await.map_err(failed("listing what lives"))?;
        rows.iter().map(row::sandbox).collect()
    }

    async fn touch_sandboxes(&self, active: &BTreeMap<SandboxId, Millis>) -> Result<()> {
        if active.is_empty() {
            return Ok(());
        }
        let active = active.clone();
        self.records.write("noting what is active", |conn| Box::pin(touch(conn, active))).await
    }

    async fn purge_destroyed(&self, before: Millis, most: u32) -> Result<u64> {
        let doing = "forgetting the destroyed";
        self.records.write(doing, move |conn| Box::pin(purge(conn, before, most))).await
    }
}
