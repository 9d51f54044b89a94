//! Opening: what is made, what is refused, and what the operator is told.

use crate::fixture::{Folder, impatient};
use atoll_store::{
    Change, EventQuery, Events, Inserted, Outage, Sandboxes, Settings, Status, StatusChange, Store,
    StoreError, conformance::sandbox,
};
use atoll_store_sqlite::{SCHEMA_VERSION, SqliteStore};
use atoll_types::Death;
use serde_json::json;
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{error::Error, fs, os::unix::fs::PermissionsExt, path::Path};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A connection of somebody else's.
async fn other(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    SqliteConnection::connect_with(&options).await.unwrap()
}

async fn tell(conn: &mut SqliteConnection, sql: &str) {
    sqlx::raw_sql(sql).execute(conn).await.unwrap();
}

/// What the operator reads, which names no file and no statement.
fn advice(error: &StoreError) -> String {
    let text = error.to_string();
    assert!(!text.contains(".db") && !text.contains("SELECT") && !text.contains("PRAGMA"), "{text}");
    text
}

#[tokio::test]
async fn what_was_written_is_there_after_reopening() {
    let folder = Folder::new();
    let store = folder.open().await;
    let Inserted::New(made) = store.insert_sandbox(sandbox()).await.unwrap() else { panic!() };
    store.close().await;
    assert!(!folder.file().with_extension("db-wal").exists(), "the log is folded in");
    let store = folder.open().await;
    assert_eq!(store.sandbox(made.id).await.unwrap(), Some(made));
    assert_eq!(store.schema_version().await.unwrap(), SCHEMA_VERSION);
    store.check().await.unwrap();
}

#[tokio::test]
async fn nobody_else_may_read_it() {
    let folder = Folder::new();
    let store = folder.open().await;
    store.put_setting("a", json!(1)).await.unwrap();
    for end in ["db", "db-wal", "db-shm"] {
        assert_eq!(mode(&folder.file().with_extension(end)), 0o600, "{end}");
    }
    store.close().await;
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o644)).unwrap();
    folder.open().await;
    assert_eq!(mode(&folder.file()), 0o600);
}

#[tokio::test]
async fn many_may_open_a_new_one_at_once() {
    let folder = Folder::new();
    let opening = (0..8).map(|_| {
        let file = folder.file();
        tokio::spawn(async move { SqliteStore::open(&file).await.map(|_| ()) })
    });
    for task in opening.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_newer_database_is_refused_and_left_alone() {
    let folder = Folder::new();
    folder.open().await.close().await;
    let mut conn = other(&folder.file()).await;
    tell(&mut conn, "PRAGMA user_version = 999").await;
    conn.close().await.unwrap();
    let before = fs::read(folder.file()).unwrap();
    let error = SqliteStore::open(&folder.file()).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 999, known: SCHEMA_VERSION }), "{error:?}");
    assert!(advice(&error).contains("use the release that wrote it"));
    assert_eq!(fs::read(folder.file()).unwrap(), before);
}

#[tokio::test]
async fn a_database_of_the_first_version_is_upgraded() {
    let folder = Folder::new();
    let mut conn = other(&folder.file()).await;
    tell(&mut conn, include_str!("../migrations/0001_start.sql")).await;
    tell(&mut conn, "PRAGMA application_id = 1096044364; PRAGMA user_version = 1").await;
    tell(&mut conn, "INSERT INTO settings (name, value) VALUES ('a', '5')").await;
    conn.close().await.unwrap();
    let error = SqliteStore::open_read_only(&folder.file()).await.unwrap_err();
    assert!(matches!(error, StoreError::Older { found: 1, known: SCHEMA_VERSION }), "{error:?}");
    assert!(advice(&error).contains("start the server once"), "{error}");
    let store = folder.open().await;
    assert_eq!(store.schema_version().await.unwrap(), SCHEMA_VERSION);
    assert_eq!(store.get_setting("a").await.unwrap(), Some(json!(5)));
    store.insert_sandbox(sandbox()).await.unwrap();
    assert_eq!(store.events(&EventQuery::default()).await.unwrap().items.len(), 1);
    store.check().await.unwrap();
}

