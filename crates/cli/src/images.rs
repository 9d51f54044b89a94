//! `atoll image`: root filesystems that sandboxes are made of.

mod builds;
mod follow;
mod template;

use crate::{
    Failure, copy::pieces, failure::each, list::mebibytes, progress, server::Server, table, terminal,
    transfer, when,
};
use atoll_client::{Image, ImportImage, PatchImage, PushImage};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use tokio::fs::File;

pub use builds::pull_with_environment;
pub(crate) use builds::{pull_on_use, with_build};

/// `image`.
#[derive(Debug, Args)]
pub struct ImageOptions {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Lists images
    Ls(Ls),
    /// Makes an image from an archive of `docker save`, an OCI layout or a root filesystem; for admins
    Import(Import),
    /// Pulls an image from a registry, with its log and progress; for admins
    Pull(builds::Pull),
    /// Builds an image from a template or a Dockerfile, with its log; for admins
    Build(Box<template::Build>),
    /// Lists the builds of images, pulls and imports among them
    Builds(Ls),
    /// Shows what a build says, and with -f until its end
    Log(builds::BuildLog),
    /// Cancels builds that run; removes the records of those that have ended
    Cancel(builds::Cancel),
    /// Writes an image as an OCI layout in a tar archive; for admins
    Export(Export),
    /// Pushes an image to a registry; for admins
    Push(Push),
    /// Shows all about an image
    Inspect(One),
    /// Lets keys use images where the server asks for that; for admins
    Approve(Approve),
    /// Removes images with their files; refused while a sandbox uses one. For admins
    Rm(Several),
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// A tar archive, also compressed; - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What to call it
    #[arg(long, value_name = "NAME[:TAG]")]
    pub(crate) name: String,
    /// Which of several images in the archive: its tag there
    #[arg(long, value_name = "TAG")]
    pub(crate) reference: Option<String>,
    /// Take the tag from the image that has it
    #[arg(long)]
    pub(crate) replace: bool,
    /// What the image may hold, such as 2g
    #[arg(long, value_name = "SIZE", value_parser = crate::size::bytes)]
    pub(crate) disk: Option<u64>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
#[command(
    after_help = "`atoll image import` reads the archive, and so do skopeo (oci-archive:FILE) and other tools for OCI images."
)]
pub(crate) struct Export {
    /// NAME, NAME:TAG, a digest, an id or an alias
    pub(crate) image: String,
    /// Where to: a new file, or - for standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Push {
    /// NAME, NAME:TAG, a digest, an id or an alias
    pub(crate) image: String,
    /// HOST/NAME:TAG
    #[arg(value_name = "REFERENCE")]
    pub(crate) reference: String,
    /// Who asks the registry; the password is read from standard input, or from --password-file
    #[arg(long, value_name = "USER")]
    pub(crate) username: Option<String>,
    /// A file with the password
    #[arg(long, value_name = "FILE", requires = "username")]
    pub(crate) password_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// NAME, NAME:TAG, a digest, an id or an alias
    pub(crate) image: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// NAME, NAME:TAG, a digest, an id or an alias
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<String>,
    /// Take it back
    #[arg(long)]
    pub(crate) revoke: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Several {
    /// NAME, NAME:TAG, a digest, an id or an alias
    #[arg(required = true, value_name = "IMAGE")]
    pub(crate) images: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl ImageOptions {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            ImageCommand::Ls(Ls { server })
            | ImageCommand::Import(Import { server, .. })
            | ImageCommand::Pull(builds::Pull { server, .. })
            | ImageCommand::Builds(Ls { server })
            | ImageCommand::Log(builds::BuildLog { server, .. })
            | ImageCommand::Cancel(builds::Cancel { server, .. })
            | ImageCommand::Export(Export { server, .. })
            | ImageCommand::Push(Push { server, .. })
            | ImageCommand::Inspect(One { server, .. })
            | ImageCommand::Approve(Approve { server, .. })
            | ImageCommand::Rm(Several { server, .. }) => server.json,
            ImageCommand::Build(options) => options.server.json,
        }
    }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn size(image: &Image) -> String {
    image.size_bytes.map(|bytes| mebibytes(bytes.div_ceil(1 << 20))).unwrap_or_default()
}

fn listed(images: &[Image]) -> String {
    let row = |image: &Image| {
        [
            image.name.clone(),
            image.tags.join(" "),
            image.id.chars().take(8).collect(),
            size(image),
            image.origin.clone(),
            yes(image.approved),
            image.created_at.as_deref().map(when::since).unwrap_or_default(),
            image.last_used_at.as_deref().map(when::since).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = images.iter().map(row).collect();
    table::render(["NAME", "TAGS", "ID", "SIZE", "ORIGIN", "APPROVED", "CREATED", "USED"], &rows)
}

fn shown(image: &Image) -> String {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let time = |at: &Option<String>| at.as_ref().map(|at| format!("{at} ({})", when::since(at)));
    let variables = image.env_vars.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    let mut limits = Vec::new();
    limits.extend(image.memory_mb.map(|mb| format!("{} memory", mebibytes(mb))));
    limits.extend(image.cpu_cores.map(|cores| format!("{cores} cores")));
    limits.extend(image.disk_mb.map(|mb| format!("{} disk", mebibytes(mb))));
    let users =
        |ids: &Vec<atoll_client::Uuid>| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let packages = image.packages.as_ref().map(Vec::len).filter(|count| *count > 0);
    let packages = packages.map(|count| format!("{count}; --json lists them"));
    let pool =
        (image.warm_pool_max > 0).then(|| format!("{} to {}", image.warm_pool_min, image.warm_pool_max));
    let ready = image.ready_check.as_ref().map(|line| {
        let seconds = image.ready_timeout_seconds.unwrap_or_default();
        format!("{line}, within {seconds} seconds")
    });
    let refused = image.refusal.as_ref().map(|why| format!("no: it {why}"));
    let for_key = refused.unwrap_or_else(|| yes(image.active));
    let rows = [
        ("Name", some(image.name.clone())),
        ("Tags", some(image.tags.join(" "))),
        ("Id", some(image.id.clone())),
        ("Shown as", some(image.display_name.clone())),
        ("Description", image.description.clone()),
        ("Digest", image.digest.clone()),
        ("Size", some(size(image))),
        ("Origin", some(image.origin.clone())),
        ("Source", image.source.clone()),
        ("Status", some(image.status.clone())),
        ("Approved", Some(yes(image.approved))),
        ("For your key", Some(for_key)),
        ("Aliases", some(image.aliases.join(" "))),
        ("Of these", some(image.alias_notes.join("; "))),
        ("User", image.user.clone()),
        ("Directory", image.working_directory.clone()),
        ("Variables", some(variables.join(" "))),
        ("Entrypoint", some(image.entrypoint.join(" "))),
        ("Command", some(image.command.join(" "))),
        ("Starts", image.start_command.clone()),
        ("Ready when", ready),
        ("Default limits", some(limits.join(", "))),
        ("Packages", packages),
        ("Kept ready", pool),
        ("Created", time(&image.created_at)),
        ("Last used", time(&image.last_used_at)),
        ("Used by", image.used_by.as_ref().map(users).and_then(some)),
    ];
    let rows: Vec<_> = rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    table::fields(&rows)
}

async fn import(options: Import) -> Result<(String, String, Server), Failure> {
    let Import { file, name, reference, replace, disk, server } = options;
    let disk_mb = disk.map(|bytes| bytes.div_ceil(1 << 20));
    let request = ImportImage { name, reference, replace, disk_mb };
    let client = server.client()?;
    let made = if file.as_os_str() == "-" {
        let bar = progress::bar(&request.name, None, server.json);
        client.import_image(&request, pieces(tokio::io::stdin(), bar)).await?
    } else {
        let failed = |e: std::io::Error| Failure::file(&file, &e);
        let archive = File::open(&file).await.map_err(failed)?;
        let total = archive.metadata().await.map_err(failed)?.len();
        let bar = progress::bar(&request.name, Some(total), server.json);
        let made = client.import_image(&request, pieces(archive, bar.clone())).await;
        bar.finish_and_clear();
        made?
    };
    let text = format!("{}\n", terminal::plain(&made.id));
    Ok((made.json, text, server))
}

pub(crate) async fn run(command: ImageCommand) -> Result<u8, Failure> {
    let (json, text, server) = match command {
        ImageCommand::Ls(Ls { server }) => {
            let all = server.client()?.list_images().await?;
            let text = listed(&all.items);
            (all.json, text, server)
        }
        ImageCommand::Import(options) => import(options).await?,
        ImageCommand::Pull(options) => return builds::pull(options).await,
        ImageCommand::Build(options) => return template::build(*options).await,
        ImageCommand::Builds(Ls { server }) => {
            let (json, text) = builds::list(&server).await?;
            (json, text, server)
        }
        ImageCommand::Log(options) => return builds::log(options).await,
        ImageCommand::Cancel(options) => return builds::cancel(options).await,
        ImageCommand::Export(Export { image, output, server }) => {
            transfer::check_output(&output).await?;
            let archive = server.client()?.export_image(&image).await;
            let archive = archive.map_err(|e| Failure::from(e).about(&image))?;
            return transfer::save(archive, &output, &image, server.json).await;
        }
        ImageCommand::Push(Push { image, reference, username, password_file, server }) => {
            let password = username.as_ref().map(|_| builds::password(password_file)).transpose()?;
            let request = PushImage { reference, username, password, token: None };
            let spinner =
                progress::spinner(&format!("pushing {image} to {}", request.reference), server.json);
            let pushed = server.client()?.push_image(&image, &request).await;
            spinner.finish_and_clear();
            let pushed = pushed.map_err(|e| Failure::from(e).about(&image))?;
            let text = format!("{}\n", terminal::plain(&format!("{}@{}", pushed.reference, pushed.digest)));
            (pushed.json, text, server)
        }
        ImageCommand::Inspect(One { image, server }) => {
            let one = server.client()?.image(&image).await?;
            let text = shown(&one);
            (one.json, text, server)
        }
        ImageCommand::Approve(Approve { images, revoke, server }) => {
            let client = server.client()?;
            let patch = PatchImage { approved: Some(!revoke), ..PatchImage::default() };
            return each(&images, server.json, async |image| {
                client.patch_image(image, &patch).await.map_err(|e| Failure::from(e).about(image))?;
                terminal::print_done(image, server.json)
            })
            .await;
        }
        ImageCommand::Rm(Several { images, server }) => {
            let client = server.client()?;
            return each(&images, server.json, async |image| {
                client.delete_image(image).await.map_err(|e| Failure::from(e).about(image))?;
                terminal::print_done(image, server.json)
            })
            .await;
        }
    };
    match server.json {
        true => terminal::print_json(&json)?,
        false => terminal::print(&text)?,
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_for_people() {
        let image: Image = serde_json::from_value(serde_json::json!({
            "id": "3f2a11bc-0000-4000-8000-000000000001", "name": "python", "tags": ["3.12", "latest"],
            "display_name": "Py\u{1b}thon", "digest": "sha256:00", "size_bytes": 73_400_320, "origin": "import",
            "status": "ready", "approved": true, "active": false, "refusal": "is not\u{7} approved", "user": "app", "memory_mb": 512, "cpu_cores": 0.5,
            "env_vars": {"PATH": "/bin"}, "command": ["python3", "-i"], "created_at": "then", "used_by": [],
        }))
        .unwrap();
        insta::assert_snapshot!(listed(std::slice::from_ref(&image)), @r"
        NAME    TAGS         ID        SIZE  ORIGIN  APPROVED  CREATED  USED
        python  3.12 latest  3f2a11bc  70m   import  yes       then     -
        ");
        insta::assert_snapshot!(shown(&image), @r"
        Name            python
        Tags            3.12 latest
        Id              3f2a11bc-0000-4000-8000-000000000001
        Shown as        Py\u{1b}thon
        Digest          sha256:00
        Size            70m
        Origin          import
        Status          ready
        Approved        yes
        For your key    no: it is not\u{7} approved
        User            app
        Variables       PATH=/bin
        Command         python3 -i
        Default limits  512m memory, 0.5 cores
        Created         then (then)
        ");
    }
}
