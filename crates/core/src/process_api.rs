//! The process API of a sandbox: a tool of PID 1's that serves HTTP on the sandbox's loopback, as the sandbox's user and
//! with its variables. It is started with every container of a sandbox that has the operator's label, before the
//! sandbox counts as running, and ends with the container. It is no command of the user's: no listing shows it, nothing
//! is written about it, and it keeps no sandbox awake.

use crate::idempotency::derived_id;
use atoll_provider::{Command, Container, ExecEvent};
use atoll_store::SandboxRecord;
use atoll_types::{ContainerId, Error, ErrorCode, ExecId, Result};
use std::{sync::Arc, time::Duration};

/// How long it may take until it listens.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of its output that PID 1 keeps: the line that says that it listens, or why it does not.
const OUTPUT: u64 = 4096;

/// Its id among the commands of its container: the same for every server.
fn process_api_exec(container: ContainerId) -> ExecId {
    ExecId::from_uuid(derived_id([&b"atoll process api"[..], container.uuid().as_bytes()]))
}

/// Starts the process API of a sandbox that has the label, unless it runs.
pub(crate) async fn start(
    label: Option<&str>,
    record: &SandboxRecord,
    container: &Arc<dyn Container>,
) -> Result<()> {
    if !label.is_some_and(|label| record.labels.contains_key(label)) {
        return Ok(());
    }
    let late = |_| Error::new(ErrorCode::Timeout, "the process API does not start");
    tokio::time::timeout(PATIENCE, listening(container)).await.map_err(late)?
}

async fn listening(container: &Arc<dyn Container>) -> Result<()> {
    let (guest, exec) = (container.guest(), process_api_exec(container.id()));
    // A rollback ended the one before.
    if guest.get_exec(exec).await.is_ok_and(|report| report.ended) {
        guest.forget_exec(exec).await?;
    }
    let mut command = Command::tool("process-api", b"{}".to_vec()).environment_of_sandbox();
    command.output_limit = Some(OUTPUT);
    let mut events = guest.exec(exec, &command).await?;
    let mut failed = String::from("it ended");
    while let Some(event) = events.next().await? {
        match event {
            ExecEvent::Started(_) => {}
            ExecEvent::Output { stream: atoll_provider::OutputStream::Stdout, .. } => return Ok(()),
            ExecEvent::Output { data, .. } => failed = String::from_utf8_lossy(&data).into_owned(),
            ExecEvent::Ended(report) => {
                failed = report.failure.map_or(failed, |failure| failure.message);
                break;
            }
        }
    }
    Err(Error::new(ErrorCode::ExecFailed, format!("the process API cannot be started: {failed}")))
}
