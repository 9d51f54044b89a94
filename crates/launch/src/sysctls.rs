//! Settings of a container's own namespaces. Which of them a namespace has depends on the kernel, so the launcher looks when it
//! starts: a runtime refuses a container whose specification names a setting that is not there.

use crate::sys;
use rustix::fd::AsFd;
use std::{collections::BTreeMap, fs, io, os::unix::fs::MetadataExt, path::PathBuf};

/// A setting, and what it means that a kernel does not have it for each namespace.
#[derive(Debug)]
struct Setting {
    name: &'static str,
    value: &'static str,
    without: &'static str,
}

/// Connections that end or wait to be accepted, and options of sockets, are memory that no cgroup counts; buffers are
/// counted, but may grow a little past the limit.
const SETTINGS: [Setting; 5] = [
    Setting {
        name: "net.core.optmem_max",
        value: "16384",
        without: "options of a sandbox's sockets are bounded by the machine's own setting (sysctl -w \
                  net.core.optmem_max=16384)",
    },
    Setting {
        name: "net.core.somaxconn",
        value: "1024",
        without: "connections that wait to be accepted are bounded by the machine's own setting, and sandboxes whose \
                  sockets hold too much lose their commands",
    },
    Setting {
        name: "net.ipv4.tcp_max_tw_buckets",
        value: "4096",
        without: "connections that have ended are bounded for the machine and not for a sandbox",
    },
    Setting {
        name: "net.ipv4.tcp_rmem",
        value: "4096 131072 1048576",
        without: "buffers of a sandbox's sockets grow to the machine's own bound",
    },
    Setting {
        name: "net.ipv4.tcp_wmem",
        value: "4096 16384 1048576",
        without: "buffers of a sandbox's sockets grow to the machine's own bound",
    },
];

/// Shared memory is freed with the last process that has it; see `guard_proc` of PID 1, which sets it where it may.
const FREE_SHARED_MEMORY: &str = "kernel.shm_rmid_forced";

/// What namespaces have on this machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sysctls {
    /// What a container's specification sets, in its own network.
    pub(crate) settings: BTreeMap<&'static str, &'static str>,
    /// What the operator should know.
    pub(crate) notes: Vec<String>,
}

impl Sysctls {
    /// Looks in namespaces made for that. Where there can be none, everything is set, and a start says why it fails.
    pub(crate) fn look() -> Self {
        let names: Vec<&str> =
            SETTINGS.iter().map(|setting| setting.name).chain([FREE_SHARED_MEMORY]).collect();
        match existing(&names) {
            Ok(existing) => {
                Self::choose(|name| names.iter().zip(&existing).any(|(n, there)| *n == name && *there))
            }
            Err(error) => {
                tracing::error!(%error, "cannot look which settings a namespace has");
                Self::choose(|_| true)
            }
        }
    }

    /// What is set and what is told, by which settings a namespace has.
    fn choose(exists: impl Fn(&str) -> bool) -> Self {
        let mut chosen = Self::default();
        for Setting { name, value, without } in &SETTINGS {
            match exists(name) {
                true => drop(chosen.settings.insert(name, value)),
                false => chosen.notes.push(format!("this kernel has no {name} for each network: {without}")),
            }
        }
        if !exists(FREE_SHARED_MEMORY) {
            chosen.notes.push(format!(
                "this kernel has no {FREE_SHARED_MEMORY}: System V shared memory stays until its sandbox ends"
            ));
        }
        chosen
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}

/// Which of these settings fresh namespaces have. /proc shows each process those of its own namespaces.
fn existing(names: &[&str]) -> io::Result<Vec<bool>> {
    let (found_r, found_w) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = match sys::fork()? {
        sys::Fork::Child => {
            sys::end_with_parent();
            let looked = sys::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWIPC).is_ok();
            let found: Vec<u8> = names.iter().map(|name| u8::from(path(name).exists())).collect();
            let _ = looked.then(|| rustix::io::write(&found_w, &found));
            sys::exit_now(0);
        }
        sys::Fork::Parent(child) => child,
    };
    drop(found_w);
    let mut found = vec![0u8; names.len()];
    let read = rustix::io::read(&found_r, &mut found);
    sys::reap_one(child, true)?;
    match read? == names.len() {
        true => Ok(found.into_iter().map(|there| there == 1).collect()),
        false => Err(io::Error::other("network namespaces are refused by this kernel")),
    }
}

/// Lets the kernel free a container's shared memory with its last process, on kernels where only the host's root may
/// set this (before 5.19). On others the container's root alone may, and PID 1 does.
pub(crate) fn free_shared_memory(pid: i32) -> io::Result<()> {
    let ours = fs::File::open("/proc/self/ns/ipc")?;
    let theirs = fs::File::open(format!("/proc/{pid}/ns/ipc"))?;
    let identity = |file: &fs::File| file.metadata().map(|of| (of.dev(), of.ino()));
    if identity(&ours)? == identity(&theirs)? {
        return Ok(());
    }
    sys::setns(theirs.as_fd(), libc::CLONE_NEWIPC)?;
    let _ = fs::write(path(FREE_SHARED_MEMORY), "1");
    sys::setns(ours.as_fd(), libc::CLONE_NEWIPC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lacks_is_not_set_and_is_told() {
        let all = Sysctls::choose(|_| true);
        assert_eq!((all.settings.len(), all.notes.len()), (SETTINGS.len(), 0));
        // Kernels before 6.7 have one for the whole machine.
        let before_6_7 = Sysctls::choose(|name| name != "net.core.optmem_max");
        assert_eq!(before_6_7.settings.len(), SETTINGS.len() - 1);
        assert!(!before_6_7.settings.contains_key("net.core.optmem_max"));
        assert!(
            matches!(&before_6_7.notes[..], [note] if note.contains("net.core.optmem_max for each network: options"))
        );
        let nothing = Sysctls::choose(|_| false);
        assert_eq!((nothing.settings.len(), nothing.notes.len()), (0, SETTINGS.len() + 1));
        assert!(nothing.notes.iter().any(|note| note.contains(FREE_SHARED_MEMORY)));
    }

    /// Of the test's own namespaces nothing is changed.
    #[test]
    fn fresh_namespaces_are_looked_into() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let ours = fs::read_link("/proc/self/ns/net").unwrap();
        // The one is in every namespace, the other is in the machine's alone, on every kernel.
        let names = ["net.core.somaxconn", "net.core.netdev_budget", "net.no.such"];
        assert_eq!(existing(&names).unwrap(), [true, false, false]);
        assert_eq!(fs::read_link("/proc/self/ns/net").unwrap(), ours);
    }
}
