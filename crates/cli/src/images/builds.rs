//! `atoll image pull`, and the builds that make images.

use super::follow::follow;
use crate::{Failure, failure::each, server::Server, table, terminal, when};
use atoll_client::{Build, Client, PullImage, Uuid};
use atoll_types::{Error, ErrorCode};
use clap::Args;
use std::{
    io::{Read, stdin},
    path::PathBuf,
    pin::pin,
    time::Duration,
};

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// HOST/NAME, with :TAG or @sha256:…
    #[arg(value_name = "REFERENCE")]
    pub(crate) reference: String,
    /// What to call it; as the registry does without it
    #[arg(long, value_name = "NAME[:TAG]")]
    pub(crate) name: Option<String>,
    /// Take the tag from the image that has it
    #[arg(long)]
    pub(crate) replace: bool,
    /// What the image may hold, such as 2g
    #[arg(long, value_name = "SIZE", value_parser = crate::size::bytes)]
    pub(crate) disk: Option<u64>,
    /// Who asks the registry; the password is read from standard input, or from --password-file
    #[arg(long, value_name = "USER")]
    pub(crate) username: Option<String>,
    /// A file with the password
    #[arg(long, value_name = "FILE", requires = "username")]
    pub(crate) password_file: Option<PathBuf>,
    /// Do not wait: print the build's id
    #[arg(long, short)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct BuildLog {
    /// The build's id, or the beginning of it
    pub(crate) build: String,
    /// Until the build's end
    #[arg(long, short)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Builds' ids, or the beginnings of them
    #[arg(required = true, value_name = "BUILD")]
    pub(crate) builds: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// The longest password.
const LONGEST: u64 = 16 << 10;

pub(super) fn password(file: Option<PathBuf>) -> Result<String, Failure> {
    let mut text = String::new();
    let path = file.clone().unwrap_or_else(|| "standard input".into());
    let failed = |e: std::io::Error| Failure::file(&path, &e);
    match file {
        Some(file) => std::fs::File::open(file).map_err(failed)?.take(LONGEST).read_to_string(&mut text),
        None => stdin().take(LONGEST).read_to_string(&mut text),
    }
    .map_err(failed)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

pub(crate) async fn pull(options: Pull) -> Result<u8, Failure> {
    let Pull { reference, name, replace, disk, username, password_file, detach, server } = options;
    let password = username.as_ref().map(|_| password(password_file)).transpose()?;
    let disk_mb = disk.map(|bytes| bytes.div_ceil(1 << 20));
    let request = PullImage { reference, name, replace, disk_mb, username, password, ..PullImage::default() };
    let client = server.client()?;
    let build = client.pull_image(&request).await?;
    if detach {
        match server.json {
            true => terminal::print_json(&build.json)?,
            false => terminal::print(&format!("{}\n", build.build_id))?,
        }
        return Ok(0);
    }
    let json = follow(&client, build.build_id, &request.reference, server.json).await?;
    match server.json {
        true => terminal::print_json(&json)?,
        false => terminal::print(&format!("{}\n", build.image_id))?,
    }
    Ok(0)
}

/// Pulls the image of a create, where it is not here and the server lets this key pull it. Whether it does is the server's to
/// say: where it refuses, the create says why.
pub(crate) async fn pull_on_use(client: &Client, image: &str, json: bool) -> Result<(), Failure> {
    if !image.contains('/') || client.image(image).await.is_ok() {
        return Ok(());
    }
    let request = PullImage { reference: image.to_owned(), on_use: true, ..PullImage::default() };
    match client.pull_image(&request).await {
        Ok(build) => follow(client, build.build_id, image, json).await.map(drop),
        Err(_) => Ok(()),
    }
}

/// The same for `atoll run`, which uses no server but for this: that of the environment is asked, where a key for it is set there.
pub async fn pull_with_environment(image: &str) -> Result<(), Error> {
    if std::env::var_os("ATOLL_API_KEY").is_none() {
        return Ok(());
    }
    let server = Server { url: None, api_key: None, json: false };
    let pulled = async { pull_on_use(&server.client()?, image, server.json).await };
    pulled.await.map_err(|failure: Failure| Error::new(ErrorCode::Unavailable, failure.sentence()))
}

/// How often a create that takes long looks for the build that it waits for.
const LOOK: Duration = Duration::from_secs(1);

/// Waits for a create. Where the server builds its image first, shows what that build says.
pub(crate) async fn with_build<T>(
    client: &Client,
    image: Option<&str>,
    json: bool,
    create: impl Future<Output = T>,
) -> T {
    let mut create = pin!(create);
    if let Some(image) = image {
        tokio::select! {
            created = &mut create => return created,
            () = follow_build_of(client, image, json) => {}
        }
    }
    create.await
}

/// Follows the build of an image, once there is one. The create says how that ended.
async fn follow_build_of(client: &Client, image: &str, json: bool) {
    let is_it = |build: &&Build| {
        build.status == "running" && (build.name == image || format!("{}:{}", build.name, build.tag) == image)
    };
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(all) = client.list_builds().await else { return };
        if let Some(build) = all.items.iter().find(is_it) {
            let _ = follow(client, build.build_id, image, json).await;
            return;
        }
    }
}

