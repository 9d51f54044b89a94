//! The profiles that ship, and what an operator may add to one.

use super::fixture::{Instance, says, shell, spec};
use atoll_provider::{ContainerSpec, Provider};
use atoll_types::{ErrorCode, Profile, ShareMount, VolumeId};
use std::fs;

#[tokio::test]
async fn tools_live_in_memory() {
    let instance = Instance::start().await;
    let c = instance.container("tools").await;
    assert_eq!(says(&c, "id -u; echo $HOME").await, "65532\n/home/sandbox");
    assert_eq!(says(&c, "stat -fc %T /workspace /tmp $HOME | sort -u").await, "tmpfs");
    for place in ["/workspace", "/tmp", "$HOME"] {
        assert_eq!(
            says(&c, &format!("df --output=size -B1 {place} | tail -1")).await.trim(),
            "200003584",
            "{place}"
        );
        let finished =
            shell(&c, &format!("head -c 250M /dev/zero > {place}/x; e=$?; rm {place}/x; exit $e")).await;
        assert_ne!(finished.report.exit_code, Some(0), "{place}");
    }
}

#[tokio::test]
async fn root_is_root_of_its_own_machine_only() {
    let instance = Instance::start().await;
    let volume = VolumeId::random();
    let make = || ContainerSpec { volume: Some(volume), ..spec("root") };
    let c = instance.provider.create(make()).await.unwrap();
    assert_eq!(says(&c, "id -u; echo $HOME").await, "0\n/root");
    says(
        &c,
        "echo '#!/bin/sh' > /usr/local/bin/mine; chmod +x /usr/local/bin/mine; mkdir /opt/mine; touch /new",
    )
    .await;
    says(&c, "touch /etc/x; chown 1000:1000 /etc/x; chmod 600 /etc/x; rm /usr/bin/perl").await;
    assert_eq!(says(&c, "stat -c %u:%g:%a /etc/x").await, "1000:1000:600");
    // Its files are the host's under other ids, and the host's own are untouched.
    assert!(fs::exists("/usr/bin/perl").unwrap() && !fs::exists("/usr/local/bin/mine").unwrap());
    for denied in [
        "mount -t tmpfs x /mnt",
        "hostname other",
        "mknod /dev/sda b 8 0",
        "unshare -U true",
        "echo 1 > /proc/sys/kernel/panic",
    ] {
        assert_ne!(shell(&c, denied).await.report.exit_code, Some(0), "{denied}");
    }
    // What it installed is there again after a restart.
    instance.provider.destroy(c.id()).await.unwrap();
    let c = instance.provider.create(make()).await.unwrap();
    assert_eq!(
        says(&c, "mine; ls -d /opt/mine /new; test ! -e /usr/bin/perl && echo gone").await,
        "/new\n/opt/mine\ngone"
    );
    instance.provider.destroy(c.id()).await.unwrap();
    instance.provider.volumes().unwrap().remove_volume(volume).await.unwrap();
}

#[tokio::test]
async fn a_root_that_was_tampered_with_leads_no_mount_astray() {
    let instance = Instance::start().await;
    let volume = VolumeId::random();
    let make = || ContainerSpec { volume: Some(volume), ..spec("root") };
    let bait = tempfile::Builder::new().prefix("atoll-bait-").tempdir_in("/var/tmp").unwrap();
    let c = instance.provider.create(make()).await.unwrap();
    says(&c, &format!("mv /home /h && ln -s {} /home && rm -rf /srv && ln -s / /srv", bait.path().display()))
        .await;
    instance.provider.destroy(c.id()).await.unwrap();
    // Whether it starts again or is refused: nothing on the host is touched.
    if let Ok(c) = instance.provider.create(make()).await {
        instance.provider.destroy(c.id()).await.unwrap();
    }
    assert_eq!(fs::read_dir(bait.path()).unwrap().count(), 0);
    instance.provider.volumes().unwrap().remove_volume(volume).await.unwrap();
}

#[tokio::test]
async fn build_may_chroot() {
    let instance = Instance::start().await;
    let c = instance.container("build").await;
    assert_eq!(says(&c, "mkdir -p /tmp/r && chroot / /bin/echo inside").await, "inside");
    let c = instance.container("root").await;
    assert_ne!(shell(&c, "chroot / /bin/true").await.report.exit_code, Some(0));
}

#[tokio::test]
async fn shares_are_the_operators() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data.csv"), "1,2").unwrap();
    let share = format!("data={}", folder.path().display());
    let instance = Instance::start_with(&["--share", &share]).await;
    let with = |share: &str, writable: bool| {
        let mounts = vec![ShareMount { share: share.into(), at: "/mnt/data".into(), writable }];
        ContainerSpec {
            profile: Profile { mounts, ..Profile::builtin("default").unwrap() },
            ..spec("default")
        }
    };
    let c = instance.provider.create(with("data", true)).await.unwrap();
    assert_eq!(says(&c, "cat /mnt/data/data.csv").await, "1,2");
    assert_ne!(
        shell(&c, "touch /mnt/data/x").await.report.exit_code,
        Some(0),
        "the operator shared it read-only"
    );
    assert_eq!(says(&c, "ls /mnt").await, "data");
    let error = instance.provider.create(with("other", false)).await.err().unwrap();
    assert_eq!(
        (error.code, error.field.as_deref()),
        (ErrorCode::InvalidArgument, Some("profile.mounts.share"))
    );
}
