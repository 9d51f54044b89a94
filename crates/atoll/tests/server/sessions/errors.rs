//! Errors are answers that a model can act on.

use super::{Server, Thread, key};
use serde_json::{Value, json};

fn places(answer: &Value) -> Vec<Value> {
    assert_eq!((&answer["success"], &answer["error"]), (&json!(false), &json!("INVALID_INPUT")), "{answer}");
    answer["details"].as_array().unwrap().iter().map(|detail| detail["loc"].clone()).collect()
}

#[test]
fn a_wrong_input_is_told_with_its_places() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    for (tool, input, wanted) in [
        ("create_session", json!({ "language": "cobol" }), json!([["language"]])),
        (
            "create_session",
            json!({ "dependencies": { "--index": "" } }),
            json!([["dependencies", "--index"]]),
        ),
        (
            "execute_code",
            json!({ "session_id": "x", "code": "", "timeout": 0 }),
            json!([["code"], ["timeout"]]),
        ),
        ("execute_code", json!({ "session_id": "x" }), json!([["code"]])),
        ("execute_code", json!({ "session_id": "x", "code": "1", "timeout": 301 }), json!([["timeout"]])),
        ("execute_terminal", json!({ "session_id": "x", "command": " " }), json!([["command"]])),
        ("import_files", json!({ "session_id": "x", "files": [] }), json!([["files"]])),
        ("import_files", json!({ "session_id": "x", "files": [{ "path": "a" }] }), json!([["files", 0]])),
        (
            "export_files",
            json!({ "session_id": "x", "files": [{ "source": "" }] }),
            json!([["files", 0, "source"]]),
        ),
        ("stop_session", json!({}), json!([["session_id"]])),
        ("stop_session", json!([]), json!([[]])),
    ] {
        assert_eq!(json!(places(&thread.call(tool, &input))), wanted, "{tool} {input}");
    }
    assert_eq!(thread.sessions(), [], "none of them did anything");
}

#[test]
fn an_unknown_session_is_told_with_those_that_are_there() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let none = thread.code("00000000", "1");
    assert_eq!((&none["success"], &none["active_sessions"]), (&json!(false), &json!([])));
    assert!(none["error"].as_str().unwrap().starts_with("NotFound: there is no session"), "{none}");
    assert!(none["hint"].as_str().unwrap().contains("create_session"), "{none}");
    let id = thread.create(&json!({}));
    let active = json!([{ "session_id": id, "runtime": "python", "status": "running" }]);
    for (tool, more) in [
        ("execute_code", json!({ "code": "1" })),
        ("execute_terminal", json!({ "command": "true" })),
        ("import_files", json!({ "files": [{ "file_name": "a", "file_content": "" }] })),
        ("export_files", json!({ "files": [{ "source": "a" }] })),
    ] {
        let mut input = json!({ "session_id": "not one" });
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = thread.call(tool, &input);
        assert_eq!((&answer["success"], &answer["active_sessions"]), (&json!(false), &active), "{tool}");
        assert!(answer["hint"].as_str().unwrap().contains("active_sessions"), "{answer}");
    }
    assert_eq!(thread.call("stop_session", &json!({ "session_id": "not one" })), json!({ "success": false }));
    let tool = thread.call("no_such_tool", &json!({}));
    assert!(tool["error"].as_str().unwrap().starts_with("NotFound: there is no tool"), "{tool}");
}

#[test]
fn a_session_belongs_to_its_thread_and_its_owner() {
    let server = Server::start();
    let mine = Thread::new(&server, "t1");
    let id = mine.create(&json!({}));
    let stranger = key(&server, "eve", "standard");
    for other in [Thread::new(&server, "t2"), Thread::of(&server, &stranger, "t1")] {
        assert_eq!(other.sessions(), []);
        let answer = other.code(&id, "1");
        assert_eq!((&answer["success"], &answer["active_sessions"]), (&json!(false), &json!([])), "{answer}");
        assert_eq!(other.call("stop_session", &json!({ "session_id": id })), json!({ "success": false }));
        assert_eq!(other.ask("DELETE", "", "").status, 204);
    }
    assert_eq!(mine.code(&id, "1")["success"], true);
}

#[test]
fn an_interpreter_that_dies_is_started_anew_and_the_files_stay() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    for (language, code, reason) in [
        ("python", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL (137)"),
        ("python", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "segmentation fault (139)"),
        ("node", "process.kill(process.pid, 'SIGKILL')", "killed by SIGKILL (137)"),
    ] {
        let id = thread.create(&json!({ "language": language }));
        thread.code(&id, "x = 1");
        thread.says(&id, "echo kept >a.txt");
        let died = thread.code(&id, code);
        assert_eq!((&died["success"], &died["state_lost"]), (&json!(false), &json!(true)), "{died}");
        let message = died["error"]["message"].as_str().unwrap();
        assert!(message.contains(reason) && message.contains("variables are lost"), "{died}");
        assert_eq!(died["error"]["type"], "KERNEL_DIED");
        let next = thread.code(&id, "6 * 7");
        assert_eq!((&next["result"]["text/plain"], next.get("state_lost")), (&json!("42"), None), "{next}");
        assert_eq!(thread.code(&id, "x")["success"], false, "its variables are lost");
        assert_eq!(thread.says(&id, "cat a.txt"), "kept");
        assert_eq!(thread.sessions(), [(id.clone(), "running".to_owned())]);
        assert_eq!(thread.call("stop_session", &json!({ "session_id": id })), json!({ "success": true }));
    }
}

