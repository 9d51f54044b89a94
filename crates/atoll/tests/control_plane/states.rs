//! The table of operations against what the server does: each operation on a sandbox of each status.

use super::{Server, eventually};
use atoll_core::{Caller, TerminalRequest};
use atoll_types::{
    Error, ErrorCode, ExecId, LegalStates, Operation, SandboxId, Status, Target, TerminalSize,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How an operation is asked for.
enum Request {
    Http(&'static str, String, Value),
    Terminal,
    TerminalAttach,
    PortForward,
    /// By no request of its own: `sessions::export` asks for it by a tool.
    Elsewhere,
}

fn request(operation: Operation, path: &str) -> Request {
    let id = "0".repeat(32);
    let of = |method, below: &str, body| Request::Http(method, format!("{path}{below}"), body);
    let exec = |below: &str| format!("/execs/{id}{below}");
    let kernel = |below: &str| format!("/kernels/{id}{below}");
    let snapshot = |below: &str| format!("/snapshots/{id}{below}");
    let none = Value::Null;
    match operation {
        Operation::SandboxPatch => of("PATCH", "", json!({ "labels": { "a": "b" } })),
        Operation::SandboxPause => of("POST", "/pause", none),
        Operation::SandboxResume => of("POST", "/resume", none),
        Operation::SandboxStop => of("POST", "/stop", none),
        Operation::SandboxDestroy => of("DELETE", "", none),
        Operation::SandboxExport => of("GET", "/export", none),
        Operation::SandboxFork => of("POST", "/fork", json!({})),
        Operation::SnapshotCreate => of("POST", "/snapshots", json!({})),
        Operation::SnapshotLabel => of("PATCH", &snapshot(""), json!({ "label": "a" })),
        Operation::SnapshotDelete => of("DELETE", &snapshot(""), none),
        Operation::SnapshotDiff => of("GET", &snapshot("/diff"), none),
        Operation::SnapshotRollback => of("POST", &snapshot("/rollback"), json!({})),
        Operation::Exec => of("POST", "/exec", json!({ "command": "true" })),
        Operation::ExecStdin => of("POST", &exec("/stdin"), none),
        Operation::ExecSignal => of("POST", &exec("/signal"), json!({ "signal": "TERM" })),
        Operation::ExecKill => of("POST", &exec("/kill"), none),
        Operation::ExecForget => of("DELETE", &exec(""), none),
        Operation::Terminal => Request::Terminal,
        Operation::TerminalAttach => Request::TerminalAttach,
        Operation::KernelStart => of("POST", "/kernels", json!({ "language": "bash" })),
        Operation::KernelExecute => of("POST", "/run", json!({ "code": "true", "language": "bash" })),
        Operation::KernelInterrupt => of("POST", &kernel("/interrupt"), none),
        Operation::KernelComplete => of("POST", &kernel("/complete"), json!({ "code": "pri" })),
        Operation::KernelRestart => of("POST", &kernel("/restart"), none),
        Operation::KernelDelete => of("DELETE", &kernel(""), none),
        Operation::KernelCheckpoint => of("POST", &kernel("/checkpoints"), json!({})),
        Operation::KernelCheckpointDelete => of("DELETE", &kernel(&format!("/checkpoints/{id}")), none),
        Operation::KernelRollback => of("POST", &kernel(&format!("/checkpoints/{id}/rollback")), none),
        Operation::KernelFork => of("POST", &kernel("/fork"), json!({})),
        Operation::DependenciesInstall => {
            of("POST", "/dependencies", json!({ "language": "python", "packages": { "a": "" } }))
        }
        Operation::FileRead => of("GET", "/files/a", none),
        Operation::FileGrep => of("POST", "/fs/grep", json!({ "pattern": "x" })),
        Operation::FileWrite => of("PUT", "/files/a", json!({ "x": 1 })),
        Operation::FileRemove => of("POST", "/fs/remove", json!({ "path": "e" })),
        Operation::FileMkdir => of("POST", "/fs/mkdir", json!({ "path": "d" })),
        Operation::FileMove => of("POST", "/fs/move", json!({ "from": "d", "to": "e" })),
        Operation::FolderRead => of("GET", "/fs/tar?path=/workspace", none),
        Operation::FolderWrite => of("PUT", "/fs/tar?path=/workspace", none),
        Operation::PortForward => Request::PortForward,
        Operation::PreviewToken => of("POST", "/preview-tokens", json!({ "port": 80 })),
        Operation::PreviewRevoke => of("DELETE", &format!("/preview-tokens/{id}"), none),
        Operation::SkillInstall => {
            of("POST", "/skills", json!({ "skill_ids": ["00000000-0000-4000-8000-000000000000"] }))
        }
        Operation::EgressSet => of("PUT", "/egress", json!({ "mode": "none" })),
        Operation::EgressToken => of("POST", "/egress/tokens", json!({})),
        Operation::SessionExport => Request::Elsewhere,
        other => panic!("{} is about a sandbox, and this test does not know how to ask for it", other.name()),
    }
}

/// Why the server refused; none where it did it.
fn refusal(server: &Server, path: &str, asked: Request) -> Option<ErrorCode> {
    let sandbox: SandboxId = path.rsplit('/').next().unwrap().replace('-', "").parse().unwrap();
    let caller = Caller::local();
    let code = |error: Error| error.code;
    match asked {
        Request::Http(method, path, body) => {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let answer = server.ask(method, &path, &body);
            (answer.status >= 400).then(|| {
                let name = answer.json()["error"]["code"].as_str().unwrap_or("invalid_argument").to_owned();
                ErrorCode::from_name(&name).unwrap_or_else(|| panic!("{answer:?}"))
            })
        }
        Request::Terminal => server.core(async |core| {
            let request = TerminalRequest {
                command: Some("true".into()),
                working_directory: None,
                env_vars: BTreeMap::new(),
                user: None,
                size: TerminalSize { rows: 24, columns: 80 },
            };
            core.execs.open_terminal(&caller, sandbox, request).await.map(drop).map_err(code).err()
        }),
        Request::TerminalAttach => server.core(async |core| {
            let exec = ExecId::random();
            core.execs.attach_terminal(&caller, sandbox, exec, None).await.map(drop).map_err(code).err()
        }),
        Request::PortForward => server
            .core(async |core| core.ports.forward(&caller, sandbox, 80).await.map(drop).map_err(code).err()),
        Request::Elsewhere => None,
    }
}

/// A new sandbox of a status; none of one that the provider for tests cannot bring about, or that passes at once.
fn made(server: &Server, status: Status) -> Option<String> {
    let path = match status {
        Status::Provisioning | Status::Paused => return None,
        _ => server.create("{}"),
    };
    // `python3 -m pip` finds this one first, and asks no index.
    server.ask("PUT", &format!("{path}/files/pip.py"), "");
    match status {
        Status::Stopped => drop(server.ask("POST", &format!("{path}/stop"), "")),
        Status::Dead => server.kill_inside(&path),
        Status::Destroyed => drop(server.ask("DELETE", &path, "")),
        _ => {}
    }
    let shown = if status == Status::Ready { "running" } else { status.as_str() };
    eventually(shown, || server.get(&path)["status"] == shown);
    Some(path)
}

#[test]
fn each_operation_is_legal_where_its_row_says_so() {
    let server = Server::start();
    let mut wrong = Vec::new();
    for status in Status::ALL {
        let Some(mut path) = made(&server, *status) else { continue };
        let about = Operation::ALL.iter().filter(|it| matches!(it.target(), Target::Sandbox(_)));
        for operation in about {
            let asked = request(*operation, &path);
            if matches!(asked, Request::Elsewhere) {
                continue;
            }
            let shown = server.get(&path)["status"].clone();
            let refused = refusal(&server, &path, asked);
            // A provider without the power says so first, and a snapshot that is not there is refused in every state.
            let lacks = match refused {
                Some(ErrorCode::NotFound) => matches!(
                    operation,
                    Operation::SnapshotLabel
                        | Operation::SnapshotDelete
                        | Operation::SnapshotDiff
                        | Operation::SnapshotRollback
                ),
                code => code == Some(ErrorCode::Unsupported),
            };
            let by_state = match refused {
                Some(ErrorCode::NotRunning | ErrorCode::Conflict) => true,
                Some(ErrorCode::NotFound) => {
                    let hides = matches!(operation.states(), LegalStates::Existing | LegalStates::Reachable);
                    hides && *status == Status::Destroyed
                }
                _ => false,
            };
            if by_state == operation.states().allow(*status) && !lacks {
                wrong.push(format!("{} of one that is {status}: {refused:?}", operation.name()));
            }
            if server.get(&path)["status"] != shown {
                path = made(&server, *status).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
