//! `atoll image build`: an image from a template or a Dockerfile.

use super::follow::follow;
use crate::{
    Failure,
    copy_folder::packed,
    egress::{self, args::Lists},
    pairs::{self, Pair},
    server::Server,
    terminal,
};
use atoll_client::{BuildImage, BuildImageOfFiles};
use clap::Args;
use std::{
    fs,
    path::{Path, PathBuf},
};

#[derive(Debug, Args)]
pub(crate) struct Build {
    /// The folder whose files the Dockerfile copies
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// A template that ships: base, skills-runtime, data-science, r or node
    #[arg(long, value_name = "NAME", conflicts_with_all = ["folder", "file", "spec"])]
    pub(crate) template: Option<String>,
    /// The Dockerfile; Dockerfile in the folder without it
    #[arg(long, short, value_name = "FILE", requires = "folder", conflicts_with = "spec")]
    pub(crate) file: Option<PathBuf>,
    /// A file with a template as JSON
    #[arg(long = "spec", value_name = "FILE", conflicts_with = "folder")]
    pub(crate) spec: Option<PathBuf>,
    /// What to call it; as the template without it
    #[arg(long, short = 't', value_name = "NAME[:TAG]")]
    pub(crate) name: Option<String>,
    /// A value for an argument of the Dockerfile; may be repeated
    #[arg(long = "build-arg", value_name = "NAME=VALUE", value_parser = pairs::environment)]
    pub(crate) arguments: Vec<Pair>,
    /// Take the tag from the image that has it
    #[arg(long)]
    pub(crate) replace: bool,
    /// Carry out every step, also those whose result is kept
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// A file with exact versions: `packages` of an image as JSON; where DIR is given, one in it
    #[arg(long, value_name = "FILE")]
    pub(crate) lock: Option<PathBuf>,
    /// What the image may hold, such as 2g
    #[arg(long, value_name = "SIZE", value_parser = crate::size::bytes)]
    pub(crate) disk: Option<u64>,
    /// The memory of the steps, such as 4g
    #[arg(long, value_name = "SIZE", value_parser = crate::size::bytes)]
    pub(crate) memory: Option<u64>,
    /// The processors of the steps, such as 0.5 or 2
    #[arg(long, value_name = "CORES", value_parser = crate::size::cores)]
    pub(crate) cpus: Option<u32>,
    /// What the steps reach [default: the presets of package managers, or allowlist where something is listed]
    #[arg(long, value_parser = ["none", "allowlist", "full"])]
    pub(crate) egress_mode: Option<String>,
    #[command(flatten)]
    pub(crate) egress: Lists,
    /// How many containers of it are kept ready, even when no sandbox is requested
    #[arg(long, value_name = "COUNT")]
    pub(crate) warm_pool_min: Option<u32>,
    /// At most, when many sandboxes are requested
    #[arg(long, value_name = "COUNT")]
    pub(crate) warm_pool_max: Option<u32>,
    /// Do not wait: print the build's id
    #[arg(long, short)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

fn json_file(path: &Path) -> Result<serde_json::Value, Failure> {
    let text = fs::read_to_string(path).map_err(|e| Failure::file(path, &e))?;
    serde_json::from_str(&text).map_err(|e| Failure::file(path, &std::io::Error::other(e)))
}

/// The file of an option as a path in the folder.
fn inside(folder: &Path, file: &Path, option: &'static str) -> Result<String, Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |e: std::io::Error| Failure::file(&path, &e)
    };
    let (top, at) =
        (fs::canonicalize(folder).map_err(failed(folder))?, fs::canonicalize(file).map_err(failed(file))?);
    let inside = at.strip_prefix(&top).ok().and_then(|path| path.to_str()).map(str::to_owned);
    inside.ok_or_else(|| Failure::usage(option, format!("{} is not in {}", file.display(), folder.display())))
}

pub(crate) async fn build(options: Build) -> Result<u8, Failure> {
    let Build {
        folder,
        template,
        file,
        spec,
        name,
        arguments,
        replace,
        no_cache,
        lock,
        disk,
        memory,
        cpus,
        egress_mode,
        egress,
        warm_pool_min,
        warm_pool_max,
        detach,
        server,
    } = options;
    let cpu_cores = cpus.map(|millis| f64::from(millis) / 1000.0);
    let egress = egress::policy(egress_mode, egress);
    let megabytes = |bytes: Option<u64>| bytes.map(|bytes| bytes.div_ceil(1 << 20));
    let (disk_mb, memory_mb) = (megabytes(disk), megabytes(memory));
    let args = pairs::map(arguments);
    let client = server.client()?;
    let build = match folder {
        Some(folder) => {
            if folder.join(".dockerignore").exists() {
                let message =
                    ".dockerignore is not supported: build in a folder that holds only what is copied";
                return Err(Failure::usage("DIR", message));
            }
            let file = file.map(|file| inside(&folder, &file, "--file")).transpose()?;
            let lock = lock.map(|file| inside(&folder, &file, "--lock")).transpose()?;
            let request = BuildImageOfFiles {
                name,
                file,
                args,
                replace,
                disk_mb,
                memory_mb,
                cpu_cores,
                egress,
                no_cache,
                lock,
                warm_pool_min,
                warm_pool_max,
            };
            packed(&folder, server.json, async |body| client.build_image_of_files(&request, body).await)
                .await?
        }
        None => {
            let spec = spec.as_deref().map(json_file).transpose()?;
            if template.is_none() && spec.is_none() {
                return Err(Failure::usage("DIR", "name a folder, or give --template or --spec"));
            }
            let lock = lock.as_deref().map(json_file).transpose()?;
            let request = BuildImage {
                template,
                spec,
                args,
                name,
                replace,
                disk_mb,
                memory_mb,
                cpu_cores,
                egress,
                warm_pool_min,
                warm_pool_max,
                no_cache,
                lock,
                ..BuildImage::default()
            };
            client.build_image(&request).await?
        }
    };
    if detach {
        match server.json {
            true => terminal::print_json(&build.json)?,
            false => terminal::print(&format!("{}\n", build.build_id))?,
        }
        return Ok(0);
    }
    let json = follow(&client, build.build_id, &build.name, server.json).await?;
    match server.json {
        true => terminal::print_json(&json)?,
        false => terminal::print(&format!("{}\n", build.image_id))?,
    }
    Ok(0)
}
