//! Settings that an administrator changes.

use crate::{SqliteStore, error::failed};
use async_trait::async_trait;
use atoll_store::{Result, Settings, StoreError};
use serde_json::Value;
use sqlx::SqliteConnection;

const DOING: &str = "writing a setting";

async fn put(conn: &mut SqliteConnection, name: String, value: String) -> Result<()> {
    sqlx::query("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)")
        .bind(name)
        .bind(value)
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(())
}

#[async_trait]
impl Settings for SqliteStore {
    async fn get_setting(&self, name: &str) -> Result<Option<Value>> {
        let text: Option<String> = sqlx::query_scalar("SELECT value FROM settings WHERE name = ?")
            .bind(name)
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("reading a setting"))?;
        text.map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|e| StoreError::Corrupt("a setting cannot be read".into(), Some(e.into())))
    }

    async fn put_setting(&self, name: &str, value: Value) -> Result<()> {
        let (name, value) = (name.to_owned(), value.to_string());
        self.writer.write(DOING, |conn| Box::pin(put(conn, name, value))).await?;
        self.reach_disk().await
    }
}
