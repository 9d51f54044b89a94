//! `atoll-init`: PID 1 of every sandbox. It runs commands and serves files for the host, over a
//! socket that nothing inside the sandbox can reach.
//!
//! This file only puts the parts together. The host is trusted; what runs inside is not, so nothing
//! that user code does may make this process panic, block, or grow without bound.
#![allow(unsafe_code)]

mod descriptors;
mod errors;
mod exec;
mod files;
mod ready;
mod reaper;
mod seccomp;
mod serve;
mod service;
mod setup;
mod sockets;
mod sys;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A tool is this program again, as an ordinary command of the user's; nothing of PID 1 is in it.
    if let Some((name, request)) = tool() {
        return ExitCode::from(setup::run_tool(&name, &request));
    }
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("atoll-init: {message}");
            ExitCode::from(2)
        }
    }
}

/// The tool that the arguments name.
fn tool() -> Option<(String, String)> {
    let mut arguments = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).skip(1);
    (arguments.next()? == "tool")
        .then(|| (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default()))
}

fn start() -> Result<(), String> {
    let config = setup::read_config()?;
    let proc = setup::prepare_process(&config)?;
    let listener = serve::Listener::open(&config.listen)?;
    let execs = exec::Execs::new(&config, proc)?;
    seccomp::install(config.seccomp)?;
    reaper::take_signals();
    let files = files::Files::new(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start: {e}"))?;
    runtime.block_on(async {
        let reaper = reaper::Reaper::new().map_err(|e| format!("cannot watch for children: {e}"))?;
        let guest = service::GuestService::new(execs, files.clone(), listener.features());
        tokio::select! {
            result = serve::serve(listener, guest, files) => result,
            () = reaper.run() => Ok(()),
        }
    })
}
