//! Kept steps of image templates.

use crate::{
    SqliteStore,
    error::failed,
    row::{self, count, get},
    write::number,
};
use async_trait::async_trait;
use atoll_store::{BuildSteps, Millis, Result, Sha256, StoreError};
use atoll_types::{BuildStepRecord, ImageId};
use sqlx::{SqliteConnection, sqlite::SqliteRow};

const WRITING: &str = "writing a build's step";
const READING: &str = "reading builds' steps";
const COLUMNS: &str = "key, image, provider, size_bytes, created_at, last_used_at";

fn read(row: &SqliteRow) -> Result<BuildStepRecord> {
    let provider = get::<&str>(row, "provider")?.parse();
    Ok(BuildStepRecord {
        key: Sha256(row::bytes32(row, "key")?),
        image: ImageId::from_uuid(row::uuid(row, "image")?),
        provider: provider.map_err(|_| StoreError::Corrupt("a provider cannot be read".into(), None))?,
        size_bytes: count(row, "size_bytes")?,
        created_at: get(row, "created_at")?,
        last_used_at: get(row, "last_used_at")?,
    })
}

async fn find(conn: &mut SqliteConnection, key: Sha256) -> Result<Option<BuildStepRecord>> {
    let one = format!("SELECT {COLUMNS} FROM build_steps WHERE key = ?");
    let found = sqlx::query(&one).bind(&key.0[..]).fetch_optional(conn).await;
    found.map_err(failed(READING))?.as_ref().map(read).transpose()
}

async fn insert(conn: &mut SqliteConnection, new: BuildStepRecord) -> Result<Option<BuildStepRecord>> {
    let BuildStepRecord { key, image, provider, size_bytes, created_at, last_used_at } = new;
    if let Some(there) = find(conn, key).await? {
        return Ok(Some(there));
    }
    sqlx::query(&format!("INSERT INTO build_steps ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"))
        .bind(&key.0[..])
        .bind(&image.uuid().as_bytes()[..])
        .bind(provider.as_str())
        .bind(number(size_bytes))
        .bind(created_at)
        .bind(last_used_at)
        .execute(conn)
        .await
        .map_err(failed(WRITING))?;
    Ok(None)
}

async fn use_one(conn: &mut SqliteConnection, key: Sha256, at: Millis) -> Result<Option<BuildStepRecord>> {
    let touched = sqlx::query("UPDATE build_steps SET last_used_at = max(last_used_at, ?) WHERE key = ?");
    touched.bind(at).bind(&key.0[..]).execute(&mut *conn).await.map_err(failed(WRITING))?;
    find(conn, key).await
}

async fn remove(conn: &mut SqliteConnection, key: Sha256) -> Result<()> {
    let gone = sqlx::query("DELETE FROM build_steps WHERE key = ?").bind(&key.0[..]);
    gone.execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

#[async_trait]
impl BuildSteps for SqliteStore {
    async fn insert_build_step(&self, new: BuildStepRecord) -> Result<Option<BuildStepRecord>> {
        self.writer.write(WRITING, move |conn| Box::pin(insert(conn, new))).await
    }

    async fn use_build_step(&self, key: Sha256, at: Millis) -> Result<Option<BuildStepRecord>> {
        self.writer.write(WRITING, move |conn| Box::pin(use_one(conn, key, at))).await
    }

    async fn build_steps(&self) -> Result<Vec<BuildStepRecord>> {
        let all = format!("SELECT {COLUMNS} FROM build_steps ORDER BY last_used_at DESC, key");
        let rows = sqlx::query(&all).fetch_all(&self.readers).await.map_err(failed(READING))?;
        rows.iter().map(read).collect()
    }

    async fn remove_build_step(&self, key: Sha256) -> Result<()> {
        self.writer.write(WRITING, move |conn| Box::pin(remove(conn, key))).await
    }
}
