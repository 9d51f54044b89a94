//! Whatever is killed, whenever: what lives goes on, what is half-made goes away, and nothing is lost.

use super::fixture::{Instance, Stopped, eventually, options, says, spec};
use atoll_launch_proto::Request;
use atoll_provider::{Command, ContainerSpec, Provider, State};
use atoll_provider_native::ensure_launcher;
use atoll_types::{ContainerId, DeathKind, ErrorCode, ExecId, VolumeId};
use std::{
    collections::HashSet,
    fs,
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

fn kill(pid: i32) {
    let status = process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill {pid}");
}

#[tokio::test]
async fn a_killed_launcher_is_restarted_and_containers_live_on() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let id = ExecId::random();
    c.guest().start(id, &Command::shell("for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done")).await.unwrap();
    let [monitor, launcher] = instance.launcher_pids()[..] else { panic!("a monitor and a launcher") };
    kill(launcher);
    eventually("a new launcher", || {
        instance.launcher_pids().iter().any(|p| ![monitor, launcher].contains(p))
    });
    instance.launcher_answers().await;
    // The stream to PID 1 never broke, and a new handle finds the same container.
    let again = instance.provider.attach(c.id()).await.unwrap();
    let mut events = again.guest().attach(id, 0, true).await.unwrap();
    let mut said = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        if let atoll_provider::ExecEvent::Output { data, .. } = event {
            said.extend_from_slice(&data);
        }
    }
    assert_eq!(said, b"1\n2\n3\n4\n5\n6\n");
    // The process that inherited it still sees its end.
    kill(instance.pid_of(&c));
    let death = c.died().await.unwrap();
    assert_eq!((death.kind, death.signal), (DeathKind::Signal, Some(9)));
}

/// Kills the launcher and waits for the next.
async fn restart_launcher(instance: &Instance) {
    // What an earlier launcher left, such as the observer, is the monitor's and older.
    let before = instance.launcher_pids();
    kill(*before.last().unwrap());
    eventually("a new launcher", || instance.launcher_pids().iter().any(|p| !before.contains(p)));
    instance.launcher_answers().await;
}

#[tokio::test]
async fn which_containers_use_a_volume_outlives_a_launcher_and_is_repaired() {
    let instance = Instance::start().await;
    let (volume, gone) = (VolumeId::random(), VolumeId::random());
    let make = || ContainerSpec { volume: Some(volume), ..spec("default") };
    let c = instance.provider.create(make()).await.unwrap();
    let folder = instance.layout.run().join("volumes");
    let of_volume = folder.join(volume.to_string());
    let entry = of_volume.join(c.id().to_string());
    let protected = async || {
        assert!(entry.exists());
        let second = instance.provider.create(make()).await.err().map(|e| e.code);
        let removed = instance.provider.volumes().unwrap().remove_volume(volume).await.err().map(|e| e.code);
        assert_eq!((second, removed), (Some(ErrorCode::Conflict), Some(ErrorCode::Conflict)));
    };
    protected().await;
    restart_launcher(&instance).await;
    protected().await;
    // A launcher of before made no entries; a killed worker may have left one.
    fs::remove_dir_all(&of_volume).unwrap();
    fs::create_dir(folder.join(gone.to_string())).unwrap();
    fs::write(folder.join(gone.to_string()).join(ContainerId::random().to_string()), "").unwrap();
    restart_launcher(&instance).await;
    protected().await;
    assert!(!folder.join(gone.to_string()).exists());
    // A stale entry beside a true one is no user, and neither hides it.
    fs::write(of_volume.join(ContainerId::random().to_string()), "").unwrap();
    protected().await;
    restart_launcher(&instance).await;
    assert_eq!(fs::read_dir(&of_volume).unwrap().count(), 1);
    instance.provider.destroy(c.id()).await.unwrap();
    assert!(!of_volume.exists());
    instance.provider.volumes().unwrap().remove_volume(volume).await.unwrap();
}

