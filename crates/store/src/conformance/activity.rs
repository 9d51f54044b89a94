//! Activities, and their counters.

use super::{CROWD, Failure, NOW, Outcome, Shared, add, crowd, ensure, read, same, sandbox};
use crate::{
    ACTIVITIES_KEPT, Activity, ActivityEntry, ActivityKind, DETAIL_BYTES, ListQuery, SandboxId,
    SandboxRecord, StoreError, Thing,
};
use std::time::Duration;

fn of(sandbox: SandboxId, kind: ActivityKind) -> Activity {
    Activity {
        sandbox,
        kind,
        at: NOW + 5,
        detail: "ls -l".into(),
        exit_code: Some(-1),
        duration_ms: Some(20),
        bytes: Some(300),
    }
}

pub(super) async fn an_activity_is_listed_and_counted(store: Shared) -> Outcome {
    let mut wanted = add(&store, sandbox()).await?;
    let other = add(&store, sandbox()).await?;
    let mut entries = Vec::new();
    for (kind, number) in ActivityKind::ALL.iter().zip(1..) {
        let activity = of(wanted.id, *kind);
        store.record_activity(activity.clone()).await?;
        entries.insert(0, ActivityEntry { number, activity });
    }
    let bare = Activity {
        exit_code: None,
        duration_ms: None,
        bytes: None,
        at: NOW - 5,
        ..of(wanted.id, ActivityKind::Exec)
    };
    store.record_activity(bare.clone()).await?;
    entries.insert(0, ActivityEntry { number: 1 + ActivityKind::ALL.len() as u64, activity: bare });
    same("the entries", store.activities(wanted.id, 100, None).await?, entries)?;
    wanted = SandboxRecord {
        exec_count: 2,
        exec_total_ms: 20,
        bytes_uploaded: 300,
        bytes_downloaded: 300,
        last_activity_at: NOW + 5,
        ..wanted
    };
    same("the record", read(&store, wanted.id).await?, wanted)?;
    same("another's entries", store.activities(other.id, 100, None).await?, vec![])?;
    same("another's record", read(&store, other.id).await?, other)
}

pub(super) async fn activities_page_backwards(store: Shared) -> Outcome {
    let id = add(&store, sandbox()).await?.id;
    for _ in 0..10 {
        // All at the same moment: only the number distinguishes them.
        store.record_activity(of(id, ActivityKind::Exec)).await?;
    }
    let numbers = async |limit, before| {
        let entries = store.activities(id, limit, before).await?;
        Ok::<_, StoreError>(entries.iter().map(|entry| entry.number).collect::<Vec<_>>())
    };
    same("the first page", numbers(4, None).await?, vec![10, 9, 8, 7])?;
    same("the second", numbers(4, Some(7)).await?, vec![6, 5, 4, 3])?;
    same("the last", numbers(4, Some(3)).await?, vec![2, 1])?;
    same("none", numbers(0, None).await?, vec![])?;
    same("past the end", numbers(4, Some(1)).await?, vec![])?;
    same("from far", numbers(1, Some(u64::MAX)).await?, vec![10])
}

pub(super) async fn the_last_ones_are_kept(store: Shared) -> Outcome {
    let id = add(&store, sandbox()).await?.id;
    let other = add(&store, sandbox()).await?.id;
    store.record_activity(of(other, ActivityKind::Start)).await?;
    for _ in 0..ACTIVITIES_KEPT + 3 {
        store.record_activity(of(id, ActivityKind::Exec)).await?;
    }
    let kept = store.activities(id, u32::MAX, None).await?;
    same("how many", kept.len() as u64, ACTIVITIES_KEPT)?;
    same("the oldest", kept.last().map(|entry| entry.number), Some(4))?;
    same("the counter", read(&store, id).await?.exec_count, ACTIVITIES_KEPT + 3)?;
    same("another's", store.activities(other, 10, None).await?.len(), 1)
}

pub(super) async fn a_detail_is_cut_between_letters(store: Shared) -> Outcome {
    let id = add(&store, sandbox()).await?.id;
    let long = format!("x{}", "é".repeat(DETAIL_BYTES));
    store.record_activity(Activity { detail: long.clone(), ..of(id, ActivityKind::Exec) }).await?;
    let kept = store.activities(id, 1, None).await?.remove(0).activity.detail;
    same("its length", kept.len(), DETAIL_BYTES - 1)?;
    ensure(long.starts_with(&kept), || "it is not the beginning".into())?;
    // A counter that overflows must not break the next one.
    for _ in 0..3 {
        let huge =
            Activity { duration_ms: Some(u64::MAX), bytes: Some(u64::MAX), ..of(id, ActivityKind::Exec) };
        store.record_activity(huge.clone()).await?;
        store.record_activity(Activity { kind: ActivityKind::Upload, ..huge }).await?;
    }
    let record = read(&store, id).await?;
    same("the count", record.exec_count, 4)?;
    ensure(record.bytes_uploaded >= 1 << 62, || format!("{} bytes", record.bytes_uploaded))
}

pub(super) async fn an_activity_of_nobody_leaves_nothing(store: Shared) -> Outcome {
    let nobody = SandboxId::random();
    let got = store.record_activity(of(nobody, ActivityKind::Exec)).await;
    ensure(matches!(got, Err(StoreError::NotFound(Thing::Sandbox))), || format!("got {got:?}"))?;
    same("entries", store.activities(nobody, 10, None).await?, vec![])
}

pub(super) async fn many_activities_at_once_all_count(store: Shared) -> Outcome {
    let id = add(&store, sandbox()).await?.id;
    let each = 5;
    let all = crowd(|_| {
        let store = store.clone();
        async move {
            for _ in 0..each {
                store.record_activity(of(id, ActivityKind::Exec)).await?;
            }
            Ok::<_, StoreError>(())
        }
    })
    .await?;
    all.into_iter().collect::<Result<Vec<_>, _>>()?;
    let wanted = (CROWD * each) as u64;
    let record = read(&store, id).await?;
    same("counters", (record.exec_count, record.exec_total_ms), (wanted, wanted * 20))?;
    let numbers = store.activities(id, u32::MAX, None).await?.into_iter().map(|entry| entry.number);
    same("numbers", numbers.collect(), (1..=wanted).rev().collect::<Vec<_>>())
}

async fn read_once(store: Shared, id: SandboxId) -> Result<SandboxRecord, Failure> {
    read(&store, id).await
}

pub(super) async fn a_dropped_call_happens_wholly_or_not_at_all(store: Shared) -> Outcome {
    let id = add(&store, sandbox()).await?.id;
    for number in 0..200 {
        let patience = Duration::from_micros(number * 5);
        let call = store.record_activity(of(id, ActivityKind::Exec));
        let _ = tokio::time::timeout(patience, call).await;
        let _ = tokio::time::timeout(patience, store.list_sandboxes(&ListQuery::default())).await;
        let _ = tokio::time::timeout(patience, store.sandbox(id)).await;
    }
    // Nor does it keep a connection from the next one.
    for found in crowd(|_| read_once(store.clone(), id)).await? {
        found?;
    }
    store.record_activity(of(id, ActivityKind::Exec)).await?;
    let (record, entries) = (read(&store, id).await?, store.activities(id, u32::MAX, None).await?);
    same("the counter and the entries", record.exec_count, entries.len() as u64)?;
    same("the time and the entries", record.exec_total_ms, entries.len() as u64 * 20)
}