fn listed(builds: &[Build]) -> String {
    let row = |build: &Build| {
        let part = build
            .progress
            .filter(|progress| progress.total_bytes > 0)
            .map(|progress| format!(" {}%", progress.done_bytes.saturating_mul(100) / progress.total_bytes));
        [
            build.build_id.to_string().chars().take(8).collect(),
            format!("{}:{}", build.name, build.tag),
            build.origin.clone(),
            format!("{}{}", build.status, part.unwrap_or_default()),
            build.created_at.as_deref().map(when::since).unwrap_or_default(),
            build.error.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = builds.iter().map(row).collect();
    table::render(["ID", "IMAGE", "ORIGIN", "STATUS", "CREATED", "ERROR"], &rows)
}

pub(crate) async fn list(server: &Server) -> Result<(String, String), Failure> {
    let all = server.client()?.list_builds().await?;
    let text = listed(&all.items);
    Ok((all.json, text))
}

/// The build of an id, or of the beginning of one.
async fn resolve(client: &Client, typed: &str) -> Result<Uuid, Failure> {
    if let Ok(id) = Uuid::try_parse(typed) {
        return Ok(id);
    }
    let all = client.list_builds().await?;
    let ids: Vec<Uuid> = all.items.iter().map(|build| build.build_id).collect();
    let mut begin = ids.iter().filter(|id| id.to_string().starts_with(typed));
    match (begin.next(), begin.next()) {
        (Some(id), None) => Ok(*id),
        (Some(_), Some(_)) => {
            Err(Failure::usage("build", format!("{typed} is the beginning of several builds' ids")))
        }
        (None, _) => Err(Failure::usage("build", format!("there is no build {typed}"))),
    }
}

pub(crate) async fn log(options: BuildLog) -> Result<u8, Failure> {
    let BuildLog { build, follow: to_end, server } = options;
    let client = server.client()?;
    let id = resolve(&client, &build).await?;
    if to_end {
        let json = follow(&client, id, &build, server.json).await?;
        if server.json {
            terminal::print_json(&json)?;
        }
        return Ok(0);
    }
    let text = client.build_log(id).await?;
    let lines: String = text.lines().map(|line| format!("{}\n", terminal::plain(line))).collect();
    terminal::print(&lines)?;
    Ok(0)
}

pub(crate) async fn cancel(options: Cancel) -> Result<u8, Failure> {
    let Cancel { builds, server } = options;
    let client = server.client()?;
    each(&builds, server.json, async |typed| {
        let id = resolve(&client, typed).await?;
        client.cancel_build(id).await.map_err(|e| Failure::from(e).about(typed))?;
        terminal::print_done(typed, server.json)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_for_people() {
        let build: Build = serde_json::from_value(serde_json::json!({
            "build_id": "3f2a11bc-0000-4000-8000-000000000001", "image_id": "3f2a11bc-0000-4000-8000-000000000002",
            "name": "registry.example/app", "tag": "1", "origin": "pull", "status": "running", "created_at": "then",
            "progress": {"done_bytes": 5, "total_bytes": 10, "step": 1, "steps": 2},
        }))
        .unwrap();
        insta::assert_snapshot!(listed(&[build]), @r"
        ID        IMAGE                   ORIGIN  STATUS       CREATED  ERROR
        3f2a11bc  registry.example/app:1  pull    running 50%  then     -
        ");
    }
}
