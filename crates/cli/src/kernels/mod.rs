//! `atoll run-code`, `atoll repl`, `atoll kernels` and `atoll kernel`.

pub(crate) mod args;
mod control;
mod editor;
mod repl;
mod show;

pub(crate) use control::{list, run as control};
pub(crate) use repl::run as repl;

use crate::{Failure, resolve, terminal};
use args::RunCodeOptions;
use atoll_client::{CellEvent, Client, RunCode, Uuid};
use show::Shown;
use std::io::{self, Read};

/// The server's largest request, less room for the rest of it.
const LARGEST_CODE: u64 = 1 << 20;
/// The exit code of a shell for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Reads code to its end.
fn read(from: impl Read, name: &str) -> Result<String, Failure> {
    let mut text = Vec::new();
    from.take(LARGEST_CODE + 1).read_to_end(&mut text).map_err(|e| Failure::file(name.as_ref(), &e))?;
    if text.len() as u64 > LARGEST_CODE {
        return Err(Failure::usage("code", format!("{name} is longer than 1 MiB")));
    }
    String::from_utf8(text).map_err(|_| Failure::usage("code", format!("{name} is not UTF-8 text")))
}

fn code(options: &RunCodeOptions) -> Result<String, Failure> {
    match (&options.file, options.code.as_deref()) {
        (Some(path), _) => {
            let file = std::fs::File::open(path).map_err(|e| Failure::file(path, &e))?;
            read(file, &path.display().to_string())
        }
        (None, Some("-") | None) => read(io::stdin().lock(), "standard input"),
        (None, Some(code)) => Ok(code.to_owned()),
    }
}

/// `run-code`: prints while the code runs; 1 when it fails.
pub(crate) async fn run_code(options: RunCodeOptions) -> Result<u8, Failure> {
    let code = code(&options)?;
    let client = options.server.client()?;
    let id = resolve::sandbox(&client, &options.id).await?;
    let about = |failure: Failure| failure.about(&options.id);
    let kernel = match &options.kernel {
        Some(text) => Some(control::kernel(&client, id, text).await.map_err(about)?),
        None => None,
    };
    let request = RunCode {
        code,
        language: kernel.is_none().then(|| options.language.clone()),
        timeout: options.timeout.map(|time| time.as_secs_f64()),
        kernel,
    };
    let mut shown = Shown::new(options.display_dir.clone(), options.server.json);
    match follow(&client, id, &request, &mut shown).await.map_err(about)? {
        Some(true) => Ok(0),
        Some(false) => Ok(1),
        None => Ok(INTERRUPTED),
    }
}

/// Runs a cell and shows it: whether it succeeded; none when Ctrl-C interrupted it. Dropping its events
/// interrupts it, so the second Ctrl-C does not wait.
async fn follow(
    client: &Client,
    id: Uuid,
    request: &RunCode,
    shown: &mut Shown,
) -> Result<Option<bool>, Failure> {
    let mut events = client.stream_code(id, request).await?;
    let mut interrupted = false;
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            _ = tokio::signal::ctrl_c() => match interrupted {
                true => return Ok(None),
                false => {
                    interrupted = true;
                    interrupt(client, id, request).await;
                    continue;
                }
            },
        };
        let Some((event, json)) = event else {
            let message = "the connection broke before the code ended";
            return Err(atoll_types::Error::new(atoll_types::ErrorCode::Unavailable, message).into());
        };
        if let CellEvent::Failed(error) = event {
            return Err(atoll_client::Error::Api(error).into());
        }
        if let Some(success) = shown.add(event, &json)? {
            return Ok((!interrupted).then_some(success));
        }
    }
}

/// Interrupts the running cell. That it has just ended is no fault.
async fn interrupt(client: &Client, id: Uuid, request: &RunCode) {
    let kernel = match request.kernel {
        Some(kernel) => Some(kernel),
        None => match client.kernels(id).await {
            Ok(all) => control::default_of(&all, request.language.as_deref().unwrap_or("python")),
            Err(_) => None,
        },
    };
    if let Some(kernel) = kernel
        && let Err(error) = client.interrupt_kernel(id, kernel).await
    {
        terminal::note(&error.to_string());
    }
}
