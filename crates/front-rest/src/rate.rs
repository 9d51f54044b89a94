//! How often an owner may ask. A bucket for each owner: it fills steadily, and a burst may empty it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

const PER_SECOND: f64 = 500.0;
const BURST: f64 = 2000.0;
/// Owners remembered; beyond that, those with a full bucket are forgotten.
const MOST: usize = 10_000;

/// A bucket for each owner.
#[derive(Default)]
pub(crate) struct Rates {
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Rates {
    /// Takes one from the owner's bucket, if there is one.
    pub(crate) fn allow(&self, owner: &str) -> bool {
        self.allow_at(owner, Instant::now())
    }

    fn allow_at(&self, owner: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > MOST {
            buckets
                .retain(|_, (left, at)| *left + now.duration_since(*at).as_secs_f64() * PER_SECOND < BURST);
        }
        let (left, at) = buckets.entry(owner.to_owned()).or_insert((BURST, now));
        *left = (*left + now.saturating_duration_since(*at).as_secs_f64() * PER_SECOND).min(BURST);
        *at = now;
        let allowed = *left >= 1.0;
        if allowed {
            *left -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_empties_the_bucket_and_time_fills_it() {
        let (rates, start) = (Rates::default(), Instant::now());
        let allowed = (0..5000).filter(|_| rates.allow_at("a", start)).count();
        assert_eq!(allowed, 2000);
        assert!(rates.allow_at("b", start), "others are not affected");
        let later = start + Duration::from_secs(1);
        assert_eq!((0..5000).filter(|_| rates.allow_at("a", later)).count(), 500);
    }
}
