//! What is promised on a btrfs file system, and how large a pool must be for it.

use super::quota::{LEVEL_1, OUR_LEVEL};
use super::search::Group;
use std::collections::{BTreeMap, HashSet};

/// Sums over the groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    /// Limits of the trees, or what they use where that is more. With simple quotas output has none here: it
    /// counts by its use.
    pub(super) limits: u64,
    /// What the trees use.
    pub(super) used: u64,
    /// What subvolumes use that are no tree's: the top level, and what is being freed.
    pub(super) elsewhere: u64,
}

impl Ledger {
    /// With simple quotas the trees are the groups of `OUR_LEVEL`; with classic ones they are listed.
    pub(super) fn new(groups: &BTreeMap<u64, Group>, listed: Option<&HashSet<u64>>) -> Self {
        let mut ledger = Self::default();
        let mut all = 0_u64;
        for (id, group) in groups {
            let tree = listed.map_or(id & !(LEVEL_1 - 1) == OUR_LEVEL, |listed| listed.contains(id));
            if tree {
                ledger.limits = ledger.limits.saturating_add(group.limit.unwrap_or(0).max(group.used));
                ledger.used = ledger.used.saturating_add(group.used);
            }
            if *id < LEVEL_1 {
                all = all.saturating_add(group.used);
            }
        }
        ledger.elsewhere = all.saturating_sub(ledger.used);
        ledger
    }

    pub(super) fn outstanding(&self) -> u64 {
        self.limits.saturating_sub(self.used)
    }

    /// What a pool must hold.
    pub(super) fn needed(&self) -> u64 {
        self.limits.saturating_add(self.elsewhere)
    }
}

/// What of a pool trees can use. The rest is btrfs's own: checksums and extents (a 64th), and chunks.
pub(super) fn usable(pool: u64) -> u64 {
    pool.saturating_sub(pool / 64).saturating_sub(chunks(pool))
}

/// What btrfs needs so that metadata never finds all space given to data. It hands out space in chunks of
/// 1 GiB, or a tenth of a small file system; small, medium and large extents and metadata have chunks of
/// their own, and the last one of each is never quite full.
pub(super) fn chunks(size: u64) -> u64 {
    (16 << 20) + 4 * (size / 10).min(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_count_with_their_limits_and_the_rest_with_its_use() {
        let group = |used, limit| Group { used, limit };
        let groups = BTreeMap::from([
            (5, group(10, None)),
            (300, group(40, None)),
            (301, group(7, None)),
            (OUR_LEVEL | 300, group(40, Some(100))),
            (LEVEL_1 | 9, group(1000, Some(5000))),
        ]);
        let simple = Ledger::new(&groups, None);
        assert_eq!(simple, Ledger { limits: 100, used: 40, elsewhere: 17 });
        assert_eq!(simple.outstanding(), 60);
        assert_eq!(simple.needed(), 117);
        let classic = Ledger::new(&groups, Some(&HashSet::from([300])));
        assert_eq!(classic, Ledger { limits: 40, used: 40, elsewhere: 17 });
    }
}
