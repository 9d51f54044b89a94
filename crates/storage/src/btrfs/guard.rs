//! The bounds that keep thin disks safe. Limits of trees may add up to more than there is; the kernel then bounds
//! their sum by two groups above them all, and this module sets these bounds by the free space of the disk below.
//! A pool's file system follows the disk below too, so btrfs never finds that a block of it cannot be written.

use super::quota::{ALL, VOLUMES};
use super::{Btrfs, ioctl, ledger, search};
use crate::error::failed;
use crate::pool::Pool;
use crate::report::QuotaKind;
use atoll_types::Result;

/// What volumes leave to the output of commands: a fiftieth of the capacity, and never more than this.
const MOST_FOR_SPOOLS: u64 = 1 << 30;

/// Btrfs can be made no smaller.
const SMALLEST: u64 = 256 << 20;

/// The bound of all volumes: before all of the capacity is used, so that commands still have their output.
fn for_volumes(capacity: u64) -> u64 {
    capacity.saturating_sub((capacity / 50).min(MOST_FOR_SPOOLS))
}

/// The bound of all volumes while a start needs so many bytes; none where they have them.
fn lifted(capacity: u64, used: u64, bytes: u64) -> Option<u64> {
    let (usual, wanted) = (for_volumes(capacity), used.saturating_add(bytes));
    (wanted > usual).then(|| wanted.min(usual + (capacity - usual) / 2))
}

/// The size that a pool should have instead of its own. Not at every small change of the disk below; and never
/// below the last chunk that is in use, since what is there would have to be moved.
fn new_size(size: u64, backed: u64, last_chunk: u64) -> Option<u64> {
    let target = (backed / 16 * 15).max(last_chunk).max(SMALLEST) >> 20 << 20;
    let (shrinks, grows) = (size > backed && target < size, size < backed / 4 * 3 && size < target);
    (shrinks || grows).then_some(target)
}

impl Btrfs {
    /// What all trees together can hold.
    pub(super) fn capacity(&self) -> Result<u64> {
        match &self.pool {
            Some(pool) => Ok(ledger::usable(self.backed(pool)?.min(self.size()?))),
            None => {
                let own = ledger::chunks(self.size()?);
                let used = self.quota.used_by(ALL).unwrap_or(0);
                Ok(used.saturating_add(self.disk.free()?.saturating_sub(own)))
            }
        }
    }

    pub(super) fn close_difference(&self) -> Result<()> {
        if let Some(pool) = &self.pool {
            self.follow_disk(pool)?;
        }
        if self.quota.kind != QuotaKind::Simple {
            return Ok(());
        }
        let capacity = self.capacity()?;
        for (group, bytes) in [(VOLUMES, for_volumes(capacity)), (ALL, capacity)] {
            // Zero would mean no limit to older kernels.
            let bound = || ioctl::limit(&self.fd, group, bytes.max(1));
            self.rescued(|| bound().map_err(failed("bound what all volumes hold")))?;
        }
        Ok(())
    }

    /// Where all volumes hold what they may: lets them hold so much more, at most half of what is kept for output.
    pub(super) fn lift_volumes(&self, bytes: u64) -> Result<()> {
        let used = self.quota.used_by(VOLUMES).filter(|_| self.quota.kind == QuotaKind::Simple);
        let Some(used) = used else { return Ok(()) };
        match lifted(self.capacity()?, used, bytes) {
            Some(bound) => {
                ioctl::limit(&self.fd, VOLUMES, bound).map_err(failed("raise the bound of all volumes"))
            }
            None => Ok(()),
        }
    }

    fn follow_disk(&self, pool: &Pool) -> Result<()> {
        let (size, backed) = (self.size()?, self.backed(pool)?);
        let chunks = search::chunks(&self.fd).map_err(failed("read the pool's chunks"))?;
        let last = chunks.iter().map(|chunk| chunk.place.end).max().unwrap_or(0);
        if let Some(target) = new_size(size, backed, last) {
            tracing::debug!(size, target, "the pool follows the disk below");
            self.resize(pool, target)?;
        }
        // A file system that cannot write its own metadata turns read-only, so metadata has its blocks before
        // data can take them.
        for chunk in chunks.iter().filter(|chunk| !chunk.data) {
            if let Err(error) = pool.back(&chunk.place) {
                tracing::warn!(%error, "the disk below is full");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::low;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_pool_follows_the_disk_below_in_large_steps() {
        assert_eq!(new_size(4 * GIB, 64 * GIB, 2 * GIB), Some(60 * GIB), "plenty was found");
        assert_eq!(new_size(60 * GIB, 64 * GIB, 2 * GIB), None, "as it should be");
        assert_eq!(new_size(60 * GIB, 61 * GIB, 2 * GIB), None, "others took a little");
        assert_eq!(new_size(60 * GIB, 32 * GIB, 2 * GIB), Some(30 * GIB), "others took much");
        assert_eq!(new_size(60 * GIB, 32 * GIB, 40 * GIB), Some(40 * GIB), "what is in use stays");
        assert_eq!(new_size(40 * GIB, 32 * GIB, 40 * GIB), None);
    }

    #[test]
    fn a_start_has_some_of_what_is_kept_for_output() {
        let (capacity, bytes) = (GIB, 8 << 20);
        let usual = for_volumes(capacity);
        assert_eq!(lifted(capacity, usual - bytes, bytes), None, "there is room");
        assert_eq!(lifted(capacity, usual - 1, bytes), Some(usual + bytes - 1));
        assert_eq!(
            lifted(capacity, capacity, bytes),
            Some(usual + (capacity - usual) / 2),
            "no more than that"
        );
    }

    #[test]
    fn volumes_leave_something_to_output_and_new_ones_stop_first() {
        for capacity in [GIB, 80 * GIB, 8000 * GIB] {
            assert!(for_volumes(capacity) < capacity && capacity - low(capacity) < for_volumes(capacity));
        }
    }
}
