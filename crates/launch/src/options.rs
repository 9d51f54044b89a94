//! What the operator decides when starting the launcher. Host paths come from here and never from a
//! request.

use atoll_storage::DriverChoice;
use clap::Parser;
use std::path::PathBuf;

/// The root half of Atoll. Started by `atoll`; there is rarely a reason to start it by hand.
#[derive(Debug, Clone, Parser)]
#[command(name = "atoll-launch", version)]
pub(crate) struct Options {
    /// The data folder.
    #[arg(long)]
    pub(crate) data_dir: PathBuf,
    /// A user, besides root, that may give orders. Can be given more than once.
    #[arg(long = "client-uid")]
    pub(crate) client_uids: Vec<u32>,
    /// Where volumes live: auto, btrfs or dir.
    #[arg(long, default_value = "auto", value_parser = driver)]
    pub(crate) storage: DriverChoice,
    /// A host folder that profiles may mount, as NAME=PATH or NAME=PATH:rw. Can be given more than once.
    #[arg(long = "share", value_parser = share)]
    pub(crate) shares: Vec<Share>,
    /// Start even where the kernel cannot enforce these limits: a comma-separated list of cgroup
    /// controllers (memory, pids, cpu, cpuset).
    #[arg(long, value_delimiter = ',')]
    pub(crate) permit_missing: Vec<String>,
    /// End when the last container and the last connection are gone.
    #[arg(long)]
    pub(crate) ephemeral: bool,
}

/// A host folder and the name that profiles know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) writable: bool,
}

fn driver(text: &str) -> Result<DriverChoice, String> {
    match text {
        "auto" => Ok(DriverChoice::Auto),
        "btrfs" => Ok(DriverChoice::Btrfs),
        "dir" => Ok(DriverChoice::Dir),
        _ => Err("expected auto, btrfs or dir".into()),
    }
}

fn share(text: &str) -> Result<Share, String> {
    let (name, path) = text.split_once('=').ok_or("expected NAME=PATH or NAME=PATH:rw")?;
    let (path, writable) = match path.strip_suffix(":rw") {
        Some(path) => (path, true),
        None => (path, false),
    };
    if !path.starts_with('/') {
        return Err("the path must be absolute".into());
    }
    Ok(Share { name: name.into(), path: path.into(), writable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_only_unless_said() {
        let plain = Share { name: "d".into(), path: "/srv/d".into(), writable: false };
        assert_eq!(share("d=/srv/d"), Ok(plain.clone()));
        assert_eq!(share("d=/srv/d:rw"), Ok(Share { writable: true, ..plain }));
        assert!(share("d=relative").is_err());
        assert!(share("nothing").is_err());
    }
}
