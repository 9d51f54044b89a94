//! The few system calls that no safe crate wraps. Everything unsafe in the launcher is here, each
//! block with its reason; what calls it sees safe functions.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::{ffi::CStr, ffi::CString, io};

/// Which side of a fork this is.
pub(crate) enum Fork {
    Child,
    Parent(i32),
}

/// Forks. The launcher has one thread, so the child may do what any program may.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: there is no second thread whose locks the child could inherit half-held.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Ends a forked child without running what its parent registered for its own exit.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process; nothing is read or written.
    unsafe { libc::_exit(code) }
}

/// What `waitpid` saw.
pub(crate) struct Ended {
    pub(crate) pid: i32,
    pub(crate) exit_status: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// A child that has ended, if one has.
pub(crate) fn reap_one(pid: i32, block: bool) -> io::Result<Option<Ended>> {
    let mut status = 0;
    let flags = if block { 0 } else { libc::WNOHANG };
    // SAFETY: `status` outlives the call and is written by it alone.
    match unsafe { libc::waitpid(pid, &raw mut status, flags) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(Ended {
            pid,
            exit_status: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        })),
    }
}

fn mask_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: an all-zero sigset is a valid argument for sigemptyset, which then initialises it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is ours and live.
    unsafe { libc::sigemptyset(&raw mut set) };
    for signal in signals {
        // SAFETY: `set` was initialised above.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}

/// Blocks these signals and gives a descriptor that reads them.
pub(crate) fn signal_fd(signals: &[i32]) -> io::Result<OwnedFd> {
    let set = mask_of(signals);
    // SAFETY: `set` is initialised; the old mask is not requested.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `set` is initialised; -1 requests a new descriptor.
    match unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// The next signal of a [`signal_fd`], if one waits.
pub(crate) fn next_signal(fd: &OwnedFd) -> Option<i32> {
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    let n = rustix::io::read(fd, &mut info).ok()?;
    let number = info.get(..4).filter(|_| n == info.len())?;
    Some(u32::from_ne_bytes(number.try_into().ok()?).cast_signed())
}

/// Lets a forked child receive signals again: a blocked mask would be inherited by PID 1.
pub(crate) fn unblock_signals() {
    let set = mask_of(&[]);
    // SAFETY: `set` is initialised; the old mask is not requested.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// Gives a descriptor another number, open across exec. For the numbers that PID 1 expects.
pub(crate) fn place_fd(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: `number` belongs to this forked worker, which has moved its own descriptors away.
    match unsafe { libc::dup2(fd.as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ if fd.as_raw_fd() == number => Ok(rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?),
        _ => Ok(()),
    }
}

/// Attributes for a mount, and optionally the user namespace whose ids it shows.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    set: u64,
    recursive: bool,
    userns: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut attr = libc::mount_attr { attr_set: set, attr_clr: 0, propagation: 0, userns_fd: 0 };
    if let Some(fd) = userns {
        attr.attr_set |= libc::MOUNT_ATTR_IDMAP;
        attr.userns_fd = fd.as_raw_fd() as u64;
    }
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, `attr` outlives the call and its size is passed with it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Replaces the process by the program behind a descriptor. Returns only when that failed.
pub(crate) fn exec_fd(program: BorrowedFd<'_>, args: &[CString], env: &[CString]) -> io::Error {
    fn pointers(list: &[CString]) -> Vec<*const libc::c_char> {
        list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    }
    let (argv, envp) = (pointers(args), pointers(env));
    // SAFETY: both arrays end in null and their strings live until the call returns or never does.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Moves this process into namespaces of its own.
pub(crate) fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: changes this process's namespaces only; there is no second thread to be surprised.
    if unsafe { libc::unshare(flags) } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Enters a namespace.
pub(crate) fn setns(namespace: BorrowedFd<'_>, kind: i32) -> io::Result<()> {
    // SAFETY: as for unshare.
    if unsafe { libc::setns(namespace.as_raw_fd(), kind) } == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Brings a network interface of this process's namespace up.
pub(crate) fn interface_up(socket: &OwnedFd, name: &CStr) -> io::Result<()> {
    // SAFETY: an all-zero ifreq is valid: a name of zeros and a union of integers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.to_bytes().iter().take(15)) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives across the call.
    match unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Lets a socket be given connections to addresses that it is not bound to.
pub(crate) fn take_any_address(socket: &OwnedFd) -> io::Result<()> {
    let yes: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&yes)).unwrap_or_default();
    let (level, option) = (libc::SOL_IP, libc::IP_TRANSPARENT);
    // SAFETY: the kernel reads an integer of the length that is passed with it, which lives across the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const yes).cast(), length) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel kill this process when its parent ends.
pub(crate) fn end_with_parent() {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Closes every descriptor that this process was started with, except its standard three.
pub(crate) fn close_inherited() {
    // SAFETY: called first thing, when no descriptor above 2 is owned by anything in this process.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// Closes the launcher's own descriptors in a worker, which must not keep its socket or lock alive.
pub(crate) fn close_in_child(fds: &[BorrowedFd<'_>]) {
    for fd in fds {
        // SAFETY: the worker never returns to code that uses them: it ends by `exit_now`.
        unsafe { libc::close(fd.as_raw_fd()) };
    }
}

/// Runs a closure with the file-system identity of another user and all of root's capabilities. What the kernel
/// creates for us meanwhile (an overlay's own folders) belongs to that user.
pub(crate) fn with_file_ids<T>(id: u32, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let sets = rustix::thread::capabilities(None)?;
    // SAFETY: these take integers and change this single-threaded process only.
    unsafe {
        libc::setfsgid(id);
        libc::setfsuid(id);
    }
    // Leaving uid 0 took the file capabilities out of the effective set; they are still permitted.
    let result =
        rustix::thread::set_capabilities(None, sets).map_err(io::Error::from).and_then(|()| action());
    // SAFETY: as above.
    unsafe {
        libc::setfsuid(0);
        libc::setfsgid(0);
    }
    rustix::thread::set_capabilities(None, sets)?;
    result
}

/// Runs a closure as another effective user with all of root's capabilities: a user namespace that is made
/// meanwhile is that user's. For a forked child, which does not become root again.
pub(crate) fn with_effective_user<T>(id: u32, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let sets = rustix::thread::capabilities(None)?;
    // SAFETY: takes integers and changes this single-threaded process only.
    if unsafe { libc::setresuid(libc::uid_t::MAX, id, libc::uid_t::MAX) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // Leaving uid 0 emptied the effective set; the real user is still root, so all is still permitted.
    rustix::thread::set_capabilities(None, sets)?;
    action()
}
