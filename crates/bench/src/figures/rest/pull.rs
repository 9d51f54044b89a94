//! An image from a registry on loopback until sandboxes can be made of it, beside `skopeo copy` and `umoci unpack` of the same
//! image. Each round has an image that no round before had, so that none finds its layers.

use super::Bench;
use crate::{
    Result,
    http::Client,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
    server::Server,
};
use serde::Deserialize;
use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

const PIECE: usize = 1 << 20;
const TOOLS: [&str; 3] = ["docker-registry", "skopeo", "umoci"];

/// Whether this machine has what it takes.
pub(crate) fn is_there() -> bool {
    TOOLS.iter().all(|tool| Command::new(tool).arg("--help").output().is_ok())
}

struct Registry {
    child: Child,
    host: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    fn start(top: &Path) -> Result<Self> {
        let host = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let storage = top.join("registry");
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n",
            storage.display()
        );
        fs::write(top.join("config.yml"), config)?;
        let mut command = Command::new("docker-registry");
        command.args(["serve", "config.yml"]).current_dir(top).stdout(Stdio::null()).stderr(Stdio::null());
        let registry = Self { child: command.spawn()?, host };
        for _ in 0..600 {
            if TcpStream::connect(&registry.host).is_ok() {
                return Ok(registry);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("docker-registry does not start".into())
    }
}

fn run(top: &Path, words: &[&str]) -> Result<()> {
    let output = Command::new(words[0]).args(&words[1..]).current_dir(top).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim()).into())
}

/// A folder of noise, of text and of small files.
fn fill(folder: &Path, pieces: usize) -> Result<()> {
    fs::create_dir_all(folder.join("small"))?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for piece in 0..pieces {
        let noise: Vec<u8> = (0..PIECE / 8).flat_map(|_| next().to_ne_bytes()).collect();
        fs::write(folder.join(format!("noise-{piece}")), noise)?;
        let text: String = (0..PIECE / 20).map(|_| format!("{:020}\n", next() % 1000)).collect();
        fs::write(folder.join(format!("text-{piece}")), text)?;
    }
    for file in 0..20 * pieces {
        fs::write(folder.join("small").join(file.to_string()), format!("{}\n", next()))?;
    }
    Ok(())
}

/// Puts an image of the folder into the registry that differs from the one before.
fn push(top: &Path, host: &str, round: usize) -> Result<u64> {
    fs::write(top.join("root/round"), round.to_string())?;
    run(top, &["tar", "-C", "root", "-cf", "layer.tar", "."])?;
    let name = format!("layout:{round}");
    run(top, &["umoci", "new", "--image", &name])?;
    run(top, &["umoci", "raw", "add-layer", "--image", &name, "layer.tar"])?;
    let (from, to) = (format!("oci:{name}"), format!("docker://{host}/image:{round}"));
    run(top, &["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", &from, &to])?;
    Ok(fs::metadata(top.join("layer.tar"))?.len())
}

fn unpack_plain(top: &Path, host: &str, round: usize) -> Result<()> {
    let from = format!("docker://{host}/image:{round}");
    run(
        top,
        &[
            "skopeo",
            "--insecure-policy",
            "copy",
            "--quiet",
            "--src-tls-verify=false",
            &from,
            "oci:plain:latest",
        ],
    )?;
    run(top, &["umoci", "unpack", "--image", "plain:latest", "bundle"])
}

async fn pull(client: &mut Client, host: &str, round: usize) -> Result<()> {
    #[derive(Deserialize)]
    struct Build {
        build_id: String,
        status: String,
        error: Option<String>,
    }
    let body = format!(r#"{{"reference":"{host}/image:{round}"}}"#);
    let answer = client.ask("POST", "/api/v1/sandbox-images/pull", &body).await?.expect(202)?;
    let path =
        format!("/api/v1/sandbox-images/builds/{}", serde_json::from_slice::<Build>(&answer)?.build_id);
    loop {
        let build: Build = serde_json::from_slice(&client.ask("GET", &path, "").await?.expect(200)?)?;
        match build.status.as_str() {
            "done" => return Ok(()),
            "running" => tokio::time::sleep(Duration::from_millis(5)).await,
            _ => return Err(build.error.unwrap_or(build.status).into()),
        }
    }
}

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    if !is_there() {
        return Ok(Vec::new());
    }
    let top = tempfile::tempdir()?;
    let top = top.path();
    fill(&top.join("root"), bench.scale.pick(4, 64, 256))?;
    run(top, &["umoci", "init", "--layout", "layout"])?;
    let registry = Registry::start(top)?;
    let variables = [("ATOLL_IMAGES_INSECURE_REGISTRIES", registry.host.clone())];
    let server = Server::start_with(&[], &variables).await?;
    let mut client = server.connect().await?;
    let (mut round, mut size) = (0, 0);
    let pace = Pace::tight(bench.scale.pick(1, 3, 10));
    let taken = pace.take(async || {
        round += 1;
        size = push(top, &registry.host, round)?;
        let (pulled, ()) = timed(pull(&mut client, &registry.host, round)).await?;
        let (plain, ()) = timed_here(|| unpack_plain(top, &registry.host, round))?;
        for folder in ["plain", "bundle"] {
            fs::remove_dir_all(top.join(folder))?;
        }
        Ok(vec![pulled, plain])
    });
    let series = taken.await;
    server.end().await?;
    let mut series = series?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (pulled, plain) = (next()?, next()?);
    let plain = Baseline::new("skopeo copy, umoci unpack", plain);
    Ok(vec![Row::throughput("pull and unpack", size, &pulled, &plain)])
}
