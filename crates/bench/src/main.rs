//! The benchmark that ships with Atoll: every figure beside a baseline taken in the same run, turn by
//! turn with it, so that a noisy machine hits both. It judges promises in words and never by its exit
//! status, which says only whether every figure could be taken.

mod baseline;
mod docker;
mod events;
mod figures;
mod file_server;
mod frozen;
mod http;
mod instance;
mod machine;
mod moved;
mod options;
mod pace;
mod promises;
mod pty;
mod report;
mod runc;
mod server;
mod source;
mod stats;
mod table;
mod tinyproxy;
mod websocket;

use clap::Parser;
use figures::{Bench, Figure};
use futures_util::FutureExt;
use instance::Instance;
use options::Options;
use report::{Failure, Report};
use std::{fs, panic::AssertUnwindSafe, process::ExitCode};
use tokio::signal::unix::{SignalKind, signal};

type Error = Box<dyn std::error::Error>;
type Result<T, E = Error> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(Error::from).and_then(|runtime| runtime.block_on(run(&options)));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("atoll-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every figure was taken and nothing is left.
async fn run(options: &Options) -> Result<bool> {
    if let Some(path) = &options.json {
        // Fails early: a wrong path is better reported now than after minutes.
        fs::write(path, "").map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    let instance = Instance::start().await?;
    // The launcher must end even after a panic or a signal.
    let taken = AssertUnwindSafe(take_until_signal(options, &instance)).catch_unwind().await;
    let ended = instance.end().await;
    if let Err(error) = &ended {
        eprintln!("atoll-bench: the end went wrong: {error}");
    }
    let report = taken.unwrap_or_else(|_| Err("a figure panicked".into()))?;
    if let Some(path) = &options.json {
        report.save(path)?;
    }
    Ok(report.failures.is_empty() && ended.is_ok())
}

async fn take_until_signal(options: &Options, instance: &Instance) -> Result<Report> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        report = take(options, instance) => report,
        _ = interrupt.recv() => Err("interrupted".into()),
        _ = terminate.recv() => Err("terminated".into()),
    }
}

async fn take(options: &Options, instance: &Instance) -> Result<Report> {
    let mut report = Report::new(machine::look(instance).await?);
    table::print_machine(&report.machine);
    table::print_head();
    let bench = Bench::new(instance, options.scale())?;
    let wanted = Figure::ALL.into_iter().filter(|f| options.only.is_empty() || options.only.contains(f));
    for figure in wanted {
        match figure.take(&bench).await.and_then(|rows| figure.check(rows)) {
            Ok(rows) => {
                rows.iter().for_each(table::print_row);
                report.rows.extend(rows);
            }
            Err(error) => {
                println!("{figure}: failed: {error}");
                bench.clear().await;
                report.failures.push(Failure { figure, why: error.to_string() });
            }
        }
    }
    report.notes = bench.notes();
    table::print_tail(&report);
    Ok(report)
}
