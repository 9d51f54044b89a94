//! The proxy over a network: a token says whose a connection is, and opens nothing by itself.

use super::{log, world::World};
use crate::{engine::fixture::eventually, server::fixture::Server};
use serde_json::json;
use std::{net::TcpListener, process::Command};

/// Asks for a page by way of the proxy over the network: the status.
fn status(proxy: &str, signed_in: &str, url: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "", "-x", proxy]);
    if !signed_in.is_empty() {
        curl.args(["--proxy-user", signed_in]);
    }
    String::from_utf8(curl.arg(url).output().unwrap().stdout).unwrap()
}

#[test]
fn a_token_stands_for_its_sandbox_and_nothing_else() {
    let world = World::new();
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    world.configure(&format!("listen = \"{address}\"\n"));
    let mut server = Server::start_with(&world.arguments());
    let proxy = format!("http://{address}");
    let token = |server: &Server, sandbox: &str, body: &str| {
        let made = server.ask("POST", &format!("{sandbox}/egress/tokens"), body);
        assert_eq!(made.status, 201, "{made:?}");
        let made = made.json();
        format!("{}:{}", made["username"].as_str().unwrap(), made["password"].as_str().unwrap())
    };
    let open = server.create(&json!({ "egress": world.allow(&["a.test"]) }).to_string());
    let closed = server.create("{}");
    let (mine, other) = (token(&server, &open, "{}"), token(&server, &closed, r#"{"ttl_seconds":60}"#));
    let page = world.page("a.test", "/far");
    assert_eq!(status(&proxy, &mine, &page), "200");
    assert_eq!(status(&proxy, &mine, &world.page("b.test", "/far")), "403", "its own policy");
    assert_eq!(status(&proxy, &other, &page), "403", "a token of another sandbox has the other's policy");
    assert_eq!(status(&proxy, "", &page), "407");
    let forged = format!("{}x", mine.trim_end_matches(char::is_alphanumeric));
    assert_eq!(status(&proxy, &forged, &page), "407");
    eventually("the decision in the log", || {
        log(&server, &open, "?verdict=allowed&host=a.test").iter().any(|row| row["path"] == "/far")
    });
    // A change of policy, a restart and the sandbox's end hold here too.
    let put = server.ask("PUT", &format!("{open}/egress"), r#"{"mode":"none"}"#);
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(status(&proxy, &mine, &page), "403");
    let put = server.ask("PUT", &format!("{open}/egress"), &world.allow(&["a.test"]).to_string());
    assert_eq!(put.status, 200, "{put:?}");
    server.kill();
    assert_eq!(status(&proxy, &mine, &page), "000");
    server.restart();
    eventually("it is served again", || status(&proxy, &mine, &page) == "200");
    assert_eq!(server.ask("DELETE", &open, "").status, 204);
    assert_eq!(status(&proxy, &mine, &page), "403", "its sandbox is gone");
    for (body, field) in [(r#"{"ttl_seconds":0}"#, "ttl_seconds"), (r#"{"ttl":1}"#, "ttl")] {
        let refused = server.ask("POST", &format!("{closed}/egress/tokens"), body);
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.json().to_string().contains(field), "{refused:?}");
    }
}
