//! Admission: every request that needs a container reserves resources here first. Two things are counted in
//! one capacity ledger ([`ledger`]): the quota of the owner's plan, which is checked at once, and the
//! machine's capacity, for which a request waits a while and in turn ([`queue`]).
//!
//! Nothing else reserves or frees. A [`Reservation`] that is dropped frees what it reserved, wherever the
//! request ended. The sandbox's actor keeps it once its container has started, and calls
//! [`Admission::stopped`] or [`Admission::gone`] when that ended. When the server starts, the ledger is
//! filled from the records ([`Admission::adopt`]).

mod ledger;
mod machine;
mod need;
mod pooled;
mod queue;
mod turns;
mod volumes;

pub(crate) use ledger::Tally;
pub use machine::Machine;
pub(crate) use need::{Need, Resource};
pub(crate) use pooled::PoolReservation;
pub(crate) use turns::{Turn, Turns};
pub(crate) use volumes::VolumeReservation;

use crate::runtime_settings::{LiveSettings, Quota};
use atoll_provider::DiskRoom;
use atoll_store::{SandboxId, SandboxRecord, Status};
use atoll_types::{Error, ErrorCode, Result};
use ledger::CapacityLedger;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// How often a waiting request polls whether the machine itself has room again; the kernel sends no
/// notification.
const LOOK: Duration = Duration::from_millis(250);
/// How long the pool may take to free what it reserves.
const GIVEN_BACK: Duration = Duration::from_secs(5);
/// The `Retry-After` of a request that has waited in vain.
const TRY_AGAIN: u32 = 5;

/// Decides which sandbox may have a container. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admission(Arc<Inner>);

struct Inner {
    machine: Machine,
    live_settings: Arc<LiveSettings>,
    ledger: Mutex<CapacityLedger>,
    /// The disk of all volumes together; none until it is known.
    disk: Mutex<Option<DiskRoom>>,
    /// A request waits for what the pool reserves.
    crowded: Notify,
}

/// Whether a sandbox with this status reserves resources.
fn holds(status: Status) -> bool {
    match status {
        Status::Provisioning | Status::Ready | Status::Paused => true,
        Status::Stopped | Status::Dead | Status::Destroyed => false,
    }
}

impl Inner {
    fn ledger(&self) -> MutexGuard<'_, CapacityLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants the requests that fit now. Where one has to wait, the pool is notified to free what it
    /// reserves.
    fn grant(&self, ledger: &mut CapacityLedger) {
        self.let_in(ledger);
        if !ledger.queue.is_empty() && ledger.pooled > 0 {
            self.crowded.notify_one();
        }
    }

    fn let_in(&self, ledger: &mut CapacityLedger) {
        if ledger.queue.is_empty() {
            return;
        }
        let capacity = self.machine.capacity(&self.live_settings.now());
        // Sampled once for all: the usage of what starts now shows only later.
        if self.machine.floor().beyond(&self.machine.free()).is_some() {
            return;
        }
        loop {
            let free = capacity.minus(&ledger.used);
            let Some(waiter) = ledger.queue.next(|need| need.beyond(&free).is_none()) else { return };
            if waiter.tell.send(()).is_ok() {
                ledger.reserve(waiter.id, waiter.need);
            }
        }
    }

    fn free(&self, change: impl FnOnce(&mut CapacityLedger)) {
        let mut ledger = self.ledger();
        change(&mut ledger);
        self.grant(&mut ledger);
    }

    fn disk(&self) -> MutexGuard<'_, Option<DiskRoom>> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether disks may be promised so much more.
    fn may_promise(&self, ledger: &CapacityLedger, more: u64) -> Result<()> {
        // Where it has no capacity at all, the provider refuses.
        let Some(disk) = self.disk().filter(|disk| disk.capacity_bytes > 0) else { return Ok(()) };
        let ratio = self.live_settings.now().admission_disk_ratio;
        let (capacity, used) = ((disk.capacity_bytes as f64 * ratio) as u64, ledger.disks());
        if used.saturating_add(more) <= capacity {
            return Ok(());
        }
        let (asked, free) = (more >> 20, capacity.saturating_sub(used) >> 20);
        if more > capacity {
            return Err(too_much("disk_mb", asked.into(), (capacity >> 20).into()));
        }
        let message = format!("the machine has no room: disk_mb {asked} was asked for and {free} is free");
        Err(Error::new(ErrorCode::LimitExceeded, message)
            .at("disk_mb")
            .fact("resource", "disk_mb")
            .fact("asked", asked)
            .fact("free", free)
            .fact("capacity", capacity >> 20)
            .fact("when", "when another sandbox is removed, or with a smaller disk_mb"))
    }

