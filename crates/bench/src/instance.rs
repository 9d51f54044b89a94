//! An instance of Atoll for one run: a data folder of its own and a launcher, of which nothing is left at the
//! end.

use crate::Result;
use atoll_launch_proto::{ContainerStatus, LauncherReply, Layout, Request};
use atoll_provider::ContainerSpec;
use atoll_provider_native::{LaunchOptions, LauncherClient, NativeProvider, ensure_launcher};
use atoll_types::{ContainerId, Limits, Profile};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// How long the last of an instance may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running instance.
pub(crate) struct Instance {
    pub(crate) provider: NativeProvider,
    client: Arc<LauncherClient>,
    pub(crate) layout: Layout,
    folder: tempfile::TempDir,
}

fn options(data: &Path) -> LaunchOptions {
    LaunchOptions { data_dir: data.into(), client_uids: Vec::new(), ephemeral: false, extra: Vec::new() }
}

/// A throw-away container of the default profile.
pub(crate) fn spec() -> Result<ContainerSpec> {
    let profile = Profile::builtin("default").ok_or("there is no default profile")?;
    Ok(ContainerSpec::throw_away(profile))
}

/// One of many: disk limits are reserved, and a small machine has too little for the default one.
pub(crate) fn small_spec() -> Result<ContainerSpec> {
    let limits = Limits { disk_bytes: 16 << 20, ..Limits::default() };
    Ok(ContainerSpec { limits, ..spec()? })
}

impl Instance {
    pub(crate) async fn start() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err("the baselines need root; start it with sudo".into());
        }
        let folder = tempfile::Builder::new().prefix("atoll-bench-").tempdir()?;
        let started = ensure_launcher(&options(folder.path())).await?;
        let layout = Layout::new(&folder.path().canonicalize()?);
        let provider = NativeProvider::new(Arc::clone(&started.client));
        Ok(Self { provider, client: started.client, layout, folder })
    }

    /// The launcher's status of a container.
    pub(crate) async fn status(&self, id: ContainerId) -> Result<ContainerStatus> {
        match self.client.ask(Request::Inspect(id)).await? {
            LauncherReply::Container(status) => Ok(*status),
            other => Err(format!("the launcher answered something else: {other:?}").into()),
        }
    }

    /// The folder of a container's own files on this machine.
    pub(crate) fn scratch(&self, id: ContainerId) -> Result<PathBuf> {
        tree(&self.layout, "scratch", &id.to_string())
    }

    /// Ends the launcher and every container, and waits until nothing is left.
    pub(crate) async fn end(mut self) -> Result<()> {
        if let Err(error) = self.end_launcher().await {
            keep(&mut self.folder);
            return Err(error);
        }
        Ok(self.folder.close()?)
    }

    async fn end_launcher(&self) -> Result<()> {
        // Started once more if it was killed, to end everything.
        ensure_launcher(&options(self.layout.data())).await?;
        self.client.ask(Request::Shutdown).await?;
        wait_until_gone(&self.layout).await
    }
}

/// Keeps the data folder of an instance that could not be ended: `atoll down` needs it to end the rest.
pub(crate) fn keep(folder: &mut tempfile::TempDir) {
    folder.disable_cleanup(true);
    eprintln!("atoll-bench: {} is kept, for atoll down --purge --data-dir", folder.path().display());
}

/// The folder of the files of a volume or of a container on this machine.
pub(crate) fn tree(layout: &Layout, kind: &str, id: &str) -> Result<PathBuf> {
    let storage = layout.data().join("storage");
    let roots = [layout.run().join("pool"), storage.join("subvolumes"), storage.join("dir")];
    let mut trees = roots.iter().map(|root| root.join(kind).join(id));
    trees.find(|tree| tree.is_dir()).ok_or_else(|| format!("no files of {kind} {id} are to be found").into())
}

/// Waits for the end of an instance that was purged.
pub(crate) async fn wait_until_gone(layout: &Layout) -> Result<()> {
    let began = Instant::now();
    let mut left = leftovers(layout);
    while !left.is_empty() && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
        left = leftovers(layout);
    }
    if left.is_empty() { Ok(()) } else { Err(format!("left behind: {}", left.join("; ")).into()) }
}

/// What is left of an instance outside its data folder.
fn leftovers(layout: &Layout) -> Vec<String> {
    let (data, instance) = (layout.data().to_string_lossy().into_owned(), layout.instance());
    let run = layout.run();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts.lines().filter(|l| l.contains(&data) || l.contains(instance)).map(str::to_owned);
    let cgroups = Path::new("/sys/fs/cgroup");
    let cgroups = names(cgroups).chain([cgroups.into()]).map(|h| h.join("atoll").join(instance));
    let folders = cgroups.chain([run.clone(), run.with_extension("lock")]).filter(|path| path.exists());
    let backing = |device: &PathBuf| fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
    let loops = names(Path::new("/sys/block")).filter(|device| backing(device).contains(&data));
    let uids = names(&Layout::machine().join("uids"));
    let uids = uids.filter(|slot| fs::read_to_string(slot).is_ok_and(|owner| owner.starts_with(instance)));
    let line = |process: &PathBuf| fs::read(process.join("cmdline")).unwrap_or_default();
    let line = |process: &PathBuf| String::from_utf8_lossy(&line(process)).contains(&data);
    let processes = names(Path::new("/proc")).filter(line);
    let paths = folders.chain(loops).chain(uids).chain(processes).map(|path| path.display().to_string());
    mounts.chain(paths).collect()
}

fn names(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}
