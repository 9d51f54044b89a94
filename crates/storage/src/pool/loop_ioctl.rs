//! The five loop ioctls that the pool needs, as safe functions. Layouts are those of <linux/loop.h>.
#![allow(unsafe_code)]

use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

const GET_STATUS64: u32 = 0x4C05;
const SET_STATUS64: u32 = 0x4C04;
const SET_CAPACITY: u32 = 0x4C07;
const CONFIGURE: u32 = 0x4C0A;
const CTL_GET_FREE: u32 = 0x4C82;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;
const NOTHING: *mut u8 = std::ptr::null_mut();

#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    names_and_key: [u8; 64 + 64 + 32],
    init: [u64; 2],
}

#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Config>() == 304);

const EMPTY: Info = Info {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    names_and_key: [0; 160],
    init: [0; 2],
};

/// # Safety
/// `argument` must point to what the request expects, or be null where it expects nothing.
unsafe fn ioctl<T>(fd: RawFd, request: u32, argument: *mut T) -> Result<i32> {
    // SAFETY: the caller vouches for the argument; the descriptor is open while its owner is borrowed.
    let code = unsafe { libc::ioctl(fd, request as _, argument) };
    if code < 0 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(code)
    }
}

fn status(device: &File) -> Result<Info> {
    let mut info = EMPTY;
    // SAFETY: the kernel writes one `loop_info64`, whose layout `Info` has.
    unsafe { ioctl(device.as_raw_fd(), GET_STATUS64, &raw mut info) }?;
    Ok(info)
}

/// Device and inode number of the file behind a device.
pub(super) fn backing(device: &File) -> Result<(u64, u64)> {
    status(device).map(|info| (info.device, info.inode))
}

/// Lets the device free itself after its last use.
pub(super) fn set_autoclear(device: &File) -> Result<()> {
    let mut info = status(device)?;
    if info.flags & AUTOCLEAR != 0 {
        return Ok(());
    }
    info.flags |= AUTOCLEAR;
    // SAFETY: the kernel reads one `loop_info64`, whose layout `Info` has.
    unsafe { ioctl(device.as_raw_fd(), SET_STATUS64, &raw mut info) }.map(drop)
}

/// Takes over the size of the file.
pub(super) fn read_size(device: &File) -> Result<()> {
    // SAFETY: the request takes no argument.
    unsafe { ioctl(device.as_raw_fd(), SET_CAPACITY, NOTHING) }.map(drop)
}

/// A number that is free now, and may be taken a moment later.
pub(super) fn free_number(control: &File) -> Result<u32> {
    // SAFETY: the request takes no argument.
    let number = unsafe { ioctl(control.as_raw_fd(), CTL_GET_FREE, NOTHING) }?;
    u32::try_from(number).map_err(|_| Errno::INVAL)
}

/// Puts a file behind a device in one step. Direct I/O is used where the file system can.
pub(super) fn configure(device: &File, file: &File) -> Result<()> {
    let fd = u32::try_from(file.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let info = Info { flags: AUTOCLEAR | DIRECT_IO, ..EMPTY };
    let mut config = Config { fd, block_size: 0, info, reserved: [0; 8] };
    // SAFETY: the kernel reads one `loop_config`, whose layout `Config` has.
    unsafe { ioctl(device.as_raw_fd(), CONFIGURE, &raw mut config) }.map(drop)
}
