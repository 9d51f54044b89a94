//! Inserting and finding records.

use super::{NOW, Outcome, Shared, add, clashes, crowd, ensure, read, same, sandbox};
use crate::{Change, Clash, Inserted, NewSandbox, SandboxId, SandboxRecord, Sealed, Sha256, Status};
use atoll_types::{AutoSnapshot, ContainerId, InstalledSkill, Limits, Profile, SkillId};

pub(super) async fn a_record_comes_back_as_it_went_in(store: Shared) -> Outcome {
    let container = ContainerId::random();
    let new = NewSandbox {
        owner_name: "Ада \"O'Neil\" \u{1f600}".into(),
        status: Status::Ready,
        image: "registry.example/a:1".into(),
        provider: "another-1".parse().unwrap_or_else(|_| unreachable!("it is a name")),
        profile: Profile::builtin("build").unwrap_or_else(|| unreachable!("it ships")),
        container: Some(container),
        limits: Limits { memory_bytes: u64::MAX, cpu_millis: 250, ..Limits::default() },
        idle_timeout_seconds: u32::MAX,
        max_lifetime_seconds: Some(u32::MAX),
        network_enabled: true,
        egress: r#"{"mode":"full","deny":["b\u00fc \"x\".example"]}"#.into(),
        session_key: Some(String::new()),
        auto_snapshot: AutoSnapshot::BeforeExec,
        labels: [("a".into(), String::new()), ("b.c/d".into(), "e=f".into())].into(),
        environment: Sealed((0..=255).collect()),
        skills: vec![InstalledSkill {
            id: SkillId::random(),
            name: "a-1".parse().unwrap_or_else(|_| unreachable!("it is a name")),
            digest: Sha256([7; 32]),
            installed_at: -1,
        }],
        created_at: -1,
        ..sandbox()
    };
    let wanted = SandboxRecord::from(new.clone());
    same("the answer", add(&store, new).await?, wanted.clone())?;
    same("by id", read(&store, wanted.id).await?, wanted.clone())?;
    same("by container", store.sandbox_by_container(container).await?, Some(wanted))?;
    same("an unknown id", store.sandbox(SandboxId::random()).await?, None)?;
    same("an unknown container", store.sandbox_by_container(ContainerId::random()).await?, None)
}

pub(super) async fn a_session_key_is_one_sandbox(store: Shared) -> Outcome {
    let keyed = || NewSandbox { session_key: Some("mine".into()), ..sandbox() };
    let first = add(&store, keyed()).await?;
    let again = store.insert_sandbox(keyed()).await?;
    same("the same key", again, Inserted::Existing(first.clone()))?;
    add(&store, NewSandbox { owner: "other".into(), ..keyed() }).await?;
    add(&store, NewSandbox { image: "other".into(), ..keyed() }).await?;
    add(&store, NewSandbox { session_key: Some("other".into()), ..keyed() }).await?;
    add(&store, sandbox()).await?;
    add(&store, sandbox()).await?;
    let stopped = store.update_sandbox(first.id, 1, Change::status(Status::Stopped)).await?;
    let again = store.insert_sandbox(keyed()).await?;
    same("a stopped one keeps its key", again, Inserted::Existing(stopped))?;
    store.update_sandbox(first.id, 2, Change::status(Status::Destroyed)).await?;
    let fresh = add(&store, keyed()).await?;
    ensure(fresh.id != first.id, || "a destroyed sandbox came back".into())
}

pub(super) async fn many_with_one_session_key_make_one(store: Shared) -> Outcome {
    for round in 0..4 {
        let key = format!("round {round}");
        let all = crowd(|_| {
            let (store, key) = (store.clone(), key.clone());
            async move { store.insert_sandbox(NewSandbox { session_key: Some(key), ..sandbox() }).await }
        })
        .await?;
        let mut made = Vec::new();
        let mut met = Vec::new();
        for inserted in all {
            match inserted? {
                Inserted::New(record) => made.push(record.id),
                Inserted::Existing(record) => met.push(record.id),
            }
        }
        same("how many are new", made.len(), 1)?;
        ensure(met.iter().all(|id| *id == made[0]), || "they met different ones".into())?;
    }
    same("how many there are", store.list_sandboxes(&crate::ListQuery::default()).await?.total, 4)
}

