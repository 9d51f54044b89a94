//! Variables of Python kernels and files that are kept and rolled back together.

use super::{both, listed, refused, rollbacks::asked};
use crate::{engine::fixture::eventually, server::fixture::Server};
use serde_json::{Value, json};

fn run(server: &Server, sandbox: &str, code: &str) -> Value {
    let answer = server.ask("POST", &format!("{sandbox}/run"), &json!({ "code": code }).to_string());
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let answer = answer.json();
    assert_eq!(answer["error"], Value::Null, "{answer}");
    answer
}

/// What an expression is in the sandbox's Python kernel.
pub(super) fn value(server: &Server, sandbox: &str, expression: &str) -> String {
    run(server, sandbox, expression)["result"]["text/plain"].as_str().unwrap_or_default().to_owned()
}

/// Keeps files and kernels, and returns the snapshot's path.
fn keep(server: &Server, sandbox: &str) -> String {
    let made = server.ask("POST", &format!("{sandbox}/snapshots"), r#"{"kernels":true}"#);
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let made = made.json();
    assert_eq!(made["kernels"].as_array().unwrap().len(), 1, "{made}");
    format!("{sandbox}/snapshots/{}", made["id"].as_str().unwrap())
}

/// The same after some code ran.
pub(super) fn keep_with(server: &Server, sandbox: &str, code: &str) -> String {
    run(server, sandbox, code);
    keep(server, sandbox)
}

fn roll_back(server: &Server, snapshot: &str) -> Value {
    let answer = server.ask("POST", &format!("{snapshot}/rollback"), r#"{"kernels":true}"#);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

#[test]
fn variables_and_files_come_back_together() {
    for server in both(&[]) {
        let sandbox = server.create("{}");
        server.exec(&sandbox, "echo one > file; mkdir d; echo x > d/gone; echo home > ~/h");
        run(
            &server,
            &sandbox,
            "x = ['kept']\nopened = open('/workspace/file')\nimport os; os.chdir('/workspace/d')",
        );
        let first = keep(&server, &sandbox);
        let container = server.ask("GET", &sandbox, "").json()["container_id"].clone();
        for _ in 0..2 {
            run(&server, &sandbox, "x.append('lost'); y = 2\nopen('/workspace/made', 'w').write('made')");
            server.exec(&sandbox, "echo second > file; rm -r d/gone; echo new > new; echo changed > ~/h");
            let background = json!({ "command": "sleep 1000", "background": true }).to_string();
            let exec = server.ask("POST", &format!("{sandbox}/exec"), &background).json()["exec_id"].clone();
            let bash = json!({ "code": "z=1", "language": "bash" }).to_string();
            assert_eq!(server.ask("POST", &format!("{sandbox}/run"), &bash).status, 200);
            let code = "open('/workspace/cell', 'w').write('x')\nimport time; time.sleep(1000)";
            let cell = asked(&server, format!("{sandbox}/run"), json!({ "code": code }));
            eventually("the cell runs", || server.says(&sandbox, "ls /workspace").contains("cell"));
            let rolled = roll_back(&server, &first);
            assert_eq!(rolled["sandbox"]["container_id"], container, "the container stays");
            assert_eq!(rolled["before"]["kind"], "before_rollback");
            let (status, ended) = cell.join().unwrap();
            assert_eq!((status, &ended["error"]["code"]), (409, &json!("rolled_back")), "{ended}");
            // The command ended for the same reason, and says so afterwards.
            let path = format!("{sandbox}/execs/{}", exec.as_str().unwrap());
            assert_eq!(refused(&server, "GET", &path, "", 409), "rolled_back");
            assert_eq!(refused(&server, "GET", &format!("{path}/output"), "", 409), "rolled_back");
            assert_eq!(value(&server, &sandbox, "x, 'y' in dir()"), "(['kept'], False)");
            assert_eq!(server.says(&sandbox, "cat file ~/h d/gone; ls"), "one\nhome\nx\nd\nfile");
            // An open file and the working folder are those that they were.
            assert_eq!(
                value(&server, &sandbox, "opened.seek(0); opened.read(), os.listdir()"),
                "('one\\n', ['gone'])"
            );
            // What the rollback changed is no command's.
            let after = server.exec(&sandbox, "echo mine > mine; sync");
            assert_eq!(after["files_changed"][0]["path"], "mine", "{after}");
            assert_eq!(after["files_changed"].as_array().unwrap().len(), 1, "{after}");
            let kernels = server.ask("GET", &format!("{sandbox}/kernels"), "").json();
            let kernels = kernels.as_array().or(kernels["kernels"].as_array()).unwrap().clone();
            assert_eq!(kernels.len(), 1, "a kernel that was not kept ended: {kernels:?}");
        }
        // What was before has files alone.
        let before = listed(&server, &sandbox)[0].clone();
        assert_eq!(before["kernels"], json!([]), "{before}");
        let before = format!("{sandbox}/snapshots/{}", before["id"].as_str().unwrap());
        assert_eq!(
            refused(&server, "POST", &format!("{before}/rollback"), r#"{"kernels":true}"#, 409),
            "conflict"
        );
    }
}

#[test]
fn a_paused_sandbox_is_rolled_back_with_its_kernels_and_a_stopped_one_without() {
    let server = Server::start();
    let sandbox = server.create("{}");
    assert_eq!(
        refused(&server, "POST", &format!("{sandbox}/snapshots"), r#"{"kernels":true}"#, 409),
        "conflict"
    );
    run(&server, &sandbox, "x = 1\nopen('/workspace/f', 'w').write('1')");
    let first = keep(&server, &sandbox);
    run(&server, &sandbox, "x = 2\nopen('/workspace/f', 'w').write('2')");
    assert_eq!(server.ask("POST", &format!("{sandbox}/pause"), "").status, 200);
    roll_back(&server, &first);
    assert_eq!(value(&server, &sandbox, "x, open('/workspace/f').read()"), "(1, '1')");
    // The kernels ended with their container; the files did not.
    server.exec(&sandbox, "echo 3 > f");
    assert_eq!(server.ask("POST", &format!("{sandbox}/stop"), "").status, 200);
    let (path, with) = (format!("{first}/rollback"), r#"{"kernels":true}"#);
    assert_eq!(refused(&server, "POST", &path, with, 409), "conflict");
    assert_eq!(server.ask("POST", &format!("{sandbox}/resume"), "").status, 200);
    assert_eq!(refused(&server, "POST", &path, with, 409), "conflict");
    assert_eq!(server.says(&sandbox, "cat f"), "3", "a refused rollback changes nothing");
    let rolled = server.ask("POST", &path, r#"{"keep_before":false}"#);
    assert_eq!((rolled.status, &rolled.json()["before"]), (200, &Value::Null));
    assert_eq!(server.says(&sandbox, "cat f"), "1");
    // A writable root cannot be changed while it is mounted.
    let root = server.create(r#"{"profile":"root"}"#);
    run(&server, &root, "x = 1");
    assert_eq!(refused(&server, "POST", &format!("{root}/snapshots"), with, 422), "validation");
}

#[test]
fn the_checkpoints_of_a_snapshot_go_with_it() {
    let server = Server::start();
    let sandbox = server.create("{}");
    run(&server, &sandbox, "x = 1");
    let first = keep(&server, &sandbox);
    let kernels = || server.ask("GET", &format!("{sandbox}/kernels"), "").json().to_string();
    let id = first.rsplit('/').next().unwrap();
    assert!(kernels().contains(&format!("snapshot {id}")), "{}", kernels());
    assert_eq!(server.ask("DELETE", &first, "").status, 204);
    eventually("its checkpoint is gone", || !kernels().contains(id));
}

/// Folders in folders, more than are walked while a container is frozen.
const NEST: &str = "mkdir -p $(printf 'd/%.0s' $(seq 250))";

#[test]
fn kernels_are_lost_where_the_files_cannot_be_rolled_back_in_place_and_that_is_said() {
    let server = Server::start();
    let sandbox = server.create("{}");
    assert_eq!(server.exec(&sandbox, NEST)["exit_code"], 0);
    run(&server, &sandbox, "x = 1\nopen('/workspace/f', 'w').write('one')");
    let first = keep(&server, &sandbox);
    run(&server, &sandbox, "x = 2\nopen('/workspace/f', 'w').write('two')");
    let container = server.ask("GET", &sandbox, "").json()["container_id"].clone();
    let answer = server.ask("POST", &format!("{first}/rollback"), r#"{"kernels":true}"#);
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status, &error["code"]), (409, &json!("kernel_died")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("the files were rolled back"), "{error}");
    // The files are those of the snapshot, in another container that runs.
    let shown = server.ask("GET", &sandbox, "").json();
    assert_eq!(shown["status"], "running", "{shown}");
    assert_ne!(shown["container_id"], container);
    assert_eq!(server.says(&sandbox, "cat f; find d -type d | wc -l"), "one250");
    assert_eq!(value(&server, &sandbox, "'x' in globals()"), "False");
    // What was before is kept, and the way back is open.
    let before = listed(&server, &sandbox)[0].clone();
    assert_eq!(before["kind"], "before_rollback", "{before}");
    super::roll_back(&server, &format!("{sandbox}/snapshots/{}", before["id"].as_str().unwrap()));
    assert_eq!(server.says(&sandbox, "cat f"), "two");
    let rows = server.ask("GET", "/api/v1/audit?kind=snapshot.rollback", "").json();
    assert_eq!(rows["entries"].as_array().unwrap().len(), 2, "{rows}");
}
