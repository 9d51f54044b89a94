//! Who enforces limits on btrfs. With simple quotas every tree has a group of our own level above its
//! subvolume's: the kernel puts whatever subvolume a sandbox makes inside its tree into the same group,
//! so nesting is no way around the limit. Classic quotas know no such thing; the limit is then on the
//! subvolume's own group, and only the sandbox's seccomp filter refuses nested subvolumes.

use super::{ioctl, search};
use crate::error::{failed, unsupported};
use crate::report::QuotaKind;
use atoll_types::{Error, ErrorCode, Result};
use rustix::io::Errno;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A level that nobody else uses; the group's number is the subvolume's id.
pub(super) const OUR_LEVEL: u64 = 0x0A70 << 48;
/// The first level that is not a subvolume's own.
pub(super) const LEVEL_1: u64 = 1 << 48;

pub(super) struct Quota {
    pub(super) kind: QuotaKind,
    /// What the kernel says about the groups, live.
    live: PathBuf,
}

impl Quota {
    /// Finds the quotas of a file system, turning on simple ones, or classic ones on older kernels.
    pub(super) fn enable(any: impl AsFd) -> Result<Self> {
        let uuid = ioctl::uuid(&any).map_err(failed("read the id of the file system"))?;
        let live = Path::new("/sys/fs/btrfs").join(uuid.hyphenated().to_string()).join("qgroups");
        if !live.exists() {
            let simple = ioctl::quota_enable(&any, 4);
            simple.or_else(|_| ioctl::quota_enable(&any, 1)).map_err(failed("turn on disk quotas"))?;
        }
        // Kernels that know classic quotas only have no such file.
        let kind = match fs::read_to_string(live.join("mode")).as_deref().map(str::trim) {
            Ok("squota") => QuotaKind::Simple,
            Ok("disabled") => return Err(unsupported("disk quotas cannot be turned on")),
            _ => QuotaKind::Classic,
        };
        Ok(Self { kind, live })
    }

    /// The group that carries the limit of a subvolume.
    pub(super) fn group(&self, subvolume: u64) -> u64 {
        if self.kind == QuotaKind::Simple { OUR_LEVEL | subvolume } else { subvolume }
    }

    /// Refuses new trees while classic quotas do not know what is used, and has them counted anew.
    pub(super) fn ready(&self, any: impl AsFd) -> Result<()> {
        let wrong = fs::read_to_string(self.live.join("inconsistent")).is_ok_and(|text| text.trim() == "1");
        if self.kind != QuotaKind::Classic || !wrong {
            return Ok(());
        }
        match ioctl::quota_rescan(any) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(cause) => return Err(failed("count the disk use anew")(cause)),
        }
        let message =
            "disk use is being counted anew, and nothing is created meanwhile: try again in a moment";
        Err(Error::new(ErrorCode::Unavailable, message))
    }

    /// Limits a subvolume that was just made.
    pub(super) fn set_up(&self, any: impl AsFd, subvolume: u64, bytes: u64) -> rustix::io::Result<()> {
        let group = self.group(subvolume);
        if group != subvolume {
            ioctl::group(&any, group, true)?;
            ioctl::assign(&any, subvolume, group, true)?;
        }
        ioctl::limit(any, group, bytes)
    }

    /// Gives back what a subvolume was promised and lifts its limit, which would also keep what is inside
    /// from being removed. Repeating it does no harm.
    pub(super) fn take_down(&self, any: impl AsFd, subvolume: u64) -> rustix::io::Result<()> {
        let group = self.group(subvolume);
        if group == subvolume {
            return absent_is_fine(ioctl::limit(any, group, u64::MAX));
        }
        for member in search::members(&any, group)? {
            absent_is_fine(ioctl::assign(&any, member, group, false))?;
        }
        absent_is_fine(ioctl::group(any, group, false))
    }

    /// What a subvolume uses now: what is written, and what waits to be.
    pub(super) fn used(&self, subvolume: u64) -> Option<u64> {
        let group = self.group(subvolume);
        let folder = self.live.join(format!("{}_{}", group >> 48, group & (LEVEL_1 - 1)));
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        Some(read("referenced")?.saturating_add(read("rsv_data").unwrap_or(0)))
    }
}

/// Removes groups whose subvolume is gone: ours, and on a pool of ours everybody's.
pub(super) fn sweep(any: impl AsFd, pool: bool) -> rustix::io::Result<()> {
    for group in search::groups(&any)?.into_keys() {
        let (level, subvolume) = (group & !(LEVEL_1 - 1), group & (LEVEL_1 - 1));
        let ours = level == OUR_LEVEL || (pool && level == 0 && subvolume >= 256);
        if !ours || search::exists(&any, subvolume)? {
            continue;
        }
        for member in search::members(&any, group)? {
            absent_is_fine(ioctl::assign(&any, member, group, false))?;
        }
        // A group that snapshots still draw on is kept by the kernel.
        let _ = ioctl::group(&any, group, false);
    }
    Ok(())
}

fn absent_is_fine(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
