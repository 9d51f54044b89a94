//! No packet leaves a sandbox: whatever goes out, the proxy sends.

use super::{Stage, bare, outside::Outside, policies, put, run};
use std::collections::BTreeSet;

const PACKETS: &str = include_str!("packets.py");

#[test]
fn no_packet_of_a_sandbox_leaves_it() {
    let stage = Stage::new();
    let port = stage.outside.port.to_string();
    for policy in policies() {
        let sandbox = stage.sandbox(&policy);
        put(&stage.server, &sandbox, "packets.py", PACKETS);
        stage.outside.came();
        let sent = run(&stage.server, &sandbox, &["python3", "packets.py", &port]);
        assert_eq!((sent.as_str(), stage.outside.came()), ("", vec![]), "{policy}");
        assert!(stage.outside.accepted().is_empty());
    }
}

/// The same program where nothing stops it, so that the test above can fail.
#[test]
fn the_packets_are_seen_where_nothing_stops_them() {
    let outside = Outside::new();
    let sent = bare(PACKETS, &[&outside.port.to_string()]);
    let sent: BTreeSet<&str> = sent.split(',').collect();
    for way in ["tcp", "udp", "quick", "raw icmp", "raw udp", "tcp6", "udp6", "raw icmp6", "bound", "packet"]
    {
        assert!(sent.contains(way), "{way} of {sent:?}");
    }
    let came = outside.came();
    let protocols: BTreeSet<u8> = came.iter().map(|(protocol, ..)| *protocol).collect();
    for protocol in [1, 6, 17, 58] {
        assert!(protocols.contains(&protocol), "{protocol} of {came:?}");
    }
    for address in ["192.0.2.1", super::outside::PUBLIC, super::outside::METADATA, "2001:db8:1::9"] {
        assert!(came.iter().any(|(_, to, _)| to.to_string() == address), "{address} of {came:?}");
    }
    assert!(!outside.accepted().is_empty());
}

/// The proxy is the one way, and it is one: with a policy that allows it, the same hosts are reached.
#[test]
fn what_is_allowed_is_reached_in_every_way() {
    let stage = Stage::new();
    stage.world.name("public.test", &[super::outside::PUBLIC]);
    let port = stage.outside.port;
    let ways = ["connect", "http", "socks", "direct"];
    let asks = ways.map(|way| (way, "public.test", port));
    let page = format!("outside {}", super::outside::PUBLIC);
    let [none, listed, full] = policies();
    for policy in [listed, full] {
        let sandbox = stage.sandbox(&policy);
        assert_eq!(stage.ask(&sandbox, &asks), [page.as_str(); 4], "{policy}");
        assert_eq!(stage.outside.accepted().len(), 4);
    }
    let sandbox = stage.sandbox(&none);
    stage.outside.came();
    assert_eq!(stage.ask(&sandbox, &asks), ["403", "403", "socks 2", "no such name"]);
    assert_eq!((stage.outside.came(), stage.outside.accepted()), (vec![], vec![]));
}
