//! Many sandboxes created at once, each over a connection of its own, until the last response, compared with
//! as many `unshare`.

use super::Bench;
use crate::{
    Result, baseline,
    http::Client,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
};
use futures_util::future::{join_all, try_join_all};

/// Disk limits are reserved, and a small machine has too little for the default one.
const SMALL: &str = r#"{"disk_mb":16}"#;

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in bench.scale.pick(&[5][..], &[20], &[20, 100]) {
        let mut clients = try_join_all((0..*count).map(|_| server.connect())).await?;
        for pace in bench.paces(5) {
            let mut series = pace.take(async || round(&mut clients, pace).await).await?.into_iter();
            let mut next = || series.next().ok_or("a series is missing");
            let (own, unshare) = (next()?, Baseline::new("as many unshare at once", next()?));
            rows.push(Row::latency(format!("rest {count} creates at once"), pace.name, own, vec![unshare]));
        }
    }
    Ok(rows)
}

async fn round(clients: &mut [Client], pace: Pace) -> Result<Vec<f64>> {
    pace.wait().await;
    // One that fails does not cancel the others, which would go on unobserved.
    let making = async {
        let made = join_all(clients.iter_mut().map(|client| server::create(client, SMALL))).await;
        made.into_iter().collect::<Result<Vec<Sandbox>>>()
    };
    let (own, made) = timed(making).await?;
    try_join_all(clients.iter_mut().zip(&made).map(|(client, sandbox)| server::delete(client, sandbox)))
        .await?;
    pace.wait().await;
    let (unshare, ()) = timed_here(|| baseline::unshare_at_once(clients.len()))?;
    Ok(vec![own, unshare])
}
