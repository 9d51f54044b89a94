//! Entering a user namespace as its root, between fork and exec. Only one outside of it may map its
//! ids, so a helper is forked first and told when to.

use std::{ffi::CString, io};

const MAP: &[u8] = b"0 100000 65534\n";

/// Becomes root of a new user namespace whose ids begin at 100000. Only system calls.
pub(crate) fn enter() -> io::Result<()> {
    // SAFETY: system calls on values of this stack; the helper ends without returning. Formatting a
    // path allocates, which is safe enough in a test: the allocator survives a fork.
    unsafe {
        let mut ends = [0; 2];
        check(libc::pipe(ends.as_mut_ptr()))?;
        let me = libc::getpid();
        let helper = libc::fork();
        if helper == 0 {
            let mut byte = 0u8;
            libc::read(ends[0], (&raw mut byte).cast(), 1);
            libc::_exit(i32::from(!(write_map(me, "uid_map") && write_map(me, "gid_map"))));
        }
        check(libc::unshare(libc::CLONE_NEWUSER))?;
        libc::write(ends[1], c"x".as_ptr().cast(), 1);
        let mut status = 0;
        libc::waitpid(helper, &raw mut status, 0);
        libc::close(ends[0]);
        libc::close(ends[1]);
        check(status)?;
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(0, 0, 0))?;
        check(libc::setresuid(0, 0, 0))
    }
}

unsafe fn write_map(pid: i32, name: &str) -> bool {
    let Ok(path) = CString::new(format!("/proc/{pid}/{name}")) else { return false };
    // SAFETY: a path and bytes that live through the calls.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::write(fd, MAP.as_ptr().cast(), MAP.len()) == MAP.len() as isize
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
