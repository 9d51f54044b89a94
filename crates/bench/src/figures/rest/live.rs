//! Many idle sandboxes: the machine's memory for each, and how long a server needs after it was killed until
//! it serves them again.

use super::{super::memory::Machine, Bench};
use crate::{
    Result,
    baseline::Sleepers,
    pace::timed,
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
    stats::Samples,
};

/// Disk limits are reserved, and a small machine has too little for hundreds of the default one.
const SMALL: &str = r#"{"disk_mb":16}"#;
const TRUE: &str = r#"{"arguments":["true"]}"#;

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in bench.scale.pick(&[5][..], &[10, 100, 500], &[10, 100, 500]) {
        rows.extend(of(bench, *count).await?);
    }
    Ok(rows)
}

async fn of(bench: &Bench<'_>, count: usize) -> Result<Vec<Row>> {
    let settings = ["warm_pool_enabled=false", "default_max_per_user=100000", "plan.sandboxes=100000"];
    let mut server = Server::start(&settings.map(str::to_owned)).await?;
    let mut client = server.connect().await?;
    // The first one allocates what all share.
    let first = server::create(&mut client, SMALL).await?;
    let (mut empty, mut full) = (Samples::default(), Samples::default());
    let rounds = bench.scale.pick(1, 3, 5);
    for _ in 0..rounds {
        let took = again(&mut server, &first).await?;
        empty.push(took);
    }
    let before = Machine::look().await?;
    let mut client = server.connect().await?;
    let mut last = first;
    for _ in 0..count {
        last = server::create(&mut client, SMALL).await?;
    }
    let after = Machine::look().await?;
    let mut memory = Samples::default();
    memory.push((after.in_use - before.in_use) / count as f64);
    for _ in 0..rounds {
        full.push(again(&mut server, &last).await?);
    }
    server.end().await?;
    let before = Machine::look().await?;
    let sleepers = Sleepers::start(count)?;
    let after = Machine::look().await?;
    drop(sleepers);
    let mut bare = Samples::default();
    bare.push((after.in_use - before.in_use) / count as f64);
    Ok(vec![
        Row::memory(&format!("memory, {count} live"), memory, Baseline::new("bare sleeps, each", bare)),
        Row::latency(
            format!("start with {count} live"),
            "killed",
            full,
            vec![Baseline::new("with one", empty)],
        ),
    ])
}

/// Kills the server; returns how long it takes until another answers, and runs a command in an earlier
/// sandbox.
async fn again(server: &mut Server, sandbox: &Sandbox) -> Result<f64> {
    server.kill().await?;
    let (took, ()) = timed(async {
        server.begin().await?;
        let mut client = server.connect().await?;
        server::exec(&mut client, sandbox, TRUE).await
    })
    .await?;
    Ok(took)
}
