//! Images: what is sealed, what starts from it, and what is built on it.

use super::{Outcome, ensure, same, says, shell, spec, with};
use crate::{Attachments, ContainerSpec, Images, Provider, Volumes};
use atoll_types::{ErrorCode, ImageId, ImageName, Profile, VolumeId, VolumeMount};

const MIB: u64 = 1 << 20;

/// Makes a root filesystem with a shell and a few programs, from those of the container.
const FILL: &str = "cd /image; for p in sh cat touch stat; do f=$(readlink -f $(command -v $p)); \
                    for l in $f $(ldd $f | grep -o '/[^ )]*'); do mkdir -p ./${l%/*}; cp -L $l ./$l; done; \
                    mkdir -p bin; [ -e bin/$p ] || ln -s $f bin/$p; done; \
                    echo one > marker; chown 1234:4321 marker; sync";

struct Powers<'a> {
    volumes: &'a dyn Volumes,
    attachments: &'a dyn Attachments,
    images: &'a dyn Images,
}

fn powers(provider: &dyn Provider) -> Option<Powers<'_>> {
    let (volumes, attachments) = (provider.volumes()?, provider.attachments()?);
    Some(Powers { volumes, attachments, images: provider.images()? })
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

fn builtin(name: &str) -> Profile {
    Profile::builtin(name).unwrap_or_else(|| unreachable!("it ships"))
}

/// A container of root's that has the volume at /image.
fn filling(volume: VolumeId) -> ContainerSpec {
    let name = "image".parse().unwrap_or_else(|_| unreachable!("a name"));
    let mut profile = builtin("root");
    profile.volumes.push(VolumeMount { name, volume, path: "/image".into(), read_only: false, whole: false });
    ContainerSpec { profile, ..spec() }
}

fn of(image: ImageId) -> ContainerSpec {
    ContainerSpec { profile: Profile { image: ImageName::of(image), ..builtin("default") }, ..spec() }
}

fn building(volume: VolumeId) -> ContainerSpec {
    ContainerSpec { profile: Profile { build_root: Some(volume), ..builtin("root") }, ..spec() }
}

impl Powers<'_> {
    async fn fill(&self, provider: &dyn Provider, volume: VolumeId) -> Outcome {
        self.attachments.put_volume(volume, 256 * MIB).await.map_err(failed("put"))?;
        with(provider, filling(volume), async |container| {
            let done = shell(&container, FILL).await?;
            let why = || String::from_utf8_lossy(&done.stderr).into_owned();
            ensure(done.report.exit_code == Some(0), why)
        })
        .await
    }

    async fn listed(&self, image: ImageId) -> Result<Option<u64>, String> {
        let all = self.images.list_images().await.map_err(failed("list"))?;
        Ok(all.iter().find(|one| one.id == image).map(|one| one.bytes))
    }

    async fn remove(&self, volumes: &[VolumeId], images: &[ImageId], result: Outcome) -> Outcome {
        for volume in volumes {
            self.volumes.remove_volume(*volume).await.map_err(failed("remove a volume"))?;
        }
        for image in images {
            self.images.remove_image(*image).await.map_err(failed("remove"))?;
        }
        result
    }
}

