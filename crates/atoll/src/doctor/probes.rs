//! Probes without privilege: files of /proc and /sys, and programs on the path. Each probe is a function from
//! what it read to a finding, so that every outcome can be tested.

use super::Finding;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const PROGRAM_FOLDERS: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The name of the probe that depends on the user that runs it.
pub(super) const PRIVILEGE: &str = "privilege";

/// Every probe.
pub(super) fn all(data_dir: &Path) -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let filesystems = read("/proc/filesystems");
    vec![
        kernel(&read("/proc/sys/kernel/osrelease")),
        privilege(rustix::process::geteuid().is_root(), || sudo(find("sudo").as_deref())),
        namespaces(&namespace_kinds(), &read("/proc/sys/user/max_user_namespaces")),
        cgroups(&read("/proc/self/mountinfo"), &read("/sys/fs/cgroup/cgroup.controllers")),
        seccomp(&read("/proc/sys/kernel/seccomp/actions_avail")),
        overlay(&filesystems),
        storage(
            &filesystems,
            find("mkfs.btrfs").is_some(),
            Path::new("/dev/loop-control").exists(),
            on_btrfs(data_dir),
        ),
        images(find("mmdebstrap").is_some(), Path::new("/etc/apt").is_dir()),
        runtimes(&["runsc", "runc", "crun", "youki", "kata-runtime"].map(|n| (n, find(n).is_some()))),
    ]
}

fn find(program: &str) -> Option<PathBuf> {
    PROGRAM_FOLDERS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// Whether the data folder, or the nearest folder above it that exists, is on btrfs.
fn on_btrfs(data_dir: &Path) -> bool {
    const BTRFS: i64 = 0x9123_683E;
    let nearest = data_dir.ancestors().find(|p| p.exists());
    nearest.is_some_and(|p| rustix::fs::statfs(p).is_ok_and(|s| s.f_type == BTRFS))
}

fn namespace_kinds() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/ns").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).collect()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.trim().split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn kernel(release: &str) -> Finding {
    let seen = release.trim().to_owned();
    match version(release) {
        Some(v) if v >= (6, 7) => Finding::good("kernel", seen),
        Some(v) if v >= (5, 15) => Finding::lacking(
            "kernel",
            seen,
            "6.7 or newer has btrfs simple quotas, which are faster and stay exact",
        ),
        _ => Finding::bad("kernel", seen, "5.15 or newer is needed for idmapped mounts"),
    }
}

/// What sudo does for this user.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sudo {
    Missing,
    Allows,
    AsksPassword,
    Refuses(String),
}

fn sudo(program: Option<&Path>) -> Sudo {
    let Some(program) = program else { return Sudo::Missing };
    let mut command = Command::new(program);
    command.args(["-n", "true"]).env("LC_ALL", "C").stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => Sudo::Allows,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if said.contains("password is required") { Sudo::AsksPassword } else { Sudo::Refuses(said) }
        }
        Err(error) => Sudo::Refuses(error.to_string()),
    }
}

fn privilege(root: bool, sudo: impl FnOnce() -> Sudo) -> Finding {
    if root {
        return Finding::good(PRIVILEGE, "root");
    }
    match sudo() {
        Sudo::Allows => Finding::good(PRIVILEGE, "an ordinary user; the launcher is started by sudo"),
        Sudo::AsksPassword => Finding::lacking(
            PRIVILEGE,
            "an ordinary user; sudo asks for a password before it says whether it starts the launcher",
            "run `sudo -v` first, or run atoll as root",
        ),
        Sudo::Refuses(said) => Finding::bad(
            PRIVILEGE,
            format!("an ordinary user, and sudo refuses: {said}"),
            "let sudo start atoll-launch, or run atoll as root",
        ),
        Sudo::Missing => {
            Finding::bad(PRIVILEGE, "an ordinary user, and no sudo", "install sudo, or run atoll as root")
        }
    }
}

fn namespaces(kinds: &[String], most_users: &str) -> Finding {
    let needed = ["user", "pid", "net", "mnt", "ipc", "uts", "cgroup"];
    let missing: Vec<&str> = needed.into_iter().filter(|n| !kinds.iter().any(|k| k == n)).collect();
    if !missing.is_empty() {
        let seen = format!("the kernel lacks {}", missing.join(", "));
        return Finding::bad("namespaces", seen, "use a kernel with all namespaces");
    }
    match most_users.trim() {
        "0" => Finding::bad(
            "namespaces",
            "user namespaces are switched off",
            "sysctl -w user.max_user_namespaces=15000",
        ),
        _ => Finding::good("namespaces", needed.join(" ")),
    }
}

/// The controllers that limits need.
const CONTROLLERS: [&str; 4] = ["memory", "pids", "cpu", "cpuset"];

