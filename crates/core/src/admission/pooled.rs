//! What containers of the pool reserve of the machine. They count like any other but have no owner; they are
//! made only while no request waits, and are destroyed as soon as one does. A claim moves a container's
//! reservation to the sandbox under one lock, so no other request can take it in between.
//!
//! A request that waits is granted what the pool gives back even after its own deadline, for 5 s at most.

use super::{Admission, Need, Reservation};

/// The reservation of one container of the pool. Dropped, it is freed.
pub(crate) struct PoolReservation {
    admission: Admission,
    /// None once it is a sandbox's.
    need: Option<Need>,
}

impl Admission {
    /// A reservation for one more in the pool, where there is room and no request waits for it.
    pub(crate) fn pool_reservation(&self, need: Need) -> Option<PoolReservation> {
        let inner = &*self.0;
        let capacity = inner.machine.capacity(&inner.live_settings.now());
        let mut ledger = inner.ledger();
        let free = capacity.minus(&ledger.used).least(&inner.machine.free().minus(&inner.machine.floor()));
        if !ledger.queue.is_empty() || need.beyond(&free).is_some() {
            return None;
        }
        ledger.used = ledger.used.plus(&need);
        ledger.pooled += 1;
        Some(PoolReservation { admission: self.clone(), need: Some(need) })
    }

    /// Completes when a request waits for room while the pool reserves some.
    pub(crate) async fn crowded(&self) {
        self.0.crowded.notified().await;
    }
}

impl Reservation {
    /// Takes over the reservation of a container of the pool, if what this sandbox needs fits and no request
    /// has waited for room before it.
    pub(crate) fn take_over(&self, pooled: &mut PoolReservation, need: Need) -> bool {
        let inner = &*self.admission.0;
        let capacity = inner.machine.capacity(&inner.live_settings.now());
        let mut ledger = inner.ledger();
        let Some(held) = pooled.need else { return false };
        let rest = ledger.used.minus(&held);
        if !ledger.queue.is_empty() || need.beyond(&capacity.minus(&rest)).is_some() {
            return false;
        }
        ledger.used = rest;
        ledger.pooled = ledger.pooled.saturating_sub(1);
        pooled.need = None;
        ledger.reserve(self.id, need);
        true
    }
}

impl Drop for PoolReservation {
    fn drop(&mut self) {
        let Some(need) = self.need.take() else { return };
        self.admission.0.free(|ledger| {
            ledger.used = ledger.used.minus(&need);
            ledger.pooled = ledger.pooled.saturating_sub(1);
        });
    }
}
