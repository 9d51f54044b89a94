//! Connections are cut, the server of the database is restarted, its disk is full. A call that succeeded has written what
//! it says, and one that failed has written nothing.

use crate::{
    cluster::{self, Cluster},
    fixture::{Folder, address, impatient},
};
use atoll_store::{
    EventKind, EventQuery, Events, ListQuery, NewEvent, NewSandbox, Outage, Sandboxes, Sealed, Settings,
    StoreError, conformance::sandbox,
};
use atoll_store_postgres::{Address, PostgresStore};
use serde_json::json;
use std::{
    collections::BTreeSet,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

fn event(number: u64) -> NewEvent {
    let (owner, kind) = ("o".to_owned(), EventKind::Created);
    NewEvent { at: 0, owner, sandbox: None, kind, reason: None, data: json!({ "n": number }).to_string() }
}

/// Which of the numbered events are there; none is there twice.
async fn found(store: &PostgresStore) -> BTreeSet<u64> {
    let (mut after, mut all) = (0, BTreeSet::new());
    loop {
        let query = EventQuery { after: Some(after), limit: 500, ..EventQuery::default() };
        let page = store.events(&query).await.unwrap();
        let Some(last) = page.items.last() else { return all };
        after = last.id;
        for row in page.items {
            let data: serde_json::Value = serde_json::from_str(&row.event.data).unwrap();
            assert!(all.insert(data["n"].as_u64().unwrap()), "it was written twice: {data}");
        }
    }
}

/// Writes numbered events on several tasks until it is told to end; which calls succeeded, and which did not.
async fn write(store: PostgresStore, end: Arc<AtomicBool>) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let tasks = (0..4_u64).map(|task| {
        let (store, end) = (store.clone(), Arc::clone(&end));
        tokio::spawn(async move {
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            let mut number = task << 32;
            while !end.load(Ordering::Relaxed) {
                number += 1;
                match store.append_events(vec![event(number)]).await {
                    Ok(()) => done.push(number),
                    Err(StoreError::Unavailable(..)) => {
                        failed.push(number);
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Err(other) => panic!("{other:?}"),
                }
            }
            (done, failed)
        })
    });
    let (mut done, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for task in tasks.collect::<Vec<_>>() {
        let (some, others) = task.await.unwrap();
        done.extend(some);
        failed.extend(others);
    }
    (done, failed)
}

/// Waits until the store works again.
async fn works(store: &PostgresStore) {
    let begun = Instant::now();
    while store.put_setting("works", json!(true)).await.is_err() || store.get_setting("works").await.is_err()
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const CUT: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
/// That of the lock alone.
const CUT_THE_LOCK: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' \
                            AND objsubid = 1 AND objid = 1 AND granted \
                            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cut_connections_lose_nothing_and_double_nothing() {
    let folder = Folder::new();
    let store = folder.open().await;
    let end = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(store.clone(), Arc::clone(&end)));
    let database = folder.database.clone();
    tokio::task::spawn_blocking(move || {
        for round in 0..12 {
            std::thread::sleep(Duration::from_millis(40 + 7 * round));
            cluster::shared().tell(&database, CUT);
        }
    })
    .await
    .unwrap();
    works(&store).await;
    end.store(true, Ordering::Relaxed);
    let (done, failed) = writing.await.unwrap();
    let found = found(&store).await;
    assert!(!done.is_empty());
    assert_eq!(found, done, "what succeeded is there, and nothing else; {} failed", failed.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restarted_database_loses_nothing_and_doubles_nothing() {
    let cluster = Arc::new(Cluster::alone());
    let url = cluster.url(&cluster.database());
    let store = PostgresStore::open(&Address::parse(&url, None).unwrap()).await.unwrap();
    let end = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(store.clone(), Arc::clone(&end)));
    let restarted = Arc::clone(&cluster);
    tokio::task::spawn_blocking(move || {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(300));
            restarted.kill();
            restarted.start();
        }
    })
    .await
    .unwrap();
    works(&store).await;
    end.store(true, Ordering::Relaxed);
    let (done, failed) = writing.await.unwrap();
    assert!(!done.is_empty() && !failed.is_empty());
    assert_eq!(found(&store).await, done);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_lock_was_taken_writes_nothing_more() {
    let folder = Folder::new();
    let old = folder.open().await;
    old.put_setting("a", json!("old")).await.unwrap();
    let address = folder.address();
    let opening = tokio::spawn(async move { PostgresStore::open(&address).await.unwrap() });
    // It waits for the lock by now, and tries more often than the old one watches its own.
    let begun = Instant::now();
    while !opening.is_finished() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if begun.elapsed() > Duration::from_millis(400) {
            folder.tell(CUT_THE_LOCK);
        }
    }
    let new = opening.await.unwrap();
    let refused = old.put_setting("a", json!("late")).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(..))), "{refused:?}");
    new.put_setting("a", json!("new")).await.unwrap();
    // For good, also once its connections are made anew.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let refused = old.put_setting("a", json!("later")).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(Outage::Busy, _))), "{refused:?}");
    assert!(matches!(old.get_setting("a").await, Err(StoreError::Unavailable(Outage::Busy, _))));
    assert_eq!(new.get_setting("a").await.unwrap(), Some(json!("new")));
}