#[test]
fn an_error_that_only_has_the_name_of_a_death_kills_nothing() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    let raised = thread.code(&id, "x = 1\nclass KERNEL_DIED(Exception): pass\nraise KERNEL_DIED('not yet')");
    assert_eq!(
        (&raised["error"]["type"], raised.get("state_lost")),
        (&json!("KERNEL_DIED"), None),
        "{raised}"
    );
    assert_eq!(thread.code(&id, "x")["result"]["text/plain"], "1", "its variables are there");
}

#[test]
fn an_interpreter_that_died_between_two_calls_is_started_anew_too() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    let pid = thread.code(&id, "import os; x = 1; os.getpid()")["result"]["text/plain"].clone();
    thread.says(&id, &format!("echo kept >a.txt; kill -9 {}", pid.as_str().unwrap()));
    let next = thread.code(&id, "open('a.txt').read()");
    assert_eq!(
        (&next["result"]["text/plain"], &next["state_lost"]),
        (&json!("'kept\\n'"), &json!(true)),
        "{next}"
    );
    assert_eq!(thread.code(&id, "1").get("state_lost"), None);
}

#[test]
fn a_sandbox_that_dies_takes_its_session_along() {
    let server = Server::start_with(&["--set", "tool_sessions.memory_mb=192"]);
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    let answer = thread.code(&id, "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1");
    assert_eq!(answer["state_lost"], true, "the interpreter alone is out of memory: {answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("out of memory"), "{answer}");
    assert_eq!(thread.sessions(), [(id, "running".to_owned())]);
    let second = thread.create(&json!({}));
    // An admin ends a sandbox behind the tools' back.
    let listed = server.ask("GET", "/api/v1/sandboxes", "").json();
    let of = |item: &&Value| item["labels"]["atoll.tool_session"] == second.as_str();
    let sandbox = listed["items"].as_array().unwrap().iter().find(of).unwrap()["id"].clone();
    assert_eq!(
        server.ask("DELETE", &format!("/api/v1/sandboxes/{}", sandbox.as_str().unwrap()), "").status,
        204
    );
    let answer = thread.terminal(&second, "true");
    assert!(answer["error"].as_str().unwrap().starts_with("CONTAINER_DIED: "), "{answer}");
}

#[test]
fn what_takes_too_long_or_says_too_much_is_cut() {
    let server = Server::start();
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    thread.code(&id, "kept = 1");
    let input = json!({ "session_id": id, "code": "import time; time.sleep(60)", "timeout": 1 });
    let late = thread.call("execute_code", &input);
    assert_eq!((&late["success"], &late["error"]["type"]), (&json!(false), &json!("TIMEOUT")), "{late}");
    assert_eq!(thread.code(&id, "kept")["result"]["text/plain"], "1", "its variables are still there");
    let input = json!({ "session_id": id, "command": "echo so far; sleep 60", "timeout": 1 });
    let late = thread.call("execute_terminal", &input);
    assert_eq!((&late["exit_code"], &late["stdout"]), (&json!(124), &json!("so far\n")), "{late}");
    assert!(late["stderr"].as_str().unwrap().contains("ended after 1 s"), "{late}");
    let long = thread.code(&id, "print('first' + 'é' * 60000 + 'last', end='')");
    let stdout = long["stdout"].as_str().unwrap();
    let notice = "é\n… [truncated: 60009 characters, the first 40000 and the last 10000 shown] …\né";
    assert!(
        stdout.starts_with("firsté") && stdout.contains(notice) && stdout.ends_with("élast"),
        "{stdout:.99}"
    );
    let long = thread.terminal(
        &id,
        "head -c 60000 /dev/zero | tr '\\0' a; echo done; head -c 130000 /dev/zero | tr '\\0' b >&2",
    );
    let text = |name: &str| long[name].as_str().unwrap().to_owned();
    let notice = "a\n… [truncated: 60005 characters, the first 40000 and the last 10000 shown] …\na";
    assert!(text("stdout").contains(notice) && text("stdout").ends_with("adone\n"));
    assert!(
        text("stderr")
            .contains("b\n… [truncated: 130000 characters, the first 96000 and the last 24000 shown]")
    );
    // Longer than what is kept of an output: its end is there, and all of it is counted.
    let long = thread.terminal(&id, "head -c 9000000 /dev/zero | tr '\\0' a; echo é; echo done");
    let stdout = long["stdout"].as_str().unwrap();
    assert!(stdout.contains("[truncated: 9000007 characters, "), "{stdout:.99}");
    assert!(stdout.ends_with("aé\ndone\n"), "the end is there");
    let value = thread.code(&id, "'x' * 40000");
    let value = value["result"]["text/plain"].as_str().unwrap();
    assert!(value.contains("… [truncated: 40002 characters, the first "), "{}", &value[23_900..]);
}
