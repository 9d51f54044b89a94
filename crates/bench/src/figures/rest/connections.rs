//! The server's memory for one open connection of each kind, compared with one without any request. Each kind
//! has a server of its own: memory that a server has freed is reused for the next connection.

use super::Bench;
use crate::{
    Result,
    figures::{
        grpc::{self, GrpcClient},
        mcp::speak::Web,
    },
    http::Client,
    machine::resident,
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
    stats::Samples,
    websocket::Socket,
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

const IDLE: &str = "without a request";
/// Long enough for the memory of opening to be freed.
const SETTLE: Duration = Duration::from_millis(500);
const SLEEP: &str = r#"{"arguments":["sleep","600"],"background":true,"timeout_seconds":600}"#;
const STREAMED: &str = r#"{"arguments":["sleep","600"],"stream":true,"timeout_seconds":600}"#;
const CELL: &str = r#"{"code":"import time; time.sleep(600)","stream":true,"timeout":600}"#;
/// More than a connection holds of what its client does not read.
const LOUD: &str = r#"{"command":"head -c 33554432 /dev/zero","background":true}"#;
const TERMINAL: &str = "/terminal?command=cat";
/// Answers every request with a body that never ends.
const ENDLESS: &str = r#"
import asyncio

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n.\r\n"

class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.head = transport, b""
    def data_received(self, data):
        self.head += data
        if b"\r\n\r\n" in self.head:
            self.transport.write(ANSWER)

async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 8000)
    await server.serve_forever()

asyncio.run(main())
"#;
const PREVIEW: &str = "/ports/8000/";
/// How long the program inside may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// The kind of a connection.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Idle,
    KeepAlive,
    Events,
    Output,
    Unread,
    Exec,
    Cell,
    Watch,
    Terminal,
    Mcp,
    McpStream,
    Grpc,
    Preview,
    Forward,
    LangGraph,
}

impl Kind {
    const MEASURED: [(Self, &'static str); 14] = [
        (Self::KeepAlive, "kept alive"),
        (Self::Events, "events"),
        (Self::Output, "output"),
        (Self::Unread, "output that is not read"),
        (Self::Exec, "streamed command"),
        (Self::Cell, "streamed cell"),
        (Self::Watch, "folder watch"),
        (Self::Terminal, "terminal"),
        (Self::Mcp, "MCP session"),
        (Self::McpStream, "MCP session that listens"),
        (Self::Grpc, "gRPC"),
        (Self::Preview, "preview"),
        (Self::Forward, "forwarded port"),
        (Self::LangGraph, "LangGraph thread"),
    ];

    /// How many are opened. Terminals, commands and watches have processes each, MCP sessions a limit of 64 for a key, previews
    /// and forwarded ports a second connection, to the sandbox, and of cells one runs at a time.
    fn count(self, bench: &Bench<'_>) -> usize {
        match self {
            Self::Idle | Self::KeepAlive | Self::Events | Self::Output | Self::Grpc | Self::LangGraph => {
                bench.scale.pick(20, 500, 500)
            }
            Self::Unread | Self::Cell => bench.scale.pick(3, 20, 20),
            Self::Exec
            | Self::Watch
            | Self::Terminal
            | Self::Mcp
            | Self::McpStream
            | Self::Preview
            | Self::Forward => bench.scale.pick(5, 50, 50),
        }
    }
}

/// A connection that stays open as long as this does.
#[allow(dead_code)]
enum Connection {
    Http(Client),
    Socket(Socket),
    Mcp(Web),
    Grpc(GrpcClient),
}

/// What connections are opened to.
struct Target<'a> {
    server: &'a Server,
    sandbox: &'a Sandbox,
    exec: &'a str,
    thread: &'a str,
    grpc: SocketAddr,
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
    let settings = ["warm_pool_enabled=false", "plan.execs_per_second=100000", "http.owner_streams=100000"];
    let settings = settings.map(str::to_owned);
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let grpc = grpc::free_address()?;
        let variables = [grpc::listens(grpc)];
        let bytes = Server::with(&settings, &variables, async |server| {
            one(server, kind, kind.count(bench), grpc).await
        });
        samples.push(bytes.await?);
    }
    Ok(samples)
}

