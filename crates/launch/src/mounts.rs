//! Mounts as descriptors: a tree is cloned, given its attributes and its id mapping while it is attached nowhere,
//! and only then attached.

use crate::sys;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstatvfs, open, openat2},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
        OpenTreeFlags, fsconfig_create, fsconfig_reconfigure, fsconfig_set_string, fsmount, fsopen, fspick,
        mount_change, move_mount, open_tree,
    },
};
use std::{fs, io, os::fd::AsRawFd, path::Path};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What a mount may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) read_only: bool,
    pub(crate) no_exec: bool,
}

impl Attributes {
    /// Set-uid files and devices are refused everywhere.
    fn bits(self) -> u64 {
        let mut bits = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        if self.read_only {
            bits |= libc::MOUNT_ATTR_RDONLY;
        }
        if self.no_exec {
            bits |= libc::MOUNT_ATTR_NOEXEC;
        }
        bits
    }
}

/// A tree of the host as a mount that is attached nowhere. Its `..` ends at its own top.
pub(crate) fn clone_tree(
    source: &Path,
    recursive: bool,
    attributes: Attributes,
    userns: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    let tree = open_tree(CWD, source, flags)?;
    sys::mount_setattr(tree.as_fd(), attributes.bits(), recursive, userns)?;
    Ok(tree)
}

/// Removes a tree of a folder, which may be a user's: a link that the user put in its path is not followed.
pub(crate) fn remove_tree(folder: &Path, name: &str) -> io::Result<()> {
    let held = open_without_links(folder)?;
    fs::remove_dir_all(Path::new("/proc/self/fd").join(held.as_raw_fd().to_string()).join(name))
}

fn open_without_links(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(CWD, folder, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// A folder that the caller of `atoll run` may reach, without what is mounted below it. No symbolic link is
/// followed: one that was put in the path since the caller's check could lead where only root may go.
pub(crate) fn clone_folder(
    source: &Path,
    attributes: Attributes,
    userns: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let folder = open_without_links(source)?;
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(&folder, "", flags)?;
    sys::mount_setattr(tree.as_fd(), attributes.bits(), false, Some(userns))?;
    Ok(tree)
}

/// What is at a place that is open, with all that is mounted below it, as a mount that is attached nowhere. Read-only
/// where that is requested, and otherwise as it is.
pub(crate) fn clone_place(place: &OwnedFd, read_only: bool) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(place, "", flags)?;
    let set = if read_only { libc::MOUNT_ATTR_RDONLY } else { 0 };
    sys::mount_setattr(tree.as_fd(), set, true, None)?;
    Ok(tree)
}

/// Attaches a mount at a path, or at the folder itself when the path is empty.
pub(crate) fn attach(tree: &OwnedFd, folder: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.as_os_str().is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    Ok(move_mount(tree, "", folder, path, flags)?)
}

/// Gives this process a mount namespace of its own, from which nothing travels back.
pub(crate) fn enter_private_namespace() -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWNS)?;
    Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?)
}

/// A small tmpfs for mount points.
pub(crate) fn small_tmpfs() -> io::Result<OwnedFd> {
    new_mount("tmpfs", &[("size", "1m"), ("mode", "0755")])
}

/// The root of a process. The caller must check after this call that the pid still names the same process.
pub(crate) fn root_of(pid: i32) -> io::Result<OwnedFd> {
    Ok(open(format!("/proc/{pid}/root"), FOLDER, Mode::empty())?)
}

/// Resizes a tmpfs below a root. No symbolic link is followed on the way there: the user's processes may have
/// made it.
pub(crate) fn resize_tmpfs(root: &OwnedFd, path: &str, bytes: u64) -> io::Result<()> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let place = openat2(root, path, FOLDER, Mode::empty(), resolve)?;
    let picked = fspick(&place, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
    fsconfig_set_string(&picked, "size", bytes.to_string())?;
    Ok(fsconfig_reconfigure(&picked)?)
}

/// An overlay, over one folder or several of which the first is the topmost. The folders are ours and hold no comma or
/// colon.
pub(crate) fn overlay(lowers: &[&Path], upper: &Path, work: &Path) -> io::Result<OwnedFd> {
    let text = |path: &Path| path.to_str().map(str::to_owned).ok_or(io::ErrorKind::InvalidInput);
    let lower: Vec<String> = lowers.iter().map(|path| text(path)).collect::<Result<_, _>>()?;
    let (lower, upper, work) = (lower.join(":"), text(upper)?, text(work)?);
    let overlay = new_mount("overlay", &[("lowerdir", &lower), ("upperdir", &upper), ("workdir", &work)])?;
    // The kernel mounts it read-only where it cannot make its work folder.
    match fstatvfs(&overlay)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => Err(Errno::DQUOT.into()),
        false => Ok(overlay),
    }
}

/// A read-only overlay: what lies in either folder, and in both what the upper one has. The folders are ours and hold
/// no comma or colon.
pub(crate) fn union(upper: &Path, lower: &Path) -> io::Result<OwnedFd> {
    let folders = format!("{}:{}", upper.display(), lower.display());
    new_mount("overlay", &[("lowerdir", &folders)])
}

fn new_mount(kind: &str, options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(&context, *key, *value)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
