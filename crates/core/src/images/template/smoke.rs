//! The last stage of a build: what sandboxes of the image will start is tried in the sandbox of the build, as an ordinary user, and has to
//! become ready there. An image in which that fails is not recorded.

use super::installed::ordinary;
use crate::{
    images::build_log::BuildLog,
    kill_on_drop::KillOnDrop,
    start_check::{check_started, wait_until_ready},
};
use atoll_provider::{Command, Container, ExecEvent};
use atoll_types::{ExecId, ImageConfig, ImageStart, Result};
use std::{sync::Arc, time::Duration};

/// How long a start command without a check must not fail.
const SETTLING: Duration = Duration::from_secs(2);

/// A line as a sandbox of the image would run it.
fn of_sandbox(line: &str, config: &ImageConfig) -> Command {
    let mut command = ordinary(line);
    (command.timeout, command.keep_newest) = (None, true);
    command.environment.extend(config.environment.clone());
    if let Some(directory) = &config.working_directory {
        command.working_directory.clone_from(directory);
    }
    if let Some((uid, gid)) = config.ids {
        command.user = format!("{uid}:{gid}");
    }
    command
}

/// Starts what sandboxes of the image start, waits until it is ready, and ends it. Its output goes to the log.
pub(super) async fn try_start(
    container: &Arc<dyn Container>,
    log: &BuildLog,
    config: &ImageConfig,
) -> Result<()> {
    let Some(start) = config.start() else { return Ok(()) };
    log.line(format!("start command: {}", start.command));
    let exec = ExecId::random();
    let kill_on_drop = KillOnDrop::new(container, exec);
    container.guest().start(exec, &of_sandbox(&start.command, config)).await?;
    let tried = ready(container, log, config, &start, exec).await;
    container.guest().kill(exec).await?;
    drop(kill_on_drop);
    let mut events = container.guest().attach(exec, 0, false).await?;
    while let Some(event) = events.next().await? {
        if let ExecEvent::Output { data, .. } = event {
            log.write(&data);
        }
    }
    tried
}

async fn ready(
    container: &Arc<dyn Container>,
    log: &BuildLog,
    config: &ImageConfig,
    start: &ImageStart,
    exec: ExecId,
) -> Result<()> {
    match &start.ready {
        Some(check) => {
            log.line(format!("ready check: {}", check.line));
            wait_until_ready(container, start, check, exec, &of_sandbox("", config)).await
        }
        None => {
            tokio::time::sleep(SETTLING).await;
            check_started(container, start, exec).await
        }
    }
}
