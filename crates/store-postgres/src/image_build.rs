//! Builds of images.

use crate::{
    error::failed,
    row,
    sql::{self, get},
};
use atoll_store::{BUILDS_KEPT, Millis, Result, SandboxId, StoreError};
use atoll_types::{BuildId, BuildRecord, BuildState, ImageId, ImageOrigin, ImageTag};
use sqlx::{PgConnection, PgExecutor, postgres::PgRow};

const WRITING: &str = "writing a build";
const READING: &str = "reading builds";
const COLUMNS: &str = "id, image, name, tag, origin, source, owner, asked_by, sandbox, volume, state, error, created_at, ended_at";

fn read(row: &PgRow) -> Result<BuildRecord> {
    let damaged = |column: &str| StoreError::Corrupt(format!("a {column} cannot be read"), None);
    Ok(BuildRecord {
        id: BuildId::from_uuid(row::uuid(row, "id")?),
        image: ImageId::from_uuid(row::uuid(row, "image")?),
        tag: ImageTag { name: get(row, "name")?, tag: get(row, "tag")? },
        origin: ImageOrigin::from_name(&get::<String>(row, "origin")?).ok_or_else(|| damaged("origin"))?,
        source: get(row, "source")?,
        owner: get(row, "owner")?,
        asked_by: get(row, "asked_by")?,
        sandbox: SandboxId::from_uuid(row::uuid(row, "sandbox")?),
        volume: get::<String>(row, "volume")?.parse().map_err(|_| damaged("volume"))?,
        state: BuildState::from_name(&get::<String>(row, "state")?).ok_or_else(|| damaged("state"))?,
        error: get(row, "error")?,
        created_at: get(row, "created_at")?,
        ended_at: get(row, "ended_at")?,
    })
}

pub(crate) async fn insert(conn: &mut PgConnection, new: BuildRecord) -> Result<()> {
    let BuildRecord {
        id,
        image,
        tag,
        origin,
        source,
        owner,
        asked_by,
        sandbox,
        volume,
        state,
        error,
        created_at,
        ended_at,
    } = new;
    sql::query(&format!(
        "INSERT INTO image_builds ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
    ))
    .bind(&id.uuid().as_bytes()[..])
    .bind(&image.uuid().as_bytes()[..])
    .bind(tag.name)
    .bind(tag.tag)
    .bind(origin.as_str())
    .bind(source)
    .bind(owner)
    .bind(asked_by)
    .bind(&sandbox.uuid().as_bytes()[..])
    .bind(volume.as_str())
    .bind(state.as_str())
    .bind(error)
    .bind(created_at)
    .bind(ended_at)
    .execute(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    sql::query(
        "DELETE FROM image_builds WHERE seq IN (SELECT seq FROM image_builds WHERE state <> 'running' \
         ORDER BY seq DESC OFFSET $1)",
    )
    .bind(BUILDS_KEPT)
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(())
}

pub(crate) async fn end(
    conn: &mut PgConnection,
    id: BuildId,
    state: BuildState,
    error: Option<String>,
    at: Millis,
) -> Result<()> {
    sql::query(
        "UPDATE image_builds SET state = $1, error = $2, ended_at = $3 WHERE id = $4 AND state = 'running'",
    )
    .bind(state.as_str())
    .bind(error)
    .bind(at)
    .bind(&id.uuid().as_bytes()[..])
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(())
}

pub(crate) async fn remove(conn: &mut PgConnection, id: BuildId) -> Result<()> {
    let gone = sql::query("DELETE FROM image_builds WHERE id = $1 AND state <> 'running'");
    gone.bind(&id.uuid().as_bytes()[..]).execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

pub(crate) async fn find(from: impl PgExecutor<'_>, id: BuildId) -> Result<Option<BuildRecord>> {
    let one = format!("SELECT {COLUMNS} FROM image_builds WHERE id = $1");
    let found = sql::query(&one).bind(&id.uuid().as_bytes()[..]).fetch_optional(from).await;
    found.map_err(failed(READING))?.as_ref().map(read).transpose()
}

/// The newest first; `condition` is SQL of ours.
pub(crate) async fn list(
    from: impl PgExecutor<'_>,
    condition: &'static str,
    most: u32,
) -> Result<Vec<BuildRecord>> {
    let some = format!("SELECT {COLUMNS} FROM image_builds WHERE {condition} ORDER BY seq DESC LIMIT $1");
    let rows = sql::query(&some).bind(most).fetch_all(from).await.map_err(failed(READING))?;
    rows.iter().map(read).collect()
}
