//! The console in a browser: its first view, a key at its terminal, and its list. The browser's page takes the times, so
//! that what drives it adds nothing.

use super::{Bench, exec::has_python, rest::with_server};
use crate::{
    Result,
    pace::{Pace, timed},
    report::{Baseline, Compare, Row, Unit},
    server::{self, KEY, Sandbox, Server},
    stats::Samples,
    websocket::Socket,
};
use serde::Deserialize;
use std::{path::Path, process::Stdio};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

const CHROMIUM: &str = "/usr/bin/chromium";
/// `make ui` installs the browser's driver there and builds the console.
const UI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui");
const DRIVER: &str = include_str!("browser.mjs");
const RECORDS: &str = include_str!("records.py");
/// Records of the long list.
const MANY: &str = "10000";
const CAT: &str = "/terminal?command=stty%20raw%20-echo;printf%20raw;exec%20cat";

/// Whether there is a browser, its driver and a console.
pub(super) fn is_there() -> bool {
    let there = |path: &str| Path::new(UI).join(path).exists();
    Path::new(CHROMIUM).exists() && there("node_modules/playwright-core") && there("dist/index.html")
}

/// A browser that takes one measurement at a time.
struct Browser {
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    child: Child,
    _script: tempfile::TempPath,
}

/// What a measurement came to.
#[derive(Debug, Deserialize)]
struct Taken {
    ms: f64,
    /// Bytes that were sent, and what they are without compression.
    #[serde(default)]
    bytes: f64,
    #[serde(default)]
    plain: f64,
}

impl Browser {
    fn start(server: &Server, sandbox: &Sandbox) -> Result<Self> {
        let script = tempfile::Builder::new().suffix(".mjs").tempfile()?.into_temp_path();
        std::fs::write(&script, DRIVER)?;
        let url = format!("http://{}", server.address());
        let mut command = Command::new("node");
        command.arg(&*script).args([UI, &url, KEY, sandbox.id()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|e| format!("node cannot be started: {e}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).ok_or("the browser's driver has no pipes")?;
        Ok(Self { stdin, lines: BufReader::new(stdout).lines(), child, _script: script })
    }

    async fn take(&mut self, what: &str) -> Result<Taken> {
        self.stdin.write_all(format!("{what}\n").as_bytes()).await?;
        let line = self.lines.next_line().await?;
        Ok(serde_json::from_str(&line.ok_or_else(|| format!("the browser ended with {what}"))?)?)
    }

    /// Without input it closes what it opened.
    async fn end(mut self) -> Result<()> {
        drop(self.stdin);
        self.child.wait().await?;
        Ok(())
    }
}

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    if !is_there() {
        return Ok(Vec::new());
    }
    with_server(async |server| on(bench, server).await).await
}

async fn on(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, "{}").await?;
    let mut browser = Browser::start(server, &sandbox)?;
    let mut rows = first_view(&mut browser, bench.scale.pick(2, 10, 30)).await?;
    rows.push(letter(&mut browser, server, &sandbox, bench.scale.pick(3, 100, 300)).await?);
    if has_python() {
        records(server, &sandbox).await?;
        rows.push(list(&mut browser, bench.scale.pick(2, 10, 30)).await?);
    }
    browser.end().await?;
    server::delete(&mut client, &sandbox).await?;
    Ok(rows)
}

/// Bytes and time of the first view with an empty cache.
async fn first_view(browser: &mut Browser, rounds: usize) -> Result<Vec<Row>> {
    let round = async || {
        let own = browser.take("view").await?;
        let blank = browser.take("blank").await?;
        Ok(vec![own.ms, blank.ms, own.bytes / 1024.0, own.plain / 1024.0])
    };
    let [own, blank, bytes, plain] = series(Pace::tight(rounds).take(round).await?)?;
    let time =
        Row::latency("console, first view", "cold", own, vec![Baseline::new("a page of nothing", blank)]);
    let size = Row {
        name: "console, its bytes".into(),
        pace: "cold",
        unit: Unit::Kibibytes,
        compare: Compare::Ratio,
        samples: bytes,
        baselines: vec![Baseline::new("without compression", plain)],
    };
    Ok(vec![time.by_difference(), size])
}

/// A key from its press in the page to its echo through the page's socket.
async fn letter(browser: &mut Browser, server: &Server, sandbox: &Sandbox, rounds: usize) -> Result<Row> {
    // The page opens its terminal first: it would join one that is there already.
    browser.take("letter").await?;
    let mut socket = Socket::open(server.connect().await?, &sandbox.path(CAT)).await?;
    let mut said = Vec::new();
    while said != b"raw" {
        said.extend_from_slice(&socket.next().await?);
    }
    let round = async || {
        let own = browser.take("letter").await?.ms;
        let press = async {
            socket.send(b"x").await?;
            socket.next().await
        };
        Ok(vec![own, timed(press).await?.0])
    };
    let [own, bare] = series(Pace::tight(rounds).take(round).await?)?;
    let bare = Baseline::new("the same socket, no browser", bare);
    Ok(Row::latency("console, a key", "tight", own, vec![bare]).by_difference())
}

/// Makes the list long.
async fn records(server: &Server, sandbox: &Sandbox) -> Result<()> {
    let mut command = Command::new("python3");
    command.args(["-c", RECORDS]).arg(server.database()).args([sandbox.id(), MANY]);
    match command.status().await?.success() {
        true => Ok(()),
        false => Err("the records were not written".into()),
    }
}

/// The list of many, in a tab that has been used, beside the list of one.
async fn list(browser: &mut Browser, rounds: usize) -> Result<Row> {
    let round = async || Ok(vec![browser.take("many").await?.ms, browser.take("one").await?.ms]);
    let [many, one] = series(Pace::tight(rounds).take(round).await?)?;
    let one = Baseline::new("a list of one", one);
    Ok(Row::latency("console, list of 10,000", "warm", many, vec![one]).by_difference())
}

fn series<const N: usize>(taken: Vec<Samples>) -> Result<[Samples; N]> {
    taken.try_into().map_err(|_| "a series is missing".into())
}
