//! The btrfs ioctls that the driver needs, as safe functions. Layouts are those of <linux/btrfs.h>.
#![allow(unsafe_code)]

use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd};

const fn request(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | 0x94 << 8 | number
}
const WRITE: u32 = 1;
const READ: u32 = 2;
const BOTH: u32 = 3;
const DESTROY_BY_ID: u64 = 1 << 4;
const READ_ONLY: u64 = 1 << 1;
const INHERIT: u64 = 1 << 2;
const LIMIT_REFERENCED: u64 = 1;
const FIRST_INODE: u64 = 256;

/// # Safety
/// `T` must have the layout that the request expects.
unsafe fn ioctl<T>(fd: impl AsFd, request: u32, argument: &mut T) -> Result<i32> {
    // SAFETY: the caller vouches for the layout; both borrows outlive the call.
    let code = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
    if code < 0 {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    } else {
        Ok(code)
    }
}

#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; 4088],
}

impl VolArgs {
    fn named(name: &str) -> Result<Self> {
        let mut args = Self { fd: 0, name: [0; 4088] };
        // A subvolume's name has at most 255 bytes and a final zero.
        args.name
            .get_mut(..name.len())
            .filter(|_| name.len() < 256)
            .ok_or(Errno::NAMETOOLONG)?
            .copy_from_slice(name.as_bytes());
        Ok(args)
    }
}

#[repr(C)]
struct VolArgs2 {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    id: u64,
    rest: [u64; 504],
}

/// The same for a snapshot: its second half is a name.
#[repr(C)]
struct SnapshotArgs {
    fd: i64,
    transid: u64,
    flags: u64,
    inherit_size: u64,
    inherit: *const Inherit,
    unused: [u64; 2],
    name: [u8; 4040],
}

/// `btrfs_qgroup_inherit` with one group.
#[repr(C)]
struct Inherit {
    flags: u64,
    groups: u64,
    copies: [u64; 2],
    limit: [u64; 5],
    group: u64,
}

const _: () = assert!(size_of::<VolArgs>() == 4096 && size_of::<VolArgs2>() == 4096);
const _: () = assert!(size_of::<SnapshotArgs>() == 4096 && size_of::<Inherit>() == 80);

/// Makes a subvolume below a directory.
pub(super) fn create(folder: impl AsFd, name: &str) -> Result<()> {
    // SAFETY: SUBVOL_CREATE reads one `btrfs_ioctl_vol_args`.
    unsafe { ioctl(folder, request(WRITE, 14, 4096), &mut VolArgs::named(name)?) }.map(drop)
}

/// Makes a snapshot of a subvolume below a directory, in a group from the beginning if there is one. The kernel
/// first writes back what of the subvolume is dirty, and commits.
pub(super) fn snapshot(
    folder: impl AsFd,
    name: &str,
    source: impl AsFd,
    read_only: bool,
    group: Option<u64>,
) -> Result<()> {
    let inherit = group.map(|group| Inherit { flags: 0, groups: 1, copies: [0; 2], limit: [0; 5], group });
    let mut args = SnapshotArgs {
        fd: source.as_fd().as_raw_fd().into(),
        transid: 0,
        flags: if read_only { READ_ONLY } else { 0 } | if group.is_some() { INHERIT } else { 0 },
        inherit_size: if group.is_some() { size_of::<Inherit>() as u64 } else { 0 },
        inherit: inherit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
        unused: [0; 2],
        name: [0; 4040],
    };
    let place = args.name.get_mut(..name.len()).filter(|_| name.len() < 256).ok_or(Errno::NAMETOOLONG)?;
    place.copy_from_slice(name.as_bytes());
    // SAFETY: SNAP_CREATE_V2 reads one `btrfs_ioctl_vol_args_v2`, and with INHERIT as many bytes as it says
    // behind its pointer; `inherit` outlives the call.
    unsafe { ioctl(folder, request(WRITE, 23, 4096), &mut args) }.map(drop)
}

/// Makes a subvolume read-only.
pub(super) fn make_read_only(subvolume: impl AsFd) -> Result<()> {
    // SAFETY: SUBVOL_SETFLAGS reads one u64.
    unsafe { ioctl(subvolume, request(WRITE, 26, 8), &mut { READ_ONLY }) }.map(drop)
}

/// Removes a subvolume below a directory. Its space is freed in the background.
pub(super) fn destroy(folder: impl AsFd, name: &str) -> Result<()> {
    // SAFETY: SNAP_DESTROY reads one `btrfs_ioctl_vol_args`.
    unsafe { ioctl(folder, request(WRITE, 15, 4096), &mut VolArgs::named(name)?) }.map(drop)
}

/// Removes a subvolume by its id, wherever it is.
pub(super) fn destroy_id(any: impl AsFd, id: u64) -> Result<()> {
    let mut args = VolArgs2 { fd: 0, transid: 0, flags: DESTROY_BY_ID, unused: [0; 4], id, rest: [0; 504] };
    // SAFETY: SNAP_DESTROY_V2 reads one `btrfs_ioctl_vol_args_v2`.
    unsafe { ioctl(any, request(WRITE, 63, 4096), &mut args) }.map(drop)
}

