//! What enforces limits on btrfs. With simple quotas every tree has a group of `OUR_LEVEL` above its subvolume's:
//! the kernel puts every subvolume that a sandbox makes inside its tree into the same group, so nesting is no way
//! around the limit. Classic quotas cannot do that; the limit is then on the subvolume's own group, and only the
//! sandbox's seccomp filter refuses nested subvolumes.
//!
//! A snapshot of a volume is in the volume's group, and so is the subvolume that a rollback puts in the volume's place.
//! The kernel charges a block to the subvolume that wrote it for as long as any subvolume refers to it, so a volume
//! pays for what its snapshots keep, also after a rollback: a subvolume that a rollback replaced stays in the group.
//! A group is therefore found by what it holds; its number is that of the volume's first subvolume.
//!
//! A fork has a group of its own, and what it shares is charged to the volume that wrote it. So that no chain of forks
//! whose origins are deleted holds more than its limits, a fork's limit is lowered by what its origin held
//! ([`SHARED`]): it begins with that counted as used.
//!
//! Simple quotas also bound the sum: all trees' groups are in `VOLUMES` or, for output, in `ALL`, which has
//! `VOLUMES` too. The kernel checks every group on the way up before it lets a byte be written.

use super::{ioctl, search};
use crate::error::{failed, unsupported};
use crate::report::QuotaKind;
use crate::tree::TreeKind;
use atoll_types::{Error, ErrorCode, Result};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A level that no other program uses; the group's number is the subvolume's id.
pub(super) const OUR_LEVEL: u64 = 0x0A70 << 48;
/// The same for output, which counts by its use.
pub(super) const SPOOL_LEVEL: u64 = 0x0A6F << 48;
/// Every volume together, and what of removed ones is not freed yet.
pub(super) const VOLUMES: u64 = 0x0A71 << 48;
/// Everything together.
pub(super) const ALL: u64 = 0x0A72 << 48;
/// The attribute of a fork's root that says how much of its limit is taken by what it shared when it was made. Code in
/// a sandbox cannot have attributes of this name space, and sees no volume's root.
pub(super) const SHARED: &str = "trusted.atoll.shared";
/// The first level that is not a subvolume's own.
pub(super) const LEVEL_1: u64 = 1 << 48;

pub(super) struct Quota {
    pub(super) kind: QuotaKind,
    /// The kernel's live figures of the groups.
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
        if kind == QuotaKind::Simple {
            bound_all(any).map_err(failed("bound what all volumes hold"))?;
        }
        Ok(Self { kind, live })
    }

    /// The group that carries the limit of a tree that is there.
    pub(super) fn find(&self, any: impl AsFd, kind: TreeKind, subvolume: u64) -> rustix::io::Result<u64> {
        let own = self.group(kind, subvolume);
        if own == subvolume || kind == TreeKind::Temporary {
            return Ok(own);
        }
        let parents = search::parents(any, subvolume)?;
        Ok(parents.into_iter().find(|parent| is_trees(*parent)).unwrap_or(own))
    }

    /// The group that carries the limit of a new tree's subvolume.
    fn group(&self, kind: TreeKind, subvolume: u64) -> u64 {
        match (self.kind, kind) {
            (QuotaKind::Simple, TreeKind::Spool) => SPOOL_LEVEL | subvolume,
            (QuotaKind::Simple, _) => OUR_LEVEL | subvolume,
            _ => subvolume,
        }
    }

    /// Refuses new trees while classic quotas have no valid count, and starts a rescan.
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
    pub(super) fn set_up(
        &self,
        any: impl AsFd,
        kind: TreeKind,
        subvolume: u64,
        bytes: u64,
    ) -> rustix::io::Result<()> {
        let group = self.group(kind, subvolume);
        if group != subvolume {
            ioctl::group(&any, group, true)?;
            ioctl::assign(&any, subvolume, group, true)?;
            ioctl::assign(&any, group, above(group), true)?;
        }
        ioctl::limit(any, group, bytes)
    }

    /// Counts a subvolume that was just made in the group of another; with classic quotas it gets that one's
    /// limit for its own.
    pub(super) fn join(&self, any: impl AsFd, subvolume: u64, group: u64) -> rustix::io::Result<()> {
        if self.kind == QuotaKind::Simple {
            return ioctl::assign(any, subvolume, group, true);
        }
        let limit = search::group(&any, group)?.and_then(|group| group.limit).unwrap_or(0);
        ioctl::limit(any, subvolume, limit)
    }

    /// Gives back what a subvolume was promised and removes its limit, which would also keep its contents from
    /// being removed. Repeating it does no harm.
    pub(super) fn take_down(&self, any: impl AsFd, subvolume: u64) -> rustix::io::Result<()> {
        if self.kind != QuotaKind::Simple {
            return absent_is_fine(ioctl::limit(any, subvolume, u64::MAX));
        }
        for parent in search::parents(&any, subvolume)?.into_iter().filter(|parent| *parent != VOLUMES) {
            absent_is_fine(ioctl::assign(&any, subvolume, parent, false))?;
        }
        for group in [OUR_LEVEL | subvolume, SPOOL_LEVEL | subvolume] {
            self.dissolve(&any, group)?;
        }
        // What it holds is freed in the background, and counts until then.
        count_in_all(any, subvolume)
    }

    /// Removes the group of a tree that is gone. What is in it counts among all volumes until it is freed.
    pub(super) fn dissolve(&self, any: impl AsFd, group: u64) -> rustix::io::Result<()> {
        if self.kind != QuotaKind::Simple || !is_trees(group) {
            return Ok(());
        }
        for member in search::members(&any, group)? {
            absent_is_fine(ioctl::assign(&any, member, group, false))?;
            count_in_all(&any, member)?;
        }
        absent_is_fine(ioctl::group(any, group, false))
    }

    /// What of a group waits to be written back.
    pub(super) fn dirty(&self, group: u64) -> u64 {
        let file = self.folder(group).join("rsv_data");
        fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// What of everything waits to be written back. Classic quotas have no group above all, so each subvolume's is read.
    pub(super) fn all_dirty(&self) -> u64 {
        if self.kind == QuotaKind::Simple {
            return self.dirty(ALL);
        }
        let Ok(groups) = fs::read_dir(&self.live) else { return 0 };
        let ids =
            groups.flatten().filter_map(|group| group.file_name().to_str()?.strip_prefix("0_")?.parse().ok());
        ids.map(|id| self.dirty(id)).sum()
    }

    /// Where the kernel shows a group's figures.
    pub(super) fn folder(&self, group: u64) -> PathBuf {
        self.live.join(format!("{}_{}", group >> 48, group & (LEVEL_1 - 1)))
    }

    /// What a group uses now: what is written, and what waits to be.
    pub(super) fn used_by(&self, group: u64) -> Option<u64> {
        let folder = self.folder(group);
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        Some(read("referenced")?.saturating_add(read("rsv_data").unwrap_or(0)))
    }
}

