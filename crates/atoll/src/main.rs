//! The program. It parses what was asked, puts the parts together and runs them; only here are
//! concrete providers named.

mod cli;
mod doctor;
mod run;
mod size;

use clap::Parser;
use std::process::ExitCode;

/// What went wrong was ours or the machine's, and not the command's.
const FAULT: u8 = 125;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("atoll: cannot start: {error}");
            return ExitCode::from(FAULT);
        }
    };
    let result = runtime.block_on(async {
        match cli.command {
            cli::Command::Run(options) => run::run(options).await,
            cli::Command::Doctor(options) => doctor::run(&options).await,
        }
    });
    // A thread may still wait for input that nobody will type.
    runtime.shutdown_background();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("atoll: {error}");
            ExitCode::from(FAULT)
        }
    }
}
