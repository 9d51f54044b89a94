//! Reads what cgroups count. Where each hierarchy lies is looked up once, so one meter reads many
//! containers; a controller that the machine lacks leaves its figures out.
//!
//! Only this module knows the files of cgroup v1 and v2. Figures come from the kernel's counters; no request goes
//! to PID 1 and no tree is walked. What a machine does not count is `None`, never zero. Memory is what the limit
//! counts, page cache included; with cgroup v1 the buffers of sockets are added. The limit of processes includes
//! the 16 that are reserved for PID 1.

use atoll_types::Usage;
use libcgroups::{
    common::{CgroupSetup, DEFAULT_CGROUP_ROOT, get_cgroup_setup},
    v1::{ControllerType, util::get_subsystem_mount_point},
};
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

/// No file that is read here is as long.
const LONGEST: u64 = 64 * 1024;
/// What v1 writes for "no limit" is this, less a page of any size.
const V1_UNLIMITED: u64 = (i64::MAX as u64) >> 20 << 20;

/// Where the figures are.
pub(crate) enum Meter {
    /// One hierarchy has all.
    V2(PathBuf),
    /// Each controller has its own.
    V1 { cpu: Option<PathBuf>, accounting: Option<PathBuf>, memory: Option<PathBuf>, pids: Option<PathBuf> },
}

/// The files of one controller of one cgroup.
struct Files<'a>(Option<PathBuf>, &'a Path);

impl Files<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        let file = File::open(self.0.as_ref()?.join(self.1).join(name)).ok()?;
        file.take(LONGEST).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.trim().parse().ok()
    }

    /// A number; `max` is none.
    fn limit(&self, name: &str) -> Option<u64> {
        self.number(name).filter(|limit| *limit < V1_UNLIMITED)
    }

    /// A number by its name, of a file that has several.
    fn named(&self, file: &str, name: &str) -> Option<u64> {
        let text = self.text(file)?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }
}

impl Meter {
    /// That of this machine.
    pub(crate) fn find() -> Option<Self> {
        match get_cgroup_setup().ok()? {
            CgroupSetup::Unified => Some(Self::V2(DEFAULT_CGROUP_ROOT.into())),
            CgroupSetup::Hybrid | CgroupSetup::Legacy => {
                let mount = |kind| get_subsystem_mount_point(&kind).ok();
                Some(Self::V1 {
                    cpu: mount(ControllerType::Cpu),
                    accounting: mount(ControllerType::CpuAcct),
                    memory: mount(ControllerType::Memory),
                    pids: mount(ControllerType::Pids),
                })
            }
        }
    }

    /// What a cgroup uses.
    pub(crate) fn read(&self, cgroup: &Path) -> Usage {
        let cgroup = cgroup.strip_prefix("/").unwrap_or(cgroup);
        match self {
            Self::V2(root) => v2(&Files(Some(root.clone()), cgroup)),
            Self::V1 { cpu, accounting, memory, pids } => {
                let [cpu, accounting, memory, pids] =
                    [cpu, accounting, memory, pids].map(|mount| Files(mount.clone(), cgroup));
                v1(&cpu, &accounting, &memory, &pids)
            }
        }
    }
}

fn v2(files: &Files<'_>) -> Usage {
    Usage {
        cpu_usec: files.named("cpu.stat", "usage_usec"),
        throttled_usec: files.named("cpu.stat", "throttled_usec"),
        memory_bytes: files.number("memory.current"),
        memory_peak_bytes: files.number("memory.peak"),
        memory_limit_bytes: files.limit("memory.max"),
        oom_kills: files.named("memory.events", "oom_kill"),
        processes: files.number("pids.current"),
        processes_limit: files.limit("pids.max"),
        ..Usage::default()
    }
}

/// Memory and the buffers of sockets, which v1 counts apart. The sum of two peaks is the most it can have been.
fn with_sockets(memory: &Files<'_>, name: &str) -> Option<u64> {
    let sockets = memory.number(&format!("memory.kmem.tcp.{name}")).unwrap_or(0);
    Some(memory.number(&format!("memory.{name}"))?.saturating_add(sockets))
}

