//! An instance of Atoll for one test: a data folder, a launcher, and at its end the proof that nothing
//! is left of either.

use atoll_launch_proto::{Layout, Request};
use atoll_provider::{Command, Container, ContainerSpec, Finished, Provider};
use atoll_provider_native::{LaunchOptions, LauncherClient, NativeProvider, ensure_launcher};
use atoll_types::{Isolation, Profile};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// How the data folders of tests are called; the id of the test's process follows.
const FOLDER: &str = "atoll-test-of-";

/// A data folder of one test, after what tests left behind that are gone was ended: nextest kills a test that takes too
/// long, and its fixture then ends nothing.
pub(crate) fn data_folder(parent: &Path) -> tempfile::TempDir {
    for entry in fs::read_dir(parent).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let owner = name.strip_prefix(FOLDER).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let down = [OsString::from("down"), "--purge".into(), "--data-dir".into(), entry.path().into()];
            let _ = process::Command::new(env!("CARGO_BIN_EXE_atoll")).args(down).output();
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let name = format!("{FOLDER}{}-", process::id());
    tempfile::Builder::new().prefix(&name).tempdir_in(parent).unwrap()
}

/// A running instance.
pub(crate) struct Instance {
    pub(crate) provider: NativeProvider,
    pub(crate) client: Arc<LauncherClient>,
    pub(crate) layout: Layout,
    folder: Option<tempfile::TempDir>,
}

impl Instance {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Waits until a launcher answers. That its socket takes a connection does not say so: a launcher that is being killed
    /// resets the ones that it has not accepted.
    pub(crate) async fn launcher_answers(&self) {
        let began = Instant::now();
        while self.client.ask(Request::Hello).await.is_err() {
            assert!(began.elapsed() < PATIENCE, "no launcher answered");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// With further arguments for the launcher.
    pub(crate) async fn start_with(extra: &[&str]) -> Self {
        let folder = data_folder(&std::env::temp_dir());
        let started = ensure_launcher(&options(folder.path(), extra)).await.unwrap();
        assert!(started.new);
        let layout = Layout::new(&folder.path().canonicalize().unwrap());
        let provider = NativeProvider::new(Arc::clone(&started.client));
        Self { provider, client: started.client, layout, folder: Some(folder) }
    }

    pub(crate) fn data(&self) -> &Path {
        self.layout.data()
    }

    /// A throw-away container of a profile that ships.
    pub(crate) async fn container(&self, profile: &str) -> Arc<dyn Container> {
        self.provider.create(spec(profile)).await.unwrap()
    }

    /// The host's process id of a container's PID 1.
    pub(crate) fn pid_of(&self, container: &Arc<dyn Container>) -> i32 {
        let record = self.layout.run().join("c").join(container.id().to_string()).join("record.json");
        let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
        i32::try_from(record["pid"].as_i64().unwrap()).unwrap()
    }

    /// Every process of this instance's launcher.
    fn pids(&self) -> Vec<i32> {
        pids_of(&self.layout)
    }

    /// The one that keeps the gates, which outlives launchers.
    pub(crate) fn socket_holder_pid(&self) -> Option<i32> {
        self.pids().into_iter().find(|pid| is_socket_holder(*pid))
    }

    /// The processes of this instance's launcher, monitor first, without workers.
    pub(crate) fn launcher_pids(&self) -> Vec<i32> {
        launchers_of(&self.layout)
    }
}

/// Every process of an instance's launcher.
fn pids_of(layout: &Layout) -> Vec<i32> {
    let wanted = layout.data().to_str().unwrap().to_owned();
    let ours = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        arguments.first().is_some_and(|a| a.ends_with(b"atoll-launch"))
            && arguments.contains(&wanted.as_bytes())
    };
    all_processes().into_iter().filter(ours).collect()
}

/// The processes of an instance's launcher, monitor first, without workers.
pub(crate) fn launchers_of(layout: &Layout) -> Vec<i32> {
    let all: Vec<i32> = pids_of(layout).into_iter().filter(|pid| !is_socket_holder(*pid)).collect();
    // A worker's parent is the launcher, which leads no session; the launcher's is the monitor, which does.
    let mut found: Vec<(bool, i32)> = all
        .iter()
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields: Vec<i32> =
                stat.rsplit(')').next().unwrap().split_whitespace().filter_map(|f| f.parse().ok()).collect();
            // It may have ended since it was listed.
            let [parent, _group, session] = fields.first_chunk()?;
            let serves = pid == session || parent == session || !all.contains(parent);
            serves.then_some((pid != session, *pid))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, pid)| pid).collect()
}

fn is_socket_holder(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "atoll-holder")
}

/// A stopped process; it goes on when this is dropped.
pub(crate) struct Stopped(String);

