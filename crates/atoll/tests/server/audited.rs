//! Every operation lies between two rows of the audit trail, whatever becomes of it, and nothing secret is
//! in them.

use super::{
    fixture::{KEY, Server},
    http,
};
use crate::engine::fixture::eventually;
use atoll_store::{Audits, OperationQuery, OperationRow, Outcome};
use atoll_store_sqlite::SqliteStore;
use atoll_types::{Effect, Operation};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    process::Command,
    thread,
};

/// The operations of a server, the first begun first.
fn operations(server: &Server) -> Vec<OperationRow> {
    let database = server.data().join("server/atoll.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open_read_only(&database).await.unwrap();
        let query = OperationQuery { limit: 500, ..OperationQuery::default() };
        let mut all = store.audit_operations(&query).await.unwrap();
        all.reverse();
        store.close().await;
        all
    })
}

fn output(server: &Server, operation: &OperationRow) -> (Vec<u8>, Vec<u8>) {
    let database = server.data().join("server/atoll.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let output = runtime.block_on(async {
        let store = SqliteStore::open_read_only(&database).await.unwrap();
        let output = store.audit_output(operation.id).await.unwrap().unwrap();
        store.close().await;
        output
    });
    let whole = |output: Option<atoll_store::Output>| {
        output.map_or_else(Vec::new, |output| {
            let (mut head, tail) = atoll_audit::unpack(&output).unwrap();
            head.extend(tail);
            head
        })
    };
    (whole(output.stdout), whole(output.stderr))
}

fn kinds(operations: &[OperationRow]) -> Vec<&str> {
    operations.iter().map(|operation| operation.begin.kind.as_str()).collect()
}

fn last<'a>(operations: &'a [OperationRow], kind: &str) -> &'a OperationRow {
    operations
        .iter()
        .rfind(|o| o.begin.kind == kind)
        .unwrap_or_else(|| panic!("no {kind}: {:?}", kinds(operations)))
}

