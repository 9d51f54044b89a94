//! How often and how fast something is repeated. A machine that is quiet answers more slowly than one
//! in a tight loop, cgroup v1 above all, so every latency is taken both ways.

use crate::{Result, stats::Samples};
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(300);

/// How much to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Enough to see that it works.
    Quick,
    /// Enough to trust the median.
    Usual,
    /// Enough to trust the tail.
    Full,
}

impl Scale {
    /// The number that belongs to the scale.
    pub(crate) fn pick<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }
}

/// One way of repeating.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) name: &'static str,
    rounds: usize,
    pause: Duration,
}

impl Pace {
    /// In a tight loop.
    pub(crate) fn tight(rounds: usize) -> Self {
        Self { name: "tight", rounds, pause: Duration::ZERO }
    }

    /// With a pause before each measurement.
    pub(crate) fn paused(rounds: usize) -> Self {
        Self { name: "paused", rounds, pause: PAUSE }
    }

    /// Lets the machine become idle, where the pace wants that.
    pub(crate) async fn wait(&self) {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
    }

    /// Takes the rounds and returns the series, one for each value of a round. A first round warms
    /// caches and does not count.
    pub(crate) async fn take(self, mut round: impl AsyncFnMut() -> Result<Vec<f64>>) -> Result<Vec<Samples>> {
        let mut series = vec![Samples::default(); round().await?.len()];
        for _ in 0..self.rounds {
            let values = round().await?;
            series.iter_mut().zip(values).for_each(|(samples, value)| samples.push(value));
        }
        Ok(series)
    }
}

/// Milliseconds of a piece of work, and its result.
pub(crate) async fn timed<T, E: Into<crate::Error>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<(f64, T)> {
    let began = Instant::now();
    let value = work.await.map_err(Into::into)?;
    Ok((milliseconds(began), value))
}

/// The same for work that blocks.
pub(crate) fn timed_here<T>(work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let began = Instant::now();
    let value = work()?;
    Ok((milliseconds(began), value))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
