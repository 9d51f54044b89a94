//! Volumes that outlive their containers.

use super::{Outcome, ensure, same, says, spec, with};
use crate::{ContainerSpec, Provider};
use atoll_types::{ErrorCode, VolumeId};

pub(super) async fn a_volume_outlives_its_container(provider: &dyn Provider) -> Outcome {
    let Some(volumes) = provider.volumes() else { return Ok(()) };
    let volume = VolumeId::random();
    let spec = || ContainerSpec { volume: Some(volume), ..spec() };
    let result = async {
        with(provider, spec(), async |container| {
            says(&container, "echo kept > /workspace/a; echo mine > ~/b; echo gone > /tmp/c")
                .await
                .map(|_| ())
        })
        .await?;
        with(provider, spec(), async |container| {
            let said = says(&container, "cat /workspace/a ~/b; stat -c %u /workspace/a; ls /tmp").await?;
            same("what was kept", said, "kept\nmine\n1000".into())
        })
        .await?;
        let all = volumes.list_volumes().await.map_err(|e| format!("list: {e}"))?;
        ensure(all.contains(&volume), || "the volume is not listed".into())
    }
    .await;
    for _ in 0..2 {
        volumes.remove_volume(volume).await.map_err(|e| format!("remove: {e}"))?;
    }
    let all = volumes.list_volumes().await.map_err(|e| format!("list: {e}"))?;
    ensure(!all.contains(&volume), || "a removed volume is still listed".into())?;
    result
}

pub(super) async fn without_a_volume_nothing_outlives_it(provider: &dyn Provider) -> Outcome {
    let Some(volumes) = provider.volumes() else { return Ok(()) };
    let first = spec();
    let id = first.id;
    with(provider, first, async |container| says(&container, "echo x > /workspace/x").await.map(|_| ()))
        .await?;
    let all = volumes.list_volumes().await.map_err(|e| format!("list: {e}"))?;
    ensure(all.iter().all(|v| v.uuid() != id.uuid()), || "a throw-away volume was kept".into())?;
    with(provider, ContainerSpec { id, ..spec() }, async |container| {
        same("a new one with the same id", says(&container, "ls /workspace").await?, String::new())
    })
    .await
}

pub(super) async fn a_volume_in_use_cannot_be_removed_or_shared(provider: &dyn Provider) -> Outcome {
    let Some(volumes) = provider.volumes() else { return Ok(()) };
    let volume = VolumeId::random();
    let spec = || ContainerSpec { volume: Some(volume), ..spec() };
    let result = with(provider, spec(), async |container| {
        says(&container, "echo safe > /workspace/a").await?;
        let removed = volumes.remove_volume(volume).await;
        same("remove", removed.err().map(|e| e.code), Some(ErrorCode::Conflict))?;
        let second = provider.create(spec()).await;
        same("share", second.err().map(|e| e.code), Some(ErrorCode::Conflict))?;
        same("the file", says(&container, "cat /workspace/a").await?, "safe".into())
    })
    .await;
    volumes.remove_volume(volume).await.map_err(|e| format!("remove: {e}"))?;
    result
}