fn cgroups(mountinfo: &str, unified: &str) -> Finding {
    let mut v1 = Vec::new();
    let mut v2 = false;
    for line in mountinfo.lines() {
        let Some((_, tail)) = line.split_once(" - ") else { continue };
        let mut fields = tail.split(' ');
        match fields.next() {
            Some("cgroup") => v1.extend(fields.nth(1).unwrap_or_default().split(',')),
            Some("cgroup2") => v2 = true,
            _ => {}
        }
    }
    let kind = match (v1.is_empty(), v2) {
        (true, true) => "v2",
        (false, true) => "hybrid",
        (false, false) => "v1",
        (true, false) => {
            return Finding::bad("cgroups", "none are mounted", "mount cgroup2 on /sys/fs/cgroup");
        }
    };
    let there: Vec<&str> = if v1.is_empty() { unified.split_whitespace().collect() } else { v1 };
    let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|c| !there.contains(c)).collect();
    if missing.is_empty() {
        return Finding::good("cgroups", format!("{kind}, with {}", CONTROLLERS.join(" ")));
    }
    let fix = "enable them on the kernel command line (such as cgroup_enable=memory), or allow their absence with \
               atoll-launch --permit-missing";
    Finding::bad("cgroups", format!("{kind}, without {}", missing.join(", ")), fix)
}

fn seccomp(actions: &str) -> Finding {
    let has = |action: &str| actions.split_whitespace().any(|a| a == action);
    if has("errno") && has("kill_process") {
        Finding::good("seccomp", "filters")
    } else {
        Finding::bad("seccomp", "no filters", "use a kernel with CONFIG_SECCOMP_FILTER")
    }
}

fn has_filesystem(filesystems: &str, name: &str) -> bool {
    filesystems.lines().any(|l| l.split_whitespace().last() == Some(name))
}

fn overlay(filesystems: &str) -> Finding {
    if has_filesystem(filesystems, "overlay") {
        Finding::good("overlay", "writable roots")
    } else {
        Finding::lacking("overlay", "profiles with a writable root cannot start", "modprobe overlay")
    }
}

fn storage(filesystems: &str, mkfs: bool, loops: bool, native: bool) -> Finding {
    if native {
        return Finding::good("storage", "btrfs: the data folder's own");
    }
    let fix = match (has_filesystem(filesystems, "btrfs"), mkfs, loops) {
        (true, true, true) => return Finding::good("storage", "btrfs on a loop file"),
        (false, ..) => "modprobe btrfs",
        (true, false, _) => "apt-get install btrfs-progs",
        (true, true, false) => "modprobe loop",
    };
    Finding::lacking("storage", "plain folders: disk limits are not enforced, snapshots are copies", fix)
}

/// What builds images of Debian's packages.
fn images(mmdebstrap: bool, apt: bool) -> Finding {
    match (mmdebstrap, apt) {
        (true, true) => Finding::good("images", "mmdebstrap, for images of Debian's packages"),
        (true, false) => Finding::lacking(
            "images",
            "apt has no settings here",
            "the images of the catalogue are built from the machine's own archives; on other machines import or pull images",
        ),
        (false, _) => Finding::lacking(
            "images",
            "no mmdebstrap",
            "apt-get install mmdebstrap, to build the images of the catalogue; nothing else needs it",
        ),
    }
}

fn runtimes(known: &[(&str, bool)]) -> Finding {
    let there: Vec<&str> = known.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
    if there.is_empty() {
        let fix = "install runsc for gVisor, for example; nothing needs one";
        return Finding::lacking("runtimes", "only the built-in isolation", fix);
    }
    Finding::good("runtimes", format!("built-in, {}", there.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::{super::Verdict, *};

    const V2: &str = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const V1: &str = "31 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 20 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuset,pids\n";

    #[test]
    fn cgroups_of_every_kind() {
        let seen = |mounts: &str, unified: &str| cgroups(mounts, unified);
        assert_eq!(seen(V2, "cpuset cpu io memory pids").seen, "v2, with memory pids cpu cpuset");
        assert_eq!(seen(V1, "").seen, "v1, with memory pids cpu cpuset");
        assert_eq!(seen(&format!("{V1}{V2}"), "hugetlb").seen, "hybrid, with memory pids cpu cpuset");
        assert_eq!(seen(V2, "cpu io").verdict, Verdict::Bad);
        assert_eq!(seen("", "").verdict, Verdict::Bad);
    }

    #[test]
    fn kernels() {
        assert_eq!(kernel("6.18.44-x\n").verdict, Verdict::Good);
        assert_eq!(kernel("6.1.0-28-amd64").verdict, Verdict::Lacking);
        assert_eq!(kernel("5.4.0").verdict, Verdict::Bad);
        assert_eq!(kernel("nonsense").verdict, Verdict::Bad);
    }

    #[test]
    fn everything_that_is_lacking_comes_with_a_fix() {
        let findings = [
            privilege(false, || Sudo::Missing),
            privilege(false, || Sudo::AsksPassword),
            privilege(false, || Sudo::Refuses("no".into())),
            namespaces(&[], "10"),
            namespaces(&["user", "pid", "net", "mnt", "ipc", "uts", "cgroup"].map(String::from), "0"),
            seccomp("kill_thread"),
            overlay("nodev\ttmpfs\n"),
            storage("\tbtrfs\n", false, true, false),
            storage("\text4\n", true, true, false),
            storage("\tbtrfs\n", true, false, false),
            images(false, true),
            images(true, false),
            runtimes(&[("runc", false)]),
        ];
        for finding in findings {
            assert_ne!(finding.verdict, Verdict::Good, "{finding:?}");
            assert!(finding.fix.is_some_and(|f| !f.is_empty()));
        }
        assert_eq!(storage("\tbtrfs\n", true, true, false).verdict, Verdict::Good);
        assert_eq!(storage("", false, false, true).verdict, Verdict::Good);
    }
}
