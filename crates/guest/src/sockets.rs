//! Which command owns a socket: from the kernel's tables to an inode, from there to a process that has it open,
//! and up from that process to the shim of its command. A thread with the user's identity does this, so it sees
//! what the user may see. Everything is bounded: how many processes, how many of their files, and how long; a
//! socket beyond these bounds has no owner.

use crate::{exec::Execs, files::Files};
use atoll_guest_proto::v1::{ExecRef, SocketRef};
use atoll_types::{Error, ErrorCode, ExecId, Result};
use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

/// What is read of one of the kernel's tables: some thirty thousand sockets.
const LARGEST_TABLE: u64 = 4 << 20;
const MOST_PROCESSES: usize = 4096;
const MOST_FILES: usize = 65_536;
/// How far above a process its shim may be.
const MOST_PARENTS: usize = 4096;
const PATIENCE: Duration = Duration::from_millis(250);

/// The command that has a socket.
pub(crate) async fn owner(files: &Files, execs: &Execs, request: SocketRef) -> Result<ExecRef> {
    let wanted = Wanted::read(request)?;
    let shims: HashMap<i32, ExecId> =
        execs.all().iter().filter_map(|exec| Some((exec.living_shim()?, exec.id))).collect();
    let found = files.run(move || Ok(find(&wanted, &shims, Instant::now() + PATIENCE))).await?;
    let missing = || Error::new(ErrorCode::NotFound, "no command has this socket");
    found.map(|id| ExecRef { exec_id: id.to_string() }).ok_or_else(missing)
}

struct Wanted {
    address: IpAddr,
    port: u16,
}

impl Wanted {
    fn read(request: SocketRef) -> Result<Self> {
        let SocketRef { address, port } = request;
        let four = <[u8; 4]>::try_from(&address[..]).map(IpAddr::from);
        let address = four
            .or_else(|_| <[u8; 16]>::try_from(&address[..]).map(IpAddr::from))
            .map_err(|_| Error::invalid("address", "expected 4 bytes or 16"))?
            .to_canonical();
        let port = u16::try_from(port).map_err(|_| Error::invalid("port", "expected a port"))?;
        Ok(Self { address, port })
    }

    fn fits(&self, address: IpAddr, port: u16, datagram: bool) -> bool {
        // A UDP socket that is bound to the unspecified address receives for all of them.
        port == self.port && (address == self.address || datagram && address.is_unspecified())
    }
}

/// The kernel's tables, and whether their sockets are of UDP.
const TABLES: [(&str, bool); 4] =
    [("/proc/net/tcp", false), ("/proc/net/tcp6", false), ("/proc/net/udp", true), ("/proc/net/udp6", true)];

fn find(wanted: &Wanted, shims: &HashMap<i32, ExecId>, until: Instant) -> Option<ExecId> {
    let tables = TABLES.iter().map(|(table, datagram)| inodes(wanted, table, *datagram, until));
    let found = tables.into_iter().find(|found| !found.is_empty()).unwrap_or_default();
    let names: Vec<String> = found.iter().map(|inode| format!("socket:[{inode}]")).collect();
    if names.is_empty() {
        return None;
    }
    let mut pids: Vec<i32> = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid > 1)
        .take(MOST_PROCESSES)
        .collect();
    // The youngest first: the process that sends has most likely just started.
    pids.sort_unstable_by(|a, b| b.cmp(a));
    let mut room = MOST_FILES;
    for pid in pids {
        if Instant::now() > until || room == 0 {
            return None;
        }
        if has_open(pid, &names, &mut room)
            && let Some(id) = above(pid, shims)
        {
            return Some(id);
        }
    }
    None
}

/// The inodes of the sockets that fit.
fn inodes(wanted: &Wanted, table: &str, datagram: bool, until: Instant) -> Vec<u64> {
    let Ok(file) = fs::File::open(table) else { return Vec::new() };
    let lines = BufReader::new(file.take(LARGEST_TABLE)).lines().map_while(std::io::Result::ok);
    let lines = lines.skip(1).take_while(|_| Instant::now() <= until);
    let fits = |(address, port, inode)| wanted.fits(address, port, datagram).then_some(inode);
    lines.filter_map(|line| parse_line(&line)).filter_map(fits).collect()
}

