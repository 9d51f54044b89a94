//! The provider for tests does what every provider must, as the user that runs this test, and leaves nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use atoll_provider::{Command, ContainerSpec, Provider, State, conformance};
use atoll_provider_process::ProcessProvider;
use atoll_types::{Death, DeathKind, ErrorCode, Profile};

fn spec() -> ContainerSpec {
    ContainerSpec::throw_away(Profile::builtin("default").unwrap())
}

#[tokio::test]
async fn it_conforms_in_what_it_claims() {
    let provider = ProcessProvider::new().unwrap();
    assert_eq!(conformance::run(&provider).await, vec![]);
    assert_eq!(provider.list().await.unwrap(), vec![], "the suite frees what it makes");
}

/// What it does not have it does not claim, so the suite asks nothing of it that it would only pretend.
#[tokio::test]
async fn it_claims_nothing_that_it_has_not() {
    let provider = ProcessProvider::new().unwrap();
    assert!(!provider.capabilities().await.unwrap().disk_limit);
    assert!(provider.usage().is_none() && provider.trust().is_none() && provider.attachments().is_none());
    let container = provider.create(spec()).await.unwrap();
    assert!(container.live_limits().is_none() && container.claimable().is_none());
    assert!(container.pause().is_none() && container.changes().is_none());
    assert!(container.ports().is_none() && container.egress_endpoint().is_none());
}

#[tokio::test]
async fn every_profile_runs_as_its_user() {
    let provider = ProcessProvider::new().unwrap();
    for name in Profile::BUILTIN {
        let profile = Profile::builtin(name).unwrap();
        let wanted = format!("{} {} {}\n", profile.uid, profile.gid, profile.home());
        let container = provider.create(ContainerSpec::throw_away(profile)).await.unwrap();
        let said = container.guest().run(&Command::shell("echo $(id -u) $(id -g) $HOME")).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), wanted, "{name}");
    }
}

#[tokio::test]
async fn a_killed_container_is_dead_and_says_so() {
    let provider = ProcessProvider::new().unwrap();
    let container = provider.create(spec()).await.unwrap();
    provider.kill(container.id()).unwrap();
    let death = container.died().await.unwrap();
    assert_eq!((death.kind, death.signal), (DeathKind::Signal, Some(9)));
    assert_eq!(container.state().await.unwrap(), State::Dead(Death::clone(&death)));
    let error = container.guest().run(&Command::shell("true")).await.unwrap_err();
    assert_eq!((error.code, error.death), (ErrorCode::ContainerDied, Some(death)));
    assert_eq!(provider.list().await.unwrap().len(), 1, "it stays until it is destroyed");
}

/// The processes of this machine with this word in their command line.
fn processes(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

#[tokio::test]
async fn nothing_outlives_the_provider() {
    let word = format!("98765.{}", std::process::id());
    let provider = ProcessProvider::new().unwrap();
    let container = provider.create(spec()).await.unwrap();
    let line = format!("setsid sleep {word} >/dev/null 2>&1 & echo");
    container.guest().run(&Command::shell(&line)).await.unwrap();
    assert_eq!(processes(&word), 1);
    drop(provider);
    assert_eq!(processes(&word), 0);
}

/// What the test below kills: a process with a container.
#[tokio::test]
#[ignore = "it waits to be killed"]
async fn the_victim() {
    let provider = ProcessProvider::new().unwrap();
    let container = provider.create(spec()).await.unwrap();
    let line = format!("echo $$ && exec sleep {}", std::env::var("VICTIM_SLEEPS").unwrap());
    let _ = container.guest().run(&Command::shell(&line)).await;
}

#[test]
fn nothing_outlives_a_killed_test() {
    let word = format!("87654.{}", std::process::id());
    let folder = tempfile::tempdir().unwrap();
    let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_victim", "--ignored"])
        .env("VICTIM_SLEEPS", &word)
        .env("TMPDIR", folder.path())
        .spawn()
        .unwrap();
    let wait = |count: usize| {
        for _ in 0..6000 {
            if processes(&word) == count {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("there are {} processes and not {count}", processes(&word));
    };
    wait(1);
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait(0);
}
