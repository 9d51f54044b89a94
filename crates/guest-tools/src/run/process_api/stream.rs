//! A command that is followed: what it prints as server-sent events. The command waits for a caller that reads slowly.

use super::{
    exec::{Ended, Exec, MOST_SECONDS, Output, Running, TIMED_OUT},
    http::{Connection, Refusal},
};
use atoll_types::{TextDecoder, sse};
use serde_json::{Value, json};
use std::time::Instant;

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\nconnection: close\r\n\r\n";

/// Runs a command and sends what it prints.
pub(super) fn run(exec: &Exec, connection: &mut Connection<'_>) -> Result<(), Refusal> {
    let until = exec.until(MOST_SECONDS)?;
    connection.send(HEAD, until)?;
    let mut decoders: [TextDecoder; 2] = Default::default();
    let caller = connection.stream();
    let ended = Running::start(exec).and_then(|running| {
        running.follow(caller, until, |output, piece| {
            let text = decoders[output as usize].push(piece);
            text.is_empty() || send(connection, &json!({"type": name(output), "data": text}), until)
        })
    });
    for output in [Output::Stdout, Output::Stderr] {
        let rest = decoders[output as usize].finish();
        if !rest.is_empty() {
            send(connection, &json!({"type": name(output), "data": rest}), until);
        }
    }
    let last = match ended {
        Ok(Ended::Code(code)) => json!({"type": "exit", "exit_code": code}),
        Ok(Ended::TimedOut) => json!({"type": "error", "data": TIMED_OUT, "exit_code": -1}),
        Ok(Ended::Abandoned) => return Ok(()),
        Err(why) => json!({"type": "error", "data": why}),
    };
    // The last event has its own time: that of the command may be up.
    send(connection, &last, Instant::now() + super::http::PATIENCE);
    Ok(())
}

fn name(output: Output) -> &'static str {
    match output {
        Output::Stdout => "stdout",
        Output::Stderr => "stderr",
    }
}

/// Whether the caller took an event.
fn send(connection: &mut Connection<'_>, event: &Value, until: Instant) -> bool {
    let mut text = String::new();
    sse::write(&mut text, None, None, |out| out.push_str(&event.to_string()));
    connection.send(text.as_bytes(), until).is_ok()
}