fn verify(server: &Server) -> (Option<i32>, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["audit", "verify", "--data-dir"])
        .arg(server.data())
        .output()
        .unwrap();
    (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// A request for each operation of the API that changes something or gives out what is in files, with the
/// kind of its row. What is missing here fails the test below.
fn requests(sandbox: &str) -> BTreeMap<(&'static str, &'static str), (String, Value, &'static str)> {
    let at = |below: &str| format!("{sandbox}{below}");
    let exec = "0".repeat(32);
    let skill = "/api/v1/skills/00000000-0000-4000-8000-000000000000".to_owned();
    let of = |below: &str| at(&format!("/execs/{exec}{below}"));
    let kernel = |below: &str| at(&format!("/kernels/{exec}{below}"));
    let snapshot = |below: &str| at(&format!("/snapshots/{exec}{below}"));
    let checkpoint = |below: &str| kernel(&format!("/checkpoints/{exec}{below}"));
    const ID: &str = "/api/v1/sandboxes/{id}";
    macro_rules! id {
        ($rest:literal) => {
            concat!("/api/v1/sandboxes/{id}", $rest)
        };
    }
    [
        (("post", "/api/v1/keys"), ("/api/v1/keys".into(), json!({"name":"k"}), "key.create")),
        (
            ("delete", "/api/v1/keys/{id}"),
            ("/api/v1/keys/00000000-0000-4000-8000-000000000000".into(), Value::Null, "key.revoke"),
        ),
        (
            ("post", "/api/v1/sandboxes"),
            ("/api/v1/sandboxes".into(), json!({"disk_mb":64}), "sandbox.create"),
        ),
        (
            ("patch", "/api/v1/settings/sandbox"),
            ("/api/v1/settings/sandbox".into(), json!({"idle_timeout_seconds":60}), "settings.patch"),
        ),
        (
            ("post", "/api/v1/admin/sandboxes/bulk-stop"),
            ("/api/v1/admin/sandboxes/bulk-stop".into(), json!({"ids":[]}), "sandbox.bulk"),
        ),
        (("patch", "/api/v1/pool"), ("/api/v1/pool".into(), json!({"enabled":false}), "pool.resize")),
        (("delete", "/threads/{thread_id}"), ("/threads/t1".into(), Value::Null, "thread.delete")),
        (("post", "/api/v1/pool/drain"), ("/api/v1/pool/drain".into(), json!({}), "pool.drain")),
        (
            ("post", "/api/v1/volumes"),
            ("/api/v1/volumes".into(), json!({"name":"data","disk_mb":64}), "volume.create"),
        ),
        (
            ("patch", "/api/v1/volumes/{name}"),
            ("/api/v1/volumes/data".into(), json!({"disk_mb":128}), "volume.resize"),
        ),
        (
            ("post", "/api/v1/skills"),
            ("/api/v1/skills".into(), json!({"name":"a","skill_md_content":"# a"}), "skill.create"),
        ),
        (
            ("post", "/api/v1/skills/import"),
            (
                "/api/v1/skills/import".into(),
                json!({"source":"builtin","skill_name":"blank"}),
                "skill.create",
            ),
        ),
        (("post", "/api/v1/skills/upload"), ("/api/v1/skills/upload".into(), Value::Null, "skill.create")),
        (("patch", "/api/v1/skills/{skill_id}"), (skill.clone(), json!({"description":"b"}), "skill.update")),
        (("delete", "/api/v1/skills/{skill_id}"), (skill, Value::Null, "skill.delete")),
        (
            ("post", id!("/skills")),
            (at("/skills"), json!({"skill_ids":["00000000-0000-4000-8000-000000000000"]}), "skill.install"),
        ),
        (("delete", "/api/v1/volumes/{name}"), ("/api/v1/volumes/data".into(), Value::Null, "volume.delete")),
        (
            ("post", "/api/v1/sandbox-images/import"),
            ("/api/v1/sandbox-images/import?name=host".into(), Value::Null, "image.import"),
        ),
        (
            ("post", "/api/v1/sandbox-images"),
            ("/api/v1/sandbox-images".into(), json!({"template":"nosuch"}), "image.build"),
        ),
        (
            ("post", "/api/v1/sandbox-images/build"),
            ("/api/v1/sandbox-images/build?name=x".into(), Value::Null, "image.build"),
        ),
        (
            ("post", "/api/v1/sandbox-images/pull"),
            ("/api/v1/sandbox-images/pull".into(), json!({"reference":"nosuch"}), "image.pull"),
        ),
        (
            ("delete", "/api/v1/sandbox-images/builds/{build_id}"),
            (
                "/api/v1/sandbox-images/builds/00000000-0000-4000-8000-000000000000".into(),
                Value::Null,
                "image.cancel",
            ),
        ),
        (
            ("get", "/api/v1/sandbox-images/{image}/export"),
            ("/api/v1/sandbox-images/nosuch/export".into(), Value::Null, "image.export"),
        ),
        (
            ("post", "/api/v1/sandbox-images/{image}/push"),
            (
                "/api/v1/sandbox-images/nosuch/push".into(),
                json!({"reference":"registry.example/team/app:1"}),
                "image.push",
            ),
        ),
        (
            ("patch", "/api/v1/sandbox-images/{image}"),
            ("/api/v1/sandbox-images/nosuch".into(), json!({"approved":true}), "image.patch"),
        ),
        (
            ("delete", "/api/v1/sandbox-images/{image}"),
            ("/api/v1/sandbox-images/nosuch".into(), Value::Null, "image.delete"),
        ),
        (("patch", ID), (at(""), json!({"labels":{"a":"b"}}), "sandbox.patch")),
        (("post", id!("/egress/tokens")), (at("/egress/tokens"), json!({}), "egress.token")),
        (("put", id!("/egress")), (at("/egress"), json!({"mode":"none"}), "egress.set")),
        (("post", id!("/exec")), (at("/exec"), json!({"command":"true"}), "exec")),
        (("post", id!("/execs/{eid}/kill")), (of("/kill"), Value::Null, "exec.kill")),
        (("post", id!("/execs/{eid}/signal")), (of("/signal"), json!({"signal":"TERM"}), "exec.signal")),
        (("post", id!("/execs/{eid}/stdin")), (of("/stdin"), Value::Null, "exec.stdin")),
        (("delete", id!("/execs/{eid}")), (of(""), Value::Null, "exec.forget")),
        (("post", id!("/kernels")), (at("/kernels"), json!({"language":"bash"}), "kernel.start")),
        (("post", id!("/run")), (at("/run"), json!({"code":"true","language":"bash"}), "kernel.execute")),
        (
            ("post", id!("/kernels/{kid}/execute")),
            (kernel("/execute"), json!({"code":"1"}), "kernel.execute"),
        ),
        (
            ("post", id!("/kernels/{kid}/complete")),
            (kernel("/complete"), json!({ "code": "pri" }), "kernel.complete"),
        ),
        (("post", id!("/kernels/{kid}/interrupt")), (kernel("/interrupt"), Value::Null, "kernel.interrupt")),
        (("post", id!("/kernels/{kid}/restart")), (kernel("/restart"), Value::Null, "kernel.restart")),
        (("post", id!("/kernels/{kid}/fork")), (kernel("/fork"), json!({}), "kernel.fork")),
        (
            ("post", id!("/kernels/{kid}/checkpoints")),
            (kernel("/checkpoints"), json!({}), "kernel.checkpoint"),
        ),
        (
            ("delete", id!("/kernels/{kid}/checkpoints/{cid}")),
            (checkpoint(""), Value::Null, "kernel.checkpoint.delete"),
        ),
        (
            ("post", id!("/kernels/{kid}/checkpoints/{cid}/rollback")),
            (checkpoint("/rollback"), Value::Null, "kernel.rollback"),
        ),
        (("delete", id!("/kernels/{kid}")), (kernel(""), Value::Null, "kernel.delete")),
        (("post", id!("/snapshots")), (at("/snapshots"), json!({}), "snapshot.create")),
        (("patch", id!("/snapshots/{sid}")), (snapshot(""), json!({"label":"a"}), "snapshot.label")),
        (("delete", id!("/snapshots/{sid}")), (snapshot(""), Value::Null, "snapshot.delete")),
        (("get", id!("/snapshots/{sid}/diff")), (snapshot("/diff"), Value::Null, "snapshot.diff")),
        (
            ("post", id!("/snapshots/{sid}/rollback")),
            (snapshot("/rollback"), Value::Null, "snapshot.rollback"),
        ),
        (("post", id!("/fork")), (at("/fork"), json!({}), "sandbox.fork")),
        (
            ("post", id!("/dependencies")),
            (at("/dependencies"), json!({"packages":{"-":""}}), "dependencies.install"),
        ),
        (("put", id!("/files/{path}")), (at("/files/a"), json!({"x":1}), "file.write")),
        (("get", id!("/files/{path}")), (at("/files/a"), Value::Null, "file.read")),
        (("post", id!("/fs/grep")), (at("/fs/grep"), json!({"pattern":"x"}), "file.grep")),
        (("post", id!("/fs/mkdir")), (at("/fs/mkdir"), json!({"path":"d"}), "file.mkdir")),
        (("post", id!("/fs/move")), (at("/fs/move"), json!({"from":"d","to":"e"}), "file.move")),
        (("post", id!("/fs/remove")), (at("/fs/remove"), json!({"path":"e"}), "file.remove")),
        (("get", id!("/fs/tar")), (at("/fs/tar?path=/workspace"), Value::Null, "folder.read")),
        (("put", id!("/fs/tar")), (at("/fs/tar?path=/workspace"), Value::Null, "folder.write")),
        (("post", id!("/preview-tokens")), (at("/preview-tokens"), json!({"port":80}), "preview.token")),
        (
            ("delete", id!("/preview-tokens/{token_id}")),
            (at(&format!("/preview-tokens/{exec}")), Value::Null, "preview.revoke"),
        ),
        (("get", id!("/export")), (at("/export"), Value::Null, "sandbox.export")),
        (
            ("post", "/api/v1/sandboxes/import"),
            ("/api/v1/sandboxes/import".into(), Value::Null, "sandbox.import"),
        ),
        (("post", id!("/stop")), (at("/stop"), Value::Null, "sandbox.stop")),
        (("post", id!("/pause")), (at("/pause"), Value::Null, "sandbox.pause")),
        (("post", id!("/resume")), (at("/resume"), Value::Null, "sandbox.resume")),
        (("delete", ID), (at(""), Value::Null, "sandbox.destroy")),
    ]
    .into()
}

/// Operations that change nothing though their method could, or whose row another test looks for.
const ELSEWHERE: [(&str, &str); 5] = [
    ("post", "/api/v1/sandboxes/{id}/fs/find"),
    // `sessions::audited`.
    ("post", "/threads/{thread_id}/tools/{tool}"),
    ("post", "/threads/{thread_id}/files/upload"),
    // `terminals_and_forwards_are_told`.
    ("get", "/api/v1/sandboxes/{id}/terminal"),
    ("get", "/api/v1/sandboxes/{id}/forward"),
];

/// Operations that change something and are no request of the REST API, by who looks for their rows.
const ROWS_ELSEWHERE: [(&str, &[Operation]); 5] = [
    (
        "control_plane::langgraph::audited",
        &[
            Operation::ThreadCreate,
            Operation::ThreadPatch,
            Operation::ThreadCopy,
            Operation::ThreadState,
            Operation::AssistantCreate,
            Operation::AssistantPatch,
            Operation::AssistantDelete,
            Operation::ItemPut,
            Operation::ItemDelete,
            Operation::RunStart,
            Operation::RunCancel,
            Operation::RunDelete,
            Operation::ModelSettings,
            Operation::ConfigSet,
            Operation::AuditCleanup,
            Operation::ConsoleSignIn,
            Operation::ConsoleSignOut,
        ],
    ),
    (
        "sessions::audited",
        &[
            Operation::SessionCreate,
            Operation::SessionStop,
            Operation::SessionExport,
            Operation::ThreadUpload,
        ],
    ),
    ("terminals_and_forwards_are_told", &[Operation::Terminal, Operation::PortForward]),
    ("lifecycle_ends", &[Operation::KeyPurge, Operation::OrphanContainer, Operation::OrphanVolume]),
    // By the server itself, or while none runs; and an attach is refused where there is no terminal.
    (
        "no test",
        &[Operation::SandboxPurge, Operation::SessionDied, Operation::KeyRecover, Operation::TerminalAttach],
    ),
];

#[test]
fn each_operation_that_changes_something_has_a_test_of_its_rows() {
    let requests = requests("");
    let asked: HashSet<Operation> =
        requests.values().map(|(.., kind)| Operation::from_name(kind).unwrap()).collect();
    for ((method, path), (.., kind)) in &requests {
        let effect = Operation::from_name(kind).unwrap().effect();
        assert!(*method != "get" || effect == Effect::Reads, "{kind} changes something by a GET of {path}");
    }
    let elsewhere: Vec<_> = ROWS_ELSEWHERE.iter().flat_map(|(_, all)| all.iter().copied()).collect();
    for operation in Operation::ALL.iter().filter(|operation| operation.effect() == Effect::Mutates) {
        let times = elsewhere.iter().filter(|other| *other == operation).count();
        assert_eq!(
            times + usize::from(asked.contains(operation)),
            1,
            "{operation:?} has one test of its rows"
        );
    }
    assert!(elsewhere.iter().all(|operation| operation.effect() == Effect::Mutates), "{elsewhere:?}");
}

#[test]
fn whatever_changes_something_has_its_rows() {
    let server = Server::start();
    let sandbox = server.create(r#"{"disk_mb":64}"#);
    let requests = requests(&sandbox);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let described: Value = serde_json::from_slice(&std::fs::read(document).unwrap()).unwrap();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let mutates =
                method != "get" && !path.starts_with("/api/v1/audit") && !path.contains("/ports/{port}");
            let known = requests.contains_key(&(method.as_str(), path.as_str()))
                || ELSEWHERE.contains(&(method.as_str(), path.as_str()));
            assert!(!mutates || known, "{method} {path} changes something and no row is looked for");
        }
    }
    // In an order in which most succeed; what is refused has its rows too.
    let mut all: Vec<_> = requests.into_iter().collect();
    all.sort_by_key(|((_, path), (.., kind))| {
        let late = ["sandbox.pause", "sandbox.stop", "sandbox.resume", "sandbox.destroy"];
        let order = ["file.write", "file.mkdir", "file.move", "file.remove"];
        (
            late.iter().position(|k| k == kind).map_or(0, |n| n + 1),
            order.iter().position(|k| k == kind),
            *path,
        )
    });
    for ((method, path), (url, body, kind)) in all {
        let before = operations(&server).len();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = server.ask(&method.to_uppercase(), &url, &body);
        assert!(answer.status < 500, "{method} {path}: {answer:?}");
        eventually("the end of an operation", || {
            operations(&server)[before..].iter().all(|o| o.end.is_some())
        });
        let new = operations(&server).split_off(before);
        assert_eq!(kinds(&new), [kind], "{method} {path}");
        let OperationRow { begin, end, .. } = &new[0];
        let end = end.as_ref().unwrap();
        assert_eq!(end.facts.outcome == Outcome::Ok, answer.status < 400, "{method} {path}: {end:?}");
        assert_eq!(end.facts.error.is_some(), answer.status >= 400, "{method} {path}");
        assert_eq!((begin.front.as_str(), begin.address.as_deref()), ("rest", Some("127.0.0.1")));
        assert!(begin.key.is_some() && !begin.owner.is_empty());
    }
    assert_eq!(verify(&server).0, Some(0), "{}", verify(&server).1);
}

