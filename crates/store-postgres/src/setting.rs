//! Settings that an administrator changes.

use crate::{PostgresStore, error::failed, sql};
use async_trait::async_trait;
use atoll_store::{Result, Settings, StoreError};
use serde_json::Value;
use sqlx::PgConnection;

const DOING: &str = "writing a setting";

async fn put(conn: &mut PgConnection, name: String, value: String) -> Result<()> {
    sql::query("INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value")
        .bind(name)
        .bind(value)
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(())
}

#[async_trait]
impl Settings for PostgresStore {
    async fn get_setting(&self, name: &str) -> Result<Option<Value>> {
        let text: Option<String> = sql::scalar("SELECT value FROM settings WHERE name = $1")
            .bind(name)
            .fetch_optional(self.readers()?)
            .await
            .map_err(failed("reading a setting"))?;
        text.map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|e| StoreError::Corrupt("a setting cannot be read".into(), Some(e.into())))
    }

    async fn put_setting(&self, name: &str, value: Value) -> Result<()> {
        let (name, value) = (name.to_owned(), value.to_string());
        self.sessions.write(DOING, |conn| Box::pin(put(conn, name, value))).await
    }
}
