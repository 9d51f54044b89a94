//! Skills of owners, and those that sandboxes have.

use crate::{
    PostgresStore,
    error::failed,
    row::{self, count},
    sql::{self, get},
    write::{json, number},
};
use async_trait::async_trait;
use atoll_store::{Result, SandboxId, Sha256, Skills, StoreError, Thing};
use atoll_types::{InstalledSkill, SkillId, SkillPage, SkillQuery, SkillRecord, SkillSource};
use sqlx::{PgConnection, postgres::PgRow};

const WRITING: &str = "writing a skill";
const READING: &str = "reading skills";
const COLUMNS: &str = "id, owner, owner_name, name, description, source, metadata, digest, package_bytes, files, \
                       created_at, updated_at";
const MATCHING: &str = "($1 IS NULL OR owner = $1) AND ($2 IS NULL OR source = $2) AND \
                        ($3 IS NULL OR strpos(lower(name), lower($3)) > 0 OR strpos(lower(description), lower($3)) > 0)";

fn read(row: &PgRow) -> Result<SkillRecord> {
    let damaged = |column: &str| StoreError::Corrupt(format!("a {column} cannot be read"), None);
    Ok(SkillRecord {
        id: SkillId::from_uuid(row::uuid(row, "id")?),
        owner: get(row, "owner")?,
        owner_name: get(row, "owner_name")?,
        name: get::<String>(row, "name")?.parse().map_err(|_| damaged("name"))?,
        description: get(row, "description")?,
        source: SkillSource::from_name(&get::<String>(row, "source")?).ok_or_else(|| damaged("source"))?,
        metadata: get(row, "metadata")?,
        digest: Sha256(row::bytes32(row, "digest")?),
        package_bytes: count(row, "package_bytes")?,
        files: get(row, "files")?,
        created_at: get(row, "created_at")?,
        updated_at: get(row, "updated_at")?,
    })
}

/// Another skill of the owner with this name.
async fn namesake(conn: &mut PgConnection, of: &SkillRecord) -> Result<Option<SkillRecord>> {
    let found =
        sql::query(&format!("SELECT {COLUMNS} FROM skills WHERE owner = $1 AND name = $2 AND id <> $3"))
            .bind(&of.owner)
            .bind(of.name.as_str())
            .bind(&of.id.uuid().as_bytes()[..])
            .fetch_optional(conn)
            .await
            .map_err(failed(WRITING))?;
    found.as_ref().map(read).transpose()
}

async fn put(conn: &mut PgConnection, new: SkillRecord) -> Result<()> {
    let SkillRecord {
        id,
        owner,
        owner_name,
        name,
        description,
        source,
        metadata,
        digest,
        package_bytes,
        files,
        created_at,
        updated_at,
    } = new;
    sql::query(&format!(
        "INSERT INTO skills ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) \
         DO UPDATE SET owner = excluded.owner, owner_name = excluded.owner_name, name = excluded.name, \
         description = excluded.description, source = excluded.source, metadata = excluded.metadata, \
         digest = excluded.digest, package_bytes = excluded.package_bytes, files = excluded.files, \
         created_at = excluded.created_at, updated_at = excluded.updated_at"
    ))
    .bind(&id.uuid().as_bytes()[..])
    .bind(owner)
    .bind(owner_name)
    .bind(name.as_str())
    .bind(description)
    .bind(source.as_str())
    .bind(metadata)
    .bind(&digest.0[..])
    .bind(number(package_bytes))
    .bind(files)
    .bind(created_at)
    .bind(updated_at)
    .execute(conn)
    .await
    .map_err(failed(WRITING))?;
    Ok(())
}

async fn insert(conn: &mut PgConnection, new: SkillRecord) -> Result<Option<SkillRecord>> {
    let there = namesake(&mut *conn, &new).await?;
    if there.is_none() {
        put(conn, new).await?;
    }
    Ok(there)
}

async fn update(conn: &mut PgConnection, record: SkillRecord) -> Result<Option<SkillRecord>> {
    let found = sql::query("SELECT 1 FROM skills WHERE id = $1 AND owner = $2")
        .bind(record.id.uuid().as_bytes().to_vec())
        .bind(&record.owner);
    if found.fetch_optional(&mut *conn).await.map_err(failed(WRITING))?.is_none() {
        return Err(StoreError::NotFound(Thing::Skill));
    }
    insert(conn, record).await
}

async fn delete(conn: &mut PgConnection, id: SkillId) -> Result<bool> {
    let gone = sql::query("DELETE FROM skills WHERE id = $1").bind(id.uuid().as_bytes().to_vec());
    Ok(gone.execute(conn).await.map_err(failed(WRITING))?.rows_affected() > 0)
}