#[tokio::test]
async fn killing_monitor_and_launcher_loses_no_container() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    says(&c, "echo kept > /workspace/x").await;
    for pid in instance.launcher_pids() {
        kill(pid);
    }
    assert!(ensure_launcher(&options(instance.data(), &[])).await.unwrap().new);
    let all = instance.provider.list().await.unwrap();
    assert_eq!(
        all.iter().map(|l| (l.id, l.state.clone())).collect::<Vec<_>>(),
        vec![(c.id(), State::Running)]
    );
    let again = instance.provider.attach(c.id()).await.unwrap();
    assert_eq!(says(&again, "cat /workspace/x").await, "kept");
    // Nobody of ours is PID 1's parent any more, so its end leaves no trace but itself.
    kill(instance.pid_of(&c));
    assert_eq!(c.died().await.unwrap().kind, DeathKind::Lost);
}

#[tokio::test]
async fn a_dead_pid_1_is_data_and_the_volume_stays() {
    let instance = Instance::start().await;
    let volume = VolumeId::random();
    let make = || ContainerSpec { volume: Some(volume), ..spec("default") };
    let c = instance.provider.create(make()).await.unwrap();
    says(&c, "echo kept > /workspace/x; sync").await;
    let running = c.guest().exec(ExecId::random(), &Command::new(["sleep", "1000"])).await.unwrap();
    kill(instance.pid_of(&c));
    let mut running = running;
    let error = loop {
        match running.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a broken stream looked like an end"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, ErrorCode::ContainerDied);
    let death = error.death.unwrap();
    assert_eq!((death.kind, death.signal), (DeathKind::Signal, Some(9)));
    assert!(error.message.contains("SIGKILL") && error.message.contains("resume"), "{}", error.message);
    let error = c.guest().run(&Command::new(["true"])).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ContainerDied);
    assert!(matches!(c.state().await.unwrap(), State::Dead(d) if d == death));
    instance.provider.destroy(c.id()).await.unwrap();
    let c = instance.provider.create(make()).await.unwrap();
    assert_eq!(says(&c, "cat /workspace/x").await, "kept");
    instance.provider.destroy(c.id()).await.unwrap();
    instance.provider.volumes().unwrap().remove_volume(volume).await.unwrap();
}

/// The workers of a launcher: its children that run its own program.
pub(super) fn workers(launcher: i32) -> Vec<i32> {
    let children =
        fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|p| p.parse().ok());
    children
        .filter(|p: &i32| {
            fs::read_to_string(format!("/proc/{p}/cmdline")).unwrap_or_default().contains("atoll-launch")
        })
        .collect()
}

#[tokio::test]
async fn a_worker_killed_at_any_moment_leaves_nothing_half_made() {
    let instance = Instance::start().await;
    let launcher = instance.launcher_pids()[1];
    let mut interrupted = 0;
    // 40 delays at least, and as many more as it takes to hit a worker.
    for (round, delay) in (0..40u64).cycle().take(400).enumerate() {
        if round >= 40 && interrupted > 0 {
            break;
        }
        let spec = spec(if delay % 4 == 0 { "root" } else { "default" });
        let id = spec.id;
        let (made, ()) = tokio::join!(instance.provider.create(spec), async {
            tokio::time::sleep(Duration::from_micros(delay * 700)).await;
            for worker in workers(launcher) {
                let _ = process::Command::new("kill").args(["-KILL", &worker.to_string()]).status();
            }
        });
        match made {
            Ok(c) => assert_eq!(says(&c, "echo whole").await, "whole"),
            Err(error) => {
                // The same whether the worker was hit, libcontainer's helper, or PID 1 itself.
                assert_eq!(error.code, ErrorCode::Unavailable, "{error:?}");
                interrupted += 1;
            }
        }
        instance.provider.destroy(id).await.unwrap();
    }
    assert!(interrupted > 0, "no worker was hit");
    assert_eq!(instance.provider.list().await.unwrap(), vec![]);
}

