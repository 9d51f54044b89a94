//! Interpreters that die, and take nothing else along.

use super::{Server, execute, kernels, python, run, start, value};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::thread;

fn died(ran: &Value, reason: &str) {
    assert_eq!((&ran["success"], &ran["state_lost"]), (&false.into(), &true.into()), "{ran}");
    assert_eq!(ran["error"]["type"], "KERNEL_DIED", "{ran}");
    assert!(ran["error"]["message"].as_str().unwrap().contains(reason), "{reason}: {ran}");
}

#[test]
fn a_memory_bomb_ends_its_kernel_and_nothing_else() {
    let server = Server::start();
    let sandbox = server.create(r#"{"memory_mb":192}"#);
    let other = start(&server, &sandbox, &json!({ "language": "bash" }));
    execute(&server, &other, "kept=here");
    let bomb = "a = []\nwhile True: a.append(bytearray(b'x') * (1 << 20))";
    died(&run(&server, &sandbox, "python", bomb), "out of memory");
    assert_eq!(server.ask("GET", &sandbox, "").json()["status"], "running");
    assert_eq!(execute(&server, &other, "echo $kept")["stdout"], "here\n");
    // The next cell has a fresh interpreter and is told so, once.
    let next = python(&server, &sandbox, "1 + 1");
    assert_eq!((value(&next), &next["state_lost"], &next["restarted"]), ("2", &true.into(), &true.into()));
    assert_eq!(python(&server, &sandbox, "2 + 2")["state_lost"], false);
}

#[test]
fn a_segfault_and_a_kill_are_told_as_what_they_are() {
    let server = Server::start();
    let sandbox = server.create("{}");
    for (language, segfault, kill) in [
        ("python", "import ctypes; ctypes.string_at(0)", "import os; os.kill(os.getpid(), 9)"),
        ("node", "process.kill(process.pid, 'SIGSEGV')", "process.kill(process.pid, 'SIGKILL')"),
        ("r", "tools::pskill(Sys.getpid(), 11)", "tools::pskill(Sys.getpid(), 9)"),
        ("bash", "kill -SEGV $$", "kill -KILL $$"),
    ] {
        died(&run(&server, &sandbox, language, segfault), "segmentation fault");
        died(&run(&server, &sandbox, language, kill), "SIGKILL");
        assert_eq!(run(&server, &sandbox, language, "1")["restarted"], true, "{language}");
    }
    // A kernel of one's own stays dead until somebody wants it back.
    let kernel = start(&server, &sandbox, &json!({}));
    died(&execute(&server, &kernel, "import os; os._exit(7)"), "exited with status 7");
    let dead = server.ask("GET", &kernel, "").json();
    assert_eq!((&dead["status"], &dead["death"]), (&"dead".into(), &"exited with status 7".into()), "{dead}");
    let refused = server.ask("POST", &format!("{kernel}/execute"), r#"{"code":"1"}"#);
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (409, Some("kernel_died")));
    assert_eq!(server.ask("POST", &format!("{kernel}/restart"), "").status, 200);
    assert_eq!(value(&execute(&server, &kernel, "3")), "3");
}

#[test]
fn a_fork_bomb_is_ended_with_its_kernel() {
    let server = Server::start();
    let sandbox = server.create(r#"{"processes":128}"#);
    let kernel = start(&server, &sandbox, &json!({ "language": "bash" }));
    let body = json!({ "code": "bomb() { bomb | bomb & }; bomb; wait", "timeout": 2 }).to_string();
    let answer = server.ask("POST", &format!("{kernel}/execute"), &body);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(server.ask("DELETE", &kernel, "").status, 204);
    eventually("room for a process", || {
        server.ask("POST", &format!("{sandbox}/exec"), r#"{"command":"true"}"#).json()["exit_code"] == 0
    });
    assert_eq!(value(&python(&server, &sandbox, "5")), "5");
}

#[test]
fn a_killed_kernel_manager_costs_its_kernels_and_the_next_start_begins_anew() {
    let server = Server::start();
    let sandbox = server.create("{}");
    python(&server, &sandbox, "x = 1");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&server, &sandbox, "python", "while True: pass"));
        eventually("a busy kernel", || kernels(&server, &sandbox)[0]["status"] == "busy");
        server.exec(&sandbox, "pkill -9 -f '^atoll-init tool kernels'; true");
        died(&waiting.join().unwrap(), "SIGKILL");
    });
    eventually("no kernels", || kernels(&server, &sandbox).is_empty());
    let next = run(&server, &sandbox, "python", "x");
    assert_eq!(next["error"]["type"], "NameError", "{next}");
    assert_eq!(value(&python(&server, &sandbox, "7")), "7");
    // What the old ones left running is gone.
    assert_eq!(server.says(&sandbox, "pgrep -c python3"), "1");
}

#[test]
fn a_dead_container_is_told_as_such() {
    let server = Server::start();
    let sandbox = server.create("{}");
    python(&server, &sandbox, "x = 1");
    let body = json!({ "code": "while True: pass", "timeout": 300 }).to_string();
    let path = format!("{sandbox}/run");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| server.ask("POST", &path, &body));
        eventually("a busy kernel", || kernels(&server, &sandbox)[0]["status"] == "busy");
        assert_eq!(server.ask("POST", &format!("{sandbox}/stop"), "").status, 200);
        let answer = waiting.join().unwrap();
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["code"]), (409, &json!("not_running")), "{error}");
        let said = error["message"].as_str().unwrap();
        assert!(said.starts_with("the sandbox was stopped while the cell ran"), "{said}");
    });
    assert!(kernels(&server, &sandbox).is_empty(), "what is stopped has none");
    let refused = server.ask("POST", &format!("{sandbox}/run"), r#"{"code":"1"}"#);
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (409, Some("not_running")));
    server.ask("POST", &format!("{sandbox}/resume"), "");
    assert_eq!(run(&server, &sandbox, "python", "x")["error"]["type"], "NameError");
}
