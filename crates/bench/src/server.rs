//! An `atoll serve` for one figure: a data folder of its own, and at the end, also after a failure, `atoll
//! down --purge`.

use crate::{
    Result,
    http::Client,
    instance::{keep, tree, wait_until_gone},
};
use atoll_launch_proto::Layout;
use serde::Deserialize;
use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout},
    time::timeout,
};

/// The first key of every server here.
pub(crate) const KEY: &str = "bootstrap-key-of-a-benchmark";
/// How long the server may take to print its address, and to answer at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub(crate) struct Server {
    address: SocketAddr,
    // The reader must stay open, or the server could not print.
    _stdout: BufReader<ChildStdout>,
    settings: Vec<String>,
    end: End,
}

/// The fields of a sandbox that the figures need.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Sandbox {
    id: String,
    volume_name: String,
}

impl Sandbox {
    /// Its id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Its path, with a resource below it.
    pub(crate) fn path(&self, below: &str) -> String {
        format!("/api/v1/sandboxes/{}{below}", self.id)
    }
}

/// Ends a server and all that belongs to it, whether it ever answered or not.
struct End {
    child: Child,
    program: PathBuf,
    layout: Layout,
    folder: tempfile::TempDir,
    done: bool,
}

impl End {
    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    /// The address of a server that was just started.
    async fn address(&mut self) -> Result<(SocketAddr, BufReader<ChildStdout>)> {
        let mut stdout = BufReader::new(self.child.stdout.take().ok_or("the server has no output")?);
        let mut first = String::new();
        let said = timeout(PATIENCE, stdout.read_line(&mut first)).await;
        let address = first.split("http://").nth(1).and_then(|t| t.split([' ', '\n']).next()?.parse().ok());
        match (said, address) {
            (Ok(Ok(_)), Some(address)) => Ok((address, stdout)),
            _ => {
                let log = fs::read_to_string(self.log()).unwrap_or_default();
                Err(format!("atoll serve did not start: {}{}", first.trim(), log.trim()).into())
            }
        }
    }

    fn down(&mut self) -> Result<()> {
        self.done = true;
        let down = Command::new(&self.program)
            .args(["down", "--purge", "--data-dir"])
            .arg(self.layout.data())
            .output()?;
        // Where it could not be ended by `atoll down`.
        let _ = self.child.start_kill();
        if down.status.success() {
            return Ok(());
        }
        keep(&mut self.folder);
        Err(format!("atoll down: {}: {}", down.status, String::from_utf8_lossy(&down.stderr).trim()).into())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.done
            && let Err(error) = self.down()
        {
            eprintln!("atoll-bench: {error}");
        }
    }
}

/// The program beside this one.
pub(crate) fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or("this program is nowhere")?;
    for name in ["atoll", "atoll-launch"] {
        if !folder.join(name).is_file() {
            let folder = folder.display();
            return Err(
                format!("there is no {name} in {folder}; cargo build -p atoll -p atoll-launch").into()
            );
        }
    }
    Ok(folder.join("atoll"))
}

