//! A sandbox from the pool: from the request until the response, and until the first output of a program in
//! it, one after the other and many at once, compared with the same without a pool and without a sandbox.
//! Every measured claim got a container of the pool, or the figure fails.

use super::Bench;
use crate::{
    Result, baseline,
    http::Client,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
};
use futures_util::future::{join_all, try_join_all};
use serde::Deserialize;
use std::time::{Duration, Instant};

/// How many are kept ready, and how many of them are claimed before the pool is refilled.
const READY: usize = 24;
const BATCH: usize = 20;
/// Disk limits are reserved, and a small machine has too little for a hundred of the default one.
const SMALL: &str = r#"{"disk_mb":16}"#;
const PYTHON: &[&str] = &["/usr/bin/python3", "-c", "print(1)"];
const FIRST: &str = r#"{"arguments":["/usr/bin/python3","-c","print(1)"]}"#;

#[derive(Deserialize)]
struct Pool {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    ready: usize,
    misses: usize,
    last_failure: Option<serde_json::Value>,
}

async fn pool(client: &mut Client) -> Result<Key> {
    let answer = client.ask("GET", "/api/v1/pool", "").await?.expect(200)?;
    let mut pool: Pool = serde_json::from_slice(&answer)?;
    pool.keys.pop().ok_or_else(|| "there is no pool".into())
}

/// Waits until so many are ready.
async fn filled(client: &mut Client, count: usize) -> Result<()> {
    let began = Instant::now();
    loop {
        let key = pool(client).await?;
        if key.ready >= count {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(120) {
            return Err(format!("{} of {count} are ready: {:?}", key.ready, key.last_failure).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sandboxes one after the other; the pool is refilled in between, outside of the measurement.
pub(super) struct Line {
    client: Client,
    made: Vec<Sandbox>,
    ready: usize,
    /// How many are claimed before the pool is refilled.
    batch: usize,
}

impl Line {
    pub(super) async fn new(mut client: Client, ready: usize, batch: usize) -> Result<Self> {
        filled(&mut client, ready).await?;
        Ok(Self { client, made: Vec::new(), ready, batch })
    }

    async fn next(&mut self, first_output: bool) -> Result<f64> {
        let first = async |client: &mut Client, sandbox: &Sandbox| match first_output {
            true => server::exec(client, sandbox, FIRST).await,
            false => Ok(()),
        };
        self.take(first).await
    }

    /// How long a sandbox and the first command in it take.
    pub(super) async fn take(
        &mut self,
        first: impl AsyncFnOnce(&mut Client, &Sandbox) -> Result<()>,
    ) -> Result<f64> {
        if self.made.len() >= self.batch {
            for sandbox in self.made.drain(..) {
                server::delete(&mut self.client, &sandbox).await?;
            }
            filled(&mut self.client, self.ready).await?;
        }
        let client = &mut self.client;
        let work = async {
            let sandbox = server::create(client, "{}").await?;
            first(client, &sandbox).await?;
            Ok::<_, crate::Error>(sandbox)
        };
        let (took, sandbox) = timed(work).await?;
        self.made.push(sandbox);
        Ok(took)
    }

    async fn row(&mut self, name: &str, pace: Pace, first_output: bool) -> Result<Row> {
        let bare = if first_output { PYTHON } else { &["/bin/true"] };
        let round = async || {
            pace.wait().await;
            let own = self.next(first_output).await?;
            pace.wait().await;
            Ok(vec![own, timed_here(|| baseline::spawn(bare))?.0])
        };
        let mut series = pace.take(round).await?.into_iter();
        let mut next = || series.next().ok_or("a series is missing");
        let (own, spawn) = (next()?, next()?);
        let beside = if first_output { "bare spawn of python3" } else { "bare spawn of true" };
        Ok(Row::latency(name, pace.name, own, vec![Baseline::new(beside, spawn)]))
    }
}

/// One after the other.
pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let python = crate::figures::exec::has_python();
    for (ready, claim, first) in
        [(READY, Some("rest claim"), "rest claim + first output"), (0, None, "rest create + first output")]
    {
        rows.extend(
            super::with_server_of(&size(ready), async |server| {
                let mut line = Line::new(server.connect().await?, ready, BATCH).await?;
                let mut rows = Vec::new();
                for pace in bench.paces(100) {
                    if let Some(name) = claim {
                        rows.push(line.row(name, pace, false).await?);
                    }
                    if python {
                        rows.push(line.row(first, pace, true).await?);
                    }
                }
                all_from_the_pool(&mut line.client, ready).await?;
                Ok(rows)
            })
            .await?,
        );
    }
    Ok(rows)
}

/// Many at once.
pub(super) async fn burst(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let count = bench.scale.pick(5, 20, 100);
    for (ready, name) in [(count, "claims"), (0, "creates")] {
        let server = async |server: &Server| {
            let mut clients = try_join_all((0..count).map(|_| server.connect())).await?;
            let mut rows = Vec::new();
            for (what, first) in [("", false), (" + first outputs", true)] {
                // Without a pool the creates alone are another figure already.
                if (ready == 0 && !first) || (first && !crate::figures::exec::has_python()) {
                    continue;
                }
                for pace in bench.paces(5) {
                    let mut series =
                        pace.take(async || at_once(&mut clients, pace, ready, first).await).await?;
                    let (unshare, own) = (series.pop(), series.pop());
                    let (Some(own), Some(unshare)) = (own, unshare) else { return Err("no series".into()) };
                    let beside = Baseline::new("as many unshare at once", unshare);
                    rows.push(Row::latency(
                        format!("rest {count} {name}{what} at once"),
                        pace.name,
                        own,
                        vec![beside],
                    ));
                }
            }
            all_from_the_pool(&mut clients[0], ready).await?;
            Ok(rows)
        };
        rows.extend(super::with_server_of(&size(ready), server).await?);
    }
    Ok(rows)
}

async fn at_once(clients: &mut [Client], pace: Pace, ready: usize, first: bool) -> Result<Vec<f64>> {
    filled(&mut clients[0], ready).await?;
    pace.wait().await;
    let making = async {
        let one = async |client: &mut Client| {
            let sandbox = server::create(client, SMALL).await?;
            if first {
                server::exec(client, &sandbox, FIRST).await?;
            }
            Ok(sandbox)
        };
        let made = join_all(clients.iter_mut().map(one)).await;
        made.into_iter().collect::<Result<Vec<Sandbox>>>()
    };
    let (own, made) = timed(making).await?;
    let gone = clients.iter_mut().zip(&made).map(|(client, sandbox)| server::delete(client, sandbox));
    try_join_all(gone).await?;
    pace.wait().await;
    let (unshare, ()) = timed_here(|| baseline::unshare_at_once(clients.len()))?;
    Ok(vec![own, unshare])
}

/// The settings of a server that keeps so many ready.
pub(super) fn size(ready: usize) -> Vec<String> {
    let on = format!("warm_pool_enabled={}", ready > 0);
    vec![on, format!("pool.max={ready}"), format!("pool.min={ready}")]
}

async fn all_from_the_pool(client: &mut Client, ready: usize) -> Result<()> {
    match pool(client).await?.misses {
        misses if ready > 0 && misses > 0 => Err(format!("{misses} were not from the pool").into()),
        _ => Ok(()),
    }
}