/// Changes the list of a sandbox's skills. Nothing where there is no such sandbox.
async fn change(
    conn: &mut PgConnection,
    sandbox: SandboxId,
    change: impl FnOnce(&mut Vec<InstalledSkill>),
) -> Result<bool> {
    let id = sandbox.uuid().as_bytes().to_vec();
    let found = sql::query("SELECT skills FROM sandboxes WHERE id = $1 AND status <> 'destroyed' FOR UPDATE")
        .bind(&id);
    let Some(found) = found.fetch_optional(&mut *conn).await.map_err(failed(WRITING))? else {
        return Ok(false);
    };
    let mut skills = row::json(&found, "skills")?;
    change(&mut skills);
    let set = sql::query("UPDATE sandboxes SET skills = $1 WHERE id = $2").bind(json(&skills)?).bind(id);
    set.execute(conn).await.map_err(failed(WRITING))?;
    Ok(true)
}

async fn install(conn: &mut PgConnection, sandbox: SandboxId, skill: InstalledSkill) -> Result<()> {
    let there = change(conn, sandbox, |all| {
        all.retain(|one| one.name != skill.name);
        all.push(skill);
    });
    if there.await? { Ok(()) } else { Err(StoreError::NotFound(Thing::Sandbox)) }
}

async fn replace(conn: &mut PgConnection, sandbox: SandboxId, skills: Vec<InstalledSkill>) -> Result<()> {
    change(conn, sandbox, |all| *all = skills).await.map(drop)
}

#[async_trait]
impl Skills for PostgresStore {
    async fn insert_skill(&self, new: SkillRecord) -> Result<Option<SkillRecord>> {
        self.records.write(WRITING, move |conn| Box::pin(insert(conn, new))).await
    }

    async fn skill(&self, id: SkillId) -> Result<Option<SkillRecord>> {
        let found = sql::query(&format!("SELECT {COLUMNS} FROM skills WHERE id = $1"))
            .bind(&id.uuid().as_bytes()[..])
            .fetch_optional(self.readers()?)
            .await
            .map_err(failed(READING))?;
        found.as_ref().map(read).transpose()
    }

    async fn skills(&self, query: &SkillQuery) -> Result<SkillPage> {
        let SkillQuery { owner, search, source, offset, limit } = query;
        let source = source.map(SkillSource::as_str);
        let some = format!(
            "SELECT {COLUMNS}, count(*) OVER () AS total FROM skills WHERE {MATCHING} \
             ORDER BY name, owner LIMIT $4 OFFSET $5"
        );
        let rows = sql::query(&some)
            .bind(owner)
            .bind(source)
            .bind(search)
            .bind(limit)
            .bind(number(*offset))
            .fetch_all(self.readers()?)
            .await
            .map_err(failed(READING))?;
        let items = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        let total = match rows.first() {
            Some(row) => count(row, "total")?,
            // A page behind the last one has no row that could say.
            None => {
                let all = format!("SELECT count(*) AS total FROM skills WHERE {MATCHING}");
                let all = sql::query(&all).bind(owner).bind(source).bind(search);
                count(&all.fetch_one(self.readers()?).await.map_err(failed(READING))?, "total")?
            }
        };
        Ok(SkillPage { items, total })
    }

    async fn skill_usage(&self, owner: &str) -> Result<(u64, u64)> {
        let usage = "SELECT count(*) AS skills, coalesce(sum(package_bytes), 0)::bigint AS bytes FROM skills WHERE owner = $1";
        let row = sql::query(usage).bind(owner).fetch_one(self.readers()?).await.map_err(failed(READING))?;
        Ok((count(&row, "skills")?, count(&row, "bytes")?))
    }

    async fn update_skill(&self, record: SkillRecord) -> Result<Option<SkillRecord>> {
        self.records.write(WRITING, move |conn| Box::pin(update(conn, record))).await
    }

    async fn delete_skill(&self, id: SkillId) -> Result<bool> {
        self.records.write(WRITING, move |conn| Box::pin(delete(conn, id))).await
    }

    async fn has_package(&self, digest: Sha256) -> Result<bool> {
        let found = sql::query("SELECT 1 FROM skills WHERE digest = $1 LIMIT 1").bind(digest.0.to_vec());
        Ok(found.fetch_optional(self.readers()?).await.map_err(failed(READING))?.is_some())
    }

    async fn install_skill(&self, sandbox: SandboxId, skill: InstalledSkill) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(install(conn, sandbox, skill))).await
    }

    async fn set_skills(&self, sandbox: SandboxId, skills: Vec<InstalledSkill>) -> Result<()> {
        self.records.write(WRITING, move |conn| Box::pin(replace(conn, sandbox, skills))).await
    }
}