pub(super) async fn an_image_is_what_was_sealed_and_never_changes(provider: &dyn Provider) -> Outcome {
    let Some(power) = powers(provider) else { return Ok(()) };
    let (volume, image) = (VolumeId::random(), ImageId::random());
    let result = async {
        power.fill(provider, volume).await?;
        power.images.seal(volume, image).await.map_err(failed("seal"))?;
        with(provider, filling(volume), async |container| {
            says(&container, "echo two > /image/marker").await.map(drop)
        })
        .await?;
        power.images.seal(volume, image).await.map_err(failed("seal again"))?;
        power.volumes.remove_volume(volume).await.map_err(failed("remove a volume"))?;
        power.images.seal(volume, image).await.map_err(failed("seal after the volume is gone"))?;
        let bytes = power.listed(image).await?;
        ensure(bytes.is_some_and(|bytes| bytes > 0), || format!("listed with {bytes:?}"))?;
        with(provider, of(image), async |container| {
            same("its files", says(&container, "cat /marker").await?, "one".into())?;
            let owner = says(&container, "stat -c %u:%g /marker").await?;
            same("their owners", owner, "1234:4321".into())?;
            let written = shell(&container, "touch /new").await?;
            ensure(written.report.exit_code != Some(0), || "an image was written".into())?;
            let own = "for d in /workspace /tmp ~; do touch $d/x || exit 1; done; cat /etc/hosts >/dev/null && echo own";
            same("what a sandbox has", says(&container, own).await?, "own".into())?;
            let removed = power.images.remove_image(image).await.err().map(|e| e.code);
            same("remove while it is used", removed, Some(ErrorCode::Conflict))
        })
        .await?;
        for _ in 0..2 {
            power.images.remove_image(image).await.map_err(failed("remove"))?;
        }
        same("what is removed", power.listed(image).await?, None)
    }
    .await;
    power.remove(&[volume], &[image], result).await
}

pub(super) async fn a_root_that_is_built_becomes_an_image(provider: &dyn Provider) -> Outcome {
    let Some(power) = powers(provider) else { return Ok(()) };
    let ([volume, next], [first, second]) =
        ([VolumeId::random(), VolumeId::random()], [ImageId::random(), ImageId::random()]);
    let result = async {
        power.fill(provider, volume).await?;
        power.images.seal(volume, first).await.map_err(failed("seal"))?;
        let begin = |image, into, bytes| power.images.volume_from_image(image, into, bytes);
        begin(first, next, 256 * MIB).await.map_err(failed("begin"))?;
        let taken = begin(first, next, 256 * MIB).await.err().map(|e| e.code);
        same("a volume that is there", taken, Some(ErrorCode::AlreadyExists))?;
        let small = begin(first, VolumeId::random(), MIB).await.err();
        same("a small limit", small.and_then(|e| e.field), Some("disk_bytes".into()))?;
        with(provider, building(next), async |container| {
            let line = "cat /marker; echo two > /marker; echo x > /workspace/mine; echo x > /tmp/mine";
            same("it begins with the image", says(&container, line).await?, "one".into())?;
            let removed = power.volumes.remove_volume(next).await.err().map(|e| e.code);
            same("remove while it is the root", removed, Some(ErrorCode::Conflict))?;
            let shared = provider.create(building(next)).await;
            same("a second root", shared.err().map(|e| e.code), Some(ErrorCode::Conflict))
        })
        .await?;
        power.images.seal(next, second).await.map_err(failed("seal what was built"))?;
        for (image, wanted) in [(first, "one"), (second, "two")] {
            with(provider, of(image), async |container| {
                let line = "cat /marker; [ -e /workspace/mine ] || [ -e /tmp/mine ] || echo alone";
                same("the image", says(&container, line).await?, format!("{wanted}\nalone"))
            })
            .await?;
        }
        Ok(())
    }
    .await;
    power.remove(&[volume, next], &[first, second], result).await
}

pub(super) async fn what_is_no_image_is_refused(provider: &dyn Provider) -> Outcome {
    let unknown = ImageId::random();
    let made = provider.create(of(unknown)).await.err();
    let made = made.map(|e| (e.code, e.field));
    same("an image that is not there", made, Some((ErrorCode::NotFound, Some("image".into()))))?;
    let built = provider.create(building(VolumeId::random())).await.err().and_then(|e| e.field);
    same("a root that is not there", built, Some("profile.build_root".into()))?;
    let Some(power) = powers(provider) else { return Ok(()) };
    let sealed = power.images.seal(VolumeId::random(), unknown).await.err().map(|e| e.code);
    same("a volume that is not there", sealed, Some(ErrorCode::NotFound))?;
    let begun = power.images.volume_from_image(unknown, VolumeId::random(), 64 * MIB).await.err();
    same("no such image", begun.map(|e| e.code), Some(ErrorCode::NotFound))?;
    power.images.remove_image(unknown).await.map_err(failed("remove what is not there"))
}
