//! API keys. Adding or revoking one waits for the disk.

use crate::{SqliteStore, error::failed, row};
use async_trait::async_trait;
use atoll_store::{Admins, ApiKey, Clash, KeyHash, KeyId, Keys, Millis, Result, StoreError, Thing};
use sqlx::SqliteConnection;
use std::collections::BTreeMap;

const DOING: &str = "writing a key";

async fn insert(conn: &mut SqliteConnection, key: ApiKey) -> Result<()> {
    let ApiKey {
        id,
        name,
        owner,
        owner_name,
        scope,
        tier,
        prefix,
        hash: KeyHash(hash),
        created_at,
        expires_at,
        revoked_at,
        last_used_at,
    } = key;
    sqlx::query(
        "INSERT INTO keys (id, name, owner, owner_name, scope, tier, prefix, hash, created_at, expires_at, \
         revoked_at, last_used_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(&id.uuid().as_bytes()[..])
    .bind(name)
    .bind(owner)
    .bind(owner_name)
    .bind(scope.as_str())
    .bind(tier)
    .bind(prefix)
    .bind(&hash[..])
    .bind(created_at)
    .bind(expires_at)
    .bind(revoked_at)
    .bind(last_used_at)
    .execute(conn)
    .await
    .map_err(failed(DOING))?;
    Ok(())
}

async fn insert_within(conn: &mut SqliteConnection, key: ApiKey, most: i64, now: Millis) -> Result<bool> {
    let (id, owner) = (key.id, key.owner.clone());
    let usable: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM keys WHERE owner = ? AND id <> ? AND revoked_at IS NULL \
         AND (expires_at IS NULL OR expires_at > ?)",
    )
    .bind(&owner)
    .bind(&id.uuid().as_bytes()[..])
    .bind(now)
    .fetch_one(&mut *conn)
    .await
    .map_err(failed(DOING))?;
    if usable >= most {
        return Ok(false);
    }
    insert(&mut *conn, key).await?;
    sqlx::query(
        "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE owner = ? AND revoked_at IS NOT NULL \
         ORDER BY revoked_at DESC, seq DESC LIMIT -1 OFFSET ?)",
    )
    .bind(owner)
    .bind(most)
    .execute(conn)
    .await
    .map_err(failed(DOING))?;
    Ok(true)
}

async fn renew(
    conn: &mut SqliteConnection,
    id: KeyId,
    KeyHash(hash): KeyHash,
    prefix: String,
    since: Millis,
) -> Result<Option<ApiKey>> {
    let changed = sqlx::query(
        "UPDATE keys SET hash = ?, prefix = ? WHERE id = ? AND created_at >= ? AND last_used_at IS NULL \
         AND revoked_at IS NULL RETURNING *",
    )
    .bind(&hash[..])
    .bind(prefix)
    .bind(&id.uuid().as_bytes()[..])
    .bind(since)
    .fetch_optional(conn)
    .await
    .map_err(failed(DOING))?;
    changed.as_ref().map(row::key).transpose()
}

async fn insert_first(conn: &mut SqliteConnection, key: ApiKey) -> Result<bool> {
    let any: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM keys)")
        .fetch_one(&mut *conn)
        .await
        .map_err(failed(DOING))?;
    if !any {
        insert(conn, key).await?;
    }
    Ok(!any)
}

/// Whether an admin key is usable and no other could replace it.
async fn is_last_admin(conn: &mut SqliteConnection, id: KeyId, now: Millis) -> Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM keys AS this WHERE this.id = ?1 AND this.scope = 'admin' \
         AND this.revoked_at IS NULL AND (this.expires_at IS NULL OR this.expires_at > ?2) \
         AND NOT EXISTS (SELECT 1 FROM keys AS other WHERE other.id <> ?1 AND other.scope = 'admin' \
         AND other.revoked_at IS NULL AND (other.expires_at IS NULL \
         OR (this.expires_at IS NOT NULL AND other.expires_at > ?2))))",
    )
    .bind(&id.uuid().as_bytes()[..])
    .bind(now)
    .fetch_one(conn)
    .await
    .map_err(failed(DOING))
}

