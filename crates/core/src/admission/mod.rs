//! Admission: whoever wants a container for a sandbox asks here first. Two things are counted, in one book
//! ([`ledger`]): what an owner may have by its plan, which is answered at once, and what the machine has,
//! for which a request waits a while and in turn ([`queue`]).
//!
//! This is the one place that reserves and frees. A [`Reservation`] is a reservation; dropped, it frees what it
//! reserved, wherever the request ended. The sandbox's actor keeps it when its container has started and
//! says [`Admission::stopped`] or [`Admission::gone`] when that ended. After a start of the server the
//! book is filled from the records ([`Admission::adopt`]).

mod ledger;
mod machine;
mod need;
mod pooled;
mod queue;
mod turns;

pub use machine::Machine;
pub(crate) use need::{Need, Resource};
pub(crate) use pooled::PoolReservation;
pub(crate) use turns::{Turn, Turns};

use crate::runtime_settings::{LiveSettings, Quota};
use atoll_store::{SandboxId, SandboxRecord, Status};
use atoll_types::{Error, ErrorCode, Result};
use ledger::CapacityLedger;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// How often somebody who waits looks whether the machine itself has room again, which nobody tells.
const LOOK: Duration = Duration::from_millis(250);
/// How long the pool may take to give back what it holds.
const GIVEN_BACK: Duration = Duration::from_secs(5);
/// After how long somebody may try again who has waited in vain.
const TRY_AGAIN: u32 = 5;

/// Who may have a container. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admission(Arc<Inner>);

struct Inner {
    machine: Machine,
    live_settings: Arc<LiveSettings>,
    ledger: Mutex<CapacityLedger>,
    /// What all volumes together can hold; zero until it is known.
    disk_capacity: AtomicU64,
    /// Somebody waits for what the pool holds.
    crowded: Notify,
}

/// Whether a sandbox in this state holds something of the machine.
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

    /// Lets in who may go in now. Where somebody has to wait, what the pool holds is asked back.
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
        // One look for all: what starts now shows later.
        if self.machine.floor().beyond(&self.machine.free()).is_some() {
            return;
        }
        loop {
            let free = capacity.minus(&ledger.used);
            let Some(waiter) = ledger.queue.next(|need| need.beyond(&free).is_none()) else { return };
            if waiter.tell.send(()).is_ok() {
                ledger.sit(waiter.id, waiter.need);
            }
        }
    }

    fn free(&self, change: impl FnOnce(&mut CapacityLedger)) {
        let mut ledger = self.ledger();
        change(&mut ledger);
        self.grant(&mut ledger);
    }

    /// Whether disks may be promised so much more.
    fn may_promise(&self, ledger: &CapacityLedger, more: u64) -> Result<()> {
        let (most, ratio) =
            (self.disk_capacity.load(Ordering::Relaxed), self.live_settings.now().admission_disk_ratio);
        let (capacity, used) = ((most as f64 * ratio) as u64, ledger.disks());
        if most == 0 || used.saturating_add(more) <= capacity {
            return Ok(());
        }
        let (asked, free) = (more >> 20, capacity.saturating_sub(used) >> 20);
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
        // Somebody else may have been first; then what there was least of for this one is named.
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
        let (ledger, disk_capacity) = (Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Inner { machine, live_settings, ledger, disk_capacity, crowded: Notify::new() }))
    }

    /// All volumes together can hold so much.
    pub(crate) fn set_disk_capacity(&self, bytes: u64) {
        self.0.disk_capacity.store(bytes, Ordering::Relaxed);
    }

    /// Until when a request that comes now waits.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(self.0.live_settings.now().admission_wait_seconds.into())
    }

    /// Enters what is recorded; what is known already stays.
    pub(crate) fn adopt(&self, record: &SandboxRecord) {
        let reservation = holds(record.status).then(|| Need::of(&record.limits));
        self.0.ledger().adopt(record.id, &record.owner, record.limits.disk_bytes, reservation);
    }

    /// A place for a new sandbox, if its owner may have one.
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

    /// A place for a sandbox that has no container, if its owner may have one more at a time.
    pub(crate) fn wake(&self, record: &SandboxRecord, quota: Option<&Quota>) -> Result<Reservation> {
        self.0.ledger().wake(record.id, &record.owner, record.limits.disk_bytes, quota)?;
        Ok(self.reservation(record.id, &record.owner, false))
    }

    /// Counts the disk of a sandbox with another limit, if its owner may have that.
    pub(crate) fn resize_disk(&self, id: SandboxId, disk_bytes: u64, quota: Option<&Quota>) -> Result<()> {
        let mut ledger = self.0.ledger();
        // Where there is no plan to ask it is what was there before.
        let more = disk_bytes.saturating_sub(ledger.disk(id));
        if more > 0 {
            self.0.may_promise(&ledger, more)?;
        }
        ledger.resize_disk(id, disk_bytes, quota)
    }

    fn reservation(&self, id: SandboxId, owner: &str, new: bool) -> Reservation {
        Reservation { admission: self.clone(), id, owner: owner.to_owned(), new, kept: false }
    }

    /// It has no container any more, and waits with its volume.
    pub(crate) fn stopped(&self, id: SandboxId) {
        self.0.free(|ledger| ledger.stopped(id));
    }

    /// It is gone with its volume.
    pub(crate) fn gone(&self, id: SandboxId) {
        self.0.free(|ledger| ledger.gone(id));
    }

    /// The settings are others now.
    pub(crate) fn look(&self) {
        self.0.free(|_| ());
    }

    /// What a request hears whose turn did not come in time.
    pub(crate) fn no_turn(&self, need: &Need, since: Instant) -> Error {
        self.0.full(need, since.elapsed())
    }
}

/// A sandbox's reservation. Dropped, it is given back.
pub(crate) struct Reservation {
    admission: Admission,
    id: SandboxId,
    owner: String,
    new: bool,
    kept: bool,
}

/// Somebody's place in a line; dropped, it is free.
struct QueuePlace<'a> {
    reservation: &'a Reservation,
    ticket: u64,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let Self { reservation, ticket } = self;
        // Others may have waited for this one alone.
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
            // What the pool holds is on its way back, whoever may not wait for others.
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
                // Between the look and the leaving it may have been let in after all.
                return match told.try_recv() {
                    Ok(()) => Ok(()),
                    Err(_) => Err(inner.full(&need, began.elapsed())),
                };
            }
        }
    }

    /// Whether it holds at least this.
    pub(crate) fn covers(&self, need: &Need) -> bool {
        self.admission
            .0
            .ledger()
            .reservation(self.id)
            .is_some_and(|reservation| need.beyond(&reservation).is_none())
    }

    /// A container sits in it from now on.
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

/// What does not fit even where nothing else runs.
fn never(need: &Need, capacity: &Need, short: Resource) -> Error {
    let (field, asked, allowed) = (short.field(), need.figure(short), capacity.figure(short));
    let message = format!("{field} {asked} was asked for, and the machine gives at most {allowed}");
    Error::new(ErrorCode::PermissionDenied, message)
        .at(field)
        .fact("resource", field)
        .fact("asked", asked)
        .fact("allowed", allowed)
}

#[cfg(test)]
mod tests;
