//! Kernels and the life of their sandbox: paused, idle, stopped.

use super::{Server, cell, execute, kernels, python, run, start, value};
use crate::engine::fixture::eventually;
use crate::server::lifecycle_idle::{SOON, looking, status};
use serde_json::json;
use std::thread;

#[test]
fn a_paused_sandbox_goes_on_for_a_cell_and_its_variables_are_there() {
    let server = Server::start();
    let sandbox = server.create("{}");
    python(&server, &sandbox, "x = 41");
    assert_eq!(server.ask("POST", &format!("{sandbox}/pause"), "").status, 200);
    assert_eq!(value(&python(&server, &sandbox, "x + 1")), "42");
    assert_eq!(status(&server, &sandbox), "running");
    // A cell that is paused in the middle continues, and so does its time.
    let body = json!({ "code": "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n'over'", "timeout": 10 });
    let path = format!("{sandbox}/run");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| cell(&server, &path, &body));
        eventually("a busy kernel", || kernels(&server, &sandbox)[0]["status"] == "busy");
        assert_eq!(server.ask("POST", &format!("{sandbox}/pause"), "").status, 200);
        thread::sleep(std::time::Duration::from_secs(11));
        server.ask("PUT", &format!("{sandbox}/files/go"), "");
        let ran = waiting.join().unwrap();
        assert_eq!((&ran["timed_out"], value(&ran)), (&false.into(), "'over'"), "{ran}");
    });
}

#[test]
fn a_waiting_kernel_is_no_work_and_an_executing_cell_is() {
    let (mut server, _file) = looking(&["lifecycle.pause_seconds=-1"]);
    let [waits, works] = [(); 2].map(|()| server.create(SOON));
    python(&server, &waits, "x = 41");
    let kernel = start(&server, &works, &json!({ "language": "bash" }));
    let body =
        json!({ "code": "while ! [ -e /workspace/end ]; do sleep 0.2; done", "timeout": 600 }).to_string();
    let headers = [super::AUTH, ("Idempotency-Key", "k")];
    let (address, path) = (server.address, format!("{kernel}/execute"));
    let lost =
        thread::spawn(move || _ = super::http::request(address, "POST", &path, &headers, body.as_bytes()));
    eventually("a busy kernel", || server.ask("GET", &kernel, "").json()["status"] == "busy");
    eventually("standing still", || status(&server, &waits) == "paused");
    assert_eq!(status(&server, &works), "running");
    // And so it is for the next server.
    server.kill();
    server.restart();
    lost.join().unwrap();
    let still = server.create(SOON);
    eventually("standing still", || status(&server, &still) == "paused");
    assert_eq!(status(&server, &works), "running");
    server.ask("PUT", &format!("{works}/files/end"), "");
    eventually("standing still in the end", || status(&server, &works) == "paused");
    assert_eq!(value(&run(&server, &waits, "python", "x + 1")), "42");
}

#[test]
fn a_stopped_sandbox_has_no_kernels_and_new_ones_when_it_is_resumed() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let kernel = start(&server, &sandbox, &json!({}));
    execute(&server, &kernel, "x = 1");
    server.ask("POST", &format!("{sandbox}/stop"), "");
    assert!(kernels(&server, &sandbox).is_empty());
    server.ask("POST", &format!("{sandbox}/resume"), "");
    assert_eq!(server.ask("POST", &format!("{kernel}/execute"), r#"{"code":"x"}"#).status, 404);
    assert_eq!(run(&server, &sandbox, "python", "x")["error"]["type"], "NameError");
}
