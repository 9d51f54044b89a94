//! What containers of the pool hold of the machine. They count like any other and belong to nobody; they
//! are made only where nobody waits, and are asked back as soon as somebody does. A claim moves what one
//! holds to the sandbox under one lock, so between the two nobody else gets it.

use super::{Admission, Need, Seat};

/// What one container of the pool holds. Dropped, it is free.
pub(crate) struct PoolSeat {
    admission: Admission,
    /// None once it is a sandbox's.
    need: Option<Need>,
}

impl Admission {
    /// A place for one more in the pool, where there is room and nobody waits for it.
    pub(crate) fn pool_seat(&self, need: Need) -> Option<PoolSeat> {
        let inner = &*self.0;
        let capacity = inner.machine.capacity(&inner.live.now());
        let mut book = inner.book();
        let free = capacity.minus(&book.used).least(&inner.machine.free().minus(&inner.machine.floor()));
        if !book.queue.is_empty() || need.beyond(&free).is_some() {
            return None;
        }
        book.used = book.used.plus(&need);
        book.pooled += 1;
        Some(PoolSeat { admission: self.clone(), need: Some(need) })
    }

    /// Comes about when somebody waits for room while the pool holds some.
    pub(crate) async fn crowded(&self) {
        self.0.crowded.notified().await;
    }
}

impl Seat {
    /// Sits down in the place of a container of the pool, if what this one needs fits there and nobody has
    /// waited for room before it.
    pub(crate) fn take_over(&self, pooled: &mut PoolSeat, need: Need) -> bool {
        let inner = &*self.admission.0;
        let capacity = inner.machine.capacity(&inner.live.now());
        let mut book = inner.book();
        let Some(held) = pooled.need else { return false };
        let rest = book.used.minus(&held);
        if !book.queue.is_empty() || need.beyond(&capacity.minus(&rest)).is_some() {
            return false;
        }
        book.used = rest;
        book.pooled = book.pooled.saturating_sub(1);
        pooled.need = None;
        book.sit(self.id, need);
        true
    }
}

impl Drop for PoolSeat {
    fn drop(&mut self) {
        let Some(need) = self.need.take() else { return };
        self.admission.0.free(|book| {
            book.used = book.used.minus(&need);
            book.pooled = book.pooled.saturating_sub(1);
        });
    }
}
