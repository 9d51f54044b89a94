//! What there really is of an instance, seen from outside: in the kernel's books and in folders, and never
//! by asking the server. Whatever no sandbox owns is strange.

use crate::{engine::fixture::all_processes, server::fixture::Server};
use atoll_launch_proto::Layout;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

type Names = BTreeSet<String>;

/// What belongs to sandboxes.
#[derive(Debug, Default)]
pub(super) struct Owned {
    pub(super) containers: Names,
    pub(super) volumes: Names,
    /// Volumes that must be there: those of what has a container. One that was cut off before its first start
    /// has none yet, and whether one that stopped lost its own is seen by its files.
    pub(super) mounted: Names,
}

impl Owned {
    pub(super) fn by(sandboxes: &[Value]) -> Self {
        let all = |field: &'static str, run: bool| {
            let some = sandboxes.iter().filter(move |s| !run || s["container_id"].is_string());
            some.filter_map(move |s| s[field].as_str().map(str::to_owned)).collect()
        };
        let (containers, volumes) = (all("container_id", false), all("volume_name", false));
        Self { containers, volumes, mounted: all("volume_name", true) }
    }
}

/// What an instance without a sandbox has.
pub(super) struct World {
    layout: Layout,
    run: Names,
    mounts: Names,
    loops: Names,
    sockets: Names,
}

fn names(folder: &Path) -> Names {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn folders(folder: &Path) -> Names {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|e| e.path().is_dir()).map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

impl World {
    /// Of a server that has no sandbox and keeps none ready.
    pub(super) fn of(server: &Server) -> Self {
        let layout = Layout::new(&server.data().canonicalize().unwrap());
        let mut world = Self {
            layout,
            run: Names::new(),
            mounts: Names::new(),
            loops: Names::new(),
            sockets: Names::new(),
        };
        (world.run, world.mounts) = (names(&world.layout.run()), world.mounts_now());
        (world.loops, world.sockets) = (world.loops_now(), world.sockets_now());
        world
    }

    fn mounts_now(&self) -> Names {
        let all = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let data = self.layout.data().to_string_lossy().into_owned();
        let ours = all.lines().filter(|l| l.contains(&data) || l.contains(self.layout.instance()));
        ours.filter_map(|line| line.split(' ').nth(4).map(str::to_owned)).collect()
    }

    fn loops_now(&self) -> Names {
        let data = self.layout.data().to_string_lossy().into_owned();
        let devices = fs::read_dir("/sys/block").unwrap().flatten().filter(|device| {
            fs::read_to_string(device.path().join("loop/backing_file")).is_ok_and(|f| f.contains(&data))
        });
        devices.map(|device| device.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Sockets that have a name, from the run folder on.
    fn sockets_now(&self) -> Names {
        let run = format!("{}/", self.layout.run().display());
        let all = fs::read_to_string("/proc/net/unix").unwrap();
        let paths = all.lines().filter_map(|line| line.split_whitespace().nth(7));
        paths.filter_map(|path| path.strip_prefix(&run).map(str::to_owned)).collect()
    }

    fn cgroups(&self) -> Vec<PathBuf> {
        let own = |top: &Path| top.join("atoll").join(self.layout.instance());
        let top = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(top).unwrap().flatten().map(|entry| own(&entry.path()));
        hierarchies.chain([own(top)]).filter(|folder| folder.is_dir()).collect()
    }

    /// Everything that is there and nobody's, and everything that is somebody's and not there.
    pub(super) fn strange(&self, owned: &Owned) -> Vec<String> {
        let mut strange = Vec::new();
        let mut compare = |what: &str, there: &Names, wanted: &Names| {
            strange.extend(there.difference(wanted).map(|name| format!("{what}: {name} is nobody's")));
            strange.extend(wanted.difference(there).map(|name| format!("{what}: {name} is not there")));
        };
        let (run, none) = (self.layout.run(), Names::new());
        compare("run folder", &names(&run), &self.run);
        compare("container", &names(&run.join("c")), &owned.containers);
        compare("mount", &self.mounts_now(), &self.mounts);
        compare("loop device", &self.loops_now(), &self.loops);
        let volumes = names(&run.join("pool/volumes"));
        compare(
            "volume",
            &volumes,
            &volumes.intersection(&owned.volumes).chain(&owned.mounted).cloned().collect(),
        );
        compare("spool", &names(&run.join("pool/spools")), &owned.containers);
        for empty in ["new", "trash", "scratch"] {
            compare(empty, &names(&run.join("pool").join(empty)), &none);
        }
        for folder in self.cgroups() {
            compare(&folder.display().to_string(), &folders(&folder), &owned.containers);
        }
        compare("user ids", &self.user_ids(), &owned.containers);
        let sockets = owned.containers.iter().map(|id| format!("c/{id}/guest.sock"));
        compare("socket", &self.sockets_now(), &self.sockets.iter().cloned().chain(sockets).collect());
        for folder in ["lc", "oci"] {
            let more = names(&run.join(folder)).difference(&owned.containers).cloned().collect();
            compare(folder, &more, &none);
        }
        let pids = names(&run.join("pids")).len();
        compare("pids", &[pids.to_string()].into(), &[owned.containers.len().to_string()].into());
        strange.extend(self.strange_processes(owned));
        strange
    }

    /// The containers that have host ids.
    fn user_ids(&self) -> Names {
        let slots = fs::read_dir(Layout::machine().join("uids")).into_iter().flatten().flatten();
        let owners = slots.filter_map(|slot| fs::read_to_string(slot.path()).ok());
        let ours = owners.filter_map(|owner| {
            owner.split_once(' ').filter(|(of, _)| *of == self.layout.instance()).map(|(_, id)| id.to_owned())
        });
        ours.collect()
    }

    /// Processes in a cgroup of nobody's, and more of the launcher's than it needs: monitor, launcher,
    /// observer, keeper, and one for each container whose end is waited for.
    fn strange_processes(&self, owned: &Owned) -> Vec<String> {
        let (data, instance) = (self.layout.data().to_string_lossy(), self.layout.instance());
        let (mut strange, mut launchers) = (Vec::new(), Vec::new());
        for pid in all_processes() {
            let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let line = read("cmdline").replace('\0', " ");
            if line.contains("atoll-launch") && line.contains(&*data) {
                launchers.push(format!("{pid} {}", read("comm").trim()));
            }
            for cgroup in read("cgroup").lines().filter(|cgroup| cgroup.contains(instance)) {
                if !owned.containers.iter().any(|id| cgroup.contains(id)) {
                    strange.push(format!("process {pid} ({line}) is in {cgroup}"));
                }
            }
        }
        if launchers.len() > 4 + owned.containers.len() {
            strange.push(format!("processes of the launcher: {launchers:?}"));
        }
        strange
    }
}
