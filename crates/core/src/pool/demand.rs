//! How many containers to keep ready: as many as were requested lately. The target rises at once, because the
//! next request would wait otherwise, and falls by one at a time, so that it does not oscillate.

use crate::PoolSize;
use std::time::Duration;
use tokio::time::Instant;

/// After how long a request counts half.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// How long the target must exceed the need before it falls by one.
const PATIENCE: Duration = Duration::from_secs(30);

/// The recent demand, and the target that follows from it.
#[derive(Debug)]
pub(super) struct Demand {
    /// Requests, older ones counting less, as of `at`.
    recent: f64,
    at: Instant,
    target: u32,
    /// When the target last was what is needed, or was lowered.
    needed: Instant,
}

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        Self { recent: 0.0, at: now, target: 0, needed: now }
    }

    fn fade(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.recent *= 0.5_f64.powf(passed);
        self.at = now;
    }

    /// A request for a container.
    pub(super) fn note(&mut self, now: Instant) {
        self.fade(now);
        self.recent += 1.0;
    }

    /// How many to keep ready.
    pub(super) fn target(&mut self, size: PoolSize, now: Instant) -> u32 {
        self.fade(now);
        // A request that has decayed to less than half counts as none.
        let wanted = (self.recent.round() as u32).clamp(size.min, size.max);
        if wanted >= self.target || self.target > size.max {
            (self.target, self.needed) = (wanted, now);
        } else if now.saturating_duration_since(self.needed) >= PATIENCE {
            (self.target, self.needed) = (self.target - 1, now);
        }
        self.target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: PoolSize = PoolSize { min: 2, max: 8 };

    fn later(seconds: u64, of: Instant) -> Instant {
        of + Duration::from_secs(seconds)
    }

    #[test]
    fn it_grows_at_once_within_its_bounds_and_shrinks_slowly_and_never_back_and_forth() {
        let begin = Instant::now();
        let mut demand = Demand::new(begin);
        assert_eq!(demand.target(SIZE, begin), 2);
        for _ in 0..5 {
            demand.note(begin);
        }
        assert_eq!(demand.target(SIZE, begin), 5);
        for _ in 0..100 {
            demand.note(begin);
        }
        assert_eq!(demand.target(SIZE, begin), 8);
        let mut last = 8;
        for second in 1..2000 {
            let target = demand.target(SIZE, later(second, begin));
            assert!(target == last || target == last - 1, "{last} to {target} at {second}");
            last = target;
        }
        assert_eq!(last, 2);
    }

    #[test]
    fn a_steady_demand_has_a_steady_target() {
        let begin = Instant::now();
        let mut demand = Demand::new(begin);
        let mut seen = std::collections::BTreeSet::new();
        for second in 0..1200 {
            let now = later(second, begin);
            if second % 15 == 0 {
                demand.note(now);
            }
            let target = demand.target(SIZE, now);
            if second > 600 {
                seen.insert(target);
            }
        }
        assert_eq!(seen.len(), 1, "{seen:?}");
    }

    #[test]
    fn a_smaller_size_holds_at_once() {
        let now = Instant::now();
        let mut demand = Demand::new(now);
        for _ in 0..50 {
            demand.note(now);
        }
        assert_eq!(demand.target(PoolSize { min: 0, max: 50 }, now), 50);
        assert_eq!(demand.target(PoolSize { min: 1, max: 3 }, now), 3);
        assert_eq!(demand.target(PoolSize { min: 0, max: 0 }, now), 0);
        assert_eq!(demand.target(PoolSize { min: 9, max: 60 }, now), 50);
    }
}
