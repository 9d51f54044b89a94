//! The file that a name holds now, looked up in a folder that is open already. A symbolic link is never followed,
//! and no lookup blocks: a sandbox may have a FUSE file system that never answers.

use crate::change::Kind;
use rustix::{
    fd::AsFd,
    fs::{AtFlags, FileType, Statx, StatxFlags, statx},
    io::Errno,
    time::{ClockId, clock_gettime},
};

/// A moment on the file system's clock: seconds and nanoseconds.
pub(crate) type Moment = (i64, u32);

/// The file system's coarse clock, which advances by ticks: no change from now on has an earlier time.
pub(crate) fn tick() -> Moment {
    moment(ClockId::RealtimeCoarse)
}

/// The precise time: no change until now has a later time.
pub(crate) fn now() -> Moment {
    moment(ClockId::Realtime)
}

fn moment(clock: ClockId) -> Moment {
    let time = clock_gettime(clock);
    (time.tv_sec, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What a name holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) links: u32,
    pub(crate) mode: u16,
    pub(crate) owner: (u32, u32),
    pub(crate) modified: Moment,
    /// The ctime, which every change sets and no program can choose.
    pub(crate) changed: Moment,
    pub(crate) born: Moment,
    pub(crate) kind: Option<Kind>,
    pub(crate) is_dir: bool,
}

/// The file that a name holds, `None` where there is none. An empty name is the folder itself.
pub(crate) fn look(dir: impl AsFd, name: &[u8]) -> Result<Option<Found>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    match statx(dir, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME) {
        Ok(stat) => Ok(Some(found(&stat))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(cause) => Err(cause),
    }
}

fn found(stat: &Statx) -> Found {
    let kind = FileType::from_raw_mode(stat.stx_mode.into());
    Found {
        device: (stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        size: stat.stx_size,
        links: stat.stx_nlink,
        mode: stat.stx_mode,
        owner: (stat.stx_uid, stat.stx_gid),
        modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        born: (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
        kind: match kind {
            FileType::RegularFile => Some(Kind::File),
            FileType::Symlink => Some(Kind::Symlink),
            _ => None,
        },
        is_dir: kind == FileType::Directory,
    }
}
