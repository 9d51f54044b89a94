//! A token bucket: it fills at a steady rate, and a burst may empty it.

use std::time::{Duration, Instant};

/// The longest wait for a debt: any operator notices a limit of a day.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// How a bucket fills, and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many tokens it gains.
    pub per_second: f64,
    /// How many tokens it holds at most.
    pub burst: f64,
}

impl Rate {
    /// A rate whose bucket holds what it gains in this time. Less than one token in a second is one.
    pub fn over(per_second: u64, burst: Duration) -> Self {
        let per_second = per_second.max(1) as f64;
        Self { per_second, burst: per_second * burst.as_secs_f64() }
    }

    fn time_for(self, tokens: f64) -> Duration {
        Duration::try_from_secs_f64(tokens / self.per_second).unwrap_or(Duration::MAX)
    }
}

#[derive(Debug, Clone, Copy)]
struct Balance {
    /// A negative one is a debt.
    tokens: f64,
    /// When it was computed.
    at: Instant,
    rate: Rate,
}

impl Balance {
    fn tokens_at(self, now: Instant) -> f64 {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.tokens + since * self.rate.per_second).min(self.rate.burst)
    }
}

/// A token bucket, full at first. The rate is given with each call, for it may change in between: until then
/// the bucket fills at the rate of the call before, and the balance stays as far as it fits.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenBucket {
    balance: Option<Balance>,
}

impl TokenBucket {
    /// The balance now.
    fn fill(&mut self, rate: Rate, now: Instant) -> &mut f64 {
        let balance = self.balance.get_or_insert(Balance { tokens: rate.burst, at: now, rate });
        let tokens = balance.tokens_at(now).min(rate.burst);
        *balance = Balance { tokens, at: now.max(balance.at), rate };
        &mut balance.tokens
    }

    /// Takes so many tokens, or none and returns how long it takes until there are so many.
    pub fn take(&mut self, tokens: f64, rate: Rate, now: Instant) -> Result<(), Duration> {
        let left = self.fill(rate, now);
        if *left < tokens {
            return Err(rate.time_for(tokens - *left));
        }
        *left -= tokens;
        Ok(())
    }

    /// Takes so many tokens, into debt where there are fewer, and returns how long to wait before they may be
    /// used. So callers are served in order, and a large request only makes the next wait longer.
    pub fn borrow(&mut self, tokens: f64, rate: Rate, now: Instant) -> Duration {
        let left = self.fill(rate, now);
        *left -= tokens;
        rate.time_for((-*left).max(0.0)).min(LONGEST_WAIT)
    }

    /// Whether it is full at the rate of the last call, so that dropping it loses nothing.
    pub fn is_full(&self, now: Instant) -> bool {
        self.balance.is_none_or(|balance| balance.tokens_at(now) >= balance.rate.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_is_free_and_then_time_fills_it() {
        let (mut bucket, start) = (TokenBucket::default(), Instant::now());
        let rate = Rate { per_second: 2.0, burst: 3.0 };
        let mut taken = |at| (0..10).filter(|_| bucket.take(1.0, rate, at).is_ok()).count();
        assert_eq!(
            [taken(start), taken(start), taken(start + SECOND), taken(start + SECOND * 60)],
            [3, 0, 2, 3]
        );
        assert_eq!(bucket.take(1.0, rate, start + SECOND * 60), Err(SECOND / 2));
        assert_eq!(bucket.take(1.0, rate, start), Err(SECOND / 2), "time does not go back");
        assert!(!bucket.is_full(start + SECOND * 61) && bucket.is_full(start + SECOND * 62));
    }

    #[test]
    fn what_was_borrowed_is_waited_for() {
        let (mut bucket, now) = (TokenBucket::default(), Instant::now());
        let rate = Rate::over(1000, SECOND);
        assert_eq!(bucket.borrow(1000.0, rate, now), Duration::ZERO);
        assert_eq!(bucket.borrow(500_000.0, rate, now), SECOND * 500);
        assert_eq!(bucket.borrow(500_000.0, rate, now), SECOND * 1000);
        assert_eq!(bucket.take(1.0, rate, now + SECOND * 1000), Err(SECOND / 1000));
    }

    #[test]
    fn another_rate_holds_at_once() {
        let (mut bucket, now) = (TokenBucket::default(), Instant::now());
        let rate = |burst| Rate { per_second: 1.0, burst };
        assert!(bucket.take(1.0, rate(10.0), now).is_ok());
        let taken = (0..10).filter(|_| bucket.take(1.0, rate(2.0), now).is_ok()).count();
        assert_eq!(taken, 2);
    }

    #[test]
    fn nothing_overflows() {
        let (mut bucket, now) = (TokenBucket::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(bucket.borrow(u64::MAX as f64, Rate::over(0, SECOND), now), LONGEST_WAIT);
        }
        let never = Rate { per_second: 0.0, burst: 0.0 };
        assert_eq!(TokenBucket::default().take(1.0, never, now), Err(Duration::MAX));
    }
}
