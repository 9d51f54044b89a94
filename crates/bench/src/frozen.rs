//! A bare sleep in a cgroup of its own, which the kernel freezes and thaws: the least that pausing can cost
//! on this machine. It is killed when the value is dropped.

use crate::{Result, baseline::Sleepers};
use std::{
    fs,
    path::{Path, PathBuf},
    thread::yield_now,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct FrozenSleep {
    folder: PathBuf,
    v2: bool,
    sleeper: Sleepers,
}

impl FrozenSleep {
    pub(crate) fn start() -> Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let v2 = root.join("cgroup.controllers").exists();
        let root = if v2 { root.to_owned() } else { root.join("freezer") };
        let folder = root.join(format!("atoll-bench-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let this = Self { folder, v2, sleeper: Sleepers::start(1)? };
        for pid in this.sleeper.pids() {
            fs::write(this.folder.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(this)
    }

    fn read(&self, name: &str) -> Result<String> {
        Ok(fs::read_to_string(self.folder.join(name))?)
    }

    pub(crate) fn freeze(&self) -> Result<()> {
        let (file, word) = if self.v2 { ("cgroup.freeze", "1") } else { ("freezer.state", "FROZEN") };
        fs::write(self.folder.join(file), word)?;
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let stands = match self.v2 {
                true => self.read("cgroup.events")?.contains("frozen 1"),
                false => self.read("freezer.state")?.trim() == "FROZEN",
            };
            if stands {
                return Ok(());
            }
            yield_now();
        }
        Err("a bare sleep cannot be stopped".into())
    }

    pub(crate) fn thaw(&self) -> Result<()> {
        let (file, word) = if self.v2 { ("cgroup.freeze", "0") } else { ("freezer.state", "THAWED") };
        Ok(fs::write(self.folder.join(file), word)?)
    }
}

impl Drop for FrozenSleep {
    fn drop(&mut self) {
        let _ = self.thaw();
        let _ = self.sleeper.kill();
        let _ = fs::remove_dir(&self.folder);
    }
}
