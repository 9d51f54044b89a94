//! How often somebody may do something: a bucket for each, which fills steadily and which a burst may
//! empty.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Names remembered; beyond that, those with a full bucket are forgotten.
const MOST: usize = 10_000;

/// How a bucket fills, and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// So many come into it.
    pub per_second: f64,
    /// So many are in it at most.
    pub burst: f64,
}

struct Bucket {
    left: f64,
    at: Instant,
    rate: Rate,
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * self.rate.per_second).min(self.rate.burst);
        self.at = self.at.max(now);
    }
}

/// A bucket for each name.
#[derive(Default)]
pub struct Rates(Mutex<HashMap<String, Bucket>>);

impl Rates {
    /// Takes one, or says how long it is until there is one.
    pub fn take(&self, name: &str, rate: Rate) -> Result<(), Duration> {
        self.take_at(name, rate, Instant::now())
    }

    pub(crate) fn take_at(&self, name: &str, rate: Rate, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > MOST {
            buckets.retain(|_, bucket| {
                bucket.fill(now);
                bucket.left < bucket.rate.burst
            });
        }
        let bucket = buckets.entry(name.to_owned()).or_insert(Bucket { left: rate.burst, at: now, rate });
        bucket.fill(now);
        // It may be another than the last time.
        (bucket.rate, bucket.left) = (rate, bucket.left.min(rate.burst));
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let wait = (1.0 - bucket.left) / rate.per_second;
        Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
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
