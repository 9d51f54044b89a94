//! The few system calls that no safe crate wraps. Everything unsafe here, each block with its reason; callers see
//! safe functions. Layouts are those of <linux/btrfs.h>, <linux/fs.h> and <fcntl.h>.
#![allow(unsafe_code)]

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    io::Errno,
};
use std::io;

const HANDLE_BYTES: u32 = 20;
const BTRFS_HANDLE: i32 = 0x4d;
const INO_PATHS: u32 = 0xc038_9423;
const ROOT_REFS: u32 = 0xd000_943d;
const MAP_QUERY: u32 = 0xc068_6611;
/// Shared, backed by a file, at the address or after it.
const SHARED_FILE_FROM: u64 = 0x08 | 0x20 | 0x10;

/// A new group: events with the folder, the name, the inode and the thread; never full.
pub(crate) fn fanotify_group() -> io::Result<OwnedFd> {
    let flags = libc::FAN_CLASS_NOTIF
        | libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK
        | libc::FAN_UNLIMITED_QUEUE
        | libc::FAN_REPORT_TID
        | libc::FAN_REPORT_DFID_NAME_TARGET;
    // SAFETY: takes integers only.
    own(unsafe { libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint) })
}

/// Marks the whole file system that a folder is on.
pub(crate) fn mark_filesystem(group: &OwnedFd, folder: &OwnedFd, mask: u64) -> io::Result<()> {
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    // SAFETY: both descriptors are open, and no path is given.
    let code =
        unsafe { libc::fanotify_mark(group.as_raw_fd(), flags, mask, folder.as_raw_fd(), std::ptr::null()) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A `struct file_handle` of btrfs, without the parent.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Handle {
    bytes: u32,
    kind: i32,
    inode: u64,
    root: u64,
    generation: u32,
}

/// Opens a folder by its inode, wherever it is: no path is walked. `NOENT` when it is gone.
pub(crate) fn open_folder(any: impl AsFd, root: u64, inode: u64) -> Result<OwnedFd, Errno> {
    // Inode numbers are never reused, so any generation will do: 0.
    let mut handle = Handle { bytes: HANDLE_BYTES, kind: BTRFS_HANDLE, inode, root, generation: 0 };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NOATIME | libc::O_NOFOLLOW;
    // SAFETY: the handle is as long as it says and outlives the call.
    let fd = unsafe { libc::open_by_handle_at(any.as_fd().as_raw_fd(), (&raw mut handle).cast(), flags) };
    match own(fd).map_err(|cause| errno(&cause)) {
        Err(Errno::STALE | Errno::NOTDIR) => Err(Errno::NOENT),
        other => other,
    }
}

/// The subvolume and the inode of a file.
pub(crate) fn identity(file: impl AsFd) -> Result<(u64, u64), Errno> {
    let mut handle = Handle { bytes: HANDLE_BYTES, kind: 0, inode: 0, root: 0, generation: 0 };
    let mut mount = 0;
    // SAFETY: the path is an empty C string; the handle has the room that it says and outlives the call.
    let code = unsafe {
        libc::name_to_handle_at(
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if code < 0 {
        return Err(errno(&io::Error::last_os_error()));
    }
    if handle.kind == BTRFS_HANDLE { Ok((handle.root, handle.inode)) } else { Err(Errno::OPNOTSUPP) }
}

#[repr(C)]
struct InoPaths {
    inode: u64,
    size: u64,
    reserved: [u64; 4],
    to: u64,
}

const _: () = assert!(size_of::<InoPaths>() == 56);

/// The paths of an inode, relative to the subvolume of `tree`; old ones may be among them. `true`: there
/// are more than fit.
pub(crate) fn paths_of(tree: impl AsFd, inode: u64) -> Result<(Vec<Vec<u8>>, bool), Errno> {
    let few = some_paths(&tree, inode, 4096)?;
    if few.1 { some_paths(&tree, inode, 65536) } else { Ok(few) }
}

/// The same, as far as they fit into so many bytes.
fn some_paths(tree: impl AsFd, inode: u64, size: usize) -> Result<(Vec<Vec<u8>>, bool), Errno> {
    let mut room = vec![0_u8; size];
    let to = room.as_mut_ptr() as u64;
    let mut args = InoPaths { inode, size: size as u64, reserved: [0; 4], to };
    // SAFETY: INO_PATHS reads one `btrfs_ioctl_ino_path_args` and writes at most `size` bytes to `room`.
    unsafe { ioctl(tree, INO_PATHS, &raw mut args)? };
    // Bytes left and missing, elements given and missed; then the elements, each the place of a string,
    // counted from the end of this header.
    let (header, body) = room.split_at_checked(16).ok_or(Errno::IO)?;
    let number = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let (Some(missing), Some(count), Some(missed)) = (number(4), number(8), number(12)) else {
        return Err(Errno::IO);
    };
    let path = |element: &[u8]| {
        let place = usize::try_from(u64::from_ne_bytes(element.try_into().ok()?)).ok()?;
        Some(body.get(place..)?.split(|byte| *byte == 0).next()?.to_vec())
    };
    let paths = body.chunks_exact(8).take(count as usize).filter_map(path).collect();
    Ok((paths, missing != 0 || missed != 0))
}

#[repr(C)]
struct RootRefs {
    least: u64,
    refs: [[u64; 2]; 255],
    count: u8,
    pad: [u8; 7],
}

const _: () = assert!(size_of::<RootRefs>() == 4096);

/// Whether a subvolume has others inside it.
pub(crate) fn has_nested(tree: impl AsFd) -> Result<bool, Errno> {
    let mut args = RootRefs { least: 0, refs: [[0; 2]; 255], count: 0, pad: [0; 7] };
    // SAFETY: GET_SUBVOL_ROOTREF fills one `btrfs_ioctl_get_subvol_rootref_args`.
    match unsafe { ioctl(tree, ROOT_REFS, &raw mut args) } {
        Ok(()) => Ok(args.count > 0),
        Err(Errno::OVERFLOW) => Ok(true),
        Err(cause) => Err(cause),
    }
}

#[repr(C)]
#[derive(Default)]
struct MapQuery {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const _: () = assert!(size_of::<MapQuery>() == 104);

/// A shared mapping of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
}

/// The first shared mapping of a file at or after an address, from an open `/proc/<pid>/maps`.
pub(crate) fn next_shared(maps: impl AsFd, address: u64) -> Result<Option<Mapping>, Errno> {
    let size = size_of::<MapQuery>() as u64;
    let mut query = MapQuery { size, flags: SHARED_FILE_FROM, address, ..MapQuery::default() };
    // SAFETY: PROCMAP_QUERY fills one `procmap_query`; no name and no build id are requested.
    match unsafe { ioctl(maps, MAP_QUERY, &raw mut query) } {
        Ok(()) => Ok(Some(Mapping { start: query.start, end: query.end, offset: query.offset })),
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Begins to write dirty pages of a file back, which takes the right to write to them from every mapping.
pub(crate) fn begin_write_back(file: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    let (offset, length) = (offset.cast_signed(), length.cast_signed());
    // SAFETY: takes integers only.
    let code =
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
    if code < 0 { Err(errno(&io::Error::last_os_error())) } else { Ok(()) }
}

/// # Safety
/// `T` must have the layout that the request expects, and what it points to must be as long as it says.
unsafe fn ioctl<T>(fd: impl AsFd, request: u32, argument: *mut T) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the layout; the descriptor outlives the call.
    let code = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as _, argument) };
    if code < 0 { Err(errno(&io::Error::last_os_error())) } else { Ok(()) }
}

fn own(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn errno(cause: &io::Error) -> Errno {
    Errno::from_io_error(cause).unwrap_or(Errno::IO)
}
