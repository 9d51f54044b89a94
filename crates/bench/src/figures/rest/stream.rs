//! Output that is followed while a command prints it, as text and as base64, and the output of a command in
//! the background, as bytes alone; compared with the same program on a plain pipe. And the time to the first
//! byte of a command.

use super::Bench;
use crate::{
    Result, baseline,
    events::Events,
    figures::{files::noise, output::read_pipe},
    http::Client,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
};
use std::{
    io::Read,
    path::Path,
    time::{Duration, Instant},
};

/// Less than a sandbox keeps of one command, so that no reader can be too slow.
const USUAL: u64 = 32 << 20;
const LINE: &[u8; 64] = b"a line of text as programs print them, \"quoted\" here and there.\n";
const PIPE: &str = "the same through a pipe";
const ECHO: &[&str] = &["/bin/echo", "hello"];

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let size = bench.scale.pick(4 << 20, USUAL, USUAL);
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, "{}").await?;
    let folder = server.volume(&sandbox)?.join("workspace");
    for (name, piece) in [("text", &LINE.repeat(1024)[..]), ("bytes", &noise()[..])] {
        let file = sandbox.path(&format!("/files/{name}"));
        client.put(&file, piece, size).await?.expect(204)?;
    }
    let pace = Pace::tight(bench.scale.pick(1, 10, 40));
    let mut rows = Vec::new();
    for (name, file) in [("rest stream, text", "text"), ("rest stream, base64", "bytes")] {
        rows.push(streamed(&mut client, &sandbox, pace, name, (&folder.join(file), size)).await?);
    }
    rows.push(raw(&mut client, &sandbox, pace, (&folder.join("text"), size)).await?);
    for pace in bench.paces(300) {
        rows.push(first_byte(&mut client, &sandbox, pace).await?);
    }
    server::delete(&mut client, &sandbox).await?;
    Ok(rows)
}

/// The same file printed on this machine.
fn bare(file: &Path) -> Result<(f64, u64)> {
    let file = file.to_str().ok_or("the volume's path is no text")?;
    timed_here(|| read_pipe(&["/bin/cat", file]))
}

fn expect(size: u64, found: [u64; 2]) -> Result<()> {
    let [own, bare] = found;
    if found == [size; 2] { Ok(()) } else { Err(format!("{size} bytes became {own} and {bare}").into()) }
}

fn row(name: &str, size: u64, series: Vec<crate::stats::Samples>) -> Result<Row> {
    let mut series = series.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (own, bare) = (next()?, Baseline::new(PIPE, next()?));
    Ok(Row::throughput(name, size, &own, &bare))
}

async fn follow(client: &mut Client, sandbox: &Sandbox, body: &str) -> Result<Events> {
    let mut events = Events::default();
    client.follow((&sandbox.path("/exec"), body), |piece| events.take(piece)).await?;
    events.check()?;
    Ok(events)
}

async fn streamed(
    client: &mut Client,
    sandbox: &Sandbox,
    pace: Pace,
    name: &str,
    (file, size): (&Path, u64),
) -> Result<Row> {
    let inside = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let body = format!(r#"{{"arguments":["cat","{inside}"],"stream":true}}"#);
    let round = async || {
        let (own, events) = timed(follow(client, sandbox, &body)).await?;
        let (beside, bytes) = bare(file)?;
        expect(size, [events.bytes, bytes])?;
        // A piece of noise is never valid text.
        if (events.as_base64 > 0) != (inside == "bytes") {
            return Err(format!("{} bytes came as base64", events.as_base64).into());
        }
        Ok(vec![own, beside])
    };
    row(name, size, pace.take(round).await?)
}

async fn raw(client: &mut Client, sandbox: &Sandbox, pace: Pace, (file, size): (&Path, u64)) -> Result<Row> {
    let round = async || {
        let exec = printed(client, sandbox, r#"{"arguments":["cat","text"],"background":true}"#).await?;
        let path = sandbox.path(&format!("/execs/{exec}/output?format=raw"));
        let (own, bytes) = timed(client.get(&path)).await?;
        let (beside, bare_bytes) = bare(file)?;
        expect(size, [bytes, bare_bytes])?;
        client.ask("DELETE", &sandbox.path(&format!("/execs/{exec}")), "").await?.expect(204)?;
        Ok(vec![own, beside])
    };
    row("rest output, raw", size, pace.take(round).await?)
}

/// Runs a command in the background, to its end, and returns its id.
async fn printed(client: &mut Client, sandbox: &Sandbox, body: &str) -> Result<String> {
    let mut exec = server::background(client, sandbox, body).await?;
    while exec.exit_code.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let path = sandbox.path(&format!("/execs/{}", exec.exec_id));
        exec = serde_json::from_slice(&client.ask("GET", &path, "").await?.expect(200)?)?;
    }
    match exec.exit_code {
        Some(0) => Ok(exec.exec_id),
        code => Err(format!("{body} ended with {code:?}").into()),
    }
}

async fn first_byte(client: &mut Client, sandbox: &Sandbox, pace: Pace) -> Result<Row> {
    let body = r#"{"arguments":["echo","hello"],"stream":true}"#;
    let round = async || {
        pace.wait().await;
        let began = Instant::now();
        let first = follow(client, sandbox, body).await?.first.ok_or("echo printed nothing")?;
        let own = (first - began).as_secs_f64() * 1e3;
        pace.wait().await;
        let (bare, mut child) = timed_here(|| {
            let mut child = baseline::piped(ECHO)?;
            child.stdout.as_mut().ok_or("the child has no output")?.read_exact(&mut [0])?;
            Ok(child)
        })?;
        child.wait()?;
        Ok(vec![own, bare])
    };
    let mut series = pace.take(round).await?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (own, bare) = (next()?, Baseline::new("bare echo through a pipe", next()?));
    Ok(Row::latency("rest stream, first byte", pace.name, own, vec![bare]).by_difference())
}
