//! `atoll-process-guest`: PID 1 of a container for tests. It is `atoll-init`'s library in a user namespace with one
//! user, which an ordinary user may make; `unshare` of util-linux has made the namespaces and kept the capabilities
//! that they come with. Standard input is a pipe from the provider: its end is the end of this process, and the
//! kernel then ends every other process of the namespace.

mod root;

use atoll_guest_proto::{GuestConfig, Listen};
use atoll_provider_process::Start;
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::fcntl_dupfd_cloexec,
};
use seccompiler::{SeccompAction, SeccompFilter};
use std::{
    fs::File,
    io::Write,
    os::{
        fd::{IntoRawFd, OwnedFd},
        unix::net::UnixListener,
    },
    process::ExitCode,
};
use tokio::net::unix::pipe::Receiver;

fn main() -> ExitCode {
    atoll_guest::run_tool().unwrap_or_else(|| match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("{message}");
            ExitCode::from(2)
        }
    })
}

fn start() -> Result<(), String> {
    let failed = |what: &'static str| move |e: std::io::Error| format!("cannot {what}: {e}");
    let text = std::env::args().nth(1).ok_or("expected one argument")?;
    let start: Start = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    // Both are outside of the root that is entered next.
    let listener = UnixListener::bind(start.socket()).map_err(failed("listen"))?;
    let spool = File::open(start.spool()).map_err(failed("open the spool"))?;
    root::enter(&start).map_err(failed("make the root"))?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    atoll_guest::drop_capabilities(&start.config)?;
    answer_setgroups()?;
    let proc = openat(CWD, c"/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let proc = proc.map_err(|e| format!("cannot open /proc: {e}"))?;
    let life = fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).map_err(|e| e.to_string())?;
    let config = GuestConfig {
        listen: Listen::Inherited(listener.into_raw_fd()),
        spool_fd: Some(spool.into_raw_fd()),
        ..start.config
    };
    // The provider connects when it has read this line.
    println!("{}", atoll_provider_process::READY);
    std::io::stdout().flush().map_err(failed("answer the provider"))?;
    atoll_guest::serve(&config, proc, closed(life))
}

/// In a user namespace that an ordinary user made, the kernel refuses `setgroups` to every process; PID 1 sets the
/// groups of each command. There is one group here, so the filter answers with success and nothing happens.
fn answer_setgroups() -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("cannot set the filter: {e}");
    let rules = [(libc::SYS_setgroups, Vec::new())].into();
    let arch = std::env::consts::ARCH.try_into().map_err(|e: seccompiler::BackendError| failed(&e))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(0), arch);
    let program: seccompiler::BpfProgram =
        filter.and_then(TryInto::try_into).map_err(|e: seccompiler::BackendError| failed(&e))?;
    seccompiler::apply_filter(&program).map_err(|e| failed(&e))
}

/// Completes when the provider has closed its end of the pipe.
async fn closed(life: OwnedFd) {
    let Ok(life) = Receiver::from_owned_fd(life) else { return };
    // The provider writes nothing, so the pipe is readable at its end alone.
    let _ = life.readable().await;
}