/// Removes groups whose subvolume is gone: those of Atoll's levels, and on a pool, which is Atoll's alone, all of
/// them.
pub(super) fn sweep(any: impl AsFd, pool: bool) -> rustix::io::Result<()> {
    for group in search::groups(&any)?.into_keys() {
        let (level, subvolume) = (group & !(LEVEL_1 - 1), group & (LEVEL_1 - 1));
        let ours = |parent: &u64| is_trees(*parent) || *parent == VOLUMES;
        let stale =
            level == 0 && subvolume >= 256 && (pool || search::parents(&any, group)?.iter().any(ours));
        if !(stale || is_trees(group)) || search::exists(&any, subvolume)? {
            continue;
        }
        let members = search::members(&any, group)?;
        // After a rollback the volume is another subvolume than the one that gave the group its number.
        if members.iter().any(|member| search::exists(&any, *member).unwrap_or(true)) {
            continue;
        }
        for member in members {
            absent_is_fine(ioctl::assign(&any, member, group, false))?;
            count_in_all(&any, member)?;
        }
        // A group that snapshots still draw on is kept by the kernel.
        let _ = ioctl::group(&any, group, false);
    }
    Ok(())
}

/// Whether a group is that of a tree.
fn is_trees(group: u64) -> bool {
    let level = group & !(LEVEL_1 - 1);
    level == OUR_LEVEL || level == SPOOL_LEVEL
}

/// Counts a subvolume among all volumes and in no tree.
fn count_in_all(any: impl AsFd, subvolume: u64) -> rustix::io::Result<()> {
    match ioctl::assign(any, subvolume, VOLUMES, true) {
        Err(Errno::EXIST | Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// The group that bounds the sum of which a tree's group is a part.
fn above(group: u64) -> u64 {
    if group & !(LEVEL_1 - 1) == SPOOL_LEVEL { ALL } else { VOLUMES }
}

/// Makes the groups above all, and puts every tree into them that was made before they were there.
fn bound_all(any: impl AsFd) -> rustix::io::Result<()> {
    let groups = search::groups(&any)?;
    for group in [VOLUMES, ALL] {
        if !groups.contains_key(&group) {
            ioctl::group(&any, group, true)?;
        }
    }
    let inside = |parent| search::members(&any, parent).map(HashSet::<u64>::from_iter);
    let (volumes, all) = (inside(VOLUMES)?, inside(ALL)?);
    if !all.contains(&VOLUMES) {
        ioctl::assign(&any, VOLUMES, ALL, true)?;
    }
    for group in groups.into_keys() {
        let there = volumes.contains(&group) || all.contains(&group);
        if is_trees(group) && !there {
            match ioctl::assign(&any, group, above(group), true) {
                // Another process removed it meanwhile.
                Err(Errno::INVAL) if !search::groups(&any)?.contains_key(&group) => {}
                assigned => assigned?,
            }
        }
    }
    Ok(())
}

fn absent_is_fine(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
