//! Egress: a sandbox's fetches through its proxy, compared with the same program without a sandbox that
//! connects directly, and with tinyproxy where it is installed. Everything stays on loopback.

mod connections;
mod latency;
mod throughput;

use super::Bench;
use crate::{
    Result, baseline,
    http::Client,
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
    source::{NAME, Source},
    stats::Samples,
    tinyproxy::Tinyproxy,
};
use serde_json::json;
use std::io::Read;

const PROGRAM: &str = include_str!("client.py");
const PYTHON: &str = "/usr/bin/python3";
const DIRECT: &str = "direct, bare";
const TINYPROXY: &str = "tinyproxy, bare";
/// The port of a sandbox's proxy.
const GATE: u16 = 3128;

pub(super) async fn throughput(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_ways(async |ways| throughput::take(bench, ways).await).await
}

pub(super) async fn latency(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_ways(async |ways| latency::take(bench, ways).await).await
}

pub(super) async fn connections(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_ways(async |ways| connections::take(bench, ways).await).await
}

/// How a fetch is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In a sandbox, through its proxy.
    Proxy,
    /// In a sandbox, by a program that knows no proxy.
    Transparent,
    /// On this machine, directly.
    Direct,
    /// On this machine, through tinyproxy.
    Tinyproxy,
}

/// What is fetched, and how often.
#[derive(Debug, Clone, Copy)]
struct Fetch {
    size: u64,
    count: usize,
    /// Seconds before each; none: connections are opened and held.
    pause: Option<f64>,
}

/// Everything that is compared.
struct Ways<'a> {
    server: &'a Server,
    client: Client,
    sandbox: Sandbox,
    source: Source,
    tinyproxy: Option<Tinyproxy>,
}

impl Ways<'_> {
    /// The ways on this machine that a sandbox's are compared with, and their names.
    fn bare(&self) -> Vec<(Way, &'static str)> {
        let tinyproxy = self.tinyproxy.as_ref().map(|_| (Way::Tinyproxy, TINYPROXY));
        [(Way::Direct, DIRECT)].into_iter().chain(tinyproxy).collect()
    }

    fn arguments(&self, way: Way, fetch: Fetch) -> [String; 4] {
        let Fetch { size, count, pause } = fetch;
        let bytes = self.source.bytes;
        let address = bytes.ip().to_string();
        let tinyproxy = self.tinyproxy.as_ref().map_or(0, |proxy| proxy.port);
        let (kind, host, proxy) = match way {
            Way::Proxy => ("connect", NAME.to_owned(), GATE),
            Way::Transparent => ("direct", NAME.to_owned(), 0),
            Way::Direct => ("direct", address, 0),
            Way::Tinyproxy => ("connect", address, tinyproxy),
        };
        let asked = json!([kind, host, bytes.port(), proxy, size, count, pause]).to_string();
        [PYTHON.into(), "-c".into(), PROGRAM.into(), asked]
    }

    /// Fetches in one way, and returns the milliseconds of each.
    async fn fetch(&mut self, way: Way, fetch: Fetch) -> Result<Samples> {
        let arguments = self.arguments(way, fetch);
        let said = match way {
            Way::Proxy | Way::Transparent => {
                let body = json!({ "arguments": arguments, "timeout_seconds": 300 }).to_string();
                server::output(&mut self.client, &self.sandbox, &body).await?
            }
            Way::Direct | Way::Tinyproxy => bare(&arguments)?,
        };
        let taken: Vec<f64> = serde_json::from_str(&said).map_err(|e| format!("{said:?}: {e}"))?;
        Ok(taken.into_iter().collect())
    }
}

/// Runs a program of this machine to its end, and returns its output.
fn bare(arguments: &[String]) -> Result<String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut child = baseline::piped(&arguments)?;
    let mut said = String::new();
    let read = child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut said));
    let status = child.wait()?;
    read.ok_or("the program has no output")??;
    if status.success() { Ok(said) } else { Err(format!("the client went wrong: {status}").into()) }
}

/// The series of a round, with their baselines.
fn beside(series: impl Iterator<Item = Samples>, bare: &[(Way, &'static str)]) -> Vec<Baseline> {
    bare.iter().zip(series).map(|((_, name), samples)| Baseline::new(name, samples)).collect()
}

async fn with_ways(work: impl AsyncFnOnce(&mut Ways<'_>) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    let source = Source::start()?;
    let nameservers = [("ATOLL_EGRESS_NAMESERVERS", source.names.to_string())];
    Server::with(&[], &nameservers, async move |server| with_server(server, source, work).await).await
}

async fn with_server(
    server: &Server,
    source: Source,
    work: impl AsyncFnOnce(&mut Ways<'_>) -> Result<Vec<Row>>,
) -> Result<Vec<Row>> {
    let mut client = server.connect().await?;
    // The policy's limits must not be what is measured.
    let limits = json!({ "connections": 4096, "connections_per_second": 100_000 });
    let policy = json!({ "mode": "allowlist", "allow": [NAME, source.bytes.to_string()], "limits": limits });
    let sandbox = server::create(&mut client, &json!({ "egress": policy }).to_string()).await?;
    let mut ways = Ways { server, client, sandbox, source, tinyproxy: Tinyproxy::start()? };
    let rows = work(&mut ways).await?;
    server::delete(&mut ways.client, &ways.sandbox).await?;
    Ok(rows)
}
