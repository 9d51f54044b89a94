//! Shutdown of the server: sandboxes live on, or are stopped where the operator wants that.

use crate::{
    Lifecycle, OnShutdown,
    actor::{Step, StepTarget},
};
use atoll_store::Status;
use atoll_types::Result;

impl Lifecycle {
    /// Applies the shutdown setting to the sandboxes. Returns how many were to be stopped. No more requests
    /// arrive by then.
    pub async fn wind_down(&self) -> Result<usize> {
        if self.live_settings.now().lifecycle_on_shutdown == OnShutdown::Keep {
            return Ok(0);
        }
        let lives = |status| matches!(status, Status::Ready | Status::Paused);
        let live = self.store.live_sandboxes().await?.into_iter().filter(|record| lives(record.status));
        let step = || Step {
            to: StepTarget::Stopped,
            reason: "the server ended".into(),
            revision: None,
            idle: None,
        };
        let steps: Vec<_> = live.map(|record| (record, step())).collect();
        let count = steps.len();
        self.take_steps(steps).await;
        Ok(count)
    }
}
