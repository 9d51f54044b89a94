//! The tools through MCP. The baseline is a bare interpreter on a pipe, which answers as fast as an
//! interpreter can, and for many sessions as many interpreters started at once.

pub(super) mod speak;

use super::{Bench, rest::with_server_of};
use crate::{
    Result, baseline,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
    server::Server,
};
use futures_util::future::{join_all, try_join_all};
use speak::{Bare, Piped, Speaks, Web};

const BARE: &str = "bare python3 on a pipe";
const CODE: &str = "1+1";

/// A call of `1+1`, until its result.
pub(super) async fn round_trip(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let mut piped = Piped::start().await?;
    let mut rows = one(bench, "mcp 1+1, stdio", &mut piped).await?;
    piped.end().await?;
    let settings = ["warm_pool_enabled=false".to_owned()];
    let over_http = async |server: &Server| {
        let mut web = Web::open(server, "a-thread").await?;
        one(bench, "mcp 1+1, http", &mut web).await
    };
    rows.extend(with_server_of(&settings, over_http).await?);
    Ok(rows)
}

async fn one(bench: &Bench<'_>, name: &str, client: &mut impl Speaks) -> Result<Vec<Row>> {
    let session = client.create().await?;
    let mut bare = Bare::start().await?;
    let mut rows = Vec::new();
    for pace in bench.paces(200) {
        let round = async || {
            pace.wait().await;
            let (own, ()) = timed(client.execute(&session, CODE)).await?;
            pace.wait().await;
            let (beside, ()) = timed(bare.ask(CODE)).await?;
            Ok(vec![own, beside])
        };
        let mut series = pace.take(round).await?.into_iter();
        let mut next = || series.next().ok_or("a series is missing");
        let (own, beside) = (next()?, Baseline::new(BARE, next()?));
        rows.push(Row::latency(name, pace.name, own, vec![beside]).by_difference());
    }
    client.stop(&session).await?;
    Ok(rows)
}

/// Many sessions at once, each made, used and stopped by a client of its own.
pub(super) async fn sessions(bench: &Bench<'_>) -> Result<Vec<Row>> {
    // A small machine's limits must not be what is measured.
    let settings = [
        "warm_pool_enabled=false",
        "tool_sessions.max=1000",
        "tool_sessions.max_per_thread=1000",
        "tool_sessions.max_threads=1000",
        "tool_sessions.memory_mb=64",
        "tool_sessions.disk_mb=16",
        "tool_sessions.cpu_cores=0.1",
    ];
    let count = bench.scale.pick(5, 20, 100);
    let work = async |server: &Server| {
        let opened = (0..count).map(|n| Web::open(server, if n % 2 == 0 { "even" } else { "odd" }));
        let mut clients = try_join_all(opened).await?;
        let pace = Pace::tight(bench.scale.pick(1, 3, 5));
        let mut series = pace.take(async || at_once(&mut clients).await).await?.into_iter();
        let mut next = || series.next().ok_or("a series is missing");
        let (own, beside) = (next()?, Baseline::new("as many bare python3 -c 1+1", next()?));
        Ok(vec![Row::latency(format!("mcp {count} sessions at once"), pace.name, own, vec![beside])])
    };
    let variables = [("ATOLL_MCP_SESSIONS_PER_KEY", "1000".to_owned())];
    Server::with(&settings.map(str::to_owned), &variables, work).await
}

async fn at_once(clients: &mut [Web]) -> Result<Vec<f64>> {
    let count = clients.len();
    let all = async {
        let each = clients.iter_mut().map(async |client| {
            let session = client.create().await?;
            client.execute(&session, CODE).await?;
            client.stop(&session).await
        });
        // One that fails does not cancel the others, which would go on unobserved.
        join_all(each).await.into_iter().collect::<Result<Vec<()>>>()
    };
    let (own, _) = timed(all).await?;
    let (beside, ()) = timed_here(|| baseline::at_once(count, &["/usr/bin/python3", "-c", CODE]))?;
    Ok(vec![own, beside])
}
