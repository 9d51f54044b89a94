//! The schema and its versions. SQLite keeps two numbers in the file's header for this: the application id
//! and the schema version. Each migration commits together with its number.

use crate::{error::failed, writer::Writer};
use atoll_store::{Result, StoreError};
use sqlx::{Executor, SqliteConnection};

/// One script per version, the first making version 1.
const SCRIPTS: &[&str] = &[
    include_str!("../migrations/0001_start.sql"),
    include_str!("../migrations/0002_audit.sql"),
    include_str!("../migrations/0003_egress.sql"),
    include_str!("../migrations/0004_lifetime.sql"),
    include_str!("../migrations/0005_tools.sql"),
    include_str!("../migrations/0006_mcp.sql"),
    include_str!("../migrations/0007_sealed_replies.sql"),
    include_str!("../migrations/0008_provider.sql"),
    include_str!("../migrations/0009_idle_pause.sql"),
    include_str!("../migrations/0010_snapshots.sql"),
    include_str!("../migrations/0011_file_history.sql"),
    include_str!("../migrations/0012_volumes.sql"),
    include_str!("../migrations/0013_images.sql"),
    include_str!("../migrations/0014_skills.sql"),
    include_str!("../migrations/0015_snapshot_kernels.sql"),
    include_str!("../migrations/0016_build_askers.sql"),
    include_str!("../migrations/0017_build_steps.sql"),
    include_str!("../migrations/0018_snapshot_skills.sql"),
    include_str!("../migrations/0019_console_sessions.sql"),
    include_str!("../migrations/0020_conversations.sql"),
    include_str!("../migrations/0021_preview_tokens.sql"),
    include_str!("../migrations/0022_starts_and_deaths.sql"),
];

/// The version that this release writes.
pub const SCHEMA_VERSION: u32 = SCRIPTS.len() as u32;

/// "ATOL": the application id of our databases, which `file` shows too.
const APPLICATION_ID: i64 = 0x4154_4f4c;

const UPGRADING: &str = "upgrading the database";

// One statement, and so one snapshot: another process may be making the tables.
const LOOK: &str = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) \
                    FROM pragma_application_id(), pragma_user_version()";

/// The version of the file's schema, if this release can use it.
pub(crate) async fn look(conn: &mut SqliteConnection) -> Result<u32> {
    let (application, version, tables): (i64, i64, i64) =
        sqlx::query_as(LOOK).fetch_one(conn).await.map_err(failed("reading the schema version"))?;
    if application == 0 && tables == 0 {
        return Ok(0);
    }
    if application != APPLICATION_ID {
        return Err(StoreError::Corrupt("the file belongs to another program".into(), None));
    }
    match u32::try_from(version) {
        Ok(found) if found > SCHEMA_VERSION => Err(StoreError::Newer { found, known: SCHEMA_VERSION }),
        Ok(found) => Ok(found),
        Err(_) => Err(StoreError::Corrupt("the schema version makes no sense".into(), None)),
    }
}

/// Brings the file to this release's version.
pub(crate) async fn run(writer: &Writer) -> Result<()> {
    writer.write(UPGRADING, |conn| Box::pin(upgrade(conn))).await
}

async fn upgrade(conn: &mut SqliteConnection) -> Result<()> {
    // Checked again under the write lock: another process may have been faster.
    let found = look(conn).await?;
    for script in &SCRIPTS[found as usize..] {
        conn.execute(*script).await.map_err(failed(UPGRADING))?;
    }
    let numbers = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}");
    conn.execute(&*numbers).await.map_err(failed(UPGRADING))?;
    Ok(())
}
