//! A container from the request until PID 1 has completed its handshake and can run commands, and its end.
//! `runc run` makes and deletes, so both are compared with it as well.

use super::Bench;
use crate::{
    Result, baseline,
    instance::spec,
    moved::MovedSleep,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
    stats::Samples,
};
use atoll_provider::Provider;

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let moved = MovedSleep::start()?;
    for pace in bench.paces(100) {
        let series = pace.take(async || round(bench, &moved, pace).await).await?;
        rows.extend(of(pace, series)?);
    }
    Ok(rows)
}

/// Create, destroy, both, a spawn, an unshare, a move, and runc where it is.
async fn round(bench: &Bench<'_>, moved: &MovedSleep, pace: Pace) -> Result<Vec<f64>> {
    let provider = &bench.instance.provider;
    pace.wait().await;
    let (create, container) = timed(provider.create(spec()?)).await?;
    pace.wait().await;
    let (destroy, ()) = timed(provider.destroy(container.id())).await?;
    pace.wait().await;
    let (spawn, ()) = timed_here(|| baseline::spawn(&["/bin/true"]))?;
    pace.wait().await;
    let (unshare, ()) = timed_here(baseline::unshare)?;
    pace.wait().await;
    let (entered, ()) = timed_here(|| moved.enter())?;
    moved.leave()?;
    let mut values = vec![create, destroy, create + destroy, spawn, unshare, entered];
    if let Some(runc) = &bench.runc {
        pace.wait().await;
        values.push(timed_here(|| runc.run())?.0);
    }
    Ok(values)
}

fn of(pace: Pace, series: Vec<Samples>) -> Result<Vec<Row>> {
    let mut series = series.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (create, destroy, both) = (next()?, next()?, next()?);
    let spawn = Baseline::new("bare spawn of true", next()?);
    let unshare = Baseline::new("unshare, 7 namespaces, true", next()?);
    let entered = Baseline::new("a move into cgroups alone", next()?);
    let runc = series.next().map(|samples| Baseline::new("runc run of true", samples));
    let beside_create = [spawn.clone(), unshare.clone(), entered].into_iter().chain(runc.clone()).collect();
    Ok(vec![
        Row::latency("create", pace.name, create, beside_create),
        Row::latency("destroy", pace.name, destroy, vec![spawn]),
        Row::latency("create and destroy", pace.name, both, vec![runc.unwrap_or(unshare)]),
    ])
}
