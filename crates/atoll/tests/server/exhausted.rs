//! A sandbox whose processes, memory, descriptors, disk or output are used up by what runs in it. Whatever the API
//! is asked then, its PID 1 answers and lives on, and what can be done without the missing thing is done.

use super::{
    execs::{AUTH, ended, info, start},
    fixture::{KEY, Server},
    http,
    socket::connect,
};
use crate::engine::fixture::eventually;
use serde_json::json;
use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Duration,
};

/// Forks until no more is to be had, and stays.
const PROCESSES: &str = "import os, time\nwhile True:\n  try:\n    if os.fork() == 0: time.sleep(5000)\n  \
                         except OSError: open('/workspace/full', 'w'); time.sleep(0.05)";
/// Has as many files open as it may, in as many processes as it may.
const DESCRIPTORS: &str = "import os, time\nfiles = []\nfor n in range(8):\n  if os.fork() == 0: break\n\
                           while True:\n  try: files.append(os.open('/dev/null', 0))\n  \
                           except OSError: break\n\
                           os.close(files.pop()); open('/workspace/full', 'w').close()\n\
                           files.append(os.open('/dev/null', 0)); time.sleep(5000)";
/// Is killed for its memory again and again, by processes that would rather have others killed.
const MEMORY: &str = "import os, time\n\
    def spare(pid, score):\n  try: open(f'/proc/{pid}/oom_score_adj', 'w').write(str(score))\n  except OSError: pass\n\
    while True:\n  child = os.fork()\n  if child == 0:\n    spare('self', 0); spare('self', -1000); spare(1, 1000)\n    \
    held = []\n    while True: held.append(bytearray(b'x' * (1 << 20)))\n  \
    os.waitpid(child, 0); open('/workspace/full', 'w')";
/// Fills the volume.
const DISK: &str = "import os, time\nfile = open('/workspace/fill', 'wb', buffering=0)\n\
    size = 1 << 20\nwhile size:\n  try: file.write(b'x' * size)\n  except OSError: size //= 2\n\
    time.sleep(5000)";
/// Prints without end.
const OUTPUT: &str = "import sys\nopen('/workspace/full', 'w')\nwhile True: print('x' * 4096)";

