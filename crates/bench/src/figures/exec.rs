//! A command in an existing container, compared with the same program spawned bare.

use super::Bench;
use crate::{
    Result, baseline,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
};
use atoll_provider::{Command, Guest};
use std::path::Path;

const TRUE: &[&str] = &["/bin/true"];
const PYTHON: &[&str] = &["/usr/bin/python3", "-c", "pass"];

/// Whether this machine, and so the host image, has the Python that is run here.
pub(super) fn has_python() -> bool {
    Path::new(PYTHON[0]).exists()
}

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let container = bench.container().await?;
    let mut rows = Vec::new();
    for pace in bench.paces(300) {
        rows.push(one(container.guest(), pace, "exec true", TRUE).await?);
    }
    if has_python() {
        for pace in bench.paces(100) {
            rows.push(one(container.guest(), pace, "exec python3 -c pass", PYTHON).await?);
        }
    }
    bench.destroy(&container).await?;
    Ok(rows)
}

async fn one(guest: &Guest, pace: Pace, name: &str, arguments: &[&str]) -> Result<Row> {
    let command = Command::new(arguments.iter().copied());
    let round = async || {
        pace.wait().await;
        let (own, finished) = timed(guest.run(&command)).await?;
        if finished.report.exit_code != Some(0) {
            return Err(format!("{name} went wrong: {:?}", finished.report).into());
        }
        pace.wait().await;
        Ok(vec![own, timed_here(|| baseline::spawn(arguments))?.0])
    };
    let mut series = pace.take(round).await?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (own, bare) = (next()?, Baseline::new("the same spawned bare", next()?));
    Ok(Row::latency(name, pace.name, own, vec![bare]).by_difference())
}
