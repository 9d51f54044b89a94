//! Volumes of owners, and their attachments.

use crate::{
    PostgresStore,
    error::failed,
    row::{self, count},
    sql::{self, get},
    write::number,
};
use async_trait::async_trait;
use atoll_store::{Result, SandboxId, SandboxRecord, Status, StoreError, Thing, Volumes};
use atoll_types::{VolumeId, VolumeRecord};
use sqlx::{PgConnection, postgres::PgRow};

const WRITING: &str = "writing a volume";
const READING: &str = "reading volumes";
const COLUMNS: &str = "id, owner, owner_name, name, tenant, provider, disk_bytes, created_at, deleting";

fn read(row: &PgRow) -> Result<VolumeRecord> {
    let damaged = |column: &str| StoreError::Corrupt(format!("a {column} cannot be read"), None);
    Ok(VolumeRecord {
        id: VolumeId::from_uuid(row::uuid(row, "id")?),
        owner: get(row, "owner")?,
        owner_name: get(row, "owner_name")?,
        name: get::<String>(row, "name")?.parse().map_err(|_| damaged("name"))?,
        tenant: get(row, "tenant")?,
        provider: get::<String>(row, "provider")?.parse().map_err(|_| damaged("provider"))?,
        disk_bytes: count(row, "disk_bytes")?,
        created_at: get(row, "created_at")?,
        deleting: get(row, "deleting")?,
    })
}

/// Replaces the attachments of a sandbox; a destroyed one has none.
pub(crate) async fn attach(conn: &mut PgConnection, seq: i64, record: &SandboxRecord) -> Result<()> {
    let gone = sql::query("DELETE FROM attachments WHERE sandbox = $1").bind(seq);
    gone.execute(&mut *conn).await.map_err(failed(WRITING))?;
    if record.status == Status::Destroyed {
        return Ok(());
    }
    for mount in &record.profile.volumes {
        let attached = sql::query(
            "INSERT INTO attachments (sandbox, volume) \
             SELECT $1, id FROM volumes WHERE id = $2 AND owner = $3 AND NOT deleting",
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

async fn insert(conn: &mut PgConnection, new: VolumeRecord) -> Result<Option<VolumeRecord>> {
    let there =
        sql::query(&format!("SELECT {COLUMNS} FROM volumes WHERE owner = $1 AND (name = $2 OR tenant = $3)"))
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
    sql::query(&format!("INSERT INTO volumes ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"))
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

async fn set_limit(conn: &mut PgConnection, id: VolumeId, disk_bytes: u64) -> Result<()> {
    let change = sql::query("UPDATE volumes SET disk_bytes = $1 WHERE id = $2").bind(number(disk_bytes));
    change.bind(&id.uuid().as_bytes()[..]).execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

const ATTACHED: &str = "SELECT sandboxes.id FROM attachments JOIN sandboxes ON sandboxes.seq = attachments.sandbox \
                        WHERE attachments.volume = $1 ORDER BY sandboxes.seq";

fn sandboxes(rows: &[PgRow]) -> Result<Vec<SandboxId>> {
    rows.iter().map(|row| row::uuid(row, "id").map(SandboxId::from_uuid)).collect()
}

async fn begin_delete(conn: &mut PgConnection, id: VolumeId) -> Result<Vec<SandboxId>> {
    let bytes = id.uuid().as_bytes().to_vec();
    let attached = sql::query(ATTACHED).bind(&bytes).fetch_all(&mut *conn).await.map_err(failed(WRITING))?;
    if attached.is_empty() {
        let mark = sql::query("UPDATE volumes SET deleting = TRUE WHERE id = $1").bind(&bytes);
        mark.execute(conn).await.map_err(failed(WRITING))?;
    }
    sandboxes(&attached)
}

async fn end_delete(conn: &mut PgConnection, id: VolumeId) -> Result<()> {
    let gone = sql::query("DELETE FROM volumes WHERE id = $1 AND deleting");
    gone.bind(&id.uuid().as_bytes()[..]).execute(conn).await.map_err(failed(WRITING))?;
    Ok(())
}

impl PostgresStore {
    async fn one_volume(
        &self,
        column: &'static str,
        owner: &str,
        value: &str,
    ) -> Result<Option<VolumeRecord>> {
        let found = sql::query(&format!("SELECT {COLUMNS} FROM volumes WHERE owner = $1 AND {column} = $2"))
            .bind(owner)
            .bind(value)
            .fetch_optional(self.readers()?)
            .await
            .map_err(failed(READING))?;
        found.as_ref().map(read).transpose()
    }
}

#[async_trait]
impl Volumes for PostgresStore {
    async fn insert_volume(&self, new: VolumeRecord) -> Result<Option<VolumeRecord>> {
        self.records.write(WRITING, move |conn| Box::pin(insert(conn, new))).await
    }

    async fn volume(&self, owner: &str, name: &str) -> Result<Option<VolumeRecord>> {
        self.one_volume("name", owner, name).await
    }

    async fn tenant_volume(&self, owner: &str, tenant: &str) -> Result<Option<VolumeRecord>> {
        self.one_volume("tenant", owner, tenant).await
    }

    async fn volumes(&self, owner: Option<&str>) -> Result<Vec<VolumeRecord>> {
        let all =
            format!("SELECT {COLUMNS} FROM volumes WHERE $1 IS NULL OR owner = $1 ORDER BY owner, name");
        let rows = sql::query(&all).bind(owner).fetch_all(self.readers()?).await.map_err(failed(READING))?;
        rows.iter().map(read).collect()
    }

    async fn set_volume_limit(&self, id: VolumeId, disk_bytes: u64) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(set_limit(conn, id, disk_bytes))).await
    }

    async fn attached_to(&self, id: VolumeId) -> Result<Vec<SandboxId>> {
        let bytes = id.uuid().as_bytes().to_vec();
        let rows =
            sql::query(ATTACHED).bind(bytes).fetch_all(self.readers()?).await.map_err(failed(READING))?;
        sandboxes(&rows)
    }

    async fn begin_delete_volume(&self, id: VolumeId) -> Result<Vec<SandboxId>> {
        self.records.write(WRITING, move |conn| Box::pin(begin_delete(conn, id))).await
    }

    async fn end_delete_volume(&self, id: VolumeId) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(end_delete(conn, id))).await
    }
}
