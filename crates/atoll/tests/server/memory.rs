//! What a client that does not read, or that only connects, can make the server hold.

use super::fixture::{KEY, Server};
use crate::engine::{fixture::eventually, socket_memory::UNACCEPTED};
use rustix::{
    net::{AddressFamily, SocketType, bind, connect, socket},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

/// Resident memory of the server, in MiB.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// A request whose answer is not read.
fn unread(server: &Server, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream
}

const CONTROLS: &str = "head -c 8388608 /dev/zero | tr '\\0' '\\1' | tee /dev/stderr";

#[test]
fn unread_answers_hold_no_more_than_an_owner_may() {
    let server =
        Server::start_with(&["--set", "http.owner_answers_mb=32", "--set", "http.write_timeout_seconds=25"]);
    let path = server.create("{}");
    // Its commands do not wait for the processor share of the loud ones.
    let other = server.create("{}");
    let before = resident(&server);
    let body = serde_json::json!({ "command": CONTROLS, "timeout_seconds": 300 }).to_string();
    let waiting: Vec<_> = (0..6).map(|_| unread(&server, "POST", &format!("{path}/exec"), &body)).collect();
    let (mut most, mut size) = (0, 0);
    eventually("an answer to be refused for want of room", || {
        most = most.max(resident(&server));
        // More than a piece of output, and more each time: what the answer before held may be free again.
        size += 300_000;
        let body = format!(r#"{{"command":"head -c {size} /dev/zero"}}"#);
        let answer = server.ask("POST", &format!("{other}/exec"), &body);
        answer.status == 429 && answer.header("retry-after").is_some() || answer.json()["truncated"] == true
    });
    assert!(most < before + 200, "{before} MiB before, {most} MiB with six unread answers");
    // Who does not read is given up on, and the room is free again.
    eventually("room again", || {
        let answer = server.ask("POST", &format!("{path}/exec"), r#"{"command":"head -c 100000 /dev/zero"}"#);
        answer.status == 200 && answer.json()["truncated"] == false
    });
    drop(waiting);
    // An answer that is read is whole, and right.
    let all = "\u{1}".repeat(8 << 20);
    eventually("a whole answer", || {
        let read = server.exec(&path, CONTROLS);
        let whole = read["truncated"] == false;
        assert!(!whole || read["stdout"] == all && read["stderr"] == all);
        whole
    });
}

/// Shows twelve pictures of a megabyte each.
const PICTURES: &str = "import os\nclass P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + os.urandom(700_000)\n\
                        for _ in range(12): display(P())";

#[test]
fn streamed_cells_that_are_not_read_hold_no_more_than_an_owner_may() {
    let server = Server::start_with(&["--set", "http.owner_answers_mb=16"]);
    let path = server.create("{}");
    let body = serde_json::json!({ "code": PICTURES, "stream": true, "timeout": 300 }).to_string();
    let run = format!("{path}/run");
    let waiting: Vec<_> = (0..4).map(|_| unread(&server, "POST", &run, &body)).collect();
    // Less than what a picture takes is left, and this takes more.
    let large = "x".repeat(3 << 20);
    let full = || server.ask("POST", "/api/v1/sandboxes", &large).status == 429;
    eventually("the room to be taken", full);
    drop(waiting);
    eventually("room again", || !full());
    // A cell that is read is whole.
    let events = super::http::request(
        server.address,
        "POST",
        &run,
        &[("Authorization", &format!("Bearer {KEY}"))],
        body.as_bytes(),
    )
    .unwrap();
    let shown = String::from_utf8(events.body).unwrap().matches("image/png").count();
    assert_eq!(shown, 12 + 12, "each as an event, and all at the end");
}

/// The status of an answer of which nothing more is read.
fn status_of(mut stream: &TcpStream) -> u16 {
    let mut line = [0; 12];
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream.read_exact(&mut line).unwrap();
    std::str::from_utf8(&line[9..]).unwrap().parse().unwrap()
}

#[test]
fn look_ups_that_are_not_read_hold_no_more_than_an_owner_may() {
    // Each answer is more than the kernel takes for a client that does not read, and two are more than may be held.
    let server = Server::start_with(&["--set", "http.owner_answers_mb=24"]);
    for number in 0..8 {
        let value = serde_json::json!({ "text": "x".repeat(2_500_000) });
        let item = serde_json::json!({ "namespace": ["n"], "key": number.to_string(), "value": value });
        assert_eq!(server.ask("PUT", "/store/items", &item.to_string()).status, 204);
    }
    let before = resident(&server);
    let search = || unread(&server, "POST", "/store/items/search", "{}");
    let waiting: Vec<_> = (0..30).map(|_| search()).collect();
    let (statuses, most) = thread::scope(|scope| {
        let reader = scope.spawn(|| waiting.iter().map(status_of).collect::<Vec<_>>());
        let mut most = 0;
        while !reader.is_finished() {
            most = most.max(resident(&server));
            thread::sleep(Duration::from_millis(10));
        }
        (reader.join().unwrap(), most)
    });
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    // Two are built at a time, each in some copies of 20 MB; all thirty would hold 600 MB and more.
    assert!(most < before + 450, "{before} MiB before, {most} MiB with unread answers");
    drop(waiting);
    eventually("room again", || status_of(&search()) == 200);
}

#[test]
fn an_owner_has_no_more_streams_open_than_it_may() {
    let server = Server::start_with(&["--set", "http.owner_streams=40"]);
    let path = server.create("{}");
    let print = r#"{"command":"head -c 33554432 /dev/zero","background":true}"#;
    let exec = server.ask("POST", &format!("{path}/exec"), print).json()["exec_id"].clone();
    let output = format!("{path}/execs/{}/output", exec.as_str().unwrap());
    let before = resident(&server);
    let open = || unread(&server, "GET", &format!("{output}?follow=true"), "");
    let waiting: Vec<_> = (0..200).map(|_| open()).collect();
    let statuses: Vec<_> = waiting.iter().map(status_of).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 40, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    let now = resident(&server);
    assert!(now < before + 150, "{before} MiB before, {now} MiB with unread outputs");
    // What would be one more does not begin.
    let begin = r#"{"command":"touch begun","stream":true}"#;
    let refused = server.ask("POST", &format!("{path}/exec"), begin);
    assert_eq!(
        (refused.status, refused.json()["error"]["details"]["limit"].as_str()),
        (429, Some("http.owner_streams"))
    );
    assert_eq!(server.ask("GET", &format!("{path}/fs/stat?path=begun"), "").status, 404);
    drop(waiting);
    eventually("room again", || status_of(&open()) == 200);
}

/// The kernel manager's output is bounded; where the server is slow, the answer to a request may be dropped with it.
#[test]
fn an_answer_that_is_lost_in_a_flood_is_asked_for_again() {
    let server = Server::start();
    let path = server.create("{}");
    server.ask("POST", &format!("{path}/run"), r#"{"code":"1"}"#);
    let body = serde_json::json!({ "code": PICTURES, "stream": true, "timeout": 300 }).to_string();
    let flood: Vec<_> = (0..3).map(|_| unread(&server, "POST", &format!("{path}/run"), &body)).collect();
    let kernel = unread(&server, "POST", &format!("{path}/kernels"), r#"{"language":"python"}"#);
    thread::sleep(Duration::from_millis(100));
    let signal = |name: &str| {
        assert!(
            Command::new("kill").args([name, &server.child.id().to_string()]).status().unwrap().success()
        );
    };
    signal("-STOP");
    // Long enough for the flood to be more than what is kept.
    thread::sleep(Duration::from_secs(8));
    // What is left of the flood ends with its callers; a slow machine need not get through all of it.
    drop(flood);
    signal("-CONT");
    let mut answer = String::new();
    BufReader::new(kernel).read_line(&mut answer).unwrap();
    assert!(answer.contains("201"), "{answer}");
    let kernels = server.ask("GET", &format!("{path}/kernels"), "").json();
    assert_eq!(kernels.as_array().map(Vec::len), Some(2), "{kernels}");
}

#[test]
fn a_large_folder_is_listed_page_by_page() {
    let server = Server::start();
    let path = server.create("{}");
    server.exec(&path, "mkdir many && cd many && seq -f %06g 1 12000 | xargs touch");
    let page = |query: &str| {
        let answer = server.ask("GET", &format!("{path}/files?path=many{query}"), "");
        assert_eq!(answer.status, 200);
        let names: Vec<String> = answer
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f["name"].as_str().unwrap().to_owned())
            .collect();
        (names, answer.header("atoll-truncated").is_some())
    };
    let (names, more) = page("");
    assert_eq!(
        (names.len(), names[0].as_str(), names[9999].as_str(), more),
        (10_000, "000001", "010000", true)
    );
    let (names, more) = page("&after=010000");
    assert_eq!((names.len(), names[1999].as_str(), more), (2000, "012000", false));
    assert_eq!(page("&limit=2&after=000003"), (vec!["000004".into(), "000005".into()], true));
    for wrong in ["limit=0", "limit=10001", "limit=x"] {
        assert_eq!(server.ask("GET", &format!("{path}/files?{wrong}"), "").status, 422, "{wrong}");
    }
}

#[test]
fn idle_connections_without_a_key_silence_nothing() {
    let server = Server::start_with(&[
        "--set",
        "http.connections_per_peer=200",
        "--set",
        "http.head_timeout_seconds=2",
    ]);
    let mut idle: Vec<_> = (0..400).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for _ in 0..5 {
        let health = super::http::request(server.address, "GET", "/health", &[], b"").unwrap();
        assert_eq!(health.status, 200);
    }
    // Those that ask for nothing are closed, and then there is room for all.
    idle[0].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(idle[0].read(&mut [0]).unwrap_or(0), 0);
    eventually("room again", || {
        super::http::request(server.address, "GET", "/openapi.json", &[], b"").is_ok_and(|a| a.status == 200)
    });
}

/// More than a server has room for, all of one peer.
const FLOOD: usize = 8200;

/// Lets this process and what it starts have as many files open as is allowed. How many connections a flood then has, and
/// how many of them a peer may have.
fn raise_open_files() -> (usize, usize) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let allowed = maximum.unwrap_or(4 * FLOOD as u64);
    setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum }).unwrap();
    // The rest is for what else this process has open.
    let flood = usize::try_from(allowed).unwrap().saturating_sub(200).min(FLOOD);
    (flood, (flood / 2).min(4096))
}

/// A connection from this address of the machine.
fn connect_from(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &to).unwrap();
    socket.into()
}