/// What uses a limit up, with which limits, whether a file shows that it is used up, and whether files can be
/// written then.
type Exhausted = (&'static str, &'static str, &'static str, bool);

const LIMITS: [Exhausted; 5] = [
    ("processes", r#"{"processes":24}"#, PROCESSES, true),
    ("descriptors", "{}", DESCRIPTORS, true),
    ("memory", r#"{"memory_mb":64}"#, MEMORY, true),
    ("disk", r#"{"disk_mb":64}"#, DISK, false),
    ("output", "{}", OUTPUT, true),
];

/// The same by another user, or on a disk in memory.
const OTHER_PROFILES: [Exhausted; 5] = [
    ("processes as root", r#"{"profile":"root","processes":24}"#, PROCESSES, true),
    ("descriptors as root", r#"{"profile":"root"}"#, DESCRIPTORS, true),
    ("memory as root", r#"{"profile":"root","memory_mb":64}"#, MEMORY, true),
    ("processes with tools", r#"{"profile":"tools","processes":24}"#, PROCESSES, true),
    ("disk with tools", r#"{"profile":"tools","memory_mb":512}"#, DISK, false),
];

/// An answer of the API's own, which is no death.
fn expect_own(limit: &str, what: &str, answer: &http::Answer) {
    let text = String::from_utf8_lossy(&answer.body);
    assert_ne!(answer.status, 500, "{limit}: {what}: {text}");
    assert!(!text.contains("container_died"), "{limit}: {what}: {text}");
}

/// The status of an answer that has no end, to a request with these headers more; it is read no further.
fn begins(server: &Server, path: &str, more: &str) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n{more}\r\n").unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    (std::str::from_utf8(&head[9..]).unwrap().parse().unwrap(), stream)
}

/// What makes the connection of a forwarded port.
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

/// What is asked of a command and of a kernel that run already.
fn of_what_runs(running: &str, kernel: &str) -> [(&'static str, String, String); 9] {
    let code = |code: &str| json!({ "code": code }).to_string();
    [
        ("POST", format!("{running}/stdin"), "a line\n".into()),
        ("POST", format!("{running}/signal"), json!({ "signal": "CONT" }).to_string()),
        ("GET", format!("{running}/output?follow=false&format=raw"), String::new()),
        ("POST", format!("{kernel}/complete"), code("ec")),
        ("POST", format!("{kernel}/checkpoints"), "{}".into()),
        ("GET", format!("{kernel}/checkpoints"), String::new()),
        ("POST", format!("{kernel}/fork"), String::new()),
        ("POST", format!("{kernel}/execute"), json!({ "code": "1", "timeout": 20 }).to_string()),
        ("POST", format!("{kernel}/restart"), String::new()),
    ]
}

/// Asks for everything. Each answer is one of the API's own, and none is a death. A command and a kernel run already.
fn ask_everything(server: &Server, limit: &str, sandbox: &str, running: &str, kernel: &str) {
    let skill = server.ask(
        "POST",
        "/api/v1/skills",
        &json!({ "name": "kept", "skill_md_content": "# It" }).to_string(),
    );
    let install = json!({ "skill_ids": [skill.json()["id"]] }).to_string();
    let requests = [
        ("GET", "files/there", String::new()),
        ("GET", "files", String::new()),
        ("PUT", "files/new", "bytes".into()),
        ("GET", "fs/stat?path=there", String::new()),
        ("POST", "fs/mkdir", json!({ "path": "folder" }).to_string()),
        ("POST", "fs/move", json!({ "from": "folder", "to": "moved" }).to_string()),
        ("POST", "fs/remove", json!({ "path": "moved" }).to_string()),
        ("POST", "fs/find", json!({ "pattern": "*" }).to_string()),
        ("POST", "fs/grep", json!({ "pattern": "needle" }).to_string()),
        ("GET", "fs/tar?path=there", String::new()),
        ("PUT", "fs/tar?path=unpacked", String::new()),
        ("GET", "fs/history?path=there", String::new()),
        ("POST", "skills", install),
        ("GET", "export", String::new()),
        ("GET", "metrics", String::new()),
        ("GET", "execs", String::new()),
        ("POST", "exec", json!({ "command": "echo $((1+1))" }).to_string()),
        ("POST", "exec", json!({ "command": "echo", "stream": true, "timeout_seconds": 20 }).to_string()),
        ("POST", "run", json!({ "code": "1+1", "language": "python", "timeout": 20 }).to_string()),
        ("GET", "ports/8000/", String::new()),
        ("GET", "kernels", String::new()),
        ("POST", "kernels", json!({ "language": "bash" }).to_string()),
        ("POST", "dependencies", json!({ "packages": { "x": "" }, "timeout": 5 }).to_string()),
        ("PATCH", "", json!({ "idle_timeout_seconds": 600 }).to_string()),
        ("POST", "snapshots", "{}".into()),
        ("GET", "snapshots", String::new()),
        ("POST", "fork", "{}".into()),
        ("POST", "pause", String::new()),
        ("POST", "resume", String::new()),
    ];
    let of_sandbox = requests.map(|(method, path, body)| {
        let whole = if path.is_empty() { sandbox.to_owned() } else { format!("{sandbox}/{path}") };
        (method, whole, body)
    });
    for (method, path, body) in of_what_runs(running, kernel).into_iter().chain(of_sandbox) {
        let answer = server.ask(method, &path, &body);
        expect_own(limit, &format!("{method} {path}"), &answer);
    }
    server.ask("DELETE", &format!("/api/v1/skills/{}", skill.json()["id"].as_str().unwrap()), "");
    for (path, more) in [("fs/watch?path=.", ""), ("forward?port=8000", UPGRADE)] {
        let (status, _open) = begins(server, &format!("{sandbox}/{path}"), more);
        assert_ne!(status, 500, "{limit}: {path}");
    }
    // A terminal, or an ordinary refusal.
    if let Err((status, text)) = connect(server, &format!("{sandbox}/terminal?command=tty"), &[AUTH]) {
        assert!(status != 500 && !text.contains("container_died"), "{limit}: terminal: {status} {text}");
    }
}

/// A sandbox in which this limit is used up answers, and is as it was once there is room again.
fn outlives(server: &Server, (limit, create, fill, writable): Exhausted) {
    let sandbox = server.create(create);
    assert_eq!(server.says(&sandbox, "echo needle > there; cat there"), "needle");
    let snapshot = server.ask("POST", &format!("{sandbox}/snapshots"), "{}").json();
    // A command is known for as long as its PID 1 lives.
    let before = start(server, &sandbox, json!({ "arguments": ["sleep", "5000"], "stdin_open": true }));
    let kernels = format!("{sandbox}/kernels");
    let language = if create.contains("memory_mb") { "bash" } else { "python" };
    let kernel = server.ask("POST", &kernels, &json!({ "language": language }).to_string()).json();
    let kernel =
        format!("{kernels}/{}", kernel["kernel_id"].as_str().unwrap_or_else(|| panic!("{limit}: {kernel}")));
    let filling = start(server, &sandbox, json!({ "arguments": ["/usr/bin/python3", "-c", fill] }));
    if writable {
        eventually(limit, || server.ask("GET", &format!("{sandbox}/fs/stat?path=full"), "").status == 200);
    } else {
        eventually(limit, || server.ask("PUT", &format!("{sandbox}/files/x"), "x").status == 507);
    }
    ask_everything(server, limit, &sandbox, &before, &kernel);
    let read = server.ask("GET", &format!("{sandbox}/files/there"), "");
    assert_eq!((read.status, &read.body[..]), (200, &b"needle\n"[..]), "{limit}");
    assert_eq!(info(server, &before)["status"], "running", "{limit}");
    // It ends what runs, unless it is refused. A disk in memory has no snapshots.
    let back = snapshot["id"].as_str().map(|id| {
        let back = server.ask("POST", &format!("{sandbox}/snapshots/{id}/rollback"), "");
        expect_own(limit, "rollback", &back);
        back
    });
    assert!(back.is_some() || create.contains("tools"), "{limit}: {snapshot}");
    if back.as_ref().is_none_or(|back| back.status != 200) {
        assert_eq!(server.ask("POST", &format!("{filling}/kill"), "").status, 200, "{limit}");
        ended(server, &filling);
    }
    assert_eq!(server.says(&sandbox, "rm -f fill; echo well"), "well", "{limit}: {back:?}");
    assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
}

#[test]
fn pid_1_outlives_every_exhausted_limit() {
    let server = Server::start();
    LIMITS.into_iter().for_each(|limit| outlives(&server, limit));
}

#[test]
fn pid_1_outlives_exhausted_limits_in_other_profiles() {
    let server = Server::start();
    OTHER_PROFILES.into_iter().for_each(|limit| outlives(&server, limit));
}

#[test]
fn pid_1_has_descriptors_left_however_many_its_callers_hold() {
    let server = Server::start();
    let sandbox = server.create(r#"{"processes":400}"#);
    assert_eq!(server.says(&sandbox, "echo needle > there"), "");
    let mut held = Vec::new();
    for number in 0..200 {
        let (status, watching) = begins(&server, &format!("{sandbox}/fs/watch?path=."), "");
        assert!(status == 200 || (400..500).contains(&status) || status == 503, "watch {number}: {status}");
        held.push(watching);
        let body = json!({ "arguments": ["cat"], "background": true, "stdin_open": true });
        let answer = server.ask("POST", &format!("{sandbox}/exec"), &body.to_string());
        expect_own("descriptors of PID 1", &format!("exec {number}"), &answer);
    }
    let read = server.ask("GET", &format!("{sandbox}/files/there"), "");
    assert_eq!((read.status, &read.body[..]), (200, &b"needle\n"[..]));
    drop(held);
    for exec in server.ask("GET", &format!("{sandbox}/execs"), "").json().as_array().unwrap() {
        let id = exec["exec_id"].as_str().unwrap();
        server.ask("POST", &format!("{sandbox}/execs/{id}/kill"), "");
    }
    assert_eq!(server.says(&sandbox, "echo well"), "well");
}

#[test]
fn at_the_limit_of_processes_a_program_still_runs_and_a_refusal_says_what_helps() {
    let server = Server::start();
    let sandbox = server.create(r#"{"processes":24}"#);
    let filling = start(&server, &sandbox, json!({ "arguments": ["/usr/bin/python3", "-c", PROCESSES] }));
    eventually("a full table", || {
        server.ask("GET", &format!("{sandbox}/fs/stat?path=full"), "").status == 200
    });
    // What user code cannot have is kept for what is asked for from outside.
    assert_eq!(server.says(&sandbox, "ulimit -u; echo $((20+3))"), "24\n23");
    let fork = server.exec(&sandbox, "exec /usr/bin/python3 -c 'import os; os.fork()'");
    assert!(fork["stderr"].as_str().unwrap().contains("BlockingIOError"), "{fork}");
    let mut refused = None;
    eventually("a refusal", || {
        let body = json!({ "arguments": ["sleep", "5000"], "background": true });
        let answer = server.ask("POST", &format!("{sandbox}/exec"), &body.to_string());
        refused = (answer.status != 202).then_some(answer);
        refused.is_some()
    });
    let refused = refused.unwrap();
    let error = &refused.json()["error"];
    assert_eq!((refused.status, error["code"].as_str()), (409, Some("conflict")), "{refused:?}");
    let message = error["message"].as_str().unwrap();
    for word in ["processes", "kill", "stop and resume"] {
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(refused.header("retry-after"), None, "waiting does not help");
    assert_eq!(server.ask("POST", &format!("{filling}/kill"), "").status, 200);
    assert_eq!(server.says(&sandbox, "/bin/echo well | cat"), "well");
}

/// Asks the kernel to kill something else, and eats.
const SPARE_ME: &str = "import os, sys\ntold = []\n\
    for pid, score in [('self', 0), ('self', -1000), (1, 1000), (os.getppid(), 1000)]:\n  \
    try: open(f'/proc/{pid}/oom_score_adj', 'w').write(str(score)); told.append('written')\n  \
    except OSError as e: told.append(type(e).__name__)\n\
    print(told, open('/proc/self/oom_score_adj').read().strip(), open('/proc/1/oom_score_adj').read().strip(), flush=True)\n\
    children = 0\n\
    if len(sys.argv) > 1:\n  while children < 40 and os.fork(): children += 1\n\
    held = []\nwhile True: held.append(bytearray(b'x' * (64 << 10)))";

#[test]
fn user_code_cannot_have_pid_1_killed_for_its_memory() {
    let server = Server::start();
    let sandbox = server.create(r#"{"memory_mb":96}"#);
    let before = start(&server, &sandbox, json!({ "arguments": ["sleep", "5000"] }));
    // One process that eats, and many of which each is smaller than PID 1 for long.
    for many in [&[][..], &["many"][..]] {
        let arguments: Vec<&str> = ["/usr/bin/python3", "-c", SPARE_ME].iter().chain(many).copied().collect();
        let body = json!({ "arguments": arguments, "timeout_seconds": 120 });
        let answer = server.ask("POST", &format!("{sandbox}/exec"), &body.to_string()).json();
        let said = answer["stdout"].as_str().unwrap_or_default();
        assert!(!said.contains("written") && said.contains("] 500 0"), "{answer}");
        assert_eq!((&answer["signal"], &answer["oom_killed"]), (&json!(9), &json!(true)), "{answer}");
    }
    // Shared memory would outlive the process that is killed for it.
    let body = json!({ "arguments": ["/usr/bin/python3", "-c", SHARED_MEMORY], "timeout_seconds": 120 });
    let answer = server.ask("POST", &format!("{sandbox}/exec"), &body.to_string()).json();
    assert_eq!(answer["oom_killed"], json!(true), "{answer}");
    assert_eq!(server.ask("GET", &format!("{sandbox}/files"), "").status, 200);
    assert_eq!(server.says(&sandbox, "echo well"), "well");
    assert_eq!(info(&server, &before)["status"], "running");
}

/// Eats memory of System V.
const SHARED_MEMORY: &str = "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n\
    at = libc.shmat(libc.shmget(0, ctypes.c_size_t(1 << 30), 0o600), None, 0)\n\
    for offset in range(0, 1 << 30, 4096): ctypes.memset(at + offset, 1, 1)";

#[test]
fn files_that_their_owner_made_read_only_need_force() {
    let server = Server::start();
    let sandbox = server.create("{}");
    server.says(&sandbox, "echo mine > kept; chmod 444 kept");
    let file = format!("{sandbox}/files/kept");
    let refused = server.ask("PUT", &file, "theirs");
    let error = &refused.json()["error"];
    assert_eq!((refused.status, error["code"].as_str()), (403, Some("permission_denied")), "{refused:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("kept: ") && message.contains("overwrite=force"), "{message}");
    assert_eq!(error["details"]["field"], "overwrite");
    assert_eq!(server.says(&sandbox, "cat kept"), "mine");
    assert_eq!(server.ask("PUT", &format!("{file}?overwrite=maybe"), "theirs").status, 422);
    assert_eq!(server.ask("PUT", &format!("{file}?overwrite=force"), "theirs").status, 204);
    assert_eq!(server.says(&sandbox, "cat kept; stat -c ' %a' kept"), "theirs 444");
    // The command line has a flag for it, and its refusal names that.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kept"), "copied").unwrap();
    let copy = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
        let id = sandbox.rsplit('/').next().unwrap();
        command.arg("cp").args(more).arg("kept").arg(format!("{id}:kept")).current_dir(folder.path());
        command.env("ATOLL_URL", format!("http://{}", server.address)).env("ATOLL_API_KEY", KEY);
        command.output().unwrap()
    };
    let refused = copy(&[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("--force") && !said.contains("overwrite"), "{said}");
    assert!(copy(&["--force"]).status.success());
    assert_eq!(server.says(&sandbox, "cat kept"), "copied");
}

#[test]
fn errors_of_files_name_their_path_and_listings_have_it() {
    let server = Server::start();
    let sandbox = server.create("{}");
    server.says(&sandbox, "mkdir -p a/b; echo x > a/f");
    for (method, path, body) in [
        ("GET", "files/not/here", ""),
        ("GET", "files?path=not/here", ""),
        ("GET", "fs/stat?path=not/here", ""),
        ("PUT", "files/a/f/not/here", "x"),
        ("GET", "fs/tar?path=not/here", ""),
        ("GET", "fs/watch?path=not/here", ""),
        ("POST", "fs/find", r#"{"path":"not/here","pattern":"*"}"#),
        ("POST", "fs/grep", r#"{"path":"not/here","pattern":"x"}"#),
        ("POST", "fs/mkdir", r#"{"path":"not/here"}"#),
        ("POST", "fs/remove", r#"{"path":"not/here"}"#),
        ("POST", "fs/move", r#"{"from":"not/here","to":"x"}"#),
        ("POST", "fs/move", r#"{"from":"a/f","to":"not/here"}"#),
    ] {
        let answer = server.ask(method, &format!("{sandbox}/{path}"), body);
        let text = String::from_utf8_lossy(&answer.body);
        assert!((400..500).contains(&answer.status), "{method} {path} {body}: {text}");
        assert!(text.contains("not/here: "), "{method} {path} {body}: {text}");
    }
    let paths = |query: &str| -> Vec<String> {
        let all = server.ask("GET", &format!("{sandbox}/files{query}"), "").json();
        all.as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths("?path=a"), ["/workspace/a/b", "/workspace/a/f"]);
    assert_eq!(paths("?path=/workspace//a/."), ["/workspace/a/b", "/workspace/a/f"]);
    assert!(paths("?path=/").contains(&"/workspace".to_owned()));
    let stat = server.ask("GET", &format!("{sandbox}/fs/stat?path=a/f"), "").json();
    assert_eq!(stat["path"], "/workspace/a/f");
}

#[test]
fn commands_may_be_as_large_as_the_kernel_takes() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let exec = |body: serde_json::Value| server.ask("POST", &format!("{sandbox}/exec"), &body.to_string());
    // One argument, and many.
    let longest = "x".repeat((128 << 10) - 1);
    let script = "import sys; print(len(sys.argv[1]), len(sys.argv))";
    let answer = exec(json!({ "arguments": ["/usr/bin/python3", "-c", script, longest] }));
    assert_eq!(answer.json()["stdout"], "131071 2\n", "{answer:?}");
    let mut many = vec!["/usr/bin/python3", "-c", script];
    many.extend(vec![longest.as_str(); 14]);
    let answer = exec(json!({ "arguments": many }));
    assert_eq!(answer.json()["stdout"], "131071 15\n");
    // A line for the shell that the kernel would not take as an argument.
    let text = "é".repeat(200_000);
    let line = format!("x='{text}'; echo ${{#x}} $# \"[$1]\" $0; exit 7");
    let answer = exec(json!({ "command": line })).json();
    assert_eq!((&answer["stdout"], &answer["exit_code"]), (&json!("200000 0 [] /bin/bash\n"), &json!(7)));
    // Above that the field and the limit are said.
    let over = format!("{longest}x");
    let arguments = exec(json!({ "arguments": ["true", over] }));
    let command = exec(json!({ "command": "x".repeat((2 << 20) + 1) }));
    for (answer, field, limit) in [(arguments, "arguments", "131071"), (command, "command", "2097152")] {
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["details"]["field"]), (413, &json!(field)), "{answer:?}");
        assert!(error["message"].as_str().unwrap().contains(limit), "{error}");
    }
}