#[tokio::test]
async fn a_lost_lock_closes_the_store_until_it_is_back() {
    let folder = Folder::new();
    let store = PostgresStore::open_with(&folder.address(), impatient()).await.unwrap();
    // Another session of the database has the lock: nothing may be done, though every other connection lives.
    folder.tell(CUT_THE_LOCK);
    let thief = {
        let database = folder.database.clone();
        tokio::task::spawn_blocking(move || {
            let sql = format!("SELECT pg_advisory_lock({}); SELECT pg_sleep(4)", 0x4154_4f4c_0000_0001_i64);
            cluster::shared().tell(&database, &sql)
        })
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    let refused = store.get_setting("a").await;
    if !thief.is_finished() {
        // Unless the store was the faster one.
        let held = folder.tell("SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid) \
                                WHERE l.locktype = 'advisory' AND l.granted AND l.objid = 1 AND a.application_name = 'psql' \
                                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())");
        assert!(
            held == "0" || matches!(refused, Err(StoreError::Unavailable(Outage::Failing, _))),
            "{refused:?}"
        );
    }
    thief.await.unwrap();
    works(&store).await;
}

fn large() -> NewSandbox {
    NewSandbox {
        environment: Sealed((0..40_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()),
        ..sandbox()
    }
}

#[tokio::test]
async fn a_full_disk_is_said_and_survived() {
    let cluster = Cluster::alone();
    let Some(small) = cluster.small_disk() else {
        eprintln!("left out: no right to mount a small disk here");
        return;
    };
    let ballast = small.join("ballast");
    std::fs::write(&ballast, vec![0; 2_000_000]).unwrap();
    cluster
        .tell("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", small.join("space").display()));
    cluster.tell("postgres", "CREATE DATABASE brim TEMPLATE template0 TABLESPACE small");
    let store = PostgresStore::open(&Address::parse(&cluster.url("brim"), None).unwrap()).await.unwrap();
    let mut made = 0;
    let error = loop {
        match store.insert_sandbox(large()).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Unavailable(Outage::DiskFull, _)), "{error:?}");
    assert!(made > 5);
    let count = async || store.list_sandboxes(&ListQuery::default()).await.unwrap().total;
    assert_eq!(count().await, made, "what did not fit is not there");
    std::fs::remove_file(ballast).unwrap();
    store.insert_sandbox(large()).await.unwrap();
    assert_eq!(count().await, made + 1);
    store.close().await;
}

const OTHER: &str = "ATOLL_STORE_TEST_CRASH";

/// The process that is killed; nothing when run by itself.
#[tokio::test]
async fn the_other_process() {
    let Ok(database) = std::env::var(OTHER) else { return };
    let store = PostgresStore::open(&address(&database)).await.unwrap();
    for number in 1.. {
        store.append_events(vec![event(number)]).await.unwrap();
        println!("event {number}");
    }
}

#[tokio::test]
async fn a_killed_server_loses_nothing_and_gives_the_database_free() {
    use std::{
        io::{BufRead, BufReader},
        process::Stdio,
    };
    let folder = Folder::new();
    let mut other: Command = crate::fixture::again("outages::the_other_process", OTHER, &folder.database);
    let mut child = other.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told =
        lines.filter_map(|line| line.strip_prefix("event ")?.parse::<u64>().ok()).take(40).last().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let store = folder.open().await;
    assert!(found(&store).await.is_superset(&(1..=told).collect()));
}