impl Stopped {
    pub(crate) fn new(pid: i32) -> Self {
        let pid = pid.to_string();
        assert!(process::Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = process::Command::new("kill").args(["-CONT", &self.0]).status();
    }
}

pub(crate) fn options(data: &Path, extra: &[&str]) -> LaunchOptions {
    LaunchOptions {
        data_dir: data.into(),
        client_uids: Vec::new(),
        ephemeral: false,
        extra: extra.iter().map(OsString::from).collect(),
    }
}

pub(crate) fn spec(profile: &str) -> ContainerSpec {
    ContainerSpec::throw_away(Profile::builtin(profile).unwrap())
}

/// One of each profile and of each runtime. Not all at once: each is promised a gigabyte of disk.
pub(crate) fn every_spec() -> Vec<ContainerSpec> {
    let mut specs: Vec<ContainerSpec> = ["default", "tools", "root"].map(spec).into();
    specs.extend(["runc", "runsc"].map(|runtime| {
        let isolation = Isolation::Runtime(runtime.into());
        let profile = Profile { isolation, ..Profile::builtin("default").unwrap() };
        ContainerSpec { profile, ..spec("default") }
    }));
    specs
}

pub(crate) fn all_processes() -> Vec<i32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Runs a shell line inside.
pub(crate) async fn shell(container: &Arc<dyn Container>, line: &str) -> Finished {
    container.guest().run(&Command::shell(line)).await.unwrap()
}

/// What a shell line prints, which must succeed.
pub(crate) async fn says(container: &Arc<dyn Container>, line: &str) -> String {
    let finished = shell(container, line).await;
    let error = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert_eq!(finished.report.exit_code, Some(0), "{line}: {error} {:?}", finished.report);
    String::from_utf8(finished.stdout).unwrap().trim_end().to_owned()
}

/// Runs a Python program inside and returns what it prints.
pub(crate) async fn python(container: &Arc<dyn Container>, program: &str) -> String {
    let finished = container.guest().run(&Command::new(["/usr/bin/python3", "-c", program])).await.unwrap();
    let error = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert_eq!(finished.report.exit_code, Some(0), "{error} {:?}", finished.report);
    String::from_utf8(finished.stdout).unwrap().trim_end().to_owned()
}

/// How long a test waits for what takes a moment on a machine that does nothing else. Asserts on nothing's speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that takes a moment.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come about");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What is left in the end: the kernel ends processes, mounts and loop devices a moment after it is told to.
pub(crate) fn left_at_last<T>(mut look: impl FnMut() -> Vec<T>) -> Vec<T> {
    let began = Instant::now();
    loop {
        let left = look();
        if left.is_empty() || began.elapsed() > PATIENCE {
            return left;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What is left of an instance outside its data folder.
fn leftovers(layout: &Layout) -> Vec<String> {
    let mut left = Vec::new();
    let data = layout.data().to_str().unwrap();
    let run = layout.run();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    left.extend(
        mounts.lines().filter(|l| l.contains(data) || l.contains(layout.instance())).map(str::to_owned),
    );
    let gone = |path: PathBuf| path.exists().then(|| path.display().to_string());
    left.extend(gone(run.clone()));
    left.extend(gone(run.with_extension("lock")));
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        left.extend(gone(hierarchy.path().join("atoll").join(layout.instance())));
    }
    for device in fs::read_dir("/sys/block").unwrap().flatten() {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        left.extend(backing.contains(data).then(|| format!("{:?} on {backing}", device.file_name())));
    }
    for slot in fs::read_dir(Layout::machine().join("uids")).into_iter().flatten().flatten() {
        let owner = fs::read_to_string(slot.path()).unwrap_or_default();
        left.extend(owner.starts_with(layout.instance()).then(|| format!("user ids: {owner}")));
    }
    for pid in all_processes() {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        if (line.contains("atoll-launch") && line.contains(data)) || cgroups.contains(layout.instance()) {
            left.push(format!("process {pid}: {line}"));
        }
    }
    left
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A test may have killed the launcher, so it is started once more to end everything.
        let (data, client) = (self.data().to_path_buf(), Arc::clone(&self.client));
        let ended = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let options = options(&data, &["--permit-missing", "memory,pids,cpu,cpuset"]);
                ensure_launcher(&options).await.map_err(|e| e.to_string())?;
                client.ask(Request::Shutdown).await.map_err(|e| e.to_string())
            })
        });
        let ended = ended.join().unwrap();
        let left = left_at_last(|| leftovers(&self.layout));
        let log = fs::read_to_string(self.data().join("launch.log")).unwrap_or_default();
        if thread::panicking() {
            eprintln!("shutdown: {ended:?}; left: {left:#?}; launch.log:\n{log}");
            return;
        }
        drop(self.folder.take());
        assert!(
            ended.is_ok() && left.is_empty(),
            "shutdown: {ended:?}; left behind: {left:#?}; launch.log:\n{log}"
        );
    }
}

/// What is left of the instance of a data folder, which may be gone itself.
pub(crate) fn leftovers_of(data: &Path) -> Vec<String> {
    leftovers(&Layout::new(data))
}

/// As [`leftovers`], for instances whose launcher ends by itself.
pub(crate) fn assert_nothing_left(data: &Path) {
    let layout = Layout::new(&data.canonicalize().unwrap());
    eventually("the end of everything", || leftovers(&layout).is_empty());
}
