//! The server's memory for one open connection of each kind, compared with one without any request. Each kind
//! has a server of its own: memory that a server has freed is reused for the next connection.

use super::{Bench, with_server_of};
use crate::{
    Result,
    figures::mcp::speak::Web,
    http::Client,
    machine::resident,
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
    stats::Samples,
    websocket::Socket,
};
use std::time::Duration;

const IDLE: &str = "without a request";
/// Long enough for the memory of opening to be freed.
const SETTLE: Duration = Duration::from_millis(500);
const SLEEP: &str = r#"{"arguments":["sleep","600"],"background":true,"timeout_seconds":600}"#;
const TERMINAL: &str = "/terminal?command=cat";

/// The kind of a connection.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Idle,
    KeepAlive,
    Events,
    Output,
    Terminal,
    Mcp,
}

impl Kind {
    const MEASURED: [(Self, &'static str); 5] = [
        (Self::KeepAlive, "kept alive"),
        (Self::Events, "events"),
        (Self::Output, "output"),
        (Self::Terminal, "terminal"),
        (Self::Mcp, "MCP session"),
    ];

    /// How many are opened. Terminals have a process each, and MCP sessions a limit of 64 for a key.
    fn count(self, bench: &Bench<'_>) -> usize {
        match self {
            Self::Idle | Self::KeepAlive | Self::Events | Self::Output => bench.scale.pick(20, 500, 500),
            Self::Terminal | Self::Mcp => bench.scale.pick(5, 50, 50),
        }
    }
}

/// A connection that stays open as long as this does.
#[allow(dead_code)]
enum Connection {
    Http(Client),
    Terminal(Socket),
    Mcp(Web),
}

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let rounds = bench.scale.pick(1, 3, 5);
    let idle = samples(bench, Kind::Idle, rounds).await?;
    let mut rows = Vec::new();
    for (kind, name) in Kind::MEASURED {
        let own = samples(bench, kind, rounds).await?;
        rows.push(Row::small_memory(&format!("connection, {name}"), own, Baseline::new(IDLE, idle.clone())));
    }
    Ok(rows)
}

async fn samples(bench: &Bench<'_>, kind: Kind, rounds: usize) -> Result<Samples> {
    let settings = ["warm_pool_enabled=false", "plan.execs_per_second=100000"].map(str::to_owned);
    let mut samples = Samples::default();
    for _ in 0..rounds {
        with_server_of(&settings, async |server| {
            samples.push(one(server, kind, kind.count(bench)).await?);
            Ok(Vec::new())
        })
        .await?;
    }
    Ok(samples)
}

/// The bytes by which the server grows for each connection.
async fn one(server: &Server, kind: Kind, count: usize) -> Result<f64> {
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, r#"{"disk_mb":64}"#).await?;
    let exec = server::background(&mut client, &sandbox, SLEEP).await?.exec_id;
    // The first one allocates what all share.
    let first = open(server, kind, (&sandbox, &exec)).await?;
    tokio::time::sleep(SETTLE).await;
    let before = resident(server.pid()?)?;
    let mut all = vec![first];
    for _ in 0..count {
        all.push(open(server, kind, (&sandbox, &exec)).await?);
    }
    tokio::time::sleep(SETTLE).await;
    let after = resident(server.pid()?)?;
    drop(all);
    server::delete(&mut client, &sandbox).await?;
    Ok((after as f64 - before as f64) / count as f64)
}

async fn open(server: &Server, kind: Kind, (sandbox, exec): (&Sandbox, &str)) -> Result<Connection> {
    if matches!(kind, Kind::Idle) {
        return Ok(Connection::Http(server.connect_only().await?));
    }
    let mut client = server.connect().await?;
    match kind {
        Kind::Idle | Kind::KeepAlive => {}
        Kind::Events => client.open("/api/v1/events?follow=true").await?,
        Kind::Output => {
            client.open(&sandbox.path(&format!("/execs/{exec}/output?follow=true"))).await?;
        }
        Kind::Terminal => {
            let mut socket = Socket::open(client, &sandbox.path(TERMINAL)).await?;
            socket.send(b"x\n").await?;
            socket.next().await?;
            return Ok(Connection::Terminal(socket));
        }
        Kind::Mcp => return Ok(Connection::Mcp(Web::open(server, "a-thread").await?)),
    }
    Ok(Connection::Http(client))
}
