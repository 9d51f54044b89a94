//! Usage of containers.

use super::{Outcome, clean, ensure, same, says, spec, with};
use crate::{Provider, Usages};
use atoll_types::{ContainerId, ErrorCode, Usage};

async fn one(power: &dyn Usages, id: ContainerId) -> Result<Usage, String> {
    power.one(id).await.map_err(|e| format!("one: {e}"))
}

pub(super) async fn what_is_used_is_the_containers_own(provider: &dyn Provider) -> Outcome {
    let Some(power) = provider.usage() else { return Ok(()) };
    with(provider, spec(), async |idle| {
        with(provider, spec(), async |busy| {
            let before = one(power, busy.id()).await?;
            says(&busy, "timeout 1 sh -c 'while :; do :; done'; head -c 64M /dev/zero > /dev/shm/held")
                .await?;
            let after = one(power, busy.id()).await?;
            let other = one(power, idle.id()).await?;
            ensure(after.age_usec > before.age_usec, || format!("no time passed: {after:?}"))?;
            let more = |of: fn(&Usage) -> Option<u64>, than: &Usage, by: u64| match (of(&after), of(than)) {
                // The machine does not count it, so there is no figure to check.
                (None, None) => Ok(()),
                (Some(a), Some(b)) => ensure(a > b.saturating_add(by), || format!("{after:?} and {than:?}")),
                _ => Err(format!("now and then: {after:?} and {than:?}")),
            };
            ensure(after.cpu_usec.is_some(), || "processor time is not counted".into())?;
            for than in [&before, &other] {
                more(|u| u.cpu_usec, than, 100_000)?;
                more(|u| u.memory_bytes, than, 48 << 20)?;
            }
            let all = power.all().await.map_err(|e| format!("all: {e}"))?;
            for id in [idle.id(), busy.id()] {
                same("times listed", all.iter().filter(|(found, _)| *found == id).count(), 1)?;
            }
            Ok(())
        })
        .await
    })
    .await
}

pub(super) async fn what_is_gone_uses_nothing(provider: &dyn Provider) -> Outcome {
    let Some(power) = provider.usage() else { return Ok(()) };
    let spec = spec();
    let id = spec.id;
    provider.create(spec).await.map_err(|e| format!("create: {e}"))?;
    let while_there = one(power, id).await;
    clean(provider, id).await?;
    while_there?;
    let all = power.all().await.map_err(|e| format!("all: {e}"))?;
    ensure(all.iter().all(|(found, _)| *found != id), || "a destroyed container is measured".into())?;
    same("one", power.one(id).await.err().map(|e| e.code), Some(ErrorCode::NotFound))
}