/// Before version 9 only the sentence of the reason told the causes of a pause apart; before version 22 only it said how a container
/// died, and whether what the image starts was still to be done.
#[tokio::test]
async fn a_status_of_an_older_release_keeps_its_cause() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut made = Vec::new();
    for (status, reason, idle_pause, start_due, death) in [
        (Status::Paused, "idle for 900 seconds", true, false, None),
        (Status::Paused, "paused by request", false, false, None),
        (Status::Stopped, "idle for 900 seconds", false, false, None),
        (Status::Ready, "starting", false, true, None),
        (Status::Dead, "out of memory", false, false, Some(Death::from_wait(None, Some(9), true))),
        (
            Status::Dead,
            "segmentation fault (139)",
            false,
            false,
            Some(Death::from_wait(None, Some(11), false)),
        ),
        (Status::Dead, "killed by signal 6", false, false, Some(Death::from_wait(None, Some(6), false))),
        (Status::Dead, "exited with status 3", false, false, Some(Death::from_wait(Some(3), None, false))),
        (Status::Dead, "gone without a trace", false, false, Some(Death::lost())),
        (Status::Dead, "exited with status x", false, false, None),
    ] {
        let Inserted::New(record) = store.insert_sandbox(sandbox()).await.unwrap() else { panic!() };
        let status = Some(StatusChange::new(status, Some(reason.into())));
        store.update_sandbox(record.id, 1, Change { status, ..Change::default() }).await.unwrap();
        made.push((record.id, idle_pause, start_due, death));
    }
    store.close().await;
    let mut conn = other(&folder.file()).await;
    tell(&mut conn, "DROP TABLE attachments; DROP TABLE volumes; DROP TABLE skills").await;
    tell(
        &mut conn,
        "DROP TABLE preview_tokens; DROP TABLE console_sessions; DROP TABLE conversation_items; DROP TABLE conversation_runs; DROP TABLE conversation_checkpoints; \
         DROP TABLE conversation_messages; DROP TABLE conversations; DROP TABLE assistant_versions; DROP TABLE assistants; ",
    )
    .await;
    tell(
        &mut conn,
        "DROP TABLE build_steps; DROP TABLE image_uses; DROP TABLE image_tags; DROP TABLE images; DROP TABLE image_builds",
    )
    .await;
    let older = "ALTER TABLE sandboxes DROP COLUMN idle_pause; ALTER TABLE sandboxes DROP COLUMN death; ALTER TABLE sandboxes DROP COLUMN start_due; DROP TABLE snapshots; DROP TABLE audit_files; \
                 ALTER TABLE sandboxes DROP COLUMN auto_snapshot; ALTER TABLE sandboxes DROP COLUMN skills; PRAGMA user_version = 8";
    tell(&mut conn, older).await;
    conn.close().await.unwrap();
    let store = folder.open().await;
    for (id, idle_pause, start_due, death) in made {
        let record = store.sandbox(id).await.unwrap().unwrap();
        assert_eq!((record.idle_pause, record.start_due, record.death), (idle_pause, start_due, death));
    }
}

#[tokio::test]
async fn reading_only_changes_nothing_and_sees_what_is_written_meanwhile() {
    let folder = Folder::new();
    let store = folder.open().await;
    store.put_setting("a", json!(1)).await.unwrap();
    let reader = SqliteStore::open_read_only(&folder.file()).await.unwrap();
    assert_eq!(reader.get_setting("a").await.unwrap(), Some(json!(1)));
    store.put_setting("a", json!(2)).await.unwrap();
    assert_eq!(reader.get_setting("a").await.unwrap(), Some(json!(2)));
    let error = reader.put_setting("a", json!(3)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(Outage::NoAccess, _)), "{error:?}");
    reader.close().await;
    store.close().await;
    let before = fs::read(folder.file()).unwrap();
    let reader = SqliteStore::open_read_only(&folder.file()).await.unwrap();
    assert_eq!(reader.get_setting("a").await.unwrap(), Some(json!(2)));
    reader.close().await;
    assert_eq!(fs::read(folder.file()).unwrap(), before);
    let missing = folder.file().with_extension("other");
    assert!(SqliteStore::open_read_only(&missing).await.is_err());
    assert!(!missing.exists(), "nothing is made");
}

