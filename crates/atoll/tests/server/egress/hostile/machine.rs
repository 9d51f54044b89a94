//! This machine itself: the API, other sandboxes' egress sockets, and sockets that no sandbox may reach.

use super::{Stage, bare, outside::OWN, python};
use crate::server::egress::{egress, log};
use serde_json::json;
use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener},
};

#[test]
fn the_api_is_out_of_reach_by_any_name() {
    let stage = Stage::new();
    stage.world.name("own.test", &[OWN]);
    let sandbox = stage.sandbox(&json!({ "mode": "full" }));
    let port = stage.server.address.port();
    let hosts =
        ["127.0.0.1", "localhost", "api.test", "own.test", OWN, "[::1]", "[::ffff:127.0.0.1]", "127.0.0.53"];
    for way in ["connect", "http", "socks", "direct"] {
        let answers = stage.ask(&sandbox, &hosts.map(|host| (way, host, port)));
        let kept = |answer: &String| {
            !answer.contains('{') && !answer.contains("html") && !answer.contains("page of")
        };
        assert!(answers.iter().all(kept), "{way}: {answers:?}");
        if way != "direct" {
            assert!(
                answers.iter().all(|a| matches!(&**a, "403" | "502" | "socks 1" | "socks 2" | "socks 4")),
                "{answers:?}"
            );
        }
    }
    // A user's key opens it to nobody inside, and an admin may.
    let sandbox = stage.sandbox(&json!({ "mode": "allowlist", "allow": [format!("127.0.0.1:{port}")] }));
    let line = format!("curl -s http://127.0.0.1:{port}/health --noproxy '' -w ' %{{http_code}}'");
    assert!(stage.server.says(&sandbox, &line).ends_with(" 200"));
}

#[test]
fn egress_sockets_belong_to_one_sandbox() {
    let stage = Stage::new();
    let server = &stage.server;
    stage.world.name("public.test", &[super::outside::PUBLIC]);
    let other = stage.sandbox(&json!({ "mode": "full" }));
    let hostile =
        stage.sandbox(&json!({ "mode": "allowlist", "allow": ["127.0.0.1", "127.0.0.53", "own.test", OWN] }));
    // Even where the addresses are allowed: they are the machine's, and there is no gate there.
    let gates = [("127.0.0.1", 3128), ("127.0.0.1", 3129), ("127.0.0.53", 53), ("own.test", 3128)];
    for way in ["connect", "http", "socks"] {
        let answers = stage.ask(&hostile, &gates.map(|(host, port)| (way, host, port)));
        assert!(
            answers.iter().all(|a| matches!(&**a, "502" | "403" | "socks 5" | "socks 2" | "socks 4")),
            "{answers:?}"
        );
    }
    // Through the other one's own ports, as a caller that may see its previews.
    for port in [3128, 3129] {
        for path in ["/", "http://public.test/"] {
            let seen = server.ask("GET", &format!("{other}/ports/{port}/{path}"), "");
            assert_eq!(seen.status, 502, "{seen:?}");
        }
    }
    assert_eq!(server.ask("GET", &format!("{other}/ports"), "").json(), json!([]));
    let connect = "CONNECT public.test:80 HTTP/1.1";
    let forwarded = crate::server::forwarding::through(server, &other, 3128, &format!("{connect}\r\n\r\n"));
    assert_eq!(forwarded, "", "the port-forward leads nowhere");
    // Nobody asked anything in the other one's name.
    assert_eq!(log(server, &other, ""), Vec::<serde_json::Value>::new());
    let shown = egress(server, &other);
    assert_eq!((shown["allowed"].as_u64(), shown["refused"].as_u64()), (Some(0), Some(0)), "{shown}");
    assert_eq!(stage.outside.accepted().len(), 0);
}

#[test]
fn abstract_sockets_of_the_machine_are_out_of_reach() {
    let stage = Stage::new();
    let name = format!("atoll-hostile-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let program = format!(
        "import socket\ntry: socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('reached')\nexcept OSError as e: print(e.errno)"
    );
    assert_eq!(bare(&program, &[]), "reached");
    let sandbox = stage.sandbox(&json!({ "mode": "full" }));
    assert_eq!(python(&stage.server, &sandbox, &program), "111");
    let listed = "print([line.split()[-1] for line in open('/proc/net/unix') if '@' in line])";
    assert_eq!(python(&stage.server, &sandbox, listed), "[]");
}
