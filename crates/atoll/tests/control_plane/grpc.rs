//! Sessions over gRPC and gRPC-Web: every call and its answer, owners, streams, pages and hostile input. The provider for
//! tests has no network, so keys are of a tier that has none either.

use super::{KEY, Server, eventually, http};
use atoll_front_grpc::v1::{
    CreateSessionRequest, DestroySessionRequest, ExecRequest, ExecResponse, ExecStreamRequest,
    ExecStreamResponse, GetSessionRequest, ListSessionsRequest, PipInstallRequest, ReadFileRequest,
    ReadFileResponse, SessionInfo, WriteFileRequest, WriteFileResponse,
    sandbox_service_client::SandboxServiceClient,
};
use std::{
    io::{Read, Write},
    net::TcpStream,
};
use tokio::runtime::Runtime;
use tonic::{
    Code, Request, Status,
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

/// Sends a key with every call.
#[derive(Clone)]
struct WithKey(String);

impl Interceptor for WithKey {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.0).parse().unwrap());
        Ok(request)
    }
}

/// A client whose calls wait for their answers.
struct Client {
    runtime: Runtime,
    inner: SandboxServiceClient<InterceptedService<Channel, WithKey>>,
}

/// A call that is answered at once.
macro_rules! call {
    ($client:expr, $method:ident, $request:expr) => {{
        let client = &mut $client;
        client.runtime.block_on(client.inner.$method($request)).map(tonic::Response::into_inner)
    }};
}

fn client(server: &Server, key: &str) -> Client {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let address = format!("http://{}", server.grpc);
    let channel = runtime.block_on(Channel::from_shared(address).unwrap().connect()).unwrap();
    let inner = SandboxServiceClient::with_interceptor(channel, WithKey(key.to_owned()));
    Client { runtime, inner: inner.max_decoding_message_size(64 << 20) }
}

