//! How often an owner may start a command, by its plan. Where it has to wait the answer says for how long.

use crate::{rate::Rates, runtime_settings::Quota};
use atoll_types::{Error, ErrorCode, Rate, Result};
use std::time::Instant;

/// What each owner has started of late.
#[derive(Default)]
pub(crate) struct ExecRates(Rates);

impl ExecRates {
    /// Counts one more, or says when it may be started.
    pub(crate) fn take(&self, owner: &str, quota: &Quota) -> Result<()> {
        self.take_at(owner, quota, Instant::now())
    }

    fn take_at(&self, owner: &str, quota: &Quota, now: Instant) -> Result<()> {
        let rate = Rate { per_second: f64::from(quota.execs_per_second), burst: f64::from(quota.exec_burst) };
        self.0.take_at(owner, rate, now).map_err(|wait| {
            let message = format!("you may start {} commands a second", quota.execs_per_second);
            Error::new(ErrorCode::LimitExceeded, message)
                .fact("limit", "execs_per_second")
                .fact("plan", quota.plan.as_str())
                .fact("allowed", quota.execs_per_second)
                .fact("burst", quota.exec_burst)
                .retry_after(wait.as_secs_f64().ceil() as u32)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_is_refused_and_the_answer_says_when_to_come_back() {
        let quota = |execs_per_second, exec_burst| Quota {
            plan: "free".into(),
            concurrent: 0,
            sandboxes: 0,
            volumes: 0,
            skills: 0,
            skills_mb: 0,
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
