//! `atoll volume`: volumes, which outlive sandboxes.

use crate::{Failure, failure::each, list::mebibytes, server::Server, size, table, terminal, when};
use atoll_client::{AttachedVolume, CreateVolume, Volume};
use clap::{Args, Subcommand};

/// Volumes that are asked for at a time.
const PAGE: u32 = 200;

/// `volume`.
#[derive(Debug, Args)]
pub struct VolumeOptions {
    #[command(subcommand)]
    pub(crate) command: VolumeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Makes a volume and prints its name
    Create(Create),
    /// Lists volumes
    Ls(Ls),
    /// Shows all about a volume
    Inspect(One),
    /// Changes what a volume may hold, in use or not
    Resize(Resize),
    /// Deletes volumes with all that they hold; refused while a sandbox has one
    Rm(Several),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// A name of your own
    pub(crate) name: String,
    /// What it may hold, such as 1g
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    pub(crate) disk: Option<u64>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Those of this owner; for admins
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// The volume
    pub(crate) name: String,
    /// The owner of it; for admins
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Resize {
    /// The volume
    pub(crate) name: String,
    /// What it may hold, such as 1g
    #[arg(value_name = "SIZE", value_parser = size::bytes)]
    pub(crate) disk: u64,
    /// The owner of it; for admins
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Several {
    /// The volumes
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// The owner of it; for admins
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl VolumeOptions {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            VolumeCommand::Create(Create { server, .. })
            | VolumeCommand::Ls(Ls { server, .. })
            | VolumeCommand::Inspect(One { server, .. })
            | VolumeCommand::Resize(Resize { server, .. })
            | VolumeCommand::Rm(Several { server, .. }) => server.json,
        }
    }
}

/// NAME:PATH, or NAME:PATH:ro.
pub(crate) fn attached(text: &str) -> Result<AttachedVolume, String> {
    let wrong = || "expected NAME:PATH or NAME:PATH:ro, such as data:/mnt/data".to_owned();
    let (name, path) = text.split_once(':').ok_or_else(wrong)?;
    let (path, read_only) = match path.strip_suffix(":ro") {
        Some(path) => (path, true),
        None => (path, false),
    };
    if name.is_empty() || path.is_empty() {
        return Err(wrong());
    }
    Ok(AttachedVolume { name: name.into(), path: path.into(), read_only })
}

fn listed(volumes: &[Volume]) -> String {
    let row = |volume: &Volume| {
        [
            volume.name.clone(),
            mebibytes(volume.disk_mb),
            volume.tenant_id.clone().unwrap_or_default(),
            volume.user_name.clone(),
            when::since(&volume.created_at),
        ]
    };
    let rows: Vec<_> = volumes.iter().map(row).collect();
    table::render(["NAME", "DISK", "TENANT", "OWNER", "CREATED"], &rows)
}

fn shown(volume: &Volume) -> String {
    let ids =
        |ids: &Vec<atoll_client::Uuid>| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let rows = [
        ("Name", Some(volume.name.clone())),
        ("Tenant", volume.tenant_id.clone()),
        ("Owner", Some(volume.user_name.clone())),
        ("Created", Some(format!("{} ({})", volume.created_at, when::since(&volume.created_at)))),
        ("Disk", Some(mebibytes(volume.disk_mb))),
        ("Used", volume.used_bytes.map(|bytes| format!("{bytes} bytes"))),
        ("Attached to", volume.attached_to.as_ref().filter(|all| !all.is_empty()).map(ids)),
        ("Status", volume.deleting.then(|| "being deleted".to_owned())),
    ];
    let rows: Vec<_> = rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    table::fields(&rows)
}

pub(crate) async fn run(command: VolumeCommand) -> Result<u8, Failure> {
    let (json, text, server) = match command {
        VolumeCommand::Create(Create { name, disk, server }) => {
            let new = CreateVolume { name, disk_mb: disk.map(|bytes| bytes.div_ceil(1 << 20)) };
            let made = server.client()?.create_volume(&new).await?;
            let text = format!("{}\n", terminal::plain(&made.name));
            (made.json, text, server)
        }
        VolumeCommand::Ls(Ls { owner, server }) => {
            let client = server.client()?;
            let mut first = client.list_volumes(owner.as_deref(), 1, PAGE).await?;
            let mut all = std::mem::take(&mut first.value.items);
            for page in 2.. {
                if server.json || all.len() as u64 >= first.total {
                    break;
                }
                let more = client.list_volumes(owner.as_deref(), page, PAGE).await?.value.items;
                if more.is_empty() {
                    break;
                }
                all.extend(more);
            }
            (first.json, listed(&all), server)
        }
        VolumeCommand::Inspect(One { name, owner, server }) => {
            let one = server.client()?.volume(&name, owner.as_deref()).await?;
            let text = shown(&one);
            (one.json, text, server)
        }
        VolumeCommand::Resize(Resize { name, disk, owner, server }) => {
            let client = server.client()?;
            let resized = client.resize_volume(&name, owner.as_deref(), disk.div_ceil(1 << 20)).await?;
            let text = format!("{}\n", mebibytes(resized.disk_mb));
            (resized.json, text, server)
        }
        VolumeCommand::Rm(Several { names, owner, server }) => {
            let client = server.client()?;
            return each(&names, server.json, async |name| {
                let deleted = client.delete_volume(name, owner.as_deref()).await;
                deleted.map_err(|e| Failure::from(e).about(name))?;
                terminal::print_done(name, server.json)
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
    fn a_volume_has_a_place() {
        let of = |name: &str, path: &str, read_only| AttachedVolume {
            name: name.into(),
            path: path.into(),
            read_only,
        };
        assert_eq!(attached("data:/mnt/data"), Ok(of("data", "/mnt/data", false)));
        assert_eq!(attached("data:/mnt/data:ro"), Ok(of("data", "/mnt/data", true)));
        for wrong in ["data", ":/x", "data:", "data::ro"] {
            assert!(attached(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn volumes_for_people() {
        let volume: Volume = serde_json::from_value(serde_json::json!({
            "name": "data", "user_name": "ann", "tenant_id": "t\u{1b}1", "disk_mb": 1024, "created_at": "then",
            "used_bytes": 7, "attached_to": ["3f2a11bc-0000-4000-8000-000000000001"],
        }))
        .unwrap();
        insta::assert_snapshot!(listed(std::slice::from_ref(&volume)), @r"
        NAME  DISK  TENANT    OWNER  CREATED
        data  1g    t\u{1b}1  ann    then
        ");
        insta::assert_snapshot!(shown(&volume), @r"
        Name         data
        Tenant       t\u{1b}1
        Owner        ann
        Created      then (then)
        Disk         1g
        Used         7 bytes
        Attached to  3f2a11bc-0000-4000-8000-000000000001
        ");
    }
}
