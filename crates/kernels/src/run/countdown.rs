//! Remaining time, counted in short ticks. A pause of the sandbox costs at most one tick, so that time spent
//! paused does not count towards timeouts.

use std::time::Duration;
use tokio::time::{Instant, sleep_until};

const TICK: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Countdown {
    left: Duration,
    tick: Duration,
    at: Instant,
}

impl Countdown {
    pub(super) fn new(left: Duration) -> Self {
        let tick = left.min(TICK);
        Self { left, tick, at: Instant::now() + tick }
    }

    /// Waits for a tick; whether the time is up with it. May be dropped and called again.
    pub(super) async fn tick(&mut self) -> bool {
        sleep_until(self.at).await;
        self.left = self.left.saturating_sub(self.tick);
        self.tick = self.left.min(TICK);
        self.at = Instant::now() + self.tick;
        self.left.is_zero()
    }
}
