//! Memory that a sandbox's sockets hold and no cgroup counts: connections that wait to be accepted are made by
//! the kernel and charged to no cgroup, and so are its answers on netlink. No setting bounds their sum, so the
//! observer measures it, and where it exceeds a quarter of the sandbox's memory the sandbox's commands are
//! killed; the sandbox itself lives on. How often that happened is written down beside the container's record.

use crate::{
    cgroup,
    context::{Context, Folders},
    record,
};
use atoll_types::ContainerId;
use rustix::process::{Pid, Signal, kill_process};
use std::{fs, path::PathBuf, time::Duration};

/// How often it is measured.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// What a socket costs the kernel, with all that belongs to it.
const SOCKET_BYTES: u64 = 5 << 10;
/// With so few sockets nothing more is measured.
const FEW_SOCKETS: u64 = 24;
/// What the smallest sandbox may hold.
const ALWAYS_ALLOWED: u64 = 4 << 20;

/// Ends the commands of every sandbox whose sockets hold too much.
pub(crate) fn sweep(context: &Context) {
    for (pid, container) in context.running() {
        let held = held_bytes(pid);
        let record = if held > ALWAYS_ALLOWED { record::load(context, container) } else { None };
        if let Some(record) = record.filter(|record| record.pid == pid && record.alive())
            && held > record.limits.memory_bytes / 4
        {
            tracing::warn!(%container, held, "its commands are ended: their sockets hold too much memory");
            end_commands(context, container, pid);
            count(context, container);
        }
    }
}

fn counter(folders: &Folders, container: ContainerId) -> PathBuf {
    folders.container(container).join("socket-kills")
}

/// How often a container's commands were ended.
pub(crate) fn kills(folders: &Folders, container: ContainerId) -> u64 {
    fs::read_to_string(counter(folders, container)).ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn count(folders: &Folders, container: ContainerId) {
    // Only the observer writes it, and a reader sees the former or the new number: either has one write of few bytes.
    let after = kills(folders, container) + 1;
    if let Err(error) = fs::write(counter(folders, container), after.to_string()) {
        tracing::warn!(%container, %error, "cannot write down that commands were ended");
    }
}

/// What the sockets of a process's network hold in memory that no cgroup counts.
fn held_bytes(pid: i32) -> u64 {
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let sockets = sockets(&file("sockstat"));
    let queued = if sockets > FEW_SOCKETS { queued_bytes(&file("netlink")) } else { 0 };
    sockets * SOCKET_BYTES + queued
}

/// The sockets of a network, by its `sockstat`.
fn sockets(text: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix("sockets: used ")?.trim().parse().ok()).unwrap_or(0)
}

/// What waits to be read, by the table of netlink: its fifth column.
fn queued_bytes(text: &str) -> u64 {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(4)?.parse::<u64>().ok()).sum()
}

/// Ends everything in a container but its PID 1.
fn end_commands(context: &Context, container: ContainerId, first: i32) {
    let processes = cgroup::process_ids(context, container).into_iter();
    for pid in processes.filter(|pid| *pid != first).filter_map(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        assert_eq!(sockets("sockets: used 81234\nTCP: inuse 3 orphan 0 tw 0 alloc 7 mem 1\n"), 81_234);
        let table = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
                     00000000e6c66e1a 0   1          00000000 212992   0        0     2        0        1\n\
                     000000007e3e2e64 0   4294961255 00000000 7        0        0     2        0        2\n";
        assert_eq!(queued_bytes(table), 212_999);
        assert_eq!((sockets("x"), queued_bytes("")), (0, 0));
    }
}
