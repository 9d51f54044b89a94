//! Volumes of owners, and their attachments.

use crate::{
    SqliteStore,
    error::failed,
    row::{self, count, get},
    write::number,
};
use async_trait::async_trait;
use atoll_store::{Result, SandboxId, SandboxRecord, Status, StoreError, Thing, Volumes};
use atoll_types::{VolumeId, VolumeRecord};
use sqlx::{SqliteConnection, sqlite::SqliteRow};

const WRITING: &str = "writing a volume";
const READING: &str = "reading volumes";
const COLUMNS: &str = "id, owner, owner_name, name, tenant, provider, disk_bytes, created_at, deleting";

fn read(row: &SqliteRow) -> Result<VolumeRecord> {
    let damaged = |column: &str| StoreError::Corrupt(format!("a {column} cannot be read"), None);
    Ok(VolumeRecord {
        id: VolumeId::from_uuid(row::uuid(row, "id")?),
        owner: get(row, "owner")?,
        owner_name: get(row, "owner_name")?,
        name: get::<&str>(row, "name")?.parse().map_err(|_| damaged("name"))?,
        tenant: get(row, "tenant")?,
        provider: get::<&str>(row, "provider")?.parse().map_err(|_| damaged("provider"))?,
        disk_bytes: count(row, "disk_bytes")?,
        created_at: get(row, "created_at")?,
        deleting: get(row, "deleting")?,
    })
}

/// Replaces the attachments of a sandbox; a destroyed one has none.
pub(crate) async fn attach(conn: &mut SqliteConnection, seq: i64, record: &SandboxRecord) -> Result<()> {
    let gone = sqlx::query("DELETE FROM attachments WHERE sandbox = ?").bind(seq);
    gone.execute(&mut *conn).await.map_err(failed(WRITING))?;
    if record.status == Status::Destroyed {
        return Ok(());
    }
    for mount in &record.profile.volumes {
        let attached = sqlx::query(
            "INSERT INTO attachments (sandbox, volume) \
             SELECT ?, id FROM volumes WHERE id = ? AND owner = ? AND NOT deleting",
        )
        .bind(seq)
        .bind(&mount.volume.uuid().as_bytes()[..])
        .bind(&record.owner)
        .execute(&mut *conn)
        .await
        .map_err(failed(WRITING))?;
        if attached.rows_affected() == 0 {
            return Err(StoreError::NotFound(Thing::Volume));
        }
    }
    Ok(())
}

async fn insert(conn: &mut SqliteConnection, new: VolumeRecord) -> Result<Option<VolumeRecord>> {
    let there = sqlx::query(&format!(
        "SELECT {COLUMNS} FROM volumes WHERE owner = ?1 AND (name = ?2 OR tenant = ?3)"
    ))
    .bind(&new.owner)
    .bind(new.name.as_str())
    .bind(&new.tenant)
    .fetch_optional(&mut *conn)
    .await
    .map_err(failed(WRITING))?;
    if let Some(there) = there {
        return read(&there).map(Some);
    }
    let VolumeRecord { id, owner, owner_name, name, tenant, provider, disk_bytes, created_at, deleting } =
        new;
    sqlx::query(&format!("INSERT INTO volumes ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"))
        .bind(&id.uuid().as_bytes()[..])
        .bind(owner)
        .bind(owner_name)
        .bind(name.as_str())
        .bind(tenant)
        .bind(provider.as_str())
        .bind(number(disk_bytes))
        .bind(created_at)
        .bind(deleting)
        .execute(conn)
        .await
        .map_err(failed(WRITING))?;
    Ok(None)
}

async fn set_limit(conn: &mut SqliteConnection, id: VolumeId, disk_bytes: u64) -> Result<()> {
    let change = sqlx::query("UPDATE volumes SET disk_bytes = ? WHERE id = ?").bind(number(disk_bytes));
    change.bind(&id.uuid().as_bytes()[..]).execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

const ATTACHED: &str = "SELECT sandboxes.id FROM attachments JOIN sandboxes ON sandboxes.seq = attachments.sandbox \
                        WHERE attachments.volume = ? ORDER BY sandboxes.seq";

fn sandboxes(rows: &[SqliteRow]) -> Result<Vec<SandboxId>> {
    rows.iter().map(|row| row::uuid(row, "id").map(SandboxId::from_uuid)).collect()
}

async fn begin_delete(conn: &mut SqliteConnection, id: VolumeId) -> Result<Vec<SandboxId>> {
    let bytes = id.uuid().as_bytes().to_vec();
    let attached = sqlx::query(ATTACHED).bind(&bytes).fetch_all(&mut *conn).await.map_err(failed(WRITING))?;
    if attached.is_empty() {
        let mark = sqlx::query("UPDATE volumes SET deleting = 1 WHERE id = ?").bind(&bytes);
        mark.execute(conn).await.map_err(failed(WRITING))?;
    }
    sandboxes(&attached)
}

async fn end_delete(conn: &mut SqliteConnection, id: VolumeId) -> Result<()> {
    let gone = sqlx::query("DELETE FROM volumes WHERE id = ? AND deleting");
    gone.bind(&id.uuid().as_bytes()[..]).execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

impl SqliteStore {
    async fn one_volume(
        &self,
        column: &'static str,
        owner: &str,
        value: &str,
    ) -> Result<Option<VolumeRecord>> {
        let found = sqlx::query(&format!("SELECT {COLUMNS} FROM volumes WHERE owner = ? AND {column} = ?"))
            .bind(owner)
            .bind(value)
            .fetch_optional(&self.readers)
            .await
            .map_err(failed(READING))?;
        found.as_ref().map(read).transpose()
    }
}

#[async_trait]
impl Volumes for SqliteStore {
    async fn insert_volume(&self, new: VolumeRecord) -> Result<Option<VolumeRecord>> {
        self.writer.write(WRITING, move |conn| Box::pin(insert(conn, new))).await
    }

    async fn volume(&self, owner: &str, name: &str) -> Result<Option<VolumeRecord>> {
        self.one_volume("name", owner, name).await
    }

    async fn tenant_volume(&self, owner: &str, tenant: &str) -> Result<Option<VolumeRecord>> {
        self.one_volume("tenant", owner, tenant).await
    }

    async fn volumes(&self, owner: Option<&str>) -> Result<Vec<VolumeRecord>> {
        let all =
            format!("SELECT {COLUMNS} FROM volumes WHERE ?1 IS NULL OR owner = ?1 ORDER BY owner, name");
        let rows = sqlx::query(&all).bind(owner).fetch_all(&self.readers).await.map_err(failed(READING))?;
        rows.iter().map(read).collect()
    }

    async fn set_volume_limit(&self, id: VolumeId, disk_bytes: u64) -> Result<()> {
        self.writer.write(WRITING, move |conn| Box::pin(set_limit(conn, id, disk_bytes))).await
    }

    async fn attached_to(&self, id: VolumeId) -> Result<Vec<SandboxId>> {
        let bytes = id.uuid().as_bytes().to_vec();
        let rows =
            sqlx::query(ATTACHED).bind(bytes).fetch_all(&self.readers).await.map_err(failed(READING))?;
        sandboxes(&rows)
    }

    async fn begin_delete_volume(&self, id: VolumeId) -> Result<Vec<SandboxId>> {
        self.writer.write(WRITING, move |conn| Box::pin(begin_delete(conn, id))).await
    }

    async fn end_delete_volume(&self, id: VolumeId) -> Result<()> {
        self.writer.write(WRITING, move |conn| Box::pin(end_delete(conn, id))).await
    }
}
