//! The schema and its versions. Everything is in a schema of its own, `atoll`, so a database that has other tables can be
//! used. The table `atoll.version` holds one number; each migration commits together with its number. There is no way back.

use crate::error::failed;
use atoll_store::{Result, StoreError};
use sqlx::{Connection, Executor, PgConnection};

/// One script per version, the first making version 1.
const SCRIPTS: &[&str] = &[
    include_str!("../migrations/0001_start.sql"),
    include_str!("../migrations/0002_preview_tokens.sql"),
    include_str!("../migrations/0003_starts_and_deaths.sql"),
];

/// The version that this release writes.
pub const SCHEMA_VERSION: u32 = SCRIPTS.len() as u32;

/// `pg_current_xact_id` and `pg_xact_status` are from PostgreSQL 13.
const OLDEST: i64 = 130_000;

const LOOKING: &str = "reading the schema version";
const UPGRADING: &str = "upgrading the database";

/// The version of the database's schema, if this release can use it; 0 where there is none.
pub(crate) async fn look(conn: &mut PgConnection) -> Result<u32> {
    let (server, encoding, ours, versioned): (i32, String, bool, bool) = sqlx::query_as(
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), \
         EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'atoll'), to_regclass('atoll.version') IS NOT NULL",
    )
    .fetch_one(&mut *conn)
    .await
    .map_err(failed(LOOKING))?;
    if i64::from(server) < OLDEST {
        return Err(unfit("PostgreSQL 13 or newer is needed"));
    }
    if encoding != "UTF8" {
        return Err(unfit("the database's encoding must be UTF8"));
    }
    if !versioned {
        // A schema that an administrator made for a user who may not is empty.
        let full: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
             WHERE n.nspname = 'atoll')",
        )
        .fetch_one(conn)
        .await
        .map_err(failed(LOOKING))?;
        return if ours && full {
            Err(StoreError::Corrupt("its schema atoll belongs to another program".into(), None))
        } else {
            Ok(0)
        };
    }
    let version: i64 = sqlx::query_scalar("SELECT version FROM atoll.version")
        .fetch_one(conn)
        .await
        .map_err(failed(LOOKING))?;
    match u32::try_from(version) {
        Ok(found) if found > SCHEMA_VERSION => Err(StoreError::Newer { found, known: SCHEMA_VERSION }),
        Ok(found) => Ok(found),
        Err(_) => Err(StoreError::Corrupt("the schema version makes no sense".into(), None)),
    }
}

fn unfit(why: &'static str) -> StoreError {
    StoreError::Unavailable(atoll_store::Outage::NoAccess, why.into())
}

/// Brings the schema to this release's version. The caller has the server's lock, so no other does the same.
pub(crate) async fn run(conn: &mut PgConnection) -> Result<()> {
    let found = look(conn).await?;
    for (script, version) in SCRIPTS.iter().zip(1_i64..).skip(found as usize) {
        let mut tx = conn.begin().await.map_err(failed(UPGRADING))?;
        if version == 1 {
            tx.execute("CREATE SCHEMA IF NOT EXISTS atoll").await.map_err(failed(UPGRADING))?;
        }
        tx.execute(*script).await.map_err(failed(UPGRADING))?;
        sqlx::query("UPDATE version SET version = $1")
            .bind(version)
            .execute(&mut *tx)
            .await
            .map_err(failed(UPGRADING))?;
        tx.commit().await.map_err(failed(UPGRADING))?;
    }
    Ok(())
}
