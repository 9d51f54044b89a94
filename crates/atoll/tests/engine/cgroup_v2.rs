//! The engine as on a cgroup v2 machine, as far as this one allows: in a mount namespace where
//! /sys/fs/cgroup is the unified hierarchy. Where the machine's controllers are all in v1, v2 has none to
//! enforce limits with, so their absence must first be refused and then permitted.

use super::fixture::says;
use atoll_launch_proto::{Layout, Request};
use atoll_provider::{ContainerSpec, Provider, State};
use atoll_provider_native::{LauncherClient, NativeProvider};
use atoll_types::Profile;
use std::{path::Path, process::Command, sync::Arc};

/// Runs a script in a mount namespace with v2 where v2 machines have it. Nothing outside is changed.
fn on_v2(data: &Path, script: &str) -> (i32, String) {
    let bin = Path::new(env!("CARGO_BIN_EXE_atoll")).parent().unwrap();
    let prepare = "set -e; mkdir -p \"$DATA\"; unified=$(awk '$3==\"cgroup2\"{print $2; exit}' /proc/mounts); \
                   test -n \"$unified\"; [ \"$unified\" = /sys/fs/cgroup ] || mount --rbind \"$unified\" /sys/fs/cgroup; ";
    let ran = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", &format!("{prepare} {script}")])
        .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display()))
        .env("DATA", data)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    (ran.status.code().unwrap_or(-1), said)
}

fn has_v2() -> bool {
    std::fs::read_to_string("/proc/mounts").unwrap().lines().any(|l| l.split(' ').nth(2) == Some("cgroup2"))
}

#[test]
fn the_engine_runs_on_the_unified_hierarchy() {
    assert!(has_v2(), "every kernel that Atoll runs on has cgroup v2");
    let folder = tempfile::tempdir().unwrap();
    let script = "atoll-launch --data-dir \"$DATA\" --ephemeral --permit-missing memory,pids,cpu,cpuset; \
                  atoll run --data-dir \"$DATA\" -- sh -c 'cat /proc/self/cgroup; stat -fc %T /sys/fs/cgroup; id -u; exit 3'";
    let (code, said) = on_v2(folder.path(), script);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("0::/\n") && said.contains("cgroup2fs") && said.contains("1000"), "{said}");
    super::fixture::assert_nothing_left(folder.path());
}

#[test]
fn limits_that_cannot_be_enforced_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = on_v2(folder.path(), "atoll run --data-dir \"$DATA\" -- echo ran");
    // A machine that is v2 throughout has the controllers, and then there is nothing to refuse.
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        assert_eq!((code, said.as_str()), (0, "ran\n"));
        return;
    }
    assert_eq!(code, 125, "{said}");
    assert!(said.contains("memory") && said.contains("--permit-missing"), "{said}");
    super::fixture::assert_nothing_left(folder.path());
}

/// Only the launcher sees v2; its clients need not.
#[tokio::test]
async fn containers_stand_still_and_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) =
        on_v2(folder.path(), "atoll-launch --data-dir \"$DATA\" --permit-missing memory,pids,cpu,cpuset");
    assert_eq!(code, 0, "{said}");
    let client = Arc::new(LauncherClient::new(&Layout::new(&folder.path().canonicalize().unwrap())));
    let worked = async {
        let provider = NativeProvider::new(Arc::clone(&client));
        let spec = ContainerSpec::throw_away(Profile::builtin("default").unwrap());
        let container = provider.create(spec).await?;
        let power = container.pause().unwrap();
        power.pause().await?;
        assert_eq!(container.state().await?, State::Paused);
        power.resume().await?;
        assert_eq!(says(&container, "echo on").await, "on");
        power.pause().await?;
        provider.destroy(container.id()).await?;
        // Another is ended with everything.
        let spec = ContainerSpec::throw_away(Profile::builtin("default").unwrap());
        provider.create(spec).await?.pause().unwrap().pause().await
    }
    .await;
    client.ask(Request::Shutdown).await.unwrap();
    worked.unwrap();
    super::fixture::assert_nothing_left(folder.path());
}
