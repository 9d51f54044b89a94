//! Pause and resume.

use super::{Outcome, clean, ensure, same, says, spec, with};
use crate::{Container, Pause, Provider, State};
use atoll_types::{ContainerId, ErrorCode};
use std::{sync::Arc, time::Duration};

/// The longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a check watches that nothing happens.
const MOMENT: Duration = Duration::from_millis(300);

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> Result<T, String> {
    tokio::time::timeout(PATIENCE, work).await.map_err(|_| format!("{what}: no answer"))
}

async fn pause(power: &dyn Pause) -> Outcome {
    in_time("pause", power.pause()).await?.map_err(|e| format!("pause: {e}"))
}

async fn resume(power: &dyn Pause) -> Outcome {
    in_time("resume", power.resume()).await?.map_err(|e| format!("resume: {e}"))
}

async fn listed(provider: &dyn Provider, id: ContainerId) -> Result<Option<State>, String> {
    let all = provider.list().await.map_err(|e| format!("list: {e}"))?;
    Ok(all.into_iter().find(|l| l.id == id).map(|l| l.state))
}

/// Counts without end, in a variable of its own.
const COUNT: &str = "setsid sh -c 'n=0; while :; do n=$((n+1)); echo $n > /tmp/new; mv /tmp/new /tmp/n; \
                     sleep 0.01; done' >/dev/null 2>&1 & until [ -e /tmp/n ]; do sleep 0.01; done; cat /tmp/n";

pub(super) async fn a_paused_sandbox_runs_nothing_until_it_is_unpaused(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let Some(power) = container.pause() else { return Ok(()) };
        let number = |text: String| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
        let before = number(says(&container, COUNT).await?)?;
        resume(power).await?;
        same("state", container.state().await, Ok(State::Running))?;
        pause(power).await?;
        pause(power).await?;
        same("state", container.state().await, Ok(State::Paused))?;
        same("listed", listed(provider, container.id()).await?, Some(State::Paused))?;
        let asked = says(&container, "cat /tmp/n");
        let mut asked = std::pin::pin!(asked);
        let early = tokio::time::timeout(MOMENT, &mut asked).await;
        ensure(early.is_err(), || format!("a command ran while nothing should: {early:?}"))?;
        resume(power).await?;
        same("state", container.state().await, Ok(State::Running))?;
        let after = number(in_time("a command that waited", asked).await??)?;
        ensure(after >= before, || format!("it began anew: {before}, then {after}"))?;
        let on = format!("until [ $(cat /tmp/n) -gt {after} ]; do sleep 0.01; done; echo on");
        same("goes on", in_time("going on", says(&container, &on)).await??, "on".into())
    })
    .await
}

pub(super) async fn what_is_paused_is_found_and_can_be_destroyed(provider: &dyn Provider) -> Outcome {
    let spec = spec();
    let id = spec.id;
    let container = provider.create(spec).await.map_err(|e| format!("create: {e}"))?;
    let found = find_paused(provider, &container).await;
    in_time("destroy", clean(provider, id)).await??;
    found?;
    same("listed", listed(provider, id).await?, None)?;
    match container.pause() {
        Some(power) => same("gone", power.pause().await.err().map(|e| e.code), Some(ErrorCode::NotFound)),
        None => Ok(()),
    }
}

async fn find_paused(provider: &dyn Provider, container: &Arc<dyn Container>) -> Outcome {
    let Some(power) = container.pause() else { return Ok(()) };
    says(container, "echo here > /tmp/mark").await?;
    pause(power).await?;
    let again = in_time("attach", provider.attach(container.id())).await?;
    let again = again.map_err(|e| format!("attach: {e}"))?;
    same("state", again.state().await, Ok(State::Paused))?;
    let power = again.pause().ok_or("a handle that was attached has not the power")?;
    resume(power).await?;
    same("the same container", in_time("a command", says(&again, "cat /tmp/mark")).await??, "here".into())?;
    // And is destroyed while it is paused.
    pause(power).await
}
