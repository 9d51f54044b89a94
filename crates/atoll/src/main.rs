//! The program. It parses the command line, assembles the parts and runs them; only here are concrete
//! providers and stores named.

/// Prints a line. A closed pipe, as in `atoll doctor | head -1`, is no fault.
macro_rules! say {
    ($($what:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($what)*)));
    }};
}

mod audit;
mod cli;
mod config;
#[cfg(test)]
#[path = "../tests/control_plane/mod.rs"]
mod control_plane;
mod database;
mod doctor;
mod down;
mod keys;
mod mcp;
mod own;
mod run;
mod run_image;
mod run_mount;
mod run_network;
mod serve;
mod store_copy;

use atoll_types::Result;
use clap::{CommandFactory, Parser};
use std::{io::Write, process::ExitCode};

/// The exit code of a failure of Atoll or the machine, and not of the command.
const FAULT: u8 = 125;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Run(options) => alone(run::run(options)),
        cli::Command::Doctor(options) => alone(doctor::run(&options)),
        cli::Command::Down(options) => alone(down::run(&options)),
        cli::Command::Audit(cli::Audit::Verify(options)) => alone(audit::verify(&options)),
        cli::Command::Audit(cli::Audit::Remote(command)) => {
            alone(async { Ok(atoll_cli::run_audit(command).await) })
        }
        cli::Command::Keys(cli::Keys::Recover(data)) => alone(keys::recover(&data.dir())),
        cli::Command::Keys(cli::Keys::Remote(command)) => {
            alone(async { Ok(atoll_cli::run_keys(command).await) })
        }
        cli::Command::Store(cli::Store::Copy(options)) => alone(store_copy::copy(&options)),
        cli::Command::Serve(options) => serve::start(&options),
        cli::Command::Mcp(options) => mcp::start(&options),
        cli::Command::Completion(options) => {
            // Into memory first: the library exits the program where the pipe is closed.
            let mut script = Vec::new();
            clap_complete::generate(options.shell, &mut cli::Cli::command(), "atoll", &mut script);
            let _ = std::io::stdout().write_all(&script);
            Ok(0)
        }
        cli::Command::Remote(command) => alone(async { Ok(atoll_cli::run(command).await) }),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "atoll: {error}");
            ExitCode::from(FAULT)
        }
    }
}

/// Runs a command that needs no more than one thread.
fn alone(work: impl Future<Output = Result<u8>>) -> Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| atoll_types::Error::internal(format!("cannot start: {e}")))?;
    let result = runtime.block_on(work);
    // A thread may still be blocked reading stdin.
    runtime.shutdown_background();
    result
}
