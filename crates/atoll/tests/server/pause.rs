//! Paused sandboxes: a request pauses them, and a request that needs the container resumes them.

use super::{
    execs::{AUTH, ended, info, noted, shell, start},
    fixture::Server,
    http,
    preview::{sandbox_with_app, token},
    socket::Socket,
};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::{process::Command, thread, time::Duration};

fn pause(server: &Server, path: &str) {
    let answer = server.ask("POST", &format!("{path}/pause"), "");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.json()["status"], "paused");
}

fn status(server: &Server, path: &str) -> String {
    server.ask("GET", path, "").json()["status"].as_str().unwrap().to_owned()
}

fn events(server: &Server, path: &str) -> Vec<(String, String)> {
    let id = path.rsplit('/').next().unwrap();
    let page = server.ask("GET", &format!("/api/v1/events?sandbox_id={id}&limit=200"), "").json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    page["events"].as_array().unwrap().iter().map(|e| (text(&e["kind"]), text(&e["reason"]))).collect()
}

/// Counts without end, in a variable of its own.
const COUNTING: &str = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.01; done";

/// What a command printed last.
fn counted(server: &Server, path: &str) -> u64 {
    server.says(path, "tail -n 1 count").parse().unwrap()
}

#[test]
fn what_runs_stays_and_the_reason_is_told() {
    let server = Server::start();
    let path = server.create(r#"{"session_key":"mine"}"#);
    let exec = start(&server, &path, shell(&format!("({COUNTING}) > count")));
    eventually("a number", || server.says(&path, "wc -l < count") != "0");
    let before = counted(&server, &path);
    pause(&server, &path);
    pause(&server, &path);
    // Looking at records wakes nobody, and neither do figures that the kernel keeps.
    let listed = server.ask("GET", "/api/v1/sandboxes?status=paused", "").json();
    assert_eq!(listed["items"][0]["status_reason"], "paused by request", "{listed}");
    for tail in ["", "/activity", "/metrics"] {
        assert_eq!(server.ask("GET", &format!("{path}{tail}"), "").status, 200, "{tail}");
    }
    assert_eq!(status(&server, &path), "paused");
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").json()["status"], "running");
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200, "twice is fine");
    let after = counted(&server, &path);
    assert!(after >= before, "it began anew: {before}, {after}");
    eventually("going on", || counted(&server, &path) > after);
    assert_eq!(info(&server, &exec)["status"], "running");
    pause(&server, &path);
    assert_eq!(server.create(r#"{"session_key":"mine"}"#), path);
    assert_eq!(status(&server, &path), "running");
    let told: Vec<(String, String)> = events(&server, &path)
        .into_iter()
        .filter(|(kind, reason)| kind == "paused" || kind == "ready" && !reason.is_empty())
        .collect();
    let told: Vec<(&str, &str)> = told.iter().map(|(k, r)| (k.as_str(), r.as_str())).collect();
    assert_eq!(
        told,
        [
            ("paused", "paused by request"),
            ("ready", "resumed by request"),
            ("paused", "paused by request"),
            ("ready", "resumed by a create with its session key"),
        ]
    );
    let activity = server.ask("GET", &format!("{path}/activity"), "").json();
    let noted = |kind: &str| activity.as_array().unwrap().iter().filter(|a| a["kind"] == kind).count();
    assert_eq!((noted("pause"), noted("resume")), (2, 2), "{activity}");
}

#[test]
fn whatever_needs_it_lets_it_go_on() {
    let server = Server::start();
    let path = sandbox_with_app(&server);
    let cat = start(&server, &path, json!({ "command": "cat > fed", "stdin_open": true }));
    let sleep = start(&server, &path, shell("sleep 1000"));
    let preview = token(&server, &path, r#"{"port":8080}"#);
    let ask = |method: &'static str, at: String, body: &'static str, reason: &'static str| {
        (method, at, body, reason)
    };
    let cases = [
        ask("POST", format!("{path}/exec"), r#"{"command":"true"}"#, "exec"),
        ask("POST", format!("{path}/exec"), r#"{"command":"true","stream":true}"#, "exec"),
        ask("GET", format!("{path}/files/app.py"), "", "a file operation"),
        ask("PUT", format!("{path}/files/x"), "x", "a file operation"),
        ask("GET", format!("{path}/files"), "", "a file operation"),
        ask("GET", format!("{path}/fs/tar?path=/workspace"), "", "a file operation"),
        ask("POST", format!("{path}/fs/find"), r#"{"path":"/workspace"}"#, "a file operation"),
        ask("GET", format!("{path}/ports"), "", "a look at its ports"),
        ask("GET", format!("{path}/ports/8080/"), "", "a port"),
        ask("GET", format!("{path}/execs"), "", "a look at its commands"),
        ask("GET", format!("{cat}/output"), "", "a look at a command's output"),
        ask("POST", format!("{cat}/stdin?close=true"), "fed", "a running command's input or signal"),
        ask("POST", format!("{sleep}/kill"), "", "a running command's input or signal"),
    ];
    for (method, at, body, reason) in cases {
        pause(&server, &path);
        let answer = server.ask(method, &at, body);
        assert!((200..300).contains(&answer.status), "{method} {at}: {answer:?}");
        assert_eq!(status(&server, &path), "running", "{method} {at}");
        let (kind, why) = events(&server, &path).into_iter().rfind(|(kind, _)| kind == "ready").unwrap();
        assert_eq!((kind.as_str(), why), ("ready", format!("resumed by {reason}")), "{method} {at}");
    }
    assert_eq!(ended(&server, &cat)["exit_code"], 0);
    assert_eq!(server.says(&path, "cat fed"), "fed");
    pause(&server, &path);
    let seen =
        http::request(server.address, "GET", &format!("{path}/ports/8080~{preview}/"), &[], b"").unwrap();
    assert_eq!((seen.status, status(&server, &path).as_str()), (200, "running"));
    pause(&server, &path);
    let mut terminal = Socket::open(&server, &path, "?command=cat");
    terminal.types("x\n");
    terminal.until("x");
}

#[test]
fn an_open_terminal_stalls_and_goes_on() {
    let server = Server::start();
    let path = server.create("{}");
    let mut terminal = Socket::open(&server, &path, "");
    terminal.types("PS1=; n=41; echo up-$n\n");
    terminal.until("up-41");
    pause(&server, &path);
    // Typing wakes it, and the shell knows what it knew.
    terminal.types("echo n is $((n+1))\n");
    terminal.until("n is 42");
    assert_eq!(status(&server, &path), "running");
}

#[test]
fn a_command_that_is_waited_for_waits_too() {
    let server = Server::start();
    let path = server.create("{}");
    thread::scope(|scope| {
        let line = "touch /workspace/begun; sleep 1; echo done";
        let waiting = scope.spawn(|| server.says(&path, line));
        eventually("its start", || server.ask("GET", &format!("{path}/files/begun"), "").status == 200);
        pause(&server, &path);
        thread::sleep(Duration::from_millis(1500));
        assert!(!waiting.is_finished(), "it ended while it stood still");
        assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
        assert_eq!(waiting.join().unwrap(), "done");
    });
}

#[test]
fn it_can_be_stopped_and_destroyed_as_it_stands() {
    let server = Server::start();
    let path = server.create("{}");
    server.says(&path, "echo kept > x; (setsid sleep 7654 >/dev/null 2>&1 &)");
    pause(&server, &path);
    assert_eq!(server.ask("POST", &format!("{path}/stop"), "").json()["status"], "stopped");
    let refused = server.ask("POST", &format!("{path}/pause"), "");
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (409, Some("not_running")));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("stopped") && message.contains("paused"), "{message}");
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "cat x; pgrep -fc '[s]leep 7654'"), "kept\n0");
    pause(&server, &path);
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    let refused = server.ask("POST", &format!("{path}/pause"), "");
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (409, Some("conflict")));
    assert_eq!(
        server.ask("POST", "/api/v1/sandboxes/00000000-0000-4000-8000-000000000000/pause", "").status,
        404
    );
    // One more, for the fixture to purge as it stands.
    pause(&server, &server.create("{}"));
}

