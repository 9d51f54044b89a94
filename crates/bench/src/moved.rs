//! A bare sleep that the kernel moves into cgroups, as every container's first process has to be: the least
//! that any start costs on this machine. On cgroup v1 each hierarchy is a move of its own, and on a quiet
//! machine each waits for the kernel's grace period. It is killed when the value is dropped.

use crate::{Result, baseline::Sleepers};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The hierarchies of v1 that a container is put into.
const HIERARCHIES: &[&str] = &["memory", "pids", "cpu", "cpuset", "freezer", "devices"];

pub(crate) struct MovedSleep {
    /// The source and the target, of each hierarchy.
    folders: Vec<(PathBuf, PathBuf)>,
    sleeper: Sleepers,
}

impl MovedSleep {
    pub(crate) fn start() -> Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let v2 = root.join("cgroup.controllers").exists();
        let roots: Vec<PathBuf> = match v2 {
            true => vec![root.to_owned()],
            false => HIERARCHIES.iter().map(|name| root.join(name)).filter(|path| path.is_dir()).collect(),
        };
        let mut this = Self { folders: Vec::new(), sleeper: Sleepers::start(1)? };
        for root in roots {
            let folder = root.join(format!("atoll-bench-moved-{}", std::process::id()));
            fs::create_dir(&folder)?;
            this.folders.push((root, folder.clone()));
            // A cpuset without processors or memory takes no process.
            for name in ["cpuset.cpus", "cpuset.mems"] {
                if let (Some(parent), true) = (folder.parent(), folder.join(name).exists())
                    && let Ok(value) = fs::read_to_string(parent.join(name))
                {
                    fs::write(folder.join(name), value.trim())?;
                }
            }
        }
        Ok(this)
    }

    /// Into the cgroups.
    pub(crate) fn enter(&self) -> Result<()> {
        self.put(|(_, to)| to)
    }

    /// Out of them again.
    pub(crate) fn leave(&self) -> Result<()> {
        self.put(|(from, _)| from)
    }

    fn put(&self, to: impl Fn(&(PathBuf, PathBuf)) -> &PathBuf) -> Result<()> {
        for pid in self.sleeper.pids() {
            for folders in &self.folders {
                fs::write(to(folders).join("cgroup.procs"), pid.to_string())?;
            }
        }
        Ok(())
    }
}

impl Drop for MovedSleep {
    fn drop(&mut self) {
        let _ = self.sleeper.kill();
        for (_, folder) in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}
