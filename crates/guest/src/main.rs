//! `atoll-init`: PID 1 of every sandbox. This file only puts the parts of the library together.

use std::process::ExitCode;

fn main() -> ExitCode {
    atoll_guest::run_tool().unwrap_or_else(|| match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("atoll-init: {message}");
            ExitCode::from(2)
        }
    })
}

fn start() -> Result<(), String> {
    let config = atoll_guest::read_config()?;
    let proc = atoll_guest::prepare_process(&config)?;
    atoll_guest::serve(&config, proc, std::future::pending())
}