fn v1(cpu: &Files<'_>, accounting: &Files<'_>, memory: &Files<'_>, pids: &Files<'_>) -> Usage {
    Usage {
        // Nanoseconds, both.
        cpu_usec: accounting.number("cpuacct.usage").map(|n| n / 1000),
        throttled_usec: cpu.named("cpu.stat", "throttled_time").map(|n| n / 1000),
        memory_bytes: with_sockets(memory, "usage_in_bytes"),
        memory_peak_bytes: with_sockets(memory, "max_usage_in_bytes"),
        memory_limit_bytes: memory.limit("memory.limit_in_bytes"),
        oom_kills: memory.named("memory.oom_control", "oom_kill"),
        processes: pids.number("pids.current"),
        processes_limit: pids.limit("pids.max"),
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    /// A v2 cgroup as files: the kernel's own answers were recorded on a v2 machine.
    #[test]
    fn a_v2_cgroup() {
        let root = tree(&[
            (
                "atoll/0123/c/cpu.stat",
                "usage_usec 2134567\nuser_usec 2000000\nsystem_usec 134567\nnice_usec 0\n\
                 core_sched.force_idle_usec 0\nnr_periods 12\nnr_throttled 3\nthrottled_usec 45678\n\
                 nr_bursts 0\nburst_usec 0\n",
            ),
            ("atoll/0123/c/memory.current", "10485760\n"),
            ("atoll/0123/c/memory.peak", "20971520\n"),
            ("atoll/0123/c/memory.max", "536870912\n"),
            ("atoll/0123/c/memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n"),
            ("atoll/0123/c/pids.current", "5\n"),
            ("atoll/0123/c/pids.max", "528\n"),
        ]);
        let meter = Meter::V2(root.path().into());
        let wanted = Usage {
            age_usec: 0,
            cpu_usec: Some(2_134_567),
            throttled_usec: Some(45_678),
            memory_bytes: Some(10 << 20),
            memory_peak_bytes: Some(20 << 20),
            memory_limit_bytes: Some(512 << 20),
            oom_kills: Some(1),
            socket_kills: None,
            processes: Some(5),
            processes_limit: Some(528),
            disk_bytes: None,
            disk_limit_bytes: None,
        };
        assert_eq!(meter.read(Path::new("/atoll/0123/c")), wanted);
        assert_eq!(meter.read(Path::new("/atoll/0123/other")), Usage::default(), "there is none");
        // Without controllers, the kernel still counts processor time; older ones keep no peak.
        let bare = tree(&[
            ("c/cpu.stat", "usage_usec 7\nuser_usec 7\nsystem_usec 0\n"),
            ("c/memory.max", "max\n"),
            ("c/pids.max", "max\n"),
        ]);
        let usage = Meter::V2(bare.path().into()).read(Path::new("/c"));
        assert_eq!(usage, Usage { cpu_usec: Some(7), ..Usage::default() });
    }

    #[test]
    fn a_v1_cgroup() {
        let root = tree(&[
            ("cpu/c/cpu.stat", "nr_periods 12\nnr_throttled 3\nthrottled_time 45678901\n"),
            ("cpuacct/c/cpuacct.usage", "2134567890\n"),
            ("memory/c/memory.usage_in_bytes", "10485760\n"),
            ("memory/c/memory.kmem.tcp.usage_in_bytes", "1048576\n"),
            ("memory/c/memory.kmem.tcp.max_usage_in_bytes", "2097152\n"),
            ("memory/c/memory.max_usage_in_bytes", "20971520\n"),
            ("memory/c/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/c/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"),
        ]);
        let mount = |name: &str| Some(root.path().join(name));
        let (cpu, accounting, memory) = (mount("cpu"), mount("cpuacct"), mount("memory"));
        let usage = Meter::V1 { cpu, accounting, memory, pids: None }.read(Path::new("/c"));
        let wanted = Usage {
            cpu_usec: Some(2_134_567),
            throttled_usec: Some(45_678),
            memory_bytes: Some(11 << 20),
            memory_peak_bytes: Some(22 << 20),
            oom_kills: Some(4),
            ..Usage::default()
        };
        assert_eq!(usage, wanted, "no limit and no controller are both none");
    }

    #[test]
    fn odd_files_give_nothing() {
        for odd in ["", "-1", "x", "18446744073709551616", "1 2", "\u{0}"] {
            let root = tree(&[("c/pids.current", odd), ("c/cpu.stat", odd), ("c/memory.current", odd)]);
            assert_eq!(Meter::V2(root.path().into()).read(Path::new("/c")), Usage::default(), "{odd:?}");
        }
    }
}
