//! How often each caller may do something: a token bucket for each name.

use atoll_types::{Rate, TokenBucket};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Names remembered; beyond that, those with a full bucket are forgotten.
const MOST: usize = 10_000;

/// A bucket for each name.
#[derive(Default)]
pub struct Rates(Mutex<HashMap<String, TokenBucket>>);

impl Rates {
    /// Takes one, or says how long it is until there is one.
    pub fn take(&self, name: &str, rate: Rate) -> Result<(), Duration> {
        self.take_at(name, rate, Instant::now())
    }

    pub(crate) fn take_at(&self, name: &str, rate: Rate, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > MOST {
            buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        buckets.entry(name.to_owned()).or_default().take(1.0, rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_empties_the_bucket_and_time_fills_it() {
        let (rates, start) = (Rates::default(), Instant::now());
        let rate = Rate { per_second: 500.0, burst: 2000.0 };
        let taken = |name, at| (0..5000).filter(|_| rates.take_at(name, rate, at).is_ok()).count();
        assert_eq!(taken("a", start), 2000);
        assert_eq!(rates.take_at("a", rate, start), Err(Duration::from_millis(2)));
        assert_eq!(taken("b", start), 2000, "others are not affected");
        assert_eq!(taken("a", start + Duration::from_secs(1)), 500);
    }

    #[test]
    fn a_full_bucket_is_forgotten_and_an_empty_one_is_not() {
        let (rates, start) = (Rates::default(), Instant::now());
        let rate = Rate { per_second: 1.0, burst: 1.0 };
        assert!(rates.take_at("empty", rate, start).is_ok());
        for number in 0..=MOST {
            let _ = rates.take_at(&number.to_string(), rate, start - Duration::from_secs(60));
        }
        assert!(rates.take_at("empty", rate, start).is_err());
        assert!(rates.0.lock().unwrap().len() < 10);
    }
}
