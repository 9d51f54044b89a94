//! Making, attaching, listing, destroying.

use super::{Outcome, clean, ensure, same, says, spec, with};
use crate::{ContainerSpec, Provider, State};
use atoll_types::{ContainerId, ErrorCode, ImageName, Limits, Profile};
use futures_util::future::join_all;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn a_container_runs_commands(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        same("state", container.state().await, Ok(State::Running))?;
        same("output", says(&container, "echo $((6*7))").await?, "42".into())
    })
    .await
}

pub(super) async fn a_taken_id_is_refused_and_its_owner_lives(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        says(&container, "echo mine > /workspace/mark").await?;
        let second = provider.create(ContainerSpec { id: container.id(), ..spec() }).await;
        same("code", second.err().map(|e| e.code), Some(ErrorCode::AlreadyExists))?;
        same("owner", says(&container, "cat /workspace/mark").await?, "mine".into())
    })
    .await
}

pub(super) async fn attach_finds_what_lives_and_nothing_else(provider: &dyn Provider) -> Outcome {
    let nobody = provider.attach(ContainerId::random()).await;
    same("unknown", nobody.err().map(|e| e.code), Some(ErrorCode::NotFound))?;
    with(provider, spec(), async |container| {
        says(&container, "echo here > /tmp/mark").await?;
        let again = provider.attach(container.id()).await.map_err(|e| format!("attach: {e}"))?;
        same("the same container", says(&again, "cat /tmp/mark").await?, "here".into())
    })
    .await
}

pub(super) async fn the_list_is_what_there_is(provider: &dyn Provider) -> Outcome {
    let listed = async |id: ContainerId| {
        let all = provider.list().await.map_err(|e| format!("list: {e}"))?;
        Ok::<_, String>(all.into_iter().find(|l| l.id == id))
    };
    let spec = spec();
    let id = spec.id;
    with(provider, spec, async |_| {
        let line = listed(id).await?.ok_or("a living container is not listed")?;
        same("state", line.state, State::Running)?;
        same("profile", line.profile, "default".into())
    })
    .await?;
    ensure(listed(id).await?.is_none(), || "a destroyed container is still listed".into())
}

pub(super) async fn destroy_ends_everything_and_may_be_repeated(provider: &dyn Provider) -> Outcome {
    let spec = spec();
    let id = spec.id;
    let container = provider.create(spec).await.map_err(|e| format!("create: {e}"))?;
    says(&container, "setsid sleep 1000 >/dev/null 2>&1 & echo started").await?;
    clean(provider, id).await?;
    clean(provider, id).await?;
    clean(provider, ContainerId::random()).await?;
    let after = says(&container, "true").await;
    ensure(after.is_err(), || "a command ran in a destroyed container".into())?;
    let attached = provider.attach(id).await;
    same("attach", attached.err().map(|e| e.code), Some(ErrorCode::NotFound))
}

pub(super) async fn a_death_reaches_every_waiting_caller(provider: &dyn Provider) -> Outcome {
    let spec = spec();
    let id = spec.id;
    let container = provider.create(spec).await.map_err(|e| format!("create: {e}"))?;
    let waiting = tokio::time::timeout(Duration::from_millis(300), container.died()).await;
    ensure(waiting.is_err(), || format!("a living container was said to be dead: {waiting:?}"))?;
    let wait = tokio::time::timeout(PATIENCE, container.died());
    let (told, ended) = tokio::join!(wait, async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        clean(provider, id).await
    });
    ended?;
    ensure(told.is_ok(), || "`died` did not complete".into())
}

pub(super) async fn a_refused_spec_names_its_field_and_leaves_nothing(provider: &dyn Provider) -> Outcome {
    let profile = || Profile::builtin("default").unwrap_or_else(|| unreachable!("it ships"));
    let missing: ImageName = "no-such-image".parse().map_err(|e| format!("{e}"))?;
    let cases = [
        (ContainerSpec { limits: Limits { memory_bytes: 1, ..Limits::default() }, ..spec() }, "memory_bytes"),
        (ContainerSpec { profile: Profile { uid: 1 << 20, ..profile() }, ..spec() }, "profile.uid"),
        (ContainerSpec { profile: Profile { image: missing, ..profile() }, ..spec() }, "image"),
    ];
    for (spec, field) in cases {
        let id = spec.id;
        let Err(error) = provider.create(spec).await else {
            clean(provider, id).await?;
            return Err(format!("a spec with a wrong {field} was accepted"));
        };
        same("field", error.field.as_deref(), Some(field))?;
        let all = provider.list().await.map_err(|e| format!("list: {e}"))?;
        ensure(all.iter().all(|l| l.id != id), || format!("a refused spec ({field}) left a container"))?;
    }
    Ok(())
}

pub(super) async fn many_at_once(provider: &dyn Provider) -> Outcome {
    let one = async |number: usize| {
        with(provider, spec(), async |container| {
            let said = says(&container, &format!("echo {number} > /workspace/n; cat /workspace/n")).await?;
            same("its own number", said, number.to_string())
        })
        .await
    };
    join_all((0..8).map(one)).await.into_iter().collect()
}