#[test]
fn a_command_is_told_with_what_it_printed_and_changed() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let body = json!({"command":"echo out; echo err >&2; echo x >made; exit 3","working_directory":"/workspace",
        "env_vars":{"VISIBLE":"value-of-a-variable"}});
    server.ask("POST", &format!("{sandbox}/exec"), &body.to_string());
    let all = operations(&server);
    let told = last(&all, "exec");
    let end = &told.end.as_ref().unwrap().facts;
    assert_eq!(told.begin.detail.text, body["command"]);
    assert_eq!(told.begin.directory.as_deref(), Some("/workspace"));
    assert_eq!(told.begin.variables, ["VISIBLE"]);
    assert_eq!((end.outcome, end.exit_code, end.files_count), (Outcome::Failed, Some(3), 1));
    assert_eq!((end.files[0].path.as_str(), end.files[0].action.as_str()), ("made", "created"));
    assert!(end.cpu_us.is_some() && end.peak_memory.is_some() && end.duration_us > 0);
    assert_eq!(output(&server, told), (b"out\n".to_vec(), b"err\n".to_vec()));
    let stdout = end.stdout.as_ref().unwrap();
    let hash = "54034ac5c6e9ea95734ec2b729fd6d62abf64af34a9f9ce5d466cb788191a73d";
    assert_eq!((stdout.length, stdout.sha256.unwrap().to_string().as_str()), (4, hash));
    assert!(!format!("{all:?}").contains("value-of-a-variable"), "names and never values");
}

