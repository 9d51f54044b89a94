//! An image that is built of a Dockerfile whose steps are kept, beside the build that carries them out; and a sandbox of a large
//! image, beside one of the machine's own.

use super::Bench;
use crate::{
    Result,
    http::Client,
    pace::{Pace, timed},
    report::{Baseline, Row},
    server::{self, Server},
};
use serde::Deserialize;
use std::{fs, process::Command, time::Duration};

const ROOT: &str = "/api/v1/sandbox-images";
const BUSYBOX: &str = "/usr/bin/busybox";
const MIB: usize = 1 << 20;

/// Whether this machine has what the base is made of.
pub(crate) fn is_there() -> bool {
    fs::metadata(BUSYBOX).is_ok()
}

#[derive(Deserialize)]
struct Build {
    build_id: String,
    status: String,
    error: Option<String>,
}

/// Builds an image and waits for it.
async fn build(
    client: &mut Client,
    name: &str,
    dockerfile: &str,
    disk_mb: usize,
    no_cache: bool,
) -> Result<()> {
    let body = serde_json::json!({
        "name": name, "dockerfile": dockerfile, "disk_mb": disk_mb, "no_cache": no_cache, "replace": true,
    });
    let begun = client.ask("POST", ROOT, &body.to_string()).await?.expect(202)?;
    let path = format!("{ROOT}/builds/{}", serde_json::from_slice::<Build>(&begun)?.build_id);
    loop {
        let build: Build = serde_json::from_slice(&client.ask("GET", &path, "").await?.expect(200)?)?;
        match build.status.as_str() {
            "done" => return Ok(()),
            "running" => tokio::time::sleep(Duration::from_millis(2)).await,
            _ => return Err(build.error.unwrap_or(build.status).into()),
        }
    }
}

/// An image of busybox alone.
async fn put_base(client: &mut Client) -> Result<()> {
    let top = tempfile::tempdir()?;
    fs::create_dir_all(top.path().join("bin"))?;
    for name in ["sh", "busybox"] {
        fs::copy(BUSYBOX, top.path().join("bin").join(name))?;
    }
    let packed = Command::new("tar").arg("-C").arg(top.path()).args(["-cf", "-", "."]).output()?;
    client.post(&format!("{ROOT}/import?name=box&disk_mb=64"), &packed.stdout).await?.expect(201)?;
    Ok(())
}

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    if !is_there() {
        return Ok(Vec::new());
    }
    let mut client = server.connect().await?;
    put_base(&mut client).await?;
    let size = bench.scale.pick(16, 1024, 1024);
    let disk = size + 64;
    let step = format!("RUN /bin/busybox dd if=/dev/urandom of=/large bs={MIB} count={size}");
    let steps = format!("FROM box\n{step}\nRUN echo a > /a\nRUN echo b > /b\nENV A=b\n");
    let pace = Pace::tight(bench.scale.pick(1, 3, 10));
    let builds = pace.take(async || {
        let (whole, ()) = timed(build(&mut client, "large", &steps, disk, true)).await?;
        let (kept, ()) = timed(build(&mut client, "large", &steps, disk, false)).await?;
        Ok(vec![kept, whole])
    });
    let mut builds = builds.await?.into_iter();
    let mut next = || builds.next().ok_or("a series is missing");
    let (kept, whole) = (next()?, Baseline::new("every step carried out", next()?));
    let mut rows = vec![Row::latency("rebuild, kept", pace.name, kept, vec![whole])];
    for pace in bench.paces(50) {
        let creates = pace.take(async || {
            let mut values = Vec::new();
            for body in [r#"{"image":"large"}"#, "{}"] {
                pace.wait().await;
                let (created, sandbox) = timed(server::create(&mut client, body)).await?;
                values.push(created);
                server::delete(&mut client, &sandbox).await?;
            }
            Ok(values)
        });
        let mut creates = creates.await?.into_iter();
        let mut next = || creates.next().ok_or("a series is missing");
        let (large, host) = (next()?, Baseline::new("create of host", next()?));
        rows.push(Row::latency("create, large image", pace.name, large, vec![host]));
    }
    Ok(rows)
}