async fn revoke(conn: &mut SqliteConnection, id: KeyId, now: Millis, admins: Admins) -> Result<ApiKey> {
    if admins == Admins::Keep && is_last_admin(conn, id, now).await? {
        return Err(StoreError::Conflict(Clash::LastAdmin));
    }
    let changed =
        sqlx::query("UPDATE keys SET revoked_at = coalesce(revoked_at, ?) WHERE id = ? RETURNING *")
            .bind(now)
            .bind(&id.uuid().as_bytes()[..])
            .fetch_optional(conn)
            .await
            .map_err(failed(DOING))?;
    row::key(&changed.ok_or(StoreError::NotFound(Thing::Key))?)
}

/// One statement however many there are: other writers wait for it.
async fn touch(conn: &mut SqliteConnection, used: BTreeMap<KeyId, Millis>) -> Result<()> {
    let used = serde_json::to_string(&used).map_err(|e| StoreError::Internal(DOING, e.into()))?;
    sqlx::query(
        "UPDATE keys SET last_used_at = max(coalesce(last_used_at, used.at), used.at) \
         FROM (SELECT unhex(key) AS id, value AS at FROM json_each(?)) AS used WHERE keys.id = used.id",
    )
    .bind(used)
    .execute(conn)
    .await
    .map_err(failed(DOING))?;
    Ok(())
}

async fn purge(conn: &mut SqliteConnection, before: Millis) -> Result<u64> {
    let gone = sqlx::query("DELETE FROM keys WHERE revoked_at <= ? AND seq < (SELECT max(seq) FROM keys)")
        .bind(before)
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(gone.rows_affected())
}

#[async_trait]
impl Keys for SqliteStore {
    async fn insert_key(&self, key: ApiKey) -> Result<()> {
        self.writer.write(DOING, |conn| Box::pin(insert(conn, key))).await?;
        self.reach_disk().await
    }

    async fn insert_key_within(&self, key: ApiKey, most: u64, now: Millis) -> Result<bool> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let made =
            self.writer.write(DOING, move |conn| Box::pin(insert_within(conn, key, most, now))).await?;
        if made {
            self.reach_disk().await?;
        }
        Ok(made)
    }

    async fn renew_key(
        &self,
        id: KeyId,
        hash: KeyHash,
        prefix: String,
        since: Millis,
    ) -> Result<Option<ApiKey>> {
        let key =
            self.writer.write(DOING, move |conn| Box::pin(renew(conn, id, hash, prefix, since))).await?;
        self.reach_disk().await?;
        Ok(key)
    }

    async fn insert_first_key(&self, key: ApiKey) -> Result<bool> {
        let made = self.writer.write(DOING, |conn| Box::pin(insert_first(conn, key))).await?;
        if made {
            self.reach_disk().await?;
        }
        Ok(made)
    }

    async fn key_by_hash(&self, hash: KeyHash, now: Millis) -> Result<Option<ApiKey>> {
        let found = sqlx::query("SELECT * FROM keys WHERE hash = ?")
            .bind(&hash.0[..])
            .fetch_optional(&self.readers)
            .await
            .map_err(failed("finding a key"))?;
        let key = found.as_ref().map(row::key).transpose()?;
        Ok(key.filter(|key| key.is_usable(now)))
    }

    async fn list_keys(&self, owner: Option<&str>) -> Result<Vec<ApiKey>> {
        let rows = sqlx::query(
            "SELECT * FROM keys WHERE ?1 IS NULL OR owner = ?1 ORDER BY created_at DESC, id DESC",
        )
        .bind(owner)
        .fetch_all(&self.readers)
        .await
        .map_err(failed("listing keys"))?;
        rows.iter().map(row::key).collect()
    }

    async fn revoke_key(&self, id: KeyId, now: Millis, admins: Admins) -> Result<ApiKey> {
        let key = self.writer.write(DOING, move |conn| Box::pin(revoke(conn, id, now, admins))).await?;
        self.reach_disk().await?;
        Ok(key)
    }

    async fn touch_keys(&self, used: &BTreeMap<KeyId, Millis>) -> Result<()> {
        if used.is_empty() {
            return Ok(());
        }
        let used = used.clone();
        self.writer.write(DOING, |conn| Box::pin(touch(conn, used))).await
    }

    async fn purge_keys(&self, before: Millis) -> Result<u64> {
        self.writer.write(DOING, move |conn| Box::pin(purge(conn, before))).await
    }
}