#[test]
fn streamed_and_background_commands_are_told_at_their_end() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let run = |body: Value| server.ask("POST", &format!("{sandbox}/exec"), &body.to_string());
    run(json!({"command":"echo streamed","stream":true}));
    let made =
        run(json!({"command":"while ! [ -e go ]; do sleep 0.05; done; echo background","background":true}));
    let exec = made.json()["exec_id"].as_str().unwrap().to_owned();
    let open = operations(&server);
    let told = last(&open, "exec");
    assert_eq!(told.begin.extra["exec_id"], exec);
    assert!(told.end.is_none(), "it still runs");
    server.says(&sandbox, "touch go");
    let id = told.id;
    let find = |server: &Server| operations(server).into_iter().find(|o| o.id == id).unwrap();
    eventually("the command's end", || find(&server).end.is_some());
    assert_eq!(output(&server, &find(&server)).0, b"background\n");
    let all = operations(&server);
    let streamed = all.iter().find(|o| o.begin.extra.get("mode").is_some_and(|m| m == "streamed")).unwrap();
    assert_eq!(output(&server, streamed).0, b"streamed\n");
}

#[test]
fn a_killed_server_leaves_no_operation_open() {
    let mut server = Server::start();
    let sandbox = server.create("{}");
    let path = format!("{sandbox}/exec");
    let line = "echo before; while ! [ -e go ]; do sleep 0.05; done; echo after";
    server.ask("POST", &path, &json!({"command": line, "background": true}).to_string());
    // One in the foreground, whose caller is cut off with the server, and one that cannot be ended any more.
    let (address, headers) = (server.address, [("Authorization", "Bearer bootstrap-key-of-a-test")]);
    let waiting = {
        let (path, body) = (path, json!({"command": format!("echo fore; {line}")}).to_string());
        thread::spawn(move || _ = http::request(address, "POST", &path, &headers, body.as_bytes()))
    };
    let doomed = server.create("{}");
    let body = json!({"command":"sleep 1000","background":true}).to_string();
    server.ask("POST", &format!("{doomed}/exec"), &body);
    let open = |server: &Server| operations(server).iter().filter(|o| o.end.is_none()).count();
    eventually("three commands", || open(&server) == 3);
    // A row is written before its command starts; the two that are to go on have started once they printed.
    eventually("two first lines", || {
        let all = server.ask("GET", &format!("{sandbox}/execs"), "").json();
        all.as_array().unwrap().iter().filter(|exec| exec["output_bytes"].as_u64() > Some(6)).count() == 2
    });
    server.kill();
    waiting.join().unwrap();
    server.restart();
    server.says(&sandbox, "touch go");
    server.ask("DELETE", &doomed, "");
    eventually("every end", || open(&server) == 0);
    let all = operations(&server);
    let ran: Vec<&OperationRow> = all.iter().filter(|o| o.begin.detail.text.contains("echo after")).collect();
    assert_eq!(ran.len(), 2);
    for operation in ran {
        assert_eq!(operation.end.as_ref().unwrap().facts.exit_code, Some(0), "{operation:?}");
        assert!(output(&server, operation).0.ends_with(b"before\nafter\n"), "{operation:?}");
    }
    assert_eq!(verify(&server).0, Some(0), "{}", verify(&server).1);
}

