//! What containers of the pool hold of the machine. They count like any other and belong to nobody; they
//! are made only where nobody waits, and are asked back as soon as somebody does. A claim moves what one
//! holds to the sandbox under one lock, so between the two nobody else gets it.
//!
//! A request that waits is granted what the pool gives back even after its own deadline, for 5 s at most.

use super::{Admission, Need, Reservation};

/// What one container of the pool holds. Dropped, it is free.
pub(crate) struct PoolReservation {
    admission: Admission,
    /// None once it is a sandbox's.
    need: Option<Need>,
}

impl Admission {
    /// A place for one more in the pool, where there is room and nobody waits for it.
    pub(crate) fn pool_seat(&self, need: Need) -> Option<PoolReservation> {
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

    /// Comes about when somebody waits for room while the pool holds some.
    pub(crate) async fn crowded(&self) {
        self.0.crowded.notified().await;
    }
}

impl Reservation {
    /// Sits down in the place of a container of the pool, if what this one needs fits there and nobody has
    /// waited for room before it.
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
        ledger.sit(self.id, need);
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