#[tokio::test]
async fn another_programs_database_is_refused_and_left_alone() {
    let folder = Folder::new();
    let mut conn = other(&folder.file()).await;
    tell(&mut conn, "CREATE TABLE bookmarks (url TEXT)").await;
    conn.close().await.unwrap();
    let before = fs::read(folder.file()).unwrap();
    let error = SqliteStore::open(&folder.file()).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(..)), "{error:?}");
    assert!(advice(&error).contains("another program"));
    assert_eq!(fs::read(folder.file()).unwrap(), before);
}

#[tokio::test]
async fn a_damaged_file_says_what_to_do() {
    let folder = Folder::new();
    let store = folder.open().await;
    for _ in 0..50 {
        store.insert_sandbox(sandbox()).await.unwrap();
    }
    store.close().await;
    let whole = fs::read(folder.file()).unwrap();
    let garbage = vec![b'x'; 20_000];
    for bytes in [&garbage[..], &whole[..whole.len() / 2 / 4096 * 4096]] {
        fs::write(folder.file(), bytes).unwrap();
        let error = SqliteStore::open(&folder.file()).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt(_, Some(_))), "{error:?}");
        assert!(advice(&error).contains("restore a backup"), "{error}");
        assert!(error.source().is_some());
    }
    // The first page is whole, the others are not.
    let mut half = whole.clone();
    half[4096 * 4..].fill(0xff);
    fs::write(folder.file(), half).unwrap();
    let error = match SqliteStore::open(&folder.file()).await {
        Ok(store) => store.check().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Corrupt(..)), "{error:?}");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_damage() {
    let folder = Folder::new();
    let store = folder.open().await;
    let new = sandbox();
    let id = new.id;
    store.insert_sandbox(new).await.unwrap();
    let mut conn = other(&folder.file()).await;
    tell(&mut conn, "UPDATE sandboxes SET profile = '{}'").await;
    let error = store.sandbox(id).await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt(what, Some(_)) if what.contains("profile")), "{error:?}");
    tell(&mut conn, "UPDATE sandboxes SET status = 'asleep'").await;
    let error = store.sandbox(id).await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt(what, None) if what.contains("status")), "{error:?}");
}

#[tokio::test]
async fn a_locked_database_says_what_to_do() {
    let folder = Folder::new();
    let store = SqliteStore::open_with(&folder.file(), impatient()).await.unwrap();
    let mut conn = other(&folder.file()).await;
    tell(&mut conn, "BEGIN IMMEDIATE").await;
    let error = store.put_setting("a", json!(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(Outage::Busy, _)), "{error:?}");
    assert!(advice(&error).contains("stop the other program"), "{error}");
    assert_eq!(store.get_setting("a").await.unwrap(), None, "reading goes on");
    tell(&mut conn, "ROLLBACK").await;
    store.put_setting("a", json!(1)).await.unwrap();
    store.close().await;

    tell(&mut conn, "PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; DELETE FROM settings; COMMIT").await;
    let error = SqliteStore::open_with(&folder.file(), impatient()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(Outage::Busy, _)), "{error:?}");
}

#[tokio::test]
async fn a_folder_that_is_not_there_says_what_to_do() {
    let folder = Folder::new();
    let missing = folder.file().join("no/such.db");
    let error = SqliteStore::open(&missing).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(Outage::NoAccess, _)), "{error:?}");
    assert!(advice(&error).contains("check that its folder exists"), "{error}");
}
