//! `atoll exec`: the command's output passes through as it is, and its exit code becomes ours.

use crate::{
    Failure,
    args::Exec,
    pairs,
    print::{Printer, Step},
    resolve, terminal,
};
use atoll_client::{Client, ExecRequest, ExecResult, Uuid};
use std::io::{self, Read, Write};

/// What the server takes in one request, less room for the rest of it.
const LARGEST_STDIN: u64 = (4 << 20) - (64 << 10);

/// What a shell shows for a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

fn stdin() -> Result<String, Failure> {
    let mut text = Vec::new();
    let read = io::stdin().lock().take(LARGEST_STDIN + 1).read_to_end(&mut text);
    read.map_err(|e| Failure::file("standard input".as_ref(), &e))?;
    let text = String::from_utf8(text).map_err(|_| {
        Failure::usage(
            "stdin",
            "standard input is not UTF-8 text; copy it in with `atoll cp - ID:FILE` and read it there",
        )
    })?;
    let sent = serde_json::to_string(&text).map_or(u64::MAX, |json| json.len() as u64);
    if sent > LARGEST_STDIN {
        let message =
            "standard input is longer than 4 MiB; copy it in with `atoll cp - ID:FILE` and read it there";
        return Err(Failure::usage("stdin", message));
    }
    Ok(text)
}

fn request(options: Exec) -> Result<ExecRequest, Failure> {
    let Exec {
        id: _,
        timeout,
        env,
        workdir,
        user,
        stdin: wants_stdin,
        stream: _,
        detach: _,
        shell,
        server: _,
        command,
    } = options;
    Ok(ExecRequest {
        arguments: shell.is_none().then_some(command),
        command: shell,
        timeout_seconds: timeout.map(|time| time.as_secs_f64()),
        working_directory: workdir,
        env_vars: pairs::map(env),
        stdin: if wants_stdin { Some(stdin()?) } else { None },
        stdin_open: false,
        user,
    })
}

pub(crate) async fn run(options: Exec) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let (json, typed) = (options.server.json, options.id.clone());
    let id = resolve::sandbox(&client, &typed).await?;
    let (streams, detaches) = (options.stream, options.detach);
    let request = request(options)?;
    if streams {
        return stream(&client, id, &request, json).await.map_err(|e| e.about(&typed));
    }
    if detaches {
        let exec = client.exec_background(id, &request).await.map_err(|e| Failure::from(e).about(&typed))?;
        match json {
            true => terminal::print_json(&exec.json)?,
            false => terminal::print(&format!("{}\n", exec.exec_id.simple()))?,
        }
        return Ok(0);
    }
    let result = client.exec(id, &request).await.map_err(|e| Failure::from(e).about(&typed))?;
    if json {
        quietly(terminal::print_json(&result.json))?;
    } else {
        quietly(terminal::print_bytes(result.stdout.as_bytes()))?;
        let _ = io::stderr().write_all(result.stderr.as_bytes());
        explain(&result);
    }
    Ok(u8::try_from(result.exit_code).unwrap_or(u8::MAX))
}

/// Prints while the command runs. Whoever interrupts us ends the command; a connection that breaks does so
/// too, unless it is the server that is gone.
async fn stream(client: &Client, id: Uuid, request: &ExecRequest, json: bool) -> Result<u8, Failure> {
    let mut events = client.exec_stream(id, request).await?;
    let mut printer = Printer::new(0, json);
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            _ = tokio::signal::ctrl_c() => {
                if let Some(exec) = printer.exec() {
                    client.exec_kill(id, exec).await?;
                }
                terminal::note("interrupted; the command was ended");
                return Ok(INTERRUPTED);
            }
        };
        match printer.print(event)? {
            Step::More => {}
            Step::Exit(exec) => return Ok(exit_code(&exec)),
            Step::Broken(reason) => {
                let message = format!("{reason}; `atoll logs -f` may show more of it");
                return Err(atoll_types::Error::new(atoll_types::ErrorCode::Unavailable, message).into());
            }
        }
    }
}

fn exit_code(exec: &atoll_client::Exec) -> u8 {
    exec.exit_code.map_or(u8::MAX, |code| u8::try_from(code).unwrap_or(u8::MAX))
}

/// That nobody reads does not change how the command went.
fn quietly(printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(failure) if failure.is_broken_pipe() => Ok(()),
        other => other,
    }
}

/// Says what the exit code alone does not.
fn explain(result: &ExecResult) {
    if result.oom_killed {
        terminal::note("the memory limit ended the command");
    }
    if result.timed_out {
        terminal::note("the command's time was up; give it more with --timeout");
    }
    if result.truncated {
        terminal::note("some of the output is missing, because there was too much of it");
    }
}
