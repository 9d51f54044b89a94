//! The root launcher. It holds the privilege that the server must not have, and so it is small,
//! synchronous and single-threaded, opens no network socket, and forks a worker for each request.
//!
//! Unsafe code lives in [`sys`] only.

mod attachments;
mod ceilings;
mod cgroup;
mod clock;
mod context;
mod disk_figures;
mod egress_sockets;
mod freezer;
mod images;
mod init;
mod meter;
mod monitor;
mod mounts;
mod net;
mod observer;
mod ops;
mod options;
mod places;
mod reap;
mod record;
mod repair;
mod rootfs;
mod runtime;
mod server;
mod socket_guard;
mod spec;
mod staying;
mod sys;
mod sysctls;
mod trust;
mod uids;
mod userns;
mod volume_users;
mod wire;
mod worker;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("ATOLL_LAUNCH_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,libcontainer=off,libcgroups=off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    match monitor::run(&options::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("atoll-launch: {error}");
            ExitCode::FAILURE
        }
    }
}
