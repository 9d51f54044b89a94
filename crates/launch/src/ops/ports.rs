//! A container's network, for the server, which is outside it: sockets made inside, and the ports that are
//! listened on.

use super::inspect::load;
use crate::{context::Context, net, record::Record};
use atoll_launch_proto::{Family, MAX_DESCRIPTORS, SocketsRequest};
use atoll_types::{
    ContainerId, Error, ErrorCode, Result,
    egress_address::{PROXY, REDIRECTED},
};
use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with},
};
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    net::{Ipv4Addr, Ipv6Addr},
};

/// What is read of each table of sockets. Those that listen come first.
const LONGEST_TABLE: u64 = 1 << 20;
/// The most ports in one answer.
const MOST_PORTS: usize = 1024;

/// Moves this worker, which ends after its one request, into the container's network.
fn enter(context: &Context, container: ContainerId) -> Result<Record> {
    let record = load(context, container)?;
    net::enter_checked(&record).map_err(|e| match record.death(context) {
        Some(death) => Error::died(death),
        None => Error::new(ErrorCode::Unavailable, format!("the container's network is out of reach: {e}")),
    })?;
    Ok(record)
}

/// New sockets of the container's network, not connected; the server connects them.
pub(crate) fn sockets(context: &Context, asked: SocketsRequest) -> Result<Vec<OwnedFd>> {
    let SocketsRequest { container, family, count } = asked;
    if !(1..=MAX_DESCRIPTORS).contains(&usize::from(count)) {
        return Err(Error::invalid("count", format!("count must be between 1 and {MAX_DESCRIPTORS}")));
    }
    enter(context, container)?;
    let family = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = (0..count).map(|_| socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)));
    made.collect::<Result<_, _>>().map_err(|e| match e {
        rustix::io::Errno::AFNOSUPPORT => Error::new(ErrorCode::Unsupported, "this machine has no IPv6"),
        e => Error::internal(format!("cannot make a socket: {e}")),
    })
}

/// The ports of the container's loopback that a process listens on.
pub(crate) fn ports(context: &Context, container: ContainerId) -> Result<Vec<u16>> {
    let record = enter(context, container)?;
    let mut found = BTreeSet::new();
    for name in ["tcp", "tcp6"] {
        match File::open(format!("/proc/self/net/{name}")) {
            Ok(table) => listening(table, &mut found)
                .map_err(|e| Error::internal(format!("the table of sockets cannot be read: {e}")))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::internal(format!("the table of sockets cannot be read: {e}"))),
        }
    }
    // The egress sockets are no server of the user's,
    found.remove(&PROXY.port());
    found.remove(&REDIRECTED.port());
    // and neither is PID 1's socket, where it listens on TCP.
    if record.token.is_some() {
        found.remove(&record.tcp_port);
    }
    Ok(found.into_iter().take(MOST_PORTS).collect())
}

/// Adds the ports of a kernel's table of sockets that listen where a connection to the loopback ends.
fn listening(table: impl Read, found: &mut BTreeSet<u16>) -> io::Result<()> {
    for line in BufReader::new(table.take(LONGEST_TABLE)).lines().skip(1) {
        let line = line?;
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (Some(local), Some(_remote), Some(state)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if state != "0A" {
            break;
        }
        let Some((address, port)) = local.split_once(':') else { continue };
        if let (true, Ok(port)) = (is_loopback(address), u16::from_str_radix(port, 16)) {
            found.insert(port);
        }
    }
    Ok(())
}

/// Whether 127.0.0.1 or ::1 leads there. The kernel prints words as the machine stores them.
fn is_loopback(address: &str) -> bool {
    let word = |text: &str| u32::from_str_radix(text, 16).map(u32::to_ne_bytes);
    match address.len() {
        8 => word(address).is_ok_and(|bytes| {
            let address = Ipv4Addr::from(bytes);
            address.is_unspecified() || address == Ipv4Addr::LOCALHOST
        }),
        32 if address.is_ascii() => {
            let mut bytes = [0; 16];
            for (to, from) in bytes.chunks_exact_mut(4).zip(0..) {
                match word(&address[from * 8..from * 8 + 8]) {
                    Ok(word) => to.copy_from_slice(&word),
                    Err(_) => return false,
                }
            }
            let address = Ipv6Addr::from(bytes);
            let inner = address.to_ipv4_mapped();
            address.is_unspecified() || address.is_loopback() || inner == Some(Ipv4Addr::LOCALHOST)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(table: &str) -> Vec<u16> {
        let mut found = BTreeSet::new();
        listening(table.as_bytes(), &mut found).unwrap();
        found.into_iter().collect()
    }

    #[test]
    fn ports_that_answer_on_the_loopback() {
        let v4 = "  sl  local_address rem_address   st\n\
                  0: 0100007F:1F90 00000000:0000 0A 0\n\
                  1: 00000000:0050 00000000:0000 0A 0\n\
                  2: 0200000A:0051 00000000:0000 0A 0\n\
                  3: 0100007F:0052 00000000:0000 01 0\n";
        assert_eq!(ports(v4), [80, 8080]);
        let v6 = "  sl\n\
                  0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A\n\
                  1: 00000000000000000000000001000000:1F91 00000000000000000000000000000000:0000 0A\n\
                  2: 0000000000000000FFFF00000100007F:1F92 00000000000000000000000000000000:0000 0A\n\
                  3: 000080FE00000000000000000100000A:1F93 00000000000000000000000000000000:0000 0A\n";
        assert_eq!(ports(v6), [8080, 8081, 8082]);
        for odd in ["", "x", "h\n0: : : 0A", "h\n0: 0100007F:XY 0 0A", "h\n0: é00007F:10 0 0A", "h\n\n \n0:"]
        {
            assert_eq!(ports(odd), [0u16; 0], "{odd:?}");
        }
    }
}
