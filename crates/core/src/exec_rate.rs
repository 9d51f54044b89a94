//! How often an owner may start a command, by its plan: a bucket for each owner, which fills steadily and
//! which a burst may empty. Where it is empty the answer says when there is one in it again.

use crate::live::Quota;
use atoll_types::{Error, ErrorCode, Result};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Owners remembered; beyond that, those with a full bucket are forgotten.
const MOST: usize = 10_000;

struct Bucket {
    left: f64,
    at: Instant,
    rate: f64,
    size: f64,
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * self.rate).min(self.size);
        self.at = now;
    }
}

/// A bucket for each owner.
#[derive(Default)]
pub(crate) struct ExecRates(Mutex<HashMap<String, Bucket>>);

impl ExecRates {
    /// Takes one from the owner's bucket, or says when there will be one.
    pub(crate) fn take(&self, owner: &str, quota: &Quota) -> Result<()> {
        self.take_at(owner, quota, Instant::now())
    }

    fn take_at(&self, owner: &str, quota: &Quota, now: Instant) -> Result<()> {
        let (rate, size) = (f64::from(quota.execs_per_second), f64::from(quota.exec_burst));
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > MOST {
            buckets.retain(|_, bucket| {
                bucket.fill(now);
                bucket.left < bucket.size
            });
        }
        let bucket = buckets.entry(owner.to_owned()).or_insert(Bucket { left: size, at: now, rate, size });
        bucket.fill(now);
        // The plan may be another than the last time.
        (bucket.rate, bucket.size, bucket.left) = (rate, size, bucket.left.min(size));
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let wait = ((1.0 - bucket.left) / rate).ceil() as u32;
        let message = format!("you may start {} commands a second", quota.execs_per_second);
        Err(Error::new(ErrorCode::LimitExceeded, message)
            .fact("limit", "execs_per_second")
            .fact("plan", quota.plan.as_str())
            .fact("allowed", quota.execs_per_second)
            .fact("burst", quota.exec_burst)
            .retry_after(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_empties_the_bucket_and_the_answer_says_when_it_is_filled() {
        let quota = |execs_per_second, exec_burst| Quota {
            plan: "free".into(),
            concurrent: 0,
            sandboxes: 0,
            disk_mb: 0,
            execs_per_second,
            exec_burst,
        };
        let (rates, start) = (ExecRates::default(), Instant::now());
        let small = quota(1, 5);
        let taken =
            |owner, quota: &Quota, at| (0..50).filter(|_| rates.take_at(owner, quota, at).is_ok()).count();
        assert_eq!(taken("ann", &small, start), 5);
        let refused = rates.take_at("ann", &small, start).unwrap_err();
        assert_eq!(refused.refusal.unwrap().retry_after_seconds, Some(1));
        assert_eq!(taken("bob", &small, start), 5, "others are not affected");
        assert_eq!(taken("ann", &small, start + Duration::from_secs(2)), 2);
        // A plan that changes counts from then on.
        assert_eq!(taken("ann", &quota(10, 20), start + Duration::from_secs(3)), 1);
        assert_eq!(taken("ann", &quota(10, 20), start + Duration::from_secs(4)), 10);
    }
}
