//! A caller that is waited for, and does not read.

use super::{Server, eventually};
use atoll_core::{Caller, ExecCommand, ExecFollow, ExecMode};
use atoll_types::{ErrorCode, SandboxId};
use serde_json::json;

/// Holds the stream of a lossless command that prints more than may wait.
fn held(server: &Server, path: &str, repeatable: bool) -> ExecFollow {
    let sandbox: SandboxId = path.rsplit('/').next().unwrap().replace('-', "").parse().unwrap();
    let command = ExecCommand {
        command: Some("yes | head -c 8000000; echo end; exit 3".into()),
        lossless: true,
        id: repeatable.then(atoll_types::ExecId::random),
        ..ExecCommand::default()
    };
    server.core(async |core| {
        core.execs.run_streamed(&Caller::local(), sandbox, &command, ExecMode::Streamed).await.unwrap()
    })
}

/// The command of a caller that holds its stream and reads nothing has an end, and its sandbox is no longer active.
#[test]
fn one_that_holds_its_stream_and_does_not_read_keeps_no_command_open() {
    let server = Server::start_with(&["--set", "http.write_timeout_seconds=1"]);
    for repeatable in [false, true] {
        let path = server.create("{}");
        let follow = held(&server, &path, repeatable);
        let rows = || server.get("/api/v1/audit?kind=exec")["entries"].clone();
        eventually("its row", || !rows()[0]["ended"].is_null());
        let ended = rows()[0]["ended"].clone();
        // A command that is tied to its caller is killed with it; the caller of another may come back.
        match repeatable {
            false => assert_eq!(
                (&ended["outcome"], &ended["error"]["code"]),
                (&json!("failed"), &json!("cancelled")),
                "{ended}"
            ),
            true => assert_eq!(ended["exit_code"], 3, "{ended}"),
        }
        let sandbox: SandboxId = path.rsplit('/').next().unwrap().replace('-', "").parse().unwrap();
        eventually("its sandbox at rest", || !server.core(async |core| core.sandboxes.is_active(sandbox)));
        // The caller learns why nothing more comes, after what it was sent.
        let code = server.core(async |_| {
            let mut follow = follow;
            loop {
                match follow.next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(error) => return Some(error.code),
                }
            }
        });
        assert_eq!(code, Some(ErrorCode::Timeout));
    }
}
