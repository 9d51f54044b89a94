//! Every sandbox that is not destroyed: its owner, its disk limit, and what it reserves of the machine while
//! it has a container or is about to get one. All counts are sums over these entries and change with them,
//! under one lock, so two concurrent requests never both get the last place.

use super::{Need, queue::Queue};
use crate::runtime_settings::Quota;
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, Result, VolumeId};
use std::collections::HashMap;

struct Entry {
    owner: String,
    disk_bytes: u64,
    /// It counts towards the owner's limit of concurrent sandboxes.
    live: bool,
    /// What it reserves of the machine.
    reservation: Option<Need>,
}

/// The totals of one owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) sandboxes: u32,
    pub(crate) live: u32,
    pub(crate) volumes: u32,
    /// Of sandboxes and volumes.
    pub(crate) disk_bytes: u64,
}

#[derive(Default)]
pub(super) struct CapacityLedger {
    entries: HashMap<SandboxId, Entry>,
    /// Volumes beside those of sandboxes: owner and limit.
    volumes: HashMap<VolumeId, (String, u64)>,
    owners: HashMap<String, Tally>,
    /// The sum of all reservations, the pool's included.
    pub(super) used: Need,
    /// How many of them are the pool's.
    pub(super) pooled: u32,
    pub(super) queue: Queue,
}

/// The `Retry-After` of an owner whose plan is used up. The server cannot know when one of its sandboxes ends.
const LOOK_AGAIN: u32 = 5;

fn over(code: ErrorCode, limit: &str, message: String, quota: &Quota) -> Error {
    Error::new(code, message).fact("limit", limit).fact("plan", quota.plan.as_str())
}

impl Tally {
    fn may_have(&self, disk_bytes: u64, quota: &Quota) -> Result<()> {
        if self.sandboxes >= quota.sandboxes {
            let message = format!(
                "you have {} sandboxes, stopped ones included, and may have {}; remove one first",
                self.sandboxes, quota.sandboxes
            );
            return Err(over(ErrorCode::LimitExceeded, "sandboxes", message, quota)
                .fact("used", self.sandboxes)
                .fact("allowed", quota.sandboxes)
                .fact("when", "when one of them is removed")
                .retry_after(LOOK_AGAIN));
        }
        Self::may_hold(self.disk_bytes, disk_bytes, quota)
    }

    fn may_have_volume(&self, disk_bytes: u64, quota: &Quota) -> Result<()> {
        if self.volumes >= quota.volumes {
            let message =
                format!("you have {} volumes and may have {}; delete one first", self.volumes, quota.volumes);
            return Err(over(ErrorCode::LimitExceeded, "volumes", message, quota)
                .fact("used", self.volumes)
                .fact("allowed", quota.volumes)
                .fact("when", "when one of them is deleted"));
        }
        Self::may_hold(self.disk_bytes, disk_bytes, quota)
    }

    /// Whether disks with this total limit may have so much more.
    fn may_hold(disk_bytes: u64, more: u64, quota: &Quota) -> Result<()> {
        let (asked, used) = (more >> 20, disk_bytes >> 20);
        if used.saturating_add(asked) > quota.disk_mb {
            let message = format!(
                "the disks of your sandboxes and volumes may hold {} MB in all and hold up to {used}; {asked} MB \
                 more do not fit",
                quota.disk_mb
            );
            // What the plan never allows is refused for good; else there is room once something is removed.
            let never = asked > quota.disk_mb;
            let code = if never { ErrorCode::PermissionDenied } else { ErrorCode::LimitExceeded };
            let error = over(code, "disk_mb", message, quota)
                .at("disk_mb")
                .fact("asked", asked)
                .fact("used", used)
                .fact("allowed", quota.disk_mb)
                .fact("when", "when one of them is removed, or with a smaller disk_mb");
            return Err(if never { error } else { error.retry_after(LOOK_AGAIN) });
        }
        Ok(())
    }

