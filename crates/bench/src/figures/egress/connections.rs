//! Many open connections of one sandbox: how long until all are open, and how much the server's memory grows.
//! Compared with the same number that a bare program opens directly, and the growth of its own memory, and
//! with tinyproxy's.

use super::{Baseline, Bench, Fetch, Row, Samples, Way, Ways};
use crate::{Result, baseline, machine, server};
use serde::Deserialize;
use std::{
    io::{BufRead, BufReader},
    process::Child,
    time::Duration,
};

/// Long enough for freed memory to be counted as such.
const SETTLE: Duration = Duration::from_millis(500);

/// How long it took until all were open, and the growth of the carrying process's memory.
#[derive(Default)]
struct Taken {
    opening: Samples,
    memory: Samples,
}

impl Taken {
    fn push(&mut self, (opening, memory): (f64, f64)) {
        self.opening.push(opening);
        self.memory.push(memory);
    }
}

pub(super) async fn take(bench: &Bench<'_>, ways: &mut Ways<'_>) -> Result<Vec<Row>> {
    let count = bench.scale.pick(50, 1000, 1000);
    let fetch = Fetch { size: 0, count, pause: None };
    let (mut own, mut direct, mut plain) = (Taken::default(), Taken::default(), Taken::default());
    // The first round allocates what all rounds share, and does not count.
    for round in 0..=bench.scale.pick(1, 5, 15) {
        let values = (inside(ways, fetch).await?, outside(ways, Way::Direct, fetch).await?);
        let third = match &ways.tinyproxy {
            Some(_) => Some(outside(ways, Way::Tinyproxy, fetch).await?),
            None => None,
        };
        if round > 0 {
            own.push(values.0);
            direct.push(values.1);
            third.into_iter().for_each(|value| plain.push(value));
        }
    }
    let both = |first: Baseline, second: Baseline| {
        [first].into_iter().chain(second.samples.sound().then_some(second)).collect::<Vec<_>>()
    };
    let opening =
        both(Baseline::new("direct, bare", direct.opening), Baseline::new("tinyproxy, bare", plain.opening));
    let memory = both(
        Baseline::new("the bare program itself", direct.memory),
        Baseline::new("tinyproxy", plain.memory),
    );
    let [first, ..] = &memory[..] else { return Err("there is nothing beside it".into()) };
    let row = Row::memory(&format!("egress {count} open, memory"), own.memory, first.clone());
    Ok(vec![
        Row::latency(format!("egress {count} open"), "tight", own.opening, opening),
        Row { baselines: memory, pace: "open", ..row },
    ])
}

/// Resident memory of a process, in mebibytes.
fn resident(pid: u32) -> Result<f64> {
    Ok(machine::resident(pid)? as f64 / f64::from(1 << 20))
}

/// Opens them in the sandbox, and measures the server.
async fn inside(ways: &mut Ways<'_>, fetch: Fetch) -> Result<(f64, f64)> {
    tokio::time::sleep(SETTLE).await;
    let (pid, before) = (ways.server.pid()?, resident(ways.server.pid()?)?);
    let body = serde_json::json!({
        "arguments": ways.arguments(Way::Proxy, fetch), "background": true, "stdin_open": true, "timeout_seconds": 300,
    });
    let exec = server::background(&mut ways.client, &ways.sandbox, &body.to_string()).await?.exec_id;
    let path = ways.sandbox.path(&format!("/execs/{exec}/output?format=raw"));
    let mut said = Vec::new();
    while !said.ends_with(b"\n") {
        tokio::time::sleep(Duration::from_millis(20)).await;
        said = ways.client.ask("GET", &path, "").await?.expect(200)?;
    }
    let opening: [f64; 1] = serde_json::from_slice(&said)?;
    tokio::time::sleep(SETTLE).await;
    let after = resident(pid)?;
    let open = open(ways).await?;
    if open != fetch.count as u64 {
        return Err(format!("{open} of {} connections are open", fetch.count).into());
    }
    ways.client.ask("POST", &ways.sandbox.path(&format!("/execs/{exec}/kill")), "").await?.expect(200)?;
    Ok((opening[0], after - before))
}

/// How many the server counts.
async fn open(ways: &mut Ways<'_>) -> Result<u64> {
    #[derive(Deserialize)]
    struct Shown {
        connections_open: u64,
    }
    let answer = ways.client.ask("GET", &ways.sandbox.path("/egress"), "").await?.expect(200)?;
    Ok(serde_json::from_slice::<Shown>(&answer)?.connections_open)
}

/// Opens them on this machine, and measures the process that carries them.
async fn outside(ways: &Ways<'_>, way: Way, fetch: Fetch) -> Result<(f64, f64)> {
    let arguments = ways.arguments(way, fetch);
    let proxy = ways.tinyproxy.as_ref().filter(|_| way == Way::Tinyproxy);
    let before = match proxy {
        Some(proxy) => resident(proxy.pid())?,
        // A program that opens none.
        None => hold(&ways.arguments(way, Fetch { count: 0, ..fetch })).await?.2,
    };
    let (child, opening, own) = hold(&arguments).await?;
    let after = match proxy {
        Some(proxy) => resident(proxy.pid())?,
        None => own,
    };
    drop(child);
    Ok((opening, after - before))
}

/// A program that holds connections, until this is dropped.
struct Holding(Child);

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program that opens connections, and returns it with how long that took and its memory.
async fn hold(arguments: &[String]) -> Result<(Holding, f64, f64)> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut child = Holding(baseline::held(&arguments)?);
    let mut line = String::new();
    let read = child.0.stdout.as_mut().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    read.ok_or("the program has no output")??;
    let [opening]: [f64; 1] = serde_json::from_str(&line).map_err(|e| format!("{line:?}: {e}"))?;
    tokio::time::sleep(SETTLE).await;
    let own = resident(child.0.id())?;
    Ok((child, opening, own))
}
