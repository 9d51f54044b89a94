//! Live interpreters: a cell in a warm one, the start of one, and its copies, compared with the same in a
//! bare interpreter on a pipe.

use super::{Bench, claim::Line};
use crate::{
    Result, baseline,
    http::Client,
    pace::{timed, timed_here},
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
};
use serde::Deserialize;
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout},
};

const PYTHON: &str = "/usr/bin/python3";
const CELL: &str = r#"{"code":"1+1"}"#;
/// Evaluates a line, and answers with a line.
const PLAIN: &str = "import sys
for line in sys.stdin:
    repr(eval(line)); print('done', flush=True)";
/// The same by IPython, in a folder that is given.
const IPYTHON: &str = "import os, sys
os.environ['IPYTHONDIR'] = sys.argv[1]
from traitlets.config import Config
from IPython.core.interactiveshell import InteractiveShell
c = Config(); c.HistoryManager.enabled = False
shell = InteractiveShell.instance(config=c)
for line in sys.stdin:
    shell.run_cell(line); print('done', flush=True)";
/// Forks with 100 MB that are in use, and waits for the copy.
const FORK: &str = "import os, sys
data = bytes(range(250)) * 400000
for line in sys.stdin:
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0); print('done', flush=True)";
/// As much in a kernel.
const FILL: &str = r#"{"code":"data = bytes(range(250)) * 400000"}"#;

/// An interpreter without a sandbox, driven by lines. It ends when the value is dropped.
struct Bare {
    name: &'static str,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Bare {
    fn start(name: &'static str, script: &str, argument: &str) -> Result<Self> {
        let mut child = baseline::held(&[PYTHON, "-c", script, argument])?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("a bare interpreter has no output")?);
        let mut bare = Self { name, child, input, output };
        // Until it answers it is still starting.
        bare.ask()?;
        Ok(bare)
    }

    fn ask(&mut self) -> Result<()> {
        let input = self.input.as_mut().ok_or("a bare interpreter has no input")?;
        input.write_all(b"1+1\n")?;
        let mut line = String::new();
        while line.trim() != "done" {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                return Err(format!("{} ended", self.name).into());
            }
        }
        Ok(())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a cell that must succeed.
async fn run(client: &mut Client, sandbox: &Sandbox, body: &str) -> Result<()> {
    #[derive(Deserialize)]
    struct Ended {
        success: bool,
    }
    let answer = client.ask("POST", &sandbox.path("/run"), body).await?.expect(200)?;
    match serde_json::from_slice::<Ended>(&answer)? {
        Ended { success: true } => Ok(()),
        _ => Err(format!("{body} went wrong: {}", String::from_utf8_lossy(&answer)).into()),
    }
}

/// A cell in a kernel that is warm.
pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, "{}").await?;
    run(&mut client, &sandbox, CELL).await?;
    let folder = tempfile::tempdir()?;
    let place = folder.path().to_str().ok_or("a folder without a name")?;
    let mut beside = vec![Bare::start("bare python3 over a pipe", PLAIN, "")?];
    if Path::new("/usr/lib/python3/dist-packages/IPython").exists() {
        beside.push(Bare::start("bare IPython over a pipe", IPYTHON, place)?);
    }
    let mut rows = Vec::new();
    for pace in bench.paces(300) {
        let round = async || {
            pace.wait().await;
            let mut values = vec![timed(run(&mut client, &sandbox, CELL)).await?.0];
            for bare in &mut beside {
                pace.wait().await;
                values.push(timed_here(|| bare.ask())?.0);
            }
            Ok(values)
        };
        let mut series = pace.take(round).await?.into_iter();
        let own = series.next().ok_or("a series is missing")?;
        let baselines = beside.iter().zip(series).map(|(bare, samples)| Baseline::new(bare.name, samples));
        rows.push(Row::latency("rest kernel 1+1", pace.name, own, baselines.collect()));
    }
    server::delete(&mut client, &sandbox).await?;
    Ok(rows)
}