/// `sl local remote st queues timer retransmits uid timeout inode …`
fn parse_line(line: &str) -> Option<(IpAddr, u16, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (address, port) = words.nth(1)?.split_once(':')?;
    let inode: u64 = words.nth(7)?.parse().ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Inode 0: no process has this socket open any more.
    (inode != 0).then_some((parse_address(address)?, port, inode))
}

/// Words of 32 bits as the machine has them.
fn parse_address(text: &str) -> Option<IpAddr> {
    let mut bytes = [0; 16];
    if !text.is_ascii() || !matches!(text.len(), 8 | 32) {
        return None;
    }
    for (word, at) in (0..text.len()).step_by(8).enumerate() {
        let value = u32::from_str_radix(&text[at..at + 8], 16).ok()?;
        bytes[word * 4..word * 4 + 4].copy_from_slice(&value.to_ne_bytes());
    }
    Some(match text.len() {
        8 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        _ => IpAddr::from(Ipv6Addr::from(bytes)).to_canonical(),
    })
}

fn has_open(pid: i32, names: &[String], room: &mut usize) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    for file in files.map_while(std::io::Result::ok) {
        if *room == 0 {
            return false;
        }
        *room -= 1;
        let Ok(target) = fs::read_link(file.path()) else { continue };
        if target.to_str().is_some_and(|target| names.iter().any(|name| name == target)) {
            return true;
        }
    }
    false
}

/// The command whose shim a process is below. Orphans move to their shim, so each chain leads there.
fn above(pid: i32, shims: &HashMap<i32, ExecId>) -> Option<ExecId> {
    let mut at = pid;
    for _ in 0..MOST_PARENTS {
        if let Some(id) = shims.get(&at) {
            return Some(*id);
        }
        if at <= 1 {
            return None;
        }
        at = parent(at)?;
    }
    None
}

/// From `pid (name) S parent …`, where the name may hold anything, brackets included.
fn parent(pid: i32) -> Option<i32> {
    let mut text = Vec::new();
    fs::File::open(format!("/proc/{pid}/stat")).ok()?.take(512).read_to_end(&mut text).ok()?;
    let end = text.iter().rposition(|b| *b == b')')?;
    std::str::from_utf8(text.get(end + 2..)?).ok()?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tables_are_read() {
        let line = "   0: 0100007F:0C38 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 x";
        if cfg!(target_endian = "little") {
            assert_eq!(parse_line(line), Some(("127.0.0.1".parse().unwrap(), 3128, 4242)));
            let mapped = "0000000000000000FFFF00000100007F";
            assert_eq!(parse_address(mapped), Some("127.0.0.1".parse().unwrap()));
            assert_eq!(parse_address("00000000000000000000000001000000"), Some("::1".parse().unwrap()));
        }
        assert_eq!(parse_line(&line.replace("4242", "0")), None);
        for odd in
            ["", "a b c", "0: x:y 0 0 0 0 0 0 0 1", "0: 01:1 0 0 0 0 0 0 0 1", "0: é00007F:1 0 0 0 0 0 0 0 1"]
        {
            assert_eq!(parse_line(odd), None, "{odd}");
        }
    }

    #[test]
    fn only_the_asked_for_address_fits() {
        let wanted = |address: &[u8]| Wanted::read(SocketRef { address: address.to_vec(), port: 80 });
        let (own, any) = ("127.0.0.1".parse().unwrap(), "0.0.0.0".parse().unwrap());
        let one = wanted(&[127, 0, 0, 1]).unwrap();
        assert!(one.fits(own, 80, false) && one.fits(own, 80, true) && one.fits(any, 80, true));
        assert!(!one.fits(own, 81, false) && !one.fits(any, 80, false));
        assert!(wanted(&[1, 2, 3]).is_err());
    }
}
