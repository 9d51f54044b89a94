//! Opening: what is made, what is refused, and what the operator is told. And who may have it open.

use crate::{
    cluster,
    fixture::{Folder, impatient},
};
use atoll_store::{
    Change, EventKind, EventQuery, Events, Inserted, NewEvent, Outage, Sandboxes, Settings, Status,
    StatusChange, Store, StoreError, conformance::sandbox,
};
use atoll_store_postgres::{Address, PostgresStore, SCHEMA_VERSION};
use atoll_types::Death;
use serde_json::json;
use std::error::Error;

/// What the operator reads, which names no statement.
fn advice(error: &StoreError) -> String {
    let text = error.to_string();
    assert!(!text.contains("SELECT") && !text.contains("postgres://"), "{text}");
    text
}

fn is_outage<T: std::fmt::Debug>(result: Result<T, StoreError>, outage: Outage) -> String {
    match result {
        Err(StoreError::Unavailable(is, source)) if is == outage => source.to_string(),
        other => panic!("{outage:?} expected: {other:?}"),
    }
}

#[tokio::test]
async fn what_was_written_is_there_after_reopening() {
    let folder = Folder::new();
    let store = folder.open().await;
    let Inserted::New(made) = store.insert_sandbox(sandbox()).await.unwrap() else { panic!() };
    store.close().await;
    is_outage(store.sandbox(made.id).await, Outage::NoAccess);
    is_outage(store.put_setting("a", json!(1)).await, Outage::NoAccess);
    let store = folder.open().await;
    assert_eq!(store.sandbox(made.id).await.unwrap(), Some(made));
    assert_eq!(store.schema_version().await.unwrap(), SCHEMA_VERSION);
}

#[tokio::test]
async fn a_second_server_is_told_who_has_the_database() {
    let folder = Folder::new();
    let store = folder.open().await;
    assert!(PostgresStore::is_served(&folder.address()).await.unwrap());
    let refused = PostgresStore::open_with(&folder.address(), impatient()).await;
    let who = is_outage(refused.map(drop), Outage::Busy);
    assert!(who.contains(&format!("process {} on ", std::process::id())), "{who}");
    // A reader needs no lock, and writes nothing.
    let reader = PostgresStore::open_read_only(&folder.address()).await.unwrap();
    assert_eq!(reader.get_setting("a").await.unwrap(), None);
    is_outage(reader.put_setting("a", json!(1)).await, Outage::NoAccess);
    store.close().await;
    assert!(!PostgresStore::is_served(&folder.address()).await.unwrap());
    folder.open().await;
}

#[tokio::test]
async fn a_database_that_is_dropped_without_a_word_is_free() {
    let folder = Folder::new();
    drop(folder.open().await);
    folder.open().await;
}

#[tokio::test]
async fn one_that_waits_gets_the_database_of_one_that_ends() {
    let folder = Folder::new();
    let store = folder.open().await;
    let address = folder.address();
    let waiting = tokio::spawn(async move { PostgresStore::open(&address).await.map(drop) });
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    store.close().await;
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_newer_database_is_refused_and_left_alone() {
    let folder = Folder::new();
    folder.open().await.close().await;
    folder.tell("UPDATE atoll.version SET version = 999");
    for error in [
        PostgresStore::open(&folder.address()).await.unwrap_err(),
        PostgresStore::open_read_only(&folder.address()).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Newer { found: 999, known: SCHEMA_VERSION }), "{error:?}");
        assert!(advice(&error).contains("use the release that wrote it"));
    }
    assert_eq!(folder.tell("SELECT version FROM atoll.version"), "999");
}

/// Before version 3 only the sentence of the reason said how a container died, and whether what the image starts was still to be done.
#[tokio::test]
async fn a_status_of_an_older_release_keeps_its_cause() {
    let folder = Folder::new();
    let store = folder.open().await;
    let mut made = Vec::new();
    for (status, reason, start_due, death) in [
        (Status::Ready, "starting", true, None),
        (Status::Dead, "out of memory", false, Some(Death::from_wait(None, Some(9), true))),
        (Status::Dead, "killed by signal 6", false, Some(Death::from_wait(None, Some(6), false))),
        (Status::Dead, "exited with status 3", false, Some(Death::from_wait(Some(3), None, false))),
        (Status::Dead, "exited with status x", false, None),
    ] {
        let Inserted::New(record) = store.insert_sandbox(sandbox()).await.unwrap() else { panic!() };
        let status = Some(StatusChange::new(status, Some(reason.into())));
        store.update_sandbox(record.id, 1, Change { status, ..Change::default() }).await.unwrap();
        made.push((record.id, start_due, death));
    }
    store.close().await;
    folder.tell(
        "ALTER TABLE atoll.sandboxes DROP COLUMN death; ALTER TABLE atoll.sandboxes DROP COLUMN start_due; \
         UPDATE atoll.version SET version = 2",
    );
    let store = folder.open().await;
    for (id, start_due, death) in made {
        let record = store.sandbox(id).await.unwrap().unwrap();
        assert_eq!((record.start_due, record.death), (start_due, death));
    }
}

#[tokio::test]
async fn what_is_no_database_of_ours_is_refused() {
    let folder = Folder::new();
    let error = PostgresStore::open_read_only(&folder.address()).await.unwrap_err();
    assert!(matches!(error, StoreError::Older { found: 0, known: SCHEMA_VERSION }), "{error:?}");
    folder.tell("CREATE SCHEMA atoll; CREATE TABLE atoll.islands (name text)");
    let error = PostgresStore::open(&folder.address()).await.unwrap_err();
    assert!(advice(&error).contains("belongs to another program"), "{error:?}");
    assert_eq!(folder.tell("SELECT count(*) FROM pg_tables WHERE schemaname = 'atoll'"), "1");
    // An empty one was made by an administrator for a user who may not; tables in other schemas are not ours.
    folder.tell("DROP TABLE atoll.islands; CREATE TABLE public.islands (name text)");
    folder.open().await;
}

#[tokio::test]
async fn an_address_that_leads_nowhere_is_said() {
    let folder = Folder::new();
    let at = |url: String| async move {
        PostgresStore::open(&Address::parse(&url, None).unwrap()).await.map(drop)
    };
    is_outage(at(cluster::shared().url("no_such_database")).await, Outage::NoAccess);
    is_outage(at("postgres://postgres@localhost/x?host=/no/such/folder".to_owned()).await, Outage::Failing);
    let error = at("postgres://ann:hush@127.0.0.1:1/x".to_owned()).await.unwrap_err();
    assert!(!format!("{error:?} {error} {:?}", error.source()).contains("hush"));
    drop(folder);
}

#[tokio::test]
async fn a_letter_that_the_database_refuses_is_kept() {
    let folder = Folder::new();
    let store = folder.open().await;
    let texts = ["a\0b", "\u{1}\u{2}\u{2}", "\u{1}", "\u{3}\0\u{2}\u{1}", "plain"];
    let event = |text: &&str| NewEvent {
        at: 0,
        owner: (*text).to_owned(),
        sandbox: None,
        kind: EventKind::Created,
        reason: Some((*text).to_owned()),
        data: "{}".into(),
    };
    store.append_events(texts.iter().map(event).collect()).await.unwrap();
    for text in texts {
        let query = EventQuery { owner: Some(text.to_owned()), limit: 9, ..EventQuery::default() };
        let found = store.events(&query).await.unwrap().items;
        let reasons: Vec<_> = found.into_iter().filter_map(|row| row.event.reason).collect();
        assert_eq!(reasons, [text]);
    }
}
