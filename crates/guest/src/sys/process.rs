//! Processes: fork, signals, waiting, identity.

use super::check;
use rustix::io::Result;
use std::{ffi::CStr, os::fd::RawFd};

/// What `wait4` reports of one child.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waited {
    pub(crate) pid: i32,
    pub(crate) status: i32,
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    pub(crate) max_rss_kb: u64,
}

/// Forks without the C library's handlers: `None` in the child.
///
/// # Safety
/// Until it executes or exits, the child may only use this module and memory that was prepared
/// before: another thread may have held any lock at the moment of the fork.
pub(crate) unsafe fn fork() -> Result<Option<i32>> {
    // SAFETY: without CLONE_VM the child has its own copy of everything. All other arguments are
    // zero, so their order, which differs between machines, does not matter.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone, libc::SIGCHLD as usize, 0usize, 0usize, 0usize, 0usize)
    })?;
    Ok((pid != 0).then_some(pid as i32))
}

/// Ends this process at once.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: never returns and runs no handler.
    unsafe { libc::_exit(code) }
}

/// Replaces this process by a program; returns only the reason why not.
pub(crate) fn exec(program: &CStr, argv: &PointerList, envp: &PointerList) -> rustix::io::Errno {
    // SAFETY: both lists end in null and point to strings that their owner keeps alive.
    let result =
        unsafe { libc::syscall(libc::SYS_execve, program.as_ptr(), argv.0.as_ptr(), envp.0.as_ptr()) };
    check(result).err().unwrap_or(rustix::io::Errno::IO)
}

/// Replaces this process by an open program; returns only the reason why not.
pub(crate) fn exec_descriptor(program: RawFd, argv: &PointerList, envp: &PointerList) -> rustix::io::Errno {
    // SAFETY: the path is empty and ends in NUL; both lists end in null and point to strings that
    // their owner keeps alive.
    let result = unsafe {
        let (argv, envp) = (argv.0.as_ptr(), envp.0.as_ptr());
        libc::syscall(libc::SYS_execveat, program, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH)
    };
    check(result).err().unwrap_or(rustix::io::Errno::IO)
}

