//! Frozen containers: nothing of them runs, nothing of them is lost, and whatever happens
//! meanwhile they can go on or be ended.

use super::fixture::{Instance, eventually, options, says, shell, spec};
use atoll_launch_proto::Request;
use atoll_provider::{Command, Container, ContainerSpec, ExecEvent, Provider, State};
use atoll_provider_native::ensure_launcher;
use atoll_types::{ErrorCode, ExecId, Isolation, Limits, Profile};
use futures_util::future::join_all;
use std::{fs, process, sync::Arc, time::Duration};

async fn pause(container: &Arc<dyn Container>) {
    container.pause().unwrap().pause().await.unwrap();
}

async fn resume(container: &Arc<dyn Container>) {
    container.pause().unwrap().resume().await.unwrap();
}

fn kill(pid: i32) {
    let _ = process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
}

/// A shell that counts without end, in a variable of its own.
async fn count(container: &Arc<dyn Container>) {
    let line = "setsid sh -c 'n=0; while :; do n=$((n+1)); echo $n > /tmp/new; mv /tmp/new /tmp/n; \
                sleep 0.01; done' >/dev/null 2>&1 & until [ -e /tmp/n ]; do sleep 0.01; done";
    assert_eq!(shell(container, line).await.report.exit_code, Some(0));
}

/// What was counted, as seen from outside.
fn counted(instance: &Instance, container: &Arc<dyn Container>) -> u64 {
    let path = format!("/proc/{}/root/tmp/n", instance.pid_of(container));
    let mut number = None;
    eventually("a number", || {
        number = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        number.is_some()
    });
    number.unwrap()
}

#[tokio::test]
async fn nothing_runs_and_nothing_is_lost() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    count(&c).await;
    pause(&c).await;
    let before = counted(&instance, &c);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(counted(&instance, &c), before, "it counts though it stands still");
    resume(&c).await;
    eventually("going on", || counted(&instance, &c) > before);
    let later = says(&c, "cat /tmp/n").await.parse::<u64>().unwrap();
    assert!(later < before + 10_000, "it goes on from where it was: {before}, {later}");
}

#[tokio::test]
async fn a_timeout_leaves_out_the_time_in_which_nothing_ran() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let timed =
        |line: &str, seconds| Command { timeout: Some(Duration::from_secs(seconds)), ..Command::shell(line) };
    // The first is done in time, though not by the wall's clock; the second never is.
    let steps = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done";
    let quick = c.guest().exec(ExecId::random(), &timed(steps, 8)).await.unwrap();
    let slow = c.guest().exec(ExecId::random(), &timed("sleep 1000", 1)).await.unwrap();
    pause(&c).await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    resume(&c).await;
    let mut ends = Vec::new();
    for mut events in [quick, slow] {
        let end = loop {
            match events.next().await.unwrap().unwrap() {
                ExecEvent::Ended(report) => break report,
                _ => continue,
            }
        };
        ends.push((end.timed_out, end.exit_code));
    }
    assert_eq!(ends[0], (false, Some(0)));
    assert!(ends[1].0, "a timeout is still one");
}

#[tokio::test]
async fn a_paused_container_can_be_destroyed() {
    let instance = Instance::start().await;
    for profile in ["default", "root"] {
        let c = instance.container(profile).await;
        count(&c).await;
        pause(&c).await;
        let (pid, folder) = (instance.pid_of(&c), instance.layout.run().join("c").join(c.id().to_string()));
        let (told, destroyed) = tokio::join!(c.died(), instance.provider.destroy(c.id()));
        destroyed.unwrap();
        told.unwrap();
        assert!(!folder.exists() && !fs::exists(format!("/proc/{pid}/root/tmp")).unwrap());
    }
    // And with everything else; the fixture looks for what is left.
    let c = instance.container("default").await;
    count(&c).await;
    pause(&c).await;
    instance.client.ask(Request::Shutdown).await.unwrap();
    eventually("its end", || instance.launcher_pids().is_empty());
}

#[tokio::test]
async fn killing_monitor_and_launcher_changes_nothing_about_it() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    count(&c).await;
    pause(&c).await;
    let before = counted(&instance, &c);
    instance.launcher_pids().into_iter().for_each(kill);
    ensure_launcher(&options(instance.data(), &[])).await.unwrap();
    let all = instance.provider.list().await.unwrap();
    assert_eq!(all.iter().map(|l| l.state.clone()).collect::<Vec<_>>(), [State::Paused]);
    assert_eq!(counted(&instance, &c), before);
    let again = instance.provider.attach(c.id()).await.unwrap();
    resume(&again).await;
    eventually("going on", || counted(&instance, &c) > before);
    assert_eq!(says(&again, "echo answered").await, "answered");
    // A terminal needs what PID 1 says of itself when it is greeted, which here came late.
    assert!(again.guest().has(atoll_provider::FEATURE_TOOLS));
    // Its record is lost while it is frozen: then it is an orphan.
    pause(&again).await;
    let pid = instance.pid_of(&c);
    instance.launcher_pids().into_iter().for_each(kill);
    let folder = instance.layout.run().join("c").join(c.id().to_string());
    fs::remove_file(folder.join("record.json")).unwrap();
    ensure_launcher(&options(instance.data(), &[])).await.unwrap();
    assert_eq!(instance.provider.list().await.unwrap(), vec![]);
    assert!(!folder.exists() && !fs::exists(format!("/proc/{pid}/root/tmp")).unwrap());
}

