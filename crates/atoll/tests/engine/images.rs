//! Containers of images that lack most of what a machine has, or lay traps where a container needs something.

use super::fixture::{Instance, says, shell, spec};
use atoll_provider::{Command, Container, ContainerSpec, Provider, WriteOptions};
use atoll_types::{ErrorCode, ImageId, ImageName, Isolation, Profile, VolumeId, VolumeMount};
use bytes::Bytes;
use futures_util::stream;
use std::{fs, sync::Arc, time::Duration};

const MIB: u64 = 1 << 20;
/// A static program that is a shell and a few tools. Nothing else is in these images.
const BARE: &str = "cd /image && mkdir -p bin && cp /bin/busybox bin/ && for a in sh cat ls id touch stat readlink \
                    mkdir rm wc grep ps; do ln -s busybox bin/$a; done && rm -rf /image/etc";

fn of(profile: &str, image: ImageId) -> ContainerSpec {
    ContainerSpec {
        profile: Profile { image: ImageName::of(image), ..Profile::builtin(profile).unwrap() },
        ..spec(profile)
    }
}

/// Fills a volume by a line of root's, and seals it.
async fn build(instance: &Instance, line: &str) -> ImageId {
    let (volume, image) = (VolumeId::random(), ImageId::random());
    instance.provider.attachments().unwrap().put_volume(volume, 64 * MIB).await.unwrap();
    let mut filling = spec("root");
    let mount = VolumeMount {
        name: "image".parse().unwrap(),
        volume,
        path: "/image".into(),
        read_only: false,
        whole: false,
    };
    filling.profile.volumes.push(mount);
    let container = instance.provider.create(filling).await.unwrap();
    says(&container, line).await;
    // In use as a build's volume is: what runs there is frozen meanwhile.
    instance.provider.images().unwrap().seal(volume, image).await.unwrap();
    instance.provider.destroy(container.id()).await.unwrap();
    instance.provider.volumes().unwrap().remove_volume(volume).await.unwrap();
    image
}

async fn start(instance: &Instance, spec: ContainerSpec) -> Arc<dyn Container> {
    instance.provider.create(spec).await.unwrap()
}

/// Why a command did not start.
async fn refused(container: &Arc<dyn Container>, command: &Command) -> String {
    let report = container.guest().run(command).await.unwrap().report;
    report.failure.map_or_else(|| format!("it started: {:?}", report.exit_code), |failure| failure.message)
}

#[tokio::test]
async fn a_bare_image_is_at_home() {
    for driver in ["btrfs", "dir"] {
        let instance = Instance::start_with(&["--storage", driver]).await;
        let image = build(&instance, BARE).await;
        for (profile, user) in [("default", "user"), ("tools", "sandbox"), ("root", "root")] {
            let container = start(&instance, of(profile, image)).await;
            assert_eq!(says(&container, "id -un; id -gn").await, format!("{user}\n{user}"), "{profile}");
            assert_eq!(says(&container, "echo $HOME; cd; touch x && readlink -f .").await, {
                let home = Profile::builtin(profile).unwrap().home();
                format!("{home}\n{home}")
            });
            assert_eq!(says(&container, "touch /tmp/x /workspace/x && ls /workspace").await, "x");
            assert!(says(&container, "cat /etc/resolv.conf").await.contains("127.0.0.53"));
            assert!(says(&container, "cat /etc/hosts").await.contains("localhost"));
            assert_ne!(says(&container, "ls /dev/null /proc/self/status /sys/kernel | wc -l").await, "0");
            // It has none of its own, and trusts what the machine does.
            let machine = fs::read("/etc/ssl/certs/ca-certificates.crt").map_or(0, |all| all.len());
            assert_eq!(says(&container, "cat /etc/atoll/ca-bundle.pem | wc -c").await, machine.to_string());
            let written = container.guest().write_file(
                "/workspace/f",
                WriteOptions::default(),
                stream::iter([Ok(Bytes::from_static(b"f"))]),
            );
            written.await.unwrap();
            assert_eq!(says(&container, "cat /workspace/f").await, "f");
            assert_eq!(refused(&container, &Command::new(["python3"])).await, "python3: no such program");
            if profile != "root" {
                assert_ne!(shell(&container, "touch /bin/new").await.report.exit_code, Some(0), "read-only");
            }
            instance.provider.destroy(container.id()).await.unwrap();
        }
        instance.provider.images().unwrap().remove_image(image).await.unwrap();
    }
}

