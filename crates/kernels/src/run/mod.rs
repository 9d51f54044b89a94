//! The kernel manager: the program that keeps a sandbox's live interpreters. PID 1 starts it as a command of the
//! user's (`atoll-init tool kernels`), with the sandbox's variables. Requests come on stdin and its messages go
//! to stdout, a line of JSON each; it ends, with all kernels, when its stdin does.
//!
//! One thread; a task for each kernel, one that writes, one that waits for processes. All input from an
//! interpreter is hostile: it must not make the kernel manager panic, wait for ever, or grow without bound.

mod cell;
mod channels;
mod countdown;
mod event;
mod interpreter;
mod journal;
mod kernel;
mod language;
mod manager;
mod orders;
mod out;
mod processes;
mod reaper;
mod text;
mod transitions;

use crate::{LONGEST_LINE, Request};
use atoll_types::lines::{Line, LineBuffer};
use manager::KernelManager;
use reaper::Reaper;
use std::{
    io::{ErrorKind, Write},
    os::fd::AsFd,
    rc::Rc,
};
use tokio::{
    net::unix::pipe::{Receiver, Sender},
    task::LocalSet,
};

/// The tool's name.
pub const NAME: &str = "kernels";

const READ: usize = 64 << 10;

/// Runs the kernel manager and returns its exit code. It takes no request as an argument.
#[must_use]
pub fn main(_request: &str) -> u8 {
    match run() {
        Ok(()) => 0,
        Err(error) => {
            complain(format_args!("{error}"));
            1
        }
    }
}

fn run() -> std::io::Result<()> {
    // Orphans of interpreters become children of the kernel manager, so that it can find and kill them.
    let adopts = rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    runtime.block_on(local.run_until(serve(adopts)))
}

async fn serve(adopts: bool) -> std::io::Result<()> {
    let own = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let manager = KernelManager::new(own.collect(), adopts);
    tokio::task::spawn_local(manager.reaper.clone().run(Reaper::signals()?));
    let stdout = Sender::from_owned_fd(std::io::stdout().as_fd().try_clone_to_owned()?)?;
    let writer = manager.clone();
    tokio::task::spawn_local(async move { writer.out.write_to(stdout).await });
    read_requests(&manager).await?;
    manager.end().await;
    manager.out.flushed().await;
    Ok(())
}

async fn read_requests(manager: &Rc<KernelManager>) -> std::io::Result<()> {
    let stdin = Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut lines = LineBuffer::new(LONGEST_LINE);
    let mut buffer = vec![0; READ];
    loop {
        stdin.readable().await?;
        let length = match stdin.try_read(&mut buffer) {
            Ok(length) => length,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(e) => return Err(e),
        };
        let Some(bytes @ [_, ..]) = buffer.get(..length) else { return Ok(()) };
        lines.push(bytes);
        while let Some(line) = lines.next_line() {
            let line = match line {
                Line::Whole([]) => continue,
                Line::Whole(line) => line,
                Line::TooLong => {
                    complain(format_args!("a request was too long"));
                    continue;
                }
            };
            match serde_json::from_slice::<Request>(line) {
                Ok(request) => {
                    manager.out.room().await;
                    manager.ask(request);
                }
                Err(error) => complain(format_args!("not a request: {error}")),
            }
        }
    }
}

/// Writes a line to stderr; a failure to do so is ignored.
fn complain(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "atoll-init: kernels: {what}");
}
