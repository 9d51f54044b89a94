//! Whether what an image starts works and is ready: the same for the sandbox of a build, in which it is tried, and for each sandbox of
//! the image. The command and the check are the image's and as hostile as the rest of it: their time and what is kept of their output
//! are bounded.

use crate::{idempotency::derived_id, kill_on_drop::KillOnDrop};
use atoll_provider::{Command, Container, ExecEvent, Program};
use atoll_types::{ContainerId, Error, ErrorCode, ExecId, ExecReport, ImageStart, ReadyCheck, Result};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};

/// The end of a command's output that is kept.
const TAIL: usize = 300;
/// What a check may print; the oldest goes first.
const OUTPUT: u64 = 64 << 10;
/// How much later than its time a check may end.
const GRACE: Duration = Duration::from_secs(5);
/// How long the end of a command's output may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The id of the command that the image starts in a container.
pub(crate) fn start_exec(container: ContainerId) -> ExecId {
    ExecId::from_uuid(derived_id([&b"atoll start"[..], container.uuid().as_bytes()]))
}

/// The id of each try of the ready check in a container. A try is forgotten before the next begins.
pub(crate) fn check_exec(container: ContainerId) -> ExecId {
    ExecId::from_uuid(derived_id([&b"atoll ready check"[..], container.uuid().as_bytes()]))
}

/// Keeps the last bytes.
fn keep_tail(tail: &mut Vec<u8>, data: &[u8]) {
    tail.extend_from_slice(data);
    let old = tail.len().saturating_sub(TAIL);
    tail.drain(..old);
}

/// The end of an output, for the end of an error: a colon and one line, or nothing.
pub(crate) fn shown_tail(tail: &[u8]) -> String {
    let tail = String::from_utf8_lossy(tail);
    let tail: String = tail.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if tail.is_empty() { tail } else { format!(": {tail}") }
}

/// Runs a command to its end, which is forgotten then, and returns the end of its output. Dropped, it kills the command. `observe`
/// gets what it prints.
pub(crate) async fn run_once(
    container: &Arc<dyn Container>,
    id: ExecId,
    command: &Command,
    observe: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<(ExecReport, Vec<u8>)> {
    let mut kill_on_drop = KillOnDrop::new(container, id);
    let mut events = container.guest().exec(id, command).await?;
    let mut tail = Vec::new();
    while let Some(event) = events.next().await? {
        match event {
            ExecEvent::Started(_) => {}
            ExecEvent::Output { data, .. } => {
                observe(&data);
                keep_tail(&mut tail, &data);
            }
            ExecEvent::Ended(report) => {
                kill_on_drop.disarm();
                // Its end is known; without this its output stays longer.
                let _ = container.guest().forget_exec(id).await;
                return Ok((report, tail));
            }
        }
    }
    Err(Error::new(ErrorCode::Unavailable, "the command's output broke off"))
}

/// Why a command that ended did not succeed; none where it did.
fn failure(report: &ExecReport, tail: &[u8]) -> Option<String> {
    let tail = shown_tail(tail);
    if let Some(failure) = &report.failure {
        return Some(format!("could not be started: {}", failure.message));
    }
    match report.exit_code {
        _ if report.timed_out => Some(format!("took too long{tail}")),
        _ if report.oom_killed => Some(format!("needed more memory than there is{tail}")),
        Some(0) => None,
        Some(code) => Some(format!("ended with exit code {code}{tail}")),
        None => Some(format!("was ended by signal {}{tail}", report.signal.unwrap_or_default())),
    }
}

fn failed(what: &str, line: &str, why: &str) -> Error {
    const SHOWN: usize = 200;
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = atoll_types::text::cut(&line, SHOWN);
    Error::new(ErrorCode::ExecFailed, format!("the image's {what} `{line}` {why}")).at("image")
}

/// The end of what a command printed so far.
async fn tail_of(container: &Arc<dyn Container>, report: &ExecReport) -> Vec<u8> {
    let mut tail = Vec::new();
    let from = report.output_bytes.saturating_sub(TAIL as u64);
    let read = async {
        let mut events = container.guest().attach(report.id, from, false).await?;
        while let Some(event) = events.next().await? {
            if let ExecEvent::Output { data, .. } = event {
                keep_tail(&mut tail, &data);
            }
        }
        Ok::<_, Error>(())
    };
    // Without it the error says the rest.
    let _ = timeout(PATIENCE, read).await;
    tail
}

/// Refuses a start command that has failed. One that ended with success may have left a process behind.
pub(crate) async fn check_started(
    container: &Arc<dyn Container>,
    start: &ImageStart,
    exec: ExecId,
) -> Result<()> {
    let report = container.guest().get_exec(exec).await?;
    if !report.ended && report.failure.is_none() {
        return Ok(());
    }
    match failure(&report, &tail_of(container, &report).await) {
        Some(why) => Err(failed("start command", &start.command, &why)),
        None => Ok(()),
    }
}

/// Waits until the check succeeds while the start command `exec` has not failed. `usual` says how its tries are run, but for their
/// line and time.
pub(crate) async fn wait_until_ready(
    container: &Arc<dyn Container>,
    start: &ImageStart,
    check: &ReadyCheck,
    exec: ExecId,
    usual: &Command,
) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(check.timeout_seconds.into());
    let pause = Duration::from_millis(check.interval_ms.into());
    let mut attempt = usual.clone();
    attempt.program = Program::Shell(check.line.clone());
    (attempt.output_limit, attempt.keep_newest) = (Some(OUTPUT), true);
    loop {
        check_started(container, start, exec).await?;
        let left = until.saturating_duration_since(Instant::now()).max(pause);
        attempt.timeout = Some(left);
        let why = match timeout(
            left + GRACE,
            run_once(container, check_exec(container.id()), &attempt, &mut |_| {}),
        )
        .await
        {
            Ok(done) => {
                let (report, tail) = done?;
                let Some(why) = failure(&report, &tail) else { return Ok(()) };
                why
            }
            Err(_) => "did not answer".into(),
        };
        if Instant::now() + pause >= until {
            // The command may have said why.
            check_started(container, start, exec).await?;
            let seconds = check.timeout_seconds;
            let why = format!("did not succeed within {seconds} seconds; the last time it {why}");
            return Err(failed("ready check", &check.line, &why));
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_an_output_is_shown_in_one_line() {
        let mut tail = Vec::new();
        keep_tail(&mut tail, &[b'x'; 1000]);
        keep_tail(&mut tail, b"\nlast\n");
        assert_eq!(tail.len(), TAIL);
        assert!(shown_tail(&tail).starts_with(": xxx") && shown_tail(&tail).ends_with("x last"));
        assert_eq!(shown_tail(b" \n"), "");
        let error = failed("ready check", "a\nb", "ended");
        assert_eq!(error.message, "the image's ready check `a b` ended");
    }
}
