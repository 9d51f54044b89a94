//! What containers use, as the launcher tells it.

use super::fixture::{Instance, says, spec};
use atoll_launch_proto::{HEADER, Layout, MAX_REQUEST, frame_length};
use atoll_provider::{ContainerSpec, Provider};
use atoll_types::{ContainerId, ErrorCode, Limits, Profile, Storage, TmpfsSizes};
use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
};

/// Stands before a launcher and writes down what it is asked: for each connection it forks one worker.
pub(crate) struct Gate {
    at: PathBuf,
    aside: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Gate {
    /// Takes the place of the launcher's socket. What passes descriptors does not get through.
    pub(crate) fn before(launcher: &Layout) -> Self {
        let at = launcher.socket();
        let aside = at.with_extension("aside");
        fs::rename(&at, &aside).unwrap();
        let listener = UnixListener::bind(&at).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o666)).unwrap();
        let gate = Self { at, aside, asked: Arc::default() };
        let (asked, aside) = (Arc::clone(&gate.asked), gate.aside.clone());
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(launcher) = UnixStream::connect(&aside) else { return };
                let asked = Arc::clone(&asked);
                thread::spawn(move || pass(client, launcher, &asked));
            }
        });
        gate
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn pass(mut client: UnixStream, mut launcher: UnixStream, asked: &Mutex<Vec<String>>) {
    let mut header = [0; HEADER];
    client.read_exact(&mut header).unwrap();
    let mut body = vec![0; frame_length(header, MAX_REQUEST).unwrap()];
    client.read_exact(&mut body).unwrap();
    asked.lock().unwrap().push(String::from_utf8(body.clone()).unwrap());
    launcher.write_all(&[&header[..], &body].concat()).unwrap();
    let _ = std::io::copy(&mut launcher, &mut client);
}

impl Drop for Gate {
    fn drop(&mut self) {
        fs::rename(&self.aside, &self.at).unwrap();
    }
}

#[tokio::test]
async fn one_worker_tells_what_all_containers_use() {
    let instance = Instance::start().await;
    let mut made = Vec::new();
    for _ in 0..6 {
        made.push(instance.container("default").await.id());
    }
    let gate = Gate::before(&instance.layout);
    let all = instance.provider.usage().unwrap().all().await.unwrap();
    made.sort_unstable();
    assert_eq!(all.iter().map(|(id, _)| *id).collect::<Vec<_>>(), made, "each once, in order");
    assert_eq!(gate.asked().len(), 1, "{:?}", gate.asked());
    for (_, usage) in all {
        assert!(usage.cpu_usec.is_some() && usage.processes >= Some(1) && usage.age_usec > 0, "{usage:?}");
    }
}

#[tokio::test]
async fn limits_and_disk_are_the_containers() {
    let instance = Instance::start().await;
    let limits =
        Limits { memory_bytes: 200 << 20, disk_bytes: 300 << 20, processes: 50, ..Limits::default() };
    let c = instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap();
    let power = instance.provider.usage().unwrap();
    let usage = power.one(c.id()).await.unwrap();
    assert_eq!(usage.memory_limit_bytes, Some(200 << 20));
    // With Atoll's own.
    assert_eq!(usage.processes_limit, Some(66));
    assert_eq!(usage.disk_limit_bytes, Some(300 << 20));
    let before = usage.disk_bytes.unwrap();
    says(&c, "head -c 40M /dev/urandom > /workspace/x; sync -f /workspace/x").await;
    assert!(power.one(c.id()).await.unwrap().disk_bytes.unwrap() >= before + (40 << 20));
    let more = Limits { memory_bytes: 300 << 20, ..limits };
    c.live_limits().unwrap().set_limits(more).await.unwrap();
    assert_eq!(power.one(c.id()).await.unwrap().memory_limit_bytes, Some(300 << 20));
}

#[tokio::test]
async fn what_nobody_counts_is_none() {
    let instance = Instance::start_with(&["--storage", "dir"]).await;
    let c = instance.container("default").await;
    let power = instance.provider.usage().unwrap();
    let usage = power.one(c.id()).await.unwrap();
    assert_eq!((usage.disk_bytes, usage.disk_limit_bytes), (None, None), "nothing is walked, nor enforced");
    assert!(usage.memory_bytes.is_some());
}

#[tokio::test]
async fn files_in_memory_are_memory_and_no_disk() {
    let instance = Instance::start().await;
    let sizes = TmpfsSizes { workspace_bytes: 64 << 20, tmp_bytes: 1 << 20, home_bytes: 1 << 20 };
    let profile = Profile { storage: Storage::Tmpfs(sizes), ..Profile::builtin("default").unwrap() };
    let c = instance.provider.create(ContainerSpec { profile, ..spec("default") }).await.unwrap();
    let power = instance.provider.usage().unwrap();
    let before = power.one(c.id()).await.unwrap();
    assert_eq!((before.disk_bytes, before.disk_limit_bytes), (None, None));
    says(&c, "head -c 32M /dev/zero > /workspace/x").await;
    let after = power.one(c.id()).await.unwrap();
    assert!(after.memory_bytes.unwrap() >= before.memory_bytes.unwrap() + (24 << 20), "{after:?}");
}

#[tokio::test]
async fn only_what_lives_is_measured() {
    let instance = Instance::start().await;
    let power = instance.provider.usage().unwrap();
    let error = power.one(ContainerId::random()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    let c = instance.container("default").await;
    let pid = rustix::process::Pid::from_raw(instance.pid_of(&c)).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    c.died().await.unwrap();
    assert_eq!(power.one(c.id()).await.unwrap_err().code, ErrorCode::ContainerDied);
    assert_eq!(power.all().await.unwrap(), vec![]);
}