/// A key of an owner whose sandboxes have no network.
fn key(server: &Server, owner: &str) -> String {
    server.key(&format!(r#"{{"name":"k","owner":"{owner}","tier":"restricted"}}"#))
}

fn session(id: &str) -> CreateSessionRequest {
    CreateSessionRequest { session_id: Some(id.to_owned()), ..CreateSessionRequest::default() }
}

fn exec(id: &str, command: &str) -> ExecRequest {
    ExecRequest { session_id: id.into(), command: command.into(), timeout: 0, workdir: String::new() }
}

fn write(id: &str, path: &str, content: &str, mode: &str) -> WriteFileRequest {
    let (session_id, path, content, mode) = (id.into(), path.into(), content.into(), mode.into());
    WriteFileRequest { session_id, path, content, mode }
}

fn read(id: &str, path: &str) -> ReadFileRequest {
    ReadFileRequest { session_id: id.into(), path: path.into() }
}

fn ran(exit_code: i32, stdout: &str, stderr: &str) -> ExecResponse {
    ExecResponse { exit_code, stdout: stdout.into(), stderr: stderr.into(), timed_out: false }
}

fn event(kind: &str, data: &str, exit_code: Option<i32>) -> ExecStreamResponse {
    ExecStreamResponse { r#type: kind.into(), data: data.into(), exit_code }
}

/// All events of a stream, output of one kind that comes in pieces as one.
fn events(client: &mut Client, id: &str, command: &str) -> Vec<ExecStreamResponse> {
    let request =
        ExecStreamRequest { session_id: id.into(), command: command.into(), workdir: String::new() };
    let Client { runtime, inner } = client;
    runtime.block_on(async {
        let mut stream = inner.exec_stream(request).await.unwrap().into_inner();
        let mut all: Vec<ExecStreamResponse> = Vec::new();
        while let Some(event) = stream.message().await.unwrap() {
            match all.last_mut().filter(|last| last.r#type == event.r#type) {
                Some(last) => last.data.push_str(&event.data),
                None => all.push(event),
            }
        }
        all
    })
}

#[test]
fn every_call_answers_as_the_protocol_says() {
    let server = Server::start();
    let mut client = client(&server, &key(&server, "ann"));
    let made = call!(client, create_session, session("one")).unwrap().session.unwrap();
    let SessionInfo { session_id, container_id, created_at, last_activity, status, tenant_id, allowed_hosts } =
        made.clone();
    assert_eq!((session_id.as_str(), status.as_str(), tenant_id), ("one", "running", None));
    assert!(!container_id.is_empty() && created_at > 1e9 && last_activity >= created_at, "{made:?}");
    assert_eq!(allowed_hosts, [""; 0], "the key's tier has no network");
    let again = call!(client, create_session, session("one")).unwrap().session.unwrap();
    assert_eq!(again.container_id, container_id, "it is the same session");
    let unnamed = call!(client, create_session, CreateSessionRequest::default()).unwrap().session.unwrap();
    assert_eq!(unnamed.session_id.len(), 36, "{unnamed:?}");
    let got = GetSessionRequest { session_id: "one".into() };
    assert_eq!(call!(client, get_session, got).unwrap().session.unwrap().container_id, container_id);
    let unknown = call!(client, get_session, GetSessionRequest { session_id: "two".into() }).unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (Code::NotFound, "Session not found"));
    let listed = call!(client, list_sessions, ListSessionsRequest {}).unwrap().sessions;
    let ids: Vec<&str> = listed.iter().map(|session| session.session_id.as_str()).collect();
    assert_eq!(ids, [unnamed.session_id.as_str(), "one"]);

    let answer = call!(client, exec, exec("one", "pwd; echo no >&2; exit 3"));
    assert_eq!(answer.unwrap(), ran(3, "/workspace\n", "no\n"));
    let there = ExecRequest { workdir: "/tmp".into(), ..exec("one", "pwd") };
    assert_eq!(call!(client, exec, there).unwrap(), ran(0, "/tmp\n", ""));
    let slow = ExecRequest { timeout: 1, ..exec("one", "echo begun; sleep 60") };
    let late = ExecResponse { timed_out: true, ..ran(-1, "begun\n", "Command timed out") };
    assert_eq!(call!(client, exec, slow).unwrap(), late);
    assert_eq!(call!(client, exec, exec("two", "true")).unwrap(), ran(-1, "", "Session not found"));
    let nowhere = ExecRequest { workdir: "/no/such".into(), ..exec("one", "true") };
    let nowhere = call!(client, exec, nowhere).unwrap();
    assert!(nowhere.exit_code == -1 && nowhere.stderr.contains("/no/such"), "{nowhere:?}");
    let bytes = call!(client, exec, exec("one", r"printf 'a\377b'")).unwrap();
    assert_eq!(bytes.stdout, "a\u{fffd}b");

    let all = events(&mut client, "one", "echo out; sleep 0.1; echo err >&2; exit 4");
    let wanted = [event("stdout", "out\n", None), event("stderr", "err\n", None), event("exit", "", Some(4))];
    assert_eq!(all, wanted);
    assert_eq!(events(&mut client, "two", "true"), [event("error", "Session not found", None)]);

    let fine = WriteFileResponse { success: true, error: None };
    assert_eq!(call!(client, write_file, write("one", "deep/er/f", "é1\n", "w")).unwrap(), fine);
    assert_eq!(call!(client, write_file, write("one", "deep/er/f", "2\n", "a")).unwrap(), fine);
    let answer = call!(client, read_file, read("one", "/workspace/deep/er/f")).unwrap();
    let content = Some("é1\n2\n".to_owned());
    assert_eq!(answer, ReadFileResponse { success: true, content, error: None });
    let odd = call!(client, write_file, write("one", "f", "x", "r")).unwrap();
    assert_eq!(odd.error.as_deref(), Some("mode must be \"w\" or \"a\""));
    for (id, path) in [("one", "nowhere"), ("two", "f"), ("one", "deep")] {
        let answer = call!(client, read_file, read(id, path)).unwrap();
        assert!(!answer.success && answer.content.is_none() && answer.error.is_some(), "{answer:?}");
    }
    let missing = call!(client, write_file, write("two", "f", "x", "w")).unwrap();
    assert_eq!(missing.error.as_deref(), Some("Session not found"));
    let packages = |id: &str, names: &[&str]| PipInstallRequest {
        session_id: id.into(),
        packages: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(call!(client, pip_install, packages("two", &["six"])).unwrap().stderr, "Session not found");
    let refused = call!(client, pip_install, packages("one", &["--index-url=http://x"])).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);

    let end = |id: &str| DestroySessionRequest { session_id: id.into() };
    assert!(call!(client, destroy_session, end("one")).unwrap().success);
    assert!(!call!(client, destroy_session, end("one")).unwrap().success);
    assert_eq!(call!(client, exec, exec("one", "true")).unwrap().stderr, "Session not found");
    assert_eq!(call!(client, list_sessions, ListSessionsRequest {}).unwrap().sessions.len(), 1);
}

/// `["localhost"]` is how the protocol says that a session reaches nothing, so a key that may reach nothing may say it.
#[test]
fn a_session_that_names_only_itself_has_no_network_whatever_its_tier() {
    let server = Server::start();
    for tier in ["sandbox", "restricted", "standard"] {
        let key = server.key(&format!(r#"{{"name":"k","owner":"{tier}","tier":"{tier}"}}"#));
        let mut client = client(&server, &key);
        let hosts = CreateSessionRequest { allowed_hosts: vec!["localhost".into()], ..session("closed") };
        let made = call!(client, create_session, hosts).unwrap().session.unwrap();
        assert_eq!(made.allowed_hosts, ["localhost"], "{tier}");
        let record = server.ask_as(&key, "GET", super::ROOT, "").json()["items"][0].clone();
        assert_eq!(record["network_enabled"], false, "{record}");
    }
}

#[test]
fn all_that_is_said_of_a_package_reaches_pip() {
    let server = Server::start();
    let mut client = client(&server, &key(&server, "ann"));
    call!(client, create_session, session("one")).unwrap();
    // `python3 -m pip` finds this one first.
    let pip = "import sys\nprint(*sys.argv[sys.argv.index('--') + 1:])";
    assert!(call!(client, write_file, write("one", "pip.py", pip, "w")).unwrap().success);
    let names = ["x>=2", "y===1.0-odd", "x < 3", "z == 1", "x"].map(str::to_owned);
    let request = PipInstallRequest { session_id: "one".into(), packages: names.into() };
    assert_eq!(call!(client, pip_install, request).unwrap().stdout, "x>=2,<3 y===1.0-odd z==1\n");
}

#[test]
fn owners_and_keys_are_told_apart() {
    let server = Server::start();
    let (ann, bob) = (key(&server, "ann"), key(&server, "bob"));
    let (mut ann, mut bob) = (client(&server, &ann), client(&server, &bob));
    let mut admin = client(&server, KEY);
    let hers = call!(ann, create_session, session("same")).unwrap().session.unwrap();
    assert!(call!(ann, write_file, write("same", "f", "hers", "w")).unwrap().success);
    for other in [&mut bob, &mut admin] {
        assert_eq!(call!(*other, list_sessions, ListSessionsRequest {}).unwrap().sessions, []);
        assert_eq!(call!(*other, exec, exec("same", "true")).unwrap().stderr, "Session not found");
        assert!(!call!(*other, read_file, read("same", "f")).unwrap().success);
        let end = DestroySessionRequest { session_id: "same".into() };
        assert!(!call!(*other, destroy_session, end).unwrap().success);
    }
    let his = call!(bob, create_session, session("same")).unwrap().session.unwrap();
    assert_ne!(his.container_id, hers.container_id);
    assert!(!call!(bob, read_file, read("same", "f")).unwrap().success);
    // A sandbox of her own is a session under its id, and no other owner's is.
    let id = server.ask("GET", "/api/v1/sandboxes?session_key=grpc:same&owner=ann", "").json();
    let id = id["items"][0]["id"].as_str().unwrap().to_owned();
    assert!(call!(ann, read_file, read(&id, "f")).unwrap().success);
    for other in [&mut bob, &mut admin] {
        assert!(!call!(*other, read_file, read(&id, "f")).unwrap().success);
    }
    let mut none = client(&server, "no-such-key");
    let refused = call!(none, list_sessions, ListSessionsRequest {}).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
    let reader = server.key(r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let mut reader = client(&server, &reader);
    assert_eq!(call!(reader, list_sessions, ListSessionsRequest {}).unwrap().sessions.len(), 1);
    assert_eq!(call!(reader, exec, exec("same", "true")).unwrap_err().code(), Code::PermissionDenied);
}

#[test]
fn output_comes_while_the_command_runs_and_a_cancelled_call_kills_it() {
    let server = Server::start();
    let mut client = client(&server, &key(&server, "ann"));
    call!(client, create_session, session("one")).unwrap();
    let request = ExecStreamRequest {
        session_id: "one".into(),
        // It ends when the test says so, which it does only after the first byte has come.
        command: "echo begun; until [ -e go ]; do sleep 0.01; done; echo done".into(),
        workdir: String::new(),
    };
    let mut other = client.inner.clone();
    let rest = client.runtime.block_on(async {
        let mut stream = client.inner.exec_stream(request.clone()).await.unwrap().into_inner();
        let first = stream.message().await.unwrap().unwrap();
        assert_eq!((first.r#type.as_str(), first.data.as_str()), ("stdout", "begun\n"));
        other.write_file(write("one", "go", "", "w")).await.unwrap();
        let mut rest = Vec::new();
        while let Some(event) = stream.message().await.unwrap() {
            rest.push((event.r#type, event.data, event.exit_code));
        }
        rest
    });
    assert_eq!(rest, [("stdout".into(), "done\n".into(), None), ("exit".into(), String::new(), Some(0))]);
    call!(client, exec, exec("one", "rm go")).unwrap();
    let path = server.get("/api/v1/sandboxes?owner=ann")["items"][0]["id"].as_str().unwrap().to_owned();
    let running = || {
        let execs = server.get(&format!("/api/v1/sandboxes/{path}/execs"));
        execs.as_array().unwrap().iter().filter(|exec| exec["status"] == "running").count()
    };
    client.runtime.block_on(async {
        let mut stream = client.inner.exec_stream(request.clone()).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
    });
    eventually("the end of a command whose stream was dropped", || running() == 0);
    client.runtime.block_on(async {
        let mut call = std::pin::pin!(client.inner.exec(exec("one", "touch begun; sleep 60")));
        loop {
            tokio::select! {
                answer = &mut call => panic!("{answer:?}"),
                there = other.read_file(read("one", "begun")) => {
                    if there.unwrap().into_inner().success { break }
                }
            }
        }
    });
    eventually("the end of a command whose call was dropped", || running() == 0);
}

#[test]
fn hostile_input_is_refused() {
    let server = Server::start();
    let mut client = client(&server, &key(&server, "ann"));
    call!(client, create_session, session("one")).unwrap();
    let huge = "x".repeat(17 << 20);
    let refused = call!(client, write_file, write("one", "huge", &huge, "w")).unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    for path in ["../../etc/passwd", "/proc/self/mem", "/etc/passwd", "", "a\0b"] {
        let answer = call!(client, write_file, write("one", path, "x", "w"));
        assert!(answer.is_ok_and(|answer| !answer.success && answer.error.is_some()), "{path:?}");
    }
    let odd = "x".repeat(251);
    for id in [odd.as_str(), "a\nb"] {
        assert_eq!(call!(client, create_session, session(id)).unwrap_err().code(), Code::InvalidArgument);
    }
    let hosts = CreateSessionRequest { allowed_hosts: vec!["a b".into()], ..session("two") };
    assert_eq!(call!(client, create_session, hosts).unwrap_err().code(), Code::InvalidArgument);
    let above = CreateSessionRequest { allowed_hosts: vec!["a.example".into()], ..session("two") };
    assert_eq!(call!(client, create_session, above).unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(call!(client, exec, exec("one", " ")).unwrap_err().code(), Code::InvalidArgument);
    let negative = ExecRequest { timeout: -1, ..exec("one", "true") };
    assert_eq!(call!(client, exec, negative).unwrap_err().code(), Code::InvalidArgument);
    let mut binary = exec("one", "printf '\\377' > binary; yes | head -c 6000000; yes no | head -c 100 >&2");
    binary.timeout = 60;
    let long = call!(client, exec, binary).unwrap();
    assert!(long.stdout.len() + long.stderr.len() < 4 << 20 && long.stdout.len() > 3 << 20);
    assert!(long.stderr.contains("6000100 bytes") && long.stderr.starts_with("no\n"), "{}", long.stderr);
    let answer = call!(client, read_file, read("one", "binary")).unwrap();
    assert_eq!(answer.error.as_deref(), Some("the file is no UTF-8 text: byte 0 is wrong"));
    // A string that is no UTF-8, which no client library sends.
    let answer = web(&server, "Exec", &[], &[0x0a, 0x01, 0xff]);
    assert_ne!(answer.1, Some(0), "{answer:?}");
}

#[test]
fn a_command_and_a_file_are_as_large_by_every_front() {
    let server = Server::start();
    let key = key(&server, "ann");
    let mut client = client(&server, &key);
    call!(client, create_session, session("one")).unwrap();
    let id =
        server.ask_as(&key, "GET", super::ROOT, "").json()["items"][0]["id"].as_str().unwrap().to_owned();
    let large = "x".repeat(5 << 20);
    let refused = call!(client, exec, exec("one", &large)).unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let body = serde_json::json!({ "command": large }).to_string();
    assert_eq!(server.ask_as(&key, "POST", &format!("{}/{id}/exec", super::ROOT), &body).status, 413);
    assert!(call!(client, write_file, write("one", "large", &large, "w")).unwrap().success);
    let put = server.ask_as(&key, "PUT", &format!("{}/{id}/files/large", super::ROOT), &large);
    assert!(put.status < 300, "{put:?}");
}

#[test]
fn a_session_outlives_the_server() {
    let mut server = Server::start();
    let key = key(&server, "ann");
    let mut before = client(&server, &key);
    let made = call!(before, create_session, session("one")).unwrap().session.unwrap();
    assert!(call!(before, write_file, write("one", "f", "kept", "w")).unwrap().success);
    drop(before);
    server.kill();
    server.restart();
    let mut after = client(&server, &key);
    let there = call!(after, create_session, session("one")).unwrap().session.unwrap();
    assert_eq!(there.container_id, made.container_id);
    assert_eq!(call!(after, read_file, read("one", "f")).unwrap().content.as_deref(), Some("kept"));
    // A stopped session is told so, and started again by its creation.
    let id = server.get("/api/v1/sandboxes?owner=ann")["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(server.ask("POST", &format!("/api/v1/sandboxes/{id}/stop"), "").status, 200);
    let stopped = call!(after, exec, exec("one", "true")).unwrap();
    assert_eq!((stopped.exit_code, stopped.stderr.contains("stopped")), (-1, true), "{stopped:?}");
    assert_eq!(call!(after, create_session, session("one")).unwrap().session.unwrap().status, "running");
    assert_eq!(call!(after, exec, exec("one", "cat f")).unwrap().stdout, "kept");
    drop(after);
}

/// A call by gRPC-Web over HTTP/1.1: the HTTP answer, the status of gRPC, and the message.
fn web(
    server: &Server,
    method: &str,
    headers: &[(&str, &str)],
    message: &[u8],
) -> (http::Answer, Option<i32>, Vec<u8>) {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = [&[0], &length[..], message].concat();
    let bearer = format!("Bearer {KEY}");
    let usual = [("Authorization", bearer.as_str()), ("Content-Type", "application/grpc-web+proto")];
    let all: Vec<(&str, &str)> = usual.into_iter().chain(headers.iter().copied()).collect();
    let path = format!("/sandbox.v1.SandboxService/{method}");
    let answer = http::request(server.grpc, "POST", &path, &all, &body).unwrap();
    let (mut status, mut told) =
        (answer.header("grpc-status").and_then(|text| text.parse().ok()), Vec::new());
    let mut rest = &answer.body[..];
    while rest.len() >= 5 && answer.status == 200 {
        let length = u32::from_be_bytes(rest[1..5].try_into().unwrap()) as usize;
        let (frame, after) = rest[5..].split_at(length);
        match rest[0] {
            0 => told = frame.to_vec(),
            _ => {
                let trailers = String::from_utf8_lossy(frame).to_ascii_lowercase();
                let line = trailers.lines().find_map(|line| line.strip_prefix("grpc-status:"));
                status = line.and_then(|text| text.trim().parse().ok());
            }
        }
        rest = after;
    }
    (answer, status, told)
}

#[test]
fn pages_of_the_allowed_origins_may_call_and_no_others() {
    const PAGE: &str = "https://app.example.com";
    let server = Server::start_configured("allowed_origins = [\"https://app.example.com\"]\n", &[]);
    let (answer, status, _) = web(&server, "ListSessions", &[("Origin", PAGE)], &[]);
    let allowed = answer.header("access-control-allow-origin");
    assert_eq!((answer.status, status, allowed), (200, Some(0), Some(PAGE)));
    let preflight = |origin: &str| {
        let headers = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
        http::request(server.grpc, "OPTIONS", "/sandbox.v1.SandboxService/Exec", &headers, b"").unwrap()
    };
    assert_eq!(preflight(PAGE).header("access-control-allow-origin"), Some(PAGE));
    for other in ["http://app.example.com", "https://app.example.com:8443", "https://other.example.com"] {
        assert_eq!(preflight(other).status, 403, "{other}");
        assert_eq!(web(&server, "ListSessions", &[("Origin", other)], &[]).0.status, 403, "{other}");
    }
    let usual = Server::start();
    assert_eq!(web(&usual, "ListSessions", &[("Origin", PAGE)], &[]).0.status, 403, "without the setting");
}

#[test]
fn pages_speak_grpc_web_if_their_origin_may() {
    let server = Server::start();
    let (answer, status, message) = web(&server, "ListSessions", &[], &[]);
    assert_eq!((answer.status, status, message), (200, Some(0), vec![]));
    let (answer, status, _) = web(&server, "ListSessions", &[("Origin", "http://localhost:5173")], &[]);
    assert_eq!((answer.status, status), (200, Some(0)));
    assert_eq!(answer.header("access-control-allow-origin"), Some("http://localhost:5173"));
    assert!(answer.header("access-control-expose-headers").unwrap().contains("grpc-status"));
    for (name, value) in [("Origin", "https://evil.example"), ("Origin", "null"), ("Host", "evil.example")] {
        let (answer, status, _) = web(&server, "ListSessions", &[(name, value)], &[]);
        let allowed = answer.header("access-control-allow-origin");
        assert!(
            matches!(answer.status, 400 | 403) && status.is_none() && allowed.is_none(),
            "{name} {value}"
        );
    }
    let preflight = |origin: &str| {
        let headers = [("Origin", origin), ("Access-Control-Request-Method", "POST")];
        http::request(server.grpc, "OPTIONS", "/sandbox.v1.SandboxService/Exec", &headers, b"").unwrap()
    };
    let allowed = preflight("http://localhost:5173");
    assert_eq!((allowed.status, allowed.header("access-control-allow-methods")), (204, Some("POST")));
    assert!(allowed.header("access-control-allow-headers").unwrap().contains("authorization"));
    assert_eq!(preflight("https://evil.example").status, 403);
    // A page may read why it is refused, too.
    let page = [("Origin", "http://localhost:5173"), ("Authorization", "Bearer none")];
    let body = [0; 5];
    let path = "/sandbox.v1.SandboxService/ListSessions";
    let refused = http::request(server.grpc, "POST", path, &page, &body).unwrap();
    assert_eq!(refused.header("grpc-status"), Some("16"), "{refused:?}");
    assert!(refused.header("access-control-allow-origin").is_some());

    let open = Server::start_with(&["--no-auth"]);
    let (answer, status, _) = web(&open, "ListSessions", &[("Origin", "http://localhost:5173")], &[]);
    assert_eq!((answer.status, status), (403, None), "without keys no other page may ask");
    let own = format!("http://127.0.0.1:{}", open.grpc.port());
    let headers = [("Origin", own.as_str()), ("Content-Type", "application/grpc-web+proto")];
    let answer = http::request(open.grpc, "POST", path, &headers, &body).unwrap();
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some(own.as_str())));
    assert_ne!(answer.header("access-control-allow-origin"), Some("*"));
}

/// A request by gRPC-Web over HTTP/1.1 of which only this much of the body is sent, and whose connection stays open.
fn begun(server: &Server, path: &str, key: &str, length: usize, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.grpc).unwrap();
    let host = server.grpc;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/grpc-web+proto\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(sent).unwrap();
    stream
}

/// The head of the answer to it.
fn head(stream: &mut TcpStream) -> String {
    let (mut all, mut byte) = (Vec::new(), [0]);
    while !all.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        all.push(byte[0]);
    }
    String::from_utf8(all).unwrap().to_ascii_lowercase()
}

#[test]
fn what_an_owner_sends_has_a_budget() {
    const MIB: usize = 1 << 20;
    let server = Server::start_with(&["--set", "http.owner_answers_mb=8"]);
    let (ann, bob) = (key(&server, "ann"), key(&server, "bob"));
    let (mut first, mut other) = (client(&server, &ann), client(&server, &bob));
    for client in [&mut first, &mut other] {
        call!(*client, create_session, session("one")).unwrap();
    }
    let large = write("one", "f", &"x".repeat(2 * MIB), "w");
    assert!(call!(first, write_file, large.clone()).unwrap().success);
    // A message of 10 MiB, of which 7 come.
    let mut part = vec![0; 5 + 7 * MIB];
    part[1..5].copy_from_slice(&(10 * MIB as u32).to_be_bytes());
    let path = "/sandbox.v1.SandboxService/WriteFile";
    let mut silent = begun(&server, path, &ann, 5 + 10 * MIB, &part);
    silent.set_nonblocking(true).unwrap();
    eventually("a refusal", || match call!(first, write_file, large.clone()) {
        Ok(_) => {
            // While both are on their way, the one that needs the last of the room is refused: it may be the silent one.
            if silent.peek(&mut [0]).is_ok() {
                silent = begun(&server, path, &ann, 5 + 10 * MIB, &part);
                silent.set_nonblocking(true).unwrap();
            }
            false
        }
        Err(status) => {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
            true
        }
    });
    assert!(call!(first, write_file, write("one", "f", "small", "w")).unwrap().success);
    assert!(call!(other, write_file, large.clone()).unwrap().success, "a budget is one owner's");
    // More than the budget is refused while it comes.
    let mut whole = begun(&server, path, &bob, 5 + 10 * MIB, &part);
    // The server may have answered before it all is written.
    _ = whole.write_all(&vec![0; 2 * MIB]);
    let answer = head(&mut whole);
    assert!(answer.contains("grpc-status: 8") && answer.contains("room"), "{answer}");
    drop((silent, whole));
    eventually("room", || call!(first, write_file, large.clone()).is_ok());
}

#[test]
fn watchers_of_health_have_a_number() {
    let server = Server::start();
    let watch = || {
        let mut stream = begun(&server, "/grpc.health.v1.Health/Watch", "none", 5, &[0; 5]);
        let head = head(&mut stream);
        (stream, head.contains("grpc-status: 8"))
    };
    let watchers: Vec<_> = (0..64).map(|_| watch()).collect();
    assert!(watchers.iter().all(|(_, refused)| !refused));
    assert!(watch().1, "one more than a peer may have");
    let mut check = begun(&server, "/grpc.health.v1.Health/Check", "none", 5, &[0; 5]);
    assert!(!head(&mut check).contains("grpc-status"), "watchers take no place from checks");
    drop(watchers);
    eventually("a place", || !watch().1);
}

#[test]
fn installing_packages_takes_the_time_that_the_tier_allows() {
    let server = Server::start();
    let mut client = client(&server, &server.key(r#"{"name":"k","owner":"ann","tier":"sandbox"}"#));
    call!(client, create_session, session("one")).unwrap();
    // Nothing is asked of an index.
    let line = "mkdir -p ~/.config/pip && printf '[global]\\nno-index = true\\n' > ~/.config/pip/pip.conf";
    assert_eq!(call!(client, exec, exec("one", line)).unwrap().exit_code, 0);
    let wanted = PipInstallRequest { session_id: "one".into(), packages: vec!["uvicorn[standard]".into()] };
    let answer = call!(client, pip_install, wanted).unwrap();
    assert!(answer.exit_code > 0 && !answer.timed_out, "{answer:?}");
}
