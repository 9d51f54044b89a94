//! Whether an address is one of this machine's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Queries the kernel for the source address that it would use to reach this one; for one of its own addresses it
/// is the same. Nothing is sent. Where the query fails, the answer is yes: then nothing is connected to.
pub(crate) fn is_ours(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let Ok(socket) = UdpSocket::bind(SocketAddr::new(any, 0)) else { return true };
    let local = socket.connect(SocketAddr::new(address, 9)).and_then(|()| socket.local_addr());
    local.is_ok_and(|local| local.ip().to_canonical() == address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_ours_and_the_world_is_not() {
        assert!(is_ours(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_ours("192.0.2.1".parse().unwrap()));
        // A machine without IPv6 cannot answer for it.
        if UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok() {
            assert!(!is_ours("2001:db8::1".parse().unwrap()));
        }
    }
}
