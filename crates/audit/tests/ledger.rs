//! Who writes, in which order, and what becomes of those who go away.

use crate::fixture::{Folder, done, exec, key, sound};
use atoll_audit::{Ledger, OperationGuard};
use atoll_store::{
    Activity, ActivityKind, Audits, EventKind, EventQuery, Events, NewEvent, OperationId, OperationQuery,
    Outcome, SandboxId, StoreError,
};
use atoll_store_sqlite::SqliteStore;
use atoll_types::ErrorCode;
use std::{sync::Arc, time::Duration};

#[tokio::test]
async fn an_operation_is_written_before_and_after() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let operation = trail.ledger.start(exec("ls")).await.unwrap();
    let id = operation.id();
    assert_eq!(trail.store.audit_operation(id).await.unwrap().unwrap().end, None);
    let event = NewEvent {
        at: 5,
        owner: "ada".into(),
        sandbox: None,
        kind: EventKind::ExecEnded,
        reason: None,
        data: "{}".into(),
    };
    let activity = Activity {
        sandbox: SandboxId::random(),
        kind: ActivityKind::Exec,
        at: 5,
        detail: "ls".into(),
        exit_code: Some(0),
        duration_ms: Some(1),
        bytes: None,
    };
    operation.end(done(), vec![activity], vec![event.clone()]).await.unwrap();
    let found = trail.store.audit_operation(id).await.unwrap().unwrap();
    assert_eq!(found.end.unwrap().facts, done());
    assert_eq!(trail.store.events(&EventQuery::default()).await.unwrap().items[0].event, event);
    let again = trail.ledger.end(id, done(), vec![], vec![]).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::Conflict);
    let unknown = trail.ledger.end(OperationId::random(), done(), vec![], vec![]).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::Conflict);
    trail.close().await;
    assert_eq!(sound(folder.verify().await).last, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_writers_make_one_chain() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let writers: Vec<_> = (0..50)
        .map(|writer| {
            let ledger = trail.ledger.clone();
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for n in 0..20 {
                    let operation = ledger.start(exec(&format!("{writer} {n}"))).await.unwrap();
                    ids.push(operation.id());
                    operation.end(done(), vec![], vec![]).await.unwrap();
                }
                ids
            })
        })
        .collect();
    let mut own = Vec::new();
    for writer in writers {
        own.push(writer.await.unwrap());
    }
    // Each writer's operations are in the order in which it asked for them.
    for ids in own {
        let mut last = 0;
        for id in ids {
            let operation = trail.store.audit_operation(id).await.unwrap().unwrap();
            assert!(operation.seq > last && operation.end.as_ref().unwrap().seq > operation.seq);
            last = operation.end.unwrap().seq;
        }
    }
    trail.close().await;
    let report = sound(folder.verify().await);
    assert_eq!((report.last, report.operations, report.open), (2001, 1000, 0));
}

#[tokio::test]
async fn what_is_asked_at_once_is_written_in_its_order() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let starts = (0..600).map(|n| {
        let ledger = trail.ledger.clone();
        async move { ledger.start(exec(&n.to_string())).await.unwrap() }
    });
    let all: Vec<OperationGuard> = futures(starts).await;
    let order: Vec<u64> = {
        let mut seqs = Vec::new();
        for operation in &all {
            seqs.push(trail.store.audit_operation(operation.id()).await.unwrap().unwrap().seq);
        }
        seqs
    };
    assert_eq!(order, (2..602).collect::<Vec<_>>());
    let batches = trail.store.audit_rows(2, 600).await.unwrap();
    let facts = |at: usize| atoll_store::Decoded::facts(&batches[at].facts).unwrap();
    assert!(facts(300).batch < facts(300).seq, "several went into one transaction");
    for operation in all {
        operation.end(done(), vec![], vec![]).await.unwrap();
    }
    trail.close().await;
    sound(folder.verify().await);
}

/// All of them at once, polled in their order.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        for (one, done) in waiting.iter_mut().filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = one.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        if waiting.iter().all(|(_, done)| done.is_some()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    waiting.into_iter().filter_map(|(_, done)| done).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_away_leaves_nothing_open() {
    let folder = Folder::new();
    let trail = folder.open().await;
    for n in 0..300 {
        let patience = Duration::from_micros(n * 3);
        let ledger = trail.ledger.clone();
        let _ = tokio::time::timeout(patience, async move {
            let operation = ledger.start(exec(&n.to_string())).await.unwrap();
            tokio::time::sleep(Duration::from_micros(200)).await;
            operation.end(done(), vec![], vec![]).await.unwrap();
        })
        .await;
    }
    trail.close().await;
    let report = sound(folder.verify().await);
    assert_eq!(report.open, 0);
    assert!(report.operations > 0);
    let trail = folder.open().await;
    assert_eq!(trail.opened.open, vec![]);
    let cancelled = OperationQuery { outcome: Some(Outcome::Failed), ..OperationQuery::default() };
    let cancelled = trail.store.audit_operations(&cancelled).await.unwrap();
    let end = cancelled[0].end.clone().unwrap().facts;
    assert_eq!(end.error.unwrap().code, "cancelled");
}