/// The process ids of PID 1 that the launcher has noted: before PID 1 may start, and until its end is written down.
fn noted(pids: &Path) -> Vec<i32> {
    let entries = fs::read_dir(pids).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Kills PID 1 of every container as soon as the launcher has noted its process id.
fn kill_each_pid_1(pids: &Path, until: &AtomicBool) {
    let mut killed = HashSet::new();
    while !until.load(Ordering::SeqCst) {
        for pid in noted(pids) {
            if let (true, Some(pid)) = (killed.insert(pid), rustix::process::Pid::from_raw(pid)) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

#[tokio::test]
async fn a_pid_1_killed_before_its_start_is_unavailable_and_leaves_nothing() {
    let instance = Instance::start().await;
    let (pids, ended) = (instance.layout.run().join("pids"), Arc::new(AtomicBool::new(false)));
    for _ in 0..3 {
        // PID 1 is not started before the holder has answered.
        let holder = Stopped::new(instance.socket_holder_pid().unwrap());
        let (made, ()) = tokio::join!(instance.provider.create(spec("default")), async {
            while noted(&pids).is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            kill(noted(&pids)[0]);
            while !noted(&pids).is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(holder);
        });
        let error = made.err().unwrap();
        assert_eq!(error.code, ErrorCode::Unavailable, "{error:?}");
        assert!(error.message.contains("while it made the container"), "{error:?}");
    }
    // The same whenever it is hit.
    let killer = thread::spawn({
        let (pids, ended) = (pids.clone(), Arc::clone(&ended));
        move || kill_each_pid_1(&pids, &ended)
    });
    let mut said = Vec::new();
    for _ in 0..20 {
        said.extend(instance.provider.create(spec("default")).await.err());
    }
    ended.store(true, Ordering::SeqCst);
    killer.join().unwrap();
    assert!(said.iter().all(|error| error.code == ErrorCode::Unavailable), "{said:?}");
    for listed in instance.provider.list().await.unwrap() {
        instance.provider.destroy(listed.id).await.unwrap();
    }
    for folder in [pids, instance.layout.run().join("c")] {
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{folder:?}");
    }
}

#[tokio::test]
async fn a_launcher_killed_while_it_works_repairs_at_the_next_start() {
    let instance = Instance::start().await;
    for delay in [1u64, 3, 6, 10, 15, 22] {
        let pids = instance.launcher_pids();
        let launcher = pids[1];
        let spec = spec("default");
        // With everybody killed at once, nobody may be left to hang up on the client.
        let create = tokio::time::timeout(Duration::from_secs(2), instance.provider.create(spec));
        let (_, ()) = tokio::join!(create, async {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            for worker in workers(launcher) {
                let _ = process::Command::new("kill").args(["-KILL", &worker.to_string()]).status();
            }
            for pid in pids {
                let _ = process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            }
        });
        ensure_launcher(&options(instance.data(), &[])).await.unwrap();
        // A repair that the killed launcher had begun is a process of its own, and may still be at work.
        let mut listed = instance.provider.list().await.unwrap();
        for _ in 0..600 {
            if listed.iter().all(|one| one.state != State::Creating) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            listed = instance.provider.list().await.unwrap();
        }
        for one in listed {
            assert!(!matches!(one.state, State::Creating), "{one:?}");
            instance.provider.destroy(one.id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn orphans_are_removed_at_start() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    for pid in instance.launcher_pids() {
        kill(pid);
    }
    // As a crash between two lines would leave it: everything but the record.
    let folder = instance.layout.run().join("c").join(c.id().to_string());
    fs::remove_file(folder.join("record.json")).unwrap();
    // And one that nobody remembers at all: its number would never be anybody else's again.
    let pids = instance.layout.run().join("pids");
    std::os::unix::fs::symlink(ContainerId::random().to_string(), pids.join("4194303")).unwrap();
    assert_eq!(fs::read_dir(&pids).unwrap().count(), 2);
    ensure_launcher(&options(instance.data(), &[])).await.unwrap();
    assert_eq!(instance.provider.list().await.unwrap(), vec![]);
    assert!(!folder.exists());
    assert_eq!(fs::read_dir(&pids).unwrap().count(), 0);
    let error = instance.provider.attach(c.id()).await.err().unwrap();
    assert_eq!(error.code, ErrorCode::NotFound);
}

#[tokio::test]
async fn shutdown_ends_everything() {
    let instance = Instance::start().await;
    for profile in ["default", "tools", "root"] {
        let c = instance.container(profile).await;
        c.guest().start(ExecId::random(), &Command::new(["sleep", "1000"])).await.unwrap();
    }
    instance.client.ask(Request::Shutdown).await.unwrap();
    eventually("its end", || instance.launcher_pids().is_empty());
}