#[test]
fn a_killed_server_finds_it_as_it_stood() {
    let mut server = Server::start();
    let path = server.create("{}");
    let stopped = server.create("{}");
    let long = "while ! [ -e stop ]; do sleep 0.01; done; echo ended; exit 7";
    let exec = start(&server, &path, shell(long));
    let lost = start(&server, &stopped, shell("sleep 1000"));
    let before = server.ask("GET", &path, "").json();
    pause(&server, &path);
    pause(&server, &stopped);
    server.kill();
    server.restart();
    assert_eq!(status(&server, &path), "paused");
    assert_eq!(server.ask("GET", &path, "").json()["container_id"], before["container_id"]);
    // The command of a sandbox that is stopped as it stands is lost, and that is written down.
    let id = |exec: &str| exec.rsplit('/').next().unwrap().to_owned();
    let open = |exec: &str| {
        let all = server.ask("GET", "/api/v1/audit?limit=500&kind=exec", "").json();
        let all = all["entries"].as_array().unwrap().clone();
        let of = |o: &&Value| o.to_string().contains(&id(exec));
        all.iter().find(of).cloned().unwrap_or_default()
    };
    thread::sleep(Duration::from_secs(1));
    assert!(open(&exec).is_object() && open(&exec)["ended"].is_null(), "{}", open(&exec));
    assert_eq!(server.ask("POST", &format!("{stopped}/stop"), "").status, 200);
    eventually("the end of what was lost", || open(&lost)["ended"]["outcome"] == "lost");
    // The other goes on, and its end is seen.
    assert_eq!(server.ask("PUT", &format!("{path}/files/stop"), "").status, 204);
    assert_eq!(ended(&server, &exec)["exit_code"], 7);
    eventually("the note", || noted(&server, &path).contains(&(long.to_owned(), 7.into())));
    eventually("the row", || open(&exec)["ended"]["exit_code"] == 7);
    let told = events(&server, &path);
    assert_eq!(told.iter().filter(|(kind, _)| kind == "dead").count(), 0, "{told:?}");
}

