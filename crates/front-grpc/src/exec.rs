//! Commands. What they print is text in this protocol, and what one answer carries is bounded by what clients take.

use crate::{status, v1};
use atoll_core::{
    Caller, Core, Dependencies, ExecCommand, ExecFollow, ExecMode, ExecOutcome, ExecUpdate, Installed,
    Language, MAX_TIMEOUT_SECONDS,
};
use atoll_http::Life;
use atoll_types::{Error, ErrorCode, OutputStream, Result, SandboxId, TextDecoder, text::cut};
use futures_util::{Stream, stream};
use std::collections::{BTreeMap, VecDeque};
use tonic::Status;

/// Seconds of a command that names no timeout.
const USUAL_SECONDS: i32 = 30;
/// Seconds that installing packages may take, as far as the key's tier allows.
const INSTALL_SECONDS: u64 = 120;
/// Where commands run that name no directory.
const WORKDIR: &str = "/workspace";
/// Both outputs together: clients take messages of 4 MiB unless they are told otherwise.
const LARGEST_OUTPUT: usize = (4 << 20) - (64 << 10);

/// What a command that did not run to its end answers.
pub(crate) fn not_run(stderr: impl Into<String>, timed_out: bool) -> v1::ExecResponse {
    v1::ExecResponse { exit_code: -1, stdout: String::new(), stderr: stderr.into(), timed_out }
}

const TIMED_OUT: &str = "Command timed out";

fn command(line: String, workdir: String) -> ExecCommand {
    let workdir = if workdir.is_empty() { WORKDIR.to_owned() } else { workdir };
    ExecCommand { command: Some(line), working_directory: Some(workdir), ..ExecCommand::default() }
}

/// Runs a command to its end.
pub(crate) async fn run(
    core: &Core,
    caller: &Caller,
    sandbox: SandboxId,
    request: v1::ExecRequest,
) -> Result<ExecOutcome> {
    let v1::ExecRequest { session_id: _, command: line, timeout, workdir } = request;
    let seconds = if timeout == 0 { USUAL_SECONDS } else { timeout };
    let command = ExecCommand { timeout_seconds: Some(seconds.into()), ..command(line, workdir) };
    core.execs.run(caller, sandbox, &command).await
}

/// The beginning of a text in at most so many bytes, and whether that is not all.
fn shortened(mut text: String, most: usize) -> (String, bool) {
    let kept = cut(&text, most).len();
    let is_cut = kept < text.len();
    text.truncate(kept);
    (text, is_cut)
}

/// The outcome as it is told.
pub(crate) fn rendered(outcome: &ExecOutcome) -> v1::ExecResponse {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&outcome.stdout), text(&outcome.stderr));
    if outcome.report.timed_out {
        let stdout = shortened(stdout, LARGEST_OUTPUT).0;
        return v1::ExecResponse { stdout, ..not_run(TIMED_OUT, true) };
    }
    let all = stdout.len() + stderr.len();
    // Neither crowds the other out.
    let (stderr, cut_stderr) =
        shortened(stderr, LARGEST_OUTPUT.saturating_sub(stdout.len()).max(LARGEST_OUTPUT / 2));
    let (stdout, cut_stdout) = shortened(stdout, LARGEST_OUTPUT - stderr.len());
    let mut told =
        v1::ExecResponse { exit_code: outcome.report.shell_code().get(), stdout, stderr, timed_out: false };
    if cut_stdout || cut_stderr || outcome.truncated {
        let shown = told.stdout.len() + told.stderr.len();
        let printed = (all as u64).max(outcome.report.output_bytes + outcome.report.dropped_bytes);
        told.stderr.push_str(&format!(
            "\n[the output had {printed} bytes, {shown} are shown; ExecStream sends all]\n"
        ));
    }
    told
}

/// The name and the version of a package as pip is told it.
fn package(text: &str) -> (String, String) {
    let at = text.find(['<', '>', '=', '!', '~']).unwrap_or(text.len());
    let plain = |part: &str| part.split_whitespace().collect::<String>();
    let (name, version) = text.split_at(at);
    (plain(name), plain(version))
}

/// Versions by name. What is said twice of one name holds together, as it does where pip reads a list.
fn versions(packages: &[String]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, version) in packages.iter().map(|text| package(text)) {
        let said = all.entry(name).or_default();
        if !said.is_empty() && !version.is_empty() {
            said.push(',');
        }
        said.push_str(&version);
    }
    all
}

/// Installs Python packages.
pub(crate) async fn install(
    core: &Core,
    caller: &Caller,
    sandbox: SandboxId,
    packages: &[String],
) -> Result<v1::ExecResponse> {
    let wanted = Dependencies {
        language: Language::Python,
        packages: versions(packages),
        timeout_seconds: None,
        usual_seconds: Some(INSTALL_SECONDS),
        id: None,
    };
    let Installed { success: _, exit_code, timed_out, stdout, stderr, redactor: _ } =
        core.kernels.install(caller, sandbox, &wanted).await?;
    if timed_out {
        return Ok(v1::ExecResponse { stdout, ..not_run(TIMED_OUT, true) });
    }
    Ok(v1::ExecResponse { exit_code: exit_code.get(), stdout, stderr, timed_out })
}

