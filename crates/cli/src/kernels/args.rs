//! The command line of kernels.

use crate::{server::Server, size};
use clap::{Args, Subcommand};
use std::{path::PathBuf, time::Duration};

/// `run-code`.
#[derive(Debug, Args)]
#[command(
    override_usage = "atoll run-code [OPTIONS] <ID> <CODE>\n       atoll run-code [OPTIONS] <ID> --file <FILE>"
)]
pub struct RunCodeOptions {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// python, node, r or bash
    #[arg(short, long, value_name = "LANGUAGE", default_value = "python")]
    pub(crate) language: String,
    /// Not in the default kernel of the language but in this one: an id or the start of one
    #[arg(short, long, value_name = "KERNEL", conflicts_with = "language")]
    pub(crate) kernel: Option<String>,
    /// Interrupt the code after this long, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Write what the code shows, such as pictures, into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) display_dir: Option<PathBuf>,
    /// Read the code from this file
    #[arg(short, long, value_name = "FILE", conflicts_with = "code")]
    pub(crate) file: Option<PathBuf>,
    /// The code, or - to read it from standard input
    #[arg(value_name = "CODE", required_unless_present = "file")]
    pub(crate) code: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `repl`.
#[derive(Debug, Args)]
#[command(after_help = "ctrl-c interrupts what runs, ctrl-d leaves; the kernel and its variables stay.")]
pub struct Repl {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// python, node, r or bash
    #[arg(short, long, value_name = "LANGUAGE", default_value = "python")]
    pub(crate) language: String,
    /// Write what the code shows, such as pictures, into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) display_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `kernels`.
#[derive(Debug, Args)]
pub struct Kernels {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// `kernel`.
#[derive(Debug, Args)]
pub struct KernelOptions {
    #[command(subcommand)]
    pub(crate) command: KernelCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KernelCommand {
    /// Starts a kernel and prints its id
    Start(KernelStart),
    /// Interrupts the running cell; variables stay where the language allows
    Interrupt(OneKernel),
    /// Starts a fresh interpreter under the same id
    Restart(OneKernel),
    /// Ends a kernel and everything that it started
    Rm(OneKernel),
    /// Remembers a Python kernel as it is, and prints the checkpoint's id
    Checkpoint(KernelCheckpoint),
    /// Puts a kernel back as it was at a checkpoint
    Rollback(KernelRollback),
    /// Makes a second kernel with everything that the first has, and prints its id
    Fork(KernelFork),
}

#[derive(Debug, Args)]
pub(crate) struct KernelStart {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// python, node, r or bash
    #[arg(short, long, value_name = "LANGUAGE", default_value = "python")]
    pub(crate) language: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct OneKernel {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The id of a kernel, or the start of one
    #[arg(value_name = "KERNEL")]
    pub(crate) kernel: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct KernelCheckpoint {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The id of a kernel, or the start of one
    #[arg(value_name = "KERNEL")]
    pub(crate) kernel: String,
    /// What to call it
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct KernelRollback {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The id of a kernel, or the start of one
    #[arg(value_name = "KERNEL")]
    pub(crate) kernel: String,
    /// The id of a checkpoint, the start of one, or its name
    #[arg(value_name = "CHECKPOINT")]
    pub(crate) checkpoint: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct KernelFork {
    /// An id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The id of a kernel, or the start of one
    #[arg(value_name = "KERNEL")]
    pub(crate) kernel: String,
    /// Not as it is now but as it was at this checkpoint
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) checkpoint: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl KernelOptions {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            KernelCommand::Start(KernelStart { server, .. })
            | KernelCommand::Interrupt(OneKernel { server, .. })
            | KernelCommand::Restart(OneKernel { server, .. })
            | KernelCommand::Rm(OneKernel { server, .. })
            | KernelCommand::Checkpoint(KernelCheckpoint { server, .. })
            | KernelCommand::Rollback(KernelRollback { server, .. })
            | KernelCommand::Fork(KernelFork { server, .. }) => server.json,
        }
    }
}