/// A null-terminated list of strings, as `execve` wants it, together with the strings.
pub(crate) struct PointerList(Vec<*const libc::c_char>, #[allow(dead_code)] Vec<std::ffi::CString>);

impl PointerList {
    /// Prepares the list before a fork.
    pub(crate) fn new(strings: Vec<std::ffi::CString>) -> Self {
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Self(pointers, strings)
    }
}

/// A child that has ended, or `None` when none has yet. `ECHILD` when there is no child at all.
pub(crate) fn wait_any() -> Result<Option<Waited>> {
    let mut status: libc::c_int = 0;
    // SAFETY: all zeroes is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let flags = libc::WNOHANG | libc::__WALL;
    // SAFETY: the kernel fills two values of ours.
    let pid = check(unsafe { libc::syscall(libc::SYS_wait4, -1, &raw mut status, flags, &raw mut usage) })?;
    let micros = |t: libc::timeval| (t.tv_sec as u64).wrapping_mul(1_000_000).wrapping_add(t.tv_usec as u64);
    Ok((pid != 0).then(|| Waited {
        pid: pid as i32,
        status,
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        max_rss_kb: usage.ru_maxrss as u64,
    }))
}

/// Sends a signal to a process, or with a negative number to a group. 0 and -1 are refused, because they would
/// mean every process.
pub(crate) fn kill(pid: i32, signal: i32) -> Result<()> {
    if matches!(pid, 0 | -1) {
        return Err(rustix::io::Errno::SRCH);
    }
    // SAFETY: two numbers.
    check(unsafe { libc::syscall(libc::SYS_kill, pid, signal) }).map(drop)
}

/// `prctl` with one argument.
pub(crate) fn prctl(option: libc::c_int, argument: usize) -> Result<()> {
    // SAFETY: only used with options that take numbers.
    check(unsafe { libc::syscall(libc::SYS_prctl, option, argument, 0usize, 0usize, 0usize) }).map(drop)
}

/// Names this process, for listings.
pub(crate) fn set_name(name: &CStr) {
    // SAFETY: the kernel reads a string that ends in NUL. A failure would only lose the name.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr(), 0usize, 0usize, 0usize) };
}

/// Starts a new session and process group.
pub(crate) fn new_session() -> Result<()> {
    // SAFETY: no arguments.
    check(unsafe { libc::syscall(libc::SYS_setsid) }).map(drop)
}

/// Makes a terminal that of this session, which has none and is led by this process.
pub(crate) fn control_terminal(fd: RawFd) -> Result<()> {
    // SAFETY: numbers; the 0 means that it is not taken from another session.
    check(unsafe { libc::syscall(libc::SYS_ioctl, fd, libc::TIOCSCTTY, 0) }).map(drop)
}

/// Sets the supplementary groups of this thread alone.
pub(crate) fn set_groups(groups: &[u32]) -> Result<()> {
    // SAFETY: the kernel reads `len` numbers of a live slice.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

/// Sets the real, effective and saved group and then user of this thread alone.
pub(crate) fn set_identity(uid: u32, gid: u32) -> Result<()> {
    // SAFETY: numbers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: numbers.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(drop)
}

/// Sets the identity by which the kernel judges this thread's file work, and checks that it took.
pub(crate) fn set_file_identity(uid: u32, gid: u32) -> Result<()> {
    let set = |number, id: u32| {
        // SAFETY: numbers. The call never fails and returns the previous id, so a call with an invalid id returns
        // the current one.
        unsafe {
            libc::syscall(number, id);
            libc::syscall(number, u32::MAX) as u32 == id
        }
    };
    if set(libc::SYS_setfsgid, gid) && set(libc::SYS_setfsuid, uid) {
        Ok(())
    } else {
        Err(rustix::io::Errno::PERM)
    }
}

/// Changes the working directory.
pub(crate) fn change_directory(path: &CStr) -> Result<()> {
    // SAFETY: the path ends in NUL and lives through the call.
    check(unsafe { libc::syscall(libc::SYS_chdir, path.as_ptr()) }).map(drop)
}

/// Sets soft and hard limit of open files, at most what the hard limit is now.
pub(crate) fn limit_open_files(wanted: u64) -> Result<()> {
    let now = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limit = Some(now.maximum.map_or(wanted, |most| most.min(wanted)));
    let limit = rustix::process::Rlimit { current: limit, maximum: limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit)
}

/// Sets soft and hard limit of the processes and threads of this process's user; 0 leaves them.
pub(crate) fn limit_processes(wanted: u64) -> Result<()> {
    if wanted == 0 {
        return Ok(());
    }
    let now = rustix::process::getrlimit(rustix::process::Resource::Nproc);
    let limit = Some(now.maximum.map_or(wanted, |most| most.min(wanted)));
    let limit = rustix::process::Rlimit { current: limit, maximum: limit };
    rustix::process::setrlimit(rustix::process::Resource::Nproc, limit)
}

const SIGNAL_BYTES: usize = 8;

/// Blocks exactly the signals of this mask (bit n-1 is signal n).
pub(crate) fn block_signals(mask: u64) {
    let none = std::ptr::null::<u64>();
    // SAFETY: the kernel reads eight bytes. It cannot fail with these arguments.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, none, SIGNAL_BYTES)
    };
}

/// The bit of a signal in a mask.
pub(crate) const fn signal_bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A descriptor that becomes readable when one of these blocked signals is pending.
pub(crate) fn signal_descriptor(mask: u64) -> Result<RawFd> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the kernel reads eight bytes.
    let fd = unsafe { libc::syscall(libc::SYS_signalfd4, -1, &raw const mask, SIGNAL_BYTES, flags) };
    check(fd).map(|fd| fd as RawFd)
}

/// Gives every signal its default, except SIGPIPE, which a pipe of ours must never raise. Programs
/// that replace us get defaults for what has a handler here, so only SIGPIPE needs `reset_sigpipe`.
pub(crate) fn reset_signals() {
    block_signals(0);
    for signal in 1..=64 {
        set_action(signal, if signal == libc::SIGPIPE { libc::SIG_IGN } else { libc::SIG_DFL });
    }
}

/// Gives SIGPIPE its default again.
pub(crate) fn reset_sigpipe() {
    set_action(libc::SIGPIPE, libc::SIG_DFL);
}

/// Straight to the kernel: the C library keeps two signals to itself and would not reset them.
fn set_action(signal: i32, action: libc::sighandler_t) {
    // The kernel's `sigaction`: the action comes first, flags, restorer and mask are zero; 32 bytes
    // hold it on every machine.
    let action = [action as u64, 0, 0, 0];
    let none = std::ptr::null::<u64>();
    // SAFETY: the kernel reads at most 32 bytes, and no handler is set. What cannot be changed
    // (SIGKILL) is left as it is.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), none, SIGNAL_BYTES) };
}

/// Empties the ambient set of this thread.
pub(crate) fn prctl_ambient_clear() -> Result<()> {
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as usize)
}
