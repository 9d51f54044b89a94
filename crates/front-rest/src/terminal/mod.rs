//! Terminals, over a WebSocket. An error before the upgrade is an ordinary answer; the console, which as a page is not
//! shown that answer, is told over the socket. A page of another origin gets no terminal, whatever key it holds.

mod frames;
mod session;

use crate::{
    App,
    parse::{Params, sandbox_id},
};
use atoll_core::{Caller, Terminal, TerminalRequest};
use atoll_http::{Access, BrowserSession, Failure, Life, RequestOrigin, SocketWho};
use atoll_types::{Error, ErrorCode, ExecId, SandboxId, TerminalSize};
use axum::{
    extract::{
        FromRequestParts, Path, State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::{HeaderMap, request::Parts},
    response::Response,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use session::Outside;
use std::{collections::BTreeMap, convert::Infallible};
use utoipa::IntoParams;

/// The one protocol that is ever answered; a key that was offered beside it is not.
const PROTOCOL: &str = "atoll.terminal.v1";
/// What is read of a message at most. One that is a little too large is read, so that the answer to it
/// arrives.
const LARGEST_READ: usize = 2 * session::LARGEST_MESSAGE;
const USUAL: TerminalSize = TerminalSize { rows: 24, columns: 80 };

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TerminalParams {
    /// Lines of the terminal, 1 to 10000; 24 if not given.
    rows: Option<u16>,
    /// Characters in a line, 1 to 10000; 80 if not given.
    cols: Option<u16>,
    /// A line for the shell instead of the image's login shell.
    command: Option<String>,
    /// Where it starts: absolute, or relative to /workspace.
    cwd: Option<String>,
    /// Who runs it: a name, UID or UID:GID.
    user: Option<String>,
    /// The terminal to attach to, instead of opening one.
    exec_id: Option<String>,
    /// With `exec_id`: the offset of the first byte of output wanted; the oldest kept if not given.
    from: Option<u64>,
}

/// What may be long or hold secrets, and so is in no address: the header `Atoll-Terminal`, JSON in Base64.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TerminalOpening {
    /// A line for the shell instead of the image's login shell.
    command: Option<String>,
    /// Variables on top of the sandbox's own.
    env_vars: BTreeMap<String, String>,
}

/// The header's name.
const OPENING: &str = "atoll-terminal";

impl TerminalOpening {
    fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        let Some(value) = headers.get(OPENING) else { return Ok(Self::default()) };
        let decoded = STANDARD.decode(value.as_bytes()).ok();
        let read = decoded.and_then(|json| serde_json::from_slice(&json).ok());
        let wrong = || {
            let message = "expected Base64 of a JSON object with command and env_vars";
            Failure::in_header(Error::invalid("Atoll-Terminal", message))
        };
        read.ok_or_else(wrong)
    }
}

/// What a client says of the terminal that it wants.
pub(crate) struct TerminalQuestion {
    params: TerminalParams,
    opening: TerminalOpening,
}

impl<S: Send + Sync> FromRequestParts<S> for TerminalQuestion {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Params(params) = Params::from_request_parts(parts, state).await?;
        Ok(Self { params, opening: TerminalOpening::of(&parts.headers)? })
    }
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Open(TerminalRequest),
    Attach { exec: ExecId, from: Option<u64>, size: Option<TerminalSize> },
}

