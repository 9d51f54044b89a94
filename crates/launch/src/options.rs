//! What the operator decides when starting the launcher. Host paths come from here and never from a
//! request.

use crate::cgroup::Controller;
use atoll_storage::DriverChoice;
use atoll_types::passwd::find_user;
use clap::Parser;
use std::path::PathBuf;

/// The root half of Atoll. Started by `atoll`; there is rarely a reason to start it by hand.
#[derive(Debug, Clone, Parser)]
#[command(name = "atoll-launch", version)]
pub(crate) struct Options {
    /// The data folder.
    #[arg(long)]
    pub(crate) data_dir: PathBuf,
    /// A user, besides root, that may send requests: its uid, or its name in /etc/passwd. Can be given more than once.
    #[arg(long = "client-uid", value_name = "UID|NAME", value_parser = client)]
    pub(crate) client_uids: Vec<u32>,
    /// Where volumes live: auto, btrfs or dir.
    #[arg(long, default_value = "auto", value_parser = driver)]
    pub(crate) storage: DriverChoice,
    /// A host folder that profiles may mount, as NAME=PATH, NAME=PATH:ro or NAME=PATH:rw. Can be given more than once.
    #[arg(long = "share", value_parser = share)]
    pub(crate) shares: Vec<Share>,
    /// Whose files in shared folders are the sandbox user's own inside, as UID:GID, and who owns what the sandbox makes
    /// there. Without it ids on disk are the ids that are seen inside.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub(crate) share_owner: Option<Owner>,
    /// Start even where the kernel cannot enforce these limits: a comma-separated list of cgroup
    /// controllers (memory, pids, cpu, cpuset).
    #[arg(long, value_delimiter = ',', value_enum, hide_possible_values = true)]
    pub(crate) permit_missing: Vec<Controller>,
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

/// A user and a group of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

fn owner(text: &str) -> Result<Owner, String> {
    let ids = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    let (uid, gid) = ids.ok_or("expected UID:GID")?;
    Ok(Owner { uid, gid })
}

fn client(text: &str) -> Result<u32, String> {
    let named = |_| {
        let passwd = std::fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}"))?;
        find_user(&passwd, text).map(|user| user.uid).ok_or_else(|| format!("there is no user {text}"))
    };
    text.parse().or_else(named)
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
    let (path, writable) = match path.rsplit_once(':') {
        Some((path, "rw")) => (path, true),
        Some((path, "ro")) => (path, false),
        _ => (path, false),
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
        assert_eq!(share("d=/srv/d:rw"), Ok(Share { writable: true, ..plain.clone() }));
        assert_eq!(share("d=/srv/d:ro"), Ok(plain.clone()));
        assert_eq!(share("d=/srv/d:rw:ro"), Ok(Share { path: "/srv/d:rw".into(), ..plain }));
        assert!(share("d=relative").is_err());
        assert!(share("nothing").is_err());
    }

    #[test]
    fn a_client_is_a_number_or_a_name() {
        assert_eq!([client("4242"), client("root")], [Ok(4242), Ok(0)]);
        assert_eq!(client("no such user"), Err("there is no user no such user".into()));
    }

    #[test]
    fn an_owner_is_two_numbers() {
        assert_eq!(owner("1000:100"), Ok(Owner { uid: 1000, gid: 100 }));
        assert!(["1000", "1000:", "user:user", "-1:0"].iter().all(|text| owner(text).is_err()));
    }
}
