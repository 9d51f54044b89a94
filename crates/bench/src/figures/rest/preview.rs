//! Small requests to a server inside a sandbox, one after the other and eight at a time, compared with the
//! same server run bare and called directly. It keeps its connections open, and answers as fast as Python
//! can.

use super::Bench;
use crate::{
    Result, baseline,
    http::Client,
    pace::{Pace, timed},
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
};
use futures_util::future::try_join_all;
use std::{
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr},
    process::Child,
    time::{Duration, Instant},
};

const PROGRAM: &str = r#"
import asyncio, sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n"

class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.rest = transport, b""
    def data_received(self, data):
        *heads, self.rest = (self.rest + data).split(b"\r\n\r\n")
        self.transport.write(ANSWER * len(heads))

async def main():
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", int(sys.argv[1]))
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"#;
const PYTHON: &str = "/usr/bin/python3";
const PORT: u16 = 8000;
/// How long the servers may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests of a round, and the pause that an owner then owes: 500 a second are allowed in the long run.
const REQUESTS: usize = 480;
const REFILL: Duration = Duration::from_secs(1);
const BARE: &str = "the same server, bare";

/// The server without a sandbox. It ends when the value is dropped.
struct Bare {
    child: Child,
    address: SocketAddr,
}

impl Bare {
    fn start() -> Result<Self> {
        let mut child = baseline::piped(&[PYTHON, "-c", PROGRAM, "0"])?;
        let mut port = String::new();
        let said = child.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut port));
        let mut bare = Self { child, address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
        said.ok_or("the server has no output")??;
        bare.address.set_port(port.trim().parse().map_err(|_| "the bare server did not start")?);
        Ok(bare)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, "{}").await?;
    let port = PORT.to_string();
    let program = serde_json::json!({ "arguments": [PYTHON, "-c", PROGRAM, port], "background": true });
    server::background(&mut client, &sandbox, &program.to_string()).await?;
    wait_for(&mut client, &sandbox).await?;
    let bare = Bare::start()?;
    let pace = Pace::tight(bench.scale.pick(1, 10, 40));
    let mut rows = Vec::new();
    for (name, at_once) in [("rest preview, 1 at once", 1), ("rest preview, 8 at once", 8)] {
        let own = try_join_all((0..at_once).map(|_| server.connect())).await?;
        let direct = try_join_all((0..at_once).map(|_| Client::connect(bare.address, None))).await?;
        rows.push(one((own, &path(&sandbox)), direct, pace, name).await?);
    }
    server::delete(&mut client, &sandbox).await?;
    Ok(rows)
}

fn path(sandbox: &Sandbox) -> String {
    sandbox.path(&format!("/ports/{PORT}/"))
}

/// Waits until the server inside answers.
async fn wait_for(client: &mut Client, sandbox: &Sandbox) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = client.ask("GET", &path(sandbox), "").await?;
        if answer.status == 200 || began.elapsed() > PATIENCE {
            return answer.expect(200).map(drop);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Makes the requests of a round, spread over these connections.
async fn ask_all(clients: &mut [Client], path: &str) -> Result<()> {
    let each = REQUESTS / clients.len();
    let one = async |client: &mut Client| {
        for _ in 0..each {
            client.ask("GET", path, "").await?.expect(200)?;
        }
        Ok::<_, crate::Error>(())
    };
    try_join_all(clients.iter_mut().map(one)).await.map(drop)
}

async fn one(
    (mut own, path): (Vec<Client>, &str),
    mut direct: Vec<Client>,
    pace: Pace,
    name: &str,
) -> Result<Row> {
    let round = async || {
        tokio::time::sleep(REFILL).await;
        let through = timed(ask_all(&mut own, path)).await?.0;
        Ok(vec![through, timed(ask_all(&mut direct, "/")).await?.0])
    };
    let mut series = pace.take(round).await?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (through, bare) = (next()?, Baseline::new(BARE, next()?));
    Ok(Row::frequency(name, REQUESTS, &through, &bare))
}
