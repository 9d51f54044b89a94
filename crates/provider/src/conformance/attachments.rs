//! Volumes beside a container's own, and paths with a rule.

use super::{Outcome, ensure, same, says, shell, spec, with};
use crate::{Attachments, ContainerSpec, Provider, WriteOptions};
use atoll_types::{ErrorCode, PathRules, VolumeId, VolumeMount};
use bytes::Bytes;
use futures_util::stream;

const MIB: u64 = 1 << 20;

fn attaching(volume: VolumeId, read_only: bool) -> ContainerSpec {
    let mut spec = spec();
    let name = "data".parse().unwrap_or_else(|_| unreachable!("a name"));
    spec.profile.volumes.push(VolumeMount {
        name,
        volume,
        path: "/mnt/data".into(),
        read_only,
        whole: false,
    });
    spec
}

async fn put(power: &dyn Attachments, volume: VolumeId, bytes: u64) -> Outcome {
    power.put_volume(volume, bytes).await.map_err(|e| format!("put: {e}"))
}

pub(super) async fn an_attached_volume_is_shared_and_outlives_its_containers(
    provider: &dyn Provider,
) -> Outcome {
    let (Some(power), Some(volumes)) = (provider.attachments(), provider.volumes()) else { return Ok(()) };
    let volume = VolumeId::random();
    for _ in 0..2 {
        put(power, volume, 64 * MIB).await?;
    }
    let result = async {
        with(provider, attaching(volume, false), async |writer| {
            says(&writer, "echo shared > /mnt/data/a").await?;
            with(provider, attaching(volume, true), async |reader| {
                same("what is shared", says(&reader, "cat /mnt/data/a").await?, "shared".into())?;
                let written = shell(&reader, "echo x > /mnt/data/b").await?;
                ensure(written.report.exit_code != Some(0), || "a read-only volume was written".into())
            })
            .await?;
            let removed = volumes.remove_volume(volume).await;
            same("remove", removed.err().map(|e| e.code), Some(ErrorCode::Conflict))?;
            put(power, volume, 96 * MIB).await?;
            volumes.resize_volume(volume, 80 * MIB).await.map_err(|e| format!("resize: {e}"))
        })
        .await?;
        with(provider, attaching(volume, false), async |later| {
            same("what is kept", says(&later, "ls /mnt/data; cat /mnt/data/a").await?, "a\nshared".into())
        })
        .await?;
        let used = power.volume_usage(volume).await.map_err(|e| format!("usage: {e}"))?;
        ensure(used.is_none_or(|used| used < 64 * MIB), || format!("{used:?} bytes are used"))
    }
    .await;
    for _ in 0..2 {
        volumes.remove_volume(volume).await.map_err(|e| format!("remove: {e}"))?;
    }
    let gone = power.volume_usage(volume).await;
    same("usage of what is gone", gone.err().map(|e| e.code), Some(ErrorCode::NotFound))?;
    let gone = volumes.resize_volume(volume, 64 * MIB).await;
    same("a resize of what is gone", gone.err().map(|e| e.code), Some(ErrorCode::NotFound))?;
    let all = volumes.list_volumes().await.map_err(|e| format!("list: {e}"))?;
    ensure(!all.contains(&volume), || "a resize made the volume anew".into())?;
    result
}

pub(super) async fn path_rules_bind_commands(provider: &dyn Provider) -> Outcome {
    if provider.attachments().is_none() {
        return Ok(());
    }
    let mut ruled = spec();
    ruled.profile.paths = PathRules {
        read_only: vec!["/workspace/in".into()],
        read_write: vec!["/workspace/in/out".into()],
        blocked: vec!["/workspace/secret".into()],
    };
    with(provider, ruled, async |container| {
        for (line, succeeds) in [
            ("test -d in && ! touch in/x", true),
            ("echo x > in/out/x", true),
            ("ls secret", false),
            ("cd secret", false),
            ("touch secret/x", false),
        ] {
            let code = shell(&container, line).await?.report.exit_code;
            ensure((code == Some(0)) == succeeds, || format!("{line:?} ended with {code:?}"))?;
        }
        // The owner's requests still write what commands may only read.
        let written = container
            .guest()
            .write_file("in/y", WriteOptions::default(), stream::iter([Ok(Bytes::from_static(b"y"))]))
            .await;
        written.map_err(|e| format!("write: {e}"))?;
        same("what was written", says(&container, "cat in/y").await?, "y".into())
    })
    .await
}

pub(super) async fn what_cannot_be_attached_is_refused(provider: &dyn Provider) -> Outcome {
    let made = provider.create(attaching(VolumeId::random(), false)).await;
    let wanted = match provider.attachments() {
        Some(_) => ErrorCode::Conflict,
        None => ErrorCode::Unsupported,
    };
    same("a volume that is not there", made.err().map(|e| e.code), Some(wanted))
}