    fn may_run(&self, quota: &Quota) -> Result<()> {
        if self.live < quota.concurrent {
            return Ok(());
        }
        let message = format!(
            "you have {} sandboxes at a time and may have {}; stop or remove one first",
            self.live, quota.concurrent
        );
        Err(over(ErrorCode::LimitExceeded, "concurrent_sandboxes", message, quota)
            .fact("used", self.live)
            .fact("allowed", quota.concurrent)
            .fact("when", "when one of them is stopped or removed")
            .retry_after(LOOK_AGAIN))
    }
}

impl CapacityLedger {
    pub(super) fn tally(&self, owner: &str) -> Tally {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    /// Those with a sandbox or a volume.
    pub(super) fn owners(&self) -> Vec<String> {
        let has = |tally: &Tally| tally.sandboxes > 0 || tally.volumes > 0;
        self.owners.iter().filter(|(_, tally)| has(tally)).map(|(owner, _)| owner.clone()).collect()
    }

    /// Enters a sandbox that exists already.
    pub(super) fn adopt(&mut self, id: SandboxId, owner: &str, disk_bytes: u64, reservation: Option<Need>) {
        if self.entries.contains_key(&id) {
            return;
        }
        self.enter(id, owner, disk_bytes);
        if let Some(need) = reservation {
            self.set_live(id, true);
            self.reserve(id, need);
        }
    }

    /// Enters a new one, if its owner's plan allows it.
    pub(super) fn place(
        &mut self,
        id: SandboxId,
        owner: &str,
        disk_bytes: u64,
        quota: Option<&Quota>,
    ) -> Result<()> {
        if let Some(quota) = quota {
            let tally = self.owners.get(owner).copied().unwrap_or_default();
            tally.may_have(disk_bytes, quota)?;
            tally.may_run(quota)?;
        }
        self.enter(id, owner, disk_bytes);
        self.set_live(id, true);
        Ok(())
    }

    /// Counts a stopped one as concurrent again, if its owner's plan allows it.
    pub(super) fn wake(
        &mut self,
        id: SandboxId,
        owner: &str,
        disk_bytes: u64,
        quota: Option<&Quota>,
    ) -> Result<()> {
        let live = self.entries.get(&id).map(|entry| entry.live);
        if let (Some(quota), Some(false) | None) = (quota, live) {
            self.owners.get(owner).copied().unwrap_or_default().may_run(quota)?;
        }
        if live.is_none() {
            self.enter(id, owner, disk_bytes);
        }
        self.set_live(id, true);
        Ok(())
    }

    /// The disk limit of one.
    pub(super) fn disk(&self, id: SandboxId) -> u64 {
        self.entries.get(&id).map_or(0, |entry| entry.disk_bytes)
    }

    /// The sum of all disk limits.
    pub(super) fn disks(&self) -> u64 {
        self.owners.values().fold(0, |sum, tally| sum.saturating_add(tally.disk_bytes))
    }

    /// Changes the disk limit of one, if its owner's plan allows it.
    pub(super) fn resize_disk(
        &mut self,
        id: SandboxId,
        disk_bytes: u64,
        quota: Option<&Quota>,
    ) -> Result<()> {
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(()) };
        let tally = self.owners.entry(entry.owner.clone()).or_default();
        let others = tally.disk_bytes.saturating_sub(entry.disk_bytes);
        if let Some(quota) = quota
            && disk_bytes > entry.disk_bytes
        {
            Tally::may_hold(others, disk_bytes, quota)?;
        }
        tally.disk_bytes = others.saturating_add(disk_bytes);
        entry.disk_bytes = disk_bytes;
        Ok(())
    }

    fn enter(&mut self, id: SandboxId, owner: &str, disk_bytes: u64) {
        let tally = self.owners.entry(owner.to_owned()).or_default();
        tally.sandboxes += 1;
        tally.disk_bytes = tally.disk_bytes.saturating_add(disk_bytes);
        self.entries
            .insert(id, Entry { owner: owner.to_owned(), disk_bytes, live: false, reservation: None });
    }