/// Makes the file system so large, which has one device.
pub(super) fn resize(any: impl AsFd, bytes: u64) -> Result<()> {
    // SAFETY: RESIZE reads one `btrfs_ioctl_vol_args`.
    match unsafe { ioctl(any, request(WRITE, 3, 4096), &mut VolArgs::named(&bytes.to_string())?) }? {
        0 => Ok(()),
        // A positive code says that a balance or the like is running.
        _ => Err(Errno::BUSY),
    }
}

/// Commits, and wakes the kernel's cleaner, which frees removed subvolumes.
pub(super) fn sync(any: impl AsFd) -> Result<()> {
    // SAFETY: SYNC takes no argument and ignores the pointer.
    unsafe { ioctl(any, request(0, 8, 0), &mut 0_u64) }.map(drop)
}

/// The id of the subvolume that a directory is in.
pub(super) fn subvolume_id(dir: impl AsFd) -> Result<u64> {
    let mut args = VolArgs2 { fd: 0, transid: FIRST_INODE, flags: 0, unused: [0; 4], id: 0, rest: [0; 504] };
    // SAFETY: INO_LOOKUP reads and writes `btrfs_ioctl_ino_lookup_args`: two u64 (tree, inode) and a name,
    // 4096 bytes in all, which `VolArgs2` covers with its first two fields in the same places.
    unsafe { ioctl(dir, request(BOTH, 18, 4096), &mut args) }?;
    Ok(args.fd.cast_unsigned())
}

/// The file system's UUID.
pub(super) fn uuid(any: impl AsFd) -> Result<uuid::Uuid> {
    let mut args = [0_u64; 128];
    // SAFETY: FS_INFO writes one `btrfs_ioctl_fs_info_args` of 1024 bytes.
    unsafe { ioctl(any, request(READ, 31, 1024), &mut args) }?;
    let (mut bytes, halves) = ([0; 16], [args[2].to_ne_bytes(), args[3].to_ne_bytes()]);
    bytes.copy_from_slice(halves.as_flattened());
    Ok(uuid::Uuid::from_bytes(bytes))
}

/// Turns quotas on: 1 is classic, 4 is simple.
pub(super) fn quota_enable(any: impl AsFd, command: u64) -> Result<()> {
    // SAFETY: QUOTA_CTL reads and writes two u64.
    unsafe { ioctl(any, request(BOTH, 40, 16), &mut [command, 0]) }.map(drop)
}

/// Starts counting anew.
pub(super) fn quota_rescan(any: impl AsFd) -> Result<()> {
    // SAFETY: QUOTA_RESCAN reads eight u64.
    unsafe { ioctl(any, request(WRITE, 44, 64), &mut [0_u64; 8]) }.map(drop)
}

/// Makes (`true`) or removes a group.
pub(super) fn group(any: impl AsFd, group: u64, make: bool) -> Result<()> {
    // SAFETY: QGROUP_CREATE reads two u64.
    unsafe { ioctl(any, request(WRITE, 42, 16), &mut [u64::from(make), group]) }.map(drop)
}

/// Puts a group into another (`true`) or takes it out.
pub(super) fn assign(any: impl AsFd, child: u64, parent: u64, put: bool) -> Result<()> {
    // SAFETY: QGROUP_ASSIGN reads three u64.
    unsafe { ioctl(any, request(WRITE, 41, 24), &mut [u64::from(put), child, parent]) }.map(drop)
}

/// Limits what a group's subvolumes refer to; the largest number lifts the limit.
pub(super) fn limit(any: impl AsFd, group: u64, bytes: u64) -> Result<()> {
    // SAFETY: QGROUP_LIMIT reads six u64: the group, the flags and four limits.
    unsafe { ioctl(any, request(READ, 43, 48), &mut [group, LIMIT_REFERENCED, bytes, 0, 0, 0]) }.map(drop)
}

/// One page of a tree search: the key range of `btrfs_ioctl_search_key`, then the items found.
#[repr(C)]
pub(super) struct Search {
    pub(super) tree: u64,
    pub(super) min_object: u64,
    pub(super) max_object: u64,
    pub(super) min_offset: u64,
    pub(super) max_offset: u64,
    pub(super) min_transid: u64,
    pub(super) max_transid: u64,
    pub(super) min_type: u32,
    pub(super) max_type: u32,
    pub(super) items: u32,
    unused: [u32; 9],
    size: u64,
    pub(super) buffer: [u8; Search::BUFFER],
}

impl Search {
    const BUFFER: usize = 64 << 10;

    pub(super) fn new(tree: u64, object: u64, types: (u32, u32)) -> Box<Self> {
        Box::new(Self {
            tree,
            min_object: object,
            max_object: object,
            min_offset: 0,
            max_offset: u64::MAX,
            min_transid: 0,
            max_transid: u64::MAX,
            min_type: types.0,
            max_type: types.1,
            items: 0,
            unused: [0; 9],
            size: Self::BUFFER as u64,
            buffer: [0; Self::BUFFER],
        })
    }

    /// Fills the buffer; `items` says with how many.
    pub(super) fn run(&mut self, any: impl AsFd) -> Result<()> {
        (self.items, self.size) = (u32::MAX, Self::BUFFER as u64);
        // SAFETY: TREE_SEARCH_V2 reads the key and the size, 112 bytes, and writes at most `size` bytes
        // behind them, which is where the buffer is.
        unsafe { ioctl(any, request(BOTH, 17, 112), self) }.map(drop)
    }
}

const _: () = assert!(std::mem::offset_of!(Search, buffer) == 112);
