//! The OCI specification of a container: the one document that says what it may see and do. The
//! same one is given to libcontainer and to any other runtime.

use crate::{attachments::Bind, cgroup, context::Context, rootfs::Disk, runtime::Start, uids::Range};
use atoll_guest_proto::{CONFIG_VARIABLE, GuestConfig};
use atoll_types::{Capability, ContainerId, Error, Limits, Profile, Result, RootMode, Storage, TmpfsSizes};
use rustix::fd::{AsRawFd, BorrowedFd};
use serde_json::{Value, json};
use std::path::Path;

/// What a specification is made from.
pub(crate) struct Parts<'a> {
    pub(crate) context: &'a Context,
    pub(crate) container: ContainerId,
    pub(crate) profile: &'a Profile,
    pub(crate) limits: &'a Limits,
    pub(crate) slot: u32,
    pub(crate) range: Range,
    /// The user namespace that the container enters, unless its runtime has a kernel of its own.
    pub(crate) userns: Option<BorrowedFd<'a>>,
    pub(crate) root: &'a Path,
    pub(crate) disk: Option<&'a Disk>,
    pub(crate) binds: &'a [Bind],
    pub(crate) guest: &'a GuestConfig,
    pub(crate) start: &'a Start,
}

/// Paths of /proc and /sys that reveal the machine or could change it.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/buddyinfo",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/devices",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/mdstat",
    "/proc/modules",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/schedstat",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/softirqs",
    "/proc/swaps",
    "/proc/sysvipc",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/proc/zoneinfo",
    "/sys/block",
    "/sys/bus",
    "/sys/class/block",
    "/sys/class/dmi",
    "/sys/dev",
    "/sys/devices/virtual/bdi",
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/dmi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/bpf",
    "/sys/fs/btrfs",
    "/sys/fs/ext4",
    "/sys/fs/selinux",
    "/sys/hypervisor",
    "/sys/kernel/btf",
    "/sys/kernel/debug",
    "/sys/kernel/security",
    "/sys/kernel/slab",
    "/sys/kernel/tracing",
    "/sys/module",
];

/// What is masked on this machine: the list, and every device that is neither the kernel's own nor the
/// processors and their memory, by which programs size themselves.
fn masked() -> Vec<String> {
    let devices = std::fs::read_dir("/sys/devices").into_iter().flatten().flatten();
    let names = devices.filter_map(|entry| entry.file_name().into_string().ok());
    let real = names.filter(|name| name != "system" && name != "virtual");
    MASKED.iter().map(ToString::to_string).chain(real.map(|name| format!("/sys/devices/{name}"))).collect()
}

/// Paths of /proc that hold settings.
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What PID 1 needs: to become the user, to end its processes, and to work on its files.
const PID1: &[&str] =
    &["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER"];

fn capability(capability: Capability) -> &'static str {
    match capability {
        Capability::Chown => "CAP_CHOWN",
        Capability::DacOverride => "CAP_DAC_OVERRIDE",
        Capability::Fowner => "CAP_FOWNER",
        Capability::Fsetid => "CAP_FSETID",
        Capability::Kill => "CAP_KILL",
        Capability::Setgid => "CAP_SETGID",
        Capability::Setuid => "CAP_SETUID",
        Capability::NetBindService => "CAP_NET_BIND_SERVICE",
        Capability::SysChroot => "CAP_SYS_CHROOT",
        Capability::Setfcap => "CAP_SETFCAP",
    }
}

fn mount(at: &str, kind: &str, options: &[&str]) -> Value {
    json!({ "destination": at, "type": kind, "source": kind, "options": options })
}

fn tmpfs(at: &str, size: u64, mode: &str, uid: u32, gid: u32) -> Value {
    let options = [
        "nosuid".into(),
        "nodev".into(),
        format!("size={size}"),
        format!("mode={mode}"),
        format!("uid={uid}"),
        format!("gid={gid}"),
    ];
    json!({ "destination": at, "type": "tmpfs", "source": "tmpfs", "options": options })
}

fn bind(source: &Path, at: &str, read_only: bool) -> Value {
    let access = if read_only { "ro" } else { "rw" };
    json!({ "destination": at, "type": "bind", "source": source, "options": ["bind", access, "nosuid", "nodev"] })
}

/// What /dev/shm may hold, which is memory of the sandbox's.
pub(crate) fn shared_memory_bytes(limits: &Limits) -> u64 {
    limits.memory_bytes / 2
}

