//! Addresses that nobody reaches by accident, by whatever name or spelling.

use super::{
    Stage,
    outside::{METADATA, OWN, PRIVATE, PUBLIC},
};
use serde_json::json;

const WAYS: [&str; 4] = ["connect", "http", "socks", "direct"];

/// Spellings of this machine, of its own address in the network, of the metadata service and a private one.
const SPELLINGS: &[&str] = &[
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "127.0.0.1.",
    "0",
    "0.0.0.0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "x.localhost",
    OWN,
    "3221225986",
    "0xc0000202",
    "[::ffff:192.0.2.2]",
    "[2001:db8::2]",
    METADATA,
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[fe80::1%25street]",
    PRIVATE,
    "167772161",
    "012.0.0.1",
    "[::ffff:10.0.0.1]",
    "127.0.0.1%00.public.test",
    "public.test@127.0.0.1",
    "127.0.0.1#.public.test",
    "own.test",
    "metadata.test",
    "private.test",
    "here.test",
];

fn named(stage: &Stage) {
    for (name, address) in
        [("own.test", OWN), ("metadata.test", METADATA), ("private.test", PRIVATE), ("public.test", PUBLIC)]
    {
        stage.world.name(name, &[address]);
    }
}

#[test]
fn no_spelling_of_what_is_out_of_reach_gets_there() {
    let stage = Stage::new();
    named(&stage);
    // Somebody who listens at every address of this machine, and somebody out there.
    let everywhere = std::net::TcpListener::bind("[::]:0").unwrap();
    everywhere.set_nonblocking(true).unwrap();
    let here = everywhere.local_addr().unwrap().port();
    // The names are listed; what they lead to is not.
    let names = ["public.test", "own.test", "metadata.test", "private.test", "here.test", "localhost"];
    for policy in [json!({ "mode": "full" }), json!({ "mode": "allowlist", "allow": names })] {
        let sandbox = stage.sandbox(&policy);
        stage.outside.came();
        for port in [here, stage.outside.port] {
            for way in WAYS {
                let asks: Vec<_> = SPELLINGS.iter().map(|host| (way, *host, port)).collect();
                let answers = stage.ask(&sandbox, &asks);
                for (host, answer) in SPELLINGS.iter().zip(answers) {
                    let refused = [
                        "400",
                        "403",
                        "502",
                        "socks 1",
                        "socks 2",
                        "socks 4",
                        "closed",
                        "no such name",
                        "nothing",
                    ];
                    let errors = [
                        "ECONNREFUSED",
                        "ECONNRESET",
                        "ENETUNREACH",
                        "EHOSTUNREACH",
                        "EADDRNOTAVAIL",
                        "EINVAL",
                    ];
                    let known = refused.contains(&&*answer) || errors.contains(&&*answer);
                    assert!(known, "{way} {host}:{port} under {policy}: {answer}");
                }
            }
        }
        assert!(everywhere.accept().is_err(), "somebody came to this machine under {policy}");
        assert_eq!((stage.outside.came(), stage.outside.accepted()), (vec![], vec![]), "{policy}");
    }
}

/// The same asks where entries name the addresses, so that the test above can fail.
#[test]
fn addresses_that_an_admin_names_are_reached() {
    let stage = Stage::new();
    named(&stage);
    let allow =
        ["own.test", "metadata.test", "here.test", "127.0.0.1", OWN, METADATA, PRIVATE, "2001:db8::2"];
    let sandbox = stage.sandbox(&json!({ "mode": "allowlist", "allow": allow }));
    let (here, there) = (stage.world.web.port(), stage.outside.port);
    let reached = |hosts: &[&str], port: u16, ways: &[&str]| {
        let asks: Vec<_> =
            ways.iter().flat_map(|way| hosts.iter().map(move |host| (*way, *host, port))).collect();
        stage.ask(&sandbox, &asks)
    };
    let proxied = &WAYS[..3];
    let pages = reached(&["127.0.0.1", "here.test", "[::ffff:127.0.0.1]"], here, proxied);
    assert!(pages.iter().all(|page| page.starts_with("page of ")), "{pages:?}");
    let pages = reached(&[METADATA, "metadata.test", PRIVATE], there, proxied);
    assert!(pages.iter().all(|page| page.starts_with("outside ")), "{pages:?}");
    let pages = reached(&["here.test"], here, &["direct"]);
    assert!(pages[0].starts_with("page of "), "{pages:?}");
    assert_eq!(stage.outside.accepted().len(), 9);
}

#[test]
fn a_name_that_changes_its_address_between_check_and_connection_gains_nothing() {
    let stage = Stage::new();
    let listener = std::net::TcpListener::bind(("127.0.0.1", stage.outside.port)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let page = format!("outside {PUBLIC}");
    for policy in [json!({ "mode": "full" }), json!({ "mode": "allowlist", "allow": ["turns.test"] })] {
        let sandbox = stage.sandbox(&policy);
        for way in WAYS {
            // Here, there, here, there, and nobody may remember an answer.
            stage.world.name("turns.test", &["127.0.0.1", PUBLIC]);
            let answers = stage.ask(&sandbox, &[(way, "turns.test", stage.outside.port); 10]);
            let reached = answers.iter().filter(|answer| **answer == page).count();
            assert!((3..=7).contains(&reached), "{way}: {answers:?}");
            assert!(listener.accept().is_err(), "{way} came to this machine under {policy}");
        }
    }
    let met = stage.outside.accepted();
    assert!(met.iter().all(|at| at.to_string() == PUBLIC) && !met.is_empty(), "{met:?}");
}