#[tokio::test]
async fn a_worker_killed_while_it_pauses_leaves_what_can_go_on() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    count(&c).await;
    let launcher = instance.launcher_pids()[1];
    let mut seen = Vec::new();
    // 30 delays at least, and as many more as it takes to hit a worker.
    for delay in (0..30u64).cycle().take(600) {
        if seen.len() >= 30 && seen.contains(&true) {
            break;
        }
        let power = c.pause().unwrap();
        let (answer, ()) = tokio::join!(power.pause(), async {
            tokio::time::sleep(Duration::from_micros(delay * 150)).await;
            let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children"));
            for child in children.unwrap_or_default().split_whitespace() {
                let line = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
                // Neither the observer nor the one that waits for the container's end matters here.
                if line.contains("atoll-launch") {
                    kill(child.parse().unwrap());
                }
            }
        });
        let state = c.state().await.unwrap();
        assert!(answer.is_err() || state == State::Paused, "{answer:?}, {state:?}");
        assert!(matches!(state, State::Running | State::Paused), "{state:?}");
        seen.push(answer.is_err());
        let power = c.pause().unwrap();
        // No worker is hit this time.
        power.resume().await.unwrap();
        assert_eq!(says(&c, "echo on").await, "on");
    }
    assert!(seen.contains(&true), "no worker was hit");
}

#[tokio::test]
async fn a_fork_bomb_can_be_paused_unpaused_and_killed() {
    let instance = Instance::start().await;
    let limits = Limits { processes: 64, ..Limits::default() };
    let c = instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap();
    let bomb = Command::shell("bomb() { bomb | bomb & }; while :; do bomb; done 2>/dev/null");
    c.guest().start(ExecId::random(), &bomb).await.unwrap();
    for _ in 0..5 {
        match c.pause().unwrap().pause().await {
            Ok(()) => assert_eq!(c.state().await.unwrap(), State::Paused),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::Timeout, "{error:?}");
                assert_eq!(c.state().await.unwrap(), State::Running);
            }
        }
        resume(&c).await;
    }
    let _ = c.pause().unwrap().pause().await;
    instance.provider.destroy(c.id()).await.unwrap();
}

#[tokio::test]
async fn twenty_at_once() {
    let instance = Instance::start().await;
    let all = join_all((0..20).map(|_| instance.container("tools"))).await;
    for _ in 0..3 {
        join_all(all.iter().map(pause)).await;
        let listed = instance.provider.list().await.unwrap();
        assert!(listed.len() == 20 && listed.iter().all(|l| l.state == State::Paused), "{listed:?}");
        join_all(all.iter().map(resume)).await;
        let said = join_all(all.iter().map(|c| says(c, "echo on"))).await;
        assert!(said.iter().all(|s| s == "on"), "{said:?}");
    }
}

#[tokio::test]
async fn under_other_runtimes() {
    let instance = Instance::start().await;
    for runtime in ["runc", "runsc"] {
        let isolation = Isolation::Runtime(runtime.into());
        let profile = Profile { isolation, ..Profile::builtin("default").unwrap() };
        let c = instance.provider.create(ContainerSpec { profile, ..spec("default") }).await.unwrap();
        says(&c, "echo here > /tmp/mark").await;
        pause(&c).await;
        assert_eq!(c.state().await.unwrap(), State::Paused, "{runtime}");
        let again = instance.provider.attach(c.id()).await.unwrap();
        let asked = says(&again, "cat /tmp/mark");
        let mut asked = std::pin::pin!(asked);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut asked).await;
        assert!(early.is_err(), "{runtime}: it answers though it stands still");
        resume(&again).await;
        assert_eq!(asked.await, "here", "{runtime}");
        pause(&c).await;
        instance.provider.destroy(c.id()).await.unwrap();
    }
}

#[tokio::test]
async fn the_memory_of_files_is_given_back() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    says(&c, "head -c 64M /dev/urandom > /workspace/big; sync; cat /workspace/big > /dev/null").await;
    let used = async || instance.provider.usage().unwrap().one(c.id()).await.unwrap().memory_bytes.unwrap();
    let before = used().await;
    assert!(before > 48 << 20, "{before}");
    pause(&c).await;
    // Beside the answer, which nobody waits for.
    let mut after = before;
    for _ in 0..600 {
        after = used().await;
        if after < before - (32 << 20) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("memory: {before} bytes before, {after} after");
    assert!(after < before - (32 << 20), "{before}, then {after}");
    resume(&c).await;
    assert_eq!(says(&c, "wc -c < /workspace/big").await, "67108864");
}
