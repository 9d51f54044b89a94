//! Turns a freshly executed program into PID 1: reads the configuration, leaves nothing of it where a command
//! could find it, and drops what no command may have.
//!
//! Everything here runs once, before there is a second thread. What is set here is inherited by
//! every command, so that starting one costs less.
//!
//! PID 1's own view of /proc can be written and that of commands cannot: the second is mounted before the
//! first command, with a capability that is given up right after.

use crate::sys::{self, caps};
use atoll_guest_proto::{CONFIG_VARIABLE, GuestConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;

/// Descriptors of the launcher's have lower numbers.
const FIRST_OWN: i32 = 100;

unsafe extern "C" {
    static mut environ: *mut *mut libc::c_char;
}

/// Takes the configuration out of the environment, and the environment out of memory.
pub fn read_config() -> Result<GuestConfig, String> {
    let text = std::env::var(CONFIG_VARIABLE).map_err(|_| format!("{CONFIG_VARIABLE} is not set"))?;
    scrub_environment();
    // The error may quote the text, which may hold a token.
    let config: GuestConfig = serde_json::from_str(&text)
        .map_err(|e| format!("{CONFIG_VARIABLE} is not valid: line {}, column {}", e.line(), e.column()))?;
    if config.uid > 65533 || config.gid > 65533 {
        return Err("uid and gid must be at most 65533".into());
    }
    if config.uid != 0 && !config.capabilities.is_empty() {
        return Err("only uid 0 may hold capabilities".into());
    }
    Ok(config)
}

fn scrub_environment() {
    // SAFETY: there is one thread, `environ` is a null-terminated array of strings that the kernel put on our
    // stack, and nothing holds a reference into them (`std::env::var` copies).
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            libc::explicit_bzero((*entry).cast(), libc::strlen(*entry));
            entry = entry.add(1);
        }
        libc::clearenv();
    }
}

/// Sets what every command inherits and what keeps commands away from this process. Answers with this
/// process's own view of /proc.
pub fn prepare_process(config: &GuestConfig) -> Result<OwnedFd, String> {
    let failed = |what: &'static str| move |e: rustix::io::Errno| format!("cannot {what}: {e}");
    tune_allocator();
    sys::open_missing_stdio().map_err(failed("open /dev/null"))?;
    sys::mark_close_on_exec().map_err(failed("mark descriptors"))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    sys::prctl(libc::PR_SET_DUMPABLE, 0).map_err(failed("become non-dumpable"))?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(failed("set no_new_privs"))?;
    sys::reset_signals();
    set_limits().map_err(failed("set limits"))?;
    if std::process::id() != 1 {
        sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).map_err(failed("become a subreaper"))?;
    }
    let proc = match config.guard_proc {
        true => sys::guard_proc().map_err(failed("make /proc read-only"))?,
        false => sys::open_proc().map_err(failed("open /proc"))?,
    };
    // Out of the way of the numbers that the configuration names.
    let proc = rustix::io::fcntl_dupfd_cloexec(&proc, FIRST_OWN).map_err(failed("open /proc"))?;
    drop_capabilities(config)?;
    sys::set_groups(&[]).map_err(failed("leave groups"))?;
    Ok(proc)
}

/// Drops what no command may have; PID 1 keeps the rest of its own.
pub fn drop_capabilities(config: &GuestConfig) -> Result<(), String> {
    let kept = caps::mask(&config.capabilities);
    let dropped = caps::give_up_administration().and_then(|()| caps::drop_bounding(!kept));
    dropped.map_err(|e| format!("cannot drop capabilities: {e}"))
}

/// PID 1 serves many commands at once, so it takes as many descriptors as it may.
///
/// Nothing inside leaves a core: a file would have to be larger than the limit of one byte, and with exactly
/// this limit the kernel does not start the program of a piped `core_pattern` either, which it would with 0.
/// The system call filter keeps it from being changed. Where PID 1 inherited a hard limit of 0, as from sudo, it
/// cannot raise it and keeps that.
fn set_limits() -> rustix::io::Result<()> {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum })?;
    let core = getrlimit(Resource::Core).maximum.map_or(1, |most| most.min(1));
    setrlimit(Resource::Core, Rlimit { current: Some(core), maximum: Some(core) })
}

/// Runs a tool. The user's other processes cannot ptrace it; its output is trusted no more for that.
pub(crate) fn run_tool(name: &str, request: &str) -> u8 {
    tune_allocator();
    let _ = sys::prctl(libc::PR_SET_DUMPABLE, 0);
    match name == atoll_kernels::run::NAME {
        true => atoll_kernels::run::main(request),
        false => atoll_guest_tools::run::main(name, request),
    }
}

/// One arena, given back early: this process is in the memory of every sandbox.
fn tune_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` only sets numbers of the allocator, and there is one thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 128 * 1024);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
    }
}

/// Gives free memory back to the sandbox.
pub(crate) fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` is safe to call at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