#[test]
fn a_caller_that_goes_away_is_told_of() {
    use std::io::Write;
    let server = Server::start();
    let sandbox = server.create("{}");
    for (line, streamed) in [("echo one; exec sleep 1000", false), ("echo two; exec sleep 1001", true)] {
        let body = json!({"command":line,"stream":streamed}).to_string();
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        let head = format!(
            "POST {sandbox}/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        eventually("its first words", || {
            let all = server.ask("GET", &format!("{sandbox}/execs"), "").json();
            all.as_array().unwrap().iter().any(|exec| exec["command"] == line && exec["output_bytes"] == 4)
        });
        drop(stream);
        eventually("its end", || last(&operations(&server), "exec").end.is_some());
        let all = operations(&server);
        let told = last(&all, "exec");
        let facts = &told.end.as_ref().unwrap().facts;
        assert_eq!((facts.error.as_ref().unwrap().code.as_str(), facts.exit_code), ("cancelled", Some(137)));
        assert_eq!(
            output(&server, told).0,
            line.as_bytes()[5..8].iter().chain(b"\n").copied().collect::<Vec<_>>()
        );
        // One activity for each, though caller, killer and task all saw its end.
        let noted = super::execs::noted(&server, &sandbox);
        assert_eq!(noted.iter().filter(|(text, _)| text == line).count(), 1, "{noted:?}");
    }
}

