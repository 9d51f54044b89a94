//! Docker's own daemon, where it is installed, with everything of it below one temporary folder: the baseline
//! of the same work by its API. It has no bridge and no firewall rules, and its cgroups are below a folder of
//! ours.

use crate::{Result, pace::timed};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

const DAEMON: &str = "/usr/sbin/dockerd";
const CLIENT: &str = "/usr/bin/docker";
/// How long it may take to answer, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
const IMAGE: &str = "atoll-bench";
const CGROUPS: &str = "atoll-bench-docker";

/// A running daemon. It is ended when the value is dropped, with its containers.
pub(crate) struct Docker {
    child: Child,
    folder: tempfile::TempDir,
}

impl Docker {
    pub(crate) fn is_there() -> bool {
        [DAEMON, CLIENT].iter().all(|program| Path::new(program).exists())
    }

    /// Starts one, with an image of two programs.
    pub(crate) async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("atoll-bench-docker-").tempdir()?;
        let path = |name: &str| folder.path().join(name);
        fs::write(path("daemon.json"), "{}")?;
        let log = fs::File::create(path("log"))?;
        let mut command = Command::new(DAEMON);
        for (option, name) in [
            ("--data-root", "data"),
            ("--exec-root", "run"),
            ("--pidfile", "pid"),
            ("--config-file", "daemon.json"),
        ] {
            command.arg(option).arg(path(name));
        }
        command
            .arg("--host")
            .arg(format!("unix://{}", path("socket").display()))
            .args(["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"])
            .args(["--storage-driver=overlay2", "--cgroup-parent", &format!("/{CGROUPS}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let docker = Self { child: command.spawn()?, folder };
        let began = Instant::now();
        while docker.ask("GET", "/_ping", None).await.is_err() {
            if began.elapsed() > PATIENCE {
                let log = fs::read_to_string(docker.path("log")).unwrap_or_default();
                return Err(
                    format!("dockerd does not answer: {}", log.lines().last().unwrap_or_default()).into()
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        docker.import()?;
        Ok(docker)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Imports an image of this machine's `true` and `sleep`, with the libraries that they are linked to.
    fn import(&self) -> Result<()> {
        let mut files = vec!["/usr/bin/true".to_owned(), "/usr/bin/sleep".to_owned()];
        let linked = Command::new("ldd").args(&files).output()?;
        let linked = String::from_utf8(linked.stdout)?;
        files.extend(
            linked
                .split_whitespace()
                .filter(|word| word.starts_with('/') && !word.ends_with(':'))
                .map(str::to_owned),
        );
        files.sort();
        files.dedup();
        let archive = self.path("image.tar");
        run(Command::new("tar").args(["-C", "/", "--dereference", "-cPf"]).arg(&archive).args(&files))?;
        let socket = format!("unix://{}", self.path("socket").display());
        run(Command::new(CLIENT).args(["-H", &socket, "import"]).arg(&archive).arg(IMAGE))
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Result<(u16, Vec<u8>)> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = UnixStream::connect(self.path("socket")).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or("docker's answer has no head")?;
        let status = String::from_utf8_lossy(&answer[..end]).split(' ').nth(1).and_then(|s| s.parse().ok());
        Ok((status.ok_or("docker's answer has no status")?, answer.split_off(end + 4)))
    }

    async fn expect(&self, status: u16, method: &str, path: &str, body: Option<Value>) -> Result<Vec<u8>> {
        match self.ask(method, path, body).await? {
            (found, body) if found == status => Ok(body),
            (found, body) => {
                Err(format!("docker answered {found} to {path}: {}", String::from_utf8_lossy(&body)).into())
            }
        }
    }

    /// Makes a container like a sandbox and starts it; how long that took, and its id.
    pub(crate) async fn create(&self) -> Result<(f64, String)> {
        let wanted = json!({
            "Image": IMAGE,
            "Cmd": ["/usr/bin/sleep", "1000"],
            "HostConfig": {
                "NetworkMode": "none",
                "Memory": 512 << 20,
                "PidsLimit": 528,
                "NanoCpus": 1_000_000_000,
                "LogConfig": { "Type": "none" },
            },
        });
        timed(async {
            let made = self.expect(201, "POST", "/containers/create", Some(wanted)).await?;
            let id = id_of(&made)?;
            self.expect(204, "POST", &format!("/containers/{id}/start"), None).await?;
            Ok::<_, crate::Error>(id)
        })
        .await
    }

    /// Runs `true` in it.
    pub(crate) async fn exec(&self, id: &str) -> Result<f64> {
        let wanted = json!({ "Cmd": ["/usr/bin/true"], "AttachStdout": true, "AttachStderr": true });
        let (took, exec) = timed(async {
            let made = self.expect(201, "POST", &format!("/containers/{id}/exec"), Some(wanted)).await?;
            let exec = id_of(&made)?;
            let start = json!({ "Detach": false, "Tty": false });
            self.expect(200, "POST", &format!("/exec/{exec}/start"), Some(start)).await?;
            Ok::<_, crate::Error>(exec)
        })
        .await?;
        let ended = self.expect(200, "GET", &format!("/exec/{exec}/json"), None).await?;
        let ended = String::from_utf8_lossy(&ended).replace(' ', "");
        if ended.contains("\"ExitCode\":0") { Ok(took) } else { Err(format!("docker exec: {ended}").into()) }
    }

    /// `pause` or `unpause`.
    pub(crate) async fn tell(&self, id: &str, what: &str) -> Result<f64> {
        Ok(timed(self.expect(204, "POST", &format!("/containers/{id}/{what}"), None)).await?.0)
    }

    /// Ends it and removes it.
    pub(crate) async fn delete(&self, id: &str) -> Result<f64> {
        Ok(timed(self.expect(204, "DELETE", &format!("/containers/{id}?force=true"), None)).await?.0)
    }
}

/// The id in a small response, chunked or not.
fn id_of(answer: &[u8]) -> Result<String> {
    let text = String::from_utf8_lossy(answer);
    let json = text.find('{').zip(text.rfind('}')).map(|(from, to)| &text[from..=to]);
    let value: Value = serde_json::from_str(json.ok_or("docker's answer is not JSON")?)?;
    Ok(value["Id"].as_str().ok_or("docker's answer has no id")?.to_owned())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}

impl Drop for Docker {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let began = Instant::now();
        while !matches!(self.child.try_wait(), Ok(Some(_))) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What the daemon leaves: a mount for each namespace that it kept open, and empty cgroups.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let below = self.folder.path().display().to_string();
        for mount in
            mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|at| at.starts_with(&below))
        {
            let _ = Command::new("umount").arg("-l").arg(mount).status();
        }
        let cgroups =
            fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        for hierarchy in cgroups.chain([PathBuf::from("/sys/fs/cgroup")]) {
            let _ = fs::remove_dir(hierarchy.join(CGROUPS));
        }
    }
}