    fn set_live(&mut self, id: SandboxId, live: bool) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.live != live) else {
            return;
        };
        entry.live = live;
        let tally = self.owners.entry(entry.owner.clone()).or_default();
        tally.live = if live { tally.live + 1 } else { tally.live.saturating_sub(1) };
    }

    /// Reserves what one needs of the machine.
    pub(super) fn reserve(&mut self, id: SandboxId, need: Need) {
        self.release(id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.reservation = Some(need);
            self.used = self.used.plus(&need);
        }
    }

    fn release(&mut self, id: SandboxId) {
        if let Some(reservation) = self.entries.get_mut(&id).and_then(|entry| entry.reservation.take()) {
            self.used = self.used.minus(&reservation);
        }
    }

    /// What one reserves of the machine.
    pub(super) fn reservation(&self, id: SandboxId) -> Option<Need> {
        self.entries.get(&id).and_then(|entry| entry.reservation)
    }

    /// Its container is gone.
    pub(super) fn stopped(&mut self, id: SandboxId) {
        self.release(id);
        self.set_live(id, false);
    }

    /// The sandbox is gone.
    pub(super) fn gone(&mut self, id: SandboxId) {
        self.stopped(id);
        let Some(Entry { owner, disk_bytes, .. }) = self.entries.remove(&id) else { return };
        if let Some(tally) = self.owners.get_mut(&owner) {
            tally.sandboxes = tally.sandboxes.saturating_sub(1);
            tally.disk_bytes = tally.disk_bytes.saturating_sub(disk_bytes);
            if tally.sandboxes == 0 && tally.volumes == 0 {
                self.owners.remove(&owner);
            }
        }
    }

    /// Enters a new volume, if its owner's plan allows it; one that is known stays as it is.
    pub(super) fn place_volume(
        &mut self,
        id: VolumeId,
        owner: &str,
        disk_bytes: u64,
        quota: Option<&Quota>,
    ) -> Result<()> {
        if self.volumes.contains_key(&id) {
            return Ok(());
        }
        if let Some(quota) = quota {
            self.owners.get(owner).copied().unwrap_or_default().may_have_volume(disk_bytes, quota)?;
        }
        let tally = self.owners.entry(owner.to_owned()).or_default();
        tally.volumes += 1;
        tally.disk_bytes = tally.disk_bytes.saturating_add(disk_bytes);
        self.volumes.insert(id, (owner.to_owned(), disk_bytes));
        Ok(())
    }

    /// The limit of a volume.
    pub(super) fn volume_disk(&self, id: VolumeId) -> u64 {
        self.volumes.get(&id).map_or(0, |(_, bytes)| *bytes)
    }

    /// Changes the limit of a volume, if its owner's plan allows it.
    pub(super) fn resize_volume(&mut self, id: VolumeId, to: u64, quota: Option<&Quota>) -> Result<()> {
        let Some((owner, bytes)) = self.volumes.get_mut(&id) else { return Ok(()) };
        let tally = self.owners.entry(owner.clone()).or_default();
        let others = tally.disk_bytes.saturating_sub(*bytes);
        if let Some(quota) = quota
            && to > *bytes
        {
            Tally::may_hold(others, to, quota)?;
        }
        tally.disk_bytes = others.saturating_add(to);
        *bytes = to;
        Ok(())
    }

    /// The volume is removed.
    pub(super) fn volume_gone(&mut self, id: VolumeId) {
        let Some((owner, bytes)) = self.volumes.remove(&id) else { return };
        if let Some(tally) = self.owners.get_mut(&owner) {
            tally.volumes = tally.volumes.saturating_sub(1);
            tally.disk_bytes = tally.disk_bytes.saturating_sub(bytes);
            if tally.sandboxes == 0 && tally.volumes == 0 {
                self.owners.remove(&owner);
            }
        }
    }
}
