//! The server ends or is killed, and another finds what it left.

use super::{ROOT, Server, eventually};
use serde_json::json;

#[test]
fn a_command_in_the_background_outlives_the_server() {
    for killed in [false, true] {
        let mut server = Server::start();
        let path = server.create("{}");
        let exec = server.background(&path, "echo before; read x; echo after; exit 4");
        eventually("its output", || server.get(&exec)["output_bytes"] == 7);
        if killed {
            server.kill();
        } else {
            server.end();
        }
        server.restart();
        assert_eq!(
            (&server.get(&path)["status"], &server.get(&exec)["status"]),
            (&json!("running"), &json!("running"))
        );
        server.ask("POST", &format!("{exec}/stdin?close=true"), "\n");
        assert_eq!(server.ended(&exec)["exit_code"], 4);
        let raw = server.ask("GET", &format!("{exec}/output?format=raw"), "");
        assert_eq!(raw.body, b"before\nafter\n", "killed: {killed}");
        // Its row of the trail is ended by the server that saw its end.
        eventually("its row", || {
            server.get("/api/v1/audit?kind=exec")["entries"][0]["ended"]["exit_code"] == 4
        });
    }
}

#[test]
fn what_died_meanwhile_is_found_dead() {
    let mut server = Server::start();
    let (lives, dies) = (server.create("{}"), server.create("{}"));
    let container = server.get(&dies)["container_id"].as_str().unwrap().parse().unwrap();
    server.kill();
    server.provider.kill(container).unwrap();
    server.restart();
    eventually("its death", || server.get(&dies)["status"] == "dead");
    assert_eq!(server.get(&lives)["status"], "running");
    assert_eq!(server.says(&lives, "echo lives"), "lives");
}

#[test]
fn a_stopped_one_is_stopped_and_keeps_its_environment() {
    let mut server = Server::start();
    let path = server.create(r#"{"env_vars":{"A":"sealed"}}"#);
    server.says(&path, "echo kept > a");
    server.ask("POST", &format!("{path}/stop"), "");
    server.end();
    server.restart();
    assert_eq!((&server.get(&path)["status"], &server.get(ROOT)["total"]), (&json!("stopped"), &json!(1)));
    server.ask("POST", &format!("{path}/resume"), "");
    assert_eq!(server.says(&path, "echo $A; cat a"), "sealed\nkept");
}