#[test]
fn a_flood_of_idle_connections_keeps_no_other_peer_out() {
    let (flood, per_peer) = raise_open_files();
    // None of them is closed for its silence while this looks.
    let per_peer = format!("http.connections_per_peer={per_peer}");
    let server = Server::start_with(&["--set", "http.head_timeout_seconds=600", "--set", &per_peer]);
    let idle: Vec<_> = (0..flood)
        .map(|number| {
            // A queue of connections that is full costs a second, which the kernel waits before it tries again.
            if number % 64 == 0 {
                thread::sleep(Duration::from_millis(5));
            }
            TcpStream::connect(server.address).unwrap()
        })
        .collect();
    let health = super::http::request(server.address, "GET", "/health", &[], b"").unwrap();
    assert_eq!(health.status, 200);
    let refused = server.ask("GET", "/api/v1/sandboxes", "");
    assert_eq!(refused.status, 429, "the peer that floods has no more room: {refused:?}");
    for path in ["/health", "/api/v1/sandboxes"] {
        let mut other = connect_from(Ipv4Addr::new(127, 0, 0, 2), server.address);
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\r\n"
        );
        other.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
    drop(idle);
}

#[test]
fn commands_that_are_ended_for_their_sockets_are_told_of() {
    let server = Server::start_in("warn", &[], &[("ATOLL_METRICS_INTERVAL_SECONDS", "1")]);
    let path = server.create(r#"{"memory_mb":64}"#);
    let body =
        serde_json::json!({ "command": format!("exec python3 -c \"{UNACCEPTED}\""), "timeout_seconds": 200 });
    let ended = server.ask("POST", &format!("{path}/exec"), &body.to_string()).json();
    assert_eq!(ended["exit_code"], 137, "{ended}");
    eventually("its figure", || {
        server.ask("GET", &format!("{path}/metrics"), "").json()["now"]["socket_kills"].as_u64() >= Some(1)
    });
    let told = || server.ask("GET", "/api/v1/events?kind=sockets_ended", "").json()["events"].clone();
    eventually("its event", || told().as_array().is_some_and(|events| !events.is_empty()));
    let event = told()[0].clone();
    assert!(path.ends_with(event["sandbox_id"].as_str().unwrap()), "{event}");
    assert!(event["reason"].as_str().unwrap().contains("sockets held more memory"), "{event}");
    assert!(event["data"]["times"].as_u64() >= Some(1), "{event}");
}

#[test]
fn figures_need_a_key_unless_this_machine_asks_by_its_own_name() {
    let server = Server::start();
    let ask = |host: &str, extra: &str| {
        let text = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{extra}Connection: close\r\n\r\n");
        super::http::send(server.address, text.as_bytes()).unwrap().status
    };
    assert_eq!((ask("localhost", ""), ask("127.0.0.1:1", "")), (200, 200));
    assert_eq!((ask("attacker.example", ""), ask("localhost", "X-Forwarded-For: 192.0.2.1\r\n")), (401, 401));
    assert_eq!(ask("attacker.example", &format!("Authorization: Bearer {KEY}\r\n")), 200);
}

#[test]
fn kept_replies_are_sealed_and_hold_no_secret() {
    let server = Server::start();
    let path = server.create(r#"{"secrets":{"TOKEN":"hunter2-in-the-environment"}}"#);
    let ask = |operation: &str, body: &str| {
        let headers = [("Authorization", "Bearer bootstrap-key-of-a-test"), ("Idempotency-Key", operation)];
        let path = format!("{path}/{operation}");
        let answer = super::http::request(server.address, "POST", &path, &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        String::from_utf8(answer.body).unwrap()
    };
    let command = r#"{"command":"echo $TOKEN; echo printed-in-the-clear"}"#;
    // In its output, and in what the shell says of a command that is not there.
    let cell =
        r#"{"language":"bash","code":"echo $TOKEN; echo printed-in-the-clear; eval \"no-such-$TOKEN\""}"#;
    for (operation, body) in [("exec", command), ("run", cell)] {
        let (first, kept) = (ask(operation, body), ask(operation, body));
        assert!(first.contains("hunter2"), "{first}");
        assert!(kept.contains("printed-in-the-clear") && !kept.contains("hunter2"), "{kept}");
    }
    for file in fs::read_dir(server.data().join("server")).unwrap().flatten() {
        let content = fs::read(file.path()).unwrap();
        // A field of the reply and of nothing else.
        let clear = b"files_changed_truncated";
        assert!(!content.windows(clear.len()).any(|w| w == clear), "{:?}", file.path());
    }
}