pub(super) async fn what_is_taken_is_refused_and_leaves_nothing(store: Shared) -> Outcome {
    let container = Some(ContainerId::random());
    let first = add(&store, NewSandbox { container, ..sandbox() }).await?;
    let labels = || [("x".into(), "y".into())].into();
    let cases = [
        ("id", NewSandbox { id: first.id, labels: labels(), ..sandbox() }),
        ("container", NewSandbox { container, labels: labels(), ..sandbox() }),
        ("volume", NewSandbox { volume: first.volume, labels: labels(), ..sandbox() }),
    ];
    for (what, new) in cases {
        clashes(what, store.insert_sandbox(new).await, Clash::Taken)?;
    }
    same("the owner's", read(&store, first.id).await?, first)?;
    let page = store.list_sandboxes(&crate::ListQuery::default()).await?;
    same("how many there are", page.total, 1)
}

pub(super) async fn what_lives_is_all_but_stopped_and_destroyed(store: Shared) -> Outcome {
    let mut wanted = Vec::new();
    for status in Status::ALL {
        let made = add(&store, sandbox()).await?;
        let made = store.update_sandbox(made.id, 1, Change::status(*status)).await?;
        if !matches!(status, Status::Stopped | Status::Destroyed) {
            wanted.push(made);
        }
    }
    // Its destruction was begun and is not over.
    let made = add(&store, sandbox()).await?;
    let begun = Change { destroyed_at: Some(4), ..Change::status(Status::Stopped) };
    wanted.push(store.update_sandbox(made.id, 1, begun).await?);
    let mut live = store.live_sandboxes().await?;
    live.sort_by_key(|record| record.id);
    wanted.sort_by_key(|record| record.id);
    same("what lives", live, wanted)
}

pub(super) async fn what_was_done_last_never_moves_back(store: Shared) -> Outcome {
    let (one, other) = (add(&store, sandbox()).await?, add(&store, sandbox()).await?);
    store.touch_sandboxes(&[(one.id, NOW + 5), (SandboxId::random(), NOW + 9)].into()).await?;
    store.touch_sandboxes(&[(one.id, NOW + 3), (other.id, NOW - 1)].into()).await?;
    store.touch_sandboxes(&[].into()).await?;
    same("one", read(&store, one.id).await?, SandboxRecord { last_activity_at: NOW + 5, ..one })?;
    same("the other", read(&store, other.id).await?, other)
}

pub(super) async fn the_destroyed_are_forgotten_in_time(store: Shared) -> Outcome {
    let mut ids = Vec::new();
    for at in [Some(NOW), Some(NOW + 1), Some(NOW + 2), None] {
        let record = add(&store, sandbox()).await?;
        ids.push(record.id);
        if let Some(at) = at {
            let gone = Change { destroyed_at: Some(at), ..Change::status(Status::Destroyed) };
            store.update_sandbox(record.id, record.revision, gone).await?;
        }
    }
    let left = async || {
        let mut left = Vec::new();
        for (number, id) in ids.iter().enumerate() {
            left.extend(store.sandbox(*id).await?.map(|_| number));
        }
        Ok::<_, crate::StoreError>(left)
    };
    same("none yet", store.purge_destroyed(NOW - 1, 10).await?, 0)?;
    same("some", store.purge_destroyed(NOW + 1, 1).await?, 1)?;
    same("the oldest went first", left().await?, vec![1, 2, 3])?;
    same("the rest", store.purge_destroyed(NOW + 1, 10).await?, 1)?;
    same("left", left().await?, vec![2, 3])?;
    same("what lives stays", store.purge_destroyed(i64::MAX, 10).await?, 1)?;
    same("left in the end", left().await?, vec![3])
}
