//! Terminals, over a WebSocket. An error before the upgrade is an ordinary answer; a page of another origin
//! gets no terminal, whatever key it holds.

mod frames;
mod session;

use crate::{
    App,
    parse::{Params, sandbox_id},
};
use atoll_core::{Caller, Terminal, TerminalRequest};
use atoll_http::{Access, Failure, Life, RequestOrigin, SocketWho};
use atoll_types::{Error, ErrorCode, ExecId, SandboxId, TerminalSize};
use axum::{
    Extension,
    extract::{
        Path, State,
        ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};
use serde::Deserialize;
use std::collections::BTreeMap;
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

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Open(TerminalRequest),
    Attach { exec: ExecId, from: Option<u64>, size: Option<TerminalSize> },
}

impl TerminalParams {
    fn read(self) -> Result<Wanted, Error> {
        let Self { rows, cols, command, cwd, user, exec_id, from } = self;
        let size = TerminalSize { rows: rows.unwrap_or(USUAL.rows), columns: cols.unwrap_or(USUAL.columns) };
        let Some(exec_id) = exec_id else {
            if from.is_some() {
                return Err(Error::invalid("from", "from goes with exec_id"));
            }
            let env_vars = BTreeMap::new();
            return Ok(Wanted::Open(TerminalRequest {
                command,
                working_directory: cwd,
                env_vars,
                user,
                size,
            }));
        };
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
/// offers the protocols `atoll.terminal.v1, atoll.key.<key>`.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/terminal", tag = "exec",
    params(("id" = uuid::Uuid, Path), TerminalParams),
    responses((status = 101, description = "A WebSocket from here on"), (status = 403), (status = 404),
        (status = 409, description = "Not running, or a command without a terminal"),
        (status = 422, description = "A field is wrong"), (status = 426, description = "Not a WebSocket")))]
pub(crate) async fn terminal(
    State(app): State<App>,
    SocketWho(caller): SocketWho,
    Path(id): Path<String>,
    Params(params): Params<TerminalParams>,
    life: Option<Extension<Life>>,
    asked: RequestOrigin,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    if app.http.access == Access::Keys && !asked.is_own_page() {
        let message = "a page of another origin may not open a terminal";
        return Err(Error::new(ErrorCode::PermissionDenied, message).into());
    }
    let sandbox = sandbox_id(&id)?;
    let wanted = params.read().map_err(Failure::in_query)?;
    let upgrade = upgrade.map_err(|e| Failure::no_socket(e.body_text()))?;
    let new = matches!(wanted, Wanted::Open(_));
    let terminal = reach(&app, &caller, sandbox, wanted).await.map_err(in_query)?;
    let keyboard = terminal.keyboard.clone();
    let life = life.map(|Extension(life)| life);
    let upgrade = upgrade.protocols([PROTOCOL]).max_message_size(LARGEST_READ).max_frame_size(LARGEST_READ);
    let upgrade = upgrade.on_failed_upgrade(move |error| {
        tracing::debug!(%error, "a terminal's client went away before it began");
        if new {
            // No client knows its id.
            tokio::spawn(async move { keyboard.kill().await });
        }
    });
    Ok(upgrade.on_upgrade(move |socket| session::run(socket, terminal, life)))
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

    #[test]
    fn opening_and_attaching_are_told_apart() {
        let some = |text: &str| Some(text.to_owned());
        let id = "0".repeat(32);
        let attach = || TerminalParams { exec_id: Some(id.clone()), ..TerminalParams::default() };
        assert!(matches!(TerminalParams::default().read().unwrap(), Wanted::Open(r) if r.size == USUAL));
        let exec = id.parse().unwrap();
        assert_eq!(attach().read().unwrap(), Wanted::Attach { exec, from: None, size: None });
        for (params, field) in [
            (TerminalParams { from: Some(1), ..TerminalParams::default() }, "from"),
            (TerminalParams { command: some("x"), ..attach() }, "command"),
            (TerminalParams { user: some("x"), ..attach() }, "user"),
            (TerminalParams { rows: Some(3), ..attach() }, "cols"),
            (TerminalParams { exec_id: some("x"), ..TerminalParams::default() }, "exec_id"),
        ] {
            assert_eq!(params.read().unwrap_err().field.as_deref(), Some(field));
        }
    }
}
