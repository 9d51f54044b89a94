//! Tools: this program again, as an ordinary command of the user's.

use crate::support::*;
use atoll_guest_proto::v1::{ExecRequest, StdinChunk, Tool, exec_request::Program};
use atoll_types::{Error, ErrorCode};
use serde_json::json;

fn tool(name: &str, request: &serde_json::Value) -> ExecRequest {
    let tool = Tool { name: name.into(), request: request.to_string().into_bytes(), environment: false };
    ExecRequest { program: Some(Program::Tool(tool)), ..sh("") }
}

fn failure(seen: &Seen) -> Error {
    assert_eq!(seen.info().exit_code, Some(1), "{seen:?}");
    serde_json::from_str(&seen.stderr()).unwrap()
}

#[tokio::test]
async fn a_tool_has_the_users_rights_and_no_more() {
    let guest = Guest::start().await;
    guest.output("mkdir -p a/b && echo needle > a/b/f && chmod 000 a/b").await;
    let seen = guest.run(tool("find", &json!({ "path": "a" }))).await;
    let lines: Vec<&str> = seen.stdout().leak().lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with(r#"{"entry":{"path":"a/b","type":"directory""#), "{lines:?}");
    assert_eq!(lines[1], r#"{"end":{"truncated":false,"skipped":1}}"#);
    assert_eq!(seen.info().command, "atoll-init tool find");
    let error = failure(&guest.run(tool("pack", &json!({ "path": "a" }))).await);
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::PermissionDenied, "b: permission denied"));
    for path in ["/secret", "/root"] {
        let error = failure(&guest.run(tool("find", &json!({ "path": path }))).await);
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::PermissionDenied, Some("path")));
    }
    let error = failure(&guest.run(tool("unpack", &json!({ "path": "/usr/x" }))).await);
    assert!(matches!(error.code, ErrorCode::PermissionDenied | ErrorCode::ReadOnly), "{error:?}");
}

#[tokio::test]
async fn a_tool_runs_where_pid_1_has_few_rights() {
    let guest = Guest::launch(&config(), Inside::UserNamespace).await;
    // No output there: the test's spool belongs to nobody in that namespace.
    assert_eq!(guest.run(tool("find", &json!({}))).await.info().exit_code, Some(0));
    assert_eq!(guest.run(tool("find", &json!({ "path": "/secret" }))).await.info().exit_code, Some(1));
}

#[tokio::test]
async fn what_no_tool_understands_is_refused() {
    let guest = Guest::start().await;
    let error = error(guest.client.clone().exec(tool("sh", &json!({}))).await);
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::Unsupported, Some("tool")));
    let error = failure(&guest.run(tool("find", &json!({ "colour": "red" }))).await);
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some("request")));
}

#[tokio::test]
async fn nobody_looks_into_a_tool_and_it_ends_like_any_command() {
    let guest = Guest::start().await;
    let request =
        ExecRequest { stdin: true, ..tool("watch", &json!({ "path": "/workspace", "recursive": true })) };
    let id = request.exec_id.clone();
    let mut events = guest.client.clone().exec(request).await.unwrap().into_inner();
    let mut seen = Seen::default();
    while seen.outputs.is_empty() {
        seen.add(events.message().await.unwrap().unwrap());
    }
    assert_eq!(seen.stdout(), "{\"event\":\"ready\"}\n");
    let pid = seen.started.as_ref().unwrap().pid;
    let script = format!(
        "id -u; for f in exe environ maps mem cwd; do cat /proc/{pid}/$f >/dev/null 2>&1 && echo read $f; \
         echo x 2>/dev/null > /proc/{pid}/$f && echo wrote $f; done; readlink /proc/{pid}/exe; true"
    );
    assert_eq!(guest.output(&script).await, "1000");
    // The end of its input is its end.
    let first = StdinChunk { exec_id: id, close: true, ..StdinChunk::default() };
    guest.client.clone().write_stdin(tokio_stream::once(first)).await.unwrap();
    while let Some(event) = events.message().await.unwrap() {
        seen.add(event);
    }
    assert_eq!(seen.info().exit_code, Some(0));
}

#[tokio::test]
async fn a_tool_has_the_sandboxs_variables_only_where_it_is_to() {
    let guest = Guest::start().await;
    for environment in [false, true] {
        let tool = Tool { name: "kernels".into(), request: b"{}".to_vec(), environment };
        let mut request = ExecRequest { program: Some(Program::Tool(tool)), stdin: true, ..sh("") };
        request.environment.insert("ASKED".into(), "too".into());
        let id = request.exec_id.clone();
        let events = guest.client.clone().exec(request).await.unwrap().into_inner();
        let (kernel, cell) = (new_id(), new_id());
        let start = json!({ "kernel": kernel, "language": "bash", "default": false,
            "working_directory": "", "variables": {} });
        let execute = json!({ "kernel": kernel, "cell": cell, "code": "echo $SANDBOX $ASKED $USER; id -u",
            "timeout_ms": 60000, "stream": false, "limits": {} });
        let lines = [json!({ "start": start }), json!({ "execute": execute })];
        let lines = lines.map(|ask| json!({ "tag": new_id(), "ask": ask }).to_string() + "\n");
        let chunk = StdinChunk { exec_id: id.clone(), data: lines.concat().into(), close: false };
        guest.client.clone().write_stdin(tokio_stream::once(chunk)).await.unwrap();
        let mut events = events;
        let mut seen = Seen::default();
        // Without a path there is no bash to be found, and so no kernel for the cell.
        let last = if environment { "\"ended\"" } else { "there is no such kernel" };
        while !seen.stdout().contains(last) {
            seen.add(events.message().await.unwrap().unwrap());
        }
        let said = seen.stdout();
        match environment {
            true => assert!(said.contains("\"stdout\":\"yes too user\\n1000\\n\""), "{said}"),
            false => assert!(said.contains("bash is not in this image"), "{said}"),
        }
        let end = StdinChunk { exec_id: id, close: true, ..StdinChunk::default() };
        guest.client.clone().write_stdin(tokio_stream::once(end)).await.unwrap();
        while let Some(event) = events.message().await.unwrap() {
            seen.add(event);
        }
        assert_eq!(seen.info().exit_code, Some(0));
    }
}

#[tokio::test]
async fn kills_for_memory_are_counted_while_a_command_runs() {
    let guest = Guest::start().await;
    guest.set_oom_kills(2);
    let request = sh("sleep 1000");
    let id = request.exec_id.clone();
    guest.client.clone().start_exec(request).await.unwrap();
    let kills = async || guest.client.clone().get_exec(reference(&id)).await.unwrap().into_inner().oom_kills;
    assert_eq!(kills().await, 0);
    guest.set_oom_kills(5);
    assert_eq!(kills().await, 3);
    let ended = guest.client.clone().kill_exec(reference(&id)).await.unwrap().into_inner();
    assert_eq!((ended.oom_kills, ended.oom_killed), (3, false));
}
