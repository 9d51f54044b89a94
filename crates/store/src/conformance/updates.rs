//! Changing records, in turn and concurrently.

use super::{CROWD, Outcome, Shared, add, clashes, crowd, ensure, read, same, sandbox};
use crate::{
    Activity, ActivityKind, Change, Clash, NewSandbox, SandboxId, SandboxRecord, Sealed, Status,
    StatusChange, StoreError, Thing,
};
use atoll_types::{AutoSnapshot, ContainerId, Death, Limits};

pub(super) async fn a_change_changes_what_it_says_and_nothing_else(store: Shared) -> Outcome {
    let mut wanted =
        add(&store, NewSandbox { labels: [("a".into(), "b".into())].into(), ..sandbox() }).await?;
    let id = wanted.id;
    let reason = |status, reason: &str| Some(StatusChange::new(status, Some(reason.into())));
    let changes = [
        Change { status: reason(Status::Dead, "no space"), ..Change::default() },
        Change {
            status: Some(StatusChange {
                death: Some(Death::lost()),
                ..StatusChange::new(Status::Dead, None)
            }),
            ..Change::default()
        },
        Change {
            status: Some(StatusChange { idle_pause: true, ..StatusChange::new(Status::Paused, None) }),
            ..Change::default()
        },
        Change { start_due: Some(true), ..Change::status(Status::Ready) },
        Change::status(Status::Paused),
        // Without a container nothing is due.
        Change::status(Status::Stopped),
        Change { start_due: Some(true), ..Change::status(Status::Ready) },
        Change { container: Some(Some(ContainerId::random())), ..Change::default() },
        Change { limits: Some(Limits { swap_bytes: 7, ..Limits::default() }), ..Change::default() },
        Change { labels: Some([("c".into(), "d".into())].into()), ..Change::default() },
        Change { environment: Some(Sealed(vec![0, 1, 2])), ..Change::default() },
        Change { idle_timeout_seconds: Some(5), ..Change::default() },
        Change { network_enabled: Some(true), ..Change::default() },
        Change { egress: Some(r#"{"mode":"full"}"#.into()), ..Change::default() },
        Change { auto_snapshot: Some(AutoSnapshot::BeforeRun), ..Change::default() },
        Change { last_activity_at: Some(wanted.created_at + 9), ..Change::default() },
        Change { last_activity_at: Some(wanted.created_at - 9), ..Change::default() },
        Change { stopped_at: Some(Some(3)), container: Some(None), ..Change::default() },
        Change { stopped_at: Some(None), ..Change::default() },
        Change { destroyed_at: Some(4), ..Change::default() },
        Change {
            activity: Some(Activity {
                sandbox: id,
                kind: ActivityKind::Stop,
                at: wanted.created_at + 20,
                detail: "idle".into(),
                exit_code: None,
                duration_ms: None,
                bytes: None,
            }),
            ..Change::default()
        },
        Change::default(),
    ];
    for change in changes {
        let revision = wanted.revision;
        wanted = change.clone().apply(wanted, revision)?;
        let got = store.update_sandbox(id, revision, change).await?;
        same("the answer", &got, &wanted)?;
        same("read again", &read(&store, id).await?, &wanted)?;
    }
    let told = store.activities(id, 10, None).await?;
    same("what was told", told.len(), 1)?;
    same("how it was told", told[0].activity.detail.as_str(), "idle")?;
    Ok(())
}

pub(super) async fn an_old_revision_is_refused(store: Shared) -> Outcome {
    let made = add(&store, sandbox()).await?;
    let now = store.update_sandbox(made.id, 1, Change::status(Status::Ready)).await?;
    for revision in [0, 1, 3, u64::MAX] {
        let got = store.update_sandbox(made.id, revision, Change::status(Status::Dead)).await;
        clashes("another revision", got, Clash::Revision)?;
    }
    same("what is kept", read(&store, made.id).await?, now)?;
    let nobody = store.update_sandbox(SandboxId::random(), 1, Change::default()).await;
    ensure(matches!(nobody, Err(StoreError::NotFound(Thing::Sandbox))), || {
        format!("a sandbox that is not there: {nobody:?}")
    })?;
    // A command that ends must not make the next change fail.
    let activity = Activity {
        sandbox: made.id,
        kind: ActivityKind::Exec,
        at: 1,
        detail: String::new(),
        exit_code: None,
        duration_ms: None,
        bytes: None,
    };
    store.record_activity(activity).await?;
    let after = store.update_sandbox(made.id, 2, Change::status(Status::Ready)).await?;
    same("the counter is kept", after.exec_count, 1)
}

pub(super) async fn destroyed_is_final(store: Shared) -> Outcome {
    let made = add(&store, sandbox()).await?;
    let gone = store.update_sandbox(made.id, 1, Change::status(Status::Destroyed)).await?;
    for (revision, change) in
        [(2, Change::status(Status::Ready)), (2, Change::default()), (1, Change::default())]
    {
        let got = store.update_sandbox(made.id, revision, change).await;
        clashes("a change of a destroyed one", got, Clash::Destroyed)?;
    }
    same("what is kept", read(&store, made.id).await?, gone)
}

/// Changes it, whatever the others do meanwhile, and returns the revision that it won.
async fn insist(store: Shared, id: SandboxId) -> crate::Result<(u64, u32)> {
    let mut lost = 0;
    loop {
        let now: SandboxRecord = store.sandbox(id).await?.ok_or(StoreError::NotFound(Thing::Sandbox))?;
        let change = Change { idle_timeout_seconds: Some(now.idle_timeout_seconds + 1), ..Change::default() };
        match store.update_sandbox(id, now.revision, change).await {
            Ok(won) => return Ok((won.revision, lost)),
            Err(StoreError::Conflict(Clash::Revision)) => lost += 1,
            Err(other) => return Err(other),
        }
    }
}

pub(super) async fn of_many_changes_one_wins_each_revision(store: Shared) -> Outcome {
    let made = add(&store, NewSandbox { idle_timeout_seconds: 0, ..sandbox() }).await?;
    let id = made.id;
    // All from the same revision: one wins.
    let all = crowd(|_| {
        let store = store.clone();
        async move { store.update_sandbox(id, 1, Change::status(Status::Ready)).await }
    })
    .await?;
    same("winners", all.iter().filter(|result| result.is_ok()).count(), 1)?;
    for result in all.into_iter().filter(Result::is_err) {
        clashes("a loser", result, Clash::Revision)?;
    }
    // All until they succeed: each wins a revision of its own, and no change is lost.
    let won = crowd(|_| insist(store.clone(), id)).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut revisions: Vec<u64> = won.iter().map(|(revision, _)| *revision).collect();
    revisions.sort_unstable();
    same("revisions won", revisions, (3..3 + CROWD as u64).collect())?;
    same("changes kept", read(&store, id).await?.idle_timeout_seconds as usize, CROWD)
}

pub(super) async fn another_ones_container_is_refused(store: Shared) -> Outcome {
    let container = ContainerId::random();
    add(&store, NewSandbox { container: Some(container), ..sandbox() }).await?;
    let other = add(&store, sandbox()).await?;
    let change = Change { container: Some(Some(container)), ..Change::status(Status::Ready) };
    clashes("another's container", store.update_sandbox(other.id, 1, change).await, Clash::Taken)?;
    same("what is kept", read(&store, other.id).await?, other)
}
