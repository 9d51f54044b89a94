//! Kept steps of image templates.

use crate::{
    PostgresStore,
    error::failed,
    row::{self, count},
    sql::{self, get},
    write::number,
};
use async_trait::async_trait;
use atoll_store::{BuildSteps, Millis, Result, Sha256, StoreError};
use atoll_types::{BuildStepRecord, ImageId};
use sqlx::{PgConnection, postgres::PgRow};

const WRITING: &str = "writing a build's step";
const READING: &str = "reading builds' steps";
const COLUMNS: &str = "key, image, provider, size_bytes, created_at, last_used_at";

fn read(row: &PgRow) -> Result<BuildStepRecord> {
    let provider = get::<String>(row, "provider")?.parse();
    Ok(BuildStepRecord {
        key: Sha256(row::bytes32(row, "key")?),
        image: ImageId::from_uuid(row::uuid(row, "image")?),
        provider: provider.map_err(|_| StoreError::Corrupt("a provider cannot be read".into(), None))?,
        size_bytes: count(row, "size_bytes")?,
        created_at: get(row, "created_at")?,
        last_used_at: get(row, "last_used_at")?,
    })
}

async fn find(conn: &mut PgConnection, key: Sha256) -> Result<Option<BuildStepRecord>> {
    let one = format!("SELECT {COLUMNS} FROM build_steps WHERE key = $1");
    let found = sql::query(&one).bind(&key.0[..]).fetch_optional(conn).await;
    found.map_err(failed(READING))?.as_ref().map(read).transpose()
}

async fn insert(conn: &mut PgConnection, new: BuildStepRecord) -> Result<Option<BuildStepRecord>> {
    let BuildStepRecord { key, image, provider, size_bytes, created_at, last_used_at } = new;
    if let Some(there) = find(conn, key).await? {
        return Ok(Some(there));
    }
    sql::query(&format!("INSERT INTO build_steps ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)"))
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

async fn use_one(conn: &mut PgConnection, key: Sha256, at: Millis) -> Result<Option<BuildStepRecord>> {
    let touched =
        sql::query("UPDATE build_steps SET last_used_at = greatest(last_used_at, $1) WHERE key = $2");
    touched.bind(at).bind(&key.0[..]).execute(&mut *conn).await.map_err(failed(WRITING))?;
    find(conn, key).await
}

async fn remove(conn: &mut PgConnection, key: Sha256) -> Result<()> {
    let gone = sql::query("DELETE FROM build_steps WHERE key = $1").bind(&key.0[..]);
    gone.execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

#[async_trait]
impl BuildSteps for PostgresStore {
    async fn insert_build_step(&self, new: BuildStepRecord) -> Result<Option<BuildStepRecord>> {
        self.records.write(WRITING, move |conn| Box::pin(insert(conn, new))).await
    }

    async fn use_build_step(&self, key: Sha256, at: Millis) -> Result<Option<BuildStepRecord>> {
        self.records.write(WRITING, move |conn| Box::pin(use_one(conn, key, at))).await
    }

    async fn build_steps(&self) -> Result<Vec<BuildStepRecord>> {
        let all = format!("SELECT {COLUMNS} FROM build_steps ORDER BY last_used_at DESC, key");
        let rows = sql::query(&all).fetch_all(self.readers()?).await.map_err(failed(READING))?;
        rows.iter().map(read).collect()
    }

    async fn remove_build_step(&self, key: Sha256) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(remove(conn, key))).await
    }
}
