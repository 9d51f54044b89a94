//! Taking an egress socket back from a process that still has it open: when the socket holder is killed the
//! server keeps its copies, and while one is open no process can bind the port, inside or outside.

use super::SocketSpec;
use rustix::{
    fd::OwnedFd,
    fs::fstat,
    net::SocketType,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// What is read of a table of sockets. Those that listen come first.
const LONGEST_TABLE: u64 = 1 << 20;

/// The socket on a port of a container's network, if root made it and a process outside that network has it open.
/// A socket that was made inside is never root's, and never open outside.
pub(super) fn find(pid: i32, place: SocketSpec) -> Option<OwnedFd> {
    let table = if place.kind == SocketType::STREAM { "tcp" } else { "udp" };
    let table = File::open(format!("/proc/{pid}/net/{table}")).ok()?;
    let inode = inode(table, place)?;
    let network = network_of(pid.to_string().as_ref())?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|p| p.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| network_of(pid.to_string().as_ref()).is_some_and(|other| other != network))
        .find_map(|pid| take(pid, inode))
}

fn network_of(pid: &Path) -> Option<(u64, u64)> {
    let file = fs::metadata(Path::new("/proc").join(pid).join("ns/net")).ok()?;
    Some((file.dev(), file.ino()))
}

/// The inode of the socket that is bound to a port and was made by root.
fn inode(table: impl Read, place: SocketSpec) -> Option<u64> {
    let address = u32::from_ne_bytes(place.address.ip().octets());
    let wanted = format!("{address:08X}:{:04X}", place.address.port());
    let state = if place.kind == SocketType::STREAM { "0A" } else { "07" };
    let lines = BufReader::new(table.take(LONGEST_TABLE)).lines().map_while(Result::ok);
    lines.skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, _, is, _, _, _, uid, _, inode, ..] = fields[..] else { return None };
        if local == wanted && is == state && uid == "0" { inode.parse().ok() } else { None }
    })
}

/// A copy of a process's descriptor of this socket.
fn take(pid: i32, inode: u64) -> Option<OwnedFd> {
    let wanted = format!("socket:[{inode}]");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let number = open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == wanted.as_str()));
    let number: i32 = number.filter_map(|fd| fd.file_name().to_str()?.parse().ok()).next()?;
    let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    let socket = pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()).ok()?;
    // The descriptor may have become another file's meanwhile.
    fstat(&socket).is_ok_and(|stat| stat.st_ino == inode).then_some(socket)
}

#[cfg(test)]
mod tests {
    use super::{super::PLACES, inode};

    #[test]
    fn only_roots_own_socket_at_that_very_place_is_meant() {
        let line = |local: &str, state: &str, uid: &str, inode: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 1 0\n"
            )
        };
        let [proxy, names, _] = PLACES;
        let ours = line("0100007F:0C38", "0A", "0", "77");
        let others = [
            line("0100007F:0C38", "01", "0", "1"),
            line("0100007F:0C38", "0A", "1879048192", "2"),
            line("0200007F:0C38", "0A", "0", "3"),
            line("0100007F:0C39", "0A", "0", "4"),
            "0: 0100007F:0C38 x\n".to_owned(),
        ]
        .concat();
        let table = |lines: &str| format!("  sl  local_address\n{lines}");
        assert_eq!(inode(table(&others).as_bytes(), proxy), None);
        assert_eq!(inode(table(&format!("{others}{ours}")).as_bytes(), proxy), Some(77));
        let udp = line("3500007F:0035", "07", "0", "78");
        assert_eq!(inode(table(&udp).as_bytes(), names), Some(78));
        assert_eq!(inode(&b""[..], proxy), None);
    }
}
