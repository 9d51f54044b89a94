//! A sandbox from the request until the response, when it can run commands, and its end. The baselines are
//! those of a container without the server.

use super::Bench;
use crate::{
    Result, baseline,
    http::Client,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
    server::{self, Server},
    stats::Samples,
};

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let mut client = server.connect().await?;
    let mut rows = Vec::new();
    for pace in bench.paces(100) {
        let series = pace.take(async || round(bench, &mut client, pace).await).await?;
        rows.extend(of(pace, series)?);
    }
    Ok(rows)
}

/// Create, delete, a spawn, an unshare, and runc where it is.
async fn round(bench: &Bench<'_>, client: &mut Client, pace: Pace) -> Result<Vec<f64>> {
    pace.wait().await;
    let (create, sandbox) = timed(server::create(client, "{}")).await?;
    pace.wait().await;
    let (delete, ()) = timed(server::delete(client, &sandbox)).await?;
    pace.wait().await;
    let (spawn, ()) = timed_here(|| baseline::spawn(&["/bin/true"]))?;
    pace.wait().await;
    let (unshare, ()) = timed_here(baseline::unshare)?;
    let mut values = vec![create, delete, spawn, unshare];
    if let Some(runc) = &bench.runc {
        pace.wait().await;
        values.push(timed_here(|| runc.run())?.0);
    }
    Ok(values)
}

fn of(pace: Pace, series: Vec<Samples>) -> Result<Vec<Row>> {
    let mut series = series.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (create, delete) = (next()?, next()?);
    let spawn = Baseline::new("bare spawn of true", next()?);
    let unshare = Baseline::new("unshare, 7 namespaces, true", next()?);
    let runc = series.next().map(|samples| Baseline::new("runc run of true", samples));
    let beside_create = [spawn.clone(), unshare].into_iter().chain(runc).collect();
    Ok(vec![
        Row::latency("rest create", pace.name, create, beside_create),
        Row::latency("rest delete", pace.name, delete, vec![spawn]),
    ])
}
