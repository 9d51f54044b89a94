//! Images, their tags, and the sandboxes that use them.

use crate::{
    PostgresStore,
    error::failed,
    image_build, row,
    sql::{self, get},
};
use async_trait::async_trait;
use atoll_store::{Images, Millis, Result, SandboxId, SandboxRecord, StoreError, Thing};
use atoll_types::{
    BuildId, BuildRecord, BuildState, ImageConfig, ImageDefaults, ImageId, ImageOrigin, ImageRecord,
    InstalledPackage,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor, postgres::PgRow};
use std::collections::BTreeMap;

const WRITING: &str = "writing an image";
const READING: &str = "reading images";
const COLUMNS: &str = "id, name, digest, provider, approved, details, created_at, last_used_at, deleting";

/// What no query asks for. A field that a later release adds has a default.
#[derive(Serialize, Deserialize)]
struct Details {
    display_name: Option<String>,
    description: Option<String>,
    size_bytes: u64,
    origin: ImageOrigin,
    source: String,
    config: ImageConfig,
    defaults: ImageDefaults,
    #[serde(default)]
    packages: Vec<InstalledPackage>,
    #[serde(default)]
    package_indexes: Option<String>,
}

fn bytes(id: ImageId) -> Vec<u8> {
    id.uuid().as_bytes().to_vec()
}

fn read(row: &PgRow, tags: Vec<String>) -> Result<ImageRecord> {
    let Details {
        display_name,
        description,
        size_bytes,
        origin,
        source,
        config,
        defaults,
        packages,
        package_indexes,
    } = serde_json::from_str(&get::<String>(row, "details")?)
        .map_err(|e| StoreError::Corrupt("the details of an image cannot be read".into(), Some(e.into())))?;
    let provider = get::<String>(row, "provider")?.parse();
    Ok(ImageRecord {
        id: ImageId::from_uuid(row::uuid(row, "id")?),
        name: get(row, "name")?,
        tags,
        display_name,
        description,
        digest: get(row, "digest")?,
        size_bytes,
        origin,
        source,
        provider: provider.map_err(|_| StoreError::Corrupt("a provider cannot be read".into(), None))?,
        config,
        defaults,
        packages,
        package_indexes,
        approved: get(row, "approved")?,
        created_at: get(row, "created_at")?,
        last_used_at: get(row, "last_used_at")?,
        deleting: get(row, "deleting")?,
    })
}

/// The tags of all images, or of one.
async fn tags_of(from: impl PgExecutor<'_>, id: Option<ImageId>) -> Result<BTreeMap<ImageId, Vec<String>>> {
    let rows =
        sql::query("SELECT image, tag FROM image_tags WHERE $1 IS NULL OR image = $1 ORDER BY place, tag")
            .bind(id.map(bytes))
            .fetch_all(from)
            .await
            .map_err(failed(READING))?;
    let mut tags: BTreeMap<ImageId, Vec<String>> = BTreeMap::new();
    for row in rows {
        tags.entry(ImageId::from_uuid(row::uuid(&row, "image")?)).or_default().push(get(&row, "tag")?);
    }
    Ok(tags)
}

async fn find(conn: &mut PgConnection, id: ImageId) -> Result<Option<ImageRecord>> {
    let found = sql::query(&format!("SELECT {COLUMNS} FROM images WHERE id = $1"))
        .bind(bytes(id))
        .fetch_optional(&mut *conn)
        .await
        .map_err(failed(READING))?;
    let Some(row) = found else { return Ok(None) };
    read(&row, tags_of(conn, Some(id)).await?.remove(&id).unwrap_or_default()).map(Some)
}

/// The image that has one of these tags under the same name.
async fn taken(conn: &mut PgConnection, record: &ImageRecord) -> Result<Option<ImageRecord>> {
    for tag in &record.tags {
        let holder = sql::query("SELECT image FROM image_tags WHERE name = $1 AND tag = $2 AND image <> $3")
            .bind(&record.name)
            .bind(tag)
            .bind(bytes(record.id))
            .fetch_optional(&mut *conn)
            .await
            .map_err(failed(WRITING))?;
        if let Some(row) = holder {
            return find(conn, ImageId::from_uuid(row::uuid(&row, "image")?)).await;
        }
    }
    Ok(None)
}

