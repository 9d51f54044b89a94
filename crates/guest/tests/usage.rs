//! What a command used, with everything that it started.

use crate::support::*;
use atoll_guest_proto::v1::{ExecInfo, ExecRequest};

/// Burns processor time until its own clock says so, then does what follows.
fn burn(then: &str) -> String {
    format!("import time\nwhile time.process_time() < 0.3: pass\n{then}")
}

async fn info(guest: &Guest, id: &str) -> ExecInfo {
    guest.client.clone().get_exec(reference(id)).await.unwrap().into_inner()
}

#[tokio::test]
async fn orphans_count_when_they_have_ended() {
    let guest = Guest::start().await;
    std::fs::write(guest.path("/workspace/burn.py"), burn("x = bytearray(80 << 20)\nopen('done', 'w')"))
        .unwrap();
    let script = "(setsid python3 burn.py >/dev/null 2>&1 &) ; exit 3";
    let request = sh(script);
    let id = request.exec_id.clone();
    let seen = guest.run(request).await;
    assert_eq!(seen.info().exit_code, Some(3));
    eventually("the orphan's end", async || !info(&guest, &id).await.descendants_alive).await;
    let info = info(&guest, &id).await;
    assert!(info.cpu_user_us + info.cpu_system_us >= 250_000, "{info:?}");
    assert!(info.max_rss_bytes >= 80 << 20, "{info:?}");
}

#[tokio::test]
async fn running_commands_say_what_they_used_until_now() {
    let guest = Guest::as_pid_1(config()).await;
    let script = burn("x = bytearray(60 << 20)\nprint('up', flush=True)\ninput()");
    std::fs::write(guest.path("/workspace/burn.py"), script).unwrap();
    // Below a shell, and in another session.
    let request = ExecRequest { stdin: true, ..sh("setsid -w python3 burn.py; true") };
    let idle = ExecRequest { stdin: true, ..sh("read x") };
    let (id, idle_id) = (request.exec_id.clone(), idle.exec_id.clone());
    guest.client.clone().start_exec(idle).await.unwrap();
    guest.client.clone().start_exec(request).await.unwrap();
    eventually("it is up", async || info(&guest, &id).await.output_bytes == 3).await;
    let all = guest.client.clone().list_execs(atoll_guest_proto::v1::ListExecsRequest {}).await.unwrap();
    let all = all.into_inner().execs;
    let found = |id: &str| all.iter().find(|info| info.exec_id == id).unwrap().clone();
    let (busy, quiet) = (found(&id), found(&idle_id));
    assert!(busy.cpu_user_us + busy.cpu_system_us >= 250_000, "{busy:?}");
    assert!(busy.max_rss_bytes >= 60 << 20, "{busy:?}");
    assert!(quiet.cpu_user_us + quiet.cpu_system_us < 250_000 && quiet.max_rss_bytes < 60 << 20, "{quiet:?}");
    crate::stdin::write(&guest, &id, &[b"\n"], true).await;
    let seen = guest.attach(&id, 0, true).await;
    assert!(seen.info().cpu_user_us + seen.info().cpu_system_us >= 250_000, "{seen:?}");
}
