//! Pausing and resuming a container, and the memory that a pause frees: that of a file which it wrote and
//! read. Resuming is measured up to the reply, and also up to the first output.

use super::Bench;
use crate::{
    Result,
    frozen::FrozenSleep,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
    stats::Samples,
};
use atoll_provider::{Command, Container, Pause, Provider};
use std::{sync::Arc, time::Duration};

/// How long the kernel gets to reclaim memory, which happens after the reply.
const SETTLE: Duration = Duration::from_millis(500);
const FILE: &str = "head -c 32M /dev/zero > /workspace/big; sync; cat /workspace/big > /dev/null";

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let bare = FrozenSleep::start()?;
    let container = bench.container().await?;
    let mut rows = Vec::new();
    for pace in bench.paces(100) {
        let series = pace.take(async || round(&container, &bare, pace).await).await?;
        rows.extend(of("", pace, series)?);
    }
    rows.extend(memory(bench, &container).await?);
    bench.destroy(&container).await?;
    Ok(rows)
}

pub(super) fn power(container: &Arc<dyn Container>) -> Result<&dyn Pause> {
    Ok(container.pause().ok_or("this machine cannot pause")?)
}

/// Freezing and thawing a bare sleep.
pub(super) async fn beside(bare: &FrozenSleep, pace: Pace) -> Result<[f64; 2]> {
    pace.wait().await;
    let (freeze, ()) = timed_here(|| bare.freeze())?;
    pace.wait().await;
    let (thaw, ()) = timed_here(|| bare.thaw())?;
    Ok([freeze, thaw])
}

async fn round(container: &Arc<dyn Container>, bare: &FrozenSleep, pace: Pace) -> Result<Vec<f64>> {
    let power = power(container)?;
    pace.wait().await;
    let (pause, ()) = timed(power.pause()).await?;
    pace.wait().await;
    let (resume, ()) = timed(power.resume()).await?;
    power.pause().await?;
    pace.wait().await;
    let (first, _) = timed(async {
        power.resume().await?;
        container.guest().run(&Command::new(["true"])).await
    })
    .await?;
    let [freeze, thaw] = beside(bare, pace).await?;
    Ok(vec![pause, resume, first, freeze, thaw])
}

/// Pause, resume, resume and a command, and what a bare sleep takes.
pub(super) fn of(way: &str, pace: Pace, series: Vec<Samples>) -> Result<Vec<Row>> {
    let mut series = series.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (pause, resume, first) = (next()?, next()?, next()?);
    let freeze = Baseline::new("freezing a bare sleep", next()?);
    let thaw = Baseline::new("thawing a bare sleep", next()?);
    let row = |name: &str, samples, bare: &Baseline| {
        Row::latency(format!("{way}{name}"), pace.name, samples, vec![bare.clone()])
    };
    Ok(vec![
        row("pause", pause, &freeze),
        row("resume", resume, &thaw),
        row("resume and exec true", first, &thaw),
    ])
}

async fn memory(bench: &Bench<'_>, container: &Arc<dyn Container>) -> Result<Vec<Row>> {
    let usage = bench.instance.provider.usage().ok_or("nothing is counted")?;
    let used = async || match usage.one(container.id()).await?.memory_bytes {
        Some(bytes) => Ok::<f64, crate::Error>(bytes as f64 / f64::from(1 << 20)),
        None => Err("memory is not counted".into()),
    };
    let (mut before, mut after) = (Samples::default(), Samples::default());
    for _ in 0..bench.scale.pick(1, 5, 10) {
        container.guest().run(&Command::shell(FILE)).await?;
        before.push(used().await?);
        power(container)?.pause().await?;
        tokio::time::sleep(SETTLE).await;
        after.push(used().await?);
        power(container)?.resume().await?;
    }
    Ok(vec![Row::memory("memory, paused", after, Baseline::new("the same before", before))])
}
