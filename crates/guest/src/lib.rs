//! PID 1 of every sandbox, as a library. It runs commands and serves files for the host, over a socket that
//! nothing inside the sandbox can reach. The host is trusted; what runs inside is not, so nothing that user code
//! does may make this process panic, block, or grow without bound.
//!
//! `main.rs` is the program that ships. It is root of its sandbox and gives up what no command may have
//! ([`prepare_process`]) before it serves ([`serve`]).
#![allow(unsafe_code)]

mod descriptors;
mod errors;
mod exec;
mod files;
mod ready;
mod reaper;
mod reserve;
mod seccomp;
mod serve;
mod service;
mod setup;
mod sockets;
mod sys;

use atoll_guest_proto::GuestConfig;
pub use setup::{drop_capabilities, prepare_process, read_config};
use std::{os::fd::OwnedFd, path::Path, process::ExitCode};

/// Runs the tool that the arguments name, or `df` under that name; none where they name none. A tool is this program
/// again, as an ordinary command of the user's; nothing of PID 1 is in it.
#[must_use]
pub fn run_tool() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    if Path::new(&arguments.next()?).file_name()? == "df" {
        return Some(ExitCode::from(atoll_guest_tools::run::df::main(arguments)));
    }
    let mut arguments = arguments.map(|a| a.to_string_lossy().into_owned());
    (arguments.next()? == "tool").then(|| {
        let mut next = || arguments.next().unwrap_or_default();
        let (name, request) = (next(), next());
        ExitCode::from(setup::run_tool(&name, &request))
    })
}

/// Serves until a process outside the sandbox sends SIGTERM, or `end` completes. `proc` is this process's own view
/// of /proc.
pub fn serve(config: &GuestConfig, proc: OwnedFd, end: impl Future<Output = ()>) -> Result<(), String> {
    let listener = serve::Listener::open(&config.listen)?;
    let execs = exec::Execs::new(config, proc)?;
    seccomp::install(config.seccomp)?;
    reaper::take_signals();
    let files = files::Files::new(config)?;
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
            () = end => Ok(()),
        }
    })
}
