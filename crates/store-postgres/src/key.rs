//! API keys.

use crate::{PostgresStore, error::failed, row, sql};
use async_trait::async_trait;
use atoll_store::{Admins, ApiKey, Clash, KeyHash, KeyId, Keys, Millis, Result, StoreError, Thing};
use sqlx::PgConnection;
use std::collections::BTreeMap;

const DOING: &str = "writing a key";

async fn insert(conn: &mut PgConnection, key: ApiKey) -> Result<()> {
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
    sql::query(
        "INSERT INTO keys (id, name, owner, owner_name, scope, tier, prefix, hash, created_at, expires_at, \
         revoked_at, last_used_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
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

async fn insert_within(conn: &mut PgConnection, key: ApiKey, most: i64, now: Millis) -> Result<bool> {
    let (id, owner) = (key.id, key.owner.clone());
    let usable: i64 = sql::scalar(
        "SELECT count(*) FROM keys WHERE owner = $1 AND id <> $2 AND revoked_at IS NULL \
         AND (expires_at IS NULL OR expires_at > $3)",
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
    sql::query(
        "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE owner = $1 AND revoked_at IS NOT NULL \
         ORDER BY revoked_at DESC, seq DESC OFFSET $2)",
    )
    .bind(owner)
    .bind(most)
    .execute(conn)
    .await
    .map_err(failed(DOING))?;
    Ok(true)
}

async fn renew(
    conn: &mut PgConnection,
    id: KeyId,
    KeyHash(hash): KeyHash,
    prefix: String,
    since: Millis,
) -> Result<Option<ApiKey>> {
    let changed = sql::query(
        "UPDATE keys SET hash = $1, prefix = $2 WHERE id = $3 AND created_at >= $4 AND last_used_at IS NULL \
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

async fn insert_first(conn: &mut PgConnection, key: ApiKey) -> Result<bool> {
    let any: bool = sql::scalar("SELECT EXISTS (SELECT 1 FROM keys)")
        .fetch_one(&mut *conn)
        .await
        .map_err(failed(DOING))?;
    if !any {
        insert(conn, key).await?;
    }
    Ok(!any)
}

/// Whether an admin key is usable and no other could replace it.
async fn is_last_admin(conn: &mut PgConnection, id: KeyId, now: Millis) -> Result<bool> {
    sql::scalar(
        "SELECT EXISTS (SELECT 1 FROM keys AS this WHERE this.id = $1 AND this.scope = 'admin' \
         AND this.revoked_at IS NULL AND (this.expires_at IS NULL OR this.expires_at > $2) \
         AND NOT EXISTS (SELECT 1 FROM keys AS other WHERE other.id <> $1 AND other.scope = 'admin' \
         AND other.revoked_at IS NULL AND (other.expires_at IS NULL \
         OR (this.expires_at IS NOT NULL AND other.expires_at > $2))))",
    )
    .bind(&id.uuid().as_bytes()[..])
    .bind(now)
    .fetch_one(conn)
    .await
    .map_err(failed(DOING))
}

async fn revoke(conn: &mut PgConnection, id: KeyId, now: Millis, admins: Admins) -> Result<ApiKey> {
    if admins == Admins::Keep && is_last_admin(conn, id, now).await? {
        return Err(StoreError::Conflict(Clash::LastAdmin));
    }
    let changed =
        sql::query("UPDATE keys SET revoked_at = coalesce(revoked_at, $1) WHERE id = $2 RETURNING *")
            .bind(now)
            .bind(&id.uuid().as_bytes()[..])
            .fetch_optional(conn)
            .await
            .map_err(failed(DOING))?;
    row::key(&changed.ok_or(StoreError::NotFound(Thing::Key))?)
}

/// One statement however many there are: other writers wait for it.
async fn touch(conn: &mut PgConnection, used: BTreeMap<KeyId, Millis>) -> Result<()> {
    let (ids, times): (Vec<Vec<u8>>, Vec<Millis>) =
        used.into_iter().map(|(id, at)| (id.uuid().as_bytes().to_vec(), at)).unzip();
    sql::query(
        "UPDATE keys SET last_used_at = greatest(last_used_at, used.at) \
         FROM unnest($1, $2) AS used (id, at) WHERE keys.id = used.id",
    )
    .bind(ids)
    .bind(times)
    .execute(conn)
    .await
    .map_err(failed(DOING))?;
    Ok(())
}

async fn purge(conn: &mut PgConnection, before: Millis) -> Result<u64> {
    let gone = sql::query("DELETE FROM keys WHERE revoked_at <= $1 AND seq < (SELECT max(seq) FROM keys)")
        .bind(before)
        .execute(conn)
        .await
        .map_err(failed(DOING))?;
    Ok(gone.rows_affected())
}

#[async_trait]
impl Keys for PostgresStore {
    async fn insert_key(&self, key: ApiKey) -> Result<()> {
        self.sessions.write(DOING, |conn| Box::pin(insert(conn, key))).await
    }

    async fn insert_key_within(&self, key: ApiKey, most: u64, now: Millis) -> Result<bool> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.sessions.write(DOING, move |conn| Box::pin(insert_within(conn, key, most, now))).await
    }

    async fn renew_key(
        &self,
        id: KeyId,
        hash: KeyHash,
        prefix: String,
        since: Millis,
    ) -> Result<Option<ApiKey>> {
        let key =
            self.sessions.write(DOING, move |conn| Box::pin(renew(conn, id, hash, prefix, since))).await?;
        Ok(key)
    }

    async fn insert_first_key(&self, key: ApiKey) -> Result<bool> {
        self.sessions.write(DOING, |conn| Box::pin(insert_first(conn, key))).await
    }

    async fn key_by_hash(&self, hash: KeyHash, now: Millis) -> Result<Option<ApiKey>> {
        let found = sql::query("SELECT * FROM keys WHERE hash = $1")
            .bind(&hash.0[..])
            .fetch_optional(self.readers()?)
            .await
            .map_err(failed("finding a key"))?;
        let key = found.as_ref().map(row::key).transpose()?;
        Ok(key.filter(|key| key.is_usable(now)))
    }

    async fn list_keys(&self, owner: Option<&str>) -> Result<Vec<ApiKey>> {
        let rows =
            sql::query("SELECT * FROM keys WHERE $1 IS NULL OR owner = $1 ORDER BY created_at DESC, id DESC")
                .bind(owner)
                .fetch_all(self.readers()?)
                .await
                .map_err(failed("listing keys"))?;
        rows.iter().map(row::key).collect()
    }

    async fn revoke_key(&self, id: KeyId, now: Millis, admins: Admins) -> Result<ApiKey> {
        let key = self.sessions.write(DOING, move |conn| Box::pin(revoke(conn, id, now, admins))).await?;
        Ok(key)
    }

    async fn touch_keys(&self, used: &BTreeMap<KeyId, Millis>) -> Result<()> {
        if used.is_empty() {
            return Ok(());
        }
        let used = used.clone();
        self.sessions.write(DOING, |conn| Box::pin(touch(conn, used))).await
    }

    async fn purge_keys(&self, before: Millis) -> Result<u64> {
        self.sessions.write(DOING, move |conn| Box::pin(purge(conn, before))).await
    }
}