    /// Why there is no room, as of now.
    fn full(&self, need: &Need, waited: Duration) -> Error {
        let (capacity, used) = (self.machine.capacity(&self.live_settings.now()), self.ledger().used);
        let free = capacity.minus(&used).least(&self.machine.free().minus(&self.machine.floor()));
        // Another request may have been first; then the resource of which there was least for this one is
        // named.
        let short = need.beyond(&free).unwrap_or(Resource::Memory);
        let (asked, left) = (need.figure(short), free.figure(short));
        let field = short.field();
        let message = format!("the machine has no room: {field} {asked} was asked for and {left} is free");
        Error::new(ErrorCode::LimitExceeded, message)
            .at(field)
            .fact("resource", field)
            .fact("asked", asked)
            .fact("free", left)
            .fact("capacity", capacity.figure(short))
            .fact("waited_seconds", waited.as_secs())
            .fact("when", "when another sandbox is stopped or removed")
            .retry_after(TRY_AGAIN)
    }
}

impl Admission {
    pub(crate) fn new(machine: Machine, live_settings: Arc<LiveSettings>) -> Self {
        let (ledger, disk) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { machine, live_settings, ledger, disk, crowded: Notify::new() }))
    }

    /// The state of the disk of all volumes, as it was last read.
    pub(crate) fn set_disk(&self, room: DiskRoom) {
        *self.0.disk() = Some(room);
    }

    /// The same; none until it was read.
    pub(crate) fn disk(&self) -> Option<DiskRoom> {
        *self.0.disk()
    }

    /// Until when a request that arrives now waits.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.0.live_settings.now().admission_wait_seconds.into())
    }

    /// Enters a recorded sandbox; one that is known already stays as it is.
    pub(crate) fn adopt(&self, record: &SandboxRecord) {
        let reservation = holds(record.status).then(|| Need::of(&record.limits));
        self.0.ledger().adopt(record.id, &record.owner, record.limits.disk_bytes, reservation);
    }

    /// A reservation for a new sandbox, if its owner's plan allows it.
    pub(crate) fn place(
        &self,
        id: SandboxId,
        owner: &str,
        disk_bytes: u64,
        quota: Option<&Quota>,
    ) -> Result<Reservation> {
        let mut ledger = self.0.ledger();
        self.0.may_promise(&ledger, disk_bytes)?;
        ledger.place(id, owner, disk_bytes, quota)?;
        drop(ledger);
        Ok(self.reservation(id, owner, true))
    }

    /// A reservation for a sandbox without a container, if its owner's plan allows one more at a time.
    pub(crate) fn wake(&self, record: &SandboxRecord, quota: Option<&Quota>) -> Result<Reservation> {
        self.0.ledger().wake(record.id, &record.owner, record.limits.disk_bytes, quota)?;
        Ok(self.reservation(record.id, &record.owner, false))
    }

    /// Counts the disk of a sandbox with another limit, if its owner's plan allows it.
    pub(crate) fn resize_disk(&self, id: SandboxId, disk_bytes: u64, quota: Option<&Quota>) -> Result<()> {
        let mut ledger = self.0.ledger();
        // Without a plan to check, it restores the former limit.
        let more = disk_bytes.saturating_sub(ledger.disk(id));
        if more > 0 {
            self.0.may_promise(&ledger, more)?;
        }
        ledger.resize_disk(id, disk_bytes, quota)
    }

    fn reservation(&self, id: SandboxId, owner: &str, new: bool) -> Reservation {
        Reservation { admission: self.clone(), id, owner: owner.to_owned(), new, kept: false }
    }

    /// The sandbox has no container any more, but keeps its volume.
    pub(crate) fn stopped(&self, id: SandboxId) {
        self.0.free(|ledger| ledger.stopped(id));
    }

    /// It is gone with its volume.
    pub(crate) fn gone(&self, id: SandboxId) {
        self.0.free(|ledger| ledger.gone(id));
    }

    /// What an owner has.
    pub(crate) fn used_by(&self, owner: &str) -> Tally {
        self.0.ledger().tally(owner)
    }

    /// The owners that have a sandbox or a volume.
    pub(crate) fn owners(&self) -> Vec<String> {
        self.0.ledger().owners()
    }

    /// The settings changed.
    pub(crate) fn look(&self) {
        self.0.free(|_| ());
    }

    /// The error of a request whose turn did not come in time.
    pub(crate) fn no_turn(&self, need: &Need, since: Instant) -> Error {
        self.0.full(need, since.elapsed())
    }
}