impl Parts<'_> {
    /// The whole specification.
    pub(crate) fn build(&self) -> Result<Value> {
        Ok(json!({
            "ociVersion": "1.0.2",
            "hostname": "sandbox",
            "root": { "path": self.root, "readonly": self.profile.root == RootMode::ReadOnly },
            "process": self.process()?,
            "mounts": self.mounts(),
            "linux": self.linux(),
        }))
    }

    fn process(&self) -> Result<Value> {
        let guest = serde_json::to_string(self.guest).map_err(|e| Error::internal(e.to_string()))?;
        let own = self.profile.capabilities.iter().map(|c| capability(*c));
        // Given up before PID 1 starts anything; see `GuestConfig::guard_proc`.
        let at_first = self.guest.guard_proc.then_some("CAP_SYS_ADMIN");
        let mut capabilities: Vec<&str> = PID1.iter().copied().chain(own).chain(at_first).collect();
        capabilities.sort_unstable();
        capabilities.dedup();
        Ok(json!({
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": [self.start.program()],
            "env": [format!("{CONFIG_VARIABLE}={guest}")],
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
                "inheritable": [],
                "ambient": [],
            },
        }))
    }

    fn mounts(&self) -> Vec<Value> {
        let quiet = ["nosuid", "noexec", "nodev"];
        let shared = format!("size={}", shared_memory_bytes(self.limits));
        let mut mounts = vec![
            mount("/proc", "proc", &quiet),
            mount("/dev", "tmpfs", &["nosuid", "noexec", "strictatime", "mode=755", "size=64k"]),
            // The kernel has one number of terminals for the whole machine, so a sandbox has a share.
            mount(
                "/dev/pts",
                "devpts",
                &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "max=128"],
            ),
            // Half of the memory: files there must not be able to take all of it, or nothing could run
            // that would delete them.
            mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", &shared]),
            mount("/dev/mqueue", "mqueue", &quiet),
            mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        ];
        // Where PID 1's program is mounted on /run, it is there already.
        if !self.start.own_kernel() {
            mounts.push(mount("/run", "tmpfs", &["nosuid", "nodev", "mode=755", "size=16m"]));
        }
        // Runtimes such as the JVM size themselves by their cgroup. With v1 that would be a mount for
        // each controller, and each costs more than a whole start should.
        if cgroup::version() == "v2" {
            mounts.push(mount("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "ro"]));
        }
        if let Storage::Tmpfs(sizes) = self.profile.storage {
            let TmpfsSizes { workspace_bytes, tmp_bytes, home_bytes } = sizes;
            let (uid, gid) = (self.profile.uid, self.profile.gid);
            mounts.push(tmpfs("/workspace", workspace_bytes, "755", uid, gid));
            mounts.push(tmpfs("/tmp", tmp_bytes, "1777", 0, 0));
            mounts.push(tmpfs(self.profile.home(), home_bytes, "750", uid, gid));
        }
        if let (Some(disk), true) = (self.disk, self.start.own_kernel()) {
            mounts.extend(disk.places(self.profile).into_iter().map(|(folder, at)| bind(&folder, at, false)));
        }
        mounts
            .extend(self.binds.iter().map(|Bind { source, path, read_only }| bind(source, path, *read_only)));
        mounts.extend(self.start.mounts(&self.context.init));
        mounts
    }

    fn linux(&self) -> Value {
        let map = json!([{ "containerID": 0, "hostID": self.range.base, "size": self.range.length }]);
        let own_kernel = self.start.own_kernel();
        let kinds = ["pid", "network", "ipc", "uts", "mount", "cgroup"];
        let kinds = if own_kernel { &kinds[..5] } else { &kinds[..] };
        let mut namespaces: Vec<Value> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
        // By this worker's number: a runtime opens it from a process of its own.
        namespaces.extend(self.userns.map(|fd| {
            json!({ "type": "user", "path": format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd()) })
        }));
        let map = if own_kernel { json!([]) } else { map };
        let settings = if own_kernel { json!({}) } else { json!(self.context.sysctls.settings) };
        json!({
            "sysctl": settings,
            "uidMappings": map,
            "gidMappings": map,
            "namespaces": namespaces,
            "cgroupsPath": self.context.cgroup(self.container),
            "resources": cgroup::resources(self.limits, self.slot, &self.context.options.permit_missing),
            "maskedPaths": masked(),
            "readonlyPaths": READ_ONLY,
        })
    }
}