/// The start of a kernel in a sandbox that runs.
pub(super) async fn start(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    #[derive(Deserialize)]
    struct Kernel {
        kernel_id: String,
    }
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, "{}").await?;
    run(&mut client, &sandbox, CELL).await?;
    let mut rows = Vec::new();
    for pace in bench.paces(50) {
        let round = async || {
            pace.wait().await;
            let asked = async {
                let answer = client.ask("POST", &sandbox.path("/kernels"), "{}").await?.expect(201)?;
                Ok::<Kernel, crate::Error>(serde_json::from_slice(&answer)?)
            };
            let (own, kernel) = timed(asked).await?;
            let path = sandbox.path(&format!("/kernels/{}", kernel.kernel_id));
            client.ask("DELETE", &path, "").await?.expect(204)?;
            pace.wait().await;
            Ok(vec![own, timed_here(|| baseline::spawn(&[PYTHON, "-c", "print(1)"]))?.0])
        };
        let mut series = pace.take(round).await?.into_iter();
        let mut next = || series.next().ok_or("a series is missing");
        let (own, bare) = (next()?, next()?);
        let beside = Baseline::new("bare spawn of python3", bare);
        rows.push(Row::latency("rest kernel start, cold", pace.name, own, vec![beside]));
    }
    server::delete(&mut client, &sandbox).await?;
    Ok(rows)
}

/// A sandbox of the pool and its first cell.
pub(super) async fn claimed(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let ready = bench.scale.pick(4, 24, 24);
    let mut settings = super::claim::size(ready);
    settings.push(r#"pool.kernels=["python"]"#.to_owned());
    super::with_server_of(&settings, async |server| {
        let mut line = Line::new(server.connect().await?, ready, ready.saturating_sub(2)).await?;
        let mut rows = Vec::new();
        for pace in bench.paces(50) {
            let round = async || {
                pace.wait().await;
                let work = async |client: &mut Client, sandbox: &Sandbox| run(client, sandbox, CELL).await;
                let own = line.take(work).await?;
                pace.wait().await;
                Ok(vec![own, timed_here(|| baseline::spawn(&[PYTHON, "-c", "print(1)"]))?.0])
            };
            let mut series = pace.take(round).await?.into_iter();
            let mut next = || series.next().ok_or("a series is missing");
            let (own, bare) = (next()?, next()?);
            let beside = Baseline::new("bare spawn of python3", bare);
            rows.push(Row::latency("rest claim + first cell", pace.name, own, vec![beside]));
        }
        Ok(rows)
    })
    .await
}

/// Copies of a kernel that holds 100 MB.
pub(super) async fn checkpoint(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    #[derive(Deserialize)]
    struct Ids {
        kernel_id: Option<String>,
        checkpoint_id: Option<String>,
    }
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, r#"{"memory_mb":1024}"#).await?;
    run(&mut client, &sandbox, FILL).await?;
    let listed = client.ask("GET", &sandbox.path("/kernels"), "").await?.expect(200)?;
    let kernels: Vec<Ids> = serde_json::from_slice(&listed)?;
    let kernel = kernels.into_iter().find_map(|ids| ids.kernel_id).ok_or("there is no kernel")?;
    let checkpoints = sandbox.path(&format!("/kernels/{kernel}/checkpoints"));
    let mut bare = Bare::start("bare fork and its end, 100 MB", FORK, "")?;
    let mut rows = Vec::new();
    for pace in bench.paces(50) {
        let round = async || {
            pace.wait().await;
            let made = async {
                let answer = client.ask("POST", &checkpoints, "{}").await?.expect(201)?;
                Ok::<Ids, crate::Error>(serde_json::from_slice(&answer)?)
            };
            let (own, ids) = timed(made).await?;
            let one = format!("{checkpoints}/{}", ids.checkpoint_id.ok_or("a checkpoint without an id")?);
            pace.wait().await;
            let back = async { client.ask("POST", &format!("{one}/rollback"), "").await?.expect(200) };
            let (rolled, _) = timed(back).await?;
            client.ask("DELETE", &one, "").await?.expect(204)?;
            pace.wait().await;
            Ok(vec![own, rolled, timed_here(|| bare.ask())?.0])
        };
        let mut series = pace.take(round).await?.into_iter();
        let mut next = || series.next().ok_or("a series is missing");
        let (own, rolled, fork) = (next()?, next()?, next()?);
        let beside = || vec![Baseline::new(bare.name, fork.clone())];
        rows.push(Row::latency("rest checkpoint, 100 MB", pace.name, own, beside()));
        rows.push(Row::latency("rest rollback, 100 MB", pace.name, rolled, beside()));
    }
    server::delete(&mut client, &sandbox).await?;
    Ok(rows)
}
