//! Events.

use super::{NOW, Outcome, Shared, add, clashes, ensure, same, sandbox};
use crate::{
    Change, Clash, EVENTS_KEPT, EventKind, EventPage, EventQuery, EventRow, NewEvent, NewSandbox, SandboxId,
    Status, StatusChange,
};
use std::time::Duration;

fn any() -> EventQuery {
    EventQuery::default()
}

fn event(kind: EventKind, owner: &str, sandbox: Option<SandboxId>) -> NewEvent {
    NewEvent { at: NOW, owner: owner.into(), sandbox, kind, reason: None, data: "{}".into() }
}

/// The events without their times.
fn told(page: &EventPage) -> Vec<(u64, EventKind, Option<String>, String)> {
    let tell = |row: &EventRow| (row.id, row.event.kind, row.event.reason.clone(), row.event.data.clone());
    page.items.iter().map(tell).collect()
}

pub(super) async fn a_change_of_status_is_told_with_its_reason(store: Shared) -> Outcome {
    same("before anything", store.events(&any()).await?, EventPage::default())?;
    let made = add(&store, NewSandbox { owner: "Ада".into(), ..sandbox() }).await?;
    let change = |status, reason: Option<&str>| Change {
        status: Some(StatusChange::new(status, reason.map(str::to_owned))),
        ..Change::default()
    };
    let changes = [
        change(Status::Ready, None),
        change(Status::Ready, Some("again")),
        Change { idle_timeout_seconds: Some(5), ..Change::default() },
        change(Status::Ready, None),
        change(Status::Paused, Some("asked \"nicely\"")),
        change(Status::Ready, Some("resumed")),
        change(Status::Dead, Some("out of memory")),
        change(Status::Provisioning, None),
        change(Status::Dead, Some("no space")),
        change(Status::Stopped, None),
        change(Status::Destroyed, Some("idle")),
    ];
    for (change, revision) in changes.into_iter().zip(1..) {
        store.update_sandbox(made.id, revision, change).await?;
    }
    add(&store, NewSandbox { status: Status::Ready, ..sandbox() }).await?;
    let page = store.events(&any()).await?;
    let row = |id, kind: EventKind, reason: Option<&str>, data: &str| {
        (id, kind, reason.map(str::to_owned), data.to_owned())
    };
    let wanted = vec![
        row(1, EventKind::Created, None, r#"{"status":"provisioning"}"#),
        row(2, EventKind::Ready, None, r#"{"status":"ready","was":"provisioning"}"#),
        row(3, EventKind::Paused, Some("asked \"nicely\""), r#"{"status":"paused","was":"ready"}"#),
        row(4, EventKind::Ready, Some("resumed"), r#"{"status":"ready","was":"paused"}"#),
        row(5, EventKind::Dead, Some("out of memory"), r#"{"status":"dead","was":"ready"}"#),
        row(6, EventKind::Starting, None, r#"{"status":"provisioning","was":"dead"}"#),
        row(7, EventKind::Dead, Some("no space"), r#"{"status":"dead","was":"provisioning"}"#),
        row(8, EventKind::Stopped, None, r#"{"status":"stopped","was":"dead"}"#),
        row(9, EventKind::Destroyed, Some("idle"), r#"{"status":"destroyed","was":"stopped"}"#),
        row(10, EventKind::Created, None, r#"{"status":"ready"}"#),
        row(11, EventKind::Ready, None, r#"{"status":"ready"}"#),
    ];
    same("what is told", told(&page), wanted)?;
    let first = &page.items[0].event;
    same("of whom", (first.owner.as_str(), first.sandbox), ("Ада", Some(made.id)))
}

pub(super) async fn what_failed_is_not_told(store: Shared) -> Outcome {
    let keyed = || NewSandbox { session_key: Some("mine".into()), ..sandbox() };
    let made = add(&store, keyed()).await?;
    store.insert_sandbox(keyed()).await?;
    clashes("taken", store.insert_sandbox(NewSandbox { id: made.id, ..sandbox() }).await, Clash::Taken)?;
    let dead = Change::status(Status::Dead);
    clashes("an old revision", store.update_sandbox(made.id, 7, dead).await, Clash::Revision)?;
    same("how many", store.events(&any()).await?.items.len(), 1)
}

pub(super) async fn events_go_on_after_an_id(store: Shared) -> Outcome {
    let (one, other) = (SandboxId::random(), SandboxId::random());
    let all: Vec<NewEvent> = (0..30)
        .map(|n| {
            let sandbox = [Some(one), Some(other), None][n % 3];
            event([EventKind::ExecEnded, EventKind::Exported][n % 2], ["a", "b", "a", "c"][n % 4], sandbox)
        })
        .collect();
    store.append_events(all.clone()).await?;
    store.append_events(Vec::new()).await?;
    let ids = async |query: EventQuery| {
        let page = store.events(&query).await?;
        Ok::<_, super::Failure>((
            page.items.iter().map(|row| row.id).collect::<Vec<_>>(),
            page.missed,
            page.newest,
        ))
    };
    let wanted = |holds: &dyn Fn(usize, &NewEvent) -> bool| {
        all.iter()
            .zip(1..)
            .filter(|(event, id)| holds(*id, event))
            .map(|(_, id)| id as u64)
            .collect::<Vec<u64>>()
    };
    same("all", ids(any()).await?, ((1..=30).collect(), false, 30))?;
    same(
        "from the start",
        ids(EventQuery { after: Some(0), ..any() }).await?,
        ((1..=30).collect(), false, 30),
    )?;
    same("a few", ids(EventQuery { after: Some(4), limit: 3, ..any() }).await?, (vec![5, 6, 7], false, 30))?;
    same("the end", ids(EventQuery { after: Some(30), ..any() }).await?, (vec![], false, 30))?;
    same("what never was", ids(EventQuery { after: Some(31), ..any() }).await?, (vec![], true, 30))?;
    let of_one = ids(EventQuery { sandbox: Some(one), ..any() }).await?.0;
    same("a sandbox", of_one, wanted(&|_, event| event.sandbox == Some(one)))?;
    let of_a = ids(EventQuery { owner: Some("a".into()), after: Some(9), ..any() }).await?.0;
    same("an owner", of_a, wanted(&|id, event| event.owner == "a" && id > 9))?;
    let kinds = |kinds: &[EventKind]| EventQuery { kinds: Some(kinds.to_vec()), ..any() };
    let exported = wanted(&|_, event| event.kind == EventKind::Exported);
    same("a kind", ids(kinds(&[EventKind::Exported])).await?.0, exported)?;
    let both = kinds(&[EventKind::Exported, EventKind::ExecEnded]);
    same("two kinds", ids(both).await?.0, (1..=30).collect())?;
    same("no kind", ids(kinds(&[])).await?, (vec![], false, 30))?;
    same("the whole event", store.events(&any()).await?.items[3].event.clone(), all[3].clone())
}

pub(super) async fn the_last_events_are_kept(store: Shared) -> Outcome {
    let count = EVENTS_KEPT as usize;
    store.append_events(vec![event(EventKind::ExecEnded, "a", None); 3]).await?;
    store.append_events(vec![event(EventKind::ExecEnded, "a", None); count - 1]).await?;
    let oldest = async |after| store.events(&EventQuery { after, limit: 1, ..any() }).await;
    let page = oldest(None).await?;
    same("the oldest", page.items.first().map(|row| row.id), Some(3))?;
    same("the newest", page.newest, EVENTS_KEPT + 2)?;
    ensure(!page.missed, || "who asks for the oldest misses nothing".into())?;
    ensure(!oldest(Some(2)).await?.missed, || "nothing after 2 is gone".into())?;
    ensure(oldest(Some(1)).await?.missed, || "2 is gone, and `missed` is not set".into())
}

pub(super) async fn who_listens_is_woken(store: Shared) -> Outcome {
    // Long, because a busy machine is slow; a follower that is never woken fails.
    let patience = Duration::from_secs(20);
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { tokio::time::timeout(patience, store.await_event(0)).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    let made = add(&store, sandbox()).await?;
    let woken = waiting.await.map_err(|e| super::Failure(e.to_string()))?;
    ensure(matches!(woken, Ok(Ok(()))), || format!("by a new sandbox: {woken:?}"))?;
    store.await_event(0).await?;
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { tokio::time::timeout(patience, store.await_event(1)).await })
    };
    store.update_sandbox(made.id, 1, Change::status(Status::Ready)).await?;
    let woken = waiting.await.map_err(|e| super::Failure(e.to_string()))?;
    ensure(matches!(woken, Ok(Ok(()))), || format!("by a change: {woken:?}"))
}