#[tokio::test]
async fn no_link_of_an_image_leads_out_of_it() {
    let instance = Instance::start().await;
    let outside = tempfile::tempdir().unwrap();
    let trap = outside.path().display();
    let image = build(
        &instance,
        &format!(
            "{BARE} && cd /image && ln -s {trap} tmp && ln -s ../../../..{trap} etc && ln -s /dev proc && ln -s / run \
             && ln -s {trap} home && ln -s {trap} workspace && echo file > sys && ln -s /nowhere dev && ln -s {trap} root"
        ),
    )
    .await;
    for profile in ["default", "tools", "root"] {
        let container = start(&instance, of(profile, image)).await;
        let places = "for d in /tmp /etc /proc /run $HOME /workspace /sys /dev; do [ -d $d ] && [ ! -L $d ] || echo $d; done";
        assert_eq!(says(&container, places).await, "", "{profile}");
        says(&container, "touch /tmp/x /workspace/x ~/x").await;
        instance.provider.destroy(container.id()).await.unwrap();
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    instance.provider.images().unwrap().remove_image(image).await.unwrap();
}

#[tokio::test]
async fn what_an_image_lacks_is_said() {
    let instance = Instance::start().await;
    let line = "cd /image && mkdir bin && cp /bin/busybox bin/ && printf '#!/usr/bin/perl\\n' > bin/script && chmod 755 bin/script";
    let image = build(&instance, line).await;
    let container = start(&instance, of("default", image)).await;
    let why = refused(&container, &Command::shell("echo x")).await;
    assert_eq!(why, "there is no shell in this image: name a program and its arguments");
    let why = refused(&container, &Command::new(["script"])).await;
    assert_eq!(why, "script: the interpreter or loader that it names is not in this image");
    let said = container.guest().run(&Command::new(["/bin/busybox", "echo", "said"])).await.unwrap();
    assert_eq!(said.stdout, b"said\n");
    instance.provider.destroy(container.id()).await.unwrap();
}

#[tokio::test]
async fn a_root_over_an_image_is_kept_with_the_volume_and_the_image_stays() {
    let instance = Instance::start().await;
    let image = build(&instance, BARE).await;
    let volume = VolumeId::random();
    let on = || ContainerSpec { volume: Some(volume), ..of("root", image) };
    for round in ["", "kept"] {
        let container = start(&instance, on()).await;
        assert_eq!(says(&container, "cat /opt/new 2>/dev/null; true").await, round);
        says(&container, "mkdir -p /opt; echo kept > /opt/new; rm -f /bin/wc; echo mine > /etc/hosts").await;
        instance.provider.destroy(container.id()).await.unwrap();
    }
    let container = start(&instance, of("default", image)).await;
    assert_eq!(says(&container, "ls /bin/wc; ls -d /opt 2>/dev/null || echo none").await, "/bin/wc\nnone");
    instance.provider.destroy(container.id()).await.unwrap();
}

#[tokio::test]
async fn a_build_has_its_network_files_and_leaves_none_of_them() {
    let instance = Instance::start().await;
    let base = build(
        &instance,
        &format!(
            "{BARE} && mkdir -p etc && ln -s ../run/nowhere/resolv.conf etc/resolv.conf && ln -s /etc tmp"
        ),
    )
    .await;
    let (volume, image) = (VolumeId::random(), ImageId::random());
    let images = instance.provider.images().unwrap();
    images.volume_from_image(base, volume, 64 * MIB).await.unwrap();
    let mut building = spec("build");
    building.profile.build_root = Some(volume);
    let container = start(&instance, building).await;
    assert!(says(&container, "cat /etc/resolv.conf").await.contains("127.0.0.53"));
    says(
        &container,
        "echo x > /root-file; mkdir -p /root && echo x > /root/kept; echo x > /tmp/lost; ls /proc/self",
    )
    .await;
    // The image may have been removed long ago.
    images.remove_image(base).await.unwrap();
    instance.provider.destroy(container.id()).await.unwrap();
    images.seal(volume, image).await.unwrap();
    let data = instance.layout.run().join("pool/images").join(image.to_string()).join("data");
    assert_eq!(fs::read(data.join("etc/resolv.conf")).unwrap(), b"");
    assert_eq!(fs::read_to_string(data.join("root/kept")).unwrap(), "x\n");
    assert!(!data.join("tmp/lost").exists());
    let container = start(&instance, of("root", image)).await;
    assert_eq!(says(&container, "cat /root-file").await, "x");
    instance.provider.destroy(container.id()).await.unwrap();
    images.remove_image(image).await.unwrap();
    instance.provider.volumes().unwrap().remove_volume(volume).await.unwrap();
}

/// A start and a removal at once: one of them is refused, and what started has its files.
#[tokio::test]
async fn an_image_is_removed_or_started_from_and_never_both() {
    let instance = Instance::start().await;
    let images = instance.provider.images().unwrap();
    for round in 0..8 {
        let image = build(&instance, BARE).await;
        let removing = async {
            tokio::time::sleep(Duration::from_millis(round * 4)).await;
            images.remove_image(image).await
        };
        let (started, removed) = tokio::join!(instance.provider.create(of("default", image)), removing);
        match (started, removed) {
            (Ok(container), Err(refused)) => {
                assert_eq!(refused.code, ErrorCode::Conflict);
                assert_eq!(says(&container, "echo lives").await, "lives");
                instance.provider.destroy(container.id()).await.unwrap();
                images.remove_image(image).await.unwrap();
            }
            (Err(refused), Ok(())) => assert_eq!(refused.code, ErrorCode::NotFound, "{refused}"),
            (started, removed) => panic!("started: {:?}, removed: {removed:?}", started.err()),
        }
    }
}

#[tokio::test]
async fn other_runtimes_start_from_a_sealed_image() {
    let instance = Instance::start().await;
    let image = build(&instance, BARE).await;
    for runtime in ["runc", "runsc"] {
        let mut spec = of("default", image);
        spec.profile.isolation = Isolation::Runtime(runtime.into());
        let container = start(&instance, spec).await;
        assert_eq!(
            says(&container, "id -un; touch /workspace/x /tmp/x ~/x && cat /workspace/x").await,
            "user",
            "{runtime}"
        );
        instance.provider.destroy(container.id()).await.unwrap();
    }
    let mut building = spec("build");
    building.profile.build_root = Some(VolumeId::random());
    building.profile.isolation = Isolation::Runtime("runsc".into());
    let refused = instance.provider.create(building).await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::Unsupported);
}
