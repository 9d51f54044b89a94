//! The end of a command whose 63 processes have all detached from it: each in a session of its own and
//! without its parent. The baseline has 63 children in one process group, killed by one call and waited for,
//! which is the least that the kernel must do for as many.

use super::Bench;
use crate::{
    Result,
    baseline::Sleepers,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
};
use atoll_provider::{Command, ExecEvent, Guest};
use atoll_types::ExecId;

const COUNT: usize = 63;

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let container = bench.container().await?;
    let mut rows = Vec::new();
    for pace in bench.paces(20) {
        let round = async || round(container.guest(), pace).await;
        let mut series = pace.take(round).await?.into_iter();
        let mut next = || series.next().ok_or("a series is missing");
        let (own, bare) = (next()?, Baseline::new("killpg of 63 children, waited", next()?));
        rows.push(Row::latency("tree kill, 63 detached", pace.name, own, vec![bare]));
    }
    bench.destroy(&container).await?;
    Ok(rows)
}

async fn round(guest: &Guest, pace: Pace) -> Result<Vec<f64>> {
    let id = start_tree(guest).await?;
    pace.wait().await;
    let (own, report) = timed(guest.kill(id)).await?;
    if !report.killed || report.descendants_alive {
        return Err(format!("the tree was not killed: {report:?}").into());
    }
    let mut sleepers = Sleepers::start(COUNT)?;
    pace.wait().await;
    let (bare, ()) = timed_here(|| sleepers.kill())?;
    Ok(vec![own, bare])
}

/// Starts the tree and returns when each of its processes has reported that it runs.
async fn start_tree(guest: &Guest) -> Result<ExecId> {
    let line = format!(
        "i=0; while [ $i -lt {COUNT} ]; do \
           (setsid sh -c 'printf x; exec sleep 1000' </dev/null 2>/dev/null &); i=$((i+1)); \
         done; exec sleep 1000"
    );
    let id = ExecId::random();
    let mut events = guest.exec(id, &Command::shell(line)).await?;
    let mut there = 0;
    while there < COUNT {
        match events.next().await? {
            Some(ExecEvent::Started(_)) => {}
            Some(ExecEvent::Output { data, .. }) => there += data.len(),
            Some(ExecEvent::Ended(report)) => return Err(format!("the tree fell: {report:?}").into()),
            None => return Err("the tree's output broke off".into()),
        }
    }
    Ok(id)
}
