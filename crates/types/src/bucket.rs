//! How much in how long. One bucket serves every connection of a sandbox: whoever takes from it gets the
//! next place in time, so that no connection is ahead of another for longer than one chunk.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A rate, kept as the moment at which everything taken so far is paid for.
#[derive(Debug, Default)]
pub(crate) struct Bucket(Mutex<Option<Instant>>);

impl Bucket {
    /// Takes, and says how long to wait before it may be used. Taking more than a moment holds only makes the
    /// next wait longer.
    pub(crate) fn take(&self, amount: u64, per_second: u64, burst: Duration) -> Duration {
        let now = Instant::now();
        let mut paid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = paid.map_or(now, |paid| paid.max(now));
        let until = from + cost(amount, per_second);
        *paid = Some(until);
        until.saturating_duration_since(now).saturating_sub(burst)
    }

    /// Takes if there is no need to wait.
    pub(crate) fn try_take(&self, amount: u64, per_second: u64, burst: Duration) -> bool {
        let now = Instant::now();
        let mut paid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = paid.map_or(now, |paid| paid.max(now)) + cost(amount, per_second);
        let fits = until.saturating_duration_since(now) <= burst;
        if fits {
            *paid = Some(until);
        }
        fits
    }
}

fn cost(amount: u64, per_second: u64) -> Duration {
    let nanos = u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1));
    // A day is enough for anybody to notice.
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(Duration::from_secs(86_400))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn so_much_is_free_and_then_it_is_refused() {
        let (bucket, burst) = (Bucket::default(), Duration::from_secs(3600));
        for _ in 0..10 {
            assert!(bucket.try_take(360, 1, burst));
        }
        assert!(!bucket.try_take(360, 1, burst), "what an hour holds is taken");
    }

    #[test]
    fn what_was_taken_is_waited_for() {
        let bucket = Bucket::default();
        assert!(bucket.take(1000, 1000, SECOND).is_zero());
        let (first, second) = (bucket.take(1_000_000, 1000, SECOND), bucket.take(1_000_000, 1000, SECOND));
        assert!(first > SECOND * 500 && second > first + SECOND * 500, "{first:?} {second:?}");
    }

    #[test]
    fn nothing_overflows() {
        let bucket = Bucket::default();
        for _ in 0..3 {
            bucket.take(u64::MAX, 1, SECOND);
            bucket.take(u64::MAX, 0, SECOND);
        }
    }
}
