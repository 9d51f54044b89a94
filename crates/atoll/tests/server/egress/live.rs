//! What gets out, what does not, and when that changes.

use super::{curl, egress, log, world::World};
use crate::{engine::fixture::eventually, server::fixture::Server};
use serde_json::json;
use std::sync::atomic::Ordering;

#[test]
fn nothing_gets_out_by_default_and_that_is_said_at_once() {
    let world = World::new();
    let server = Server::start_with(&world.arguments());
    let sandbox = server.create("{}");
    let (said, code) = curl(&server, &sandbox, &world.page("a.test", "/"));
    assert!(said.ends_with("403") && code == "0", "{said} {code}");
    assert!(said.contains("a.test"), "it names the host: {said}");
    // Neither with a proxy of one's own choice, nor without any.
    let (_, code) = curl(&server, &sandbox, &format!("--noproxy '*' http://{}/", world.web));
    assert_eq!(code, "7", "no connection");
    assert_eq!(world.seen.lock().unwrap().len(), 0);
    eventually("the refusal in the log", || {
        !log(&server, &sandbox, "?verdict=refused&host=A.test").is_empty()
    });
    let told = &log(&server, &sandbox, "?verdict=refused&host=a.test")[0];
    assert_eq!((told["rule"].as_str(), told["verdict"].as_str()), (Some("none"), Some("refused")));
    let shown = egress(&server, &sandbox);
    assert_eq!((shown["policy"]["mode"].as_str(), shown["served"].as_bool()), (Some("none"), Some(true)));
    assert_eq!(shown["refusals"][0]["host"], "a.test");
    assert!(shown["refused"].as_u64().unwrap() >= 1 && shown["allowed"] == 0, "{shown}");
}

#[test]
fn what_is_listed_gets_out_and_nothing_else_does() {
    let world = World::new();
    let server = Server::start_with(&world.arguments());
    let sandbox = server.create(&json!({ "egress": world.allow(&["a.test", "secure.test"]) }).to_string());
    assert_eq!(server.ask("GET", &sandbox, "").json()["network_enabled"], true);
    let (said, code) = curl(&server, &sandbox, &world.page("a.test", "/x"));
    assert_eq!((said.as_str(), code.as_str()), (&*format!("page of a.test:{}\n200", world.web.port()), "0"));
    let (said, _) = curl(&server, &sandbox, &world.page("b.test", "/"));
    assert!(said.ends_with("403") && said.contains("b.test"), "{said}");
    // A name that is listed and an address that is not.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let (said, _) = curl(&server, &sandbox, &format!("http://a.test:{port}/"));
    assert!(said.ends_with("403"), "{said}");
    // TLS is the sandbox's own, end to end.
    let put = server.ask("PUT", &format!("{sandbox}/files/ca.pem"), &world.certificate);
    assert!(put.status < 300, "{put:?}");
    let secure = format!("--cacert ca.pem https://secure.test:{}/", world.tls.port());
    assert_eq!(curl(&server, &sandbox, &secure), ("secure\n200".into(), "0".into()));
    if egress(&server, &sandbox)["transparent"] == true {
        let (said, _) = curl(&server, &sandbox, &format!("--noproxy '*' {}", world.page("a.test", "/t")));
        assert!(said.ends_with("200"), "without a proxy: {said}");
        let (said, code) = curl(&server, &sandbox, &format!("--noproxy '*' {}", world.page("b.test", "/t")));
        assert!(said.ends_with("000") && code == "6", "the name does not exist: {said} {code}");
    }
    let seen = world.seen.lock().unwrap().clone();
    assert!(seen.iter().all(|line| line.contains("/x") || line.contains("/t")), "{seen:?}");
}

#[test]
fn a_change_is_obeyed_by_open_connections_too() {
    let world = World::new();
    let server = Server::start_with(&world.arguments());
    let sandbox = server.create(&json!({ "egress": world.allow(&["a.test"]) }).to_string());
    let hold = format!("curl -s {}", world.page("a.test", "/hold"));
    let body = json!({ "command": hold, "background": true }).to_string();
    let exec = server.ask("POST", &format!("{sandbox}/exec"), &body).json()["exec_id"].clone();
    eventually("the connection", || world.held.load(Ordering::SeqCst) == 1);
    assert_eq!(egress(&server, &sandbox)["connections_open"], 1);
    let set = server.ask("PUT", &format!("{sandbox}/egress"), &world.allow(&["c.test"]).to_string());
    assert_eq!(set.status, 200, "{set:?}");
    eventually("its end", || world.held.load(Ordering::SeqCst) == 0);
    let path = format!("{sandbox}/execs/{}", exec.as_str().unwrap());
    eventually("the command's end", || server.ask("GET", &path, "").json()["status"] != "running");
    assert!(curl(&server, &sandbox, &world.page("a.test", "/")).0.ends_with("403"));
    assert!(curl(&server, &sandbox, &world.page("c.test", "/")).0.ends_with("200"));
    // It is what the sandbox has, after it was stopped too, and can be changed then.
    server.ask("POST", &format!("{sandbox}/stop"), "");
    let shown = egress(&server, &sandbox);
    assert_eq!(
        (shown["served"].as_bool(), shown["policy"]["allow"][0].as_str()),
        (Some(false), Some("c.test"))
    );
    server.ask("PUT", &format!("{sandbox}/egress"), &world.allow(&["d.test"]).to_string());
    server.ask("POST", &format!("{sandbox}/resume"), "");
    assert!(curl(&server, &sandbox, &world.page("c.test", "/")).0.ends_with("403"));
    assert!(curl(&server, &sandbox, &world.page("d.test", "/")).0.ends_with("200"));
}

#[test]
fn without_a_server_nothing_gets_out_and_the_next_one_serves_again() {
    let world = World::new();
    let mut server = Server::start_with(&world.arguments());
    let sandbox = server.create(&json!({ "egress": world.allow(&["a.test"]) }).to_string());
    // Asks again and again, and writes down what came of it.
    let page = world.page("a.test", "/");
    let line = format!(
        "n=0; while :; do curl -s -m 1 -o /dev/null -w '%{{http_code}}\\n' {page} >>seen; sleep 0.05; done"
    );
    let body = json!({ "command": line, "background": true }).to_string();
    server.ask("POST", &format!("{sandbox}/exec"), &body);
    let count = |server: &Server, status: &str| -> u32 {
        server.says(&sandbox, &format!("grep -c {status} seen || true")).parse().unwrap_or(0)
    };
    eventually("a page", || count(&server, "200") > 0);
    server.kill();
    let before = world.seen.lock().unwrap().len();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let while_down = world.seen.lock().unwrap().len() - before;
    // At most one that was on its way.
    assert!(while_down <= 1, "{while_down} requests came through while no server ran");
    server.restart();
    // No request was made to this sandbox: its egress sockets are served all the same.
    eventually("pages again", || world.seen.lock().unwrap().len() > before + while_down + 2);
    assert!(count(&server, "000") > 0, "some failed meanwhile");
}

#[test]
fn every_command_finds_the_way_out_and_the_callers_word_wins() {
    let server = Server::start();
    let sandbox = server.create(r#"{"env_vars":{"HTTPS_PROXY":"http://mine.example:1"}}"#);
    let said =
        server.says(&sandbox, "echo $http_proxy $HTTP_PROXY $https_proxy $HTTPS_PROXY $ALL_PROXY $NO_PROXY");
    let proxy = "http://127.0.0.1:3128";
    assert_eq!(
        said,
        format!("{proxy} {proxy} {proxy} http://mine.example:1 {proxy} localhost,127.0.0.1,::1")
    );
}