#[test]
fn records_and_the_world_are_made_to_agree() {
    let mut server = Server::start();
    let (frozen, thawed) = (server.create("{}"), server.create("{}"));
    pause(&server, &thawed);
    server.kill();
    // As a server that was killed between the world and its record would leave them.
    let layout = atoll_launch_proto::Layout::new(&server.data().canonicalize().unwrap());
    let client = atoll_provider_native::LauncherClient::new(&layout);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    server.restart();
    let container = |path: &str| {
        let id = server.ask("GET", path, "").json()["container_id"].as_str().unwrap().to_owned();
        id.parse().unwrap()
    };
    let (first, second) = (container(&frozen), container(&thawed));
    server.kill();
    runtime.block_on(client.ask(atoll_launch_proto::Request::Pause(first))).unwrap();
    runtime.block_on(client.ask(atoll_launch_proto::Request::Unpause(second))).unwrap();
    server.restart();
    assert_eq!((status(&server, &frozen), status(&server, &thawed)), ("paused".into(), "running".into()));
    for path in [&frozen, &thawed] {
        assert_eq!(server.says(path, "echo on"), "on");
        assert_eq!(status(&server, path), "running");
    }
}

#[test]
fn a_killed_launcher_changes_nothing_about_it() {
    let server = Server::start();
    let path = server.create("{}");
    let exec = start(&server, &path, shell(COUNTING));
    pause(&server, &path);
    let asked = format!("atoll-launch.*{}", server.data().display());
    let found = Command::new("pgrep").args(["-f", &asked]).output().unwrap();
    for pid in String::from_utf8(found.stdout).unwrap().lines().skip(1) {
        let _ = Command::new("kill").args(["-KILL", pid]).status();
    }
    eventually("a launcher", || server.ask("POST", "/api/v1/sandboxes", "{}").status == 201);
    assert_eq!(status(&server, &path), "paused");
    assert_eq!(server.says(&path, "echo on"), "on");
    assert_eq!(info(&server, &exec)["status"], "running");
}

#[test]
fn the_command_line_pauses_and_resumes() {
    let server = Server::start();
    let paths = [server.create("{}"), server.create("{}")];
    let ids = paths.each_ref().map(|path| path.rsplit('/').next().unwrap().to_owned());
    let atoll = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(arguments)
            .env("ATOLL_URL", format!("http://{}", server.address))
            .env("ATOLL_API_KEY", AUTH.1.trim_start_matches("Bearer "))
            .output()
            .unwrap();
        (ran.status.code(), String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned())
    };
    let (code, said) = atoll(&["pause", &ids[0], &ids[1]]);
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{said}");
    let (_, listed) = atoll(&["ls", "--status", "paused"]);
    assert_eq!(listed.lines().filter(|line| line.contains("paused")).count(), 2, "{listed}");
    assert_eq!(atoll(&["resume", &ids[0]]).0, Some(0));
    assert_eq!((status(&server, &paths[0]), status(&server, &paths[1])), ("running".into(), "paused".into()));
    assert_eq!(atoll(&["exec", &ids[1], "--", "echo", "on"]), (Some(0), "on\n".into()));
    assert_eq!(atoll(&["stop", &ids[1]]).0, Some(0));
    let (code, said) = atoll(&["pause", &ids[1]]);
    assert!(code != Some(0) && said.contains("stopped"), "{said}");
}

#[test]
fn twenty_at_once() {
    let server = Server::start();
    let paths: Vec<String> = (0..20).map(|_| server.create(r#"{"disk_mb":64}"#)).collect();
    let each = |work: &(dyn Fn(&str) + Sync)| {
        thread::scope(|scope| paths.iter().for_each(|path| _ = scope.spawn(move || work(path))));
    };
    each(&|path| pause(&server, path));
    let counts = server.ask("GET", "/api/v1/sandboxes", "").json()["status_counts"].clone();
    assert_eq!(counts["paused"], 20, "{counts}");
    // Each is asked for twice at once; the one is resumed by the other's question.
    each(&|path| {
        thread::scope(|scope| {
            let twice = [(); 2].map(|()| scope.spawn(|| server.says(path, "echo on")));
            twice.into_iter().for_each(|asked| assert_eq!(asked.join().unwrap(), "on"));
        });
    });
    each(&|path| {
        let told = events(&server, path);
        let woken = told.iter().filter(|(kind, reason)| kind == "ready" && reason == "resumed by exec");
        assert_eq!(woken.count(), 1, "{told:?}");
    });
}