/// The reservation of a sandbox. Dropped, it is freed.
pub(crate) struct Reservation {
    admission: Admission,
    id: SandboxId,
    owner: String,
    new: bool,
    kept: bool,
}

/// A request's place in the queue; dropped, it leaves the queue.
struct QueuePlace<'a> {
    reservation: &'a Reservation,
    ticket: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let Self { reservation, ticket } = self;
        // Others may have waited only for this one.
        reservation.admission.0.free(|ledger| ledger.queue.leave(&reservation.owner, *ticket));
    }
}

impl Reservation {
    /// Waits until the machine has room for this, at most until the deadline.
    pub(crate) async fn wait(&self, need: Need, deadline: Instant) -> Result<()> {
        let (inner, began) = (&*self.admission.0, Instant::now());
        let capacity = inner.machine.capacity(&inner.live_settings.now());
        if let Some(short) = need.beyond(&capacity) {
            return Err(never(&need, &capacity, short));
        }
        let joined = {
            let mut ledger = inner.ledger();
            let joined = ledger.queue.join(&self.owner, self.id, need);
            inner.grant(&mut ledger);
            joined
        };
        let Some((ticket, mut told)) = joined else {
            let message = format!("{} requests of yours wait for room already", queue::LONGEST_LINE);
            return Err(Error::new(ErrorCode::LimitExceeded, message)
                .fact("limit", "waiting_requests")
                .fact("allowed", queue::LONGEST_LINE)
                .retry_after(TRY_AGAIN));
        };
        let place = QueuePlace { reservation: self, ticket };
        loop {
            let now = Instant::now();
            // The pool is freeing what it reserves, so even a request that may not wait for others waits for
            // that.
            let end = if inner.ledger().pooled > 0 { deadline.max(began + GIVEN_BACK) } else { deadline };
            tokio::select! {
                biased;
                granted = &mut told => return granted.map_err(|_| inner.full(&need, began.elapsed())),
                () = tokio::time::sleep_until(end.min(now + LOOK)) => {}
            }
            self.admission.look();
            if told.try_recv().is_ok() {
                return Ok(());
            }
            if Instant::now() >= end {
                drop(place);
                // It may have been granted between the timeout and leaving the queue.
                return match told.try_recv() {
                    Ok(()) => Ok(()),
                    Err(_) => Err(inner.full(&need, began.elapsed())),
                };
            }
        }
    }

    /// Whether it reserves at least this.
    pub(crate) fn covers(&self, need: &Need) -> bool {
        self.admission
            .0
            .ledger()
            .reservation(self.id)
            .is_some_and(|reservation| need.beyond(&reservation).is_none())
    }

    /// A container uses it from now on.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        match (self.kept, self.new) {
            (true, _) => {}
            (false, true) => self.admission.gone(self.id),
            (false, false) => self.admission.stopped(self.id),
        }
    }
}

/// The error for what does not fit even on an empty machine.
fn never(need: &Need, capacity: &Need, short: Resource) -> Error {
    too_much(short.field(), need.figure(short), capacity.figure(short))
}

fn too_much(field: &'static str, asked: serde_json::Value, allowed: serde_json::Value) -> Error {
    let message = format!("{field} {asked} was asked for, and the machine gives at most {allowed}");
    Error::new(ErrorCode::PermissionDenied, message)
        .at(field)
        .fact("resource", field)
        .fact("asked", asked)
        .fact("allowed", allowed)
}

#[cfg(test)]
mod tests;