#[test]
fn terminals_and_forwards_are_told() {
    let server = Server::start();
    let sandbox = server.create("{}");
    drop(super::socket::Socket::open(&server, &sandbox, "?command=echo+seen"));
    eventually("the terminal's end", || {
        operations(&server).iter().any(|o| o.begin.kind == "terminal" && o.end.is_some())
    });
    let all = operations(&server);
    assert_eq!(output(&server, last(&all, "terminal")).0, b"seen\r\n");
    let mut socket = super::socket::Socket::open(&server, &sandbox, "?command=sleep+1000");
    socket.says(r#"{"type":"signal","signal":"INT"}"#);
    eventually("the signal", || operations(&server).iter().any(|o| o.begin.kind == "exec.signal"));
    // Nobody listens, so it is refused, and told.
    let (path, bearer) = (format!("{sandbox}/forward?port=81"), format!("Bearer {KEY}"));
    assert!(super::socket::connect(&server, &path, &[("authorization", &bearer)]).is_err());
    let all = operations(&server);
    let told = last(&all, "port.forward");
    assert_eq!(told.begin.extra["port"], "81");
    assert_eq!(told.end.as_ref().unwrap().facts.error.as_ref().unwrap().code, "bad_gateway");
}

#[test]
fn a_secret_is_nowhere() {
    let secret = "s3cr3t-of-the-sandbox-42";
    let once = "s3cr3t-of-one-command-43";
    let mut server = Server::start_logging("trace", &[]);
    let sandbox = server.create(&json!({"secrets":{"TOKEN":secret},"env_vars":{"PLAIN":"x"}}).to_string());
    let path = format!("{sandbox}/exec");
    let run = |server: &Server, body: Value| server.ask("POST", &path, &body.to_string());
    // What a command prints of its own secrets after its server died, when nobody knows them any more.
    let later = "while ! [ -e go ]; do sleep 0.05; done; echo $ONCE";
    run(&server, json!({"command":later,"secrets":{"ONCE":once},"background":true}));
    server.kill();
    server.restart();
    server.says(&sandbox, "touch go");
    eventually("its end", || {
        operations(&server).iter().any(|o| o.begin.detail.text == later && o.end.is_some())
    });
    let exec = |body: Value| run(&server, body);
    let ran =
        exec(json!({"command":"echo $TOKEN $ONCE; echo -n $TOKEN | base64 >&2","secrets":{"ONCE":once}}));
    // Its owner may see what its own command prints.
    assert!(ran.json()["stdout"].as_str().unwrap().contains(secret));
    // In the command itself, in a path, in an error, in the background, in a terminal.
    exec(json!({"command":format!("echo {secret}"),"background":true}));
    exec(json!({"command":format!("echo {once} $ONCE"),"secrets":{"ONCE":once},"stream":true}));
    exec(json!({"command":"true","working_directory":format!("/no/{secret}")}));
    let refused = server.ask("GET", &format!("{sandbox}/files/{secret}"), "");
    assert_eq!(refused.status, 404);
    server.ask("PUT", &format!("{sandbox}/files/dir/{secret}.txt"), "x");
    server.ask("POST", &format!("{sandbox}/stop"), "");
    server.ask("PATCH", &sandbox, &json!({"secrets":{"TOKEN":secret,"MORE":once}}).to_string());
    server.ask("POST", &format!("{sandbox}/resume"), "");
    assert_eq!(server.says(&sandbox, "echo ${#MORE}"), once.len().to_string(), "it is there for commands");
    eventually("every end", || operations(&server).iter().all(|o| o.end.is_some()));
    let all = operations(&server);
    let printed: Vec<_> = all.iter().map(|o| output(&server, o)).collect();
    assert!(printed.iter().any(|(out, _)| String::from_utf8_lossy(out).contains("[secret]")));
    let blind = all.iter().find(|o| o.begin.detail.text == later).unwrap().end.as_ref().unwrap();
    let blind = blind.facts.stdout.as_ref().unwrap();
    assert_eq!((blind.length, blind.head, blind.sha256), (once.len() as u64 + 1, 0, None), "only how much");
    assert!(server.logged().contains("TRACE"), "there is a log to look at");
    for (place, text) in [
        ("rows", format!("{all:?}")),
        (
            "outputs",
            printed
                .iter()
                .map(|(o, e)| String::from_utf8_lossy(&[&o[..], e].concat()).into_owned())
                .collect(),
        ),
        ("activity", String::from_utf8(server.ask("GET", &format!("{sandbox}/activity"), "").body).unwrap()),
        (
            "events",
            String::from_utf8(server.ask("GET", "/api/v1/events?after=0&limit=1000", "").body).unwrap(),
        ),
        ("the audit", String::from_utf8(server.ask("GET", "/api/v1/audit?limit=500", "").body).unwrap()),
        ("the export", String::from_utf8(server.ask("GET", "/api/v1/audit/export", "").body).unwrap()),
        ("the log", server.logged()),
        ("the sandbox", String::from_utf8(server.ask("GET", &sandbox, "").body).unwrap()),
    ] {
        for value in [secret, once, "czNjcjN0LW9mLXRoZS1zYW5kYm94LTQy"] {
            assert!(!text.contains(value), "{value} is in {place}: {text}");
        }
    }
    // Nor anywhere in what the server keeps on disk: database, its log, the head.
    let grep = Command::new("grep")
        .args(["-rlaF", "-e", secret, "-e", once])
        .arg(server.data().join("server"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&grep.stdout), "");
}