/// The bytes by which the server grows for each connection.
async fn one(server: &Server, kind: Kind, count: usize, grpc: SocketAddr) -> Result<f64> {
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, r#"{"disk_mb":64}"#).await?;
    let command = if matches!(kind, Kind::Unread) { LOUD } else { SLEEP };
    let exec = server::background(&mut client, &sandbox, command).await?.exec_id;
    let thread = new_thread(&mut client).await?;
    if matches!(kind, Kind::Preview | Kind::Forward) {
        serve_inside(server, &mut client, &sandbox).await?;
    }
    let target = Target { server, sandbox: &sandbox, exec: &exec, thread: &thread, grpc };
    // The first one allocates what all share.
    let first = open(kind, &target).await?;
    tokio::time::sleep(SETTLE).await;
    let before = resident(server.pid()?)?;
    let mut all = vec![first];
    for _ in 0..count {
        all.push(open(kind, &target).await?);
    }
    tokio::time::sleep(SETTLE).await;
    let after = resident(server.pid()?)?;
    drop(all);
    server::delete(&mut client, &sandbox).await?;
    Ok((after as f64 - before as f64) / count as f64)
}

async fn new_thread(client: &mut Client) -> Result<String> {
    let made: Value = serde_json::from_slice(&client.ask("POST", "/threads", "{}").await?.expect(200)?)?;
    Ok(made["thread_id"].as_str().ok_or("a thread without an id")?.to_owned())
}

/// Starts the program that previews lead to, and waits until it answers.
async fn serve_inside(server: &Server, client: &mut Client, sandbox: &Sandbox) -> Result<()> {
    let program = json!({ "arguments": ["/usr/bin/python3", "-c", ENDLESS], "background": true });
    server::background(client, sandbox, &program.to_string()).await?;
    let began = Instant::now();
    while let Err(error) = server.connect().await?.open(&sandbox.path(PREVIEW)).await {
        if began.elapsed() > PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn open(kind: Kind, target: &Target<'_>) -> Result<Connection> {
    let Target { server, sandbox, exec, thread, grpc } = target;
    if matches!(kind, Kind::Idle) {
        return Ok(Connection::Http(server.connect_only().await?));
    }
    let mut client = server.connect().await?;
    match kind {
        Kind::Idle | Kind::KeepAlive => {}
        Kind::Events => client.open("/api/v1/events?follow=true").await?,
        Kind::Output | Kind::Unread => {
            client.open(&sandbox.path(&format!("/execs/{exec}/output?follow=true"))).await?;
        }
        Kind::Exec => client.begin(&sandbox.path("/exec"), STREAMED).await?,
        Kind::Cell => client.begin(&sandbox.path("/run"), CELL).await?,
        Kind::Watch => client.open(&sandbox.path("/fs/watch")).await?,
        Kind::Forward => {
            return Ok(Connection::Socket(Socket::open(client, &sandbox.path("/forward?port=8000")).await?));
        }
        Kind::Preview => client.open(&sandbox.path(PREVIEW)).await?,
        Kind::LangGraph => client.open(&format!("/threads/{thread}/stream")).await?,
        Kind::Terminal => {
            let mut socket = Socket::open(client, &sandbox.path(TERMINAL)).await?;
            socket.send(b"x\n").await?;
            socket.next().await?;
            return Ok(Connection::Socket(socket));
        }
        Kind::McpStream => {
            let mut web = Web::open(server, "a-thread").await?;
            web.listen().await?;
            return Ok(Connection::Mcp(web));
        }
        Kind::Mcp => return Ok(Connection::Mcp(Web::open(server, "a-thread").await?)),
        Kind::Grpc => return Ok(Connection::Grpc(grpc::connect(*grpc).await?)),
    }
    Ok(Connection::Http(client))
}
