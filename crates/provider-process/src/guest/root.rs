//! The root of a container: the machine's programs, read-only, and folders of its own.

use atoll_provider_process::Start;
use atoll_types::RootMode;
use rustix::mount::{
    MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount,
};
use std::{
    ffi::CStr,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// Folders of the machine, or links to them.
const SHARED: [&str; 8] = ["usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];
/// Without a group tty: the namespace has no such group that a terminal could be given to.
const GROUPS: &str = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n";

/// Makes the root and makes it this process's.
pub(crate) fn enter(start: &Start) -> io::Result<()> {
    let root = start.root();
    filesystem("tmpfs", &root, c"mode=755")?;
    for name in SHARED {
        share(&Path::new("/").join(name), &root.join(name))?;
    }
    mount_bind(own_groups(start)?, root.join("etc/group"))?;
    let home = start.config.home.trim_start_matches('/');
    for name in ["dev", "proc", "run", "sys", "tmp", "var", "workspace", home] {
        fs::create_dir_all(root.join(name))?;
    }
    read_only(&root, start.root_mode == RootMode::Writable)?;
    devices(&root.join("dev"))?;
    filesystem("proc", &root.join("proc"), c"")?;
    filesystem("tmpfs", &root.join("tmp"), c"mode=1777")?;
    mount_bind(start.volume.join("workspace"), root.join("workspace"))?;
    mount_bind(start.volume.join("home"), root.join(home))?;
    std::env::set_current_dir(&root)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}

fn filesystem(kind: &str, at: &Path, data: &CStr) -> io::Result<()> {
    Ok(mount(kind, at, kind, MountFlags::NOSUID | MountFlags::NODEV, data)?)
}

fn share(from: &Path, to: &Path) -> io::Result<()> {
    match fs::read_link(from) {
        Ok(target) => symlink(target, to),
        Err(_) if from.is_dir() => {
            fs::create_dir(to)?;
            Ok(mount_bind_recursive(from, to)?)
        }
        Err(_) => Ok(()),
    }
}

fn own_groups(start: &Start) -> io::Result<PathBuf> {
    let file = start.folder.join("group");
    fs::write(&file, GROUPS)?;
    Ok(file)
}

/// Makes every mount below the root read-only, and the root itself unless it is to be writable. Flags of the
/// machine's mounts are locked in a user namespace, so each remount repeats them.
fn read_only(root: &Path, writable: bool) -> io::Result<()> {
    for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
        let mut words = line.split(' ').skip(4);
        let (Some(at), Some(options)) = (words.next().map(Path::new), words.next()) else { continue };
        if !at.starts_with(root) || writable && at == root {
            continue;
        }
        let flag = |option: &str| match option {
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            _ => MountFlags::empty(),
        };
        let kept = options.split(',').map(flag).fold(MountFlags::empty(), |all, one| all | one);
        mount_remount(at, kept | MountFlags::BIND | MountFlags::RDONLY, c"")?;
    }
    Ok(())
}

fn devices(dev: &Path) -> io::Result<()> {
    filesystem("tmpfs", dev, c"mode=755")?;
    for name in DEVICES {
        fs::File::create(dev.join(name))?;
        mount_bind(Path::new("/dev").join(name), dev.join(name))?;
    }
    for (target, name) in LINKS {
        symlink(target, dev.join(name))?;
    }
    for name in ["pts", "shm"] {
        fs::create_dir(dev.join(name))?;
    }
    mount("devpts", dev.join("pts"), "devpts", MountFlags::NOSUID, c"newinstance,ptmxmode=0666,mode=620")?;
    filesystem("tmpfs", &dev.join("shm"), c"mode=1777")
}
