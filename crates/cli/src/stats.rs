//! `atoll stats`: a line for each sandbox. On a terminal it is redrawn until it is interrupted.

use crate::{
    Failure,
    args::Stats,
    resolve::{self, short},
    table, terminal,
};
use atoll_client::{Client, ListSandboxes, Metrics, ServerReply, Usage, Uuid};
use futures_util::{StreamExt, stream};
use std::{
    io::{IsTerminal, stdout},
    time::Duration,
};

/// Between two drawings.
const PAUSE: Duration = Duration::from_secs(2);
/// Concurrent requests.
const AT_ONCE: usize = 8;
const PAGE: u32 = 200;

/// Which sandboxes to show: the given ones, or those that run at the moment.
enum Which {
    Named(Vec<(String, Uuid)>),
    Running,
}

impl Which {
    async fn resolve(client: &Client, typed: Vec<String>) -> Result<Self, Failure> {
        if typed.is_empty() {
            return Ok(Self::Running);
        }
        let mut named = Vec::new();
        for text in typed {
            let id = resolve::sandbox(client, &text).await?;
            named.push((text, id));
        }
        Ok(Self::Named(named))
    }

    async fn look(&self, client: &Client) -> Result<Vec<ServerReply<Metrics>>, Failure> {
        let ids = match self {
            Self::Named(named) => named.clone(),
            Self::Running => running(client).await?.into_iter().map(|id| (short(id), id)).collect(),
        };
        let ask = |(name, id): (String, Uuid)| async move {
            client.metrics(id, None, Some(0)).await.map_err(|e| Failure::from(e).about(&name))
        };
        let mut answers = stream::iter(ids).map(ask).buffered(AT_ONCE);
        let mut found = Vec::new();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(reply) => found.push(reply),
                // One that was destroyed since it was listed is left out.
                Err(failure) if matches!(self, Self::Running) && failure.is_missing() => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(found)
    }
}

async fn running(client: &Client) -> Result<Vec<Uuid>, Failure> {
    let query =
        ListSandboxes { status: Some("running".into()), page_size: Some(PAGE), ..ListSandboxes::default() };
    let mut found: Vec<Uuid> = Vec::new();
    for page in 1.. {
        let reply = client.list(&ListSandboxes { page: Some(page), ..query.clone() }).await?;
        found.extend(reply.items.iter().map(|sandbox| sandbox.id));
        if reply.items.is_empty() || found.len() as u64 >= reply.total {
            break;
        }
    }
    // A sandbox that was created meanwhile moves another to the next page.
    let mut seen = std::collections::HashSet::new();
    found.retain(|id| seen.insert(*id));
    Ok(found)
}

/// Bytes with three figures or so.
fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["b", "k", "m", "g"] {
        if value < 1000.0 {
            let decimals = usize::from(value < 10.0 && unit != "b");
            return format!("{value:.decimals$}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1}t")
}

fn of(used: Option<u64>, limit: Option<u64>, show: fn(u64) -> String) -> String {
    let or_dash = |count: Option<u64>| count.map_or_else(|| "-".into(), show);
    match (used, limit) {
        (None, None) => String::new(),
        (used, limit) => format!("{} / {}", or_dash(used), or_dash(limit)),
    }
}

fn rendered(all: &[&Metrics]) -> String {
    let rows: Vec<[String; 5]> = all
        .iter()
        .map(|metrics| {
            let stopped = Usage::default();
            let now = metrics.now.as_ref().unwrap_or(&stopped);
            [
                short(metrics.sandbox_id),
                now.cpu_cores.map(|cores| format!("{:.1}%", cores * 100.0)).unwrap_or_default(),
                of(now.memory_bytes, now.memory_limit_bytes, bytes),
                of(now.disk_bytes, now.disk_limit_bytes, bytes),
                of(now.processes, now.processes_limit, |n| n.to_string()),
            ]
        })
        .collect();
    table::render(["ID", "CPU", "MEMORY", "DISK", "PROCESSES"], &rows)
}

/// The table over the one before it, from the screen's first line on.
fn over(table: &str) -> String {
    let lines: String = table.lines().map(|line| format!("{line}\x1b[K\n")).collect();
    format!("\x1b[H{lines}\x1b[J")
}

pub(crate) async fn run(options: Stats) -> Result<u8, Failure> {
    let Stats { ids, no_stream, server } = options;
    let client = server.client()?;
    let which = Which::resolve(&client, ids).await?;
    if server.json {
        let found = which.look(&client).await?;
        found.iter().try_for_each(|reply| terminal::print_json(&reply.json))?;
        return Ok(0);
    }
    let table = async || {
        let found = which.look(&client).await?;
        let all: Vec<&Metrics> = found.iter().map(|reply| &reply.value).collect();
        Ok::<_, Failure>(rendered(&all))
    };
    if no_stream || !stdout().is_terminal() {
        terminal::print(&table().await?)?;
        return Ok(0);
    }
    let draw = async {
        terminal::print("\x1b[2J")?;
        loop {
            terminal::print(&over(&table().await?))?;
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        result = draw => result,
        _ = tokio::signal::ctrl_c() => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_sandbox() {
        let all: Vec<Metrics> = serde_json::from_value(serde_json::json!([
            { "sandbox_id": "3f2a11bc000040008000000000000001", "interval_seconds": 10, "history": [],
              "now": { "at": "x", "cpu_cores": 0.4236, "memory_bytes": 5_452_595, "memory_limit_bytes": 512 << 20,
                       "disk_bytes": 16384, "disk_limit_bytes": 1 << 30, "processes": 7, "processes_limit": 528,
                       "later": 1 } },
            { "sandbox_id": "00112233000040008000000000000001", "now": null },
            { "sandbox_id": "4455aaaa000040008000000000000001", "now": { "at": "x", "cpu_cores": 2.0,
              "memory_bytes": 999, "disk_limit_bytes": 3_u64 << 41 } },
        ]))
        .unwrap();
        insta::assert_snapshot!(rendered(&all.iter().collect::<Vec<_>>()), @r"
        ID        CPU     MEMORY       DISK        PROCESSES
        3f2a11bc  42.4%   5.2m / 512m  16k / 1.0g  7 / 528
        00112233  -       -            -           -
        4455aaaa  200.0%  999b / -     - / 6.0t    -
        ");
        assert_eq!(over("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