#[tokio::test]
async fn an_end_whose_future_is_dropped_is_written_all_the_same() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let operation = trail.ledger.start(exec("ls")).await.unwrap();
    let id = operation.id();
    // Never polled.
    drop(operation.end(done(), vec![], vec![]));
    trail.ledger.close().await;
    let found = trail.store.audit_operation(id).await.unwrap().unwrap();
    assert_eq!(found.end.unwrap().facts.outcome, Outcome::Ok);
    let refused = trail.ledger.start(exec("ls")).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable);
}

#[tokio::test]
async fn what_the_server_left_is_swept_but_for_what_lives() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let mut ids = Vec::new();
    for n in 0..700 {
        ids.push(trail.ledger.begin(exec(&n.to_string())).await.unwrap());
    }
    trail.close().await;
    let trail = folder.open().await;
    assert_eq!(trail.opened.open, ids);
    let young = trail.ledger.begin(exec("young")).await.unwrap();
    // It ends by itself before the sweep.
    trail.ledger.end(ids[1], done(), vec![], vec![]).await.unwrap();
    assert_eq!(trail.ledger.sweep(&[ids[0]]).await.unwrap(), 698);
    assert_eq!(trail.ledger.sweep(&[]).await.unwrap(), 1, "it lives no more");
    assert_eq!(trail.ledger.sweep(&[]).await.unwrap(), 0);
    let open: Vec<_> = trail.store.open_operations(0, 9).await.unwrap().iter().map(|open| open.id).collect();
    assert_eq!(open, [young]);
    let lost = trail.store.audit_operation(ids[5]).await.unwrap().unwrap().end.unwrap().facts;
    assert_eq!((lost.outcome, lost.error.unwrap().code), (Outcome::Lost, "lost".into()));
    trail.close().await;
    sound(folder.verify().await);
}

#[tokio::test]
async fn what_cannot_be_written_is_refused_and_ends_are_kept() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let operation = trail.ledger.start(exec("ls")).await.unwrap();
    let id = operation.id();
    // Somebody holds the database for longer than anybody waits.
    folder.tamper("PRAGMA user_version").await;
    let options =
        atoll_store_sqlite::Options { busy_timeout: Duration::from_millis(50), ..Default::default() };
    let impatient = SqliteStore::open_with(&folder.database(), options).await.unwrap();
    drop(trail.ledger);
    trail.store.close().await;
    let (ledger, _) = Ledger::open(Arc::new(impatient.clone()), key(), &folder.head()).await.unwrap();
    let mut lock = {
        use sqlx::Connection;
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.database());
        sqlx::SqliteConnection::connect_with(&options).await.unwrap()
    };
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut lock).await.unwrap();
    let refused = ledger.start(exec("rm")).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert!(refused.message.contains("nothing is done"), "{refused}");
    assert!(ledger.end(id, done(), vec![], vec![]).await.is_err());
    sqlx::raw_sql("ROLLBACK").execute(&mut lock).await.unwrap();
    // The end is written with whatever comes next.
    ledger.begin(exec("ls")).await.unwrap();
    assert_eq!(impatient.audit_operation(id).await.unwrap().unwrap().end.unwrap().facts, done());
    ledger.close().await;
    impatient.close().await;
    let report = sound(folder.verify().await);
    assert_eq!((report.operations, report.open), (2, 1));
}

#[tokio::test]
async fn another_writer_ends_the_ledger_and_not_the_chain() {
    let folder = Folder::new();
    let trail = folder.open().await;
    let (other, _) = Ledger::open(Arc::new(trail.store.clone()), key(), &folder.head()).await.unwrap();
    let begun = other.begin(exec("first")).await.unwrap();
    for _ in 0..2 {
        let refused = trail.ledger.start(exec("second")).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Unavailable);
    }
    other.end(begun, done(), vec![], vec![]).await.unwrap();
    other.close().await;
    // Nor does it touch the head, whatever it does last.
    trail.ledger.close().await;
    assert_eq!(sound(folder.verify().await).operations, 1);
}

#[tokio::test]
async fn a_store_that_only_reads_writes_nothing() {
    let folder = Folder::new();
    folder.filled(1).await;
    let store = SqliteStore::open_read_only(&folder.database()).await.unwrap();
    let refused = store.append_events(vec![]).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(..)), "{refused:?}");
    assert!(Ledger::open(Arc::new(store), key(), &folder.path().join("other.head")).await.is_err());
    let missing = SqliteStore::open_read_only(&folder.path().join("no.db")).await;
    assert!(missing.is_err() && !folder.path().join("no.db").exists());
}
