//! The process API: commands and files of the sandbox's user by HTTP on the sandbox's own loopback, as the reference
//! system of gRPC has it. PID 1 starts it as it starts any command of the user, so a caller can do nothing through it
//! that its own code could not; it is no boundary. Its connections, what they send and how long they may last are
//! bounded, so that a caller that misbehaves costs the sandbox little.
//!
//! A connection carries one request. What a web page sends is refused, because a page that a browser inside shows
//! may come from anywhere.

mod exec;
mod files;
mod http;
mod stream;
#[cfg(test)]
mod tests;

use crate::{PROCESS_API_PORT, ProcessApi};
use atoll_types::{Error, ErrorCode, Result};
use http::{Connection, Refusal, Request};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{
    io::Write,
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Connections at a time, and so commands.
const MOST_CONNECTIONS: usize = 16;
/// What a thread of a connection needs is far less than the default of 2 MiB.
const STACK: usize = 512 << 10;
/// Before connections are taken again when the process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until the process ends. One line on stdout says that connections are taken.
pub(super) fn run(_: &ProcessApi) -> Result<()> {
    let taken = |e: std::io::Error| {
        let message = format!("port {PROCESS_API_PORT} of the sandbox cannot be listened on: {e}");
        Error::new(ErrorCode::Unavailable, message)
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROCESS_API_PORT)).map_err(taken)?;
    let _ = writeln!(std::io::stdout(), "listening");
    serve(&listener)
}

fn serve(listener: &TcpListener) -> Result<()> {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        let place = OpenConnection::take(&open);
        if place.0.load(Ordering::Relaxed) > MOST_CONNECTIONS {
            // The answer fits the socket's buffer, so that nothing is waited for here.
            let busy = json!({"error": format!("at most {MOST_CONNECTIONS} requests run at a time")});
            Connection::new(&stream).answer(503, &busy);
            continue;
        }
        // Where the sandbox has no process left the connection is closed.
        let _ = thread::Builder::new().stack_size(STACK).spawn(move || {
            let _place = place;
            converse(&stream);
        });
    }
}

/// A connection that counts as open.
struct OpenConnection(Arc<AtomicUsize>);

impl OpenConnection {
    fn take(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads the request of a connection and answers it.
fn converse(stream: &TcpStream) {
    let mut connection = Connection::new(stream);
    let answered = connection.request().and_then(|request| answer(&mut connection, &request));
    if let Err(refusal) = answered {
        connection.refuse(&refusal);
    }
}

fn answer(connection: &mut Connection<'_>, request: &Request) -> std::result::Result<(), Refusal> {
    let known = match request.path.as_str() {
        "/health" => "GET",
        "/exec" | "/exec/stream" | "/file/write" | "/file/read" => "POST",
        _ => return Err(Refusal::status(404, "there is no such path")),
    };
    if request.method != known {
        return Err(Refusal::status(405, format!("{} takes {known}", request.path)));
    }
    let told = match request.path.as_str() {
        "/health" => json!({"status": "ok"}),
        "/exec" => match exec::run(&body(request)?, connection.stream())? {
            Some(told) => told,
            // The caller went away, and its command was killed.
            None => return Ok(()),
        },
        "/exec/stream" => return stream::run(&body(request)?, connection),
        "/file/write" => file_answer(files::write(&body(request)?).map(|()| json!({"success": true}))),
        _ => file_answer(
            files::read(&body(request)?).map(|content| json!({"success": true, "content": content})),
        ),
    };
    connection.answer(200, &told);
    Ok(())
}

/// What happened to a file.
fn file_answer(outcome: std::result::Result<Value, String>) -> Value {
    outcome.unwrap_or_else(|error| json!({"success": false, "error": error}))
}

fn body<T: DeserializeOwned>(request: &Request) -> std::result::Result<T, Refusal> {
    serde_json::from_slice(&request.body)
        .map_err(|e| Refusal::status(400, format!("the request is not as it should be: {e}")))
}