impl TerminalParams {
    fn read(self, opening: TerminalOpening) -> Result<Wanted, Error> {
        let Self { rows, cols, command, cwd, user, exec_id, from } = self;
        let size = TerminalSize { rows: rows.unwrap_or(USUAL.rows), columns: cols.unwrap_or(USUAL.columns) };
        let Some(exec_id) = exec_id else {
            if from.is_some() {
                return Err(Error::invalid("from", "from goes with exec_id"));
            }
            let TerminalOpening { command: long, env_vars } = opening;
            if long.is_some() && command.is_some() {
                return Err(Error::invalid("command", "command is in the header too; give one"));
            }
            return Ok(Wanted::Open(TerminalRequest {
                command: long.or(command),
                working_directory: cwd,
                env_vars,
                user,
                size,
            }));
        };
        let command = opening.command.or(command);
        let opening = [("command", &command), ("cwd", &cwd), ("user", &user)];
        if let Some((field, _)) = opening.iter().find(|(_, value)| value.is_some()) {
            return Err(Error::invalid(
                *field,
                format!("{field} is for a new terminal, and not with exec_id"),
            ));
        }
        if rows.is_some() != cols.is_some() {
            return Err(Error::invalid("cols", "give rows and cols, or neither"));
        }
        let exec =
            exec_id.parse().map_err(|e: atoll_types::IdError| Error::invalid("exec_id", e.to_string()))?;
        Ok(Wanted::Attach { exec, from, size: rows.map(|_| size) })
    }
}

/// Opens a terminal, or attaches to one that is there. Speaks WebSocket: the server first sends the text
/// `{"type":"ready","exec_id":…,"offset":…}`, then output in binary messages, `{"type":"dropped",
/// "bytes":…}` where some is not kept any more, and at the end `{"type":"exit","exit_code":…,
/// "signal":…}`. The client sends input in binary messages, or as text `{"type":"input","data":…}`,
/// `{"type":"resize","rows":…,"cols":…}`, `{"type":"signal","signal":"INT"}`, `{"type":"eof"}` and
/// `{"type":"kill"}`. Going away leaves the terminal running. A browser, which cannot send a header,
/// offers the protocols `atoll.terminal.v1, atoll.key.<key>`. The header `Atoll-Terminal` may have
/// `{"command":…,"env_vars":{…}}`, JSON in Base64: what is long or secret belongs into no address.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/terminal", tag = "exec",
    params(("id" = uuid::Uuid, Path), TerminalParams),
    responses((status = 101, description = "A WebSocket from here on"), (status = 403), (status = 404),
        (status = 409, description = "Not running, or a command without a terminal"),
        (status = 422, description = "A field is wrong"), (status = 426, description = "Not a WebSocket")))]
pub(crate) async fn terminal(
    State(app): State<App>,
    SocketWho(caller): SocketWho,
    Path(id): Path<String>,
    question: TerminalQuestion,
    outside: Outside,
    asked: RequestOrigin,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    if app.http.access == Access::Keys && !asked.is_own_page() {
        let message = "a page of another origin may not open a terminal";
        return Err(Error::new(ErrorCode::PermissionDenied, message).into());
    }
    let wanted = wanted(&id, question);
    let upgrade = match upgrade {
        Ok(upgrade) => {
            upgrade.protocols([PROTOCOL]).max_message_size(LARGEST_READ).max_frame_size(LARGEST_READ)
        }
        Err(e) => return Err(wanted.err().unwrap_or_else(|| Failure::no_socket(e.body_text()))),
    };
    let new = matches!(wanted, Ok((_, Wanted::Open(_))));
    let reached = match wanted {
        Ok((sandbox, wanted)) => reach(&app, &caller, sandbox, wanted).await.map_err(in_query),
        Err(failure) => Err(failure),
    };
    let is_console = outside.browser.is_some() || (app.http.access == Access::Open && asked.names_own_page());
    let terminal = match reached {
        Ok(terminal) => terminal,
        Err(failure) if is_console => {
            let error = failure.error().clone();
            return Ok(upgrade.on_upgrade(move |socket| session::refuse(socket, error)));
        }
        Err(failure) => return Err(failure),
    };
    let keyboard = terminal.keyboard.clone();
    let upgrade = upgrade.on_failed_upgrade(move |error| {
        tracing::debug!(%error, "a terminal's client went away before it began");
        if new {
            // No client knows its id.
            tokio::spawn(async move { keyboard.kill().await });
        }
    });
    Ok(upgrade.on_upgrade(move |socket| session::run(socket, terminal, outside)))
}

