//! The system calls of the tests that no safe crate wraps.
#![allow(unsafe_code, reason = "mappings and mount attributes")]

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
};

/// A shared writable mapping of a file.
pub(crate) struct Mapping {
    at: *mut u8,
    length: usize,
}

impl Mapping {
    pub(crate) fn new(file: &File, length: usize) -> Self {
        let flags = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of an open file, at a place of the kernel's choice.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), length, flags, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Self { at: at.cast(), length }
    }

    pub(crate) fn store(&self, at: usize, byte: u8) {
        assert!(at < self.length);
        // SAFETY: within the mapping, which lives as long as self.
        unsafe { self.at.add(at).write_volatile(byte) };
    }

    /// Takes the right to write from the pages.
    pub(crate) fn protect(&self) {
        // SAFETY: the whole of our own mapping; nothing is stored to it afterwards.
        assert_eq!(unsafe { libc::mprotect(self.at.cast(), self.length, libc::PROT_READ) }, 0);
    }

    pub(crate) fn sync(&self) {
        // SAFETY: the whole of our own mapping.
        assert_eq!(unsafe { libc::msync(self.at.cast(), self.length, libc::MS_SYNC) }, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole of our own mapping, once.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

/// Shows a mount with the ids of a user namespace.
pub(crate) fn map_ids(mount: BorrowedFd<'_>, userns: RawFd) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: userns as u64,
    };
    // SAFETY: the path is an empty C string, `attr` outlives the call and its size is passed with it.
    let code = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Writes one byte with the old asynchronous calls, which report nothing to anybody.
pub(crate) fn aio_write(file: &File, byte: u8) {
    let mut context: libc::c_ulong = 0;
    // struct iocb: data, key and flags, opcode (pwrite: 1), descriptor, buffer, length, offset.
    let buffer = [byte];
    let op = 1_u64 << 0;
    let mut iocb = [0_u64; 8];
    iocb[2] = op | (file.as_raw_fd() as u64) << 32;
    iocb[3] = buffer.as_ptr() as u64;
    iocb[4] = 1;
    let mut list = [iocb.as_mut_ptr()];
    let mut done = [0_u64; 4];
    let null = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: the context is written by the first call; one valid iocb with a live buffer is submitted,
    // and its end is waited for before either goes.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_io_setup, 1, &raw mut context), 0);
        assert_eq!(libc::syscall(libc::SYS_io_submit, context, 1, list.as_mut_ptr()), 1);
        assert_eq!(libc::syscall(libc::SYS_io_getevents, context, 1, 1, done.as_mut_ptr(), null), 1);
        libc::syscall(libc::SYS_io_destroy, context);
    }
    assert_eq!(done[2], 1, "one byte is written");
}

/// Locks out other users of a file's lease until they have waited.
pub(crate) fn lease(file: &File) {
    // SAFETY: takes integers only. Who breaks the lease is told by a signal, which would end us.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    // SAFETY: takes integers only.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) }, 0);
}