/// Variables that a server is started with.
type Variables<'a> = &'a [(&'static str, String)];

fn spawn(
    program: &Path,
    data: &Path,
    log: File,
    settings: &[String],
    variables: Variables<'_>,
) -> Result<Child> {
    let mut command = tokio::process::Command::new(program);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    command.args(settings.iter().flat_map(|setting| ["--set", setting.as_str()]));
    command.env("ATOLL_BOOTSTRAP_KEY", KEY).env("ATOLL_LOG", "warn");
    // A benchmark makes no connection to the outside.
    command.env("ATOLL_EGRESS_ASK_INDEXES", "false").envs(variables.iter().map(|(k, v)| (k, v)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
    Ok(command.spawn()?)
}

impl Server {
    /// Works with a server of these settings and variables, and ends it.
    pub(crate) async fn with<T>(
        settings: &[String],
        variables: Variables<'_>,
        work: impl AsyncFnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        let server = Self::start_with(settings, variables).await?;
        let done = work(&server).await;
        // Also after a failure, whose error is more useful than that of the end.
        let ended = server.end().await;
        let done = done?;
        ended?;
        Ok(done)
    }

    /// Starts one with these settings.
    pub(crate) async fn start(settings: &[String]) -> Result<Self> {
        Self::start_with(settings, &[]).await
    }

    pub(crate) async fn start_with(settings: &[String], variables: Variables<'_>) -> Result<Self> {
        let program = program()?;
        let folder = tempfile::Builder::new().prefix("atoll-bench-rest-").tempdir()?;
        let (data, log) = (folder.path().join("data"), folder.path().join("server.log"));
        fs::create_dir(&data)?;
        let layout = Layout::new(&data.canonicalize()?);
        let child = spawn(&program, layout.data(), File::create(&log)?, settings, variables)?;
        let mut end = End { child, program, layout, folder, done: false };
        let (address, stdout) = end.address().await?;
        Ok(Self { address, _stdout: stdout, settings: settings.to_vec(), end })
    }

    /// Kills the server itself; its launcher and sandboxes live on.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.end.child.kill().await?)
    }

    /// Starts it again after a kill.
    pub(crate) async fn begin(&mut self) -> Result<()> {
        let log = File::options().append(true).open(self.end.log())?;
        self.end.child = spawn(&self.end.program, self.end.layout.data(), log, &self.settings, &[])?;
        (self.address, self._stdout) = self.end.address().await?;
        Ok(())
    }

    /// A connection that stays open, and is warm.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let mut client = self.connect_only().await?;
        timeout(PATIENCE, client.ask("GET", "/health", "")).await??.expect(200)?;
        Ok(client)
    }

    /// A connection without any request.
    pub(crate) async fn connect_only(&self) -> Result<Client> {
        Client::connect(self.address, Some(KEY)).await
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file of its database.
    pub(crate) fn database(&self) -> PathBuf {
        self.end.layout.data().join("server/atoll.db")
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self.end.child.id().ok_or("the server has ended")?)
    }

    /// The folder of a sandbox's volume on this machine.
    pub(crate) fn volume(&self, sandbox: &Sandbox) -> Result<PathBuf> {
        tree(&self.end.layout, "volumes", &sandbox.volume_name)
    }

    /// Ends it and waits until nothing is left.
    pub(crate) async fn end(mut self) -> Result<()> {
        self.end.down()?;
        self.end.child.wait().await?;
        wait_until_gone(&self.end.layout).await?;
        if self.end.layout.data().exists() {
            return Err("atoll down --purge left the data folder".into());
        }
        // The log is dropped with the value.
        Ok(())
    }
}

/// Makes a sandbox.
pub(crate) async fn create(client: &mut Client, body: &str) -> Result<Sandbox> {
    let answer = client.ask("POST", "/api/v1/sandboxes", body).await?;
    Ok(serde_json::from_slice(&answer.expect(201)?)?)
}

/// One that there is already.
pub(crate) async fn sandbox_of(client: &mut Client, id: &str) -> Result<Sandbox> {
    let answer = client.ask("GET", &format!("/api/v1/sandboxes/{id}"), "").await?;
    Ok(serde_json::from_slice(&answer.expect(200)?)?)
}

/// Ends a sandbox.
pub(crate) async fn delete(client: &mut Client, sandbox: &Sandbox) -> Result<()> {
    client.ask("DELETE", &sandbox.path(""), "").await?.expect(204).map(drop)
}

/// Runs a command that must succeed.
pub(crate) async fn exec(client: &mut Client, sandbox: &Sandbox, body: &str) -> Result<()> {
    output(client, sandbox, body).await.map(drop)
}

/// The same, with its output.
pub(crate) async fn output(client: &mut Client, sandbox: &Sandbox, body: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct Ended {
        exit_code: i32,
        stdout: String,
    }
    let answer = client.ask("POST", &sandbox.path("/exec"), body).await?.expect(200)?;
    match serde_json::from_slice::<Ended>(&answer)? {
        Ended { exit_code: 0, stdout } => Ok(stdout),
        _ => Err(format!("{body} went wrong: {}", String::from_utf8_lossy(&answer)).into()),
    }
}

/// The fields of a command that the figures need.
#[derive(Debug, Deserialize)]
pub(crate) struct Exec {
    pub(crate) exec_id: String,
    /// None until it has ended.
    pub(crate) exit_code: Option<i32>,
}

/// Starts a command in the background.
pub(crate) async fn background(client: &mut Client, sandbox: &Sandbox, body: &str) -> Result<Exec> {
    let answer = client.ask("POST", &sandbox.path("/exec"), body).await?;
    Ok(serde_json::from_slice(&answer.expect(202)?)?)
}
