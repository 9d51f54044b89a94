//! `atoll ps` and `atoll kill`.

use crate::{
    Failure,
    args::{Kill, Ps},
    resolve, table, terminal, when,
};
use atoll_client::Exec;

fn rendered(execs: &[Exec]) -> String {
    let rows: Vec<[String; 8]> = execs
        .iter()
        .map(|exec| {
            [
                resolve::short(exec.exec_id),
                exec.status.clone(),
                exec.exit_code.map(|code| code.to_string()).unwrap_or_default(),
                when::since(&exec.started_at),
                format!("{}ms", exec.cpu_user_ms.saturating_add(exec.cpu_system_ms)),
                format!("{}m", exec.peak_memory_bytes >> 20),
                exec.output_bytes.to_string(),
                exec.command.clone(),
            ]
        })
        .collect();
    table::render(["EXEC", "STATUS", "EXIT", "STARTED", "CPU", "MEMORY", "OUTPUT", "COMMAND"], &rows)
}

pub(crate) async fn list(options: Ps) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let id = resolve::sandbox(&client, &options.id).await?;
    let execs = client.execs(id).await.map_err(|e| Failure::from(e).about(&options.id))?;
    if options.server.json {
        terminal::print_json(&execs.json)?;
    } else {
        terminal::print(&rendered(&execs))?;
    }
    Ok(0)
}

pub(crate) async fn kill(options: Kill) -> Result<u8, Failure> {
    let Kill { id: typed, exec, signal, server } = options;
    let client = server.client()?;
    let id = resolve::sandbox(&client, &typed).await?;
    let about = |failure: Failure| failure.about(&typed);
    let exec = resolve::exec(&client, id, &exec).await.map_err(about)?;
    let reply = match &signal {
        Some(signal) => client.exec_signal(id, exec, signal).await.map(|()| None),
        None => client.exec_kill(id, exec).await.map(Some),
    };
    match (reply.map_err(|e| about(e.into()))?, server.json) {
        (Some(reply), true) => terminal::print_json(&reply.json)?,
        // The server's response to a signal is empty.
        (None, true) => {}
        (_, false) => terminal::print(&format!("{}\n", resolve::short(exec)))?,
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_command() {
        let execs: Vec<Exec> = serde_json::from_value(serde_json::json!([
            { "exec_id": "3f2a11bc000040008000000000000001", "status": "running", "started_at": "then",
              "command": "make\n all", "cpu_user_ms": 1200, "cpu_system_ms": 34, "peak_memory_bytes": 5 << 20,
              "output_bytes": 77 },
            { "exec_id": "00112233000040008000000000000001", "status": "ended", "exit_code": 137,
              "started_at": "then", "command": "x\u{1b}[2J" },
        ]))
        .unwrap();
        insta::assert_snapshot!(rendered(&execs), @r"
        EXEC      STATUS   EXIT  STARTED  CPU     MEMORY  OUTPUT  COMMAND
        3f2a11bc  running  -     then     1234ms  5m      77      make\n all
        00112233  ended    137   then     0ms     0m      0       x\u{1b}[2J
        ");
    }
}