/// The sandbox that is asked for, and what is wanted there.
fn wanted(id: &str, question: TerminalQuestion) -> Result<(SandboxId, Wanted), Failure> {
    let TerminalQuestion { params, opening } = question;
    Ok((sandbox_id(id)?, params.read(opening).map_err(Failure::in_query)?))
}

impl<S: Send + Sync> FromRequestParts<S> for Outside {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            life: parts.extensions.get::<Life>().cloned(),
            browser: parts.extensions.get::<BrowserSession>().cloned(),
        })
    }
}

async fn reach(app: &App, caller: &Caller, sandbox: SandboxId, wanted: Wanted) -> Result<Terminal, Error> {
    match wanted {
        Wanted::Open(request) => app.core.execs.open_terminal(caller, sandbox, request).await,
        Wanted::Attach { exec, from, size } => {
            let terminal = app.core.execs.attach_terminal(caller, sandbox, exec, from).await?;
            match size {
                Some(size) if !terminal.report.ended => match terminal.keyboard.resize(size).await {
                    // It ended just now; its end is sent as any other.
                    Err(error) if error.code == ErrorCode::Conflict => {}
                    other => other?,
                },
                _ => {}
            }
            Ok(terminal)
        }
    }
}

/// The core's names of fields are those of a body.
fn in_query(mut error: Error) -> Failure {
    if error.field.as_deref() == Some("working_directory") {
        error.field = Some("cwd".into());
    }
    Failure::in_query(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;

    #[test]
    fn opening_and_attaching_are_told_apart() {
        let some = |text: &str| Some(text.to_owned());
        let id = "0".repeat(32);
        let attach = || TerminalParams { exec_id: Some(id.clone()), ..TerminalParams::default() };
        assert!(
            matches!(TerminalParams::default().read(TerminalOpening::default()).unwrap(), Wanted::Open(r) if r.size == USUAL)
        );
        let exec = id.parse().unwrap();
        assert_eq!(
            attach().read(TerminalOpening::default()).unwrap(),
            Wanted::Attach { exec, from: None, size: None }
        );
        for (params, field) in [
            (TerminalParams { from: Some(1), ..TerminalParams::default() }, "from"),
            (TerminalParams { command: some("x"), ..attach() }, "command"),
            (TerminalParams { user: some("x"), ..attach() }, "user"),
            (TerminalParams { rows: Some(3), ..attach() }, "cols"),
            (TerminalParams { exec_id: some("x"), ..TerminalParams::default() }, "exec_id"),
        ] {
            assert_eq!(params.read(TerminalOpening::default()).unwrap_err().field.as_deref(), Some(field));
        }
        let long = || TerminalOpening { command: some("x"), ..TerminalOpening::default() };
        assert!(
            matches!(TerminalParams::default().read(long()).unwrap(), Wanted::Open(r) if r.command == some("x"))
        );
        for params in [attach(), TerminalParams { command: some("y"), ..TerminalParams::default() }] {
            assert_eq!(params.read(long()).unwrap_err().field.as_deref(), Some("command"));
        }
    }

    #[test]
    fn what_is_in_no_address_is_in_a_header() {
        let of = |value: &str| {
            let header = (HeaderName::from_static(OPENING), value.parse().unwrap());
            TerminalOpening::of(&HeaderMap::from_iter([header]))
        };
        let opening = of(&STANDARD.encode(r#"{"env_vars":{"A":"b"}}"#)).unwrap();
        assert!(opening.env_vars["A"] == "b" && opening.command.is_none());
        for wrong in ["", "x", &STANDARD.encode("7"), &STANDARD.encode(r#"{"env":{}}"#)] {
            let refused = of(wrong).unwrap_err();
            assert_eq!(refused.error().field.as_deref(), Some("Atoll-Terminal"), "{wrong}");
        }
    }
}