fn event(kind: &str, data: String) -> v1::ExecStreamResponse {
    v1::ExecStreamResponse { r#type: kind.to_owned(), data, exit_code: None }
}

/// The only event of a stream that cannot begin, or its last.
pub(crate) fn failed(message: impl Into<String>) -> v1::ExecStreamResponse {
    event("error", message.into())
}

/// A command that is followed. Dropped before its end, the command is killed.
struct Events {
    follow: ExecFollow,
    decoders: [TextDecoder; 2],
    /// Made and not yet sent.
    ready: VecDeque<v1::ExecStreamResponse>,
    life: Option<Life>,
    done: bool,
}

impl Events {
    /// What both decoders still hold.
    fn flush(&mut self) {
        for (kind, decoder) in ["stdout", "stderr"].into_iter().zip(&mut self.decoders) {
            let rest = decoder.finish();
            if !rest.is_empty() {
                self.ready.push_back(event(kind, rest));
            }
        }
    }

    fn take(&mut self, update: Option<ExecUpdate>) {
        match update {
            Some(ExecUpdate::Output { stream, data, .. }) => {
                let (kind, decoder) = match stream {
                    OutputStream::Stdout => ("stdout", &mut self.decoders[0]),
                    OutputStream::Stderr => ("stderr", &mut self.decoders[1]),
                };
                let text = decoder.push(&data);
                if !text.is_empty() {
                    self.ready.push_back(event(kind, text));
                }
            }
            Some(ExecUpdate::Ended { report, .. }) => {
                self.flush();
                self.done = true;
                let last = match report.timed_out {
                    true => failed(TIMED_OUT),
                    false => event("exit", String::new()),
                };
                let code = if report.timed_out { -1 } else { report.shell_code().get() };
                self.ready.push_back(v1::ExecStreamResponse { exit_code: Some(code), ..last });
            }
            None => {
                self.done = true;
                self.ready.push_back(failed("the command's output broke off"));
            }
        }
    }

    async fn next(&mut self) -> Option<Result<v1::ExecStreamResponse, Status>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.done {
                return None;
            }
            let ending = async {
                match &self.life {
                    Some(life) => life.ending().await,
                    None => std::future::pending().await,
                }
            };
            let update = tokio::select! {
                update = self.follow.next() => update,
                () = ending => {
                    // The command goes on: it is the server that ends, and not the caller.
                    self.follow.detach();
                    self.done = true;
                    return Some(Err(Status::unavailable("the server ends; the command goes on")));
                }
            };
            match update {
                Ok(update) => self.take(update),
                Err(error) if status::is_about_session(&error) => {
                    self.done = true;
                    self.flush();
                    self.ready.push_back(failed(error.message));
                }
                Err(error) => {
                    self.done = true;
                    return Some(Err(status::of(&error)));
                }
            }
        }
    }
}

/// Starts a command and follows it. The protocol names no timeout for it, so it has the longest that its caller's tier allows. It waits for its reader: none of its output is lost.
pub(crate) async fn stream(
    core: &Core,
    caller: &Caller,
    sandbox: SandboxId,
    request: v1::ExecStreamRequest,
    life: Option<Life>,
) -> Result<impl Stream<Item = Result<v1::ExecStreamResponse, Status>> + Send + 'static> {
    let v1::ExecStreamRequest { session_id: _, command: line, workdir } = request;
    let usual_seconds = Some(MAX_TIMEOUT_SECONDS);
    let command = ExecCommand { lossless: true, usual_seconds, ..command(line, workdir) };
    let follow = core.execs.run_streamed(caller, sandbox, &command, ExecMode::Streamed).await?;
    let events = Events { follow, decoders: Default::default(), ready: VecDeque::new(), life, done: false };
    Ok(stream::unfold(events, |mut events| async { Some((events.next().await?, events)) }))
}

/// Whether the answer of a command tells the error, and not the call's status: the command could not be started, or its
/// session is not running.
pub(crate) fn is_told(error: &Error) -> bool {
    matches!(
        error.code,
        ErrorCode::ExecFailed | ErrorCode::NotRunning | ErrorCode::ContainerDied | ErrorCode::RolledBack
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(shortened("aé".into(), 3), ("aé".into(), false));
        assert_eq!(shortened("aé".into(), 2), ("a".into(), true));
    }

    #[test]
    fn packages_have_names_and_versions() {
        let of = |text: &str| package(text);
        let pair = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        assert_eq!(of("requests"), pair("requests", ""));
        assert_eq!(of("requests==2.32.3"), pair("requests", "==2.32.3"));
        assert_eq!(of("odd === 1.0-x"), pair("odd", "===1.0-x"));
        assert_eq!(of("requests >= 2, < 3"), pair("requests", ">=2,<3"));
        assert_eq!(of("uvicorn [standard] ~= 0.30"), pair("uvicorn[standard]", "~=0.30"));
        assert_eq!(of("--index-url=x"), pair("--index-url", "=x"), "the core refuses the name");
    }

    #[test]
    fn all_that_is_said_of_a_package_holds() {
        let all = ["x>=2", "y", "x < 3", "y", "x", "y==1"].map(str::to_owned);
        let found: Vec<_> = versions(&all).into_iter().collect();
        let pair = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        assert_eq!(found, [pair("x", ">=2,<3"), pair("y", "==1")]);
    }
}