async fn write_tags(conn: &mut PgConnection, record: &ImageRecord) -> Result<()> {
    let gone = sql::query("DELETE FROM image_tags WHERE image = $1").bind(bytes(record.id));
    gone.execute(&mut *conn).await.map_err(failed(WRITING))?;
    for (place, tag) in (0_i64..).zip(&record.tags) {
        sql::query(
            "INSERT INTO image_tags (name, tag, image, place) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (name, tag) DO UPDATE SET image = excluded.image, place = excluded.place",
        )
        .bind(&record.name)
        .bind(tag)
        .bind(bytes(record.id))
        .bind(place)
        .execute(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    }
    Ok(())
}

fn details(record: &ImageRecord) -> Result<String> {
    let ImageRecord {
        display_name,
        description,
        size_bytes,
        origin,
        source,
        config,
        defaults,
        packages,
        package_indexes,
        ..
    } = record.clone();
    let details = Details {
        display_name,
        description,
        size_bytes,
        origin,
        source,
        config,
        defaults,
        packages,
        package_indexes,
    };
    serde_json::to_string(&details).map_err(|e| StoreError::Internal(WRITING, e.into()))
}

async fn insert(
    conn: &mut PgConnection,
    new: ImageRecord,
    build: BuildId,
    replace: bool,
) -> Result<Option<ImageRecord>> {
    if !replace && let Some(there) = taken(conn, &new).await? {
        return Ok(Some(there));
    }
    sql::query(&format!("INSERT INTO images ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"))
        .bind(bytes(new.id))
        .bind(&new.name)
        .bind(&new.digest)
        .bind(new.provider.as_str())
        .bind(new.approved)
        .bind(details(&new)?)
        .bind(new.created_at)
        .bind(new.last_used_at)
        .bind(new.deleting)
        .execute(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
    write_tags(conn, &new).await?;
    image_build::end(conn, build, BuildState::Done, None, new.created_at).await?;
    Ok(None)
}

async fn update(conn: &mut PgConnection, record: ImageRecord) -> Result<Option<ImageRecord>> {
    if let Some(there) = taken(conn, &record).await? {
        return Ok(Some(there));
    }
    let changed =
        sql::query("UPDATE images SET name = $1, digest = $2, approved = $3, details = $4 WHERE id = $5")
            .bind(&record.name)
            .bind(&record.digest)
            .bind(record.approved)
            .bind(details(&record)?)
            .bind(bytes(record.id))
            .execute(&mut *conn)
            .await
            .map_err(failed(WRITING))?;
    if changed.rows_affected() == 0 {
        return Err(StoreError::NotFound(Thing::Image));
    }
    write_tags(conn, &record).await.map(|()| None)
}

async fn touch(conn: &mut PgConnection, image: ImageId, at: Millis) -> Result<u64> {
    let touched = sql::query(
        "UPDATE images SET last_used_at = greatest(last_used_at, $1, 0) WHERE id = $2 AND NOT deleting",
    );
    let touched = touched.bind(at).bind(bytes(image)).execute(conn).await.map_err(failed(WRITING))?;
    Ok(touched.rows_affected())
}

/// A new sandbox uses the image that its profile names.
pub(crate) async fn begin_use(conn: &mut PgConnection, seq: i64, record: &SandboxRecord) -> Result<()> {
    let Some(image) = record.profile.image.id() else { return Ok(()) };
    if touch(conn, image, record.created_at).await? == 0 {
        return Err(StoreError::NotFound(Thing::Image));
    }
    let used = sql::query("INSERT INTO image_uses (sandbox, image) VALUES ($1, $2)").bind(seq);
    used.bind(bytes(image)).execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

/// A destroyed sandbox uses its image no more.
pub(crate) async fn end_use(conn: &mut PgConnection, seq: i64, record: &SandboxRecord) -> Result<()> {
    let Some(image) = record.profile.image.id() else { return Ok(()) };
    let gone = sql::query("DELETE FROM image_uses WHERE sandbox = $1").bind(seq);
    gone.execute(&mut *conn).await.map_err(failed(WRITING))?;
    touch(conn, image, record.destroyed_at.unwrap_or(record.last_activity_at)).await?;
    Ok(())
}

const USERS: &str = "SELECT sandboxes.id FROM image_uses JOIN sandboxes ON sandboxes.seq = image_uses.sandbox \
                     WHERE image_uses.image = $1 ORDER BY sandboxes.seq";

async fn users(from: impl PgExecutor<'_>, id: ImageId) -> Result<Vec<SandboxId>> {
    let rows = sql::query(USERS).bind(bytes(id)).fetch_all(from).await.map_err(failed(READING))?;
    rows.iter().map(|row| row::uuid(row, "id").map(SandboxId::from_uuid)).collect()
}

async fn begin_delete(conn: &mut PgConnection, id: ImageId) -> Result<Vec<SandboxId>> {
    let users = users(&mut *conn, id).await?;
    if users.is_empty() {
        let mark = sql::query("UPDATE images SET deleting = TRUE WHERE id = $1").bind(bytes(id));
        mark.execute(conn).await.map_err(failed(WRITING))?;
    }
    Ok(users)
}

async fn end_delete(conn: &mut PgConnection, id: ImageId) -> Result<()> {
    let gone = sql::query("DELETE FROM images WHERE id = $1 AND deleting").bind(bytes(id));
    gone.execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

#[async_trait]
impl Images for PostgresStore {
    async fn insert_image(
        &self,
        new: ImageRecord,
        build: BuildId,
        replace: bool,
    ) -> Result<Option<ImageRecord>> {
        self.records.write(WRITING, move |conn| Box::pin(insert(conn, new, build, replace))).await
    }

    async fn image(&self, id: ImageId) -> Result<Option<ImageRecord>> {
        let mut conn = self.readers()?.acquire().await.map_err(failed(READING))?;
        find(&mut conn, id).await
    }

    async fn images(&self) -> Result<Vec<ImageRecord>> {
        // One transaction: a tag moves between two images at once.
        let mut conn = self.readers()?.begin().await.map_err(failed(READING))?;
        let mut tags = tags_of(&mut *conn, None).await?;
        let all = format!("SELECT {COLUMNS} FROM images ORDER BY name, created_at, id");
        let rows = sql::query(&all).fetch_all(&mut *conn).await.map_err(failed(READING))?;
        let record = |row: &PgRow| {
            let id = ImageId::from_uuid(row::uuid(row, "id")?);
            read(row, tags.remove(&id).unwrap_or_default())
        };
        rows.iter().map(record).collect()
    }

    async fn update_image(&self, record: ImageRecord) -> Result<Option<ImageRecord>> {
        self.records.write(WRITING, move |conn| Box::pin(update(conn, record))).await
    }

    async fn image_users(&self, id: ImageId) -> Result<Vec<SandboxId>> {
        users(self.readers()?, id).await
    }

    async fn begin_delete_image(&self, id: ImageId) -> Result<Vec<SandboxId>> {
        self.records.write(WRITING, move |conn| Box::pin(begin_delete(conn, id))).await
    }

    async fn end_delete_image(&self, id: ImageId) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(end_delete(conn, id))).await
    }

    async fn insert_build(&self, new: BuildRecord) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(image_build::insert(conn, new))).await
    }

    async fn build(&self, id: BuildId) -> Result<Option<BuildRecord>> {
        image_build::find(self.readers()?, id).await
    }

    async fn builds(&self, most: u32) -> Result<Vec<BuildRecord>> {
        image_build::list(self.readers()?, "TRUE", most).await
    }

    async fn running_builds(&self) -> Result<Vec<BuildRecord>> {
        image_build::list(self.readers()?, "state = 'running'", u32::MAX).await
    }

    async fn remove_build(&self, id: BuildId) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(image_build::remove(conn, id))).await
    }

    async fn end_build(
        &self,
        id: BuildId,
        state: BuildState,
        error: Option<String>,
        at: Millis,
    ) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(image_build::end(conn, id, state, error, at))).await
    }
}
